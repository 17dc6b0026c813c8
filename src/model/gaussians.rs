//! Gaussians on the host, one column per parameter: the form that is loaded, saved and exchanged between devices.

use serde::{Deserialize, Serialize};

use super::primitive::Primitive;
use crate::dataset::Frame;
use crate::layout::{GAUSSIANS, Schema, sh_rest_values};
use crate::math::field::DensityKernel;
use crate::math::filter::smoothed;
use crate::math::splat::Shape;
use crate::math::{Real, inverse_sigmoid, sigmoid};

/// Third log-scale of a surfel: about 2e-9 world units.
pub const FLAT_LOG_SCALE: f32 = splat_formats::FLAT_LOG_SCALE;

/// Gaussians as a structure of arrays of raw parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Gaussians {
    /// Highest degree of the spherical harmonics, 0 to 3.
    pub sh_degree: u32,
    /// Centres in the world, `[n, 3]`.
    pub means: Vec<f32>,
    /// Natural logarithms of the scales, world units, `[n, 3]`.
    pub log_scales: Vec<f32>,
    /// Rotations (w, x, y, z), of any length but zero, `[n, 4]`.
    pub quats: Vec<f32>,
    /// Opacities before the sigmoid, `[n]`.
    pub opacity_logits: Vec<f32>,
    /// SH coefficients of degree 0, `[n, 3]`; colour is 0.5 + 0.28209479 c.
    pub sh_dc: Vec<f32>,
    /// SH coefficients of degrees 1 and up, `[n, k, 3]` with k = (degree + 1)² - 1.
    pub sh_rest: Vec<f32>,
}

/// Returns the SH coefficients per colour channel above degree 0: (degree + 1)² - 1.
pub const fn sh_rest_count(sh_degree: u32) -> usize {
    sh_rest_values(sh_degree) as usize / 3
}

impl Gaussians {
    /// Returns the number of Gaussians.
    pub fn len(&self) -> usize {
        self.opacity_logits.len()
    }

    /// Returns true if there are no Gaussians.
    pub fn is_empty(&self) -> bool {
        self.opacity_logits.is_empty()
    }

    /// Converts positions and scales between coordinates. Scales of surfels along their normals stay.
    pub fn convert(&mut self, from: &Frame, to: &Frame) {
        if from == to {
            return;
        }
        for mean in self.means.as_chunks_mut::<3>().0 {
            *mean = from.to(to, mean.map(f64::from)).map(Real::to_f32);
        }
        let log_unit = from.unit_in(to).ln();
        let is_flat = |scale: f32| scale.to_bits() == FLAT_LOG_SCALE.to_bits();
        for scale in self.log_scales.iter_mut().filter(|scale| !is_flat(**scale)) {
            *scale = (f64::from(*scale) + log_unit).to_f32();
        }
    }

    /// Creates `count` Gaussians with zeros.
    pub fn zeros(sh_degree: u32, count: usize) -> Self {
        <Self as Primitive>::zeros(sh_degree, count)
    }
}

impl Primitive for Gaussians {
    const SCHEMA: &'static Schema = &GAUSSIANS;

    fn empty(sh_degree: u32) -> Self {
        Self { sh_degree, ..Self::default() }
    }

    fn sh_degree(&self) -> u32 {
        self.sh_degree
    }

    fn values(&self) -> Vec<&[f32]> {
        vec![
            &self.means,
            &self.log_scales,
            &self.quats,
            &self.opacity_logits,
            &self.sh_dc,
            &self.sh_rest,
        ]
    }

    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>> {
        vec![
            &mut self.means,
            &mut self.log_scales,
            &mut self.quats,
            &mut self.opacity_logits,
            &mut self.sh_dc,
            &mut self.sh_rest,
        ]
    }
}

/// Primitives that add to a density in space.
pub trait Field {
    /// Returns the density of each primitive, in their order.
    fn density_kernels(&self) -> impl Iterator<Item = DensityKernel<f64>>;
}

