//! Density control of triangles (MeshSplatting, Held et al. 2025): those with large weights in views are split at
//! the middles of their edges, transparent, hidden and huge ones are removed, and after that the mesh is made anew
//! between its vertices. Meanwhile a floor under all opacities rises.

use std::time::Instant;

use super::interface::{Site, StepExtras, Strategy};
use super::rounds::Rounds;
use crate::backend::{Adjust, FaceStatistics, Faces, Remesh, Statistics};
use crate::config::{Config, TrianglesOptions};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::{Real, sigmoid};
use crate::memory::plan::RoundShape;
use crate::train::event::RoundReport;
use crate::train::span::ImageSpan;
use crate::train::triangles::connect::{Connected, connect};
use crate::train::triangles::draw::{DrawRule, areas, draw};
use crate::train::triangles::prune::{PruneRule, UsedVertices, kept, stays};
use crate::train::triangles::schedule::{opacity_floor, prune_threshold, rises};
use crate::train::triangles::split::{Split, split};
use crate::train::{SceneScale, TrainError};

/// Training views from which on a round is too short for all of them to have shown something: then nothing is
/// removed for its weight.
const MANY_VIEWS: usize = 500;

/// Density control of triangles.
pub(super) struct TriangleRounds {
    options: TrianglesOptions,
    /// Rounds in which triangles are split.
    splits: Rounds,
    /// The same, and those after them in which triangles are only removed.
    rounds: Rounds,
    extras: StepExtras,
    most: usize,
    views: usize,
    seed: u64,
}

impl TriangleRounds {
    /// In a scene with so many training views.
    pub(super) fn new(config: &Config, scene: SceneScale, views: usize) -> Self {
        let (options, densify) = (&config.triangles, &config.densify);
        let until = densify.densify_until_iter.max(options.delaunay_iter);
        let most = densify.max_points.unwrap_or(u64::MAX);
        Self {
            options: options.clone(),
            splits: Rounds::new(densify),
            rounds: Rounds::every(densify.densification_interval, densify.densify_from_iter..until),
            extras: StepExtras::of(config, scene),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            views,
            seed: config.run.seed,
        }
    }

    /// Whether the mesh is connected after a step.
    fn connects(&self, span: ImageSpan) -> bool {
        self.options.delaunay_iter > 0 && span.hits(self.options.delaunay_iter)
    }

    fn prune_rule(&self, iteration: u32) -> PruneRule {
        if iteration <= self.options.start_pruning {
            return PruneRule { opacity_max: -1.0, weight_max: None, reach_max_px: f32::INFINITY };
        }
        let threshold = prune_threshold(&self.options, iteration - 1).to_f32();
        PruneRule {
            opacity_max: threshold,
            weight_max: (self.views < MANY_VIEWS).then_some(threshold),
            reach_max_px: self.options.prune_size.to_f32(),
        }
    }

