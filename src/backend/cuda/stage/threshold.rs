//! Where a rising function of single-precision numbers passes a bound.
//!
//! The device decides by raw parameters, `log_scale <= x` in place of `exp(log_scale) <= bound`:
//! with x from here it decides as the host would, though the last bits of its `exp` are others.

/// The largest x with `f(x) <= bound`, or NaN, which nothing is below, where there is none.
pub(crate) fn last_at_most(f: impl Fn(f32) -> f32, bound: f32) -> f32 {
    match bisect(|x| f(x) <= bound) {
        Crossing::Never => f32::INFINITY,
        Crossing::AtOnce => f32::NAN,
        Crossing::Between(last, _) => last,
    }
}

/// The smallest x with `f(x) >= bound`, or NaN, which nothing is above, where there is none.
pub(crate) fn first_at_least(f: impl Fn(f32) -> f32, bound: f32) -> f32 {
    let reaches = |x| f(x) >= bound;
    match bisect(|x| !reaches(x)) {
        Crossing::Never => f32::NAN,
        Crossing::AtOnce => f32::NEG_INFINITY,
        Crossing::Between(_, first) => first,
    }
}

/// Where a predicate that holds up to some number ceases to hold.
enum Crossing {
    /// It holds for all numbers.
    Never,
    /// It holds for none.
    AtOnce,
    /// The last number that it holds for, and the next.
    Between(f32, f32),
}

/// Bisects the numbers from -infinity to infinity.
fn bisect(holds: impl Fn(f32) -> bool) -> Crossing {
    if holds(f32::INFINITY) {
        return Crossing::Never;
    }
    if !holds(f32::NEG_INFINITY) {
        return Crossing::AtOnce;
    }
    let (mut low, mut high) = (position(f32::NEG_INFINITY), position(f32::INFINITY));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(number(middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Crossing::Between(number(low), number(high))
}

const SIGN: u32 = 1 << 31;

/// Rank of a number among all: neighbours differ by 1.
fn position(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The number of a rank.
fn number(position: u32) -> f32 {
    f32::from_bits(if position & SIGN == 0 { !position } else { position & !SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Real;
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::sigmoid;

    /// Numbers around `x`, many of them its neighbours, and the extremes.
    fn around(x: f32, seed: u64) -> Vec<f32> {
        let stream = RandomStream::new(seed, 0, RandomUse::Sample);
        let near = (0..200).map(|i| number(position(x) - 100 + i));
        let far = (0..2000).map(|i| x + 5.0 * f32::of(stream.normal(i)));
        let edges = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, f32::MIN];
        near.chain(far).chain(edges).collect()
    }

    #[test]
    fn scales_compare_alike_by_their_logarithms() {
        for bound in [0.01_f32, 0.1, 1.0, 3.7, 1e-30, 1e30] {
            let threshold = last_at_most(f32::exp, bound);
            for x in around(bound.ln(), 1) {
                assert_eq!(x.exp() <= bound, x <= threshold, "{x} against {bound}");
            }
        }
    }

    #[test]
    fn opacities_compare_alike_by_their_logits() {
        for bound in [0.005_f32, 0.5, 0.1, 1.0 - 1e-6] {
            let threshold = first_at_least(sigmoid, bound);
            for x in around((bound / (1.0 - bound)).ln(), 2) {
                assert_eq!(sigmoid(x) >= bound, x >= threshold, "{x} against {bound}");
            }
        }
    }

    #[test]
    fn bounds_that_all_or_none_pass_do_so_by_their_thresholds() {
        assert_eq!(last_at_most(f32::exp, f32::INFINITY), f32::INFINITY);
        assert_eq!(first_at_least(sigmoid, 0.0), f32::NEG_INFINITY);
        for none in [
            last_at_most(f32::exp, -1.0),
            last_at_most(f32::exp, f32::NAN),
            first_at_least(sigmoid, 1.5),
            first_at_least(sigmoid, f32::NAN),
        ] {
            assert!(none.is_nan());
        }
    }
}
