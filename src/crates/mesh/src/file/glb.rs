//! GLB, the binary container of glTF 2.0, with meshes (Khronos Group, specification 2.0, chapters 3 and 4).
//!
//! [`GlbChunks`] and [`write_chunks`] are the container. Reads only meshes that this program wrote: one primitive of
//! triangles, coloured by vertices or by a PNG.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use bytemuck::AnyBitPattern;
use serde_json::{Map, Value, json};

use self::component::{FLOAT, UNSIGNED_BYTE, UNSIGNED_INT, UNSIGNED_SHORT};
use super::{ByteCursor, MeshFileError, Picture, Truncated, check_atlas};
use crate::atlas::Atlas;
use crate::mesh::{Mesh, check_mesh};
use crate::narrow::{round_u16, to_f32, to_f32s, to_f64s};
use crate::place::Bounds;

/// First bytes of a GLB.
pub const GLB_MAGIC: [u8; 4] = *b"glTF";

/// Largest number of bytes of a GLB, which counts them in 32 bits.
pub const MOST_GLB_BYTES: u64 = u32::MAX as u64;

const VERSION: u32 = 2;
const JSON_CHUNK: &[u8; 4] = b"JSON";
const BINARY_CHUNK: &[u8; 4] = b"BIN\0";

/// The chunks of a GLB.
#[derive(Clone, Copy, Debug)]
pub struct GlbChunks<'a> {
    /// The JSON.
    pub json: &'a [u8],
    /// The binary chunk; empty if there is none.
    pub binary: &'a [u8],
}

/// Fault of bytes that are no readable GLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum GlbFault {
    #[error("is no GLB: it does not begin with glTF")]
    NotGlb,
    #[error("is of version {0} of glTF; 2 is read: export it as glTF 2.0")]
    Version(u32),
    #[error("does not begin with a chunk of JSON")]
    NoJson,
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

impl<'a> GlbChunks<'a> {
    /// Finds the chunks of a whole file.
    pub fn of(bytes: &'a [u8]) -> Result<Self, GlbFault> {
        let head = "the header of GLB";
        let mut cursor = ByteCursor::new(bytes);
        if cursor.take(head, 4)? != GLB_MAGIC {
            return Err(GlbFault::NotGlb);
        }
        let (version, total) = (cursor.u32(head)?, cursor.u32(head)?);
        if version != VERSION {
            return Err(GlbFault::Version(version));
        }
        let (needed, found) = (u64::from(total), bytes.len() as u64);
        if needed > found {
            return Err(Truncated { part: "the file", needed, found }.into());
        }
        let length = cursor.u32(head)? as usize;
        if cursor.take(head, 4)? != JSON_CHUNK {
            return Err(GlbFault::NoJson);
        }
        let json = cursor.take("its JSON", length)?;
        let mut binary: &[u8] = &[];
        if cursor.left() > 0 {
            let part = "its binary chunk";
            let length = cursor.u32(part)? as usize;
            cursor.take(part, 4)?;
            binary = cursor.take(part, length)?;
        }
        Ok(Self { json, binary })
    }
}

/// Returns the JSON chunk of a document, padded.
pub fn json_chunk(document: &Value) -> Vec<u8> {
    let mut json = document.to_string().into_bytes();
    json.resize(json.len().next_multiple_of(4), b' ');
    json
}

/// Returns the length of a file with this JSON chunk and this number of bytes in the binary one.
pub fn glb_bytes(json: &[u8], binary: u64) -> u64 {
    12 + 8 + json.len() as u64 + 8 + binary
}

/// Writes a file up to the content of its binary chunk, whose length is a multiple of 4.
pub fn write_chunks(out: &mut dyn Write, json: &[u8], binary: u64) -> io::Result<()> {
    let length = |bytes: u64| {
        Ok::<_, io::Error>(u32::try_from(bytes).map_err(io::Error::other)?.to_le_bytes())
    };
    out.write_all(&GLB_MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&length(glb_bytes(json, binary))?)?;
    out.write_all(&length(json.len() as u64)?)?;
    out.write_all(JSON_CHUNK)?;
    out.write_all(json)?;
    out.write_all(&length(binary)?)?;
    out.write_all(BINARY_CHUNK)
}

