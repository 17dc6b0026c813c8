//! Options of density control.

use super::declare::{ADVANCED, Idle, options, when};
use super::values::{Checked, count, fits_toml, holds, positive, rate, share, toml_count};
use super::{PrimitiveName, StrategyName, TrainingBackground};

/// Facts that decide which options of density control have an effect.
pub(super) struct DensifiedRun {
    /// Strategy of density control.
    pub(super) strategy: StrategyName,
    pub(super) primitive: PrimitiveName,
    /// True if the model is already trained, and only the coarse stage follows.
    pub(super) is_trained: bool,
    /// True if the number of Gaussians is given.
    pub(super) has_max_points: bool,
    /// True if every iteration has another background.
    pub(super) has_random_background: bool,
    /// Iteration at which density control ends.
    pub(super) until: u32,
}

const NO_NOISE: Idle<DensifiedRun> =
    when(|run| !run.strategy.moves_at_random(), "with a --strategy other than mcmc");
const NO_UNSEEN_NOISE: Idle<DensifiedRun> = when(
    |run| {
        run.is_trained
            || run.strategy != StrategyName::Budget
            || run.primitive != PrimitiveName::Gaussians
    },
    "with -c, without --strategy budget, or with --primitive surfels",
);
const NO_GRADIENTS: Idle<DensifiedRun> = when(
    |run| run.is_trained || !run.strategy.grows_by_gradient(),
    "with -c or with a --strategy that does not grow by gradients",
);
const NO_GROWTH: Idle<DensifiedRun> = when(
    |run| run.is_trained || !run.strategy.splits_and_resets(),
    "with -c or with a --strategy that neither splits Gaussians nor resets opacities, such as mcmc",
);
const NO_DENSITY_CONTROL: Idle<DensifiedRun> =
    when(|run| run.is_trained, "with -c: the coarse stage has no density control");
const OF_TRIANGLES: Idle<DensifiedRun> = when(
    |run| run.primitive == PrimitiveName::Triangles,
    "with --primitive triangles, whose density control has options of its own",
);

fn gaussians(count: &u64) -> Checked {
    holds(*count >= 1 && fits_toml(*count), count, "1 to 2^63 - 1")
}

