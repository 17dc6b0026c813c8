//! Point clouds as PLY: reads points beside a `transforms.json`, writes `input.ply`.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use splat_mesh::file::ply::{
    HeaderFault, NewPlyHeader, PlyElement, PlyEncoding, PlyFault, PlyHeader, PlyProperty,
    RowReader, Scalar,
};

use super::frame::Frame;
use super::shot::{FARTHEST, PointCloud, bytes_of_colors};
use crate::files::{OutputError, write_atomically};
use crate::math::Real;
use crate::math::linalg::add;
use crate::ply::{self, PlyFileError};

/// Colour of points without a colour.
const GREY: u8 = 128;

/// The points of a PLY.
#[derive(Clone, Debug, PartialEq)]
pub struct PlyPoints {
    /// Points in the order of the file, grey without colours.
    pub points: PointCloud<f64>,
    /// Number of points that were dropped because their coordinates are not finite.
    pub dropped: usize,
    /// True if the file has colours.
    pub has_colors: bool,
}

/// A PLY of points that cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum PointsPlyError {
    #[error(transparent)]
    File(#[from] PlyFileError),
    #[error(
        "{path}: {found}. Write the points again as PLY with an element vertex that has x, y, z (and \
         red, green, blue)"
    )]
    NoPoints { path: PathBuf, found: String },
    #[error("{path}: vertex {index} of {count} {found}. Copy or write the file again")]
    Vertex { path: PathBuf, index: u64, count: u64, found: String },
    #[error(
        "{path}: vertex {index} is at {position:?}, and coordinates end at {FARTHEST:e}. Remove such \
         points, or write the file again in smaller units"
    )]
    TooFar { path: PathBuf, index: u64, position: [f64; 3] },
}

/// Reads the points of a PLY of any encoding, and adds the offset of its comment.
pub fn read_points_ply(path: &Path) -> Result<PlyPoints, PointsPlyError> {
    let (file, length) = ply::open(path)?;
    read(path, file, length)
}

fn read(path: &Path, input: impl Read, length: u64) -> Result<PlyPoints, PointsPlyError> {
    let mut input = BufReader::with_capacity(1 << 16, input.take(length));
    let no_points = |found| PointsPlyError::NoPoints { path: path.to_owned(), found };
    let header =
        PlyHeader::read(&mut input).map_err(|HeaderFault { line, fault }| match fault {
            PlyFault::Unreadable(source) => PlyFileError::unreadable(path, source).into(),
            PlyFault::Found(found) => no_points(format!("line {line} of the header: {found}")),
        })?;
    let mut rows = RowReader::new(&mut input, header.encoding);
    let vertices = header
        .element("vertex")
        .ok_or_else(|| no_points("there is no `element vertex`".to_owned()))?;
    for element in header.elements.iter().take_while(|element| element.name != "vertex") {
        for _ in 0..if element.properties.is_empty() { 0 } else { element.rows } {
            let row = rows.read(element, |_, _| {});
            row.map_err(|fault| no_points(format!("{}: {}", element.name, found_of(fault))))?;
        }
    }
    let offset = header.offset();
    let columns = Columns::of(vertices).map_err(no_points)?;
    let mut points = PointCloud::default();
    let mut colors = Vec::new();
    let mut dropped = 0;
    for index in 1..=vertices.rows {
        let mut position = [0.0; 3];
        let mut color = [0.0; 3];
        let row = rows.read(vertices, |at, value| {
            if let Some(axis) = columns.position.iter().position(|&column| column == at) {
                position[axis] = value;
            }
            if let Some(channel) = columns.color.iter().flatten().position(|&column| column == at) {
                // The harmonic of degree 0 is 1 / (2 sqrt(pi)).
                let decoded = 0.5 + value * 0.25 * std::f64::consts::FRAC_2_SQRT_PI;
                let share = if columns.are_harmonics { decoded.clamp(0.0, 1.0) } else { value };
                color[channel] = share.to_f32();
            }
        });
        row.map_err(|fault| PointsPlyError::Vertex {
            path: path.to_owned(),
            index,
            count: vertices.rows,
            found: found_of(fault),
        })?;
        if !position.iter().all(|x| x.is_finite()) {
            dropped += 1;
            continue;
        }
        if position.iter().any(|x| x.abs() > f64::from(FARTHEST)) {
            return Err(PointsPlyError::TooFar { path: path.to_owned(), index, position });
        }
        points.positions.push(add(position, offset));
        colors.push(color);
    }
    let is_last = header.elements.last().is_some_and(|element| element.name == "vertex");
    if is_last && header.encoding != PlyEncoding::Ascii {
        ply::warn_about_rest(path, input.get_ref().limit() + input.buffer().len() as u64);
    }
    points.colors = match columns.color {
        Some(_) => bytes_of_colors(&colors, columns.has_fractions),
        None => vec![[GREY; 3]; points.positions.len()],
    };
    Ok(PlyPoints { points, dropped, has_colors: columns.color.is_some() })
}

