//! What of the JSON of a glTF is read here (Khronos Group, glTF 2.0, chapter 5).

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GltfDocument {
    pub(super) accessors: Vec<GltfAccessor>,
    pub(super) buffer_views: Vec<GltfView>,
    pub(super) buffers: Vec<GltfBuffer>,
    pub(super) meshes: Vec<GltfMesh>,
    pub(super) nodes: Vec<GltfNode>,
    pub(super) scenes: Vec<GltfScene>,
    pub(super) scene: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GltfScene {
    pub(super) nodes: Vec<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GltfAccessor {
    pub(super) buffer_view: Option<usize>,
    pub(super) byte_offset: usize,
    pub(super) component_type: u32,
    pub(super) normalized: bool,
    pub(super) count: usize,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) sparse: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GltfView {
    pub(super) buffer: usize,
    pub(super) byte_offset: usize,
    pub(super) byte_length: usize,
    pub(super) byte_stride: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GltfBuffer {
    pub(super) uri: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GltfMesh {
    pub(super) primitives: Vec<GltfPrimitive>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GltfPrimitive {
    pub(super) attributes: BTreeMap<String, usize>,
    pub(super) extensions: GltfPrimitiveExtensions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GltfPrimitiveExtensions {
    #[serde(rename = "KHR_gaussian_splatting")]
    pub(super) splatting: Option<GltfSplatting>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GltfSplatting {
    pub(super) color_space: Option<String>,
    /// Packings of the values, by name.
    pub(super) extensions: BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GltfNode {
    pub(super) mesh: Option<usize>,
    pub(super) children: Vec<usize>,
    /// Sixteen numbers, column by column.
    pub(super) matrix: Option<[f64; 16]>,
    pub(super) translation: Option<[f64; 3]>,
    /// A quaternion (x, y, z, w).
    pub(super) rotation: Option<[f64; 4]>,
    pub(super) scale: Option<[f64; 3]>,
}
