//! Quantiles of sorted values, interpolated linearly.

/// Position of a quantile among ascending values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantilePlace {
    /// Index of the value below.
    pub rank: usize,
    /// Fraction of the way to the next value; 0 at the last value.
    pub share: f64,
}

/// Returns the position of the quantile 1 - `above / count`. `count` must not be 0.
pub fn place(count: usize, above: usize) -> QuantilePlace {
    let last = count.saturating_sub(1);
    // In integers up to the division: (count - 1)(count - above) / count.
    let below = last as u128 * count.saturating_sub(above) as u128;
    let rank = usize::try_from(below / count.max(1) as u128).unwrap_or(last).min(last);
    let share = (below % count.max(1) as u128) as f64 / count.max(1) as f64;
    QuantilePlace { rank, share: if rank < last { share } else { 0.0 } }
}

/// Interpolates linearly between two values.
pub fn between(low: f64, high: f64, share: f64) -> f64 {
    if share > 0.0 { low + (high - low) * share } else { low }
}

/// Returns the median: the mean of both middle values if there are two, 0 without values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get((values.len().saturating_sub(1)) / 2..=values.len() / 2);
    middle.map_or(0.0, |middle| middle.iter().sum::<f64>() / middle.len() as f64)
}

/// Returns the percentile, interpolated between two values; 0 without values.
pub fn percentile(values: impl Iterator<Item = f64>, percent: u8) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let below = last * usize::from(percent.min(100));
    let (rank, share) = (below / 100, (below % 100) as f64 / 100.0);
    between(values[rank], values[(rank + 1).min(last)], share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_interpolate_linearly() {
        assert_eq!(place(5, 0), QuantilePlace { rank: 4, share: 0.0 });
        assert_eq!(place(5, 5), QuantilePlace { rank: 0, share: 0.0 });
        // 4 · (1 - 2/5) = 2.4.
        let found = place(5, 2);
        assert_eq!(found.rank, 2);
        assert!((found.share - 0.4).abs() < 1e-15);
        assert_eq!(place(1, 1), QuantilePlace { rank: 0, share: 0.0 });
        // More values than single precision can count.
        let many = place(40_000_003, 1);
        assert_eq!(many.rank, 40_000_001);
        assert_eq!([between(2.0, 4.0, 0.25), between(2.0, f64::INFINITY, 0.0)], [2.5, 2.0]);
    }

    #[test]
    fn positions_of_many_values_are_exact() {
        // (n - 1)(n - k) / n = n - 1 - k + k / n.
        let (count, above) = (30_000_001, 12_345);
        let found = place(count, above);
        assert_eq!(found.rank, count - 1 - above);
        assert!((found.share - above as f64 / count as f64).abs() < 1e-15);
    }

    #[test]
    fn the_median_is_the_middle_or_between_two() {
        let of = |values: &[f64]| median(values.iter().copied());
        assert_eq!(
            [of(&[]), of(&[3.0]), of(&[5.0, 1.0, 2.0]), of(&[4.0, 1.0])],
            [0.0, 3.0, 2.0, 2.5]
        );
    }

    #[test]
    fn percentiles_lie_between_the_values() {
        let values = || [30.0, 10.0, 20.0].into_iter();
        for (percent, expected) in [(0, 10.0), (25, 15.0), (50, 20.0), (90, 28.0), (100, 30.0)] {
            assert_eq!(percentile(values(), percent), expected);
        }
        assert_eq!(percentile([].into_iter(), 50), 0.0);
    }
}
