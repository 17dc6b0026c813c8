//! Regions of the host's memory, on a device and a host that are not there.

use super::fake::{FakeDevice, FakeState, HOST_GRANULE};
use super::{Buffer as _, Heap, Region};
use crate::backend::DeviceError;
use crate::backend::cuda::device::dry::DryQueue;
use crate::backend::cuda::device::stream::Stream;
use crate::layout::{MemoryPlace, Slot};
use crate::memory::{Allowance, Bytes, HostAllowance, HostState, Kind, Limit};
use std::rc::Rc;

const MIB: u64 = 1 << 20;

/// What the device has, less than any region of these tests.
const CARD: u64 = 8 * MIB;

/// A host of 3200 MiB, of which this process may take half, and has 100.
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

/// A heap of a device with so much, beside such a host, for tests of its users.
pub(in crate::backend::cuda) fn heap_beside(host: HostState, budget: Bytes) -> Heap {
    heap_over(budget, |state| state.host = Some(host))
}

/// The same where the driver gives nothing of the host's memory, whatever the system says.
pub(in crate::backend::cuda) fn heap_beside_exhausted(host: HostState, budget: Bytes) -> Heap {
    heap_over(budget, |state| (state.host, state.host_is_exhausted) = (Some(host), true))
}

fn heap_over(budget: Bytes, set: impl FnOnce(&mut FakeState)) -> Heap {
    let device = FakeDevice::new(budget.0, true);
    set(&mut device.state.borrow_mut());
    Heap::over(Box::new(device), Allowance::new(None, 1.0, budget)).unwrap()
}

fn region(heap: &Heap, label: &'static str) -> Region<u8> {
    heap.region_in(MemoryPlace::Host, &Slot::unlisted(label)).unwrap()
}

#[test]
fn a_region_of_the_host_takes_nothing_of_the_device() {
    for is_virtual in [true, false] {
        let (device, heap) = lent(is_virtual, Some(HOST));
        let mut sh = region(&heap, "sh");
        sh.grow((41 << 20) + 5).unwrap();
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
        let mut sh = region(&heap, "sh");
        sh.grow(64 << 20).unwrap();
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
fn a_range_of_the_host_is_copied_where_an_eighth_is_gained() {
    let (device, heap) = lent(false, Some(HOST));
    let mut sh = region(&heap, "sh");
    sh.grow(400 << 20).unwrap();
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
fn what_the_host_does_not_have_is_refused_and_nothing_is_taken() {
    let (device, heap) = lent(true, Some(HOST));
    let (mut sh, mut moments) = (region(&heap, "sh"), region(&heap, "sh, first moments"));
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
    // Others have taken what the limit would leave.
    drop(moments);
    device.state.borrow_mut().host = Some(HostState { available: Bytes(300 * MIB), ..HOST });
    let error = sh.grow(1204 << 20).unwrap_err().to_string();
    assert!(error.contains("End other programs"), "{error}");
    sh.grow(1200 << 20).unwrap();
}

#[test]
fn a_driver_that_has_no_more_of_the_host_is_an_error_of_the_host() {
    for is_virtual in [true, false] {
        // Of a host that tells nothing, the driver decides.
        let (device, heap) = lent(is_virtual, None);
        let mut sh = region(&heap, "sh");
        sh.grow(8 << 20).unwrap();
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
