//! Initial Gaussians of a training.

use std::num::NonZeroUsize;

use kiddo::SquaredEuclidean;
use rayon::prelude::*;

use super::{FLAT_LOG_SCALE, Gaussians, sh_rest_count};
use crate::config::{OptimizeOptions, PrimitiveName};
use crate::dataset::PointCloud;
use crate::math::morton::Cube;
use crate::math::random::{RandomStream, RandomUse};
use crate::math::sh;
use crate::math::{Real, inverse_sigmoid};

/// Number of neighbours whose distance sets the scale.
const NEIGHBOURS: usize = 3;

/// Smallest mean squared distance, world units². Points that coincide get this size.
const MIN_SQUARED_DISTANCE: f32 = 1e-7;

/// Creates one isotropic Gaussian for each point, as 3D Gaussian splatting does. The scale is `init_scale` times the
/// root of the mean squared distance to the 3 nearest other points. The opacity is `init_opacity`, the colour the
/// point's.
///
/// A surfel has the scale along two axes and is flat.
///
/// Quaternions are drawn uniformly from [0, 1)⁴ as in gsplat, so that Gaussians do not all stretch along the world's
/// axes.
pub fn from_points(points: &PointCloud, options: &OptimizeOptions, seed: u64) -> Gaussians {
    let stream = RandomStream::new(seed, 0, RandomUse::Orient);
    let count = points.positions.len();
    let sh_degree = options.sh_degree;
    let log_share = f32::of(options.init_scale.ln());
    let mut gaussians = Gaussians::zeros(sh_degree, count);
    gaussians.means = points.positions.as_flattened().to_vec();
    gaussians.log_scales = mean_squared_distances(&points.positions)
        .into_iter()
        .flat_map(|squared| {
            let scale = squared.max(MIN_SQUARED_DISTANCE).sqrt().ln() + log_share;
            let third = match options.primitive {
                PrimitiveName::Gaussians | PrimitiveName::Triangles => scale,
                PrimitiveName::Surfels => FLAT_LOG_SCALE,
            };
            [scale, scale, third]
        })
        .collect();
    gaussians.quats =
        (0..count as u64 * 4).into_par_iter().map(|i| stream.uniform(i).to_f32()).collect();
    gaussians.opacity_logits = vec![inverse_sigmoid(f32::of(options.init_opacity)); count];
    gaussians.sh_dc = points
        .colors
        .iter()
        .flatten()
        .map(|&value| (f32::from(value) / 255.0 - 0.5) / sh::C0.to_f32())
        .collect();
    gaussians.sh_rest = vec![0.0; count * sh_rest_count(sh_degree) * 3];
    gaussians
}

/// Draws points and colours uniformly from a cube, for scenes without points.
pub fn random_points(count: u32, centre: [f64; 3], half_side: f64, seed: u64) -> PointCloud {
    let stream = RandomStream::new(seed, 0, RandomUse::Initialise);
    let draw = |i: u32, k: u64| stream.uniform(u64::from(i) * 6 + k);
    let along = |i: u32, axis: usize| centre[axis] + (2.0 * draw(i, axis as u64) - 1.0) * half_side;
    PointCloud {
        positions: (0..count).map(|i| [0, 1, 2].map(|axis| along(i, axis).to_f32())).collect(),
        colors: (0..count)
            .map(|i| [3, 4, 5].map(|k| stream.bits(u64::from(i) * 6 + k).to_le_bytes()[7]))
            .collect(),
    }
}

/// Returns at most `cap` of the points, chosen evenly over their order.
pub fn thinned(points: &PointCloud, cap: usize) -> PointCloud {
    let count = points.positions.len();
    if count <= cap {
        return points.clone();
    }
    let kept = (0..count).filter(|i| i * cap / count != (i + 1) * cap / count);
    PointCloud {
        positions: kept.clone().map(|i| points.positions[i]).collect(),
        colors: kept.map(|i| points.colors[i]).collect(),
    }
}

