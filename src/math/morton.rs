//! Order of points along the Z-curve (Morton 1966), which keeps most neighbours in space together.

use serde::{Deserialize, Serialize};
use splat_mesh::bricks;

use super::Real;
use super::linalg::{Vec3, sub};

/// Number of bits of a key: ten per axis.
pub const KEY_BITS: u32 = 30;

/// Number of cells along an axis on each side of the centre.
const CELLS_A_SIDE: f32 = 512.0;

/// Index of the last cell along an axis.
const LAST_CELL: i32 = 1023;

/// A cube around the main part of a scene. Half of the cells along each axis lie inside.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cube {
    /// Centre, world units.
    pub centre: Vec3<f32>,
    /// Half the side, world units; above zero.
    pub half_side: f32,
}

impl Cube {
    /// Returns a point's key along the curve; 0 if the point is not finite or its offset overflows.
    ///
    /// Each axis' offset from the centre, in half sides, is contracted by u / (1 + |u|) to -1..1 and divided into
    /// 1,024 cells, so far points keep their order too. The bits of the cells alternate, x in the lowest. Each
    /// operation rounds separately, as in the twin in `kernels/reorder.cu`, so that both give the same keys.
    pub fn key(&self, point: Vec3<f32>) -> u32 {
        let [x, y, z] = sub(point, self.centre).map(|offset| cell(offset / self.half_side));
        match (x, y, z) {
            (Some(x), Some(y), Some(z)) => {
                // Ten bits per axis: 30 in all.
                u32::try_from(bricks::key([x, y, z])).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }
}

/// Returns the cell of an offset in half sides; `None` if the offset is not finite.
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

    /// Returns the point at an offset in half sides from the centre.
    fn point_at(offset: Vec3<f32>) -> Vec3<f32> {
        [0, 1, 2].map(|axis| CUBE.centre[axis] + offset[axis] * CUBE.half_side)
    }

    #[test]
    fn bits_of_the_axes_alternate() {
        // In the middle all axes have cell 512.
        let middle = CUBE.key(CUBE.centre);
        assert_eq!(middle, 0b111 << 27);
        // One half side from the centre is cell 768 or 256.
        assert_eq!(CUBE.key(point_at([1.0, 0.0, 0.0])), middle | 1 << 24);
        assert_eq!(CUBE.key(point_at([0.0, 1.0, 0.0])), middle | 1 << 25);
        assert_eq!(CUBE.key(point_at([0.0, 0.0, -1.0])), 0b011 << 27 | 1 << 26);
    }

    #[test]
    fn keys_ascend_along_each_axis() {
        for axis in 0..3 {
            let keys: Vec<u32> = (-40_000..40_000)
                .map(|step: i32| {
                    let mut offset = [0.0; 3];
                    offset[axis] = (f64::from(step) / 1000.0).to_f32();
                    CUBE.key(point_at(offset))
                })
                .collect();
            assert!(keys.is_sorted(), "axis {axis}");
            // 40 half sides to either side cover 40/41 of the cells.
            assert_eq!(keys.chunk_by(|a, b| a == b).count(), 1000, "axis {axis}");
        }
    }

    #[test]
    fn far_points_keep_their_order() {
        let key = |x: f32| CUBE.key(point_at([x, 0.0, 0.0]));
        let far = [1.0, 3.0, 10.0, 30.0, 100.0, 400.0];
        for pair in far.windows(2) {
            assert!(key(pair[0]) < key(pair[1]) && key(-pair[1]) < key(-pair[0]), "{pair:?}");
        }
        assert_eq!(key(1e30), key(1e10));
        assert_eq!(CUBE.key([1e30; 3]), (1 << KEY_BITS) - 1);
        assert_eq!(CUBE.key([-1e30; 3]), 0);
    }

    #[test]
    fn neighbours_in_the_order_are_near_in_space() {
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
        // Random points lie 0.66 sides apart on average, neighbours in a grid of 16 per side a sixteenth. The curve
        // sometimes makes a longer step.
        let shuffled = mean_step(&points);
        points.sort_by_key(|&point| CUBE.key(point));
        assert!(mean_step(&points) < 0.2 * shuffled, "{} of {shuffled}", mean_step(&points));
    }

    #[test]
    fn nonfinite_points_come_first() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for axis in 0..3 {
                let mut point = point_at([0.5; 3]);
                point[axis] = value;
                assert_eq!(CUBE.key(point), 0);
            }
        }
        // The offset overflows.
        let edge = Cube { centre: [-3e38; 3], half_side: 1.0 };
        assert_eq!(edge.key([3e38; 3]), 0);
    }
}
