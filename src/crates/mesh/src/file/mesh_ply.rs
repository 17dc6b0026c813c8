//! Meshes as PLY: files of any program are read (ascii, both binary orders, polygons, any further
//! columns), binary little-endian ones are written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use super::error::MeshFileError;
use super::ply::{
    HeaderFault, NewPlyHeader, PlyElement, PlyEncoding, PlyFault, PlyHeader, RowReader, Scalar,
};
use super::{byte_of, valid};
use crate::mesh::Mesh;
use crate::mesh::check_mesh;

/// Reads a mesh. Polygons become fans; normals and colours are read where all three columns stand.
pub fn read_ply(path: &Path) -> Result<Mesh, MeshFileError> {
    let file = File::open(path).map_err(|source| MeshFileError::unreadable(path, source))?;
    parse_ply(path, &mut BufReader::with_capacity(1 << 20, file))
}

/// The same of what `input` holds; `path` is for errors.
pub fn parse_ply(path: &Path, input: &mut impl BufRead) -> Result<Mesh, MeshFileError> {
    let header = PlyHeader::read(input).map_err(|HeaderFault { line, fault }| match fault {
        PlyFault::Unreadable(source) => MeshFileError::unreadable(path, source),
        PlyFault::Found(found) => MeshFileError::line(path, line, found),
    })?;
    let mut rows = RowReader::new(input, header.encoding);
    let mut mesh = Mesh::default();
    let mut polygons = Polygons::default();
    for element in &header.elements {
        let vertices = (element.name == "vertex").then(|| VertexColumns::of(element));
        let corners = face_column(element);
        if vertices.as_ref().is_some_and(|columns| columns.place.is_none()) {
            let found = "element vertex has no columns x, y and z".to_owned();
            return Err(MeshFileError::line(path, header.lines, found));
        }
        for row in 0..element.rows {
            let read = match (&vertices, corners) {
                (Some(columns), _) => read_vertex(&mut rows, element, columns, &mut mesh),
                (None, Some(column)) => polygons.read(&mut rows, element, column, &mut mesh.faces),
                (None, None) => rows.read(element, |_, _| {}),
            };
            read.map_err(|fault| at_row(path, element, row, fault))?;
            if element.properties.is_empty() {
                break;
            }
        }
    }
    let rest = input.fill_buf().map_err(|source| MeshFileError::unreadable(path, source))?;
    if header.encoding != PlyEncoding::Ascii && !rest.trim_ascii().is_empty() {
        let found = "the rows that it announces end before the file ends".to_owned();
        return Err(MeshFileError::line(path, header.lines, found));
    }
    for (what, found) in [("vertices", mesh.vertices.len()), ("faces", mesh.faces.len())] {
        if found == 0 {
            return Err(MeshFileError::Nothing { path: path.to_owned(), what });
        }
    }
    check_mesh(&mesh).map_err(|source| MeshFileError::Mesh { path: path.to_owned(), source })?;
    Ok(mesh)
}

fn at_row(path: &Path, element: &PlyElement, row: u64, fault: PlyFault) -> MeshFileError {
    match fault {
        PlyFault::Unreadable(source) => MeshFileError::unreadable(path, source),
        PlyFault::Found(found) => {
            let (path, element) = (path.to_owned(), element.name.clone());
            MeshFileError::Row { path, element, row, found }
        }
    }
}

/// Where a vertex's values stand among the columns.
struct VertexColumns {
    place: Option<[usize; 3]>,
    normal: Option<[usize; 3]>,
    color: Option<[usize; 3]>,
    /// What a colour channel of 1 is written as.
    white: f64,
}

