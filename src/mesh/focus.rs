//! Focus of the cameras, and the box that is meshed.

use splat_mesh::narrow::floor_usize;

use super::{ExtractionError, MeshOptions, WorldBox};
use crate::dataset::{Dataset, Frame, View};
use crate::math::linalg::{Mat3, Vec3, add, cross, dot, length, mul, mul_transposed, scale, sub};
use crate::model::Gaussians;

/// Opacity above which a Gaussian is part of a surface (Guédon and Lepetit 2024).
const OPAQUE: f32 = 0.5;
const MIN_GAUSSIANS: usize = 100;

/// Share of the opaque Gaussians inside the box along each axis.
const HELD_SHARE: f64 = 0.95;
const MARGIN: f64 = 1.1;

/// Point that the training cameras look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Focus {
    /// Point nearest to the optical axes in the least squares sense, world space; the mean of the cameras if all axes
    /// are parallel.
    pub centre: Vec3<f64>,
    /// Largest distance of a camera from the point, scene units.
    pub radius: f64,
    /// True if most cameras look towards the point.
    pub is_seen: bool,
}

impl Focus {
    /// Computes the focus of views. With the unit direction d and the centre c of each camera, the point x minimises
    /// Σ |(I - d dᵀ)(x - c)|².
    pub fn of<'a>(views: impl Iterator<Item = &'a View> + Clone) -> Self {
        let axes = views.map(|view| {
            let forward = mul_transposed(&view.pose.rotation, [0.0, 0.0, 1.0]);
            (view.pose.centre_world(), forward)
        });
        let count = axes.clone().count().max(1) as f64;
        let mut left: Mat3<f64> = [[0.0; 3]; 3];
        let (mut right, mut mean) = ([0.0; 3], [0.0; 3]);
        for (centre, d) in axes.clone() {
            let across: Mat3<f64> = std::array::from_fn(|i| {
                std::array::from_fn(|j| f64::from(u8::from(i == j)) - d[i] * d[j])
            });
            left = std::array::from_fn(|row| add(left[row], across[row]));
            right = add(right, mul(&across, centre));
            mean = add(mean, scale(centre, 1.0 / count));
        }
        let centre = solve(&left, right).unwrap_or(mean);
        let radius = axes.clone().map(|(c, _)| length(sub(c, centre))).fold(0.0, f64::max);
        let facing = axes.filter(|&(c, d)| dot(d, sub(centre, c)) > 0.0).count() as f64;
        Self { centre, radius, is_seen: 2.0 * facing > count }
    }
}

/// Solves A x = b by Cramer's rule; `None` if A is numerically singular.
fn solve(a: &Mat3<f64>, b: Vec3<f64>) -> Option<Vec3<f64>> {
    let [r0, r1, r2] = *a;
    let determinant = dot(r0, cross(r1, r2));
    let size = length(r0) * length(r1) * length(r2);
    if determinant.abs() <= 1e-9 * size || size == 0.0 {
        return None;
    }
    // The columns of the adjugate are the cross products of the rows.
    let columns = [cross(r1, r2), cross(r2, r0), cross(r0, r1)];
    let sum = (0..3).fold([0.0; 3], |sum, i| add(sum, scale(columns[i], b[i])));
    Some(scale(sum, 1.0 / determinant))
}

/// Returns the box that is meshed: the given one, or a cube that holds 95 % of the opaque Gaussians along each axis.
/// The cube is centred at the focus, or at the scene's origin without [`MeshOptions::center_bbox`]. If the cameras
/// surround the focus, the cube ends at their distance.
pub fn meshed_box(
    dataset: &Dataset,
    gaussians: &Gaussians,
    options: &MeshOptions,
) -> Result<WorldBox, ExtractionError> {
    let (centres, _) = gaussians.means.as_chunks::<3>();
    let opaque: Vec<Vec3<f64>> =
        opaque_rows(gaussians).into_iter().map(|row| centres[row].map(f64::from)).collect();
    let found = found(dataset, &opaque, options.center_bbox);
    let half = |given, missing| Err(ExtractionError::HalfBox { given, missing });
    let world_box = match (options.bbox_min, options.bbox_max) {
        (Some(low), Some(high)) => given(low.0, high.0)?.converted(&Frame::SCENE, &dataset.frame),
        (None, None) => found,
        (Some(_), None) => return half("bbox-min", "bbox-max"),
        (None, Some(_)) => return half("bbox-max", "bbox-min"),
    };
    let inside = opaque.iter().filter(|&&centre| world_box.holds(centre)).count();
    if inside >= MIN_GAUSSIANS {
        return Ok(world_box);
    }
    let all = gaussians.len();
    let advice = if options.bbox_min.is_some() && opaque.len() >= MIN_GAUSSIANS {
        let found = found.converted(&dataset.frame, &Frame::SCENE);
        format!("The box that is found by itself: {found}")
    } else {
        "Train the model for longer, or mesh another one".to_owned()
    };
    Err(ExtractionError::NoGaussians { found: inside, all, needed: MIN_GAUSSIANS, advice })
}

