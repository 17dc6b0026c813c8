//! The order of points along the Z-curve (Morton 1966): neighbours in space mostly are neighbours in
//! it.

use serde::{Deserialize, Serialize};

use super::Real;
use super::linalg::{Vec3, sub};
use splat_mesh::bricks;

/// Bits of a key that may be set: ten for each axis.
pub const KEY_BITS: u32 = 30;

/// Cells along an axis on each side of the centre.
const CELLS_A_SIDE: f32 = 512.0;

/// The last cell along an axis.
const LAST_CELL: i32 = 1023;

/// A cube around what matters of a scene: half of the cells along each axis lie within it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cube {
    /// Its centre, world units.
    pub centre: Vec3<f32>,
    /// Half the length of a side, world units; above zero.
    pub half_side: f32,
}

impl Cube {
    /// Place of a point along the curve; 0 where the point is not finite, or too far for the
    /// arithmetic.
    ///
    /// An axis' offset from the centre, in half sides, is contracted by u / (1 + |u|) to -1..1, so
    /// that far points outside the scene keep their order, too; 1,024 cells divide that.
    /// The cells' bits take turns in the key, x in the lowest. Each operation rounds by itself, as
    /// in the twin in `kernels/reorder.cu`, so that both give the same keys.
    pub fn key(&self, point: Vec3<f32>) -> u32 {
        let [x, y, z] = sub(point, self.centre).map(|offset| cell(offset / self.half_side));
        match (x, y, z) {
            (Some(x), Some(y), Some(z)) => {
                // Ten bits an axis: the key has 30.
                u32::try_from(bricks::key([x, y, z])).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }
}

/// The cell of an offset in half sides; none of one that is infinite or NaN.
fn cell(offset: f32) -> Option<u32> {
    if !offset.is_finite() {
        return None;
    }
    let contracted = offset / (1.0 + offset.abs());
    let cell = ((contracted + 1.0) * CELLS_A_SIDE).floor_i32();
    Some(cell.clamp(0, LAST_CELL).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::add;
    use crate::math::random::{RandomStream, RandomUse};

    const CUBE: Cube = Cube { centre: [1.0, -2.0, 0.5], half_side: 4.0 };

    /// The point so many half sides off the centre.
    fn off(offset: Vec3<f32>) -> Vec3<f32> {
        [0, 1, 2].map(|axis| CUBE.centre[axis] + offset[axis] * CUBE.half_side)
    }

    #[test]
    fn the_bits_of_the_axes_take_turns() {
        // In the middle all axes have cell 512.
        let middle = CUBE.key(CUBE.centre);
        assert_eq!(middle, 0b111 << 27);
        // One half side off is the middle of what is left: cell 768, or 256.
        assert_eq!(CUBE.key(off([1.0, 0.0, 0.0])), middle | 1 << 24);
        assert_eq!(CUBE.key(off([0.0, 1.0, 0.0])), middle | 1 << 25);
        assert_eq!(CUBE.key(off([0.0, 0.0, -1.0])), 0b011 << 27 | 1 << 26);
    }

    #[test]
    fn keys_ascend_along_each_axis() {
        for axis in 0..3 {
            let keys: Vec<u32> = (-40_000..40_000)
                .map(|step: i32| {
                    let mut offset = [0.0; 3];
                    offset[axis] = (f64::from(step) / 1000.0).to_f32();
                    CUBE.key(off(offset))
                })
                .collect();
            assert!(keys.is_sorted(), "axis {axis}");
            // 40 half sides to either side are 40/41 of the cells.
            assert_eq!(keys.chunk_by(|a, b| a == b).count(), 1000, "axis {axis}");
        }
    }

    #[test]
    fn far_points_keep_their_order() {
        let key = |x: f32| CUBE.key(off([x, 0.0, 0.0]));
        let far = [1.0, 3.0, 10.0, 30.0, 100.0, 400.0];
        for pair in far.windows(2) {
            assert!(key(pair[0]) < key(pair[1]) && key(-pair[1]) < key(-pair[0]), "{pair:?}");
        }
        assert_eq!(key(1e30), key(1e10));
        assert_eq!(CUBE.key([1e30; 3]), (1 << KEY_BITS) - 1);
        assert_eq!(CUBE.key([-1e30; 3]), 0);
    }

    #[test]
    fn points_next_to_each_other_in_the_order_are_near_in_space() {
        let stream = RandomStream::new(5, 0, RandomUse::Sample);
        let coordinate = |i: u64| CUBE.half_side * (2.0 * stream.uniform(i) - 1.0).to_f32();
        let mut points: Vec<Vec3<f32>> = (0..4096)
            .map(|i| add(CUBE.centre, [0, 1, 2].map(|axis| coordinate(i * 3 + axis))))
            .collect();
        let mean_step = |points: &[Vec3<f32>]| {
            let steps = points.windows(2).map(|pair| {
                let [x, y, z] = sub(pair[0], pair[1]);
                f64::from((x * x + y * y + z * z).sqrt())
            });
            steps.sum::<f64>() / 4095.0
        };
        // Points drawn anywhere lie 0.66 sides apart on average, neighbours in a grid of 16 per
        // side a sixteenth; the curve makes a longer step now and then.
        let shuffled = mean_step(&points);
        points.sort_by_key(|&point| CUBE.key(point));
        assert!(mean_step(&points) < 0.2 * shuffled, "{} of {shuffled}", mean_step(&points));
    }

    #[test]
    fn what_is_no_number_comes_first() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for axis in 0..3 {
                let mut point = off([0.5; 3]);
                point[axis] = value;
                assert_eq!(CUBE.key(point), 0);
            }
        }
        // The offset overflows.
        let edge = Cube { centre: [-3e38; 3], half_side: 1.0 };
        assert_eq!(edge.key([3e38; 3]), 0);
    }
}
