//! What is said where other programs hold the card's memory.

use super::Heap;
use super::fake::FakeDevice;
use crate::backend::DeviceError;
use crate::layout::Slot;
use crate::memory::{Allowance, Bytes};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A card of 140 GiB without a limit, of which other programs hold so much.
fn beside(foreign: u64) -> Heap {
    let device = FakeDevice::new(140 * GIB, true);
    device.state.borrow_mut().foreign = foreign;
    let allowance = Allowance::new(None, 0.97, Bytes(140 * GIB));
    Heap::over(Box::new(device), allowance).unwrap()
}

#[test]
fn a_card_that_others_have_filled_is_said_with_what_helps() {
    let heap = beside(136 * GIB);
    let slot = Slot::<u8, _>::unlisted("sort");
    let error = heap.take(&slot, &(2 * MIB)).map(drop).unwrap_err();
    assert!(error.is_out_of_memory() && error.is_short_beside_others());
    let text = error.to_string();
    for part in ["`sort` needs 2.0 MiB", "136.0 of 140.0 GiB", "4.2 stay free", "0.0 of 0.0 MiB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn context_and_code_that_find_no_room_are_not_counted_as_held_by_others() {
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
fn a_limit_of_the_users_own_is_not_blamed_on_others() {
    let device = FakeDevice::new(16 * GIB, true);
    device.state.borrow_mut().foreign = GIB;
    let limit = Some(crate::memory::Limit::Bytes(Bytes(8 * MIB)));
    let heap = Heap::over(Box::new(device), Allowance::new(limit, 1.0, Bytes(16 * GIB))).unwrap();
    let slot = Slot::<u8, _>::unlisted("splats");
    let error = heap.take(&slot, &(20 * MIB)).map(drop).unwrap_err();
    assert!(matches!(error, DeviceError::Refused(_)) && !error.is_short_beside_others());
    let text = error.to_string();
    assert!(text.contains("0.0 of 8.0 MiB are taken. Raise --vram-limit"), "{text}");
}
