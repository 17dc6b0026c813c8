//! Distances of a model of a synthetic scene from the scene's true surfaces.

use super::prelude::*;
use super::surface::Solid;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;
use serde_json::Value;
use splat::backend::TrainDevice;
use splat::backend::cpu::Cpu;
use splat::config::SceneOptions;
use splat::dataset::{Dataset, View};
use splat::export::read_ply;
use splat::math::linalg::{Vec3, add, dot, length, mul_transposed, normalize, scale, sub};
use splat::math::quantile::median;
use splat::math::random::{RandomStream, RandomUse};
use splat::model::Gaussians;
use splat::synth::Truth;

/// The density at which a surface is taken to be (SuGaR, Guédon and Lepetit 2024, section 4.2).
const LEVEL: f64 = 0.3;

/// Gaussians that make up the density around a drawn surface.
const NEIGHBOURS: usize = 16;

/// Opacity above which a pixel shows a surface, and a Gaussian is part of one.
const OPAQUE: f64 = 0.5;

/// Largest scales from the true surface within which a Gaussian is asked which way it faces.
const REACH: f64 = 3.0;

/// Samples of a Gaussian's density along a ray, in standard deviations from its peak.
const STATIONS: [f64; 13] = [-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0];

/// As many views apart are those that are tested, where nothing else is asked for.
pub const TEST_EVERY: u32 = 8;

/// Halvings of a step in which the density reaches the level.
const HALVINGS: usize = 40;

/// Figures of a model against the true surfaces.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Gaussians of the model.
    pub gaussians: usize,
    /// Rays on which the model shows a surface.
    pub rays: usize,
    /// Number of rays on which its density reaches the level.
    pub points: usize,
    /// Median distance of where that is to the true surface, world units.
    pub median_distance: f64,
    /// Gaussians that were asked which way they face.
    pub facing: usize,
    /// Mean angle between their shortest axis and the true normal, degrees. Axes drawn by chance have
    /// a mean of 57.3, one radian.
    pub mean_angle_deg: f64,
}

/// A model of a run beside what it is measured by.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Name of the model in a table.
    pub name: String,
    /// Its finished iterations.
    pub iteration: u32,
    /// Mean over the test views, dB.
    pub psnr: f64,
    pub geometry: Geometry,
}

impl Measurement {
    /// Its points are nearer to the surface and its axes nearer to the normal than another's by these
    /// factors, for at most so many dB; and it shows as much.
    pub fn assert_better_than(&self, other: &Self, (nearer, straighter, dearest): (f64, f64, f64)) {
        let (now, then) = (&self.geometry, &other.geometry);
        let both = format!("{other:?}\n{self:?}");
        assert!(now.median_distance * nearer <= then.median_distance, "distance:\n{both}");
        assert!(now.mean_angle_deg * straighter <= then.mean_angle_deg, "angle:\n{both}");
        assert!(self.psnr > other.psnr - dearest, "PSNR:\n{both}");
        assert!(now.points * 10 > then.points * 9, "points:\n{both}");
    }
}

