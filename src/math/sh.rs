//! Real spherical harmonics up to degree 3: view-dependent colour. Order and signs are as in 3D Gaussian splatting
//! (Kerbl et al. 2023) and in its PLY files.

use super::Real;
use super::linalg::Vec3;

/// Highest degree of the spherical harmonics.
pub const MAX_DEGREE: u32 = 3;

/// Number of coefficients per channel at degree 3.
pub const MAX_COEFFICIENTS: usize = 16;

/// Constant of degree 0: 1 / (2 √π).
pub const C0: f64 = 0.282_094_791_773_878_14;
/// √(3 / 4π).
const C1: f64 = 0.488_602_511_902_919_9;
/// √(15 / 4π), √(5 / 16π) and √(15 / 16π).
const C2: [f64; 3] = [1.092_548_430_592_079_2, 0.315_391_565_252_520_05, 0.546_274_215_296_039_6];
/// √(35 / 32π), √(105 / 4π), √(21 / 32π), √(7 / 16π) and √(105 / 16π).
const C3: [f64; 5] = [
    0.590_043_589_926_643_5,
    2.890_611_442_640_554,
    0.457_045_799_464_465_8,
    0.373_176_332_590_115_4,
    1.445_305_721_320_277,
];

/// Returns the number of coefficients per channel up to `degree`.
pub const fn coefficients(degree: u32) -> usize {
    ((degree + 1) * (degree + 1)) as usize
}

/// Returns the values of the basis functions in the unit direction `dir`; 0 above `degree`.
#[inline]
pub fn basis<R: Real>(degree: u32, dir: Vec3<R>) -> [R; MAX_COEFFICIENTS] {
    let c = R::of;
    let [x, y, z] = dir;
    let mut b = [R::ZERO; MAX_COEFFICIENTS];
    b[0] = c(C0);
    if degree < 1 {
        return b;
    }
    b[1] = -c(C1) * y;
    b[2] = c(C1) * z;
    b[3] = -c(C1) * x;
    if degree < 2 {
        return b;
    }
    let (xx, yy, zz) = (x * x, y * y, z * z);
    b[4] = c(C2[0]) * x * y;
    b[5] = -c(C2[0]) * y * z;
    b[6] = c(C2[1]) * (R::TWO * zz - xx - yy);
    b[7] = -c(C2[0]) * x * z;
    b[8] = c(C2[2]) * (xx - yy);
    if degree < 3 {
        return b;
    }
    let (three, four) = (c(3.0), c(4.0));
    b[9] = -c(C3[0]) * y * (three * xx - yy);
    b[10] = c(C3[1]) * x * y * z;
    b[11] = -c(C3[2]) * y * (four * zz - xx - yy);
    b[12] = c(C3[3]) * z * (R::TWO * zz - three * xx - three * yy);
    b[13] = -c(C3[2]) * x * (four * zz - xx - yy);
    b[14] = c(C3[4]) * z * (xx - yy);
    b[15] = -c(C3[0]) * x * (xx - three * yy);
    b
}

/// Returns `d_dir` of [`basis`], with the direction's components taken as independent.
#[inline]
pub fn basis_bwd<R: Real>(degree: u32, dir: Vec3<R>, d_b: &[R; MAX_COEFFICIENTS]) -> Vec3<R> {
    let c = R::of;
    let [x, y, z] = dir;
    let (mut d_x, mut d_y, mut d_z) = (R::ZERO, R::ZERO, R::ZERO);
    if degree >= 1 {
        d_y -= c(C1) * d_b[1];
        d_z += c(C1) * d_b[2];
        d_x -= c(C1) * d_b[3];
    }
    let two = R::TWO;
    if degree >= 2 {
        d_x += c(C2[0]) * (y * d_b[4] - z * d_b[7]) - c(C2[1]) * two * x * d_b[6]
            + c(C2[2]) * two * x * d_b[8];
        d_y += c(C2[0]) * (x * d_b[4] - z * d_b[5])
            - c(C2[1]) * two * y * d_b[6]
            - c(C2[2]) * two * y * d_b[8];
        d_z += c(C2[1]) * c(4.0) * z * d_b[6] - c(C2[0]) * (y * d_b[5] + x * d_b[7]);
    }
    if degree >= 3 {
        let (xx, yy, zz, xy, yz, xz) = (x * x, y * y, z * z, x * y, y * z, x * z);
        let (three, four, six, eight) = (c(3.0), c(4.0), c(6.0), c(8.0));
        let three_xx_yy = three * (xx - yy);
        d_x += -c(C3[0]) * (six * xy * d_b[9] + three_xx_yy * d_b[15])
            + c(C3[1]) * yz * d_b[10]
            + c(C3[2]) * (two * xy * d_b[11] - (four * zz - three * xx - yy) * d_b[13])
            - c(C3[3]) * six * xz * d_b[12]
            + c(C3[4]) * two * xz * d_b[14];
        d_y += c(C3[0]) * (six * xy * d_b[15] - three_xx_yy * d_b[9])
            + c(C3[1]) * xz * d_b[10]
            + c(C3[2]) * (two * xy * d_b[13] - (four * zz - xx - three * yy) * d_b[11])
            - c(C3[3]) * six * yz * d_b[12]
            - c(C3[4]) * two * yz * d_b[14];
        d_z += c(C3[1]) * xy * d_b[10] - c(C3[2]) * eight * (yz * d_b[11] + xz * d_b[13])
            + c(C3[3]) * (six * zz - three * xx - three * yy) * d_b[12]
            + c(C3[4]) * (xx - yy) * d_b[14];
    }
    [d_x, d_y, d_z]
}
