//! The clock of the records.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in seconds since the Unix epoch; 0 on a clock set before it.
pub(super) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
