//! Maps of inverse depths and of normals of photographs.

use std::path::Path;

use fast_image_resize::FilterType;
use fast_image_resize::images::ImageRef;
use fast_image_resize::pixels::{PixelType, U8x3, U16};
use image::{DynamicImage, Rgba};
use splat_mesh::narrow::floor_usize;

use super::decoded::{self, ImageError, InverseDepthMap, NormalMap, name};
use super::{codec, resample};
use crate::dataset::lens::Undistortion;
use crate::dataset::shot::ImageSource;
use crate::math::Real;
use crate::math::linalg::{Mat3, length, mul, scale};
use crate::math::normals::STORED_ONE;

const DEPTH: MapKind = MapKind { name: "depth", flag: "--depths" };

/// Loads the map of a view, if it has one: decoded, straightened and resized like its photograph of size
/// `photograph_px`.
pub(super) fn load_depths(
    source: &ImageSource,
    photograph_px: [u32; 2],
) -> Result<Option<InverseDepthMap>, ImageError> {
    let Some(file) = &source.depth else { return Ok(None) };
    let path = &file.path;
    let plane = decode_depths(path, source.apply_orientation)?;
    let plane = plane.straightened(path, DEPTH, source, photograph_px)?;
    let values = resize_depths(path, plane, source.size)?;
    Ok(Some(InverseDepthMap { values, scale: file.scale, offset: file.offset }))
}

/// Decodes 8- or 16-bit values without conversion, because the scales are fitted to the stored values.
fn decode_depths(path: &Path, upright: bool) -> Result<Plane<u16>, ImageError> {
    let pixels = codec::pixels(path, upright)?;
    let px = [pixels.width(), pixels.height()];
    let values = match pixels {
        DynamicImage::ImageLuma8(grey) => grey.into_raw().into_iter().map(u16::from).collect(),
        DynamicImage::ImageLuma16(grey) => grey.into_raw(),
        DynamicImage::ImageRgb8(rgb) => {
            single_channel(path, rgb.as_raw())?.into_iter().map(u16::from).collect()
        }
        DynamicImage::ImageRgb16(rgb) => single_channel(path, rgb.as_raw())?,
        _ => return Err(ImageError::NoDepthMap { path: name(path) }),
    };
    Ok(Plane { px, values })
}

/// Returns one channel of `[n][3]` colours; fails unless all are grey.
fn single_channel<T: Copy + PartialEq>(path: &Path, rgb: &[T]) -> Result<Vec<T>, ImageError> {
    let grey = |pixel: &[T]| (pixel[0] == pixel[1] && pixel[1] == pixel[2]).then_some(pixel[0]);
    let channel: Option<Vec<T>> = rgb.chunks_exact(3).map(grey).collect();
    channel.ok_or_else(|| ImageError::NoDepthMap { path: name(path) })
}

/// Resizes the values by a filter without negative lobes, so that they stay in the range of their neighbours.
pub(super) fn resize_depths(
    path: &Path,
    plane: Plane<u16>,
    size: [u32; 2],
) -> Result<Vec<u16>, ImageError> {
    let Plane { px, values } = plane;
    if px == size {
        return Ok(values);
    }
    let pixels: Vec<U16> = values.into_iter().map(U16::new).collect();
    let source = ImageRef::from_pixels(px[0], px[1], &pixels);
    let bytes = resample::convolve::<U16>(path, source, size, FilterType::Bilinear)?;
    Ok(bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect())
}

// A map of a photograph, before it has the trained size.

#[derive(Clone, Copy, Debug)]
pub(super) struct MapKind {
    pub(super) name: &'static str,
    /// Option of the maps' folder.
    pub(super) flag: &'static str,
}

impl MapKind {
    /// Fails if a map of `size` does not have the proportions of its photograph of `photograph_px`.
    pub(super) fn check_shape(
        self,
        path: &Path,
        size: [u32; 2],
        source: &ImageSource,
        photograph_px: [u32; 2],
    ) -> Result<(), ImageError> {
        if decoded::same_shape(size, photograph_px) {
            return Ok(());
        }
        Err(ImageError::MapShape {
            path: name(path),
            kind: self.name,
            flag: self.flag,
            size,
            photograph: name(&source.path),
            photograph_size: photograph_px,
        })
    }
}

/// Values of pixels, rows from the top.
pub(super) struct Plane<T> {
    pub(super) px: [u32; 2],
    pub(super) values: Vec<T>,
}

