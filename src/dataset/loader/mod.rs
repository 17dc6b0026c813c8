//! Images when they are needed: decoded ahead into a bounded cache, or all of them kept.

mod agenda;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::image::guarded;
use super::{Image, ImageError, ImageSource, decode};
use crate::memory::Bytes;
use shelf::{Answer, Job, Shelf};

/// Threads that decode ahead, at most. More would only hold more photographs at full size.
const MAX_WORKERS: usize = 4;

/// What became of an image. Shared, because a failure is told to everyone who asks.
type Outcome = Result<Arc<Image>, Arc<ImageError>>;

type Decoder = Box<dyn Fn(&ImageSource) -> Result<Image, ImageError> + Send + Sync>;

/// How many decoded images stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Those that fit (`--low-dram`).
    OnDemand {
        /// Bytes that decoded images may take.
        cache: Bytes,
    },
    /// All of them (`--high-dram`).
    All,
}

/// How well decoding ahead worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderStatistics {
    /// Fetches that found the image decoded.
    pub ready: u64,
    /// Fetches that waited for a decode under way.
    pub waited: u64,
    /// Fetches that had to decode.
    pub missed: u64,
    /// Images decoded, failures included.
    pub decoded: u64,
}

/// Gives out decoded images by their index in the scene.
///
/// Decoded images and those being decoded never take more than the cache's size together, with
/// one exception: an image that does not fit beside what is in use is decoded for its caller and
/// not kept. (The photograph at full size exists besides, while a thread decodes it.) An image
/// counts as in use as long as a caller holds it.
///
/// A failed decode is remembered and told to every later fetch of that image.
pub struct ImageLoader {
    policy: Residency,
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    sources: Vec<ImageSource>,
    decoder: Decoder,
    state: Mutex<State>,
    /// There may be something to decode ahead, or the loader is going away.
    work: Condvar,
    /// A decode has finished.
    finished: Condvar,
}

struct State {
    shelf: Shelf,
    stopping: bool,
}

impl ImageLoader {
    /// A loader for these images. Decodes nothing and starts no thread.
    pub fn new(sources: Vec<ImageSource>, policy: Residency) -> Self {
        Self::with_decoder(sources, policy, Box::new(decode))
    }

