//! What a device reports of its own work, for `splat bench`.

use super::frame_state::Drawn;
use super::{CopySpeed, DeviceError, Render, StageTime, Work};
use crate::model::Primitive;

/// Devices that may time and count their stages; all methods do nothing by default.
pub trait Profiler<P: Primitive>: Render<P> {
    /// Begins or ends the timing of stages, which costs a little time itself.
    fn time_stages(&mut self, _on: bool) {}

    /// What the stages since the last call took, in the order in which they ran; waits for them.
    /// Empty while they are not timed, and of a device that cannot time them.
    fn stage_times(&mut self) -> Result<Vec<StageTime>, DeviceError> {
        Ok(Vec::new())
    }

    /// How fast the device copies its own memory: what the stages' times are compared with. Waits
    /// for it. Nothing of a device that does not time its stages, or has no room for the copy.
    fn copy_speed(&mut self) -> Result<Option<CopySpeed>, DeviceError> {
        Ok(None)
    }

    /// Counts what a frame gives the stages to do when the step follows. Waits for the device, and
    /// takes long. Nothing of a device that does not time its stages.
    fn work(
        &mut self,
        _model: &Self::Model,
        _frame: &Self::Frame<Drawn>,
    ) -> Result<Option<Work>, DeviceError> {
        Ok(None)
    }

    /// Gives back the memory that is kept for the next iteration.
    fn trim_memory(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}
