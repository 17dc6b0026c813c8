//! Schedules of a run: learning rates, SH degree, milestones, order and size of views, background, prunes, 3D filter.

use super::span::ImageSpan;
use crate::backend::Rates;
use crate::config::{
    Config, OptimizeOptions, OutputOptions, PrimitiveName, ResolutionSchedule, TrainingBackground,
};
use crate::math::adam::RateBySize;
use crate::math::random::{RandomStream, RandomUse};
use crate::math::{Divisor, Real as _};

/// Default ratio of the base colour's learning rate to that of higher SH degrees.
const SH_REST_SLOWDOWN: f64 = 20.0;

/// Size of a Gaussian whose position rate is not scaled by size, as a share of the cameras' extent.
const SIZE_UNIT: f64 = 0.005;

/// Returns the learning rates of `iteration` (from 1). Position rates scale with the cameras' extent, except those of
/// triangle vertices.
pub fn rates(options: &OptimizeOptions, extent: f64, iteration: u32) -> Rates {
    let unit = match options.primitive {
        PrimitiveName::Gaussians | PrimitiveName::Surfels => extent,
        PrimitiveName::Triangles => 1.0,
    };
    // The rate stays constant after `position_lr_max_steps`.
    let positions = [options.position_lr_init, options.position_lr_final];
    Rates {
        means: log_linear(positions, iteration, options.position_lr_max_steps) * unit,
        log_scales: options.scaling_lr,
        quats: options.rotation_lr,
        opacity_logits: options.opacity_lr,
        sh_dc: options.feature_lr,
        sh_rest: options.feature_rest_lr.unwrap_or(options.feature_lr / SH_REST_SLOWDOWN),
    }
}

/// Returns the learning rates of the photometric stage. From `final_lr_from` of its iterations on, all rates except
/// those of positions fall log-linearly to `final_lr_share`.
pub fn photometric_rates(options: &OptimizeOptions, extent: f64, iteration: u32) -> Rates {
    let rates = rates(options, extent, iteration);
    Rates { means: rates.means, ..scaled(rates, final_factor(options, iteration)) }
}

/// Multiplies all rates by a factor.
pub(super) fn scaled(rates: Rates, factor: f64) -> Rates {
    let Rates { means, log_scales, quats, opacity_logits, sh_dc, sh_rest } = rates;
    Rates {
        means: means * factor,
        log_scales: log_scales * factor,
        quats: quats * factor,
        opacity_logits: opacity_logits * factor,
        sh_dc: sh_dc * factor,
        sh_rest: sh_rest * factor,
    }
}

/// Returns the dependence of position rates on Gaussian sizes in the photometric stage, if any.
pub fn rate_by_size(options: &OptimizeOptions, extent: f64) -> Option<RateBySize> {
    let exponent = options.position_lr_by_size;
    let unit = SIZE_UNIT * extent;
    (exponent > 0.0 && unit > 0.0).then_some(RateBySize { exponent, unit })
}

/// Returns the late factor on the learning rates.
fn final_factor(options: &OptimizeOptions, iteration: u32) -> f64 {
    if options.final_lr_share == 1.0 {
        return 1.0;
    }
    let iterations = f64::from(options.iterations);
    let from = options.final_lr_from * iterations;
    let passed = (f64::from(iteration) - from) / (iterations - from).max(1.0);
    options.final_lr_share.powf(passed.clamp(0.0, 1.0))
}

/// Returns the loss weight of inverse depths in `iteration` (from 1). `None` if it is 0.
pub fn depth_weight(options: &OptimizeOptions, iteration: u32) -> Option<f64> {
    let weights = [options.depth_l1_weight_init, options.depth_l1_weight_final];
    Some(log_linear(weights, iteration, options.iterations)).filter(|&weight| weight > 0.0)
}

