//! Meshes as GLB, the binary container of glTF 2.0 (Khronos Group, specification 2.0, chapters 3
//! and 4).

use std::io::{self, Write};

use serde_json::{Value, json};

use super::error::MeshFileError;
use crate::atlas::Atlas;
use crate::check::check_mesh;
use crate::mesh::Mesh;
use crate::narrow::{to_f32s, to_f64s};
use crate::place::Bounds;

const MAGIC: &[u8; 4] = b"glTF";
const VERSION: u32 = 2;
const JSON_CHUNK: &[u8; 4] = b"JSON";
const BINARY_CHUNK: &[u8; 4] = b"BIN\0";

/// Numbers that the format gives to types, uses, filters and wrapping (OpenGL's).
const UNSIGNED_SHORT: u32 = 5123;
const UNSIGNED_INT: u32 = 5125;
const FLOAT: u32 = 5126;
const VERTEX_BUFFER: u32 = 34_962;
const INDEX_BUFFER: u32 = 34_963;
const LINEAR: u32 = 9729;
const CLAMP: u32 = 33_071;

/// A mesh laid out as GLB, its bytes counted before any is written.
#[derive(Debug)]
pub struct Glb<'a> {
    mesh: &'a Mesh,
    texture: Option<Texture<'a>>,
    json: Vec<u8>,
    layout: GlbLayout,
}

/// A texture and the vertices that its seams make: pairs of vertex and place on the atlas.
#[derive(Debug)]
struct Texture<'a> {
    atlas: &'a Atlas,
    png: &'a [u8],
    corners: Vec<[u32; 2]>,
    faces: Vec<[u32; 3]>,
}

/// Bytes of the parts of the binary chunk, each padded to 4.
#[derive(Clone, Copy, Debug, Default)]
struct GlbLayout {
    vertices: u64,
    places: u64,
    normals: u64,
    colors: u64,
    uvs: u64,
    faces: u64,
    picture: u64,
}

impl GlbLayout {
    fn bytes(&self) -> u64 {
        self.places + self.normals + self.colors + self.uvs + self.faces + self.picture
    }
}

impl<'a> Glb<'a> {
    /// Lays out a mesh and, if there is one, its texture: an atlas and the bytes of its PNG.
    ///
    /// The file shows the colours as they are (`KHR_materials_unlit`), from both sides. A rotation
    /// of the node by half a turn about x takes y down (COLMAP) to y up; coordinates stay
    /// untouched. Colours of vertices are left out where there is a texture, which they would dim.
    pub fn new(
        mesh: &'a Mesh,
        texture: Option<(&'a Atlas, &'a [u8])>,
    ) -> Result<Self, MeshFileError> {
        check_mesh(mesh)?;
        let texture = texture.map(|(atlas, png)| Texture::new(mesh, atlas, png)).transpose()?;
        let vertices = texture.as_ref().map_or(mesh.vertices.len(), |t| t.corners.len()) as u64;
        let layout = GlbLayout {
            vertices,
            places: 12 * vertices,
            normals: if mesh.normals.is_empty() { 0 } else { 12 * vertices },
            colors: if mesh.colors.is_empty() || texture.is_some() { 0 } else { 8 * vertices },
            uvs: if texture.is_some() { 8 * vertices } else { 0 },
            faces: 12 * mesh.faces.len() as u64,
            picture: texture.as_ref().map_or(0, |t| padded(t.png.len() as u64)),
        };
        let mut json = describe(mesh, texture.as_ref(), &layout).to_string().into_bytes();
        json.resize(json.len().next_multiple_of(4), b' ');
        let glb = Self { mesh, texture, json, layout };
        let (needed, limit) = (glb.bytes(), u64::from(u32::MAX));
        if needed > limit {
            return Err(MeshFileError::TooLarge { needed, limit });
        }
        Ok(glb)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        12 + 8 + self.json.len() as u64 + 8 + self.layout.bytes()
    }

    /// Writes the file. `out` should be buffered.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        write_length(out, self.bytes())?;
        write_length(out, self.json.len() as u64)?;
        out.write_all(JSON_CHUNK)?;
        out.write_all(&self.json)?;
        write_length(out, self.layout.bytes())?;
        out.write_all(BINARY_CHUNK)?;
        self.write_rows(out, &self.mesh.vertices)?;
        self.write_rows(out, &self.mesh.normals)?;
        match &self.texture {
            None => self.write_colors(out)?,
            Some(texture) => texture.write_uvs(out)?,
        }
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

