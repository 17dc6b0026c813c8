//! What the probed functions are called with.

use splat::math::linalg::normalize;

use super::triple;
use crate::common::Draws;

/// How the inputs of one call are drawn.
pub(super) struct Domain {
    pub(super) draw: fn(&mut Draws) -> Vec<f64>,
    /// So many of the first inputs may be anything: zero, tiny, huge, infinite, NaN.
    pub(super) free: usize,
}

pub(super) fn any<const N: usize>() -> Domain {
    Domain { draw: |draws| normals(draws, N), free: N }
}

/// Logits up to where the sigmoid is 0 or 1.
pub(super) fn wide() -> Domain {
    Domain { draw: |draws| vec![draws.uniform(-30.0, 30.0)], free: 1 }
}

/// A direction, a degree, and so many numbers.
pub(super) fn direction<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let unit = normalize::<f64>(triple(&normals(draws, 3)));
        let degree = draws.uniform(0.0, 4.0).floor();
        [&unit[..], &[degree], &normals(draws, N)].concat()
    };
    Domain { draw, free: 3 }
}

/// Gaussians in front of the camera and behind, large and small, and so many numbers.
pub(super) fn shapes<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let [x, y] = draws.array(-2.0, 2.0);
        let mean = [x, y, draws.uniform(-0.3, 6.0)];
        let log_scale: [f64; 3] = draws.array(-6.0, -0.5);
        [&mean[..], &log_scale, &normals(draws, 4), &normals(draws, N)].concat()
    };
    Domain { draw, free: 0 }
}

/// A Gaussian's log-scales, quaternion and opacity logit, and so many numbers.
pub(super) fn kernels<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let log_scale: [f64; 3] = draws.array(-1.5, 0.5);
        let logit = draws.uniform(-5.0, 5.0);
        [&log_scale[..], &normals(draws, 4), &[logit], &normals(draws, N)].concat()
    };
    Domain { draw, free: 0 }
}

/// So many numbers that are components of vectors shorter than 1.
pub(super) fn components<const N: usize>() -> Domain {
    Domain { draw: |draws| draws.array::<N>(-0.65, 0.65).to_vec(), free: 0 }
}

/// A focal length, two depths of which some are 0, and a gradient.
pub(super) fn depths() -> Domain {
    let draw = |draws: &mut Draws| {
        let mut depth = || draws.uniform(-0.2, 3.0).max(0.0);
        let [before, behind] = [depth(), depth() + 1e-3];
        vec![draws.uniform(20.0, 900.0), before, behind, draws.uniform(-1.0, 1.0)]
    };
    Domain { draw, free: 0 }
}

/// A distance from a surface, its thickness, and a number.
pub(super) fn layers() -> Domain {
    let draw = |draws: &mut Draws| {
        let distance = draws.uniform(-3.0, 3.0);
        [&[distance, draws.uniform(0.3, 2.0)][..], &normals(draws, 1)].concat()
    };
    Domain { draw, free: 0 }
}

/// Logits of opacities of which single precision tells how much lacks to 0 and to 1, and so many
/// numbers.
pub(super) fn logits<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| [&[draws.uniform(-6.0, 6.0)][..], &normals(draws, N)].concat();
    Domain { draw, free: 0 }
}

/// Centre, variances and opacity, inside of the image and outside.
pub(super) fn ellipses() -> Domain {
    let draw = |draws: &mut Draws| {
        let mean: [f64; 2] = draws.array(-30.0, 60.0);
        let variance: [f64; 2] = draws.array(0.3, 40.0);
        [&mean[..], &variance, &[draws.uniform(0.0, 1.0)]].concat()
    };
    Domain { draw, free: 0 }
}

/// Centre, conic, smallest exponent, and rows of pixels: y0, y1. Some conics are hyperbolas'.
pub(super) fn bands() -> Domain {
    let draw = |draws: &mut Draws| {
        let mean: [f64; 2] = draws.array(-5.0, 40.0);
        let [a, b, c] = draws.array(0.05, 1.0);
        let conic = [a * a + 0.01, a * b - 0.5 * a, b * b + c * c + 0.01];
        let low = draws.uniform(0.0, 30.0).floor();
        let side = draws.uniform(1.0, 17.0).floor();
        [&mean[..], &conic, &[draws.uniform(-8.0, -1e-4), low, low + side]].concat()
    };
    Domain { draw, free: 0 }
}

