//! Opacities: logits in memory, shares of one in most files.

use splat_mesh::narrow::to_f32;

/// A share that a byte stores as 0 or 255 has no finite logit. A quarter of a step from the end is
/// within half a step of all that the byte stands for, and becomes the same byte again.
const MARGIN: f64 = 0.25 / 255.0;

/// The share of one that a logit stands for.
#[inline]
pub(crate) fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// The logit of a share of one.
#[inline]
pub(crate) fn logit(share: f64) -> f32 {
    to_f32((share / (1.0 - share)).ln())
}

/// The logit of a share that was stored in few bits: finite at both ends.
#[inline]
pub(crate) fn logit_of_stored(share: f64) -> f32 {
    logit(share.clamp(MARGIN, 1.0 - MARGIN))
}

/// The logit of a byte of 0 to 255.
#[inline]
pub(crate) fn logit_of_byte(byte: u8) -> f32 {
    logit_of_stored(f64::from(byte) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use splat_mesh::narrow::round_u8;

    #[test]
    fn every_byte_becomes_a_finite_logit_and_itself_again() {
        for byte in 0..=255 {
            let logit = logit_of_byte(byte);
            assert!(logit.is_finite());
            assert_eq!(round_u8(255.0 * sigmoid(logit)), byte);
        }
    }

    #[test]
    fn extreme_logits_are_shares() {
        assert_eq!(sigmoid(f32::MAX), 1.0);
        assert_eq!(sigmoid(f32::MIN), 0.0);
        assert!((logit(sigmoid(2.5)) - 2.5).abs() < 1e-6);
    }
}
