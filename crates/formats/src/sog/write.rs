//! SOG, written.

use std::collections::BTreeMap;
use std::io;

use super::codebook::Codebook;
use super::lloyd::RowTable;
use super::meta::{
    ANTIALIASED, ENTRIES_A_LINE, META_NAME, SogAsset, SogCodes, SogFiles, SogMeans, SogMeta,
    SogPalette, VERSION,
};
use super::palette::{ShPalette, entries_for};
use super::picture::{PictureSize, encode};
use super::read::read_sog;
use super::values::{SqueezedRange, pack_rotation};
use crate::fault::FormatFault;
use crate::folder::PartSink;
use crate::morton::morton_order;
use crate::narrow::{round_u8, to_f32, to_u32};
use crate::opacity::sigmoid;
use crate::splats::{Antialiasing, SplatColumns, Splats, sh_rest_count};
use crate::worst::WorstErrors;

/// How little a Gaussian may count, against the mean of all.
const LEAST_WEIGHT: f64 = 1e-6;

/// How a SOG is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SogOptions {
    /// Where the palette starts from: equal seeds and Gaussians make equal bytes.
    pub seed: u64,
}

/// Gaussians that no SOG can hold.
#[derive(Debug, thiserror::Error)]
pub enum SogError {
    /// More pixels than a WebP has.
    #[error("SOG cannot hold {0} Gaussians in its pictures: crop the scene or write it streamed")]
    Count(usize),
    /// Weights of other Gaussians.
    #[error("{found} weights are given for {count} Gaussians: give one for each")]
    Weights {
        /// Weights given.
        found: usize,
        /// Gaussians.
        count: usize,
    },
    /// The parts cannot be packed or written.
    #[error("SOG cannot be written: {0}")]
    Write(#[from] io::Error),
    /// What was written cannot be read.
    #[error("SOG cannot be read back: it {0}")]
    ReadBack(#[from] FormatFault),
}

/// Writes the parts of a SOG, `meta.json` last, and returns how far from the argument they are.
///
/// `weights` tell how much each Gaussian counts in pictures (any unit, not negative), for the palette
/// of harmonics; without them it counts as its opacity times its two larger scales.
pub fn write_sog(
    splats: &Splats,
    weights: Option<&[f32]>,
    options: &SogOptions,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let order = morton_order(&splats.columns().means);
    if let Some(weights) = weights.filter(|weights| weights.len() != splats.len()) {
        return Err(SogError::Weights { found: weights.len(), count: splats.len() });
    }
    let weights = weights.map(|weights| order.iter().map(|&row| weights[row as usize]).collect());
    let sorted = splats.rows(&order);
    let weights = weights.unwrap_or_else(|| areas(sorted.columns()));
    write_in_order(&sorted, &weights, options, sink)
}

/// The same in the order in which Gaussians stand.
pub(crate) fn write_in_order(
    sorted: &Splats,
    weights: &[f32],
    options: &SogOptions,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let mut parts = encode_sorted(sorted, weights, options)?;
    let stored = read_sog(&mut parts)?.splats;
    let meta = parts.remove(META_NAME);
    for (name, bytes) in &parts {
        sink.put(name, bytes)?;
    }
    sink.put(META_NAME, &meta.unwrap_or_default())?;
    Ok(WorstErrors::between(sorted, &stored))
}

/// Opacity times the two larger scales.
pub(crate) fn areas(columns: &SplatColumns) -> Vec<f32> {
    let area = |row: usize| {
        let scales = columns.log_scales[row].map(f64::from);
        let least = scales.into_iter().fold(f64::INFINITY, f64::min);
        let area = scales.iter().sum::<f64>() - least;
        to_f32((area.exp() * sigmoid(columns.opacity_logits[row])).min(f64::from(f32::MAX)))
    };
    (0..columns.len()).map(area).collect()
}

/// The parts of Gaussians in the order of the file.
fn encode_sorted(
    splats: &Splats,
    weights: &[f32],
    options: &SogOptions,
) -> Result<BTreeMap<String, Vec<u8>>, SogError> {
    let columns = splats.columns();
    let size = PictureSize::of_count(splats.len());
    if !size.fits() {
        return Err(SogError::Count(splats.len()));
    }
    let mut parts = BTreeMap::new();
    let mut put = |name: &str, pixels: Vec<[u8; 4]>, size: PictureSize| {
        parts.insert(name.to_owned(), encode(pixels, size)?);
        Ok::<_, io::Error>(name.to_owned())
    };

    let axis = |i: usize| SqueezedRange::of(columns.means.iter().map(|mean| mean[i]));
    let ranges = [axis(0), axis(1), axis(2)];
    let steps = |byte: usize| -> Vec<[u8; 4]> {
        let pixel = |mean: &[f32; 3]| {
            let [x, y, z] = [0, 1, 2].map(|i| ranges[i].pack(mean[i]).to_le_bytes()[byte]);
            [x, y, z, 255]
        };
        columns.means.iter().map(pixel).collect()
    };
    let means = SogMeans {
        mins: ranges.map(|range| range.low),
        maxs: ranges.map(|range| range.high),
        files: [put("means_l.webp", steps(0), size)?, put("means_u.webp", steps(1), size)?],
    };

    let rotations = columns.rotations.iter().map(|&quat| pack_rotation(quat)).collect();
    let quats = SogFiles { files: [put("quats.webp", rotations, size)?] };

    let codebook = Codebook::of(columns.log_scales.as_flattened().iter().copied());
    let pixels = columns.log_scales.iter().map(|scale| {
        let [x, y, z] = scale.map(|scale| codebook.nearest(scale));
        [x, y, z, 255]
    });
    let files = [put("scales.webp", pixels.collect(), size)?];
    let scales = SogCodes { codebook: codebook.entries, files };

    let codebook = Codebook::of(columns.sh_dc.as_flattened().iter().copied());
    let pixels = columns.sh_dc.iter().zip(&columns.opacity_logits).map(|(color, &logit)| {
        let [r, g, b] = color.map(|c| codebook.nearest(c));
        [r, g, b, round_u8(255.0 * sigmoid(logit))]
    });
    let files = [put("sh0.webp", pixels.collect(), size)?];
    let sh0 = SogCodes { codebook: codebook.entries, files };

    let mut sh_rest = None;
    if columns.sh_degree > 0 && !columns.is_empty() {
        let palette = palette_of(columns, weights, options.seed);
        let codes = palette_codes(&palette, columns, weights);
        let labels = palette.labels.iter().map(|label| {
            let [low, high, ..] = label.to_le_bytes();
            [low, high, 0, 255]
        });
        let files = [
            put("shN_centroids.webp", codes.pixels, codes.size)?,
            put("shN_labels.webp", labels.collect(), size)?,
        ];
        let count = palette.entries.len() as u64;
        let codebook = codes.codebook.entries;
        sh_rest = Some(SogPalette { count, bands: columns.sh_degree, codebook, files });
    }
    let meta = SogMeta {
        version: VERSION,
        asset: Some(SogAsset { generator: "splat".to_owned() }),
        count: splats.len() as u64,
        model: (columns.antialiasing == Antialiasing::On).then(|| ANTIALIASED.to_owned()),
        means,
        scales,
        quats,
        sh0,
        sh_rest,
    };
    let meta = serde_json::to_vec(&meta).map_err(io::Error::other)?;
    parts.insert(META_NAME.to_owned(), meta);
    Ok(parts)
}

fn palette_of(columns: &SplatColumns, weights: &[f32], seed: u64) -> ShPalette {
    let mut rows = RowTable::of_width(3 * sh_rest_count(columns.sh_degree));
    (0..columns.len()).for_each(|row| rows.push(columns.rest(row).as_flattened()));
    let finite = |weight: f32| if weight.is_finite() { f64::from(weight.max(0.0)) } else { 0.0 };
    let mean = weights.iter().map(|&weight| finite(weight)).sum::<f64>() / weights.len() as f64;
    let mean = if mean > 0.0 { mean } else { 1.0 };
    let weights: Vec<f32> =
        weights.iter().map(|&weight| to_f32((finite(weight) / mean).max(LEAST_WEIGHT))).collect();
    ShPalette::of(&rows, &weights, entries_for(columns.len()), seed)
}

/// The picture of a palette and its codebook.
struct PaletteCodes {
    codebook: Codebook,
    pixels: Vec<[u8; 4]>,
    size: PictureSize,
}

/// The coefficients of an entry count as much as the rows that it stands for.
fn palette_codes(palette: &ShPalette, columns: &SplatColumns, weights: &[f32]) -> PaletteCodes {
    let (count, width) = (palette.entries.len(), sh_rest_count(columns.sh_degree));
    let mut uses = vec![0.0_f32; count];
    for (&label, &weight) in palette.labels.iter().zip(weights) {
        uses[label as usize] += if weight.is_finite() { weight.max(0.0) } else { 0.0 };
    }
    let coefficients = |entry: usize| &palette.entries.row(entry)[..3 * width];
    let values = (0..count).flat_map(|entry| coefficients(entry).iter().copied());
    let counts = uses.iter().flat_map(|&used| std::iter::repeat_n(used, 3 * width));
    let codebook = Codebook::of_weighted(values, counts);
    let size = PictureSize {
        width: to_u32(ENTRIES_A_LINE * width),
        height: to_u32(count.div_ceil(ENTRIES_A_LINE)),
    };
    let pixels = (0..count).flat_map(|entry| {
        let channels = coefficients(entry).as_chunks::<3>().0;
        channels.iter().map(|channels| {
            let [r, g, b] = channels.map(|c| codebook.nearest(c));
            [r, g, b, 255]
        })
    });
    let pixels = pixels.collect();
    PaletteCodes { pixels, size, codebook }
}
