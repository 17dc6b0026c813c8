//! Loss of an iteration: all terms with their weights and iterations.

use super::coarse::CoarseSchedule;
use super::schedule;
use crate::backend::{NormalDepths, SampleRule, Term, Terms};
use crate::config::{Config, OptimizeOptions, PrimitiveName, Regularize, SugarOptions};
use crate::dataset::ImageSource;
use crate::math::Divisor;

/// Weight of the mean entropy of the opacities.
const ENTROPY_FACTOR: f64 = 0.1;

/// Unit of the SDF term's distances, as a share of the cameras' extent.
const SDF_UNIT_SHARE: f64 = 0.1;

/// Regularizations that use the density term.
const BY_DENSITY: [Regularize; 3] =
    [Regularize::Density, Regularize::DnConsistency, Regularize::MedianNormal];

/// Term of the loss.
struct TermRow {
    term: fn(&Moment<'_>) -> Term,
    weight: fn(&Moment<'_>) -> f64,
    /// True in the part of a run that uses the term.
    window: fn(&Moment<'_>) -> bool,
    /// True in the iterations of that part that use the term.
    due: fn(&Moment<'_>) -> bool,
}

const ROWS: [TermRow; 11] = [
    TermRow {
        term: |moment| Term::Photometric {
            lambda_dssim: moment.optimize.lambda_dssim,
            empty_weight: moment.empty_weight(),
        },
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

/// Stage of an iteration.
#[derive(Clone, Copy, Debug)]
pub enum TrainingStage<'a> {
    /// Photometric stage, with regularization of surfels.
    Photometric,
    /// SuGaR's coarse stage.
    Coarse {
        /// Schedule of the stage.
        schedule: &'a CoarseSchedule,
        /// Extent of the cameras, world units.
        extent: f64,
    },
}

/// Extras of a view beside its photograph.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewExtras {
    /// True with a map of inverse depths.
    pub depth_map: bool,
    /// True with a map of normals.
    pub normal_map: bool,
    /// True if some pixels may be masked.
    pub mask: bool,
    /// True with a neighbour view.
    pub other_view: bool,
}

impl ViewExtras {
    /// Returns the extras that a view may have in a run with these options.
    pub fn intended(config: &Config) -> Self {
        let (depth_map, normal_map) =
            (config.scene.depths.is_some(), config.normals_folder().is_some());
        Self { depth_map, normal_map, ..Self::default() }
    }

    /// Returns the extras of a view without its neighbours.
    pub fn of(source: &ImageSource) -> Self {
        let (depth_map, normal_map) = (source.depth.is_some(), source.normals.is_some());
        Self { depth_map, normal_map, mask: source.may_have_mask(), other_view: false }
    }
}

/// Facts that determine the terms of an iteration.
struct Moment<'a> {
    optimize: &'a OptimizeOptions,
    sugar: &'a SugarOptions,
    extent: f64,
    /// Iteration, from 1.
    iteration: u32,
    extras: ViewExtras,
    /// True in the photometric stage.
    is_photometric: bool,
    /// True if the views have their full size.
    is_full_size: bool,
    /// True if opacities are driven to 0 or 1.
    drives_opacities: bool,
    /// Number of earlier iterations with surface terms.
    surface_iteration: Option<u32>,
}

impl<'a> Moment<'a> {
    fn new(config: &'a Config, stage: TrainingStage<'_>, iteration: u32) -> Self {
        let moment = Self {
            optimize: &config.optimize,
            sugar: &config.sugar,
            extent: 0.0,
            iteration,
            extras: ViewExtras::default(),
            is_photometric: matches!(stage, TrainingStage::Photometric),
            is_full_size: schedule::view_divisor(config, iteration) == Divisor::One,
            drives_opacities: false,
            surface_iteration: None,
        };
        match stage {
            TrainingStage::Photometric => moment,
            TrainingStage::Coarse { schedule, extent } => Self {
                extent,
                drives_opacities: schedule.contains(iteration)
                    && schedule.entropy.contains(&iteration),
                surface_iteration: (iteration > schedule.prune.max(schedule.start))
                    .then(|| iteration - schedule.prune - 1),
                ..moment
            },
        }
    }

    /// Returns the weight of masked pixels. Masks that cut no object out may hide what exists, and a pixel of a smaller view
    /// is masked if one of its pixels is.
    fn empty_weight(&self) -> f64 {
        let is_cut_out = self.extras.mask && self.optimize.weights_masked_pixels();
        if is_cut_out && self.is_full_size { self.optimize.empty_weight } else { 0.0 }
    }

    /// True in the photometric stage of surfels, after `iteration`.
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

    /// Returns the weight of a sampled term, scaled up if it is only used every few iterations.
    fn sampled_weight(&self, factor: f64) -> f64 {
        let counts = if self.sugar.reference_weighting { 1 } else { self.sugar.sdf_every };
        factor * f64::from(counts)
    }
}

/// Returns the terms of `iteration` (from 1) for a view with these extras.
pub fn active(
    config: &Config,
    stage: TrainingStage<'_>,
    iteration: u32,
    extras: ViewExtras,
) -> Terms {
    let moment = Moment { extras, ..Moment::new(config, stage, iteration) };
    let (count, seed) = (config.sugar.n_samples_for_sdf, config.run.seed);
    let mut terms = Terms::default().sampled_by(SampleRule { count, seed, iteration });
    for row in ROWS.iter().filter(|row| (row.window)(&moment) && (row.due)(&moment)) {
        terms.add((row.term)(&moment), (row.weight)(&moment));
    }
    terms
}

/// Returns all terms that are used, at least now and then, in the part of the run around `iteration` (from 1).
pub fn open(config: &Config, stage: TrainingStage<'_>, iteration: u32) -> Vec<Term> {
    let moment = Moment::new(config, stage, iteration);
    ROWS.iter().filter(|row| (row.window)(&moment)).map(|row| (row.term)(&moment)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::terms::{
        Inputs, Topic, VALUE_DENSITY, VALUE_DEPTH_L1, VALUE_DISTORTION, VALUE_DN, VALUE_ENTROPY,
        VALUE_MULTI_VIEW, VALUE_NORMAL, VALUE_NORMAL_MAP, VALUE_SDF,
    };
    use crate::config::{RegReach, ResolutionSchedule, SugarSchedule};

    const NORMALS: Inputs = Inputs { maps: true, ..Inputs::NONE };

    fn config(start: u32, schedule: SugarSchedule) -> Config {
        let mut config = Config::default();
        config.optimize.iterations = start;
        config.sugar.regularize = Regularize::Density;
        config.sugar.sugar_schedule = schedule;
        config
    }

    #[test]
    fn a_run_with_maps_of_normals_will_need_inverse_depths() {
        let mut config = Config::default();
        let inputs =
            |config: &Config| crate::train::forecast::inputs(config, ViewExtras::intended(config));
        assert_eq!(inputs(&config), Inputs::NONE);
        config.optimize.normals = Some("normals".to_owned());
        assert_eq!(inputs(&config), Inputs { inverse_depths: true, ..Inputs::NONE });
        config.optimize.lambda_normals_super = 0.0;
        assert_eq!(inputs(&config), Inputs::NONE);
    }

    fn stage(schedule: &CoarseSchedule) -> TrainingStage<'_> {
        TrainingStage::Coarse { schedule, extent: 2.0 }
    }

    fn coarse_terms(config: &Config, iteration: u32) -> Terms {
        let schedule = CoarseSchedule::of(config).expect("a stage");
        active(config, stage(&schedule), iteration, ViewExtras::default())
    }

    /// Returns the first and last iteration that satisfy `is_on`.
    fn span(config: &Config, is_on: impl Fn(&Terms) -> bool) -> [u32; 2] {
        let last = CoarseSchedule::of(config).expect("a stage").last;
        let on: Vec<u32> = (1..=last).filter(|&it| is_on(&coarse_terms(config, it))).collect();
        let [first, .., last] = on[..] else { panic!("{on:?}") };
        assert_eq!(on.len(), (last - first + 1) as usize, "without a gap");
        [first, last]
    }

    #[test]
    fn the_absolute_schedule_is_the_references() {
        for start in [1, 7000, 8000] {
            let config = config(start, SugarSchedule::Absolute);
            let first = 7001.max(start + 1);
            let entropy = span(&config, |terms| terms.weight(VALUE_ENTROPY) > 0.0);
            assert_eq!(entropy, [first, 8999]);
            assert_eq!(span(&config, |terms| terms.needs().samples), [9001, 15_000]);
        }
    }

    #[test]
    fn the_relative_schedule_does_not_depend_on_its_start() {
        for start in [7000, 40_000] {
            let config = config(start, SugarSchedule::Relative);
            let spans = [
                span(&config, |terms| terms.weight(VALUE_ENTROPY) > 0.0),
                span(&config, |terms| terms.needs().samples),
            ];
            assert_eq!(spans.map(|span| span.map(|it| it - start)), [[2, 2000], [2002, 8000]]);
        }
        let mut short = config(7, SugarSchedule::Relative);
        short.sugar.sugar_iterations = 1;
        assert!(!coarse_terms(&short, 8).has_topic(Topic::Surface), "no time for anything");
    }

    #[test]
    fn inverse_depths_count_if_the_view_has_a_map() {
        let config = Config::default();
        let weights = [true, false].map(|depth_map| {
            let extras = ViewExtras { depth_map, ..ViewExtras::default() };
            active(&config, TrainingStage::Photometric, 1, extras).weight(VALUE_DEPTH_L1)
        });
        assert_eq!(Some(weights[0]), schedule::depth_weight(&config.optimize, 1));
        assert!(weights[0] > 0.0 && weights[1] == 0.0, "{weights:?}");
    }

    #[test]
    fn masked_pixels_count_in_views_of_full_size_around_a_cut_out_object() {
        let weight = |iteration, mask, change: fn(&mut OptimizeOptions)| {
            let mut config = Config::default();
            (config.optimize.empty_weight, config.optimize.reg_reach) = (0.1, RegReach::All);
            change(&mut config.optimize);
            let extras = ViewExtras { mask, ..ViewExtras::default() };
            active(&config, TrainingStage::Photometric, iteration, extras).empty_weight()
        };
        assert_eq!(weight(1, true, |_| ()), 0.1);
        assert_eq!(weight(1, false, |_| ()), 0.0);
        assert_eq!(weight(1, true, |options| options.reg_reach = RegReach::Seen), 0.0);
        assert_eq!(weight(1, true, |options| options.exposure = true), 0.0);
        assert_eq!(weight(1, true, |options| options.bilateral_grid = true), 0.0);
        let grows = |options: &mut OptimizeOptions| {
            options.resolution_schedule = ResolutionSchedule::Linear;
        };
        assert_eq!([1, 29_999].map(|iteration| weight(iteration, true, grows)), [0.0, 0.1]);
    }

    #[test]
    fn normals_count_after_the_given_iteration_if_there_is_a_map() {
        let mut config = Config::default();
        let weight = |config: &Config, iteration, normal_map| {
            let extras = ViewExtras { normal_map, ..ViewExtras::default() };
            let terms = active(config, TrainingStage::Photometric, iteration, extras);
            let needed = Inputs { inverse_depths: true, ..Inputs::NONE };
            let weight = terms.weight(VALUE_NORMAL_MAP);
            assert_eq!(terms.needs(), if weight > 0.0 { needed } else { Inputs::NONE });
            weight
        };
        let found = [(5000, true), (5001, true), (5001, false)];
        let found = found.map(|(iteration, map)| weight(&config, iteration, map));
        assert_eq!(found, [0.0, 0.01, 0.0]);
        config.optimize.normals_from_iter = 0;
        config.optimize.lambda_normals_super = 0.5;
        assert_eq!(weight(&config, 1, true), 0.5);
        config.optimize.lambda_normals_super = 0.0;
        assert_eq!(weight(&config, 1, true), 0.0);
    }

    #[test]
    fn surfels_are_regularised_after_the_given_iterations() {
        let mut config = config(9000, SugarSchedule::Relative);
        let weights = |config: &Config, iteration| {
            let terms =
                active(config, TrainingStage::Photometric, iteration, ViewExtras::default());
            [VALUE_DN, VALUE_DISTORTION].map(|place| terms.weight(place))
        };
        config.optimize.lambda_dist = 100.0;
        assert_eq!(weights(&config, 9000), [0.0; 2], "of Gaussians");
        config.optimize.primitive = PrimitiveName::Surfels;
        for (iteration, expected) in
            [(3000, [0.0; 2]), (3001, [0.0, 100.0]), (7000, [0.0, 100.0]), (7001, [0.05, 100.0])]
        {
            assert_eq!(weights(&config, iteration), expected, "{iteration}");
        }
        let terms = |config: &Config| {
            active(config, TrainingStage::Photometric, 9000, ViewExtras::default())
        };
        let both = Inputs { inverse_depths: true, inverse_squares: true, ..NORMALS };
        assert_eq!(terms(&config).needs(), both);
        let consistency = Term::DepthNormal { depths: NormalDepths::Opaque };
        assert!(terms(&config).active().any(|weighted| weighted.term == consistency));
        (config.optimize.lambda_normal, config.optimize.lambda_normal_from) = (0.2, 0);
        config.optimize.lambda_dist = 0.0;
        assert_eq!((weights(&config, 1), terms(&config).needs()), ([0.2, 0.0], NORMALS));
        assert_eq!(coarse_terms(&config, 9001).weight(VALUE_DN), 0.0, "the stage has its own");
    }

    /// Returns the terms of the iteration with surface terms number `number`.
    fn surface_terms(options: &SugarOptions, number: u32) -> Terms {
        let of_stage = config(7000, SugarSchedule::Relative);
        let schedule = CoarseSchedule::of(&of_stage).expect("a stage");
        let config = Config { sugar: options.clone(), ..of_stage };
        let extras = ViewExtras { other_view: true, ..ViewExtras::default() };
        active(&config, stage(&schedule), schedule.prune + 1 + number, extras)
    }

    #[test]
    fn a_term_of_every_fifth_iteration_weighs_five_times_unless_set_to_once() {
        let mut options = config(7000, SugarSchedule::Relative).sugar;
        options.sdf_every = 5;
        let weights = |options: &SugarOptions, number| {
            let terms = surface_terms(options, number);
            (terms.weight(VALUE_DENSITY), terms.weight(VALUE_NORMAL))
        };
        let found: Vec<_> = (0..6).map(|number| weights(&options, number)).collect();
        assert_eq!(found[1..5], [(0.0, 0.0); 4]);
        assert_eq!((found[0], found[5]), ((1.0, 1.0), (1.0, 1.0)));
        options.reference_weighting = true;
        assert_eq!(weights(&options, 5), (0.2, 0.2));
    }

    #[test]
    fn a_term_of_every_fifth_iteration_stays_open_in_between() {
        let mut config = config(7000, SugarSchedule::Absolute);
        config.sugar.sdf_every = 5;
        let schedule = CoarseSchedule::of(&config).expect("a stage");
        let stage = TrainingStage::Coarse { schedule: &schedule, extent: 2.0 };
        let is_open = |term: Term, iteration| open(&config, stage, iteration).contains(&term);
        assert!(is_open(Term::Density, 9001) && is_open(Term::Density, 9002));
        assert!(is_open(Term::Entropy, 8999) && !is_open(Term::Entropy, 9001));
        assert!(!is_open(Term::Density, 8999));
    }

    #[test]
    fn each_kind_has_its_terms() {
        let mut options = config(7000, SugarSchedule::Relative).sugar;
        let terms = |options: &SugarOptions| surface_terms(options, 0);
        assert_eq!(terms(&options).weight(VALUE_DN), 0.0);
        options.regularize = Regularize::DnConsistency;
        let compares = |terms: &Terms, depths| {
            terms.active().any(|one| one.term == Term::DepthNormal { depths })
        };
        let found = terms(&options);
        assert_eq!((found.weight(VALUE_DN), found.weight(VALUE_DENSITY)), (0.05, 0.2));
        assert!(compares(&found, NormalDepths::Opaque) && found.needs().maps);
        options.dn_by_opacity = false;
        assert!(compares(&terms(&options), NormalDepths::All));
        options.regularize = Regularize::MedianNormal;
        let found = terms(&options);
        assert!(compares(&found, NormalDepths::Median) && found.needs().median);
        assert_eq!((found.weight(VALUE_DN), found.weight(VALUE_DENSITY)), (0.05, 0.2));
        assert_eq!(found.weight(VALUE_MULTI_VIEW), 0.0);
        options.multi_view = true;
        let found = terms(&options);
        assert_eq!((found.weight(VALUE_MULTI_VIEW), found.weight(VALUE_DN)), (0.6, 0.05));
        options.dn_factor = 0.0;
        assert!(terms(&options).needs().other_view && terms(&options).needs().median);
        options.multi_view_factor = 0.0;
        assert!(!terms(&options).needs().maps);
        options.regularize = Regularize::Sdf;
        let found = terms(&options);
        let weights = [VALUE_DENSITY, VALUE_SDF, VALUE_NORMAL].map(|value| found.weight(value));
        assert_eq!((weights, found.sdf_unit()), ([0.0, 0.2, 0.2], Some(0.2)));
        options.regularize = Regularize::None;
        assert!(!terms(&options).needs().samples);
    }
}
