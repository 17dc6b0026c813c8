//! Adam (Kingma and Ba 2015) as every backend runs it.

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
