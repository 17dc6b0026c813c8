//! Reads COLMAP's text files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::raw::{CameraModel, ColmapError, Points, RawImage, SolvedCamera, open, pose};
use crate::dataset::finder::{is_utf16, utf8};
use crate::dataset::shot::bytes_of_colors;

/// Largest number of characters of an invalid value in a message.
const MAX_QUOTED: usize = 40;

#[derive(Debug)]
pub(super) struct TextLines<R> {
    path: PathBuf,
    input: BufReader<R>,
    number: usize,
    line: String,
}

impl TextLines<Box<dyn Read>> {
    pub(super) fn open(path: &Path) -> Result<Self, ColmapError> {
        let unreadable = |source| ColmapError::Unreadable { path: path.to_owned(), source };
        let mut file = open(path)?.0;
        let mut start = Vec::new();
        file.by_ref().take(2).read_to_end(&mut start).map_err(unreadable)?;
        if !is_utf16(&start) {
            return Ok(Self::new(path, Box::new(Cursor::new(start).chain(file))));
        }
        file.read_to_end(&mut start).map_err(unreadable)?;
        Ok(Self::new(path, Box::new(Cursor::new(utf8(&start).into_owned()))))
    }
}

impl<R: Read> TextLines<R> {
    pub(super) fn new(path: &Path, input: R) -> Self {
        let input = BufReader::with_capacity(1 << 16, input);
        Self { path: path.to_owned(), input, number: 0, line: String::new() }
    }

    /// Reads the next line; false at the end.
    fn advance(&mut self) -> Result<bool, ColmapError> {
        let mut bytes = Vec::new();
        let read = self.input.read_until(b'\n', &mut bytes);
        let read =
            read.map_err(|source| ColmapError::Unreadable { path: self.path.clone(), source })?;
        let text = if self.number == 0 { utf8(&bytes) } else { Cow::Borrowed(bytes.as_slice()) };
        self.line = String::from_utf8_lossy(&text).trim().to_owned();
        self.number += 1;
        Ok(read > 0)
    }

    /// Reads the next line that is neither empty nor a comment; false at the end.
    fn advance_to_record(&mut self) -> Result<bool, ColmapError> {
        while self.advance()? {
            if !self.line.is_empty() && !self.line.starts_with('#') {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn fields(&self) -> Fields<'_> {
        Fields { path: &self.path, line: self.number, rest: &self.line }
    }
}

struct Fields<'a> {
    path: &'a Path,
    line: usize,
    rest: &'a str,
}

impl<'a> Fields<'a> {
    fn wrong(&self, found: &str, expected: &'static str) -> ColmapError {
        ColmapError::Line {
            path: self.path.to_owned(),
            line: self.line,
            found: found.chars().take(MAX_QUOTED).collect(),
            expected,
        }
    }

    fn word(&mut self) -> &'a str {
        let (word, rest) = match self.rest.find(char::is_whitespace) {
            Some(end) => self.rest.split_at(end),
            None => (self.rest, ""),
        };
        self.rest = rest.trim_start();
        word
    }

    fn number<T: FromStr>(&mut self, expected: &'static str) -> Result<T, ColmapError> {
        let word = self.word();
        word.parse().map_err(|_not_a_number| self.wrong(word, expected))
    }

    fn numbers<const N: usize>(&mut self, expected: &'static str) -> Result<[f64; N], ColmapError> {
        let mut numbers = [0.0; N];
        for number in &mut numbers {
            *number = self.number(expected)?;
        }
        Ok(numbers)
    }
}

/// Reads `cameras.txt`: one camera per line, `ID MODEL WIDTH HEIGHT PARAMETERS`.
pub(super) fn cameras<R: Read>(
    lines: &mut TextLines<R>,
) -> Result<BTreeMap<u32, SolvedCamera>, ColmapError> {
    let mut cameras = BTreeMap::new();
    while lines.advance_to_record()? {
        let mut fields = lines.fields();
        let id = fields.number("the id of a camera")?;
        let name = fields.word();
        let model = CameraModel::by_name(name).ok_or_else(|| ColmapError::UnknownModel {
            path: lines.path.clone(),
            camera: id,
            model: name.chars().take(MAX_QUOTED).collect(),
        })?;
        let size = [fields.number("a width in px")?, fields.number("a height in px")?];
        let mut params = Vec::with_capacity(model.params);
        for _ in 0..model.params {
            params.push(fields.number("a parameter of the camera's model")?);
        }
        if !fields.rest.is_empty() {
            return Err(fields.wrong(fields.rest, "the end of the line"));
        }
        if cameras.insert(id, SolvedCamera { model, size, params }).is_some() {
            return Err(ColmapError::DuplicateCamera { path: lines.path.clone(), camera: id });
        }
    }
    Ok(cameras)
}

