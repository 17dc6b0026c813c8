//! Intensities as they are stored.

/// Display value of a linear intensity; both 0..1.
pub(super) fn encode_srgb(linear: f64) -> f64 {
    linear.clamp(0.0, 1.0).powf(1.0 / 2.2)
}

/// 8 bits of a value in 0..1.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is held to 0..=255"
)]
pub(super) fn quantise(color: [f64; 3]) -> [u8; 3] {
    color.map(|channel| (channel.clamp(0.0, 1.0) * 255.0).round() as u8)
}
