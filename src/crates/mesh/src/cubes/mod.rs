//! Marching cubes (Lorensen and Cline 1987) on bricks, by a table made from a rule.

mod extract;
mod table;

pub use extract::{Crossing, ExtractError, LatticeSurface, extract};

#[cfg(test)]
mod tests;
