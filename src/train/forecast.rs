//! Facts of a scene and its model that determine a run's memory.

use rayon::prelude::*;

use super::appearance::compensation;
use super::span::ImageSpan;
use super::strategy::{self, Strategy};
use super::terms::{self, TrainingStage, ViewExtras};
use super::{least_near, scene_extent};
use crate::abi::terms::Inputs;
use crate::backend::cpu::{Cpu, count};
use crate::backend::{Footprint, Statistics};
use crate::config::{Config, Regularize};
use crate::dataset::{Dataset, ImageSource, View};
use crate::math::linalg::{add, mul};
use crate::memory::Fallback;
use crate::memory::plan::{
    Maps, OptionalColumns, PlannedCoarse, PlannedColorTables, PlannedPhotographs, ViewGrowth,
    ViewSize,
};
use crate::model::Gaussians;

/// Ratio of two shares that the most demanding view sees: Gaussians of a trained model over points of the scene.
/// Views' edges and near parts have more Gaussians than points. The peaks in `benches/README.md` need 0.82 (fox) and
/// 0.69 (bonsai).
const VISIBLE_PER_POINT: f64 = 0.77;

/// Area of a trained model's splats over the area of the image: 168 on fox (252 thousand to 6 million Gaussians),
/// enough for bonsai.
const LAYERS: f64 = 168.0;

/// Number of sampled points. The error of the share is then about 0.01.
const SAMPLED_POINTS: usize = 20_000;

/// Number of final Gaussians per point of the scene: 20 on fox, 14 on bonsai.
const GAUSSIANS_PER_POINT: u64 = 17;

/// Estimates the final number of Gaussians of a training.
pub fn guessed_gaussians(start: u64) -> u64 {
    start * GAUSSIANS_PER_POINT
}

/// Returns the learned colour tables of the photographs, if any.
pub fn color_tables(config: &Config, dataset: &Dataset) -> Option<PlannedColorTables> {
    let kind = compensation(&config.optimize)?;
    Some(PlannedColorTables { views: dataset.train.len() as u64, width: kind.width() as u64 })
}

/// Creates the density control strategy of a run, to query its schedule, which does not depend on the limit.
pub fn strategy(config: &Config, dataset: &Dataset) -> Box<dyn Strategy<Cpu<f32>>> {
    strategy::of(config, dataset, usize::MAX)
}

/// True if a run has a densification step.
pub fn densifies(config: &Config, dataset: &Dataset) -> bool {
    let strategy = strategy(config, dataset);
    (0..config.optimize.iterations).any(|done| strategy.due(ImageSpan::of(done)))
}

/// Returns the optional columns of a run's model.
pub fn optional_columns(config: &Config, dataset: &Dataset) -> OptionalColumns {
    OptionalColumns {
        filter_3d: config.optimize.filter_3d,
        absolute_norm_sums: strategy(config, dataset).observes(1) == Some(Statistics::Both),
    }
}

/// Returns the plan of SuGaR's coarse stage, if the run has one.
pub fn coarse(config: &Config) -> Option<PlannedCoarse> {
    let maps = match config.sugar.regularize {
        Regularize::None => return None,
        Regularize::Density => Maps::Undrawn,
        Regularize::DnConsistency => Maps::Compared,
        Regularize::MedianNormal => Maps::Medians,
        Regularize::Sdf => Maps::Sampled,
    };
    Some(PlannedCoarse {
        neighbours: config.sugar.regularity_knn,
        shortens: config.memory.give_up.contains(&Fallback::Neighbours),
        maps,
    })
}

/// Returns the part of a model that views will see as it grows from these points.
pub fn seen_of_points(dataset: &Dataset, points: &[[f32; 3]]) -> ViewGrowth {
    let step = points.len().div_ceil(SAMPLED_POINTS).max(1);
    let near = least_near(scene_extent(dataset));
    let share = |&view: &usize| {
        let view = &dataset.views[view];
        let looked_at = points.iter().step_by(step);
        let all = looked_at.len();
        let seen = looked_at.filter(|point| sees(view, near, point.map(f64::from))).count();
        seen as f64 / all.max(1) as f64
    };
    let largest = dataset.train.par_iter().map(share).reduce(|| 0.0, f64::max);
    ViewGrowth { share: VISIBLE_PER_POINT * largest, ..seen_at_most(dataset) }
}