/// Returns the mean of the squared distances to the 3 nearest other points, world units².
///
/// With fewer than 4 points the mean is over all others; a single point gets 1.
fn mean_squared_distances(positions: &[[f32; 3]]) -> Vec<f32> {
    let Some(wanted) = NonZeroUsize::new((NEIGHBOURS + 1).min(positions.len())) else {
        return Vec::new();
    };
    if wanted.get() == 1 {
        return vec![1.0];
    }
    // The 32-bit index runs out at 4 billion points, more than any machine holds; then the scale of a single point
    // serves.
    let Ok(tree) = kiddo::ImmutableKdTree::<f32, 3>::new_from_slice(positions) else {
        return vec![1.0; positions.len()];
    };
    let order = curve_order(positions);
    let found: Vec<f32> = order
        .par_iter()
        .map(|&i| {
            let query = tree.query(&positions[i as usize]);
            // The point itself, or one that coincides with it, comes first at distance 0.
            let near = query.nearest_n::<SquaredEuclidean<f32>>(wanted).execute();
            near.iter().skip(1).map(|n| n.distance).sum::<f32>() / (wanted.get() - 1) as f32
        })
        .collect();
    let mut means = vec![0.0; positions.len()];
    for (i, mean) in order.into_iter().zip(found) {
        means[i as usize] = mean;
    }
    means
}

