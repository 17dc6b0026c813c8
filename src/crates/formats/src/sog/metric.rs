//! How much a change of harmonics is seen.

use splat_mesh::narrow::to_f32;

/// Harmonics above degree 0, at most.
pub(super) const MOST: usize = 15;

/// Share of the mean spread that every harmonic has at least: also what no camera of the training saw
/// should not become arbitrary.
const LEAST_SHARE: f64 = 0.01;

/// A measure of changes of the harmonics above degree 0: the expected square of a change of colour is the
/// squared length of what [`Self::apply`] makes of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HarmonicMetric {
    /// Harmonics that there are.
    count: usize,
    /// A factor L of the expected products of two harmonics, L Lᵀ, lower triangular.
    factor: [[f32; MOST]; MOST],
}

impl HarmonicMetric {
    /// Where all directions count alike, harmonics are orthonormal.
    pub(super) fn even(count: usize) -> Self {
        let unit = |i: usize| std::array::from_fn(|j| f32::from(u8::from(i == j)));
        Self { count, factor: std::array::from_fn(unit) }
    }

    /// Of the expected products of two harmonics, symmetric and not negative.
    pub(super) fn of(products: &[[f64; MOST]; MOST], count: usize) -> Self {
        let trace: f64 = (0..count).map(|i| products[i][i]).sum();
        let least = LEAST_SHARE * trace / count as f64;
        if !(least > 0.0 && least.is_finite()) {
            return Self::even(count);
        }
        let mut factor = [[0.0_f64; MOST]; MOST];
        for i in 0..count {
            for j in 0..=i {
                let known: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
                let left = products[i][j] - known;
                // Cholesky's decomposition of the products, with `least` on their diagonal.
                factor[i][j] =
                    if i == j { (left + least).max(least).sqrt() } else { left / factor[j][j] };
            }
        }
        Self { count, factor: factor.map(|row| row.map(to_f32)) }
    }

    /// Adds Lᵀ times the coefficients of a row, [harmonics, 3].
    pub(super) fn apply(&self, row: &[f32], to: &mut [f32]) {
        for (factors, coefficients) in self.factor[..self.count].iter().zip(row.as_chunks::<3>().0)
        {
            for (to, factor) in to.as_chunks_mut::<3>().0.iter_mut().zip(factors) {
                for channel in 0..3 {
                    to[channel] += factor * coefficients[channel];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_squared_length_is_the_expected_square() {
        let mut products = [[0.0; MOST]; MOST];
        (products[0][0], products[1][1]) = (4.0, 9.0);
        (products[0][1], products[1][0]) = (3.0, 3.0);
        products[2][2] = 1.0;
        let metric = HarmonicMetric::of(&products, 3);
        let row = [1.0, 0.0, 0.0, -2.0, 0.0, 0.0, 0.5, 0.0, 0.0];
        let mut to = [0.0; 9];
        metric.apply(&row, &mut to);
        let found: f32 = to.iter().map(|x| x * x).sum();
        // 4 - 2 x 2 x 3 + 4 x 9 + 0.25, and a hundredth of 14/3 on the diagonal.
        let expected = 28.25 + 0.01 * 14.0 / 3.0 * 5.25;
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }

    #[test]
    fn without_a_spread_all_count_alike() {
        assert_eq!(HarmonicMetric::of(&[[0.0; MOST]; MOST], 8), HarmonicMetric::even(8));
        let row: Vec<f32> = (0..24_u8).map(f32::from).collect();
        let mut to = vec![0.0; 24];
        HarmonicMetric::even(8).apply(&row, &mut to);
        assert_eq!(to, row);
    }
}
