//! A rung that another one begins with.

use super::*;

/// Nothing was left to take.
#[derive(Debug)]
struct TooLittle;

/// Whether the move of a part has begun, which gets no further than its beginning.
struct Beginner(bool);

impl Holder for Beginner {
    type Error = TooLittle;

    fn missing(&self, _error: &TooLittle) -> Option<Bytes> {
        Some(Bytes(1))
    }

    fn give_up(&mut self, _rung: Rung, _missing: Bytes) -> Result<Gain, TooLittle> {
        let has_begun = std::mem::replace(&mut self.0, true);
        Ok(if has_begun { Gain::Nothing } else { Gain::Begun(Rung::Compact, Bytes(5)) })
    }

    fn cost(&self, _rung: Rung) -> Option<Bytes> {
        None
    }

    fn available_bytes(&self) -> Bytes {
        Bytes(0)
    }

    fn restore(&mut self, _rung: Rung) -> Result<(), TooLittle> {
        Ok(())
    }
}

#[test]
fn a_rung_that_ends_where_another_does_is_told_as_that() {
    let mut ladder = Ladder::new(&[Rung::Offload]);
    let work = |holder: &mut Beginner| if holder.0 { Ok(()) } else { Err(TooLittle) };
    ladder.climb(&mut Beginner(false), work).unwrap();
    let change = RungChange { rung: Rung::Compact, given_up: true, bytes: Bytes(5) };
    assert_eq!(ladder.take_changes(), [change]);
}
