//! What happens to blocks of the arena, written down for tests.

use std::cell::RefCell;

use crate::layout::Event;

/// All that happened, the first first.
#[derive(Debug, Default)]
pub(crate) struct Trace(RefCell<Vec<Event>>);

impl Trace {
    pub(super) fn record(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }

    /// What happened since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        self.0.take()
    }
}
