//! A histogram as TensorBoard shows it.

use tensorboard_proto::summary::Summary;
use tensorboard_rs::summary::histogram_raw;

/// Samples counted in buckets.
#[derive(Debug)]
pub(super) struct Histogram {
    min: f64,
    max: f64,
    num: f64,
    sum: f64,
    sum_squares: f64,
    /// Upper ends of the buckets, ascending; each bucket holds its upper end.
    limits: Vec<f64>,
    counts: Vec<f64>,
}

impl Histogram {
    /// Half of the buckets are equally wide, for the shape; half hold equally many samples, for the
    /// percentiles of long-tailed quantities such as scales. `None` without a finite sample.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        const PIECES: usize = 30;
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let mut limits = vec![max];
        for piece in 1..PIECES {
            limits.push(min + (max - min) * piece as f64 / PIECES as f64);
            limits.push(sorted[(sorted.len() - 1) * piece / PIECES]);
        }
        limits.retain(|&limit| limit <= max);
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        let mut below = 0;
        let counts = limits.iter().map(|limit| {
            let up_to = sorted.partition_point(|sample| sample <= limit);
            let count = up_to - below;
            below = up_to;
            count as f64
        });
        let counts = counts.collect();
        Some(Self {
            min,
            max,
            num: sorted.len() as f64,
            sum: sorted.iter().sum(),
            sum_squares: sorted.iter().map(|sample| sample * sample).sum(),
            limits,
            counts,
        })
    }

    pub(super) fn summary(&self, tag: &str) -> Summary {
        let Self { min, max, num, sum, sum_squares, limits, counts } = self;
        histogram_raw(tag, *min, *max, *num, *sum, *sum_squares, limits, counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_every_finite_sample_once() {
        let mut samples: Vec<f64> = (0..1001).map(|i| f64::from(i * i) * 1e-3).collect();
        samples.extend([f64::NAN, f64::INFINITY]);
        let histogram = Histogram::of(&samples).unwrap();
        assert_eq!((histogram.min, histogram.max, histogram.num), (0.0, 1000.0, 1001.0));
        assert_eq!(histogram.counts.iter().sum::<f64>(), 1001.0);
        assert_eq!(histogram.limits.last(), Some(&1000.0));
        assert!(histogram.limits.is_sorted_by(|a, b| a < b));
        // A quantile limit ends every thirtieth of the samples: none is wider in counts.
        assert!(histogram.counts.iter().all(|&count| count <= 35.0), "{:?}", histogram.counts);
    }

    #[test]
    fn samples_that_are_all_equal_make_one_bucket_and_none_make_no_histogram() {
        let histogram = Histogram::of(&[2.0; 5]).unwrap();
        assert_eq!((histogram.limits, histogram.counts), (vec![2.0], vec![5.0]));
        assert!(Histogram::of(&[f64::NAN]).is_none());
    }
}
