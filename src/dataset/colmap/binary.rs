//! Reads COLMAP's binary files, little-endian and unaligned.
//!
//! A count is believed only after it was held against the bytes that are left, so that no file can
//! make the program take more memory than a few times its own size.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use super::error::ColmapError;
use super::model::{CameraModel, SolvedCamera};
use super::raw::{Points, RawImage, open, pose};
use crate::dataset::points::FARTHEST;

/// Fewest bytes of a camera: id, model, width and height.
const LEAST_CAMERA: u64 = 24;
/// Fewest bytes of an image: id, pose, camera, an empty name and the number of observations.
const LEAST_IMAGE: u64 = 73;
/// Bytes of an observation in an image.
const OBSERVATION: u64 = 24;
/// Fewest bytes of a point: id, position, colour, error and the length of its track.
const LEAST_POINT: u64 = 51;
/// Bytes of an element of a track.
const TRACK_ELEMENT: u64 = 8;
/// Longest name of an image, in bytes; file systems allow as much for a path.
const LONGEST_NAME: u64 = 4096;

/// A file that is read front to back, with what is being read for messages.
#[derive(Debug)]
pub(super) struct Input<R> {
    path: PathBuf,
    bytes: BufReader<R>,
    left: u64,
    kind: &'static str,
    index: u64,
    count: u64,
}

impl Input<File> {
    pub(super) fn open(path: &Path) -> Result<Self, ColmapError> {
        let (file, length) = open(path)?;
        Ok(Self::new(path, file, length))
    }
}

impl<R: Read + Seek> Input<R> {
    pub(super) fn new(path: &Path, bytes: R, length: u64) -> Self {
        Self {
            path: path.to_owned(),
            bytes: BufReader::with_capacity(1 << 16, bytes),
            left: length,
            kind: "record",
            index: 0,
            count: 0,
        }
    }

    fn reading(&self) -> String {
        if self.count == 0 {
            format!("the number of {}s", self.kind)
        } else {
            format!("{} {} of {}", self.kind, self.index, self.count)
        }
    }

    fn truncated(&self, needed: u64) -> ColmapError {
        ColmapError::Truncated {
            path: self.path.clone(),
            reading: self.reading(),
            needed,
            left: self.left,
        }
    }

    fn invalid(&self, found: String) -> ColmapError {
        ColmapError::Invalid { path: self.path.clone(), reading: self.reading(), found }
    }

