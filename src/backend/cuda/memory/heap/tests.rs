//! Tests of the heap on a device that rejects wrong calls.

use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::fake::{FakeDevice, FakeState, GRANULE, HOST_GRANULE};
use super::{Block, Buffer as _, DeviceRange, Heap, Region, parts};
use crate::abi::Plain;
use crate::backend::cuda::device::stream::{DryQueue, Stream};
use crate::backend::{DeviceError, Result};
use crate::layout::{MemoryPlace, Replay, Slot, Source};
use crate::memory::{Allowance, Bytes, HostAllowance, HostState, Kind, Limit};

const MIB: u64 = 1 << 20;

const CAPACITY: u64 = 2048 * MIB;

/// Returns an allowance of `budget` bytes, whatever others use.
fn all_of(budget: u64) -> Allowance {
    Allowance::new(Some(Limit::Bytes(Bytes(budget))), 1.0, Bytes(u64::MAX))
}

fn heap(is_virtual: bool, budget: u64) -> (FakeDevice, Heap) {
    let device = FakeDevice::new(budget.max(CAPACITY), is_virtual);
    let heap = Heap::over(Box::new(device.clone()), all_of(budget)).unwrap();
    (device, heap)
}

pub(crate) fn heap_of(budget: Bytes) -> Heap {
    heap(true, budget.0).1
}

/// Creates a region with a label that the layout does not list.
fn region<T: Plain>(heap: &Heap, label: &'static str) -> Result<Region<T>> {
    heap.region(&Slot::unlisted(label))
}

fn grown(heap: &Heap, label: &'static str, bytes: usize) -> Region<u8> {
    let mut region = region::<u8>(heap, label).unwrap();
    region.grow(bytes).unwrap();
    region
}

fn scratch<T: Plain>(heap: &Heap, label: &'static str, len: usize) -> Result<Block<T>> {
    heap.take(&Slot::unlisted(label), &(len as u64))
}

