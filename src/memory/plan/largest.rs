//! The largest number that fits.

/// Of the numbers from `fit` on, which fits, the last one below `too_many` that does.
pub fn largest_that_fits(mut fit: u64, mut too_many: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while too_many - fit > 1 {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle) {
            fit = middle;
        } else {
            too_many = middle;
        }
    }
    fit
}
