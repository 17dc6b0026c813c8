//! Other sizes and straight lines: resizing, and taking the lens out.
//!
//! Colours are resized with a Lanczos filter of three lobes whose support grows with the ratio, in
//! sRGB values, as the reference implementation does through its imaging library. Lanczos comes
//! closest of the usual filters to an ideal low-pass: it neither aliases nor blurs at the ratios
//! that occur, whole (2, 4, 8) or not (the cap of 1600 px), where a box is uneven. Its overshoot
//! at hard edges is clipped to 0..255. Training and evaluation use the same images.

use std::path::Path;

use fast_image_resize::images::{Image as Target, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::error::{ImageError, name};
use super::{Image, mask};

/// The image at `size`; the mask holds what counts in at least half of each new pixel.
///
/// Colours that do not count have no part in the average of those that do.
pub(super) fn image(path: &Path, image: Image, size: [u32; 2]) -> Result<Image, ImageError> {
    let from = [image.width, image.height];
    if from == size {
        return Ok(image);
    }
    let [width, height] = size;
    let Some(old) = image.mask else {
        let rgb = convolve(path, &image.rgb, from, size, COLOUR)?;
        return Ok(Image { width, height, rgb, mask: None });
    };
    let mut rgba = Vec::with_capacity(old.len() * 4);
    for (colour, &alpha) in image.rgb.chunks_exact(3).zip(&old) {
        rgba.extend_from_slice(&[colour[0], colour[1], colour[2], alpha]);
    }
    drop(image.rgb);
    let rgba = convolve(path, &rgba, from, size, COLOUR_WITH_ALPHA)?;
    let rgb = rgba.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    Ok(Image { width, height, rgb, mask: Some(mask(path, old, from, size)?) })
}

/// The mask at `size`: what counts in at least half of each new pixel.
pub(super) fn mask(
    path: &Path,
    mask: Vec<u8>,
    from: [u32; 2],
    size: [u32; 2],
) -> Result<Vec<u8>, ImageError> {
    if from == size {
        return Ok(mask);
    }
    let mut mask = convolve(path, &mask, from, size, COVERAGE)?;
    mask::settle(&mut mask);
    Ok(mask)
}

/// Layout of the pixels and the filter that suits them.
type Kind = (PixelType, FilterType);
const COLOUR: Kind = (PixelType::U8x3, FilterType::Lanczos3);
/// The library weighs colours by alpha and divides by it afterwards.
const COLOUR_WITH_ALPHA: Kind = (PixelType::U8x4, FilterType::Lanczos3);
/// A box has no negative lobes: its result is a share of the area.
const COVERAGE: Kind = (PixelType::U8, FilterType::Box);

fn convolve(
    path: &Path,
    pixels: &[u8],
    from: [u32; 2],
    size: [u32; 2],
    (layout, filter): Kind,
) -> Result<Vec<u8>, ImageError> {
    let fail = |reason: String| ImageError::Resize { path: name(path), reason };
    let source =
        ImageRef::new(from[0], from[1], pixels, layout).map_err(|error| fail(error.to_string()))?;
    let mut target = Target::new(size[0], size[1], layout);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
    Resizer::new()
        .resize(&source, &mut target, &options)
        .map_err(|error| fail(error.to_string()))?;
    Ok(target.into_vec())
}

/// The image that a pinhole camera of `size` would have taken, by bilinear interpolation.
/// `source_px` tells where in the photograph a point of that image lies.
///
/// What the photograph does not show takes the colour of its nearest edge, so that no dark rim
/// bleeds into the image when it is resized, and does not count.
pub(super) fn straighten(
    image: &Image,
    size: [u32; 2],
    source_px: impl Fn([f64; 2]) -> [f64; 2],
) -> Image {
    let [width, height] = size;
    let pixels = width as usize * height as usize;
    let mut rgb = Vec::with_capacity(pixels * 3);
    let mut mask = Vec::with_capacity(pixels);
    for y in 0..height {
        for x in 0..width {
            let at = source_px([f64::from(x) + 0.5, f64::from(y) + 0.5]);
            let (colour, counts) = sample(image, at);
            rgb.extend_from_slice(&colour);
            mask.push(counts);
        }
    }
    Image { width, height, rgb, mask: Some(mask) }
}

/// Colour and mask at a point of the image, px.
fn sample(image: &Image, at: [f64; 2]) -> ([u8; 3], u8) {
    let inside = (0.0..=f64::from(image.width)).contains(&at[0])
        && (0.0..=f64::from(image.height)).contains(&at[1]);
    let (left, right, x) = neighbours(at[0], image.width);
    let (above, below, y) = neighbours(at[1], image.height);
    let row = image.width as usize;
    let taps = [
        (above * row + left, (1.0 - x) * (1.0 - y)),
        (above * row + right, x * (1.0 - y)),
        (below * row + left, (1.0 - x) * y),
        (below * row + right, x * y),
    ];
    let mut colour = [0.0_f32; 3];
    for (pixel, weight) in taps {
        for (channel, value) in colour.iter_mut().enumerate() {
            *value += weight * f32::from(image.rgb[pixel * 3 + channel]);
        }
    }
    let counts = inside
        && image.mask.as_ref().is_none_or(|mask| {
            let share: f32 = taps.iter().map(|&(pixel, w)| w * f32::from(mask[pixel])).sum();
            share >= 127.5
        });
    (colour.map(rounded), if counts { 255 } else { 0 })
}

/// The two pixels of a row or column between whose centres `at` lies, and the share of the second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the row first; what is not a number becomes pixel 0"
)]
fn neighbours(at: f64, length: u32) -> (usize, usize, f32) {
    let last = f64::from(length) - 1.0;
    let at = if at.is_nan() { 0.0 } else { (at - 0.5).clamp(0.0, last) };
    let low = at.floor();
    (low as usize, (low + 1.0).min(last) as usize, (at - low) as f32)
}

