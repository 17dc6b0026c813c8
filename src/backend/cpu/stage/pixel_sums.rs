//! Means over pixels, the same on any number of threads.

use rayon::prelude::*;

/// Pixels whose values are added up in order; so are their sums.
const BLOCK: usize = 1 << 14;

/// The mean over so many pixels of the values that they have.
pub(crate) fn mean(pixels: usize, value: impl Fn(usize) -> f64 + Sync) -> f64 {
    let starts: Vec<usize> = (0..pixels).step_by(BLOCK).collect();
    let sum_from = |&start: &usize| -> f64 { (start..pixels.min(start + BLOCK)).map(&value).sum() };
    let sums: Vec<f64> = starts.par_iter().map(sum_from).collect();
    sums.iter().sum::<f64>() / pixels as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_several_blocks_counts_every_pixel_once() {
        for pixels in [1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            // Of 0, 1, 2 and so on.
            assert_eq!(mean(pixels, |pixel| pixel as f64), (pixels - 1) as f64 / 2.0);
        }
    }
}