/// Numbers of the types of components (OpenGL's).
#[expect(missing_docs, reason = "the names are OpenGL's")]
pub mod component {
    pub const BYTE: u32 = 5120;
    pub const UNSIGNED_BYTE: u32 = 5121;
    pub const SHORT: u32 = 5122;
    pub const UNSIGNED_SHORT: u32 = 5123;
    pub const UNSIGNED_INT: u32 = 5125;
    pub const FLOAT: u32 = 5126;
}

/// Numbers of uses, filters and wrapping (OpenGL's).
const VERTEX_BUFFER: u32 = 34_962;
const INDEX_BUFFER: u32 = 34_963;
const LINEAR: u32 = 9729;
const CLAMP: u32 = 33_071;

/// Types of the rows of accessors by their count of numbers.
pub const GLTF_KINDS: [&str; 5] = ["", "SCALAR", "VEC2", "VEC3", "VEC4"];

/// Number of rows that are encoded together.
const ROWS_AT_ONCE: usize = 1 << 14;

/// Writes the value of a vertex.
type PutVertex<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

/// An attribute of the vertices of a GLB.
pub struct GlbAttribute<'a> {
    name: String,
    component: u32,
    kind: &'static str,
    row_bytes: usize,
    /// Appends the bytes of a row.
    put: PutVertex<'a>,
}

impl<'a> GlbAttribute<'a> {
    /// Returns an attribute of `N` floats a row.
    pub fn floats<const N: usize>(name: &str, row: impl Fn(usize) -> [f32; N] + 'a) -> Self {
        let put = move |at: usize, to: &mut Vec<u8>| {
            to.extend(row(at).iter().flat_map(|x| x.to_le_bytes()));
        };
        let (name, kind, put) = (name.to_owned(), GLTF_KINDS[N], Box::new(put));
        Self { name, component: FLOAT, kind, row_bytes: 4 * N, put }
    }

    /// Returns colours of four normalised channels: of a byte each if `N` is 4, of two bytes each if it is 8.
    pub fn colors<const N: usize>(row: impl Fn(usize) -> [u8; N] + 'a) -> Self {
        let component = if N == 4 { UNSIGNED_BYTE } else { UNSIGNED_SHORT };
        let put = Box::new(move |at: usize, to: &mut Vec<u8>| to.extend(row(at)));
        Self { name: "COLOR_0".to_owned(), component, kind: GLTF_KINDS[4], row_bytes: N, put }
    }
}

/// The vertices of a GLB.
pub struct GlbVertices<'a> {
    /// Number of vertices.
    pub rows: usize,
    /// Attributes in the order of the file.
    pub attributes: Vec<GlbAttribute<'a>>,
}

impl GlbVertices<'_> {
    /// Returns the bytes of all attributes.
    pub fn bytes(&self) -> u64 {
        let row_bytes: usize = self.attributes.iter().map(|attribute| attribute.row_bytes).sum();
        row_bytes as u64 * self.rows as u64
    }

    /// Returns a buffer view and an accessor of each attribute, of equal index, and the index by name; nothing without
    /// vertices. `bounds` is the box of the positions.
    pub fn describe(&self, bounds: &Bounds) -> (Vec<Value>, Vec<Value>, Map<String, Value>) {
        let (mut views, mut accessors, mut names) = (Vec::new(), Vec::new(), Map::new());
        let mut start = 0;
        for (index, attribute) in self.attributes.iter().enumerate().filter(|_| self.rows > 0) {
            let bytes = attribute.row_bytes * self.rows;
            views.push(json!({"buffer": 0, "byteOffset": start, "byteLength": bytes,
                "target": VERTEX_BUFFER}));
            start += bytes;
            let mut accessor = json!({"bufferView": index, "componentType": attribute.component,
                "count": self.rows, "type": attribute.kind});
            if attribute.component != FLOAT {
                accessor["normalized"] = json!(true);
            }
            if attribute.name == "POSITION" {
                accessor["min"] = json!(to_f32s(bounds.low));
                accessor["max"] = json!(to_f32s(bounds.high));
            }
            accessors.push(accessor);
            names.insert(attribute.name.clone(), json!(index));
        }
        (views, accessors, names)
    }

    /// Writes all rows of each attribute, one attribute after another.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        for attribute in &self.attributes {
            for start in (0..self.rows).step_by(ROWS_AT_ONCE) {
                bytes.clear();
                let rows = start..self.rows.min(start + ROWS_AT_ONCE);
                rows.for_each(|row| (attribute.put)(row, &mut bytes));
                out.write_all(&bytes)?;
            }
        }
        Ok(())
    }
}

