//! Meshes as OBJ with their material.

use std::io::{self, Write};

use super::error::MeshFileError;
use super::write::valid;
use crate::atlas::Atlas;
use crate::mesh::Mesh;

/// Name of the material in both files.
const MATERIAL: &str = "texture";

/// What a textured OBJ adds.
#[derive(Clone, Copy, Debug)]
pub struct ObjTexture<'a> {
    /// Texture coordinates of the mesh's faces.
    pub atlas: &'a Atlas,
    /// Name of the MTL file beside the OBJ.
    pub mtl_name: &'a str,
}

/// Writes a mesh as OBJ: colours stand behind the places where there is no texture, and v runs up,
/// as the format has it. `out` should be buffered.
pub fn write_obj(
    out: &mut dyn Write,
    mesh: &Mesh,
    texture: Option<ObjTexture<'_>>,
) -> io::Result<()> {
    valid(mesh)?;
    if let Some(ObjTexture { atlas, mtl_name }) = texture {
        if atlas.faces.len() != mesh.faces.len() {
            let (found, faces) = (atlas.faces.len(), mesh.faces.len());
            let error = MeshFileError::OtherAtlas { found, faces };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        writeln!(out, "mtllib {mtl_name}")?;
    }
    for (vertex, [x, y, z]) in mesh.vertices.iter().enumerate() {
        match mesh.colors.get(vertex) {
            Some([r, g, b]) if texture.is_none() => {
                writeln!(out, "v {x} {y} {z} {r:.4} {g:.4} {b:.4}")?;
            }
            _ => writeln!(out, "v {x} {y} {z}")?,
        }
    }
    for [x, y, z] in &mesh.normals {
        writeln!(out, "vn {x:.5} {y:.5} {z:.5}")?;
    }
    if let Some(ObjTexture { atlas, .. }) = texture {
        for index in 0..atlas.places_px.len() {
            let [u, v] = atlas.uv(index);
            writeln!(out, "vt {u} {}", 1.0 - v)?;
        }
        writeln!(out, "usemtl {MATERIAL}")?;
    }
    let has_normals = !mesh.normals.is_empty();
    for (index, face) in mesh.faces.iter().enumerate() {
        let places = texture.and_then(|texture| texture.atlas.faces.get(index));
        out.write_all(b"f")?;
        for (corner, &vertex) in face.iter().enumerate() {
            let vertex = u64::from(vertex) + 1;
            match (places.map(|places| u64::from(places[corner]) + 1), has_normals) {
                (Some(uv), true) => write!(out, " {vertex}/{uv}/{vertex}")?,
                (Some(uv), false) => write!(out, " {vertex}/{uv}")?,
                (None, true) => write!(out, " {vertex}//{vertex}")?,
                (None, false) => write!(out, " {vertex}")?,
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes the material of a textured OBJ: the colours of the picture, unlit.
pub fn write_mtl(out: &mut dyn Write, picture_name: &str) -> io::Result<()> {
    writeln!(out, "newmtl {MATERIAL}")?;
    writeln!(out, "Ka 1 1 1\nKd 1 1 1\nKs 0 0 0\nillum 0\nmap_Ka {picture_name}")?;
    writeln!(out, "map_Kd {picture_name}")
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::path::Path;

    use super::*;
    use crate::file::parse_obj;
    use crate::known_meshes::cube;

    fn quadrants() -> (Mesh, Atlas) {
        let mut mesh = cube();
        mesh.faces.truncate(2);
        mesh.normals = vec![[0.0, 0.0, -1.0]; 8];
        let places_px = vec![[0.0, 0.0], [0.0, 4.0], [8.0, 0.0], [8.0, 3.0]];
        let faces = vec![[0, 1, 2], [2, 1, 3]];
        (mesh, Atlas { width: 8, height: 4, places_px, faces, charts: 1 })
    }

    /// Places of all corners; that reader names vertices anew.
    fn places_of(mesh: &tobj::Mesh) -> Vec<[f32; 3]> {
        let place = |&i: &u32| *mesh.positions[3 * i as usize..].first_chunk().unwrap();
        mesh.indices.iter().map(place).collect()
    }

    fn corner_places(mesh: &Mesh) -> Vec<[f32; 3]> {
        mesh.faces.iter().flatten().map(|&vertex| mesh.vertices[vertex as usize]).collect()
    }

    #[test]
    fn a_textured_obj_is_read_by_another_reader_v_up() {
        let (mesh, atlas) = quadrants();
        let mut obj = Vec::new();
        let texture = ObjTexture { atlas: &atlas, mtl_name: "a.mtl" };
        write_obj(&mut obj, &mesh, Some(texture)).unwrap();
        let mut mtl = Vec::new();
        write_mtl(&mut mtl, "a.png").unwrap();
        let options = tobj::LoadOptions { single_index: false, ..Default::default() };
        let (models, materials) =
            tobj::load_obj_buf(&mut BufReader::new(obj.as_slice()), &options, |name| {
                assert_eq!(name, Path::new("a.mtl"));
                tobj::load_mtl_buf(&mut mtl.as_slice())
            })
            .unwrap();
        let found = &models[0].mesh;
        let (found_places, wanted_places) = (places_of(found), corner_places(&mesh));
        assert_eq!(found_places, wanted_places);
        let uvs = found.texcoord_indices.iter().map(|&i| &found.texcoords[2 * i as usize..][..2]);
        let first = [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0]];
        let second = [first[2], first[1], [1.0, 0.25]];
        assert!(uvs.eq(first.iter().chain(&second)));
        assert_eq!(found.normals[..3], [0.0, 0.0, -1.0]);
        let materials = materials.unwrap();
        assert_eq!(materials[0].diffuse_texture.as_deref(), Some("a.png"));
        assert_eq!(found.material_id, Some(0));
    }

    #[test]
    fn a_coloured_obj_comes_back_from_both_readers() {
        let (mut mesh, _) = quadrants();
        mesh.colors = (0..8).map(|i| [0.125 * i as f32, 0.5, 1.0]).collect();
        mesh.vertices[3] = [0.1, -1.0e-7, 123_456.79];
        let mut obj = Vec::new();
        write_obj(&mut obj, &mesh, None).unwrap();
        let own = parse_obj(Path::new("a.obj"), &mut obj.as_slice()).unwrap();
        assert_eq!((&own.vertices, &own.faces), (&mesh.vertices, &mesh.faces));
        assert_eq!(own.colors, mesh.colors);
        let options = tobj::LoadOptions::default();
        let (models, _) = tobj::load_obj_buf(&mut obj.as_slice(), &options, |_| {
            Err(tobj::LoadError::GenericFailure)
        })
        .unwrap();
        let found = &models[0].mesh;
        assert_eq!(places_of(found), corner_places(&mesh));
        assert_eq!(found.vertex_color[..3], mesh.colors[mesh.faces[0][0] as usize]);
    }

    #[test]
    fn an_atlas_of_another_mesh_is_refused() {
        let (mesh, mut atlas) = quadrants();
        atlas.faces.pop();
        let texture = ObjTexture { atlas: &atlas, mtl_name: "a.mtl" };
        let error = write_obj(&mut Vec::new(), &mesh, Some(texture)).unwrap_err();
        assert!(error.to_string().contains("atlas has 1 faces, the mesh 2"), "{error}");
    }
}