impl Field for Gaussians {
    fn density_kernels(&self) -> impl Iterator<Item = DensityKernel<f64>> {
        let (means, _) = self.means.as_chunks::<3>();
        let (log_scales, _) = self.log_scales.as_chunks::<3>();
        let (quats, _) = self.quats.as_chunks::<4>();
        let shapes = means.iter().zip(log_scales).zip(quats);
        let shapes = shapes.map(|((mean, log_scale), quat)| Shape {
            mean_world: mean.map(f64::from),
            log_scale: log_scale.map(f64::from),
            quat: quat.map(f64::from),
            smoothing: 0.0,
        });
        let opacity_logits = self.opacity_logits.iter().copied().map(f64::from);
        shapes.zip(opacity_logits).map(|(shape, logit)| DensityKernel::new(&shape, logit))
    }
}

// Gaussians with their 3D filter fused, for programs without filters.

/// Largest magnitude of a written logit, whose opacity rounds to 0 or 1 in single precision.
const LOGIT_MAX: f64 = 80.0;

/// Fuses 3D filters with the scales and opacities. `filter_3d` holds their standard deviations, `[n]`, world units
/// (Mip-Splatting, Yu et al. 2024, section 4.1).
///
/// The screen's filter is left out because it depends on the view.
pub fn fuse(gaussians: &mut Gaussians, filter_3d: &[f32]) {
    let scales = gaussians.log_scales.as_chunks_mut::<3>().0;
    for ((log_scale, logit), &filter) in
        scales.iter_mut().zip(&mut gaussians.opacity_logits).zip(filter_3d)
    {
        if filter <= 0.0 {
            continue;
        }
        let (wide, kept) = smoothed(log_scale.map(|l| f64::from(l).exp()), f64::from(filter));
        let opacity = sigmoid(f64::from(*logit)) * kept;
        let fused = inverse_sigmoid(opacity).clamp(-LOGIT_MAX, LOGIT_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the file's precision")]
        let (narrow, fused) = (wide.map(|scale| scale.ln() as f32), fused as f32);
        (*log_scale, *logit) = (narrow, fused);
    }
}

/// Deviation from 1 of a rounded unit quaternion's squared length: twice four half steps of 2^-24.
const UNIT_TOLERANCE: f64 = 5e-7;

/// Normalises a rotation. Rotations of unit length up to rounding keep their bits, so that reading and writing a
/// model changes nothing. A zero rotation, which reading refuses, stays, too.
pub fn unit_rotation(quat: [f32; 4]) -> [f32; 4] {
    let squared: f64 = quat.iter().map(|&part| f64::from(part).powi(2)).sum();
    if (squared - 1.0).abs() <= UNIT_TOLERANCE || squared == 0.0 {
        return quat;
    }
    let factor = squared.sqrt().recip();
    quat.map(|part| (f64::from(part) * factor).to_f32())
}

/// Normalises all rotations, as saving and reading a model does.
pub fn make_rotations_unit(gaussians: &mut Gaussians) {
    for quat in gaussians.quats.as_chunks_mut::<4>().0 {
        *quat = unit_rotation(*quat);
    }
}

// Surfels: Gaussians whose first two axes span a disc (2D Gaussian splatting, Huang et al. 2024). Drawing them as
// discs ignores the third scale, which keeps them flat in programs that draw Gaussians.

/// Thickness of thickened surfels, as a share of the smaller scale.
pub const THICKENED: f64 = 0.1;

/// Turns Gaussians into surfels by dropping the shortest axis. The other axes keep their directions and scales.
pub fn flatten(gaussians: &mut Gaussians) {
    let (scales, _) = gaussians.log_scales.as_chunks_mut::<3>();
    let (quats, _) = gaussians.quats.as_chunks_mut::<4>();
    for (scales, quat) in scales.iter_mut().zip(quats) {
        // The last of equal ones, so that most axes keep their order.
        let is_shortest = |axis: usize| scales.iter().all(|&other| scales[axis] <= other);
        let shortest = [2, 1, 0].into_iter().find(|&axis| is_shortest(axis)).unwrap_or(2);
        // Rotate the axes cyclically: a turn by a third about the diagonal.
        match shortest {
            0 => {
                scales.rotate_left(1);
                *quat = product(*quat, [0.5, 0.5, 0.5, 0.5]);
            }
            1 => {
                scales.rotate_left(2);
                *quat = product(*quat, [0.5, -0.5, -0.5, -0.5]);
            }
            _ => {}
        }
        scales[2] = FLAT_LOG_SCALE;
    }
}

/// Turns surfels into thin 3D Gaussians, thick enough that training can thicken them.
pub fn thicken(surfels: &mut Gaussians) {
    let share = f32::of(THICKENED.ln());
    let (scales, _) = surfels.log_scales.as_chunks_mut::<3>();
    scales.iter_mut().for_each(|[first, second, third]| *third = first.min(*second) + share);
}

/// Returns the quaternion of the rotation by `b` and then by `a`.
fn product([aw, ax, ay, az]: [f32; 4], [bw, bx, by, bz]: [f32; 4]) -> [f32; 4] {
    [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::{Mat3, rotation};

    fn numbered(sh_degree: u32, count: usize) -> Gaussians {
        let mut host = Gaussians::zeros(sh_degree, count);
        let mut value = 0.0;
        for v in host.groups_mut().into_iter().flatten() {
            value += 1.0;
            *v = value;
        }
        host
    }

    #[test]
    fn a_conversion_there_and_back_changes_only_the_last_digits_of_scales() {
        let before = numbered(1, 5);
        let mut after = before.clone();
        let [scene, training] =
            [Frame::of_file([1e6, -5.0, 0.0]), Frame { offset: [1e6, -5.0, 0.0], unit: 0.25 }];
        after.convert(&scene, &training);
        assert_eq!(after.means[..3], [4.0, 8.0, 12.0]);
        assert!((after.log_scales[0] - before.log_scales[0] - 4.0_f32.ln()).abs() < 1e-5);
        after.convert(&training, &scene);
        assert_eq!(after.means, before.means);
        assert!(after.log_scales.iter().zip(&before.log_scales).all(|(a, b)| (a - b).abs() < 1e-5));
        let mut surfel = Gaussians { log_scales: vec![1.0, 2.0, FLAT_LOG_SCALE], ..numbered(0, 1) };
        surfel.convert(&scene, &training);
        assert_eq!(surfel.log_scales[2..], [FLAT_LOG_SCALE]);
    }

    #[test]
    fn appended_parts_are_the_whole() {
        let whole = numbered(2, 7);
        let mut parts = whole.rows(0..3);
        parts.append(whole.rows(3..7));
        assert_eq!(parts, whole);
    }

    #[test]
    fn rows_are_copied_from_every_column() {
        let all = numbered(2, 7);
        let some = all.rows(2..5);
        for (part, whole) in some.groups().into_iter().zip(all.groups()) {
            assert_eq!(part.values, &whole.values[2 * whole.width..5 * whole.width]);
        }
        assert_eq!(all.rows(5..9), all.rows(5..7));
        assert!(all.rows(8..9).is_empty());
    }

    #[test]
    fn a_lower_degree_keeps_the_first_coefficients_of_every_row() {
        for (from, to) in [(3, 2), (3, 1), (3, 0), (2, 1), (1, 0)] {
            let before = numbered(from, 5);
            let mut after = before.clone();
            after.lower_sh_degree(to);
            let [wide, narrow] = [from, to].map(|degree| 3 * sh_rest_count(degree));
            assert_eq!((after.sh_degree, after.sh_rest.len()), (to, 5 * narrow));
            for row in 0..5 {
                let kept = &before.sh_rest[row * wide..][..narrow];
                assert_eq!(&after.sh_rest[row * narrow..][..narrow], kept, "{from} to {to}");
            }
            let sh_rest = before.sh_rest.clone();
            assert_eq!(Gaussians { sh_degree: from, sh_rest, ..after }, before);
        }
        let mut raised = numbered(1, 5);
        raised.set_sh_degree(3);
        assert_eq!((raised.sh_degree, raised.sh_rest.len()), (3, 5 * 45));
        assert_eq!(raised.sh_rest[45..54], numbered(1, 5).sh_rest[9..18]);
        assert!(raised.sh_rest[54..90].iter().all(|&c| c == 0.0));
        raised.set_sh_degree(1);
        assert_eq!(raised, numbered(1, 5));
        let mut same = numbered(1, 3);
        same.lower_sh_degree(3);
        assert_eq!(same, numbered(1, 3));
    }

    #[test]
    fn fused_values_are_finite_and_unfiltered_gaussians_stay() {
        let mut gaussians = Gaussians::zeros(0, 4);
        gaussians.log_scales =
            vec![-30.0, -30.0, -30.0, 5.0, 5.0, 5.0, -1.0, -2.0, -3.0, -1.0, -2.0, -3.0];
        gaussians.opacity_logits = vec![0.0, 90.0, 1.0, 1.0];
        let before = gaussians.clone();
        fuse(&mut gaussians, &[0.1, 1e-9, 0.0, 0.2]);
        let mut values = gaussians.opacity_logits.iter().chain(&gaussians.log_scales);
        assert!(values.all(|v| v.is_finite()));
        // A filter of 0.1 leaves nothing of scales of e^-30.
        assert_eq!(gaussians.opacity_logits[..2], [-80.0, 80.0]);
        assert_eq!(gaussians.log_scales[6..9], before.log_scales[6..9]);
        assert_eq!(gaussians.opacity_logits[2].to_bits(), 1.0_f32.to_bits());
        // √(s² + 0.2²), and the share Π s / √(s² + 0.2²) of the opacity.
        let mut kept = 1.0;
        for axis in 9..12 {
            let scale = f64::from(before.log_scales[axis]).exp();
            let wide = scale.hypot(f64::from(0.2_f32));
            kept *= scale / wide;
            assert!((f64::from(gaussians.log_scales[axis]).exp() - wide).abs() < 1e-6);
        }
        let opacity = sigmoid(f64::from(gaussians.opacity_logits[3]));
        assert!((opacity - sigmoid(1.0) * kept).abs() < 1e-6);
    }

    #[test]
    fn a_rotation_keeps_its_direction_and_has_unit_length() {
        let half = std::f32::consts::FRAC_1_SQRT_2;
        for (quat, unit) in [
            ([3.0, 0.0, 0.0, 4.0], [0.6, 0.0, 0.0, 0.8]),
            ([0.0, 1e-20, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]),
            ([-1e19, 0.0, 0.0, 1e19], [-half, 0.0, 0.0, half]),
            ([0.0; 4], [0.0; 4]),
        ] {
            assert_eq!(unit_rotation(quat), unit);
            assert_eq!(unit_rotation(unit), unit, "it stays");
        }
    }

    fn one(log_scales: [f32; 3], quat: [f32; 4]) -> Gaussians {
        let (log_scales, quats) = (log_scales.to_vec(), quat.to_vec());
        Gaussians { log_scales, quats, ..Gaussians::zeros(0, 1) }
    }

    /// Returns the log-scales and their axes as columns.
    fn axes(of: &Gaussians) -> ([f32; 3], Mat3<f32>) {
        (of.log_scales.as_chunks().0[0], rotation(of.quats.as_chunks().0[0]))
    }

    #[test]
    fn the_shortest_axis_becomes_the_third_and_the_others_stay() {
        for shortest in 0..3 {
            let mut scales = [-1.0, -2.0, -3.0];
            scales.swap(2, shortest);
            let mut model = one(scales, [0.3, -0.7, 1.1, 0.4]);
            let (_, before) = axes(&model);
            flatten(&mut model);
            let (found, after) = axes(&model);
            assert_eq!(found[2], FLAT_LOG_SCALE);
            let order = [[1, 2, 0], [2, 0, 1], [0, 1, 2]][shortest];
            for (to, from) in order.into_iter().enumerate() {
                for row in 0..3 {
                    let apart = (after[row][to] - before[row][from]).abs();
                    // Products of four roundings each.
                    assert!(apart < 1e-6, "{shortest}: {before:?} {after:?}");
                }
                assert!(to == 2 || found[to] == scales[from], "{shortest}: {found:?}");
            }
        }
    }

    #[test]
    fn flat_gaussians_keep_their_bits() {
        let flat = one([-4.0, -3.0, FLAT_LOG_SCALE], [0.3, -0.7, 1.1, 0.4]);
        let mut again = flat.clone();
        flatten(&mut again);
        assert_eq!(again, flat);
        let mut round = one([-4.0; 3], [0.3, -0.7, 1.1, 0.4]);
        flatten(&mut round);
        assert_eq!(round, one([-4.0, -4.0, FLAT_LOG_SCALE], [0.3, -0.7, 1.1, 0.4]));
    }

    #[test]
    fn thickened_surfels_are_a_tenth_of_their_smaller_side() {
        let mut model = one([-4.0, -3.0, FLAT_LOG_SCALE], [1.0, 0.0, 0.0, 0.0]);
        thicken(&mut model);
        // Rounding of logarithms.
        assert!((model.log_scales[2] - (-4.0 + 0.1_f32.ln())).abs() < 1e-6);
        assert_eq!(model.log_scales[..2], [-4.0, -3.0]);
    }
}
