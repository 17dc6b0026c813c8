//! Which iterations are recorded.

use crate::train::event::Step;

/// Iterations between two records.
const INTERVAL: u32 = 10;

/// Lets every tenth iteration through, and the last.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    waiting: Option<Step>,
    ms: f64,
    count: u32,
}

/// An iteration to record.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) step: Step,
    /// Mean milliseconds of the iterations since the record before.
    pub(super) mean_ms: f64,
}

impl Cadence {
    /// Takes an iteration; `Some` where it is to be recorded.
    pub(super) fn take(&mut self, step: &Step) -> Option<Recorded> {
        self.ms += step.ms * f64::from(step.images);
        self.count += step.images;
        self.waiting = Some(step.clone());
        if step.span().crosses(INTERVAL) || step.iteration >= step.iterations {
            self.rest()
        } else {
            None
        }
    }

    /// The last iteration, where it is not recorded yet: a run may be interrupted at any.
    pub(super) fn rest(&mut self) -> Option<Recorded> {
        let step = self.waiting.take()?;
        let mean_ms = self.ms / f64::from(self.count.max(1));
        (self.ms, self.count) = (0.0, 0);
        Some(Recorded { step, mean_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::event::TermValues;

    #[test]
    fn every_tenth_and_the_last_iteration_are_recorded() {
        let mut cadence = Cadence::default();
        let mut recorded = Vec::new();
        for iteration in 1..=23 {
            let ms = f64::from(iteration);
            let (values, total, gaussians) = (TermValues::default(), 0.0, 1);
            let (images, iterations) = (1, 23);
            let before = iteration - images;
            let step = Step { before, iteration, images, iterations, values, total, gaussians, ms };
            recorded.extend(cadence.take(&step).map(|r| (r.step.iteration, r.mean_ms)));
        }
        assert_eq!(recorded, [(10, 5.5), (20, 15.5), (23, 22.0)]);
        assert!(cadence.rest().is_none());
    }

    #[test]
    fn a_step_of_several_images_is_recorded_where_it_crosses_a_tenth() {
        let mut cadence = Cadence::default();
        let mut recorded = Vec::new();
        for (iteration, images, ms) in [(8, 8, 1.0), (16, 8, 2.0), (19, 3, 4.0), (27, 8, 1.0)] {
            let (values, total, gaussians) = (TermValues::default(), 0.0, 1);
            let (before, iterations) = (iteration - images, 27);
            let step = Step { before, iteration, images, iterations, values, total, gaussians, ms };
            recorded.extend(cadence.take(&step).map(|r| (r.step.iteration, r.mean_ms)));
        }
        assert_eq!(recorded, [(16, 1.5), (27, 20.0 / 11.0)]);
    }
}