impl<T: Copy> Plane<T> {
    /// Straightens the map in the file `path` like its photograph of size `photograph_px`. Fails if the map does not
    /// have the photograph's proportions.
    pub(super) fn straightened(
        self,
        path: &Path,
        kind: MapKind,
        source: &ImageSource,
        photograph_px: [u32; 2],
    ) -> Result<Self, ImageError> {
        kind.check_shape(path, self.px, source, photograph_px)?;
        Ok(match &source.undistort {
            Some(lens) => self.straighten(lens, source.full_size, photograph_px),
            None => self,
        })
    }

    /// Resamples the map for a pinhole camera of `full_px`, by the nearest stored values.
    pub(super) fn straighten(
        &self,
        lens: &Undistortion,
        full_px: [u32; 2],
        photograph_px: [u32; 2],
    ) -> Self {
        let ratio = [0, 1].map(|i| f64::from(self.px[i]) / f64::from(photograph_px[i]));
        let mut values = Vec::with_capacity(full_px[0] as usize * full_px[1] as usize);
        resample::each_place(full_px, &|at| lens.source_px(at), |at| {
            let [x, y] = [0, 1]
                .map(|i| floor_usize((at[i] * ratio[i]).clamp(0.0, f64::from(self.px[i]) - 1.0)));
            values.push(self.values[y * self.px[0] as usize + x]);
        });
        Self { px: full_px, values }
    }
}

// Normals.

const NORMAL: MapKind = MapKind { name: "normal", flag: "--normals" };

/// Lengths of stored vectors that are normals. Black, white, grey, and JPEG noise around them are outside.
const LENGTHS: std::ops::RangeInclusive<f64> = 0.5..=1.25;

/// Fails if a map's header is not a normal map's or does not have the photograph's proportions. An unreadable
/// photograph is an error when it is decoded.
pub(in crate::dataset) fn check_normals(
    path: &Path,
    source: &ImageSource,
) -> Result<(), ImageError> {
    let (map, upright) = (codec::probe(path)?, source.apply_orientation);
    if !map.has_colors {
        return Err(ImageError::NoNormalMap { path: name(path) });
    }
    let Ok(photograph) = codec::probe(&source.path) else { return Ok(()) };
    NORMAL.check_shape(path, map.size(upright), source, photograph.size(upright))
}

/// Loads the map of a view in camera axes, if it has one: decoded, rotated, straightened and resized like its
/// photograph of size `photograph_px`.
pub(super) fn load_normals(
    source: &ImageSource,
    photograph_px: [u32; 2],
) -> Result<Option<NormalMap>, ImageError> {
    let Some(file) = &source.normals else { return Ok(None) };
    let path = &file.path;
    let plane = decode_normals(path, source.apply_orientation, &file.cam_from_map)?;
    let plane = plane.straightened(path, NORMAL, source, photograph_px)?;
    Ok(Some(NormalMap { values: resize_normals(path, plane, source.size)? }))
}

fn decode_normals(
    path: &Path,
    upright: bool,
    cam_from_map: &Mat3<f64>,
) -> Result<Plane<[i8; 3]>, ImageError> {
    let pixels = codec::pixels(path, upright)?;
    if !pixels.color().has_color() {
        return Err(ImageError::NoNormalMap { path: name(path) });
    }
    // 16-bit colours keep their upper eight bits.
    let colours = pixels.into_rgba8();
    let px = [colours.width(), colours.height()];
    let normal = |&Rgba([red, green, blue, alpha]): &Rgba<u8>| match alpha {
        0 => [0; 3],
        _ => stored([red, green, blue], cam_from_map),
    };
    let values: Vec<[i8; 3]> = colours.pixels().map(normal).collect();
    // Most normals point away from the camera if the map has other axes.
    let count = |counts: fn(&[i8; 3]) -> bool| values.iter().filter(|value| counts(value)).count();
    let (all, away) = (count(|value| *value != [0; 3]), count(|value| value[2] > 0));
    if 2 * away > all {
        return Err(ImageError::NormalsFaceAway { path: name(path), percent: 100 * away / all });
    }
    Ok(Plane { px, values })
}

/// Returns the normal of a colour in camera axes; zeros if the colour has none.
fn stored(colour: [u8; 3], cam_from_map: &Mat3<f64>) -> [i8; 3] {
    let vector = colour.map(|value| f64::from(value) / 255.0 * 2.0 - 1.0);
    let length = length(vector);
    if !LENGTHS.contains(&length) {
        return [0; 3];
    }
    // A vector longer than 1 would not fit along every axis.
    let turned = mul(cam_from_map, scale(vector, STORED_ONE / length.max(1.0)));
    turned.map(|component| i8::try_from((component + 0.5).floor_i32()).unwrap_or(0))
}

