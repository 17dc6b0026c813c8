//! Stage `bin`: lists of each tile's splats, front to back.

use std::ops::Range;

use super::project::{Order, Splats};
use crate::abi::{BLEND_CHUNK, CountRowsArgs, InstancesArgs, RangesArgs, TileRange};
use crate::backend::cuda::device::launch::Kernel;
use crate::backend::cuda::memory::sort::{SortKey, SortPairs, exclusive_sum_ordered, sort_pairs};
use crate::backend::cuda::prelude::*;
use crate::layout::{self, CountSlots, Keys, List, ListSizes, ROW_INSTANCES};

/// Splats listed by tile.
pub(crate) struct Bins {
    pub(crate) extent: Extent,
    /// Splat indices, front to back within a tile; `[instances]`.
    pub(crate) splat_from_instance: Block<u32>,
    /// Ranges of all tiles of the view; `[tiles]`.
    pub(crate) ranges: Block<TileRange>,
}

impl Bins {
    pub(crate) fn bytes(&self) -> Bytes {
        self.splat_from_instance.bytes() + self.ranges.bytes()
    }
}

/// Memory for a list and for its sort.
struct BinRoom {
    bins: Bins,
    /// The other buffer of the sort; `[instances]`.
    spare: Block<u32>,
}

impl BinRoom {
    fn reserve(heap: &Heap, extent: Extent) -> Result<Self> {
        let List { ranges, splat_from_instance, spare } = List::reserve(heap, &extent.sizes(None))?;
        Ok(Self { bins: Bins { extent, splat_from_instance, ranges }, spare })
    }
}

/// Outputs of a count of instances; either may be null.
#[derive(Clone, Copy)]
struct InstanceCounts<'a> {
    /// `[visible]`
    of_splats: Out<'a, u32>,
    /// Numbers of instances of each row of tiles.
    of_rows: Out<'a, u64>,
}

/// The sorted splats that bands are listed from.
pub(crate) type Sorted = layout::OrderSlots<Heap>;

/// Copies the sorted splats, which lie in the buffer of indices `front_to_back`.
pub(crate) fn keep_order(
    session: &Session,
    splats: &mut Splats,
    front_to_back: usize,
    sizes: &ListSizes,
) -> Result<Sorted> {
    let visible = splats.visible;
    let order = Order::of(&mut splats.gradients, splats.kind)?;
    let mut sorted = Sorted::reserve(&session.heap, sizes)?;
    let splat_indices = &order.splat_indices[front_to_back];
    sorted.splat_indices.copy_from(&session.stream, 0, splat_indices, 0..visible)?;
    sorted.tiles.copy_from(&session.stream, 0, &order.tiles, 0..visible)?;
    Ok(sorted)
}

/// Sorts the splats by depth and finds their first instances. Returns the index of the sorted buffer.
pub(crate) fn sort_by_depth(session: &Session, splats: &mut Splats) -> Result<usize> {
    let visible = splats.visible;
    let begun = session.timers.begin(Stage::Sort, &session.stream)?;
    let mut order = Order::of(&mut splats.gradients, splats.kind)?;
    let sorted = sort_pairs(
        &session.heap,
        &session.stream,
        &mut SortPairs {
            keys: order.depth_keys.each_mut(),
            values: order.splat_indices.each_mut(),
            n: visible,
            bits: 0..u32::BITS,
        },
    )?;
    let (counts, splat_indices) = (&order.instance_counts, &order.splat_indices[sorted]);
    let (heap, stream, firsts) = (&session.heap, &session.stream, &mut order.firsts);
    exclusive_sum_ordered(heap, stream, visible, counts, splat_indices, firsts)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(sorted)
}

