//! What SuGaR's coarse stage takes beyond an iteration: the lists of neighbours, scratch of finding
//! them, and scratch of what is asked of surfaces.

use super::frame::{self, Lists, Pass, ViewSize};
use super::library::{self, Key};
use super::stack::{Row, Stack, Taken};
use crate::abi::{BOX_WIDTH, EXTENT_WIDTH, PLACED_WIDTH, SURFACE_WIDTH};
use crate::memory::Bytes;

/// Lengths that lists of neighbours may have where memory is short, the longest first (the ladder's
/// rung of neighbours).
pub const FEWER_NEIGHBOURS: [u32; 2] = [12, 10];

/// Centres of a leaf of the tree that neighbours are found in, and boxes of a group of it.
const FAN: u64 = 32;

/// Bits of a key that say how far along a centre lies, at most.
const MOST_ALONG_BITS: u32 = 24;

/// Gaussians of a lane block.
const LANES: u64 = 32;

const WORD: u64 = 4;

/// What the stage has drawn of surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    /// Nothing.
    Undrawn,
    /// Depths and normals, which are compared before the backward pass.
    Compared,
    /// The same, of which samples are compared with the depths before it and behind it.
    Sampled,
}

impl Maps {
    /// Whether there are any.
    pub fn are_drawn(self) -> bool {
        self != Self::Undrawn
    }
}

/// The stage, as far as memory is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coarse {
    /// Neighbours in a Gaussian's list.
    pub neighbours: u32,
    /// Whether lists may become shorter where there is no room for these.
    pub shortens: bool,
    /// What is drawn of surfaces.
    pub maps: Maps,
}

impl Coarse {
    /// How long lists may be, the longest first.
    pub fn lengths(&self) -> Vec<u32> {
        let fewer = FEWER_NEIGHBOURS.into_iter().filter(|&fewer| fewer < self.neighbours);
        let fewer = fewer.filter(|_| self.shortens);
        [self.neighbours].into_iter().chain(fewer).collect()
    }

    /// Scratch of an iteration in which so many Gaussians are drawn in this view, at once or in bands,
    /// with inverse depths or without.
    pub fn scratch(
        &self,
        gaussians: u64,
        view: &ViewSize,
        (in_bands, inverse_depths): (bool, bool),
    ) -> Bytes {
        let lists = if in_bands { Lists::Bands } else { Lists::Whole };
        let pass = Pass::Train { inverse_depths, coarse: Some(self.maps) };
        let mut stack = Stack::default();
        frame::draw(&mut stack, gaussians, view, (pass, lists), None);
        stack.reach()
    }
}

/// The lists of so many Gaussians; a model of fewer than they are long has shorter ones.
pub fn neighbour_lists(gaussians: u64, neighbours: u32) -> Row {
    let length = gaussians.min(neighbours.into());
    Row { label: "neighbours", bytes: Bytes(gaussians * length * WORD) }
}

/// Scratch of finding the neighbours of so many Gaussians.
pub fn search_scratch(gaussians: u64) -> Bytes {
    let mut stack = Stack::default();
    search(&mut stack, gaussians);
    stack.reach()
}

/// The neighbours of so many Gaussians are found.
pub(super) fn search(stack: &mut Stack, gaussians: u64) {
    if gaussians == 0 {
        return;
    }
    let leaves = gaussians.div_ceil(FAN);
    let halvings = leaves.next_power_of_two().ilog2();
    let a_word_each = gaussians * WORD;
    let [first, second] = [(); 2].map(|()| stack.take("neighbour rows", a_word_each));
    let keys = [(); 2].map(|()| stack.take("neighbour keys", a_word_each));
    let segments = gaussians.div_ceil(2 * FAN);
    let extents = stack.take("neighbour extents", segments * u64::from(EXTENT_WIDTH) * WORD);
    let mut ends_in_second = false;
    for halving in 0..halvings {
        let bits = MOST_ALONG_BITS.min(u32::BITS - halving) + halving;
        stack.pass("sort", library::sort(gaussians, Key::Bits32, bits).0);
        ends_in_second ^= library::ends_in_second(gaussians, Key::Bits32, bits);
    }
    let (rows, gone) = if ends_in_second { (second, first) } else { (first, second) };
    let [key, other_key] = keys;
    for block in [gone, key, other_key, extents] {
        stack.give_back(block);
    }
    let placed = stack.take("neighbour centres", leaves * FAN * u64::from(PLACED_WIDTH) * WORD);
    let boxes = stack.take("neighbour boxes", boxes(leaves) * u64::from(BOX_WIDTH) * WORD);
    for block in [rows, placed, boxes] {
        stack.give_back(block);
    }
}

