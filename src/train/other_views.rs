//! Neighbour views that see the same surface, for multi-view terms.

use rayon::prelude::*;

use crate::dataset::{Dataset, View};
use crate::math::Real;
use crate::math::linalg::{Vec3, add, dot, length, mul, scale, sub};
use crate::math::quantile::median;
use crate::math::random::{RandomStream, RandomUse};

/// Largest number of neighbour views (GGGS, 2601.17835).
const MAX_NEIGHBOURS: usize = 8;

/// Smallest and largest angle between the lines of sight, degrees. Below, depth errors are invisible to the
/// neighbour. Above, surfaces look different.
const ANGLE_DEGREES: [f64; 2] = [2.0, 30.0];

/// Smallest and largest distance of the cameras, relative to the depth of the surface.
const BASELINE: [f64; 2] = [0.01, 1.5];

/// Number of sampled points of the scene.
const SAMPLED_POINTS: usize = 20_000;

/// Neighbour views of each view.
#[derive(Clone, Debug)]
pub(crate) struct OtherViews {
    seed: u64,
    /// Neighbours by the index of the view, smallest angles first.
    of_view: Vec<Vec<usize>>,
}

impl OtherViews {
    /// Finds the neighbours among a scene's training views. A view looks at the point of its axis at the median depth
    /// of the scene's points that it sees. A view without such points has no neighbours.
    pub(crate) fn of(dataset: &Dataset, seed: u64) -> Self {
        let step = dataset.points.positions.len().div_ceil(SAMPLED_POINTS).max(1);
        let points: Vec<Vec3<f64>> =
            dataset.points.positions.iter().step_by(step).map(wide).collect();
        let trained = &dataset.train;
        let found: Vec<Vec<usize>> =
            trained.par_iter().map(|&view| nearest(dataset, &points, view)).collect();
        let mut of_view = vec![Vec::new(); dataset.views.len()];
        for (&view, others) in trained.iter().zip(found) {
            of_view[view] = others;
        }
        Self { seed, of_view }
    }

    /// True if no view has a neighbour.
    pub(crate) fn is_empty(&self) -> bool {
        self.of_view.iter().all(Vec::is_empty)
    }

    /// Draws the neighbour of a view in this iteration, or the next usable one.
    pub(crate) fn drawn(
        &self,
        iteration: u32,
        view: usize,
        is_usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let others = self.of_view.get(view).filter(|others| !others.is_empty())?;
        let first = self.stream(iteration).below(0, others.len());
        let (before, from_first) = others.split_at(first);
        from_first.iter().chain(before).copied().find(|&other| is_usable(other))
    }

    /// Returns the first sampled pixel of this iteration, 0 or 1 along each axis.
    pub(crate) fn first_px(&self, iteration: u32) -> [u32; 2] {
        [1, 2].map(|axis| u32::from(self.stream(iteration).below(axis, 2) == 1))
    }

    fn stream(&self, iteration: u32) -> RandomStream {
        RandomStream::new(self.seed, u64::from(iteration), RandomUse::OtherView)
    }
}

fn wide(point: &[f32; 3]) -> Vec3<f64> {
    point.map(f64::of_f32)
}

/// Returns the depth at which a view sees a point, if it does.
fn depth_of(view: &View, point: Vec3<f64>) -> Option<f64> {
    let [x, y, depth] = add(mul(&view.pose.rotation, point), view.pose.translation);
    let camera = &view.camera;
    let is_inside = |along: f64, axis: usize, side: u32| {
        let px = camera.focal_px[axis] * along / depth + camera.centre_px[axis];
        (0.0..=f64::from(side)).contains(&px)
    };
    let is_seen = depth > 0.0 && is_inside(x, 0, camera.width) && is_inside(y, 1, camera.height);
    is_seen.then_some(depth)
}

