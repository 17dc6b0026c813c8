//! How far what a file holds is from what was to be written.

use std::ops::RangeInclusive;

use rayon::prelude::*;
use serde::Serialize;

use crate::geometry::angle_degrees;
use crate::geometry::sigmoid;
use crate::splats::{SH_C0, Splats, sh_rest_count};

/// The largest error over all Gaussians, by kind of value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorstErrors {
    /// Of a coordinate of a centre, scene units.
    pub position: f64,
    /// Error of the natural logarithm of a scale. Scales beyond the range of the format do not count.
    pub log_scale: f64,
    /// Scales beyond the range of the format, which are stored as the nearest that it has.
    pub clipped_scales: usize,
    /// Between rotations, degrees.
    pub rotation_degrees: f64,
    /// Of an opacity of 0 to 1.
    pub opacity: f64,
    /// Of a channel of the colour, 0 to 1, without harmonics above degree 0.
    pub color: f64,
    /// Of a coefficient above degree 0. What a format cannot hold counts as zero.
    pub sh: f64,
}

impl WorstErrors {
    /// The errors of what was read against what was written, row by row.
    pub fn between(written: &Splats, read: &Splats) -> Self {
        Self::between_within(written, read, &(f32::NEG_INFINITY..=f32::INFINITY))
    }

    /// The same for a format whose logarithms of scales have a range.
    pub(crate) fn between_within(
        written: &Splats,
        read: &Splats,
        log_scales: &RangeInclusive<f32>,
    ) -> Self {
        let (a, b) = (written.columns(), read.columns());
        let scales = a.log_scales.as_flattened().iter().zip(b.log_scales.as_flattened());
        let (held, clipped): (Vec<_>, Vec<_>) =
            scales.partition(|(scale, _)| log_scales.contains(*scale));
        let scale_error = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
        let mut worst = Self {
            position: farthest(&a.means, &b.means),
            log_scale: held.into_iter().map(scale_error).fold(0.0, f64::max),
            clipped_scales: clipped.len(),
            color: SH_C0 * farthest(&a.sh_dc, &b.sh_dc),
            ..Self::default()
        };
        let rotations = a.rotations.par_iter().zip(&b.rotations);
        worst.rotation_degrees =
            rotations.map(|(a, b)| angle_degrees(*a, *b)).reduce(|| 0.0, f64::max);
        let opacities = a.opacity_logits.par_iter().zip(&b.opacity_logits);
        worst.opacity =
            opacities.map(|(a, b)| (sigmoid(*a) - sigmoid(*b)).abs()).reduce(|| 0.0, f64::max);
        let shared = sh_rest_count(a.sh_degree.min(b.sh_degree));
        let sh_error = |row: usize| {
            let (a, b) = (a.rest(row), b.rest(row));
            let missing = a[shared..].as_flattened().iter().map(|x| f64::from(x.abs()));
            missing.fold(farthest(&a[..shared], &b[..shared]), f64::max)
        };
        worst.sh = (0..a.len().min(b.len())).into_par_iter().map(sh_error).reduce(|| 0.0, f64::max);
        worst
    }

    /// The larger of each error, of two parts of a file.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            position: self.position.max(other.position),
            log_scale: self.log_scale.max(other.log_scale),
            clipped_scales: self.clipped_scales + other.clipped_scales,
            rotation_degrees: self.rotation_degrees.max(other.rotation_degrees),
            opacity: self.opacity.max(other.opacity),
            color: self.color.max(other.color),
            sh: self.sh.max(other.sh),
        }
    }
}

fn farthest(a: &[[f32; 3]], b: &[[f32; 3]]) -> f64 {
    let pairs = a.as_flattened().iter().zip(b.as_flattened());
    pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::logit;
    use crate::known_splats::random_splats;

    #[test]
    fn each_error_is_seen_alone() {
        let a = random_splats(5, 2, 8);
        assert_eq!(WorstErrors::between(&a, &a), WorstErrors::default());
        let errors = |change: &dyn Fn(&mut Splats)| {
            let mut b = a.clone();
            change(&mut b);
            WorstErrors::between(&a, &b)
        };
        let moved = errors(&|b| b.columns_mut().means[3][2] += 0.5);
        assert!((moved.position - 0.5).abs() < 1e-6 && moved.log_scale == 0.0);
        let faint = errors(&|b| b.columns_mut().opacity_logits[0] = logit(1e-9));
        assert!((faint.opacity - sigmoid(a.columns().opacity_logits[0])).abs() < 1e-6);
        let turned = errors(&|b| b.columns_mut().rotations[1] = [0.0, 0.0, 1.0, 0.0]);
        assert!(turned.rotation_degrees > 1.0 && turned.position == 0.0);
        let painted = errors(&|b| b.columns_mut().sh_dc[4][0] += 1.0);
        assert!((painted.color - SH_C0).abs() < 1e-6);
        // Coefficients that are cut off count whole.
        let mut known = a.clone();
        known.columns_mut().sh_rest.fill([0.0; 3]);
        known.columns_mut().sh_rest[8 * 4 + 7] = [0.0, -3.0, 0.0];
        let mut cut = known.clone();
        cut.cut_sh_degree(1);
        assert_eq!(WorstErrors::between(&known, &cut).sh, 3.0);
    }
}
