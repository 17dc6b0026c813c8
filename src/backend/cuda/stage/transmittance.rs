//! Stage `transmittance`: the transmittance between a view's camera and positions.

use super::bin::Bins;
use super::project::Splats;
use crate::abi::{TransmittanceArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::session::Session;
use crate::layout::{PLACES, TRANSMITTANCES};

/// Positions and their transmittances after the bands so far.
pub(crate) struct Asked {
    /// World units; [places, 3].
    places: Block<f32>,
    transmittances: Block<f32>,
    count: usize,
}

impl Asked {
    pub(crate) fn new(session: &Session, places: &[[f32; 3]]) -> Result<Self, DeviceError> {
        let count = places.len();
        // A buffer has one element at least.
        let room = count.max(1) as u64;
        let mut on_device = session.heap.take(&PLACES, &room)?;
        on_device.upload(&session.stream, 0, places.as_flattened())?;
        let transmittances = session.heap.take(&TRANSMITTANCES, &room)?;
        Ok(Self { places: on_device, transmittances, count })
    }

    /// Computes the transmittances of positions in the listed tiles.
    pub(crate) fn answer(
        &mut self,
        session: &Session,
        splats: &Splats,
        bins: &Bins,
        camera: &ViewCamera,
    ) -> Result<(), DeviceError> {
        let Some(rays) = &splats.rays else { return Ok(()) };
        let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
        let args = TransmittanceArgs {
            rays: rays.values.read(),
            splat_from_instance: bins.splat_from_instance.read(),
            ranges: bins.ranges.read(),
            places: self.places.read(),
            transmittances: self.transmittances.write(),
            camera: *camera,
            count: count_u32(self.count)?,
            first_row: bins.extent.rows.start,
            end_row: bins.extent.rows.end,
            reserved: 0,
        };
        session.kernels.transmittances.over(&session.stream, self.count, &args)?;
        session.timers.end(&begun, &session.stream)
    }

    pub(crate) fn read(&self, session: &Session) -> Result<Vec<f32>, DeviceError> {
        self.transmittances.download_vec(&session.stream, 0..self.count)
    }
}
