//! Every training option, declared once: flag, TOML key, help, default, allowed values, conditions without effect.
//!
//! `declare.rs` explains the syntax. Some sections have their own files: `scene.rs`, `densify.rs`, `triangles.rs`,
//! `sugar.rs` (coarse stage) and `run_options.rs` (memory, output and device). `configs/reference.toml` is generated
//! by `SPLAT_UPDATE_CONFIGS=1 cargo test --test house configs`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use splat_formats::SpzAxes;

use super::declare::{ADVANCED, Idle, options, when};
use super::values::{count, holds, path, positive, rate, share};
use super::{
    DensifyOptions, InitRegion, MemoryOptions, NormalsFrame, OutputOptions, PrimitiveName,
    RegReach, ResolutionSchedule, RunOptions, SceneOptions, StrategyName, SugarOptions, TimeBudget,
    TrianglesOptions,
};

const NO_ANTIALIASING: Idle<Config> = when(
    |config| !config.optimize.antialiasing,
    "without --antialiasing (Mip-Splatting: --preset mip)",
);
const NO_BATCH: Idle<Config> =
    when(|config| config.optimize.batch_views == 1, "without --batch-views");
const NO_SURFELS: Idle<Config> = when(
    |config| config.optimize.primitive != PrimitiveName::Surfels,
    "without --primitive surfels",
);
const OF_TRIANGLES: Idle<Config> = when(
    |config| config.optimize.primitive == PrimitiveName::Triangles,
    "with --primitive triangles, whose vertices have neither scales nor rotations",
);
const NO_EXPOSURE: Idle<Config> = when(|config| !config.optimize.exposure, "without --exposure");
const NO_DEPTHS: Idle<Config> = when(|config| config.scene.depths.is_none(), "without --depths");
const NO_NORMALS: Idle<Config> =
    when(|config| config.optimize.normals.is_none(), "without --normals");
/// Largest number of models of an ensemble, and the number that a time budget allows presets.
pub(super) const MOST_MODELS: u32 = 32;

const NO_ENSEMBLE: &str = "with surfels or triangles, --regularize, -c, --until-psnr, --exposure, --bilateral-grid, or \
     --random-background";

const INIT: Idle<Config> = when(|config| config.optimize.init.is_some(), "with --init");

/// All options of a training run, in the sections of a configuration file.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Scene and its views.
    #[command(flatten)]
    pub scene: SceneOptions,
    /// Optimisation of the Gaussians.
    #[command(flatten)]
    pub optimize: OptimizeOptions,
    /// Density control.
    #[command(flatten)]
    pub densify: DensifyOptions,
    /// Options of triangles.
    #[command(flatten)]
    pub triangles: TrianglesOptions,
    /// Regularization of surfaces.
    #[command(flatten)]
    pub sugar: SugarOptions,
    /// Memory.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Output files.
    #[command(flatten)]
    pub output: OutputOptions,
    /// Device and seed.
    #[command(flatten)]
    pub run: RunOptions,
}

