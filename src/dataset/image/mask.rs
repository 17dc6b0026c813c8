//! Which pixels count: 255 where they do, 0 where they do not.

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

/// The most that rounding to a pixel may change a side, as a share of it. Of sides of a few pixels, a
/// whole pixel would be any shape.
const ROUNDED_SHARE: f64 = 0.1;

/// Whether one size is the other scaled, up to one pixel of rounding in the smaller.
pub(super) fn same_shape(a: [u32; 2], b: [u32; 2]) -> bool {
    let (small, large) = if a[0] <= b[0] { (a, b) } else { (b, a) };
    let rounding = |side: usize| (ROUNDED_SHARE * f64::from(small[side])).min(1.0);
    // Scales that would round to the smaller size, for each side.
    let low = |side: usize| (f64::from(small[side]) - rounding(side)) / f64::from(large[side]);
    let high = |side: usize| (f64::from(small[side]) + rounding(side)) / f64::from(large[side]);
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
        assert!(same_shape([12, 8], [96, 64]) && same_shape([96, 64], [13, 9]));
        for size in [[1, 1], [2, 1], [2, 2], [4, 4]] {
            assert!(!same_shape(size, [96, 64]) && !same_shape([96, 64], size), "{size:?}");
        }
    }

    #[test]
    fn both_masks_must_let_a_pixel_count() {
        assert_eq!(intersect(None, vec![255, 0]), [255, 0]);
        let both = intersect(Some(vec![255, 255, 0, 0]), vec![255, 0, 255, 0]);
        assert_eq!(both, [255, 0, 0, 0]);
    }
}
