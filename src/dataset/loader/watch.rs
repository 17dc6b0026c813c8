//! Checks the memory of the process at intervals, so that decoded images leave enough for the rest.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::memory::{Bytes, images_budget, release_freed_memory, resident_memory};

/// Time between two checks: short compared with the decoding of a gigabyte of images.
const INTERVAL: Duration = Duration::from_millis(250);

/// Memory of the process, given the bytes of its images; `None` if the system does not report it.
pub(super) type ResidentMemory = Box<dyn Fn(Bytes) -> Option<Bytes> + Send + Sync>;

/// A limit on the memory of the process, images included.
pub(super) struct Watch {
    limit: Bytes,
    interval: Duration,
    resident: ResidentMemory,
    latest: Mutex<Latest>,
}

/// The time of the last check, and whether the limit was ever reported.
#[derive(Default)]
struct Latest {
    at: Option<Instant>,
    is_reported: bool,
}

impl Watch {
    /// Of this process, which takes so many bytes beside images at its most: between two checks it may
    /// come to that.
    pub(super) fn new(limit: Bytes, taken: Bytes) -> Self {
        let resident = move |images: Bytes| Some(resident_within(limit)?.max(taken + images));
        Self::with(limit, INTERVAL, Box::new(resident))
    }

    /// With the figures of `resident`.
    pub(super) fn with(limit: Bytes, interval: Duration, resident: ResidentMemory) -> Self {
        Self { limit, interval, resident, latest: Mutex::default() }
    }

    pub(super) fn limit(&self) -> Bytes {
        self.limit
    }

    /// Whether a check is due; the caller must then do it.
    pub(super) fn is_due(&self) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let due = latest.at.is_none_or(|at| at.elapsed() >= self.interval);
        if due {
            latest.at = Some(Instant::now());
        }
        due
    }

    /// Bytes of `wanted` that images may take while they take `images`, so that `spare` bytes are left
    /// beside them; all if the system does not report its memory.
    pub(super) fn budget(&self, wanted: Bytes, images: Bytes, spare: Bytes) -> Bytes {
        let limit = Bytes(self.limit.0.saturating_sub(spare.0));
        (self.resident)(images)
            .map_or(wanted, |resident| images_budget(wanted, limit, resident, images))
    }

    /// Whether `more` bytes stay within the limit while images take `images`; so if the system does not
    /// report its memory.
    pub(super) fn has_room(&self, images: Bytes, more: Bytes) -> bool {
        (self.resident)(images)
            .is_none_or(|resident| resident.0.saturating_add(more.0) <= self.limit.0)
    }

    /// Whether the limit takes effect for the first time.
    pub(super) fn is_first_report(&self) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut latest.is_reported, true)
    }
}

/// Memory of this process. Near the limit, what was freed goes back to the system first.
fn resident_within(limit: Bytes) -> Option<Bytes> {
    let resident = resident_memory()?;
    if resident.0 <= limit.0 - limit.0 / 8 {
        return Some(resident);
    }
    release_freed_memory();
    resident_memory()
}
