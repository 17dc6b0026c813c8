//! The surface of OBJ files: places, their colours and faces; texture and groups are ignored.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::error::MeshFileError;
use crate::check::check_mesh;
use crate::mesh::Mesh;

/// Reads a mesh. Polygons become fans; colours are read where all places have them.
pub fn read_obj(path: &Path) -> Result<Mesh, MeshFileError> {
    let file = File::open(path).map_err(|source| MeshFileError::unreadable(path, source))?;
    parse_obj(path, &mut BufReader::with_capacity(1 << 20, file))
}

/// The same of what `input` holds; `path` is for errors.
pub fn parse_obj(path: &Path, input: &mut impl BufRead) -> Result<Mesh, MeshFileError> {
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
    for (what, found) in [("vertices", mesh.vertices.len()), ("faces", mesh.faces.len())] {
        if found == 0 {
            return Err(MeshFileError::Nothing { path: path.to_owned(), what });
        }
    }
    check_mesh(&mesh).map_err(|source| MeshFileError::Mesh { path: path.to_owned(), source })?;
    Ok(mesh)
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

/// The vertex of a corner `v`, `v/vt`, `v//vn` or `v/vt/vn`: from 1, or from -1 backwards.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = [b"v 0 0 0\nf 1 1 ".as_slice(), &bytes].concat();
            let _either = parse_obj(Path::new("a.obj"), &mut text.as_slice());
        }
    }
}
