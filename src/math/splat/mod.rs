//! A Gaussian as a view shows it: its ellipse on the screen or, flat, a surfel, and what that covers.

pub(super) mod projection;
mod surfel;
mod triangle;

pub use projection::{
    Bounds, DILATION_PX2, Ellipse, EllipseGradient, Rect, Shape, ShapeGradient, Spans, TILE,
    Viewpoint, bounds, project, project_bwd,
};
pub use surfel::{
    Meeting, SURFEL_FACING_MIN, Surfel, SurfelGradient, project_surfel, project_surfel_bwd,
};
pub use triangle::{
    FallOff, HitGradient, Linear, PlaceGradients, TRIANGLE_ALPHA_MAX, Triangle, TriangleGradient,
    TriangleHit, Vertex, VertexGradient, cover, place_vertex, place_vertex_bwd, reach_px, triangle,
    triangle_bwd,
};
