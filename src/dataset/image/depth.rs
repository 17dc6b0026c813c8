//! Inverse depths beside a photograph, as a depth estimator sees them.

use std::path::Path;

use fast_image_resize::images::{Image as Target, ImageRef};
use fast_image_resize::pixels::U16;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::DynamicImage;

use super::error::{ImageError, name};
use super::{codec, mask, resample};
use crate::dataset::{ImageSource, Undistortion};
use crate::memory::Bytes;

/// Steps of a stored value that make 1 before it is scaled.
const STEPS: f32 = 65_536.0;

/// Inverse depths of a photograph's pixels; the inverse depth of a pixel is value / 65536 · scale +
/// offset, per world unit. Rows from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthMap {
    /// [height, width]
    pub values: Vec<u16>,
    /// What fits the map to the scene's unit, per world unit.
    pub scale: f32,
    /// The same, per world unit.
    pub offset: f32,
}

impl DepthMap {
    /// Host memory that the values take.
    pub fn bytes(&self) -> Bytes {
        Bytes::of::<u16>(self.values.len())
    }

    /// By how much one step of a value changes the inverse depth, per world unit.
    pub fn scale_of_step(&self) -> f32 {
        self.scale / STEPS
    }
}

/// The map of a view at the size that is trained, where it has one: decoded, straightened and resized
/// as its photograph of size `photograph_px`.
pub(super) fn load(
    source: &ImageSource,
    photograph_px: [u32; 2],
) -> Result<Option<DepthMap>, ImageError> {
    let Some(file) = &source.depth else { return Ok(None) };
    let path = &file.path;
    let plane = decode(path, source.apply_orientation)?;
    if !mask::same_shape(plane.px, photograph_px) {
        return Err(ImageError::DepthShape {
            path: name(path),
            size: plane.px,
            photograph: name(&source.path),
            photograph_size: photograph_px,
        });
    }
    let plane = match &source.undistort {
        Some(lens) => straighten(&plane, lens, (source.full_size, photograph_px)),
        None => plane,
    };
    let values = resize(path, plane, source.size)?;
    Ok(Some(DepthMap { values, scale: file.scale, offset: file.offset }))
}

/// Stored values, rows from the top.
struct Plane {
    px: [u32; 2],
    values: Vec<u16>,
}

/// Values as they are stored, of 8 or 16 bits: the scales are fitted to them so.
fn decode(path: &Path, upright: bool) -> Result<Plane, ImageError> {
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

/// One channel of `[n][3]` colours that are all grey.
fn single_channel<T: Copy + PartialEq>(path: &Path, rgb: &[T]) -> Result<Vec<T>, ImageError> {
    let grey = |pixel: &[T]| (pixel[0] == pixel[1] && pixel[1] == pixel[2]).then_some(pixel[0]);
    let channel: Option<Vec<T>> = rgb.chunks_exact(3).map(grey).collect();
    channel.ok_or_else(|| ImageError::NoDepthMap { path: name(path) })
}

/// What a pinhole camera of `full_px` would have seen, by the nearest stored values.
fn straighten(
    plane: &Plane,
    lens: &Undistortion,
    (full_px, photograph_px): ([u32; 2], [u32; 2]),
) -> Plane {
    let ratio = [0, 1].map(|i| f64::from(plane.px[i]) / f64::from(photograph_px[i]));
    let mut values = Vec::with_capacity(full_px[0] as usize * full_px[1] as usize);
    resample::each_place(full_px, &|at| lens.source_px(at), |at| {
        let [x, y] = [0, 1].map(|i| nearest(at[i] * ratio[i], plane.px[i]));
        values.push(plane.values[y * plane.px[0] as usize + x]);
    });
    Plane { px: full_px, values }
}

/// The pixel of a row or column that holds `at`, or the nearest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the row first; what is not a number becomes pixel 0"
)]
fn nearest(at: f64, length: u32) -> usize {
    at.clamp(0.0, f64::from(length) - 1.0) as usize
}

/// The values at another size, by a filter without negative lobes: none leaves its neighbours' range.
fn resize(path: &Path, plane: Plane, size: [u32; 2]) -> Result<Vec<u16>, ImageError> {
    let Plane { px, values } = plane;
    if px == size {
        return Ok(values);
    }
    let failed = |error: &dyn std::error::Error| ImageError::Resize {
        path: name(path),
        reason: error.to_string(),
    };
    let pixels: Vec<U16> = values.into_iter().map(U16::new).collect();
    let source = ImageRef::from_pixels(px[0], px[1], &pixels).map_err(|error| failed(&error))?;
    let mut target = Target::new(size[0], size[1], PixelType::U16);
    let filter = ResizeAlg::Convolution(FilterType::Bilinear);
    let options = ResizeOptions::new().resize_alg(filter);
    Resizer::new().resize(&source, &mut target, &options).map_err(|error| failed(&error))?;
    let bytes = target.into_vec();
    Ok(bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect())
}
