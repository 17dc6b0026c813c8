//! Options of a run's resources: its memory, its output, its device.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, ValueEnum};
use serde::{Deserialize, Serialize};

use super::compactness::{Compactness, parse_compactness};
use super::declare::options;
use super::idle::Idle;
use super::offload::Offload;
use super::splits::TrainSample;
use super::values::{count, fits_toml, holds, iterations, path, toml_count};
use crate::memory::plan::Storage;
use crate::memory::{Bytes, Limit, Rung};

/// The flag that is no key: it sets `high_dram` to false.
pub(super) const LOW_DRAM: &str = "low_dram";

/// `--low-dram`, the way back from `high_dram = true` in a configuration file.
fn low_dram() -> Arg {
    Arg::new(LOW_DRAM)
        .long("low-dram")
        .action(ArgAction::SetTrue)
        .overrides_with("high_dram")
        .help("Decode images on demand into a cache (the default)")
}

options! {
    /// How much memory is used, and for what.
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
        vram_limit: Option<Limit>, is |limit| match limit {
            Some(limit) => holds(
                limit.is_usable(),
                limit,
                "a size above 0, for instance 12GiB, or more than 0% and at most 100%",
            ),
            None => Ok(()),
        }, idle Idle::OnCpu;

        /// Share of --vram-limit never exceeded
        ///
        /// The rest of the limit stays free on the card, even if other programs use memory.
        #[arg(value_name = "SHARE")]
        vram_threshold: f64 = 0.97, is |share| {
            holds(*share > 0.0 && *share <= 1.0, share, "more than 0, at most 1")
        }, idle Idle::OnCpu;

        /// 320 instead of 716 bytes a Gaussian
        ///
        /// Colours are kept in 16 bits, the optimiser's moments in 8 and 16. With sh, only colours are,
        /// and a Gaussian takes 620 bytes. With auto, both are compact on GPUs. The CPU, where that takes time, then
        /// trains in full precision.
        #[arg(
            value_name = "BOOL|auto|sh",
            num_args = 0..=1,
            default_missing_value = "true",
            hide_default_value = true,
            value_parser = parse_compactness,
        )]
        optimize_memory: Compactness = Compactness::Off;

        /// What of the model is kept in RAM
        ///
        /// With sh, colours and their moments: 200 of the 320 bytes that a Gaussian then takes, since it
        /// implies --optimize-memory. The GPU reaches them over the bus. RAM that there is none of, or that
        /// --host-limit does not leave, is refused with code 4.
        #[arg(value_enum, value_name = "WHAT")]
        offload: Offload = Offload::None, idle Idle::OnCpu;

        /// How often unused GPU memory is returned
        ///
        /// It goes back to the driver.
        #[arg(value_enum, value_name = "CADENCE")]
        fragmentation: Fragmentation = Fragmentation::Normal, idle Idle::OnCpu;

        /// What to give up when GPU memory is short
        ///
        /// The steps are taken in this order. A step that is not named is never taken.
        #[arg(value_enum, value_name = "STEP")]
        give_up: Vec<Rung> = vec![
            Rung::Slack,
            Rung::Photographs,
            Rung::Bands,
            Rung::Neighbours,
            Rung::Births,
        ], idle Idle::OnCpu;

        /// RAM to use, size or share
        ///
        /// To keep the limit, decoded images are evicted, and decoded one at a time. A limit that is
        /// too low for the start of the run is refused with code 4. On the CPU the model grows no
        /// further than it allows, and a warning says so.
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
    /// How a GPU keeps the model's state.
    pub fn storage_on_gpu(&self) -> Storage {
        self.offload.storage(self.optimize_memory)
    }
}

/// How often unused memory goes back to the driver.
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

options! {
    /// What is written, and when.
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
        experiment_name: Option<String>, is |name| match name {
            Some(name) => holds(
                !["", ".", ".."].contains(&name.as_str()) && !name.contains(['/', '\\']),
                format_args!("`{name}`"),
                "the name of a folder, without slashes",
            ),
            None => Ok(()),
        };

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
        /// Weights that are not named are looked for in ~/.cache/splat and ~/.cache/torch.
        /// --enable-lpips false on the command line: LPIPS is not measured, whatever weights the run
        /// was given before.
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
        /// They change nothing in the result. --keep-checkpoints says how many of them are kept.
        #[arg(value_name = "MINUTES")]
        checkpoint_minutes: f64 = 5.0, is |minutes| holds(
            minutes.is_finite() && *minutes >= 0.0,
            minutes,
            "a finite number, 0 and more (0: no checkpoints by time)",
        );

        /// Newest checkpoints that are kept of those by time
        ///
        /// A checkpoint of --checkpoint-minutes is removed when so many newer ones are there. Those of
        /// --checkpoint-iterations, of the last iteration and of an interruption always stay.
        #[arg(value_name = "N")]
        keep_checkpoints: u32 = 2, is count;

        /// Keep room for a checkpoint on the disk
        ///
        /// A hidden file of a checkpoint's size. It is removed at the end, or if the disk is full: the
        /// run then writes a checkpoint in its place before it stops.
        checkpoint_reserve: bool = true;

        /// Keep pictures of this view while training
        ///
        /// The name of a photograph. Some 300 pictures of it as the model shows it, most of them early, are
        /// written to MODEL/timelapse; `splat video -m MODEL --timelapse` makes a video of them.
        #[arg(value_name = "IMAGE")]
        timelapse: Option<String>;

        /// Seconds between live splats; 0 for none
        ///
        /// While `splat view` shows the run, the Gaussians that show most, a million at most, are written
        /// to MODEL/live that often, in at most 2 % of the time. Nothing is trained differently.
        #[arg(value_name = "SECONDS")]
        live_every: f64 = 5.0, is |seconds| holds(
            (0.0..=86_400.0).contains(seconds),
            seconds,
            "0 to 86400 (0: no live splats)",
        );

        /// Let `splat view` pause and stop the run
        ///
        /// What it asks for is read from `MODEL/live/control_ID.json`, at most once a second: pause, resume,
        /// checkpoint or stop.
        live_control: bool = true;
    }
}

/// Metrics that evaluations measure.
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
    /// Where and how the program runs.
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

/// Reads a device. Other programs' names of the GPU are errors that point to ours.
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