/// A mesh laid out as GLB, its bytes counted before any is written.
#[derive(Debug)]
pub struct Glb<'a> {
    mesh: &'a Mesh,
    texture: Option<Texture<'a>>,
    json: Vec<u8>,
    /// Bytes of the binary chunk.
    binary: u64,
}

/// A texture, and the vertices of its seams: pairs of vertex and place on the atlas.
#[derive(Debug)]
struct Texture<'a> {
    atlas: &'a Atlas,
    png: &'a [u8],
    corners: Vec<[u32; 2]>,
    faces: Vec<[u32; 3]>,
}

impl<'a> Glb<'a> {
    /// Lays out a mesh and, if there is one, its texture: an atlas and the bytes of its PNG.
    ///
    /// The file shows unlit colours (`KHR_materials_unlit`) from both sides. A rotation of the node by half a turn
    /// about x converts y down (COLMAP) to y up; coordinates stay as they are. A texture replaces the colours of
    /// vertices, which would darken it.
    pub fn new(
        mesh: &'a Mesh,
        texture: Option<(&'a Atlas, &'a [u8])>,
    ) -> Result<Self, MeshFileError> {
        check_mesh(mesh)?;
        let texture = texture.map(|(atlas, png)| Texture::new(mesh, atlas, png)).transpose()?;
        let vertices = vertices_of(mesh, texture.as_ref());
        let picture = texture.as_ref().map_or(0, |texture| padded(texture.png.len() as u64));
        let binary = vertices.bytes() + face_bytes(mesh) + picture;
        let json = json_chunk(&describe(mesh, texture.as_ref(), &vertices, binary));
        drop(vertices);
        let glb = Self { mesh, texture, json, binary };
        let needed = glb.bytes();
        if needed > MOST_GLB_BYTES {
            return Err(MeshFileError::TooLarge { needed, limit: MOST_GLB_BYTES });
        }
        Ok(glb)
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> u64 {
        glb_bytes(&self.json, self.binary)
    }

    /// Writes the file. `out` should be buffered.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write_chunks(out, &self.json, self.binary)?;
        vertices_of(self.mesh, self.texture.as_ref()).write(out)?;
        let faces = self.texture.as_ref().map_or(&self.mesh.faces, |texture| &texture.faces);
        for vertex in faces.iter().flatten() {
            out.write_all(&vertex.to_le_bytes())?;
        }
        if let Some(texture) = &self.texture {
            out.write_all(texture.png)?;
            let missing = padded(texture.png.len() as u64) - texture.png.len() as u64;
            out.write_all(&[0; 3][..usize::try_from(missing).unwrap_or(0)])?;
        }
        Ok(())
    }
}

impl<'a> Texture<'a> {
    fn new(mesh: &Mesh, atlas: &'a Atlas, png: &'a [u8]) -> Result<Self, MeshFileError> {
        check_atlas(atlas, mesh)?;
        let pairs = || {
            let places = atlas.faces.as_flattened();
            mesh.faces.as_flattened().iter().zip(places).map(|(&vertex, &place)| [vertex, place])
        };
        let mut corners: Vec<[u32; 2]> = pairs().collect();
        corners.sort_unstable();
        corners.dedup();
        let named = pairs().map(|pair| corners.binary_search(&pair).unwrap_or_default());
        let names: Vec<u32> = named.map(crate::narrow::to_u32).collect();
        let faces = names.chunks_exact(3).map(|names| [names[0], names[1], names[2]]).collect();
        Ok(Self { atlas, png, corners, faces })
    }
}

