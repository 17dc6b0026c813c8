//! 256 numbers that stand for many: one-dimensional k-means (Lloyd, 1982), weighted.

use rayon::prelude::*;

use splat_mesh::narrow::{low_byte, to_f32, to_u32};

/// Entries of a codebook.
const ENTRIES: usize = 256;

/// Passes at most; scenes need fewer.
const PASSES: usize = 60;

/// 256 numbers in rising order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Codebook {
    pub(super) entries: Vec<f32>,
}

/// A number and how much it counts.
#[derive(Clone, Copy, Debug)]
struct WeightedNumber {
    value: f32,
    weight: f32,
}

/// Sums over the first numbers in rising order.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    product: f64,
}

impl Codebook {
    /// The codebook of numbers that all count the same.
    ///
    /// Starts from equal distances between the least and the greatest: a start from quantiles would
    /// lose the few huge Gaussians, and with them much of a picture.
    pub(super) fn of(values: impl Iterator<Item = f32>) -> Self {
        Self::of_sorted(values.map(|value| WeightedNumber { value, weight: 1.0 }).collect())
    }

    /// The same where each number counts as much as its weight, which is not negative.
    pub(super) fn of_weighted(
        values: impl Iterator<Item = f32>,
        weights: impl Iterator<Item = f32>,
    ) -> Self {
        let pairs = values.zip(weights).map(|(value, weight)| WeightedNumber { value, weight });
        Self::of_sorted(pairs.collect())
    }

    fn of_sorted(mut numbers: Vec<WeightedNumber>) -> Self {
        // Of equal numbers the weights may stand in any order; sorted, their sum is always the same.
        numbers.par_sort_unstable_by(|a, b| {
            a.value.total_cmp(&b.value).then(a.weight.total_cmp(&b.weight))
        });
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Self { entries: vec![0.0; ENTRIES] };
        };
        let (low, high) = (f64::from(first.value), f64::from(last.value));
        let mut entries: Vec<f64> =
            (0..ENTRIES).map(|k| low + (high - low) * (k as f64 + 0.5) / ENTRIES as f64).collect();
        let sums = running_sums(&numbers);
        for _ in 0..PASSES {
            let mut moved = false;
            let mut start = 0;
            for k in 0..ENTRIES {
                let end = match entries.get(k + 1) {
                    Some(next) => {
                        let middle = 0.5 * (entries[k] + next);
                        numbers.partition_point(|number| f64::from(number.value) <= middle)
                    }
                    None => numbers.len(),
                }
                .max(start);
                let weight = sums[end].weight - sums[start].weight;
                if weight > 0.0 {
                    let mean = (sums[end].product - sums[start].product) / weight;
                    moved |= mean != entries[k];
                    entries[k] = mean;
                }
                start = end;
            }
            if !moved {
                break;
            }
        }
        let mut entries: Vec<f32> =
            entries.into_iter().map(|x| to_f32(x.clamp(low, high))).collect();
        entries.sort_unstable_by(f32::total_cmp);
        Self { entries }
    }

    /// The number of the entry that is nearest.
    pub(super) fn nearest(&self, value: f32) -> u8 {
        let above = self.entries.partition_point(|&entry| entry < value);
        let below = above.saturating_sub(1);
        let distance = |k: usize| (f64::from(self.entries[k]) - f64::from(value)).abs();
        let above = above.min(ENTRIES - 1);
        low_byte(to_u32(if distance(above) < distance(below) { above } else { below }))
    }
}

fn running_sums(numbers: &[WeightedNumber]) -> Vec<Sums> {
    let mut sums = Vec::with_capacity(numbers.len() + 1);
    let mut sum = Sums::default();
    sums.push(sum);
    for number in numbers {
        sum.weight += f64::from(number.weight);
        sum.product += f64::from(number.weight) * f64::from(number.value);
        sums.push(sum);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use splat_mesh::random::RandomSequence;

    #[test]
    fn few_numbers_are_kept_exactly() {
        let numbers = [-4.0, 0.5, 0.5, 7.25];
        let codebook = Codebook::of(numbers.into_iter());
        for number in numbers {
            let entry = codebook.entries[usize::from(codebook.nearest(number))];
            assert!((entry - number).abs() < 1e-6, "{number} {entry}");
        }
        assert_eq!(Codebook::of(std::iter::empty()).entries, [0.0; ENTRIES]);
        assert_eq!(Codebook::of([3.0; 9].into_iter()).entries, [3.0; ENTRIES]);
    }

    #[test]
    fn a_rare_outlier_keeps_its_entry() {
        let mut random = RandomSequence::of_seed(1);
        let mut numbers: Vec<f32> = (0..10_000).map(|_| to_f32(random.uniform())).collect();
        numbers.push(9.0);
        let codebook = Codebook::of(numbers.iter().copied());
        assert_eq!(codebook.entries[usize::from(codebook.nearest(9.0))], 9.0);
        let square = |number: &f32| {
            (f64::from(codebook.entries[usize::from(codebook.nearest(*number))])
                - f64::from(*number))
            .powi(2)
        };
        let mean = numbers.iter().map(square).sum::<f64>() / numbers.len() as f64;
        // A ninth of the range, so 28 of 256 uniform entries: a step of 1/28, squared over 12.
        assert!(mean < (1.0 / 28.0_f64).powi(2) / 12.0 * 1.1, "{mean}");
    }

    #[test]
    fn what_counts_more_lies_nearer_to_an_entry() {
        let values = || (0..1000_u16).map(|i| f32::from(i) / 1000.0);
        let weights = values().map(|x| if x < 0.5 { 100.0 } else { 0.01 });
        let codebook = Codebook::of_weighted(values(), weights);
        assert!(codebook.entries.iter().filter(|&&entry| entry < 0.5).count() >= 128);
        assert!(codebook.entries.is_sorted());
    }

    #[test]
    fn the_nearest_is_the_nearest() {
        let codebook = Codebook::of((0..256_u16).map(f32::from));
        let found = [-5.0, 0.4, 0.6, 254.6, 900.0].map(|x| codebook.nearest(x));
        assert_eq!(found, [0, 0, 1, 255, 255]);
    }
}
