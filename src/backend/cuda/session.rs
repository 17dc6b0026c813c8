//! A GPU made ready: context, code, streams and memory, with what they take written down.

use std::rc::Rc;

use super::driver::Device;
use super::heap::{Buffer, Heap};
use super::launch::Kernels;
use super::sort;
use super::stream::Stream;
use crate::abi::FillArgs;
use crate::backend::DeviceError;
use crate::memory::Bytes;

/// What all work on the GPU needs.
pub struct Session {
    /// The memory.
    pub heap: Heap,
    /// Where work is put.
    pub stream: Stream,
    /// Where copies run beside it.
    pub copies: Stream,
    pub(super) kernels: Kernels,
    /// The GPU.
    pub device: Rc<Device>,
}

impl Session {
    /// Opens the GPU, loads all code and gives out at most `budget` of its memory, context and
    /// code included; without a budget, all of it.
    pub fn open(budget: Option<Bytes>) -> Result<Self, DeviceError> {
        let device = Device::open()?;
        let kernels = Kernels::load()?;
        let stream = Stream::new()?;
        let copies = Stream::new()?;
        let heap = Heap::open(&device, budget.unwrap_or(device.memory()))?;
        sort::warm_up(&heap, &stream)?;
        heap.trim_scratch()?;
        heap.charge_fixed(device.taken_since_opened()?)?;
        Ok(Self { heap, stream, copies, kernels, device })
    }

    /// Sets all values of a buffer.
    pub fn fill<B: Buffer<Item = u32>>(
        &self,
        buffer: &mut B,
        value: u32,
    ) -> Result<(), DeviceError> {
        let n = buffer.len();
        let arguments = FillArgs { values: buffer.write(), n: n as u64, value, reserved: 0 };
        self.kernels.fill.over(&self.stream, n, &arguments)
    }
}
