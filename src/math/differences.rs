//! Finite differences for tests of derivatives.

use std::fmt::Debug;

/// Returns the central difference of a function around 0.
pub(crate) fn central(step: f64, f: impl Fn(f64) -> f64) -> f64 {
    (f(step) - f(-step)) / (2.0 * step)
}

/// Returns the five-point difference of a function around 0. Its error is of the step's fourth power.
pub(crate) fn five_point(step: f64, f: impl Fn(f64) -> f64) -> f64 {
    (8.0 * (f(step) - f(-step)) - (f(2.0 * step) - f(-2.0 * step))) / (12.0 * step)
}

/// Returns the central differences of a function of several numbers.
pub(crate) fn gradient<const N: usize>(
    step: f64,
    at: [f64; N],
    f: impl Fn([f64; N]) -> f64,
) -> [f64; N] {
    std::array::from_fn(|i| {
        central(step, |by| {
            let mut moved = at;
            moved[i] += by;
            f(moved)
        })
    })
}

/// Asserts that two numbers are less than `tolerance` apart.
#[track_caller]
pub(crate) fn assert_near(found: f64, expected: f64, tolerance: f64, what: impl Debug) {
    let error = (found - expected).abs();
    assert!(error < tolerance, "{what:?}: {found} for {expected}, error {error:.1e}");
}