options! {
    /// Options of initialisation and optimisation.
    #[command(next_help_heading = "Optimisation")]
    pub struct OptimizeOptions in "optimize" of Config {
        /// Number of iterations, which count views, not steps
        ///
        /// With --batch-views N a step takes N views, and so N iterations.
        #[arg(aliases = ["max-steps", "iter", "total-train-iters"], value_name = "N")]
        iterations: u32 = 30_000, is count, idle when(
            |config| config.sugar.checkpoint_path.is_some(),
            "with -c, whose model is trained already",
        );

        /// Train for this long: 60s, 2m, 1h30m
        ///
        /// The time is that of training: start, evaluations and files come on top. The schedule of --iterations
        /// (learning rates, densification, view sizes) follows the clock.
        #[arg(value_name = "TIME")]
        time_budget: Option<TimeBudget>;

        /// Minimum number of passes over the training views
        ///
        /// Pseudo-views of --ensemble are training views here. The schedule passes more slowly if N passes are more images
        /// than --iterations. --max-passes wins. A preset's
        /// value counts if --iterations is not given.
        #[arg(value_name = "N")]
        min_passes: u32 = 0,
            idle when(|config| config.optimize.time_budget.is_some(), "with --time-budget");

        /// Maximum number of passes over the training views
        ///
        /// The schedule passes faster if N passes are fewer images than --iterations. 0 disables the limit. A preset's
        /// value counts if --iterations is not given; with --time-budget it is at least 100, also for a resumed run that
        /// gets its first --time-budget.
        #[arg(value_name = "N")]
        max_passes: u32 = 0;

        /// Maximum number of passes over few training views
        ///
        /// Replaces a lower --max-passes if the run then trains on at most 6,000 images and 5.6 billion pixels. Density
        /// control goes on until 32 passes are left. Opacities are halved every 6 passes. With --time-budget, both
        /// limits hold for N passes. 0 disables the option. A preset's value counts if none of --iterations,
        /// --max-passes, --densify-until-iter and --opacity-reset-interval is given.
        #[arg(value_name = "N")]
        few_view_passes: u32 = 0, idle when(
            |config| !config.allows_few_view_passes(),
            "without --strategy budget and a limit --max-passes",
        );

        /// Train N models first, and the final one also on their renders
        ///
        /// Each of the N models has a quarter of the iterations and its own seed. Their mean renders at up to 300 cameras
        /// between the training views are written to `MODEL/pseudo_views`, and train the final model as photographs do
        /// (knowledge distillation, Hinton et al. 2015). Errors of single models average out. Passes count these
        /// views. Scenes with more than 200 training views, and runs on several GPUs, train one model, as with 0.
        /// With --time-budget, presets set N to 32. Models then have about 6,000 images. Up to N are trained, as the
        /// time allows, and none if two of them need more than 40 % of it.
        #[arg(value_name = "N")]
        ensemble: u32 = 0, is |models| holds(*models <= MOST_MODELS, models, "0 to 32"),
            idle when(
                |config| config.optimize.ensemble > 0 && !config.can_distil(), NO_ENSEMBLE
            );

        /// End once views have this PSNR, dB
        ///
        /// The PSNR is the mean over the held-out views, or over the views of --eval-train if none is held out. The run
        /// measures it about twenty times, outside of the training time. A run that does not reach it ends as usual
        /// and says so.
        #[arg(value_name = "DB")]
        until_psnr: Option<f64>, is positive;

        /// Primitive of the model
        ///
        /// Surfels refuse --antialiasing, --filter-3d, --regularize and --strategy mcmc. Triangles refuse these, and
        /// every --strategy except adc. They have their own densification, and their own defaults for learning rates,
        /// --init-opacity, --max-points, densification steps, the weight of --depths and --resolution-schedule.
        #[arg(value_enum, value_name = "PRIMITIVE")]
        primitive: PrimitiveName = PrimitiveName::Gaussians;

        /// Number of views of a step
        ///
        /// Iterations and all schedules count views. Only one view is resident; earlier views of the step
        /// leave their gradients. --accumulate is another name.
        #[arg(visible_alias = "accumulate", value_name = "1..8")]
        batch_views: u32 = 1, is |views| holds((1..=8).contains(views), views, "1 to 8");

        /// Rates and moments as for one view a step
        ///
        /// By default, learning rates grow by the square root of the number of views, and Adam's moments decay as in
        /// that number of steps (Grendel).
        #[arg(help_heading = ADVANCED)]
        no_batch_scaling: bool = false, idle NO_BATCH;

        /// Highest degree of the spherical harmonics
        #[arg(value_name = "0..3")]
        sh_degree: u32 = 3, is |degree| holds(*degree <= 3, degree, "0 to 3");

        /// Raise the degree in use every N iterations
        ///
        /// The degree in use starts at 0 and rises by one every N iterations.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        sh_degree_interval: u32 = 1000, is count;

        /// First position rate, times extent
        ///
        /// Learning rate of the positions at the start, times the extent of the cameras. The rate of triangles'
        /// vertices is not multiplied.
        #[arg(alias = "lr-triangles-points-init", value_name = "RATE", help_heading = ADVANCED)]
        position_lr_init: f64 = 1.6e-4, is rate;

        /// Final position rate, times extent
        ///
        /// Learning rate of the positions after --position-lr-max-steps, times the extent of the cameras.
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        position_lr_final: f64 = 1.6e-6, is rate;

        /// Iterations until the final position rate
        ///
        /// The learning rate of the positions falls log-linearly.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        position_lr_max_steps: u32 = 30_000, is count;

        /// Exponent of the size in the position rate
        ///
        /// Large Gaussians move faster and small ones slower: the learning rate of a Gaussian's position is
        /// multiplied by (s / (0.005 E))^X, at most 10 and at least 0.1, with the geometric mean s of its two
        /// largest scales and the extent E of the cameras. For a vertex, s is the root of the mean area of its
        /// triangles. At 0 all have the same rate. Triangles have 0.5.
        #[arg(value_name = "X", help_heading = ADVANCED)]
        position_lr_by_size: f64 = 0.0, is share;

        /// Learning rate of the base colour
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        feature_lr: f64 = 2.5e-3, is rate;

        /// Learning rate of the higher harmonics
        ///
        /// Default without a preset: a twentieth of --feature-lr.
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        feature_rest_lr: Option<f64>, is rate;

        /// Learning rate of the opacity logits
        #[arg(alias = "weight-lr", value_name = "RATE", help_heading = ADVANCED)]
        opacity_lr: f64 = 0.05, is rate;

        /// Learning rate of the log-scales
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        scaling_lr: f64 = 5e-3, is rate, idle OF_TRIANGLES;

        /// Learning rate of the rotations
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        rotation_lr: f64 = 1e-3, is rate, idle OF_TRIANGLES;

        /// Share that is left of rates at the end
        ///
        /// Learning rates of colours, opacities, scales and rotations fall to it log-linearly, from
        /// --final-lr-from on until --iterations. Positions have --position-lr-final.
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        final_lr_share: f64 = 1.0, is |value| {
            holds(*value > 0.0 && *value <= 1.0, value, "more than 0, at most 1")
        };

        /// Share of --iterations after which rates fall
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        final_lr_from: f64 = 0.7, is |from| {
            holds((0.0..1.0).contains(from), from, "0 and more, less than 1")
        }, idle when(|config| config.optimize.final_lr_share == 1.0, "without --final-lr-share");

        /// Share of D-SSIM in the loss; the rest is L1
        #[arg(value_name = "SHARE", help_heading = ADVANCED)]
        lambda_dssim: f64 = 0.2, is share;

        /// With surfels, weight of normal consistency
        ///
        /// The term is the mean over the pixels of 1 - cos between drawn normals and normals of drawn depths. It aligns
        /// surfels with their common surface.
        #[arg(value_name = "WEIGHT")]
        lambda_normal: f64 = 0.05, is rate, idle NO_SURFELS;

        /// Iteration after which --lambda-normal counts
        #[arg(value_name = "N", help_heading = ADVANCED)]
        lambda_normal_from: u32 = 7000, idle NO_SURFELS;

        /// With surfels, weight of depth distortion
        ///
        /// The term reduces the spread of surfels along a ray. 2DGS uses 1000 in bounded scenes and 100 in others.
        #[arg(alias = "lambda-distortion", value_name = "WEIGHT")]
        lambda_dist: f64 = 0.0, is rate, idle NO_SURFELS;

        /// Iteration after which --lambda-dist counts
        #[arg(value_name = "N", help_heading = ADVANCED)]
        lambda_dist_from: u32 = 3000, idle NO_SURFELS;

        /// Mip-Splatting's 2D filter
        ///
        /// The filter widens splats and keeps their energy. Thin structures look right at other resolutions.
        antialiasing: bool = false;

        /// Variance of the 2D filter, px²
        ///
        /// The antialiasing of 3DGS uses 0.3.
        #[arg(short, value_name = "PX2", help_heading = ADVANCED)]
        kernel_size: f64 = 0.1, is rate, idle NO_ANTIALIASING;

        /// Mip-Splatting's 3D filter
        ///
        /// Gaussians stay at least as wide as the training views can resolve.
        filter_3d: bool = false, idle when(
            |config| config.sugar.checkpoint_path.is_some(),
            "with -c: the coarse stage has no such filter",
        );

        /// Loss weight of the mean opacity
        ///
        /// It removes Gaussians that no view needs.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        opacity_reg: f64 = 0.0, is rate;

        /// Loss weight of the mean scale
        ///
        /// The unit of the scale is the distance from the cameras to the scene's middle.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        scale_reg: f64 = 0.0, is rate;

        /// Largest size of a Gaussian in view, relative to its distance
        ///
        /// After each step, the standard deviations of a Gaussian are at most N times its distance from the step's cameras
        /// that see it. Larger Gaussians are haze that fits the brightness of single photographs and covers held-out
        /// views. 0 disables the limit. It does not apply to objects that were cut out (--reg-reach all).
        #[arg(value_name = "N", help_heading = ADVANCED)]
        scale_limit: f64 = 0.0, is rate, idle when(
            |config| {
                config.optimize.primitive == PrimitiveName::Triangles
                    || config.optimize.reg_reach == RegReach::All
                    || config.sugar.checkpoint_path.is_some()
            },
            "with --primitive triangles, with --reg-reach all, or with -c",
        );

        /// Weight of masked pixels around an object that was cut out
        ///
        /// Masked pixels of the photograph get the background's colour, and the render's difference from it counts with this
        /// weight, so that nothing remains around the object. 0 ignores masked pixels. It has no effect if no object was cut
        /// out (--reg-reach seen): other masks may hide what exists. Views of --resolution-schedule that are not yet of full
        /// size ignore masked pixels.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        empty_weight: f64 = 0.0, is share, idle when(
            |config| {
                config.optimize.reg_reach == RegReach::Seen
                    || config.optimize.exposure
                    || config.optimize.bilateral_grid
            },
            "with --reg-reach seen, --exposure, or --bilateral-grid",
        );

        /// With budget, decay of the SH coefficients above degree 0
        ///
        /// After each step these coefficients of the Gaussians in view are multiplied by 1 - RATE times their learning rate
        /// (decoupled weight decay). With N > 100 training views RATE is multiplied by (100 / N)^2. Training views are
        /// reproduced less exactly, and held-out views better.
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        sh_decay: f64 = 0.0, is rate, idle when(
            |config| {
                config.densify.strategy != StrategyName::Budget
                    || config.optimize.primitive == PrimitiveName::Triangles
                    || config.optimize.sh_degree == 0
                    || config.sugar.checkpoint_path.is_some()
            },
            "without --strategy budget, with --primitive triangles, with --sh-degree 0, or with -c",
        );

        /// With budget, regularize less if the training views agree
        ///
        /// Training views agree under three conditions. The median point of the sparse cloud lies in at least 25 views. The
        /// distances of the median point to its views differ by at most 25 % (standard deviation of the logarithm).
        /// Neighbouring photographs differ in exposure by at most 0.07 stops (median). Then --near-share, --unseen-noise-lr,
        /// --sh-decay and --scale-limit become 0, --lambda-dssim 0.2 and --opacity-reg 0.002. Values that you typed or
        /// that --config has stay. Objects that were cut out (--reg-reach all) keep the values of the preset. A run
        /// stores its values, and a continued run keeps them.
        #[arg(help_heading = ADVANCED)]
        relax_if_views_agree: bool = false, idle when(
            |config| !config.can_relax(),
            "without --strategy budget, with surfels or triangles, or with --reg-reach all",
        );

        /// Gaussians on which --opacity-reg, --scale-reg and --scale-limit act
        ///
        /// seen keeps what few views show, and suits photographs of rooms and landscapes. all also removes what no view
        /// shows, and suits objects that were cut out. auto takes all if more than a third of the photographs' pixels are
        /// masked or within 16 of 255 steps of the background's colour. --scale-limit applies with seen, --empty-weight with all.
        /// The run stores the choice.
        #[arg(value_enum, value_name = "WHICH")]
        reg_reach: RegReach = RegReach::All, idle when(
            |config| {
                config.optimize.opacity_reg == 0.0
                    && config.optimize.scale_reg == 0.0
                    && config.optimize.scale_limit == 0.0
                    && config.optimize.empty_weight == 0.0
            },
            "without --opacity-reg, --scale-reg, --scale-limit and --empty-weight",
        );

        /// Learn an affine colour change per photograph
        ///
        /// For cameras whose exposure varies.
        exposure: bool = false;

        /// Exposure rate after warm-up
        ///
        /// The warm-up takes the first 5,000 iterations or a sixth of the run.
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        exposure_lr_init: f64 = 1e-3, is rate, idle NO_EXPOSURE;

        /// Exposure rate at the end
        #[arg(value_name = "RATE", help_heading = ADVANCED)]
        exposure_lr_final: f64 = 1e-4, is rate, idle NO_EXPOSURE;

        /// Learn a bilateral grid per photograph
        ///
        /// The grid holds colour changes, for cameras that process parts of an image differently.
        bilateral_grid: bool = false;

        /// First loss weight of --depths
        ///
        /// Triangles have 0.01.
        #[arg(alias = "depth-lambda-init", value_name = "WEIGHT", help_heading = ADVANCED)]
        depth_l1_weight_init: f64 = 1.0, is rate, idle NO_DEPTHS;

        /// Final loss weight of --depths
        ///
        /// The weight falls to it log-linearly. Triangles have 0.001.
        #[arg(alias = "depth-lambda-final", value_name = "WEIGHT", help_heading = ADVANCED)]
        depth_l1_weight_final: f64 = 0.01, is rate, idle NO_DEPTHS;

        /// Folder of normal maps, relative to the scene
        ///
        /// A loss term compares the normals of drawn depths with the maps: RGB PNGs or JPEGs with the names of the
        /// photographs, with 0 to 255 for -1 to 1 in x, y and z. Normals point towards the camera, except with
        /// --normals-frame inverted. Black, white, grey and transparent pixels count as no normal. No folder is read
        /// without this option, also not MeshSplatting's `normals_4`.
        #[arg(value_name = "DIR")]
        normals: Option<String>, is path;

        /// Axes of the normals in --normals
        ///
        /// A map is refused if most of its normals point away from the camera in these axes. A flipped y axis goes
        /// unnoticed.
        #[arg(value_enum, value_name = "FRAME")]
        normals_frame: NormalsFrame = NormalsFrame::Camera, idle NO_NORMALS;

        /// Loss weight of --normals
        ///
        /// The term is the mean over the pixels of 1 - cos between the map's normals and the normals of drawn depths.
        /// Pixels beside a depth step and masked pixels add nothing.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        lambda_normals_super: f64 = 0.01, is rate, idle NO_NORMALS;

        /// Iteration after which --normals counts
        ///
        /// The presets draft, fast and best have them count after a fifth of their iterations, triangles after
        /// a sixth.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        normals_from_iter: u32 = 5000, idle NO_NORMALS;

        /// Draw training views small at first
        ///
        /// Early iterations then take less time. With linear, views have their full size after 41 % of the iterations
        /// up to --densify-until-iter, or of 60 % of --iterations if that is less. Evaluation and the coarse stage
        /// always draw at full size. Triangles have linear.
        #[arg(value_enum, value_name = "SCHEDULE")]
        resolution_schedule: ResolutionSchedule = ResolutionSchedule::None, idle when(
            |config| config.sugar.checkpoint_path.is_some(),
            "with -c: the coarse stage draws at full size",
        );

        /// A random background colour every iteration
        #[arg(alias = "random-bkgd")]
        random_background: bool = false;

        /// Start from a PLY, SPZ, SOG, GLB, .splat or .ksplat
        ///
        /// The Gaussians replace the scene's points. Any program may have written the file. All harmonics are in use
        /// from the first iteration. With --primitive surfels, each Gaussian loses its shortest axis.
        #[arg(value_name = "FILE")]
        init: Option<PathBuf>, is path;

        /// Axes of the SPZ of --init, unless it names them
        ///
        /// rub (right, up, back) is what the format says, and the default. rdf are those of files that
        /// splat-transform 3, Niantic's `ply_to_spz` or an earlier version of this program wrote.
        #[arg(value_name = "rdf")]
        init_spz_axes: Option<String>, is |name| {
            holds(SpzAxes::of_name(name).is_some(), name, "three letters such as rub or rdf")
        }, idle when(|config| config.optimize.init.is_none(), "without --init");

        /// Gaussians of a scene without points
        #[arg(value_name = "N", help_heading = ADVANCED)]
        init_num_pts: u32 = 100_000, is count, idle INIT;

        /// Region of the Gaussians of a scene without points
        ///
        /// silhouettes needs an object that was cut out: all photographs have masks or alpha channels, and more than a
        /// third of their pixels are masked or transparent. Other scenes get the cube, and so do all with another
        /// --init-extent.
        #[arg(value_enum, value_name = "WHERE", help_heading = ADVANCED)]
        init_region: InitRegion = InitRegion::Cube, idle INIT;

        /// Half side of their cube, times extent
        ///
        /// The Gaussians of a scene without points fill a cube (--init-region cube). Its half side is
        /// this, times the extent of the cameras.
        #[arg(value_name = "X", help_heading = ADVANCED)]
        init_extent: f64 = 3.0, is positive, idle INIT;

        /// Opacity of Gaussians made of points
        ///
        /// The Gaussians of --init keep their own.
        #[arg(aliases = ["init-opa", "set-weight"], value_name = "OPACITY", help_heading = ADVANCED)]
        init_opacity: f64 = 0.1, is |opacity| {
            holds(*opacity > 0.0 && *opacity < 1.0, opacity, "more than 0, less than 1")
        }, idle INIT;

        /// Scale of Gaussians made of points
        ///
        /// It is measured in units of the distance to their neighbours.
        #[arg(value_name = "X", help_heading = ADVANCED)]
        init_scale: f64 = 1.0, is positive, idle INIT;
    }
}
