//! Rotations of unit length, as other programs want them in a file.

use super::Gaussians;
use crate::math::Real as _;

/// How far from 1 rounding leaves the squared length of a unit quaternion: twice four half steps of 2^-24.
const UNIT_TOLERANCE: f64 = 5e-7;

/// The same rotation at unit length. What has it, but for rounding, stays as it is, so that a model that is
/// read and written again is the same; so does one without a direction, which is refused when it is read.
pub fn unit_rotation(quat: [f32; 4]) -> [f32; 4] {
    let squared: f64 = quat.iter().map(|&part| f64::from(part).powi(2)).sum();
    if (squared - 1.0).abs() <= UNIT_TOLERANCE || squared == 0.0 {
        return quat;
    }
    let factor = squared.sqrt().recip();
    quat.map(|part| (f64::from(part) * factor).to_f32())
}

/// Gives all rotations unit length, as a model has them that was saved and read.
pub fn make_rotations_unit(gaussians: &mut Gaussians) {
    for quat in gaussians.quats.as_chunks_mut::<4>().0 {
        *quat = unit_rotation(*quat);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
