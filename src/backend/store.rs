//! Models on a device: upload, download, and memory.

use std::ops::Range;

use super::{Device, DeviceError, Rows, Snapshot};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

/// Size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Number of primitives.
    pub rows: usize,
    /// Optional columns; none without rows.
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

    /// Creates a model of these rows. The host holds one chunk at a time.
    fn load<S: Rows<P>>(&mut self, source: &mut S) -> Result<Self::Model, S::Error>
    where
        S::Error: From<DeviceError>;

    /// Reads the current parameters of these rows. A device may first catch up on steps that it deferred.
    fn read_parameters(
        &mut self,
        model: &mut Self::Model,
        rows: Range<usize>,
    ) -> Result<P, DeviceError>;

    /// Reads the current parameters, moments and statistics of these rows.
    fn read(
        &mut self,
        model: &mut Self::Model,
        rows: Range<usize>,
    ) -> Result<Snapshot<P>, DeviceError>;

    /// Reads the parameters of these rows, in their order. A row may be repeated.
    fn sample(&mut self, model: &mut Self::Model, rows: &[usize]) -> Result<P, DeviceError>;

    /// Returns the size of the model.
    fn shape(&self, model: &Self::Model) -> ModelShape;

    /// Sorts the rows by their centres' keys on the Z-curve around a cube, so that neighbours in space are neighbours
    /// in memory. Rows with equal keys keep their order.
    ///
    /// Parameters, moments and statistics move alike. Nothing moves if memory is refused.
    fn reorder(&mut self, model: &mut Self::Model, cube: &Cube) -> Result<(), DeviceError>;

    /// Returns the number of primitives.
    fn len(&self, model: &Self::Model) -> usize {
        self.shape(model).rows
    }

    /// Returns the optional columns; none without rows.
    fn optional(&self, model: &Self::Model) -> OptionalColumns {
        self.shape(model).optional
    }

    /// Reads all primitives at once. Read large models in [`super::chunks`].
    fn download(&mut self, model: &mut Self::Model) -> Result<P, DeviceError> {
        let all = 0..self.len(model);
        self.read_parameters(model, all)
    }

    /// Reads all primitives, moments and statistics at once. Read large models in [`super::chunks`].
    fn snapshot(&mut self, model: &mut Self::Model) -> Result<Snapshot<P>, DeviceError> {
        let all = 0..self.len(model);
        self.read(model, all)
    }

    /// Creates a model from a snapshot.
    fn restore(&mut self, mut snapshot: Snapshot<P>) -> Result<Self::Model, DeviceError> {
        self.load(&mut snapshot)
    }

    /// Adapts the device's memory between two iterations: frees what is not needed, takes fallbacks if other programs
    /// need memory, and undoes fallbacks if there is room. Most calls do nothing. `_iteration` is the number of
    /// finished iterations.
    fn govern(&mut self, _model: &mut Self::Model, _iteration: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Takes a fallback between two iterations after an error about missing memory. Returns true if a retry may
    /// succeed.
    fn relieve(
        &mut self,
        _model: &mut Self::Model,
        _error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Returns the number of requested new Gaussians that there is memory for, now and in the iterations that follow.
    fn grant_births(
        &mut self,
        _model: &mut Self::Model,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        Ok(requested)
    }
}
