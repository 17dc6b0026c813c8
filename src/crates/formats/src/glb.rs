//! GLB, the binary container of glTF 2.0, with the extension `KHR_gaussian_splatting` (Khronos Group, 2026).
//!
//! Values are floats; only logarithms and logits are rounded. glTF is y-up, so scenes in COLMAP's axes are rotated by
//! half a turn about z on writing and back on reading, like `PlayCanvas`' converter does.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use serde::Deserialize;
use serde_json::{Value, json};
use splat_mesh::file::component::{BYTE, FLOAT, SHORT, UNSIGNED_BYTE, UNSIGNED_SHORT};
use splat_mesh::file::{
    GLTF_KINDS, GlbAttribute, GlbChunks, GlbVertices, MOST_GLB_BYTES, glb_bytes, json_chunk,
    write_chunks,
};
use splat_mesh::narrow::{to_f32, to_f64s};
use splat_mesh::place::{Bounds, add, cross, dot, mat_mul, mul};

use crate::error::{FormatFault, damaged};
use crate::folder::parse_json;
use crate::geometry::{logit, matrix, quaternion, sigmoid};
use crate::place::ScenePlacement;
use crate::save::WorstErrors;
use crate::splats::{Antialiasing, CheckedSplats, SplatColumns, Splats, sh_rest_count};

/// Name of the extension and prefix of its attributes.
const EXTENSION: &str = "KHR_gaussian_splatting";

/// Half turn between the scene's axes and those of glTF.
const TURN: ScenePlacement =
    ScenePlacement { rotation: [0.0, 0.0, 0.0, 1.0], scale: 1.0, translation: [0.0; 3] };

/// Returns the attribute of coefficient `number` above degree 0.
fn rest_name(number: usize) -> String {
    let degree = [1, 2, 3].into_iter().find(|degree| number < (degree + 1) * (degree + 1) - 1);
    let degree = degree.unwrap_or(3);
    format!("{EXTENSION}:SH_DEGREE_{degree}_COEF_{}", number + 1 - degree * degree)
}

// Access to rows of numbers in the binary chunk.

struct GlbContent<'a> {
    document: GltfDocument,
    binary: &'a [u8],
}

impl GlbContent<'_> {
    /// Returns all rows of `N` numbers of an accessor; fails unless there are `count`.
    fn rows<const N: usize>(
        &self,
        number: usize,
        count: usize,
    ) -> Result<Vec<[f32; N]>, FormatFault> {
        let accessor = self.accessor(number)?;
        if accessor.count != count {
            return damaged(format!(
                "has attributes without as many rows: {count} and {}",
                accessor.count
            ));
        }
        let expected = GLTF_KINDS[N];
        if accessor.kind != expected || accessor.sparse.is_some() {
            return damaged(format!(
                "has an accessor of type {} where a plain {expected} is expected",
                accessor.kind
            ));
        }
        let width = component_bytes(accessor)?;
        let Some(view) = accessor.buffer_view.and_then(|i| self.document.buffer_views.get(i))
        else {
            return damaged(format!(
                "names bufferView {}, which is not there",
                accessor.buffer_view.map_or("nothing".to_owned(), |number| number.to_string())
            ));
        };
        if view.buffer != 0 {
            return damaged(format!("keeps values in buffer {}, not in its own", view.buffer));
        }
        let stride = view.byte_stride.unwrap_or(N * width);
        let needed = match count.checked_sub(1) {
            None => Some(0),
            Some(last) => last.checked_mul(stride).and_then(|bytes| bytes.checked_add(N * width)),
        };
        let bytes = self.binary.get(view.byte_offset..).and_then(|rest| {
            rest.get(..view.byte_length)?.get(accessor.byte_offset..)?.get(..needed?)
        });
        let Some(bytes) = bytes.filter(|_| stride >= N * width) else {
            return damaged(format!("is truncated: accessor {number} reaches past its end"));
        };
        let read = |at: usize| component(accessor, &bytes[at..at + width]);
        let row = |row: usize| std::array::from_fn(|i| read(row * stride + i * width));
        Ok((0..count).map(row).collect())
    }

    fn accessor(&self, number: usize) -> Result<&GltfAccessor, FormatFault> {
        self.document.accessors.get(number).ok_or_else(|| {
            FormatFault::damaged(format!("names accessor {number}, which is not there"))
        })
    }
}

