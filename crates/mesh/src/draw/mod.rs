//! What a camera sees of a mesh, on the host.
//!
//! [`FrontFaces`] finds the face in front at each pixel, [`draw`] gives it colours: those of the vertices or
//! of a texture.

mod front;
mod paint;
#[cfg(test)]
mod tests;

pub use front::FrontFaces;
pub use paint::{DrawnPixels, Paint, draw};
