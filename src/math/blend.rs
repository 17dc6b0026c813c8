//! Front-to-back compositing of one pixel: opacity of a splat, transmittance, and their gradients.
//!
//! Colour is Σ cᵢ αᵢ Tᵢ + Tₙ · background, with Tᵢ = Π_{j<i} (1 - αⱼ) (Kerbl et al. 2023). The inverse depth 1/zᵢ,
//! its square, and the surface's three channels (depth, and x and y of the normal in camera axes) are blended
//! likewise, with a background of 0. The final transmittance Tₙ can have its own gradient.

use serde::{Deserialize, Serialize};

use super::Real;
use super::linalg::{Sym2, Vec3, add, dot, scale, sub};

/// Smallest opacity that changes a pixel: one step of 8 bits. It also bounds the tiles of a splat.
pub const ALPHA_MIN: f64 = 1.0 / 255.0;

/// Largest opacity. It is below 1 so that every splat behind keeps a gradient.
pub const ALPHA_MAX: f64 = 0.99;

/// Transmittance at which blending ends: a splat that would pass it is skipped, a sample of triangles ends below it.
pub const TRANSMITTANCE_MIN: f64 = 1e-4;

/// Returns the exponent of a Gaussian at `offset_px` from its centre, -½ dᵀ C d. For a positive definite conic only
/// rounding can make it positive.
#[inline]
pub fn exponent<R: Real>(conic: Sym2<R>, offset_px: [R; 2]) -> R {
    let [dx, dy] = offset_px;
    -R::HALF * (conic[0] * dx * dx + conic[2] * dy * dy) - conic[1] * dx * dy
}

/// Returns the opacity of a splat in a pixel, or `None` if it is below [`ALPHA_MIN`].
#[inline]
pub fn alpha<R: Real>(opacity: R, exponent: R) -> Option<R> {
    if exponent > R::ZERO {
        return None;
    }
    let alpha = (opacity * exponent.exp()).min(R::of(ALPHA_MAX));
    (alpha >= R::of(ALPHA_MIN)).then_some(alpha)
}

/// Gradients of one splat in screen space.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ScreenGradient<R> {
    /// Gradient of the centre, per px.
    pub d_mean_px: [R; 2],
    /// Sum over pixels of the absolute gradients of the centre (Ye et al. 2024).
    pub d_mean_abs: [R; 2],
    /// Sum over pixels of the squared gradients of the opacity's logarithm.
    pub squares: R,
    /// Number of pixels that the splat is blended into.
    pub pixels: R,
    /// Gradient of the conic (xx, xy, yy); xy counted once.
    pub d_conic: Sym2<R>,
    /// Gradient of the opacity.
    pub d_opacity: R,
    /// Gradient of the colour.
    pub d_color: Vec3<R>,
    /// Gradient of the inverse depth, world units.
    pub d_inverse_depth: R,
    /// Gradient of the surface's channels.
    pub d_surface: Vec3<R>,
    /// Gradient of the slopes of a surfel's two coordinates, and of its tilt.
    pub d_surfel: [[R; 2]; 3],
}

impl<R: Real> ScreenGradient<R> {
    /// Adds the gradients of other pixels of the splat.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        for i in 0..2 {
            self.d_mean_px[i] += other.d_mean_px[i];
            self.d_mean_abs[i] += other.d_mean_abs[i];
        }
        for i in 0..3 {
            self.d_conic[i] += other.d_conic[i];
            self.d_color[i] += other.d_color[i];
            self.d_surface[i] += other.d_surface[i];
        }
        for (sums, more) in self.d_surfel.iter_mut().zip(&other.d_surfel) {
            sums[0] += more[0];
            sums[1] += more[1];
        }
        self.squares += other.squares;
        self.pixels += other.pixels;
        self.d_opacity += other.d_opacity;
        self.d_inverse_depth += other.d_inverse_depth;
    }
}

