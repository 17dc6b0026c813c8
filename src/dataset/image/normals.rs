//! Normal maps of photographs.

use std::path::Path;

use fast_image_resize::FilterType;
use fast_image_resize::images::ImageRef;
use fast_image_resize::pixels::{PixelType, U8x3};
use image::Rgba;

use super::decoded::NormalMap;
use super::depth::{MapKind, Plane};
use super::error::{ImageError, name};
use super::{codec, resample};
use crate::dataset::shot::ImageSource;
use crate::math::Real;
use crate::math::linalg::{Mat3, length, mul, scale};
use crate::math::normals::STORED_ONE;

const KIND: MapKind = MapKind { name: "normal", flag: "--normals" };

/// Lengths of stored vectors that are normals. Black, white, grey, and JPEG noise around them are outside.
const LENGTHS: std::ops::RangeInclusive<f64> = 0.5..=1.25;

/// Fails if a map's header is not a normal map's or does not have the photograph's proportions. An unreadable
/// photograph is an error when it is decoded.
pub(in crate::dataset) fn check_normals(
    path: &Path,
    source: &ImageSource,
) -> Result<(), ImageError> {
    let (map, upright) = (codec::header(path)?, source.apply_orientation);
    if !map.has_colors {
        return Err(ImageError::NoNormalMap { path: name(path) });
    }
    let Ok(photograph) = codec::header(&source.path) else { return Ok(()) };
    KIND.check_shape(path, map.size(upright), source, photograph.size(upright))
}

/// Loads the map of a view in camera axes, if it has one: decoded, rotated, straightened and resized like its
/// photograph of size `photograph_px`.
pub(super) fn load(
    source: &ImageSource,
    photograph_px: [u32; 2],
) -> Result<Option<NormalMap>, ImageError> {
    let Some(file) = &source.normals else { return Ok(None) };
    let path = &file.path;
    let plane = decode(path, source.apply_orientation, &file.cam_from_map)?;
    let plane = plane.straightened(path, KIND, source, photograph_px)?;
    Ok(Some(NormalMap { values: resize(path, plane, source.size)? }))
}

fn decode(
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
    check_facing(path, &values)?;
    Ok(Plane { px, values })
}