/// Lists every splat in the tiles that it reaches.
pub(crate) fn list_whole(
    session: &Session,
    splats: &mut Splats,
    front_to_back: usize,
    camera: &ViewCamera,
    extent: Extent,
) -> Result<Bins> {
    let room = BinRoom::reserve(&session.heap, extent)?;
    let order = Order::of(&mut splats.gradients, splats.kind)?;
    let kernels = session.kernels.of(splats.kind);
    let args = InstancesArgs {
        splats: splats.records.read(),
        tiles: order.tiles.read(),
        instance_counts: order.instance_counts.read(),
        splat_indices: order.splat_indices[front_to_back].read(),
        firsts: order.firsts.read(),
        camera: *camera,
        visible: count_u32(splats.visible)?,
        ..InstancesArgs::default()
    };
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let bins = list(session, kernels.instances, args, room)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(bins)
}

/// Lists the splats in the tiles of a band that they reach.
pub(crate) fn list_band(
    session: &Session,
    splats: &Splats,
    sorted: &Sorted,
    camera: &ViewCamera,
    extent: Extent,
) -> Result<Bins> {
    let visible = splats.visible;
    // Nothing that stays lies behind the list and its spare.
    let room = BinRoom::reserve(&session.heap, extent)?;
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let rows = room.bins.extent.rows.clone();
    let sizes = room.bins.extent.sizes(Some(visible));
    let CountSlots { mut counts, mut firsts } = CountSlots::reserve(&session.heap, &sizes)?;
    let of_splats = InstanceCounts { of_splats: counts.write(), of_rows: Out::NULL };
    count(session, splats, sorted, camera, rows.clone(), of_splats)?;
    let (heap, stream, indices) = (&session.heap, &session.stream, &sorted.splat_indices);
    exclusive_sum_ordered(heap, stream, visible, &counts, indices, &mut firsts)?;
    let kernels = session.kernels.of(splats.kind);
    let args = InstancesArgs {
        splats: splats.records.read(),
        tiles: sorted.tiles.read(),
        instance_counts: counts.read(),
        splat_indices: sorted.splat_indices.read(),
        firsts: firsts.read(),
        camera: *camera,
        visible: count_u32(visible)?,
        band_first: rows.start,
        band_end: rows.end,
        ..InstancesArgs::default()
    };
    let bins = list(session, kernels.band_instances, args, room)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(bins)
}

/// Returns the number of instances of every row of tiles. Waits for the device.
pub(crate) fn rows(
    session: &Session,
    splats: &Splats,
    sorted: &Sorted,
    camera: &ViewCamera,
) -> Result<Vec<u64>> {
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let len = camera.tiles[1];
    let mut rows = session.heap.take(&ROW_INSTANCES, &ListSizes::whole(camera.tiles, 0))?;
    rows.zero(&session.stream)?;
    let of_rows = InstanceCounts { of_splats: Out::NULL, of_rows: rows.write() };
    count(session, splats, sorted, camera, 0..len, of_rows)?;
    session.timers.end(&begun, &session.stream)?;
    rows.download_vec(&session.stream, 0..rows.len())
}

/// Counts the instances in rows of tiles, by splat and by row.
fn count(
    session: &Session,
    splats: &Splats,
    sorted: &Sorted,
    camera: &ViewCamera,
    band: Range<u32>,
    counts: InstanceCounts<'_>,
) -> Result {
    let args = CountRowsArgs {
        splats: splats.records.read(),
        tiles: sorted.tiles.read(),
        instance_counts: counts.of_splats,
        rows: counts.of_rows,
        camera: *camera,
        visible: count_u32(splats.visible)?,
        band_first: band.start,
        band_end: band.end,
        reserved: 0,
    };
    session.kernels.of(splats.kind).count_rows.over(&session.stream, splats.visible, &args)
}

