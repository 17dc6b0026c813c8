//! State of the bounded cache: images that are kept, evicted and decoded next. The loader calls it under its lock, so
//! nothing here waits or decodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::dataset::{Image, ImageError};
use crate::memory::{Bytes, images_budget, release_freed_memory, resident_memory};

/// Result of a decode for its waiting threads, even if the cache does not keep it.
pub(super) type Ticket = Arc<OnceLock<Decoded>>;

/// A decode in progress. It must be returned to [`ImageCache::finish`].
#[derive(Debug)]
#[must_use]
pub(super) struct Job {
    pub(super) image: usize,
    ticket: Ticket,
    /// Bytes reserved for the result; 0 if they do not fit.
    reserved: Bytes,
}

/// Answer to a request for an image.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The image is decoded, or its decode has failed before.
    Hit(Decoded),
    /// Another thread is decoding the image.
    InFlight(Ticket),
    /// The caller must decode it.
    Miss(Job),
}

#[derive(Debug)]
enum CachedImage {
    Loading(Ticket),
    Ready { image: Arc<Image>, used: u64, rank: EvictionRank },
    Failed(Arc<ImageError>),
}

/// Order of eviction, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// Not scheduled; the least recently used goes first.
    Unscheduled { used: u64 },
    /// Scheduled; the one with the latest turn goes first.
    Scheduled(Reverse<u64>),
}

impl EvictionRank {
    fn of(queue: &PrefetchQueue, image: usize, used: u64) -> Self {
        match queue.turn_of(image) {
            None => Self::Unscheduled { used },
            Some(turn) => Self::Scheduled(Reverse(turn)),
        }
    }

    /// True if the image may be evicted for one that is needed at `turn` (`None`: now).
    fn yields_to(self, turn: Option<u64>) -> bool {
        match (self, turn) {
            (Self::Scheduled(Reverse(own)), Some(turn)) => own >= turn,
            _ => true,
        }
    }
}

/// Decoded images within a bound.
#[derive(Debug, Default)]
pub(super) struct ImageCache {
    capacity: Bytes,
    held: Bytes,
    /// Part of `held` that is reserved for decodes in flight.
    reserved: Bytes,
    places: BTreeMap<usize, CachedImage>,
    /// Ready images in the order of eviction.
    ranks: BTreeSet<(EvictionRank, usize)>,
    queue: PrefetchQueue,
    /// All turns before this one are ready, in flight, failed or too large to keep.
    frontier: u64,
    clock: u64,
    pub(super) statistics: LoaderStatistics,
}

impl ImageCache {
    pub(super) fn new(capacity: Bytes) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Changes the number of bytes that may be kept and reserved. If too many are held, images that are not in use
    /// are evicted in the usual order. Images in use or being decoded stay for now. Returns true if the capacity
    /// grew.
    pub(super) fn set_capacity(&mut self, capacity: Bytes) -> bool {
        let grows = capacity > self.capacity;
        if grows {
            // Turns that did not fit before are tried again.
            self.frontier = 0;
        }
        self.capacity = capacity;
        let over = self.held.0.saturating_sub(capacity.0);
        let (victims, freed) = self.first_to_go(Bytes(over), None);
        self.evict(&victims, freed);
        grows
    }

    /// Returns the bytes of decoded images, without reservations.
    pub(super) fn kept(&self) -> Bytes {
        Bytes(self.held.0 - self.reserved.0)
    }

    /// Returns the kept and reserved bytes. They exceed the capacity only if it was lowered.
    pub(super) fn held(&self) -> Bytes {
        self.held
    }

    pub(super) fn schedule_decoding(&mut self, order: impl Iterator<Item = usize>) {
        self.queue = PrefetchQueue::new(order);
        self.frontier = 0;
        self.ranks.clear();
        for (&index, place) in &mut self.places {
            if let CachedImage::Ready { used, rank, .. } = place {
                *rank = EvictionRank::of(&self.queue, index, *used);
                self.ranks.insert((*rank, index));
            }
        }
    }

    /// Requests `image`, of about `estimate` bytes, for immediate use.
    pub(super) fn ask(&mut self, image: usize, estimate: Bytes) -> Lookup {
        self.queue.pop(image);
        self.clock += 1;
        match self.places.get_mut(&image) {
            Some(CachedImage::Ready { image: kept, used, rank }) => {
                *used = self.clock;
                self.ranks.remove(&(*rank, image));
                *rank = EvictionRank::of(&self.queue, image, *used);
                self.ranks.insert((*rank, image));
                self.statistics.ready += 1;
                Lookup::Hit(Ok(Arc::clone(kept)))
            }
            Some(CachedImage::Failed(error)) => Lookup::Hit(Err(Arc::clone(error))),
            Some(CachedImage::Loading(ticket)) => {
                self.statistics.waited += 1;
                Lookup::InFlight(Arc::clone(ticket))
            }
            None => {
                self.statistics.missed += 1;
                // The caller needs the image now, so any image that is not in use may be evicted. If that is not
                // enough, the image is decoded for the caller and not kept.
                let reserved =
                    if self.make_room(estimate, None) { estimate } else { Bytes::default() };
                Lookup::Miss(self.start(image, reserved))
            }
        }
    }

