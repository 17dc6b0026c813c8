//! What encoders promise: means, neighbours, order and limits.

use proptest::prelude::*;

use super::*;
use crate::math::adam::{BETA_1, BETA_2};
use crate::math::random::{RandomStream, RandomUse};

/// A code of 8 bits as its formats' functions treat it.
struct Code {
    encode: fn(f32, u32) -> u32,
    decode: fn(u32, u32) -> f32,
    /// Smallest normal share, and largest step below it.
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

/// Mean over every pattern of the upper `bits` random bits.
fn mean(bits: u32, rounded: impl Fn(u32) -> f32) -> f64 {
    let draws = (0..1_u32 << bits).map(|i| f64::from(rounded(i << (32 - bits))));
    draws.sum::<f64>() / f64::from(1_u32 << bits)
}

/// Numbers of both signs and of any size between two powers of two.
fn sized(least: i32, most: i32) -> impl Strategy<Value = f32> {
    (least..most, 1.0_f32..2.0, any::<bool>()).prop_map(|(exponent, mantissa, negative)| {
        let size = mantissa * power_of_two(exponent);
        if negative { -size } else { size }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Over all random words of as many bits as count, the mean is the number: what is left is
    /// that a 2^13th (or 2^20th) of a step is not distinguished.
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

    /// Of second moments from the least code on: below it, what is not zero is that code.
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
        // But a value other than zero does not become zero.
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
    fn what_was_decoded_is_encoded_to_itself(word in any::<u32>(), random in any::<u32>()) {
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

    /// A scale times a code is exact, so that decoded moments can be encoded again.
    #[test]
    fn the_product_of_a_scale_and_a_code_is_exact(scale in sized(-80, 60), word in any::<u32>()) {
        let scale = rounded_scale(scale.abs());
        for share in [decode_first(word, 1), decode_second(word, 2)] {
            prop_assert_eq!(f64::from(share * scale), f64::from(share) * f64::from(scale));
        }
    }

    #[test]
    fn a_scale_loses_a_two_millionth_at_most(scale in sized(-120, 100)) {
        let error = (rounded_scale(scale.abs()) / scale.abs() - 1.0).abs();
        prop_assert!(error <= power_of_two(-20));
    }
}

#[test]
fn halves_are_those_of_ieee() {
    // One, its neighbour, the largest, the smallest normal and the smallest of all.
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
fn zero_stays_zero_and_nothing_else_becomes_a_second_moment_of_zero() {
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
fn codes_reach_from_their_least_to_their_largest() {
    for code in [FIRST, SECOND] {
        for share in [CODE_MAX, 1.0, 1e9, f32::INFINITY] {
            assert_eq!(code.rounded(share, u32::MAX), CODE_MAX);
        }
        // Three bits of mantissa: neighbours of normal shares are an eighth apart at most.
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
fn values_go_where_they_are_asked_to_go() {
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

/// (1 - β₁) / √((1 - β₂) (1 - β₁² / β₂)).
fn quotient_max() -> f64 {
    (1.0 - BETA_1) / ((1.0 - BETA_2) * (1.0 - BETA_1 * BETA_1 / BETA_2)).sqrt()
}

#[test]
fn the_bound_of_quotients_is_the_one_that_gradients_can_reach() {
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
    // A sum with a half knows nothing below 2^-25.
    assert!((held_quotient(0.3_f32, 0.01) * HELD_UNIT - 3.0).abs() < 1e-6);
    assert!((held_quotient(0.3, 0.01) * f64::from(HELD_UNIT) - 3.0).abs() < 1e-12);
}

#[test]
fn words_of_a_dice_are_uniform_from_one_seed_and_over_many() {
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
