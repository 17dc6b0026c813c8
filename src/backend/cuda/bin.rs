//! Stage `bin`: which splats each tile draws, front to back.

use super::heap::{Block, Buffer};
use super::launch::Kernel;
use super::project::{Order, Splats, count_u32};
use super::session::Session;
use super::sort::{Key, Pairs, exclusive_sum_ordered, sort_pairs};
use super::timers::Stage;
use crate::abi::{BLEND_CHUNK, Camera, InstancesArgs, Out, RangesArgs, SHORT_KEYS_MAX, TileRange};
use crate::backend::DeviceError;
use crate::memory::Bytes;

/// Most instances of a view: kernels count in steps of up to a chunk, in 32 bits, past the last.
const INSTANCES_MAX: u32 = u32::MAX - BLEND_CHUNK;

/// Splats listed by tile.
pub(super) struct Bins {
    /// Number of tiles.
    pub(super) tiles: usize,
    /// Most chunks of the tiles' lists that there can be.
    pub(super) chunks_max: usize,
    /// Slots, front to back within a tile; `[instances]`.
    pub(super) splat_from_instance: Block<u32>,
    /// `[tiles]`
    pub(super) ranges: Block<TileRange>,
}

impl Bins {
    pub(super) fn bytes(&self) -> Bytes {
        self.splat_from_instance.bytes() + self.ranges.bytes()
    }
}

/// Lists every splat in the tiles that it reaches; equal depths in any order.
pub(super) fn bin(
    session: &mut Session,
    splats: &mut Splats,
    camera: &Camera,
) -> Result<Bins, DeviceError> {
    let instances = usize::try_from(splats.instances)
        .ok()
        .filter(|&count| u32::try_from(count).is_ok_and(|count| count <= INSTANCES_MAX))
        .ok_or(DeviceError::TooManyInstances { count: splats.instances, most: INSTANCES_MAX })?;
    let tiles = camera.tiles[0] as usize * camera.tiles[1] as usize;
    let chunks_max = instances / BLEND_CHUNK as usize + tiles;
    let mut bins = Bins {
        tiles,
        chunks_max,
        ranges: session.heap.scratch("tiles", tiles)?,
        splat_from_instance: session.heap.scratch("instances", instances)?,
    };
    bins.ranges.zero(&session.stream)?;
    let front_to_back = sort_by_depth(session, splats)?;
    list(session, (splats, front_to_back), camera, &mut bins)?;
    Ok(bins)
}

/// Sorts the slots by depth and finds each splat's first instance. Says which of the two buffers of
/// slots is in order.
fn sort_by_depth(session: &mut Session, splats: &mut Splats) -> Result<usize, DeviceError> {
    let visible = splats.visible;
    let begun = session.timers.begin(Stage::Sort, &session.stream)?;
    let mut order = Order::of(&mut splats.gradients)?;
    let sorted = sort_pairs(
        &session.heap,
        &session.stream,
        &mut Pairs {
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

/// Writes every pair of a splat and a tile, sorts them by tile, and finds the tiles' ranges.
fn list(
    session: &mut Session,
    (splats, front_to_back): (&mut Splats, usize),
    camera: &Camera,
    bins: &mut Bins,
) -> Result<(), DeviceError> {
    let begun = session.timers.begin(Stage::Bin, &session.stream)?;
    let order = Order::of(&mut splats.gradients)?;
    let args = InstancesArgs {
        splats: splats.records.read(),
        tiles: order.tiles.read(),
        instance_counts: order.instance_counts.read(),
        slots: order.slots[front_to_back].read(),
        firsts: order.firsts.read(),
        keys: Out::NULL,
        splat_from_instance: Out::NULL,
        camera: *camera,
        visible: count_u32(splats.visible)?,
        reserved: 0,
    };
    if bins.tiles <= SHORT_KEYS_MAX as usize {
        let kernels = (&session.kernels.instances_16, &session.kernels.ranges_16);
        list_by::<u16>(session, kernels, args, bins)?;
    } else {
        let kernels = (&session.kernels.instances_32, &session.kernels.ranges_32);
        list_by::<u32>(session, kernels, args, bins)?;
    }
    session.timers.end(&begun, &session.stream)
}

/// The same with keys of so many bits.
fn list_by<K: Key>(
    session: &Session,
    (list, find_ranges): (&Kernel<InstancesArgs<'static>>, &Kernel<RangesArgs<'static>>),
    args: InstancesArgs<'_>,
    bins: &mut Bins,
) -> Result<(), DeviceError> {
    let instances = bins.splat_from_instance.len();
    let mut spare = session.heap.scratch("instances while sorting", instances)?;
    let mut keys = [
        session.heap.scratch::<K>("keys of instances", instances)?,
        session.heap.scratch::<K>("keys of instances", instances)?,
    ];
    let args = InstancesArgs {
        keys: keys[0].write().bytes(),
        splat_from_instance: bins.splat_from_instance.write(),
        ..args
    };
    list.over(&session.stream, args.visible as usize, &args)?;
    let sorted = sort_pairs(
        &session.heap,
        &session.stream,
        &mut Pairs {
            keys: keys.each_mut(),
            values: [&mut bins.splat_from_instance, &mut spare],
            n: instances,
            // The number behind the last tile marks empty places, so that it has to fit as well.
            bits: 0..usize::BITS - bins.tiles.leading_zeros(),
        },
    )?;
    if sorted == 1 {
        std::mem::swap(&mut bins.splat_from_instance, &mut spare);
    }
    let args = RangesArgs {
        keys: keys[sorted].read().bytes(),
        ranges: bins.ranges.write(),
        instances: instances as u64,
        tiles: count_u32(bins.tiles)?,
        reserved: 0,
    };
    find_ranges.over(&session.stream, instances, &args)
}