    fn with_decoder(sources: Vec<ImageSource>, policy: Residency, decoder: Decoder) -> Self {
        let capacity = match policy {
            Residency::OnDemand { cache } => cache,
            Residency::All => Bytes(u64::MAX),
        };
        let state = Mutex::new(State { shelf: Shelf::new(capacity), stopping: false });
        let (work, finished) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { sources, decoder, state, work, finished });
        Self { policy, shared, workers: Mutex::new(Vec::new()) }
    }

    /// The image, once it is there: from the cache, from a worker that has begun with it, or
    /// decoded by the calling thread, which never queues behind images decoded ahead.
    pub fn fetch(&self, index: usize) -> Result<Arc<Image>, Arc<ImageError>> {
        let shared = &*self.shared;
        let Some(estimate) = shared.estimate(index) else {
            let count = shared.sources.len();
            return Err(Arc::new(ImageError::NoSuchImage { index, count }));
        };
        let mut state = shared.lock();
        match state.shelf.ask(index, estimate) {
            Answer::There(outcome) => {
                drop(state);
                // The image used before this one may be given up now, or this one's turn freed.
                shared.work.notify_all();
                outcome
            }
            Answer::InFlight(ticket) => loop {
                if let Some(outcome) = ticket.get() {
                    return outcome.clone();
                }
                state = shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
            },
            Answer::Yours(job) => {
                drop(state);
                let outcome = shared.decode(job.image);
                shared.finish(job, outcome.clone());
                outcome
            }
        }
    }

    /// Tells which images will be fetched next, in order, instead of what was told before. Worker
    /// threads decode ahead as far as the cache allows. An image may come up more than once.
    pub fn announce(&self, order: &[usize]) {
        let count = self.shared.sources.len();
        let order = order.iter().copied().filter(|&index| index < count);
        self.shared.lock().shelf.announce(order);
        self.start_workers();
        self.shared.work.notify_all();
    }

    /// Lets the image go, as one that is kept elsewhere: it is decoded again only where it is fetched
    /// or announced anew. One that a caller still holds goes when room is wanted, and under
    /// [`Residency::All`] all stay.
    pub fn forget(&self, index: usize) {
        if self.policy == Residency::All {
            return;
        }
        self.shared.lock().shelf.discard(index);
        self.shared.work.notify_all();
    }

    /// Decodes all images that are not there yet, on all cores. `on_progress` is told how many are
    /// done and how many there are; it is called from several threads.
    ///
    /// Returns the images that failed, in order. Fails where that is all of them. Under
    /// [`Residency::OnDemand`] only what fits stays.
    pub fn load_all(
        &self,
        on_progress: impl Fn(usize, usize) + Sync,
    ) -> Result<Vec<(usize, Arc<ImageError>)>, Arc<ImageError>> {
        let count = self.shared.sources.len();
        let done = AtomicUsize::new(0);
        let failures: Vec<_> = (0..count)
            .into_par_iter()
            .filter_map(|index| {
                let failure = self.fetch(index).err().map(|error| (index, error));
                on_progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
                failure
            })
            .collect();
        match failures.first() {
            Some((_, error)) if failures.len() == count => Err(Arc::clone(error)),
            _ => Ok(failures),
        }
    }

    /// The least cache with which the largest image is decoded ahead while another is in use, where
    /// this loader's is smaller.
    pub fn least_to_decode_ahead(&self) -> Option<Bytes> {
        let estimates = (0..self.shared.sources.len()).filter_map(|i| self.shared.estimate(i));
        // Of a single image there is none to decode ahead.
        let largest = estimates.max().filter(|_| self.shared.sources.len() > 1)?;
        let needed = largest + largest;
        (needed > self.shared.lock().shelf.capacity()).then_some(needed)
    }

    /// Bytes of decoded images that are kept, and of those set aside for decodes under way.
    pub fn held(&self) -> Bytes {
        self.shared.lock().shelf.held()
    }

    /// What happened so far.
    pub fn statistics(&self) -> LoaderStatistics {
        self.shared.lock().shelf.statistics
    }

    fn start_workers(&self) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if !workers.is_empty() {
            return;
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for number in 0..cores.min(MAX_WORKERS) {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name(format!("images-{number}"));
            match builder.spawn(move || shared.decode_ahead()) {
                Ok(worker) => workers.push(worker),
                // Without workers every fetch decodes its image itself: slower, not wrong.
                Err(error) => tracing::warn!("no thread to decode images ahead: {error}"),
            }
        }
    }
}

impl Drop for ImageLoader {
    /// Waits for the decodes under way, and begins no others.
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for worker in workers.drain(..) {
            // A worker that panicked has nothing left to clean up.
            worker.join().ok();
        }
    }
}

impl Shared {
    /// Nothing panics under the lock; should it, the bookkeeping is whole enough to go on with.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most bytes that the decoded image can take: colours and a mask.
    fn estimate(&self, index: usize) -> Option<Bytes> {
        let [width, height] = self.sources.get(index)?.size;
        // Decoding refuses what is larger than the bound here, which keeps sums far from overflow.
        Some(Bytes((u64::from(width) * u64::from(height)).saturating_mul(4).min(1 << 32)))
    }

    /// A worker's life.
    fn decode_ahead(&self) {
        let mut state = self.lock();
        while !state.stopping {
            // What has no estimate is never announced.
            let job = state.shelf.next_job(|index| self.estimate(index).unwrap_or_default());
            state = match job {
                Some(job) => {
                    drop(state);
                    let outcome = self.decode(job.image);
                    // Not a copy: one that lives on here would look like an image in use.
                    self.finish(job, outcome);
                    self.lock()
                }
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Decodes; called without the lock.
    fn decode(&self, index: usize) -> Outcome {
        let Some(source) = self.sources.get(index) else {
            let count = self.sources.len();
            return Err(Arc::new(ImageError::NoSuchImage { index, count }));
        };
        // A job that is never finished would block its fetchers for ever, so that whatever
        // happens in here ends as an outcome.
        guarded(&source.path, || (self.decoder)(source)).map(Arc::new).map_err(Arc::new)
    }

    /// Hands the outcome to all who wait for it.
    fn finish(&self, job: Job, outcome: Outcome) {
        self.lock().shelf.finish(job, outcome);
        self.finished.notify_all();
        // The image may be smaller than what was set aside for it.
        self.work.notify_all();
    }
}
