//! Real spherical harmonics of degrees 1 to 3, and how their coefficients turn with a scene.

use crate::splats::{MAX_SH_DEGREE, SH_C0, sh_rest_count};
use splat_mesh::narrow::to_f32;

/// Factors of the harmonics as 3D Gaussian splatting has them, by degree; signs included.
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

/// Harmonics of degrees 0 to 3.
const ALL: usize = 16;

/// The harmonics in a unit direction, degree by degree.
pub(crate) fn harmonics(direction: [f64; 3]) -> [f64; ALL] {
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

/// The axes in which each harmonic above degree 0 is odd.
const ODD_AXES: [&[usize]; ALL - 1] = [
    &[1],
    &[2],
    &[0],
    &[0, 1],
    &[1, 2],
    &[],
    &[0, 2],
    &[],
    &[1],
    &[0, 1, 2],
    &[1],
    &[2],
    &[0],
    &[2],
    &[0],
];

/// Multiplies the axes of coefficients above degree 0 by signs.
pub(crate) fn mirror(rest: &mut [[f32; 3]], signs: [f32; 3]) {
    for (coefficient, axes) in rest.iter_mut().zip(ODD_AXES) {
        let sign: f32 = axes.iter().map(|&axis| signs[axis]).product();
        coefficient.iter_mut().for_each(|value| *value *= sign);
    }
}

/// Nodes and weights of Gauss and Legendre's quadrature of four points: exact to degree 7, as is
/// that of eight equal steps around the axis. Products of two harmonics are of degree 6 at most.
const HEIGHTS: [[f64; 2]; 4] = [
    [-0.861_136_311_594_052_6, 0.347_854_845_137_453_85],
    [-0.339_981_043_584_856_26, 0.652_145_154_862_546_1],
    [0.339_981_043_584_856_26, 0.652_145_154_862_546_1],
    [0.861_136_311_594_052_6, 0.347_854_845_137_453_85],
];
const STEPS: u32 = 8;

/// Turns coefficients of degrees 1 to 3: one matrix a degree.
#[derive(Clone, Debug)]
pub(crate) struct HarmonicTurn {
    /// Coefficient j after the turn is the sum over i of `matrix[j][i]` times coefficient i.
    matrix: [[f64; ALL]; ALL],
}

impl HarmonicTurn {
    /// The turn that goes with a rotation of the scene, its matrix by rows.
    ///
    /// The turned function has in a direction the value that the function had in the direction
    /// turned back. The harmonics are orthonormal, so its coefficients are integrals over the
    /// sphere, which the quadrature gives exactly.
    pub(crate) fn of(rotation: &[[f64; 3]; 3]) -> Self {
        let mut matrix = [[0.0; ALL]; ALL];
        for [height, weight] in HEIGHTS {
            for step in 0..STEPS {
                let angle = std::f64::consts::TAU * (f64::from(step) + 0.5) / f64::from(STEPS);
                let radius = (1.0 - height * height).sqrt();
                let direction = [radius * angle.cos(), radius * angle.sin(), height];
                let back = std::array::from_fn(|i| {
                    rotation.iter().zip(direction).map(|(row, part)| row[i] * part).sum()
                });
                let (after, before) = (harmonics(direction), harmonics(back));
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

    /// Turns the coefficients above degree 0 of one Gaussian.
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
    use super::*;
    use crate::geometry::matrix;

    fn value(rest: &[[f32; 3]], direction: [f64; 3]) -> f64 {
        let above = harmonics(direction);
        rest.iter().zip(&above[1..]).map(|(c, y)| f64::from(c[1]) * y).sum()
    }

    #[test]
    fn turned_harmonics_have_the_values_of_the_directions_turned_back() {
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
