//! A Gaussian as a view shows it: its ellipse on the screen, and what that covers.

mod coverage;
mod projection;

pub use coverage::{Bounds, Rect, Spans, TILE, bounds};
pub use projection::{
    DILATION_PX2, Ellipse, EllipseGradient, Shape, ShapeGradient, Viewpoint, project, project_bwd,
};
