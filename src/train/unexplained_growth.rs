//! Growth of the device's memory that nothing explains.

use crate::memory::Bytes;

/// Iterations after which every buffer has its size, unless the number of Gaussians changes.
const WARM_UP: u32 = 100;

/// What is held beyond what the run held once it had warmed up.
///
/// A change of the number of Gaussians explains what follows, so the run warms up anew: growth shows
/// where it goes on while the model stays as large as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnexplainedGrowth {
    /// The iteration from which on what is held stays the same.
    steady_from: u32,
    baseline: Option<Bytes>,
}

impl UnexplainedGrowth {
    /// A run that starts, or goes on, behind this iteration.
    pub(super) fn from(iteration: u32) -> Self {
        Self { steady_from: iteration.saturating_add(WARM_UP), baseline: None }
    }

    /// What is held after this iteration beyond the baseline, once there is one.
    pub(super) fn take(&mut self, iteration: u32, held: Bytes) -> Option<Bytes> {
        if iteration < self.steady_from {
            return None;
        }
        let baseline = *self.baseline.get_or_insert(held);
        Some(Bytes(held.0.saturating_sub(baseline.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creep_is_growth_beyond_what_is_held_after_the_warm_up() {
        let mut creep = UnexplainedGrowth::from(3000);
        assert_eq!(creep.take(3099, Bytes(70)), None);
        assert_eq!(creep.take(3100, Bytes(90)), Some(Bytes(0)));
        assert_eq!(creep.take(3200, Bytes(95)), Some(Bytes(5)));
        assert_eq!(creep.take(3300, Bytes(80)), Some(Bytes(0)));
        assert_eq!(creep.take(3400, Bytes(91)), Some(Bytes(1)));
    }

    #[test]
    fn a_change_of_the_number_of_gaussians_explains_growth() {
        let mut creep = UnexplainedGrowth::from(0);
        assert_eq!(creep.take(500, Bytes(90)), Some(Bytes(0)));
        creep = UnexplainedGrowth::from(500);
        assert_eq!(creep.take(550, Bytes(200)), None);
        assert_eq!(creep.take(600, Bytes(210)), Some(Bytes(0)));
        assert_eq!(creep.take(700, Bytes(217)), Some(Bytes(7)));
    }
}
