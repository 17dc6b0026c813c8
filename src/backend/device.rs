//! A device: its identity, photographs, memory, and stored models.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use super::{DeviceError, Rows, Snapshot};
use crate::dataset::Image;
use crate::math::morton::Cube;
use crate::memory::plan::OptionalColumns;
use crate::memory::{Bytes, FallbackChange, TrainingScale};
use crate::model::Primitive;

/// Name and identifier of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name for people.
    pub name: String,
    /// Identifier of the GPU in the format of NVIDIA's tools.
    pub uuid: Option<String>,
}

/// Lifetime of a photograph on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// As long as the target lives. For views that are measured and not trained on: the device keeps nothing and
    /// evicts nothing.
    Transient,
    /// The device may keep it as the photograph of this view (index in the dataset).
    Resident(usize),
    /// As [`Self::Resident`], for a view that comes next: the device may copy it ahead, so that [`Device::resident`]
    /// does not wait.
    Ahead(usize),
}

/// A photograph to copy to the device.
#[derive(Clone, Copy, Debug)]
pub struct Photo<'a> {
    /// Its pixels.
    pub image: &'a Arc<Image>,
    /// Its lifetime on the device.
    pub stay: Stay,
}

/// Kind of memory of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// The driver's own memory, and code.
    Context,
    /// Photographs on the device.
    Photographs,
    /// Memory that lives as long as the model.
    Region,
    /// Memory that holds the blocks of an iteration.
    Arena,
    /// Memory that lives for an iteration, in the arena.
    Block,
    /// Page-locked memory of the host, which is no part of the device's memory.
    Pinned,
}

/// One use of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryEntry {
    /// Name of the contents.
    pub label: &'static str,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Bytes in use.
    pub bytes: Bytes,
    /// Bytes allocated. A block counts the bytes of its arena.
    pub mapped: Bytes,
    /// Largest value of bytes in use or allocated. Entries reach their peaks at different times.
    pub peak: Bytes,
    /// Bytes allocated when the sum over all entries was largest; these add up.
    pub at_peak: Bytes,
}

/// State of a device's own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Uses of the memory.
    pub entries: Vec<MemoryEntry>,
    /// Largest use by a recent iteration of the memory that lives for an iteration.
    pub recent_scratch: Bytes,
    /// Upper bound on the memory.
    pub budget: Bytes,
}

/// Handling of the peaks that [`Device::memory`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peaks {
    /// Keep the peaks.
    Keep,
    /// Reset the peaks after the report.
    Reset,
}

/// State of a device's memory and of its fallbacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FallbackState {
    /// Fallbacks taken or undone since the last call.
    pub changes: Vec<FallbackChange>,
    /// Bytes that the program holds.
    pub held: Bytes,
    /// Upper bound on `held`.
    pub budget: Bytes,
}

/// A device with its photographs and memory.
///
/// Work may run asynchronously. A later call then reports its faults.
pub trait Device: Sized {
    /// A photograph on the device.
    type Target;

    /// Returns the name and identifier.
    fn info(&self) -> DeviceInfo;

    /// Copies a photograph to the device.
    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Self::Target, DeviceError>;

    /// Returns the photograph of a view if the device holds it.
    fn resident(&mut self, _view: usize) -> Option<Self::Target> {
        None
    }

    /// Returns true if the device holds the photograph of a view, so that the host need not.
    fn is_resident(&self, _view: usize) -> bool {
        false
    }

    /// Waits until all launched work is done.
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Returns the state of the device's own memory; `None` if the device shares the host's.
    fn memory(&mut self, _peaks: Peaks) -> Option<DeviceMemory> {
        None
    }

    /// Returns the largest allocation of the device's memory since the last call; `None` if the device shares the
    /// host's.
    fn take_peak(&mut self) -> Option<Bytes> {
        None
    }

    /// Limits density control to `most` rows. Only devices that share the host's memory follow.
    fn limit_rows(&mut self, _most: usize) {}

    /// Takes at most `aim` of the memory for work that can do with less, more slowly; `None` lifts the limit. No call
    /// fails for it.
    fn aim_below(&mut self, _aim: Option<Bytes>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Returns the scale of the training views that the device has memory for. If it changes, call
    /// [`Self::use_training_scale`] before anything else is tried again ([`crate::memory::Fallback::Resolution`]).
    fn training_scale(&self) -> TrainingScale {
        TrainingScale::FULL
    }

    /// Draws training views at this scale from now on. The device drops the photographs that it holds, which are of
    /// another size. A resumed run passes its earlier scale. The device follows if it may lower the resolution.
    fn use_training_scale(&mut self, _scale: TrainingScale) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Returns the state of the memory and the changes since the last call; `None` if the device shares the host's.
    fn take_changes(&mut self) -> Option<FallbackState> {
        None
    }
}

/// An owner of memory of a device, or of the host on the device's behalf.
pub trait Held {
    /// Returns the number of bytes.
    fn bytes(&self) -> Bytes;
}

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
    /// need memory, and undoes fallbacks if memory suffices. Most calls do nothing. `_iteration` is the number of
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
    fn grant_new_gaussians(
        &mut self,
        _model: &mut Self::Model,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        Ok(requested)
    }
}

/// A stage of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Projects Gaussians to the image.
    Project,
    /// Sorts splats by depth.
    Sort,
    /// Assigns splats to tiles.
    Bin,
    /// Blends the splats of each tile, front to back.
    BlendForward,
    /// Compares the image with the photograph.
    Loss,
    /// Computes the splats' gradients from the pixels'.
    BlendBackward,
    /// Updates the statistics of density control.
    Observe,
    /// Moves the parameters down the gradient.
    Step,
}