fn face_bytes(mesh: &Mesh) -> u64 {
    12 * mesh.faces.len() as u64
}

/// Returns the vertices of the file; with a texture, one of each pair of vertex and place on the atlas.
fn vertices_of<'a>(mesh: &'a Mesh, texture: Option<&'a Texture<'_>>) -> GlbVertices<'a> {
    let rows = texture.map_or(mesh.vertices.len(), |texture| texture.corners.len());
    let vertex = move |row: usize| texture.map_or(row, |texture| texture.corners[row][0] as usize);
    let place = move |row| mesh.vertices[vertex(row)];
    let mut attributes = vec![GlbAttribute::floats("POSITION", place)];
    if !mesh.normals.is_empty() {
        attributes.push(GlbAttribute::floats("NORMAL", move |row| mesh.normals[vertex(row)]));
    }
    if let Some(texture) = texture {
        // v runs down in glTF as in the atlas.
        let uv = move |row: usize| texture.atlas.uv(texture.corners[row][1] as usize);
        attributes.push(GlbAttribute::floats("TEXCOORD_0", uv));
    } else if !mesh.colors.is_empty() {
        attributes.push(GlbAttribute::colors(move |row| {
            let [r, g, b] = mesh.colors[row].map(linear);
            bytemuck::cast::<_, [u8; 8]>([r, g, b, u16::MAX].map(u16::to_le_bytes))
        }));
    }
    GlbVertices { rows, attributes }
}

fn describe(
    mesh: &Mesh,
    texture: Option<&Texture<'_>>,
    vertices: &GlbVertices<'_>,
    binary: u64,
) -> Value {
    // A textured mesh is written without unused vertices.
    let bounds = match texture {
        None => Bounds::of(mesh.vertices.iter().map(|&v| to_f64s(v))),
        Some(_) => Bounds::of_faces(mesh),
    };
    let (mut views, mut accessors, attributes) = vertices.describe(&bounds);
    let mut described = json!({
        "asset": {"version": "2.0", "generator": "splat"},
        "extensionsUsed": ["KHR_materials_unlit"],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "rotation": [1, 0, 0, 0]}],
        "materials": [{
            "pbrMetallicRoughness": {"metallicFactor": 0, "roughnessFactor": 1},
            "extensions": {"KHR_materials_unlit": {}},
            "doubleSided": true,
        }],
        "buffers": [{"byteLength": binary}],
    });
    let mut primitive = json!({"attributes": attributes, "material": 0});
    let (start, bytes) = (vertices.bytes(), face_bytes(mesh));
    if bytes > 0 {
        accessors.push(json!({"bufferView": views.len(), "componentType": UNSIGNED_INT,
            "count": bytes / 4, "type": "SCALAR"}));
        primitive["indices"] = json!(accessors.len() - 1);
        views.push(json!({"buffer": 0, "byteOffset": start, "byteLength": bytes,
            "target": INDEX_BUFFER}));
    }
    if let Some(texture) = texture {
        let length = texture.png.len();
        views.push(json!({"buffer": 0, "byteOffset": start + bytes, "byteLength": length}));
        described["images"] = json!([{"bufferView": views.len() - 1, "mimeType": "image/png"}]);
        described["samplers"] =
            json!([{"magFilter": LINEAR, "minFilter": LINEAR, "wrapS": CLAMP, "wrapT": CLAMP}]);
        described["textures"] = json!([{"source": 0, "sampler": 0}]);
        described["materials"][0]["pbrMetallicRoughness"]["baseColorTexture"] = json!({"index": 0});
    }
    described["meshes"] = json!([{"primitives": [primitive]}]);
    described["accessors"] = json!(accessors);
    described["bufferViews"] = json!(views);
    described
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(4)
}

