//! What a camera sees of a mesh, on the host.
//!
//! [`FrontFaces`] finds the face in front at each pixel, [`draw`] gives it colours: those of the vertices or
//! of a texture. [`MetRays`] keeps where the rays meet faces, for colours of vertices that are fitted to pixels.

mod front;
mod paint;
mod rays;
#[cfg(test)]
mod tests;

pub use front::FrontFaces;
pub use paint::{DrawnPixels, Paint, draw};
pub use rays::{MetRays, VertexSum};
