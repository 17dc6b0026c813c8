//! Rotations, opacities and the order of places along the Z-curve.

use rayon::prelude::*;

use splat_mesh::bricks;
use splat_mesh::narrow::{round_u32, to_f32, to_u32};

// Rotations as quaternions, and how the formats squeeze them.

/// A rotation (w, x, y, z).
pub type UnitQuat = [f32; 4];

/// The unit quaternion of the same direction, or nothing where there is none. One whose squared
/// length is within `tolerance` of 1 stays as it is.
pub(crate) fn normalised(q: UnitQuat, tolerance: f64) -> Option<UnitQuat> {
    let wide = q.map(f64::from);
    let squared: f64 = wide.iter().map(|part| part * part).sum();
    if (squared - 1.0).abs() <= tolerance {
        return Some(q);
    }
    let length = squared.sqrt();
    (length > 0.0 && length.is_finite()).then(|| wide.map(|part| to_f32(part / length)))
}

/// The rotation `a` after the rotation `b`.
pub(crate) fn product(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    let ([aw, ax, ay, az], [bw, bx, by, bz]) = (a, b);
    [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]
}

/// The matrix, by rows, of a unit quaternion.
pub(crate) fn matrix(q: [f64; 4]) -> [[f64; 3]; 3] {
    let [w, x, y, z] = q;
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

/// A unit quaternion of a rotation's matrix by rows.
pub(crate) fn quaternion(rows: [[f64; 3]; 3]) -> [f64; 4] {
    let [[a, b, c], [d, e, f], [g, h, i]] = rows;
    // Four times the products of each part with all: the row with the largest square loses least.
    let products = [
        [1.0 + a + e + i, h - f, c - g, d - b],
        [h - f, 1.0 + a - e - i, b + d, c + g],
        [c - g, b + d, 1.0 - a + e - i, f + h],
        [d - b, c + g, f + h, 1.0 - a - e + i],
    ];
    let largest =
        (1..4).fold(0, |best, k| if products[k][k] > products[best][best] { k } else { best });
    let length = products[largest].iter().map(|part| part * part).sum::<f64>().sqrt();
    products[largest].map(|part| part / length)
}

/// The angle between two unit rotations, degrees.
pub(crate) fn angle_degrees(a: UnitQuat, b: UnitQuat) -> f64 {
    let chord = |sign: f64| {
        let squares = a.iter().zip(b).map(|(&p, q)| (f64::from(p) - sign * f64::from(q)).powi(2));
        squares.sum::<f64>().sqrt()
    };
    // The chord between unit quaternions is 2 sin(angle / 4); q and -q are the same rotation.
    (4.0 * (0.5 * chord(1.0).min(chord(-1.0))).min(1.0).asin()).to_degrees()
}

/// A unit quaternion without its largest part, which the others tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SmallestThree {
    /// Which part is the largest, in the order of the quaternion given.
    pub(crate) largest: usize,
    /// The other parts in their order, with the sign that makes the largest positive; within
    /// ±1/√2.
    pub(crate) others: [f64; 3],
}

impl SmallestThree {
    pub(crate) fn of(q: UnitQuat) -> Self {
        let largest = (1..4).fold(0, |best, i| if q[i].abs() > q[best].abs() { i } else { best });
        let sign = if q[largest] < 0.0 { -1.0 } else { 1.0 };
        let mut others = [0.0; 3];
        let parts = (0..4).filter(|&i| i != largest);
        for (other, part) in others.iter_mut().zip(parts) {
            *other = sign * f64::from(q[part]);
        }
        Self { largest, others }
    }

    /// The quaternion. Where the others are too long to be of a unit one, the largest is 0; the
    /// caller makes it unit.
    pub(crate) fn quat(self) -> UnitQuat {
        let squared: f64 = self.others.iter().map(|part| part * part).sum();
        let mut q = [to_f32((1.0 - squared).max(0.0).sqrt()); 4];
        let parts = (0..4).filter(|&i| i != self.largest);
        for (part, other) in parts.zip(self.others) {
            q[part] = to_f32(other);
        }
        q
    }
}

