//! The loss of an iteration: every term with its weight and the iterations in which it is on.

use super::coarse::CoarseSchedule;
use super::schedule;
use crate::backend::{NormalDepths, SampleRule, Term, Terms};
use crate::config::{Config, OptimizeOptions, PrimitiveName, Regularize, SugarOptions};
use crate::dataset::ImageSource;

/// Weight of the opacities' mean entropy.
const ENTROPY_FACTOR: f64 = 0.1;

/// Share of the extent of the cameras that the distances of the SDF term are measured in.
const SDF_UNIT_SHARE: f64 = 0.1;

/// Kinds of terms in which the density is that of a surface.
const BY_DENSITY: [Regularize; 3] =
    [Regularize::Density, Regularize::DnConsistency, Regularize::MedianNormal];

/// A term of the loss.
struct TermRow {
    term: fn(&Moment<'_>) -> Term,
    weight: fn(&Moment<'_>) -> f64,
    /// The part of a run in which it is on.
    window: fn(&Moment<'_>) -> bool,
    /// In which iterations of that part.
    due: fn(&Moment<'_>) -> bool,
}

/// All terms.
const ROWS: [TermRow; 11] = [
    TermRow {
        term: |moment| Term::Photometric { lambda_dssim: moment.optimize.lambda_dssim },
        weight: |_| 1.0,
        window: |_| true,
        due: |_| true,
    },
    TermRow {
        term: |_| Term::InverseDepth,
        weight: |moment| schedule::depth_weight(moment.optimize, moment.iteration).unwrap_or(0.0),
        window: |_| true,
        due: |moment| moment.extras.depth_map,
    },
    TermRow {
        term: |_| Term::NormalMap,
        weight: |moment| moment.optimize.lambda_normals_super,
        window: |moment| moment.iteration > moment.optimize.normals_from_iter,
        due: |moment| moment.extras.normal_map,
    },
    TermRow {
        term: |_| Term::DepthNormal { depths: NormalDepths::Opaque },
        weight: |moment| moment.optimize.lambda_normal,
        window: |moment| moment.has_surfels_after(moment.optimize.lambda_normal_from),
        due: |_| true,
    },
    TermRow {
        term: |_| Term::Distortion,
        weight: |moment| moment.optimize.lambda_dist,
        window: |moment| moment.has_surfels_after(moment.optimize.lambda_dist_from),
        due: |_| true,
    },
    TermRow {
        term: |_| Term::Entropy,
        weight: |_| ENTROPY_FACTOR,
        window: |moment| moment.drives_opacities,
        due: |_| true,
    },
    TermRow {
        term: |_| Term::Density,
        weight: |moment| moment.sampled_weight(moment.sugar.estimation_factor),
        window: |moment| moment.regularizes(&BY_DENSITY),
        due: |moment| moment.takes_samples(),
    },
    TermRow {
        term: |moment| Term::Sdf { unit: SDF_UNIT_SHARE * moment.extent },
        weight: |moment| moment.sampled_weight(moment.sugar.estimation_factor),
        window: |moment| moment.regularizes(&[Regularize::Sdf]),
        due: |moment| moment.takes_samples(),
    },
    TermRow {
        term: |_| Term::Normal,
        weight: |moment| moment.sampled_weight(moment.sugar.normal_factor),
        window: |moment| moment.regularizes(&BY_DENSITY) || moment.regularizes(&[Regularize::Sdf]),
        due: |moment| moment.takes_samples(),
    },
    TermRow {
        term: |moment| Term::DepthNormal { depths: moment.normal_depths() },
        weight: |moment| moment.sugar.dn_factor.max(0.0),
        window: |moment| moment.regularizes(&[Regularize::DnConsistency, Regularize::MedianNormal]),
        due: |_| true,
    },
    TermRow {
        term: |_| Term::MultiView,
        weight: |moment| moment.sugar.multi_view_factor.max(0.0),
        window: |moment| moment.surface_iteration.is_some() && moment.sugar.compares_views(),
        due: |moment| moment.extras.other_view,
    },
];

/// The part of a run that an iteration is of.
#[derive(Clone, Copy, Debug)]
pub enum TrainingStage<'a> {
    /// The model is made: the photographs count, and of surfels how they lie.
    Photometric,
    /// SuGaR's coarse stage, in a scene of this extent.
    Coarse {
        /// When it does what.
        schedule: &'a CoarseSchedule,
        /// The extent of the cameras.
        extent: f64,
    },
}

/// What there is of a view beside its photograph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewExtras {
    /// A map of its inverse depths.
    pub depth_map: bool,
    /// A map of its normals.
    pub normal_map: bool,
    /// Another view to compare it with.
    pub other_view: bool,
}

impl ViewExtras {
    /// What any view may have in a run with these options.
    pub fn intended(config: &Config) -> Self {
        let (depth_map, normal_map) =
            (config.scene.depths.is_some(), config.normals_folder().is_some());
        Self { depth_map, normal_map, other_view: false }
    }

    /// What a view has that is compared with its photograph alone.
    pub fn of(source: &ImageSource) -> Self {
        let (depth_map, normal_map) = (source.depth.is_some(), source.normals.is_some());
        Self { depth_map, normal_map, other_view: false }
    }
}

/// What rows depend on.
struct Moment<'a> {
    optimize: &'a OptimizeOptions,
    sugar: &'a SugarOptions,
    seed: u64,
    extent: f64,
    /// From 1.
    iteration: u32,
    extras: ViewExtras,
    /// Whether the stage is that which makes the model.
    is_photometric: bool,
    /// Whether opacities are driven to 0 or 1.
    drives_opacities: bool,
    /// Iterations since the surface terms came on.
    surface_iteration: Option<u32>,
}

impl<'a> Moment<'a> {
    fn new(config: &'a Config, stage: TrainingStage<'_>, iteration: u32) -> Self {
        let moment = Self {
            optimize: &config.optimize,
            sugar: &config.sugar,
            seed: config.run.seed,
            extent: 0.0,
            iteration,
            extras: ViewExtras::default(),
            is_photometric: matches!(stage, TrainingStage::Photometric),
            drives_opacities: false,
            surface_iteration: None,
        };
        match stage {
            TrainingStage::Photometric => moment,
            TrainingStage::Coarse { schedule, extent } => Self {
                extent,
                drives_opacities: schedule.contains(iteration)
                    && schedule.entropy.contains(&iteration),
                surface_iteration: schedule
                    .has_surface_terms(iteration)
                    .then(|| iteration - schedule.prune - 1),
                ..moment
            },
        }
    }