/// State of a pixel's backward pass, front to back.
#[derive(Clone, Copy, Debug, Default)]
pub struct PixelWalk<R> {
    /// Transmittance in front of the next splat.
    pub transmittance: R,
    /// Colour of the remaining splats and the background.
    pub behind: Vec3<R>,
    /// Gradient of the pixel's colour.
    pub d_color: Vec3<R>,
    /// Inverse depth of the remaining splats.
    pub inverse_depth_behind: R,
    /// Gradient of the pixel's inverse depth.
    pub d_inverse_depth: R,
    /// Squared inverse depth of the remaining splats.
    pub inverse_square_behind: R,
    /// Gradient of the pixel's squared inverse depth.
    pub d_inverse_square: R,
    /// Surface channels of the remaining splats.
    pub surface_behind: Vec3<R>,
    /// Gradient of the pixel's surface channels.
    pub d_surface: Vec3<R>,
    /// The final transmittance times its gradient, without the background's part.
    pub through: R,
}

/// Values of a splat in a pixel, before its opacity.
#[derive(Clone, Copy, Debug)]
pub struct Shade<R> {
    /// Colour.
    pub color: Vec3<R>,
    /// Inverse depth, per world unit.
    pub inverse_depth: R,
    /// Depth in world units, and x and y of the normal; 0 if they are not drawn.
    pub surface: Vec3<R>,
}

/// Returns `d_alpha` of one splat in one pixel, adds to its `d_color`, `d_inverse_depth` and `d_surface`, and
/// advances `walk` past the splat.
///
/// dC/dα = T c - B / (1 - α), with B the colour of everything behind the splat; the other channels likewise. Without
/// `SURFACE` the surface's channels and the squared inverse depth have no gradient.
#[inline]
pub fn blend_bwd_of<R: Real, const SURFACE: bool>(
    walk: &mut PixelWalk<R>,
    shade: &Shade<R>,
    alpha: R,
    sums: &mut ScreenGradient<R>,
) -> R {
    let Shade { color, inverse_depth, surface } = *shade;
    let weight = alpha * walk.transmittance;
    sums.d_color = add(sums.d_color, scale(walk.d_color, weight));
    sums.d_inverse_depth += walk.d_inverse_depth * weight;
    walk.behind = sub(walk.behind, scale(color, weight));
    walk.inverse_depth_behind -= inverse_depth * weight;
    let mut d_here = dot(color, walk.d_color) + inverse_depth * walk.d_inverse_depth;
    let mut d_behind =
        dot(walk.behind, walk.d_color) + walk.inverse_depth_behind * walk.d_inverse_depth;
    if SURFACE {
        let square = inverse_depth * inverse_depth;
        sums.d_inverse_depth += R::TWO * inverse_depth * walk.d_inverse_square * weight;
        walk.inverse_square_behind -= square * weight;
        d_here += square * walk.d_inverse_square;
        d_behind += walk.inverse_square_behind * walk.d_inverse_square;
        sums.d_surface = add(sums.d_surface, scale(walk.d_surface, weight));
        walk.surface_behind = sub(walk.surface_behind, scale(surface, weight));
        d_here += dot(surface, walk.d_surface);
        d_behind += dot(walk.surface_behind, walk.d_surface) + walk.through;
    }
    let d_alpha = walk.transmittance * d_here - d_behind / (R::ONE - alpha);
    walk.transmittance *= R::ONE - alpha;
    d_alpha
}

/// Adds the gradients through [`alpha`] and [`exponent`]. A clamped opacity passes none.
#[inline]
pub fn alpha_bwd<R: Real>(
    conic: Sym2<R>,
    offset_px: [R; 2],
    opacity: R,
    alpha: R,
    d_alpha: R,
    sums: &mut ScreenGradient<R>,
) {
    sums.pixels += R::ONE;
    if alpha >= R::of(ALPHA_MAX) {
        return;
    }
    // alpha = opacity · e^exponent: its logarithmic derivatives need no exponential.
    let [dx, dy] = offset_px;
    let d_exponent = d_alpha * alpha;
    sums.d_opacity += d_exponent / opacity;
    sums.squares += d_exponent * d_exponent;
    sums.d_conic[0] -= R::HALF * dx * dx * d_exponent;
    sums.d_conic[1] -= dx * dy * d_exponent;
    sums.d_conic[2] -= R::HALF * dy * dy * d_exponent;
    // The offset is the pixel minus the centre, so the centre's gradient has the opposite sign.
    let d_mean_px =
        [conic[0] * dx + conic[1] * dy, conic[1] * dx + conic[2] * dy].map(|d| d * d_exponent);
    for (axis, &d) in d_mean_px.iter().enumerate() {
        sums.d_mean_px[axis] += d;
        sums.d_mean_abs[axis] += d.abs();
    }
}

