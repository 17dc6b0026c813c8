//! Weighted k-means of rows of numbers (Lloyd, 1982), in cells that do not mix, the same for any number
//! of threads.

use rayon::prelude::*;

use super::rows::RowTable;
use super::search::{CellLists, HeldRows, NearRow};
use splat_mesh::narrow::{to_f32, to_u32};
use splat_mesh::random::RandomSequence;

/// Rows that are gathered, each with a weight above 0.
#[derive(Clone, Copy)]
pub(super) struct Members<'a> {
    pub(super) rows: &'a RowTable,
    pub(super) weights: &'a [f32],
    /// The same rows, to be searched for.
    pub(super) held: &'a dyn HeldRows,
}

/// Rows by the cell that they are in, and how many centres each cell has.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    /// The cell of each row.
    pub(super) of_rows: &'a [u32],
    /// The first centre of each cell, and their number at the end.
    pub(super) starts: &'a [u32],
}

impl Cells<'_> {
    fn count(&self) -> usize {
        self.starts.len() - 1
    }
}

/// Centres, and which of them each row is nearest to.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    pub(super) centers: RowTable,
    pub(super) near: Vec<NearRow>,
}

impl Members<'_> {
    /// The centres of the cells after so many passes. A cell has no more centres than rows.
    pub(super) fn clusters(&self, cells: &Cells<'_>, passes: usize, seed: u64) -> Clusters {
        let inside = Groups::of(cells.of_rows, cells.count());
        let mut centers = self.first_centers(cells, &inside, seed);
        let Cells { of_rows, starts } = *cells;
        let lists = CellLists { starts, of_rows, per_row: 1, order: inside.all() };
        let mut near = Vec::new();
        for _ in 0..passes {
            near = self.held.nearest(centers.values(), &lists);
            centers = self.means(&near, centers.len());
            self.move_empty(&mut centers, &near, cells, &inside);
        }
        Clusters { centers, near }
    }

    /// One from each of as many equal stretches of a cell's rows, so that none is taken twice.
    fn first_centers(&self, cells: &Cells<'_>, inside: &Groups, seed: u64) -> RowTable {
        let mut centers = RowTable::like(self.rows);
        for cell in 0..cells.count() {
            let mut random = RandomSequence::of_seed(seed ^ cell as u64);
            let rows = inside.members(cell);
            let count = (cells.starts[cell + 1] - cells.starts[cell]) as usize;
            for k in 0..count {
                let [start, end] = [k, k + 1].map(|k| k * rows.len() / count);
                let offset = random.bits() % (end - start).max(1) as u64;
                let row = rows[start + usize::try_from(offset).unwrap_or(0)];
                centers.push(self.rows.row(row as usize));
            }
        }
        centers
    }

    /// The weighted mean of each cluster; zeros of one without rows.
    pub(super) fn means(&self, near: &[NearRow], count: usize) -> RowTable {
        let clusters: Vec<u32> = near.iter().map(|near| near.number).collect();
        let row = |row: u32| self.rows.row(row as usize);
        weighted_means(self.rows.width(), row, self.weights, &Groups::of(&clusters, count))
    }

    /// Moves centres without rows to the rows of their cell that are worst off.
    fn move_empty(
        &self,
        centers: &mut RowTable,
        near: &[NearRow],
        cells: &Cells<'_>,
        inside: &Groups,
    ) {
        let mut is_used = vec![false; centers.len()];
        near.iter().for_each(|near| is_used[near.number as usize] = true);
        for cell in 0..cells.count() {
            let of_cell = cells.starts[cell] as usize..cells.starts[cell + 1] as usize;
            let empty: Vec<usize> = of_cell.filter(|&center| !is_used[center]).collect();
            let worst = self.worst(inside.members(cell), near, empty.len());
            for (center, row) in empty.into_iter().zip(worst) {
                centers.row_mut(center).copy_from_slice(self.rows.row(row));
            }
        }
    }

    /// The rows with the greatest weighted distances, so many.
    fn worst(&self, rows: &[u32], near: &[NearRow], count: usize) -> Vec<usize> {
        if count == 0 {
            return Vec::new();
        }
        let cost = |row: usize| self.weights[row] * near[row].squared_distance;
        let mut rows: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
        rows.sort_by(|&a, &b| cost(b).total_cmp(&cost(a)).then(a.cmp(&b)));
        rows.truncate(count);
        rows
    }
}