    /// Returns the next image to decode ahead, if there is room for it.
    pub(super) fn next_job(&mut self, estimate: impl Fn(usize) -> Bytes) -> Option<Job> {
        while let Some((turn, image)) = self.queue.next_from(self.frontier) {
            let bytes = estimate(image);
            if !self.places.contains_key(&image) && bytes <= self.capacity {
                if !self.make_room(bytes, Some(turn)) {
                    self.frontier = turn;
                    return None;
                }
                self.frontier = turn + 1;
                return Some(self.start(image, bytes));
            }
            self.frontier = turn + 1;
        }
        None
    }

    /// Stores the result of a decode for its waiting threads and, if it fits, in the cache.
    pub(super) fn finish(&mut self, job: Job, outcome: Decoded) {
        let Job { image: index, ticket, reserved } = job;
        self.statistics.decoded += 1;
        self.held.0 -= reserved.0;
        self.reserved.0 -= reserved.0;
        self.clock += 1;
        // The ticket is empty: a job is started once and consumed here.
        ticket.set(outcome.clone()).ok();
        match outcome {
            Err(error) => {
                self.places.insert(index, CachedImage::Failed(error));
            }
            Ok(image) => {
                // The estimate is an upper bound, so an image with a reservation always fits.
                let bytes = image.bytes();
                let turn = self.queue.turn_of(index).unwrap_or(u64::MAX);
                if self.make_room(bytes, Some(turn)) {
                    self.held += bytes;
                    let used = self.clock;
                    let rank = EvictionRank::of(&self.queue, index, used);
                    self.ranks.insert((rank, index));
                    self.places.insert(index, CachedImage::Ready { image, used, rank });
                } else {
                    self.forget(index);
                }
            }
        }
    }

    /// Drops an image that is kept elsewhere, and its turns. An image in use stays and is among the first to be
    /// evicted.
    pub(super) fn discard(&mut self, index: usize) {
        self.queue.remove(index);
        let Some(CachedImage::Ready { image, used, rank }) = self.places.get_mut(&index) else {
            return;
        };
        self.ranks.remove(&(*rank, index));
        if Arc::strong_count(image) == 1 {
            self.held.0 -= image.bytes().0;
            self.places.remove(&index);
        } else {
            *rank = EvictionRank::Unscheduled { used: *used };
            self.ranks.insert((*rank, index));
        }
    }

    fn start(&mut self, image: usize, reserved: Bytes) -> Job {
        self.held += reserved;
        self.reserved += reserved;
        let ticket = Ticket::default();
        self.places.insert(image, CachedImage::Loading(Arc::clone(&ticket)));
        Job { image, ticket, reserved }
    }

    /// Frees `bytes` for `turn` (`None`: now), or changes nothing.
    fn make_room(&mut self, bytes: Bytes, turn: Option<u64>) -> bool {
        let over = self.held.0.saturating_add(bytes.0).saturating_sub(self.capacity.0);
        if over == 0 {
            return true;
        }
        if bytes > self.capacity {
            return false;
        }
        let (victims, freed) = self.first_to_go(Bytes(over), turn);
        if freed.0 < over {
            return false;
        }
        self.evict(&victims, freed);
        true
    }

    /// Returns the images to evict for `wanted` bytes at `turn` (`None`: now), and the bytes that they free, which
    /// may be fewer.
    ///
    /// Images that are not scheduled go first, the least recently used before the others. Then images go whose turn
    /// is later than `turn`, the latest first. An image in use is never evicted, because its memory would not be
    /// freed.
    fn first_to_go(&self, wanted: Bytes, turn: Option<u64>) -> (Vec<usize>, Bytes) {
        let (mut victims, mut freed) = (Vec::new(), Bytes::default());
        for &(rank, index) in &self.ranks {
            if freed >= wanted || !rank.yields_to(turn) {
                break;
            }
            // The count cannot rise while the lock is held, because all copies come from here.
            if let Some(CachedImage::Ready { image, .. }) = self.places.get(&index)
                && Arc::strong_count(image) == 1
            {
                freed += image.bytes();
                victims.push(index);
            }
        }
        (victims, freed)
    }

    fn evict(&mut self, victims: &[usize], freed: Bytes) {
        for &index in victims {
            self.forget(index);
        }
        self.held.0 -= freed.0;
    }

    /// Removes an image, which is decoded again at its turn.
    fn forget(&mut self, image: usize) {
        if let Some(CachedImage::Ready { rank, .. }) = self.places.remove(&image) {
            self.ranks.remove(&(rank, image));
        }
        if let Some(turn) = self.queue.turn_of(image) {
            self.frontier = self.frontier.min(turn);
        }
    }
}

/// Scheduled images in the order of their turns; an image may occur several times.
#[derive(Debug, Default)]
pub(super) struct PrefetchQueue {
    image_from_turn: BTreeMap<u64, usize>,
    turns_from_image: BTreeMap<usize, BTreeSet<u64>>,
}