    /// Writes places or normals, those of a vertex as often as it has places on the atlas.
    fn write_rows(&self, out: &mut dyn Write, rows: &[[f32; 3]]) -> io::Result<()> {
        let mut write =
            |row: &[f32; 3]| row.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()));
        match &self.texture {
            None => rows.iter().try_for_each(write),
            Some(_) if rows.is_empty() => Ok(()),
            Some(texture) => {
                texture.corners.iter().try_for_each(|corner| write(&rows[corner[0] as usize]))
            }
        }
    }

    fn write_colors(&self, out: &mut dyn Write) -> io::Result<()> {
        for color in &self.mesh.colors {
            for channel in color {
                out.write_all(&linear(*channel).to_le_bytes())?;
            }
            out.write_all(&u16::MAX.to_le_bytes())?;
        }
        Ok(())
    }
}

impl<'a> Texture<'a> {
    fn new(mesh: &Mesh, atlas: &'a Atlas, png: &'a [u8]) -> Result<Self, MeshFileError> {
        if atlas.faces.len() != mesh.faces.len() {
            let (found, faces) = (atlas.faces.len(), mesh.faces.len());
            return Err(MeshFileError::OtherAtlas { found, faces });
        }
        let pairs = || {
            let faces = mesh.faces.iter().zip(&atlas.faces);
            faces
                .flat_map(|(face, places)| std::array::from_fn::<_, 3, _>(|i| [face[i], places[i]]))
        };
        let mut corners: Vec<[u32; 2]> = pairs().collect();
        corners.sort_unstable();
        corners.dedup();
        let named = pairs().map(|pair| corners.binary_search(&pair).unwrap_or_default());
        let names: Vec<u32> = named.map(crate::narrow::to_u32).collect();
        let faces = names.chunks_exact(3).map(|names| [names[0], names[1], names[2]]).collect();
        Ok(Self { atlas, png, corners, faces })
    }

    /// v runs down in glTF, as it does in the atlas.
    fn write_uvs(&self, out: &mut dyn Write) -> io::Result<()> {
        for &[_, place] in &self.corners {
            for coordinate in self.atlas.uv(place as usize) {
                out.write_all(&coordinate.to_le_bytes())?;
            }
        }
        Ok(())
    }
}