/// Finds the neighbours of a view.
fn nearest(dataset: &Dataset, points: &[Vec3<f64>], view: usize) -> Vec<usize> {
    let own = &dataset.views[view];
    let depth = median(points.iter().filter_map(|&point| depth_of(own, point)));
    if depth <= 0.0 {
        return Vec::new();
    }
    let centre = own.pose.centre_world();
    let looked_at = add(centre, scale(own.pose.rotation[2], depth));
    let angle_of = |&other: &usize| {
        let seen_by = &dataset.views[other];
        let other_centre = seen_by.pose.centre_world();
        let baseline = length(sub(other_centre, centre)) / depth;
        let [from, to] = [centre, other_centre].map(|centre| sub(centre, looked_at));
        let cosine = dot(from, to) / (length(from) * length(to));
        let angle = cosine.clamp(-1.0, 1.0).acos().to_degrees();
        let counts = other != view
            && (BASELINE[0]..=BASELINE[1]).contains(&baseline)
            && (ANGLE_DEGREES[0]..=ANGLE_DEGREES[1]).contains(&angle)
            && depth_of(seen_by, looked_at).is_some();
        counts.then_some((other, angle))
    };
    let mut found: Vec<(usize, f64)> = dataset.train.iter().filter_map(angle_of).collect();
    // The sort is stable: equal angles keep the order of names.
    found.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    found.truncate(MAX_NEIGHBOURS);
    found.into_iter().map(|(view, _)| view).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Frame, PointCloud, Pose};

    /// Returns cameras on a ring of this radius around the origin that look at it, at these angles in degrees.
    fn ring(radius: f64, degrees: &[f64]) -> Vec<View> {
        let view = |degrees: &f64| {
            let (sine, cosine) = degrees.to_radians().sin_cos();
            // x right, y down, z towards the origin.
            let rotation = [[-sine, 0.0, cosine], [0.0, -1.0, 0.0], [cosine, 0.0, sine]];
            let rotation = rotation.map(|row: Vec3<f64>| row.map(|value| -value));
            let camera =
                Camera { width: 40, height: 30, focal_px: [50.0; 2], centre_px: [20.0, 15.0] };
            let pose = Pose { rotation, translation: [0.0, 0.0, radius] };
            View { name: format!("{degrees}"), camera, pose }
        };
        degrees.iter().map(view).collect()
    }

    fn dataset(views: Vec<View>, points: Vec<[f32; 3]>) -> Dataset {
        let all = (0..views.len()).collect();
        let colors = vec![[0; 3]; points.len()];
        Dataset {
            root: "scene".into(),
            views,
            sources: Vec::new(),
            train: all,
            test: Vec::new(),
            points: PointCloud { positions: points, colors },
            pseudo: Vec::new(),
            random_half_side: None,
            near_share: 0.0,
            frame: Frame::SCENE,
            warnings: Vec::new(),
        }
    }

    /// Returns points around the origin, and one behind all cameras.
    fn cloud() -> Vec<[f32; 3]> {
        vec![
            [0.1, 0.0, 0.0],
            [0.0, 0.1, 0.1],
            [-0.1, -0.1, 0.0],
            [0.0, 0.0, -0.1],
            [90.0, 0.0, 0.0],
        ]
    }

    #[test]
    fn views_at_2_to_30_degrees_are_compared_the_nearest_first() {
        let degrees = [0.0, 1.0, 12.0, 25.0, 31.0, 5.0, 180.0, -8.0];
        let scene = dataset(ring(4.0, &degrees), cloud());
        let others = OtherViews::of(&scene, 1);
        let angles: Vec<f64> = others.of_view[0].iter().map(|&view| degrees[view]).collect();
        assert_eq!(angles, [5.0, -8.0, 12.0, 25.0]);
        // The opposite camera is no neighbour.
        assert!(others.of_view[6].is_empty() && !others.is_empty());
        // There are at most eight.
        let many: Vec<f64> = (0..20).map(|i| 2.5 * f64::from(i)).collect();
        assert_eq!(
            OtherViews::of(&dataset(ring(4.0, &many), cloud()), 1).of_view[0].len(),
            MAX_NEIGHBOURS
        );
    }

    #[test]
    fn views_that_are_not_trained_or_look_elsewhere_are_not_compared() {
        let mut scene = dataset(ring(4.0, &[0.0, 5.0, 10.0, 15.0]), cloud());
        scene.train = vec![0, 2, 3];
        // Turned by half a circle about its own centre, which stays.
        let pose = &mut scene.views[3].pose;
        pose.rotation =
            [pose.rotation[0].map(|x| -x), pose.rotation[1], pose.rotation[2].map(|x| -x)];
        pose.translation = [0.0, 0.0, -4.0];
        let others = OtherViews::of(&scene, 1);
        assert_eq!(others.of_view[0], [2]);
        assert!(others.of_view[1].is_empty(), "it is held out");
        // Without points it is unknown what a view looks at.
        let blind = dataset(ring(4.0, &[0.0, 5.0]), Vec::new());
        assert!(OtherViews::of(&blind, 1).is_empty());
    }

    #[test]
    fn neighbours_are_drawn_uniformly_and_reproducibly() {
        let others = OtherViews::of(&dataset(ring(4.0, &[0.0, 5.0, 10.0, 15.0]), cloud()), 3);
        let mut counts = [0; 4];
        let mut firsts = [0; 4];
        for iteration in 1..=900 {
            let drawn = others.drawn(iteration, 0, |_| true).unwrap();
            assert_eq!(others.drawn(iteration, 0, |_| true), Some(drawn));
            assert_ne!(others.drawn(iteration, 0, |other| other != drawn), Some(drawn));
            counts[drawn] += 1;
            let [x, y] = others.first_px(iteration);
            firsts[(2 * y + x) as usize] += 1;
        }
        // Standard deviations for 300 and 225 draws are 14 and 13.
        assert!(counts[0] == 0 && counts[1..].iter().all(|n| (230..370).contains(n)), "{counts:?}");
        assert!(firsts.iter().all(|n| (160..290).contains(n)), "{firsts:?}");
        assert_eq!(others.drawn(1, 0, |_| false), None);
        assert_eq!(others.drawn(1, 9, |_| true), None);
    }
}