/// Interpolates log-linearly over `steps` iterations, then stays constant. Linear if either value is 0.
fn log_linear([first, last]: [f64; 2], iteration: u32, steps: u32) -> f64 {
    let t = (f64::from(iteration) / f64::from(steps.max(1))).clamp(0.0, 1.0);
    if first > 0.0 && last > 0.0 {
        (first.ln() * (1.0 - t) + last.ln() * t).exp()
    } else {
        first * (1.0 - t) + last * t
    }
}

/// Returns the SH degree of `iteration` (from 1): one more every `sh_degree_interval`. Models of `--init` and the
/// coarse stage use the full degree.
pub fn sh_degree(options: &OptimizeOptions, iteration: u32) -> u32 {
    if options.init.is_some() || iteration > options.iterations {
        return options.sh_degree;
    }
    (iteration / options.sh_degree_interval.max(1)).min(options.sh_degree)
}

/// Work that is due after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milestones {
    /// Evaluate the held-out views.
    pub evaluate: bool,
    /// Save the Gaussians as PLY.
    pub save: bool,
    /// Write a checkpoint.
    pub checkpoint: bool,
}

impl Milestones {
    /// Returns the work due after a step; the last of a stage always evaluates, saves and checkpoints.
    pub fn after(output: &OutputOptions, span: ImageSpan, lasts: &[u32]) -> Self {
        let is_last = lasts.iter().any(|&last| span.hits(last));
        let hits = |&listed: &i64| u32::try_from(listed).is_ok_and(|listed| span.hits(listed));
        let listed = |list: &[i64]| is_last || list.iter().any(hits);
        Self {
            evaluate: listed(&output.test_iterations),
            save: listed(&output.save_iterations),
            checkpoint: listed(&output.checkpoint_iterations),
        }
    }

    /// True if any work is due.
    pub fn any(self) -> bool {
        self.evaluate || self.save || self.checkpoint
    }
}

/// Returns the iterations after which held-out views are evaluated.
pub fn evaluations(config: &Config) -> Vec<u32> {
    let listed = config.output.test_iterations.iter().filter_map(|&at| u32::try_from(at).ok());
    listed.chain([config.optimize.iterations, config.last_iteration()]).collect()
}

/// Order of the training views. Every epoch is a new permutation that depends only on the seed and the epoch.
#[derive(Clone, Debug)]
pub struct ViewOrder {
    seed: u64,
    views: Vec<usize>,
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    number: u32,
    /// All views in the order of the epoch.
    order: Vec<usize>,
}

impl ViewOrder {
    /// Orders these views. `views` must not be empty.
    pub fn new(seed: u64, views: Vec<usize>) -> Self {
        Self { seed, views, epoch: None }
    }

    /// Returns the number of views.
    pub fn view_count(&self) -> usize {
        self.views.len()
    }

    /// Returns the rest of the epoch, beginning with the view of `iteration` (from 1).
    pub fn coming(&mut self, iteration: u32) -> &[usize] {
        let count = self.views.len();
        let done = iteration.saturating_sub(1) as usize;
        let number = u32::try_from(done / count).unwrap_or(u32::MAX);
        if self.epoch.as_ref().is_none_or(|current| current.number != number) {
            let stream = RandomStream::new(self.seed, u64::from(number), RandomUse::ViewOrder);
            let order = stream.permutation(count).into_iter().map(|i| self.views[i]).collect();
            self.epoch = Some(Epoch { number, order });
        }
        self.epoch.as_ref().map_or(&[], |epoch| &epoch.order[done % count..])
    }

    /// Returns the views of the epoch after that of `iteration`.
    pub fn following(&self, iteration: u32) -> Vec<usize> {
        let next = iteration.saturating_sub(1) as usize / self.views.len() + 1;
        let stream = RandomStream::new(self.seed, next as u64, RandomUse::ViewOrder);
        stream.permutation(self.views.len()).into_iter().map(|i| self.views[i]).collect()
    }
}

// Updates of the 3D filter between densification steps, as in the program of Mip-Splatting (Yu et al. 2024).

/// Iterations between two updates after density control.
const INTERVAL: u32 = 100;

