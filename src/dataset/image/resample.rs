//! Resizing and undistortion.
//!
//! Colours are resized in sRGB with a Lanczos filter of three lobes whose support grows with the ratio, like the
//! reference's imaging library. Among the usual filters, Lanczos is closest to an ideal low-pass: it neither aliases
//! nor blurs at whole ratios (2, 4, 8) and at others (the limit of 1600 px), where a box is uneven. Overshoot at hard
//! edges is clipped to 0..255. Training and evaluation use the same images.

use std::path::Path;

use fast_image_resize::images::{Image as Target, ImageRef};
use fast_image_resize::pixels::{U8, U8x3, U16};
use fast_image_resize::{
    FilterType, PixelTrait, PixelType, ResizeAlg, ResizeError, ResizeOptions, Resizer,
};
use splat_mesh::narrow::{floor_usize, to_f32};

use super::decoded::{self, Image, ImageError, name};

/// Resizes an image. A new pixel counts if at least half of its area does. Masked colours do not affect the average
/// of the others.
pub(super) fn image(path: &Path, image: Image, size: [u32; 2]) -> Result<Image, ImageError> {
    let from = [image.width, image.height];
    if from == size {
        return Ok(image);
    }
    let Some(old) = image.mask else {
        let source = ImageRef::new(from[0], from[1], &image.rgb, PixelType::U8x3);
        let rgb = convolve::<U8x3>(path, source, size, FilterType::Lanczos3)?;
        return Ok(Image::without_maps(size, rgb, None));
    };
    let rgb = masked(path, &image.rgb, &old, [from, size])?;
    Ok(Image::without_maps(size, rgb, Some(mask(path, old, from, size)?)))
}

/// Resizes colours of a masked image: the filtered sum of unmasked colours over the filtered mask. Sums have 16 bits
/// and twice the range, because clipping their overshoot beside the mask's edge would leave a halo.
fn masked(
    path: &Path,
    rgb: &[u8],
    mask: &[u8],
    [from, size]: [[u32; 2]; 2],
) -> Result<Vec<u8>, ImageError> {
    const HALF_RANGE: u16 = 128;
    let filtered = |value: &dyn Fn(usize) -> u8| {
        let plane = mask.iter().enumerate().map(|(pixel, &counts)| {
            U16::new(if counts == 0 { 0 } else { u16::from(value(pixel)) * HALF_RANGE })
        });
        let plane: Vec<U16> = plane.collect();
        let source = ImageRef::from_pixels(from[0], from[1], &plane);
        convolve::<U16>(path, source, size, FilterType::Lanczos3)
    };
    let value = |plane: &[u8], pixel: usize| {
        f32::from(u16::from_ne_bytes([plane[2 * pixel], plane[2 * pixel + 1]]))
    };
    let share = filtered(&|_| 255)?;
    let mut resized = vec![0; size[0] as usize * size[1] as usize * 3];
    for channel in 0..3 {
        let sum = filtered(&|pixel| rgb[3 * pixel + channel])?;
        for (pixel, colour) in resized.chunks_exact_mut(3).enumerate() {
            // A colour whose share is zero is dropped later.
            colour[channel] = rounded(255.0 * value(&sum, pixel) / value(&share, pixel).max(1.0));
        }
    }
    Ok(resized)
}

/// Resizes a mask: a new pixel counts if at least half of its area does.
pub(super) fn mask(
    path: &Path,
    mask: Vec<u8>,
    from: [u32; 2],
    size: [u32; 2],
) -> Result<Vec<u8>, ImageError> {
    if from == size {
        return Ok(mask);
    }
    let source = ImageRef::new(from[0], from[1], &mask, PixelType::U8);
    // A box has no negative lobes, so its result is a share of the area.
    let mut mask = convolve::<U8>(path, source, size, FilterType::Box)?;
    mask.iter_mut().for_each(|value| *value = decoded::counts(*value));
    Ok(mask)
}