    /// Removes what is not to stay, and splits.
    fn reshape<D: Faces>(&self, site: &mut Site<'_, D>) -> Result<RoundReport, TrainError> {
        let iteration = site.iteration();
        let vertices = site.vertices()?;
        let (all, statistics) = (site.faces(), site.face_statistics()?);
        let floor = opacity_floor(&self.options, iteration.saturating_sub(1)).to_f32();
        let opacities: Vec<f32> =
            vertices.iter().map(|&[.., logit]| floor + (1.0 - floor) * sigmoid(logit)).collect();
        let stay = stays(&all, &opacities, &statistics, &self.prune_rule(iteration));
        let FaceStatistics { weights, .. } = statistics;
        let (faces, weights) = (kept(&all, &stay), kept(&weights, &stay));
        let removed = all.len() - faces.len();
        let used = UsedVertices::of(&faces, vertices.len());
        let is_split = self.splits.may_follow(iteration);
        let Split { midpoints, mut faces, count } = if is_split {
            let places: Vec<[f32; 3]> = vertices.iter().map(|&[x, y, z, _]| [x, y, z]).collect();
            let wanted = self.births(used.kept.len());
            let granted = site.grant(wanted)?;
            let rule = DrawRule {
                drawn: wanted,
                area_min: self.options.size_probs_zero.to_f32(),
                largest: self.options.split_large_triangles as usize,
            };
            let stream = RandomStream::new(self.seed, u64::from(iteration), RandomUse::Split);
            let order = if wanted == 0 {
                Vec::new()
            } else {
                draw(&weights, &areas(&faces, &places), &rule, stream)
            };
            let most = self.most.saturating_sub(used.kept.len()).min(granted.saturating_mul(3));
            split(&faces, vertices.len(), &order, most)
        } else {
            Split { midpoints: Vec::new(), faces, count: 0 }
        };
        used.renumber(&mut faces);
        let change = Remesh { kept: &used.kept, midpoints: &midpoints, faces: &faces };
        let is_done = site.remesh(&change, "triangles are neither split nor removed")?;
        let of = |count: usize| if is_done { count } else { 0 };
        Ok(RoundReport {
            event: "remeshed",
            counts: vec![
                ("split", of(count)),
                ("pruned", of(removed)),
                ("triangles", site.faces().len()),
            ],
        })
    }

    /// How many triangles are drawn where there are so many vertices.
    fn births(&self, vertices: usize) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a number that is counted, and not negative"
        )]
        let grown = (self.options.add_percentage * vertices as f64) as usize;
        grown.min(self.most).saturating_sub(vertices)
    }

    /// Makes the mesh anew between its vertices.
    fn connect<D: Faces>(&self, site: &mut Site<'_, D>) -> Result<RoundReport, TrainError> {
        let started = Instant::now();
        let vertices = site.vertices()?;
        let places: Vec<[f32; 3]> = vertices.iter().map(|&[x, y, z, _]| [x, y, z]).collect();
        let before = site.faces();
        let is_done = match connect(&places, &before) {
            Ok(Connected { kept, faces }) => {
                let change = Remesh { kept: &kept, midpoints: &[], faces: &faces };
                site.remesh(&change, "the mesh stays unconnected")?
            }
            Err(error) => {
                site.leave_out(format!("the mesh stays unconnected: {error}"));
                false
            }
        };
        let (seconds, is) = (started.elapsed().as_secs_f64(), if is_done { "" } else { "not " });
        let faces = site.faces().len();
        tracing::info!(
            "{} triangles were {is}connected to {faces} between {} vertices in {seconds:.1} s",
            before.len(),
            site.len()
        );
        Ok(RoundReport { event: "connected", counts: vec![("before", before.len()), ("triangles", faces)] })
    }
}

impl<D: Faces> Strategy<D> for TriangleRounds {
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        self.rounds.may_follow(iteration).then_some(Statistics::Norms)
    }

    fn step_extras(&self, span: ImageSpan) -> StepExtras {
        let mut extras = self.extras;
        if span.after < self.options.start_opacity_floor {
            extras.regularisers.opacity += self.options.lambda_weight;
        }
        extras
    }

    fn due(&self, span: ImageSpan) -> bool {
        self.rounds.is_due(span) || self.connects(span)
    }

    /// Triangles go by the numbers of rows.
    fn reorders(&self, _span: ImageSpan) -> bool {
        false
    }

    fn round(&self, site: &mut Site<'_, D>) -> Result<RoundReport, TrainError> {
        // No round follows the iteration at which the mesh is connected.
        let connects = self.options.delaunay_iter > 0 && site.iteration() >= self.options.delaunay_iter;
        if connects { self.connect(site) } else { self.reshape(site) }
    }

    fn adjust(&self, span: ImageSpan) -> Option<Adjust> {
        let [before, after] = [span.before, span.after].map(|done| opacity_floor(&self.options, done));
        rises(&self.options, span).then_some(Adjust::RaiseOpacityFloor { before, after })
    }

    fn shape(&self) -> RoundShape {
        RoundShape::Grow
    }
}
