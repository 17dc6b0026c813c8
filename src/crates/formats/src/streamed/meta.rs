//! `lod-meta.json` of a streamed SOG.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of this part.
pub(crate) const LOD_META_NAME: &str = "lod-meta.json";

/// The version that is read and written.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamedMeta {
    /// Files of 2025 have none.
    #[serde(default = "first_version")]
    pub(super) version: u32,
    pub(super) asset: Option<StreamedAsset>,
    #[serde(default)]
    pub(super) count: u64,
    #[serde(default)]
    pub(super) counts: Vec<u64>,
    pub(super) lod_levels: u32,
    pub(super) filenames: Vec<String>,
    pub(super) tree: StreamedNode,
}

const fn first_version() -> u32 {
    VERSION
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct StreamedAsset {
    #[serde(default)]
    pub(super) generator: String,
}

/// A box with either two children or, by level, the runs of its Gaussians.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct StreamedNode {
    pub(super) bound: StreamedBound,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<Self>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lods: BTreeMap<u32, StreamedRun>,
}

/// The box of all ellipsoids of a node, to three standard deviations.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct StreamedBound {
    pub(super) min: [f32; 3],
    pub(super) max: [f32; 3],
}

/// Neighbouring rows of a file.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct StreamedRun {
    pub(super) file: usize,
    pub(super) offset: usize,
    pub(super) count: usize,
}
