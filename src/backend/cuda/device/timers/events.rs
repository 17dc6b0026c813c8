//! Events around the stages of an iteration.

use std::cell::RefCell;

use crate::backend::cuda::device::stream::{CudaEvent, Stream};
use crate::backend::{DeviceError, Stage};

/// Pairs of events around the stages; costs nothing while off.
#[derive(Default)]
pub struct Timers {
    pool: Option<RefCell<Pool>>,
}

struct Pool {
    pairs: Vec<EventPair>,
    /// The stages that the first pairs belong to.
    stages: Vec<Stage>,
}

/// The events around a stage.
struct EventPair {
    start: CudaEvent,
    end: CudaEvent,
}

impl EventPair {
    fn new() -> Result<Self, DeviceError> {
        Ok(Self { start: CudaEvent::timed()?, end: CudaEvent::timed()? })
    }
}

/// A stage that has begun and must be ended.
#[must_use = "a stage that is not ended cannot be timed"]
pub struct Begun {
    pair: Option<usize>,
}

impl Timers {
    /// Times nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// Times, with events for `stages` stages made beforehand.
    pub fn on(stages: usize) -> Result<Self, DeviceError> {
        let pairs = (0..stages).map(|_| EventPair::new()).collect::<Result<_, DeviceError>>()?;
        let pool = Pool { pairs, stages: Vec::with_capacity(stages) };
        Ok(Self { pool: Some(RefCell::new(pool)) })
    }

    /// The next work on the stream belongs to this stage.
    pub fn begin(&self, stage: Stage, stream: &Stream) -> Result<Begun, DeviceError> {
        let Some(pool) = &self.pool else { return Ok(Begun { pair: None }) };
        let mut pool = pool.borrow_mut();
        let index = pool.stages.len();
        if index == pool.pairs.len() {
            pool.pairs.push(EventPair::new()?);
        }
        pool.pairs[index].start.record(stream)?;
        // Until the end is recorded, `take` finds the beginning there.
        pool.pairs[index].end.record(stream)?;
        pool.stages.push(stage);
        Ok(Begun { pair: Some(index) })
    }

    /// The stage ends with the last work that is queued on the stream.
    pub fn end(&self, begun: &Begun, stream: &Stream) -> Result<(), DeviceError> {
        match (&self.pool, begun.pair) {
            (Some(pool), Some(index)) => pool.borrow().pairs[index].end.record(stream),
            _ => Ok(()),
        }
    }

    /// Waits for the stages since the last call and gives milliseconds by stage, in the order of
    /// an iteration; stages that did not come up are left out.
    pub fn take(&self) -> Result<Vec<(Stage, f64)>, DeviceError> {
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