/// Resizes by means over areas. A mean is shorter if fewer pixels have a normal.
pub(super) fn resize_normals(
    path: &Path,
    plane: Plane<[i8; 3]>,
    size: [u32; 2],
) -> Result<Vec<i8>, ImageError> {
    let Plane { px, values } = plane;
    if px == size {
        return Ok(values.into_flattened());
    }
    let bytes: Vec<u8> = values.into_flattened().into_iter().map(NormalMap::biased).collect();
    let source = ImageRef::new(px[0], px[1], &bytes, PixelType::U8x3);
    let bytes = resample::convolve::<U8x3>(path, source, size, FilterType::Box)?;
    Ok(bytes.into_iter().map(NormalMap::unbiased).collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use image::{ImageBuffer, Luma, LumaA, Pixel, PixelWithColorType, Rgb, Rgba};
    use tempfile::TempDir;

    use super::*;
    use crate::dataset::shot::{DepthFile, NormalFile};
    use crate::dataset::{Camera, Distortion, Lens};
    use crate::files::assert_parts;
    use crate::memory::Bytes;

    fn write<P>(
        folder: &TempDir,
        [width, height]: [u32; 2],
        pixel: impl Fn(u32, u32) -> P,
    ) -> PathBuf
    where
        P: Pixel + PixelWithColorType,
        [P::Subpixel]: image::EncodableLayout,
    {
        let path = folder.path().join("a.png");
        ImageBuffer::from_fn(width, height, pixel).save(&path).unwrap();
        path
    }

    fn depths_at(
        path: PathBuf,
        photograph_px: [u32; 2],
        size: [u32; 2],
    ) -> Result<InverseDepthMap, ImageError> {
        let depth = Some(DepthFile { path, scale: 4.0, offset: -0.5 });
        let source =
            ImageSource { size, depth, ..ImageSource::plain("a.jpg".into(), photograph_px) };
        load_depths(&source, photograph_px).map(Option::unwrap)
    }

    #[test]
    fn stored_values_are_not_converted() {
        let folder = tempfile::tempdir().unwrap();
        let size = [5, 3];
        let value = |x: u32, y: u32| u16::try_from(9000 * x + 1001 * y).unwrap();
        let expected: Vec<u16> = (0..3).flat_map(|y| (0..5).map(move |x| value(x, y))).collect();
        let map = depths_at(write(&folder, size, |x, y| Luma([value(x, y)])), size, size).unwrap();
        assert_eq!((&map.values, map.offset), (&expected, -0.5));
        assert_eq!(map.scale_of_step() * 65_536.0, 4.0);
        let grey = write(&folder, size, |x, y| Rgb([value(x, y); 3]));
        assert_eq!(depths_at(grey, size, size).unwrap().values, expected);
        let short = |x: u32, y: u32| u8::try_from(50 * x + y).unwrap();
        let expected: Vec<u16> =
            (0..3).flat_map(|y| (0..5).map(move |x| short(x, y).into())).collect();
        let grey = write(&folder, size, |x, y| Rgb([short(x, y); 3]));
        assert_eq!(depths_at(grey, size, size).unwrap().values, expected);
        let map = depths_at(write(&folder, size, |x, y| Luma([short(x, y)])), size, size).unwrap();
        assert_eq!((map.bytes(), map.scale, map.values), (Bytes(30), 4.0, expected));
    }

    #[test]
    fn maps_are_resized_with_their_photograph_and_keep_their_range() {
        let folder = tempfile::tempdir().unwrap();
        let ramp = write(&folder, [40, 24], |x, _| Luma([u16::try_from(1000 * x).unwrap()]));
        for size in [[20, 12], [10, 6], [80, 48]] {
            // The map may have another size than the photograph.
            let map = depths_at(ramp.clone(), [80, 48], size).unwrap();
            let ratio = 40.0 / size[0] as f32;
            for (at, &value) in map.values.iter().enumerate() {
                let x = (at % size[0] as usize) as f32;
                let centre = ((x + 0.5) * ratio - 0.5).clamp(0.0, 39.0) * 1000.0;
                // A ramp stays a ramp up to rounding, except at the edges, where the filter is cut off.
                let edge = x < 2.0 || x > size[0] as f32 - 3.0;
                let tolerance = if edge { 1000.0 * ratio } else { 2.0 };
                assert!((f32::from(value) - centre).abs() <= tolerance, "{size:?} {at}: {value}");
                assert!(value <= 39_000);
            }
        }
    }

    /// Returns the size of a straightened photograph of 64x48 px, and its undistortion.
    fn undistortion() -> ([u32; 2], Undistortion) {
        let camera = Camera { width: 64, height: 48, focal_px: [50.0; 2], centre_px: [32.0, 24.0] };
        let distortion = Distortion::brown([-0.12, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let (straight, undistort) = Lens::new(camera, distortion).unwrap().straighten().unwrap();
        ([straight.width, straight.height], undistort.unwrap())
    }

    #[test]
    fn map_is_undistorted_like_the_photograph() {
        let (full_px, lens) = undistortion();
        // At half the photograph's size.
        let values = (0..24 * 32).map(|i| u16::try_from(i % 32 * 100).unwrap()).collect();
        let plane = Plane { px: [32, 24], values };
        let straightened = plane.straighten(&lens, full_px, [64, 48]);
        assert_eq!(straightened.values.len(), (full_px[0] * full_px[1]) as usize);
        for (x, y) in [(10, 5), (40, 20), (30, 40)] {
            let [at, _] = lens.source_px([f64::from(x) + 0.5, f64::from(y) + 0.5]);
            let expected = 100.0 * (at / 2.0).floor();
            let found = straightened.values[(y * full_px[0] + x) as usize];
            // A position on a boundary may fall to the neighbour.
            assert!((f64::from(found) - expected).abs() <= 100.0, "{x} {y}: {found} {expected}");
        }
    }

    const SAME: Mat3<f64> = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

    const OPENGL: Mat3<f64> = [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]];

    fn source(path: PathBuf, photograph_px: [u32; 2], size: [u32; 2]) -> ImageSource {
        let normals = Some(NormalFile { path, cam_from_map: SAME });
        ImageSource { size, normals, ..ImageSource::plain("a.jpg".into(), photograph_px) }
    }

    fn normals_at(
        path: PathBuf,
        photograph_px: [u32; 2],
        size: [u32; 2],
    ) -> Result<NormalMap, ImageError> {
        load_normals(&source(path, photograph_px, size), photograph_px).map(Option::unwrap)
    }

    #[test]
    fn colours_of_8_and_16_bits_are_normals_and_black_and_grey_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let size = [4, 1];
        // Towards the camera, leaning to the upper right, black, grey.
        let colours: [[u8; 3]; 4] = [[128, 128, 0], [218, 64, 64], [0; 3], [128; 3]];
        let expected = [[0, 0, -127], [90, -63, -63], [0; 3], [0; 3]];
        let short = write(&folder, size, |x, _| Rgb(colours[x as usize]));
        let map = normals_at(short, size, size).unwrap();
        assert_eq!((map.bytes(), map.values), (Bytes(12), expected.as_flattened().to_vec()));
        let deep =
            write(&folder, size, |x, _| Rgb(colours[x as usize].map(|v| u16::from(v) * 257)));
        assert_eq!(normals_at(deep, size, size).unwrap().values, expected.as_flattened());
    }

    #[test]
    fn stored_normals_are_rotated_and_at_most_unit() {
        for (colour, expected) in [([200, 90, 40], [72, 37, 87]), ([236, 236, 128], [90, -90, 0])] {
            assert_eq!(stored(colour, &OPENGL), expected, "{colour:?}");
            let [x, y, z] = stored(colour, &SAME);
            assert_eq!([x, -y, -z], expected, "the same, half a turn apart");
        }
        // A rotation by 45 degrees about the view axis.
        let half = 0.5_f64.sqrt();
        let turn = [[half, -half, 0.0], [half, half, 0.0], [0.0, 0.0, 1.0]];
        assert_eq!(stored([255, 128, 128], &turn), [89, 90, 0]);
        // Lengths of 1.73, 1.46 and 0.45.
        for colour in [[255; 3], [20; 3], [185, 128, 128]] {
            assert_eq!(stored(colour, &SAME), [0; 3], "{colour:?}");
        }
    }

    #[test]
    fn means_of_few_normals_are_short() {
        let folder = tempfile::tempdir().unwrap();
        // Squares of four: equal, two pairs, three without a normal, opposite.
        let right = [255_u8, 128, 128];
        let (left, near, none) = ([0, 128, 128], [128, 128, 0], [0; 3]);
        let rows = [
            [right, right, right, near, right, none, right, left],
            [right, right, right, near, none, none, left, right],
        ];
        let path = write(&folder, [8, 2], |x, y| Rgb(rows[y as usize][x as usize]));
        // The map may have another size than the photograph.
        let map = normals_at(path, [16, 4], [4, 1]).unwrap();
        let expected = [[127, 0, 0], [64, 0, -63], [32, 0, 0], [0; 3]];
        for (found, expected) in map.values.iter().zip(expected.as_flattened()) {
            assert!(found.abs_diff(*expected) <= 1, "{:?} for {expected:?}", map.values);
        }
        let pixels = map.values.as_chunks::<3>().0;
        let mapped = crate::math::normals::mapped_normal::<f32>;
        let has_normal = pixels.iter().map(|&stored| mapped(stored).is_some());
        assert_eq!(has_normal.collect::<Vec<_>>(), [true, true, false, false]);
        let plane = Plane { px: [4, 1], values: pixels.to_vec() };
        let again = resize_normals(Path::new("a.png"), plane, [2, 1]).unwrap();
        assert!(again[0].abs_diff(95) <= 2 && again[2].abs_diff(-31) <= 2, "{again:?}");
    }

    #[test]
    fn invalid_maps_are_rejected_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let (size, narrow) = ([4, 4], [20, 30]);
        let depths = |path, px| depths_at(path, px, size).unwrap_err().to_string();
        let colours = write(&folder, size, |x, _| Rgb([u8::try_from(x).unwrap(), 0, 0]));
        assert_parts(&depths(colours, size), &["a.png", "greyscale PNG"]);
        let transparent = write(&folder, size, |_, _| LumaA([3_u8, 9]));
        assert_parts(&depths(transparent, size), &["is no depth map"]);
        let grey = write(&folder, narrow, |_, _| Luma([7_u16]));
        let parts = ["a.png", "20x30 px", "a.jpg", "40x30", "--depths"];
        assert_parts(&depths(grey, [40, 30]), &parts);
        let normals = |path, px| normals_at(path, px, size).unwrap_err().to_string();
        let grey = write(&folder, size, |_, _| Luma([3_u8]));
        assert_parts(&normals(grey, size), &["a.png: is no normal map"]);
        let colours = write(&folder, narrow, |_, _| Rgb([128_u8, 128, 0]));
        let parts = ["a.png", "normal map has 20x30 px", "a.jpg", "40x30", "--normals"];
        assert_parts(&normals(colours, [40, 30]), &parts);
    }

    #[test]
    fn transparent_pixels_have_no_normal() {
        let folder = tempfile::tempdir().unwrap();
        let size = [2, 1];
        let expected = [0, 0, -127, 0, 0, 0];
        let short =
            write(&folder, size, |x, _| Rgba([128_u8, 128, 0, if x == 0 { 255 } else { 0 }]));
        assert_eq!(normals_at(short, size, size).unwrap().values, expected);
        let deep = write(&folder, size, |x, _| {
            Rgba([32_896_u16, 32_896, 0, if x == 0 { 65_535 } else { 0 }])
        });
        assert_eq!(normals_at(deep, size, size).unwrap().values, expected);
    }

    #[test]
    fn map_that_mostly_faces_away_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let size = [5, 1];
        // One without a normal, and `away` of the others facing away.
        let map = |away: u32| {
            write(&folder, size, move |x, _| match x {
                4 => Rgb([0_u8; 3]),
                x if x < away => Rgb([128, 128, 255]),
                _ => Rgb([128, 128, 0]),
            })
        };
        assert!(normals_at(map(2), size, size).is_ok());
        let error = normals_at(map(3), size, size).unwrap_err().to_string();
        assert_parts(&error, &["a.png", "75 % of its normals point away", "--normals-frame"]);
        let turned = NormalFile { path: map(3), cam_from_map: OPENGL };
        let source = ImageSource { normals: Some(turned), ..source(map(3), size, size) };
        assert!(load_normals(&source, size).is_ok());
    }

    #[test]
    fn undistortion_moves_normals_without_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (size, lens) = undistortion();
        let undistort = Some(lens);
        // Two halves that face each other.
        let path =
            write(&folder, [64, 48], |x, _| Rgb([if x < 20 { 255_u8 } else { 0 }, 128, 128]));
        let source = ImageSource { undistort, full_size: size, size, ..source(path, size, size) };
        let map = load_normals(&source, [64, 48]).unwrap().unwrap();
        let lens = source.undistort.unwrap();
        for (pixel, normal) in (0..).zip(map.values.as_chunks::<3>().0) {
            let at = [pixel % size[0], pixel / size[0]].map(|side| f64::from(side) + 0.5);
            let place = lens.source_px(at)[0];
            if (place - 20.0).abs() > 0.1 {
                assert_eq!(*normal, [if place < 20.0 { 127 } else { -127 }, 0, 0], "{at:?}");
            }
        }
    }
}
