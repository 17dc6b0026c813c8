//! Every training option: one field is flag, TOML key, help text and default.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgAction, Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::strategy::Strategy;
use super::sugar::{Regularize, SugarSchedule};
use super::switch::parse_switch;
use super::{Color, SugarOptions};
use crate::memory::{Bytes, Limit, Rung};

/// The last iteration of the stage where its schedule is the reference's.
const ABSOLUTE_LAST: u32 = 15_000;

/// All options of a training run, in the sections of a configuration file.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is trained on.
    #[command(flatten)]
    pub scene: SceneOptions,
    /// How the Gaussians are optimised.
    #[command(flatten)]
    pub optimize: OptimizeOptions,
    /// How their number grows and shrinks.
    #[command(flatten)]
    pub densify: DensifyOptions,
    /// What has them lie on surfaces.
    #[command(flatten)]
    pub sugar: SugarOptions,
    /// What is kept where.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// What is written, and when.
    #[command(flatten)]
    pub output: OutputOptions,
    /// Where and how the program runs.
    #[command(flatten)]
    pub run: RunOptions,
}

/// What is trained on.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Scene")]
pub struct SceneOptions {
    /// Scene folder: COLMAP (`images/` and `sparse/0`) or Blender/nerfstudio (`transforms*.json`)
    #[arg(short, long, value_name = "SCENE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_path: Option<PathBuf>,

    /// Folder of the photographs, relative to the scene
    #[arg(short, long, value_name = "DIR", default_value_t = Self::default().images)]
    pub images: String,

    /// 1, 2, 4 or 8 divides the size; -1 caps the width at 1600 px; another number is the width in px
    #[arg(short, long, value_name = "R", allow_negative_numbers = true, default_value_t = Self::default().resolution)]
    pub resolution: i32,

    /// Folder of inverse depth maps, relative to the scene, as depth estimators for 3DGS write them: 16-bit PNGs named as the photographs, and their scales in `sparse/0/depth_params.json`
    #[arg(short, long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depths: Option<String>,

    /// White background instead of black
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().white_background, hide_default_value = true, hide_possible_values = true)]
    pub white_background: bool,

    /// Colour behind the scene, red, green and blue from 0 to 1
    #[arg(long, value_name = "R,G,B")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<Color>,

    /// Hold out every 8th view (see --test-every) for evaluation
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().eval, hide_default_value = true)]
    pub eval: bool,

    /// With --eval, view i in the order of names is held out when i % N == 0
    #[arg(long, alias = "llffhold", value_name = "N", default_value_t = Self::default().test_every)]
    pub test_every: u32,
}

impl Default for SceneOptions {
    fn default() -> Self {
        Self {
            source_path: None,
            images: "images".to_owned(),
            resolution: -1,
            depths: None,
            white_background: false,
            background: None,
            eval: false,
            test_every: 8,
        }
    }
}

impl SceneOptions {
    /// What is behind the scene: the colour that is given, or white or black.
    pub fn background_color(&self) -> Color {
        let plain = if self.white_background { Color::WHITE } else { Color::BLACK };
        self.background.unwrap_or(plain)
    }
}

/// How the Gaussians are initialised and optimised.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Optimisation")]
pub struct OptimizeOptions {
    /// Number of iterations, one view each
    #[arg(long, aliases = ["max-steps", "iter", "total-train-iters"], value_name = "N", default_value_t = Self::default().iterations)]
    pub iterations: u32,

    /// Highest degree of the spherical harmonics, 0 to 3
    #[arg(long, value_name = "0..3", default_value_t = Self::default().sh_degree)]
    pub sh_degree: u32,

    /// The degree in use starts at 0 and rises by one every N iterations
    #[arg(long, value_name = "N", default_value_t = Self::default().sh_degree_interval)]
    pub sh_degree_interval: u32,

    /// Learning rate of the positions at the start, times the extent of the cameras
    #[arg(long, value_name = "RATE", default_value_t = Self::default().position_lr_init)]
    pub position_lr_init: f64,

    /// Learning rate of the positions after --position-lr-max-steps, times the extent of the cameras
    #[arg(long, value_name = "RATE", default_value_t = Self::default().position_lr_final)]
    pub position_lr_final: f64,

    /// Iterations over which the positions' learning rate falls (log-linearly)
    #[arg(long, value_name = "N", default_value_t = Self::default().position_lr_max_steps)]
    pub position_lr_max_steps: u32,

    /// Learning rate of the base colour; the higher harmonics take a twentieth
    #[arg(long, value_name = "RATE", default_value_t = Self::default().feature_lr)]
    pub feature_lr: f64,

