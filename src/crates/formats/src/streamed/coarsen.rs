//! Half as many Gaussians that look alike from afar.
//!
//! Rounds find who goes together by little that is known of each; what they become is made of all their
//! members at once, at the end.

use rayon::prelude::*;

use super::merge::{Moments3, push_merged};
use crate::morton::morton_order;
use crate::splats::{SplatColumns, Splats};
use splat_mesh::narrow::{to_f32, to_u32};

/// Neighbours, in the order of the curve, of which each looks for the best.
const NEIGHBOURS: usize = 16;

/// Rounds at most: one pairs a third of all, for best neighbours are wanted by several.
const ROUNDS: usize = 12;

/// Clusters that one thread merges one after the other.
const CLUSTERS_AT_A_TIME: usize = 4096;

/// The last of a cluster has no next member.
const NO_ROW: u32 = u32::MAX;

/// Gaussians that become one, and what the rounds know of it.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    mean: [f32; 3],
    /// Sum of the variances along the axes, squared units.
    spread: f32,
    /// Opacity times area, summed.
    weight: f32,
    color: [f32; 3],
    /// Its first and its last member.
    first: u32,
    last: u32,
}

impl Cluster {
    fn of(columns: &SplatColumns, row: usize) -> Self {
        let moments = Moments3::of(columns, row);
        Self {
            mean: columns.means[row],
            spread: to_f32(moments.spread()),
            weight: to_f32(moments.weight),
            color: moments.color.map(to_f32),
            first: to_u32(row),
            last: to_u32(row),
        }
    }

    /// What a picture loses where two become one, in the unit of weights: how far apart they are, against
    /// their size, and how far their colours are.
    fn cost(&self, other: &Self) -> f32 {
        let size = (self.spread + other.spread).max(f32::MIN_POSITIVE);
        let shared =
            self.weight * other.weight / (self.weight + other.weight).max(f32::MIN_POSITIVE);
        shared * (squared(self.mean, other.mean) / size + squared(self.color, other.color))
    }

    /// Both, whose members are one list by now.
    fn with(&self, other: &Self) -> Self {
        let total = (self.weight + other.weight).max(f32::MIN_POSITIVE);
        let share = if total > f32::MIN_POSITIVE { self.weight / total } else { 0.5 };
        let mixed = |a: f32, b: f32| share * a + (1.0 - share) * b;
        let triple = |a: [f32; 3], b: [f32; 3]| std::array::from_fn(|i| mixed(a[i], b[i]));
        let apart = share * (1.0 - share) * squared(self.mean, other.mean);
        Self {
            mean: triple(self.mean, other.mean),
            spread: mixed(self.spread, other.spread) + apart,
            weight: total,
            color: triple(self.color, other.color),
            first: self.first,
            last: other.last,
        }
    }
}

