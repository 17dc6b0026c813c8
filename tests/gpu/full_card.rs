//! A card that other programs fill.

use crate::common::cuda::alone;
use crate::common::program::{TestFolder, end};
use splat::backend::cuda::heap::{Heap, Region};
use splat::backend::cuda::session::Session;
use splat::layout::Slot;
use splat::memory::Allowance;

/// Of the card, per thousand, what is left free: less than the 3 % that a run leaves to others, and enough
/// for a second program's context.
const LEFT_PERMILLE: u64 = 25;

#[test]
#[ignore = "needs a CUDA device"]
fn a_run_on_a_card_that_others_fill_says_who_and_what_helps() {
    let _alone = alone();
    let session = Session::open(None).unwrap_or_else(|error| panic!("{error}"));
    let card = session.device.memory();
    let heap = Heap::open_plain(&session.device, Allowance::new(None, 1.0, card)).unwrap();
    let left = card.0 / 1000 * LEFT_PERMILLE;
    let taken = usize::try_from(heap.driver_free().unwrap().0 - left).unwrap();
    let mut ballast: Region<u8> = heap.region(&Slot::unlisted("ballast")).unwrap();
    ballast.grow(taken).unwrap();

    let place = TestFolder::with_scene();
    let ended = end(place.train().args(["--device", "cuda", "--iterations", "2"]));
    let ended = ended.refused(4, &["has too little free memory", "--vram-threshold"]);
    for wrong in ["cannot be used", "most by nothing", "0.0 of 0.0"] {
        assert!(!ended.stderr.contains(wrong), "{ended:#?}");
    }
    // In a container, the driver may keep the names to itself.
    let own = format!("process {}", std::process::id());
    let is_named = ended.stderr.contains(&own) || ended.stderr.contains("does not name");
    assert!(is_named, "{ended:#?}");
    drop(ballast);
}
