//! How SPZ stores each kind of value.

use std::ops::RangeInclusive;

use crate::quaternion::{SmallestThree, UnitQuat, normalised};
use splat_mesh::narrow::{round_i32, round_u8, round_u32, to_f32};

/// The share of a unit of colour that the coefficient of degree 0 is stored with.
const COLOR_SCALE: f64 = 0.15;

/// Positions have 24 bits with sign.
pub(super) const MOST_POSITION: i32 = (1 << 23) - 1;

/// Bits of the parts of a rotation, without sign.
const PART_BITS: u32 = 9;
const MOST_PART: u32 = (1 << PART_BITS) - 1;

/// The bits of a fraction, 4 to 16, that leave room for a coordinate of this size.
pub(super) fn fraction_bits(farthest: f64) -> u8 {
    let fits = |bits: u8| farthest * f64::from(1_u32 << bits) <= f64::from(MOST_POSITION);
    (4..=16).rev().find(|&bits| fits(bits)).unwrap_or(4)
}

pub(super) fn pack_coordinate(x: f32, fraction_bits: u8) -> [u8; 3] {
    let fixed = round_i32(f64::from(x) * f64::from(1_u32 << fraction_bits));
    let [low, middle, high, _] = fixed.clamp(-MOST_POSITION - 1, MOST_POSITION).to_le_bytes();
    [low, middle, high]
}

pub(super) fn unpack_coordinate(bytes: [u8; 3], fraction_bits: u8) -> f32 {
    let [low, middle, high] = bytes;
    // The sign stands in the top byte of the word, and is kept by the shift.
    let fixed = i32::from_le_bytes([0, low, middle, high]) >> 8;
    to_f32(f64::from(fixed) / f64::from(1_u32 << fraction_bits))
}

pub(super) fn pack_color(coefficient: f32) -> u8 {
    round_u8((COLOR_SCALE * f64::from(coefficient) + 0.5) * 255.0)
}

pub(super) fn unpack_color(byte: u8) -> f32 {
    to_f32((f64::from(byte) / 255.0 - 0.5) / COLOR_SCALE)
}

/// The least logarithm of a scale: smaller ones are stored as this.
pub(crate) const LEAST_SPZ_LOG_SCALE: f32 = -10.0;

/// Logarithms of scales that are stored within half a step.
pub const SPZ_LOG_SCALES: RangeInclusive<f32> =
    LEAST_SPZ_LOG_SCALE - 0.5 / 16.0..=LEAST_SPZ_LOG_SCALE + 255.5 / 16.0;

pub(super) fn pack_scale(log_scale: f32) -> u8 {
    round_u8((f64::from(log_scale) - f64::from(LEAST_SPZ_LOG_SCALE)) * 16.0)
}

pub(super) fn unpack_scale(byte: u8) -> f32 {
    f32::from(byte) / 16.0 + LEAST_SPZ_LOG_SCALE
}

/// A coefficient in 256 steps of 1/128 around 128, and of these every `step`th.
pub(super) fn pack_harmonic(coefficient: f32, step: u8) -> u8 {
    let step = f64::from(step);
    let rounded = ((f64::from(coefficient) * 128.0 + 128.0) / step).round() * step;
    round_u8(rounded.clamp(0.0, 256.0 - step))
}

pub(super) fn unpack_harmonic(byte: u8) -> f32 {
    (f32::from(byte) - 128.0) / 128.0
}

/// Two bits tell the largest of x, y, z, w; the others take a sign and nine bits each.
pub(super) fn pack_rotation([w, x, y, z]: UnitQuat) -> [u8; 4] {
    let SmallestThree { largest, others } = SmallestThree::of([x, y, z, w]);
    let index = [0_u32, 1, 2, 3][largest];
    let word = others.iter().fold(index, |word, &part| {
        let size = round_u32(f64::from(MOST_PART) * part.abs() * std::f64::consts::SQRT_2);
        let sign = u32::from(part < 0.0);
        word << (PART_BITS + 1) | sign << PART_BITS | size.min(MOST_PART)
    });
    word.to_le_bytes()
}

pub(super) fn unpack_rotation(bytes: [u8; 4]) -> UnitQuat {
    let word = u32::from_le_bytes(bytes);
    let others = [20, 10, 0].map(|shift| {
        let part = word >> shift;
        let size = f64::from(part & MOST_PART) / f64::from(MOST_PART);
        let size = size * std::f64::consts::FRAC_1_SQRT_2;
        if part >> PART_BITS & 1 == 0 { size } else { -size }
    });
    let [x, y, z, w] = SmallestThree { largest: (word >> 30) as usize, others }.quat();
    unit([w, x, y, z])
}

/// x, y, z around 127.5, w not negative.
pub(super) fn unpack_old_rotation(bytes: [u8; 3]) -> UnitQuat {
    let [x, y, z] = bytes.map(|byte| f64::from(byte) / 127.5 - 1.0);
    let w = (1.0 - x * x - y * y - z * z).max(0.0).sqrt();
    unit([w, x, y, z].map(to_f32))
}

fn unit(quat: UnitQuat) -> UnitQuat {
    normalised(quat, 0.0).unwrap_or([1.0, 0.0, 0.0, 0.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_keep_their_sign_and_their_ends() {
        for (x, bytes) in [(1.0, [0, 16, 0]), (-1.0, [0, 240, 255]), (-2048.0, [0, 0, 128])] {
            assert_eq!(pack_coordinate(x, 12), bytes);
            assert_eq!(unpack_coordinate(bytes, 12), x);
        }
        assert_eq!(pack_coordinate(1e9, 12), [255, 255, 127]);
    }

    #[test]
    fn a_harmonic_of_zero_is_exactly_zero_whatever_its_bits() {
        for step in [1, 2, 4, 8, 16] {
            assert_eq!(unpack_harmonic(pack_harmonic(0.0, step)), 0.0);
        }
        assert_eq!((pack_harmonic(9.0, 1), pack_harmonic(-9.0, 1)), (255, 0));
        assert_eq!(pack_harmonic(9.0, 16), 240);
    }
}