#[derive(Clone, Debug)]
enum Action {
    Grow(usize, usize),
    Shrink(usize, usize),
    Trim(usize),
    Scratch(usize),
    Drop(usize),
    TrimScratch,
    Foreign(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let bytes = || prop_oneof![0..5000_usize, 0..(300_usize << 20)];
    let action = prop_oneof![
        4 => (0..3_usize, bytes()).prop_map(|(region, len)| Action::Grow(region, len)),
        2 => (0..3_usize, bytes()).prop_map(|(region, len)| Action::Shrink(region, len)),
        1 => (0..3_usize).prop_map(Action::Trim),
        4 => bytes().prop_map(Action::Scratch),
        3 => (0..8_usize).prop_map(Action::Drop),
        1 => Just(Action::TrimScratch),
        1 => (0..CAPACITY).prop_map(Action::Foreign),
    ];
    vec(action, 1..60)
}

/// A region and its contents when it last grew.
struct Watched {
    region: Region<u8>,
    marked: u64,
}

impl Watched {
    fn mark(&mut self, device: &FakeDevice, number: usize) {
        self.marked = (self.region.len() as u64 / GRANULE) * GRANULE;
        device.mark(self.region.address(), self.marked, number as u64);
    }
}

/// Returns `None` for an out-of-memory error; any other error fails the test.
fn unless_full<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

fn play(is_virtual: bool, budget: u64, actions: &[Action]) {
    let (device, heap) = heap(is_virtual, budget);
    let labels = ["geometry", "sh", "moments"];
    let mut regions =
        labels.map(|label| Watched { region: region::<u8>(&heap, label).unwrap(), marked: 0 });
    let starts = regions.each_ref().map(|watched| watched.region.address());
    let mut blocks: Vec<Block<u8>> = Vec::new();
    for action in actions {
        match *action {
            Action::Grow(at, len) => {
                if unless_full(regions[at].region.grow(len)).is_some() {
                    regions[at].mark(&device, at);
                }
            }
            Action::Shrink(at, len) => {
                regions[at].region.shrink(len);
                regions[at].mark(&device, at);
            }
            Action::Trim(at) => regions[at].region.trim().unwrap(),
            Action::Scratch(len) => blocks.extend(unless_full(scratch::<u8>(&heap, "frame", len))),
            Action::Drop(at) => drop((at < blocks.len()).then(|| blocks.remove(at))),
            Action::TrimScratch => heap.trim_scratch().unwrap(),
            Action::Foreign(bytes) => device.state.borrow_mut().foreign = bytes,
        }
        assert_eq!(heap.total().0, device.held(), "the ledger, after {action:?}");
        assert!(device.held() <= budget, "the budget, after {action:?}");
        for (number, Watched { region, marked }) in regions.iter().enumerate() {
            assert!(device.is_usable(region.address(), region.len() as u64));
            assert!(device.is_marked(region.address(), *marked, number as u64), "{action:?}");
            assert!(!is_virtual || region.address() == starts[number], "a region moved");
        }
        for (index, block) in blocks.iter().enumerate() {
            assert!(device.is_usable(block.address(), block.len() as u64), "{action:?}");
            assert!(block.len() == 0 || block.address().is_multiple_of(256));
            for other in &blocks[..index] {
                let apart = other.address() + other.len() as u64 <= block.address()
                    || block.address() + block.len() as u64 <= other.address();
                assert!(apart || block.is_empty() || other.is_empty(), "blocks overlap");
            }
        }
        let used = |label| heap.ledger().into_iter().find(|e| e.label == label).map(|e| e.used.0);
        let live: usize = blocks.iter().map(Block::len).sum();
        assert_eq!(used("frame").unwrap_or(0), live as u64);
        assert_eq!(used("sh").unwrap_or(0), regions[1].region.len() as u64);
    }
    drop((blocks, regions));
    assert!(heap.ledger().iter().all(|entry| entry.used == Bytes(0)));
    heap.trim_scratch().unwrap();
    assert_eq!((heap.total(), device.held()), (Bytes(0), 0));
    drop(heap);
    assert!(device.has_nothing_left());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn ledger_budget_and_contents_hold_with_virtual_memory(
        actions in actions(), budget in GRANULE..CAPACITY,
    ) {
        play(true, budget, &actions);
    }

    #[test]
    fn ledger_budget_and_contents_hold_without_virtual_memory(
        actions in actions(), budget in GRANULE..CAPACITY,
    ) {
        play(false, budget, &actions);
    }
}

#[test]
fn memory_comes_in_whole_granules() {
    let (device, heap) = heap(true, 64 * MIB);
    let mut region = region::<f32>(&heap, "geometry").unwrap();
    region.grow(1_000_003).unwrap();
    assert_eq!((region.len(), region.capacity()), (1_000_003, 1 << 20));
    let entry = heap.ledger()[0];
    assert_eq!((entry.label, entry.kind), ("geometry", Kind::Region));
    assert_eq!((entry.used, entry.mapped), (Bytes(4_000_012), Bytes(4 * MIB)));
    assert_eq!(device.held(), 4 * MIB);
}

#[test]
fn a_refusal_names_the_request_and_the_largest_holder() {
    for is_virtual in [true, false] {
        let (_device, heap) = heap(is_virtual, 32 * MIB);
        let _sh = grown(&heap, "sh", 20 << 20);
        let DeviceError::Refused(refusal) =
            scratch::<u64>(&heap, "instances", 2 << 20).map(drop).unwrap_err()
        else {
            panic!("not refused");
        };
        assert_eq!((refusal.label, refusal.held), ("instances", Bytes(20 * MIB)));
        assert_eq!((refusal.wanted, refusal.budget), (Bytes(16 * MIB), Bytes(32 * MIB)));
        assert_eq!(refusal.largest[0].label, "sh");
    }
}

#[test]
fn huge_sizes_are_refused() {
    for is_virtual in [true, false] {
        let (device, heap) = heap(is_virtual, CAPACITY);
        let mut region = region::<u64>(&heap, "sh").unwrap();
        assert!(matches!(region.grow(usize::MAX), Err(DeviceError::Refused(_))));
        let block = scratch::<u64>(&heap, "instances", usize::MAX / 2);
        assert!(matches!(block.map(drop), Err(DeviceError::Refused(_))));
        assert_eq!((region.len(), device.held()), (0, 0));
    }
}

#[test]
fn memory_of_other_programs_is_reported() {
    let (device, heap) = heap(true, CAPACITY);
    device.state.borrow_mut().foreign = CAPACITY - 8 * MIB;
    let mut region = grown(&heap, "sh", 6 << 20);
    let error = region.grow(20 << 20).unwrap_err();
    let DeviceError::OutOfMemory { label, wanted, held, free, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*label, *wanted), ("sh", Bytes(14 * MIB)));
    assert_eq!((*held, *free), (Bytes(6 * MIB), Bytes(2 * MIB)));
    assert_eq!((region.len(), device.held()), (6 << 20, 6 * MIB));
    assert_eq!(heap.peak(), Bytes(6 * MIB), "what was not given was never held");
}

