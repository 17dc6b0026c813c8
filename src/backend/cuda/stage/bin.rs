//! Stage `bin`: which splats each tile draws, front to back.

use std::ops::Range;

use super::extent::Extent;
use super::project::{Order, Splats};
use crate::abi::{CountRowsArgs, In, InstancesArgs, Out, RangesArgs, TileRange, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::launch::Kernel;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer, Heap};
use crate::backend::cuda::memory::sort::{SortKey, SortPairs, exclusive_sum_ordered, sort_pairs};
use crate::backend::cuda::session::Session;
use crate::layout::{self, CountSlots, Keys, List, ListSizes, ROW_INSTANCES};
use crate::memory::Bytes;

/// Splats listed by tile.
pub(crate) struct Bins {
    /// What is listed.
    pub(crate) extent: Extent,
    /// Slots, front to back within a tile; `[instances]`.
    pub(crate) splat_from_instance: Block<u32>,
    /// Of all tiles of the view; `[tiles]`.
    pub(crate) ranges: Block<TileRange>,
}

impl Bins {
    pub(crate) fn bytes(&self) -> Bytes {
        self.splat_from_instance.bytes() + self.ranges.bytes()
    }

    /// Room for a list, and as much again to sort it.
    pub(crate) fn reserve(heap: &Heap, extent: Extent) -> Result<(Self, Block<u32>), DeviceError> {
        let List { ranges, splat_from_instance, spare } = List::reserve(heap, &extent.sizes(None))?;
        Ok((Self { extent, splat_from_instance, ranges }, spare))
    }
}

/// What bands are listed from.
pub(crate) type Sorted = layout::OrderSlots<Heap>;

/// Copies it from splats that are in order, of whose two buffers of slots one is.
pub(crate) fn keep_order(
    session: &Session,
    (splats, front_to_back): (&mut Splats, usize),
    sizes: &ListSizes,
) -> Result<Sorted, DeviceError> {
    let visible = splats.visible;
    let order = Order::of(&mut splats.gradients)?;
    let mut sorted = Sorted::reserve(&session.heap, sizes)?;
    let slots = (&order.slots[front_to_back], 0..visible);
    sorted.slots.copy_from(&session.stream, 0, slots)?;
    sorted.tiles.copy_from(&session.stream, 0, (&order.tiles, 0..visible))?;
    Ok(sorted)
}

/// Sorts the slots by depth, equal depths in any order, and finds each splat's first instance. Says
/// which of the two buffers of slots is in order.
pub(crate) fn sort_by_depth(session: &Session, splats: &mut Splats) -> Result<usize, DeviceError> {
    let visible = splats.visible;
    let begun = session.timers.begin(Stage::Sort, &session.stream)?;
    let mut order = Order::of(&mut splats.gradients)?;
    let sorted = sort_pairs(
        &session.heap,
        &session.stream,
        &mut SortPairs {
            keys: order.depth_keys.each_mut(),
            values: order.slots.each_mut(),
            n: visible,
            bits: 0..u32::BITS,
        },
    )?;
    let counts = (&order.instance_counts, &order.slots[sorted]);
    exclusive_sum_ordered(&session.heap, &session.stream, visible, counts, &mut order.firsts)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(sorted)
}

/// Lists every splat in the tiles that it reaches.
pub(crate) fn list_whole(
    session: &Session,
    (splats, front_to_back): (&mut Splats, usize),
    camera: &ViewCamera,
    extent: Extent,
) -> Result<Bins, DeviceError> {
    let (bins, spare) = Bins::reserve(&session.heap, extent)?;
    let order = Order::of(&mut splats.gradients)?;
    let kernels = &session.kernels;
    let args = InstancesArgs {
        splats: splats.records.read(),
        tiles: order.tiles.read(),
        instance_counts: order.instance_counts.read(),
        slots: order.slots[front_to_back].read(),
        firsts: order.firsts.read(),
        visible: count_u32(splats.visible)?,
        ..empty_args(camera)
    };
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let bins = list(session, [&kernels.instances_16, &kernels.instances_32], args, (bins, spare))?;
    session.timers.end(&begun, &session.stream)?;
    Ok(bins)
}

