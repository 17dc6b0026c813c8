//! Loads images: decoded ahead into a bounded cache, or all of them kept.

mod image_cache;
#[cfg(test)]
mod limit_tests;
mod outcome;
mod prefetch_queue;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

pub use outcome::LoaderStatistics;

use self::outcome::Decoded;
use super::image::{guarded, resized};
use super::{Image, ImageError, ImageSource, decode};
use crate::memory::Bytes;
use image_cache::{ImageCache, Job, Lookup};
use watch::Watch;

/// Threads that decode ahead, at most. More would only hold more photographs at full size.
const MAX_WORKERS: usize = 4;

type Decoder = Box<dyn Fn(&ImageSource) -> Result<Image, ImageError> + Send + Sync>;

/// Most bytes that are held while a photograph is decoded: its file, its pixels, and a copy of these that
/// is straightened or resized; where there is a map of normals, its pixels, of up to 16 bits, and those of 8.
pub fn bytes_to_decode(source: &ImageSource) -> Bytes {
    let pixels: u64 = source.full_size.map(u64::from).iter().product();
    let each = if source.normals.is_some() { 12 + 8 + 4 } else { 12 };
    Bytes(pixels.saturating_mul(each))
}

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

/// Gives out decoded images by their index in the scene.
///
/// Decoded images and those being decoded never take more than the cache's size together, with
/// one exception: an image that does not fit beside those in use is decoded for its caller and not
/// kept. (While a thread decodes a photograph, its full size is held in addition.) An image is in
/// use while a caller holds it.
///
/// With a limit on the memory of the process, images get what its other parts leave, at most the
/// cache's size, and room for one decode is left beside them. If the limit would be exceeded, no image
/// is decoded ahead and images that are not in use are evicted. An image that is fetched is always
/// decoded, after the decodes in flight where there is no room beside them.
///
/// A failed decode is remembered and returned by every later fetch of that image.
pub struct ImageLoader {
    policy: Residency,
    shared: Arc<LoaderShared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

struct LoaderShared {
    sources: Vec<ImageSource>,
    decoder: Decoder,
    /// Bytes that images may take if memory is not short.
    wanted: Bytes,
    watch: Option<Watch>,
    /// Bytes that the most demanding decode takes.
    largest_decode: Bytes,
    state: Mutex<LoaderState>,
    /// There may be something to decode ahead, or the loader is going away.
    work: Condvar,
    /// A decode has finished.
    finished: Condvar,
}

struct LoaderState {
    cache: ImageCache,
    /// Decodes in flight.
    decoding: u64,
    stopping: bool,
}

impl ImageLoader {
    /// A loader for these images. Decodes nothing and starts no thread.
    pub fn new(sources: Vec<ImageSource>, policy: Residency) -> Self {
        Self::with_decoder(sources, policy, Box::new(decode), None)
    }

    /// The same, with a limit on the memory of the whole process, which takes so many bytes beside images
    /// at its most.
    pub fn within(
        sources: Vec<ImageSource>,
        policy: Residency,
        limit: Bytes,
        taken: Bytes,
    ) -> Self {
        let watch = Watch::new(limit, taken);
        Self::with_decoder(sources, policy, Box::new(decode), Some(watch))
    }

    fn with_decoder(
        sources: Vec<ImageSource>,
        policy: Residency,
        decoder: Decoder,
        watch: Option<Watch>,
    ) -> Self {
        let wanted = match policy {
            Residency::OnDemand { cache } => cache,
            Residency::All => Bytes(u64::MAX),
        };
        let cache = ImageCache::new(wanted);
        let state = Mutex::new(LoaderState { cache, decoding: 0, stopping: false });
        let (work, finished) = (Condvar::new(), Condvar::new());
        let largest_decode = sources.iter().map(bytes_to_decode).max().unwrap_or_default();
        let shared =
            LoaderShared { sources, decoder, wanted, watch, largest_decode, state, work, finished };
        // Nothing is decoded before the first check of the memory.
        shared.look();
        Self { policy, shared: Arc::new(shared), workers: Mutex::new(Vec::new()) }
    }

    /// Returns the image: from the cache, from a worker that is decoding it, or decoded by the calling
    /// thread, which never waits for images that are decoded ahead.
    pub fn fetch(&self, index: usize) -> Result<Arc<Image>, Arc<ImageError>> {
        let shared = &*self.shared;
        let Some(estimate) = shared.estimate(index) else {
            let count = shared.sources.len();
            return Err(Arc::new(ImageError::NoSuchImage { index, count }));
        };
        shared.look();
        let mut state = shared.lock();
        match state.cache.ask(index, estimate) {
            Lookup::Hit(outcome) => {
                drop(state);
                // The image used before this one may be given up now, or this one's turn freed.
                shared.work.notify_all();
                outcome
            }
            Lookup::InFlight(ticket) => loop {
                if let Some(outcome) = ticket.get() {
                    return outcome.clone();
                }
                state = shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
            },
            Lookup::Miss(job) => {
                while state.decoding > 0 && !shared.has_room_to_decode(&state) {
                    state = shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.decoding += 1;
                drop(state);
                let outcome = shared.decode(job.image);
                shared.finish(job, outcome.clone());
                outcome
            }
        }
    }

    /// An image that was fetched, at another size.
    pub fn resized(
        &self,
        index: usize,
        image: &Image,
        size: [u32; 2],
    ) -> Result<Image, ImageError> {
        let count = self.shared.sources.len();
        let source =
            self.shared.sources.get(index).ok_or(ImageError::NoSuchImage { index, count })?;
        guarded(&source.path, || resized(&source.path, image, size))
    }

    /// Sets which images will be fetched next, in order, and replaces the previous order. Worker
    /// threads decode ahead until the cache is full. An image may occur more than once.
    pub fn schedule_decoding(&self, order: &[usize]) {
        let count = self.shared.sources.len();
        let order = order.iter().copied().filter(|&index| index < count);
        self.shared.lock().cache.schedule_decoding(order);
        self.start_workers();
        self.shared.work.notify_all();
    }

    /// Drops an image that is kept elsewhere: it is decoded again only if it is fetched or scheduled
    /// anew. One that a caller still holds is evicted when memory is needed. Under
    /// [`Residency::All`] nothing is dropped.
    pub fn forget(&self, index: usize) {
        if self.policy == Residency::All {
            return;
        }
        self.shared.lock().cache.discard(index);
        self.shared.work.notify_all();
    }

    /// Decodes all images that are not decoded yet, on all cores. `on_progress` gets the number of
    /// finished images and their total; it is called from several threads.
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
        let needed = self.shared.ahead_bytes()?;
        (needed > self.shared.wanted).then_some(needed)
    }

