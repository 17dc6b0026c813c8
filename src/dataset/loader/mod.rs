//! Loads images, either decoded ahead into a bounded cache or all kept in memory.

mod image_cache;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use image_cache::{ImageCache, Job, Lookup, Watch};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use self::image_cache::Decoded;
use super::image::{guarded, resized};
use super::{Image, ImageError, ImageSource, decode};
use crate::memory::Bytes;

pub use image_cache::LoaderStatistics;

/// Largest number of threads that decode ahead. More would only hold more photographs at full size.
const MAX_WORKERS: usize = 4;

type Decoder = Box<dyn Fn(&ImageSource) -> Result<Image, ImageError> + Send + Sync>;

/// Returns the largest number of bytes during a decode: the file, its pixels, and a straightened or resized copy;
/// with a map of normals, also its pixels of up to 16 bits and their 8-bit copy.
pub fn bytes_to_decode(source: &ImageSource) -> Bytes {
    let pixels: u64 = source.full_size.map(u64::from).iter().product();
    let each = if source.normals.is_some() { 12 + 8 + 4 } else { 12 };
    Bytes(pixels.saturating_mul(each))
}

/// Policy for decoded images in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Keep the images that fit (`--low-dram`).
    OnDemand {
        /// Largest number of bytes of decoded images.
        cache: Bytes,
    },
    /// Keep all images (`--high-dram`).
    All,
}

/// A loader of decoded images by their index in the scene.
///
/// Decoded images and images being decoded never exceed the cache's size together, with one exception: an image that
/// does not fit beside the images in use is decoded for its caller and not kept. An image is in use while a caller
/// holds it. In addition, each decode holds one photograph at full size.
///
/// With a limit on the memory of the process, images get the rest of the limit, at most the cache's size, minus one
/// decode. If the limit would be exceeded, no image is decoded ahead, and images that are not in use are evicted. A
/// fetched image is always decoded, after the decodes in flight if there is no room beside them.
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
    largest_decode: Bytes,
    state: Mutex<LoaderState>,
    /// Signals work to decode ahead, or the end of the loader.
    work: Condvar,
    /// Signals the end of a decode.
    finished: Condvar,
}

struct LoaderState {
    cache: ImageCache,
    decoding: u64,
    stopping: bool,
}

impl ImageLoader {
    /// Builds a loader for these images. Decodes nothing and starts no thread.
    pub fn new(sources: Vec<ImageSource>, policy: Residency) -> Self {
        Self::with_decoder(sources, policy, Box::new(decode), None)
    }