/// The nearest 8-bit value.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast to an integer saturates, which is what is wanted"
)]
pub(super) fn rounded(value: f32) -> u8 {
    value.round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(width: u32, height: u32) -> Image {
        let rgb = (0..height)
            .flat_map(|y| (0..width).flat_map(move |x| [10 * x as u8, 20 * y as u8, 7]))
            .collect();
        Image { width, height, rgb, mask: None }
    }

    #[test]
    fn sampling_at_centres_gives_the_pixels_and_between_them_their_mean() {
        let image = gradient(5, 3);
        assert_eq!(sample(&image, [3.5, 1.5]), ([30, 20, 7], 255));
        assert_eq!(sample(&image, [4.0, 2.0]), ([35, 30, 7], 255));
        // The outer half pixel belongs to the photograph and has its edge's colour.
        assert_eq!(sample(&image, [0.0, 3.0]), ([0, 40, 7], 255));
    }

    #[test]
    fn what_lies_outside_the_photograph_does_not_count() {
        let image = gradient(5, 3);
        assert_eq!(sample(&image, [5.1, 1.5]), ([40, 20, 7], 0));
        assert_eq!(sample(&image, [-1e300, 1.5]).1, 0);
        assert_eq!(sample(&image, [f64::NAN, f64::INFINITY]).1, 0);
    }

    #[test]
    fn a_constant_image_stays_constant_at_any_ratio() {
        let path = Path::new("even.png");
        for size in [[3, 2], [13, 5], [40, 41], [1, 1]] {
            let even = Image { width: 13, height: 11, rgb: vec![77; 13 * 11 * 3], mask: None };
            let resized = image(path, even, size).unwrap();
            assert!(resized.rgb.iter().all(|&v| v == 77), "{size:?}");
            assert_eq!(resized.rgb.len(), (size[0] * size[1] * 3) as usize);
        }
    }

    #[test]
    fn colours_that_do_not_count_stay_out_of_the_average() {
        // Left half grey and counting, right half white and not.
        let mut half = Image { width: 30, height: 6, rgb: vec![], mask: Some(vec![]) };
        for pixel in 0..30 * 6 {
            let left = pixel % 30 < 15;
            half.rgb.extend_from_slice(&if left { [100; 3] } else { [255; 3] });
            half.mask.as_mut().unwrap().push(if left { 255 } else { 0 });
        }
        let small = image(Path::new("half.png"), half, [10, 2]).unwrap();
        let mask = small.mask.unwrap();
        assert_eq!(&mask[..10], [255, 255, 255, 255, 255, 0, 0, 0, 0, 0]);
        for (pixel, &counts) in mask.iter().enumerate() {
            // One level: alpha has 8 bits when colours are divided by it.
            assert!(counts == 0 || small.rgb[pixel * 3].abs_diff(100) <= 1);
        }
    }

    #[test]
    fn a_mask_counts_where_half_of_the_pixel_does() {
        let path = Path::new("mask.png");
        let half = mask(path, vec![255, 255, 0, 0, 255, 0, 0, 0], [4, 2], [2, 1]).unwrap();
        assert_eq!(half, [255, 0]);
        let half = mask(path, vec![255, 255, 0, 0], [4, 1], [1, 1]).unwrap();
        assert_eq!(half, [255]);
    }
}
