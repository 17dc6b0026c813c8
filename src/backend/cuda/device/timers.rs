//! Timers of the stages of an iteration. Without the feature `bench` they do nothing.

#[cfg(feature = "bench")]
pub use self::events::{Begun, Timers};
#[cfg(not(feature = "bench"))]
pub use self::never::{Begun, Timers};
pub use crate::backend::Stage;

#[cfg(not(feature = "bench"))]
mod never {
    use crate::backend::cuda::device::stream::Stream;
    use crate::backend::{Result, Stage};

    /// Timers that measure nothing.
    #[derive(Default)]
    pub struct Timers;

    /// A stage that has begun.
    #[must_use = "every stage ends"]
    pub struct Begun;

    impl Timers {
        /// Creates timers that measure nothing.
        pub fn off() -> Self {
            Self
        }

        /// Begins a stage.
        pub fn begin(&self, _: Stage, _: &Stream) -> Result<Begun> {
            Ok(Begun)
        }

        /// Ends a stage.
        pub fn end(&self, _: &Begun, _: &Stream) -> Result {
            Ok(())
        }
    }
}

/// Timers by events on the stream.
#[cfg(feature = "bench")]
mod events {
    use std::cell::RefCell;

    use crate::backend::cuda::device::stream::{CudaEvent, Stream};
    use crate::backend::{Result, Stage};

    /// Pairs of events around the stages; costs nothing while off.
    #[derive(Default)]
    pub struct Timers {
        pool: Option<RefCell<Pool>>,
    }

    struct Pool {
        pairs: Vec<EventPair>,
        /// Stages of the first pairs.
        stages: Vec<Stage>,
    }

    struct EventPair {
        start: CudaEvent,
        end: CudaEvent,
    }

    impl EventPair {
        fn new() -> Result<Self> {
            Ok(Self { start: CudaEvent::timed()?, end: CudaEvent::timed()? })
        }
    }

    /// A stage that has begun and must be ended.
    #[must_use = "a stage that is not ended cannot be timed"]
    pub struct Begun {
        pair: Option<usize>,
    }

    impl Timers {
        /// Creates timers that measure nothing.
        pub fn off() -> Self {
            Self::default()
        }

        /// Creates timers with events for `stages` stages.
        pub fn on(stages: usize) -> Result<Self> {
            let pairs = (0..stages).map(|_| EventPair::new()).collect::<Result<_>>()?;
            let pool = Pool { pairs, stages: Vec::with_capacity(stages) };
            Ok(Self { pool: Some(RefCell::new(pool)) })
        }

        /// Begins a stage with the next work on the stream.
        pub fn begin(&self, stage: Stage, stream: &Stream) -> Result<Begun> {
            let Some(pool) = &self.pool else { return Ok(Begun { pair: None }) };
            let mut pool = pool.borrow_mut();
            let index = pool.stages.len();
            if index == pool.pairs.len() {
                pool.pairs.push(EventPair::new()?);
            }
            pool.pairs[index].start.record(stream)?;
            // Until the end is recorded, `take` finds this event there.
            pool.pairs[index].end.record(stream)?;
            pool.stages.push(stage);
            Ok(Begun { pair: Some(index) })
        }

        /// Ends the stage with the last work that is queued on the stream.
        pub fn end(&self, begun: &Begun, stream: &Stream) -> Result {
            match (&self.pool, begun.pair) {
                (Some(pool), Some(index)) => pool.borrow().pairs[index].end.record(stream),
                _ => Ok(()),
            }
        }

        /// Waits for the stages since the last call and returns the milliseconds of those that ran, as in
        /// [`Stage::ALL`].
        pub fn take(&self) -> Result<Vec<(Stage, f64)>> {
            let Some(pool) = &self.pool else { return Ok(Vec::new()) };
            let mut pool = pool.borrow_mut();
            let stages = std::mem::take(&mut pool.stages);
            let mut sums = Stage::ALL.map(|stage| (stage, None));
            for (stage, EventPair { start, end }) in stages.into_iter().zip(&pool.pairs) {
                end.synchronize()?;
                let ms = end.ms_since(start)?;
                for (_, sum) in sums.iter_mut().filter(|(found, _)| *found == stage) {
                    *sum = Some(sum.unwrap_or(0.0) + ms);
                }
            }
            Ok(sums.into_iter().filter_map(|(stage, sum)| Some((stage, sum?))).collect())
        }
    }
}
