//! Finding the nearest of many rows: the work of making a palette.

use rayon::prelude::*;

use super::rows::LANES;
use splat_mesh::narrow::to_u32;

/// Searches rows of numbers for the nearest ones. [`HostSearch`] does it on the processor; a program may
/// have something faster.
///
/// Equal rows must find equal numbers each time; others than [`HostSearch`] may round sums otherwise.
pub trait RowSearch: Sync {
    /// Keeps rows of `width` numbers each, a multiple of 8, one after the other, for many searches.
    fn hold<'a>(&'a self, rows: &'a [f32], width: usize) -> Box<dyn HeldRows + 'a>;
}

/// Rows that are searched for.
pub trait HeldRows {
    /// For each row the nearest of the centres in its cells; of equal ones the first.
    fn nearest(&self, centers: &[f32], cells: &CellLists<'_>) -> Vec<NearRow>;

    /// For each row the so many cells whose centres are nearest, the nearest first. There are no fewer.
    fn near_cells(&self, centers: &[f32], count: usize) -> Vec<u32>;
}

/// Which centres each row is compared with.
#[derive(Clone, Copy, Debug)]
pub struct CellLists<'a> {
    /// The first centre of each cell, and their number at the end.
    pub starts: &'a [u32],
    /// Cells of each row, one row after the other.
    pub of_rows: &'a [u32],
    /// Cells that each row has.
    pub per_row: usize,
    /// All places of `of_rows`, in an order in which those of one cell stand together: for searches that do
    /// many beside one another.
    pub order: &'a [u32],
}

/// A row of a table, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearRow {
    /// Its number.
    pub number: u32,
    /// Sum of the squared differences.
    pub squared_distance: f32,
}

/// Searches on the processor, with all threads, the same for any number of these.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSearch;

/// Rows where they are.
struct HostRows<'a> {
    rows: &'a [f32],
    width: usize,
}

impl RowSearch for HostSearch {
    fn hold<'a>(&'a self, rows: &'a [f32], width: usize) -> Box<dyn HeldRows + 'a> {
        Box::new(HostRows { rows, width })
    }
}

/// Rows that one thread does at least.
const LEAST_ROWS: usize = 64;

impl HeldRows for HostRows<'_> {
    fn nearest(&self, centers: &[f32], cells: &CellLists<'_>) -> Vec<NearRow> {
        let centers_of = |cell: &u32| {
            let cell = *cell as usize;
            cells.starts[cell] as usize..cells.starts[cell + 1] as usize
        };
        let rows = self.rows.par_chunks_exact(self.width);
        rows.zip(cells.of_rows.par_chunks_exact(cells.per_row))
            .with_min_len(LEAST_ROWS)
            .map(|(row, cells)| nearest(centers, cells.iter().flat_map(centers_of), row))
            .collect()
    }

    fn near_cells(&self, centers: &[f32], count: usize) -> Vec<u32> {
        let rows = self.rows.par_chunks_exact(self.width).with_min_len(LEAST_ROWS);
        let cells_of = |row: &[f32]| {
            let centers = centers.chunks_exact(self.width);
            let mut cells: Vec<NearRow> = (0..)
                .zip(centers)
                .map(|(number, center)| NearRow {
                    number,
                    squared_distance: squared_distance(center, row),
                })
                .collect();
            let order = |a: &NearRow, b: &NearRow| {
                a.squared_distance.total_cmp(&b.squared_distance).then(a.number.cmp(&b.number))
            };
            if cells.len() > count {
                cells.select_nth_unstable_by(count, order);
                cells.truncate(count);
            }
            cells.sort_unstable_by(order);
            cells.into_iter().map(|near| near.number)
        };
        rows.flat_map_iter(cells_of).collect()
    }
}

/// Numbers of a row after which one that is too far is given up: harmonics of degree 1 come first, and
/// hold most of what there is.
const FIRST_LOOK: usize = 2 * LANES;

pub(super) fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    add_squares(&mut sums, a, b);
    sums.iter().sum()
}

/// The same, or some number that is no less than `most`, if it is no less.
fn squared_distance_below(most: f32, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (Some((a, more_a)), Some((b, more_b))) =
        (a.split_at_checked(FIRST_LOOK), b.split_at_checked(FIRST_LOOK))
    else {
        return squared_distance(a, b);
    };
    add_squares(&mut sums, a, b);
    let first = sums.iter().sum();
    if first >= most {
        return first;
    }
    add_squares(&mut sums, more_a, more_b);
    sums.iter().sum()
}

#[inline]
fn add_squares(sums: &mut [f32; LANES], a: &[f32], b: &[f32]) {
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            let difference = a[lane] - b[lane];
            sums[lane] += difference * difference;
        }
    }
}

/// The nearest of the centres of these numbers; of equal ones the first.
fn nearest(centers: &[f32], numbers: impl Iterator<Item = usize>, row: &[f32]) -> NearRow {
    let far = NearRow { number: 0, squared_distance: f32::INFINITY };
    numbers.fold(far, |best, number| {
        let center = &centers[number * row.len()..][..row.len()];
        let squared_distance = squared_distance_below(best.squared_distance, center, row);
        if squared_distance < best.squared_distance {
            NearRow { number: to_u32(number), squared_distance }
        } else {
            best
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 8 numbers, of which the first is given.
    fn rows(firsts: &[f32]) -> Vec<f32> {
        firsts.iter().flat_map(|&first| [first, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).collect()
    }

    #[test]
    fn the_nearest_is_one_of_the_cells_of_the_row() {
        let (rows, centers) = (rows(&[0.1, 0.1, 5.0]), rows(&[0.0, 1.0, 4.0, 9.0]));
        let held = HostSearch.hold(&rows, LANES);
        let cells =
            CellLists { starts: &[0, 2, 4], of_rows: &[0, 1, 0], per_row: 1, order: &[0, 2, 1] };
        let found: Vec<u32> = held.nearest(&centers, &cells).iter().map(|it| it.number).collect();
        assert_eq!(found, [0, 2, 1]);
        let cells = CellLists { of_rows: &[0, 1, 1, 0, 1, 0], per_row: 2, ..cells };
        let found = held.nearest(&centers, &cells);
        assert_eq!(found.iter().map(|it| it.number).collect::<Vec<u32>>(), [0, 0, 2]);
        assert_eq!(found[2].squared_distance, 1.0);
    }

    #[test]
    fn cells_come_nearest_first_and_equal_ones_by_number() {
        let (rows, centers) = (rows(&[1.0, 9.0]), rows(&[0.0, 2.0, 5.0, 9.0]));
        let held = HostSearch.hold(&rows, LANES);
        assert_eq!(held.near_cells(&centers, 3), [0, 1, 2, 3, 2, 1]);
    }

    #[test]
    fn a_row_without_a_number_near_it_finds_the_first() {
        let (rows, centers) = (rows(&[f32::NAN]), rows(&[0.0, 1.0]));
        let cells = CellLists { starts: &[0, 2], of_rows: &[0], per_row: 1, order: &[0] };
        assert_eq!(HostSearch.hold(&rows, LANES).nearest(&centers, &cells)[0].number, 0);
    }
}
