//! A model on the host, with everything that training changes.

use crate::memory::plan::OptionalColumns;

/// Everything about a model that training changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot<P> {
    /// The parameters.
    pub parameters: P,
    /// Adam's running means of the gradients, before bias correction.
    pub first_moments: P,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: P,
    /// Sums of the norms of the screen-space gradients since the last round of density control.
    pub gradient_norm_sums: Vec<f32>,
    /// Number of views that saw each Gaussian since then.
    pub views_seen: Vec<u32>,
    /// Sums of the absolute screen-space gradients since then; empty where a model has none.
    pub absolute_norm_sums: Vec<f32>,
    /// Standard deviation of each Gaussian's 3D filter, world units; empty where a model has none.
    pub filter_3d: Vec<f32>,
}

impl<P> Snapshot<P> {
    /// Which of the optional columns there are. A model of no rows has none.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }
}