/// The weighted mean of the rows of each group, of so many numbers; zeros of one without rows.
pub(super) fn weighted_means<'a>(
    width: usize,
    row: impl Fn(u32) -> &'a [f32] + Sync,
    weights: &[f32],
    groups: &Groups,
) -> RowTable {
    let mean = |group: usize| -> Vec<f32> {
        let mut sums = vec![0.0_f64; width];
        let mut total = f64::MIN_POSITIVE;
        for &member in groups.members(group) {
            let weight = f64::from(weights[member as usize]);
            total += weight;
            for (sum, &value) in sums.iter_mut().zip(row(member)) {
                *sum += weight * f64::from(value);
            }
        }
        sums.iter().map(|sum| to_f32(sum / total)).collect()
    };
    let means: Vec<Vec<f32>> =
        (0..groups.count()).into_par_iter().with_min_len(16).map(mean).collect();
    let mut table = RowTable::of_width(width);
    means.iter().for_each(|mean| table.push(mean));
    table
}

/// Rows by the group that they belong to, in their order.
pub(super) struct Groups {
    starts: Vec<usize>,
    members: Vec<u32>,
}

impl Groups {
    pub(super) fn of(groups: &[u32], count: usize) -> Self {
        let mut starts = vec![0; count + 1];
        groups.iter().for_each(|&group| starts[group as usize + 1] += 1);
        (0..count).for_each(|k| starts[k + 1] += starts[k]);
        let mut next = starts.clone();
        let mut members = vec![0; groups.len()];
        for (row, &group) in groups.iter().enumerate() {
            let place = &mut next[group as usize];
            members[*place] = to_u32(row);
            *place += 1;
        }
        Self { starts, members }
    }

    pub(super) fn members(&self, group: usize) -> &[u32] {
        &self.members[self.starts[group]..self.starts[group + 1]]
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// All members, group after group.
    pub(super) fn all(&self) -> &[u32] {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use super::super::search::{HostSearch, RowSearch};
    use super::*;

    fn table(rows: &[[f32; 2]]) -> RowTable {
        let mut table = RowTable::of_width(2);
        rows.iter().for_each(|row| table.push(row));
        table
    }

    fn with_members<T>(
        rows: &RowTable,
        weights: &[f32],
        use_them: impl Fn(&Members<'_>) -> T,
    ) -> T {
        let held = HostSearch.hold(rows.values(), rows.width());
        use_them(&Members { rows, weights, held: &*held })
    }

    #[test]
    fn clumps_are_found_and_weights_pull() {
        let rows = table(&[[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [0.0, 0.5]]);
        let clusters = with_members(&rows, &[1.0, 3.0, 1.0, 1.0, 1.0], |members| {
            members.clusters(&Cells { of_rows: &[0; 5], starts: &[0, 2] }, 8, 1)
        });
        let number = |row: usize| clusters.near[row].number;
        assert_eq!((number(0), number(2)), (number(1), number(3)));
        let near = clusters.centers.row(number(0) as usize);
        assert!((near[1] - 0.7).abs() < 1e-6 && near[0] == 0.0, "{near:?}");
    }

    #[test]
    fn cells_do_not_mix() {
        let rows = table(&[[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [3.0, 0.0]]);
        let clusters = with_members(&rows, &[1.0; 4], |members| {
            members.clusters(&Cells { of_rows: &[0, 0, 1, 1], starts: &[0, 1, 2] }, 3, 1)
        });
        assert_eq!([0, 1].map(|center| clusters.centers.row(center)[0]), [0.5, 1.5]);
    }

    #[test]
    fn an_empty_cluster_goes_to_the_worst_row_of_its_cell() {
        let rows = table(&[[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [70.0, 0.0]]);
        let near = [(0, 0.0), (0, 1.0), (0, 25.0), (2, 900.0)]
            .map(|(number, squared_distance)| NearRow { number, squared_distance });
        let centers = with_members(&rows, &[1.0; 4], |members| {
            let cells = Cells { of_rows: &[0, 0, 0, 1], starts: &[0, 2, 3] };
            let mut centers = members.means(&near, 3);
            members.move_empty(&mut centers, &near, &cells, &Groups::of(cells.of_rows, 2));
            centers
        });
        assert_eq!([0, 1, 2].map(|center| centers.row(center)[0]), [2.0, 5.0, 70.0]);
    }
}
