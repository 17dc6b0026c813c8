//! Point clouds as PLY: reads those beside a `transforms.json`, writes `input.ply`.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::frame::Frame;
use super::points::{FARTHEST, PointCloud};
use crate::files::{OutputError, write_atomically};
use crate::math::Real;
use crate::math::linalg::add;
use crate::ply::{self, Header, PlyFileError};

/// Longest line of an ASCII vertex, in bytes.
const LONGEST_LINE: u64 = 1 << 16;

/// Colour of points that have none.
const GREY: u8 = 128;

/// A PLY of points that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PointsPlyError {
    /// The file or its header cannot be read, or points are missing.
    #[error(transparent)]
    File(#[from] PlyFileError),
    /// The header is not that of a PLY of points.
    #[error(
        "{path}: {found}. Write the points again as PLY, ascii or binary_little_endian, with the \
         element vertex first and x, y, z (and red, green, blue)"
    )]
    NoPoints {
        /// The file.
        path: PathBuf,
        /// What the header says or lacks.
        found: String,
    },
    /// The points end too early or hold something else than numbers.
    #[error("{path}: vertex {index} of {count} {found}. Copy or write the file again")]
    Vertex {
        /// The file.
        path: PathBuf,
        /// Vertex, from 1.
        index: u64,
        /// Vertices that the header promises.
        count: u64,
        /// What is wrong with it.
        found: String,
    },
    /// A point that is too far away to be meant.
    #[error(
        "{path}: vertex {index} is at {position:?}, and coordinates end at {FARTHEST:e}. Remove such \
         points, or write the file again in smaller units"
    )]
    TooFar {
        /// The file.
        path: PathBuf,
        /// Vertex, from 1.
        index: u64,
        /// Its coordinates.
        position: [f64; 3],
    },
}

/// Reads the points of a PLY, ASCII or binary little-endian, and counts those left out because
/// their coordinates are not finite. Points without colour are grey. An offset that a comment names is added.
pub fn read_points_ply(path: &Path) -> Result<(PointCloud<f64>, usize), PointsPlyError> {
    let (file, length) = ply::open(path)?;
    read(path, file, length)
}

fn read(
    path: &Path,
    input: impl Read,
    length: u64,
) -> Result<(PointCloud<f64>, usize), PointsPlyError> {
    let mut input = BufReader::with_capacity(1 << 16, input.take(length));
    let header = Header::read(path, &mut input)?;
    let no_points = |found| PointsPlyError::NoPoints { path: path.to_owned(), found };
    let ascii = is_ascii(&header).map_err(no_points)?;
    let columns = Columns::of(&header).map_err(no_points)?;
    if !ascii {
        header.rows_within(path, length)?;
    }
    let offset = header.offset();
    let mut points = PointCloud::default();
    let mut dropped = 0;
    let mut values = vec![0.0; header.columns.len()];
    let mut bytes = vec![0; header.row_bytes];
    for index in 1..=header.rows {
        let vertex = if ascii {
            ascii_vertex(&mut input, &mut values)
        } else {
            binary_vertex(&mut input, &header, &mut bytes, &mut values)
        };
        vertex.map_err(|found| PointsPlyError::Vertex {
            path: path.to_owned(),
            index,
            count: header.rows,
            found,
        })?;
        let position = columns.position.map(|column| values[column]);
        if !position.iter().all(|x| x.is_finite()) {
            dropped += 1;
            continue;
        }
        if position.iter().any(|x| x.abs() > f64::from(FARTHEST)) {
            return Err(PointsPlyError::TooFar { path: path.to_owned(), index, position });
        }
        points.positions.push(add(position, offset));
        points.colors.push(columns.color(&values));
    }
    Ok((points, dropped))
}