/// True if the filter is updated after a step. Centres still move after density control, but the last iterations
/// train with the filter that is saved.
pub(super) fn is_due(config: &Config, span: ImageSpan) -> bool {
    let from = config.densify.densify_until_iter;
    let until = config.optimize.iterations.saturating_sub(INTERVAL);
    let in_window = |iteration: u32| iteration > from && iteration < until;
    config.optimize.filter_3d && span.multiple(INTERVAL).is_some_and(in_window)
}

/// Prune to `--target-gaussians`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetPrune {
    /// Iteration after which it comes: the end of density control.
    pub(super) iteration: u32,
    /// Number of Gaussians that stay.
    pub(super) target: usize,
}

impl TargetPrune {
    /// Returns the prune of a run, if it has one.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let target = usize::try_from(config.densify.target_gaussians?).unwrap_or(usize::MAX);
        // Without density control it comes at the first opportunity.
        Some(Self { iteration: config.densify.densify_until_iter.max(1), target })
    }

    /// True if the prune comes after a step.
    pub(super) fn is_due(self, span: ImageSpan) -> bool {
        span.hits(self.iteration)
    }
}

// Reduced size of the training views at the start of a run.

/// Share of a photograph's pixels in the first iterations.
const FIRST_SHARE: f64 = 1.0 / 16.0;

/// Share of the photometric iterations after which views have their full size at the latest.
const GROWTH_PART: f64 = 0.6;

/// Returns the divisor of the view's sides in `iteration` (from 1). It changes after multiples of
/// `--densification-interval`, so that a densification step usually observes one size.
///
/// The number of pixels grows linearly (in `DashGaussian`, Chen et al. 2025, it follows the
/// photographs' spectra), and the nearest divisor is used. Views have their full size once the
/// schedule asks for it, and in the coarse stage.
pub(crate) fn view_divisor(config: &Config, iteration: u32) -> Divisor {
    match config.optimize.resolution_schedule {
        ResolutionSchedule::None => Divisor::One,
        ResolutionSchedule::Linear => {
            let full = f64::from(config.optimize.iterations) * GROWTH_PART;
            let full = full.min(f64::from(config.densify.densify_until_iter));
            let interval = config.densify.densification_interval.max(1);
            let done = iteration.saturating_sub(1);
            if iteration > config.optimize.iterations || f64::from(done) >= full {
                return Divisor::One;
            }
            let since = f64::from(done / interval * interval);
            let share = FIRST_SHARE + (1.0 - FIRST_SHARE) * since / full;
            Divisor::nearest(1.0 / share.sqrt())
        }
    }
}

// Background of the training views.

/// Returns the background of an image's view in an iteration, both from 1.
///
/// A grey background forces dark surfaces to become opaque. Before black they may stay transparent, and other views
/// see through them. After density control and in the coarse stage the background is that of evaluation.
pub(super) fn training_background(config: &Config, image: u32, iteration: u32) -> [f32; 3] {
    if config.optimize.random_background {
        let stream = RandomStream::new(config.run.seed, u64::from(image), RandomUse::Background);
        return [0, 1, 2].map(|channel| stream.uniform(channel).to_f32());
    }
    let is_grey = config.densify.training_background == TrainingBackground::Grey
        && config.sugar.checkpoint_path.is_none()
        && iteration <= config.densify.densify_until_iter.min(config.optimize.iterations);
    if is_grey { TrainingBackground::GREY.0 } else { config.scene.background_color().0 }
}

