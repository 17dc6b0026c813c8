//! Density control of triangles (MeshSplatting, Held et al. 2025): triangles drawn by `--split-by` are split at the
//! midpoints of their edges, transparent, hidden and huge ones are removed, and the vertices are finally connected to
//! a new mesh. A floor under all opacities rises meanwhile.

use std::time::Instant;

use rayon::prelude::*;

use super::interface::{DensifySchedule, Site, StepExtras, Strategy};
use crate::backend::{Adjust, FaceStatistics, Faces, Remesh, Statistics};
use crate::config::{Config, SplitBy, TrianglesOptions};
use crate::math::Real as _;
use crate::math::adam::floored;
use crate::math::random::{RandomStream, RandomUse};
use crate::train::event::DensifyReport;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::triangles::schedule::{opacity_floor, prune_threshold, rises};
use crate::train::triangles::{
    Connected, FaceDraw, PruneRule, UsedVertices, areas, connect, draw, kept, split, stays,
};
use crate::train::{SceneScale, TrainError};

pub(super) struct TriangleGrowth {
    options: TrianglesOptions,
    splits: DensifySchedule,
    /// Schedule of splits and prunes, and of later steps that only prune.
    schedule: DensifySchedule,
    extras: StepExtras,
    /// Largest number of vertices.
    most: usize,
    /// True if an interval between two steps covers all training views.
    sees_all: bool,
    seed: u64,
}

impl TriangleGrowth {
    /// Creates the strategy for a scene with `views` training views.
    pub(super) fn new(config: &Config, scene: SceneScale, views: usize, most: usize) -> Self {
        let (options, densify) = (&config.triangles, &config.densify);
        let interval = densify.densification_interval;
        // No step follows the connection of the mesh. Until then triangles are pruned.
        let until = densify.densify_until_iter;
        let [split_until, until] = match options.delaunay_iter {
            0 => [until; 2],
            connected => [until.min(connected), connected],
        };
        Self {
            options: options.clone(),
            splits: DensifySchedule::every(interval, densify.densify_from_iter..split_until),
            schedule: DensifySchedule::every(interval, densify.densify_from_iter..until),
            extras: StepExtras::of(config, scene),
            most,
            sees_all: views < interval as usize,
            seed: config.run.seed,
        }
    }

    /// True if the mesh is connected after a step.
    fn connects(&self, span: ImageSpan) -> bool {
        self.options.delaunay_iter > 0 && span.hits(self.options.delaunay_iter)
    }

    fn prune_rule(&self, span: ImageSpan) -> PruneRule {
        if span.after <= self.options.start_pruning {
            return PruneRule { opacity_max: -1.0, weight_max: None, reach_max_px: f32::INFINITY };
        }
        let threshold = prune_threshold(&self.options, span.before).to_f32();
        PruneRule {
            opacity_max: threshold,
            weight_max: self.sees_all.then_some(threshold),
            reach_max_px: self.options.prune_size.to_f32(),
        }
    }