options! {
    /// Options of density control.
    #[command(next_help_heading = "Density control")]
    pub struct DensifyOptions in "densify" of DensifiedRun {
        /// Strategy that adds and removes Gaussians
        #[arg(value_enum, value_name = "STRATEGY")]
        strategy: StrategyName = StrategyName::Adc, idle NO_DENSITY_CONTROL;

        /// Iteration after which density control starts
        ///
        /// The first densification step comes after this iteration.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        densify_from_iter: u32 = 500;

        /// Iteration at which density control ends
        #[arg(value_name = "N", help_heading = ADVANCED)]
        densify_until_iter: u32 = 15_000;

        /// Iterations between two densification steps
        ///
        /// budget rounds the number up to a multiple of the number of training views, if that leaves time for eight
        /// steps.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        densification_interval: u32 = 100, is count;

        /// Iterations between two opacity resets
        ///
        /// A reset lowers opacities to 0.01. budget halves them instead, down to 1/128, and clears Adam's moments. Its
        /// default is 500, unless a preset has another. If --max-passes shortens the run, at least 100 images pass between
        /// two halvings.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        opacity_reset_interval: u32 = 3000, is count, idle NO_GROWTH, OF_TRIANGLES;

        /// Mean screen gradient of a candidate
        ///
        /// Gaussians above the threshold are cloned or split. The gradient is in screen space, with half the image
        /// as its unit. Default with --absgrad: 8e-4; with gof: 4e-4.
        #[arg(value_name = "G", help_heading = ADVANCED)]
        densify_grad_threshold: f64 = 2e-4, is rate, idle NO_GRADIENTS, OF_TRIANGLES;

        /// Sum absolute gradients (AbsGS)
        ///
        /// adc then sums the absolute values of the gradient over the pixels. --densify-grad-threshold is 8e-4
        /// by default.
        absgrad: bool = false;

        /// Weigh gradients near a camera down (Pixel-GS)
        ///
        /// A share of the cameras' extent, or of their distance to the scene's middle if that is less. Gradients of
        /// nearer Gaussians count less, by the square of their depth, which prevents floaters right before cameras.
        /// 0 disables this. Default with gof: 0.37.
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        near_fade: f64 = 0.0, is share, idle NO_GRADIENTS, OF_TRIANGLES;

        /// With mcmc, rate of the noise
        ///
        /// The unit is the learning rate of the positions.
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        noise_lr: f64 = 5e5, is rate, idle NO_NOISE;

        /// With budget, rate of the noise out of view
        ///
        /// Gaussians that are nearly transparent and that no view of the step shows move at random, and some find a place
        /// where they are of use. In a step they move by at most the cameras' viewing distance. The unit is the learning
        /// rate of the positions.
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        unseen_noise_lr: f64 = 0.0, is rate, idle NO_UNSEEN_NOISE, OF_TRIANGLES;

        /// Opacity below which a Gaussian is removed
        ///
        /// mcmc relocates such a Gaussian instead. Surfels have 0.05 with adc and gof.
        #[arg(alias = "opacity-cull", value_name = "OPACITY", help_heading = ADVANCED)]
        min_opacity: f64 = 0.005, is |opacity| {
            holds(*opacity > 0.0 && *opacity < 1.0, opacity, "more than 0, less than 1")
        }, idle NO_DENSITY_CONTROL, OF_TRIANGLES;

        /// Scale above which a Gaussian is removed
        ///
        /// A share of the extent of the cameras. Counts after the first --opacity-reset-interval.
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        prune_scale: f64 = 0.1, is positive, idle NO_GRADIENTS, OF_TRIANGLES;

        /// Largest scale that is cloned, not split
        ///
        /// A share of the extent of the cameras.
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        percent_dense: f64 = 0.01, is share, idle NO_GROWTH, OF_TRIANGLES;

        /// Upper bound on Gaussians
        ///
        /// Extra initial points are dropped. With budget and mcmc the model grows to this number. Default with mcmc:
        /// 1,000,000. Default with budget: by --pixels-per-gaussian, and at least the initial number. Default with adc and gof: one
        /// for 40 pixels, at least 100,000, at most 5,000,000. For triangles the option counts vertices. Default: one for
        /// 60 of the first 6,000,000 pixels and one for 20 of the rest, at most 4,000,000.
        #[arg(
            aliases = ["cap-max", "max-splats", "max-cap", "max-gaussians"],
            value_name = "N",
            value_parser = toml_count(),
        )]
        max_points: Option<u64>, is gaussians;

        /// Pixels of the training views for each Gaussian
        ///
        /// The default of --max-points with budget: at most 5,000,000, at least 280,000 (or one for 40 pixels, if that is
        /// less).
        #[arg(value_name = "N")]
        pixels_per_gaussian: u32 = 250, is count, idle when(
            |run| {
                run.is_trained
                    || run.has_max_points
                    || !run.strategy.grows_to_a_number()
            },
            "with -c, without --strategy budget, or with --max-points, also that of a preset or an earlier run",
        ), OF_TRIANGLES;

        /// Background of training views in density control
        ///
        /// Grey makes Gaussians of dark surfaces opaque. After --densify-until-iter, and in evaluation, the background is
        /// that of --background. auto takes grey, unless more than 5 % of the photographs' pixels have the background's
        /// colour, or more than a third have it within 16 of 255 steps. The run stores the choice, and a resumed run keeps it.
        #[arg(value_enum, value_name = "WHAT")]
        training_background: TrainingBackground = TrainingBackground::Same,
            idle NO_DENSITY_CONTROL,
            when(|run| run.has_random_background, "with --random-background"),
            when(|run| run.until == 0, "with --densify-until-iter 0");

        /// Gaussians to keep when density control ends
        ///
        /// After --densify-until-iter iterations, the model is pruned to N Gaussians, and training continues. The
        /// Gaussians with the largest blend weights stay, summed over the pixels of all training views. run.jsonl and
        /// summary.json have the PSNR before and after.
        #[arg(value_name = "N", value_parser = toml_count())]
        target_gaussians: Option<u64>, is gaussians, idle NO_DENSITY_CONTROL;
    }
}