    /// Learning rate of the opacity logits
    #[arg(long, value_name = "RATE", default_value_t = Self::default().opacity_lr)]
    pub opacity_lr: f64,

    /// Learning rate of the log-scales
    #[arg(long, value_name = "RATE", default_value_t = Self::default().scaling_lr)]
    pub scaling_lr: f64,

    /// Learning rate of the rotations
    #[arg(long, value_name = "RATE", default_value_t = Self::default().rotation_lr)]
    pub rotation_lr: f64,

    /// Share of D-SSIM in the loss; the rest is L1
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().lambda_dssim)]
    pub lambda_dssim: f64,

    /// Widen splats by a filter that keeps their energy (Mip-Splatting's 2D filter), so that nothing grows thick or bright at other resolutions
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().antialiasing, hide_default_value = true)]
    pub antialiasing: bool,

    /// Variance of that filter, px²; 3DGS's own antialiasing takes 0.3
    #[arg(short, long, value_name = "PX2", default_value_t = Self::default().kernel_size)]
    pub kernel_size: f64,

    /// Keep Gaussians as wide as the training views can tell apart (Mip-Splatting's 3D smoothing filter)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().filter_3d, hide_default_value = true)]
    pub filter_3d: bool,

    /// Weight of the mean opacity in the loss
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().opacity_reg)]
    pub opacity_reg: f64,

    /// Weight of the mean scale in the loss, in units of how far cameras stand from what they look at
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().scale_reg)]
    pub scale_reg: f64,

    /// Learn an affine change of colour for each training photograph, for cameras whose exposure varies
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().exposure, hide_default_value = true)]
    pub exposure: bool,

    /// Learning rate of the exposures once they have warmed up, over the first 5,000 iterations or a sixth of the run
    #[arg(long, value_name = "RATE", default_value_t = Self::default().exposure_lr_init)]
    pub exposure_lr_init: f64,

    /// Learning rate of the exposures at the end
    #[arg(long, value_name = "RATE", default_value_t = Self::default().exposure_lr_final)]
    pub exposure_lr_final: f64,

    /// Learn a bilateral grid of colour changes for each training photograph, for cameras that process parts of an image differently
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().bilateral_grid, hide_default_value = true)]
    pub bilateral_grid: bool,

    /// Weight of the inverse depths of --depths in the loss at the start
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().depth_l1_weight_init)]
    pub depth_l1_weight_init: f64,

    /// The same at the end, which it falls to log-linearly
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().depth_l1_weight_final)]
    pub depth_l1_weight_final: f64,

    /// A random background colour every iteration
    #[arg(long, alias = "random-bkgd", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().random_background, hide_default_value = true)]
    pub random_background: bool,

    /// Start from the Gaussians of this PLY, whatever tool wrote it, instead of from the scene's points; their harmonics are in use from the first iteration
    #[arg(long, value_name = "FILE.ply")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<PathBuf>,

    /// Gaussians to start with where the scene has no points
    #[arg(long, value_name = "N", default_value_t = Self::default().init_num_pts)]
    pub init_num_pts: u32,

    /// Half side of the cube that they fill, times the extent of the cameras
    #[arg(long, value_name = "X", default_value_t = Self::default().init_extent)]
    pub init_extent: f64,

    /// Opacity of Gaussians that are made of points, not of those of --init
    #[arg(long, alias = "init-opa", value_name = "OPACITY", default_value_t = Self::default().init_opacity)]
    pub init_opacity: f64,

    /// Their scale, times the distance to their neighbours
    #[arg(long, value_name = "X", default_value_t = Self::default().init_scale)]
    pub init_scale: f64,
}

impl Default for OptimizeOptions {
    fn default() -> Self {
        Self {
            iterations: 30_000,
            sh_degree: 3,
            sh_degree_interval: 1000,
            position_lr_init: 1.6e-4,
            position_lr_final: 1.6e-6,
            position_lr_max_steps: 30_000,
            feature_lr: 2.5e-3,
            opacity_lr: 0.05,
            scaling_lr: 5e-3,
            rotation_lr: 1e-3,
            lambda_dssim: 0.2,
            antialiasing: false,
            kernel_size: 0.1,
            filter_3d: false,
            opacity_reg: 0.0,
            scale_reg: 0.0,
            exposure: false,
            exposure_lr_init: 1e-3,
            exposure_lr_final: 1e-4,
            bilateral_grid: false,
            depth_l1_weight_init: 1.0,
            depth_l1_weight_final: 0.01,
            random_background: false,
            init: None,
            init_num_pts: 100_000,
            init_extent: 3.0,
            init_opacity: 0.1,
            init_scale: 1.0,
        }
    }
}

