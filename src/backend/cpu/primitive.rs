//! What the stages ask of a kind of primitive: how a view sees a row, and the derivative of that.

use super::ellipsoid::Ellipsoid;
use super::model::{Model, NotFinite};
use super::splat::{DrawnView, Splat};
use crate::backend::{Capability, DeviceError, unsupported};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::field::GEOMETRY;
use crate::math::splat::Vertex;
use crate::model::Primitive;

/// Primitives that the processor draws and trains.
///
/// What only moves rows about goes by the schema; this is the rest.
pub trait Drawable: Primitive + Send + Sync {
    /// A row as the view sees it; nothing where the view does not.
    ///
    /// A value that is not finite and decides what is seen is an error: the row is left out, since in
    /// the image it would spread to every other. A colour is looked at only where the row is seen.
    fn project<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
    ) -> Result<Option<Splat<R>>, NotFinite>;

    /// Adds the gradients of the row's raw parameters to `d_row`, which holds those of all columns in the
    /// order of the schema.
    fn project_bwd<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        d_row: &mut [R],
    );

    /// The model as a density in space, where its rows make up one. Without it there are no surface
    /// terms and maps, no 3D filter, no noise and no regularisers of opacity and scale.
    fn density_field<R: Real>(_model: &Model<R, Self>) -> Option<&dyn DensityField<R>> {
        None
    }

    /// The model as vertices of triangles, where its rows are such; the derivative is that of
    /// [`Self::project_bwd`] in views of triangles. Without it there are no triangles.
    fn vertex_rows<R: Real>(_model: &Model<R, Self>) -> Option<&dyn VertexRows<R>> {
        None
    }
}

/// A model whose rows are ellipsoids that together make up a density in space.
pub trait DensityField<R>: Sync {
    /// A row, with its 3D filter.
    fn ellipsoid(&self, row: usize) -> Ellipsoid<R>;

    /// Adds the gradients of a row's centre, log-scales, quaternion and opacity logit to those of its
    /// columns in the order of the schema.
    fn ellipsoid_bwd(&self, d_ellipsoid: &[R; GEOMETRY], d_row: &mut [R]);
}

/// A model whose rows are vertices of triangles.
pub trait VertexRows<R>: Sync {
    /// A row as a view of triangles sees it; nothing where it is not beyond the nearest depth.
    ///
    /// As of [`Drawable::project`], a value that is not finite is an error.
    fn vertex(&self, row: usize, view: &DrawnView<R>) -> Result<Option<Vertex<R>>, NotFinite>;
}

/// The column of the centres, by its place in the schema.
pub(super) fn places<P: Primitive>() -> Result<usize, DeviceError> {
    P::SCHEMA.places().ok_or(unsupported::<P>("centres"))
}

/// The model as a density in space; an error where its rows do not make up one and `capability` needs it.
pub(super) fn density_field<R: Real, P: Drawable>(
    model: &Model<R, P>,
    capability: Capability,
) -> Result<&dyn DensityField<R>, DeviceError> {
    P::density_field(model).ok_or(unsupported::<P>(capability.words()))
}

/// The model as vertices of triangles; an error where its rows are none.
pub(super) fn vertex_rows<R: Real, P: Drawable>(
    model: &Model<R, P>,
) -> Result<&dyn VertexRows<R>, DeviceError> {
    P::vertex_rows(model).ok_or(unsupported::<P>("triangles"))
}
