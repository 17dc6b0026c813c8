//! Coordinates of training and of the scene.
//!
//! Training computes with 32-bit floats, whose steps at a coordinate of 5,000,000 (UTM, ECEF) are 0.5. So the readers
//! keep poses and points as doubles. [`Dataset::load`](super::Dataset::load) moves them into a [`Frame`] near the
//! origin, and scales extreme units by a power of two. Three frames matter:
//!
//! | frame | offset | unit | used by |
//! |---|---|---|---|
//! | scene | 0 | 1 | the scene's files, `cameras.json`, options that name places |
//! | training | found | found | `train`, its checkpoints |
//! | file | as training | 1 | PLY, SPZ, meshes: 32-bit numbers; commands that open a trained model |
//!
//! Scenes near the origin in ordinary units have one frame. A file that is not in scene coordinates names
//! its offset: a PLY in a comment, others in a file beside them.
//! [`Frame::to`] is the only place that converts coordinates.

use super::camera::Pose;
use super::shot::PointCloud;
use crate::config::{Offset, SceneOptions};
use crate::math::Real;
use crate::math::linalg::{Vec3, add, length, mul, scale, sub};
use crate::math::quantile::median;

/// Distance from the origin, in sizes of the scene, above which the scene is moved there. Below, 32-bit coordinates
/// have steps of at most 1/250,000 of the size.
const FAR: f64 = 32.0;

/// Sizes of scenes whose unit is kept, scene units.
const USUAL_SIZES: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// Size of a scene in training units after its unit changes, within a factor of √2.
const CHANGED_SIZE: f64 = 4.0;

/// Number of points that the size of a scene is measured by.
const POINTS: usize = 10_000;

/// A coordinate system with the scene's axes: `scene = offset + unit x own`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Origin in scene coordinates.
    pub offset: Vec3<f64>,
    /// Length of the unit, scene units.
    pub unit: f64,
}

impl Default for Frame {
    fn default() -> Self {
        Self::SCENE
    }
}

impl Frame {
    /// The scene's own coordinates.
    pub const SCENE: Self = Self { offset: [0.0; 3], unit: 1.0 };

    /// Returns the coordinates of files with this offset.
    pub fn of_file(offset: Vec3<f64>) -> Self {
        Self { offset, unit: 1.0 }
    }

    /// Returns the coordinates of files that are written from this frame.
    pub fn file(&self) -> Self {
        Self::of_file(self.offset)
    }

    /// True if 32-bit coordinates resolve a scene of this size at this position.
    pub fn is_near(place: Vec3<f64>, size: f64) -> bool {
        place.into_iter().map(f64::abs).fold(0.0, f64::max) <= FAR * size
    }

    /// Converts a point of this frame to another.
    pub fn to(&self, other: &Self, point: Vec3<f64>) -> Vec3<f64> {
        if self == other {
            return point;
        }
        // Offsets first: their difference is small if both are far from the origin.
        let moved = add(scale(point, self.unit), sub(self.offset, other.offset));
        moved.map(|x| x / other.unit)
    }

    /// Returns the length of this frame's unit in another.
    pub fn unit_in(&self, other: &Self) -> f64 {
        self.unit / other.unit
    }

    /// Converts a pose: moves the camera's centre and keeps its rotation.
    pub(super) fn pose_to(&self, other: &Self, pose: &Pose) -> Pose {
        if self == other {
            return *pose;
        }
        let centre = self.to(other, pose.centre_world());
        Pose { translation: scale(mul(&pose.rotation, centre), -1.0), ..*pose }
    }

    /// Returns the frame of the options, or else the one that suits the scene.
    pub(super) fn of(options: &SceneOptions, poses: &[&Pose], points: &PointCloud<f64>) -> Self {
        let found = Self::found(poses, points);
        let offset = options.offset.map_or(found.offset, |Offset(offset)| offset);
        Self { offset, unit: options.unit.unwrap_or(found.unit) }
    }

    /// Returns a frame with a rounded offset if the cameras are far from the origin, and with a power of two as unit
    /// if the scene is very small or very large.
    fn found(poses: &[&Pose], points: &PointCloud<f64>) -> Self {
        let cameras: Vec<Vec3<f64>> = poses.iter().map(|pose| pose.centre_world()).collect();
        let middle = [0, 1, 2].map(|axis| median(cameras.iter().map(|centre| centre[axis])));
        let spread = |places: &mut dyn Iterator<Item = Vec3<f64>>| {
            median(places.map(|place| length(sub(place, middle))))
        };
        let step = points.positions.len().div_ceil(POINTS).max(1);
        let of_points = spread(&mut points.positions.iter().step_by(step).copied());
        let size = spread(&mut cameras.iter().copied()).max(of_points);
        let distance = middle.into_iter().map(f64::abs).fold(0.0, f64::max);
        // With all cameras in one place and without points the size is unknown.
        let is_known = size > f64::EPSILON * distance;
        let size = if is_known { size } else { 1.0 };
        if !(size.is_finite() && distance.is_finite()) {
            return Self::SCENE;
        }
        let offset = if Self::is_near(middle, size) {
            [0.0; 3]
        } else {
            let step = 10_f64.powf(size.log10().ceil());
            // Rounded, the offset is short in decimals.
            middle.map(|x| rounded(x, step))
        };
        Self { offset, unit: Self::unit_of(size) }
    }

