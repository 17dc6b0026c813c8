//! The memory of scratch blocks: each new block starts after the last live one.

use std::rc::Rc;

use super::span::{Accounts, Span};
use crate::backend::DeviceError;
use crate::layout::{MemoryPlace, Placement, SCRATCH, Spot, spare};
use crate::memory::{Bytes, Kind};

/// Where a new block lies.
pub(super) struct BlockPlace {
    pub(super) id: u64,
    pub(super) address: u64,
    /// Bytes from the beginning of its span.
    pub(super) start: u64,
}

/// One span that grows in place; without virtual memory as many as it took, since live blocks
/// cannot move.
pub(super) struct Arena {
    accounts: Rc<Accounts>,
    spans: Vec<Span>,
    /// Where blocks live.
    placement: Placement,
    /// The furthest that blocks reached since the last trim, and between it and the one before.
    reached: [u64; 2],
}

impl Arena {
    pub(super) fn new(accounts: &Rc<Accounts>) -> Self {
        Self {
            accounts: Rc::clone(accounts),
            spans: Vec::new(),
            placement: Placement::default(),
            reached: [0; 2],
        }
    }

    fn is_virtual(&self) -> bool {
        self.accounts.memory.is_virtual(MemoryPlace::Device)
    }

    /// Places a block after all live blocks.
    pub(super) fn take(&mut self, bytes: u64) -> Result<BlockPlace, DeviceError> {
        let spot =
            if self.is_virtual() { self.place_in_place(bytes)? } else { self.place_beside(bytes)? };
        let Spot { span, start } = spot;
        let id = self.placement.take(spot, bytes);
        let before: u64 = self.spans[..span].iter().map(Span::mapped).sum();
        self.reached[0] = self.reached[0].max(before + start + bytes);
        Ok(BlockPlace { id, address: self.spans[span].address() + start, start })
    }

    /// The block of this number is gone.
    pub(super) fn give_back(&mut self, id: u64) {
        self.placement.give_back(id);
    }

    /// Gives back the memory after all live blocks.
    pub(super) fn trim(&mut self) -> Result<(), DeviceError> {
        let top = self.placement.top();
        if self.placement.is_empty() && !self.is_virtual() {
            self.spans.clear();
            return Ok(());
        }
        self.spans.truncate(top.span + 1);
        // A range without virtual memory could only be cut by moving the blocks that live in it.
        if self.is_virtual()
            && let Some(span) = self.spans.get_mut(top.span)
        {
            span.trim(top.start)?;
        }
        Ok(())
    }

    /// Gives back what was not reached since the call before the last. Memory that is no virtual one
    /// stays: the next iteration could hardly have it anew in one piece.
    pub(super) fn trim_to_recent(&mut self) -> Result<(), DeviceError> {
        let top = self.placement.top().start;
        let keep = self.recent().max(top);
        self.reached = [top, self.reached[0]];
        let is_virtual = self.is_virtual();
        match self.spans.first_mut() {
            Some(span) if is_virtual => span.trim(keep),
            _ => Ok(()),
        }
    }

    /// The furthest that blocks reached since the call of [`Self::trim_to_recent`] before the last.
    pub(super) fn recent(&self) -> u64 {
        self.reached[0].max(self.reached[1])
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
        let top = self.placement.top();
        let after = self.spans.iter().skip(top.span).map(Span::mapped).sum::<u64>();
        after.saturating_sub(top.start)
    }

    fn place_in_place(&mut self, bytes: u64) -> Result<Spot, DeviceError> {
        let spot = self.placement.top();
        if self.spans.is_empty() {
            self.spans.push(Span::new(&self.accounts, SCRATCH.label, Kind::Scratch)?);
        }
        let span = &mut self.spans[0];
        let end = spot.start.saturating_add(bytes);
        if end > span.mapped() {
            let spare = spare(span.mapped());
            let is_too_much = self.accounts.ledger.borrow().exceeds_aim(Bytes(spare));
            if spare == 0 || is_too_much || span.grow(end.max(span.mapped() + spare)).is_err() {
                span.grow(end)?;
            }
        }
        Ok(spot)
    }

    fn place_beside(&mut self, bytes: u64) -> Result<Spot, DeviceError> {
        if let Some(spot) = self.placement.room_in(self.spans.iter().map(Span::mapped), bytes) {
            return Ok(spot);
        }
        let mut wanted = bytes;
        if self.placement.is_empty() {
            // All at once what came in parts, so that the next time it is one.
            let together = self.spans.iter().map(Span::mapped).sum();
            self.spans.clear();
            wanted = wanted.max(together);
        }
        let mut span = Span::new(&self.accounts, SCRATCH.label, Kind::Scratch)?;
        if wanted == bytes || span.grow(wanted).is_err() {
            span.grow(bytes)?;
        }
        self.spans.push(span);
        Ok(Spot { span: self.spans.len() - 1, start: 0 })
    }
}