fn squared(a: [f32; 3], b: [f32; 3]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Two clusters that may become one.
#[derive(Clone, Copy, Debug)]
struct MergePair {
    cost: f32,
    clusters: [u32; 2],
}

/// About half as many, by rounds of merging the pairs that cost least.
pub(super) fn coarser(splats: &Splats) -> Splats {
    let target = splats.len().div_ceil(2);
    let columns = splats.columns();
    let mut clusters: Vec<Cluster> =
        (0..splats.len()).into_par_iter().map(|row| Cluster::of(columns, row)).collect();
    let mut next_member = vec![NO_ROW; splats.len()];
    for _ in 0..ROUNDS {
        if clusters.len() <= target {
            break;
        }
        clusters = paired(&clusters, target, &mut next_member);
    }
    let parts: Vec<SplatColumns> = clusters
        .par_chunks(CLUSTERS_AT_A_TIME)
        .map(|clusters| {
            let mut part = SplatColumns::with_capacity(columns.sh_degree, clusters.len());
            for cluster in clusters {
                push_merged(columns, &members(cluster, &next_member), &mut part);
            }
            part
        })
        .collect();
    let mut to = SplatColumns::with_capacity(columns.sh_degree, clusters.len());
    (to.antialiasing, to.primitive) = (columns.antialiasing, columns.primitive);
    parts.iter().for_each(|part| to.append(part));
    // Columns are filled alike and finite; were they not, the level below would do.
    Splats::from_columns(to).map_or_else(|_error| splats.clone(), |checked| checked.splats)
}

/// The rows of a cluster.
fn members(cluster: &Cluster, next_member: &[u32]) -> Vec<usize> {
    let next = |&row: &u32| (row != cluster.last).then(|| next_member[row as usize]);
    std::iter::successors(Some(cluster.first), next).map(|row| row as usize).collect()
}

/// Pairs what it can without going below `target`.
fn paired(clusters: &[Cluster], target: usize, next_member: &mut [u32]) -> Vec<Cluster> {
    let places: Vec<[f32; 3]> = clusters.par_iter().map(|cluster| cluster.mean).collect();
    let order = morton_order(&places);
    let clusters: Vec<Cluster> = order.par_iter().map(|&at| clusters[at as usize]).collect();
    let mut pairs: Vec<MergePair> = (0..clusters.len())
        .into_par_iter()
        .filter_map(|one| {
            let others = one + 1..(one + 1 + NEIGHBOURS).min(clusters.len());
            let pairs = others.map(|other| MergePair {
                cost: clusters[one].cost(&clusters[other]),
                clusters: [to_u32(one), to_u32(other)],
            });
            pairs.min_by(|a, b| a.cost.total_cmp(&b.cost))
        })
        .collect();
    pairs.par_sort_unstable_by(|a, b| a.cost.total_cmp(&b.cost).then(a.clusters.cmp(&b.clusters)));
    let mut is_merged = vec![false; clusters.len()];
    let mut left = clusters.len();
    let mut chosen = Vec::with_capacity(clusters.len() - target);
    for pair in pairs {
        if left <= target {
            break;
        }
        let [a, b] = pair.clusters.map(|cluster| cluster as usize);
        if is_merged[a] || is_merged[b] {
            continue;
        }
        (is_merged[a], is_merged[b]) = (true, true);
        next_member[clusters[a].last as usize] = clusters[b].first;
        chosen.push([a, b]);
        left -= 1;
    }
    let mut merged: Vec<Cluster> =
        chosen.par_iter().map(|&[a, b]| clusters[a].with(&clusters[b])).collect();
    let alone = clusters.iter().zip(&is_merged).filter(|(_, is_merged)| !**is_merged);
    merged.extend(alone.map(|(cluster, _)| *cluster));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_splats::{random_splats, splats_at};

    #[test]
    fn a_level_has_half_as_many_and_as_much_of_the_scene() {
        let fine = random_splats(3001, 1, 2);
        let coarse = coarser(&fine);
        assert_eq!((coarse.len(), coarse.sh_degree()), (1501, 1));
        let weight = |splats: &Splats| -> f64 {
            (0..splats.len()).map(|row| Moments3::of(splats.columns(), row).weight).sum()
        };
        // Merged ones are no more opaque than 0.99, so some is lost.
        let [fine, coarse] = [&fine, &coarse].map(weight);
        assert!(coarse <= 1.001 * fine && coarse > 0.5 * fine, "{fine} {coarse}");
    }

    #[test]
    fn the_nearest_of_a_colour_go_together() {
        let mut splats = splats_at(&[[0.0; 3], [0.1, 0.0, 0.0], [5.0, 0.0, 0.0], [5.1, 0.0, 0.0]]);
        splats.columns_mut().log_scales = vec![[-3.0; 3]; 4];
        splats.columns_mut().sh_dc = vec![[0.5; 3]; 4];
        splats.columns_mut().opacity_logits = vec![0.0; 4];
        let mut xs: Vec<f32> =
            coarser(&splats).columns().means.iter().map(|mean| mean[0]).collect();
        xs.sort_by(f32::total_cmp);
        assert!((xs[0] - 0.05).abs() < 1e-6 && (xs[1] - 5.05).abs() < 1e-6, "{xs:?}");
    }

    #[test]
    fn it_is_the_same_for_any_number_of_threads() {
        let splats = random_splats(9000, 1, 4);
        let made = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| coarser(&splats))
        };
        assert!(made(1) == made(3));
    }

    #[test]
    fn one_stays_one() {
        assert_eq!(coarser(&random_splats(1, 0, 3)).len(), 1);
        assert!(coarser(&random_splats(0, 0, 3)).is_empty());
    }
}
