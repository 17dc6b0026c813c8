//! Adam (Kingma and Ba 2015) as every backend runs it.

use serde::{Deserialize, Serialize};

/// Decay of the running mean of the gradient.
pub const BETA_1: f64 = 0.9;

/// Decay of the running mean of the squared gradient.
pub const BETA_2: f64 = 0.999;

/// Keeps a parameter that never had a gradient from a division by zero.
pub const EPSILON: f64 = 1e-15;

/// Bias corrections, which the moments are divided by after step `number` (from 1): 1 - β^number of each.
pub fn bias_corrections(number: u32) -> [f64; 2] {
    let power = i32::try_from(number).unwrap_or(i32::MAX);
    [BETA_1, BETA_2].map(|beta| 1.0 - beta.powi(power))
}

/// How one step treats the moments.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Moments {
    /// Decays of the first and of the second moment.
    pub betas: [f64; 2],
    /// What the bias-corrected moments are: the moments divided by these.
    pub corrections: [f64; 2],
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl Moments {
    /// Of step `number` (from 1).
    pub fn of_step(number: u32) -> Self {
        let corrections = bias_corrections(number);
        Self { betas: [BETA_1, BETA_2], corrections, epsilon: EPSILON }
    }

    /// Of a step down the mean gradient of `views` images, after which the run has seen `images`: the
    /// moments decay as in that many steps of one image, and the step is as much longer as the mean is
    /// less noisy (Grendel, Zhao et al. 2025, section 4.2; its rates grow by [`batch_rate`]).
    pub fn of_batch(images: u32, views: u32) -> Self {
        let one = Self::of_step(images);
        let power = i32::try_from(views).unwrap_or(i32::MAX);
        Self {
            betas: one.betas.map(|beta| beta.powi(power)),
            epsilon: one.epsilon / f64::from(views).sqrt(),
            ..one
        }
    }
}

/// Factor of the learning rates of a step down the mean gradient of `views` images.
pub fn batch_rate(views: u32) -> f64 {
    f64::from(views).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_one_is_a_step_to_the_last_bit() {
        for images in [1, 2, 999, 30_000] {
            assert_eq!(Moments::of_batch(images, 1), Moments::of_step(images));
        }
        assert_eq!(batch_rate(1), 1.0);
    }

    /// A constant gradient leaves the same moments however many images a step takes.
    #[test]
    fn moments_of_a_constant_gradient_do_not_depend_on_the_batch() {
        let after = |views: u32| {
            let (mut first, mut second, mut images) = (0.0, 0.0, 0);
            while images < 24 {
                images += views;
                let Moments { betas: [beta_1, beta_2], .. } = Moments::of_batch(images, views);
                first = beta_1 * first + (1.0 - beta_1) * 0.3;
                second = beta_2 * second + (1.0 - beta_2) * 0.09;
            }
            let [one, two] = Moments::of_batch(images, views).corrections;
            [first / one, second / two]
        };
        for views in [1, 2, 3, 4, 6, 8] {
            let [first, second] = after(views);
            // Rounding of a few dozen operations.
            assert!((first - 0.3).abs() < 1e-14 && (second - 0.09).abs() < 1e-14, "{views}");
        }
    }
}
