//! Oriented points: checks, boxes, and the removal of those far from all others.

mod cells;
mod checks;
mod knn;
mod oriented;
#[cfg(test)]
pub(crate) mod shapes;
#[cfg(test)]
mod tests;

pub use cells::outliers_by_cells;
pub use checks::{PointsError, bounds, checked, in_box, normals_agreement, same_lengths};
pub use knn::{have_points_within, outliers_by_neighbours};
pub use oriented::OrientedPoints;
