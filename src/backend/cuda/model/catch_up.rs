//! Applies the Adam steps that invisible colours have skipped.

use super::lanes::LANES;
use super::tables::{Model, pointers};
use crate::abi::{CatchUpArgs, Out};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::session::Session;
use crate::layout::TABLE_PARTS;
use crate::math::random::{RandomStream, RandomUse};
use crate::memory::plan::Storage;
use crate::model::Primitive;

/// Brings all colours up to date, so that the tables hold what dense Adam would.
pub(crate) fn catch_up<P: Primitive>(
    session: &Session,
    model: &mut Model<P>,
) -> Result<(), DeviceError> {
    let Some(table) = P::SCHEMA.tables.iter().position(|table| table.is_lazy) else {
        model.momentum.mark_caught_up();
        return Ok(());
    };
    model.write_lines_back(session)?;
    let lane_blocks = model.len().div_ceil(LANES);
    let (sh_width, storage) =
        (P::SCHEMA.values(model.sh_degree()).nth(table).unwrap_or(0), model.storage());
    let steps = u64::from(model.momentum.steps());
    let mut tables = pointers(&mut model.tables).into_iter().skip(TABLE_PARTS * table);
    let mut next = || tables.next().unwrap_or(Out::NULL);
    let [sh, sh_first, sh_second] = [next(), next(), next()];
    let args = CatchUpArgs {
        lazy: model.momentum.now(),
        lane_blocks: count_u32(lane_blocks)?,
        sh_width,
        sh,
        sh_first,
        sh_second,
        sh_steps: model.sh_steps.write(),
        sh_drifts: model.sh_drifts.read(),
        key: RandomStream::new(session.seed, steps, RandomUse::RoundCatchUp).key(),
    };
    let kernel = match storage {
        Storage::Full => &session.kernels.catch_up_all,
        Storage::HalfColors => &session.kernels.catch_up_all_half,
        Storage::Compact | Storage::Offloaded => &session.kernels.catch_up_all_compact,
    };
    kernel.over(&session.stream, lane_blocks * LANES, &args)?;
    model.momentum.mark_caught_up();
    Ok(())
}
