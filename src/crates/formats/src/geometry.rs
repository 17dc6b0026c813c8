//! Rotations, opacities, spherical harmonics, and the Z-order of points.

use rayon::prelude::*;
use splat_mesh::bricks;
use splat_mesh::narrow::{round_u32, to_f32, to_u32};
use splat_mesh::place::mul_transposed;
use splat_mesh::points::bounds;

use crate::splats::{MAX_SH_DEGREE, SH_C0, sh_rest_count};

// Rotations as quaternions, and their compact encoding.

/// Rotation (w, x, y, z).
pub type UnitQuat = [f32; 4];

/// Normalises a quaternion; `None` if zero or not finite. Keeps one whose squared length is within `tolerance` of 1.
pub(crate) fn normalised(q: UnitQuat, tolerance: f64) -> Option<UnitQuat> {
    let wide = q.map(f64::from);
    let squared: f64 = wide.iter().map(|part| part * part).sum();
    if (squared - 1.0).abs() <= tolerance {
        return Some(q);
    }
    let length = squared.sqrt();
    (length > 0.0 && length.is_finite()).then(|| wide.map(|part| to_f32(part / length)))
}

/// Returns the rotation `a` after the rotation `b`.
pub(crate) fn product(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    let ([aw, ax, ay, az], [bw, bx, by, bz]) = (a, b);
    [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]
}

