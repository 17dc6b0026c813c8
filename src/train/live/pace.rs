//! How often live splats are written.

use std::time::{Duration, Instant};

/// What one costs, times this, is the least time to the next: 2 % of a run's time.
const REST: u32 = 50;

/// When the next are due.
#[derive(Debug)]
pub(super) struct LivePace {
    /// Least time from one to the next.
    every: Duration,
    next: Option<Instant>,
}

impl LivePace {
    /// Every so many seconds; nothing where that is never.
    pub(super) fn every(seconds: f64) -> Option<Self> {
        let every = Duration::try_from_secs_f64(seconds).ok().filter(|every| !every.is_zero())?;
        Some(Self { every, next: None })
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// After some that were begun then, and took so much of the run's time.
    pub(super) fn wait_after(&mut self, began: Instant, cost: Duration) {
        self.next = began.checked_add(self.every.max(cost.saturating_mul(REST)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_comes_less_often() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut pace = LivePace::every(5.0).unwrap();
        assert!(pace.is_due(start));
        pace.wait_after(start, Duration::from_millis(20));
        assert!(!pace.is_due(at(4.9)) && pace.is_due(at(5.0)));
        // 2 s are 2 % of 100 s.
        pace.wait_after(at(5.0), Duration::from_secs(2));
        assert!(!pace.is_due(at(104.9)) && pace.is_due(at(105.0)));
        assert!(LivePace::every(0.0).is_none());
    }
}