impl VertexColumns {
    fn of(element: &PlyElement) -> Self {
        let column =
            |name: &str| element.properties.iter().position(|p| p.name == name && p.list.is_none());
        let all = |[a, b, c]: [&str; 3]| Some([column(a)?, column(b)?, column(c)?]);
        let color = all(["red", "green", "blue"]);
        let white = color.map_or(1.0, |[red, ..]| match element.properties[red].scalar {
            Scalar::U8 => 255.0,
            Scalar::U16 => 65_535.0,
            _ => 1.0,
        });
        Self { place: all(["x", "y", "z"]), normal: all(["nx", "ny", "nz"]), color, white }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to the mesh's precision")]
fn read_vertex<R: BufRead>(
    rows: &mut RowReader<'_, R>,
    element: &PlyElement,
    columns: &VertexColumns,
    mesh: &mut Mesh,
) -> Result<(), PlyFault> {
    let mut read = [[0.0_f32; 3]; 3];
    let wanted = [columns.place, columns.normal, columns.color];
    rows.read(element, |at, value| {
        for (values, columns) in read.iter_mut().zip(&wanted) {
            if let Some(axis) = columns.and_then(|c| c.iter().position(|&column| column == at)) {
                values[axis] = value as f32;
            }
        }
    })?;
    let [place, normal, color] = read;
    mesh.vertices.push(place);
    if columns.normal.is_some() {
        mesh.normals.push(normal);
    }
    if columns.color.is_some() {
        mesh.colors.push(color.map(|c| c / columns.white as f32));
    }
    Ok(())
}

/// The list of a face's corners.
fn face_column(element: &PlyElement) -> Option<usize> {
    let names = ["vertex_indices", "vertex_index"];
    (element.name == "face")
        .then(|| {
            element
                .properties
                .iter()
                .position(|p| p.list.is_some() && names.contains(&p.name.as_str()))
        })
        .flatten()
}

/// Reads polygons; keeps the memory of one.
#[derive(Default)]
struct Polygons {
    corners: Vec<f64>,
}

impl Polygons {
    fn read<R: BufRead>(
        &mut self,
        rows: &mut RowReader<'_, R>,
        element: &PlyElement,
        column: usize,
        faces: &mut Vec<[u32; 3]>,
    ) -> Result<(), PlyFault> {
        self.corners.clear();
        let corners = &mut self.corners;
        rows.read(element, |at, value| {
            if at == column {
                corners.push(value);
            }
        })?;
        if corners.len() < 3 {
            return Err(PlyFault::Found(format!("a face of {} corners", corners.len())));
        }
        let mut previous = [0; 2];
        for (at, &corner) in corners.iter().enumerate() {
            let vertex = vertex_of(corner)?;
            match at {
                0 | 1 => previous[at] = vertex,
                _ => {
                    faces.push([previous[0], previous[1], vertex]);
                    previous[1] = vertex;
                }
            }
        }
        Ok(())
    }
}

fn vertex_of(corner: f64) -> Result<u32, PlyFault> {
    if corner.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&corner) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        return Ok(corner as u32);
    }
    Err(PlyFault::Found(format!("{corner} is not a vertex")))
}

