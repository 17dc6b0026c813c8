//! Assignment of a model's rows to ranks, and the numbers of the rows among all ranks.
//!
//! Rows are dealt to the ranks in runs, by number, so that each rank has a share of every part of the scene. A rank has
//! its rows in ascending order. A row has the number that it would have on a single rank: files are in this order, and
//! random numbers depend on it.

use std::ops::Range;

use crate::backend::DeviceError;

/// Maximum number of rows of a run: the size of a block of the device's memory.
const RUN_ROWS: usize = 4096;

/// Approximate number of runs per rank in a small model.
const RUNS_OF_RANK: usize = 8;

/// Rows per lane block.
const LANES: usize = 32;

/// Assignment of rows to ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::backend) struct Numbering {
    world: u32,
    /// Runs, by number.
    runs: Vec<NumberedRun>,
}

/// Rows of one rank with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberedRun {
    rank: u32,
    /// Number of the first row.
    number: usize,
    /// Index of the first row on the rank.
    place: usize,
    rows: usize,
}

/// Consecutive rows on a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::backend) struct RankRows {
    pub(in crate::backend) rank: u32,
    pub(in crate::backend) places: Range<usize>,
}

impl Numbering {
    /// Deals N rows to the ranks in runs.
    pub(in crate::backend) fn dealt(world: u32, rows: usize) -> Self {
        let share = rows / (RUNS_OF_RANK * world.max(1) as usize);
        let run = (share / LANES * LANES).clamp(LANES, RUN_ROWS);
        let ranks = (0..world.max(1)).cycle();
        Self::of_owners(world, ranks.flat_map(|rank| std::iter::repeat_n(rank, run)).take(rows))
    }

    /// Numbers the rows of the ranks, one rank after another.
    pub(in crate::backend) fn of_counts(counts: impl IntoIterator<Item = usize>) -> Self {
        let mut numbering = Self { world: 0, runs: Vec::new() };
        let mut number = 0;
        for (rank, rows) in (0..).zip(counts) {
            if rows > 0 {
                numbering.runs.push(NumberedRun { rank, number, place: 0, rows });
            }
            numbering.world = rank + 1;
            number += rows;
        }
        numbering
    }

    /// Returns the numbering with the rows of each rank in turn.
    pub(in crate::backend) fn in_turn(&self) -> Self {
        Self::of_counts(self.counts())
    }

