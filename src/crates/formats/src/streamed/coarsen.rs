//! Half as many Gaussians that look alike from afar.
//!
//! Rounds find who goes together by little that is known of each; what they become is made of all their
//! members at once, at the end.

use rayon::prelude::*;
use splat_mesh::narrow::{to_f32, to_u32};

use crate::geometry::matrix;
use crate::geometry::morton_order;
use crate::geometry::{logit, sigmoid};
use crate::splats::{LEAST_LOG_SCALE, SH_C0, SplatColumns, Splats, sh_rest_count};

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

// Axes of ellipsoids: from a covariance to a rotation and scales.

/// A symmetric matrix, by rows.
pub(super) type Symmetric3 = [[f64; 3]; 3];

/// Sweeps of Jacobi's method; five make 3x3 matrices diagonal to the last bit.
const SWEEPS: usize = 8;

/// Eigenvalues, and their vectors as the columns of a rotation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    pub(super) squares: [f64; 3],
    pub(super) columns: [[f64; 3]; 3],
}

/// Jacobi's rotations (Golub and Van Loan, "Matrix computations", 8.5).
pub(super) fn axes_of(mut m: Symmetric3) -> Axes {
    let mut v = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    for [p, q] in [[0, 1], [0, 2], [1, 2]].repeat(SWEEPS) {
        if m[p][q] == 0.0 {
            continue;
        }
        let theta = (m[q][q] - m[p][p]) / (2.0 * m[p][q]);
        let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
        let t = if theta == 0.0 { 1.0 } else { t };
        let c = 1.0 / t.hypot(1.0);
        let s = t * c;
        for row in &mut m {
            let [a, b] = [row[p], row[q]];
            (row[p], row[q]) = (c * a - s * b, s * a + c * b);
        }
        let [a, b] = [m[p], m[q]];
        m[p] = std::array::from_fn(|k| c * a[k] - s * b[k]);
        m[q] = std::array::from_fn(|k| s * a[k] + c * b[k]);
        for row in &mut v {
            let [a, b] = [row[p], row[q]];
            (row[p], row[q]) = (c * a - s * b, s * a + c * b);
        }
    }
    Axes { squares: [m[0][0], m[1][1], m[2][2]], columns: v }
}

/// The unit quaternion (w, x, y, z) of a rotation (Shepperd, 1978).
pub(super) fn quaternion_of(m: [[f64; 3]; 3]) -> [f64; 4] {
    let trace = m[0][0] + m[1][1] + m[2][2];
    let largest = [trace, m[0][0], m[1][1], m[2][2]];
    let best = (1..4).fold(0, |best, i| if largest[i] > largest[best] { i } else { best });
    let raw = match best {
        0 => [1.0 + trace, m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]],
        1 => [m[2][1] - m[1][2], 1.0 + 2.0 * m[0][0] - trace, m[0][1] + m[1][0], m[0][2] + m[2][0]],
        2 => [m[0][2] - m[2][0], m[0][1] + m[1][0], 1.0 + 2.0 * m[1][1] - trace, m[1][2] + m[2][1]],
        _ => [m[1][0] - m[0][1], m[0][2] + m[2][0], m[1][2] + m[2][1], 1.0 + 2.0 * m[2][2] - trace],
    };
    let length = raw.iter().map(|part| part * part).sum::<f64>().sqrt();
    raw.map(|part| part / length)
}

// Several Gaussians as one.

/// The most opaque that a merged Gaussian becomes.
const MOST_OPACITY: f64 = 0.99;

/// What a merge looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments3 {
    pub(super) mean: [f64; 3],
    pub(super) covariance: Symmetric3,
    /// Opacity times area.
    pub(super) weight: f64,
    pub(super) color: [f64; 3],
}

/// The product of the two larger scales.
fn area(scales: [f64; 3]) -> f64 {
    let least = scales.into_iter().fold(f64::INFINITY, f64::min);
    scales.iter().product::<f64>() / least.max(f64::MIN_POSITIVE)
}

impl Moments3 {
    pub(super) fn of(columns: &SplatColumns, row: usize) -> Self {
        let scales = columns.log_scales[row].map(|scale| f64::from(scale).clamp(-40.0, 40.0).exp());
        let r = matrix(columns.rotations[row].map(f64::from));
        let entry =
            |i: usize, j: usize| (0..3).map(|k| r[i][k] * scales[k] * scales[k] * r[j][k]).sum();
        Self {
            mean: columns.means[row].map(f64::from),
            covariance: std::array::from_fn(|i| std::array::from_fn(|j| entry(i, j))),
            weight: sigmoid(columns.opacity_logits[row]) * area(scales),
            color: columns.sh_dc[row].map(|c| SH_C0 * f64::from(c)),
        }
    }

    /// Sum of the variances along the axes, squared units.
    pub(super) fn spread(&self) -> f64 {
        self.covariance[0][0] + self.covariance[1][1] + self.covariance[2][2]
    }
}