/// Resizes the source. The pixel type is static, because dynamic dispatch would compile the filters for all thirteen
/// types, which is most of this package's compile time.
pub(super) fn convolve<P: PixelTrait>(
    path: &Path,
    source: Result<ImageRef<'_>, impl std::error::Error>,
    size: [u32; 2],
    filter: FilterType,
) -> Result<Vec<u8>, ImageError> {
    let source = source.map_err(|error| failure(path, &error))?;
    let mut target = Target::new(size[0], size[1], source.pixel_type());
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
    let resized = match (source.typed_image::<P>(), target.typed_image_mut::<P>()) {
        (Some(source), Some(mut target)) => {
            Resizer::new().resize_typed(&source, &mut target, &options)
        }
        _ => Err(ResizeError::PixelTypesAreDifferent),
    };
    resized.map_err(|error| failure(path, &error))?;
    Ok(target.into_vec())
}

fn failure(path: &Path, error: &dyn std::error::Error) -> ImageError {
    ImageError::Resize { path: name(path), reason: error.to_string() }
}

/// Side of squares of the straightened image, px. The lens is evaluated at their corners and middles and interpolated
/// elsewhere: one evaluation costs as much as a pixel's colours, or twice that for a fisheye.
const CELL: u32 = 8;

/// Largest error of an interpolated position, px: one of 255 levels between a black and a white pixel.
const PLACE_ERROR_PX: f64 = 1.0 / 256.0;

/// Resamples the image for a pinhole camera of `size`, by bilinear interpolation. `source_px` maps a point of the new
/// image to the photograph.
///
/// Pixels outside the photograph are masked, and take the colour of its nearest edge, so that no dark rim bleeds into
/// the image when it is resized.
pub(super) fn straighten(
    image: &Image,
    size: [u32; 2],
    source_px: impl Fn([f64; 2]) -> [f64; 2],
) -> Image {
    let [width, height] = size;
    let pixels = width as usize * height as usize;
    let mut rgb = Vec::with_capacity(pixels * 3);
    // Most photographs cover the whole straightened image, so the mask is only created at the first masked pixel.
    let mut mask: Option<Vec<u8>> = None;
    each_place(size, &source_px, |at| {
        let (colour, counts) = sample(image, at);
        if counts == 0 && mask.is_none() {
            let mut so_far = Vec::with_capacity(pixels);
            so_far.resize(rgb.len() / 3, 255);
            mask = Some(so_far);
        }
        rgb.extend_from_slice(&colour);
        if let Some(mask) = &mut mask {
            mask.push(counts);
        }
    });
    Image::without_maps(size, rgb, mask)
}

/// Calls `take` with the position in the photograph of each pixel of a straightened image, row by row, px.
pub(super) fn each_place(
    size: [u32; 2],
    source_px: &impl Fn([f64; 2]) -> [f64; 2],
    mut take: impl FnMut([f64; 2]),
) {
    let [width, height] = size;
    for top in (0..height).step_by(CELL as usize) {
        let band = Band::new(top, width, source_px);
        for y in top..height.min(top + CELL) {
            band.row(y, width, source_px, &mut take);
        }
    }
}

/// A row of squares of [`CELL`] px.
struct Band {
    top: u32,
    /// Positions of the squares' corners in the photograph, px: upper left, upper right, lower left, lower right;
    /// `None` if the interpolation error is too large.
    cells: Vec<Option<[[f64; 2]; 4]>>,
}

impl Band {
    fn new(top: u32, width: u32, source_px: &impl Fn([f64; 2]) -> [f64; 2]) -> Self {
        let source = |x: u32, y: u32| source_px(centre(x, y));
        let half = f64::from(CELL) / 2.0;
        let mut left = [source(0, top), source(0, top + CELL)];
        let cells = (0..width).step_by(CELL as usize).map(|x| {
            let right = [source(x + CELL, top), source(x + CELL, top + CELL)];
            let corners = [left[0], right[0], left[1], right[1]];
            left = right;
            // The interpolation error is largest in the middle.
            let exact = source_px(centre(x, top).map(|at| at + half));
            let guess = between(&corners, 0.5, 0.5);
            let good = (0..2).all(|i| (exact[i] - guess[i]).abs() <= PLACE_ERROR_PX);
            good.then_some(corners)
        });
        Self { top, cells: cells.collect() }
    }

