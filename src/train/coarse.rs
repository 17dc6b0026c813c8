//! When SuGaR's coarse stage does what (Guédon and Lepetit 2024, sections 4.1 and 5).
//!
//! The authors' program starts behind iteration 6,999, has opacities go to 0 or 1 from 7,001 to 8,999,
//! removes at 9,001 what is rather transparent than opaque, and from there to 15,000 asks for surfaces:
//! a quarter of the stage and the rest of it.

use std::ops::RangeInclusive;

use super::schedule;
use crate::backend::{AdamStep, EditRule, Grow, Keep, NormalRule, Rates, SurfaceRule};
use crate::config::{Config, Regularize, SugarOptions, SugarSchedule};

/// Iterations of the authors' program that are done when its stage begins, as it counts them.
const REFERENCE_START: u32 = 6999;

/// Of the authors' program, the iterations in which opacities go to 0 or 1.
const REFERENCE_ENTROPY: RangeInclusive<u32> = 7001..=8999;

/// Of the authors' program, the iteration behind which what is rather transparent goes.
const REFERENCE_PRUNE: u32 = 9000;

/// Part of the stage that is for opacities.
const OPACITIES_PART: u32 = 4;

/// Weight of the opacities' mean entropy.
const ENTROPY_FACTOR: f64 = 0.1;

/// Opacity below which a Gaussian is rather transparent than opaque.
const OPAQUE_MIN: f64 = 0.5;

/// Iterations after which centres have moved so far that their neighbours are found anew.
const NEIGHBOURS_INTERVAL: u32 = 500;

/// Iterations between two reports of the terms.
const REPORT_INTERVAL: u32 = 100;

/// Share of the extent of the cameras that the distances of the SDF term are measured in.
const SDF_UNIT_SHARE: f64 = 0.1;

/// The stage in iterations of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoarseSchedule {
    /// The last iteration of the photometric stage.
    pub start: u32,
    /// The last of this one.
    pub last: u32,
    /// Those in which opacities go to 0 or 1.
    pub entropy: RangeInclusive<u32>,
    /// The one behind which what is rather transparent than opaque goes.
    pub prune: u32,
    schedule: SugarSchedule,
}

impl CoarseSchedule {
    /// The stage of a run that has one.
    pub fn of(config: &Config) -> Option<Self> {
        if !config.has_coarse_stage() {
            return None;
        }
        let (start, last) = (config.optimize.iterations, config.last_iteration());
        let schedule = config.sugar.sugar_schedule;
        let (entropy, prune) = match schedule {
            SugarSchedule::Relative => {
                let quarter = start.saturating_add((last - start) / OPACITIES_PART);
                (start.saturating_add(2)..=quarter, quarter.saturating_add(1))
            }
            SugarSchedule::Absolute => (REFERENCE_ENTROPY, REFERENCE_PRUNE),
        };
        Some(Self { start, last, entropy, prune, schedule })
    }

    /// Whether `iteration` (from 1) is one of the stage.
    pub fn contains(&self, iteration: u32) -> bool {
        iteration > self.start
    }

    /// Whether surfaces are asked for in `iteration` (from 1).
    pub fn asks_for_surfaces(&self, iteration: u32) -> bool {
        self.contains(iteration) && iteration > self.prune
    }

    /// Whether neighbours are found anew after so many iterations, though some are there.
    pub fn is_neighbour_update(&self, iteration: u32) -> bool {
        iteration > self.prune && (iteration - self.prune).is_multiple_of(NEIGHBOURS_INTERVAL)
    }

    /// Whether the terms are told of after `iteration`.
    pub fn reports(&self, iteration: u32) -> bool {
        self.contains(iteration) && iteration.is_multiple_of(REPORT_INTERVAL)
    }

    /// Learning rates of `iteration` (from 1): those that the authors' program has as far behind the
    /// start of its stage, wherever this one starts.
    fn rates(&self, config: &Config, extent: f64, iteration: u32) -> Rates {
        let at = match self.schedule {
            SugarSchedule::Relative => REFERENCE_START.saturating_add(iteration - self.start),
            SugarSchedule::Absolute => iteration,
        };
        schedule::rates(&config.optimize, extent, at)
    }

