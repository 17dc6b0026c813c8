//! Memory of SuGaR's coarse stage beyond an iteration: the lists of neighbours, scratch of finding
//! them, and scratch of surface terms.

use super::rows::PlannedRow;
use super::work::{PlannedViews, Samples};
use crate::layout::{NEIGHBOURS, SearchSizes, ViewRequest};
use crate::memory::Bytes;

/// Lengths that lists of neighbours may have where memory is short, the longest first (the ladder's
/// rung of neighbours).
pub const FEWER_NEIGHBOURS: [u32; 2] = [12, 10];

/// Maps of surfaces that the coarse stage draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    /// Nothing.
    Undrawn,
    /// Depths and normals, which are compared before the backward pass.
    Compared,
    /// Depths and normals, with median depths, whose normals are compared.
    Medians,
    /// Depths and normals, of which samples are compared with the depths before the backward pass and
    /// after it.
    Sampled,
}

impl Maps {
    /// A request with them, in place of those of the iterations before the stage.
    fn added_to(self, wants: ViewRequest) -> ViewRequest {
        let (maps, median) = (self.are_drawn(), self == Self::Medians);
        ViewRequest { inverse_squares: false, maps, median, ..wants }
    }

    /// True if there are any.
    pub fn are_drawn(self) -> bool {
        self != Self::Undrawn
    }
}

/// The stage, as far as memory is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCoarse {
    /// Neighbours in a Gaussian's list.
    pub neighbours: u32,
    /// True if lists may become shorter.
    pub shortens: bool,
    /// Maps of surfaces.
    pub maps: Maps,
}

impl PlannedCoarse {
    /// Lengths that lists may have, the longest first.
    pub fn lengths(&self) -> Vec<u32> {
        let fewer = FEWER_NEIGHBOURS.into_iter().filter(|&fewer| fewer < self.neighbours);
        let fewer = fewer.filter(|_| self.shortens);
        [self.neighbours].into_iter().chain(fewer).collect()
    }

    /// The views of an iteration of the stage.
    pub fn views(&self, before: PlannedViews) -> PlannedViews {
        let wants = self.maps.added_to(before.wants);
        let samples = match self.maps {
            Maps::Undrawn | Maps::Compared | Maps::Medians => Samples::Seen,
            Maps::Sampled => Samples::Shown,
        };
        PlannedViews { wants, samples: Some(samples), ..before }
    }
}

/// The lists of so many Gaussians; a model of fewer than they are long has shorter ones.
pub fn neighbour_lists(gaussians: u64, neighbours: u32) -> PlannedRow {
    let bytes = Bytes(NEIGHBOURS.bytes(&SearchSizes::of(gaussians, neighbours)));
    PlannedRow { label: NEIGHBOURS.label, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::dry_run;
    use crate::layout::{Library, Use};
    use crate::memory::plan::{ViewSize, view_scratch};

    #[test]
    fn lists_take_four_bytes_a_neighbour_and_none_are_longer_than_the_model() {
        assert_eq!(neighbour_lists(6_000_000, 16).bytes, Bytes(384_000_000));
        assert_eq!(neighbour_lists(7, 16).bytes, Bytes(7 * 7 * 4));
        assert_eq!(neighbour_lists(0, 16).bytes, Bytes(0));
    }

    #[test]
    fn lists_become_shorter_in_steps_that_are_shorter() {
        let lengths = |neighbours, shortens| {
            PlannedCoarse { neighbours, shortens, maps: Maps::Undrawn }.lengths()
        };
        assert_eq!(lengths(16, true), [16, 12, 10]);
        assert_eq!(lengths(12, true), [12, 10]);
        assert_eq!(lengths(11, true), [11, 10]);
        assert_eq!(lengths(10, true), [10]);
        assert_eq!(lengths(32, false), [32]);
    }

    #[test]
    fn an_iteration_takes_what_the_view_does_and_the_gradients_behind_it() {
        let wants = ViewRequest { drawn_for: Use::Backward, ..ViewRequest::default() };
        let view = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };
        let scratch = |maps, gaussians, instances| {
            let coarse = PlannedCoarse { neighbours: 16, shortens: false, maps };
            let view = ViewSize { instances, ..view };
            let views = coarse.views(PlannedViews::one(&view, wants, false));
            view_scratch(dry_run, &Library::default(), gaussians, views).0
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
