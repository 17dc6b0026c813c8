//! Functions of the device's mathematics, for tests that compare them with the host's.

use super::project::camera;
use crate::abi::probe::ProbeArgs;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::session::Session;
use crate::backend::{DrawSettings, Result};
use crate::dataset::View;
use crate::layout::{PROBE_INPUTS, PROBE_OUTPUTS};

/// A function of the device and the shape of its calls.
#[derive(Clone, Copy, Debug)]
pub struct ProbeFunction {
    /// A `PROBE_` number of [`crate::abi::probe`].
    pub function: u32,
    /// Number of inputs per call.
    pub inputs: usize,
    /// Number of outputs per call.
    pub outputs: usize,
}

/// Calls a function once per row of inputs, [n, inputs]; returns [n, outputs].
pub(crate) fn probe(
    session: &Session,
    call: ProbeFunction,
    view: &View,
    settings: &DrawSettings,
    inputs: &[f32],
) -> Result<Vec<f32>> {
    let rows = inputs.len() / call.inputs;
    let mut from = session.heap.take(&PROBE_INPUTS, &(inputs.len() as u64))?;
    let mut to = session.heap.take(&PROBE_OUTPUTS, &((rows * call.outputs) as u64))?;
    from.upload(&session.stream, 0, inputs)?;
    let args = ProbeArgs {
        inputs: from.read(),
        outputs: to.write(),
        camera: camera(view, settings)?,
        function: call.function,
        n: count_u32(rows)?,
        input_width: count_u32(call.inputs)?,
        output_width: count_u32(call.outputs)?,
    };
    session.kernels.probe.over(&session.stream, rows, &args)?;
    to.download_vec(&session.stream, 0..rows * call.outputs)
}
