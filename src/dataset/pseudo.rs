//! Cameras of pseudo-views: between training cameras, where the models of an ensemble are rendered (`--ensemble`).

use std::ops::RangeInclusive;
use std::path::Path;

use super::{Dataset, ImageSource, Pose, View, evenly_spread};
use crate::math::linalg::{
    Vec3, add, dot, length, mul, quaternion, rotation, scale, sub, transpose,
};
use crate::math::quantile::median;
use crate::math::random::{RandomStream, RandomUse};

/// Folder of the renders, below the model folder.
pub const PSEUDO_VIEWS: &str = "pseudo_views";

/// Numbers of training views to which pseudo-views are added. More photographs show a scene from nearly everywhere, and
/// renders would add only their errors.
pub const PSEUDO_VIEWS_OF: RangeInclusive<usize> = 2..=200;

/// Number of pseudo-views for each training view.
const PER_VIEW: usize = 2;

/// Largest number of pseudo-views.
const MOST: usize = 300;

/// Number of nearest training cameras, one of which a pseudo-view lies next to.
const NEIGHBOURS: usize = 4;

/// Range of positions between two cameras, as shares of their distance. Closer to a camera its photograph shows more.
const SHARES: [f64; 2] = [0.25, 0.75];

impl Dataset {
    /// Returns the number of pseudo-views of a run with an ensemble and this many training views.
    pub fn pseudo_views_of(photographs: usize) -> usize {
        if PSEUDO_VIEWS_OF.contains(&photographs) { (PER_VIEW * photographs).min(MOST) } else { 0 }
    }

    /// Adds pseudo-views whose renders lie below the model folder. They are not drawn yet.
    pub(super) fn add_pseudo_views(&mut self, model_path: &Path, seed: u64) {
        let folder = model_path.join(PSEUDO_VIEWS);
        let stream = RandomStream::new(seed, 0, RandomUse::PseudoView);
        let count = self.train.len();
        let wanted = Self::pseudo_views_of(count);
        let bases: Vec<usize> = match wanted > count {
            true => (0..wanted).map(|at| at % count).collect(),
            false => evenly_spread(wanted, count).collect(),
        };
        for (number, base) in (0_u64..).zip(bases) {
            let name = format!("{number:05}.png");
            let view = self.between(self.train[base], stream, number);
            let size = [view.camera.width, view.camera.height];
            self.pseudo.push(self.views.len());
            self.sources.push(ImageSource::plain(folder.join(&name), size));
            self.views.push(View { name: format!("{PSEUDO_VIEWS}/{name}"), ..view });
        }
    }

    /// Returns the scene without its pseudo-views.
    pub fn photographs(&self) -> Self {
        let mut dataset = self.clone();
        let count = dataset.views.len() - dataset.pseudo.len();
        dataset.views.truncate(count);
        dataset.sources.truncate(count);
        dataset.pseudo.clear();
        dataset
    }

    /// Returns the views that a run trains on: training views, then pseudo-views.
    pub fn views_to_train(&self) -> Vec<usize> {
        [&self.train[..], &self.pseudo].concat()
    }

    /// Returns a view with this view's camera between this view and one of its neighbours.
    fn between(&self, base: usize, stream: RandomStream, number: u64) -> View {
        let view = &self.views[base];
        let neighbours = self.neighbours(&view.pose, base);
        let other = neighbours[stream.below(2 * number, neighbours.len())];
        let [least, most] = SHARES;
        let share = least + (most - least) * stream.uniform(2 * number + 1);
        View { pose: between(&view.pose, &self.views[other].pose, share), ..view.clone() }
    }

    /// Returns the nearest training views other than `base`. Distances count in median distances of the cameras from
    /// their mean, and 1 - cos of the angle between the viewing directions is added.
    fn neighbours(&self, pose: &Pose, base: usize) -> Vec<usize> {
        let mean = self.centre();
        let unit = median(self.train_centres().map(|centre| length(sub(centre, mean))));
        let unit = if unit > 0.0 { unit } else { 1.0 };
        let distance = |other: usize| {
            let other = &self.views[other].pose;
            length(sub(other.centre_world(), pose.centre_world())) / unit
                - dot(other.rotation[2], pose.rotation[2])
        };
        let others = self.train.iter().copied().filter(|&other| other != base);
        let mut others: Vec<(f64, usize)> = others.map(|other| (distance(other), other)).collect();
        others.sort_by(|one, other| one.0.total_cmp(&other.0));
        others.into_iter().take(NEIGHBOURS).map(|(_, other)| other).collect()
    }
}

