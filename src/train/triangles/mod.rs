//! What a run of triangles does with its mesh: how opaque and how solid it is, and which triangles are split,
//! removed and made anew (MeshSplatting, Held et al. 2025). All of it is about plain arrays; devices do the
//! rest.

pub mod connect;
pub mod draw;
pub mod prune;
pub mod schedule;
mod soup;
pub mod split;

pub use soup::{SOUP_VERTICES, soup};
