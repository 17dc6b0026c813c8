//! Where Gaussians are, and how large: what tells those right before cameras, and huge ones.

use rayon::prelude::*;

use crate::math::Real;
use crate::math::linalg::{Vec3, dot, sub};
use crate::model::Gaussians;
use crate::train::Views;
use crate::train::event::Split;

/// Share of the centres, along each axis, that the scene's box leaves out at each end.
const OUTSIDE: f64 = 0.005;

/// A Gaussian is huge whose largest standard deviation exceeds the box's longest side by this factor.
const HUGE: f64 = 2.0;

/// Where Gaussians are, and how large.
pub(super) struct Places {
    /// To the nearest training camera, world units.
    pub(super) camera_distance: Vec<f64>,
    /// The largest standard deviation, world units.
    pub(super) scale: Vec<f64>,
    /// The longest side of the box of most centres, world units.
    box_side: f64,
}

impl Places {
    pub(super) fn of(gaussians: &Gaussians, views: &Views<'_>) -> Self {
        let means = gaussians.means.as_chunks().0;
        let train = views.split(Split::Train).iter();
        let cameras: Vec<Vec3<f64>> =
            train.map(|&index| views.view(index).pose.centre_world()).collect();
        let distance = |mean: &[f32; 3]| {
            let mean = mean.map(f64::from);
            let squared = |camera: &Vec3<f64>| {
                let away = sub(mean, *camera);
                dot(away, away)
            };
            cameras.iter().map(squared).fold(f64::INFINITY, f64::min).sqrt()
        };
        let scale = |scales: &[f32; 3]| {
            f64::from(scales.iter().copied().fold(f32::NEG_INFINITY, f32::max)).exp()
        };
        Self {
            camera_distance: means.par_iter().map(distance).collect(),
            scale: gaussians.log_scales.as_chunks().0.iter().map(scale).collect(),
            box_side: box_side(means),
        }
    }

    /// Whether it is far larger than the scene.
    pub(super) fn is_huge(&self, row: usize) -> bool {
        self.scale[row] > HUGE * self.box_side
    }
}

/// The longest side of the box of most centres.
fn box_side(means: &[[f32; 3]]) -> f64 {
    let side = |axis: usize| {
        let mut values: Vec<f32> = means.iter().map(|mean| mean[axis]).collect();
        values.sort_unstable_by(f32::total_cmp);
        let outside = (OUTSIDE * values.len() as f64).floor_i32().unsigned_abs();
        let (low, high) = (outside as usize, values.len().checked_sub(1 + outside as usize));
        high.map_or(0.0, |high| f64::from(values[high.max(low)]) - f64::from(values[low]))
    };
    (0..3).map(side).fold(0.0, f64::max)
}
