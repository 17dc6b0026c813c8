//! The points that a scene starts from.

/// The largest coordinate that is believed, of points and of Gaussians, world units. Beyond it the
/// squares of distances, and what images multiply them with, leave the range of single precision.
pub const FARTHEST: f32 = 1e12;

/// Coloured points in the world: of doubles as the scene's files have them, and of 32-bit floats in a
/// [`Frame`](super::Frame).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud<T = f32> {
    /// World units, `[n][3]`.
    pub positions: Vec<[T; 3]>,
    /// sRGB, `[n][3]`.
    pub colors: Vec<[u8; 3]>,
}

/// Colours of 0 to 255 from numbers of any of the usual ranges.
///
/// Numbers with fractions are of 0 to 1 if none is above 2 (a little more than 1 is brighter than
/// white), else of 0 to 255. Whole numbers above 255 make the range 0 to 65535.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates to 0..=255 and makes NaN 0"
)]
pub(super) fn bytes_of_colors(colors: &[[f32; 3]], has_fractions: bool) -> Vec<[u8; 3]> {
    let brightest = colors.iter().flatten().copied().filter(|it| it.is_finite());
    let brightest = brightest.fold(0.0_f32, f32::max);
    let scale = match (has_fractions, brightest) {
        (true, ..=2.0) => 255.0,
        (false, 255.5..) => 255.0 / 65_535.0,
        _ => 1.0,
    };
    colors.iter().map(|color| color.map(|channel| (channel * scale).round() as u8)).collect()
}
