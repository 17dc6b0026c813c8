//! Applies the Adam steps that invisible colours have skipped.

use super::lanes::LANES;
use super::tables::Model;
use crate::abi::CatchUpArgs;
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::session::Session;
use crate::math::random::{Purpose, Stream as Random};
use crate::memory::plan::Storage;

/// Brings all colours up to date, so that the tables hold what dense Adam would.
pub(crate) fn catch_up(session: &Session, model: &mut Model) -> Result<(), DeviceError> {
    let lane_blocks = model.len().div_ceil(LANES);
    let (sh_width, storage) = (model.sh_width(), model.storage());
    let steps = u64::from(model.momentum.steps());
    let [.., sh, sh_first, sh_second] = model.tables.each_mut().map(Buffer::write);
    let args = CatchUpArgs {
        lazy: model.momentum.now(),
        lane_blocks: count_u32(lane_blocks)?,
        sh_width,
        sh,
        sh_first,
        sh_second,
        sh_steps: model.sh_steps.write(),
        key: Random::new(session.seed, steps, Purpose::RoundCatchUp).key(),
    };
    let kernel = match storage {
        Storage::Full => &session.kernels.catch_up_all,
        Storage::Compact => &session.kernels.catch_up_all_compact,
    };
    kernel.over(&session.stream, lane_blocks * LANES, &args)?;
    model.momentum.mark_caught_up();
    Ok(())
}
