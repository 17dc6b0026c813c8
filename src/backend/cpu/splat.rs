//! What a view sees of a row.

use serde::{Deserialize, Serialize};

use crate::backend::{Drawing, Footprint};
use crate::math::Real;
use crate::math::blend::{ALPHA_MAX, ScreenGradient, Shade, alpha, alpha_bwd, exponent};
use crate::math::linalg::Vec3;
use crate::math::splat::{Ellipse, Meeting, Rect, Surfel, SurfelGradient, Viewpoint};

/// A view, and what is drawn in it.
#[derive(Clone, Copy, Debug)]
pub struct DrawnView<R> {
    /// From where.
    pub viewpoint: Viewpoint<R>,
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// Whether the depths and normals of the surface are drawn.
    pub surface: bool,
    /// What rows are on the screen; the filter of ellipses is the viewpoint's.
    pub footprint: Footprint,
}

impl<R> DrawnView<R> {
    pub(super) fn new(viewpoint: Viewpoint<R>, drawing: &Drawing) -> Self {
        let &Drawing { sh_degree, surface, footprint, .. } = drawing;
        Self { viewpoint, sh_degree, surface, footprint }
    }
}

/// A row as a view sees it: an ellipse or a surfel, of one colour.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Splat<R> {
    /// Which row.
    pub row: usize,
    /// Place, form and depth; of a surfel the ellipse that covers it.
    pub ellipse: Ellipse<R>,
    /// What rays meet of it, where it is not the ellipse.
    pub surfel: Option<Surfel<R>>,
    /// Opacity at its centre.
    pub opacity: R,
    /// Colour, not below 0.
    pub color: Vec3<R>,
    /// Depth, and x and y of the normal in camera axes; zero where they are not drawn.
    pub surface: Vec3<R>,
    /// Pixels that it can reach.
    pub pixels: Rect,
    /// Exponent below which it is certainly invisible.
    pub exponent_min: R,
}

/// A splat in a pixel that it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPixel<R> {
    /// The pixel's centre less the splat's, px.
    offset_px: [R; 2],
    /// Opacity there.
    pub(super) alpha: R,
    /// Where the pixel's ray meets a surfel.
    meeting: Option<Meeting<R>>,
}

impl<R: Real> InPixel<R> {
    /// The depth there over that of the splat's centre.
    fn depth_share(&self) -> R {
        self.meeting.map_or(R::ONE, |meeting| meeting.depth_share)
    }
}

impl<R: Real> Splat<R> {
    /// In a pixel; nothing where it leaves it as it is. Most misses are told without an exponential.
    pub(super) fn in_pixel(&self, x: u32, y: u32) -> Option<InPixel<R>> {
        let centre = self.surfel.map_or(self.ellipse.mean_px, |surfel| surfel.mean_px);
        let pixel = [x, y].map(|p| R::of(f64::from(p)) + R::HALF);
        let offset_px = [pixel[0] - centre[0], pixel[1] - centre[1]];
        let meeting = self.surfel.map(|surfel| surfel.meet(offset_px));
        let exponent = match meeting {
            Some(meeting) => meeting.exponent,
            None => exponent(self.ellipse.conic, offset_px),
        };
        if exponent < self.exponent_min {
            return None;
        }
        let alpha = alpha(self.opacity, exponent)?;
        Some(InPixel { offset_px, alpha, meeting })
    }

    /// Its depth in a pixel.
    pub(super) fn depth_in(&self, at: &InPixel<R>) -> R {
        self.ellipse.depth * at.depth_share()
    }

    /// What a pixel is blended of.
    pub(super) fn shade(&self, at: &InPixel<R>) -> Shade<R> {
        let [depth, normal_x, normal_y] = self.surface;
        Shade {
            color: self.color,
            inverse_depth: R::ONE / self.depth_in(at),
            surface: [depth * at.depth_share(), normal_x, normal_y],
        }
    }

    /// Adds what a pixel gives to its gradients. `of_shade` has those of its [`Self::shade`], which are added
    /// with it.
    pub(super) fn in_pixel_bwd(
        &self,
        at: &InPixel<R>,
        d_alpha: R,
        of_shade: ScreenGradient<R>,
        sums: &mut ScreenGradient<R>,
    ) {
        let mut here = of_shade;
        let (Some(surfel), Some(meeting)) = (&self.surfel, &at.meeting) else {
            let conic = self.ellipse.conic;
            alpha_bwd(conic, at.offset_px, self.opacity, at.alpha, d_alpha, &mut here);
            return sums.add(&here);
        };
        let (depth, share) = (self.ellipse.depth, meeting.depth_share);
        // With i = 1 + g·d the depth is depth / i, and the inverse depth i / depth.
        let [d_depth, ..] = here.d_surface;
        let d_inverse_share = here.d_inverse_depth / depth - d_depth * depth * share * share;
        here.d_surface[0] = d_depth * share;
        here.d_inverse_depth = here.d_inverse_depth / share;
        let is_clamped = at.alpha >= R::of(ALPHA_MAX);
        let d_exponent = if is_clamped { R::ZERO } else { d_alpha * at.alpha };
        here.pixels = R::ONE;
        here.squares = d_exponent * d_exponent;
        here.d_opacity = d_exponent / self.opacity;
        let mut d = SurfelGradient::default();
        let by_exponent =
            surfel.meet_bwd(at.offset_px, meeting, d_exponent, d_inverse_share, &mut d);
        here.d_mean_px = d.d_mean_px;
        here.d_mean_abs = by_exponent.map(Real::abs);
        here.d_surfel = [d.d_along_u, d.d_along_v, d.d_tilt];
        sums.add(&here);
    }
}
