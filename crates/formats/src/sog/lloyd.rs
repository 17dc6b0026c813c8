//! Weighted k-means of rows of numbers (Lloyd, 1982), the same for any number of threads.

use rayon::prelude::*;

use crate::narrow::{to_f32, to_u32};
use crate::random::SplatRandom;

/// Numbers that are subtracted at a time; rows are padded to a multiple.
const LANES: usize = 8;

/// Rows of as many numbers each, padded with zeros.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowTable {
    width: usize,
    values: Vec<f32>,
}

impl RowTable {
    /// Rows of so many numbers, none yet.
    pub(super) fn of_width(numbers: usize) -> Self {
        Self { width: numbers.next_multiple_of(LANES).max(LANES), values: Vec::new() }
    }

    /// No rows, as wide as these.
    pub(super) const fn like(other: &Self) -> Self {
        Self { width: other.width, values: Vec::new() }
    }

    pub(super) fn push(&mut self, row: &[f32]) {
        let end = self.values.len() + self.width;
        self.values.extend_from_slice(row);
        self.values.resize(end, 0.0);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.values.append(&mut other.values);
    }

    /// Numbers of a row, padding included.
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// A row with its padding.
    pub(super) fn row(&self, number: usize) -> &[f32] {
        &self.values[number * self.width..][..self.width]
    }
}

/// A row of a table, and how far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct NearRow {
    pub(super) number: u32,
    pub(super) squared_distance: f32,
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

/// The nearest of the rows of these numbers; of equal ones the first.
pub(super) fn nearest(
    table: &RowTable,
    numbers: impl Iterator<Item = usize>,
    row: &[f32],
) -> NearRow {
    let far = NearRow { number: 0, squared_distance: f32::INFINITY };
    numbers.fold(far, |best, number| {
        let squared_distance =
            squared_distance_below(best.squared_distance, table.row(number), row);
        if squared_distance < best.squared_distance {
            NearRow { number: to_u32(number), squared_distance }
        } else {
            best
        }
    })
}

/// Centres, and which of them each member is nearest to.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    pub(super) centers: RowTable,
    pub(super) labels: Vec<u32>,
}

/// What is gathered into clusters: rows of a table, each with a weight above 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'a> {
    pub(super) rows: &'a RowTable,
    pub(super) weights: &'a [f32],
    /// Numbers of the rows that take part.
    pub(super) numbers: &'a [u32],
}

impl Members<'_> {
    fn row(&self, member: usize) -> &[f32] {
        self.rows.row(self.numbers[member] as usize)
    }

    fn weight(&self, member: usize) -> f32 {
        self.weights[self.numbers[member] as usize]
    }

    /// So many clusters after so many passes; the members themselves where there are no more.
    pub(super) fn clusters(&self, count: usize, passes: usize, seed: u64) -> Clusters {
        let mut centers = RowTable::like(self.rows);
        let members = self.numbers.len();
        if members <= count {
            (0..members).for_each(|member| centers.push(self.row(member)));
            return Clusters { centers, labels: (0..to_u32(members)).collect() };
        }
        // One from each of as many equal stretches, so that none is taken twice.
        let mut random = SplatRandom::of_seed(seed);
        for k in 0..count {
            let [start, end] = [k, k + 1].map(|k| k * members / count);
            let offset = random.bits() % (end - start) as u64;
            centers.push(self.row(start + usize::try_from(offset).unwrap_or(0)));
        }
        let mut labels = Vec::new();
        for _ in 0..passes {
            let near: Vec<NearRow> = (0..members)
                .into_par_iter()
                .with_min_len(256)
                .map(|member| nearest(&centers, 0..count, self.row(member)))
                .collect();
            centers = self.means(&near, count);
            labels = near.into_iter().map(|near| near.number).collect();
        }
        Clusters { centers, labels }
    }

    /// The weighted mean of each cluster; one without members moves to a member that is worst off.
    pub(super) fn means(&self, near: &[NearRow], count: usize) -> RowTable {
        let groups = Groups::of(near, count);
        let means: Vec<Option<Vec<f32>>> =
            (0..count).into_par_iter().map(|k| self.mean(groups.members(k))).collect();
        let empty = means.iter().filter(|mean| mean.is_none()).count();
        let mut worst = self.worst(near, empty).into_iter();
        let mut centers = RowTable::like(self.rows);
        for mean in means {
            match mean {
                Some(mean) => centers.push(&mean),
                None => centers.push(self.row(worst.next().unwrap_or(0))),
            }
        }
        centers
    }

    fn mean(&self, members: &[u32]) -> Option<Vec<f32>> {
        let mut sums = vec![0.0_f64; self.rows.width];
        let mut total = 0.0;
        for &member in members {
            let weight = f64::from(self.weight(member as usize));
            total += weight;
            for (sum, &value) in sums.iter_mut().zip(self.row(member as usize)) {
                *sum += weight * f64::from(value);
            }
        }
        (total > 0.0).then(|| sums.iter().map(|sum| to_f32(sum / total)).collect())
    }

    /// The members with the greatest weighted distances, so many.
    fn worst(&self, near: &[NearRow], count: usize) -> Vec<usize> {
        if count == 0 {
            return Vec::new();
        }
        let cost = |member: usize| self.weight(member) * near[member].squared_distance;
        let mut members: Vec<usize> = (0..near.len()).collect();
        members.sort_by(|&a, &b| cost(b).total_cmp(&cost(a)).then(a.cmp(&b)));
        members.truncate(count);
        members
    }
}

