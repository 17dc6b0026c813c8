//! CPU backend: the executable specification of every stage, and the trainer for machines without a GPU.
//!
//! Generic over the precision: `Cpu<f32>` trains, `Cpu<f64>` is the oracle of the gradient tests.
//! Results do not depend on the number of threads: sums run in a fixed order.

mod edit;
mod frame;
mod gaussians;
mod host_plan;
mod model;
mod packed;
mod primitive;
pub mod ranks;
mod rows;
mod seen;
mod traits;

/// Stages of the CPU backend. Each file specifies the kernel of the same name.
mod stage {
    pub(crate) mod adam;
    pub(crate) mod appearance;
    pub(crate) mod bin;
    pub(crate) mod bind;
    pub(crate) mod blend;
    pub(crate) mod blend_triangles;
    pub(crate) mod contribution;
    pub(crate) mod densify;
    pub(crate) mod depth;
    pub(crate) mod fuse;
    pub(crate) mod gradients;
    pub(crate) mod loss;
    pub(crate) mod lpips;
    pub(crate) mod neighbours;
    pub(crate) mod normals;
    pub(crate) mod patches;
    pub(crate) mod project;
    pub(crate) mod rays;
    pub(crate) mod relocate;
    pub(crate) mod reorder;
    pub(crate) mod smooth;
    pub(crate) mod surface;
}

use std::marker::PhantomData;

use crate::math::Real;
use crate::memory::plan::Storage;

pub use edit::Selection;
pub use frame::{Frame, Ready};
pub use host_plan::{CpuWork, WorkKind};
pub use model::{Model, ModelColumn, NotFinite, Parameter};
pub use primitive::Ellipsoid;
pub use primitive::{DensityField, Drawable, VertexRows};
pub use primitive::{DrawnView, Splat};
pub use seen::{CountedView, count};
pub use stage::bind::Binding;
pub use stage::gradients::Gradients;
pub(crate) use stage::loss::measure;
pub use stage::lpips::LpipsModel;
pub use stage::neighbours::NearestLists;
pub use stage::project::ParameterGradient;

/// The CPU device.
#[derive(Clone, Copy, Debug)]
pub struct Cpu<R> {
    /// Storage of the models that it creates.
    storage: Storage,
    /// Seed of the stochastic rounding of compact state.
    seed: u64,
    /// Largest number of rows that fits into memory, if limited.
    most_rows: Option<usize>,
    /// True if the user was warned about the limit.
    is_limit_known: bool,
    precision: PhantomData<R>,
}

impl<R: Real> Cpu<R> {
    /// Returns a device with full storage that uses rayon's global thread pool.
    pub fn new() -> Self {
        Self::with_storage(Storage::Full, 0)
    }

    /// Returns a device with this storage. `seed` determines the rounding of compact state.
    pub fn with_storage(storage: Storage, seed: u64) -> Self {
        let (most_rows, is_limit_known, precision) = (None, false, PhantomData);
        Self { storage, seed, most_rows, is_limit_known, precision }
    }

    /// Returns the gradients of all raw parameters of row `index`, as [`Render::step`](super::Render::step) uses them.
    pub fn parameter_gradient<P: Drawable>(
        &self,
        model: &Model<R, P>,
        gradients: &Gradients<R, P>,
        index: usize,
    ) -> ParameterGradient<R, P> {
        ParameterGradient::new(model, gradients, index)
    }
}

impl<R: Real> Default for Cpu<R> {
    fn default() -> Self {
        Self::new()
    }
}