/// How the number of Gaussians grows and shrinks.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Density control")]
pub struct DensifyOptions {
    /// How Gaussians are added and removed
    #[arg(long, value_enum, value_name = "STRATEGY", default_value_t = Self::default().strategy)]
    pub strategy: Strategy,

    /// First iteration after which Gaussians are cloned, split and pruned
    #[arg(long, value_name = "N", default_value_t = Self::default().densify_from_iter)]
    pub densify_from_iter: u32,

    /// Iteration at which density control ends
    #[arg(long, value_name = "N", default_value_t = Self::default().densify_until_iter)]
    pub densify_until_iter: u32,

    /// Iterations between two rounds
    #[arg(long, value_name = "N", default_value_t = Self::default().densification_interval)]
    pub densification_interval: u32,

    /// Iterations between two resets of the opacities to 0.01
    #[arg(long, value_name = "N", default_value_t = Self::default().opacity_reset_interval)]
    pub opacity_reset_interval: u32,

    /// Mean screen-space gradient (half the image is 1) above which a Gaussian is cloned or split
    #[arg(long, value_name = "G", default_value_t = Self::default().densify_grad_threshold)]
    pub densify_grad_threshold: f64,

    /// With adc, sum the gradient's absolute values over the pixels (AbsGS); --densify-grad-threshold is 8e-4 then, where none is given
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().absgrad, hide_default_value = true)]
    pub absgrad: bool,

    /// Gradients of Gaussians nearer to the camera than this share of the extent of the cameras (or of how far they stand from what they look at, where that is less) count less, by the square of their depth: fewer floaters right before cameras (Pixel-GS); 0 counts all alike; with gof it is 0.37, where none is given
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().near_fade)]
    pub near_fade: f64,

    /// With mcmc, the random motion's rate in units of the positions' learning rate
    #[arg(long, value_name = "RATE", default_value_t = Self::default().noise_lr)]
    pub noise_lr: f64,

    /// Largest scale that is cloned, not split, as a share of the extent of the cameras
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().percent_dense)]
    pub percent_dense: f64,

    /// Never more Gaussians than this
    #[arg(long, aliases = ["cap-max", "max-splats", "max-cap", "max-gaussians"], value_name = "N", value_parser = toml_count())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_points: Option<u64>,
}

impl Default for DensifyOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::Adc,
            densify_from_iter: 500,
            densify_until_iter: 15_000,
            densification_interval: 100,
            opacity_reset_interval: 3000,
            densify_grad_threshold: 2e-4,
            absgrad: false,
            near_fade: 0.0,
            noise_lr: 5e5,
            percent_dense: 0.01,
            max_points: None,
        }
    }
}

/// The flag that is no key: it sets `high_dram` to false.
pub(super) const LOW_DRAM: &str = "low_dram";

/// `--low-dram`, the way back from `high_dram = true` in a configuration file.
fn low_dram() -> Arg {
    Arg::new(LOW_DRAM)
        .long("low-dram")
        .action(ArgAction::SetTrue)
        .overrides_with("high_dram")
        .help("Decode images on demand into a bounded cache (the default)")
}

/// What is kept in memory.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Memory", arg = low_dram())]
pub struct MemoryOptions {
    /// Decode all images once and keep them (the opposite of --low-dram)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().high_dram, hide_default_value = true, overrides_with = LOW_DRAM)]
    pub high_dram: bool,

    /// With --low-dram, the host memory that decoded images may take
    #[arg(long, value_name = "SIZE", default_value_t = Self::default().image_cache)]
    #[serde(with = "crate::memory::as_text")]
    pub image_cache: Bytes,

    /// Memory of the GPU that may be used, as a size or a share (80%) [default: the card's]
    #[arg(long, value_name = "SIZE|P%")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram_limit: Option<Limit>,