#[test]
fn a_region_takes_idle_memory_of_the_arena() {
    for is_virtual in [true, false] {
        let (device, heap) = heap(is_virtual, 32 * MIB);
        drop(scratch::<u8>(&heap, "frame", 20 << 20).unwrap());
        assert_eq!(device.held(), 20 * MIB);
        let _region = grown(&heap, "sh", 30 << 20);
        assert_eq!(device.held(), 30 * MIB);
    }
}

#[test]
fn scratch_restarts_without_live_blocks() {
    for is_virtual in [true, false] {
        let (device, heap) = heap(is_virtual, CAPACITY);
        let first = scratch::<u8>(&heap, "first", 3 << 20).unwrap();
        let second = scratch::<u8>(&heap, "second", 5 << 20).unwrap();
        let start = first.address();
        drop(first);
        let third = scratch::<u8>(&heap, "third", 100).unwrap();
        assert!(third.address() >= second.address() + (5 << 20), "after all live blocks");
        drop((second, third));
        let held = device.held();
        let again = scratch::<u8>(&heap, "again", 8 << 20).unwrap();
        assert!(!is_virtual || again.address() == start);
        assert!(device.held() <= held);
    }
}

#[test]
fn a_little_more_scratch_than_last_time_maps_nothing() {
    let (device, heap) = heap(true, CAPACITY);
    drop(scratch::<u8>(&heap, "frame", 400 << 20).unwrap());
    drop(scratch::<u8>(&heap, "frame", 401 << 20).unwrap());
    let held = device.held();
    drop(scratch::<u8>(&heap, "frame", 440 << 20).unwrap());
    assert_eq!(device.held(), held);
}

#[test]
fn trimming_leaves_little_behind() {
    let (device, heap) = heap(true, CAPACITY);
    let mut region = grown(&heap, "sh", 1500 << 20);
    for mib in [1301_u64, 700, 333, 65, 3, 0] {
        region.shrink(usize::try_from(mib * MIB).unwrap());
        region.trim().unwrap();
        let slack = device.held() - mib * MIB;
        assert!(slack <= mib * MIB / 16 + GRANULE, "{slack} bytes after {mib} MiB");
    }
    assert_eq!(device.held(), 0);
}

