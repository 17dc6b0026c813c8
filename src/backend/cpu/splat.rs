//! What a view sees of a row.

use crate::backend::Drawing;
use crate::math::Real;
use crate::math::blend::Shade;
use crate::math::linalg::Vec3;
use crate::math::splat::{Ellipse, Rect, Viewpoint};

/// A view, and what is drawn in it.
#[derive(Clone, Copy, Debug)]
pub struct DrawnView<R> {
    /// From where.
    pub viewpoint: Viewpoint<R>,
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// Whether the depths and normals of the surface are drawn.
    pub surface: bool,
}

impl<R> DrawnView<R> {
    pub(super) fn new(viewpoint: Viewpoint<R>, drawing: &Drawing) -> Self {
        Self { viewpoint, sh_degree: drawing.sh_degree, surface: drawing.surface }
    }
}

/// A row as a view sees it: an ellipse of one colour.
#[derive(Clone, Copy, Debug)]
pub struct Splat<R> {
    /// Which row.
    pub row: usize,
    /// Place, form and depth.
    pub ellipse: Ellipse<R>,
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

impl<R: Real> Splat<R> {
    /// What pixels are blended of.
    pub(super) fn shade(&self) -> Shade<R> {
        let inverse_depth = R::ONE / self.ellipse.depth;
        Shade { color: self.color, inverse_depth, surface: self.surface }
    }
}