    /// Creates the numbering from the rank of each row.
    pub(in crate::backend) fn of_owners(world: u32, owners: impl IntoIterator<Item = u32>) -> Self {
        let mut runs: Vec<NumberedRun> = Vec::new();
        let mut places = vec![0; world as usize];
        for (number, rank) in owners.into_iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run.rank == rank => run.rows += 1,
                _ => runs.push(NumberedRun { rank, number, place: places[rank as usize], rows: 1 }),
            }
            places[rank as usize] += 1;
        }
        Self { world, runs }
    }

    /// Returns the number of rows of all ranks.
    pub(in crate::backend) fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.number + run.rows)
    }

    /// Returns the rank of each row, by number.
    pub(in crate::backend) fn owners(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| std::iter::repeat_n(run.rank, run.rows))
    }

    /// Returns the numbers of a rank's rows, ascending.
    pub(in crate::backend) fn numbers_of(&self, rank: u32) -> Vec<u64> {
        let own = self.runs.iter().filter(|run| run.rank == rank);
        own.flat_map(|run| run.number as u64..(run.number + run.rows) as u64).collect()
    }

    /// Returns the rank of a row, and the row's index there. The number must be a row's.
    pub(in crate::backend) fn find(&self, number: usize) -> (u32, usize) {
        let after = self.runs.partition_point(|run| run.number <= number);
        let run = self.runs[after - 1];
        (run.rank, run.place + number - run.number)
    }

    /// Returns the number of rows of each rank.
    pub(in crate::backend) fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.world as usize];
        for run in &self.runs {
            counts[run.rank as usize] += run.rows;
        }
        counts
    }

    /// Returns the rows of these numbers, in order.
    pub(in crate::backend) fn pieces(&self, numbers: &Range<usize>) -> Vec<RankRows> {
        let first = self.runs.partition_point(|run| run.number + run.rows <= numbers.start);
        let within = self.runs[first..].iter().take_while(|run| run.number < numbers.end);
        let piece = |run: &NumberedRun| {
            let from = numbers.start.max(run.number) - run.number;
            let to = numbers.end.min(run.number + run.rows) - run.number;
            RankRows { rank: run.rank, places: run.place + from..run.place + to }
        };
        within.map(piece).filter(|piece| !piece.places.is_empty()).collect()
    }

    /// Returns the number of a rank's rows among these.
    pub(in crate::backend) fn rows_of(&self, rank: u32, numbers: &Range<usize>) -> usize {
        let pieces = self.pieces(numbers).into_iter().filter(|piece| piece.rank == rank);
        pieces.map(|piece| piece.places.len()).sum()
    }

    /// Fails unless each rank has sent `width` values for each of its rows.
    pub(in crate::backend) fn check<T>(
        &self,
        of_ranks: &[Vec<T>],
        width: usize,
    ) -> Result<(), DeviceError> {
        let lengths = (0..).zip(of_ranks.iter().map(Vec::len).zip(self.counts()));
        for (rank, (found, rows)) in lengths {
            if found != rows * width {
                let message = format!("it sends {found} values of {rows} rows, {width} each");
                return Err(DeviceError::of_rank(rank, message));
            }
        }
        Ok(())
    }

    /// Returns the values of all rows, by number, from the values of each rank, `width` per row. [`Self::check`] must
    /// have passed.
    pub(in crate::backend) fn in_order<T: Copy>(
        &self,
        of_ranks: &[Vec<T>],
        width: usize,
    ) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len() * width);
        for run in &self.runs {
            let places = run.place * width..(run.place + run.rows) * width;
            all.extend_from_slice(&of_ranks[run.rank as usize][places]);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_dealt_evenly_and_every_number_is_found() {
        for world in 1..=5 {
            for rows in [0, 1, 31, 33, 100, 2000, 40_000, 400_000] {
                let numbering = Numbering::dealt(world, rows);
                let counts = numbering.counts();
                assert_eq!((numbering.len(), counts.iter().sum::<usize>()), (rows, rows));
                let [least, most] =
                    [counts.iter().min(), counts.iter().max()].map(|count| *count.unwrap());
                // A run more, and the last of them cut short.
                assert!(most - least <= RUN_ROWS.min(rows / 8 + LANES), "{rows}: {counts:?}");
                for (number, rank) in numbering.owners().enumerate() {
                    let (found, place) = numbering.find(number);
                    assert_eq!(found, rank);
                    if number % 97 == 0 {
                        assert_eq!(numbering.numbers_of(rank)[place], number as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_in_turn_are_those_of_one_rank_after_the_other() {
        let numbering = Numbering::of_owners(3, [0, 0, 2, 2, 2, 0, 2]).in_turn();
        assert_eq!(numbering, Numbering::of_counts([3, 0, 4]));
        assert_eq!(numbering, Numbering::of_owners(3, [0, 0, 0, 2, 2, 2, 2]));
        assert_eq!((numbering.find(2), numbering.find(3)), ((0, 2), (2, 0)));
        assert_eq!((numbering.counts(), numbering.len()), (vec![3, 0, 4], 7));
    }

    #[test]
    fn pieces_are_the_rows_of_their_numbers_in_order() {
        let numbering = Numbering::of_owners(3, [0, 0, 2, 2, 2, 1, 0, 2]);
        let piece = |rank, places| RankRows { rank, places };
        assert_eq!(numbering.pieces(&(0..8)).len(), 5);
        assert_eq!(numbering.pieces(&(1..4)), [piece(0, 1..2), piece(2, 0..2)]);
        assert_eq!(
            numbering.pieces(&(4..8)),
            [piece(2, 2..3), piece(1, 0..1), piece(0, 2..3), piece(2, 3..4)]
        );
        assert!(numbering.pieces(&(3..3)).is_empty() && numbering.pieces(&(8..8)).is_empty());
        assert_eq!(numbering.numbers_of(2), [2, 3, 4, 7]);
        let of_ranks = [vec![0, 1, 6], vec![5], vec![2, 3, 4, 7]];
        assert_eq!(numbering.in_order(&of_ranks, 1), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