/// Writes every pair of a splat and a tile, sorts the pairs by tile, and finds the tiles' ranges.
fn list(
    session: &Session,
    [list_16, list_32]: [&Kernel<InstancesArgs<'static>>; 2],
    args: InstancesArgs<'_>,
    mut room: BinRoom,
) -> Result<Bins> {
    room.bins.ranges.zero(&session.stream)?;
    match Keys::reserve(&session.heap, &room.bins.extent.sizes(None))? {
        Keys::Bits16(keys) => {
            list_by(session, list_16, &session.kernels.ranges_16, args, room, keys)
        }
        Keys::Bits32(keys) => {
            list_by(session, list_32, &session.kernels.ranges_32, args, room, keys)
        }
    }
}

fn list_by<K: SortKey>(
    session: &Session,
    list: &Kernel<InstancesArgs<'static>>,
    find_ranges: &Kernel<RangesArgs<'static>>,
    args: InstancesArgs<'_>,
    BinRoom { mut bins, mut spare }: BinRoom,
    mut keys: [Block<K>; 2],
) -> Result<Bins> {
    let instances = bins.extent.instances;
    let bits = bins.extent.sizes(None).key_bits();
    // The result must end in the first buffer.
    if K::sort_of(session.heap.cub_scratch()).ends_in_second(instances as u64, bits) {
        std::mem::swap(&mut bins.splat_from_instance, &mut spare);
    }
    let args = InstancesArgs {
        keys: keys[0].write().bytes(),
        splat_from_instance: bins.splat_from_instance.write(),
        ..args
    };
    list.over(&session.stream, args.visible as usize, &args)?;
    let sorted = sort_pairs(
        &session.heap,
        &session.stream,
        &mut SortPairs {
            keys: keys.each_mut(),
            values: [&mut bins.splat_from_instance, &mut spare],
            n: instances,
            bits: 0..bits,
        },
    )?;
    if sorted == 1 {
        std::mem::swap(&mut bins.splat_from_instance, &mut spare);
    }
    let args = RangesArgs {
        keys: keys[sorted].read().bytes(),
        ranges: bins.ranges.write(),
        instances: instances as u64,
        tiles: count_u32(bins.extent.tiles())?,
        reserved: 0,
    };
    find_ranges.over(&session.stream, instances, &args)?;
    Ok(bins)
}

/// Maximum number of instances of a list: kernels count past the end in 32 bits, in steps of a chunk.
pub(crate) const INSTANCES_MAX: u32 = u32::MAX - BLEND_CHUNK;

/// The tiles of a list: all tiles of a view, or a band of tile rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Columns and rows of tiles of the view.
    pub(crate) tiles: [u32; 2],
    /// Listed rows of tiles.
    pub(crate) rows: Range<u32>,
    /// Number of pairs of a splat and a tile in these rows.
    pub(crate) instances: usize,
}

impl Extent {
    /// Returns the extent of a whole view. Fails if it has too many instances for one list.
    pub(crate) fn whole(camera: &ViewCamera, instances: u64) -> Result<Self> {
        Self::band(camera, 0..camera.tiles[1], instances)
    }

    /// Returns the extent of a band. Fails if it has too many instances for one list.
    pub(crate) fn band(camera: &ViewCamera, rows: Range<u32>, instances: u64) -> Result<Self> {
        let count = usize::try_from(instances)
            .ok()
            .filter(|&count| u32::try_from(count).is_ok_and(|count| count <= INSTANCES_MAX))
            .ok_or(DeviceError::TooManyInstances { count: instances, most: INSTANCES_MAX })?;
        Ok(Self { tiles: camera.tiles, rows, instances: count })
    }

    /// Returns the sizes of the list. In a view in bands, `counted` splats are counted again.
    pub(crate) fn sizes(&self, counted: Option<usize>) -> ListSizes {
        ListSizes {
            tiles: self.tiles,
            rows: self.rows.end.saturating_sub(self.rows.start),
            instances: self.instances as u64,
            counted: counted.map(|counted| counted as u64),
        }
    }

    pub(crate) fn tiles(&self) -> usize {
        self.tiles[0] as usize * self.tiles[1] as usize
    }

    pub(crate) fn tiles_listed(&self) -> usize {
        self.tiles[0] as usize * self.rows.len()
    }
}