/// Sorts the points so that most follow their neighbours. A query then finds most of the tree's nodes in the cache.
fn curve_order(positions: &[[f32; 3]]) -> Vec<u32> {
    let mean = |axis: usize, of: fn(f64) -> f64, from: f64| {
        let values = positions.iter().map(|point| of(f64::from(point[axis]) - from));
        values.sum::<f64>() / positions.len() as f64
    };
    let centre = [0, 1, 2].map(|axis| mean(axis, |value| value, 0.0));
    let deviations = [0, 1, 2].map(|axis| mean(axis, f64::abs, centre[axis]).to_f32());
    let half_side = deviations.into_iter().fold(f32::MIN_POSITIVE, f32::max);
    let cube = Cube { centre: centre.map(Real::to_f32), half_side };
    let mut order: Vec<(u32, u32)> =
        (0..).zip(positions).map(|(i, &point)| (cube.key(point), i)).collect();
    order.par_sort_unstable();
    order.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(sh_degree: u32) -> OptimizeOptions {
        OptimizeOptions { sh_degree, ..OptimizeOptions::default() }
    }

    fn cloud(positions: Vec<[f32; 3]>) -> PointCloud {
        let colors = vec![[255, 0, 51]; positions.len()];
        PointCloud { positions, colors }
    }

    #[test]
    fn the_scale_is_the_rms_distance_to_the_three_nearest_points() {
        let points = cloud(vec![
            [0.0, 0.0, 0.0],
            [1.0, 0.0, 0.0],
            [0.0, 2.0, 0.0],
            [0.0, 0.0, 3.0],
            [50.0, 50.0, 50.0],
        ]);
        let gaussians = from_points(&points, &options(3), 5);
        let expected = ((1.0_f32 + 4.0 + 9.0) / 3.0).sqrt().ln();
        // The tree adds the squares in another order: a few units in the last place.
        assert!((gaussians.log_scales[0] - expected).abs() < 1e-6);
        assert_eq!(gaussians.log_scales[0], gaussians.log_scales[2]);
        assert_eq!(gaussians.sh_rest.len(), 5 * 45);
        let red = 0.5 + gaussians.sh_dc[0] * sh::C0.to_f32();
        assert!((red - 1.0).abs() < 1e-6);
    }

    #[test]
    fn each_point_gets_its_own_scale() {
        let stream = RandomStream::new(7, 0, RandomUse::Initialise);
        // Ever farther apart, unsorted along the curve.
        let coordinate =
            |i: u64, axis: u64| (stream.uniform(3 * i + axis) * (1 + i) as f64).to_f32();
        let positions: Vec<[f32; 3]> =
            (0..300).map(|i| [0, 1, 2].map(|axis| coordinate(i, axis))).collect();
        let squared = |a: [f32; 3], b: [f32; 3]| -> f32 {
            a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
        };
        for (&own, found) in positions.iter().zip(mean_squared_distances(&positions)) {
            let mut all: Vec<f32> = positions.iter().map(|&other| squared(own, other)).collect();
            all.sort_by(f32::total_cmp);
            let expected = all[1..=NEIGHBOURS].iter().sum::<f32>() / NEIGHBOURS as f32;
            assert!((found - expected).abs() <= 1e-5 * expected, "{own:?}: {found}, {expected}");
        }
    }

    #[test]
    fn the_curve_passes_each_point_once() {
        let odd = [f32::NAN, f32::INFINITY, -3e38, 0.0, 3e38];
        let odd = odd.map(|x| [x, 1.0, -x]);
        for points in [&odd[3..4], &[[0.5; 3]; 20], &odd] {
            let mut order = curve_order(points);
            order.sort_unstable();
            let numbers = (0..).take(points.len());
            assert!(order.into_iter().eq(numbers), "{points:?}");
        }
        // Two clusters with alternating points: one precedes the other as a whole.
        let positions: Vec<[f32; 3]> =
            (0..40).map(|i| [if i % 2 == 0 { -5.0 } else { 5.0 }; 3]).collect();
        let order = curve_order(&positions);
        assert!(order[..20].iter().all(|i| i % 2 == order[0] % 2), "{order:?}");
    }

    #[test]
    fn points_that_coincide_get_the_smallest_size_and_a_lone_point_gets_one() {
        let same = from_points(&cloud(vec![[1.0, 2.0, 3.0]; 200]), &options(0), 5);
        assert!(same.log_scales.iter().all(|s| (s - 1e-7_f32.sqrt().ln()).abs() < 1e-6));
        let alone = from_points(&cloud(vec![[1.0, 2.0, 3.0]]), &options(0), 5);
        assert_eq!(alone.log_scales, vec![0.0; 3]);
        assert!(from_points(&cloud(Vec::new()), &options(0), 5).is_empty());
    }

    #[test]
    fn opacity_and_scale_follow_the_options() {
        let options = OptimizeOptions { init_opacity: 0.5, init_scale: 0.1, ..options(0) };
        let start = from_points(&cloud(vec![[0.0; 3], [0.0, 0.0, 2.0]]), &options, 5);
        assert_eq!(start.opacity_logits, [0.0; 2]);
        // Rounding of two logarithms.
        assert!(start.log_scales.iter().all(|s| (s.exp() - 0.2).abs() < 1e-6), "{start:?}");
    }

    #[test]
    fn surfels_are_the_same_but_flat() {
        let surfels = OptimizeOptions { primitive: PrimitiveName::Surfels, ..options(1) };
        let points = cloud(vec![[0.0; 3], [0.0, 0.0, 2.0], [1.0, 0.0, 0.0]]);
        let mut round = from_points(&points, &options(1), 5);
        round.log_scales.iter_mut().skip(2).step_by(3).for_each(|third| *third = FLAT_LOG_SCALE);
        assert_eq!(from_points(&points, &surfels, 5), round);
    }

    #[test]
    fn random_points_fill_their_cube_and_depend_on_the_seed() {
        let points = random_points(1000, [1.0, 2.0, 3.0], 0.5, 7);
        assert!(points.positions.iter().all(|p| (p[0] - 1.0).abs() <= 0.5 && p[2] >= 2.5));
        assert!(points.positions.iter().any(|p| p[1] < 1.6));
        assert!(points.positions.iter().any(|p| p[1] > 2.4));
        assert_eq!(points, random_points(1000, [1.0, 2.0, 3.0], 0.5, 7));
        assert_ne!(points, random_points(1000, [1.0, 2.0, 3.0], 0.5, 8));
    }
}