fn component_bytes(accessor: &GltfAccessor) -> Result<usize, FormatFault> {
    match (accessor.component_type, accessor.normalized) {
        (FLOAT, _) => Ok(4),
        (SHORT | UNSIGNED_SHORT, true) => Ok(2),
        (BYTE | UNSIGNED_BYTE, true) => Ok(1),
        (other, _) => damaged(format!(
            "has values of type {other}; floats ({FLOAT}) or normalised integers are expected"
        )),
    }
}

/// Decodes a float or a normalised integer (glTF 2.0, 3.6.2.2).
fn component(accessor: &GltfAccessor, bytes: &[u8]) -> f32 {
    match (accessor.component_type, bytes) {
        (FLOAT, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (SHORT, &[a, b]) => (f32::from(i16::from_le_bytes([a, b])) / 32_767.0).max(-1.0),
        (UNSIGNED_SHORT, &[a, b]) => f32::from(u16::from_le_bytes([a, b])) / 65_535.0,
        (BYTE, &[a]) => (f32::from(i8::from_le_bytes([a])) / 127.0).max(-1.0),
        (UNSIGNED_BYTE, &[a]) => f32::from(a) / 255.0,
        _ => f32::NAN,
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GltfDocument {
    accessors: Vec<GltfAccessor>,
    buffer_views: Vec<GltfView>,
    buffers: Vec<GltfBuffer>,
    meshes: Vec<GltfMesh>,
    nodes: Vec<GltfNode>,
    scenes: Vec<GltfScene>,
    scene: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GltfScene {
    nodes: Vec<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GltfAccessor {
    buffer_view: Option<usize>,
    byte_offset: usize,
    component_type: u32,
    normalized: bool,
    count: usize,
    #[serde(rename = "type")]
    kind: String,
    sparse: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GltfView {
    buffer: usize,
    byte_offset: usize,
    byte_length: usize,
    byte_stride: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GltfBuffer {
    uri: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GltfMesh {
    primitives: Vec<GltfPrimitive>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GltfPrimitive {
    attributes: BTreeMap<String, usize>,
    extensions: GltfPrimitiveExtensions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GltfPrimitiveExtensions {
    #[serde(rename = "KHR_gaussian_splatting")]
    splatting: Option<GltfSplatting>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GltfSplatting {
    color_space: Option<String>,
    /// Compression extensions, by name.
    extensions: BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GltfNode {
    mesh: Option<usize>,
    children: Vec<usize>,
    /// Sixteen numbers, column-major.
    matrix: Option<[f64; 16]>,
    translation: Option<[f64; 3]>,
    /// Quaternion (x, y, z, w).
    rotation: Option<[f64; 4]>,
    scale: Option<[f64; 3]>,
}

// Meshes of a glTF and their transforms.

/// Largest depth of the node tree.
const MAX_LEVELS: usize = 64;

/// Tolerance for a node's matrix to be a similarity transform.
const TOLERANCE: f64 = 1e-3;

/// Linear part, by rows, and translation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Affine {
    rows: [[f64; 3]; 3],
    translation: [f64; 3],
}

impl Affine {
    const IDENTITY: Self =
        Self { rows: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], translation: [0.0; 3] };

    fn of(node: &GltfNode) -> Self {
        if let Some(m) = node.matrix {
            let rows = std::array::from_fn(|i| std::array::from_fn(|j| m[4 * j + i]));
            return Self { rows, translation: [m[12], m[13], m[14]] };
        }
        let [x, y, z, w] = node.rotation.unwrap_or([0.0, 0.0, 0.0, 1.0]);
        let length = (x * x + y * y + z * z + w * w).sqrt();
        let scale = node.scale.unwrap_or([1.0; 3]);
        let rows = matrix([w, x, y, z].map(|part| part / length));
        Self {
            rows: rows.map(|row| std::array::from_fn(|j| row[j] * scale[j])),
            translation: node.translation.unwrap_or_default(),
        }
    }

    /// Returns this transform after `first`.
    fn after(&self, first: &Self) -> Self {
        let moved = mul(&self.rows, first.translation);
        Self { rows: mat_mul(&self.rows, &first.rows), translation: add(moved, self.translation) }
    }

    /// Transforms Gaussians. Returns the number of Gaussians that leave the range of f32.
    fn place(&self, splats: &mut Splats) -> Result<usize, FormatFault> {
        if *self == Self::IDENTITY {
            return Ok(0);
        }
        let columns = [0, 1, 2].map(|j| self.rows.map(|row| row[j]));
        let [a, b, c] = columns;
        let determinant = dot(cross(a, b), c);
        let scale = determinant.abs().cbrt();
        let products = mat_mul(&columns, &self.rows);
        let is_even = |i: usize, j: usize| {
            let due = f64::from(u8::from(i == j));
            (products[i][j] / (scale * scale) - due).abs() <= TOLERANCE
        };
        if !(0..9).all(|at| is_even(at / 3, at % 3)) {
            return Err(FormatFault::Unsupported(format!(
                "has a node with a matrix that stretches or skews ({:?}). Apply it before the export",
                self.rows
            )));
        }
        let handedness = determinant.signum();
        if handedness < 0.0 {
            splats.mirror([-1.0, 1.0, 1.0]);
        }
        let rotation = self.rows.map(|[x, y, z]| [handedness * x, y, z].map(|it| it / scale));
        let to =
            ScenePlacement { rotation: quaternion(rotation), scale, translation: self.translation };
        Ok(splats.place(&to)?)
    }
}

/// Returns the numbers of the meshes of the default scene, or of all root nodes without scenes, and their transforms
/// to the scene.
fn placed_meshes(document: &GltfDocument) -> Result<Vec<(usize, Affine)>, FormatFault> {
    let roots: Vec<usize> = match document.scenes.get(document.scene) {
        Some(scene) => scene.nodes.clone(),
        None => {
            let children: HashSet<_> =
                document.nodes.iter().flat_map(|node| &node.children).collect();
            (0..document.nodes.len()).filter(|node| !children.contains(node)).collect()
        }
    };
    let mut placed = Vec::new();
    let mut is_seen = vec![false; document.nodes.len()];
    let mut open: Vec<_> =
        roots.into_iter().rev().map(|node| (node, Affine::IDENTITY, 0)).collect();
    while let Some((number, above, level)) = open.pop() {
        let Some(node) = document.nodes.get(number) else {
            return damaged(format!("names node {number}, which is not there"));
        };
        if level > MAX_LEVELS || std::mem::replace(&mut is_seen[number], true) {
            return damaged(format!("has node {number} in its tree twice"));
        }
        let to = above.after(&Affine::of(node));
        placed.extend(node.mesh.map(|mesh| (mesh, to)));
        open.extend(node.children.iter().rev().map(|&child| (child, to, level + 1)));
    }
    if placed.is_empty() {
        placed.extend((0..document.meshes.len()).map(|mesh| (mesh, Affine::IDENTITY)));
    }
    Ok(placed)
}

// Reading GLB.

/// Largest JSON in bytes, a hundred times the JSON of a typical file.
const MAX_JSON_BYTES: usize = 1 << 20;

/// Colour space that all other formats have.
const DEFAULT_COLOR_SPACE: &str = "srgb_rec709_display";

/// Reads all Gaussians of the scene, transforms them by their nodes and converts them to the scene's axes.
///
/// Negative scales are read as logarithms, as in the draft of 2025.
pub fn parse_glb(bytes: &[u8]) -> Result<CheckedSplats, FormatFault> {
    let GlbChunks { json, binary } = GlbChunks::of(bytes)?;
    if json.len() > MAX_JSON_BYTES {
        return damaged("has JSON of more than 1 MiB, so it is no scene");
    }
    let content = GlbContent { document: parse_json("JSON", json)?, binary };
    if let Some(uri) = content.document.buffers.iter().find_map(|buffer| buffer.uri.as_ref()) {
        return Err(FormatFault::Unsupported(format!(
            "keeps values in another file, {}: export it as one GLB",
            uri.chars().take(60).collect::<String>()
        )));
    }
    let mut notes = Vec::new();
    let mut parts: Vec<Splats> = Vec::new();
    let (mut dropped, mut count) = (0, 0);
    for (mesh, to) in placed_meshes(&content.document)? {
        let Some(mesh) = content.document.meshes.get(mesh) else {
            return damaged(format!("names mesh {mesh}, which is not there"));
        };
        for primitive in mesh.primitives.iter().filter(|it| it.extensions.splatting.is_some()) {
            check_extension(primitive, &mut notes)?;
            let mut part = Splats::from_columns(columns_of(&content, primitive, &mut notes)?)?;
            dropped += part.dropped + to.place(&mut part.splats)?;
            count += part.splats.len();
            // Many nodes may share a mesh: limit the count by the file size.
            if count > bytes.len() {
                return damaged("repeats its Gaussians too often");
            }
            parts.push(part.splats);
        }
    }
    let Some(sh_degree) = parts.iter().map(Splats::sh_degree).max() else {
        return Err(FormatFault::Unsupported(format!(
            "holds no Gaussians ({EXTENSION}): give a GLB of a trained scene"
        )));
    };
    let mut columns = SplatColumns::with_capacity(sh_degree, count);
    for part in parts {
        columns.append(&part.with_sh_degree(sh_degree).into_columns());
    }
    let mut checked = Splats::from_columns(columns)?;
    checked.dropped += dropped + checked.splats.place(&TURN)?;
    notes.dedup();
    checked.notes = notes;
    Ok(checked)
}

fn check_extension(primitive: &GltfPrimitive, notes: &mut Vec<String>) -> Result<(), FormatFault> {
    let Some(extension) = &primitive.extensions.splatting else { return Ok(()) };
    if let Some(packing) = extension.extensions.keys().next() {
        return Err(FormatFault::Unsupported(format!(
            "is packed by {packing}, which is not read: export it without"
        )));
    }
    match extension.color_space.as_deref() {
        None | Some(DEFAULT_COLOR_SPACE) => {}
        Some(other) => notes.push(format!("its colours, of {other}, are taken as they are")),
    }
    Ok(())
}

fn columns_of(
    content: &GlbContent<'_>,
    primitive: &GltfPrimitive,
    notes: &mut Vec<String>,
) -> Result<SplatColumns, FormatFault> {
    let number = |name: &str| {
        primitive.attributes.get(name).copied().ok_or_else(|| {
            FormatFault::damaged(format!("has no attribute {name}, which Gaussians need"))
        })
    };
    let own = |name: &str| number(&format!("{EXTENSION}:{name}"));
    let position = number("POSITION")?;
    let count = content.accessor(position)?.count;
    let means = content.rows::<3>(position, count)?;
    let rotations = content.rows::<4>(own("ROTATION")?, count)?;
    let scales = content.rows::<3>(own("SCALE")?, count)?;
    let opacities = content.rows::<1>(own("OPACITY")?, count)?;
    let sh_dc = content.rows::<3>(own("SH_DEGREE_0_COEF_0")?, count)?;
    let has_all = |degree: u32| {
        (0..sh_rest_count(degree)).all(|k| primitive.attributes.contains_key(&rest_name(k)))
    };
    let sh_degree = (1..=3).take_while(|&degree| has_all(degree)).last().unwrap_or(0);
    let width = sh_rest_count(sh_degree);
    let coefficients = (0..width)
        .map(|k| content.rows::<3>(number(&rest_name(k))?, count))
        .collect::<Result<Vec<_>, _>>()?;

    let is_draft = scales.as_flattened().iter().any(|&scale| scale < 0.0);
    if is_draft {
        notes.push(
            "the file has negative scales, so it is of the draft of 2025 and has logarithms"
                .to_owned(),
        );
    }
    let log = |scale: f32| if is_draft { scale } else { to_f32(f64::from(scale).ln()) };
    Ok(SplatColumns {
        sh_degree,
        means,
        log_scales: scales.iter().map(|scale| scale.map(log)).collect(),
        rotations: rotations.iter().map(|&[x, y, z, w]| [w, x, y, z]).collect(),
        opacity_logits: opacities
            .iter()
            .map(|&[share]| logit(f64::from(share).clamp(0.0, 1.0)))
            .collect(),
        sh_dc,
        sh_rest: (0..count).flat_map(|row| coefficients.iter().map(move |c| c[row])).collect(),
        ..SplatColumns::default()
    })
}

// Writing GLB.

/// Error of Gaussians that a GLB cannot hold.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum GlbError {
    #[error(
        "a GLB holds {limit} bytes at most, but {count} Gaussians need {needed}: crop the scene or \
         cut its SH degree"
    )]
    TooLarge { needed: u64, limit: u64, count: usize },
    // glTF has no empty accessors.
    #[error("a GLB cannot hold a scene without Gaussians: crop less")]
    Empty,
    #[error("GLB cannot be written: {0}. Check the free space and the permissions of the folder")]
    Write(#[from] io::Error),
}

/// Writes Gaussians in their order, y-up. Returns the errors of the file.
///
/// The extension cannot mark the 2D filter of Mip-Splatting, which is lost.
pub fn write_glb(splats: &Splats, out: &mut dyn Write) -> Result<WorstErrors, GlbError> {
    if splats.is_empty() {
        return Err(GlbError::Empty);
    }
    let mut turned = splats.clone();
    turned.place(&TURN).map_err(io::Error::other)?;
    turned.columns_mut().antialiasing = Antialiasing::Off;
    let columns = turned.columns();
    let vertices = vertices_of(columns);
    let binary = vertices.bytes();
    let json = json_chunk(&describe(columns, &vertices));
    let needed = glb_bytes(&json, binary);
    if needed > MOST_GLB_BYTES {
        return Err(GlbError::TooLarge { needed, limit: MOST_GLB_BYTES, count: splats.len() });
    }
    write_chunks(out, &json, binary)?;
    vertices.write(out)?;
    drop(vertices);
    Ok(WorstErrors::between(splats, &stored(turned)?))
}

fn vertices_of(columns: &SplatColumns) -> GlbVertices<'_> {
    let own = |name: &str| format!("{EXTENSION}:{name}");
    let mut attributes = vec![
        GlbAttribute::floats("POSITION", move |row| columns.means[row]),
        // For viewers of point clouds.
        GlbAttribute::colors(move |row| columns.color_bytes(row)),
        GlbAttribute::floats(&own("ROTATION"), move |row| {
            let [w, x, y, z] = columns.rotations[row];
            [x, y, z, w]
        }),
        GlbAttribute::floats(&own("SCALE"), move |row| columns.log_scales[row].map(scale)),
        GlbAttribute::floats(&own("OPACITY"), move |row| {
            [to_f32(sigmoid(columns.opacity_logits[row]))]
        }),
        GlbAttribute::floats(&own("SH_DEGREE_0_COEF_0"), move |row| columns.sh_dc[row]),
    ];
    for k in 0..sh_rest_count(columns.sh_degree) {
        attributes.push(GlbAttribute::floats(&rest_name(k), move |row| columns.rest(row)[k]));
    }
    GlbVertices { rows: columns.len(), attributes }
}

fn describe(columns: &SplatColumns, vertices: &GlbVertices<'_>) -> Value {
    let bounds = Bounds::of(columns.means.iter().map(|&mean| to_f64s(mean)));
    let (views, accessors, attributes) = vertices.describe(&bounds);
    json!({
        "asset": {"version": "2.0", "generator": "splat"},
        "extensionsUsed": [EXTENSION],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{
            "attributes": attributes,
            "mode": 0,
            "extensions": {EXTENSION: {
                "kernel": "ellipse",
                "colorSpace": "srgb_rec709_display",
                "sortingMethod": "cameraDistance",
                "projection": "perspective",
            }},
        }]}],
        "buffers": [{"byteLength": vertices.bytes()}],
        "bufferViews": views,
        "accessors": accessors,
    })
}

/// Returns the stored scale, which is finite.
fn scale(log_scale: f32) -> f32 {
    to_f32(f64::from(log_scale).exp().min(f64::from(f32::MAX)))
}

/// Returns the Gaussians as a reader would get them.
fn stored(mut turned: Splats) -> io::Result<Splats> {
    let columns = turned.columns_mut();
    for value in columns.log_scales.as_flattened_mut() {
        *value = to_f32(f64::from(scale(*value)).ln());
    }
    for value in &mut columns.opacity_logits {
        *value = logit(f64::from(to_f32(sigmoid(*value))));
    }
    let mut stored = Splats::from_columns(turned.into_columns()).map_err(io::Error::other)?.splats;
    stored.place(&TURN).map_err(io::Error::other)?;
    Ok(stored)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use rstest::rstest;
    use splat_mesh::file::GLB_MAGIC;

    use super::*;
    use crate::splats::known_splats::{hard_splats, random_splats};

    fn written(splats: &Splats) -> (Vec<u8>, WorstErrors) {
        let mut bytes = Vec::new();
        let worst = write_glb(splats, &mut bytes).unwrap();
        (bytes, worst)
    }

    fn json_of(bytes: &[u8]) -> Value {
        serde_json::from_slice(GlbChunks::of(bytes).unwrap().json).unwrap()
    }

    fn with_json(bytes: &[u8], json: &Value) -> Vec<u8> {
        let binary = GlbChunks::of(bytes).unwrap().binary;
        let mut file = Vec::new();
        write_chunks(&mut file, &json_chunk(json), binary.len() as u64).unwrap();
        file.extend(binary);
        file
    }

    #[rstest]
    fn round_trip_is_lossless_except_rounding(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(1, 257)] count: usize,
    ) {
        let splats = random_splats(count, sh_degree, 1);
        let (bytes, worst) = written(&splats);
        let read = parse_glb(&bytes).unwrap();
        assert_eq!((read.splats.len(), read.splats.sh_degree()), (count, sh_degree));
        assert_eq!(read.notes, Vec::<String>::new());
        assert_eq!(read.splats.columns().means, splats.columns().means);
        assert_eq!(worst, WorstErrors::between(&splats, &read.splats));
        // Rounding of f32: of a scale, and of an opacity near 1.
        assert!(worst.log_scale < 1e-6 && worst.opacity < 1e-7, "{worst:?}");
        assert!(worst.rotation_degrees < 1e-4 && worst.sh < 1e-7, "{worst:?}");
        assert_eq!(worst.color, 0.0);
    }

    #[test]
    fn extreme_sizes_and_opacities_are_kept() {
        let mut splats = hard_splats(30, 0);
        splats.columns_mut().log_scales[0] = [-200.0, 100.0, 0.0];
        let (bytes, worst) = written(&splats);
        let read = parse_glb(&bytes).unwrap();
        assert_eq!((read.splats.len(), read.dropped), (30, 0));
        assert!(worst.opacity < 1e-7, "{worst:?}");
        let kept = read.splats.columns().log_scales[0];
        assert!(kept[0] < -80.0 && kept[1] > 88.0, "{kept:?}");
    }

    #[test]
    fn file_follows_the_extension() {
        let mut splats = random_splats(5, 2, 2);
        splats.columns_mut().means = vec![[1.0, 2.0, 3.0]; 5];
        let (bytes, _) = written(&splats);
        assert_eq!((&bytes[..4], bytes.len() % 4), (GLB_MAGIC.as_slice(), 0));
        let json = json_of(&bytes);
        assert_eq!(json["extensionsUsed"], json!([EXTENSION]));
        let primitive = &json["meshes"][0]["primitives"][0];
        assert_eq!(primitive["mode"], json!(0));
        assert_eq!(primitive["extensions"][EXTENSION]["kernel"], json!("ellipse"));
        let attributes = primitive["attributes"].as_object().unwrap();
        // Position, colour, rotation, scale, opacity, and nine coefficients.
        assert_eq!(attributes.len(), 5 + 9);
        let last = format!("{EXTENSION}:SH_DEGREE_2_COEF_4");
        assert!(attributes.contains_key(&last));
        let position = &json["accessors"][attributes["POSITION"].as_u64().unwrap() as usize];
        // y is up.
        assert_eq!([&position["min"], &position["max"]], [&json!([-1.0, -2.0, 3.0]); 2]);
    }

    #[test]
    fn logarithms_of_the_draft_are_detected_by_sign() {
        let splats = random_splats(9, 0, 3);
        let (mut bytes, _) = written(&splats);
        let json = json_of(&bytes);
        let name = format!("{EXTENSION}:SCALE");
        let number = json["meshes"][0]["primitives"][0]["attributes"][name].as_u64().unwrap();
        let view = &json["bufferViews"][number as usize];
        let binary = 28 + u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
        let start = binary + view["byteOffset"].as_u64().unwrap() as usize;
        let scales = splats.columns().log_scales.as_flattened();
        for (to, scale) in bytes[start..].as_chunks_mut::<4>().0.iter_mut().zip(scales) {
            *to = scale.to_le_bytes();
        }
        let read = parse_glb(&bytes).unwrap();
        assert_eq!(read.splats.columns().log_scales, splats.columns().log_scales);
        assert!(read.notes[0].contains("draft"), "{:?}", read.notes);
    }

    #[test]
    fn bytes_and_strides_of_other_writers_are_read() {
        let (bytes, _) = written(&random_splats(4, 0, 4));
        let mut json = json_of(&bytes);
        let attributes = json["meshes"][0]["primitives"][0]["attributes"].clone();
        // Take opacity from the alpha of the colours, with a stride of four bytes.
        let color = attributes["COLOR_0"].as_u64().unwrap() as usize;
        let opacity = attributes[format!("{EXTENSION}:OPACITY")].as_u64().unwrap() as usize;
        json["accessors"][opacity] = json!({
            "bufferView": color, "byteOffset": 3, "componentType": 5121, "normalized": true,
            "count": 4, "type": "SCALAR",
        });
        json["bufferViews"][color]["byteStride"] = json!(4);
        let read = parse_glb(&with_json(&bytes, &json)).unwrap().splats;
        let exact = parse_glb(&bytes).unwrap().splats;
        let worst = WorstErrors::between(&exact, &read);
        assert!(worst.opacity > 0.0 && worst.opacity < 0.51 / 255.0, "{worst:?}");
    }

    fn with_nodes(bytes: &[u8], nodes: Value) -> Result<CheckedSplats, FormatFault> {
        let mut json = json_of(bytes);
        json["nodes"] = nodes;
        parse_glb(&with_json(bytes, &json))
    }

    #[rstest]
    #[case::translation(json!([{"mesh": 0, "translation": [1, 2, 3]}]), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 1.0, [1.0, 2.0, 3.0])]
    #[case::rotation(json!([{"mesh": 0, "rotation": [0, 0, 0.5_f64.sqrt(), 0.5_f64.sqrt()]}]), [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 1.0, [0.0; 3])]
    #[case::scale(json!([{"mesh": 0, "scale": [2, 2, 2], "translation": [0, 0, 1]}]), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 2.0, [0.0, 0.0, 1.0])]
    #[case::matrix(json!([{"mesh": 0, "matrix": [0, 3, 0, 0, -3, 0, 0, 0, 0, 0, 3, 0, 5, 6, 7, 1]}]), [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 3.0, [5.0, 6.0, 7.0])]
    #[case::mirrored(json!([{"mesh": 0, "scale": [1, -1, 1]}]), [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]], 1.0, [0.0; 3])]
    #[case::tree(json!([{"children": [1], "translation": [1, 0, 0], "scale": [2, 2, 2]}, {"mesh": 0, "translation": [0, 1, 0], "rotation": [1, 0, 0, 0]}]), [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]], 2.0, [1.0, 2.0, 0.0])]
    fn nodes_place_their_gaussians(
        #[case] nodes: Value,
        #[case] rotation: [[f64; 3]; 3],
        #[case] scale: f64,
        #[case] translation: [f64; 3],
    ) {
        let splats = random_splats(20, 3, 9);
        let (bytes, _) = written(&splats);
        let placed = with_nodes(&bytes, nodes).unwrap().splats;
        let (before, after) = (splats.columns(), placed.columns());
        // In glTF axes: the scene's x and y are rotated by half a turn.
        let turned = |[x, y, z]: [f64; 3]| [-x, -y, z];
        let linear =
            |v: [f64; 3]| rotation.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum::<f64>());
        let shape = |columns: &SplatColumns, row: usize, direction: [f64; 3]| {
            let axes = matrix(columns.rotations[row].map(f64::from));
            (0..3)
                .map(|k| {
                    let along: f64 = (0..3).map(|i| axes[i][k] * direction[i]).sum();
                    (along * f64::from(columns.log_scales[row][k]).exp()).powi(2)
                })
                .sum::<f64>()
        };
        let color = |columns: &SplatColumns, row: usize, direction: [f64; 3]| {
            let values = crate::geometry::sh_basis(direction);
            columns
                .rest(row)
                .iter()
                .zip(&values[1..])
                .map(|(c, y)| f64::from(c[0]) * y)
                .sum::<f64>()
        };
        let direction = [0.36, 0.48, -0.8];
        let seen = turned(linear(turned(direction)));
        for row in 0..20 {
            let mean = linear(turned(before.means[row].map(f64::from)));
            let expected = turned(std::array::from_fn(|i| scale * mean[i] + translation[i]));
            for (found, expected) in after.means[row].iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} {expected}");
            }
            let (a, b) = (shape(before, row, direction), shape(after, row, seen));
            assert!((b / (scale * scale * a) - 1.0).abs() < 1e-3, "{a} {b}");
            let (a, b) = (color(before, row, direction), color(after, row, seen));
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }

    #[test]
    fn all_meshes_are_read_at_their_nodes() {
        let splats = random_splats(6, 1, 9);
        let (bytes, _) = written(&splats);
        let mut json = json_of(&bytes);
        // A second set without harmonics in the mesh, and the mesh in two places.
        let mut plain = json["meshes"][0]["primitives"][0].clone();
        let attributes = plain["attributes"].as_object_mut().unwrap();
        attributes.retain(|name, _| !name.contains("DEGREE_1"));
        json["meshes"][0]["primitives"].as_array_mut().unwrap().push(plain);
        json["nodes"] = json!([{"mesh": 0}, {"mesh": 0, "translation": [0, 0, 4]}, {"mesh": 0}]);
        json["scenes"] = json!([{"nodes": []}, {"nodes": [0, 1]}]);
        json["scene"] = json!(1);
        let read = parse_glb(&with_json(&bytes, &json)).unwrap();
        let columns = read.splats.columns();
        assert_eq!((columns.len(), columns.sh_degree), (24, 1));
        assert_eq!(columns.rest(5), splats.columns().rest(5));
        assert_eq!(columns.rest(6), [[0.0; 3]; 3]);
        let [x, y, z] = splats.columns().means[0];
        assert_eq!((columns.means[0], columns.means[18]), ([x, y, z], [x, y, z + 4.0]));
    }

    #[rstest]
    #[case(json!([{"mesh": 0, "scale": [1, 2, 1]}]), "stretches")]
    #[case(json!([{"mesh": 0, "scale": [0, 0, 0]}]), "stretches")]
    #[case(json!([{"mesh": 0, "children": [0]}]), "twice")]
    #[case(json!([{"mesh": 9}]), "mesh 9")]
    #[case(json!([{"mesh": 0, "children": [4]}]), "node 4")]
    fn broken_nodes_are_named(#[case] nodes: Value, #[case] expected: &str) {
        let (bytes, _) = written(&random_splats(4, 0, 5));
        let message = with_nodes(&bytes, nodes).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[rstest]
    #[case("/meshes/0/primitives/0/extensions", json!({}), "no Gaussians")]
    #[case("/accessors/0/count", json!(4_000_000_000_u32), "past its end")]
    #[case("/accessors/0/bufferView", json!(77), "bufferView 77")]
    #[case("/bufferViews/0/byteOffset", json!(4_000_000_000_u32), "truncated")]
    #[case("/accessors/0/componentType", json!(5125), "5125")]
    #[case("/buffers/0/uri", json!("scene.bin"), "scene.bin")]
    fn broken_documents_are_named(#[case] at: &str, #[case] value: Value, #[case] expected: &str) {
        let (bytes, _) = written(&random_splats(4, 0, 5));
        let mut json = json_of(&bytes);
        match json.pointer_mut(at) {
            Some(place) => *place = value,
            None => json["buffers"][0]["uri"] = value,
        }
        let message = parse_glb(&with_json(&bytes, &json)).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
