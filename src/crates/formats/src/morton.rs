//! An order of places in which neighbours stand together (Z-order curve, Morton 1966).

use rayon::prelude::*;

use crate::narrow::{round_u32, to_u32};

/// Bits of a coordinate.
const BITS: u32 = 21;

/// Row numbers so that neighbours in space follow one another; equal places stay in their order.
pub(crate) fn morton_order(means: &[[f32; 3]]) -> Vec<u32> {
    let (low, high) = bounds(means);
    let most = f64::from((1_u32 << BITS) - 1);
    let key = |mean: &[f32; 3]| {
        let spread = |i: usize| {
            let (x, low, high) = (f64::from(mean[i]), f64::from(low[i]), f64::from(high[i]));
            let share = if high > low { (x - low) / (high - low) } else { 0.0 };
            spread_bits(u64::from(round_u32(share * most)))
        };
        spread(0) | spread(1) << 1 | spread(2) << 2
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

/// The lowest 21 bits with two zeros between neighbours.
const fn spread_bits(bits: u64) -> u64 {
    let bits = bits & 0x1f_ffff;
    let bits = (bits | bits << 32) & 0x001f_0000_0000_ffff;
    let bits = (bits | bits << 16) & 0x001f_0000_ff00_00ff;
    let bits = (bits | bits << 8) & 0x100f_00f0_0f00_f00f;
    let bits = (bits | bits << 4) & 0x10c3_0c30_c30c_30c3;
    (bits | bits << 2) & 0x1249_2492_4924_9249
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
    fn every_bit_has_its_own_place() {
        for bit in 0..21 {
            assert_eq!(spread_bits(1 << bit), 1 << (3 * bit));
        }
    }

    #[test]
    fn equal_places_keep_their_order() {
        assert_eq!(morton_order(&[[2.0; 3]; 4]), [0, 1, 2, 3]);
        assert!(morton_order(&[]).is_empty());
    }
}
