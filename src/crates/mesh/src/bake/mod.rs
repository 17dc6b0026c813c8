//! The texture of a mesh, of views that see it.
//!
//! [`Bake`] is shown all views once, or once more for each round in which it leaves out colours that differ
//! from the others. Each texel looks into each view, so that fine textures have no holes; sums are whole
//! numbers, so that no order changes them.

mod baking;
mod fill;
mod median;
mod seen_area;
mod sight;
mod sums;
#[cfg(test)]
mod tests;
mod texels;
mod view;

pub use baking::{Bake, BakeFigures, Baked};
pub use seen_area::SeenAreas;
pub use view::ColorView;
