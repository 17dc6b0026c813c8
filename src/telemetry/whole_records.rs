//! Records that reach a file whole and in their order, also where its disk is full for a while.

use std::io::{self, ErrorKind, Write};

/// A writer of records. While it cannot write, it keeps what it has accepted and refuses more: readers
/// find no half record before a whole one, as they would if each was written on its own.
pub(super) struct WholeRecords<W: Write> {
    out: W,
    waiting: Vec<u8>,
    /// Bytes that may wait before they are written; a longer record is written at once.
    room: usize,
}

impl<W: Write> WholeRecords<W> {
    pub(super) fn new(out: W, room: usize) -> Self {
        Self { out, waiting: Vec::new(), room }
    }

    /// Accepts a record. Where there is no room for it and what waits cannot be written, the record is
    /// lost.
    pub(super) fn put(&mut self, record: &[u8]) -> io::Result<()> {
        if !self.waiting.is_empty() && self.waiting.len() + record.len() > self.room {
            self.flush()?;
        }
        self.waiting.extend_from_slice(record);
        if self.waiting.len() > self.room { self.flush() } else { Ok(()) }
    }

    /// Writes what waits; what cannot be written waits on.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == self.waiting.len() {
                break Ok(());
            }
            match self.out.write(&self.waiting[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.waiting.drain(..written);
        result.and_then(|()| self.out.flush())
    }
}

impl<W: Write> Drop for WholeRecords<W> {
    fn drop(&mut self) {
        // Nobody is left to hear of it.
        self.flush().ok();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A disk with so many bytes left.
    #[derive(Clone, Default)]
    struct Disk(Rc<RefCell<State>>);

    #[derive(Default)]
    struct State {
        content: Vec<u8>,
        left: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.borrow_mut();
            let taken = bytes.len().min(state.left);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            state.left -= taken;
            state.content.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_record_that_was_begun_is_ended_when_there_is_space_again() {
        let disk = Disk::default();
        disk.0.borrow_mut().left = 12;
        let mut records = WholeRecords::new(disk.clone(), 8);
        records.put(b"first\n").unwrap();
        records.put(b"second\n").unwrap();
        assert!(records.flush().is_err());
        // There is room for this one, but not for the next.
        records.put(b"third\n").unwrap();
        assert!(records.put(b"fourth\n").is_err());
        disk.0.borrow_mut().left = 100;
        records.put(b"a record that is longer than the room\n").unwrap();
        records.put(b"last\n").unwrap();
        drop(records);
        let text = String::from_utf8(disk.0.borrow().content.clone()).unwrap();
        let expected = "first\nsecond\nthird\na record that is longer than the room\nlast\n";
        assert_eq!(text, expected);
    }
}
