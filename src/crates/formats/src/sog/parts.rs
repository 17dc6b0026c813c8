//! The parts of a SOG: pictures, and what `meta.json` says of them.

use std::collections::BTreeMap;
use std::io;

use rayon::prelude::*;

use super::codebook::Codebook;
use super::meta::{
    ANTIALIASED, META_NAME, SogAsset, SogCodes, SogFiles, SogMeans, SogMeta, SogPalette, VERSION,
};
use super::picture::{PictureSize, encode};
use super::shared::SharedHarmonics;
use super::values::{SqueezedRange, pack_rotation};
use crate::opacity::sigmoid;
use crate::splats::{Antialiasing, SplatColumns};
use splat_mesh::narrow::round_u8;

/// Pictures that are not packed yet.
#[derive(Clone, Default)]
struct Pictures(Vec<(String, Vec<[u8; 4]>, PictureSize)>);

impl Pictures {
    fn put(&mut self, name: &str, pixels: Vec<[u8; 4]>, size: PictureSize) -> String {
        self.0.push((name.to_owned(), pixels, size));
        name.to_owned()
    }

    fn encoded(self) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let pictures = self.0.into_par_iter();
        pictures.map(|(name, pixels, size)| Ok((name, encode(pixels, size)?))).collect()
    }
}

/// Where Gaussians are, and how large and how turned.
pub(super) struct GeometryParts {
    pictures: Pictures,
    means: SogMeans,
    scales: SogCodes,
    quats: SogFiles,
}

impl GeometryParts {
    /// Of Gaussians in the order of the file.
    pub(super) fn of(columns: &SplatColumns) -> Self {
        let size = PictureSize::of_count(columns.len());
        let mut pictures = Pictures::default();
        let axis = |i: usize| SqueezedRange::of(columns.means.iter().map(|mean| mean[i]));
        let ranges = [axis(0), axis(1), axis(2)];
        let steps = |byte: usize| -> Vec<[u8; 4]> {
            let pixel = |mean: &[f32; 3]| {
                let [x, y, z] = [0, 1, 2].map(|i| ranges[i].pack(mean[i]).to_le_bytes()[byte]);
                [x, y, z, 255]
            };
            columns.means.par_iter().map(pixel).collect()
        };
        let files = [("means_l.webp", steps(0)), ("means_u.webp", steps(1))];
        let means = SogMeans {
            mins: ranges.map(|range| range.low),
            maxs: ranges.map(|range| range.high),
            files: files.map(|(name, pixels)| pictures.put(name, pixels, size)),
        };
        let rotations = columns.rotations.par_iter().map(|&quat| pack_rotation(quat)).collect();
        let quats = SogFiles { files: [pictures.put("quats.webp", rotations, size)] };
        let codebook = Codebook::of(columns.log_scales.as_flattened().iter().copied());
        let pixels = columns.log_scales.par_iter().map(|scale| {
            let [x, y, z] = scale.map(|scale| codebook.nearest(scale));
            [x, y, z, 255]
        });
        let files = [pictures.put("scales.webp", pixels.collect(), size)];
        Self { pictures, means, scales: SogCodes { codebook: codebook.entries, files }, quats }
    }

    /// All parts, with the colours, opacities and shared harmonics of these Gaussians.
    pub(super) fn with_colors(
        &self,
        columns: &SplatColumns,
        shared: Option<&SharedHarmonics>,
    ) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let size = PictureSize::of_count(columns.len());
        let mut pictures = self.pictures.clone();
        let codebook = Codebook::of(columns.sh_dc.as_flattened().iter().copied());
        let colors = columns.sh_dc.par_iter().zip(&columns.opacity_logits);
        let pixels = colors.map(|(color, &logit)| {
            let [r, g, b] = color.map(|c| codebook.nearest(c));
            [r, g, b, round_u8(255.0 * sigmoid(logit))]
        });
        let files = [pictures.put("sh0.webp", pixels.collect(), size)];
        let sh0 = SogCodes { codebook: codebook.entries, files };
        let sh_rest = shared.map(|shared| {
            let codes = shared.codes.iter().map(|&[r, g, b]| [r, g, b, 255]);
            let labels = shared.labels.labels.iter().map(|label| {
                let [low, high, ..] = label.to_le_bytes();
                [low, high, 0, 255]
            });
            SogPalette {
                count: shared.entries() as u64,
                bands: columns.sh_degree,
                codebook: shared.codebook.entries.clone(),
                files: [
                    pictures.put("shN_centroids.webp", codes.collect(), shared.size()),
                    pictures.put("shN_labels.webp", labels.collect(), size),
                ],
            }
        });
        let meta = SogMeta {
            version: VERSION,
            asset: Some(SogAsset { generator: "splat".to_owned() }),
            count: columns.len() as u64,
            model: (columns.antialiasing == Antialiasing::On).then(|| ANTIALIASED.to_owned()),
            means: self.means.clone(),
            scales: self.scales.clone(),
            quats: self.quats.clone(),
            sh0,
            sh_rest,
        };
        let mut parts = pictures.encoded()?;
        parts.insert(META_NAME.to_owned(), serde_json::to_vec(&meta).map_err(io::Error::other)?);
        Ok(parts)
    }
}
