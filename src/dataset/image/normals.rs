//! Normals beside a photograph, as a normal estimator sees them.

use std::path::Path;

use fast_image_resize::FilterType;
use fast_image_resize::images::ImageRef;
use fast_image_resize::pixels::{PixelType, U8x3};
use image::Rgba;

use super::decoded::NormalMap;
use super::error::{ImageError, name};
use super::plane::{MapKind, Plane};
use super::{codec, resample};
use crate::dataset::source::ImageSource;
use crate::math::Real;
use crate::math::linalg::{Mat3, length, mul, scale};
use crate::math::normals::STORED_ONE;

const KIND: MapKind = MapKind { name: "normal", flag: "--normals" };

/// Lengths of stored vectors that are normals: black, white and grey are none, with the noise that JPEG leaves
/// around them.
const LENGTHS: std::ops::RangeInclusive<f64> = 0.5..=1.25;

/// Fails where the header of a map says that it is none, or of other proportions than its photograph. What of
/// the photograph cannot be read is found out when it is decoded.
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

/// The map of a view at the size that is trained and in the camera's axes, where it has one: decoded,
/// turned, straightened and resized as its photograph of size `photograph_px`.
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
    // Of 16 bits the eight high ones.
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

/// Fails where most of these normals point away from the camera, as those of other axes do.
fn check_facing(path: &Path, values: &[[i8; 3]]) -> Result<(), ImageError> {
    let count = |counts: fn(&[i8; 3]) -> bool| values.iter().filter(|value| counts(value)).count();
    let (all, away) = (count(|value| *value != [0; 3]), count(|value| value[2] > 0));
    if 2 * away <= all {
        return Ok(());
    }
    Err(ImageError::NormalsFaceAway { path: name(path), percent: 100 * away / all })
}

/// The normal that a colour stands for in camera axes; zeros where it stands for none.
fn stored(colour: [u8; 3], cam_from_map: &Mat3<f64>) -> [i8; 3] {
    let vector = colour.map(|value| f64::from(value) / 255.0 * 2.0 - 1.0);
    let length = length(vector);
    if !LENGTHS.contains(&length) {
        return [0; 3];
    }
    // What is longer than 1 would not fit along every axis.
    let turned = mul(cam_from_map, scale(vector, STORED_ONE / length.max(1.0)));
    turned.map(|component| i8::try_from((component + 0.5).floor_i32()).unwrap_or(0))
}

/// The values of a map that is decoded, at another size.
pub(super) fn resized(
    path: &Path,
    values: &[i8],
    [px, size]: [[u32; 2]; 2],
) -> Result<Vec<i8>, ImageError> {
    resize(path, Plane { px, values: values.as_chunks().0.to_vec() }, size)
}

/// The values at another size: means over areas, which are the shorter the less of them has a normal.
fn resize(path: &Path, plane: Plane<[i8; 3]>, size: [u32; 2]) -> Result<Vec<i8>, ImageError> {
    let Plane { px, values } = plane;
    if px == size {
        return Ok(values.into_flattened());
    }
    let failed = |error: &dyn std::error::Error| ImageError::Resize {
        path: name(path),
        reason: error.to_string(),
    };
    let bytes: Vec<u8> = values.into_flattened().into_iter().map(NormalMap::biased).collect();
    let source =
        ImageRef::new(px[0], px[1], &bytes, PixelType::U8x3).map_err(|error| failed(&error))?;
    let bytes = resample::convolve::<U8x3>(path, &source, size, FilterType::Box)?;
    Ok(bytes.into_iter().map(NormalMap::unbiased).collect())
}

#[cfg(test)]
mod tests;
