//! A model on the host with everything that training changes.

use serde::{Deserialize, Serialize};

use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

/// A model's parameters, moments, statistics and filters on the host.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Snapshot<P> {
    /// The parameters.
    pub parameters: P,
    /// Adam's running means of the gradients, before bias correction.
    pub first_moments: P,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: P,
    /// Sums of the norms of the screen-space gradients since the last densification step.
    pub gradient_norm_sums: Vec<f32>,
    /// Number of views that showed each Gaussian since then.
    pub views_seen: Vec<u32>,
    /// Sums of the absolute screen-space gradients since then; empty if the model has none.
    pub absolute_norm_sums: Vec<f32>,
    /// Standard deviation of each Gaussian's 3D filter, world units; empty if the model has none.
    pub filter_3d: Vec<f32>,
}

impl<P: Primitive> Snapshot<P> {
    pub(crate) fn zeros(sh_degree: u32, rows: usize, optional: OptionalColumns) -> Self {
        let zeros = || P::zeros(sh_degree, rows);
        let optional_column = |is_there| vec![0.0; if is_there { rows } else { 0 }];
        Self {
            parameters: zeros(),
            first_moments: zeros(),
            second_moments: zeros(),
            gradient_norm_sums: vec![0.0; rows],
            views_seen: vec![0; rows],
            absolute_norm_sums: optional_column(optional.absolute_norm_sums),
            filter_3d: optional_column(optional.filter_3d),
        }
    }

    pub(crate) fn append(&mut self, others: Self) {
        self.parameters.append(others.parameters);
        self.first_moments.append(others.first_moments);
        self.second_moments.append(others.second_moments);
        self.gradient_norm_sums.extend(others.gradient_norm_sums);
        self.views_seen.extend(others.views_seen);
        self.absolute_norm_sums.extend(others.absolute_norm_sums);
        self.filter_3d.extend(others.filter_3d);
    }
}

impl<P: Primitive> Extend<Self> for Snapshot<P> {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, parts: I) {
        parts.into_iter().for_each(|part| self.append(part));
    }
}

impl<P> Snapshot<P> {
    /// Returns the optional columns that exist. A model without rows has none.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }
}
