//! Small scenes and derivatives that several tests share.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

#[cfg(kernels)]
pub mod cuda;
pub mod drawing;
pub mod fuzz;
pub mod geometry;
pub mod hooked;
pub mod isotropic;
pub mod lpips;
pub mod oracle;
pub mod patches;
pub mod prelude;
pub mod program;
pub mod scene;
pub mod surface;
pub mod synthetic;

use splat::dataset::{Camera, Pose, View};
use splat::math::random::{RandomStream, RandomUse};

/// Derivative of `f` at `x` by five-point central differences.
///
/// Wide steps suffer from curvature (order h⁴), narrow ones from rounding (order 1e-16 f / h), and
/// where they balance depends on the function: of several widths, the one that agrees best with
/// its neighbour is taken, without a look at the value it is to be compared with.
pub fn derivative(x: f64, f: impl FnMut(f64) -> f64) -> f64 {
    best_difference(x, [1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6], f)
}

/// Derivative by narrow steps only, for functions with cut-offs that a wide step would cross.
pub fn derivative_between_cuts(x: f64, f: impl FnMut(f64) -> f64) -> f64 {
    best_difference(x, [3e-5, 1e-5, 3e-6], f)
}

/// Derivative by steps so narrow that hardly ever a sample crosses the edge of a triangle.
pub fn derivative_between_edges(x: f64, f: impl FnMut(f64) -> f64) -> f64 {
    best_difference(x, [1e-6, 6e-7, 3e-7], f)
}

fn best_difference<const N: usize>(x: f64, widths: [f64; N], mut f: impl FnMut(f64) -> f64) -> f64 {
    let mut at =
        |h: f64| (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h);
    let estimates = widths.map(&mut at);
    let disagreement = |pair: &[f64]| (pair[0] - pair[1]).abs();
    estimates
        .windows(2)
        .min_by(|a, b| disagreement(a).total_cmp(&disagreement(b)))
        .map_or(f64::NAN, |pair| pair[1])
}

/// Asserts a relative error below `tolerance`; values below `floor` are compared absolutely.
pub fn assert_relative(found: f64, expected: f64, (tolerance, floor): (f64, f64), what: &str) {
    let error = (found - expected).abs() / found.abs().max(expected.abs()).max(floor);
    assert!(error < tolerance, "{what}: {found} against {expected}, relative error {error:.2e}");
}

/// `values` with element `i` replaced.
pub fn with<T: Copy, const N: usize>(mut values: [T; N], i: usize, value: T) -> [T; N] {
    values[i] = value;
    values
}

/// Uniform numbers in `low..high`, the same on every run.
pub struct Draws {
    stream: RandomStream,
    next: u64,
}

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self { stream: RandomStream::new(seed, 0, RandomUse::Sample), next: 0 }
    }

    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        self.next += 1;
        low + (high - low) * self.stream.uniform(self.next)
    }

    pub fn array<const N: usize>(&mut self, low: f64, high: f64) -> [f64; N] {
        std::array::from_fn(|_| self.uniform(low, high))
    }
}

/// A camera with an odd size and a principal point off the centre, turned and moved a little.
pub fn view() -> View {
    let rotation = splat::math::linalg::rotation([0.98, 0.05, -0.12, 0.07]);
    View {
        name: "view.png".to_owned(),
        camera: Camera { width: 37, height: 29, focal_px: [41.0, 43.0], centre_px: [17.3, 15.9] },
        pose: Pose { rotation, translation: [0.03, -0.07, 0.11] },
    }
}

/// One test per device from a function of a device: the CPU backend in single precision, and CUDA. In
/// double precision the CPU backend is what they are compared with; there, a test tells little more,
/// and runs before a release only.
#[macro_export]
macro_rules! each_backend {
    ($($test:ident),+ $(,)?) => {
        $($crate::test_with_each_backend!($test, open, super::$test(&mut open()));)+
    };
}

/// One test per device from a function that opens the device, for tests that leave it unusable.
#[macro_export]
macro_rules! each_backend_anew {
    ($($test:ident),+ $(,)?) => {
        $($crate::test_with_each_backend!($test, open, super::$test(open));)+
    };
}

/// A module of tests that each call a function with `open`, which opens a device.
#[macro_export]
macro_rules! test_with_each_backend {
    ($module:ident, $open:ident, $call:expr) => {
        mod $module {
            #[test]
            fn cpu_f32() {
                let $open = splat::backend::cpu::Cpu::<f32>::new;
                $call;
            }

            #[test]
            #[ignore = "for releases: repeats in double precision what cpu_f32 tests"]
            fn cpu_f64() {
                let $open = splat::backend::cpu::Cpu::<f64>::new;
                $call;
            }

            #[cfg(kernels)]
            #[test]
            #[ignore = "needs a CUDA device"]
            fn cuda() {
                let $open = $crate::common::cuda::open;
                $call;
            }
        }
    };
}
