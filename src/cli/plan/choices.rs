//! What the options say of memory.

use crate::memory::{Allowance, Bytes, Limit};

/// What is taken at most of a card, or of a limit, of this size.
pub(super) fn within(limit: Bytes, threshold: f64) -> Bytes {
    Allowance::new(Some(Limit::Bytes(limit)), threshold, limit).beside(Bytes(0))
}