    /// Calls `take` with the position of each pixel of row `y`.
    fn row(
        &self,
        y: u32,
        width: u32,
        source_px: &impl Fn([f64; 2]) -> [f64; 2],
        mut take: impl FnMut([f64; 2]),
    ) {
        let down = f64::from(y - self.top) / f64::from(CELL);
        for (cell, start) in self.cells.iter().zip((0..width).step_by(CELL as usize)) {
            for x in start..width.min(start + CELL) {
                let across = f64::from(x - start) / f64::from(CELL);
                take(match cell {
                    Some(corners) => between(corners, across, down),
                    None => source_px(centre(x, y)),
                });
            }
        }
    }
}

fn centre(x: u32, y: u32) -> [f64; 2] {
    [f64::from(x) + 0.5, f64::from(y) + 0.5]
}

/// Returns the bilinear mean of four corners.
fn between(corners: &[[f64; 2]; 4], across: f64, down: f64) -> [f64; 2] {
    let mix = |a: f64, b: f64, share: f64| a + (b - a) * share;
    std::array::from_fn(|i| {
        let above = mix(corners[0][i], corners[1][i], across);
        let below = mix(corners[2][i], corners[3][i], across);
        mix(above, below, down)
    })
}

/// Returns colour and mask at a point of the image, px.
fn sample(image: &Image, at: [f64; 2]) -> ([u8; 3], u8) {
    let inside = (0.0..=f64::from(image.width)).contains(&at[0])
        && (0.0..=f64::from(image.height)).contains(&at[1]);
    let PixelPair { low: left, high: right, share: x } = neighbours(at[0], image.width);
    let PixelPair { low: above, high: below, share: y } = neighbours(at[1], image.height);
    let row = image.width as usize;
    let taps = [
        (above * row + left, (1.0 - x) * (1.0 - y)),
        (above * row + right, x * (1.0 - y)),
        (below * row + left, (1.0 - x) * y),
        (below * row + right, x * y),
    ];
    let mut colour = [0.0_f32; 3];
    for (pixel, weight) in taps {
        for (value, &tap) in colour.iter_mut().zip(&image.rgb[pixel * 3..][..3]) {
            *value += weight * f32::from(tap);
        }
    }
    let counts = inside
        && image.mask.as_ref().is_none_or(|mask| {
            let share: f32 = taps.iter().map(|&(pixel, w)| w * f32::from(mask[pixel])).sum();
            share >= 127.5
        });
    (colour.map(rounded), if counts { 255 } else { 0 })
}

struct PixelPair {
    low: usize,
    high: usize,
    /// Weight of the second pixel, 0..1.
    share: f32,
}

/// Returns the pixels around `at`; pixel 0 around what is not a number.
fn neighbours(at: f64, length: u32) -> PixelPair {
    let last = length as usize - 1;
    let at = if at.is_nan() { 0.0 } else { (at - 0.5).clamp(0.0, last as f64) };
    // The cast is a floor here, and ten times faster where floor is a call.
    let low = floor_usize(at);
    PixelPair { low, high: (low + 1).min(last), share: to_f32(at - low as f64) }
}

