//! Records of splats that go from rank to rank: made whole again, and where they lie.

use std::ops::Range;

use crate::abi::{RECORD_WIDTH, UnpackSplatsArgs};
use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer, DeviceRange};
use crate::backend::cuda::session::Session;
use crate::backend::cuda::stage::project::{Order, Splats};

/// Makes of splats that have come, from `first` on, what a projection leaves.
pub(super) fn unpack(
    session: &Session,
    splats: &mut Splats,
    first: usize,
) -> Result<(), DeviceError> {
    let Splats { visible, records, gradients, kind, .. } = splats;
    let mut order = Order::of(gradients, *kind)?;
    let args = UnpackSplatsArgs {
        splats: records.write(),
        tiles: order.tiles.write(),
        depth_keys: order.depth_keys[0].write(),
        splat_indices: order.splat_indices[0].write(),
        instance_counts: order.instance_counts.write(),
        first: count_u32(first)?,
        end: count_u32(*visible)?,
    };
    session.kernels.unpack_splats.over(&session.stream, visible.saturating_sub(first), &args)
}

/// Where the records of these splats lie, or those of their gradients.
pub(super) fn place(
    records: &Block<f32>,
    splats: Range<usize>,
) -> Result<DeviceRange, DeviceError> {
    let width = RECORD_WIDTH as usize;
    records.place("exchange", &(splats.start * width..splats.end * width))
}

/// Where the splats of each rank lie in the view of one: its own first, then those of the others by rank.
pub(super) fn segments(counts: &[u64], own: u32) -> Vec<Range<usize>> {
    let count = |rank: usize| usize::try_from(counts[rank]).unwrap_or(usize::MAX);
    let own = own as usize;
    let mut next = count(own);
    let segment = |rank: usize| {
        if rank == own {
            return 0..count(own);
        }
        let first = next;
        next += count(rank);
        first..next
    };
    (0..counts.len()).map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_lie_side_by_side_the_own_one_first() {
        assert_eq!(segments(&[3, 4, 5], 0), [0..3, 3..7, 7..12]);
        assert_eq!(segments(&[3, 4, 5], 1), [4..7, 0..4, 7..12]);
        assert_eq!(segments(&[3, 0, 5], 2), [5..8, 8..8, 0..5]);
    }
}