/// Whether the vertices are text; they must come first in the file.
fn is_ascii(header: &Header) -> Result<bool, String> {
    if let Some(name) = header.before.first() {
        return Err(format!("the element {name} stands before the vertices"));
    }
    match header.format.split(' ').next() {
        Some("ascii") => Ok(true),
        Some("binary_little_endian" | "") => Ok(false),
        _ => Err(format!("the format {} is not read", header.format)),
    }
}

/// Where in a vertex the position and the colour are.
struct Columns {
    position: [usize; 3],
    color: Option<[usize; 3]>,
    /// What a channel is multiplied with: colours stored as floats are 0..1.
    color_scale: f64,
}

impl Columns {
    fn of(header: &Header) -> Result<Self, String> {
        let mut position = [0; 3];
        for (column, name) in position.iter_mut().zip(["x", "y", "z"]) {
            *column = header
                .index(name)
                .ok_or_else(|| format!("the vertices have no property {name}"))?;
        }
        let color = match ["red", "green", "blue"].map(|name| header.index(name)) {
            [Some(red), Some(green), Some(blue)] => Some([red, green, blue]),
            _ => None,
        };
        let float = color.is_some_and(|[red, ..]| header.columns[red].scalar.is_float());
        Ok(Self { position, color, color_scale: if float { 255.0 } else { 1.0 } })
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates to 0..=255 and makes NaN 0"
    )]
    fn color(&self, values: &[f64]) -> [u8; 3] {
        self.color.map_or([GREY; 3], |columns| {
            columns.map(|column| (values[column] * self.color_scale).round() as u8)
        })
    }
}

fn ascii_vertex(input: &mut impl BufRead, values: &mut [f64]) -> Result<(), String> {
    let line = next_line(input).map_err(|error| format!("cannot be read: {error}"))?;
    let line = line.ok_or("is missing: the file ends before it")?;
    let mut words = line.split_ascii_whitespace();
    for value in values {
        let word = words.next().unwrap_or("");
        *value = word.parse().map_err(|_no_number| {
            format!("holds {:?} where a number belongs", word.chars().take(40).collect::<String>())
        })?;
    }
    Ok(())
}

fn binary_vertex(
    input: &mut impl Read,
    header: &Header,
    bytes: &mut [u8],
    values: &mut [f64],
) -> Result<(), String> {
    input.read_exact(bytes).map_err(|error| format!("cannot be read: {error}"))?;
    for (value, column) in values.iter_mut().zip(&header.columns) {
        *value = column.value(bytes);
    }
    Ok(())
}

/// The next line without its end; none at the end of the file.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    input.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).trim_end().to_owned()))
}