// Colour of a pixel without one of its splats, or with an additional one.
//
// With w = αT the blend weight of a splat of colour c, and B the colour that is blended behind it: without the splat,
// pixel C becomes C - w c + B α / (1 - α). With an additional splat it becomes C + w c - α B.

/// Transmittance below which the colour behind a splat is unknown, because blending ends soon. The background is
/// taken instead.
pub const BEHIND_MIN: f64 = 1e-3;

/// A splat in a pixel, in front-to-back order.
#[derive(Clone, Copy, Debug)]
pub struct PixelLayer<R> {
    /// Opacity in the pixel.
    pub alpha: R,
    /// Transmittance in front of the splat.
    pub transmittance: R,
    /// Colour of the splat.
    pub color: Vec3<R>,
    /// Colour that is blended behind the splat, background included.
    pub behind: Vec3<R>,
}

impl<R: Real> PixelLayer<R> {
    /// Returns the blend weight.
    #[inline]
    pub fn weight(&self) -> R {
        self.alpha * self.transmittance
    }

    /// Returns the colour of a pixel, now `drawn`, without this splat.
    #[inline]
    pub fn taken_out(&self, drawn: Vec3<R>, background: Vec3<R>) -> Vec3<R> {
        let passes = R::ONE - self.alpha;
        let after = self.transmittance * passes;
        let is_known = after >= R::of(BEHIND_MIN);
        let behind = if is_known { self.behind } else { scale(background, after) };
        add(sub(drawn, scale(self.color, self.weight())), scale(behind, self.alpha / passes))
    }

    /// Returns the colour of a pixel, now `drawn` without this splat, with this splat.
    #[inline]
    pub fn put_in(&self, drawn: Vec3<R>) -> Vec3<R> {
        sub(add(drawn, scale(self.color, self.weight())), scale(self.behind, self.alpha))
    }
}

/// Change of a pixel whose colour is clamped to 0..1, summed over the channels.
#[derive(Clone, Copy, Debug)]
pub struct PixelChange<R> {
    /// Increase of the squared error.
    pub error_change: R,
    /// Squared change of the colour.
    pub squared_change: R,
}

/// Returns the change of a pixel from colour `drawn` to `changed`.
#[inline]
pub fn pixel_change<R: Real>(drawn: Vec3<R>, changed: Vec3<R>, truth: Vec3<R>) -> PixelChange<R> {
    let held = |value: R| value.max(R::ZERO).min(R::ONE);
    let mut sums = PixelChange { error_change: R::ZERO, squared_change: R::ZERO };
    for channel in 0..3 {
        let (before, after) = (held(drawn[channel]), held(changed[channel]));
        let change = after - before;
        // Factored, because the difference of two nearly equal squares would cancel.
        sums.error_change += change * (after + before - R::of(2.0) * truth[channel]);
        sums.squared_change += change * change;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKGROUND: Vec3<f64> = [0.2, 0.5, 0.1];

    /// Blends splats front to back; returns the pixel's colour and the layer at `wanted`.
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
    fn taken_out_matches_blending_the_others() {
        let splats = [(0.3, [0.9, 0.1, 0.4]), (0.6, [0.2, 0.8, 0.5]), (0.45, [0.7, 0.3, 0.05])];
        for out in 0..splats.len() {
            let mut rest = splats.to_vec();
            rest.remove(out);
            let (drawn, layer) = blended(&splats, out);
            let (expected, _) = blended(&rest, 0);
            let found = layer.taken_out(drawn, BACKGROUND);
            // Without the splat, the colour behind it is no longer attenuated by it.
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
    fn unknown_colour_behind_is_the_background() {
        let splats = [(0.99, [0.5; 3]), (0.95, [0.4, 0.6, 0.1]), (0.99, [1.0, 0.0, 0.0])];
        let (drawn, layer) = blended(&splats, 1);
        assert!(layer.transmittance * (1.0 - layer.alpha) < BEHIND_MIN);
        let (expected, _) = blended(&splats[..1], 0);
        let found = layer.taken_out(drawn, BACKGROUND);
        // The last splat keeps 5e-4 of its colour in the pixel.
        for channel in 0..3 {
            assert!((found[channel] - expected[channel]).abs() < 1e-3, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn changes_are_of_clamped_colours() {
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
