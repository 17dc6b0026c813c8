//! Several Gaussians as one.

use super::eigen::{Symmetric3, axes_of, quaternion_of};
use crate::opacity::{logit, sigmoid};
use crate::quaternion::matrix;
use crate::splats::{LEAST_LOG_SCALE, SH_C0, SplatColumns, sh_rest_count};
use splat_mesh::narrow::to_f32;

/// The most opaque that a merged Gaussian becomes.
const MOST_OPACITY: f64 = 0.99;

/// What a merge looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments3 {
    pub(super) mean: [f64; 3],
    pub(super) covariance: Symmetric3,
    /// Opacity times area.
    pub(super) weight: f64,
    pub(super) color: [f64; 3],
}

/// The product of the two larger scales.
fn area(scales: [f64; 3]) -> f64 {
    let least = scales.into_iter().fold(f64::INFINITY, f64::min);
    scales.iter().product::<f64>() / least.max(f64::MIN_POSITIVE)
}

impl Moments3 {
    pub(super) fn of(columns: &SplatColumns, row: usize) -> Self {
        let scales = columns.log_scales[row].map(|scale| f64::from(scale).clamp(-40.0, 40.0).exp());
        let r = matrix(columns.rotations[row].map(f64::from));
        let entry =
            |i: usize, j: usize| (0..3).map(|k| r[i][k] * scales[k] * scales[k] * r[j][k]).sum();
        Self {
            mean: columns.means[row].map(f64::from),
            covariance: std::array::from_fn(|i| std::array::from_fn(|j| entry(i, j))),
            weight: sigmoid(columns.opacity_logits[row]) * area(scales),
            color: columns.sh_dc[row].map(|c| SH_C0 * f64::from(c)),
        }
    }

    /// Sum of the variances along the axes, squared units.
    pub(super) fn spread(&self) -> f64 {
        self.covariance[0][0] + self.covariance[1][1] + self.covariance[2][2]
    }
}

/// Puts a Gaussian behind the others that has the mean, covariance and harmonics of several, weighted by
/// opacity times area, and as much of that as all; one alone stays as it is.
pub(super) fn push_merged(from: &SplatColumns, rows: &[usize], to: &mut SplatColumns) {
    if let &[row] = rows {
        to.means.push(from.means[row]);
        to.log_scales.push(from.log_scales[row]);
        to.rotations.push(from.rotations[row]);
        to.opacity_logits.push(from.opacity_logits[row]);
        to.sh_dc.push(from.sh_dc[row]);
        to.sh_rest.extend_from_slice(from.rest(row));
        return;
    }
    let all: Vec<Moments3> = rows.iter().map(|&row| Moments3::of(from, row)).collect();
    let total: f64 = all.iter().map(|one| one.weight).sum();
    let even = 1.0 / rows.len() as f64;
    let shares: Vec<f64> =
        all.iter().map(|one| if total > 0.0 { one.weight / total } else { even }).collect();
    let mixed = |value: &dyn Fn(usize) -> f64| -> f64 {
        shares.iter().enumerate().map(|(k, share)| share * value(k)).sum()
    };
    let mean: [f64; 3] = std::array::from_fn(|i| mixed(&|k| all[k].mean[i]));
    let covariance = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let apart = |k: usize, axis: usize| all[k].mean[axis] - mean[axis];
            mixed(&|k| all[k].covariance[i][j] + apart(k, i) * apart(k, j))
        })
    });
    let mut axes = axes_of(covariance);
    // Of three axes that are no rotation but a mirror, the other direction of one is.
    let [a, b, c] = [0, 1, 2].map(|k| [0, 1, 2].map(|i| axes.columns[i][k]));
    let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    if cross.iter().zip(c).map(|(x, y)| x * y).sum::<f64>() < 0.0 {
        axes.columns.iter_mut().for_each(|row| row[2] = -row[2]);
    }
    let scales = axes.squares.map(|square| square.max(0.0).sqrt());
    let opacity = (total / area(scales).max(f64::MIN_POSITIVE)).clamp(1e-6, MOST_OPACITY);
    let mixed_triple = |of: &dyn Fn(usize) -> [f32; 3]| -> [f32; 3] {
        std::array::from_fn(|i| to_f32(mixed(&|k| f64::from(of(k)[i]))))
    };
    to.means.push(mean.map(to_f32));
    to.log_scales.push(scales.map(|scale| to_f32(scale.ln()).max(LEAST_LOG_SCALE)));
    to.rotations.push(quaternion_of(axes.columns).map(to_f32));
    to.opacity_logits.push(logit(opacity));
    to.sh_dc.push(mixed_triple(&|k| from.sh_dc[rows[k]]));
    for harmonic in 0..sh_rest_count(from.sh_degree) {
        to.sh_rest.push(mixed_triple(&|k| from.rest(rows[k])[harmonic]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_splats::random_splats;

    #[test]
    fn a_gaussian_merged_with_itself_stays_but_for_its_opacity() {
        let splats = random_splats(6, 2, 1);
        for row in 0..6 {
            let mut merged = SplatColumns::with_capacity(2, 1);
            push_merged(splats.columns(), &[row, row], &mut merged);
            let (a, b) = (Moments3::of(splats.columns(), row), Moments3::of(&merged, 0));
            for (a, b) in a.covariance.as_flattened().iter().zip(b.covariance.as_flattened()) {
                // Scales and rotations are rounded to f32.
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
            assert_eq!(merged.rest(0), splats.columns().rest(row));
            let doubled = (2.0 * sigmoid(splats.columns().opacity_logits[row])).min(0.99);
            assert!((sigmoid(merged.opacity_logits[0]) - doubled).abs() < 1e-5);
        }
    }

    #[test]
    fn two_small_ones_apart_become_a_long_one_between_them() {
        let mut splats = crate::known_splats::splats_at(&[[0.0; 3], [2.0, 0.0, 0.0]]);
        splats.columns_mut().log_scales = vec![[-3.0; 3]; 2];
        splats.columns_mut().opacity_logits = vec![0.0; 2];
        let mut merged = SplatColumns::with_capacity(0, 1);
        push_merged(splats.columns(), &[0, 1], &mut merged);
        assert!((merged.means[0][0] - 1.0).abs() < 1e-6);
        let moments = Moments3::of(&merged, 0);
        assert!((moments.covariance[0][0] - (1.0 + (-6.0_f64).exp())).abs() < 1e-5);
        assert!((moments.covariance[1][1] - (-6.0_f64).exp()).abs() < 1e-6);
    }
}
