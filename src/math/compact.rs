//! Formats of 16 and 8 bits with stochastic rounding: up with the probability of the fraction that is cut off, so
//! that the mean is exact. Twin of `kernels/compact.cuh`, identical bit for bit except in [`held_quotient`].
//!
//! Each encoder scales a float down so that the smallest normal number of single precision falls on that of the
//! format. The code, denormal numbers included, is then in the upper bits of the float, and rounding adds random bits
//! below. Codes are in the upper bits of a word. The upper bits of the 32 of `random` count; half of the range
//! rounds to nearest.

use super::Real;

/// Random bits that round to nearest.
pub const NEAREST: u32 = 0x8000_0000;

const SIGN: u32 = 0x8000_0000;

const UPPER_16: u32 = 0xffff_0000;

const UPPER_8: u32 = 0xff00_0000;

/// Largest finite number of the 16-bit format.
pub const HALF_MAX: f32 = 65_504.0;

/// Largest share of its scale that an 8-bit code represents.
pub const CODE_MAX: f32 = 0.9375;

/// Factors between the exponents of single precision and of the formats.
const HALF_DOWN: f32 = power_of_two(-112);

const FIRST_DOWN: f32 = power_of_two(-111);

const SECOND_DOWN: f32 = power_of_two(-95);

/// Returns a power of two, for exponents of normal numbers.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((127 + exponent).cast_unsigned() << 23)
}

/// Returns the next random word of one Gaussian in one step; `rounding_seed` gives the first. The linear congruential
/// generator is good enough for rounding, which uses the upper bits.
pub const fn roll(dice: &mut u32) -> u32 {
    *dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *dice
}

/// Returns the sign of `sign` with the lower 31 bits of `size`.
const fn signed_bits(sign: f32, size: u32) -> u32 {
    (sign.to_bits() & SIGN) | (size & !SIGN)
}

/// Encodes IEEE half precision in the upper 16 bits. Values that are too large, and NaN, become infinite.
pub fn encode_half(value: f32, random: u32) -> u32 {
    let size = (value.abs() * HALF_DOWN).min(power_of_two(-96));
    signed_bits(value, (size.to_bits() + (random >> 19)) << 3) & UPPER_16
}

/// Decodes the lower (`upper` 0) or upper half of a word from half precision.
pub const fn decode_half(word: u32, upper: u32) -> f32 {
    let half = if upper == 0 { word & 0xffff } else { word >> 16 };
    let (exponent, mantissa) = (half >> 10 & 0x1f, half & 0x3ff);
    let sign = half >> 15 << 31;
    if exponent == 0x1f {
        return f32::from_bits(sign | 0x7f80_0000 | mantissa << 13);
    }
    // Divided by 2^-112, the exponent is that of single precision, and denormal numbers become normal.
    f32::from_bits(sign | exponent << 23 | mantissa << 13) / HALF_DOWN
}

/// Encodes a value as the upper 16 bits of single precision.
pub const fn encode_bfloat(value: f32, random: u32) -> u32 {
    let bits = value.to_bits();
    (if value.is_nan() { bits } else { bits + (random >> 16) }) & UPPER_16
}

/// Decodes the lower (`upper` 0) or upper half of a word from bfloat16.
pub const fn decode_bfloat(word: u32, upper: u32) -> f32 {
    f32::from_bits(if upper == 0 { word << 16 } else { word & UPPER_16 })
}

/// Returns a word whose lower (`upper` 0) or upper half is replaced by the upper 16 bits of `code`.
pub const fn with_half(word: u32, upper: u32, code: u32) -> u32 {
    if upper == 0 { (word & UPPER_16) | code >> 16 } else { (word & !UPPER_16) | (code & UPPER_16) }
}

/// Encodes a share in ±[`CODE_MAX`] in the upper 8 bits: sign, 4 bits of exponent, 3 of mantissa. Normal down to
/// 2^-15, smallest 2^-18.
pub fn encode_first(share: f32, random: u32) -> u32 {
    let size = share.abs().min(CODE_MAX) * FIRST_DOWN;
    signed_bits(share, (size.to_bits() + (random >> 12)) << 4) & UPPER_8
}

/// Decodes byte `at` of a word from the format of [`encode_first`].
pub const fn decode_first(word: u32, at: u32) -> f32 {
    let upper = (word << (24 - 8 * at)).cast_signed();
    f32::from_bits((upper >> 4).cast_unsigned() & 0x87f0_0000) / FIRST_DOWN
}

/// Encodes a share from 0 to [`CODE_MAX`] in the upper 8 bits: 5 bits of exponent, 3 of mantissa. Normal down to 2^-31,
/// smallest 2^-34. Only 0 becomes 0, because a quotient by the root of a vanished second moment would be far too large.
pub fn encode_second(share: f32, random: u32) -> u32 {
    let size = share.min(CODE_MAX);
    let least = size.to_bits().min(1) << 20;
    (((size * SECOND_DOWN).to_bits() + (random >> 12)).max(least) << 4) & UPPER_8
}