    /// Prunes and splits triangles.
    fn reshape<D: Faces>(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError> {
        let span = site.span;
        let vertices = site.device.vertices(site.model)?;
        let (all, statistics) =
            (site.device.faces(site.model).to_vec(), site.device.face_statistics(site.model)?);
        // The floor before this step, because it rises after the densification step.
        let floor = opacity_floor(&self.options, span.before).to_f32();
        let opacities: Vec<f32> =
            vertices.par_iter().map(|&[.., logit]| floored(logit, floor)).collect();
        let stay = stays(&all, &opacities, &statistics, &self.prune_rule(span));
        let mut faces = kept(&all, &stay);
        let removed = all.len() - faces.len();
        let used = UsedVertices::of(&faces, vertices.len());
        let mut order = Vec::new();
        if self.splits.is_due(span) {
            let scores = kept(&self.scores(&statistics), &stay);
            order = self.drawn(span, &faces, &vertices, &scores, used.kept.len());
        }
        let room = self.most.saturating_sub(used.kept.len());
        let most =
            site.device.grant_new_gaussians(site.model, room.min(order.len().saturating_mul(3)))?;
        let mut split = split(&faces, vertices.len(), &order, most);
        used.renumber(&mut split.faces);
        used.renumber(&mut faces);
        let kept = &used.kept[..];
        let whole = Remesh { kept, midpoints: &split.midpoints, faces: &split.faces };
        let without_new_vertices = Remesh { kept, midpoints: &[], faces: &faces };
        let changes = [whole, without_new_vertices];
        let changes = if split.count > 0 { &changes[..] } else { &changes[1..] };
        let done = site.remesh(changes, "triangles are neither split nor removed")?;
        let is_split = done.is_some_and(|change| !change.midpoints.is_empty());
        let count = if is_split { split.count } else { 0 };
        Ok(DensifyReport {
            event: "remeshed",
            counts: vec![
                ("split", count),
                ("refused", order.len() - count),
                ("pruned", if done.is_some() { removed } else { 0 }),
                ("triangles", site.device.faces(site.model).len()),
            ],
        })
    }

    /// Returns the scores for drawing triangles. Weights replace unknown gradients, as after an old checkpoint.
    fn scores(&self, FaceStatistics { weights, gradient_norms, .. }: &FaceStatistics) -> Vec<f32> {
        let knows_gradients = gradient_norms.iter().any(|&norm| norm > 0.0);
        match self.options.split_by {
            SplitBy::Gradient if knows_gradients => {
                weights.iter().zip(gradient_norms).map(|(weight, norm)| weight * norm).collect()
            }
            SplitBy::Gradient | SplitBy::Weight => weights.clone(),
        }
    }

    /// Draws the triangles to split, the most important first.
    fn drawn(
        &self,
        span: ImageSpan,
        faces: &[[u32; 3]],
        vertices: &[[f32; 4]],
        scores: &[f32],
        kept: usize,
    ) -> Vec<u32> {
        let drawn = self.new_vertices(kept);
        if drawn == 0 {
            return Vec::new();
        }
        let rule = FaceDraw {
            drawn,
            area_min: self.options.size_probs_zero.to_f32(),
            largest: self.options.split_large_triangles as usize,
        };
        let after = u64::from(span.after);
        let stream = RandomStream::new(self.seed, after, RandomUse::SplitTriangles);
        draw(scores, &areas(faces, &places(vertices)), &rule, stream)
    }

    /// Returns the number of triangles to split at N vertices.
    fn new_vertices(&self, vertices: usize) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a number that is counted, and not negative"
        )]
        let grown = (self.options.add_percentage * vertices as f64) as usize;
        grown.min(self.most).saturating_sub(vertices)
    }

    /// Connects the vertices to a new mesh.
    fn connect<D: Faces>(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError> {
        let started = Instant::now();
        let vertices = site.device.vertices(site.model)?;
        let before = site.device.faces(site.model).to_vec();
        let is_done = match connect(&places(&vertices), &before) {
            Ok(Connected { kept, faces }) => {
                let change = Remesh { kept: &kept, midpoints: &[], faces: &faces };
                site.remesh(&[change], "the mesh stays unconnected")?.is_some()
            }
            Err(error) => {
                site.left_out.push(format!("the mesh stays unconnected: {error}"));
                false
            }
        };
        let (seconds, is) = (started.elapsed().as_secs_f64(), if is_done { "" } else { "not " });
        let faces = site.device.faces(site.model).len();
        tracing::info!(
            "{} triangles were {is}connected to {faces} between {} vertices in {seconds:.1} s",
            before.len(),
            site.len()
        );
        Ok(DensifyReport {
            event: "connected",
            counts: vec![("before", before.len()), ("triangles", faces)],
        })
    }
}

/// Returns the positions of vertices without their opacities.
fn places(vertices: &[[f32; 4]]) -> Vec<[f32; 3]> {
    vertices.par_iter().map(|&[x, y, z, _]| [x, y, z]).collect()
}

