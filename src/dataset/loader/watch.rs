//! Looks at the process's memory at intervals, so that decoded images give way to what else it
//! holds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::memory::{Bytes, images_budget, resident_memory};

/// Time between two looks: a small part of what a gigabyte of images takes to be decoded.
const INTERVAL: Duration = Duration::from_millis(250);

/// Says what the process holds, given the bytes of its images; nothing where it cannot tell.
pub(super) type ResidentMemory = Box<dyn Fn(Bytes) -> Option<Bytes> + Send + Sync>;

/// A bound on what the process holds, images included.
pub(super) struct Watch {
    limit: Bytes,
    interval: Duration,
    resident: ResidentMemory,
    latest: Mutex<Latest>,
}

/// When the last look was, and whether images were ever held back.
#[derive(Default)]
struct Latest {
    at: Option<Instant>,
    is_reported: bool,
}

impl Watch {
    /// Over this process.
    pub(super) fn new(limit: Bytes) -> Self {
        Self::with(limit, INTERVAL, Box::new(|_| resident_memory()))
    }

    /// Over what `resident` says.
    pub(super) fn with(limit: Bytes, interval: Duration, resident: ResidentMemory) -> Self {
        Self { limit, interval, resident, latest: Mutex::default() }
    }

    pub(super) fn limit(&self) -> Bytes {
        self.limit
    }

    /// Whether it is time to look; who is told so looks.
    pub(super) fn is_due(&self) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let due = latest.at.is_none_or(|at| at.elapsed() >= self.interval);
        if due {
            latest.at = Some(Instant::now());
        }
        due
    }

    /// What images may take of `wanted` when they take `images` now; all where the system does not
    /// tell.
    pub(super) fn budget(&self, wanted: Bytes, images: Bytes) -> Bytes {
        (self.resident)(images)
            .map_or(wanted, |resident| images_budget(wanted, self.limit, resident, images))
    }

    /// Whether it is the first time that images are held back.
    pub(super) fn is_first_report(&self) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut latest.is_reported, true)
    }
}
