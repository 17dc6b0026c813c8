//! The scratch arena, played through: blocks in the order in which they are taken.

use serde::Serialize;

use crate::memory::Bytes;

/// Blocks begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// What goes by one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// As the ledger has it.
    pub label: &'static str,
    /// How much.
    pub bytes: Bytes,
}

/// A block that was taken.
#[derive(Debug)]
#[must_use = "a block lives until it is given back"]
pub struct Taken(usize);

#[derive(Clone, Copy, Debug)]
struct Live {
    id: usize,
    row: Row,
    end: u64,
}

/// Blocks that lie behind one another; a new one lies behind all that live.
#[derive(Debug, Default)]
pub struct Stack {
    live: Vec<Live>,
    taken: usize,
    reach: u64,
    at_peak: Vec<Row>,
    peaks: Vec<Row>,
}

impl Stack {
    /// A block behind all others.
    pub fn take(&mut self, label: &'static str, bytes: u64) -> Taken {
        let top = self.live.last().map_or(0, |live| live.end.next_multiple_of(ALIGNMENT));
        let row = Row { label, bytes: Bytes(bytes) };
        let (id, end) = (self.taken, top + bytes);
        self.taken += 1;
        self.live.push(Live { id, row, end });
        self.note_peak(label);
        if end > self.reach {
            self.reach = end;
            self.at_peak = gathered(self.live.iter().map(|live| live.row));
        }
        Taken(id)
    }

    /// The block goes.
    #[expect(clippy::needless_pass_by_value, reason = "a block is given back once")]
    pub fn give_back(&mut self, block: Taken) {
        self.live.retain(|live| live.id != block.0);
    }

    /// A block that goes at once.
    pub fn pass(&mut self, label: &'static str, bytes: u64) {
        let block = self.take(label, bytes);
        self.give_back(block);
    }

    /// How far blocks ever reached.
    pub fn reach(&self) -> Bytes {
        Bytes(self.reach)
    }

    /// What lived when they did.
    pub fn at_peak(&self) -> &[Row] {
        &self.at_peak
    }

    /// The most that each label ever had.
    pub fn peaks(&self) -> &[Row] {
        &self.peaks
    }

    fn note_peak(&mut self, label: &'static str) {
        let now: Bytes = self
            .live
            .iter()
            .map(|live| live.row)
            .filter(|row| row.label == label)
            .map(|r| r.bytes)
            .sum();
        match self.peaks.iter_mut().find(|row| row.label == label) {
            Some(row) => row.bytes = row.bytes.max(now),
            None => self.peaks.push(Row { label, bytes: now }),
        }
    }
}

/// One row for each label, in the order in which they come first.
pub(super) fn gathered(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut sums: Vec<Row> = Vec::new();
    for row in rows {
        match sums.iter_mut().find(|sum| sum.label == row.label) {
            Some(sum) => sum.bytes += row.bytes,
            None => sums.push(row),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_behind_all_that_live() {
        let mut stack = Stack::default();
        let first = stack.take("keys", 1000);
        let second = stack.take("keys", 100);
        stack.give_back(first);
        // Behind the second, at 1024 + 256.
        stack.pass("sort", 10);
        assert_eq!(stack.reach(), Bytes(1290));
        stack.give_back(second);
        stack.pass("image", 1280);
        assert_eq!(stack.reach(), Bytes(1290));
        let row = |label, bytes| Row { label, bytes: Bytes(bytes) };
        assert_eq!(stack.at_peak(), [row("keys", 100), row("sort", 10)]);
        assert_eq!(stack.peaks(), [row("keys", 1100), row("sort", 10), row("image", 1280)]);
    }
}
