//! OBJ files with their material. Textures and groups of a file that is read are ignored.

use std::io::{self, BufRead, Write};
use std::path::Path;

use super::{MeshFileError, check_atlas, checked, open, valid};
use crate::atlas::Atlas;
use crate::mesh::Mesh;

/// Reads a mesh. Polygons become fans. Colours are kept only if all vertices have one.
pub fn read_obj(path: &Path) -> Result<Mesh, MeshFileError> {
    parse_obj(path, &mut open(path)?)
}

/// Reads a mesh from `input`; `path` is for errors.
fn parse_obj(path: &Path, input: &mut impl BufRead) -> Result<Mesh, MeshFileError> {
    let mut mesh = Mesh::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|source| MeshFileError::unreadable(path, source))? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let mut words = text.split_ascii_whitespace();
        let taken = match words.next() {
            Some("v") => take_vertex(words, &mut mesh),
            Some("f") => take_face(words, &mut mesh),
            _ => Ok(()),
        };
        taken.map_err(|found| MeshFileError::line(path, number, found))?;
    }
    if mesh.colors.len() != mesh.vertices.len() {
        mesh.colors.clear();
    }
    checked(path, mesh)
}

/// Takes x y z, or x y z w, or x y z r g b.
fn take_vertex<'a>(words: impl Iterator<Item = &'a str>, mesh: &mut Mesh) -> Result<(), String> {
    let number =
        |word: &str| word.parse().map_err(|_no_number| format!("{word:?} is not a number"));
    let values = words.map(number).collect::<Result<Vec<f32>, _>>()?;
    let (&place, rest) = values.split_first_chunk().ok_or("a vertex has three coordinates")?;
    mesh.vertices.push(place);
    mesh.colors.extend(rest.first_chunk::<3>());
    Ok(())
}

fn take_face<'a>(words: impl Iterator<Item = &'a str>, mesh: &mut Mesh) -> Result<(), String> {
    let known = mesh.vertices.len();
    let vertices = words.map(|word| vertex_of(word, known)).collect::<Result<Vec<u32>, _>>()?;
    let [first, rest @ ..] = vertices.as_slice() else {
        return Err("a face of 0 corners".to_owned());
    };
    if rest.len() < 2 {
        return Err(format!("a face of {} corners", vertices.len()));
    }
    mesh.faces.extend(rest.windows(2).map(|pair| [*first, pair[0], pair[1]]));
    Ok(())
}

/// Returns the vertex of a corner `v`, `v/vt`, `v//vn` or `v/vt/vn`: from 1, or from -1 backwards.
fn vertex_of(corner: &str, known: usize) -> Result<u32, String> {
    let name = corner.split('/').next().unwrap_or_default();
    let number: i64 =
        name.parse().map_err(|_no_number| format!("{corner:?} is not a corner of a face"))?;
    let index = if number > 0 { number - 1 } else { number.saturating_add_unsigned(known as u64) };
    match u32::try_from(index) {
        Ok(vertex) if number != 0 && (vertex as usize) < known => Ok(vertex),
        _ => Err(format!("vertex {number} stands not above this face, only {known} do")),
    }
}

/// Name of the material in the OBJ and the MTL file.
const MATERIAL: &str = "texture";

/// Texture of an OBJ.
#[derive(Clone, Copy, Debug)]
pub struct ObjTexture<'a> {
    /// Positions of the faces on the texture.
    pub atlas: &'a Atlas,
    /// Name of the MTL file beside the OBJ.
    pub mtl_name: &'a str,
}

/// Writes a mesh as OBJ. Colours follow the places if there is no texture; v runs up, as the format demands. `out`
/// should be buffered.
pub fn write_obj(
    out: &mut dyn Write,
    mesh: &Mesh,
    texture: Option<ObjTexture<'_>>,
) -> io::Result<()> {
    valid(mesh)?;
    if let Some(ObjTexture { atlas, mtl_name }) = texture {
        check_atlas(atlas, mesh)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
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

/// Writes the material of a textured OBJ: the unlit colours of the picture.
pub fn write_mtl(out: &mut dyn Write, picture_name: &str) -> io::Result<()> {
    writeln!(out, "newmtl {MATERIAL}")?;
    writeln!(out, "Ka 1 1 1\nKd 1 1 1\nKs 0 0 0\nillum 0\nmap_Ka {picture_name}")?;
    writeln!(out, "map_Kd {picture_name}")
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::{corner_places, cube};

    fn parse(text: &str) -> Result<Mesh, MeshFileError> {
        parse_obj(Path::new("a.obj"), &mut text.as_bytes())
    }

    const SQUARE: &str = "# a\no x\nv 0 0 0\nv 1 0 0 1\nv 1 1 0\nv 0 1 0\nvt 0 0\n";

    #[test]
    fn corners_of_all_forms_count_from_either_end() {
        let mesh = parse(&format!("{SQUARE}f 1/1 2/1/1 3//2 4\nf -4 -1 -2\r\n")).unwrap();
        assert_eq!(mesh.faces, [[0, 1, 2], [0, 2, 3], [0, 3, 2]]);
        assert!(mesh.colors.is_empty());
    }

    #[test]
    fn broken_lines_are_named() {
        for (line, expected) in [
            ("f 1 2 5", "a.obj, line 8: vertex 5 stands not above"),
            ("f 0 1 2", "vertex 0 stands not above"),
            ("f -5 1 2", "vertex -5 stands not above"),
            ("f 1 2", "a face of 2 corners"),
            ("f", "a face of 0 corners"),
            ("f 1 2 x", "\"x\" is not a corner"),
            ("v 1 2", "three coordinates"),
            ("v 1 2 z", "\"z\" is not a number"),
            ("", "holds no faces"),
            ("v inf 0 0\nf 1 2 3", "vertex 4 lies at"),
        ] {
            let error = parse(&format!("{SQUARE}{line}\n")).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    fn quadrants() -> (Mesh, Atlas) {
        let mut mesh = cube();
        mesh.faces.truncate(2);
        mesh.normals = vec![[0.0, 0.0, -1.0]; 8];
        let places_px = vec![[0.0, 0.0], [0.0, 4.0], [8.0, 0.0], [8.0, 3.0]];
        let faces = vec![[0, 1, 2], [2, 1, 3]];
        (mesh, Atlas { width: 8, height: 4, places_px, faces, charts: 1 })
    }

    /// Returns the places of all corners, because that reader numbers vertices differently.
    fn places_of(mesh: &tobj::Mesh) -> Vec<[f32; 3]> {
        let place = |&i: &u32| *mesh.positions[3 * i as usize..].first_chunk().unwrap();
        mesh.indices.iter().map(place).collect()
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

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = [b"v 0 0 0\nf 1 1 ".as_slice(), &bytes].concat();
            let _either = parse_obj(Path::new("a.obj"), &mut text.as_slice());
        }
    }
}
