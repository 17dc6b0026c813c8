//! What a run holds of SuGaR's coarse stage.

use std::collections::BTreeMap;

use crate::backend::{NeighbourLists as _, TrainDevice};
use crate::train::coarse::CoarseSchedule;

/// What a run holds of its coarse stage.
pub(super) struct CoarseState<B: TrainDevice> {
    /// When it does what.
    pub(super) schedule: CoarseSchedule,
    /// Whether the model is one of it already.
    pub(super) has_begun: bool,
    /// The nearest neighbours of all Gaussians.
    pub(super) near: Option<B::Lists>,
    /// The last value of each surface term.
    pub(super) losses: BTreeMap<u32, (&'static str, f64)>,
}

impl<B: TrainDevice> CoarseState<B> {
    pub(super) fn new(schedule: CoarseSchedule) -> Self {
        Self { schedule, has_begun: false, near: None, losses: BTreeMap::new() }
    }

    /// The nearest neighbours, where they are found.
    pub(super) fn near(&self) -> Option<&B::Lists> {
        self.near.as_ref()
    }

    /// Drops lists of more neighbours than that.
    pub(super) fn drop_longer_lists(&mut self, most: u32) {
        self.near.take_if(|near| near.count() > most);
    }
}
