//! Options of a run's resources: memory, output and device.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, ValueEnum};
use serde::{Deserialize, Serialize};

use super::declare::{Idle, options};
use super::splits::TrainSample;
use super::values::{
    Compactness, Offload, count, fits_toml, holds, iterations, parse_compactness, path, toml_count,
};
use crate::memory::plan::Storage;
use crate::memory::{Bytes, Fallback, Limit};

/// Id of the flag that sets `high_dram` to false and is no key.
pub(super) const LOW_DRAM: &str = "low_dram";

/// Returns `--low-dram`, which undoes `high_dram = true` of a configuration file.
fn low_dram() -> Arg {
    Arg::new(LOW_DRAM)
        .long("low-dram")
        .action(ArgAction::SetTrue)
        .overrides_with("high_dram")
        .help("Decode images on demand into a cache (the default)")
}

options! {
    /// Options of memory.
    #[command(next_help_heading = "Memory", arg = low_dram())]
    pub struct MemoryOptions in "memory" of MemoryOptions {
        /// Decode all images once and keep them
        ///
        /// The opposite of --low-dram.
        #[arg(overrides_with = LOW_DRAM)]
        high_dram: bool = false;

        /// With --low-dram, RAM for decoded images
        #[arg(value_name = "SIZE")]
        #[serde(with = "crate::memory::as_text")]
        image_cache: Bytes = Bytes(2 << 30), is |cache| {
            holds(*cache > Bytes(0), cache, "more than 0 bytes, for instance 512MiB")
        };

        /// GPU memory to use, size or share [default: the card's]
        ///
        /// For instance 12GiB or 80%.
        #[arg(value_name = "SIZE|P%")]
        vram_limit: Option<Limit>, is |limit| holds(
            limit.is_usable(),
            limit,
            "a size above 0, for instance 12GiB, or more than 0% and at most 100%",
        ), idle Idle::OnCpu;

        /// Share of --vram-limit never exceeded
        ///
        /// The rest of the limit stays free on the card, even if other programs use memory.
        #[arg(value_name = "SHARE")]
        vram_threshold: f64 = 0.97, is |share| {
            holds(*share > 0.0 && *share <= 1.0, share, "more than 0, at most 1")
        }, idle Idle::OnCpu;

        /// 320 instead of 716 bytes a Gaussian
        ///
        /// Colours take 16 bits, the optimiser's moments 8 and 16. sh makes only colours compact: 620 bytes a
        /// Gaussian. auto makes both compact on GPUs, and trains in full precision on the CPU.
        #[arg(
            value_name = "BOOL|auto|sh",
            num_args = 0..=1,
            default_missing_value = "true",
            hide_default_value = true,
            value_parser = parse_compactness,
        )]
        optimize_memory: Compactness = Compactness::Off;

        /// Part of the model that is kept in RAM
        ///
        /// sh keeps colours and their moments in RAM: 200 of a Gaussian's 320 bytes. It implies --optimize-memory. The
        /// GPU reads them over the bus. The run ends with code 4 if RAM or --host-limit is too small.
        #[arg(value_enum, value_name = "WHAT")]
        offload: Offload = Offload::None, idle Idle::OnCpu;

        /// Cadence of returning unused GPU memory
        ///
        /// The memory goes back to the driver.
        #[arg(value_enum, value_name = "CADENCE")]
        fragmentation: Fragmentation = Fragmentation::Normal, idle Idle::OnCpu;

        /// Steps to take when GPU memory is short
        ///
        /// The steps are taken in this order. A step that is not named is never taken.
        #[arg(value_enum, value_name = "STEP")]
        give_up: Vec<Fallback> = vec![
            Fallback::Slack,
            Fallback::Photographs,
            Fallback::Bands,
            Fallback::Neighbours,
            Fallback::NewGaussians,
        ], idle Idle::OnCpu;

        /// RAM to use, size or share
        ///
        /// To keep the limit, the cache evicts images and decodes one at a time. A limit that is too low for the
        /// start of the run ends with code 4. On the CPU the model grows only as far as the limit allows.
        #[arg(value_name = "SIZE|P%")]
        host_limit: Limit = Limit::Percent(60.0), is |limit| holds(
            limit.is_usable(),
            limit,
            "a size above 0, for instance 16GiB, or more than 0% and at most 100%",
        );

        /// Record every buffer's size for splat profile
        profile_tensors: bool = false, idle Idle::OnCpu;
    }
}

impl MemoryOptions {
    /// Returns the storage of the model's state on a GPU.
    pub fn storage_on_gpu(&self) -> Storage {
        match (self.offload, self.optimize_memory) {
            (Offload::Sh, _) => Storage::Offloaded,
            (Offload::None, Compactness::Auto) => Storage::Compact,
            (Offload::None, compactness) => compactness.storage_on_cpu(),
        }
    }
}

/// Cadence of returning unused memory to the driver.
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
    /// Returns the number of iterations between two returns.
    pub fn interval(self) -> u32 {
        match self {
            Self::Minimal => 100,
            Self::Normal => 50,
            Self::Aggressive => 10,
        }
    }
}

