//! An order of places in which neighbours stand together (Z-order curve, Morton 1966).

use rayon::prelude::*;

use splat_mesh::bricks::morton;
use splat_mesh::narrow::{round_u32, to_u32};

/// Row numbers so that neighbours in space follow one another; equal places stay in their order.
pub(crate) fn morton_order(means: &[[f32; 3]]) -> Vec<u32> {
    let (low, high) = bounds(means);
    let most = f64::from((1_u32 << morton::AXIS_BITS) - 1);
    let key = |mean: &[f32; 3]| {
        morton::key([0, 1, 2].map(|i: usize| {
            let (x, low, high) = (f64::from(mean[i]), f64::from(low[i]), f64::from(high[i]));
            let share = if high > low { (x - low) / (high - low) } else { 0.0 };
            round_u32(share * most)
        }))
    };
    let mut keyed: Vec<(u64, u32)> =
        means.par_iter().enumerate().map(|(row, mean)| (key(mean), to_u32(row))).collect();
    // No two are equal, so that the order is the same for any number of threads.
    keyed.par_sort_unstable();
    keyed.into_iter().map(|(_, row)| row).collect()
}

/// Least and greatest of each coordinate; zeros of no places.
pub(crate) fn bounds(means: &[[f32; 3]]) -> ([f32; 3], [f32; 3]) {
    let first = means.first().copied().unwrap_or_default();
    means.iter().fold((first, first), |(low, high), mean| {
        let each = |pick: fn(f32, f32) -> f32, from: [f32; 3]| {
            std::array::from_fn(|i| pick(from[i], mean[i]))
        };
        (each(f32::min, low), each(f32::max, high))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corners_of_a_cube_come_in_the_order_of_z() {
        let corner = |i: u8| [i & 1, i >> 1 & 1, i >> 2 & 1].map(f32::from);
        let mixed: Vec<[f32; 3]> = [5, 0, 7, 2, 1, 6, 3, 4].map(corner).to_vec();
        assert_eq!(morton_order(&mixed), [1, 4, 3, 6, 7, 0, 5, 2]);
    }

    #[test]
    fn equal_places_keep_their_order() {
        assert_eq!(morton_order(&[[2.0; 3]; 4]), [0, 1, 2, 3]);
        assert!(morton_order(&[]).is_empty());
    }
}
