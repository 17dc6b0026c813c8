//! Which pixels count: 255 where they do, 0 where they do not.

use std::path::Path;

use super::error::{ImageError, name};
use super::{codec, resample};

/// Least value of an averaged mask that counts: half.
const HALF: u8 = 128;

/// The mask of an alpha channel, from `[n][4]`: pixels below half opacity do not count.
pub(super) fn from_alpha(rgba: &[u8]) -> Vec<u8> {
    rgba.chunks_exact(4).map(|pixel| counts(pixel[3])).collect()
}

/// Brings averages back to "counts" or "does not".
pub(super) fn binarise(mask: &mut [u8]) {
    for value in mask {
        *value = counts(*value);
    }
}

/// What counts in both.
pub(super) fn intersect(mask: Option<Vec<u8>>, other: Vec<u8>) -> Vec<u8> {
    match mask {
        None => other,
        Some(mask) => mask.iter().zip(&other).map(|(a, b)| a & b).collect(),
    }
}

fn counts(value: u8) -> u8 {
    if value >= HALF { 255 } else { 0 }
}

/// The mask in the file `path` for a photograph of `size`.
///
/// A pixel counts when it is at least half as bright as the brightest one: that takes 0 and 255,
/// 0 and 1 and the noise that JPEG leaves around black all for what they mean. An even black mask
/// counts nowhere.
pub(super) fn load(
    path: &Path,
    upright: bool,
    photograph: &Path,
    size: [u32; 2],
) -> Result<Vec<u8>, ImageError> {
    let grey = codec::pixels(path, upright)?.into_luma16();
    let own_size = [grey.width(), grey.height()];
    if !same_shape(own_size, size) {
        return Err(ImageError::MaskShape {
            path: name(path),
            size: own_size,
            photograph: name(photograph),
            photograph_size: size,
        });
    }
    let brightest = grey.as_raw().iter().copied().max().unwrap_or(0);
    let threshold = brightest.div_ceil(2).max(1);
    let mask = grey.as_raw().iter().map(|&v| if v >= threshold { 255 } else { 0 }).collect();
    resample::mask(path, mask, own_size, size)
}

/// Whether one size is the other scaled, up to one pixel of rounding in the smaller.
pub(super) fn same_shape(a: [u32; 2], b: [u32; 2]) -> bool {
    let (small, large) = if a[0] <= b[0] { (a, b) } else { (b, a) };
    // Scales that would round to the smaller size, for each side.
    let low = |side: usize| (f64::from(small[side]) - 1.0) / f64::from(large[side]);
    let high = |side: usize| (f64::from(small[side]) + 1.0) / f64::from(large[side]);
    low(0).max(low(1)) <= high(0).min(high(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_agree_up_to_rounding() {
        assert!(same_shape([1061, 1894], [1061, 1894]));
        assert!(same_shape([133, 237], [1061, 1894]));
        assert!(same_shape([1061, 1894], [132, 236]));
        assert!(!same_shape([1894, 1061], [1061, 1894]));
        assert!(!same_shape([800, 600], [800, 533]));
        assert!(!same_shape([400, 300], [800, 533]));
    }

    #[test]
    fn both_masks_must_let_a_pixel_count() {
        assert_eq!(intersect(None, vec![255, 0]), [255, 0]);
        let both = intersect(Some(vec![255, 255, 0, 0]), vec![255, 0, 255, 0]);
        assert_eq!(both, [255, 0, 0, 0]);
    }
}
