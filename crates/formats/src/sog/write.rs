//! SOG, written.

use std::collections::BTreeMap;
use std::io;

use rayon::prelude::*;

use super::codebook::Codebook;
use super::meta::{
    ANTIALIASED, META_NAME, SogAsset, SogCodes, SogFiles, SogMeans, SogMeta, SogPalette, VERSION,
};
use super::picture::{PictureSize, encode};
use super::read::read_sog;
use super::search::{HostSearch, RowSearch};
use super::seen::SeenFrom;
use super::shared::SharedHarmonics;
use super::values::{SqueezedRange, pack_rotation};
use crate::camera::SceneCamera;
use crate::fault::FormatFault;
use crate::folder::PartSink;
use crate::morton::morton_order;
use crate::narrow::round_u8;
use crate::opacity::sigmoid;
use crate::splats::{Antialiasing, SplatColumns, Splats};
use crate::worst::WorstErrors;

/// How a SOG is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SogOptions {
    /// Where the palette starts from: equal seeds and Gaussians make equal bytes.
    pub seed: u64,
    /// Cameras of the training, which say how much each Gaussian counts and from where it is seen; without
    /// any, each counts as its opacity times its two larger scales, and is seen from everywhere.
    pub cameras: Vec<SceneCamera>,
}

/// What helps to write a SOG.
#[derive(Clone, Copy)]
pub struct SogTools<'a> {
    /// Searches for the palette.
    pub search: &'a dyn RowSearch,
    /// From where the Gaussians, in their order, are seen, where that is known better than by the cameras
    /// of the options alone.
    pub seen: Option<&'a SeenFrom>,
    /// Fits the colours once it is known which Gaussians share their harmonics.
    pub fit: Option<&'a dyn ColorFit>,
}

/// Fits the colours of Gaussians to photographs.
pub trait ColorFit: Sync {
    /// The Gaussians as a file holds them, in its order, with colours, harmonics and opacities that fit
    /// better; those that share their harmonics still do. None where that cannot be done.
    fn fit(&self, stored: Splats, alike: &SharedRows) -> Option<Splats>;
}

/// Which Gaussians share their harmonics, and how much each counts.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedRows {
    /// The palette's entry of each.
    pub labels: Vec<u32>,
    /// Entries that there are.
    pub entries: usize,
    /// How much each counts, above 0; their mean is about 1.
    pub weights: Vec<f32>,
}

impl Default for SogTools<'_> {
    /// Nothing but the processor.
    fn default() -> Self {
        Self { search: &HostSearch, seen: None, fit: None }
    }
}

impl SogTools<'_> {
    /// From where these rows of the Gaussians are seen, whose columns are given.
    pub(crate) fn seen_of(
        &self,
        rows: &[u32],
        columns: &SplatColumns,
        options: &SogOptions,
    ) -> SeenFrom {
        match self.seen {
            Some(seen) => seen.rows(rows),
            None => SeenFrom::of_cameras(columns, &options.cameras),
        }
    }
}

