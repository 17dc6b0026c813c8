//! What a pixel becomes without one of the splats that it is blended of, or with one more.
//!
//! With w = αT the blend weight of a splat of colour c, and B what is added behind it, of which it lets
//! 1 - α pass, a pixel C becomes C - w c + B α / (1 - α) without the splat; with one that was left out it
//! becomes C + w c - α B.

use super::Real;
use super::linalg::{Vec3, add, scale, sub};

/// Transmittance below which nobody knows what lies behind a splat: too little of it has reached the pixel,
/// and blending ends soon. The background is taken for it.
pub const BEHIND_MIN: f64 = 1e-3;

/// A splat in a pixel, on the way front to back.
#[derive(Clone, Copy, Debug)]
pub struct PixelLayer<R> {
    /// Its opacity there.
    pub alpha: R,
    /// Transmittance before it.
    pub transmittance: R,
    /// Its colour.
    pub color: Vec3<R>,
    /// What is added to the pixel behind it, with the background.
    pub behind: Vec3<R>,
}

impl<R: Real> PixelLayer<R> {
    /// Its blend weight.
    #[inline]
    pub fn weight(&self) -> R {
        self.alpha * self.transmittance
    }

    /// The pixel's colour, now `drawn`, without it.
    #[inline]
    pub fn taken_out(&self, drawn: Vec3<R>, background: Vec3<R>) -> Vec3<R> {
        let passes = R::ONE - self.alpha;
        let after = self.transmittance * passes;
        let is_known = after >= R::of(BEHIND_MIN);
        let behind = if is_known { self.behind } else { scale(background, after) };
        add(sub(drawn, scale(self.color, self.weight())), scale(behind, self.alpha / passes))
    }

    /// The pixel's colour, now `drawn`, with it, where it was left out.
    #[inline]
    pub fn put_in(&self, drawn: Vec3<R>) -> Vec3<R> {
        sub(add(drawn, scale(self.color, self.weight())), scale(self.behind, self.alpha))
    }
}

/// How a pixel, held to 0..1, changes; sums over the channels.
#[derive(Clone, Copy, Debug)]
pub struct PixelChange<R> {
    /// By how much its squared error grows.
    pub error_change: R,
    /// The square of the change of its colour, whatever the truth is.
    pub squared_change: R,
}

/// How a pixel changes where its colour does.
#[inline]
pub fn pixel_change<R: Real>(drawn: Vec3<R>, changed: Vec3<R>, truth: Vec3<R>) -> PixelChange<R> {
    let held = |value: R| value.max(R::ZERO).min(R::ONE);
    let mut sums = PixelChange { error_change: R::ZERO, squared_change: R::ZERO };
    for channel in 0..3 {
        let (before, after) = (held(drawn[channel]), held(changed[channel]));
        let change = after - before;
        // The difference of the squares: that of two nearly equal squares would have no digit right.
        sums.error_change += change * (after + before - R::of(2.0) * truth[channel]);
        sums.squared_change += change * change;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKGROUND: Vec3<f64> = [0.2, 0.5, 0.1];

    /// The colour of a pixel of these splats, front to back, and the layer at `wanted`.
    fn blended(splats: &[(f64, Vec3<f64>)], wanted: usize) -> (Vec3<f64>, PixelLayer<f64>) {
        let (mut drawn, mut transmittance) = ([0.0; 3], 1.0);
        let mut before = ([0.0; 3], 1.0);
        for (index, &(alpha, color)) in splats.iter().enumerate() {
            if index == wanted {
                before = (drawn, transmittance);
            }
            drawn = add(drawn, scale(color, alpha * transmittance));
            transmittance *= 1.0 - alpha;
        }
        drawn = add(drawn, scale(BACKGROUND, transmittance));
        let (alpha, color) = splats[wanted];
        let (in_front, transmittance) = before;
        let behind = sub(sub(drawn, in_front), scale(color, alpha * transmittance));
        (drawn, PixelLayer { alpha, transmittance, color, behind })
    }

    #[test]
    fn a_pixel_without_a_splat_is_what_the_others_make() {
        let splats = [(0.3, [0.9, 0.1, 0.4]), (0.6, [0.2, 0.8, 0.5]), (0.45, [0.7, 0.3, 0.05])];
        for out in 0..splats.len() {
            let mut rest = splats.to_vec();
            rest.remove(out);
            let (drawn, layer) = blended(&splats, out);
            let (expected, _) = blended(&rest, 0);
            let found = layer.taken_out(drawn, BACKGROUND);
            // What is behind it in the pixel of the others is what it lets pass, and more.
            let behind = scale(layer.behind, 1.0 / (1.0 - layer.alpha));
            let back = PixelLayer { behind, ..layer }.put_in(expected);
            for channel in 0..3 {
                // Rounding of a dozen operations on values of order 1.
                assert!((found[channel] - expected[channel]).abs() < 1e-14, "{out}");
                assert!((back[channel] - drawn[channel]).abs() < 1e-14, "{out}");
            }
        }
    }

    #[test]
    fn where_nothing_is_known_behind_a_splat_the_background_is_taken() {
        let splats = [(0.99, [0.5; 3]), (0.95, [0.4, 0.6, 0.1]), (0.99, [1.0, 0.0, 0.0])];
        let (drawn, layer) = blended(&splats, 1);
        assert!(layer.transmittance * (1.0 - layer.alpha) < BEHIND_MIN);
        let (expected, _) = blended(&splats[..1], 0);
        let found = layer.taken_out(drawn, BACKGROUND);
        // Of the last one, 5e-4 of its colour shows, which stays in the pixel.
        for channel in 0..3 {
            assert!((found[channel] - expected[channel]).abs() < 1e-3, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn changes_are_of_what_a_screen_shows() {
        let truth = [0.5, 1.0, 0.25];
        let shown = |color: Vec3<f64>| color.map(|value| value.clamp(0.0, 1.0));
        let squared = |color: Vec3<f64>, from: Vec3<f64>| -> f64 {
            (0..3).map(|c| (shown(color)[c] - from[c]).powi(2)).sum()
        };
        for (drawn, changed) in [
            ([0.4, 0.9, 0.3], [0.6, 0.2, 0.3]),
            ([1.4, -0.9, 0.3], [1.2, -0.1, 0.7]),
            ([0.5, 1.0, 0.25], [0.5, 1.5, 0.25]),
        ] {
            let found = pixel_change(drawn, changed, truth);
            let expected = squared(changed, truth) - squared(drawn, truth);
            // Rounding of values of order 1.
            assert!((found.error_change - expected).abs() < 1e-15, "{found:?} {expected}");
            let expected = squared(changed, shown(drawn));
            assert!((found.squared_change - expected).abs() < 1e-15, "{found:?} {expected}");
        }
    }
}