/// Of any size that 16 bits come near, with random bits in two halves.
pub(super) fn rounding() -> Domain {
    let draw = |draws: &mut Draws| {
        let size = 2.0_f64.powf(draws.uniform(-30.0, 18.0));
        let sign = if draws.uniform(0.0, 1.0) < 0.5 { -1.0 } else { 1.0 };
        [&[sign * size][..], &halves::<1>(draws)].concat()
    };
    Domain { draw, free: 1 }
}

/// Of any size from 0 on, with so many random words.
pub(super) fn sizes<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let size = 2.0_f64.powf(draws.uniform(-130.0, 18.0));
        [&[size][..], &halves::<N>(draws)].concat()
    };
    Domain { draw, free: 0 }
}

/// A first moment, and a second down to below what counts.
pub(super) fn moments() -> Domain {
    let draw = |draws: &mut Draws| {
        let second = draws.uniform(-110.0, 4.0).exp2();
        vec![draws.uniform(-10.0, 10.0) * second.sqrt(), second]
    };
    Domain { draw, free: 0 }
}

/// A logit, a number of copies, and the least opacity of a share.
pub(super) fn shares() -> Domain {
    let draw = |draws: &mut Draws| {
        let copies = draws.uniform(1.0, 60.0).floor();
        vec![draws.uniform(-7.0, 20.0), copies, draws.uniform(0.0, 0.01)]
    };
    Domain { draw, free: 0 }
}

/// Determinants of a covariance that leaves nothing of a splat or more, before and after it is
/// widened, and a gradient.
pub(super) fn widened() -> Domain {
    let draw = |draws: &mut Draws| {
        let det = 2.0_f64.powf(draws.uniform(-24.0, 20.0));
        let growth = 1.0 + 2.0_f64.powf(draws.uniform(-10.0, 10.0));
        vec![det, det * growth, draws.uniform(-2.0, 2.0)]
    };
    Domain { draw, free: 0 }
}

/// Scales and the standard deviation of a filter, finer or coarser or none, and four gradients.
pub(super) fn filtered() -> Domain {
    let draw = |draws: &mut Draws| {
        let scales: [f64; 3] = draws.array(-20.0, 4.0).map(f64::exp2);
        let smoothing = 2.0_f64.powf(draws.uniform(-20.0, 4.0));
        let smoothing = if draws.uniform(0.0, 1.0) < 0.1 { 0.0 } else { smoothing };
        [&scales[..], &[smoothing], &normals(draws, 4)].concat()
    };
    Domain { draw, free: 0 }
}

/// A logit, the share of its opacity that is kept, and the ceiling of opacities.
pub(super) fn lowered() -> Domain {
    let draw = |draws: &mut Draws| {
        vec![draws.uniform(-9.0, 9.0), draws.uniform(0.0, 1.0), draws.uniform(0.005, 0.02)]
    };
    Domain { draw, free: 0 }
}

/// A word in two halves, one of `PLACES` in it, and another word.
pub(super) fn words<const PLACES: u32>() -> Domain {
    let draw = |draws: &mut Draws| {
        let place = draws.uniform(0.0, f64::from(PLACES)).floor();
        let [low, high, other_low, other_high] = halves_of(draws);
        vec![low, high, place, other_low, other_high]
    };
    Domain { draw, free: 0 }
}

fn halves<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    (0..N).flat_map(|_| halves_of::<2>(draws)).collect()
}

fn halves_of<const N: usize>(draws: &mut Draws) -> [f64; N] {
    draws.array::<N>(0.0, 65_536.0).map(f64::floor)
}

/// Standard normal numbers, by the sum of twelve uniform ones.
fn normals(draws: &mut Draws, count: usize) -> Vec<f64> {
    (0..count).map(|_| draws.array::<12>(-0.5, 0.5).iter().sum()).collect()
}