fn given(low: Vec3<f64>, high: Vec3<f64>) -> Result<WorldBox, ExtractionError> {
    for (at, axis) in ['x', 'y', 'z'].into_iter().enumerate() {
        if low[at] >= high[at] {
            return Err(ExtractionError::EmptyBox { axis, low: low[at], high: high[at] });
        }
    }
    Ok(WorldBox { low, high })
}

fn found(dataset: &Dataset, opaque: &[Vec3<f64>], is_centred: bool) -> WorldBox {
    let focus = Focus::of(dataset.train.iter().map(|&index| &dataset.views[index]));
    let origin = Frame::SCENE.to(&dataset.frame, [0.0; 3]);
    let centre = if is_centred { focus.centre } else { origin };
    let mut offsets: Vec<f64> = opaque
        .iter()
        .map(|&place| sub(place, centre).into_iter().map(f64::abs).fold(0.0, f64::max))
        .collect();
    let mut half_side = focus.radius;
    if !offsets.is_empty() {
        let at = floor_usize(HELD_SHARE * (offsets.len() - 1) as f64);
        let held = MARGIN * *offsets.select_nth_unstable_by(at, f64::total_cmp).1;
        half_side = if focus.is_seen { held.min(focus.radius) } else { held };
    }
    WorldBox::cube(centre, half_side)
}

pub(super) fn opaque_rows(gaussians: &Gaussians) -> Vec<usize> {
    // The sigmoid of a logit is above one half if the logit is above 0.
    let threshold = (OPAQUE / (1.0 - OPAQUE)).ln();
    let logits = gaussians.opacity_logits.iter().enumerate();
    logits.filter(|&(_, &logit)| logit > threshold).map(|(row, _)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Pose};

    /// Returns a view from a point along a direction.
    fn view(centre: Vec3<f64>, forward: Vec3<f64>) -> View {
        let z = crate::math::linalg::normalize(forward);
        let x = crate::math::linalg::normalize(cross([0.3, 1.0, 0.2], z));
        let rotation = [x, cross(z, x), z];
        let translation = scale(mul(&rotation, centre), -1.0);
        let camera = Camera { width: 8, height: 8, focal_px: [8.0; 2], centre_px: [4.0; 2] };
        View { name: "a.png".to_owned(), camera, pose: Pose { rotation, translation } }
    }

    #[test]
    fn the_focus_is_the_point_in_view_or_the_mean_of_parallel_cameras() {
        let place = [1.0, -2.0, 0.5];
        let ring = [[4.0, -2.0, 0.5], [1.0, 2.0, 0.5], [0.0, -2.0, 3.0], [1.0, -3.0, -1.0]];
        let views = ring.map(|centre| view(centre, sub(place, centre)));
        let focus = Focus::of(views.iter());
        // Sums of a few numbers of size one.
        assert!(length(sub(focus.centre, place)) < 1e-12, "{focus:?}");
        assert!((focus.radius - 4.0).abs() < 1e-12 && focus.is_seen, "{focus:?}");
        let away = ring.map(|centre| view(centre, sub(centre, place)));
        assert!(!Focus::of(away.iter()).is_seen);
        let views = [[0.0; 3], [2.0, 0.0, 0.0]].map(|centre| view(centre, [0.0, 0.0, 1.0]));
        let centre = Focus::of(views.iter()).centre;
        // Sums of two numbers of size one.
        assert!(length(sub(centre, [1.0, 0.0, 0.0])) < 1e-12, "{centre:?}");
    }
}