// Opacities: logits in memory, shares of one in most files.

/// A share that a byte stores as 0 or 255 has no finite logit. A quarter of a step from the end is
/// within half a step of all that the byte stands for, and becomes the same byte again.
const MARGIN: f64 = 0.25 / 255.0;

/// The share of one that a logit stands for.
#[inline]
pub(crate) fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// The logit of a share of one.
#[inline]
pub(crate) fn logit(share: f64) -> f32 {
    to_f32((share / (1.0 - share)).ln())
}

/// The logit of a share that was stored in few bits: finite at both ends.
#[inline]
pub(crate) fn logit_of_stored(share: f64) -> f32 {
    logit(share.clamp(MARGIN, 1.0 - MARGIN))
}

/// The logit of a byte of 0 to 255.
#[inline]
pub(crate) fn logit_of_byte(byte: u8) -> f32 {
    logit_of_stored(f64::from(byte) / 255.0)
}

// An order of places in which neighbours stand together (Z-order curve, Morton 1966).

/// Row numbers so that neighbours in space follow one another; equal places stay in their order.
pub(crate) fn morton_order(means: &[[f32; 3]]) -> Vec<u32> {
    let (low, high) = bounds(means);
    let most = f64::from((1_u32 << bricks::AXIS_BITS) - 1);
    let key = |mean: &[f32; 3]| {
        bricks::key([0, 1, 2].map(|i: usize| {
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
    use splat_mesh::narrow::round_u8;

    use super::*;

    #[test]
    fn the_smallest_three_tell_the_fourth() {
        for q in [[0.5, -0.5, 0.5, 0.5], [0.1, -0.9, 0.2, 0.374_165_74], [0.0, 0.0, -1.0, 0.0]] {
            let back = SmallestThree::of(q).quat();
            // 1 ulp of the parts, squared and rooted.
            assert!(angle_degrees(q, back) < 1e-3, "{q:?} {back:?}");
        }
        let negative = SmallestThree::of([0.1, -0.9, 0.2, 0.374_165_74]);
        assert_eq!(negative.largest, 1);
        assert!(negative.others[0] < 0.0);
    }

    #[test]
    fn a_product_turns_as_its_factors_do_in_turn() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let about_x = [half, half, 0.0, 0.0];
        let about_z = [half, 0.0, 0.0, half];
        let m = matrix(product(about_z, about_x));
        for q in
            [[0.5, -0.1, 0.7, 0.5], [0.1, -0.9, 0.1, 0.412_310_562_561_766], [0.0, 0.0, 0.6, -0.8]]
        {
            let back = quaternion(matrix(q));
            let cosine: f64 = q.iter().zip(back).map(|(a, b)| a * b).sum();
            assert!((cosine.abs() - 1.0).abs() < 1e-12, "{q:?} {back:?}");
        }
        // x stays x and becomes y; y becomes z and stays.
        for (row, expected) in m.iter().zip([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]) {
            for (found, expected) in row.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn angles_are_those_of_rotations() {
        let eighth = std::f32::consts::FRAC_PI_8;
        let q = [eighth.cos(), eighth.sin(), 0.0, 0.0];
        assert!((angle_degrees([1.0, 0.0, 0.0, 0.0], q) - 45.0).abs() < 1e-4);
        assert!((angle_degrees([-1.0, 0.0, 0.0, 0.0], q) - 45.0).abs() < 1e-4);
    }

    #[test]
    fn every_byte_becomes_a_finite_logit_and_itself_again() {
        for byte in 0..=255 {
            let logit = logit_of_byte(byte);
            assert!(logit.is_finite());
            assert_eq!(round_u8(255.0 * sigmoid(logit)), byte);
        }
    }

    #[test]
    fn extreme_logits_are_shares() {
        assert_eq!(sigmoid(f32::MAX), 1.0);
        assert_eq!(sigmoid(f32::MIN), 0.0);
        assert!((logit(sigmoid(2.5)) - 2.5).abs() < 1e-6);
    }

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
