//! Models on a device: how they come, go and lie there.

use std::ops::Range;

use super::{Device, DeviceError, Rows};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

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

/// What a model is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Number of primitives.
    pub rows: usize,
    /// The columns that not every model has; none where it has no rows.
    pub optional: OptionalColumns,
    /// Bytes of the parameters.
    pub parameters: Bytes,
    /// Bytes of the moments and statistics.
    pub optimizer: Bytes,
}

/// Models of one kind of primitive on a device.
pub trait Store<P: Primitive>: Device {
    /// Parameters, moments and statistics.
    type Model;

    /// Puts primitives on the device, moments and statistics zero.
    fn upload(&mut self, host: &P) -> Result<Self::Model, DeviceError>;

    /// The model that is made of these rows, of which the host holds one chunk at a time.
    fn load<S: Rows<P>>(&mut self, source: &mut S) -> Result<Self::Model, S::Error>
    where
        S::Error: From<DeviceError>;

    /// These rows' parameters as they are now. A device may first catch up on steps that it deferred.
    fn read_parameters(
        &mut self,
        model: &mut Self::Model,
        rows: Range<usize>,
    ) -> Result<P, DeviceError>;

    /// The same with their moments and statistics.
    fn read(
        &mut self,
        model: &mut Self::Model,
        rows: Range<usize>,
    ) -> Result<Snapshot<P>, DeviceError>;

    /// The parameters of these rows, in their order; a row may come up more than once.
    fn sample(&mut self, model: &mut Self::Model, rows: &[usize]) -> Result<P, DeviceError>;

    /// What the model is made of.
    fn shape(&self, model: &Self::Model) -> ModelShape;

    /// Puts the rows in the order of their centres along the Z-curve around a cube, so that
    /// neighbours in space are neighbours in memory; rows of one key keep their order.
    ///
    /// Parameters, moments and statistics move alike: which primitives there are does not change,
    /// but rows get other numbers. Where it is refused nothing has moved.
    fn reorder(&mut self, model: &mut Self::Model, cube: &Cube) -> Result<(), DeviceError>;

    /// Number of primitives.
    fn len(&self, model: &Self::Model) -> usize {
        self.shape(model).rows
    }

    /// The columns that not every model has; none where it has no rows.
    fn optional(&self, model: &Self::Model) -> OptionalColumns {
        self.shape(model).optional
    }

    /// All primitives at once. What is large is better read in [`super::chunks`].
    fn download(&mut self, model: &mut Self::Model) -> Result<P, DeviceError> {
        let all = 0..self.len(model);
        self.read_parameters(model, all)
    }

    /// All primitives, moments and statistics at once. What is large is better read in
    /// [`super::chunks`].
    fn snapshot(&mut self, model: &mut Self::Model) -> Result<Snapshot<P>, DeviceError> {
        let all = 0..self.len(model);
        self.read(model, all)
    }

    /// The model that a snapshot was taken of.
    fn restore(&mut self, mut snapshot: Snapshot<P>) -> Result<Self::Model, DeviceError> {
        self.load(&mut snapshot)
    }

    /// Between two iterations, of which so many are done: returns what is not needed of the device's
    /// memory, makes do with less where other programs need it, and restores what was given up where
    /// there is room. Most calls do nothing.
    fn govern(&mut self, _model: &mut Self::Model, _iteration: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    /// After an error that says that there is too little memory: gives up what only can be between
    /// two iterations. Returns whether another try is worth it.
    fn relieve(
        &mut self,
        _model: &mut Self::Model,
        _error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Of so many births, as many as there is memory for, now and in the iterations that follow.
    fn grant_births(
        &mut self,
        _model: &mut Self::Model,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        Ok(requested)
    }
}