/// Writes a mesh as binary little-endian PLY: places and normals `float`, colours `uchar`, faces
/// `list uchar int vertex_indices`. `out` should be buffered.
pub fn write_ply(out: &mut dyn Write, mesh: &Mesh) -> io::Result<()> {
    valid(mesh)?;
    let mut header = NewPlyHeader::default();
    header.element("vertex", mesh.vertices.len()).properties(Scalar::F32, ["x", "y", "z"]);
    if !mesh.normals.is_empty() {
        header.properties(Scalar::F32, ["nx", "ny", "nz"]);
    }
    if !mesh.colors.is_empty() {
        header.properties(Scalar::U8, ["red", "green", "blue"]);
    }
    out.write_all(&header.triangles(mesh.faces.len()).end())?;
    for (vertex, place) in mesh.vertices.iter().enumerate() {
        let floats = place.iter().chain(mesh.normals.get(vertex).into_iter().flatten());
        for float in floats {
            out.write_all(&float.to_le_bytes())?;
        }
        if let Some(color) = mesh.colors.get(vertex) {
            out.write_all(&color.map(byte_of))?;
        }
    }
    for face in &mesh.faces {
        let mut row = [3; 13];
        for (bytes, vertex) in row[1..].chunks_exact_mut(4).zip(face) {
            bytes.copy_from_slice(&vertex.to_le_bytes());
        }
        out.write_all(&row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::{cube, mesh_of};

    fn parse(mut bytes: &[u8]) -> Result<Mesh, MeshFileError> {
        parse_ply(Path::new("a.ply"), &mut bytes)
    }

    const ASCII: &str = "ply\nformat ascii 1.0\ncomment a b\nelement camera 1\n\
        property list uchar float matrix\nelement vertex 4\nproperty double x\nproperty float y\n\
        property float z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\n\
        property list uchar int extra\nelement face 2\nproperty uchar material\n\
        property list uchar int vertex_indices\nend_header\n2 7.5 8\n0 0 0 255 0 51 0\n\
        1 0 0 0 0 0 2 5 6\n1 1 0 0 0 0 1 9\n\n0 1 0 0 0 0 0\n3 4 0 1 2 3\n3 3 2 1 0\n";

    #[test]
    fn ascii_polygons_are_fanned_and_other_columns_skipped() {
        let mesh = parse(ASCII.as_bytes()).unwrap();
        assert_eq!(mesh.faces, [[0, 1, 2], [0, 2, 3], [2, 1, 0]]);
        assert_eq!(mesh.vertices[2], [1.0, 1.0, 0.0]);
        assert_eq!(mesh.colors[0], [1.0, 0.0, 0.2]);
        assert!(mesh.normals.is_empty());
    }

    #[test]
    fn both_binary_orders_hold_the_same_mesh() {
        for (name, big) in [("binary_little_endian", false), ("binary_big_endian", true)] {
            let order = |mut bytes: Vec<u8>| {
                if big {
                    bytes.reverse();
                }
                bytes
            };
            let mut file = format!(
                "ply\nformat {name} 1.0\nelement vertex 3\nproperty float x\nproperty double y\n\
                 property short z\nproperty ushort red\nproperty ushort green\nproperty ushort \
                 blue\nelement face 1\nproperty list ushort uint vertex_index\nproperty uchar \
                 flag\nend_header\n"
            )
            .into_bytes();
            for i in 0..3_u8 {
                file.extend(order(f32::from(i).to_le_bytes().to_vec()));
                file.extend(order((f64::from(i * i) + 0.5).to_le_bytes().to_vec()));
                file.extend(order((-i16::from(i)).to_le_bytes().to_vec()));
                for channel in [0, 13_107, u16::MAX] {
                    file.extend(order(u16::to_le_bytes(channel).to_vec()));
                }
            }
            file.extend(order(3_u16.to_le_bytes().to_vec()));
            for corner in [2_u32, 0, 1] {
                file.extend(order(corner.to_le_bytes().to_vec()));
            }
            file.push(9);
            let mesh = parse(&file).unwrap();
            assert_eq!(mesh.vertices, [[0.0, 0.5, 0.0], [1.0, 1.5, -1.0], [2.0, 4.5, -2.0]]);
            assert_eq!((mesh.faces[0], mesh.colors[1]), ([2, 0, 1], [0.0, 0.2, 1.0]));
            let error = parse(&[&file[..], b"more"].concat()).unwrap_err().to_string();
            assert!(error.contains("before the file ends"), "{error}");
            // Cut anywhere behind the header, the row that misses is named.
            let end = file.windows(11).position(|w| w == b"end_header\n").unwrap() + 11;
            for kept in end..file.len() {
                let error = parse(&file[..kept]).unwrap_err().to_string();
                assert!(error.contains("truncated") && error.contains("a.ply"), "{error}");
            }
        }
    }

    #[test]
    fn broken_files_say_what_is_wrong() {
        let cases = [
            ("3 3 2 1 0", "3 3 2 1 4", "face 2 names vertex 4"),
            ("3 3 2 1 0", "3 3 2 1", "too few values"),
            ("3 3 2 1 0", "3 3 2 1 0 5", "1 values too many"),
            ("3 3 2 1 0", "3 3 2 1 -1", "-1 is not a vertex"),
            ("3 3 2 1 0", "3 2 2 1", "a face of 2 corners"),
            ("3 3 2 1 0", "", "truncated"),
            ("1 1 0 0 0 0 1 9", "1 one 0 0 0 0 1 9", "\"one\" is not a number"),
            ("1 1 0 0 0 0 1 9", "1 nan 0 0 0 0 1 9", "vertex 2 lies at"),
            ("element face 2", "element face two", "line 14"),
            ("format ascii 1.0", "format ascii 2.0", "line 2"),
            ("end_header", "end", "line 17"),
            ("property double x", "property double w", "no columns x, y and z"),
            ("list uchar int vertex_indices", "list float int vertex_indices", "whole number"),
            ("element face 2", "element flakes 2", "holds no faces"),
            ("ply\n", "pli\n", "not a PLY"),
        ];
        for (from, to, expected) in cases {
            let error = parse(ASCII.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let error = read_ply(Path::new("/nowhere/a.ply")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/a.ply: cannot be read"), "{error}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut mesh = cube();
        mesh.normals = mesh.vertices.iter().map(|v| [v[1], -v[0], 0.25]).collect();
        mesh.colors =
            mesh.vertices.iter().map(|v| v.map(|c| if c > 0.5 { 0.4 } else { 1.0 })).collect();
        for (normals, colors) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut wanted = mesh.clone();
            if !normals {
                wanted.normals.clear();
            }
            if !colors {
                wanted.colors.clear();
            }
            let mut bytes = Vec::new();
            write_ply(&mut bytes, &wanted).unwrap();
            assert_eq!(parse(&bytes).unwrap(), wanted);
        }
        let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
        assert!(write_ply(&mut Vec::new(), &broken).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            start in prop::sample::select(vec![
                "", "ply\n", "ply\nformat ascii 1.0\n",
                "ply\nformat binary_big_endian 1.0\nelement face 99999999999\nproperty list int \
                 double vertex_index\nend_header\n",
                "ply\nformat ascii 1.0\nelement vertex 18446744073709551615\nend_header\n",
            ]),
        ) {
            prop_assert!(parse(&[start.as_bytes(), &bytes].concat()).is_err());
        }
    }
}
