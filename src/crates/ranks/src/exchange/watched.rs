//! An exchange that does not wait for ever for ranks that live and get nowhere.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error::ExchangeError;
use super::meeting::system;
use super::{Aborter, Exchange};

/// Time between two looks at what a call has left.
const TICK: Duration = Duration::from_secs(1);

/// Most that counts of the time between two looks.
const MOST_OF_TICK: Duration = Duration::from_secs(4);

/// Another exchange, whose calls end with [`ExchangeError::Stuck`] when they take too long.
///
/// A rank that ends is seen without it; one that is alive and stuck is not. [`Exchange::broadcast`] has no
/// limit on ranks other than 0: they wait there for what rank 0 will ask of them, maybe for hours. Time
/// between calls counts nowhere.
#[derive(Debug)]
pub struct Watched<E> {
    inner: E,
    timer: Arc<CallTimer>,
    /// None once it has ended.
    thread: Option<JoinHandle<()>>,
    timeout: Duration,
    /// What a call that was too slow returned: those that follow return the same.
    failed: Option<ExchangeError>,
}

impl<E: Exchange> Watched<E> {
    /// Watches this exchange: a call may take `timeout`. It has one thread, which ends with it.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(inner: E, timeout: Duration) -> Result<Self, ExchangeError> {
        let timer = Arc::new(CallTimer::default());
        let (of_thread, aborter) = (Arc::clone(&timer), inner.aborter());
        let thread = thread::Builder::new()
            .name("exchange timer".to_owned())
            .spawn(move || of_thread.run(&aborter))
            .map_err(system("start a thread that watches the exchange"))?;
        Ok(Self { inner, timer, thread: Some(thread), timeout, failed: None })
    }

    /// Makes a call that has a limit.
    fn within_time<T>(
        &mut self,
        call: impl FnOnce(&mut E) -> Result<T, ExchangeError>,
    ) -> Result<T, ExchangeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.timer.start(self.timeout);
        let result = call(&mut self.inner);
        if !self.timer.stop() {
            return result;
        }
        // The exchange is aborted, also where the call came to its end in the same moment.
        let error = match result {
            Ok(_) | Err(ExchangeError::Aborted) => {
                let is_broken = self.timeout.subsec_nanos() > 0;
                let seconds = self.timeout.as_secs().saturating_add(is_broken.into());
                ExchangeError::Stuck { seconds }
            }
            // It says more: another rank was lost at the same time.
            Err(error) => error,
        };
        self.failed = Some(error.clone());
        Err(error)
    }
}

impl<E: Exchange> Exchange for Watched<E> {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn world(&self) -> u32 {
        self.inner.world()
    }

    fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.within_time(|inner| inner.all_to_all(outgoing))
    }

    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.within_time(|inner| inner.all_gather(mine))
    }

    fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        if self.rank() == 0 {
            return self.within_time(|inner| inner.broadcast(bytes));
        }
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.inner.broadcast(bytes),
        }
    }

    fn check(&self, with: u32) -> Result<(), ExchangeError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.inner.check(with),
        }
    }

    fn aborter(&self) -> Aborter {
        self.inner.aborter()
    }
}

impl<E> Drop for Watched<E> {
    fn drop(&mut self) {
        self.timer.end();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

/// Aborts when the time of the call that runs is over.
#[derive(Debug, Default)]
struct CallTimer {
    state: Mutex<CallClock>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CallClock {
    /// What the call that runs has left. None between calls.
    left: Option<Duration>,
    /// Calls so far.
    calls: u64,
    /// The time of a call was over.
    has_rung: bool,
    /// The exchange is gone.
    is_over: bool,
}

impl CallTimer {
    /// A thread that panics holding the lock leaves the state whole: each change is one statement.
    fn state(&self) -> MutexGuard<'_, CallClock> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins.
    fn start(&self, timeout: Duration) {
        let mut state = self.state();
        state.left = Some(timeout);
        state.calls += 1;
        drop(state);
        self.changed.notify_one();
    }

    /// A call has ended. Whether its time was over.
    fn stop(&self) -> bool {
        let mut state = self.state();
        state.left = None;
        state.has_rung
    }

    fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_one();
    }

    fn run(&self, aborter: &Aborter) {
        let mut state = self.state();
        while !state.is_over {
            let Some(left) = state.left else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if left.is_zero() {
                state.has_rung = true;
                drop(state);
                return aborter.abort();
            }
            let (call, begun) = (state.calls, Instant::now());
            let woken = self.changed.wait_timeout(state, left.min(TICK));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if state.calls == call {
                // A process that was stopped for hours, and all others with it, has not waited.
                let waited = begun.elapsed().min(MOST_OF_TICK);
                state.left = state.left.map(|left| left.saturating_sub(waited));
            }
        }
    }
}
