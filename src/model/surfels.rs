//! Surfels: Gaussians whose first two axes span a disc (2D Gaussian splatting, Huang et al. 2024).
//!
//! Drawing them as discs ignores the third scale, which keeps them flat in programs that draw Gaussians.

use super::Gaussians;
use super::gaussians::FLAT_LOG_SCALE;
use crate::math::Real;

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

    fn one(log_scales: [f32; 3], quat: [f32; 4]) -> Gaussians {
        let mut one = Gaussians::zeros(0, 1);
        one.log_scales = log_scales.to_vec();
        one.quats = quat.to_vec();
        one
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