/// The JSON chunk.
fn describe(mesh: &Mesh, texture: Option<&Texture<'_>>, layout: &GlbLayout) -> Value {
    let mut views = Vec::new();
    let mut accessors = Vec::new();
    let mut attributes = serde_json::Map::new();
    let mut start = 0;
    let mut view = |bytes: u64, target: u32| {
        views
            .push(json!({"buffer": 0, "byteOffset": start, "byteLength": bytes, "target": target}));
        start += bytes;
        views.len() - 1
    };
    // Of a textured mesh only vertices that faces use are written, else all are.
    let bounds = match texture {
        None => Bounds::of(mesh.vertices.iter().map(|&v| to_f64s(v))),
        Some(_) => Bounds::of_faces(mesh),
    };
    let kinds = [
        ("POSITION", layout.places, FLOAT, "VEC3"),
        ("NORMAL", layout.normals, FLOAT, "VEC3"),
        ("COLOR_0", layout.colors, UNSIGNED_SHORT, "VEC4"),
        ("TEXCOORD_0", layout.uvs, FLOAT, "VEC2"),
    ];
    for (name, bytes, component, kind) in kinds.into_iter().filter(|kind| kind.1 > 0) {
        let mut accessor = json!({"bufferView": view(bytes, VERTEX_BUFFER), "componentType": component,
            "count": layout.vertices, "type": kind});
        match name {
            "POSITION" => {
                accessor["min"] = json!(to_f32s(bounds.low));
                accessor["max"] = json!(to_f32s(bounds.high));
            }
            "COLOR_0" => accessor["normalized"] = json!(true),
            _ => {}
        }
        attributes.insert(name.to_owned(), json!(accessors.len()));
        accessors.push(accessor);
    }
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
        "buffers": [{"byteLength": layout.bytes()}],
    });
    let mut primitive = json!({"attributes": attributes, "material": 0});
    if layout.faces > 0 {
        accessors.push(json!({"bufferView": view(layout.faces, INDEX_BUFFER),
            "componentType": UNSIGNED_INT, "count": layout.faces / 4, "type": "SCALAR"}));
        primitive["indices"] = json!(accessors.len() - 1);
    }
    if let Some(texture) = texture {
        views.push(json!({"buffer": 0, "byteOffset": start, "byteLength": texture.png.len()}));
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

/// A length that [`Glb::new`] has found to fit.
fn write_length(out: &mut dyn Write, bytes: u64) -> io::Result<()> {
    let bytes = u32::try_from(bytes).map_err(io::Error::other)?;
    out.write_all(&bytes.to_le_bytes())
}

/// An sRGB channel of 0 to 1 as linear light in 65,535 steps (IEC 61966-2-1).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn linear(channel: f32) -> u16 {
    let c = f64::from(channel);
    let light = if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    (light * 65_535.0).round() as u16
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::known_meshes::{cube, mesh_of};

    /// The JSON and the binary chunk of a file, its lengths checked.
    fn parts(file: &[u8]) -> (Value, &[u8]) {
        let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
        assert_eq!((&file[..4], word(4), word(8)), (MAGIC.as_slice(), 2, file.len()));
        let json_bytes = word(12);
        assert_eq!((&file[16..20], json_bytes % 4), (JSON_CHUNK.as_slice(), 0));
        let binary = 20 + json_bytes;
        assert_eq!(&file[binary + 4..binary + 8], BINARY_CHUNK);
        assert_eq!((word(binary), word(binary) % 4), (file.len() - binary - 8, 0));
        (serde_json::from_slice(&file[20..binary]).unwrap(), &file[binary + 8..])
    }

    fn bytes_of(json: &Value, binary: &[u8], view: &Value) -> Vec<u8> {
        let view = &json["bufferViews"][view.as_u64().unwrap() as usize];
        let start = view["byteOffset"].as_u64().unwrap() as usize;
        assert_eq!(start % 4, 0);
        binary[start..start + view["byteLength"].as_u64().unwrap() as usize].to_vec()
    }

    #[test]
    fn colours_are_linear_and_bounds_are_those_of_the_vertices() {
        let mut mesh = cube();
        mesh.vertices[7] = [1.0, 3.5, -2.0];
        mesh.colors = vec![[0.5, 0.0, 1.0]; 8];
        let glb = Glb::new(&mesh, None).unwrap();
        let mut file = Vec::new();
        glb.write(&mut file).unwrap();
        assert_eq!(file.len() as u64, glb.bytes());
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
        let mesh = mesh_of(
            &[[0.0; 3], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]],
            &[[0, 1, 2], [0, 2, 3]],
        );
        // Vertex 0 lies at one place of the atlas, vertex 2 at two.
        let atlas = Atlas {
            width: 8,
            height: 4,
            places_px: vec![[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [8.0, 3.0], [4.0, 4.0]],
            faces: vec![[0, 1, 2], [0, 3, 4]],
            charts: 2,
        };
        let png = [1, 2, 3, 4, 5];
        let glb = Glb::new(&mesh, Some((&atlas, &png))).unwrap();
        let mut file = Vec::new();
        glb.write(&mut file).unwrap();
        let (json, binary) = parts(&file);
        let primitive = &json["meshes"][0]["primitives"][0];
        let uvs =
            &json["accessors"][primitive["attributes"]["TEXCOORD_0"].as_u64().unwrap() as usize];
        assert_eq!(uvs["count"], json!(5));
        let uvs: Vec<f32> = bytes_of(&json, binary, &uvs["bufferView"])
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(*b.first_chunk().unwrap()))
            .collect();
        assert_eq!(uvs, [0.0, 0.0, 0.25, 0.0, 0.25, 0.5, 1.0, 0.75, 0.5, 1.0]);
        assert_eq!(bytes_of(&json, binary, &json["images"][0]["bufferView"]), png);
        assert_eq!(json["samplers"][0]["wrapS"], json!(33_071));
        assert!(primitive["attributes"].get("COLOR_0").is_none());
    }

    #[test]
    fn a_mesh_that_is_none_is_refused() {
        let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
        assert!(Glb::new(&broken, None).unwrap_err().to_string().contains("names vertex 1"));
    }
}
