//! What the GPU measures of itself for `splat bench`.
//!
//! It stands here and not in `crate::bench`, because it reads what stages keep to themselves: the
//! lists of a frame, the model's tables, the session's events.

mod copy;
mod work;

use super::Cuda;
use super::device::timers::Timers;
use super::frame::Frame;
use super::model::tables::Model;
use crate::backend::frame_state::Drawn;
use crate::backend::{CopySpeed, DeviceError, Profiler, StageTime, Work};
use crate::model::Primitive;

/// Stages for which events are made beforehand: a few iterations'.
const STAGES_TIMED: usize = 64;

impl<P: Primitive> Profiler<Model<P>, Frame<Drawn, P>> for Cuda {
    fn time_stages(&mut self, on: bool) -> Result<(), DeviceError> {
        self.session.timers = if on { Timers::on(STAGES_TIMED)? } else { Timers::off() };
        Ok(())
    }

    fn stage_times(&mut self) -> Result<Vec<StageTime>, DeviceError> {
        let times = self.session.timers.take()?;
        Ok(times.into_iter().map(|(stage, ms)| StageTime { stage, ms }).collect())
    }

    fn copy_speed(&mut self) -> Result<Option<CopySpeed>, DeviceError> {
        copy::speed(&self.session)
    }

    fn work(
        &mut self,
        model: &Model<P>,
        frame: &Frame<Drawn, P>,
    ) -> Result<Option<Work>, DeviceError> {
        work::count(&self.session, model, frame)
    }

    fn trim_memory(&mut self) -> Result<(), DeviceError> {
        self.trim_memory()
    }
}
