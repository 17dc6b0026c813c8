//! How large training views are drawn. The trainer draws them: the device only says at what size it has
//! memory for them, and the trainer follows.

use crate::memory::{Bytes, Gain, TrainingScale};

/// What a pixel of a training view takes at least: its colours, their gradient, and the state of the
/// blending.
const PIXEL_BYTES: u64 = 24;

/// At what size training views are drawn, and at what size there is memory for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrainingViewSize {
    /// What there is memory for.
    allowed: TrainingScale,
    /// What they are drawn at.
    used: TrainingScale,
    /// Pixels of the largest view that was asked for, as it is drawn.
    pixels: u64,
    /// Whether memory was short for the last one.
    refused: bool,
}

impl TrainingViewSize {
    /// The size that there is memory for.
    pub(crate) fn allowed(&self) -> TrainingScale {
        self.allowed
    }

    /// Views are drawn at this size from now on, of those that there is memory for.
    pub(crate) fn use_scale(&mut self, scale: TrainingScale) {
        *self = Self { allowed: scale, used: scale, pixels: 0, refused: false };
    }

    /// Records a training view; `refused`: there was too little memory for its step.
    pub(crate) fn drawn(&mut self, px: [u32; 2], refused: bool) {
        self.pixels = self.pixels.max(px.map(u64::from).iter().product());
        self.refused = refused;
    }

    /// Whether memory was too short for the last training view.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether views are still drawn larger than there is memory for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.allowed.is_below(self.used)
    }

    /// Makes views smaller from the next step on.
    pub(crate) fn lower(&mut self) -> Gain {
        if self.is_waiting() {
            return Gain::Promised(Bytes(0));
        }
        let Some(smaller) = self.allowed.smaller().filter(|_| self.pixels > 0) else {
            return Gain::Nothing;
        };
        let ratio = smaller.factor() / self.allowed.factor();
        let gained = share(Bytes(PIXEL_BYTES * self.pixels), 1.0 - ratio * ratio);
        self.allowed = smaller;
        Gain::Promised(gained)
    }

    /// What views of their full size would take beyond those of now, whose steps take so much: at most in
    /// proportion to their pixels. Nothing where they have it.
    pub(crate) fn missing(&self, taken: Bytes) -> Option<Bytes> {
        let factor = self.allowed.factor();
        let more = 1.0 / (factor * factor) - 1.0;
        (self.allowed != TrainingScale::FULL).then(|| share(taken, more))
    }

    /// Views may have their full size again.
    pub(crate) fn restore(&mut self) {
        self.allowed = TrainingScale::FULL;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a device's memory, not below 0"
)]
fn share(bytes: Bytes, share: f64) -> Bytes {
    Bytes((bytes.0 as f64 * share).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_get_smaller_one_step_after_the_other_when_the_trainer_followed() {
        let mut size = TrainingViewSize::default();
        assert_eq!(size.lower(), Gain::Nothing, "nothing was drawn");
        size.drawn([100, 50], true);
        assert!(size.is_refused());
        assert_eq!(size.lower(), Gain::Promised(Bytes(22_800)));
        // Until the trainer has followed, no more is given up.
        assert_eq!((size.lower(), size.is_waiting()), (Gain::Promised(Bytes(0)), true));
        for times in 1..=6 {
            assert_eq!(size.allowed().times(), times);
            size.use_scale(size.allowed());
            assert!(!size.is_waiting() && !size.is_refused());
            size.drawn([90, 45], false);
            assert_eq!(size.lower() == Gain::Nothing, times == 6);
        }
    }

    #[test]
    fn the_full_size_costs_in_proportion_to_the_pixels() {
        let mut size = TrainingViewSize::default();
        assert_eq!(size.missing(Bytes(1000)), None);
        size.use_scale(TrainingScale::after(1));
        assert_eq!(size.missing(Bytes(81_000)), Some(Bytes(19_000)));
        size.restore();
        assert_eq!((size.missing(Bytes(1)), size.is_waiting()), (None, false));
        assert_eq!(size.allowed(), TrainingScale::FULL);
    }
}