    /// The step of `iteration` (from 1). The stage starts with moments of zero.
    pub fn step(&self, config: &Config, extent: f64, iteration: u32) -> AdamStep {
        AdamStep::new(iteration - self.start, self.rates(config, extent, iteration))
    }
}

/// The removal of what is rather transparent than opaque.
pub const PRUNE_RULE: EditRule =
    EditRule::Grow { large: Grow::Copy, keep: Keep { opacity_min: OPAQUE_MIN, scale_max: None } };

/// What an iteration asks of surfaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Of opacities, and at samples.
    pub rule: SurfaceRule,
    /// Of drawn normals beside drawn depths: the weight, and how pixels count.
    pub normals: Option<(f64, NormalRule)>,
}

impl Asked {
    /// Whether depths and normals have to be drawn beside the colours.
    pub fn wants_maps(&self) -> bool {
        self.normals.is_some() || self.rule.compares_distances()
    }

    /// What `iteration` (from 1) of a run in a scene of this extent asks for.
    pub fn of(
        config: &Config,
        course: &CoarseSchedule,
        extent: f64,
        iteration: u32,
    ) -> Option<Self> {
        if !course.contains(iteration) {
            return None;
        }
        let mut asked = Self::nothing(&config.sugar, (config.run.seed, extent), iteration);
        if course.entropy.contains(&iteration) {
            asked.rule.entropy = ENTROPY_FACTOR;
        }
        if course.asks_for_surfaces(iteration) {
            asked.ask_for_surfaces(&config.sugar, iteration - course.prune - 1);
        }
        let asks = asked.rule.entropy != 0.0 || asked.rule.is_sampled() || asked.normals.is_some();
        asks.then_some(asked)
    }

    /// All that these options ask of surfaces, with a seed and in a scene of this extent, so many
    /// iterations after the first that did.
    pub fn surfaces(options: &SugarOptions, (seed, extent): (u64, f64), number: u32) -> Self {
        let mut asked = Self::nothing(options, (seed, extent), number);
        asked.ask_for_surfaces(options, number);
        asked
    }

    fn nothing(options: &SugarOptions, (seed, extent): (u64, f64), iteration: u32) -> Self {
        let rule = SurfaceRule {
            entropy: 0.0,
            density: 0.0,
            sdf: 0.0,
            sdf_unit: SDF_UNIT_SHARE * extent,
            normal: 0.0,
            samples: options.n_samples_for_sdf,
            seed,
            iteration,
        };
        Self { rule, normals: None }
    }

