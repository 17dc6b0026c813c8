//! Numbers that become narrower: rounded where they are real, saturating where they do not fit.

use crate::mesh::Vec3;

/// The nearest f32.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "rounded to the storage's precision")]
pub const fn to_f32(x: f64) -> f32 {
    x as f32
}

/// The nearest f32 of each.
#[inline]
pub const fn to_f32s(x: Vec3) -> [f32; 3] {
    [to_f32(x[0]), to_f32(x[1]), to_f32(x[2])]
}

/// Each as an f64.
#[inline]
pub fn to_f64s(x: [f32; 3]) -> Vec3 {
    x.map(f64::from)
}

/// The largest whole number that is not above `x`; NaN is 0.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, as the contract says")]
pub fn floor_i32(x: f64) -> i32 {
    x.floor() as i32
}

/// The largest whole number that is not above `x`, not below 0; NaN is 0.
#[inline]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub fn floor_u32(x: f64) -> u32 {
    x as u32
}

/// A count or index as 32 bits; what does not fit is the largest.
#[inline]
pub fn to_u32(x: usize) -> u32 {
    u32::try_from(x).unwrap_or(u32::MAX)
}

/// A small number that is not negative as an index; a negative one is 0.
#[inline]
pub const fn to_index(x: i32) -> usize {
    if x < 0 { 0 } else { x.unsigned_abs() as usize }
}