fn found_of(fault: PlyFault) -> String {
    match fault {
        PlyFault::Unreadable(error) => format!("cannot be read: {error}"),
        PlyFault::Found(found) => found,
    }
}

/// Names of colour columns, in search order.
const COLOR_NAMES: [[&str; 3]; 5] = [
    ["red", "green", "blue"],
    ["diffuse_red", "diffuse_green", "diffuse_blue"],
    ["r", "g", "b"],
    ["Red", "Green", "Blue"],
    ["f_dc_0", "f_dc_1", "f_dc_2"],
];

struct Columns {
    position: [usize; 3],
    color: Option<[usize; 3]>,
    has_fractions: bool,
    /// True if colours are coefficients of degree 0 of a model of Gaussians.
    are_harmonics: bool,
}

impl Columns {
    fn of(vertices: &PlyElement) -> Result<Self, String> {
        let find = |name: &str| {
            let is_it = |column: &PlyProperty| column.name == name && column.list.is_none();
            vertices.properties.iter().position(is_it)
        };
        let mut position = [0; 3];
        for (column, name) in position.iter_mut().zip(["x", "y", "z"]) {
            *column = find(name).ok_or_else(|| format!("the vertices have no property {name}"))?;
        }
        let color = COLOR_NAMES.iter().find_map(|[red, green, blue]| {
            Some(([find(red)?, find(green)?, find(blue)?], red.starts_with("f_dc")))
        });
        let are_harmonics = color.is_some_and(|(_, are_harmonics)| are_harmonics);
        let color = color.map(|(columns, _)| columns);
        let is_float = |[red, ..]: [usize; 3]| vertices.properties[red].scalar.is_float();
        let has_fractions = are_harmonics || color.is_some_and(is_float);
        Ok(Self { position, color, has_fractions, are_harmonics })
    }
}

