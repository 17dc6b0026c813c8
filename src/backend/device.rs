//! A device and its facts, the photographs on it, its memory, and the models that lie there.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use super::{DeviceError, Rows, Snapshot};
use crate::dataset::Image;
use crate::math::morton::Cube;
use crate::memory::plan::OptionalColumns;
use crate::memory::{Bytes, RungChange, TrainingScale};
use crate::model::Primitive;

/// A device in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// The identifier of the GPU that it is, as NVIDIA's tools write it.
    pub uuid: Option<String>,
}

/// How long a photograph stays on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// As long as the target lives, as of a view that is measured and not trained on: the device
    /// keeps nothing, and evicts nothing that it keeps.
    Transient,
    /// The device may keep it as that of this view, by its index in the dataset.
    Resident(usize),
    /// The same of a view that comes next: [`Device::resident`] has it then without a wait, where the
    /// device can bring it ahead.
    Ahead(usize),
}

/// A photograph on its way to the device.
#[derive(Clone, Copy, Debug)]
pub struct Photo<'a> {
    /// Its pixels.
    pub image: &'a Arc<Image>,
    /// How long it stays.
    pub stay: Stay,
}

/// What kind of memory an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// The driver's own, and code.
    Context,
    /// Photographs on the device.
    Photographs,
    /// Lives as long as the model.
    Region,
    /// What the blocks of an iteration lie in.
    Arena,
    /// Lives for an iteration; lies in the arena, which takes the memory.
    Block,
    /// Page-locked memory of the host; no part of the device's.
    Pinned,
}

/// What the device's memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryEntry {
    /// What it holds.
    pub label: &'static str,
    /// What kind of memory it is.
    pub kind: MemoryKind,
    /// Bytes that hold something now.
    pub bytes: Bytes,
    /// Bytes that are taken now; a block takes those of its arena.
    pub mapped: Bytes,
    /// The most that was held or taken. Not all entries are at their most at once.
    pub peak: Bytes,
    /// What was taken when all of the device's entries together took most: these add up.
    pub at_peak: Bytes,
}

/// A device's own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What holds it.
    pub entries: Vec<MemoryEntry>,
    /// The most that a recent iteration used of the memory that lives for one.
    pub recent_scratch: Bytes,
    /// What may be taken.
    pub budget: Bytes,
}

/// What becomes of the peaks that [`Device::memory`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peaks {
    /// They stay.
    Keep,
    /// The next report has those since this one.
    Reset,
}

/// How a device's memory stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadderState {
    /// What was given up or restored since the last call.
    pub changes: Vec<RungChange>,
    /// Bytes that the program holds.
    pub held: Bytes,
    /// Bytes that it may hold.
    pub budget: Bytes,
}

/// A device: what it is, the photographs on it, and its memory.
///
/// Work may be launched and not waited for; a fault of it is then reported by a later call.
pub trait Device: Sized {
    /// A photograph on the device.
    type Target;

    /// The device in words.
    fn info(&self) -> DeviceInfo;

    /// Brings a photograph to the device.
    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Self::Target, DeviceError>;

    /// The photograph of a view, where the device holds it.
    fn resident(&mut self, _view: usize) -> Option<Self::Target> {
        None
    }

    /// True if the device holds the photograph of a view, so that the host need not.
    fn is_resident(&self, _view: usize) -> bool {
        false
    }

    /// Waits until all that was launched is done.
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The device's own memory; nothing of a device that shares the host's.
    fn memory(&mut self, _peaks: Peaks) -> Option<DeviceMemory> {
        None
    }

    /// The most that was taken of the device's memory at once since the call before. Nothing of a device
    /// that shares the host's.
    fn take_peak(&mut self) -> Option<Bytes> {
        None
    }

    /// From now on density control makes no more rows than so many, where the device shares the host's
    /// memory, which has room for no more.
    fn limit_rows(&mut self, _most: usize) {}

    /// From now on takes no more than `aim` of its memory for what can be done with less, more slowly;
    /// nothing fails for it.
    fn aim_below(&mut self, _aim: Option<Bytes>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The size at which the device has memory for training views at present. Who draws them at another
    /// follows, with [`Self::use_training_scale`], before anything else is tried again: memory that is
    /// short waits for that ([`crate::memory::Rung::Resolution`]).
    fn training_scale(&self) -> TrainingScale {
        TrainingScale::FULL
    }

    /// Training views are drawn at this size from now on. The device drops the photographs that it holds,
    /// which are of another size. A run that was stopped says so of the size that it had: a device that
    /// may be short of memory goes along.
    fn use_training_scale(&mut self, _scale: TrainingScale) -> Result<(), DeviceError> {
        Ok(())
    }

    /// How the device's memory stands, and what was given up or restored since the last call. Nothing
    /// of a device that shares the host's.
    fn take_changes(&mut self) -> Option<LadderState> {
        None
    }
}

/// What holds memory of a device, or of the host for it.
pub trait Held {
    /// How much.
    fn bytes(&self) -> Bytes;
}

// Models on a device: how they come, go and lie there.

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
