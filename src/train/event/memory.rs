//! What a run reports of memory and of the GPU.

use serde::{Deserialize, Serialize};

use super::peaks::PhasePeaks;
use super::phase::Phase;
use crate::backend::MemoryEntry;
use crate::backend::nvidia::GpuSample;
use crate::memory::Bytes;

/// Bytes held by the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Buffers of the device by category.
    pub tensors: Tensors,
    /// Memory of a device that has its own.
    pub vram: Option<Vram>,
    /// Page-locked memory of the host that a part of the model on a GPU lies in. Systems count it in no
    /// process, or as shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloaded: Option<Bytes>,
    /// Resident host memory of the process, where the system tells it.
    pub host_resident: Option<Bytes>,
    /// RAM of the machine, where the system tells it.
    pub host_total: Option<Bytes>,
    /// RAM that the program may use of it.
    pub host_limit: Option<Bytes>,
    /// On a device without memory of its own, growth of the process that nothing explains: of
    /// `host_resident`, photographs aside, as [`Vram::creep`] is of `allocated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_creep: Option<Bytes>,
    /// The most so far, by what the run was doing.
    pub peaks: PhasePeaks,
}

/// What a buffer holds that is counted as a large one.
pub const LARGE: Bytes = Bytes(100 << 20);

/// What the program holds of a device's own memory, context and code included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vram {
    /// Bytes that hold something between two iterations.
    pub allocated: Bytes,
    /// Bytes taken from the device.
    pub reserved: Bytes,
    /// Of what is taken, the driver's own and code.
    pub context: Bytes,
    /// Of what is taken, photographs.
    pub photographs: Bytes,
    /// Of what is taken, what the buffers of an iteration lie in.
    pub scratch: Bytes,
    /// Of what is taken, bytes that serve nothing: of regions what lies behind their values, of the
    /// scratch of an iteration what none of the recent ones came to use.
    pub slack: Bytes,
    /// Growth that nothing explains: of `allocated`, photographs aside, since the model has had its
    /// present number of Gaussians for 100 iterations. Nothing before that.
    pub creep: Option<Bytes>,
    /// Buffers that hold [`LARGE`] and more between two iterations.
    pub large_count: usize,
    /// What may be taken from the device.
    pub budget: Option<Bytes>,
}

impl Vram {
    /// Share of what is taken that serves nothing, per cent.
    pub fn fragmentation_percent(&self) -> f64 {
        if self.reserved.0 == 0 { 0.0 } else { 100.0 * self.slack.gib() / self.reserved.gib() }
    }
}

/// Every buffer of the device, and what it grew to since the report before.
#[derive(Clone, Debug, Serialize)]
pub struct Buffers {
    /// Finished iterations.
    pub iteration: u32,
    /// What came before.
    pub after: Phase,
    /// Gaussians.
    pub gaussians: usize,
    /// The buffers. Peaks are those since the report before.
    pub entries: Vec<MemoryEntry>,
}

/// Bytes of the device's buffers by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    /// Trained parameters.
    pub parameters: Bytes,
    /// Adam's moments and density statistics.
    pub optimizer: Bytes,
    /// Gradients of the last iteration.
    pub gradients: Bytes,
    /// What the last forward pass kept for the backward pass.
    pub activations: Bytes,
    /// Decoded photographs that are kept, on the host and on the device.
    pub images: Bytes,
    /// Lists of the Gaussians' nearest neighbours. Logs of older programs have none.
    #[serde(default)]
    pub knn: Bytes,
}

impl Tensors {
    /// All categories together.
    pub fn total(&self) -> Bytes {
        let working = self.gradients + self.activations + self.knn;
        self.parameters + self.optimizer + working + self.images
    }
}

/// What the GPU was doing shortly before.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Finished iterations.
    pub iteration: u32,
    /// What the GPU was doing.
    #[serde(flatten)]
    pub sample: GpuSample,
}
