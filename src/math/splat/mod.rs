//! Projection of Gaussians, surfels and triangles to the screen, and their coverage.

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
