//! `meta.json` of a SOG.

use serde::{Deserialize, Serialize};

/// The name of this part.
pub(crate) const META_NAME: &str = "meta.json";

/// The version that is read and written.
pub(super) const VERSION: u32 = 2;

/// Entries of a palette in a line of its picture.
pub(super) const ENTRIES_A_LINE: usize = 64;

/// The model of Gaussians that want the 2D filter of Mip-Splatting.
pub(super) const ANTIALIASED: &str = "antialiased";

/// What all versions have; the first has no number.
#[derive(Debug, Deserialize)]
pub(super) struct SogVersion {
    #[serde(default = "first_version")]
    pub(super) version: u32,
}

const fn first_version() -> u32 {
    1
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SogMeta {
    pub(super) version: u32,
    pub(super) asset: Option<SogAsset>,
    pub(super) count: u64,
    /// How Gaussians are drawn, where that is not as usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    pub(super) means: SogMeans,
    pub(super) scales: SogCodes,
    pub(super) quats: SogFiles,
    pub(super) sh0: SogCodes,
    #[serde(rename = "shN", skip_serializing_if = "Option::is_none")]
    pub(super) sh_rest: Option<SogPalette>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SogAsset {
    #[serde(default)]
    pub(super) generator: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SogMeans {
    pub(super) mins: [f32; 3],
    pub(super) maxs: [f32; 3],
    pub(super) files: [String; 2],
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SogCodes {
    pub(super) codebook: Vec<f32>,
    pub(super) files: [String; 1],
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SogFiles {
    pub(super) files: [String; 1],
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SogPalette {
    pub(super) count: u64,
    pub(super) bands: u32,
    pub(super) codebook: Vec<f32>,
    pub(super) files: [String; 2],
}