    /// Whether the model is one of surfels and is made, and this iteration is over.
    fn has_surfels_after(&self, iteration: u32) -> bool {
        let has_surfels = self.optimize.primitive == PrimitiveName::Surfels;
        self.is_photometric && has_surfels && self.iteration > iteration
    }

    fn regularizes(&self, kinds: &[Regularize]) -> bool {
        self.surface_iteration.is_some() && kinds.contains(&self.sugar.regularize)
    }

    fn takes_samples(&self) -> bool {
        self.surface_iteration.is_some_and(|number| number.is_multiple_of(self.sugar.sdf_every))
    }

    fn normal_depths(&self) -> NormalDepths {
        match self.sugar.regularize {
            Regularize::MedianNormal => NormalDepths::Median,
            _ if self.sugar.dn_by_opacity => NormalDepths::Opaque,
            _ => NormalDepths::All,
        }
    }

    /// Terms that are on every few iterations count as often more.
    fn sampled_weight(&self, factor: f64) -> f64 {
        let counts = if self.sugar.reference_weighting { 1 } else { self.sugar.sdf_every };
        factor * f64::from(counts)
    }

    fn terms(&self) -> Terms {
        let mut terms = Terms::default().sampled_by(SampleRule {
            count: self.sugar.n_samples_for_sdf,
            seed: self.seed,
            iteration: self.iteration,
        });
        for TermRow { term, weight, .. } in
            ROWS.iter().filter(|row| (row.window)(self) && (row.due)(self))
        {
            terms.add(term(self), weight(self));
        }
        terms
    }
}

/// The terms of `iteration` (from 1) over a view.
pub fn active(
    config: &Config,
    stage: TrainingStage<'_>,
    iteration: u32,
    extras: ViewExtras,
) -> Terms {
    Moment { extras, ..Moment::new(config, stage, iteration) }.terms()
}

/// The terms that are on now and then in the part of the run that `iteration` (from 1) is of.
pub fn open(config: &Config, stage: TrainingStage<'_>, iteration: u32) -> Vec<Term> {
    let moment = Moment::new(config, stage, iteration);
    ROWS.iter().filter(|row| (row.window)(&moment)).map(|row| (row.term)(&moment)).collect()
}

#[cfg(test)]
mod tests;