/// Writes the points like Inria's `input.ply`: position, a zero normal, colour. Coordinates are converted from
/// `frame` to the frame of files: the offset, which a comment names, and the scene's unit.
pub fn write_points_ply(
    path: &Path,
    points: &PointCloud,
    frame: &Frame,
) -> Result<(), OutputError> {
    let placed = |place: &[f32; 3]| match frame.unit {
        1.0 => *place,
        _ => frame.to(&frame.file(), place.map(f64::from)).map(Real::to_f32),
    };
    write_atomically(path, |out| {
        let mut header = NewPlyHeader::default();
        header
            .element("vertex", points.positions.len())
            .offset(frame.offset)
            .properties(Scalar::F32, ["x", "y", "z", "nx", "ny", "nz"])
            .properties(Scalar::U8, ["red", "green", "blue"]);
        out.write_all(&header.end())?;
        for (position, color) in points.positions.iter().zip(&points.colors) {
            for coordinate in placed(position).iter().chain(&[0.0; 3]) {
                out.write_all(&coordinate.to_le_bytes())?;
            }
            out.write_all(color)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::assert_parts;

    fn parse(bytes: &[u8]) -> Result<PlyPoints, PointsPlyError> {
        read(Path::new("points.ply"), bytes, bytes.len() as u64)
    }

    const DOUBLES: [&str; 3] = ["double x", "double y", "double z"];

    const FLOATS: [&str; 3] = ["float x", "float y", "float z"];

    /// Reads an ASCII file of vertices with these columns.
    fn ascii(columns: &[&str], rows: &[&str]) -> Result<PlyPoints, PointsPlyError> {
        let columns: String = columns.iter().map(|it| format!("property {it}\n")).collect();
        let (count, rows) = (rows.len(), rows.join("\n"));
        let head = format!("ply\nformat ascii 1.0\nelement vertex {count}\n");
        parse(format!("{head}{columns}end_header\n{rows}\n").as_bytes())
    }

    fn cloud() -> PointCloud {
        PointCloud {
            positions: vec![[1.0, -2.5, 3.25], [4.0, 5.5, -6.125], [7.0, 8.0, 9.0]],
            colors: vec![[10, 20, 30], [40, 50, 60], [70, 80, 255]],
        }
    }

    fn written() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input.ply");
        write_points_ply(&path, &cloud(), &Frame::SCENE).unwrap();
        let PlyPoints { points, dropped, .. } = read_points_ply(&path).unwrap();
        assert_eq!((points.converted(&Frame::SCENE, &Frame::SCENE), dropped), (cloud(), 0));
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn written_points_and_their_offset_are_read_back() {
        let bytes = written();
        // Header, then 6 floats and 3 bytes per point.
        let header = bytes.windows(11).position(|part| part == b"end_header\n").unwrap() + 11;
        assert_eq!(bytes.len() - header, 3 * 27);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input.ply");
        let frame = Frame { offset: [500_000.0, 4_500_000.0, -0.1], unit: 0.25 };
        write_points_ply(&path, &cloud(), &frame).unwrap();
        let points = read_points_ply(&path).unwrap().points;
        assert_eq!(points.positions[0], [500_000.25, 4_499_999.375, -0.1 + 0.8125]);
        assert_eq!(points.converted(&Frame::SCENE, &frame), cloud());
    }

    #[test]
    fn points_keep_the_digits_of_doubles_and_far_ones_are_rejected() {
        let at = |x: &str| ascii(&DOUBLES, &[&format!("0 {x} 0")]);
        assert_eq!(at("9e11").unwrap().points.positions, [[0.0, 9e11, 0.0]]);
        for far in ["1e25", "-2e20", "1e300"] {
            assert_parts(
                &at(far).unwrap_err().to_string(),
                &["points.ply", "vertex 1", far, "1e12"],
            );
        }
        assert_eq!(at("inf").unwrap().dropped, 1);
        let read = ascii(&DOUBLES, &["500000.123456 4500000.5 -0.1"]).unwrap();
        assert_eq!(read.points.positions, [[500_000.123_456, 4_500_000.5, -0.1]]);
    }

    #[test]
    fn ascii_points_with_float_colours_are_read_and_bad_ones_counted() {
        let text = b"ply\nformat ascii 1.0\ncomment a b\nelement vertex 3\nproperty double z\n\
            property float x\nproperty float y\nproperty float red\nproperty float green\n\
            property float blue\nelement face 1\nproperty list uchar int vertex_indices\n\
            end_header\n3 1 2 0 0.5 1\nnan 1 2 0 0 0\n6 4 5 1 1 2\n3 0 1 2\n";
        let PlyPoints { points, dropped, .. } = parse(text).unwrap();
        assert_eq!(points.positions, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        assert_eq!(points.colors, [[0, 128, 255], [255, 255, 255]]);
        assert_eq!(dropped, 1);
    }

    #[test]
    fn colours_have_many_names_and_ranges() {
        let point = |columns: &[&str], values: &str| {
            let columns = [&FLOATS[..], columns].concat();
            ascii(&columns, &[&format!("0 0 0 {values}")]).unwrap().points.colors[0]
        };
        let columns = |names: [&str; 3], kind: &str| names.map(|name| format!("{kind} {name}"));
        let rgb = ["red", "green", "blue"];
        for (names, kind, values) in [
            (rgb, "uchar", "51 102 255"),
            (rgb, "int", "51 102 255"),
            (rgb, "ushort", "13107 26214 65535"),
            (rgb, "float", "0.2 0.4 1.0"),
            (rgb, "float", "51.0 102.0 255.0"),
            (rgb, "double", "51 102 255"),
            (COLOR_NAMES[1], "uchar", "51 102 255"),
            (COLOR_NAMES[1], "float", "0.2 0.4 1"),
            (COLOR_NAMES[2], "uchar", "51 102 255"),
            (COLOR_NAMES[4], "float", "-1.0634723 -0.35449077 1.7724539"),
        ] {
            let columns = columns(names, kind);
            let found = point(&columns.each_ref().map(String::as_str), values);
            assert_eq!(found, [51, 102, 255], "{names:?} {kind}");
        }
        let list = "list uchar int seen_by";
        let bytes = ["uchar red", "uchar green", "uchar blue"];
        let with_lists = [&[list], &bytes[..], &[list]].concat();
        assert_eq!(point(&with_lists, "2 7 8 51 102 255 0"), [51, 102, 255]);
        // Bright values of 0 to 1 are not mistaken for 0 to 255.
        let floats = ["float red", "float green", "float blue"];
        assert_eq!(point(&floats, "1.5 0.2 0"), [255, 51, 0]);
    }

    #[test]
    fn both_byte_orders_lists_and_other_elements_are_read() {
        for (order, swap) in [("little", false), ("big", true)] {
            let mut bytes = format!(
                "ply\nformat binary_{order}_endian 1.0\nelement camera 2\nproperty list uchar short a\n\
                 element vertex 2\nproperty float x\nproperty list int float seen\nproperty float y\n\
                 property double z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\n\
                 end_header\n"
            )
            .into_bytes();
            let mut put = |value: &[u8]| {
                let mut value = value.to_vec();
                if swap {
                    value.reverse();
                }
                bytes.extend(value);
            };
            put(&[1]);
            put(&5_i16.to_le_bytes());
            put(&[0]);
            for x in [1.5_f32, -2.0] {
                put(&x.to_le_bytes());
                put(&1_i32.to_le_bytes());
                put(&9.0_f32.to_le_bytes());
                put(&3.0_f32.to_le_bytes());
                put(&4.0_f64.to_le_bytes());
                for channel in [10_u8, 20, 30] {
                    put(&[channel]);
                }
            }
            let PlyPoints { points, dropped, .. } = parse(&bytes).unwrap();
            assert_eq!(points.positions, [[1.5, 3.0, 4.0], [-2.0, 3.0, 4.0]]);
            assert_eq!((points.colors[1], dropped), ([10, 20, 30], 0));
        }
    }

    #[test]
    fn points_without_colour_are_grey_and_grey_points_have_colours() {
        let grey = [&FLOATS[..], &["uchar red", "uchar green", "uchar blue"]].concat();
        for (columns, row, has_colors) in
            [(&FLOATS[..], "1 2 3", false), (&grey, "1 2 3 128 128 128", true)]
        {
            let read = ascii(columns, &[row]).unwrap();
            assert_eq!((read.points.colors, read.has_colors), (vec![[GREY; 3]], has_colors));
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "the file is empty"),
            (b"solid", "not a PLY"),
            (b"ply\n", "before a line `end_header`"),
            (b"ply\nformat binary_middle_endian 1.0\n", "binary_middle_endian"),
            (b"ply\nformat ascii 1.0\nelement face 1\nend_header\n", "no `element vertex`"),
            (b"ply\nelement vertex many\n", "\"many\" is not a count"),
            (
                b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n",
                "no property y",
            ),
            (
                b"ply\nformat ascii 1.0\nelement vertex 1\nproperty list uchar int x\nend_header\n",
                "no property x",
            ),
        ];
        for (bytes, expected) in cases {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("points.ply"), "{error}");
        }
    }

    #[test]
    fn count_beyond_the_file_is_an_error() {
        let text = b"ply\nformat ascii 1.0\nelement vertex 18446744073709551615\n\
            property float x\nproperty float y\nproperty float z\nend_header\n1 2 3\n";
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains("vertex 2 of 18446744073709551615"), "{error}");
        let bytes = written();
        let error = parse(&bytes[..bytes.len() - 1]).unwrap_err().to_string();
        assert!(error.contains("points.ply") && error.contains("vertex 3 of 3"), "{error}");
        // Vertices without properties have no bytes and would never end.
        assert!(parse(b"ply\nelement vertex 18446744073709551615\nend_header\n").is_err());
    }

    proptest! {
        #[test]
        fn reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            parse(&bytes).ok();
        }

        #[test]
        fn damaged_files_are_errors_or_points(
            cut in 0_usize..400,
            flips in prop::collection::vec((0_usize..400, 0_u8..8), 0..4),
        ) {
            let mut bytes = written();
            for (at, bit) in flips {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            bytes.truncate(cut);
            parse(&bytes).ok();
        }
    }
}