/// Decodes byte `at` of a word from the format of [`encode_second`].
pub const fn decode_second(word: u32, at: u32) -> f32 {
    f32::from_bits((word >> (8 * at) & 0xff) << 20) / SECOND_DOWN
}

/// Returns a word whose byte `at` is replaced by the upper 8 bits of `code`.
pub const fn with_byte(word: u32, at: u32, code: u32) -> u32 {
    (word & !(0xff << (8 * at))) | (code >> 24) << (8 * at)
}

/// Rounds a scale to 20 bits, so that its product with a code is exact. Denormal numbers become 0.
pub const fn rounded_scale(scale: f32) -> f32 {
    let rounded = f32::from_bits(scale.to_bits().wrapping_add(8) & !15);
    if rounded < f32::MIN_POSITIVE { 0.0 } else { rounded }
}

/// Returns 1 / `scale`; 0 if `scale` is not positive.
pub const fn inverse_scale(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// Upper bound of Adam's |m| / √v before bias correction (Cauchy-Schwarz): (1 - β₁) / √((1 - β₂) (1 - β₁² / β₂)) =
/// 7.2703. Quotients of 8-bit moments are clamped to it, because rounding must not make a step larger than any
/// gradients could.
pub const QUOTIENT_MAX: f32 = 7.2704;

/// The unit of [`held_quotient`].
pub const HELD_UNIT: f32 = 2.0 * QUOTIENT_MAX;

/// Returns m / √v, clamped to ±[`QUOTIENT_MAX`], in units of [`HELD_UNIT`]. 1e-30 is added under the root.
pub fn held_quotient<R: Real>(first: R, second: R) -> R {
    let (half, unit) = (R::of(0.5), R::of_f32(HELD_UNIT));
    let root = (second + R::of(1e-30)).sqrt() * unit;
    // A GPU clamps by a saturating sum; its rounding is repeated here.
    (first / root + half).max(R::ZERO).min(R::ONE) - half
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::math::adam::{BETA_1, BETA_2};
    use crate::math::random::{RandomStream, RandomUse};

    /// Functions and range of an 8-bit format.
    struct Code {
        encode: fn(f32, u32) -> u32,
        decode: fn(u32, u32) -> f32,
        /// Smallest normal share, and the largest step below it.
        normal: f32,
        step: f32,
    }

    const FIRST: Code = Code {
        encode: encode_first,
        decode: decode_first,
        normal: power_of_two(-15),
        step: power_of_two(-18),
    };

    const SECOND: Code = Code {
        encode: encode_second,
        decode: decode_second,
        normal: power_of_two(-31),
        step: power_of_two(-34),
    };

    impl Code {
        fn rounded(&self, share: f32, random: u32) -> f32 {
            (self.decode)((self.encode)(share, random), 3)
        }
    }

    fn half(value: f32, random: u32) -> f32 {
        decode_half(encode_half(value, random), 1)
    }

    fn bfloat(value: f32, random: u32) -> f32 {
        decode_bfloat(encode_bfloat(value, random), 1)
    }

    /// Returns the mean over all patterns of the upper `bits` random bits.
    fn mean(bits: u32, rounded: impl Fn(u32) -> f32) -> f64 {
        let draws = (0..1_u32 << bits).map(|i| f64::from(rounded(i << (32 - bits))));
        draws.sum::<f64>() / f64::from(1_u32 << bits)
    }

    /// Returns numbers of both signs with sizes between two powers of two.
    fn sized(least: i32, most: i32) -> impl Strategy<Value = f32> {
        (least..most, 1.0_f32..2.0, any::<bool>()).prop_map(|(exponent, mantissa, negative)| {
            let size = mantissa * power_of_two(exponent);
            if negative { -size } else { size }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Over all random words the mean is the number, to a 2^13th of a step (bfloat: 2^20th).
        #[test]
        fn the_mean_of_a_half_is_the_number(value in sized(-26, 15)) {
            let step = (value.abs() * power_of_two(-10)).max(power_of_two(-24));
            let error = mean(13, |random| half(value, random)) - f64::from(value);
            prop_assert!(error.abs() <= f64::from(step) / 8192.0, "{value}: {error}");
        }

        #[test]
        fn the_mean_of_a_bfloat_is_the_number(value in sized(-60, 20)) {
            let error = mean(16, |random| bfloat(value, random)) - f64::from(value);
            prop_assert!(error.abs() <= f64::from(value.abs()) / f64::from(1 << 23));
        }

        /// Second moments below the smallest code become that code, so only those above have an exact mean.
        #[test]
        fn the_mean_of_a_code_is_the_share(first in sized(-20, -1), second in 0.01_f32..0.93) {
            for (code, share) in [(FIRST, first * 0.93), (SECOND, second), (SECOND, second * 1e-8)] {
                let step = f64::from((share.abs() / 8.0).max(code.step));
                let error = mean(16, |random| code.rounded(share, random)) - f64::from(share);
                prop_assert!(error.abs() <= step / 32768.0, "{share}: {error}");
            }
        }

        #[test]
        fn nearest_is_within_half_a_step(value in sized(-30, 15), share in sized(-40, -1)) {
            let step = (value.abs() * power_of_two(-10)).max(power_of_two(-24));
            prop_assert!((half(value, NEAREST) - value).abs() <= step / 2.0);
            prop_assert!((bfloat(value, NEAREST) - value).abs() <= value.abs() / 256.0);
            let share = share.clamp(-CODE_MAX, CODE_MAX);
            let error = (FIRST.rounded(share, NEAREST) - share).abs();
            prop_assert!(error <= (share.abs() / 8.0).max(FIRST.step) / 2.0);
            let share = share.abs();
            let error = (SECOND.rounded(share, NEAREST) - share).abs();
            // Values other than zero do not become zero.
            let step = (share / 8.0).max(SECOND.step) / 2.0;
            prop_assert!(error <= step || share < SECOND.step, "{share}: {error}");
        }

        #[test]
        fn rounding_keeps_the_order_and_the_sign(
            a in sized(-40, 17), b in sized(-40, 17), random in any::<u32>(),
        ) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(half(low, random) <= half(high, random) || low * high < 0.0);
            prop_assert!(half(a, random).is_sign_negative() == a.is_sign_negative());
            prop_assert!(bfloat(low, random) <= bfloat(high, random) || low * high < 0.0);
            let (low, high) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
            prop_assert!(FIRST.rounded(low, random) <= FIRST.rounded(high, random));
            prop_assert!(SECOND.rounded(low, random) <= SECOND.rounded(high, random));
            prop_assert!(FIRST.rounded(a, random).is_sign_negative() == a.is_sign_negative());
        }

        #[test]
        fn decoded_values_encode_to_themselves(word in any::<u32>(), random in any::<u32>()) {
            for upper in 0..2 {
                let value = decode_half(word, upper);
                if value.is_finite() {
                    prop_assert_eq!(half(value, random).to_bits(), value.to_bits());
                }
                let value = decode_bfloat(word, upper);
                if value.is_finite() {
                    prop_assert_eq!(bfloat(value, random).to_bits(), value.to_bits());
                }
            }
            for code in [FIRST, SECOND] {
                for at in 0..4 {
                    let share = (code.decode)(word, at);
                    prop_assert!(share.abs() <= CODE_MAX);
                    prop_assert_eq!(code.rounded(share, random).to_bits(), share.to_bits());
                }
            }
        }

        /// The product of a scale and a code is exact, so that decoded moments can be encoded again.
        #[test]
        fn the_product_of_a_scale_and_a_code_is_exact(scale in sized(-80, 60), word in any::<u32>()) {
            let scale = rounded_scale(scale.abs());
            for share in [decode_first(word, 1), decode_second(word, 2)] {
                prop_assert_eq!(f64::from(share * scale), f64::from(share) * f64::from(scale));
            }
        }

        #[test]
        fn rounded_scale_is_within_a_two_millionth(scale in sized(-120, 100)) {
            let error = (rounded_scale(scale.abs()) / scale.abs() - 1.0).abs();
            prop_assert!(error <= power_of_two(-20));
        }
    }

    #[test]
    fn halves_match_ieee() {
        // 1, its neighbour, the largest, the smallest normal, the smallest denormal.
        let halves = [0x3c00, 0x3c01, 0x7bff, 0x0400, 0x0001, 0x8000, 0xc000];
        let values = [1.0, 1.0 + power_of_two(-10), HALF_MAX, power_of_two(-14)];
        let values = values.into_iter().chain([power_of_two(-24), -0.0, -2.0]);
        for (half, value) in halves.into_iter().zip(values) {
            assert_eq!(decode_half(half, 0).to_bits(), value.to_bits(), "{half:x}");
            assert_eq!(encode_half(value, NEAREST) >> 16, half, "{value}");
            assert_eq!(encode_half(value, u32::MAX) >> 16, half, "{value}");
        }
        for too_large in [65_536.0, 1e30, f32::INFINITY, f32::NAN] {
            assert!(half(too_large, 0).is_infinite());
        }
        assert!(half(-1e30, 0).is_infinite() && half(-1e30, 0) < 0.0);
        assert!(bfloat(f32::NAN, u32::MAX).is_nan());
    }

    #[test]
    fn only_zero_encodes_to_zero() {
        for random in [0, NEAREST, u32::MAX] {
            assert_eq!(encode_half(0.0, random), 0);
            assert_eq!(encode_bfloat(0.0, random), 0);
            assert_eq!(encode_first(0.0, random), 0);
            assert_eq!(encode_second(0.0, random), 0);
        }
        assert_eq!(SECOND.rounded(1e-30, 0), SECOND.step);
        assert_eq!(SECOND.rounded(f32::from_bits(1), 0), SECOND.step);
        assert_eq!(FIRST.rounded(1e-30, 0), 0.0);
    }

    #[test]
    fn codes_cover_their_range() {
        for code in [FIRST, SECOND] {
            for share in [CODE_MAX, 1.0, 1e9, f32::INFINITY] {
                assert_eq!(code.rounded(share, u32::MAX), CODE_MAX);
            }
            // Three bits of mantissa: neighbouring normal shares are at most an eighth apart.
            let mut shares: Vec<f32> = (0..=255).map(|code_| (code.decode)(code_, 0)).collect();
            shares.retain(|share| share.is_sign_positive());
            shares.sort_by(f32::total_cmp);
            for pair in shares.windows(2) {
                let apart = pair[1] - pair[0];
                assert!(apart > 0.0 && apart <= (pair[0] / 8.0).max(code.step), "{pair:?}");
                assert!(pair[0] < code.normal || apart >= pair[0] / 16.0);
            }
        }
    }

    #[test]
    fn values_are_inserted_at_their_slot() {
        let word = 0x1234_5678;
        assert_eq!(with_half(word, 0, 0xabcd_ef01), 0x1234_abcd);
        assert_eq!(with_half(word, 1, 0xabcd_ef01), 0xabcd_5678);
        assert_eq!(with_byte(word, 0, 0xabcd_ef01), 0x1234_56ab);
        assert_eq!(with_byte(word, 3, 0xabcd_ef01), 0xab34_5678);
        for at in 0..4 {
            let (first, second) = (encode_first(-0.3, NEAREST), encode_second(0.01, NEAREST));
            let decoded = decode_first(with_byte(word, at, first), at);
            assert_eq!(decoded, FIRST.rounded(-0.3, NEAREST));
            let decoded = decode_second(with_byte(word, at, second), at);
            assert_eq!(decoded, SECOND.rounded(0.01, NEAREST));
        }
    }

    /// Returns (1 - β₁) / √((1 - β₂) (1 - β₁² / β₂)).
    fn quotient_max() -> f64 {
        (1.0 - BETA_1) / ((1.0 - BETA_2) * (1.0 - BETA_1 * BETA_1 / BETA_2)).sqrt()
    }

    #[test]
    fn quotient_bound_is_tight() {
        assert!(f64::from(QUOTIENT_MAX) >= quotient_max());
        assert!(f64::from(QUOTIENT_MAX) < quotient_max() * 1.0001);
        // The worst gradients grow as (β₂ / β₁)^i towards the last.
        let (mut first, mut second, mut gradient) = (0.0, 0.0, 1.0);
        for _ in 0..400 {
            first = BETA_1 * first + (1.0 - BETA_1) * gradient;
            second = BETA_2 * second + (1.0 - BETA_2) * gradient * gradient;
            gradient *= BETA_2 / BETA_1;
        }
        assert!((first / f64::sqrt(second) / quotient_max() - 1.0).abs() < 1e-6);
        assert_eq!(held_quotient(3.0_f32, 0.01), 0.5);
        assert_eq!(held_quotient(-3.0_f32, 0.01), -0.5);
        assert_eq!(held_quotient(0.0_f32, 0.0), 0.0);
        // A sum with a half has no digits below 2^-25.
        assert!((held_quotient(0.3_f32, 0.01) * HELD_UNIT - 3.0).abs() < 1e-6);
        assert!((held_quotient(0.3, 0.01) * f64::from(HELD_UNIT) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn random_words_are_uniform() {
        let mut dice = 12_345;
        let mut sums = [0.0; 2];
        let count = 100_000;
        for seed in 0..count {
            sums[0] += f64::from(roll(&mut dice));
            let mut other =
                u32::try_from(RandomStream::new(3, seed, RandomUse::RoundStep).bits(7) >> 32)
                    .unwrap_or(0);
            roll(&mut other);
            sums[1] += f64::from(roll(&mut other));
        }
        for sum in sums {
            // Four standard errors of the mean of uniform numbers.
            let mean = sum / count as f64 / f64::from(u32::MAX);
            assert!((mean - 0.5).abs() < 4.0 / (12.0 * count as f64).sqrt(), "{mean}");
        }
    }
}