/// Returns an upper bound on what the most demanding view sees: the whole model.
pub fn seen_at_most(dataset: &Dataset) -> ViewGrowth {
    let px = largest_view(dataset);
    let tiles = ViewSize { px, visible: 0, instances: 0 }.tiles();
    ViewGrowth { px, share: 1.0, surface: LAYERS * tiles as f64 }
}

/// Counts the largest numbers of splats and instances that a training view sees of a model.
pub fn seen_of_model(dataset: &Dataset, gaussians: &Gaussians, footprint: Footprint) -> ViewGrowth {
    let near = least_near(scene_extent(dataset));
    let mut most = ViewSize { px: largest_view(dataset), visible: 0, instances: 0 };
    for &view in &dataset.train {
        let counted = count(gaussians, &dataset.views[view], near, footprint);
        most.visible = most.visible.max(counted.visible);
        most.instances = most.instances.max(counted.instances);
    }
    ViewGrowth::counted(gaussians.len() as u64, &most)
}

/// Returns these views at another size.
pub fn resized(seen: ViewGrowth, dataset: &Dataset) -> ViewGrowth {
    seen.resized(largest_view(dataset))
}

/// Returns the sizes of the photographs on the device, bytes: colours and, if there are files, mask, inverse depths
/// and normals. Masks from alpha channels are unknown before decoding.
pub fn photographs(dataset: &Dataset) -> PlannedPhotographs {
    let bytes = |&view: &usize| {
        let ImageSource { size, mask, depth, normals, .. } = &dataset.sources[view];
        let pixels = size.map(u64::from).iter().product::<u64>();
        let shown = pixels * if mask.is_some() { 4 } else { 3 };
        // Inverse depths take 16 bits at even offsets.
        let with_depths =
            if depth.is_some() { shown.next_multiple_of(2) + 2 * pixels } else { shown };
        with_depths + if normals.is_some() { 3 * pixels } else { 0 }
    };
    PlannedPhotographs {
        trained: dataset.views_to_train().iter().map(bytes).collect(),
        held_out: dataset.test.iter().map(bytes).collect(),
    }
}

/// Returns the maps that any view has beside its photograph.
pub fn extras(dataset: &Dataset) -> ViewExtras {
    let all = dataset.sources.iter().map(ViewExtras::of);
    all.fold(ViewExtras::default(), |any, of| ViewExtras {
        mask: any.mask || of.mask,
        depth_map: any.depth_map || of.depth_map,
        normal_map: any.normal_map || of.normal_map,
        ..any
    })
}

/// Returns the inputs that the terms need at the start or at the end of training. A term that comes on late stays on.
pub fn inputs(config: &Config, extras: ViewExtras) -> Inputs {
    let needs =
        |iteration| terms::active(config, TrainingStage::Photometric, iteration, extras).needs();
    needs(1).and(needs(config.optimize.iterations))
}

/// Returns the decoded size of each photograph and its maps, bytes. Maps are assumed to have the photograph's size.
pub fn full_size(dataset: &Dataset) -> Vec<u64> {
    let bytes = |source: &ImageSource| {
        let pixels: u64 = source.full_size.map(u64::from).iter().product();
        pixels * (3 + source.map_bytes())
    };
    dataset.sources.iter().map(bytes).collect()
}

/// Returns the size of the largest view, px.
fn largest_view(dataset: &Dataset) -> [u32; 2] {
    let sizes = dataset.views.iter().map(|view| [view.camera.width, view.camera.height]);
    sizes.max_by_key(|px| px.map(u64::from).iter().product::<u64>()).unwrap_or([0; 2])
}

fn sees(view: &View, near: f64, point: [f64; 3]) -> bool {
    let [x, y, z] = add(mul(&view.pose.rotation, point), view.pose.translation);
    let camera = &view.camera;
    let column = camera.focal_px[0] * x / z + camera.centre_px[0];
    let row = camera.focal_px[1] * y / z + camera.centre_px[1];
    z > near
        && (0.0..f64::from(camera.width)).contains(&column)
        && (0.0..f64::from(camera.height)).contains(&row)
}
