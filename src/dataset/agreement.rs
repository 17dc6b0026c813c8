//! Agreement of the training views: how many of them show the same points, and how much their exposures differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use splat_mesh::narrow::floor_usize;

use super::{Dataset, Image, ImageLoader, ImageSource, View, decode, evenly_spread};
use crate::math::linalg::{Vec3, dot, length, sub};
use crate::math::quantile::median;

/// Smallest cosine of the angle between the optical axes of neighbours.
const SIMILAR_DIRECTIONS: f64 = 0.7;

/// Maximum number of photographs that are compared with a neighbour.
const SAMPLED_PAIRS: usize = 16;

/// Minimum number of points that two photographs must share. Few points are dominated by hidden ones.
const SHARED_POINTS: usize = 20;

/// Half width of the square whose mean is a point's brightness, px.
const REACH_PX: usize = 2;

/// Values between which a photograph records brightness, steps of 255.
const RECORDED: std::ops::RangeInclusive<u8> = 8..=250;

/// Exponent from pixel values to linear light.
const GAMMA: f32 = 2.2;

/// Distribution of the training views around the points of the sparse cloud. What hides a point is not considered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Median number of training views that contain a point.
    pub views: f64,
    /// Median over the points of the standard deviation of the logarithm of their distances to these views. It is
    /// small if the cameras surround the scene, and large if they walk through it.
    pub distance_spread: f64,
}

impl Coverage {
    /// Measures the training views of a scene. `None` if no view contains a point.
    pub fn of(dataset: &Dataset) -> Option<Self> {
        let points = dataset.sampled_points();
        let of_point = |&point: &Vec3<f64>| {
            let views = dataset.train.iter().map(|&view| &dataset.views[view]);
            let views = views.filter(|view| view.sees(point));
            let distance = |view: &View| length(sub(point, view.pose.centre_world())).ln();
            let distances: Vec<f64> = views.map(distance).collect();
            (!distances.is_empty()).then(|| (distances.len() as f64, deviation(&distances)))
        };
        let seen: Vec<(f64, f64)> = points.par_iter().filter_map(of_point).collect();
        (!seen.is_empty()).then(|| Self {
            views: median(seen.iter().map(|&(views, _)| views)),
            distance_spread: median(seen.iter().map(|&(_, spread)| spread)),
        })
    }
}

/// Returns the median difference in exposure of training views and their neighbours, stops.
///
/// The difference of two photographs is the median over points in both of them of log2 of the ratio of their
/// brightness, as Kim and Pollefeys (2008) estimate exposure from tracked points. Neighbours hide nearly the same
/// points. `None` if no neighbours share enough points. Unreadable photographs are skipped, because training reports
/// them. `images`: loader of the scene, which decodes ahead. Without it, one photograph is decoded at a time.
pub fn exposure_step(dataset: &Dataset, images: Option<&ImageLoader>) -> Option<f64> {
    let points = dataset.sampled_points();
    let first = evenly_spread(SAMPLED_PAIRS, dataset.train.len()).map(|at| dataset.train[at]);
    let pairs: Vec<[usize; 2]> =
        first.filter_map(|view| Some([view, neighbour(dataset, view)?])).collect();
    let compared: BTreeSet<usize> = pairs.iter().flatten().copied().collect();
    if let Some(images) = images {
        images.schedule_decoding(&compared.iter().copied().collect::<Vec<_>>());
    }
    let read = |view: usize| match images {
        Some(images) => images.fetch(view).ok(),
        None => {
            let source = &dataset.sources[view];
            let colors = ImageSource { depth: None, normals: None, ..source.clone() };
            decode(&colors).ok().map(Arc::new)
        }
    };
    let brightness_in =
        |view| Some((view, brightness(&*read(view)?, &dataset.views[view], &points)));
    let known: BTreeMap<usize, Vec<Option<f64>>> =
        compared.into_iter().filter_map(brightness_in).collect();
    let step = |[one, other]: [usize; 2]| {
        let both = known.get(&one)?.iter().zip(known.get(&other)?);
        let ratios: Vec<f64> = both.filter_map(|(one, other)| Some((*one)? - (*other)?)).collect();
        (ratios.len() >= SHARED_POINTS).then(|| median(ratios.into_iter()).abs())
    };
    let steps: Vec<f64> = pairs.into_iter().filter_map(step).collect();
    (!steps.is_empty()).then(|| median(steps.into_iter()))
}

/// Returns the nearest training view that looks in a similar direction.
fn neighbour(dataset: &Dataset, view: usize) -> Option<usize> {
    let pose = |view: usize| &dataset.views[view].pose;
    let distance =
        |other: usize| length(sub(pose(other).centre_world(), pose(view).centre_world()));
    let others = dataset.train.iter().copied().filter(|&other| {
        other != view && dot(pose(other).rotation[2], pose(view).rotation[2]) > SIMILAR_DIRECTIONS
    });
    others.min_by(|&one, &other| distance(one).total_cmp(&distance(other)))
}

fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Returns log2 of the linear brightness around each point. `None` where the photograph does not record it.
fn brightness(image: &Image, view: &View, points: &[Vec3<f64>]) -> Vec<Option<f64>> {
    let to_linear = linear_light();
    let of_point = |&point: &Vec3<f64>| brightness_at(image, view.pixel_of(point)?, &to_linear);
    points.iter().map(of_point).collect()
}

/// Returns the linear light of each pixel value.
fn linear_light() -> Vec<f32> {
    (0..=u8::MAX).map(|value| (f32::from(value) / 255.0).powf(GAMMA)).collect()
}

fn brightness_at(image: &Image, px: [f64; 2], to_linear: &[f32]) -> Option<f64> {
    let (width, height) = (image.width as usize, image.height as usize);
    let [x, y] = px.map(floor_usize);
    let fits = |at: usize, side: usize| at >= REACH_PX && at + REACH_PX < side;
    if !fits(x, width) || !fits(y, height) {
        return None;
    }
    let mut sum = 0.0;
    for row in y - REACH_PX..=y + REACH_PX {
        let pixels = row * width + x - REACH_PX..row * width + x + REACH_PX + 1;
        if image.mask.as_ref().is_some_and(|mask| mask[pixels.clone()].contains(&0)) {
            return None;
        }
        for value in &image.rgb[3 * pixels.start..3 * pixels.end] {
            if !RECORDED.contains(value) {
                return None;
            }
            sum += f64::from(to_linear[usize::from(*value)]);
        }
    }
    // The factor of the mean cancels in the ratio of two photographs.
    Some(sum.log2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Frame, PointCloud, Pose};

    /// Returns a scene whose cameras look along z from these places.
    fn scene(centres: &[Vec3<f64>], points: Vec<[f32; 3]>) -> Dataset {
        let view = |centre: &Vec3<f64>| View {
            name: String::new(),
            camera: Camera { width: 40, height: 30, focal_px: [50.0; 2], centre_px: [20.0, 15.0] },
            pose: Pose {
                rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                translation: centre.map(|value| -value),
            },
        };
        Dataset {
            root: "scene".into(),
            views: centres.iter().map(view).collect(),
            sources: Vec::new(),
            train: (0..centres.len()).collect(),
            test: Vec::new(),
            points: PointCloud { colors: vec![[0; 3]; points.len()], positions: points },
            pseudo: Vec::new(),
            random_half_side: None,
            near_share: 0.0,
            frame: Frame::SCENE,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn points_are_seen_from_similar_distances_unless_cameras_walk_towards_them() {
        let point = vec![[0.0, 0.0, 8.0]];
        let sideways = [[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]];
        let found = Coverage::of(&scene(&sideways, point.clone())).unwrap();
        assert_eq!(found.views, 3.0);
        // Two distances are the root of 65, one is 8.
        let step = 0.5 * (65.0_f64 / 64.0).ln();
        assert!((found.distance_spread - step * 2_f64.sqrt() / 3.0).abs() < 1e-12);
        let forwards = [[0.0, 0.0, 0.0], [0.0, 0.0, 4.0], [0.0, 0.0, 6.0], [0.0, 0.0, 9.0]];
        let found = Coverage::of(&scene(&forwards, point)).unwrap();
        assert_eq!(found.views, 3.0, "the last camera is past the point");
        // Distances of 8, 4 and 2: logarithms at equal intervals of ln 2.
        assert!((found.distance_spread - 2_f64.ln() * (2.0 / 3.0_f64).sqrt()).abs() < 1e-12);
        assert_eq!(Coverage::of(&scene(&forwards, vec![[0.0, 0.0, -1.0]])), None);
    }

    #[test]
    fn the_neighbour_is_the_nearest_view_that_does_not_look_away() {
        let mut scene =
            scene(&[[0.0; 3], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], Vec::new());
        scene.views[2].pose.rotation = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]];
        scene.views[2].pose.translation = [1.0, 0.0, 0.0];
        assert_eq!(neighbour(&scene, 0), Some(3));
        assert_eq!(neighbour(&scene, 2), None);
        scene.train = vec![0, 1];
        assert_eq!(neighbour(&scene, 0), Some(1), "held-out views are not compared");
    }

    #[test]
    fn brightness_is_that_of_linear_light_where_a_photograph_records_it() {
        let to_linear = linear_light();
        let flat = |value: u8| Image {
            width: 5,
            height: 5,
            rgb: vec![value; 75],
            mask: None,
            depth: None,
            normals: None,
        };
        let at = |image: &Image, px| brightness_at(image, px, &to_linear);
        let middle = [2.5; 2];
        let stops = at(&flat(200), middle).unwrap() - at(&flat(100), middle).unwrap();
        assert!((stops - f64::from(GAMMA)).abs() < 1e-6, "{stops}");
        assert_eq!(at(&flat(200), [1.9, 2.5]), None, "the square leaves the image");
        assert_eq!(at(&flat(251), middle), None, "too bright");
        assert_eq!(at(&flat(7), middle), None, "too dark");
        let mut masked = flat(100);
        masked.mask = Some((0..25).map(|at| if at == 24 { 0 } else { 255 }).collect());
        assert_eq!(at(&masked, middle), None);
    }
}
