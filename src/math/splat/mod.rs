//! A Gaussian as a view shows it: its ellipse on the screen or, flat, a surfel, and what that covers.

mod cover;
mod coverage;
mod projection;
mod surfel;
mod triangle;

pub use cover::{cover, reach_px};
pub use coverage::{Bounds, Rect, Spans, TILE, bounds};
pub use projection::{
    DILATION_PX2, Ellipse, EllipseGradient, Shape, ShapeGradient, Viewpoint, project, project_bwd,
};
pub use surfel::{
    Meeting, SURFEL_FACING_MIN, Surfel, SurfelGradient, project_surfel, project_surfel_bwd,
};
pub use triangle::{
    FallOff, HitGradient, Linear, PlaceGradients, TRIANGLE_ALPHA_MAX, Triangle, TriangleGradient,
    TriangleHit, Vertex, VertexGradient, place_vertex, place_vertex_bwd, triangle, triangle_bwd,
};