/// Returns an sRGB channel of 0 to 1 as linear light in 65,535 steps (IEC 61966-2-1).
fn linear(channel: f32) -> u16 {
    let c = f64::from(channel);
    let light = if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    round_u16(light * 65_535.0)
}

/// A mesh and its texture, if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct PaintedMesh {
    /// The mesh; a vertex for each place on the texture.
    pub mesh: Mesh,
    /// Its texture.
    pub texture: Option<MeshPicture>,
}

/// A texture and the positions of the faces on it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshPicture {
    /// Positions of the faces.
    pub atlas: Atlas,
    /// The texture.
    pub picture: Picture,
}

/// Reads a GLB that this program wrote. Ignores the node's rotation, which only turns y up for viewers.
pub fn read_glb(path: &Path) -> Result<PaintedMesh, MeshFileError> {
    let bytes = fs::read(path).map_err(|source| MeshFileError::unreadable(path, source))?;
    let painted =
        parse_glb(&bytes).map_err(|found| MeshFileError::Glb { path: path.to_owned(), found })?;
    check_mesh(&painted.mesh)
        .map_err(|source| MeshFileError::Mesh { path: path.to_owned(), source })?;
    Ok(painted)
}

/// Reads the bytes of a GLB; the error is the fault.
fn parse_glb(bytes: &[u8]) -> Result<PaintedMesh, String> {
    let GlbChunks { json, binary } = GlbChunks::of(bytes).map_err(|fault| format!("it {fault}"))?;
    let json = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let file = GlbParts { json, binary };
    let primitives = &file.json["meshes"][0]["primitives"];
    let primitive = match primitives.as_array().map(Vec::as_slice) {
        Some([primitive]) => primitive,
        _ => return Err("it holds no single mesh of triangles".to_owned()),
    };
    let attributes = &primitive["attributes"];
    let mut mesh = Mesh {
        vertices: file.floats(&attributes["POSITION"])?,
        faces: file.indices(&primitive["indices"])?,
        ..Mesh::default()
    };
    if !attributes["COLOR_0"].is_null() {
        mesh.colors = file.colors(&attributes["COLOR_0"])?;
    }
    let texture = if file.json["images"].is_null() {
        None
    } else {
        let picture = Picture::from_png(file.view(&file.json["images"][0]["bufferView"])?)
            .map_err(|error| error.to_string())?;
        let size = [picture.width, picture.height].map(|side| side as f32);
        let uvs: Vec<[f32; 2]> = file.floats(&attributes["TEXCOORD_0"])?;
        let (found, vertices) = (uvs.len(), mesh.vertices.len());
        if found != vertices {
            return Err(format!("{found} texture places for {vertices} vertices"));
        }
        let atlas = Atlas {
            width: picture.width,
            height: picture.height,
            places_px: uvs.iter().map(|uv| [uv[0] * size[0], uv[1] * size[1]]).collect(),
            faces: mesh.faces.clone(),
            charts: 0,
        };
        Some(MeshPicture { atlas, picture })
    };
    Ok(PaintedMesh { mesh, texture })
}

struct GlbParts<'a> {
    json: Value,
    binary: &'a [u8],
}