/// Returns the matrix, by rows, of a unit quaternion.
pub(crate) fn matrix(q: [f64; 4]) -> [[f64; 3]; 3] {
    let [w, x, y, z] = q;
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

/// Returns a unit quaternion of a rotation matrix by rows (Shepperd, 1978).
pub(crate) fn quaternion(rows: [[f64; 3]; 3]) -> [f64; 4] {
    let [[a, b, c], [d, e, f], [g, h, i]] = rows;
    // Four times the outer product of the quaternion; the row with the largest square is the most precise.
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

/// Returns the angle between two unit rotations, degrees.
pub(crate) fn angle_degrees(a: UnitQuat, b: UnitQuat) -> f64 {
    let chord = |sign: f64| {
        let squares = a.iter().zip(b).map(|(&p, q)| (f64::from(p) - sign * f64::from(q)).powi(2));
        squares.sum::<f64>().sqrt()
    };
    // The chord between unit quaternions is 2 sin(angle / 4); q and -q are the same rotation.
    (4.0 * (0.5 * chord(1.0).min(chord(-1.0))).min(1.0).asin()).to_degrees()
}

/// A unit quaternion without its largest component, which follows from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SmallestThree {
    pub(crate) largest: usize,
    /// Other components in order, signed so that the largest is positive; within ±1/√2.
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

    /// Restores the quaternion. The largest is 0 if the others are too long; the caller normalises.
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

// Opacities: logits in memory, 0..1 in most files.

/// Distance of decoded opacities from 0 and 1, which have no finite logit. A quarter of a step is encoded as the
/// same byte again.
const MARGIN: f64 = 0.25 / 255.0;

/// Returns the opacity of a logit.
#[inline]
pub(crate) fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// Returns the logit of an opacity.
#[inline]
pub(crate) fn logit(share: f64) -> f32 {
    to_f32((share / (1.0 - share)).ln())
}

/// Returns the finite logit of an opacity byte.
#[inline]
pub(crate) fn logit_of_byte(byte: u8) -> f32 {
    logit((f64::from(byte) / 255.0).clamp(MARGIN, 1.0 - MARGIN))
}

// Z-order curve (Morton 1966).

/// Returns the row numbers in Z-order. Equal positions keep their order.
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
    // Keys are unique, so the order does not depend on the thread count.
    keyed.par_sort_unstable();
    keyed.into_iter().map(|(_, row)| row).collect()
}

// Real spherical harmonics of degrees 1 to 3 and their rotation.

/// Signed factors of the harmonics of 3D Gaussian splatting, by degree.
const C1: f64 = 0.488_602_511_902_919_9;

const C2: [f64; 5] = [
    1.092_548_430_592_079_2,
    -1.092_548_430_592_079_2,
    0.315_391_565_252_520_05,
    -1.092_548_430_592_079_2,
    0.546_274_215_296_039_6,
];

const C3: [f64; 7] = [
    -0.590_043_589_926_643_5,
    2.890_611_442_640_554,
    -0.457_045_799_464_465_8,
    0.373_176_332_590_115_4,
    -0.457_045_799_464_465_8,
    1.445_305_721_320_277,
    -0.590_043_589_926_643_5,
];

/// Number of harmonics of degrees 0 to 3.
const ALL: usize = 16;

/// Returns the harmonics in a unit direction, by degree.
pub(crate) fn sh_basis(direction: [f64; 3]) -> [f64; ALL] {
    let [x, y, z] = direction;
    let (xx, yy, zz) = (x * x, y * y, z * z);
    [
        SH_C0,
        -C1 * y,
        C1 * z,
        -C1 * x,
        C2[0] * x * y,
        C2[1] * y * z,
        C2[2] * (2.0 * zz - xx - yy),
        C2[3] * x * z,
        C2[4] * (xx - yy),
        C3[0] * y * (3.0 * xx - yy),
        C3[1] * x * y * z,
        C3[2] * y * (4.0 * zz - xx - yy),
        C3[3] * z * (2.0 * zz - 3.0 * xx - 3.0 * yy),
        C3[4] * x * (4.0 * zz - xx - yy),
        C3[5] * z * (xx - yy),
        C3[6] * x * (xx - 3.0 * yy),
    ]
}

/// Axes in which each harmonic above degree 0 is odd.
const ODD_AXES: [&str; ALL - 1] =
    ["y", "z", "x", "xy", "yz", "", "xz", "", "y", "xyz", "y", "z", "x", "z", "x"];

/// Multiplies the axes of coefficients above degree 0 by signs.
pub(crate) fn mirror(rest: &mut [[f32; 3]], signs: [f32; 3]) {
    for (coefficient, axes) in rest.iter_mut().zip(ODD_AXES) {
        let sign: f32 = axes.bytes().map(|axis| signs[usize::from(axis - b'x')]).product();
        coefficient.iter_mut().for_each(|value| *value *= sign);
    }
}

/// Nodes and weights of four-point Gauss-Legendre quadrature, exact to degree 7 like eight equal steps around the axis.
/// Products of two harmonics have degree 6 at most.
const HEIGHTS: [[f64; 2]; 4] = [
    [-0.861_136_311_594_052_6, 0.347_854_845_137_453_85],
    [-0.339_981_043_584_856_26, 0.652_145_154_862_546_1],
    [0.339_981_043_584_856_26, 0.652_145_154_862_546_1],
    [0.861_136_311_594_052_6, 0.347_854_845_137_453_85],
];

const STEPS: u32 = 8;

/// Rotation of coefficients of degrees 1 to 3: one matrix per degree.
#[derive(Clone, Debug)]
pub(crate) struct HarmonicTurn {
    /// Rotated coefficient j is the sum over i of `matrix[j][i]` times coefficient i.
    matrix: [[f64; ALL]; ALL],
}

impl HarmonicTurn {
    /// Creates the rotation of coefficients for a rotation matrix by rows.
    ///
    /// The rotated function at a direction is the original function at the direction rotated back. The harmonics are
    /// orthonormal, so the coefficients are integrals over the sphere. The quadrature is exact.
    pub(crate) fn of(rotation: &[[f64; 3]; 3]) -> Self {
        let mut matrix = [[0.0; ALL]; ALL];
        for [height, weight] in HEIGHTS {
            for step in 0..STEPS {
                let angle = std::f64::consts::TAU * (f64::from(step) + 0.5) / f64::from(STEPS);
                let radius = (1.0 - height * height).sqrt();
                let direction = [radius * angle.cos(), radius * angle.sin(), height];
                let back = mul_transposed(rotation, direction);
                let (after, before) = (sh_basis(direction), sh_basis(back));
                let area = weight * std::f64::consts::TAU / f64::from(STEPS);
                for (row, after) in matrix.iter_mut().zip(after) {
                    for (entry, before) in row.iter_mut().zip(before) {
                        *entry += area * after * before;
                    }
                }
            }
        }
        Self { matrix }
    }

    /// Rotates the coefficients above degree 0 of one Gaussian.
    pub(crate) fn turn(&self, rest: &mut [[f32; 3]]) {
        let mut turned = [[0.0_f32; 3]; ALL - 1];
        for degree in 1..=MAX_SH_DEGREE {
            let band = sh_rest_count(degree - 1)..sh_rest_count(degree);
            if band.end > rest.len() {
                break;
            }
            for to in band.clone() {
                turned[to] = std::array::from_fn(|channel| {
                    let products = band
                        .clone()
                        .map(|from| self.matrix[to + 1][from + 1] * f64::from(rest[from][channel]));
                    to_f32(products.sum())
                });
            }
        }
        let count = rest.len();
        rest.copy_from_slice(&turned[..count]);
    }
}

#[cfg(test)]
mod tests {
    use splat_mesh::narrow::round_u8;

    use super::*;

    #[test]
    fn smallest_three_restore_the_fourth() {
        for q in [[0.5, -0.5, 0.5, 0.5], [0.1, -0.9, 0.2, 0.374_165_74], [0.0, 0.0, -1.0, 0.0]] {
            let back = SmallestThree::of(q).quat();
            // 1 ulp of the components, squared and rooted.
            assert!(angle_degrees(q, back) < 1e-3, "{q:?} {back:?}");
        }
        let negative = SmallestThree::of([0.1, -0.9, 0.2, 0.374_165_74]);
        assert_eq!(negative.largest, 1);
        assert!(negative.others[0] < 0.0);
    }

    #[test]
    fn product_applies_its_factors_in_turn() {
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
        // x becomes y, y becomes z, and z becomes x.
        for (row, expected) in m.iter().zip([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]) {
            for (found, expected) in row.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn angles_do_not_depend_on_the_sign_of_a_quaternion() {
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
    fn corners_of_a_cube_are_in_z_order() {
        let corner = |i: u8| [i & 1, i >> 1 & 1, i >> 2 & 1].map(f32::from);
        let mixed: Vec<[f32; 3]> = [5, 0, 7, 2, 1, 6, 3, 4].map(corner).to_vec();
        assert_eq!(morton_order(&mixed), [1, 4, 3, 6, 7, 0, 5, 2]);
        // Equal places keep their order.
        assert_eq!(morton_order(&[[2.0; 3]; 4]), [0, 1, 2, 3]);
        assert!(morton_order(&[]).is_empty());
    }

    fn value(rest: &[[f32; 3]], direction: [f64; 3]) -> f64 {
        let above = sh_basis(direction);
        rest.iter().zip(&above[1..]).map(|(c, y)| f64::from(c[1]) * y).sum()
    }

    #[test]
    fn rotated_harmonics_equal_the_values_of_directions_rotated_back() {
        let q = [0.5, 0.1, -0.7, (1.0_f64 - 0.25 - 0.01 - 0.49).sqrt()];
        let rotation = matrix(q);
        let before: Vec<[f32; 3]> =
            (0..15_u8).map(|i| [0.0, 0.3 - 0.07 * f32::from(i), 0.0]).collect();
        for count in [3, 8, 15] {
            let mut after = before[..count].to_vec();
            HarmonicTurn::of(&rotation).turn(&mut after);
            for direction in [[1.0, 0.0, 0.0], [0.0, -0.6, 0.8], [0.48, 0.6, 0.64]] {
                let turned =
                    rotation.map(|row| row.iter().zip(direction).map(|(a, b)| a * b).sum());
                let (expected, found) = (value(&before[..count], direction), value(&after, turned));
                // Fifteen coefficients below 1, rounded to f32.
                assert!((expected - found).abs() < 1e-6, "{count}: {expected} {found}");
            }
        }
    }

    #[test]
    fn half_a_turn_about_x_changes_the_signs_that_are_listed() {
        let mut rest = [[1.0; 3]; 15];
        HarmonicTurn::of(&[[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]).turn(&mut rest);
        let signs = rest.map(|c| if c[0] < 0.0 { '-' } else { '+' });
        assert_eq!(String::from_iter(signs), "--+-++-+-+--+-+");
        assert!(rest.iter().all(|c| (c[0].abs() - 1.0).abs() < 1e-6));
    }
}