    /// Builds a loader with a limit on the memory of the process, which takes up to `taken` bytes besides images.
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
        shared.adapt_cache();
        Self { policy, shared: Arc::new(shared), workers: Mutex::new(Vec::new()) }
    }

    /// Returns the image: from the cache, from a worker that is decoding it, or decoded by the calling thread, which
    /// never waits for images that are decoded ahead.
    pub fn fetch(&self, index: usize) -> Result<Arc<Image>, Arc<ImageError>> {
        let shared = &*self.shared;
        let estimate = shared.estimate(index)?;
        shared.adapt_cache();
        let mut state = shared.lock();
        match state.cache.ask(index, estimate) {
            Lookup::Hit(outcome) => {
                drop(state);
                // The previously used image, or this one's turn, may have become free.
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

    /// Resizes a fetched image.
    pub fn resized(
        &self,
        index: usize,
        image: &Image,
        size: [u32; 2],
    ) -> Result<Image, ImageError> {
        let source = self.shared.source(index)?;
        guarded(&source.path, || resized(&source.path, image, size))
    }

    /// Replaces the order of the next fetches. Worker threads decode ahead until the cache is full. An image may
    /// occur more than once.
    pub fn schedule_decoding(&self, order: &[usize]) {
        let count = self.shared.sources.len();
        let order = order.iter().copied().filter(|&index| index < count);
        self.shared.lock().cache.schedule_decoding(order);
        self.start_workers();
        self.shared.work.notify_all();
    }

    /// Drops an image that is kept elsewhere. It is decoded again only if it is fetched or scheduled again. An image
    /// in use is evicted when memory is needed. With [`Residency::All`] nothing is dropped.
    pub fn forget(&self, index: usize) {
        if self.policy == Residency::All {
            return;
        }
        self.shared.lock().cache.discard(index);
        self.shared.work.notify_all();
    }

    /// Decodes all remaining images on all cores. `on_progress` receives the number of finished images and the total,
    /// on several threads.
    ///
    /// Returns the images that failed, in order. Fails if all images failed. With [`Residency::OnDemand`] only images
    /// that fit stay.
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

    /// Returns the smallest cache that allows to decode the largest image ahead while another is in use; `None` if
    /// this loader's is large enough.
    pub fn least_to_decode_ahead(&self) -> Option<Bytes> {
        let needed = self.shared.ahead_bytes()?;
        (needed > self.shared.wanted).then_some(needed)
    }

    /// Returns the smallest number of bytes of all decoded images.
    pub fn decoded_bytes(&self) -> Bytes {
        let bytes = |source: &ImageSource| {
            let [width, height] = source.size;
            u64::from(width) * u64::from(height) * source.pixel_bytes()
        };
        Bytes(self.shared.sources.iter().map(bytes).sum())
    }

    /// Returns the bytes of kept images and of reservations for decodes in flight.
    pub fn held(&self) -> Bytes {
        self.shared.lock().cache.held()
    }

    /// Returns the counts of fetches and decodes so far.
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
                // Without workers every fetch decodes its own image, which is slower but correct.
                Err(error) => tracing::warn!("no thread to decode images ahead: {error}"),
            }
        }
    }
}