impl<'a> GlbParts<'a> {
    fn view(&self, number: &Value) -> Result<&'a [u8], String> {
        let view = &self.json["bufferViews"][index(number)];
        let bytes = self.binary.get(index(&view["byteOffset"])..);
        bytes
            .and_then(|rest| rest.get(..index(&view["byteLength"])))
            .ok_or_else(|| format!("it has no buffer view {number}"))
    }

    /// Returns the bytes of an accessor of this type and row length.
    fn rows(&self, number: &Value, component: u32, row: usize) -> Result<&'a [u8], String> {
        let accessor = &self.json["accessors"][index(number)];
        if accessor["componentType"].as_u64() != Some(component.into()) {
            return Err(format!("accessor {number} has another type than this program writes"));
        }
        let bytes = index(&accessor["count"]).saturating_mul(row);
        let view = self.view(&accessor["bufferView"])?;
        view.get(..bytes).ok_or_else(|| format!("accessor {number} is cut"))
    }

    fn floats<T: AnyBitPattern>(&self, number: &Value) -> Result<Vec<T>, String> {
        let bytes = self.rows(number, FLOAT, size_of::<T>())?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    fn indices(&self, number: &Value) -> Result<Vec<[u32; 3]>, String> {
        let accessor = &self.json["accessors"][index(number)];
        if !index(&accessor["count"]).is_multiple_of(3) {
            return Err("its corners make no whole triangles".to_owned());
        }
        let bytes = self.rows(number, UNSIGNED_INT, 4)?;
        Ok(bytes.chunks_exact(12).map(bytemuck::pod_read_unaligned).collect())
    }

    /// Returns linear light with alpha as sRGB.
    fn colors(&self, number: &Value) -> Result<Vec<[f32; 3]>, String> {
        let bytes = self.rows(number, UNSIGNED_SHORT, 8)?;
        let rows = bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned::<[u16; 4]>);
        Ok(rows.map(|[r, g, b, _]| [r, g, b].map(srgb)).collect())
    }
}

