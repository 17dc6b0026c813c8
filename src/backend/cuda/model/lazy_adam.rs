//! Lazy Adam: tables of the steps that colours skip while no view sees them.
//!
//! Without a gradient a step multiplies the moments by β₁ and β₂, and moves the value by its rate times m / √v. After
//! `age` such steps the value has moved by the old m / √v times a factor that depends on the steps alone. Kernels
//! apply it before they use a colour (`kernels/state.cuh`). The results equal dense Adam's up to rounding.

use std::collections::VecDeque;

use crate::abi::{self, DRIFT_STEPS, MOMENTUM_STEPS};
use crate::math::adam::{BETA_1, BETA_2};

/// Length of a table. Its first entry stands for no steps.
const STEPS: usize = MOMENTUM_STEPS as usize;

pub(crate) struct LazySteps {
    betas: [f64; 2],
    steps: u32,
    /// Number of steps that all colours have taken.
    caught_up: u32,
    /// Movement of constant and of other coefficients in each step, in units of m / √v; the last step first.
    latest: VecDeque<[f64; 2]>,
}

impl Default for LazySteps {
    fn default() -> Self {
        Self { betas: [BETA_1, BETA_2], steps: 0, caught_up: 0, latest: VecDeque::new() }
    }
}

impl LazySteps {
    /// True if all colours must catch up before a step with these decays: the tables hold steps of one decay.
    pub(crate) fn must_catch_up(&self, betas: [f64; 2]) -> bool {
        betas != self.betas && self.caught_up != self.steps
    }

    pub(crate) fn set_betas(&mut self, betas: [f64; 2]) {
        if betas != self.betas {
            self.betas = betas;
            self.latest.clear();
        }
    }

    /// Records a step with these bias-corrected learning rates of constant and of other coefficients.
    pub(crate) fn stepped(&mut self, rates: [f64; 2]) {
        self.latest.truncate(STEPS - 2);
        self.latest.push_front(rates);
        self.steps += 1;
    }

    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    pub(crate) fn mark_caught_up(&mut self) {
        self.caught_up = self.steps;
    }

    /// True if one more step could exceed the length of the tables.
    pub(crate) fn is_full(&self) -> bool {
        self.steps - self.caught_up + 1 >= DRIFT_STEPS
    }

    /// Returns the tables after the steps so far.
    pub(crate) fn now(&self) -> abi::LazyAdam {
        let mut tables = [[0.0; STEPS]; 2];
        for (group, table) in tables.iter_mut().enumerate() {
            let rates = self.latest.iter().map(|rates| rates[group]);
            fill(table, self.betas, rates);
        }
        let [drift_dc, drift_rest] = tables;
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
        let [log2_beta_1, log2_beta_2] = self.betas.map(|beta| beta.log2() as f32);
        abi::LazyAdam {
            drift_dc,
            drift_rest,
            log2_beta_1,
            log2_beta_2,
            steps: self.steps,
            reserved: 0,
        }
    }
}

/// Computes `drift[age] = Σ over j = 1..=age of r^j rate(age - j steps ago)`, r = β₁ / √β₂.
fn fill(travel: &mut [f32; STEPS], [beta_1, beta_2]: [f64; 2], rates: impl Iterator<Item = f64>) {
    let ratio = beta_1 / beta_2.sqrt();
    let mut so_far = 0.0;
    for (entry, rate) in travel[1..].iter_mut().zip(rates) {
        so_far = ratio * (rate + so_far);
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
        let rounded = so_far as f32;
        *entry = rounded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::adam::bias_corrections;

    const RATE: f64 = 2.5e-3;

    /// Dense Adam on one value.
    struct Dense {
        value: f64,
        first: f64,
        second: f64,
    }

    impl Dense {
        fn step(&mut self, number: u32, gradient: f64) {
            let [first, second] = bias_corrections(number);
            self.first = BETA_1 * self.first + (1.0 - BETA_1) * gradient;
            self.second = BETA_2 * self.second + (1.0 - BETA_2) * gradient * gradient;
            self.value -= RATE * (self.first / first) / (self.second / second).sqrt();
        }
    }

    fn corrected(number: u32) -> f64 {
        let [first, second] = bias_corrections(number);
        RATE / first * second.sqrt()
    }

    /// Dense Adam after a step with a gradient and `age` without, and the lazy tables.
    struct LeftBehind {
        dense: Dense,
        start: f64,
        ratio: f64,
        tables: abi::LazyAdam,
    }

    impl LeftBehind {
        fn for_steps(start: u32, age: u32) -> Self {
            let mut dense = Dense { value: 0.3, first: 0.0, second: 0.0 };
            let mut momentum = LazySteps::default();
            dense.step(start, 0.02);
            momentum.stepped([corrected(start), 0.0]);
            let (value, ratio) = (dense.value, dense.first / dense.second.sqrt());
            for number in start + 1..=start + age {
                dense.step(number, 0.0);
                momentum.stepped([corrected(number), 0.0]);
            }
            Self { dense, start: value, ratio, tables: momentum.now() }
        }

        /// Returns the movement that an entry of the table gives.
        fn moved_by(&self, entry: usize) -> f64 {
            -f64::from(self.tables.drift_dc[entry]) * self.ratio
        }
    }

    #[test]
    fn skipped_steps_equal_dense_adam() {
        for age in [1, 2, 17, 126, 127] {
            for start in [1, 40, 3000] {
                let left = LeftBehind::for_steps(start, age);
                let (moved, lazy) = (left.dense.value - left.start, left.moved_by(age as usize));
                // The table is rounded to single precision.
                assert!(
                    (lazy - moved).abs() < 1e-6 * moved.abs() + 1e-12,
                    "{age} steps from {start}: {lazy} and {moved}"
                );
                assert_eq!(left.tables.drift_rest[age as usize], 0.0);
                assert_eq!(left.tables.steps, age + 1);
            }
        }
    }

    #[test]
    fn the_last_entry_bounds_the_movement() {
        for start in [1, 40, 3000] {
            let mut left = LeftBehind::for_steps(start, MOMENTUM_STEPS - 1);
            for number in start + MOMENTUM_STEPS..=start + DRIFT_STEPS {
                left.dense.step(number, 0.0);
            }
            // r^127 is 1.6e-6, and 10 such steps follow; the rate triples after the first step.
            let (moved, lazy) = (left.dense.value - left.start, left.moved_by(STEPS - 1));
            assert!((lazy - moved).abs() < 1e-5 * moved.abs(), "{start}: {lazy} and {moved}");
        }
    }

    #[test]
    fn a_value_without_skipped_steps_stays() {
        assert_eq!(LazySteps::default().now().drift_dc, [0.0; STEPS]);
        let mut momentum = LazySteps::default();
        momentum.stepped([1.0, 2.0]);
        assert_eq!(momentum.now().drift_dc[0], 0.0);
        assert_eq!(momentum.now().drift_rest[0], 0.0);
    }

    #[test]
    fn colours_catch_up_before_the_tables_end() {
        let mut momentum = LazySteps::default();
        for step in 1..=10_000 {
            momentum.stepped([1.0, 1.0]);
            if momentum.is_full() {
                momentum.mark_caught_up();
            }
            let skipped = momentum.steps - momentum.caught_up;
            assert!(skipped < DRIFT_STEPS, "{skipped} steps skipped after {step}");
            // The tables reach back to known steps only.
            assert!(momentum.latest.len() >= skipped.min(MOMENTUM_STEPS - 1) as usize);
        }
        assert!(momentum.caught_up > 8000);
    }
}