/// Gaussians that no SOG can hold.
#[derive(Debug, thiserror::Error)]
pub enum SogError {
    /// More pixels than a WebP has.
    #[error("SOG cannot hold {0} Gaussians in its pictures: crop the scene or write it streamed")]
    Count(usize),
    /// The parts cannot be packed or written.
    #[error("SOG cannot be written: {0}")]
    Write(#[from] io::Error),
    /// What was written cannot be read.
    #[error("SOG cannot be read back: it {0}")]
    ReadBack(#[from] FormatFault),
}

/// Writes the parts of a SOG, `meta.json` last, and returns how far from the argument they are.
///
/// The colours of degree 0 take over what the palette lacks of the harmonics in the mean of the directions
/// from which the cameras see a Gaussian, and are compared as they are then.
pub fn write_sog(
    splats: &Splats,
    options: &SogOptions,
    tools: &SogTools<'_>,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let order = morton_order(&splats.columns().means);
    let sorted = splats.rows(&order);
    let seen = tools.seen_of(&order, sorted.columns(), options);
    write_in_order(sorted, &seen, options.seed, tools, sink)
}

/// The same in the order in which Gaussians stand.
pub(crate) fn write_in_order(
    mut sorted: Splats,
    seen: &SeenFrom,
    seed: u64,
    tools: &SogTools<'_>,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    if !PictureSize::of_count(sorted.len()).fits() {
        return Err(SogError::Count(sorted.len()));
    }
    let mut shared = None;
    if sorted.sh_degree() > 0 && !sorted.is_empty() {
        let found = SharedHarmonics::of(sorted.columns(), seen, seed, tools.search);
        shared = Some(found.compensate(&mut sorted, seen));
    }
    let mut parts = encode_sorted(sorted.columns(), shared.as_ref())?;
    let mut stored = read_sog(&mut parts)?.splats;
    if let (Some(fit), Some(found)) = (tools.fit, shared)
        && let Some(fitted) = fit.fit(stored.clone(), &found.alike(seen))
    {
        sorted = fitted;
        let found = SharedHarmonics::of_labels(sorted.columns(), seen, found.labels);
        let shared = found.compensate(&mut sorted, seen);
        parts = encode_sorted(sorted.columns(), Some(&shared))?;
        stored = read_sog(&mut parts)?.splats;
    }
    let meta = parts.remove(META_NAME);
    for (name, bytes) in &parts {
        sink.put(name, bytes)?;
    }
    sink.put(META_NAME, &meta.unwrap_or_default())?;
    Ok(WorstErrors::between(&sorted, &stored))
}

/// The parts of Gaussians in the order of the file.
fn encode_sorted(
    columns: &SplatColumns,
    shared: Option<&SharedHarmonics>,
) -> Result<BTreeMap<String, Vec<u8>>, SogError> {
    let size = PictureSize::of_count(columns.len());
    let mut pictures = Vec::new();
    let mut put = |name: &str, pixels: Vec<[u8; 4]>, size: PictureSize| {
        pictures.push((name.to_owned(), pixels, size));
        name.to_owned()
    };

    let axis = |i: usize| SqueezedRange::of(columns.means.iter().map(|mean| mean[i]));
    let ranges = [axis(0), axis(1), axis(2)];
    let steps = |byte: usize| -> Vec<[u8; 4]> {
        let pixel = |mean: &[f32; 3]| {
            let [x, y, z] = [0, 1, 2].map(|i| ranges[i].pack(mean[i]).to_le_bytes()[byte]);
            [x, y, z, 255]
        };
        columns.means.par_iter().map(pixel).collect()
    };
    let means = SogMeans {
        mins: ranges.map(|range| range.low),
        maxs: ranges.map(|range| range.high),
        files: [put("means_l.webp", steps(0), size), put("means_u.webp", steps(1), size)],
    };

    let rotations = columns.rotations.par_iter().map(|&quat| pack_rotation(quat)).collect();
    let quats = SogFiles { files: [put("quats.webp", rotations, size)] };

    let codebook = Codebook::of(columns.log_scales.as_flattened().iter().copied());
    let pixels = columns.log_scales.par_iter().map(|scale| {
        let [x, y, z] = scale.map(|scale| codebook.nearest(scale));
        [x, y, z, 255]
    });
    let files = [put("scales.webp", pixels.collect(), size)];
    let scales = SogCodes { codebook: codebook.entries, files };

    let codebook = Codebook::of(columns.sh_dc.as_flattened().iter().copied());
    let pixels = columns.sh_dc.par_iter().zip(&columns.opacity_logits).map(|(color, &logit)| {
        let [r, g, b] = color.map(|c| codebook.nearest(c));
        [r, g, b, round_u8(255.0 * sigmoid(logit))]
    });
    let files = [put("sh0.webp", pixels.collect(), size)];
    let sh0 = SogCodes { codebook: codebook.entries, files };

    let mut sh_rest = None;
    if let Some(shared) = shared {
        let codes = shared.codes.iter().map(|&[r, g, b]| [r, g, b, 255]);
        let labels = shared.labels.labels.iter().map(|label| {
            let [low, high, ..] = label.to_le_bytes();
            [low, high, 0, 255]
        });
        let files = [
            put("shN_centroids.webp", codes.collect(), shared.size()),
            put("shN_labels.webp", labels.collect(), size),
        ];
        let count = shared.entries() as u64;
        let codebook = shared.codebook.entries.clone();
        sh_rest = Some(SogPalette { count, bands: columns.sh_degree, codebook, files });
    }
    let meta = SogMeta {
        version: VERSION,
        asset: Some(SogAsset { generator: "splat".to_owned() }),
        count: columns.len() as u64,
        model: (columns.antialiasing == Antialiasing::On).then(|| ANTIALIASED.to_owned()),
        means,
        scales,
        quats,
        sh0,
        sh_rest,
    };
    let meta = serde_json::to_vec(&meta).map_err(io::Error::other)?;
    let encoded = pictures.into_par_iter().map(|(name, pixels, size)| {
        let bytes = encode(pixels, size)?;
        Ok::<_, io::Error>((name, bytes))
    });
    let mut parts: BTreeMap<String, Vec<u8>> = encoded.collect::<io::Result<_>>()?;
    parts.insert(META_NAME.to_owned(), meta);
    Ok(parts)
}