/// Returns a number of the JSON; 0 if it is missing or no index.
fn index(number: &Value) -> usize {
    number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Returns linear light in 65,535 steps as sRGB (IEC 61966-2-1).
fn srgb(light: u16) -> f32 {
    let light = f64::from(light) / 65_535.0;
    to_f32(if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 })
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::atlas::{AtlasOptions, Layout, make_atlas};
    use crate::known_meshes::{corner_places, cube, mesh_of, sphere, square};

    /// Returns the JSON and the binary chunk of a file, and checks their lengths.
    fn parts(file: &[u8]) -> (Value, &[u8]) {
        let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
        assert_eq!((&file[..4], word(4), word(8)), (GLB_MAGIC.as_slice(), 2, file.len()));
        let json_bytes = word(12);
        assert_eq!((&file[16..20], json_bytes % 4), (JSON_CHUNK.as_slice(), 0));
        let binary = 20 + json_bytes;
        assert_eq!(&file[binary + 4..binary + 8], BINARY_CHUNK);
        assert_eq!((word(binary), word(binary) % 4), (file.len() - binary - 8, 0));
        (serde_json::from_slice(&file[20..binary]).unwrap(), &file[binary + 8..])
    }

    fn bytes_of<'a>(json: &Value, binary: &'a [u8], view: &Value) -> &'a [u8] {
        let view = &json["bufferViews"][view.as_u64().unwrap() as usize];
        let start = view["byteOffset"].as_u64().unwrap() as usize;
        assert_eq!(start % 4, 0);
        &binary[start..start + view["byteLength"].as_u64().unwrap() as usize]
    }

    #[test]
    fn colours_are_linear_and_bounds_are_those_of_the_vertices() {
        let mut mesh = cube();
        mesh.vertices[7] = [1.0, 3.5, -2.0];
        mesh.colors = vec![[0.5, 0.0, 1.0]; 8];
        let file = written(&mesh, None);
        let (json, binary) = parts(&file);
        let primitive = &json["meshes"][0]["primitives"][0];
        let accessor = |name: &str| {
            &json["accessors"][primitive["attributes"][name].as_u64().unwrap() as usize]
        };
        assert_eq!(accessor("POSITION")["min"], json!([0.0, 0.0, -2.0]));
        assert_eq!(accessor("POSITION")["max"], json!([1.0, 3.5, 1.0]));
        let color = bytes_of(&json, binary, &accessor("COLOR_0")["bufferView"]);
        // ((0.5 + 0.055) / 1.055)^2.4 = 0.21404.
        assert_eq!(color[..8], [14_027, 0, 65_535, 65_535_u16].map(u16::to_le_bytes).concat());
        let indices = &json["accessors"][primitive["indices"].as_u64().unwrap() as usize];
        assert_eq!(
            (indices["count"].as_u64(), indices["componentType"].as_u64()),
            (Some(36), Some(5125))
        );
        assert!(json["materials"][0]["extensions"]["KHR_materials_unlit"].is_object());
        assert!(json.get("images").is_none());
    }

    #[test]
    fn seams_make_vertices_and_the_picture_is_padded() {
        let mesh = square();
        // Vertex 0 lies at one place of the atlas, vertex 2 at two.
        let atlas = Atlas {
            width: 8,
            height: 4,
            places_px: vec![[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [8.0, 3.0], [4.0, 4.0]],
            faces: vec![[0, 1, 2], [0, 3, 4]],
            charts: 2,
        };
        let png = [1, 2, 3, 4, 5];
        let file = written(&mesh, Some((&atlas, &png)));
        let (json, binary) = parts(&file);
        let primitive = &json["meshes"][0]["primitives"][0];
        let uvs =
            &json["accessors"][primitive["attributes"]["TEXCOORD_0"].as_u64().unwrap() as usize];
        assert_eq!(uvs["count"], json!(5));
        let uvs = bytes_of(&json, binary, &uvs["bufferView"]).chunks_exact(4);
        let uvs: Vec<f32> = uvs.map(bytemuck::pod_read_unaligned).collect();
        assert_eq!(uvs, [0.0, 0.0, 0.25, 0.0, 0.25, 0.5, 1.0, 0.75, 0.5, 1.0]);
        assert_eq!(bytes_of(&json, binary, &json["images"][0]["bufferView"]), png);
        assert_eq!(json["samplers"][0]["wrapS"], json!(33_071));
        assert!(primitive["attributes"].get("COLOR_0").is_none());
    }

    #[test]
    fn an_invalid_mesh_is_refused() {
        let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
        assert!(Glb::new(&broken, None).unwrap_err().to_string().contains("names vertex 1"));
    }

    fn written(mesh: &Mesh, texture: Option<(&Atlas, &[u8])>) -> Vec<u8> {
        let (mut bytes, glb) = (Vec::new(), Glb::new(mesh, texture).unwrap());
        glb.write(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, glb.bytes());
        bytes
    }

    #[test]
    fn meshes_are_read_as_they_were_written() {
        let mut mesh = sphere(1.0, 2);
        mesh.colors = mesh.vertices.iter().map(|v| v.map(|x| 0.5 + 0.5 * x)).collect();
        let colored = parse_glb(&written(&mesh, None)).unwrap();
        assert_eq!((&colored.mesh.vertices, &colored.mesh.faces), (&mesh.vertices, &mesh.faces));
        for (found, color) in colored.mesh.colors.iter().zip(&mesh.colors) {
            assert!((0..3).all(|i| (found[i] - color[i]).abs() < 3e-4), "{found:?} {color:?}");
        }
        let options = AtlasOptions { layout: Layout::Boxes, side_px: 64, padding_px: 1 };
        let atlas = make_atlas(&mesh, &options).unwrap().atlas;
        let mut picture = Picture::plain(atlas.width, atlas.height, [1, 2, 3]);
        picture.texels[5] = [200, 100, 0];
        let png = picture.png().unwrap();
        let textured = parse_glb(&written(&mesh, Some((&atlas, &png)))).unwrap();
        assert_eq!(corner_places(&textured.mesh), corner_places(&mesh));
        let texture = textured.texture.unwrap();
        assert_eq!(texture.picture, picture);
        for (&found, &face) in texture.atlas.faces.iter().zip(&atlas.faces) {
            let gap = |i: usize| {
                let (a, b) = (texture.atlas.corners_px(found)[i], atlas.corners_px(face)[i]);
                (a[0] - b[0]).abs().max((a[1] - b[1]).abs())
            };
            assert!((0..3).all(|corner| gap(corner) < 1e-4));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..400_usize) {
            let _either = parse_glb(&bytes);
            let mut broken = written(&sphere(1.0, 0), None);
            for (place, byte) in broken.iter_mut().skip(at).zip(&bytes) {
                *place = *byte;
            }
            let _either = parse_glb(&broken);
        }
    }
}
