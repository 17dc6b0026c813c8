//! Stage `bin`: which splats each tile draws, front to back.

use std::ops::Range;

use super::extent::{Extent, bytes_for};
use super::project::{Order, Splats};
use crate::abi::{Camera, CountRowsArgs, In, InstancesArgs, Out, RangesArgs, TileRange, TileRect};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::launch::Kernel;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer, Heap};
use crate::backend::cuda::memory::sort::{SortKey, SortPairs, exclusive_sum_ordered, sort_pairs};
use crate::backend::cuda::session::Session;
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
        let instances = extent.instances;
        let bins = Self {
            ranges: heap.scratch("tiles", extent.tiles())?,
            splat_from_instance: heap.scratch("instances", instances)?,
            extent,
        };
        Ok((bins, heap.scratch("instances while sorting", instances)?))
    }
}

/// Room for keys of so many bits, and as much again.
pub(crate) fn reserve_keys<K: SortKey>(
    heap: &Heap,
    instances: usize,
) -> Result<[Block<K>; 2], DeviceError> {
    Ok([
        heap.scratch("keys of instances", instances)?,
        heap.scratch("keys of instances", instances)?,
    ])
}

/// Instances of each splat in a band, and the first of each.
pub(crate) struct SplatCounts {
    /// By slot; `[visible]`.
    pub(crate) counts: Block<u32>,
    /// Front to back; `[visible]`.
    pub(crate) firsts: Block<u32>,
}

impl SplatCounts {
    pub(crate) fn reserve(heap: &Heap, visible: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            counts: heap.scratch("instances of splats", visible)?,
            firsts: heap.scratch("first instances", visible)?,
        })
    }
}

/// What bands are listed from, in scratch of its own: the splats' order lies where the backward
/// pass puts their gradients.
pub(crate) struct Sorted {
    /// Front to back; `[visible]`.
    pub(crate) slots: Block<u32>,
    /// By slot; `[visible]`.
    pub(crate) tiles: Block<TileRect>,
}

impl Sorted {
    /// Of splats that are in order, and which of the two buffers of slots is.
    pub(crate) fn of(
        session: &Session,
        (splats, front_to_back): (&mut Splats, usize),
    ) -> Result<Self, DeviceError> {
        let visible = splats.visible;
        let order = Order::of(&mut splats.gradients)?;
        let mut sorted = Self {
            slots: session.heap.scratch("slots front to back", visible)?,
            tiles: session.heap.scratch("tiles of splats", visible)?,
        };
        let slots = (&order.slots[front_to_back], 0..visible);
        sorted.slots.copy_from(&session.stream, 0, slots)?;
        sorted.tiles.copy_from(&session.stream, 0, (&order.tiles, 0..visible))?;
        Ok(sorted)
    }

    /// Bytes of the arena that it takes of so many splats.
    pub(crate) fn bytes_for(visible: usize) -> u64 {
        bytes_for::<u32>(visible) + bytes_for::<TileRect>(visible)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.slots.bytes() + self.tiles.bytes()
    }
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
    camera: &Camera,
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
    camera: &Camera,
    extent: Extent,
) -> Result<Bins, DeviceError> {
    let visible = splats.visible;
    // Above the list and its spare there is nothing that stays.
    let (bins, spare) = Bins::reserve(&session.heap, extent)?;
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let rows = bins.extent.rows.clone();
    let SplatCounts { mut counts, mut firsts } = SplatCounts::reserve(&session.heap, visible)?;
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
    camera: &Camera,
) -> Result<Vec<u64>, DeviceError> {
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let len = camera.tiles[1];
    let mut rows = session.heap.scratch::<u64>("instances of rows", len as usize)?;
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
    (camera, band): (&Camera, Range<u32>),
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
fn empty_args(camera: &Camera) -> InstancesArgs<'static> {
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
    if bins.extent.has_short_keys() {
        list_by::<u16>(session, (list_16, &session.kernels.ranges_16), args, (bins, spare))
    } else {
        list_by::<u32>(session, (list_32, &session.kernels.ranges_32), args, (bins, spare))
    }
}

/// The same with keys of so many bits.
fn list_by<K: SortKey>(
    session: &Session,
    (list, find_ranges): (&Kernel<InstancesArgs<'static>>, &Kernel<RangesArgs<'static>>),
    args: InstancesArgs<'_>,
    (mut bins, mut spare): (Bins, Block<u32>),
) -> Result<Bins, DeviceError> {
    let instances = bins.extent.instances;
    let mut keys = reserve_keys::<K>(&session.heap, instances)?;
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
            bits: bins.extent.key_bits(),
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