/// Boxes of a tree with so many leaves: one around each, and around each 32 of a level that has more.
fn boxes(leaves: u64) -> u64 {
    let (mut level, mut all) = (leaves, leaves);
    while level > FAN {
        level = level.div_ceil(FAN);
        all += level;
    }
    all
}

/// The depths that a view shows are made, and samples compared with them; what is left holds the depths.
pub(super) fn show_depths(stack: &mut Stack, gaussians: u64, view: &ViewSize) -> [Taken; 2] {
    let depths = [view.pixels(), 1].map(|words| stack.take("shown depths", words * WORD));
    number_sampled(stack, (gaussians, view.visible), Maps::Sampled);
    depths
}

/// What surfaces ask of so many Gaussians, of which a view sees some, is added up.
pub(super) fn regularise(stack: &mut Stack, (gaussians, visible): (u64, u64), maps: Maps) {
    if visible == 0 {
        return;
    }
    let sums = surface_gradients(stack, gaussians);
    number_sampled(stack, (gaussians, visible), maps);
    stack.give_back(sums);
}

/// What surface terms add to the gradients of so many Gaussians.
pub(super) fn surface_gradients(stack: &mut Stack, gaussians: u64) -> Taken {
    stack.take("surface gradients", gaussians * u64::from(SURFACE_WIDTH) * WORD)
}

