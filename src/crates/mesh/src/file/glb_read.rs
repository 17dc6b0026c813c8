//! GLB as [`super::Glb`] writes it: one primitive of triangles, its colours those of the vertices or of a PNG.

use std::fs;
use std::path::Path;

use bytemuck::AnyBitPattern;
use serde_json::Value;

use super::error::MeshFileError;
use super::picture::Picture;
use crate::atlas::Atlas;
use crate::check::check_mesh;
use crate::mesh::Mesh;
use crate::narrow::to_f32;

/// A mesh and its texture, if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct PaintedMesh {
    /// The mesh; a vertex for each place on the texture.
    pub mesh: Mesh,
    /// Its texture.
    pub texture: Option<MeshPicture>,
}

/// A texture and where the faces lie on it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshPicture {
    /// Where the faces lie.
    pub atlas: Atlas,
    /// The texture.
    pub picture: Picture,
}

/// Numbers that the format gives to types (OpenGL's).
const UNSIGNED_SHORT: u64 = 5123;
const UNSIGNED_INT: u64 = 5125;
const FLOAT: u64 = 5126;

/// Reads a GLB that this program wrote, in the coordinates of its vertices: the node's turn, for viewers
/// that have y up, is left out.
pub fn read_glb(path: &Path) -> Result<PaintedMesh, MeshFileError> {
    let bytes = fs::read(path).map_err(|source| MeshFileError::unreadable(path, source))?;
    let painted =
        parse_glb(&bytes).map_err(|found| MeshFileError::Glb { path: path.to_owned(), found })?;
    check_mesh(&painted.mesh)
        .map_err(|source| MeshFileError::Mesh { path: path.to_owned(), source })?;
    Ok(painted)
}

/// The same of its bytes; else what is wrong with them.
fn parse_glb(bytes: &[u8]) -> Result<PaintedMesh, String> {
    let file = GlbParts::of(bytes)?;
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
        if uvs.len() != mesh.vertices.len() {
            return Err(format!(
                "{} texture places for {} vertices",
                uvs.len(),
                mesh.vertices.len()
            ));
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

/// The JSON and the binary chunk.
struct GlbParts<'a> {
    json: Value,
    binary: &'a [u8],
}

impl<'a> GlbParts<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, String> {
        let cut = || "it ends too early".to_owned();
        if bytes.get(..4) != Some(b"glTF") {
            return Err("it is no GLB".to_owned());
        }
        let length = word(bytes, 12).ok_or_else(cut)?;
        let json = bytes.get(20..).and_then(|rest| rest.get(..length)).ok_or_else(cut)?;
        let json = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let rest = bytes.get(20 + length..).ok_or_else(cut)?;
        let binary = match word(rest, 0) {
            Some(length) => rest.get(8..).and_then(|rest| rest.get(..length)).ok_or_else(cut)?,
            None => &[],
        };
        Ok(Self { json, binary })
    }

    /// The bytes of a view.
    fn view(&self, number: &Value) -> Result<&'a [u8], String> {
        let view = &self.json["bufferViews"][index(number)];
        let bytes = self.binary.get(index(&view["byteOffset"])..);
        bytes
            .and_then(|rest| rest.get(..index(&view["byteLength"])))
            .ok_or_else(|| format!("it has no buffer view {number}"))
    }

    /// The bytes of an accessor of this type with so many a row.
    fn rows(&self, number: &Value, component: u64, row: usize) -> Result<&'a [u8], String> {
        let accessor = &self.json["accessors"][index(number)];
        if accessor["componentType"].as_u64() != Some(component) {
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

    /// Linear light with alpha, as sRGB.
    fn colors(&self, number: &Value) -> Result<Vec<[f32; 3]>, String> {
        let bytes = self.rows(number, UNSIGNED_SHORT, 8)?;
        let rows = bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned::<[u16; 4]>);
        Ok(rows.map(|[r, g, b, _]| [r, g, b].map(srgb)).collect())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

/// A number of the JSON; one that is not there is 0 and that of nothing.
fn index(number: &Value) -> usize {
    number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Linear light in 65,535 steps as sRGB (IEC 61966-2-1).
fn srgb(light: u16) -> f32 {
    let light = f64::from(light) / 65_535.0;
    to_f32(if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::atlas::{AtlasOptions, Layout, make_atlas};
    use crate::file::Glb;
    use crate::known_meshes::sphere;

    fn written(mesh: &Mesh, texture: Option<(&Atlas, &[u8])>) -> Vec<u8> {
        let mut bytes = Vec::new();
        Glb::new(mesh, texture).unwrap().write(&mut bytes).unwrap();
        bytes
    }

    fn places(mesh: &Mesh) -> Vec<[f32; 3]> {
        mesh.faces.iter().flatten().map(|&vertex| mesh.vertices[vertex as usize]).collect()
    }

    #[test]
    fn what_is_written_is_read() {
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
        assert_eq!(places(&textured.mesh), places(&mesh));
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