/// Fails if most normals point away from the camera, as in other axes.
fn check_facing(path: &Path, values: &[[i8; 3]]) -> Result<(), ImageError> {
    let count = |counts: fn(&[i8; 3]) -> bool| values.iter().filter(|value| counts(value)).count();
    let (all, away) = (count(|value| *value != [0; 3]), count(|value| value[2] > 0));
    if 2 * away <= all {
        return Ok(());
    }
    Err(ImageError::NormalsFaceAway { path: name(path), percent: 100 * away / all })
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
pub(super) fn resize(
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

    use image::{Luma, Rgb, Rgba};

    use super::super::depth::tests::write;
    use super::*;
    use crate::dataset::shot::NormalFile;
    use crate::files::assert_parts;
    use crate::memory::Bytes;

    const SAME: Mat3<f64> = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

    const OPENGL: Mat3<f64> = [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]];

    fn source(path: PathBuf, photograph_px: [u32; 2], size: [u32; 2]) -> ImageSource {
        let normals = Some(NormalFile { path, cam_from_map: SAME });
        ImageSource { size, normals, ..ImageSource::plain("a.jpg".into(), photograph_px) }
    }

    fn load_at(
        path: PathBuf,
        photograph_px: [u32; 2],
        size: [u32; 2],
    ) -> Result<NormalMap, ImageError> {
        load(&source(path, photograph_px, size), photograph_px).map(Option::unwrap)
    }

    #[test]
    fn colours_of_8_and_16_bits_are_normals_and_black_and_grey_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let size = [4, 1];
        // Towards the camera, leaning to the upper right, black, grey.
        let colours: [[u8; 3]; 4] = [[128, 128, 0], [218, 64, 64], [0; 3], [128; 3]];
        let expected = [[0, 0, -127], [90, -63, -63], [0; 3], [0; 3]];
        let short = write(&folder, size, |x, _| Rgb(colours[x as usize]));
        let map = load_at(short, size, size).unwrap();
        assert_eq!((map.bytes(), map.values), (Bytes(12), expected.as_flattened().to_vec()));
        let deep =
            write(&folder, size, |x, _| Rgb(colours[x as usize].map(|v| u16::from(v) * 257)));
        assert_eq!(load_at(deep, size, size).unwrap().values, expected.as_flattened());
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
        let map = load_at(path, [16, 4], [4, 1]).unwrap();
        let expected = [[127, 0, 0], [64, 0, -63], [32, 0, 0], [0; 3]];
        for (found, expected) in map.values.iter().zip(expected.as_flattened()) {
            assert!(found.abs_diff(*expected) <= 1, "{:?} for {expected:?}", map.values);
        }
        let pixels = map.values.as_chunks::<3>().0;
        let mapped = crate::math::normals::mapped_normal::<f32>;
        let has_normal = pixels.iter().map(|&stored| mapped(stored).is_some());
        assert_eq!(has_normal.collect::<Vec<_>>(), [true, true, false, false]);
        let plane = Plane { px: [4, 1], values: pixels.to_vec() };
        let again = resize(Path::new("a.png"), plane, [2, 1]).unwrap();
        assert!(again[0].abs_diff(95) <= 2 && again[2].abs_diff(-31) <= 2, "{again:?}");
    }

    #[test]
    fn invalid_normal_maps_are_rejected_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let size = [4, 4];
        let grey = write(&folder, size, |_, _| Luma([3_u8]));
        let error = load_at(grey, size, size).unwrap_err().to_string();
        assert_parts(&error, &["a.png: is no normal map"]);
        let narrow = write(&folder, [20, 30], |_, _| Rgb([128_u8, 128, 0]));
        let error = load_at(narrow, [40, 30], size).unwrap_err().to_string();
        assert_parts(&error, &["a.png", "normal map has 20x30 px", "a.jpg", "40x30", "--normals"]);
    }

    #[test]
    fn transparent_pixels_have_no_normal() {
        let folder = tempfile::tempdir().unwrap();
        let size = [2, 1];
        let expected = [0, 0, -127, 0, 0, 0];
        let short =
            write(&folder, size, |x, _| Rgba([128_u8, 128, 0, if x == 0 { 255 } else { 0 }]));
        assert_eq!(load_at(short, size, size).unwrap().values, expected);
        let deep = write(&folder, size, |x, _| {
            Rgba([32_896_u16, 32_896, 0, if x == 0 { 65_535 } else { 0 }])
        });
        assert_eq!(load_at(deep, size, size).unwrap().values, expected);
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
        assert!(load_at(map(2), size, size).is_ok());
        let error = load_at(map(3), size, size).unwrap_err().to_string();
        assert_parts(&error, &["a.png", "75 % of its normals point away", "--normals-frame"]);
        let turned = NormalFile { path: map(3), cam_from_map: OPENGL };
        let source = ImageSource { normals: Some(turned), ..source(map(3), size, size) };
        assert!(load(&source, size).is_ok());
    }

    #[test]
    fn undistortion_moves_normals_without_rotation() {
        use crate::dataset::{Camera, Distortion, Lens};
        let folder = tempfile::tempdir().unwrap();
        let camera = Camera { width: 64, height: 48, focal_px: [50.0; 2], centre_px: [32.0, 24.0] };
        let distortion = Distortion::brown([-0.12, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let (straight, undistort) = Lens::new(camera, distortion).unwrap().straighten().unwrap();
        let size = [straight.width, straight.height];
        // Two halves that face each other.
        let path =
            write(&folder, [64, 48], |x, _| Rgb([if x < 20 { 255_u8 } else { 0 }, 128, 128]));
        let source = ImageSource { undistort, full_size: size, size, ..source(path, size, size) };
        let map = load(&source, [64, 48]).unwrap().unwrap();
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