    /// The system's error; a file that became shorter since it was opened is a truncated one.
    fn failed(&self, needed: u64, source: io::Error) -> ColmapError {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            self.truncated(needed)
        } else {
            ColmapError::Unreadable { path: self.path.clone(), source }
        }
    }

    /// The number of records of this kind, each of at least so many bytes.
    fn start(&mut self, kind: &'static str, least: u64) -> Result<u64, ColmapError> {
        self.kind = kind;
        let count = self.u64()?;
        self.fits(count, least, kind)?;
        self.count = count;
        Ok(count)
    }

    fn next(&mut self) {
        self.index += 1;
    }

    /// Fails if so many parts of so many bytes cannot follow.
    fn fits(&self, count: u64, bytes: u64, what: &str) -> Result<u64, ColmapError> {
        match count.checked_mul(bytes) {
            Some(total) if total <= self.left => Ok(total),
            _ => Err(self.invalid(format!(
                "says that {count} {what}s follow, but only {} bytes are left",
                self.left
            ))),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ColmapError> {
        let needed = N as u64;
        if needed > self.left {
            return Err(self.truncated(needed));
        }
        let mut bytes = [0; N];
        self.bytes.read_exact(&mut bytes).map_err(|source| self.failed(needed, source))?;
        self.left -= needed;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, ColmapError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ColmapError> {
        self.take().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64, ColmapError> {
        self.take().map(f64::from_le_bytes)
    }

    fn f64s<const N: usize>(&mut self) -> Result<[f64; N], ColmapError> {
        let mut numbers = [0.0; N];
        for number in &mut numbers {
            *number = self.f64()?;
        }
        Ok(numbers)
    }

    /// Passes over so many parts of so many bytes.
    fn skip(&mut self, count: u64, bytes: u64, what: &str) -> Result<(), ColmapError> {
        let total = self.fits(count, bytes, what)?;
        let distance = i64::try_from(total).map_err(|_too_far| self.truncated(total))?;
        self.bytes.seek_relative(distance).map_err(|source| self.failed(total, source))?;
        self.left -= total;
        Ok(())
    }

    /// Text up to a zero byte. What is not UTF-8 becomes U+FFFD, and the photograph will be
    /// reported as missing.
    fn name(&mut self) -> Result<String, ColmapError> {
        let longest = LONGEST_NAME.min(self.left);
        let mut bytes = Vec::new();
        let read = (&mut self.bytes).take(longest).read_until(0, &mut bytes);
        let read = read.map_err(|source| self.failed(longest, source))?;
        self.left -= read as u64;
        if bytes.pop() != Some(0) {
            return Err(self.invalid(format!("has a name of more than {read} bytes")));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Warns of bytes after the last record.
    fn finish(&self, warnings: &mut Vec<String>) {
        if self.left > 0 {
            warnings.push(format!(
                "{}: {} bytes follow the last of {} {}s; the file may be damaged",
                self.path.display(),
                self.left,
                self.count,
                self.kind
            ));
        }
    }
}

/// Reads `cameras.bin`.
pub(super) fn cameras<R: Read + Seek>(
    input: &mut Input<R>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<u32, SolvedCamera>, ColmapError> {
    let mut cameras = BTreeMap::new();
    for _ in 0..input.start("camera", LEAST_CAMERA)? {
        input.next();
        let id = input.u32()?;
        let number = i32::from_le_bytes(input.take()?);
        let model = CameraModel::by_id(number).ok_or_else(|| ColmapError::UnknownModel {
            path: input.path.clone(),
            camera: id,
            model: format!("number {number}"),
        })?;
        let size = [input.u64()?, input.u64()?];
        let mut params = Vec::with_capacity(model.params);
        for _ in 0..model.params {
            params.push(input.f64()?);
        }
        if cameras.insert(id, SolvedCamera { model, size, params }).is_some() {
            return Err(ColmapError::DuplicateCamera { path: input.path.clone(), camera: id });
        }
    }
    input.finish(warnings);
    Ok(cameras)
}

/// Reads `images.bin`, passing over the observations.
pub(super) fn images<R: Read + Seek>(
    input: &mut Input<R>,
    warnings: &mut Vec<String>,
) -> Result<Vec<RawImage>, ColmapError> {
    let mut images = Vec::new();
    for _ in 0..input.start("image", LEAST_IMAGE)? {
        input.next();
        input.u32()?;
        let pose = pose(input.f64s()?);
        let camera = input.u32()?;
        let name = input.name()?;
        let observations = input.u64()?;
        input.skip(observations, OBSERVATION, "observation")?;
        images.push(RawImage { name, camera, pose });
    }
    input.finish(warnings);
    Ok(images)
}

/// Reads `points3D.bin`, passing over the tracks.
pub(super) fn points<R: Read + Seek>(
    input: &mut Input<R>,
    warnings: &mut Vec<String>,
) -> Result<Points, ColmapError> {
    let count = input.start("point", LEAST_POINT)?;
    let mut points = Points::default();
    if let Ok(count) = usize::try_from(count) {
        points.kept.positions.reserve_exact(count);
        points.kept.colors.reserve_exact(count);
    }
    for _ in 0..count {
        input.next();
        input.u64()?;
        let position = input.f64s()?;
        let color = input.take()?;
        input.f64()?;
        let track = input.u64()?;
        input.skip(track, TRACK_ELEMENT, "track element")?;
        if !points.push(position, color) {
            return Err(
                input.invalid(format!("is at {position:?}, and coordinates end at {FARTHEST:e}"))
            );
        }
    }
    input.finish(warnings);
    Ok(points)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    /// Reads the bytes as each of the three files; the errors' texts.
    fn read(bytes: &[u8]) -> [Result<(), String>; 3] {
        let input = || Input::new(Path::new("a.bin"), Cursor::new(bytes), bytes.len() as u64);
        let mut warnings = Vec::new();
        [
            cameras(&mut input(), &mut warnings).map(drop),
            images(&mut input(), &mut warnings).map(drop),
            points(&mut input(), &mut warnings).map(drop),
        ]
        .map(|result| result.map_err(|error| error.to_string()))
    }

    /// Two records of each kind, observations and tracks included.
    fn valid() -> [Vec<u8>; 3] {
        let mut files: [Vec<u8>; 3] = std::array::from_fn(|_| 2_u64.to_le_bytes().to_vec());
        let numbers = |count: usize| (1..=count).flat_map(|i| (i as f64).to_le_bytes());
        for record in 1..=2_u32 {
            let [cameras, images, points] = &mut files;
            cameras.extend(record.to_le_bytes());
            cameras.extend(4_i32.to_le_bytes());
            cameras.extend([640_u64, 480].iter().flat_map(|size| size.to_le_bytes()));
            cameras.extend(numbers(8));

            images.extend(record.to_le_bytes());
            images.extend(numbers(7));
            images.extend(1_u32.to_le_bytes());
            images.extend(format!("folder/{record}.jpg\0").into_bytes());
            images.extend(3_u64.to_le_bytes());
            images.extend([7; 3 * 24]);

            points.extend(u64::from(record).to_le_bytes());
            points.extend(numbers(3));
            points.extend([10, 20, 30]);
            points.extend(numbers(1));
            points.extend(2_u64.to_le_bytes());
            points.extend([9; 2 * 8]);
        }
        files
    }

    #[test]
    fn valid_files_are_read_to_their_last_byte() {
        for (kind, bytes) in valid().iter().enumerate() {
            assert_eq!(read(bytes)[kind], Ok(()));
        }
        let [_, bytes, _] = valid();
        let mut warnings = Vec::new();
        let mut input = Input::new(Path::new("a.bin"), Cursor::new(&bytes), bytes.len() as u64);
        let images = images(&mut input, &mut warnings).unwrap();
        assert_eq!(input.left, 0);
        assert_eq!(images[1].name, "folder/2.jpg");
        assert!(warnings.is_empty());
    }

    #[test]
    fn every_truncation_is_an_error_that_names_file_and_record() {
        for (kind, bytes) in valid().iter().enumerate() {
            for length in 0..bytes.len() {
                let error = read(&bytes[..length])[kind].clone().unwrap_err();
                assert!(error.contains("a.bin"), "{error}");
                assert!(error.contains("export the model again"), "{error}");
            }
        }
    }

    #[test]
    fn bytes_behind_the_last_record_are_warned_of() {
        let [mut bytes, ..] = valid();
        bytes.extend([0; 5]);
        let mut warnings = Vec::new();
        let mut input = Input::new(Path::new("a.bin"), Cursor::new(&bytes), bytes.len() as u64);
        cameras(&mut input, &mut warnings).unwrap();
        assert!(warnings[0].contains("5 bytes follow"), "{warnings:?}");
    }

    #[test]
    fn a_count_beyond_the_file_is_refused_before_anything_is_allocated() {
        for count in [3, 1_u64 << 40, u64::MAX] {
            for (kind, mut bytes) in valid().into_iter().enumerate() {
                bytes[..8].copy_from_slice(&count.to_le_bytes());
                assert!(read(&bytes)[kind].is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            drop(read(&bytes));
        }

        #[test]
        fn no_bytes_behind_a_small_count_make_a_reader_panic(
            count in 0_u8..4,
            bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut file = u64::from(count).to_le_bytes().to_vec();
            file.extend(bytes);
            drop(read(&file));
        }

        #[test]
        fn flipped_bits_never_panic(
            kind in 0_usize..3,
            flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = valid()[kind].clone();
            for (at, bit) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            drop(read(&bytes));
            bytes.truncate(cut.index(bytes.len()));
            drop(read(&bytes));
        }
    }
}
