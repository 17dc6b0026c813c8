//! The memory of scratch blocks: each new block starts after the last live one.

use std::rc::Rc;

use super::span::{ALIGNMENT, Accounts, Span};
use crate::backend::DeviceError;
use crate::memory::Kind;

/// Label of the arena's memory; its blocks are listed under their own labels.
const LABEL: &str = "scratch";

/// Growth beyond the request, as a share of the present size: a frame that is a little larger
/// than the last one maps nothing.
const SPARE_SHARE: u64 = 8;

/// At most so much beyond.
const MOST_SPARE: u64 = 64 << 20;

/// A live block.
struct LiveBlock {
    id: u64,
    /// Which span.
    span: usize,
    /// Where in it the block ends.
    end: u64,
}

/// Where a new block lies.
pub(super) struct BlockPlace {
    pub(super) id: u64,
    pub(super) address: u64,
}

/// One span that grows in place; without virtual memory as many as it took, since live blocks
/// cannot move.
pub(super) struct Arena {
    accounts: Rc<Accounts>,
    spans: Vec<Span>,
    /// In the order of their places.
    live: Vec<LiveBlock>,
    next_id: u64,
    /// The furthest that blocks reached since the last trim, and between it and the one before.
    reached: [u64; 2],
}

impl Arena {
    pub(super) fn new(accounts: &Rc<Accounts>) -> Self {
        Self {
            accounts: Rc::clone(accounts),
            spans: Vec::new(),
            live: Vec::new(),
            next_id: 0,
            reached: [0; 2],
        }
    }

    /// Places a block after all live blocks.
    pub(super) fn take(&mut self, bytes: u64) -> Result<BlockPlace, DeviceError> {
        let (span, start) = if self.accounts.memory.is_virtual() {
            self.place_in_place(bytes)?
        } else {
            self.place_beside(bytes)?
        };
        let id = self.next_id;
        self.next_id += 1;
        self.live.push(LiveBlock { id, span, end: start + bytes });
        let before: u64 = self.spans[..span].iter().map(Span::mapped).sum();
        self.reached[0] = self.reached[0].max(before + start + bytes);
        Ok(BlockPlace { id, address: self.spans[span].address() + start })
    }

    /// The block of this number is gone.
    pub(super) fn give_back(&mut self, id: u64) {
        self.live.retain(|live| live.id != id);
    }

    /// Gives back the memory after all live blocks.
    pub(super) fn trim(&mut self) -> Result<(), DeviceError> {
        let (top_span, top) = self.top();
        if self.live.is_empty() && !self.accounts.memory.is_virtual() {
            self.spans.clear();
            return Ok(());
        }
        self.spans.truncate(top_span + 1);
        // A range without virtual memory could only be cut by moving the blocks that live in it.
        if self.accounts.memory.is_virtual()
            && let Some(span) = self.spans.get_mut(top_span)
        {
            span.trim(top)?;
        }
        Ok(())
    }

    /// Gives back what was not reached since the call before the last. Memory that is no virtual one
    /// stays: the next iteration could hardly have it anew in one piece.
    pub(super) fn trim_to_recent(&mut self) -> Result<(), DeviceError> {
        let (_, top) = self.top();
        let keep = self.recent().max(top);
        self.reached = [top, self.reached[0]];
        match self.spans.first_mut() {
            Some(span) if self.accounts.memory.is_virtual() => span.trim(keep),
            _ => Ok(()),
        }
    }

    /// The furthest that blocks reached since the call of [`Self::trim_to_recent`] before the last.
    pub(super) fn recent(&self) -> u64 {
        self.reached[0].max(self.reached[1])
    }

    /// Where the first span begins.
    #[cfg(test)]
    pub(super) fn address(&self) -> u64 {
        self.spans.first().map_or(0, Span::address)
    }

    /// Bytes of all spans.
    pub(super) fn mapped(&self) -> u64 {
        self.spans.iter().map(Span::mapped).sum()
    }

    /// Bytes up to the end of the last live block.
    pub(super) fn live(&self) -> u64 {
        self.mapped() - self.idle()
    }

    /// Bytes after all live blocks.
    pub(super) fn idle(&self) -> u64 {
        let (span, top) = self.top();
        let behind = self.spans.iter().skip(span).map(Span::mapped).sum::<u64>();
        behind.saturating_sub(top)
    }

    /// The first free address after all live blocks.
    fn top(&self) -> (usize, u64) {
        self.live.last().map_or((0, 0), |live| (live.span, live.end.next_multiple_of(ALIGNMENT)))
    }

    fn place_in_place(&mut self, bytes: u64) -> Result<(usize, u64), DeviceError> {
        let (_, start) = self.top();
        if self.spans.is_empty() {
            self.spans.push(Span::new(&self.accounts, LABEL, Kind::Scratch)?);
        }
        let span = &mut self.spans[0];
        let end = start.saturating_add(bytes);
        if end > span.mapped() {
            let spare = (span.mapped() / SPARE_SHARE).min(MOST_SPARE);
            if spare == 0 || span.grow(end.max(span.mapped() + spare)).is_err() {
                span.grow(end)?;
            }
        }
        Ok((0, start))
    }

    fn place_beside(&mut self, bytes: u64) -> Result<(usize, u64), DeviceError> {
        let (top_span, top) = self.top();
        for (index, span) in self.spans.iter().enumerate().skip(top_span) {
            let start = if index == top_span { top } else { 0 };
            if start.saturating_add(bytes) <= span.mapped() {
                return Ok((index, start));
            }
        }
        let mut wanted = bytes;
        if self.live.is_empty() {
            // All at once what came in parts, so that the next time it is one.
            let together = self.spans.iter().map(Span::mapped).sum();
            self.spans.clear();
            wanted = wanted.max(together);
        }
        let mut span = Span::new(&self.accounts, LABEL, Kind::Scratch)?;
        if wanted == bytes || span.grow(wanted).is_err() {
            span.grow(bytes)?;
        }
        self.spans.push(span);
        Ok((self.spans.len() - 1, 0))
    }
}
