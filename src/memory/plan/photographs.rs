//! The photographs of a run, and the tables of their colours.

use super::mapping::Granule;
use super::rows::PlannedRow;
use crate::abi::AFFINE_WIDTH;
use crate::layout::{COLOR_TABLES, ColorUse, fair_share, photo_after};
use crate::memory::Bytes;

/// The photographs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedPhotographs {
    /// Bytes of each training photograph.
    pub trained: Vec<u64>,
    /// Bytes of each held-out photograph.
    pub held_out: Vec<u64>,
}

impl PlannedPhotographs {
    /// Returns the bytes of both upload buffers.
    pub fn turns(&self, granule: Granule) -> Bytes {
        let one = granule.whole(Bytes(self.largest()));
        one + one
    }

    /// Returns the bytes of the largest photograph.
    pub fn largest(&self) -> u64 {
        self.trained.iter().chain(&self.held_out).copied().max().unwrap_or(0)
    }

    /// Returns the bytes of all training photographs with their gaps.
    pub fn all(&self) -> Bytes {
        Bytes(self.ends().last().unwrap_or(0))
    }

    /// Returns the number of photographs that fit in `most` bytes.
    pub fn that_fit(&self, most: Bytes, granule: Granule) -> usize {
        self.ends().take_while(|&end| granule.whole(Bytes(end)) <= most).count()
    }

    /// Returns the number of resident photographs that leave memory to other users of `room` bytes.
    pub fn fair_share(&self, room: Bytes) -> usize {
        let most = fair_share(room.0);
        self.ends().take_while(|&end| end <= most).count()
    }

    /// Returns the bytes of the first `count` photographs.
    pub fn first(&self, count: usize) -> Bytes {
        Bytes(self.ends().take(count).last().unwrap_or(0))
    }

    /// Returns the end of each photograph, bytes.
    fn ends(&self) -> impl Iterator<Item = u64> + '_ {
        self.trained.iter().scan(0_u64, |end, bytes| {
            *end = photo_after(*end) + bytes;
            Some(*end)
        })
    }
}

/// Colour tables of training views, each with both moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedColorTables {
    /// Training views.
    pub views: u64,
    /// Values of a view's table.
    pub width: u64,
}

impl PlannedColorTables {
    /// Returns the row of all tables.
    pub(super) fn row(&self) -> PlannedRow {
        let bytes = Bytes(COLOR_TABLES.bytes(&(3 * self.views * self.width)));
        PlannedRow { label: COLOR_TABLES.label, bytes }
    }

    /// Returns the colour model of a training view.
    pub(super) fn color_use(&self) -> ColorUse {
        if self.width == u64::from(AFFINE_WIDTH) { ColorUse::Exposure } else { ColorUse::Grid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_stay_resident_as_memory_allows() {
        let photographs =
            PlannedPhotographs { trained: vec![1_000_000; 10], held_out: vec![3_000_000] };
        let granule = Granule::default();
        assert_eq!(photographs.turns(granule), Bytes(2 << 22));
        // Every photograph but the first follows a gap.
        assert_eq!(photographs.all(), Bytes(9 * 1_000_192 + 1_000_000));
        assert_eq!(photographs.fair_share(Bytes(6_000_000)), 2);
        assert_eq!(photographs.fair_share(Bytes(u64::MAX)), 10);
        assert_eq!(photographs.that_fit(Bytes(4 << 20), granule), 4);
        assert_eq!(photographs.that_fit(Bytes((4 << 20) - 1), granule), 2);
        assert_eq!((photographs.first(2), photographs.first(0)), (Bytes(2_000_192), Bytes(0)));
        assert_eq!(PlannedPhotographs::default().turns(granule), Bytes(0));
    }
}