/// Lists the splats in the tiles that they reach in a band.
pub(crate) fn list_band(
    session: &Session,
    (splats, sorted): (&Splats, &Sorted),
    camera: &ViewCamera,
    extent: Extent,
) -> Result<Bins, DeviceError> {
    let visible = splats.visible;
    // Above the list and its spare there is nothing that stays.
    let (bins, spare) = Bins::reserve(&session.heap, extent)?;
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let rows = bins.extent.rows.clone();
    let sizes = bins.extent.sizes(Some(visible));
    let CountSlots { mut counts, mut firsts } = CountSlots::reserve(&session.heap, &sizes)?;
    let asked = (counts.write(), Out::NULL);
    count(session, (splats, sorted), (camera, rows.clone()), asked)?;
    let order = (&counts, &sorted.slots);
    exclusive_sum_ordered(&session.heap, &session.stream, visible, order, &mut firsts)?;
    let kernels = &session.kernels;
    let args = InstancesArgs {
        splats: splats.records.read(),
        tiles: sorted.tiles.read(),
        instance_counts: counts.read(),
        slots: sorted.slots.read(),
        firsts: firsts.read(),
        visible: count_u32(visible)?,
        band_first: rows.start,
        band_end: rows.end,
        ..empty_args(camera)
    };
    let by_bits = [&kernels.band_instances_16, &kernels.band_instances_32];
    let bins = list(session, by_bits, args, (bins, spare))?;
    session.timers.end(&begun, &session.stream)?;
    Ok(bins)
}

/// Instances of every row of tiles. Waits for the device.
pub(crate) fn rows(
    session: &Session,
    splats: (&Splats, &Sorted),
    camera: &ViewCamera,
) -> Result<Vec<u64>, DeviceError> {
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let len = camera.tiles[1];
    let mut rows = session.heap.take(&ROW_INSTANCES, &ListSizes::whole(camera.tiles, 0))?;
    rows.zero(&session.stream)?;
    count(session, splats, (camera, 0..len), (Out::NULL, rows.write()))?;
    session.timers.end(&begun, &session.stream)?;
    let mut host = vec![0; rows.len()];
    rows.download(&session.stream, 0, &mut host)?;
    Ok(host)
}

/// Counts instances in some rows, by slot and by row.
fn count(
    session: &Session,
    (splats, sorted): (&Splats, &Sorted),
    (camera, band): (&ViewCamera, Range<u32>),
    (instance_counts, rows): (Out<'_, u32>, Out<'_, u64>),
) -> Result<(), DeviceError> {
    let args = CountRowsArgs {
        splats: splats.records.read(),
        tiles: sorted.tiles.read(),
        instance_counts,
        rows,
        camera: *camera,
        visible: count_u32(splats.visible)?,
        band_first: band.start,
        band_end: band.end,
        reserved: 0,
    };
    session.kernels.count_rows.over(&session.stream, splats.visible, &args)
}

/// Arguments that list no splats.
fn empty_args(camera: &ViewCamera) -> InstancesArgs<'static> {
    InstancesArgs {
        splats: In::NULL,
        tiles: In::NULL,
        instance_counts: In::NULL,
        slots: In::NULL,
        firsts: In::NULL,
        keys: Out::NULL,
        splat_from_instance: Out::NULL,
        camera: *camera,
        visible: 0,
        band_first: 0,
        band_end: 0,
        reserved: 0,
    }
}

/// Writes every pair of a splat and a tile, sorts them by tile, and finds the tiles' ranges. One
/// kernel for keys of 16 bits, one for those of 32.
fn list(
    session: &Session,
    [list_16, list_32]: [&Kernel<InstancesArgs<'static>>; 2],
    args: InstancesArgs<'_>,
    (mut bins, spare): (Bins, Block<u32>),
) -> Result<Bins, DeviceError> {
    bins.ranges.zero(&session.stream)?;
    match Keys::reserve(&session.heap, &bins.extent.sizes(None))? {
        Keys::Bits16(keys) => {
            list_by(session, (list_16, &session.kernels.ranges_16), args, (bins, spare, keys))
        }
        Keys::Bits32(keys) => {
            list_by(session, (list_32, &session.kernels.ranges_32), args, (bins, spare, keys))
        }
    }
}

/// The same with keys of so many bits.
fn list_by<K: SortKey>(
    session: &Session,
    (list, find_ranges): (&Kernel<InstancesArgs<'static>>, &Kernel<RangesArgs<'static>>),
    args: InstancesArgs<'_>,
    (mut bins, mut spare, mut keys): (Bins, Block<u32>, [Block<K>; 2]),
) -> Result<Bins, DeviceError> {
    let instances = bins.extent.instances;
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
            bits: 0..bins.extent.sizes(None).key_bits(),
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