/// Writes the points as Inria's trainer writes `input.ply`: position, a zero normal, colour. They are in coordinates
/// of `frame`; those of the file have its offset, which a comment names, and the scene's unit.
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
        write!(
            out,
            "ply\nformat binary_little_endian 1.0\nelement vertex {}\n",
            points.positions.len()
        )?;
        let [x, y, z] = frame.offset;
        if frame.offset != [0.0; 3] {
            writeln!(out, "comment offset {x} {y} {z}")?;
        }
        for name in ["x", "y", "z", "nx", "ny", "nz"] {
            writeln!(out, "property float {name}")?;
        }
        for name in ["red", "green", "blue"] {
            writeln!(out, "property uchar {name}")?;
        }
        writeln!(out, "end_header")?;
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

    fn parse(bytes: &[u8]) -> Result<(PointCloud<f64>, usize), PointsPlyError> {
        read(Path::new("points.ply"), bytes, bytes.len() as u64)
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
        let (points, dropped) = read_points_ply(&path).unwrap();
        assert_eq!((points.converted(&Frame::SCENE, &Frame::SCENE), dropped), (cloud(), 0));
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let bytes = written();
        // Header, then 6 floats and 3 bytes a point.
        let header = bytes.windows(11).position(|part| part == b"end_header\n").unwrap() + 11;
        assert_eq!(bytes.len() - header, 3 * 27);
    }

    #[test]
    fn an_offset_is_kept_in_doubles() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input.ply");
        let frame = Frame { offset: [500_000.0, 4_500_000.0, -0.1], unit: 0.25 };
        write_points_ply(&path, &cloud(), &frame).unwrap();
        let (points, _) = read_points_ply(&path).unwrap();
        assert_eq!(points.positions[0], [500_000.25, 4_499_999.375, -0.1 + 0.8125]);
        assert_eq!(points.converted(&Frame::SCENE, &frame), cloud());
    }

    #[test]
    fn points_keep_the_digits_of_doubles() {
        let text = b"ply\nformat ascii 1.0\nelement vertex 1\nproperty double x\n\
            property double y\nproperty double z\nend_header\n500000.123456 4500000.5 -0.1\n";
        assert_eq!(parse(text).unwrap().0.positions, [[500_000.123_456, 4_500_000.5, -0.1]]);
    }

    #[test]
    fn a_point_too_far_away_is_refused_and_one_near_enough_is_read() {
        let at = |x: &str| {
            let head = "ply\nformat ascii 1.0\nelement vertex 1\nproperty double x\n\
                property double y\nproperty double z\nend_header\n";
            parse(format!("{head}0 {x} 0\n").as_bytes())
        };
        assert_eq!(at("9e11").unwrap().0.positions, [[0.0, 9e11, 0.0]]);
        for far in ["1e25", "-2e20", "1e300"] {
            let error = at(far).unwrap_err().to_string();
            for part in ["points.ply", "vertex 1", far, "1e12"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        assert_eq!(at("inf").unwrap().1, 1);
    }

    #[test]
    fn ascii_points_with_float_colours_are_read_and_bad_ones_counted() {
        let text = b"ply\nformat ascii 1.0\ncomment a b\nelement vertex 3\nproperty double z\n\
            property float x\nproperty float y\nproperty float red\nproperty float green\n\
            property float blue\nelement face 1\nproperty list uchar int vertex_indices\n\
            end_header\n3 1 2 0 0.5 1\nnan 1 2 0 0 0\n6 4 5 1 1 2\n3 0 1 2\n";
        let (points, dropped) = parse(text).unwrap();
        assert_eq!(points.positions, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        assert_eq!(points.colors, [[0, 128, 255], [255, 255, 255]]);
        assert_eq!(dropped, 1);
    }

    #[test]
    fn points_without_colour_are_grey() {
        let text = b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\n\
            property float y\nproperty float z\nend_header\n1 2 3\n";
        assert_eq!(parse(text).unwrap().0.colors, [[GREY; 3]]);
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "not a PLY"),
            (b"solid", "not a PLY"),
            (b"ply\n", "no `end_header`"),
            (
                b"ply\nformat binary_big_endian 1.0\nelement vertex 1\nend_header\n",
                "binary_big_endian",
            ),
            (b"ply\nelement vertex many\n", "\"many\" is not a count"),
            (b"ply\nelement vertex 1\nproperty float x\nend_header\n", "no property y"),
            (b"ply\nelement vertex 1\nproperty list uchar int x\n", "list"),
            (b"ply\nelement face 1\nelement vertex 1\nend_header\n", "before the vertices"),
        ];
        for (bytes, expected) in cases {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("points.ply"), "{error}");
        }
    }

    #[test]
    fn a_count_beyond_the_file_ends_at_its_end() {
        let text = b"ply\nformat ascii 1.0\nelement vertex 18446744073709551615\n\
            property float x\nproperty float y\nproperty float z\nend_header\n1 2 3\n";
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains("vertex 2 of 18446744073709551615"), "{error}");
        // Binary points are counted against the file before the first is read.
        let bytes = written();
        let error = parse(&bytes[..bytes.len() - 1]).unwrap_err().to_string();
        assert!(error.contains("points.ply") && error.contains("has 80 bytes"), "{error}");
        // No properties at all: a vertex of no bytes would never end.
        assert!(parse(b"ply\nelement vertex 18446744073709551615\nend_header\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
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
