//! Reads COLMAP's text files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{CameraModel, ColmapError, Points, RawImages, SolvedCamera, pose};

/// Most characters of a wrong value that a message repeats.
const QUOTED: usize = 40;

/// The lines of a file.
#[derive(Debug)]
pub(super) struct Lines<R> {
    path: PathBuf,
    input: BufReader<R>,
    number: usize,
    line: String,
}

impl Lines<File> {
    pub(super) fn open(path: &Path) -> Result<Self, ColmapError> {
        Ok(Self::new(path, super::open(path)?.0))
    }
}

impl<R: Read> Lines<R> {
    pub(super) fn new(path: &Path, input: R) -> Self {
        let input = BufReader::with_capacity(1 << 16, input);
        Self { path: path.to_owned(), input, number: 0, line: String::new() }
    }

    /// Goes to the next line, whatever it holds; false at the end.
    fn advance(&mut self) -> Result<bool, ColmapError> {
        let mut bytes = Vec::new();
        let read = self.input.read_until(b'\n', &mut bytes);
        let read =
            read.map_err(|source| ColmapError::Unreadable { path: self.path.clone(), source })?;
        self.line = String::from_utf8_lossy(&bytes).trim().to_owned();
        self.number += 1;
        Ok(read > 0)
    }

    /// Goes to the next line that is neither empty nor a comment; false at the end.
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

/// The values of a line.
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
            found: found.chars().take(QUOTED).collect(),
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

/// Reads `cameras.txt`: a camera a line, `ID MODEL WIDTH HEIGHT PARAMETERS`.
pub(super) fn cameras<R: Read>(
    lines: &mut Lines<R>,
) -> Result<BTreeMap<u32, SolvedCamera>, ColmapError> {
    let mut cameras = BTreeMap::new();
    while lines.advance_to_record()? {
        let mut fields = lines.fields();
        let id = fields.number("the id of a camera")?;
        let name = fields.word();
        let model = CameraModel::by_name(name).ok_or_else(|| ColmapError::UnknownModel {
            path: lines.path.clone(),
            camera: id,
            model: name.chars().take(QUOTED).collect(),
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

/// Reads `images.txt`: two lines an image, `ID QW QX QY QZ TX TY TZ CAMERA NAME` and its
/// observations `X Y POINT`, which may be none: then the second line is empty.
pub(super) fn images<R: Read>(lines: &mut Lines<R>) -> Result<RawImages, ColmapError> {
    let mut images = Vec::new();
    while lines.advance_to_record()? {
        let mut fields = lines.fields();
        let _id: u32 = fields.number("the id of an image")?;
        let pose = pose(fields.numbers("a number of the image's pose")?);
        let camera = fields.number("the id of a camera")?;
        // The name is the rest of the line: it may hold spaces.
        let name = fields.rest.to_owned();
        if name.is_empty() {
            return Err(fields.wrong("", "the name of an image"));
        }
        images.push((name, camera, pose));
        if lines.advance()? && !lines.line.split_whitespace().count().is_multiple_of(3) {
            let expected = "the second line of the image (its observations, or nothing)";
            return Err(lines.fields().wrong(&lines.line, expected));
        }
    }
    Ok(images)
}

/// Reads `points3D.txt`: a point a line, `ID X Y Z R G B ERROR TRACK`.
pub(super) fn points<R: Read>(lines: &mut Lines<R>) -> Result<Points, ColmapError> {
    let mut points = Points::default();
    while lines.advance_to_record()? {
        let mut fields = lines.fields();
        let _id: u64 = fields.number("the id of a point")?;
        let position = fields.numbers("a coordinate of the point")?;
        let mut color = [0_u8; 3];
        for channel in &mut color {
            *channel = fields.number("a colour from 0 to 255")?;
        }
        points.push(position, color);
    }
    Ok(points)
}
