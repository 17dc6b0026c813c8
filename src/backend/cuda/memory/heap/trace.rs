//! What happens to blocks of the arena, written down for tests.

use std::cell::RefCell;

/// Something that happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) label: &'static str,
    /// Bytes from the beginning of the arena.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Take,
    Give,
}

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