impl PrefetchQueue {
    pub(super) fn new(order: impl Iterator<Item = usize>) -> Self {
        let mut queue = Self::default();
        for (turn, image) in (0..).zip(order) {
            queue.image_from_turn.insert(turn, image);
            queue.turns_from_image.entry(image).or_default().insert(turn);
        }
        queue
    }

    pub(super) fn turn_of(&self, image: usize) -> Option<u64> {
        self.turns_from_image.get(&image)?.first().copied()
    }

    /// Removes the image's next turn, which has been used.
    pub(super) fn pop(&mut self, image: usize) {
        let Some(turns) = self.turns_from_image.get_mut(&image) else { return };
        if let Some(turn) = turns.pop_first() {
            self.image_from_turn.remove(&turn);
        }
        if turns.is_empty() {
            self.turns_from_image.remove(&image);
        }
    }

    pub(super) fn remove(&mut self, image: usize) {
        for turn in self.turns_from_image.remove(&image).unwrap_or_default() {
            self.image_from_turn.remove(&turn);
        }
    }

    /// Returns the first turn from `turn` on, and its image.
    pub(super) fn next_from(&self, turn: u64) -> Option<(u64, usize)> {
        self.image_from_turn.range(turn..).next().map(|(&turn, &image)| (turn, image))
    }
}

// Periodic checks of the process' memory, so that decoded images leave enough for the rest.

/// Time between two checks: short compared with the decoding of a gigabyte of images.
const INTERVAL: Duration = Duration::from_millis(250);

/// Function that returns the memory of the process, given the bytes of its images; `None` if it is unknown.
pub(super) type ResidentMemory = Box<dyn Fn(Bytes) -> Option<Bytes> + Send + Sync>;

/// A limit on the memory of the process, images included.
pub(super) struct Watch {
    pub(super) limit: Bytes,
    interval: Duration,
    resident: ResidentMemory,
    last_check: Mutex<Option<Instant>>,
    is_reported: AtomicBool,
}

impl Watch {
    /// Watches this process, which takes up to `taken` bytes besides images. Between two checks its memory may reach
    /// that.
    pub(super) fn new(limit: Bytes, taken: Bytes) -> Self {
        let resident = move |images: Bytes| Some(resident_within(limit)?.max(taken + images));
        Self::with(limit, INTERVAL, Box::new(resident))
    }

    /// Watches the figures of `resident`.
    pub(super) fn with(limit: Bytes, interval: Duration, resident: ResidentMemory) -> Self {
        Self { limit, interval, resident, last_check: Mutex::default(), is_reported: false.into() }
    }

    /// True if a check is due; the caller must then make it.
    pub(super) fn is_due(&self) -> bool {
        let mut last = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= self.interval);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    /// Returns the bytes, at most `wanted`, that images may take so that `spare` bytes are left beside them. They
    /// take `images` now. Returns `wanted` if the memory is unknown.
    pub(super) fn budget(&self, wanted: Bytes, images: Bytes, spare: Bytes) -> Bytes {
        let limit = Bytes(self.limit.0.saturating_sub(spare.0));
        (self.resident)(images)
            .map_or(wanted, |resident| images_budget(wanted, limit, resident, images))
    }

    /// True if `more` bytes stay within the limit while images take `images`, or if the memory is unknown.
    pub(super) fn has_room(&self, images: Bytes, more: Bytes) -> bool {
        (self.resident)(images)
            .is_none_or(|resident| resident.0.saturating_add(more.0) <= self.limit.0)
    }

    /// True on the first call.
    pub(super) fn is_first_report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }
}

/// Returns the memory of this process. Near the limit, freed memory is returned to the system first.
fn resident_within(limit: Bytes) -> Option<Bytes> {
    let resident = resident_memory()?;
    if resident.0 <= limit.0 - limit.0 / 8 {
        return Some(resident);
    }
    release_freed_memory();
    resident_memory()
}

/// Result of decoding an image. The error is shared, because every later fetch returns it.
pub(super) type Decoded = Result<Arc<Image>, Arc<ImageError>>;

/// Counts of fetches and decodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderStatistics {
    /// Number of fetches that found the image decoded.
    pub ready: u64,
    /// Number of fetches that waited for a decode in flight.
    pub waited: u64,
    /// Number of fetches that had to decode.
    pub missed: u64,
    /// Number of decoded images, failures included.
    pub decoded: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_queued_in_the_scheduled_order_until_they_are_removed() {
        let mut queue = PrefetchQueue::new([5, 2, 5, 9].into_iter());
        assert_eq!(queue.next_from(0), Some((0, 5)));
        assert_eq!(queue.next_from(3), Some((3, 9)));
        queue.pop(5);
        queue.pop(7);
        assert_eq!((queue.next_from(0), queue.turn_of(5)), (Some((1, 2)), Some(2)));
        queue.pop(5);
        assert_eq!((queue.turn_of(5), queue.next_from(2)), (None, Some((3, 9))));
        let mut queue = PrefetchQueue::new([5, 2, 5].into_iter());
        queue.remove(5);
        queue.remove(7);
        assert_eq!((queue.turn_of(5), queue.next_from(0)), (None, Some((1, 2))));
    }
}