impl Drop for ImageLoader {
    /// Waits for the decodes in flight and starts no others.
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
    /// Locks the state. Nothing panics under the lock, and the state would stay usable.
    fn lock(&self) -> MutexGuard<'_, LoaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adapts the cache to the memory that the limit leaves, if a check is due.
    fn adapt_cache(&self) {
        let Some(watch) = self.watch.as_ref().filter(|watch| watch.is_due()) else { return };
        let all = self.estimates().sum();
        let mut state = self.lock();
        let granted = watch.budget(self.wanted, state.cache.kept(), self.largest_decode);
        let grows = state.cache.set_capacity(granted);
        drop(state);
        if grows {
            self.work.notify_all();
        }
        if granted < self.wanted.min(all) && watch.is_first_report() {
            self.report_limit(granted, watch.limit);
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

    /// Returns the bytes that decoding the largest image ahead takes while another is in use; `None` for a single
    /// image.
    fn ahead_bytes(&self) -> Option<Bytes> {
        let largest = self.estimates().max().filter(|_| self.sources.len() > 1)?;
        Some(largest + largest)
    }

    fn source(&self, index: usize) -> Result<&ImageSource, ImageError> {
        let count = self.sources.len();
        self.sources.get(index).ok_or(ImageError::NoSuchImage { index, count })
    }

    fn estimates(&self) -> impl Iterator<Item = Bytes> {
        self.sources.iter().map(estimate_of)
    }

    fn estimate(&self, index: usize) -> Result<Bytes, ImageError> {
        self.source(index).map(estimate_of)
    }

    fn decode_ahead(&self) {
        loop {
            self.adapt_cache();
            let mut state = self.lock();
            if state.stopping {
                return;
            }
            // Images without an estimate are never scheduled.
            let estimate = |index| self.estimate(index).unwrap_or_default();
            let has_room = self.has_room_to_decode(&state);
            let job = has_room.then(|| state.cache.next_job(estimate)).flatten();
            match job {
                Some(job) => {
                    state.decoding += 1;
                    drop(state);
                    let outcome = self.decode(job.image);
                    // `outcome` is moved, because a copy would count as an image in use.
                    self.finish(job, outcome);
                }
                None => drop(self.work.wait(state).unwrap_or_else(PoisonError::into_inner)),
            }
        }
    }

    /// Decodes an image; called without the lock.
    fn decode(&self, index: usize) -> Decoded {
        let source = self.source(index)?;
        // An unfinished job would block its fetchers for ever, so panics become outcomes too.
        guarded(&source.path, || (self.decoder)(source)).map(Arc::new).map_err(Arc::new)
    }

    /// True if the limit leaves room for one more decode beside those in flight.
    fn has_room_to_decode(&self, state: &LoaderState) -> bool {
        self.watch.as_ref().is_none_or(|watch| {
            let all = self.largest_decode.0.saturating_mul(state.decoding + 1);
            watch.has_room(state.cache.kept(), Bytes(all))
        })
    }

    /// Hands the result to all waiting threads.
    fn finish(&self, job: Job, outcome: Decoded) {
        let mut state = self.lock();
        state.decoding -= 1;
        state.cache.finish(job, outcome);
        drop(state);
        self.finished.notify_all();
        // The image may be smaller than its reservation.
        self.work.notify_all();
    }
}

/// Returns the largest number of bytes of the decoded image: colours, a mask, and its maps.
fn estimate_of(source: &ImageSource) -> Bytes {
    let [width, height] = source.size;
    let each = 4 + source.map_bytes();
    // Decoding rejects larger images, and the bound keeps sums from overflowing.
    Bytes((u64::from(width) * u64::from(height)).saturating_mul(each).min(1 << 33))
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test values are small")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::math::random::{RandomStream, RandomUse};

    /// Bytes of each test image, and of its reservation.
    const KEPT: u64 = 5 * 3 * 3;

    const RESERVED: u64 = 5 * 3 * 4;

    fn sources(count: usize) -> Vec<ImageSource> {
        (0..count).map(|index| ImageSource::plain(index.to_string().into(), [5, 3])).collect()
    }

    fn number(source: &ImageSource) -> usize {
        source.path.to_str().unwrap().parse().unwrap()
    }

    fn picture(source: &ImageSource) -> Image {
        let [width, height] = source.size;
        let rgb = vec![number(source) as u8; (width * height * 3) as usize];
        Image::without_maps(source.size, rgb, None)
    }

    fn cache(images: u64) -> Residency {
        Residency::OnDemand { cache: Bytes(images * RESERVED) }
    }

    fn loader(
        count: usize,
        policy: Residency,
        decoder: impl Fn(&ImageSource) -> Result<Image, ImageError> + Send + Sync + 'static,
    ) -> ImageLoader {
        ImageLoader::with_decoder(sources(count), policy, Box::new(decoder), None)
    }

    fn pictured(sources: Vec<ImageSource>, policy: Residency, watch: Option<Watch>) -> ImageLoader {
        ImageLoader::with_decoder(sources, policy, Box::new(|source| Ok(picture(source))), watch)
    }

    fn failing(source: &ImageSource) -> ImageError {
        ImageError::Truncated { path: source.path.display().to_string(), bytes: 1 }
    }

    /// Waits for worker threads; fails after a timeout.
    fn eventually(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn images_are_decoded_ahead_in_order_until_the_cache_is_full() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&log);
        let loader = loader(20, cache(3), move |source| {
            seen.lock().unwrap().push(number(source));
            Ok(picture(source))
        });
        assert_eq!((loader.held(), loader.statistics().decoded), (Bytes(0), 0));
        let order = [7, 3, 19, 0, 11, 4, 8, 2];
        loader.schedule_decoding(&order);
        for (done, &index) in order.iter().enumerate() {
            // Room for three: the image used last stays until the next fetch.
            let ahead = (done + 2).min(order.len());
            eventually("decoding ahead", || log.lock().unwrap().len() >= ahead);
            let image = loader.fetch(index).unwrap();
            assert_eq!(image.rgb[0], index as u8);
            assert!(loader.held() <= Bytes(3 * RESERVED));
        }
        // Each is decoded once. Two workers may finish in either order, so neighbours may swap.
        let mut decoded = log.lock().unwrap().clone();
        for (turn, index) in decoded.iter().enumerate() {
            let own = order.iter().position(|i| i == index).unwrap();
            assert!(own.abs_diff(turn) < MAX_WORKERS, "{decoded:?}");
        }
        decoded.sort_unstable();
        let mut all = order.to_vec();
        all.sort_unstable();
        assert_eq!(decoded, all);
    }

    #[test]
    fn images_are_decoded_once_per_epoch() {
        let loader = pictured(sources(50), cache(6), None);
        for epoch in 0..4 {
            let order = RandomStream::new(1, epoch, RandomUse::ViewOrder).permutation(50);
            loader.schedule_decoding(&order);
            for index in order {
                loader.fetch(index).unwrap();
            }
        }
        let decoded = loader.statistics().decoded;
        assert!(decoded <= 200, "{decoded} decodes for 200 fetches");
    }

    #[test]
    fn new_schedule_replaces_the_old_one() {
        let loader = pictured(sources(40), cache(4), None);
        loader.schedule_decoding(&[0, 1, 2, 3, 4, 5, 6, 7]);
        eventually("a full cache", || loader.statistics().decoded >= 4);
        // Images 0 to 3 are still scheduled, but their turns are last now.
        loader.schedule_decoding(&[30, 31, 32, 33, 0, 1, 2, 3]);
        eventually("the new order", || loader.statistics().decoded >= 8);
        for index in 30..34 {
            loader.fetch(index).unwrap();
        }
        assert_eq!(loader.statistics().missed, 0);
    }

    #[test]
    fn fetch_does_not_wait_for_images_decoded_ahead() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let busy = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&busy);
        let loader = loader(20, cache(20), move |source| {
            if number(source) < 10 {
                begun.fetch_add(1, Ordering::SeqCst);
                gate.lock().unwrap().recv().ok();
            }
            Ok(picture(source))
        });
        loader.schedule_decoding(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        eventually("a worker that is busy", || busy.load(Ordering::SeqCst) >= 1);
        // Returns although every worker is stuck.
        assert_eq!(loader.fetch(15).unwrap().rgb[0], 15);
        assert_eq!(loader.statistics().missed, 1);
        // An image in flight is waited for, and not decoded twice.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| loader.fetch(0).unwrap());
            eventually("a fetch that waits", || loader.statistics().waited == 1);
            drop(release);
            assert_eq!(waiting.join().unwrap().rgb[0], 0);
        });
    }

    #[test]
    fn failure_is_remembered_and_returned_to_all() {
        let loader = loader(6, cache(6), |source| match number(source) {
            2 => Err(failing(source)),
            4 => panic!("index out of range"),
            _ => Ok(picture(source)),
        });
        loader.schedule_decoding(&[0, 1, 2, 3, 4, 5]);
        for _ in 0..3 {
            for index in 0..6 {
                let outcome = loader.fetch(index);
                match index {
                    2 => assert!(matches!(*outcome.unwrap_err(), ImageError::Truncated { .. })),
                    4 => assert!(matches!(*outcome.unwrap_err(), ImageError::Panicked { .. })),
                    _ => assert_eq!(outcome.unwrap().rgb[0], index as u8),
                }
            }
        }
        assert_eq!(loader.statistics().decoded, 6);
        let missing = loader.fetch(6).unwrap_err().to_string();
        assert_eq!(missing, "image 6 was requested, but the scene has 6 images");
    }

    #[test]
    fn oversized_image_is_decoded_and_not_kept() {
        let mut sources = sources(4);
        sources[1].size = [50, 40];
        let loader = pictured(sources, cache(2), None);
        loader.schedule_decoding(&[0, 1, 2, 1]);
        for index in [0, 1, 2, 1] {
            assert_eq!(loader.fetch(index).unwrap().rgb[0], index as u8);
            assert!(loader.held() <= Bytes(2 * RESERVED));
        }
        // Never decoded ahead, because it would not be kept.
        assert!(loader.statistics().missed >= 2);
    }

    #[test]
    fn images_in_use_are_not_evicted() {
        let loader = pictured(sources(10), cache(2), None);
        let (first, second) = (loader.fetch(0).unwrap(), loader.fetch(1).unwrap());
        assert_eq!(loader.held(), Bytes(2 * KEPT));
        // No room: decoded for the caller only.
        let third = loader.fetch(2).unwrap();
        assert_eq!(loader.held(), Bytes(2 * KEPT));
        assert!(Arc::ptr_eq(&first, &loader.fetch(0).unwrap()));
        assert!(!Arc::ptr_eq(&third, &loader.fetch(2).unwrap()));
        drop((first, second));
        let kept = loader.fetch(3).unwrap();
        assert!(Arc::ptr_eq(&kept, &loader.fetch(3).unwrap()));
    }

    #[test]
    fn forgotten_image_is_not_decoded_again() {
        let loader = pictured(sources(3), cache(3), None);
        loader.schedule_decoding(&[0, 1, 0, 2]);
        eventually("three images", || loader.statistics().decoded == 3);
        let in_use = loader.fetch(1).unwrap();
        for index in [0, 1, 2, 77] {
            loader.forget(index);
        }
        assert_eq!(loader.held(), Bytes(KEPT), "what is in use counts");
        drop(in_use);
        loader.forget(1);
        assert_eq!(loader.held(), Bytes(0));
        // A worker would have used a remaining turn.
        thread::sleep(Duration::from_millis(30));
        assert_eq!(loader.statistics().decoded, 3);
        assert_eq!(loader.fetch(0).unwrap().rgb[0], 0);
        loader.schedule_decoding(&[2]);
        eventually("the image announced anew", || loader.statistics().decoded == 5);
    }

    #[test]
    fn fetch_time_is_independent_of_the_cache_size() {
        const IMAGES: usize = 40_000;
        let loader = pictured(sources(IMAGES), cache(IMAGES as u64 / 2), None);
        let start = Instant::now();
        for index in 0..IMAGES {
            loader.fetch(index).unwrap();
        }
        // Half of the fetches evict another image. Sorting all kept images for each took 15 s in this test.
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn drop_waits_for_decodes_in_flight() {
        let decoded = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&decoded);
        let loader = loader(200, cache(200), move |source| {
            thread::sleep(Duration::from_millis(5));
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(picture(source))
        });
        loader.schedule_decoding(&(0..200).collect::<Vec<_>>());
        eventually("a first image", || decoded.load(Ordering::SeqCst) > 0);
        drop(loader);
        let at_drop = decoded.load(Ordering::SeqCst);
        assert!(at_drop < 200, "all images were decoded before the workers stopped");
        thread::sleep(Duration::from_millis(20));
        assert_eq!(decoded.load(Ordering::SeqCst), at_drop);
    }

    #[test]
    fn load_all_keeps_images_and_returns_failures() {
        let loader = loader(30, Residency::All, |source| match number(source) {
            13 | 21 => Err(failing(source)),
            _ => Ok(picture(source)),
        });
        let last = AtomicUsize::new(0);
        let failures = loader
            .load_all(|done, of| {
                assert_eq!(of, 30);
                last.fetch_max(done, Ordering::SeqCst);
            })
            .unwrap();
        assert_eq!(failures.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [13, 21]);
        // Nothing is forgotten.
        loader.forget(0);
        assert_eq!((last.into_inner(), loader.held()), (30, Bytes(28 * KEPT)));
        loader.schedule_decoding(&(0..30).collect::<Vec<_>>());
        for index in 0..30 {
            assert_eq!(loader.fetch(index).is_err(), [13, 21].contains(&index));
        }
        assert_eq!(loader.statistics().decoded, 30);

        let hopeless = self::loader(3, Residency::All, |source| Err(failing(source)));
        assert!(hopeless.load_all(|_, _| {}).is_err());
        let empty = pictured(Vec::new(), Residency::All, None);
        assert!(empty.load_all(|_, _| {}).unwrap().is_empty());
    }

    #[test]
    fn cache_of_two_images_decodes_ahead() {
        let small = pictured(sources(4), cache(1), None);
        assert_eq!(small.least_to_decode_ahead(), Some(Bytes(2 * RESERVED)));
        let loader = pictured(sources(4), cache(2), None);
        assert_eq!(loader.least_to_decode_ahead(), None);
        loader.schedule_decoding(&[0, 1, 2, 3]);
        eventually("the first image", || loader.statistics().decoded >= 1);
        for index in 0..3 {
            // As in training: the previous image is dropped before the next request.
            let image = loader.fetch(index).unwrap();
            eventually("the next image", || loader.statistics().decoded >= index as u64 + 2);
            drop(image);
        }
        assert_eq!(loader.statistics().missed, 0);
    }
    /// Returns a loader whose process holds other memory, which is checked on every call.
    fn beside(count: usize, policy: Residency, limit: u64) -> (ImageLoader, Arc<AtomicU64>) {
        let otherwise = Arc::new(AtomicU64::new(0));
        let held = Arc::clone(&otherwise);
        let watch = Watch::with(
            Bytes(limit),
            Duration::ZERO,
            Box::new(move |images| Some(images + Bytes(held.load(Ordering::SeqCst)))),
        );
        (pictured(sources(count), policy, Some(watch)), otherwise)
    }

    #[test]
    fn images_yield_to_other_memory_and_return() {
        let (loader, otherwise) = beside(40, cache(8), 100 * RESERVED);
        let order: Vec<usize> = (0..40).collect();
        loader.schedule_decoding(&order);
        eventually("a full cache", || loader.held() >= Bytes(8 * KEPT));
        // Room for three.
        otherwise.store(97 * RESERVED, Ordering::SeqCst);
        assert_eq!(loader.fetch(0).unwrap().rgb[0], 0);
        // A decode in flight keeps its reservation, but not the image.
        eventually("room", || loader.held() <= Bytes(3 * RESERVED));
        for index in 1..10 {
            loader.fetch(index).unwrap();
            assert!(loader.held() <= Bytes(3 * RESERVED));
        }
        otherwise.store(0, Ordering::SeqCst);
        let before = loader.statistics().decoded;
        loader.fetch(10).unwrap();
        eventually("more images", || loader.statistics().decoded >= before + 4);
        eventually("a full cache again", || loader.held() >= Bytes(8 * KEPT));
    }

    #[test]
    fn beyond_the_limit_nothing_is_kept() {
        for policy in [cache(8), Residency::All] {
            let (loader, otherwise) = beside(10, policy, 1000);
            otherwise.store(5000, Ordering::SeqCst);
            let order: Vec<usize> = (0..10).chain(0..10).collect();
            loader.schedule_decoding(&order);
            for &index in &order {
                let image = loader.fetch(index).unwrap();
                assert_eq!(usize::from(image.rgb[0]), index);
                assert_eq!(loader.held(), Bytes(0));
            }
            let LoaderStatistics { ready, waited, missed, decoded } = loader.statistics();
            assert_eq!([ready, waited, missed, decoded], [0, 0, 20, 20]);
        }
    }

    #[test]
    fn limit_evicts_even_with_residency_all() {
        let (loader, otherwise) = beside(30, Residency::All, 100 * RESERVED);
        loader.load_all(|_, _| {}).unwrap();
        assert_eq!(loader.held(), Bytes(30 * KEPT));
        otherwise.store(100 * RESERVED - 5 * KEPT, Ordering::SeqCst);
        loader.fetch(3).unwrap();
        assert!(loader.held() <= Bytes(5 * KEPT), "{}", loader.held());
        for index in 0..30 {
            assert_eq!(usize::from(loader.fetch(index).unwrap().rgb[0]), index);
            assert!(loader.held() <= Bytes(5 * KEPT));
        }
    }

    #[test]
    fn unknown_memory_keeps_the_cache() {
        let watch = Watch::with(Bytes(1), Duration::ZERO, Box::new(|_| None));
        let loader = pictured(sources(4), cache(4), Some(watch));
        loader.load_all(|_, _| {}).unwrap();
        assert_eq!(loader.held(), Bytes(4 * KEPT));
    }

    #[test]
    fn memory_is_checked_per_interval_and_reported_once() {
        let watch = Watch::with(Bytes(1), Duration::from_secs(3600), Box::new(|_| None));
        assert_eq!([watch.is_due(), watch.is_due()], [true, false]);
        assert_eq!([watch.is_first_report(), watch.is_first_report()], [true, false]);
    }

    #[test]
    fn decoded_bytes_count_colours_and_masks() {
        let mut sources = sources(3);
        sources[1].mask = Some("mask.png".into());
        let loader = pictured(sources, Residency::All, None);
        assert_eq!(loader.decoded_bytes(), Bytes(2 * 45 + 60));
    }

    #[derive(Clone, Debug)]
    enum CacheEvent {
        /// Fetch, and hold for the next operations.
        Fetch(usize, usize),
        Begin(usize),
        Finish,
        Ahead,
        Announce(Vec<usize>),
        Capacity(u64),
    }

    fn cache_event() -> impl Strategy<Value = CacheEvent> {
        prop_oneof![
            4 => (0_usize..12, 0_usize..4).prop_map(|(image, held)| CacheEvent::Fetch(image, held)),
            2 => (0_usize..12).prop_map(CacheEvent::Begin),
            3 => Just(CacheEvent::Finish),
            4 => Just(CacheEvent::Ahead),
            1 => prop::collection::vec(0_usize..12, 0..20).prop_map(CacheEvent::Announce),
            3 => (0_u64..10).prop_map(|images| CacheEvent::Capacity(images * RESERVED)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

        #[test]
        fn only_images_in_use_exceed_the_capacity(
            events in prop::collection::vec(cache_event(), 1..80),
        ) {
            let all = sources(12);
            let image = |index: usize| Arc::new(picture(&all[index]));
            let mut cache = ImageCache::new(Bytes(4 * RESERVED));
            let mut capacity = Bytes(4 * RESERVED);
            let (mut jobs, mut in_use) = (Vec::new(), Vec::<(usize, Arc<Image>)>::new());
            for event in events {
                in_use.retain(|(left, _)| *left > 0);
                in_use.iter_mut().for_each(|(left, _)| *left -= 1);
                match event {
                    CacheEvent::Fetch(index, held) => match cache.ask(index, Bytes(RESERVED)) {
                        Lookup::Hit(outcome) => in_use.push((held, outcome.unwrap())),
                        Lookup::InFlight(_) => {}
                        Lookup::Miss(job) => {
                            let outcome = image(job.image);
                            in_use.push((held, Arc::clone(&outcome)));
                            cache.finish(job, Ok(outcome));
                        }
                    },
                    CacheEvent::Begin(index) => {
                        if let Lookup::Miss(job) = cache.ask(index, Bytes(RESERVED)) {
                            jobs.push(job);
                        }
                    }
                    CacheEvent::Finish => {
                        if let Some(job) = jobs.pop() {
                            let outcome = image(job.image);
                            cache.finish(job, Ok(outcome));
                        }
                    }
                    CacheEvent::Ahead => jobs.extend(cache.next_job(|_| Bytes(RESERVED))),
                    CacheEvent::Announce(order) => cache.schedule_decoding(order.into_iter()),
                    CacheEvent::Capacity(bytes) => capacity = Bytes(bytes),
                }
                cache.set_capacity(capacity);
                // An image may be in use twice, and decoded for its caller only, so this is a bound.
                let busy = jobs.len() as u64 * RESERVED + in_use.len() as u64 * KEPT;
                prop_assert!(cache.held().0 <= capacity.0.max(busy), "{} of {capacity}", cache.held());
                prop_assert!(cache.kept() <= cache.held());
            }
            in_use.clear();
            for job in jobs {
                let outcome = image(job.image);
                cache.finish(job, Ok(outcome));
            }
            cache.set_capacity(capacity);
            prop_assert!(cache.held() <= capacity);
            prop_assert_eq!(cache.kept(), cache.held());
            cache.set_capacity(Bytes(0));
            prop_assert_eq!(cache.held(), Bytes(0));
        }
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Fetch(usize),
        /// Fetch, and hold the image for the next operations.
        Hold(usize),
        Announce(Vec<usize>),
        Forget(usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            6 => (0_usize..12).prop_map(Operation::Fetch),
            3 => (0_usize..12).prop_map(Operation::Hold),
            1 => prop::collection::vec(0_usize..14, 0..20).prop_map(Operation::Announce),
            2 => (0_usize..14).prop_map(Operation::Forget),
        ]
    }

    /// Runs each list of operations on a thread, and checks every image and the bound.
    fn perform(loader: &ImageLoader, threads: &[Vec<Operation>], bound: Bytes) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for operations in threads {
                let over = &over;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for operation in operations {
                        match operation {
                            Operation::Announce(order) => loader.schedule_decoding(order),
                            Operation::Forget(index) => loader.forget(*index),
                            Operation::Fetch(index) | Operation::Hold(index) => {
                                let outcome = loader.fetch(*index);
                                assert_eq!(outcome.is_err(), *index == 5);
                                if let Ok(image) = outcome {
                                    assert_eq!(image.rgb[0], *index as u8);
                                    if matches!(operation, Operation::Hold(_)) {
                                        held.push(image);
                                    }
                                }
                            }
                        }
                        if held.len() > 3 {
                            held.clear();
                        }
                        if loader.held() > bound {
                            over.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(!over.into_inner(), "more than {bound} held");
    }

    /// Returns a loader whose image 5 fails and whose image 9 is larger than the cache.
    fn awkward(images: u64) -> ImageLoader {
        let mut sources = sources(12);
        sources[9].size = [100, 100];
        let decoder = |source: &ImageSource| {
            if number(source) == 5 { Err(failing(source)) } else { Ok(picture(source)) }
        };
        ImageLoader::with_decoder(sources, cache(images), Box::new(decoder), None)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        #[test]
        fn bound_holds_under_concurrent_operations(
            threads in prop::collection::vec(prop::collection::vec(operation(), 1..40), 1..5),
            images in 0_u64..8,
        ) {
            perform(&awkward(images), &threads, Bytes(images * RESERVED));
        }
    }

    #[test]
    fn ten_thousand_random_operations_do_not_deadlock() {
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            let operations = prop::collection::vec(operation(), 2500);
            let threads = prop::collection::vec(operations, 4);
            let threads = threads.new_tree(&mut TestRunner::deterministic()).unwrap().current();
            let loader = awkward(3);
            perform(&loader, &threads, Bytes(3 * RESERVED));
            drop(loader);
            sender.send(()).unwrap();
        });
        // Takes less than a second on two cores; a deadlock would never end.
        assert!(ended.recv_timeout(Duration::from_secs(60)).is_ok(), "deadlock, or a failed check");
    }
}
