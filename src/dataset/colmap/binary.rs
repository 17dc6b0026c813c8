//! Reads and writes COLMAP's binary files, little-endian and unaligned.
//!
//! Counts are checked against the remaining bytes, so that a file cannot make the program allocate more than a few
//! times the file's size.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::raw::{CameraModel, ColmapError, PINHOLE, Points, RawImage, SolvedCamera, open, pose};
use crate::dataset::camera::{Camera, View};
use crate::dataset::shot::FARTHEST;
use crate::files::{OutputError, create_folder, write_atomically};
use crate::math::linalg::{Mat3, Quat, Vec3};

/// Smallest size of a camera, bytes: id, model, width and height.
const MIN_CAMERA_BYTES: u64 = 24;

/// Smallest size of an image, bytes: id, pose, camera, an empty name and the number of observations.
const MIN_IMAGE_BYTES: u64 = 73;
const OBSERVATION_BYTES: u64 = 24;

/// Smallest size of a point, bytes: id, position, colour, error and the length of its track.
const MIN_POINT_BYTES: u64 = 51;
const TRACK_ELEMENT_BYTES: u64 = 8;

/// Longest name of an image, bytes; the limit of a path in file systems.
const MAX_NAME_BYTES: u64 = 4096;

/// A file that is read sequentially, and the current record for messages.
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

    /// Converts a system error. A file that has become shorter since it was opened is truncated.
    fn failed(&self, needed: u64, source: io::Error) -> ColmapError {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            self.truncated(needed)
        } else {
            ColmapError::Unreadable { path: self.path.clone(), source }
        }
    }

    /// Reads all records of this kind, each of at least `least` bytes, and warns of bytes after the last one.
    fn each(
        &mut self,
        kind: &'static str,
        least: u64,
        warnings: &mut Vec<String>,
        mut read: impl FnMut(&mut Self) -> Result<(), ColmapError>,
    ) -> Result<(), ColmapError> {
        self.kind = kind;
        let count = self.u64()?;
        self.fits(count, least, kind)?;
        self.count = count;
        for index in 1..=count {
            self.index = index;
            read(self)?;
        }
        if self.left > 0 {
            warnings.push(format!(
                "{}: {} bytes follow the last of {count} {kind}s; the file may be damaged",
                self.path.display(),
                self.left
            ));
        }
        Ok(())
    }

    /// Fails if `count` parts of `bytes` bytes cannot follow.
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

    /// Skips `count` parts of `bytes` bytes.
    fn skip(&mut self, count: u64, bytes: u64, what: &str) -> Result<(), ColmapError> {
        let total = self.fits(count, bytes, what)?;
        let distance = i64::try_from(total).map_err(|_too_far| self.truncated(total))?;
        self.bytes.seek_relative(distance).map_err(|source| self.failed(total, source))?;
        self.left -= total;
        Ok(())
    }

    /// Reads text up to a zero byte. Invalid UTF-8 becomes U+FFFD, and the photograph is reported as missing.
    fn name(&mut self) -> Result<String, ColmapError> {
        let longest = MAX_NAME_BYTES.min(self.left);
        let mut bytes = Vec::new();
        let read = (&mut self.bytes).take(longest).read_until(0, &mut bytes);
        let read = read.map_err(|source| self.failed(longest, source))?;
        self.left -= read as u64;
        if bytes.pop() != Some(0) {
            return Err(self.invalid(format!("has a name of more than {read} bytes")));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

pub(super) fn cameras<R: Read + Seek>(
    input: &mut Input<R>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<u32, SolvedCamera>, ColmapError> {
    let mut cameras = BTreeMap::new();
    input.each("camera", MIN_CAMERA_BYTES, warnings, |input| {
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
        match cameras.insert(id, SolvedCamera { model, size, params }) {
            Some(_) => Err(ColmapError::DuplicateCamera { path: input.path.clone(), camera: id }),
            None => Ok(()),
        }
    })?;
    Ok(cameras)
}

/// Reads `images.bin` without the observations.
pub(super) fn images<R: Read + Seek>(
    input: &mut Input<R>,
    warnings: &mut Vec<String>,
) -> Result<Vec<RawImage>, ColmapError> {
    let mut images = Vec::new();
    input.each("image", MIN_IMAGE_BYTES, warnings, |input| {
        input.u32()?;
        let pose = pose(input.f64s()?);
        let camera = input.u32()?;
        let name = input.name()?;
        let observations = input.u64()?;
        input.skip(observations, OBSERVATION_BYTES, "observation")?;
        images.push(RawImage { name, camera, pose });
        Ok(())
    })?;
    Ok(images)
}

/// Reads `points3D.bin` without the tracks.
pub(super) fn points<R: Read + Seek>(
    input: &mut Input<R>,
    warnings: &mut Vec<String>,
) -> Result<Points, ColmapError> {
    let mut points = Points::default();
    input.each("point", MIN_POINT_BYTES, warnings, |input| {
        if input.index == 1 {
            let count = usize::try_from(input.count).unwrap_or(0);
            points.kept.positions.reserve_exact(count);
            points.kept.colors.reserve_exact(count);
        }
        input.u64()?;
        let position = input.f64s()?;
        let color = input.take()?;
        input.f64()?;
        let track = input.u64()?;
        input.skip(track, TRACK_ELEMENT_BYTES, "track element")?;
        if points.push(position, color) {
            return Ok(());
        }
        Err(input.invalid(format!("is at {position:?}, and coordinates end at {FARTHEST:e}")))
    })?;
    Ok(points)
}

// Writes a reconstruction as COLMAP's binary files, in the layout of its documentation ("Output format").

/// A triangulated point.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedPoint {
    /// Position in world units.
    pub position: Vec3<f64>,
    /// Colour in sRGB.
    pub color: [u8; 3],
    /// Mean reprojection error, px.
    pub error_px: f64,
    /// Observations; each view at most once.
    pub track: Vec<Observation>,
}

/// An observation of a point in a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Index of the view.
    pub view: usize,
    /// Position in the image, px.
    pub at_px: [f64; 2],
}

/// Writes the three files into `folder`, which is created. Cameras are PINHOLE, one per set of views that share it;
/// ids count from 1 in the given order.
pub fn write_colmap(
    folder: &Path,
    views: &[View],
    points: &[TrackedPoint],
) -> Result<(), OutputError> {
    create_folder(folder)?;
    let mut cameras: Vec<Camera> = Vec::new();
    let mut camera_from_view = Vec::with_capacity(views.len());
    for view in views {
        let known = cameras.iter().position(|camera| *camera == view.camera);
        camera_from_view.push(known.unwrap_or(cameras.len()));
        if known.is_none() {
            cameras.push(view.camera);
        }
    }
    let mut points_in_views = vec![Vec::new(); views.len()];
    for (index, point) in points.iter().enumerate() {
        for &Observation { view, at_px } in &point.track {
            points_in_views[view].push((index, at_px));
        }
    }
    write_atomically(&folder.join("cameras.bin"), |out| write_cameras(out, &cameras))?;
    write_atomically(&folder.join("images.bin"), |out| {
        write_images(out, views, &camera_from_view, &points_in_views)
    })?;
    write_atomically(&folder.join("points3D.bin"), |out| write_points(out, points, views.len()))
}

fn write_cameras(out: &mut dyn Write, cameras: &[Camera]) -> io::Result<()> {
    write_count(out, cameras.len())?;
    for (index, camera) in cameras.iter().enumerate() {
        write_id(out, index)?;
        out.write_all(&PINHOLE.to_le_bytes())?;
        out.write_all(&u64::from(camera.width).to_le_bytes())?;
        out.write_all(&u64::from(camera.height).to_le_bytes())?;
        write_reals(out, &camera.focal_px)?;
        write_reals(out, &camera.centre_px)?;
    }
    Ok(())
}

fn write_images(
    out: &mut dyn Write,
    views: &[View],
    camera_from_view: &[usize],
    points_in_views: &[Vec<(usize, [f64; 2])>],
) -> io::Result<()> {
    write_count(out, views.len())?;
    for (index, view) in views.iter().enumerate() {
        write_id(out, index)?;
        write_reals(out, &quat_from_rotation(&view.pose.rotation))?;
        write_reals(out, &view.pose.translation)?;
        write_id(out, camera_from_view[index])?;
        if view.name.contains('\0') {
            return Err(io::Error::other("the name of an image holds a zero byte"));
        }
        out.write_all(view.name.as_bytes())?;
        out.write_all(&[0])?;
        write_count(out, points_in_views[index].len())?;
        for (point, at_px) in &points_in_views[index] {
            write_reals(out, at_px)?;
            write_count(out, point + 1)?;
        }
    }
    Ok(())
}

fn write_points(out: &mut dyn Write, points: &[TrackedPoint], views: usize) -> io::Result<()> {
    let mut next_of_view = vec![0; views];
    write_count(out, points.len())?;
    for (index, point) in points.iter().enumerate() {
        write_count(out, index + 1)?;
        write_reals(out, &point.position)?;
        out.write_all(&point.color)?;
        write_reals(out, &[point.error_px])?;
        write_count(out, point.track.len())?;
        for seen in &point.track {
            write_id(out, seen.view)?;
            write_u32(out, next_of_view[seen.view])?;
            next_of_view[seen.view] += 1;
        }
    }
    Ok(())
}

fn write_count(out: &mut dyn Write, count: usize) -> io::Result<()> {
    out.write_all(&(count as u64).to_le_bytes())
}

/// Writes a 32-bit id: the index, from 1.
fn write_id(out: &mut dyn Write, index: usize) -> io::Result<()> {
    write_u32(out, index + 1)
}

fn write_u32(out: &mut dyn Write, value: usize) -> io::Result<()> {
    let value = u32::try_from(value).map_err(|_too_many| {
        io::Error::other("COLMAP's format numbers at most 2^32 - 1 of a kind")
    })?;
    out.write_all(&value.to_le_bytes())
}

fn write_reals(out: &mut dyn Write, values: &[f64]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// Returns the unit quaternion (w, x, y, z) of a rotation, with w >= 0. Divides by the largest component (Shepperd,
/// "Quaternion from rotation matrix", 1978).
fn quat_from_rotation(m: &Mat3<f64>) -> Quat<f64> {
    // Four times the squares of w, x, y, z.
    let squares = [
        1.0 + m[0][0] + m[1][1] + m[2][2],
        1.0 + m[0][0] - m[1][1] - m[2][2],
        1.0 - m[0][0] + m[1][1] - m[2][2],
        1.0 - m[0][0] - m[1][1] + m[2][2],
    ];
    // Four times the products of w with x, y, z, and of x, y, z with each other.
    let (wx, wy, wz) = (m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]);
    let (xy, xz, yz) = (m[0][1] + m[1][0], m[0][2] + m[2][0], m[1][2] + m[2][1]);
    let products = [
        [squares[0], wx, wy, wz],
        [wx, squares[1], xy, xz],
        [wy, xy, squares[2], yz],
        [wz, xz, yz, squares[3]],
    ];
    let largest = (0..4).max_by(|&a, &b| squares[a].total_cmp(&squares[b])).unwrap_or(0);
    let row = products[largest];
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let sign = if row[0] < 0.0 { -1.0 } else { 1.0 };
    row.map(|x| sign * x / length)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::math::linalg::rotation;

    fn input(bytes: &[u8]) -> Input<Cursor<&[u8]>> {
        Input::new(Path::new("a.bin"), Cursor::new(bytes), bytes.len() as u64)
    }

    /// Reads the bytes as each of the three files; returns the errors' texts.
    fn read(bytes: &[u8]) -> [Result<(), String>; 3] {
        let mut warnings = Vec::new();
        [
            cameras(&mut input(bytes), &mut warnings).map(drop),
            images(&mut input(bytes), &mut warnings).map(drop),
            points(&mut input(bytes), &mut warnings).map(drop),
        ]
        .map(|result| result.map_err(|error| error.to_string()))
    }

    /// Returns two records of each kind, with observations and tracks.
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
        let (mut warnings, mut input) = (Vec::new(), input(&bytes));
        let images = images(&mut input, &mut warnings).unwrap();
        assert_eq!(input.left, 0);
        assert_eq!(images[1].name, "folder/2.jpg");
        assert!(warnings.is_empty());

        let [mut longer, ..] = valid();
        longer.extend([0; 5]);
        cameras(&mut self::input(&longer), &mut warnings).unwrap();
        assert!(warnings[0].contains("5 bytes follow"), "{warnings:?}");
    }

    #[test]
    fn truncations_and_counts_beyond_the_file_are_errors() {
        for (kind, bytes) in valid().iter().enumerate() {
            for length in 0..bytes.len() {
                let error = read(&bytes[..length])[kind].clone().unwrap_err();
                assert!(error.contains("a.bin"), "{error}");
                assert!(error.contains("export the model again"), "{error}");
            }
        }
        for count in [3, 1_u64 << 40, u64::MAX] {
            for (kind, mut bytes) in valid().into_iter().enumerate() {
                bytes[..8].copy_from_slice(&count.to_le_bytes());
                assert!(read(&bytes)[kind].is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            count in prop_oneof![0_u64..4, any::<u64>()],
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut file = count.to_le_bytes().to_vec();
            file.extend(bytes);
            drop(read(&file));
            file.truncate(cut.index(file.len()));
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

        #[test]
        fn quaternions_and_rotations_agree(q in prop::array::uniform4(-1.0_f64..1.0)) {
            let length = q.iter().map(|x| x * x).sum::<f64>().sqrt();
            prop_assume!(length > 0.1);
            let sign = if q[0] < 0.0 { -1.0 } else { 1.0 };
            let back = quat_from_rotation(&rotation(q));
            for i in 0..4 {
                // The largest component is at least 1/2, so rounding grows little.
                prop_assert!((back[i] - sign * q[i] / length).abs() < 1e-14, "{q:?} {back:?}");
            }
        }
    }

    #[test]
    fn half_turns_have_quaternions() {
        for axis in 0..3 {
            let mut turn = [[0.0; 3]; 3];
            for (i, row) in turn.iter_mut().enumerate() {
                row[i] = if i == axis { 1.0 } else { -1.0 };
            }
            let back = rotation(quat_from_rotation(&turn));
            assert_eq!(back, turn);
        }
    }
}