/// A model that a run of the program saved, and tested, after so many iterations, measured by so many
/// rays; the scene is a synthetic one of this seed.
pub fn measured(
    (model, iteration): (&Path, u32),
    (scene, seed): (&Path, u64),
    rays: usize,
) -> Measurement {
    let ply = model.join(format!("point_cloud/iteration_{iteration}/point_cloud.ply"));
    let gaussians = read_ply(&ply).unwrap();
    let surfaces = (&Truth::new(seed), &training_views(scene, TEST_EVERY)[..]);
    let geometry = measure(&mut Cpu::<f32>::new(), &gaussians, surfaces, rays);
    let results = fs::read_to_string(model.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let psnr = results[format!("ours_{iteration}")]["PSNR"].as_f64().unwrap();
    let name = model.file_name().unwrap().to_string_lossy().into_owned();
    Measurement { name, iteration, psnr, geometry }
}

/// The training views of a scene folder.
pub fn training_views(scene: &Path, test_every: u32) -> Vec<View> {
    let options = SceneOptions {
        source_path: Some(scene.to_owned()),
        eval: true,
        test_every,
        ..SceneOptions::default()
    };
    let dataset = Dataset::load(&options).unwrap();
    dataset.train.iter().map(|&index| dataset.views[index].clone()).collect()
}

/// Measures a model by so many rays through random pixels of these views.
pub fn measure<B: TrainDevice>(
    device: &mut B,
    model: &Gaussians,
    (truth, views): (&Truth, &[View]),
    rays: usize,
) -> Geometry {
    let solids: Vec<Solid> = (0..model.len()).map(|row| solid(model, row)).collect();
    let shown = shown_surfaces(device, model, views, rays);
    let found = level_points(&solids, &shown);
    let distances: Vec<f64> =
        found.par_iter().map(|&point| truth.nearest(point).distance.abs()).collect();
    let angles = angles_deg(&solids, truth);
    assert!(!distances.is_empty() && !angles.is_empty(), "the model shows no surface");
    Geometry {
        gaussians: solids.len(),
        rays: shown.len(),
        points: distances.len(),
        median_distance: median(distances.into_iter()),
        facing: angles.len(),
        mean_angle_deg: angles.iter().sum::<f64>() / angles.len() as f64,
    }
}

/// A Gaussian as its parameters say.
fn solid(model: &Gaussians, row: usize) -> Solid {
    let Gaussians { means, log_scales, quats, opacity_logits, .. } = model;
    let columns = [(means, 3), (log_scales, 3), (quats, 4), (opacity_logits, 1)];
    let values = columns.iter().flat_map(|&(values, width)| &values[row * width..][..width]);
    Solid::new(&values.map(|&value| f64::from(value)).collect::<Vec<_>>())
}

/// Returns the density of a Gaussian along a ray.
fn along(solid: &Solid, origin: Vec3<f64>, direction: Vec3<f64>) -> RayDensity {
    let scaled = |vector| {
        let turned = mul_transposed(&solid.axes, vector);
        std::array::from_fn(|i| turned[i] / solid.scale[i].max(1e-8))
    };
    let (from, step): (Vec3<f64>, Vec3<f64>) = (scaled(sub(origin, solid.mean)), scaled(direction));
    let peak = -dot(from, step) / dot(step, step);
    let nearest = add(from, scale(step, peak));
    RayDensity {
        peak,
        width: 1.0 / length(step),
        height: solid.opacity * (-0.5 * dot(nearest, nearest)).exp(),
    }
}

/// A Gaussian's density along a ray: `height exp(-(t - peak)² / (2 width²))`.
struct RayDensity {
    peak: f64,
    width: f64,
    height: f64,
}

/// A surface that a model shows in a pixel.
struct PixelSurface {
    /// The camera.
    origin: Vec3<f64>,
    /// From the camera through the pixel's centre, of length 1.
    direction: Vec3<f64>,
    /// Point at the mean depth of what is blended there.
    surface: Vec3<f64>,
}

/// The drawn surfaces of random pixels, over all views alike.
fn shown_surfaces<B: TrainDevice>(
    device: &mut B,
    model: &Gaussians,
    views: &[View],
    rays: usize,
) -> Vec<PixelSurface> {
    let settings = DrawSettings { surface: true, ..DrawSettings::DEFAULT };
    let resident = device.upload(model).unwrap();
    let stream = RandomStream::new(0, 0, RandomUse::Sample);
    let mut shown = Vec::new();
    for (index, view) in views.iter().enumerate() {
        let frame = device.show(&resident, view, &settings).unwrap();
        let maps = device.image(&frame).unwrap().surface.expect("drawn with a surface");
        let share = rays * (index + 1) / views.len() - rays * index / views.len();
        let pixels = (0..share).map(|i| {
            let draw = (index * rays + i) as u64;
            stream.below(draw, view.camera.pixels())
        });
        shown.extend(pixels.filter_map(|pixel| shown_in(view, &maps[pixel * 4..][..4], pixel)));
    }
    shown
}

/// The surface that a pixel shows; none where the background is visible.
fn shown_in(view: &View, maps: &[f32], pixel: usize) -> Option<PixelSurface> {
    let (depth, opacity) = (f64::from(maps[0]), f64::from(maps[3]));
    if opacity <= OPAQUE {
        return None;
    }
    let width = view.camera.width as usize;
    let at = [(pixel % width) as f64 + 0.5, (pixel / width) as f64 + 0.5];
    let across: [f64; 2] =
        std::array::from_fn(|i| (at[i] - view.camera.centre_px[i]) / view.camera.focal_px[i]);
    let forward = mul_transposed(&view.pose.rotation, [across[0], across[1], 1.0]);
    let origin = view.pose.centre_world();
    let surface = add(origin, scale(forward, depth / opacity));
    Some(PixelSurface { origin, direction: normalize(forward), surface })
}

/// Points at which each ray first meets the level of the density of the Gaussians nearest to the drawn surface;
/// nowhere on rays that do not.
fn level_points(solids: &[Solid], shown: &[PixelSurface]) -> Vec<Vec3<f64>> {
    let centres: Vec<Vec3<f64>> = solids.iter().map(|solid| solid.mean).collect();
    let tree = ImmutableKdTree::<f64, 3>::new_from_slice(&centres).unwrap();
    let wanted = NonZeroUsize::new(NEIGHBOURS.min(solids.len())).unwrap();
    let found = shown.par_iter().filter_map(|ray| {
        let near = tree.query(&ray.surface).nearest_n::<SquaredEuclidean<f64>>(wanted).execute();
        let kernels: Vec<RayDensity> = near
            .iter()
            .map(|near| along(&solids[near.item as usize], ray.origin, ray.direction))
            .collect();
        first_crossing(&kernels).map(|t| add(ray.origin, scale(ray.direction, t)))
    });
    found.collect()
}

/// Distance from the camera at which the density first rises to the level.
///
/// At three standard deviations in front of all of them, 16 Gaussians make a density of 0.18 at most;
/// none that reaches the level alone is missed between stations, as their peaks are among these.
fn first_crossing(kernels: &[RayDensity]) -> Option<f64> {
    let density = |t: f64| -> f64 {
        let of = |kernel: &RayDensity| {
            let from_peak = (t - kernel.peak) / kernel.width;
            kernel.height * (-0.5 * from_peak * from_peak).exp()
        };
        kernels.iter().map(of).sum()
    };
    let stations = |kernel: &RayDensity| STATIONS.map(|at| kernel.peak + at * kernel.width);
    let mut stations: Vec<f64> = kernels.iter().flat_map(stations).filter(|&t| t > 0.0).collect();
    stations.sort_by(f64::total_cmp);
    let above = stations.iter().position(|&t| density(t) >= LEVEL)?;
    let mut high = stations[above];
    let mut low = if above == 0 { return None } else { stations[above - 1] };
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if density(middle) >= LEVEL {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Angles between shortest axes and true normals, of Gaussians that are part of a surface: more opaque
/// than not, and with the true surface within reach.
fn angles_deg(solids: &[Solid], truth: &Truth) -> Vec<f64> {
    let angle = |solid: &Solid| {
        let near = truth.nearest(solid.mean);
        let largest = solid.scale.into_iter().fold(0.0, f64::max);
        let counts = solid.opacity > OPAQUE && near.distance.abs() < REACH * largest;
        counts.then(|| dot(solid.normal(), near.normal).abs().min(1.0).acos().to_degrees())
    };
    solids.par_iter().filter_map(angle).collect()
}