impl<D: Faces> Strategy<D> for TriangleGrowth {
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        self.schedule.may_follow(iteration).then_some(Statistics::Norms)
    }

    fn step_extras(&self, turn: Turn) -> StepExtras {
        let mut extras = self.extras;
        if turn.iterations.after < self.options.start_opacity_floor {
            extras.regularisers.opacity += self.options.lambda_weight;
        }
        extras
    }

    fn schedule(&self) -> DensifySchedule {
        self.schedule
    }

    fn due(&self, span: ImageSpan) -> bool {
        self.schedule.is_due(span) || self.connects(span)
    }

    /// Triangles refer to vertices by index, which sorting would change.
    fn reorders(&self, _span: ImageSpan) -> bool {
        false
    }

    fn densify(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError> {
        if self.connects(site.span) { self.connect(site) } else { self.reshape(site) }
    }

    fn adjust(&self, span: ImageSpan, _images_since: Option<u32>) -> Option<Adjust> {
        let [before, after] =
            [span.before, span.after].map(|done| opacity_floor(&self.options, done));
        rises(&self.options, span).then_some(Adjust::RaiseOpacityFloor { before, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::config::{ConfigLayer, Layers, resolve};

    fn strategy(more: &str, views: usize) -> TriangleGrowth {
        let text = format!("optimize.primitive = \"triangles\"\n{more}");
        let base = Some(ConfigLayer { origin: "a.toml", text: &text });
        let config = resolve(Layers { base, ..Layers::default() }).unwrap();
        TriangleGrowth::new(&config, SceneScale { extent: 1.0, unit: 1.0 }, views, 1100)
    }

    fn spans() -> impl Iterator<Item = ImageSpan> {
        (1..=30_000).map(ImageSpan::of)
    }

    #[test]
    fn densification_steps_end_when_the_mesh_is_connected() {
        let due = |strategy: &TriangleGrowth| -> Vec<u32> {
            let due = spans().filter(|&span| Strategy::<Cpu<f32>>::due(strategy, span));
            due.map(|span| span.after).collect()
        };
        let usual = strategy("triangles.delaunay_iter = 11000", 100);
        let found = due(&usual);
        assert_eq!((found.len(), &found[..2]), (21, &[1000, 1500][..]));
        assert_eq!(found[18..], [10_000, 10_500, 11_000]);
        let is_split = |i| usual.splits.is_due(ImageSpan::of(i));
        assert!(is_split(9500) && !is_split(10_000));
        assert!(usual.connects(ImageSpan::of(11_000)) && !usual.connects(ImageSpan::of(10_500)));
        let observes = |i| Strategy::<Cpu<f32>>::observes(&usual, i).is_some();
        assert!(observes(1) && observes(10_999) && !observes(11_000));
        let early = due(&strategy("triangles.delaunay_iter = 2250", 100));
        assert_eq!(early, [1000, 1500, 2000, 2250]);
        assert_eq!(due(&strategy("", 100)).last(), Some(&9500));
    }

    #[test]
    fn the_floor_rises_only_at_intervals() {
        let strategy = strategy("triangles.delaunay_iter = 11000", 100);
        let adjust = |span| Strategy::<Cpu<f32>>::adjust(&strategy, span, None).is_some();
        let rises: Vec<u32> = spans().filter(|&s| adjust(s)).map(|span| span.after).collect();
        assert!(rises.iter().all(|rise| rise % 500 == 0));
        assert_eq!((rises.first(), rises.last()), (Some(&5500), Some(&24_000)));
        assert!(!rises.contains(&11_500) && !rises.contains(&12_000));
    }

    #[test]
    fn transparent_and_hidden_triangles_are_pruned_after_the_start() {
        let rule = |views, after| strategy("", views).prune_rule(ImageSpan::of(after));
        assert_eq!(rule(499, 4000).opacity_max, -1.0);
        assert_eq!(rule(499, 6000).weight_max, Some(0.245));
        let many = PruneRule { opacity_max: 0.245, weight_max: None, reach_max_px: 1400.0 };
        assert_eq!(rule(500, 6000), many);
    }

    #[test]
    fn triangles_are_split_by_weights_and_gradients_or_by_weights_alone() {
        let statistics = FaceStatistics {
            weights: vec![0.5, 0.25, 1.0],
            reaches_px: vec![9.0; 3],
            gradient_norms: vec![4.0, 0.0, 3.0],
        };
        let of = |more: &str| strategy(more, 100).scores(&statistics);
        assert_eq!(of(""), [2.0, 0.0, 3.0]);
        assert_eq!(of("triangles.split_by = \"weight\""), statistics.weights);
        let unknown = FaceStatistics { gradient_norms: vec![0.0; 3], ..statistics.clone() };
        assert_eq!(strategy("", 100).scores(&unknown), statistics.weights);
    }

    #[test]
    fn splits_are_limited_by_growth_and_cap() {
        let strategy = strategy("", 100);
        assert_eq!([100, 1000, 1100, 2000].map(|v| strategy.new_vertices(v)), [23, 100, 0, 0]);
    }

    #[test]
    fn opacity_regularization_ends_when_the_floor_rises() {
        let strategy = strategy("optimize.opacity_reg = 0.5", 100);
        let cost = |i| {
            let extras = Strategy::<Cpu<f32>>::step_extras(&strategy, Turn::of(i));
            extras.regularisers.opacity
        };
        assert_eq!([cost(4999), cost(5000)], [0.5 + 1.9e-6, 0.5]);
    }
}
