//! How SOG stores places and rotations.

use crate::quaternion::{SmallestThree, UnitQuat, normalised};
use splat_mesh::narrow::{round_u8, round_u16, to_f32};

/// The alpha of a rotation whose largest part is w; x, y and z follow.
const FIRST_LARGEST: u8 = 252;

/// A coordinate in the space where places are stored, in which far ones lie closer.
pub(super) fn squeezed(x: f32) -> f64 {
    f64::from(x).abs().ln_1p().copysign(x.into())
}

fn spread(x: f64) -> f32 {
    to_f32(x.abs().exp_m1().copysign(x))
}

/// The range of one squeezed coordinate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SqueezedRange {
    pub(super) low: f32,
    pub(super) high: f32,
}

impl SqueezedRange {
    /// The range as the file has it, which holds all that it is made of.
    pub(super) fn of(values: impl Iterator<Item = f32>) -> Self {
        let empty = [f64::INFINITY, f64::NEG_INFINITY];
        let [low, high] =
            values.map(squeezed).fold(empty, |[low, high], x| [low.min(x), high.max(x)]);
        if low > high {
            return Self { low: 0.0, high: 0.0 };
        }
        Self { low: to_f32(low), high: to_f32(high) }
    }

    /// The nearest of 65,536 steps.
    pub(super) fn pack(&self, x: f32) -> u16 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let share = if high > low { (squeezed(x) - low) / (high - low) } else { 0.0 };
        round_u16(65_535.0 * share)
    }

    pub(super) fn unpack(&self, step: u16) -> f32 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        spread(low + (high - low) * f64::from(step) / 65_535.0)
    }
}

/// The three smaller parts of a rotation, and which is missing.
pub(super) fn pack_rotation(rotation: UnitQuat) -> [u8; 4] {
    let SmallestThree { largest, others } = SmallestThree::of(rotation);
    let [a, b, c] =
        others.map(|part| round_u8(255.0 * (part * std::f64::consts::FRAC_1_SQRT_2 + 0.5)));
    [a, b, c, FIRST_LARGEST + [0, 1, 2, 3][largest]]
}

/// The rotation; none where alpha tells no missing part.
pub(super) fn unpack_rotation([a, b, c, alpha]: [u8; 4]) -> Option<UnitQuat> {
    let largest = usize::from(alpha.checked_sub(FIRST_LARGEST)?);
    let others = [a, b, c].map(|byte| (f64::from(byte) / 255.0 - 0.5) * std::f64::consts::SQRT_2);
    normalised(SmallestThree { largest, others }.quat(), 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_half_a_step() {
        let places = [-9.0_f32, -0.01, 0.0, 3.0, 250.0];
        let range = SqueezedRange::of(places.into_iter());
        assert!((range.high - 251.0_f32.ln()).abs() < 1e-6);
        for x in places {
            let back = range.unpack(range.pack(x));
            // Half a step, in the space where it is one, is so many times that in the scene.
            let step = f64::from(range.high - range.low) / 65_535.0;
            let bound = (0.5 * step * (1.0 + f64::from(x).abs())) * 1.01 + 1e-5;
            assert!((f64::from(x) - f64::from(back)).abs() <= bound, "{x} {back}");
        }
        let one = SqueezedRange::of([2.5, 2.5].into_iter());
        assert!((one.unpack(one.pack(2.5)) - 2.5).abs() < 1e-6);
    }

    #[test]
    fn rotations_name_their_largest_part() {
        assert_eq!(pack_rotation([1.0, 0.0, 0.0, 0.0])[3], 252);
        assert_eq!(pack_rotation([0.0, 0.0, 0.0, -1.0])[3], 255);
        assert_eq!(unpack_rotation([128, 128, 128, 251]), None);
        let back = unpack_rotation(pack_rotation([0.5, 0.5, -0.5, 0.5])).unwrap();
        // Half of √2/255, for three parts and thrice for the fourth: 2 √12 x 0.0028 rad.
        assert!(crate::quaternion::angle_degrees(back, [0.5, 0.5, -0.5, 0.5]) < 1.1);
    }
}
