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

/// Asserts that two numbers are less than `tolerance` apart.
#[track_caller]
pub(crate) fn assert_near(found: f64, expected: f64, tolerance: f64, what: impl Debug) {
    let error = (found - expected).abs();
    assert!(error < tolerance, "{what:?}: {found} for {expected}, error {error:.1e}");
}
