//! What happens to blocks of the arena, written down for tests.

use std::cell::RefCell;

use crate::layout::BlockEvent;

/// All that happened, the first first.
#[derive(Debug, Default)]
pub(crate) struct Trace(RefCell<Vec<BlockEvent>>);

impl Trace {
    pub(super) fn record(&self, event: BlockEvent) {
        self.0.borrow_mut().push(event);
    }

    /// What happened since the last call.
    pub(crate) fn take(&self) -> Vec<BlockEvent> {
        self.0.take()
    }
}
