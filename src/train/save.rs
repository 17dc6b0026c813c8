//! What a device holds of a model goes to files, chunk by chunk.

use std::ops::Range;
use std::path::Path;

use super::TrainError;
use crate::backend::{DeviceError, Raster, Rows, Snapshot, chunks};
use crate::export::write_ply_chunks;
use crate::memory::plan::OptionalColumns;
use crate::model::Gaussians;

/// A model where it is.
pub struct Resident<'a, B: Raster<Gaussians>> {
    /// Its device.
    pub device: &'a mut B,
    /// The model.
    pub model: &'a mut B::Model,
}

impl<B: Raster<Gaussians>> Rows<Gaussians> for Resident<'_, B> {
    type Error = DeviceError;

    fn len(&self) -> usize {
        self.device.len(self.model)
    }

    fn shape(&mut self) -> Result<Gaussians, DeviceError> {
        self.device.read_parameters(self.model, 0..0)
    }

    fn optional(&self) -> OptionalColumns {
        self.device.optional(self.model)
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError> {
        self.device.read(self.model, rows)
    }
}

/// Writes the parameters as a PLY; the host holds one chunk of them.
pub fn write_point_cloud<B: Raster<Gaussians>>(
    path: &Path,
    device: &mut B,
    model: &mut B::Model,
) -> Result<(), TrainError> {
    let sh_degree = device.read_parameters(model, 0..0)?.sh_degree;
    let count = device.len(model);
    let parameters = chunks(count).map(|rows| Ok(device.read_parameters(model, rows)?));
    write_ply_chunks::<Gaussians, TrainError>(path, (sh_degree, count), parameters)
}
