//! Stage `project`: rows to splats, and screen-space gradients back to raw parameters.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::gradients::{Gradients, UNSEEN};
use crate::backend::DeviceError;
use crate::backend::cpu::model::{Model, NotFinite, Parameter};
use crate::backend::cpu::primitive::Drawable;
use crate::backend::cpu::splat::{DrawnView, Splat};
use crate::math::Real;
use crate::model::{Gaussians, Primitive};

/// The rows that the view sees, in their order, and what is wrong with the first that is broken.
pub(crate) fn project<R: Real, P: Drawable>(
    model: &Model<R, P>,
    view: &DrawnView<R>,
) -> (Vec<Splat<R>>, Option<DeviceError>) {
    let first_broken = FirstBroken::new();
    let look = |row| P::project(model, row, view);
    let rows = (0..model.len()).into_par_iter();
    let splats = rows.filter_map(|row| first_broken.unless(row, look(row))).collect();
    (splats, first_broken.fault::<P, _>(look))
}

/// The first of the rows that are broken, while many threads look at them.
pub(super) struct FirstBroken(AtomicUsize);

impl FirstBroken {
    /// None is.
    pub(super) const fn new() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    /// What was seen of a row; nothing of one that is broken.
    pub(super) fn unless<T>(&self, row: usize, seen: Result<Option<T>, NotFinite>) -> Option<T> {
        seen.unwrap_or_else(|_| {
            self.0.fetch_min(row, Ordering::Relaxed);
            None
        })
    }

    /// What is wrong with it, found by another look.
    pub(super) fn fault<P: Primitive, T>(
        self,
        look: impl Fn(usize) -> Result<T, NotFinite>,
    ) -> Option<DeviceError> {
        let row = self.0.into_inner();
        let fault = (row != usize::MAX).then(|| look(row).err()).flatten();
        fault.map(|fault| fault.of_row::<P>(row))
    }
}

/// Gradients of one row's raw parameters.
#[derive(Clone, Debug)]
pub struct ParameterGradient<R, P = Gaussians> {
    /// Columns in the order of the schema.
    values: Vec<R>,
    spans: Vec<Range<usize>>,
    primitive: PhantomData<P>,
}

impl<R: Real, P: Drawable> ParameterGradient<R, P> {
    /// Of row `index`, as a step takes them.
    pub(crate) fn new(model: &Model<R, P>, gradients: &Gradients<R, P>, index: usize) -> Self {
        let splat_from_row = gradients.splat_from_row(model.len());
        let mut values = vec![R::ZERO; model.row_width()];
        parameter_gradient(model, gradients, &splat_from_row, index, &mut values);
        Self { values, spans: model.spans(), primitive: PhantomData }
    }

    /// Of one column, by its place in the schema.
    pub fn column(&self, column: usize) -> &[R] {
        &self.values[self.spans[column].clone()]
    }
}

impl<R: Real> ParameterGradient<R> {
    /// The gradient of one parameter, as a row of its column.
    pub fn row(&self, parameter: Parameter) -> &[R] {
        self.column(parameter as usize)
    }
}

/// Mean over the views of the gradients of a row, and of what surface terms add to those of its geometry;
/// `splat_from_row[view][row]` finds its splat. Adds them to `d_row`, all columns in the order of the schema.
pub(crate) fn parameter_gradient<R: Real, P: Drawable>(
    model: &Model<R, P>,
    gradients: &Gradients<R, P>,
    splat_from_row: &[Vec<usize>],
    row: usize,
    d_row: &mut [R],
) {
    for (view, splat_from_row) in gradients.views.iter().zip(splat_from_row) {
        if splat_from_row[row] != UNSEEN {
            P::project_bwd(model, row, &view.view, &view.screen[splat_from_row[row]], d_row);
        }
    }
    if let Some(d_ellipsoid) = gradients.geometry.as_chunks().0.get(row) {
        // Only a model that is a density in space has any.
        if let Some(field) = P::density_field(model) {
            field.ellipsoid_bwd(d_ellipsoid, d_row);
        }
    }
    if gradients.views.len() > 1 {
        let share = R::of(1.0 / gradients.views.len() as f64);
        for value in d_row {
            *value *= share;
        }
    }
}