#[test]
fn pieces_of_a_block_lie_apart_and_within() {
    let (_device, heap) = heap(true, CAPACITY);
    let bytes = 4096 + 256;
    let mut block = scratch::<u8>(&heap, "block", bytes).unwrap();
    let (start, end) = (block.address(), block.address() + bytes as u64);
    let mut carve = block.carve();
    let mut first = carve.take::<f32>(1001).unwrap();
    let second = carve.take::<u8>(3).unwrap();
    assert_eq!((first.address(), second.address()), (start, start + 4096));
    assert_eq!(first.write().address(), start);
    assert!(second.address() + 3 <= end);
    assert!(carve.take::<u8>(0).is_ok());
    let error = carve.take::<u8>(1).map(drop).unwrap_err();
    let expected = "carve failed: `block` has 0 bytes left, but 1 were requested";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn a_range_outside_of_a_buffer_is_an_error() {
    let (_device, heap) = heap(true, CAPACITY);
    let mut region = region::<u32>(&heap, "sh").unwrap();
    region.grow(10).unwrap();
    let expected = DeviceRange { address: region.address() + 28, bytes: 12 };
    assert_eq!(region.place("read", &(7..10)).unwrap(), expected);
    assert!(region.place("read", &(10..10)).is_ok());
    let backwards = std::ops::Range { start: 11, end: 10 };
    for (range, text) in [(7..11, "7..11"), (backwards, "11..10")] {
        let error = region.place("read", &range).unwrap_err();
        let expected = format!("read failed: `sh` holds 10 values, but {text} were requested");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn fixed_memory_counts_against_the_budget() {
    let (_device, heap) = heap(true, 500 * MIB);
    heap.charge_fixed(Bytes(490 * MIB)).unwrap();
    assert_eq!(heap.total(), Bytes(490 * MIB));
    let mut region = region::<u8>(&heap, "sh").unwrap();
    assert!(region.grow(12 << 20).is_err());
    heap.set_budget(Bytes(502 * MIB));
    region.grow(12 << 20).unwrap();
    assert_eq!((heap.total(), heap.peak()), (Bytes(502 * MIB), Bytes(502 * MIB)));
}

#[test]
fn other_programs_shrink_the_budget_for_a_time() {
    let device = FakeDevice::new(100 * MIB, true);
    let allowance = Allowance::new(Some(Limit::Bytes(Bytes(80 * MIB))), 0.95, Bytes(100 * MIB));
    let heap = Heap::over(Box::new(device.clone()), allowance).unwrap();
    assert_eq!(heap.budget(), Bytes(76 * MIB));
    let mut region = grown(&heap, "model", 20 << 20);
    device.state.borrow_mut().foreign = 50 * MIB;
    heap.update_foreign_use().unwrap();
    // 4 of 100 MiB stay free, and others hold 50.
    assert_eq!((heap.budget(), heap.excess()), (Bytes(46 * MIB), Bytes(0)));
    let refusal = region.grow(60 << 20).unwrap_err();
    assert!(matches!(refusal, DeviceError::Refused(_)), "{refusal}");
    device.state.borrow_mut().foreign = 80 * MIB;
    heap.update_foreign_use().unwrap();
    assert_eq!((heap.budget(), heap.excess()), (Bytes(16 * MIB), Bytes(4 * MIB)));
    device.state.borrow_mut().foreign = 0;
    heap.update_foreign_use().unwrap();
    assert_eq!(heap.budget(), Bytes(76 * MIB));
    region.grow(60 << 20).unwrap();
}

#[test]
fn slack_is_memory_that_recent_iterations_did_not_need() {
    let (_, heap) = heap(true, CAPACITY);
    let need = |mib: usize| drop(scratch::<u8>(&heap, "frame", mib << 20).unwrap());
    need(600);
    heap.trim_slack().unwrap();
    assert!(heap.total() >= Bytes(600 * MIB), "needed since the last trim");
    need(200);
    heap.trim_slack().unwrap();
    assert!(heap.total() >= Bytes(600 * MIB), "needed since the trim before the last");
    assert_eq!(heap.recent_scratch(), Bytes(200 * MIB));
    need(100);
    heap.trim_slack().unwrap();
    let held = heap.total().0;
    // The last block, about a 128th of the memory before it, is not split.
    assert!((200 * MIB..=204 * MIB).contains(&held), "{held}");
    assert_eq!(heap.available_bytes(), Bytes(CAPACITY));
}

#[test]
fn live_blocks_are_not_slack() {
    let (_, heap) = heap(true, CAPACITY);
    let block = scratch::<u8>(&heap, "frame", 64 << 20).unwrap();
    for _ in 0..3 {
        heap.trim_slack().unwrap();
    }
    assert!(heap.total() >= Bytes(64 * MIB));
    drop(block);
}

proptest! {
    #[test]
    fn a_replay_places_blocks_as_the_arena_does(
        steps in vec((0..3_u8, 0..8_usize, prop_oneof![0..3000_usize, 0..(20_usize << 20)]), 1..60),
    ) {
        let (_device, heap) = heap(true, CAPACITY);
        let replay = Replay::default();
        let mut blocks = Vec::new();
        let mut base = None;
        for (choice, at, len) in steps {
            if choice == 0 && at < blocks.len() {
                drop(blocks.remove(at));
                continue;
            }
            let real = scratch::<u8>(&heap, "frame", len).unwrap();
            let slot = Slot::<u8, _>::unlisted("frame");
            let start = replay.start_of_next();
            let Ok(counted) = Source::take(&replay, &slot, &(len as u64));
            let base = *base.get_or_insert(real.address());
            prop_assert_eq!(real.address() - base, start);
            blocks.push((real, counted));
        }
        prop_assert_eq!(heap.recent_scratch(), Bytes(replay.reach()));
    }
}

/// Device memory: less than any region of these tests.
const CARD: u64 = 8 * MIB;

/// A host of 3200 MiB. This process may page-lock half, and uses 100 MiB.
const HOST: HostState =
    HostState { total: Bytes(3200 * MIB), available: Bytes(3000 * MIB), own: Bytes(100 * MIB) };

fn lent(is_virtual: bool, host: Option<HostState>) -> (FakeDevice, Heap) {
    let device = FakeDevice::new(CARD, is_virtual);
    device.state.borrow_mut().host = host;
    let allowance = Allowance::new(None, 1.0, Bytes(CARD));
    let heap = Heap::over(Box::new(device.clone()), allowance).unwrap();
    heap.set_host_allowance(HostAllowance::new(Limit::Percent(50.0), 1));
    (device, heap)
}

/// Creates a heap beside such a host.
pub(crate) fn heap_beside(host: HostState, budget: Bytes) -> Heap {
    heap_over(budget, |state| state.host = Some(host))
}

/// Creates a heap whose driver gives no memory of the host, whatever the system reports.
pub(crate) fn heap_beside_exhausted(host: HostState, budget: Bytes) -> Heap {
    heap_over(budget, |state| (state.host, state.host_is_exhausted) = (Some(host), true))
}

fn heap_over(budget: Bytes, set: impl FnOnce(&mut FakeState)) -> Heap {
    let device = FakeDevice::new(budget.0, true);
    set(&mut device.state.borrow_mut());
    Heap::over(Box::new(device), Allowance::new(None, 1.0, budget)).unwrap()
}

fn host_region(heap: &Heap, label: &'static str) -> Region<u8> {
    heap.region_in(MemoryPlace::Host, &Slot::unlisted(label)).unwrap()
}

fn grown_on_host(heap: &Heap, label: &'static str, bytes: usize) -> Region<u8> {
    let mut region = host_region(heap, label);
    region.grow(bytes).unwrap();
    region
}

#[test]
fn host_regions_take_no_device_memory() {
    for is_virtual in [true, false] {
        let (device, heap) = lent(is_virtual, Some(HOST));
        let sh = grown_on_host(&heap, "sh", (41 << 20) + 5);
        let entry = heap.ledger()[0];
        assert_eq!((entry.label, entry.kind), ("sh", Kind::Pinned));
        assert_eq!((entry.used, entry.mapped), (Bytes(41 * MIB + 5), Bytes(44 * MIB)));
        assert!(entry.mapped.0.is_multiple_of(HOST_GRANULE));
        assert_eq!((device.held(), device.held_in(MemoryPlace::Host)), (0, 44 * MIB));
        assert_eq!((heap.total(), heap.peak(), heap.on_host()), (Bytes(0), Bytes(0), entry.mapped));
        assert_eq!((sh.mapped(), sh.mapped_in(MemoryPlace::Host)), (Bytes(0), entry.mapped));
        assert!(device.is_usable(sh.address(), 41 * MIB + 5));
        drop(sh);
        assert!(device.has_nothing_left());
        assert_eq!((heap.on_host(), heap.ledger()[0].used), (Bytes(0), Bytes(0)));
    }
}

#[test]
fn a_region_of_the_host_grows_and_shrinks_with_its_contents() {
    for is_virtual in [true, false] {
        let (device, heap) = lent(is_virtual, Some(HOST));
        let mut sh = grown_on_host(&heap, "sh", 64 << 20);
        let start = sh.address();
        device.mark(start, 64 * MIB, 7);
        sh.grow(400 << 20).unwrap();
        assert_eq!(is_virtual, sh.address() == start);
        assert!(device.is_marked(sh.address(), 64 * MIB, 7));
        sh.shrink(60 << 20);
        sh.trim().unwrap();
        assert!(device.is_marked(sh.address(), 60 * MIB, 7));
        let held = device.held_in(MemoryPlace::Host);
        assert_eq!(heap.on_host(), Bytes(held));
        assert!((60 * MIB..=72 * MIB).contains(&held), "{held}");
    }
}

#[test]
fn host_ranges_are_copied_if_an_eighth_is_freed() {
    let (device, heap) = lent(false, Some(HOST));
    let mut sh = grown_on_host(&heap, "sh", 400 << 20);
    for (kept, mapped) in [(380, 400), (352, 400), (348, 348)] {
        sh.shrink(kept << 20);
        sh.trim().unwrap();
        assert_eq!(device.held_in(MemoryPlace::Host), mapped * MIB, "{kept}");
    }
    sh.shrink(0);
    sh.trim().unwrap();
    assert_eq!(heap.on_host(), Bytes(0));
}

#[test]
fn requests_beyond_the_host_are_refused() {
    let (device, heap) = lent(true, Some(HOST));
    let (mut sh, mut moments) = (host_region(&heap, "sh"), host_region(&heap, "sh, first moments"));
    sh.grow(1000 << 20).unwrap();
    assert_eq!(heap.left_on_host(), Bytes(500 * MIB));
    let error = moments.grow(504 << 20).unwrap_err();
    assert!(error.is_out_of_memory() && error.is_out_of_host_memory());
    let DeviceError::HostRefused(refusal) = &error else { panic!("{error}") };
    assert_eq!((refusal.label, refusal.wanted), ("sh, first moments", Bytes(504 * MIB)));
    assert_eq!((refusal.left, refusal.held), (Bytes(500 * MIB), Bytes(1000 * MIB)));
    assert!(error.to_string().contains("Raise --host-limit"), "{error}");
    assert_eq!(device.held_in(MemoryPlace::Host), 1000 * MIB);
    moments.grow(500 << 20).unwrap();
    drop(moments);
    device.state.borrow_mut().host = Some(HostState { available: Bytes(300 * MIB), ..HOST });
    let error = sh.grow(1204 << 20).unwrap_err().to_string();
    assert!(error.contains("End other programs"), "{error}");
    sh.grow(1200 << 20).unwrap();
}

#[test]
fn an_exhausted_driver_is_an_error_of_the_host() {
    for is_virtual in [true, false] {
        // The driver decides if the system reports nothing.
        let (device, heap) = lent(is_virtual, None);
        let mut sh = grown_on_host(&heap, "sh", 8 << 20);
        device.state.borrow_mut().host_is_exhausted = true;
        let error = sh.grow(100 << 20).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfHostMemory { label: "sh", .. }), "{error}");
        assert!(error.is_out_of_memory() && error.is_out_of_host_memory());
        assert!(error.to_string().contains("lower --max-points, or give --offload none"));
        assert_eq!((sh.len(), heap.on_host()), (8 << 20, Bytes(8 * MIB)));
        assert_eq!(device.held_in(MemoryPlace::Host), 8 * MIB);
    }
}

#[test]
fn a_copy_in_another_place_has_the_same_values_under_the_same_label() {
    let (device, heap) = lent(true, Some(HOST));
    let queue = DryQueue::new(Rc::new(|_, _| {}));
    let stream = Stream::over(queue.clone());
    let mut sh = heap.region::<u8, _>(&Slot::unlisted("sh")).unwrap();
    sh.grow(5 << 20).unwrap();
    let copy = sh.copied_to(&stream, MemoryPlace::Host).unwrap();
    // One transfer for each of the two blocks.
    assert_eq!((copy.len(), copy.label(), queue.transfers()), (5 << 20, "sh", 2));
    assert_eq!((device.held(), device.held_in(MemoryPlace::Host)), (6 * MIB, 8 * MIB));
    drop(sh);
    assert_eq!((heap.total(), heap.on_host()), (Bytes(0), Bytes(8 * MIB)));
    let back = copy.copied_to(&stream, MemoryPlace::Device).unwrap();
    drop(copy);
    assert_eq!((heap.total(), heap.on_host()), (Bytes(6 * MIB), Bytes(0)));
    assert_eq!(back.len(), 5 << 20);
}

const GIB: u64 = 1 << 30;

/// Returns the heap of a card of 140 GiB without a limit; other programs hold `foreign` bytes.
fn beside(foreign: u64) -> Heap {
    let device = FakeDevice::new(140 * GIB, true);
    device.state.borrow_mut().foreign = foreign;
    let allowance = Allowance::new(None, 0.97, Bytes(140 * GIB));
    Heap::over(Box::new(device), allowance).unwrap()
}

#[test]
fn a_card_filled_by_others_is_reported_with_a_remedy() {
    let heap = beside(136 * GIB);
    let slot = Slot::<u8, _>::unlisted("sort");
    let error = heap.take(&slot, &(2 * MIB)).map(drop).unwrap_err();
    assert!(error.is_out_of_memory() && error.is_short_beside_others());
    let text = error.to_string();
    for part in ["`sort` needs 2.0 MiB", "136.0 of 140.0 GiB", "4.2 stay free. End other programs"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn context_and_code_do_not_count_as_other_programs() {
    let heap = beside(135 * GIB + 529 * MIB);
    heap.charge_fixed(Bytes(529 * MIB)).unwrap();
    // 140 GiB less 135 of others and 4.2 that stay free.
    assert_eq!(heap.budget().0 / MIB, 819);
    heap.charge_fixed(Bytes(0)).unwrap();
    assert_eq!(heap.total(), Bytes(529 * MIB));
    let full = beside(136 * GIB + 529 * MIB);
    let error = full.charge_fixed(Bytes(529 * MIB)).unwrap_err().to_string();
    assert!(error.contains("other programs hold 136.0 of 140.0 GiB"), "{error}");
}

#[test]
fn a_user_limit_is_not_blamed_on_others() {
    let device = FakeDevice::new(16 * GIB, true);
    device.state.borrow_mut().foreign = GIB;
    let limit = Some(Limit::Bytes(Bytes(8 * MIB)));
    let heap = Heap::over(Box::new(device), Allowance::new(limit, 1.0, Bytes(16 * GIB))).unwrap();
    let slot = Slot::<u8, _>::unlisted("splats");
    let error = heap.take(&slot, &(20 * MIB)).map(drop).unwrap_err();
    assert!(matches!(error, DeviceError::Refused(_)) && !error.is_short_beside_others());
    let text = error.to_string();
    assert!(text.contains("0.0 of 8.0 MiB are taken. Raise --vram-limit"), "{text}");
}

#[test]
fn ranges_are_split_at_the_ends_of_blocks() {
    let blocks_of_ten = |done: u64| 10 - (done + 3) % 10;
    let found: Vec<_> = parts(25, blocks_of_ten).collect();
    assert_eq!(found, [(0, 7), (7, 10), (17, 8)]);
    assert_eq!(parts(25, |_| u64::MAX).collect::<Vec<_>>(), [(0, 25)]);
    assert_eq!(parts(0, |_| u64::MAX).count(), 0);
}