    /// The least that all images take when they are decoded.
    pub fn decoded_bytes(&self) -> Bytes {
        let bytes = |source: &ImageSource| {
            let [width, height] = source.size;
            u64::from(width) * u64::from(height) * source.pixel_bytes()
        };
        Bytes(self.shared.sources.iter().map(bytes).sum())
    }

    /// Bytes of decoded images that are kept, and of those reserved for decodes in flight.
    pub fn held(&self) -> Bytes {
        self.shared.lock().cache.held()
    }

    /// What happened so far.
    pub fn statistics(&self) -> LoaderStatistics {
        self.shared.lock().cache.statistics
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
    /// Waits for the decodes in flight, and begins no others.
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

impl LoaderShared {
    /// Nothing panics under the lock; if it did, the state would still be usable.
    fn lock(&self) -> MutexGuard<'_, LoaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At intervals, fits the cache to the memory that the limit leaves.
    fn look(&self) {
        let Some(watch) = self.watch.as_ref().filter(|watch| watch.is_due()) else { return };
        let all = (0..self.sources.len()).filter_map(|index| self.estimate(index)).sum();
        let mut state = self.lock();
        let granted = watch.budget(self.wanted, state.cache.kept(), self.largest_decode);
        let grows = state.cache.set_capacity(granted);
        drop(state);
        if grows {
            self.work.notify_all();
        }
        if granted < self.wanted.min(all) && watch.is_first_report() {
            self.report_limit(granted, watch.limit());
        }
    }

    fn report_limit(&self, granted: Bytes, limit: Bytes) {
        let [granted_text, limit_text] = [granted, limit].map(Bytes::in_words);
        if self.ahead_bytes().is_some_and(|needed| granted < needed) {
            tracing::warn!(
                "the program holds so much memory that of the {limit_text} of --host-limit \
                 only {granted_text} are left for decoded photographs: each is decoded when it is needed"
            );
        } else {
            tracing::debug!(
                "decoded photographs may take {granted_text}; more would take the program \
                 beyond the {limit_text} of --host-limit"
            );
        }
    }

    /// Bytes to decode the largest image ahead while another is in use; `None` for a single image,
    /// which is never decoded ahead.
    fn ahead_bytes(&self) -> Option<Bytes> {
        let estimates = (0..self.sources.len()).filter_map(|index| self.estimate(index));
        let largest = estimates.max().filter(|_| self.sources.len() > 1)?;
        Some(largest + largest)
    }

    /// Most bytes that the decoded image can take: colours, a mask, and the maps that it has files of.
    fn estimate(&self, index: usize) -> Option<Bytes> {
        let source = self.sources.get(index)?;
        let [width, height] = source.size;
        let each = 4 + source.map_bytes();
        // Decoding refuses what is larger than the bound here, which keeps sums far from overflow.
        Some(Bytes((u64::from(width) * u64::from(height)).saturating_mul(each).min(1 << 33)))
    }

    /// The loop of a worker thread.
    fn decode_ahead(&self) {
        loop {
            self.look();
            let mut state = self.lock();
            if state.stopping {
                return;
            }
            // What has no estimate is never scheduled.
            let estimate = |index| self.estimate(index).unwrap_or_default();
            let has_room = self.has_room_to_decode(&state);
            let job = has_room.then(|| state.cache.next_job(estimate)).flatten();
            match job {
                Some(job) => {
                    state.decoding += 1;
                    drop(state);
                    let outcome = self.decode(job.image);
                    // Not a copy: one that lives on here would look like an image in use.
                    self.finish(job, outcome);
                }
                None => drop(self.work.wait(state).unwrap_or_else(PoisonError::into_inner)),
            }
        }
    }

    /// Decodes; called without the lock.
    fn decode(&self, index: usize) -> Decoded {
        let Some(source) = self.sources.get(index) else {
            let count = self.sources.len();
            return Err(Arc::new(ImageError::NoSuchImage { index, count }));
        };
        // A job that is never finished would block its fetchers for ever, so that whatever
        // happens in here ends as an outcome.
        guarded(&source.path, || (self.decoder)(source)).map(Arc::new).map_err(Arc::new)
    }

    /// Whether the limit leaves room for one more decode beside those in flight.
    fn has_room_to_decode(&self, state: &LoaderState) -> bool {
        self.watch.as_ref().is_none_or(|watch| {
            let all = self.largest_decode.0.saturating_mul(state.decoding + 1);
            watch.has_room(state.cache.kept(), Bytes(all))
        })
    }

    /// Passes the result to all threads that wait for it.
    fn finish(&self, job: Job, outcome: Decoded) {
        let mut state = self.lock();
        state.decoding -= 1;
        state.cache.finish(job, outcome);
        drop(state);
        self.finished.notify_all();
        // The image may be smaller than what was reserved for it.
        self.work.notify_all();
    }
}
