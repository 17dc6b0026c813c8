//! Half as many Gaussians that look alike from afar.

use rayon::prelude::*;

use super::merge::{Moments3, push_merged};
use crate::morton::morton_order;
use crate::narrow::to_u32;
use crate::splats::{SplatColumns, Splats};

/// Neighbours, in the order of the curve, of which each looks for the best.
const NEIGHBOURS: usize = 16;

/// Rounds at most: one pairs a third of all, for best neighbours are wanted by several.
const ROUNDS: usize = 12;

/// Two rows that may become one.
#[derive(Clone, Copy, Debug)]
struct MergePair {
    cost: f64,
    rows: [u32; 2],
}

/// About half as many, by rounds of merging the pairs that cost least.
pub(super) fn coarser(splats: &Splats) -> Splats {
    let target = splats.len().div_ceil(2);
    let mut now = splats.clone();
    for _ in 0..ROUNDS {
        if now.len() <= target {
            break;
        }
        now = merged(&now, target);
    }
    now
}

/// Merges what it can without going below `target`.
fn merged(splats: &Splats, target: usize) -> Splats {
    let order = morton_order(&splats.columns().means);
    let splats = splats.rows(&order);
    let columns = splats.columns();
    let moments: Vec<Moments3> =
        (0..splats.len()).into_par_iter().map(|row| Moments3::of(columns, row)).collect();
    let mut pairs: Vec<MergePair> = (0..splats.len())
        .into_par_iter()
        .filter_map(|row| {
            let others = row + 1..(row + 1 + NEIGHBOURS).min(moments.len());
            let pairs = others.map(|other| MergePair {
                cost: moments[row].cost(&moments[other]),
                rows: [to_u32(row), to_u32(other)],
            });
            pairs.min_by(|a, b| a.cost.total_cmp(&b.cost))
        })
        .collect();
    pairs.par_sort_unstable_by(|a, b| a.cost.total_cmp(&b.cost).then(a.rows.cmp(&b.rows)));

    let mut is_merged = vec![false; splats.len()];
    let mut left = splats.len();
    let mut to = SplatColumns::with_capacity(columns.sh_degree, target);
    to.antialiasing = columns.antialiasing;
    for pair in pairs {
        if left <= target {
            break;
        }
        let rows = pair.rows.map(|row| row as usize);
        if rows.iter().any(|&row| is_merged[row]) {
            continue;
        }
        rows.iter().for_each(|&row| is_merged[row] = true);
        push_merged(columns, rows, &mut to);
        left -= 1;
    }
    for row in (0..splats.len()).filter(|&row| !is_merged[row]) {
        to.means.push(columns.means[row]);
        to.log_scales.push(columns.log_scales[row]);
        to.rotations.push(columns.rotations[row]);
        to.opacity_logits.push(columns.opacity_logits[row]);
        to.sh_dc.push(columns.sh_dc[row]);
        to.sh_rest.extend_from_slice(columns.rest(row));
    }
    // Columns are filled alike and finite; were they not, the level below would do.
    Splats::from_columns(to).map_or(splats, |checked| checked.splats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_splats::random_splats;

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
    fn one_stays_one() {
        assert_eq!(coarser(&random_splats(1, 0, 3)).len(), 1);
        assert!(coarser(&random_splats(0, 0, 3)).is_empty());
    }
}
