//! Projection of a rank's rows into a view of any rank: splats, their counts and their records.

use std::ops::Range;

use super::share::{CudaShard, CudaShare};
use crate::abi::{Counts, RECORD_WIDTH, SHORT_KEYS_MAX, UnpackSplatsArgs};
use crate::backend::cuda::Cuda;
use crate::backend::cuda::frame::ViewGradients;
use crate::backend::cuda::memory::heap::DeviceRange;
use crate::backend::cuda::memory::status::SplatCounts;
use crate::backend::cuda::prelude::*;
use crate::backend::cuda::stage::project::{self, DrawnView, Order, ProjectionRoom, Splats};
use crate::backend::{DrawSettings, ViewSetup};
use crate::layout::{Projected, Records, SentSplats, ViewSizes};

/// Splats of this rank's rows in a view of another rank.
pub(super) struct PartOfView {
    splat_from_gaussian: Block<u32>,
    /// Splats until they are sent, then their gradients, [capacity, 12].
    splats: Block<f32>,
    /// Number of splats.
    visible: usize,
    camera: ViewCamera,
    drawing: DrawSettings,
}

/// Result of a projection.
pub(super) enum ProjectedRows {
    /// Splats of the view that this rank draws.
    Own(Splats),
    /// Splats of the view of another rank.
    Part(PartOfView),
}

/// Memory of the splats of a view.
enum RoomOfView {
    /// The view is drawn by this rank.
    Own(Projected<Heap>),
    /// The view is drawn by another rank.
    Sent(SentSplats<Heap>),
}

/// Projection of this rank's rows into a view.
pub(super) struct Projection<'a> {
    pub(super) setup: &'a ViewSetup,
    camera: ViewCamera,
    drawing: DrawSettings,
    room: RoomOfView,
    /// Largest number of splats.
    pub(super) capacity: u64,
}

impl<'a> Projection<'a> {
    /// Reserves memory for a view of this rank (`is_own`) or of another.
    pub(super) fn of(
        shard: &mut CudaShard,
        share: &CudaShare,
        setup: &'a ViewSetup,
        is_own: bool,
        capacity: u64,
    ) -> Result<Self> {
        let drawing = setup.drawing();
        check_drawing(&drawing)?;
        let camera = project::camera(&setup.view, &drawing)?;
        let [columns, rows] = camera.tiles;
        // Records count the tiles of a splat in 16 bits.
        if columns * rows > SHORT_KEYS_MAX {
            let [width, height] = camera.size;
            return Err(DeviceError::Unavailable(format!(
                "a view of {width} x {height} px has more than {SHORT_KEYS_MAX} tiles of 16 x 16 px, which \
                 several GPUs do not share: lower the --resolution"
            )));
        }
        let sizes = sizes(share, capacity);
        let room = shard.cuda.with_room(|session| match is_own {
            true => Projected::reserve(&session.heap, &sizes).map(RoomOfView::Own),
            false => SentSplats::reserve(&session.heap, &sizes).map(RoomOfView::Sent),
        })?;
        Ok(Self { setup, camera, drawing, room, capacity })
    }

    /// True if this rank draws the view.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.room, RoomOfView::Own(_))
    }

    /// Projects the rows of this rank and adds the splats to the counts.
    pub(super) fn launch(
        &mut self,
        cuda: &mut Cuda,
        share: &CudaShare,
        counts: Out<'_, Counts>,
    ) -> Result {
        let room = match &mut self.room {
            RoomOfView::Own(room) => ProjectionRoom::of(room),
            RoomOfView::Sent(SentSplats { splat_from_gaussian, records }) => {
                ProjectionRoom { splat_from_gaussian, records, gradients: None }
            }
        };
        let drawn = DrawnView { camera: &self.camera, settings: &self.drawing };
        project::launch(&mut cuda.session, &share.local, drawn, room, Some(counts))
    }

    /// Returns the projected rows. `visible`: number of splats. `instances`: number of pairs of a splat and a tile.
    pub(super) fn done(self, [visible, instances]: [u64; 2]) -> ProjectedRows {
        let Self { camera, drawing, room, .. } = self;
        let visible = usize::try_from(visible).unwrap_or(usize::MAX);
        match room {
            RoomOfView::Own(room) => {
                let counts = SplatCounts { instances, visible };
                ProjectedRows::Own(Splats::of(room, Records::Ellipses, &counts))
            }
            RoomOfView::Sent(SentSplats { splat_from_gaussian, records }) => {
                let part =
                    PartOfView { splat_from_gaussian, splats: records, visible, camera, drawing };
                ProjectedRows::Part(part)
            }
        }
    }
}

impl PartOfView {
    /// Returns the memory of the splats, and later of their gradients.
    pub(super) fn place(&self) -> Result<DeviceRange> {
        place(&self.splats, 0..self.visible)
    }

    /// Returns the received gradients.
    pub(super) fn into_gradients(self) -> ViewGradients {
        let Self { splat_from_gaussian, splats, visible, camera, drawing } = self;
        let splats = Splats::of_gradients(splat_from_gaussian, splats, visible);
        ViewGradients::of_rank(splats, camera, drawing)
    }
}

fn sizes(share: &CudaShare, capacity: u64) -> ViewSizes {
    let gaussians = share.local.len() as u64;
    ViewSizes { gaussians, visible: 0, capacity, records: Records::Ellipses, pixels: 0 }
}

/// Fails if a view needs values that ranks do not exchange.
pub(super) fn check_drawing(drawing: &DrawSettings) -> Result {
    let has_ellipses = drawing.footprint.records() == Records::Ellipses;
    if drawing.surface || drawing.median || drawing.inverse_squares || !has_ellipses {
        let what = "surfaces, surfels and triangles";
        return Err(DeviceError::Unsupported {
            primitives: "Gaussians on GPUs of several ranks",
            what,
        });
    }
    Ok(())
}

// Records of splats.

/// Unpacks received splats, from `first` on, to the outputs of a projection.
pub(super) fn unpack(session: &Session, splats: &mut Splats, first: usize) -> Result {
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

/// Returns the memory of the records of these splats, or of their gradients.
pub(super) fn place(records: &Block<f32>, splats: Range<usize>) -> Result<DeviceRange> {
    let width = RECORD_WIDTH as usize;
    records.place("exchange", &(splats.start * width..splats.end * width))
}

/// Returns the range of each rank's splats in the view of rank `own`: its own first, then the others by rank.
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
