//! Photographs on the device: 8 bits a value, resident as long as there is room, else in two turns.

use super::mapping::Granule;
use crate::memory::Bytes;

/// Photographs begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// All photographs together take at most this part of what the model and the scratch leave: half.
const SHARE_OF_WHAT_IS_LEFT: u64 = 2;

/// The photographs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Photographs {
    /// Bytes of each that is trained on.
    pub trained: Vec<u64>,
    /// Bytes of each that is held out.
    pub held_out: Vec<u64>,
}

impl Photographs {
    /// Bytes of both turns.
    pub fn turns(&self, granule: Granule) -> Bytes {
        let one = granule.whole(Bytes(self.largest()));
        one + one
    }

    /// The largest of all.
    pub fn largest(&self) -> u64 {
        self.trained.iter().chain(&self.held_out).copied().max().unwrap_or(0)
    }

    /// All that are trained on, one behind the other.
    pub fn all(&self) -> Bytes {
        Bytes(self.ends().last().unwrap_or(0))
    }

    /// How many stay where all of them may take so many bytes.
    pub fn that_fit(&self, most: Bytes, granule: Granule) -> usize {
        self.ends().take_while(|&end| granule.whole(Bytes(end)) <= most).count()
    }

    /// How many stay beside what takes the rest of this room.
    pub fn fair_share(&self, room: Bytes) -> usize {
        let most = room.0 / SHARE_OF_WHAT_IS_LEFT;
        self.ends().take_while(|&end| end <= most).count()
    }

    /// Bytes of the first `count`.
    pub fn first(&self, count: usize) -> Bytes {
        Bytes(self.ends().take(count).last().unwrap_or(0))
    }

    /// Where each ends.
    fn ends(&self) -> impl Iterator<Item = u64> + '_ {
        self.trained.iter().scan(0_u64, |end, bytes| {
            *end = end.next_multiple_of(ALIGNMENT) + bytes;
            Some(*end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_stay_as_far_as_there_is_room() {
        let photographs = Photographs { trained: vec![1_000_000; 10], held_out: vec![3_000_000] };
        let granule = Granule::default();
        assert_eq!(photographs.turns(granule), Bytes(2 << 22));
        // Each behind a gap, but for the first.
        assert_eq!(photographs.all(), Bytes(9 * 1_000_192 + 1_000_000));
        assert_eq!(photographs.fair_share(Bytes(6_000_000)), 2);
        assert_eq!(photographs.fair_share(Bytes(u64::MAX)), 10);
        assert_eq!(photographs.that_fit(Bytes(4 << 20), granule), 4);
        assert_eq!(photographs.that_fit(Bytes((4 << 20) - 1), granule), 2);
        assert_eq!((photographs.first(2), photographs.first(0)), (Bytes(2_000_192), Bytes(0)));
        assert_eq!(Photographs::default().turns(granule), Bytes(0));
    }
}