/// True if an image leaves out the Gaussians right before its camera and far outside the image (`--near-share`). No
/// image can depend on such Gaussians, because half of the images leave them out. Such Gaussians stay faint, because
/// the other images draw them as all programs do.
pub(super) fn leaves_gaussians_out(config: &Config, image: u32) -> bool {
    config.scene.near_share > 0.0 && image % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Color;

    #[test]
    fn the_position_rate_falls_log_linearly_and_then_stays() {
        let options = OptimizeOptions::default();
        let at = |iteration| rates(&options, 2.0, iteration).means;
        // Rounding of exp(ln(x)).
        assert!((at(0) / 3.2e-4 - 1.0).abs() < 1e-12);
        assert!((at(15_000) / 3.2e-5 - 1.0).abs() < 1e-12);
        assert!((at(90_000) / 3.2e-6 - 1.0).abs() < 1e-12);
        let triangles = OptimizeOptions { primitive: PrimitiveName::Triangles, ..options.clone() };
        assert!((rates(&triangles, 2.0, 0).means / 1.6e-4 - 1.0).abs() < 1e-12);
        let frozen = OptimizeOptions { position_lr_init: 0.0, position_lr_final: 0.0, ..options };
        assert_eq!(rates(&frozen, 2.0, 10).means, 0.0);
    }

    #[test]
    fn other_rates_fall_to_their_share_at_the_end_of_the_photometric_stage() {
        let options = OptimizeOptions {
            iterations: 1000,
            final_lr_share: 0.25,
            final_lr_from: 0.6,
            ..OptimizeOptions::default()
        };
        let full = rates(&options, 1.0, 1);
        for (iteration, share) in [(1, 1.0), (600, 1.0), (800, 0.5), (1000, 0.25), (2000, 0.25)] {
            let found = photometric_rates(&options, 1.0, iteration);
            assert_eq!(found.means, rates(&options, 1.0, iteration).means);
            let pairs = [
                (found.log_scales, full.log_scales),
                (found.quats, full.quats),
                (found.opacity_logits, full.opacity_logits),
                (found.sh_dc, full.sh_dc),
                (found.sh_rest, full.sh_rest),
            ];
            for (found, full) in pairs {
                // Rounding of a power.
                assert!((found / full / share - 1.0).abs() < 1e-12, "{iteration}: {found}");
            }
        }
        let whole = OptimizeOptions { final_lr_share: 1.0, ..options };
        assert_eq!(photometric_rates(&whole, 1.0, 1000), rates(&whole, 1.0, 1000));
    }

    #[test]
    fn rates_follow_sizes_if_an_exponent_is_given() {
        let options = OptimizeOptions { position_lr_by_size: 0.5, ..OptimizeOptions::default() };
        let expected = RateBySize { exponent: 0.5, unit: 0.02 };
        assert_eq!(rate_by_size(&options, 4.0), Some(expected));
        assert_eq!(rate_by_size(&options, 0.0), None);
        assert_eq!(rate_by_size(&OptimizeOptions::default(), 4.0), None);
        let triangles = OptimizeOptions { primitive: PrimitiveName::Triangles, ..options };
        assert_eq!(rate_by_size(&triangles, 4.0), Some(expected));
    }

    #[test]
    fn harmonics_learn_at_a_twentieth_of_the_base_rate_or_at_their_own() {
        let options = OptimizeOptions { feature_lr: 4e-3, ..OptimizeOptions::default() };
        assert_eq!(rates(&options, 1.0, 1).sh_rest, 2e-4);
        let own = OptimizeOptions { feature_rest_lr: Some(1e-3), ..options };
        assert_eq!(rates(&own, 1.0, 1).sh_rest, 1e-3);
    }

    #[test]
    fn the_weight_of_inverse_depths_falls_log_linearly_and_can_be_turned_off() {
        let options = OptimizeOptions { iterations: 200, ..OptimizeOptions::default() };
        let at = |iteration| depth_weight(&options, iteration).unwrap();
        // Rounding of exp(ln(x)).
        for (iteration, expected) in [(0, 1.0), (100, 0.1), (200, 0.01), (900, 0.01)] {
            assert!((at(iteration) / expected - 1.0).abs() < 1e-12, "{iteration}");
        }
        let off =
            OptimizeOptions { depth_l1_weight_init: 0.0, depth_l1_weight_final: 0.0, ..options };
        assert_eq!(depth_weight(&off, 7), None);
    }

    #[test]
    fn the_sh_degree_rises_by_one_every_interval_up_to_its_cap() {
        let options = OptimizeOptions { sh_degree: 2, ..OptimizeOptions::default() };
        let at = |iteration| sh_degree(&options, iteration);
        assert_eq!([at(1), at(999), at(1000), at(2000), at(3000)], [0, 0, 1, 2, 2]);
        let init = Some("model.ply".into());
        assert_eq!(sh_degree(&OptimizeOptions { init, ..options }, 1), 2);
    }

    #[test]
    fn every_view_comes_once_per_epoch_and_a_resumed_run_continues() {
        let views = vec![3, 5, 8, 9, 11];
        let mut order = ViewOrder::new(1, views.clone());
        let run: Vec<usize> = (1..=15).map(|i| order.coming(i)[0]).collect();
        for epoch in run.chunks(5) {
            let mut epoch = epoch.to_vec();
            epoch.sort_unstable();
            assert_eq!(epoch, views);
        }
        assert_ne!(run[..5], run[5..10]);
        assert_eq!(ViewOrder::new(1, views).coming(8), &run[7..10]);
        assert_eq!(order.following(3), run[5..10]);
    }

    #[test]
    fn the_last_iteration_always_saves_and_negative_milestones_never_come() {
        let output = OutputOptions {
            test_iterations: vec![-1],
            save_iterations: vec![7],
            ..Default::default()
        };
        let nothing = Milestones { evaluate: false, save: false, checkpoint: false };
        let after =
            |iteration, lasts: &[u32]| Milestones::after(&output, ImageSpan::of(iteration), lasts);
        assert_eq!(after(5, &[9]), nothing);
        assert_eq!(after(7, &[9]), Milestones { save: true, ..nothing });
        let all = Milestones { evaluate: true, save: true, checkpoint: true };
        assert_eq!(after(9, &[9]), all);
        assert_eq!(after(6, &[6, 9]), all);
        let batch = Milestones::after(&output, ImageSpan { before: 4, after: 8 }, &[9]);
        assert_eq!(batch, Milestones { save: true, ..nothing });
    }

    #[test]
    fn late_filters_come_every_hundred_iterations_from_15100_to_29800() {
        let mut config = Config::default();
        let due = |config: &Config| {
            (0..=30_000).filter(|&i| is_due(config, ImageSpan::of(i))).collect::<Vec<_>>()
        };
        assert!(due(&config).is_empty(), "without the filter");
        config.optimize.filter_3d = true;
        let found = due(&config);
        assert_eq!((found[0], found[1], found[found.len() - 1]), (15_100, 15_200, 29_800));
        config.optimize.iterations = 50;
        assert!(due(&config).is_empty());
    }

    #[test]
    fn the_target_prune_comes_once_at_the_end_of_density_control() {
        let mut config = Config::default();
        assert_eq!(TargetPrune::of(&config), None);
        config.densify.target_gaussians = Some(7);
        let prune = TargetPrune::of(&config).unwrap();
        let due = |prune: TargetPrune| -> Vec<u32> {
            (0..=30_000).filter(|&i| prune.is_due(ImageSpan::of(i))).collect()
        };
        assert_eq!((prune.target, due(prune)), (7, vec![15_000]));
        assert!(prune.is_due(ImageSpan { before: 14_998, after: 15_002 }));
        config.densify.densify_until_iter = 0;
        assert_eq!(due(TargetPrune::of(&config).unwrap()), [1]);
    }

    fn config(iterations: u32, until: u32, interval: u32) -> Config {
        let mut config = Config::default();
        config.optimize.resolution_schedule = ResolutionSchedule::Linear;
        config.optimize.iterations = iterations;
        config.densify.densify_until_iter = until;
        config.densify.densification_interval = interval;
        config
    }

    /// Returns the iterations in which the divisor changes, with the divisor.
    fn changes(config: &Config) -> Vec<(u32, u32)> {
        let mut found: Vec<(u32, u32)> = Vec::new();
        for iteration in 1..=config.last_iteration() {
            let divisor = view_divisor(config, iteration).get();
            if found.last().is_none_or(|&(_, before)| before != divisor) {
                found.push((iteration, divisor));
            }
        }
        found
    }

    #[test]
    fn views_are_quartered_halved_and_whole_as_their_pixels_grow() {
        let linear = config;
        for (config, expected, case) in [
            // A ninth of the pixels is reached after 5.2 % of 15,000 iterations, four ninths after 40.7 %.
            (linear(30_000, 15_000, 100), &[(1, 4), (801, 2), (6201, 1)][..], "Gaussians"),
            (linear(30_000, 10_000, 500), &[(1, 4), (1001, 2), (4501, 1)], "triangles"),
            // Views have their full size in 6000 iterations.
            (linear(10_000, 9000, 100), &[(1, 4), (401, 2), (2501, 1)], "full size comes first"),
            (linear(10_000, 9000, 1000), &[(1, 4), (1001, 2), (3001, 1)], "a longer interval"),
            (linear(30_000, 15_000, 20_000), &[(1, 4), (15_001, 1)], "the longest interval"),
            (linear(10_000, 9000, 4000), &[(1, 4), (4001, 1)], "a long interval"),
            (linear(1000, 15_000, 5000), &[(1, 4), (601, 1)], "a short run"),
            (linear(1000, 0, 100), &[(1, 1)], "no density control"),
            (Config::default(), &[(1, 1)], "no schedule"),
        ] {
            assert_eq!(changes(&config), expected, "{case}");
        }
    }

    #[test]
    fn the_coarse_stage_has_views_of_full_size() {
        let coarse = |iterations, interval| {
            let mut coarse = config(iterations, 15_000, interval);
            coarse.sugar.regularize = crate::config::Regularize::Density;
            changes(&coarse)
        };
        assert_eq!(coarse(1, 5000), [(1, 4), (2, 1)], "even if all others are small");
        assert_eq!(coarse(1000, 100), [(1, 4), (101, 2), (301, 1)]);
    }

    #[test]
    fn the_divisor_is_the_nearest_to_the_wanted_pixels() {
        let config = config(3000, 1000, 1);
        for iteration in 1..=3000 {
            let share = FIRST_SHARE + (1.0 - FIRST_SHARE) * f64::from(iteration - 1) / 1000.0;
            let drawn = f64::from(view_divisor(&config, iteration).get()).powi(-2);
            // Divisors change at 1.5 and 3.
            let ratio = drawn / share.min(1.0);
            assert!((0.5624..=2.2501).contains(&ratio), "{iteration}: {drawn} for {share}");
        }
    }

    #[test]
    fn the_background_is_grey_until_density_control_ends() {
        let mut config = Config::default();
        config.scene.background = Some(Color([0.1, 0.2, 0.3]));
        let [plain, grey] = [[0.1, 0.2, 0.3], [0.5; 3]];
        let until = config.densify.densify_until_iter;
        let of = |config: &Config| [1, until, until + 1].map(|i| training_background(config, 7, i));
        for (what, colors) in [
            (TrainingBackground::Same, [plain; 3]),
            (TrainingBackground::Grey, [grey, grey, plain]),
            // Without photographs the setting stays open.
            (TrainingBackground::Auto, [plain; 3]),
        ] {
            config.densify.training_background = what;
            assert_eq!(of(&config), colors, "{what:?}");
        }
    }

    #[test]
    fn the_coarse_stage_has_the_background() {
        let mut config = Config::default();
        config.densify.training_background = TrainingBackground::Grey;
        config.optimize.iterations = 7000;
        assert_eq!([7000, 7001].map(|i| training_background(&config, 7, i)), [[0.5; 3], [0.0; 3]]);
        config.sugar.checkpoint_path = Some("model".into());
        assert_eq!(training_background(&config, 7, 7000), [0.0; 3]);
    }

    #[test]
    fn a_random_background_depends_on_the_image() {
        let mut config = Config::default();
        config.optimize.random_background = true;
        config.densify.training_background = TrainingBackground::Grey;
        let last = config.optimize.iterations;
        let [first, again, late] =
            [(3, 3), (3, last), (4, 4)].map(|(image, i)| training_background(&config, image, i));
        assert_eq!(first, again);
        assert_ne!(first, late);
    }
}
