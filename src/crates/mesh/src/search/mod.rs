//! Finding faces: the nearest one, those on a ray, those in a box.

mod boxes;
mod nearest;
mod ray;

pub use boxes::BoxTree;
pub use nearest::Nearest;
pub use ray::RayHit;
