//! Numbers that become narrower: rounded where they are real, saturating where they do not fit.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` rounds and saturates, as the contracts say"
)]

use crate::mesh::Vec3;

/// Returns the nearest f32.
#[inline]
pub const fn to_f32(x: f64) -> f32 {
    x as f32
}

/// Returns the nearest f32 of each.
#[inline]
pub const fn to_f32s(x: Vec3) -> [f32; 3] {
    [to_f32(x[0]), to_f32(x[1]), to_f32(x[2])]
}

/// Returns each as an f64.
#[inline]
pub fn to_f64s(x: [f32; 3]) -> Vec3 {
    x.map(f64::from)
}

/// Returns the largest whole number that is not above `x`; NaN is 0.
#[inline]
pub fn floor_i32(x: f64) -> i32 {
    x.floor() as i32
}

/// Returns the largest whole number that is not above `x`, not below 0; NaN is 0.
#[inline]
pub fn floor_u32(x: f64) -> u32 {
    x as u32
}

/// Returns a count or index as 32 bits; the largest if it does not fit.
#[inline]
pub fn to_u32(x: usize) -> u32 {
    u32::try_from(x).unwrap_or(u32::MAX)
}

/// Returns a small number that is not negative as an index; a negative one is 0.
#[inline]
pub const fn to_index(x: i32) -> usize {
    if x < 0 { 0 } else { x.unsigned_abs() as usize }
}

/// Returns the nearest byte; NaN is 0.
#[inline]
pub fn round_u8(x: f64) -> u8 {
    x.round() as u8
}

/// Returns the nearest of 16 bits; NaN is 0.
#[inline]
pub fn round_u16(x: f64) -> u16 {
    x.round() as u16
}

/// Returns the nearest of 32 bits; NaN is 0.
#[inline]
pub fn round_u32(x: f64) -> u32 {
    x.round() as u32
}

/// Returns the nearest of 32 bits with sign; NaN is 0.
#[inline]
pub fn round_i32(x: f64) -> i32 {
    x.round() as i32
}

/// Returns the largest whole number that is not above `x`, not below 0; NaN is 0.
#[inline]
pub fn floor_usize(x: f64) -> usize {
    x as usize
}

/// Returns the lowest 8 bits.
#[inline]
pub const fn low_byte(x: u32) -> u8 {
    x.to_le_bytes()[0]
}

/// Returns a number of 16 bits as IEEE 754 has it.
pub fn half(bits: u16) -> f32 {
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f64::from(bits & 1023);
    let size = match exponent {
        0 => fraction * 2.0_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
    };
    to_f32(if bits >> 15 == 0 { size } else { -size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_the_standard() {
        let known = [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65_504.0), (1, 5.960_464_5e-8)];
        for (bits, value) in known {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }
}