/// Rounds to the nearest 8-bit value.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast to an integer cuts off and saturates, which is what is wanted"
)]
pub(super) fn rounded(value: f32) -> u8 {
    (value + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(width: u8, height: u8) -> Image {
        let rgb =
            (0..height).flat_map(|y| (0..width).flat_map(move |x| [10 * x, 20 * y, 7])).collect();
        Image::without_maps([width, height].map(u32::from), rgb, None)
    }

    #[test]
    fn sampling_interpolates_inside_the_photograph_and_masks_outside() {
        let image = gradient(5, 3);
        assert_eq!(sample(&image, [3.5, 1.5]), ([30, 20, 7], 255));
        assert_eq!(sample(&image, [4.0, 2.0]), ([35, 30, 7], 255));
        // The outer half pixel belongs to the photograph and has its edge's colour.
        assert_eq!(sample(&image, [0.0, 3.0]), ([0, 40, 7], 255));
        let image = gradient(5, 3);
        assert_eq!(sample(&image, [5.1, 1.5]), ([40, 20, 7], 0));
        assert_eq!(sample(&image, [-1e300, 1.5]).1, 0);
        assert_eq!(sample(&image, [f64::NAN, f64::INFINITY]).1, 0);
    }

    #[test]
    fn positions_interpolated_within_cells_match_the_lens() {
        // Noise, so that a misplaced pixel differs from its neighbour; sizes that are not multiples of a cell.
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
        let rgb = (0..211 * 157 * 3).map(noise).collect();
        let photograph = Image::without_maps([211, 157], rgb, None);
        // Strong enough for both interpolated and exact cells.
        let lens = |[x, y]: [f64; 2]| {
            let (u, v) = ((x - 100.0) / 120.0, (y - 70.0) / 120.0);
            let bend = 1.0 - 0.05 * (u * u + v * v);
            [100.0 + 120.0 * u * bend, 70.0 + 120.0 * v * bend]
        };
        let cells: Vec<_> =
            (0..150).step_by(8).flat_map(|top| Band::new(top, 205, &lens).cells).collect();
        let interpolated = cells.iter().flatten().count();
        assert!((1..cells.len()).contains(&interpolated), "{interpolated} of {}", cells.len());

        let straight = straighten(&photograph, [205, 150], lens);
        assert_eq!(straight.mask, None);
        let places = (0..150).flat_map(|y| (0..205).map(move |x| (x, y)));
        for ((x, y), found) in places.zip(straight.rgb.chunks_exact(3)) {
            let (exact, _) = sample(&photograph, lens(centre(x, y)));
            for (found, exact) in found.iter().zip(exact) {
                // One level per axis, and one for rounding.
                assert!(found.abs_diff(exact) <= 3, "{x} {y}: {found} {exact}");
            }
        }
    }

    #[test]
    fn a_constant_image_stays_constant_at_any_ratio() {
        let path = Path::new("even.png");
        for size in [[3, 2], [13, 5], [40, 41], [1, 1]] {
            let rgb = vec![77; 13 * 11 * 3];
            let even = Image::without_maps([13, 11], rgb, None);
            let resized = image(path, even, size).unwrap();
            assert!(resized.rgb.iter().all(|&v| v == 77), "{size:?}");
            assert_eq!(resized.rgb.len(), (size[0] * size[1] * 3) as usize);
        }
    }

    #[test]
    fn masked_colours_do_not_affect_the_average() {
        // The left half is grey, the right half is white and masked.
        let (rgb, mask) = (vec![], Some(vec![]));
        let mut half = Image::without_maps([30, 6], rgb, mask);
        for pixel in 0..30 * 6 {
            let left = pixel % 30 < 15;
            half.rgb.extend_from_slice(&if left { [100; 3] } else { [255; 3] });
            half.mask.as_mut().unwrap().push(if left { 255 } else { 0 });
        }
        let small = image(Path::new("half.png"), half, [10, 2]).unwrap();
        let mask = small.mask.unwrap();
        assert_eq!(&mask[..10], [255, 255, 255, 255, 255, 0, 0, 0, 0, 0]);
        for (pixel, &counts) in mask.iter().enumerate() {
            // Sums of 16 bits leave no error after rounding to 8.
            assert!(counts == 0 || small.rgb[pixel * 3] == 100);
        }
    }

    #[test]
    fn mask_is_thresholded_at_half_the_area() {
        let path = Path::new("mask.png");
        let half = mask(path, vec![255, 255, 0, 0, 255, 0, 0, 0], [4, 2], [2, 1]).unwrap();
        assert_eq!(half, [255, 0]);
        let half = mask(path, vec![255, 255, 0, 0], [4, 1], [1, 1]).unwrap();
        assert_eq!(half, [255]);
    }
}
