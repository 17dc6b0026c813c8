//! The ranks other than 0: they have their photographs and their share of the model, and do what rank 0 asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use splat_ranks::launch::{Launch, Meeting};
use splat_ranks::link::Link;

use super::super::device::{self, DeviceOptions};
use super::super::exit::{DataError, Exit, message};
use super::super::images::open_images;
use super::super::scene::open_to_train;
use super::super::signals;
use super::super::train_args::TrainArgs;
use super::party::{LOOK, Party, wait_for_lead};
use super::threads::share_threads;
use crate::backend::cpu::ranks::CpuShard;
#[cfg(kernels)]
use crate::backend::cuda::ranks::CudaShard;
use crate::backend::ranks::{Obeying, Opening, Problem, RankLine, RankShard};
use crate::config::Config;
use crate::dataset::Dataset;
use crate::memory::Bytes;
use crate::train::obey::{ObeyingRank, fingerprint};

/// Does what rank 0 asks for, to the end of the run.
pub(in crate::cli) fn obey(launch: &Launch, args: &TrainArgs) -> anyhow::Result<()> {
    // Held to the end: a signal that comes late is none that ends this process alone.
    let stop = signals::stop_on_signals()?;
    share_threads(launch);
    if matches!(launch.meeting, Meeting::Supervisor { .. }) {
        signals::leave_interrupts_to_others();
    }
    let mut party = Party::join(launch, args, &stop)?;
    pass_on(&party.link, &stop);
    let line = party.take_line()?;
    let done = obey_lead(&party, line);
    let link = &party.link;
    match &done {
        Ok(()) => link.leave(),
        Err(error) => {
            wait_for_lead();
            link.fail(Exit::of(error).code(), &message(error));
        }
    }
    done
}

/// A signal to stop is for all ranks: rank 0 ends the run with a checkpoint.
fn pass_on(link: &Arc<Link>, stop: &Arc<AtomicBool>) {
    let (link, stop) = (Arc::downgrade(link), Arc::clone(stop));
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
            if link.strong_count() == 0 {
                return;
            }
        }
        if let Some(link) = link.upgrade() {
            link.ask_stop();
        }
    });
}

fn obey_lead(party: &Party, line: RankLine) -> anyhow::Result<()> {
    let (config, scene) = match Opening::hear(&line)? {
        Opening::Begin { config, scene } => (Config::from_toml("rank 0", &config)?, scene),
        // There was nothing to train.
        Opening::End => return Ok(()),
    };
    let dataset = match same_scene(&config, scene) {
        Ok(dataset) => dataset,
        Err(problem) => {
            Opening::decline(&line, Problem::Scene(message(&problem)))?;
            return Err(problem);
        }
    };
    let work = RankWork { config: &config, dataset: &dataset, party };
    let options = party.device_options(&config);
    if options.is_gpu() {
        return work.on_gpu(&options, line);
    }
    work.obey(CpuShard::new(device::processor(&options)?, line))
}

/// What a rank has of a run.
struct RankWork<'a> {
    config: &'a Config,
    dataset: &'a Dataset,
    party: &'a Party,
}

impl RankWork<'_> {
    #[cfg(kernels)]
    fn on_gpu(&self, options: &DeviceOptions, line: RankLine) -> anyhow::Result<()> {
        match device::open_cuda(options) {
            Ok(cuda) => self.obey(CudaShard::new(cuda, line)),
            Err(problem) => {
                Opening::decline(&line, Problem::Device(message(&problem)))?;
                Err(problem)
            }
        }
    }

    #[cfg(not(kernels))]
    #[expect(clippy::needless_pass_by_value, reason = "as where there are kernels")]
    fn on_gpu(&self, options: &DeviceOptions, line: RankLine) -> anyhow::Result<()> {
        let problem = device::no_kernels(options);
        Opening::decline(&line, Problem::Device(problem.to_string()))?;
        Err(problem.into())
    }

    fn obey<S: RankShard>(&self, shard: S) -> anyhow::Result<()> {
        let &Self { config, dataset, party } = self;
        let images = open_images(dataset, &config.memory, Bytes(0))?;
        let progress = |image| party.link.progress(image);
        let rank = ObeyingRank { dataset, images: &images, config, progress: &progress };
        Ok(rank.obey(&mut Obeying::join(shard)?)?)
    }
}

/// The scene, if it is the one that rank 0 trains.
fn same_scene(config: &Config, scene: u64) -> anyhow::Result<Dataset> {
    let mut config = config.clone();
    config.scene.take_kept_frame();
    let dataset = open_to_train(&config)?;
    if fingerprint(&dataset) == scene {
        return Ok(dataset);
    }
    let path = config.scene.source_path.clone().unwrap_or_default();
    Err(DataError(format!(
        "{}: the scene here is not that of rank 0: names of photographs, cameras or points differ. Copy the \
         same scene to all hosts",
        path.display()
    ))
    .into())
}
