//! Numbers in 16 and 8 bits, rounded at random so that on average nothing is lost: up with the
//! probability of what would be cut off. Twin of `kernels/compact.cuh`, bit for bit but for [`held_quotient`].
//!
//! Each encoder scales a float down to where single precision itself runs out of normal numbers at
//! the same place as the code: then the code, its denormal numbers included, is the upper bits of the
//! float, and rounding is the addition of random bits below them. Codes are in the upper bits of a
//! word. `random` is 32 bits of which the upper count; half of the range rounds to the nearest.

#[cfg(test)]
mod tests;

use super::Real;

/// Rounds to the nearest.
pub const NEAREST: u32 = 0x8000_0000;

const SIGN: u32 = 0x8000_0000;
const UPPER_16: u32 = 0xffff_0000;
const UPPER_8: u32 = 0xff00_0000;

/// Largest number of 16 bits.
pub const HALF_MAX: f32 = 65_504.0;

/// Largest share of its scale that a code of 8 bits holds.
pub const CODE_MAX: f32 = 0.9375;

/// From where the formats' exponents lie to where those of single precision do: 2^-112, 2^-111 and
/// 2^-95.
const HALF_DOWN: f32 = power_of_two(-112);
const FIRST_DOWN: f32 = power_of_two(-111);
const SECOND_DOWN: f32 = power_of_two(-95);

/// Exponents of normal numbers only.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((127 + exponent).cast_unsigned() << 23)
}

/// The next random word of one Gaussian in one step; the first is `rounding_seed`. A linear
/// congruence: the upper bits are good enough for rounding, and a word costs a multiplication.
pub const fn roll(dice: &mut u32) -> u32 {
    *dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *dice
}

/// The bits of `sign` and `size`, the upper 31 of which lie below the sign.
const fn signed_bits(sign: f32, size: u32) -> u32 {
    (sign.to_bits() & SIGN) | (size & !SIGN)
}

/// IEEE half precision in the upper 16 bits; values that are too large, and NaN, become infinite.
pub fn encode_half(value: f32, random: u32) -> u32 {
    let size = (value.abs() * HALF_DOWN).min(power_of_two(-96));
    signed_bits(value, (size.to_bits() + (random >> 19)) << 3) & UPPER_16
}

/// Of the lower half of a word, or the upper.
pub const fn decode_half(word: u32, upper: u32) -> f32 {
    let half = if upper == 0 { word & 0xffff } else { word >> 16 };
    let (exponent, mantissa) = (half >> 10 & 0x1f, half & 0x3ff);
    let sign = half >> 15 << 31;
    if exponent == 0x1f {
        return f32::from_bits(sign | 0x7f80_0000 | mantissa << 13);
    }
    // 2^112 brings the exponent to where it is in single precision; denormal numbers become normal.
    f32::from_bits(sign | exponent << 23 | mantissa << 13) / HALF_DOWN
}

/// The upper 16 bits of single precision.
pub const fn encode_bfloat(value: f32, random: u32) -> u32 {
    let bits = value.to_bits();
    (if value.is_nan() { bits } else { bits + (random >> 16) }) & UPPER_16
}

/// Of the lower half of a word, or the upper.
pub const fn decode_bfloat(word: u32, upper: u32) -> f32 {
    f32::from_bits(if upper == 0 { word << 16 } else { word & UPPER_16 })
}

/// The lower half of a word, or the upper, becomes the upper 16 bits of `code`.
pub const fn with_half(word: u32, upper: u32, code: u32) -> u32 {
    if upper == 0 { (word & UPPER_16) | code >> 16 } else { (word & !UPPER_16) | (code & UPPER_16) }
}

/// A share of at most [`CODE_MAX`] either way, in the upper 8 bits: sign, 4 bits of exponent and 3
/// of mantissa; down to 2^-15 normal, to 2^-18 at all.
pub fn encode_first(share: f32, random: u32) -> u32 {
    let size = share.abs().min(CODE_MAX) * FIRST_DOWN;
    signed_bits(share, (size.to_bits() + (random >> 12)) << 4) & UPPER_8
}

/// Of byte `at` of a word.
pub const fn decode_first(word: u32, at: u32) -> f32 {
    let upper = (word << (24 - 8 * at)).cast_signed();
    f32::from_bits((upper >> 4).cast_unsigned() & 0x87f0_0000) / FIRST_DOWN
}

/// A share from 0 to [`CODE_MAX`] in the upper 8 bits: 5 bits of exponent and 3 of mantissa; down
/// to 2^-31 normal, to 2^-34 at all. Only 0 becomes 0: a quotient by the root of a second moment
/// that was rounded away would be far too large.
pub fn encode_second(share: f32, random: u32) -> u32 {
    let size = share.min(CODE_MAX);
    let least = size.to_bits().min(1) << 20;
    (((size * SECOND_DOWN).to_bits() + (random >> 12)).max(least) << 4) & UPPER_8
}

/// Of byte `at` of a word.
pub const fn decode_second(word: u32, at: u32) -> f32 {
    f32::from_bits((word >> (8 * at) & 0xff) << 20) / SECOND_DOWN
}

/// Byte `at` of a word becomes the upper 8 bits of `code`.
pub const fn with_byte(word: u32, at: u32, code: u32) -> u32 {
    (word & !(0xff << (8 * at))) | (code >> 24) << (8 * at)
}

/// A scale to 20 bits, so that its product with a code is exact; denormal numbers become 0.
pub const fn rounded_scale(scale: f32) -> f32 {
    let rounded = f32::from_bits(scale.to_bits().wrapping_add(8) & !15);
    if rounded < f32::MIN_POSITIVE { 0.0 } else { rounded }
}

/// 1 / scale; 0 of none.
pub const fn inverse_scale(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// What no |m| / √v of Adam can exceed before bias correction (Cauchy and Schwarz):
/// `(1 - β₁) Σ β₁^i |g_i|` against `√((1 - β₂) Σ β₂^i g_i²)` is at most
/// (1 - β₁) / √((1 - β₂) (1 - β₁² / β₂)), which is 7.2703. Moments of 8 bits are held to it: rounding must
/// not make a step that no gradients could.
pub const QUOTIENT_MAX: f32 = 7.2704;

/// The unit of [`held_quotient`].
pub const HELD_UNIT: f32 = 2.0 * QUOTIENT_MAX;

/// m / √v, held to [`QUOTIENT_MAX`] either way, in units of [`HELD_UNIT`]. A root below 1e-15 counts as that.
pub fn held_quotient<R: Real>(first: R, second: R) -> R {
    let (half, unit) = (R::of(0.5), R::of_f32(HELD_UNIT));
    let root = (second + R::of(1e-30)).sqrt() * unit;
    // As a GPU holds it, by a sum that saturates: what that rounds away is lost here, too.
    (first / root + half).max(R::ZERO).min(R::ONE) - half
}
