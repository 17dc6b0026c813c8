//! Axes of ellipsoids: from a covariance to a rotation and scales.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quaternion::matrix;

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
}