/// Members by the cluster that they belong to, in their order.
struct Groups {
    starts: Vec<usize>,
    members: Vec<u32>,
}

impl Groups {
    fn of(near: &[NearRow], count: usize) -> Self {
        let mut starts = vec![0; count + 1];
        near.iter().for_each(|near| starts[near.number as usize + 1] += 1);
        (0..count).for_each(|k| starts[k + 1] += starts[k]);
        let mut next = starts.clone();
        let mut members = vec![0; near.len()];
        for (member, near) in near.iter().enumerate() {
            let place = &mut next[near.number as usize];
            members[*place] = to_u32(member);
            *place += 1;
        }
        Self { starts, members }
    }

    fn members(&self, cluster: usize) -> &[u32] {
        &self.members[self.starts[cluster]..self.starts[cluster + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[f32; 2]]) -> RowTable {
        let mut table = RowTable::of_width(2);
        rows.iter().for_each(|row| table.push(row));
        table
    }

    #[test]
    fn clumps_are_found_and_weights_pull() {
        let rows = table(&[[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [0.0, 0.5]]);
        let weights = [1.0, 3.0, 1.0, 1.0, 1.0];
        let numbers: Vec<u32> = (0..5).collect();
        let members = Members { rows: &rows, weights: &weights, numbers: &numbers };
        let clusters = members.clusters(2, 8, 1);
        assert_eq!(clusters.labels[0], clusters.labels[1]);
        assert_eq!(clusters.labels[2], clusters.labels[3]);
        let near = clusters.centers.row(clusters.labels[0] as usize);
        assert!((near[1] - 0.7).abs() < 1e-6 && near[0] == 0.0, "{near:?}");
    }

    #[test]
    fn an_empty_cluster_goes_to_the_worst_member() {
        let rows = table(&[[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]);
        let numbers = [0, 1, 2];
        let members = Members { rows: &rows, weights: &[1.0; 3], numbers: &numbers };
        let near = [0.0, 1.0, 25.0].map(|squared_distance| NearRow { number: 0, squared_distance });
        let centers = members.means(&near, 2);
        assert_eq!((centers.row(0)[0], centers.row(1)[0]), (2.0, 5.0));
    }

    #[test]
    fn fewer_members_than_clusters_stay_as_they_are() {
        let rows = table(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let members = Members { rows: &rows, weights: &[1.0; 3], numbers: &[2, 0] };
        let clusters = members.clusters(7, 8, 1);
        assert_eq!((clusters.centers.len(), clusters.labels.as_slice()), (2, [0, 1].as_slice()));
        assert_eq!(clusters.centers.row(0)[..2], [5.0, 6.0]);
    }
}