/// Reads `images.txt`: two lines per image, `ID QW QX QY QZ TX TY TZ CAMERA NAME` and its observations `X Y POINT`.
/// Without observations the second line is empty, and some programs omit it.
pub(super) fn images<R: Read>(lines: &mut TextLines<R>) -> Result<Vec<RawImage>, ColmapError> {
    let mut images = Vec::new();
    let mut is_at_image = lines.advance_to_record()?;
    while is_at_image {
        images.push(image(&mut lines.fields())?);
        is_at_image = if !lines.advance()? {
            false
        } else if lines.line.is_empty()
            || lines.line.starts_with('#')
            || is_observations(&lines.line)
        {
            lines.advance_to_record()?
        } else if image(&mut lines.fields()).is_ok() {
            true
        } else {
            let expected = "the second line of the image (its observations, or nothing)";
            return Err(lines.fields().wrong(&lines.line, expected));
        };
    }
    Ok(images)
}

fn image(fields: &mut Fields<'_>) -> Result<RawImage, ColmapError> {
    let _id: u32 = fields.number("the id of an image")?;
    let pose = pose(fields.numbers("a number of the image's pose")?);
    let camera = fields.number("the id of a camera")?;
    // The name is the rest of the line, because it may contain spaces.
    let name = fields.rest.to_owned();
    if name.is_empty() {
        return Err(fields.wrong("", "the name of an image"));
    }
    Ok(RawImage { name, camera, pose })
}

/// True for triples of numbers. An image's line has a name after nine words, which is not a number.
fn is_observations(line: &str) -> bool {
    const MAX_WORDS: usize = 30;
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    line.split_whitespace().take(MAX_WORDS).all(is_number)
        && line.split_whitespace().next_back().is_some_and(is_number)
        && line.split_whitespace().count().is_multiple_of(3)
}