/// Puts a Gaussian behind the others that has the mean, covariance and harmonics of several, weighted by
/// opacity times area, and as much of that as all; one alone stays as it is.
pub(super) fn push_merged(from: &SplatColumns, rows: &[usize], to: &mut SplatColumns) {
    if let &[row] = rows {
        to.means.push(from.means[row]);
        to.log_scales.push(from.log_scales[row]);
        to.rotations.push(from.rotations[row]);
        to.opacity_logits.push(from.opacity_logits[row]);
        to.sh_dc.push(from.sh_dc[row]);
        to.sh_rest.extend_from_slice(from.rest(row));
        return;
    }
    let all: Vec<Moments3> = rows.iter().map(|&row| Moments3::of(from, row)).collect();
    let total: f64 = all.iter().map(|one| one.weight).sum();
    let even = 1.0 / rows.len() as f64;
    let shares: Vec<f64> =
        all.iter().map(|one| if total > 0.0 { one.weight / total } else { even }).collect();
    let mixed = |value: &dyn Fn(usize) -> f64| -> f64 {
        shares.iter().enumerate().map(|(k, share)| share * value(k)).sum()
    };
    let mean: [f64; 3] = std::array::from_fn(|i| mixed(&|k| all[k].mean[i]));
    let covariance = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let apart = |k: usize, axis: usize| all[k].mean[axis] - mean[axis];
            mixed(&|k| all[k].covariance[i][j] + apart(k, i) * apart(k, j))
        })
    });
    let mut axes = axes_of(covariance);
    // Of three axes that are no rotation but a mirror, the other direction of one is.
    let [a, b, c] = [0, 1, 2].map(|k| [0, 1, 2].map(|i| axes.columns[i][k]));
    let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    if cross.iter().zip(c).map(|(x, y)| x * y).sum::<f64>() < 0.0 {
        axes.columns.iter_mut().for_each(|row| row[2] = -row[2]);
    }
    let scales = axes.squares.map(|square| square.max(0.0).sqrt());
    let opacity = (total / area(scales).max(f64::MIN_POSITIVE)).clamp(1e-6, MOST_OPACITY);
    let mixed_triple = |of: &dyn Fn(usize) -> [f32; 3]| -> [f32; 3] {
        std::array::from_fn(|i| to_f32(mixed(&|k| f64::from(of(k)[i]))))
    };
    to.means.push(mean.map(to_f32));
    to.log_scales.push(scales.map(|scale| to_f32(scale.ln()).max(LEAST_LOG_SCALE)));
    to.rotations.push(quaternion_of(axes.columns).map(to_f32));
    to.opacity_logits.push(logit(opacity));
    to.sh_dc.push(mixed_triple(&|k| from.sh_dc[rows[k]]));
    for harmonic in 0..sh_rest_count(from.sh_degree) {
        to.sh_rest.push(mixed_triple(&|k| from.rest(rows[k])[harmonic]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::matrix;
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

    #[test]
    fn axes_and_rotation_give_the_matrix_back() {
        for q in [[0.5, 0.5, -0.5, 0.5], [0.1, 0.7, 0.7, 0.1], [1.0, 0.0, 0.0, 0.0]] {
            let r = matrix(q);
            let squares = [4.0, 0.25, 1e-6];
            let build = |r: [[f64; 3]; 3], s: [f64; 3]| -> Symmetric3 {
                std::array::from_fn(|i| {
                    std::array::from_fn(|j| (0..3).map(|k| r[i][k] * s[k] * r[j][k]).sum())
                })
            };
            let m = build(r, squares);
            let axes = axes_of(m);
            let again = build(matrix(quaternion_of(axes.columns)), axes.squares);
            for (a, b) in m.as_flattened().iter().zip(again.as_flattened()) {
                assert!((a - b).abs() < 1e-12, "{q:?}: {m:?} {again:?}");
            }
        }
    }

    #[test]
    fn a_gaussian_merged_with_itself_stays_but_for_its_opacity() {
        let splats = random_splats(6, 2, 1);
        for row in 0..6 {
            let mut merged = SplatColumns::with_capacity(2, 1);
            push_merged(splats.columns(), &[row, row], &mut merged);
            let (a, b) = (Moments3::of(splats.columns(), row), Moments3::of(&merged, 0));
            for (a, b) in a.covariance.as_flattened().iter().zip(b.covariance.as_flattened()) {
                // Scales and rotations are rounded to f32.
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
            assert_eq!(merged.rest(0), splats.columns().rest(row));
            let doubled = (2.0 * sigmoid(splats.columns().opacity_logits[row])).min(0.99);
            assert!((sigmoid(merged.opacity_logits[0]) - doubled).abs() < 1e-5);
        }
    }

    #[test]
    fn two_small_ones_apart_become_a_long_one_between_them() {
        let mut splats = splats_at(&[[0.0; 3], [2.0, 0.0, 0.0]]);
        splats.columns_mut().log_scales = vec![[-3.0; 3]; 2];
        splats.columns_mut().opacity_logits = vec![0.0; 2];
        let mut merged = SplatColumns::with_capacity(0, 1);
        push_merged(splats.columns(), &[0, 1], &mut merged);
        assert!((merged.means[0][0] - 1.0).abs() < 1e-6);
        let moments = Moments3::of(&merged, 0);
        assert!((moments.covariance[0][0] - (1.0 + (-6.0_f64).exp())).abs() < 1e-5);
        assert!((moments.covariance[1][1] - (-6.0_f64).exp()).abs() < 1e-6);
    }
}