/// Returns the pose at a share of the distance between two: centres on a line, rotations by the normalised mean of the
/// quaternions.
fn between(from: &Pose, to: &Pose, share: f64) -> Pose {
    let mix = |from: Vec3<f64>, to: Vec3<f64>| add(scale(from, 1.0 - share), scale(to, share));
    let centre = mix(from.centre_world(), to.centre_world());
    let [one, other] = [from, to].map(|pose| quaternion(transpose(&pose.rotation)));
    // Both signs of a quaternion are the same rotation. The mean needs those of the shorter arc.
    let cosine: f64 = one.iter().zip(other).map(|(a, b)| a * b).sum();
    let sign = if cosine < 0.0 { -share } else { share };
    let rotation = rotation([0, 1, 2, 3].map(|at| one[at] * (1.0 - share) + sign * other[at]));
    Pose { rotation, translation: scale(mul(&rotation, centre), -1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Frame, PointCloud};

    /// Returns a camera that is turned about y and stands at `x`.
    fn view(x: f64, turn: f64) -> View {
        let camera = Camera { width: 8, height: 6, focal_px: [9.0; 2], centre_px: [4.0, 3.0] };
        let (sin, cos) = turn.sin_cos();
        let rotation = [[cos, 0.0, -sin], [0.0, 1.0, 0.0], [sin, 0.0, cos]];
        let translation = scale(mul(&rotation, [x, 0.0, 0.0]), -1.0);
        View { name: format!("{x}"), camera, pose: Pose { rotation, translation } }
    }

    fn scene(views: Vec<View>) -> Dataset {
        Dataset {
            root: "scene".into(),
            frame: Frame::SCENE,
            sources: vec![ImageSource::default(); views.len()],
            train: (0..views.len()).collect(),
            views,
            test: Vec::new(),
            pseudo: Vec::new(),
            points: PointCloud::default(),
            random_half_side: None,
            near_share: 0.0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_pseudo_view_lies_between_neighbours_and_looks_between_their_directions() {
        let mut dataset =
            scene((0..9).map(|at| view(f64::from(at), 0.1 * f64::from(at))).collect());
        dataset.add_pseudo_views(Path::new("model"), 3);
        assert_eq!((dataset.pseudo.len(), dataset.views.len(), dataset.train.len()), (18, 27, 9));
        for &index in &dataset.pseudo {
            let pose = &dataset.views[index].pose;
            let [x, y, z] = pose.centre_world();
            let forward = pose.rotation[2];
            // Cameras at x look at 0.1 x. Rounding, and 1e-3 for the mean of quaternions up to 0.4 apart, which is
            // no rotation at an even pace.
            let turn = forward[0].atan2(forward[2]);
            assert!((turn - 0.1 * x).abs() < 1e-3, "{x}: {turn}");
            assert!((0.25..=7.75).contains(&x) && y.abs() < 1e-12 && z.abs() < 1e-12, "{x}");
        }
        let first = &dataset.views[9];
        assert_eq!(first.name, "pseudo_views/00000.png");
        assert_eq!(dataset.sources[9].path, Path::new("model/pseudo_views/00000.png"));
        let plain = dataset.photographs();
        assert_eq!((plain.views.len(), plain.sources.len(), plain.pseudo.len()), (9, 9, 0));
        let mut again = plain.clone();
        again.add_pseudo_views(Path::new("model"), 3);
        assert_eq!(again.views, dataset.views);
        let mut other = plain;
        other.add_pseudo_views(Path::new("model"), 4);
        assert_ne!(other.views, dataset.views);
    }

    #[test]
    fn views_get_two_each_up_to_three_hundred_and_one_or_many_get_none() {
        for (views, expected) in [(1, 0), (2, 4), (150, 300), (151, 300), (200, 300), (201, 0)] {
            let mut dataset = scene((0..views).map(|at| view(f64::from(at), 0.0)).collect());
            dataset.add_pseudo_views(Path::new("model"), 0);
            assert_eq!(dataset.pseudo.len(), expected, "{views}");
        }
    }
}