    fn ask_for_surfaces(&mut self, options: &SugarOptions, number: u32) {
        if number.is_multiple_of(options.sdf_every) {
            let counts = if options.reference_weighting { 1 } else { options.sdf_every };
            let [estimation, normal] = [options.estimation_factor, options.normal_factor]
                .map(|factor| factor * f64::from(counts));
            self.rule.normal = normal;
            match options.regularize {
                Regularize::Density | Regularize::DnConsistency => self.rule.density = estimation,
                Regularize::Sdf => self.rule.sdf = estimation,
                Regularize::None => self.rule.normal = 0.0,
            }
        }
        let compares = options.regularize == Regularize::DnConsistency && options.dn_factor > 0.0;
        let pixels =
            if options.dn_by_opacity { NormalRule::ByOpacity } else { NormalRule::EveryPixel };
        self.normals = compares.then_some((options.dn_factor, pixels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(start: u32, schedule: SugarSchedule) -> Config {
        let mut config = Config::default();
        config.optimize.iterations = start;
        config.sugar.regularize = Regularize::Density;
        config.sugar.sugar_schedule = schedule;
        config
    }

    /// The first and last iteration in which something is asked for.
    fn span(config: &Config, asks: impl Fn(&Asked) -> bool) -> [u32; 2] {
        let course = CoarseSchedule::of(config).expect("a stage");
        let asked: Vec<u32> = (1..=course.last)
            .filter(|&it| Asked::of(config, &course, 2.0, it).is_some_and(|asked| asks(&asked)))
            .collect();
        let [first, .., last] = asked[..] else { panic!("{asked:?}") };
        assert_eq!(asked.len(), (last - first + 1) as usize, "without a gap");
        [first, last]
    }

    #[test]
    fn the_absolute_schedule_is_the_references() {
        for start in [1, 7000, 8000] {
            let config = config(start, SugarSchedule::Absolute);
            let course = CoarseSchedule::of(&config).expect("a stage");
            assert_eq!((course.prune, course.last), (9000, 15_000));
            let first = 7001.max(start + 1);
            assert_eq!(span(&config, |asked| asked.rule.entropy > 0.0), [first, 8999]);
            assert_eq!(span(&config, |asked| asked.rule.is_sampled()), [9001, 15_000]);
        }
    }

    #[test]
    fn the_relative_schedule_is_the_same_wherever_it_starts() {
        for start in [7000, 40_000] {
            let config = config(start, SugarSchedule::Relative);
            let course = CoarseSchedule::of(&config).expect("a stage");
            assert_eq!((course.prune - start, course.last - start), (2001, 8000));
            let spans = [
                span(&config, |asked| asked.rule.entropy > 0.0),
                span(&config, |asked| asked.rule.is_sampled()),
            ];
            assert_eq!(spans.map(|span| span.map(|it| it - start)), [[2, 2000], [2002, 8000]]);
            let reference = schedule::rates(&config.optimize, 2.0, 7122);
            let step = course.step(&config, 2.0, start + 123);
            assert_eq!((step.rates, step.number), (reference, 123));
        }
        let short = Config {
            sugar: SugarOptions { sugar_iterations: 1, ..config(7, SugarSchedule::Relative).sugar },
            ..config(7, SugarSchedule::Relative)
        };
        let course = CoarseSchedule::of(&short).expect("a stage");
        assert!(Asked::of(&short, &course, 1.0, 8).is_none(), "no time for anything");
    }

    #[test]
    fn neighbours_are_found_anew_every_500_iterations_behind_the_prune() {
        let course = CoarseSchedule::of(&config(7000, SugarSchedule::Relative)).expect("a stage");
        let found: Vec<u32> =
            (1..=course.last).filter(|&i| course.is_neighbour_update(i)).collect();
        assert_eq!((found[0], found.len()), (9501, 11));
    }

    #[test]
    fn a_term_of_every_fifth_iteration_weighs_five_times_unless_set_to_once() {
        let mut options = config(7000, SugarSchedule::Relative).sugar;
        options.sdf_every = 5;
        let asked = |options: &SugarOptions, number| {
            let rule = Asked::surfaces(options, (1, 2.0), number).rule;
            (rule.density, rule.normal)
        };
        let rules: Vec<_> = (0..6).map(|number| asked(&options, number)).collect();
        assert_eq!(rules[1..5], [(0.0, 0.0); 4]);
        assert_eq!((rules[0], rules[5]), ((1.0, 1.0), (1.0, 1.0)));
        options.reference_weighting = true;
        assert_eq!(asked(&options, 5), (0.2, 0.2));
    }

    #[test]
    fn each_kind_asks_for_its_terms() {
        let mut options = config(7000, SugarSchedule::Relative).sugar;
        let asked = |options: &SugarOptions| Asked::surfaces(options, (1, 2.0), 0);
        assert_eq!(asked(&options).normals, None);
        options.regularize = Regularize::DnConsistency;
        assert_eq!(asked(&options).normals, Some((0.05, NormalRule::EveryPixel)));
        assert_eq!(asked(&options).rule.density, 0.2);
        options.dn_by_opacity = true;
        assert_eq!(asked(&options).normals, Some((0.05, NormalRule::ByOpacity)));
        options.dn_factor = 0.0;
        assert_eq!(asked(&options).normals, None);
        options.regularize = Regularize::Sdf;
        let rule = asked(&options).rule;
        assert_eq!((rule.density, rule.sdf, rule.normal, rule.sdf_unit), (0.0, 0.2, 0.2, 0.2));
        options.regularize = Regularize::None;
        assert!(
            CoarseSchedule::of(&Config::default()).is_none() && !asked(&options).rule.is_sampled()
        );
    }
}