/// Those of so many Gaussians are numbered that samples are taken of: all that the view sees, or those
/// of them that are near the depths that it shows.
fn number_sampled(stack: &mut Stack, (gaussians, visible): (u64, u64), maps: Maps) {
    let lane_blocks = gaussians.div_ceil(LANES);
    let mut blocks = vec![stack.take("surface rows", visible * WORD)];
    let counts: &[u64] = match maps {
        Maps::Sampled => &[1, lane_blocks, lane_blocks, lane_blocks],
        Maps::Undrawn | Maps::Compared => &[lane_blocks, lane_blocks],
    };
    blocks.extend(counts.iter().map(|words| stack.take("surface counts", words * WORD)));
    stack.pass("sort", library::sum(lane_blocks).0);
    for block in blocks {
        stack.give_back(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(stack: &Stack, label: &str) -> u64 {
        stack.peaks().iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0)
    }

    #[test]
    fn lists_take_four_bytes_a_neighbour_and_none_are_longer_than_the_model() {
        assert_eq!(neighbour_lists(6_000_000, 16).bytes, Bytes(384_000_000));
        assert_eq!(neighbour_lists(7, 16).bytes, Bytes(7 * 7 * 4));
        assert_eq!(neighbour_lists(0, 16).bytes, Bytes(0));
    }

    #[test]
    fn lists_become_shorter_in_steps_that_are_shorter() {
        let lengths =
            |neighbours, shortens| Coarse { neighbours, shortens, maps: Maps::Undrawn }.lengths();
        assert_eq!(lengths(16, true), [16, 12, 10]);
        assert_eq!(lengths(12, true), [12, 10]);
        assert_eq!(lengths(11, true), [11, 10]);
        assert_eq!(lengths(10, true), [10]);
        assert_eq!(lengths(32, false), [32]);
    }

    #[test]
    fn finding_them_takes_25_bytes_a_gaussian() {
        // Rows and keys go before the centres come, but for the rows in order: the first sort, by 24
        // bits, takes three passes and leaves them in the second buffer, the others leave them there.
        let mut stack = Stack::default();
        search(&mut stack, 1 << 20);
        assert_eq!(peak(&stack, "neighbour rows"), 8 << 20);
        assert_eq!(peak(&stack, "neighbour keys"), 8 << 20);
        assert_eq!(peak(&stack, "neighbour centres"), 16 << 20);
        // 32,768 leaves, 1024 boxes around them, 32 around these.
        assert_eq!(peak(&stack, "neighbour boxes"), (32_768 + 1024 + 32) * 32);
        assert_eq!(peak(&stack, "neighbour extents"), (1 << 20) / 64 * 24);
        let boxes = (32_768 + 1024 + 32) * 32;
        assert_eq!(stack.reach(), Bytes((8 << 20) + (16 << 20) + boxes));
        // All are given back.
        stack.pass("sort", 1);
        assert_eq!(stack.reach(), Bytes((8 << 20) + (16 << 20) + boxes));
        // A leaf needs no sort, and none are found of nothing.
        let mut stack = Stack::default();
        search(&mut stack, 0);
        assert_eq!(stack.reach(), Bytes(0));
        search(&mut stack, 5);
        assert_eq!((peak(&stack, "sort"), peak(&stack, "neighbour centres")), (0, 32 * 16));
    }

    #[test]
    fn what_is_asked_of_surfaces_takes_a_row_a_gaussian_and_a_word_a_splat() {
        let mut stack = Stack::default();
        regularise(&mut stack, (1_000_000, 400_000), Maps::Compared);
        assert_eq!(peak(&stack, "surface gradients"), 48_000_000);
        assert_eq!(peak(&stack, "surface rows"), 1_600_000);
        assert_eq!(peak(&stack, "surface counts"), 2 * 31_250 * 4);
        let mut sampled = Stack::default();
        regularise(&mut sampled, (1_000_000, 400_000), Maps::Sampled);
        assert_eq!(peak(&sampled, "surface counts"), (3 * 31_250 + 1) * 4);
        let mut nothing = Stack::default();
        regularise(&mut nothing, (1_000_000, 0), Maps::Sampled);
        assert_eq!(nothing.reach(), Bytes(0));
    }

    #[test]
    fn an_iteration_takes_what_the_view_does_and_the_gradients_behind_it() {
        let view = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };
        let scratch = |maps, gaussians, instances| {
            let coarse = Coarse { neighbours: 16, shortens: false, maps };
            coarse.scratch(gaussians, &ViewSize { instances, ..view }, (false, false)).0
        };
        // Of many instances: the maps take 32 bytes a pixel and a splat, and 16 an instance as the state
        // of colours does.
        let plain = scratch(Maps::Undrawn, 1_000_000, 40_000_000);
        let maps = scratch(Maps::Compared, 1_000_000, 40_000_000);
        let expected = 32 * (800 * 533 + 400_000) + 16 * 40_000_000;
        assert!((maps - plain).abs_diff(expected) < 8192, "{} for {expected}", maps - plain);
        // The depths that samples are compared with lie behind the lists, and the gradients behind them.
        let sampled = scratch(Maps::Sampled, 1_000_000, 40_000_000) - maps;
        let expected = 4 * 800 * 533 + 48_000_000 + 1_600_000 + 3 * 125_000;
        assert!(sampled.abs_diff(expected) < 8192, "{sampled} for {expected}");
        // Of few: what is behind the backward pass takes most, and grows by 48 bytes a Gaussian that no
        // view sees, and 4 to number it.
        let more = scratch(Maps::Undrawn, 9_000_000, 0) - scratch(Maps::Undrawn, 8_000_000, 0);
        assert!(more.abs_diff(52_250_000) < 1000, "{more}");
    }
}