options! {
    /// Options of output files.
    #[command(next_help_heading = "Output")]
    pub struct OutputOptions in "output" of OutputOptions {
        /// Model folder [default: output/SCENE]
        ///
        /// With --experiment-name the default is output/EXPERIMENT.
        #[arg(short, visible_alias = "output", short_alias = 'o', value_name = "MODEL")]
        model_path: Option<PathBuf>, is path;

        /// Name of the run
        ///
        /// It names the model folder if --model-path is not given, and is a line in the log.
        #[arg(value_name = "NAME")]
        experiment_name: Option<String>, is |name| holds(
            !["", ".", ".."].contains(&name.as_str()) && !name.contains(['/', '\\']),
            format_args!("`{name}`"),
            "the name of a folder, without slashes",
        );

        /// Evaluate after these iterations
        ///
        /// The held-out views are measured, and a sample of the training views. The last iteration
        /// always is evaluated.
        #[arg(alias = "eval-steps", value_name = "N", allow_negative_numbers = true)]
        test_iterations: Vec<i64> = vec![7000, 30_000], is |given| iterations(given);

        /// Training views that evaluations measure, or all
        ///
        /// They are evenly spread, and the same in every evaluation. 0 measures none.
        #[arg(value_name = "N|all")]
        eval_train: TrainSample = TrainSample::Views(5);

        /// Save a PLY after these iterations
        ///
        /// The last iteration always is saved.
        #[arg(alias = "save-steps", value_name = "N", allow_negative_numbers = true)]
        save_iterations: Vec<i64> = vec![7000, 30_000], is |given| iterations(given);

        /// LPIPS weights (.safetensors or .pth)
        ///
        /// With them evaluations measure LPIPS. The default is the file that `SPLAT_LPIPS_WEIGHTS` names.
        #[arg(value_name = "FILE")]
        lpips_weights: Option<PathBuf>, is path;

        /// Measure LPIPS, or fail
        ///
        /// Without --lpips-weights the command searches ~/.cache/splat and ~/.cache/torch. --enable-lpips false
        /// disables LPIPS, also for a run that has weights.
        enable_lpips: bool = false;

        /// Metrics that evaluations measure
        #[arg(value_enum, value_name = "SET")]
        metrics: MetricSet = MetricSet::Standard;

        /// Write a checkpoint after these iterations
        ///
        /// The last iteration always has one.
        #[arg(value_name = "N", allow_negative_numbers = true)]
        checkpoint_iterations: Vec<i64> = Vec::new(), is |given| iterations(given);

        /// Minutes between two checkpoints; 0 for none
        ///
        /// The result stays the same. --keep-checkpoints limits their number.
        #[arg(value_name = "MINUTES")]
        checkpoint_minutes: f64 = 5.0, is |minutes| holds(
            minutes.is_finite() && *minutes >= 0.0,
            minutes,
            "a finite number, 0 and more (0: no checkpoints by time)",
        );

        /// Number of timed checkpoints to keep
        ///
        /// A checkpoint of --checkpoint-minutes is removed when N newer ones exist. Checkpoints of
        /// --checkpoint-iterations, of the last iteration and of an interruption always stay.
        #[arg(value_name = "N")]
        keep_checkpoints: u32 = 2, is count;

        /// Keep room for a checkpoint on the disk
        ///
        /// A hidden file of a checkpoint's size reserves the space. If the disk is full, the run writes a last
        /// checkpoint in its place and stops.
        checkpoint_reserve: bool = true;

        /// Keep pictures of this view while training
        ///
        /// The name of a photograph. Some 300 pictures of it as the model shows it, most of them early, are
        /// written to MODEL/timelapse; `splat video -m MODEL --timelapse` makes a video of them.
        #[arg(value_name = "IMAGE")]
        timelapse: Option<String>;

        /// Seconds between live splats; 0 for none
        ///
        /// While `splat view` shows the run, at most a million Gaussians are written to MODEL/live, in at most 2 % of
        /// the time. Training stays the same.
        #[arg(value_name = "SECONDS")]
        live_every: f64 = 5.0, is |seconds| holds(
            (0.0..=86_400.0).contains(seconds),
            seconds,
            "0 to 86400 (0: no live splats)",
        );

        /// Let `splat view` pause and stop the run
        ///
        /// The run reads `MODEL/live/control_ID.json`, at most once a second: pause, resume, checkpoint or stop.
        live_control: bool = true;
    }
}

/// Metrics of evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricSet {
    /// PSNR, SSIM and L1, and LPIPS where weights are given
    #[default]
    Standard,
    /// Also SSIM and LPIPS as metrics.py of 3DGS and Mip-Splatting prints them
    Reference,
}

options! {
    /// Options of the run.
    #[command(next_help_heading = "Run")]
    pub struct RunOptions in "run" of RunOptions {
        /// Seed of every random decision
        #[arg(value_name = "N", value_parser = toml_count())]
        seed: u64 = 0, is |seed| holds(fits_toml(*seed), seed, "0 to 2^63 - 1");

        /// Device that trains
        #[arg(value_enum, value_name = "DEVICE", value_parser = DeviceParser)]
        device: DeviceChoice = DeviceChoice::Auto;
    }
}

/// Device that trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    /// The GPU if there is one; the CPU on machines without
    #[default]
    Auto,
    /// The NVIDIA GPU
    Cuda,
    /// The processor
    Cpu,
}

impl DeviceChoice {
    /// True if the processor does the work. `has_gpu` is asked only if the choice depends on it.
    pub fn is_cpu(self, has_gpu: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Cpu => true,
            Self::Cuda => false,
            Self::Auto => !has_gpu(),
        }
    }
}

/// Parser of a device. Other programs' names of the GPU are errors that suggest `cuda`.
#[derive(Clone)]
struct DeviceParser;

impl TypedValueParser for DeviceParser {
    type Value = DeviceChoice;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<DeviceChoice, clap::Error> {
        EnumValueParser::new().parse_ref(command, arg, value).map_err(|mut error| {
            let name = value.to_string_lossy().to_lowercase();
            if ["gpu", "nvidia"].contains(&name.as_str()) || name.starts_with("cuda:") {
                let cuda = ContextValue::String("cuda".to_owned());
                error.insert(ContextKind::SuggestedValue, cuda);
            }
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = DeviceChoice::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(names))
    }
}