    /// Returns the unit for a scene of this size, scene units: 1, or a power of two for a very small or very large
    /// scene.
    pub fn unit_of(size: f64) -> f64 {
        if USUAL_SIZES.contains(&size) || !size.is_normal() {
            1.0
        } else {
            (size / CHANGED_SIZE).log2().round().clamp(-100.0, 100.0).exp2()
        }
    }
}

impl PointCloud<f64> {
    /// Converts points of a frame to another, rounded to 32 bits.
    pub fn converted(self, from: &Frame, to: &Frame) -> PointCloud {
        let positions = self.positions.into_iter();
        let positions = positions.map(|place| from.to(to, place).map(Real::to_f32)).collect();
        PointCloud { positions, colors: self.colors }
    }
}

/// Returns the nearest multiple of a power of ten.
fn rounded(x: f64, step: f64) -> f64 {
    let count = (x / step).round();
    // Steps below 1 are inexact, but their inverses are exact.
    let found = if step < 1.0 { count / (1.0 / step).round() } else { count * step };
    // Turns -0 into 0.
    found + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::{Mat3, rotation};

    const TURNED: [f64; 4] = [0.8, 0.1, -0.5, 0.3];

    fn pose_at(centre: Vec3<f64>) -> Pose {
        let rotation: Mat3<f64> = rotation(TURNED);
        Pose { rotation, translation: scale(mul(&rotation, centre), -1.0) }
    }

    fn ring(middle: Vec3<f64>, radius: f64) -> Vec<Pose> {
        let angles = (0..12).map(|i| f64::from(i) * std::f64::consts::TAU / 12.0);
        let at = |angle: f64| [radius * angle.cos(), 0.1 * radius, radius * angle.sin()];
        angles.map(|angle| pose_at(add(middle, at(angle)))).collect()
    }

    fn found(middle: Vec3<f64>, radius: f64) -> Frame {
        let poses = ring(middle, radius);
        let points = PointCloud { positions: vec![middle; 5], colors: vec![[0; 3]; 5] };
        Frame::found(&poses.iter().collect::<Vec<_>>(), &points)
    }

    #[test]
    fn only_scenes_far_away_have_an_offset_which_is_rounded() {
        for (middle, radius) in
            [([0.0; 3], 4.0), ([3.0, -60.0, 9.0], 4.0), ([0.0; 3], 0.02), ([0.0; 3], 900.0)]
        {
            assert_eq!(found(middle, radius), Frame::SCENE, "{middle:?} {radius}");
        }
        let far = [500_003.2, 4_500_001.7, -120.4];
        assert_eq!(found(far, 4.0), Frame::of_file([500_000.0, 4_500_000.0, -120.0]));
        assert_eq!(found(far, 80.0).offset, [500_000.0, 4_500_000.0, -100.0]);
        // Kilometres.
        let near = found([500.003, 4500.002, -0.12], 0.05);
        assert_eq!(near, Frame::of_file([500.0, 4500.0, -0.1]));
    }

    #[test]
    fn extreme_units_become_powers_of_two() {
        for exponent in [-12, -7, 4, 9, 20] {
            let radius = 4.0 * 10_f64.powi(exponent);
            let Frame { offset, unit } = found([0.0; 3], radius);
            assert_eq!((offset, unit.log2().fract()), ([0.0; 3], 0.0));
            let size = radius / unit;
            assert!((2.8..=5.7).contains(&size), "{radius}: {size}");
        }
    }

    #[test]
    fn cameras_in_one_place_without_points_keep_the_unit() {
        let one = pose_at([5e6, 1.0, 2.0]);
        let frame = Frame::found(&[&one, &one], &PointCloud::default());
        assert_eq!(frame, Frame::of_file([5e6, 1.0, 2.0]));
    }

    #[test]
    fn conversions_keep_double_precision() {
        let frame = Frame { offset: [500_000.0, 5_000_000.0, -40.0], unit: 2.0_f64.powi(-13) };
        let place = [500_000.000_012, 4_999_999.999_31, -40.000_001];
        let there = Frame::SCENE.to(&frame, place);
        let back = frame.to(&Frame::SCENE, there);
        for axis in 0..3 {
            // A step of a double at 5e6.
            assert!((back[axis] - place[axis]).abs() < 2e-9, "{back:?}");
        }
        let pose = Frame::SCENE.pose_to(&frame, &pose_at(place));
        for (found, expected) in pose.centre_world().into_iter().zip(there) {
            // The pose's translation has rounded the position by some steps.
            assert!((found - expected).abs() < 1e-8 / frame.unit);
        }
        assert_eq!(frame.to(&frame.file(), [8192.0, 0.0, -4096.0]), [1.0, 0.0, -0.5]);
    }
}