    /// Share of that memory that is never exceeded; what is above stays free on the card, whoever uses the rest
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().vram_threshold)]
    pub vram_threshold: f64,

    /// Keep colours in 16 bits and the optimiser's moments in 8 and 16: 320 bytes a Gaussian instead of 716
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().optimize_memory, hide_default_value = true)]
    pub optimize_memory: bool,

    /// How often memory of the GPU that is not in use goes back to the driver
    #[arg(long, value_enum, value_name = "CADENCE", default_value_t = Self::default().fragmentation)]
    pub fragmentation: Fragmentation,

    /// What is given up, in this order, when the GPU's memory is short; what is not named is kept
    #[arg(long, value_enum, value_name = "STEP", num_args = 1.., value_delimiter = ',', default_values_t = Self::default().give_up)]
    pub give_up: Vec<Rung>,

    /// RAM that the program may take, as a size or a share; decoded images give way to it. Where the rest of the program takes more, each photograph is decoded when it is needed and none is kept: slower, but never an end
    #[arg(long, value_name = "SIZE|P%", default_value_t = Self::default().host_limit)]
    pub host_limit: Limit,

    /// Record the size of every buffer over time, for splat profile
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().profile_tensors, hide_default_value = true)]
    pub profile_tensors: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            high_dram: false,
            image_cache: Bytes(2 << 30),
            vram_limit: None,
            vram_threshold: 0.97,
            optimize_memory: false,
            fragmentation: Fragmentation::Normal,
            give_up: vec![
                Rung::Slack,
                Rung::Photographs,
                Rung::Bands,
                Rung::Neighbours,
                Rung::Births,
            ],
            host_limit: Limit::Percent(60.0),
            profile_tensors: false,
        }
    }
}

/// How often memory that is not in use goes back to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fragmentation {
    /// Every 100 iterations
    Minimal,
    /// Every 50 iterations
    #[default]
    Normal,
    /// Every 10 iterations
    Aggressive,
}

impl Fragmentation {
    /// Iterations between two times.
    pub fn interval(self) -> u32 {
        match self {
            Self::Minimal => 100,
            Self::Normal => 50,
            Self::Aggressive => 10,
        }
    }
}

/// What is written, and when.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Model folder [default: output/EXPERIMENT or output/SCENE]
    #[arg(short, long, visible_alias = "output", short_alias = 'o', value_name = "MODEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_path: Option<PathBuf>,

    /// Name of the run: the model folder where none is given, and a line in the log
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment_name: Option<String>,

    /// Iterations after which the held-out views are evaluated; with --eval the last always is
    #[arg(long, alias = "eval-steps", value_name = "N", num_args = 1.., allow_negative_numbers = true, default_values_t = Self::default().test_iterations)]
    pub test_iterations: Vec<i64>,

    /// Iterations after which a PLY is saved; the last always is
    #[arg(long, alias = "save-steps", value_name = "N", num_args = 1.., allow_negative_numbers = true, default_values_t = Self::default().save_iterations)]
    pub save_iterations: Vec<i64>,

    /// Weights of LPIPS, as safetensors; with them evaluations measure it (the README says how to make the file)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips_weights: Option<PathBuf>,

    /// Insist on LPIPS: an error where --lpips-weights is missing
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().enable_lpips, hide_default_value = true)]
    pub enable_lpips: bool,

    /// Iterations after which a checkpoint is written; the last always is
    #[arg(long, value_name = "N", num_args = 1.., allow_negative_numbers = true)]
    pub checkpoint_iterations: Vec<i64>,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self {
            model_path: None,
            experiment_name: None,
            test_iterations: vec![7000, 30_000],
            save_iterations: vec![7000, 30_000],
            lpips_weights: None,
            enable_lpips: false,
            checkpoint_iterations: Vec::new(),
        }
    }
}

/// Where and how the program runs.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Run")]
pub struct RunOptions {
    /// Seed of every random decision
    #[arg(long, value_name = "N", value_parser = toml_count(), default_value_t = Self::default().seed)]
    pub seed: u64,

    /// Device that trains
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = Self::default().device)]
    pub device: Device,
}

/// Device that trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The GPU where there is one; the CPU on machines without
    #[default]
    Auto,
    /// The NVIDIA GPU
    Cuda,
    /// The processor
    Cpu,
}

/// Reads a count that a TOML file can hold: its integers end at 2^63 - 1.
fn toml_count() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(..=i64::MAX.unsigned_abs())
}

impl Config {
    /// Whether SuGaR's coarse stage follows the photometric one.
    pub fn has_coarse_stage(&self) -> bool {
        self.sugar.regularize != Regularize::None
    }

    /// The last iteration of the run, that of the coarse stage where it has one.
    pub fn last_iteration(&self) -> u32 {
        let photometric = self.optimize.iterations;
        if !self.has_coarse_stage() {
            return photometric;
        }
        match self.sugar.sugar_schedule {
            SugarSchedule::Relative => photometric.saturating_add(self.sugar.sugar_iterations),
            SugarSchedule::Absolute => ABSOLUTE_LAST,
        }
    }
}