/// Reads `points3D.txt`: one point per line, `ID X Y Z R G B ERROR TRACK`. Colours may have fractions; if none is
/// above 1, they are in 0..1.
pub(super) fn points<R: Read>(lines: &mut TextLines<R>) -> Result<Points, ColmapError> {
    let mut points = Points::default();
    let mut colors: Vec<[f32; 3]> = Vec::new();
    let mut has_fractions = false;
    while lines.advance_to_record()? {
        let mut fields = lines.fields();
        let _id: u64 = fields.number("the id of a point")?;
        let position = fields.numbers("a coordinate of the point")?;
        let mut color = [0.0_f32; 3];
        for channel in &mut color {
            let word = fields.word();
            has_fractions |= word.contains(['.', 'e', 'E']);
            let value = word.parse().ok().filter(|value| (0.0..=255.0).contains(value));
            *channel = value.ok_or_else(|| fields.wrong(word, "a colour from 0 to 255"))?;
        }
        let before = points.kept.positions.len();
        if !points.push(position, [0; 3]) {
            return Err(
                fields.wrong(&format!("{position:?}"), "a point with coordinates up to 1e12")
            );
        }
        if points.kept.positions.len() > before {
            colors.push(color);
        }
    }
    points.kept.colors = bytes_of_colors(&colors, has_fractions);
    Ok(points)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &[u8]) -> TextLines<&[u8]> {
        TextLines::new(Path::new("a.txt"), text)
    }

    const CAMERAS: &str = "# comment\n1 PINHOLE 640 480 500 501 320 240\n\n\
        7  SIMPLE_RADIAL 64 48 50 32 24 -0.1\r\n";
    const IMAGES: &str = "# comment\n1 1 0 0 0 1 2 3 7 left/a b.jpg\n\n\
        2 nan 0 0 0 1 2 3 7 c.jpg\n1.5 2.5 -1 3.5 4.5 12\n3 0 1 0 0 0 0 0 1 d.jpg\n";
    const POINTS: &str = "1 1 2 3 10 20 30 0.5 1 2\n2 inf 2 3 10 20 30 0.5\n3 -1 2e3 3 1 2 255 1\n";

    #[test]
    fn valid_text_is_read() {
        let cameras = cameras(&mut lines(CAMERAS.as_bytes())).unwrap();
        assert_eq!(cameras[&7].params, [50.0, 32.0, 24.0, -0.1]);
        assert_eq!(cameras[&1].size, [640, 480]);
        let images = images(&mut lines(IMAGES.as_bytes())).unwrap();
        let summary: Vec<_> = images
            .iter()
            .map(|image| (image.name.as_str(), image.camera, image.pose.is_some()))
            .collect();
        let expected = [("left/a b.jpg", 7, true), ("c.jpg", 7, false), ("d.jpg", 1, true)];
        assert_eq!(summary, expected);
        let points = points(&mut lines(POINTS.as_bytes())).unwrap();
        assert_eq!(points.kept.positions, [[1.0, 2.0, 3.0], [-1.0, 2000.0, 3.0]]);
        assert_eq!(points.kept.colors, [[10, 20, 30], [1, 2, 255]]);
        assert_eq!(points.dropped, 1);
    }

    #[test]
    fn images_without_second_lines_follow_each_other() {
        let names = |text: &str| -> Vec<String> {
            let read = images(&mut lines(text.as_bytes())).unwrap();
            read.into_iter().map(|image| image.name).collect()
        };
        for name in ["a.jpg", "my a.jpg", "my first a.jpg", "a b c d e f.jpg", "12 a 3"] {
            let line = |id: u32| format!("{id} 1 0 0 0 1 2 3 7 {name}\n");
            let observed = "1.5 2.5 -1 3.5 4.5 12\n";
            assert_eq!(names(&(line(1) + &line(2) + &line(3))), [name; 3]);
            assert_eq!(names(&(line(1) + "\n" + &line(2) + observed + &line(3))), [name; 3]);
            assert_eq!(names(&(line(1) + "# b\n" + &line(2) + &line(3) + "\n")), [name; 3]);
        }
    }

    #[test]
    fn fractional_colours_up_to_1_are_scaled() {
        let colors = |text: &str| points(&mut lines(text.as_bytes())).unwrap().kept.colors;
        assert_eq!(colors("1 0 0 0 9.6 255.0 0 0\n"), [[10, 255, 0]]);
        assert_eq!(colors("1 0 0 0 0.2 1.0 0 0\n2 0 0 0 1 1 1 0\n"), [[51, 255, 0], [255; 3]]);
        assert_eq!(colors("1 0 0 0 1 1 0 0\n"), [[1, 1, 0]]);
    }

    #[test]
    fn wrong_values_are_named_with_their_line() {
        let cases = [
            (cameras(&mut lines(b"# a\n1 PINHOLE 640 x 1 2 3 4\n")).err(), "line 2: \"x\""),
            (cameras(&mut lines(b"1 PINHOLE 640 480 1 2 3\n")).err(), "line 1: \"\""),
            (cameras(&mut lines(b"1 PINHOLE 640 480 1 2 3 4 5\n")).err(), "end of the line"),
            (cameras(&mut lines(b"1 LENS 640 480 1 2 3\n")).err(), "model LENS"),
            (cameras(&mut lines(b"1 FISHEYE 6 4 1 1 1 1\n1 FISHEYE 6 4 1 1 1 1\n")).err(), "twice"),
            (images(&mut lines(b"1 1 0 0 0 1 2 3 7\n\n")).err(), "name of an image"),
            (
                images(&mut lines(b"1 1 0 0 0 1 2 3 7 a.jpg\n2 1 0 0 b.jpg\n")).err(),
                "second line of the image",
            ),
            (points(&mut lines(b"1 1 2 3 10 20 256 0\n")).err(), "\"256\""),
        ];
        for (error, expected) in cases {
            let error = error.unwrap().to_string();
            assert!(error.contains(expected) && error.contains("a.txt"), "{error}");
        }
    }

    fn read_all(text: &[u8]) {
        cameras(&mut lines(text)).ok();
        images(&mut lines(text)).ok();
        points(&mut lines(text)).ok();
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            read_all(&bytes);
        }

        #[test]
        fn flipped_bits_and_truncations_never_panic(
            kind in 0_usize..3,
            flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = [CAMERAS, IMAGES, POINTS][kind].as_bytes().to_vec();
            for (at, bit) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            read_all(&bytes);
        }
    }
}
