//! Steps whose losses are not known yet.

use crate::backend::{Pending as _, Terms, TrainDevice};
use crate::train::pace::Turn;

/// A step on its way.
pub(super) struct PendingStep<B: TrainDevice> {
    pub(super) turn: Turn,
    pub(super) gaussians: usize,
    pub(super) views: Vec<PendingView<B>>,
}

/// A view of it.
pub(super) struct PendingView<B: TrainDevice> {
    pub(super) terms: Terms,
    /// Values of the terms at pixels, and of those at samples.
    pub(super) losses: [B::Losses; 2],
}

impl<B: TrainDevice> PendingStep<B> {
    /// Whether its losses can be read without waiting.
    pub(super) fn is_ready(&self) -> bool {
        self.views.last().is_none_or(|view| view.losses[0].is_ready())
    }
}
