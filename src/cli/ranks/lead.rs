//! Rank 0: trains, and has the others do their part.

use splat_ranks::launch::{Launch, Meeting};

use super::super::device::{self, DeviceOptions, Task};
use super::super::exit::{Exit, Interrupted, UsageError, message};
use super::super::signals;
use super::super::train_args::TrainArgs;
use super::party::{Party, wait_for_news};
use super::threads::share_threads;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::ranks::CpuShard;
#[cfg(kernels)]
use crate::backend::cuda::ranks::CudaShard;
use crate::backend::ranks::{RankLine, RankShard, Ranked};
use crate::config::{Config, PrimitiveName};
use crate::train::appearance::compensation;

/// Meets the other ranks, has rank 0 do the work, and lets the others go when it is done.
pub(in crate::cli) fn lead<T>(
    launch: &Launch,
    args: &TrainArgs,
    work: impl FnOnce(&mut Party) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Held to the end: the run takes the same, and a signal that comes before it counts.
    let stop = signals::stop_on_signals()?;
    share_threads(launch);
    if matches!(launch.meeting, Meeting::Supervisor { .. }) {
        // The supervisor hears it, too, and passes it on.
        signals::leave_interrupts_to_others();
    }
    let mut party = Party::join(launch, args, &stop)?;
    let done = work(&mut party);
    match &done {
        Err(error) if !error.is::<Interrupted>() => {
            wait_for_news(error);
            party.link.fail(Exit::of(error).code(), &message(error));
        }
        _ => {
            party.dismiss();
            party.link.leave();
        }
    }
    done
}

impl Party {
    /// Has all ranks do the work, each on its device.
    pub(in crate::cli) fn on_all<T: Task>(
        &mut self,
        options: &DeviceOptions,
        task: T,
    ) -> anyhow::Result<T::Output> {
        if options.is_gpu() {
            return self.on_gpus(options, task);
        }
        let cpu = device::processor(options)?;
        self.by(|line| CpuShard::new(cpu, line), task)
    }

    #[cfg(kernels)]
    fn on_gpus<T: Task>(&mut self, options: &DeviceOptions, task: T) -> anyhow::Result<T::Output> {
        let cuda = device::open_cuda(options)?;
        self.by(|line| CudaShard::new(cuda, line), task)
    }

    #[cfg(not(kernels))]
    fn on_gpus<T: Task>(&mut self, options: &DeviceOptions, _: T) -> anyhow::Result<T::Output> {
        Err(device::no_kernels(options).into())
    }

    /// Has all ranks do the work of a device, by the shard that this one has of it.
    fn by<S: RankShard, T: Task>(
        &mut self,
        shard: impl FnOnce(RankLine) -> S,
        task: T,
    ) -> anyhow::Result<T::Output> {
        let link = self.link.clone();
        let shard = shard(self.take_line()?);
        let mut device = Ranked::new(shard).with_progress(move |image| link.progress(image));
        let done = task.run(&mut device);
        if done.as_ref().err().is_none_or(|error| error.is::<Interrupted>()) {
            // The run is over, whatever becomes of those that only have to go.
            device.end().ok();
        }
        done
    }

    /// Lets the other ranks go, where there was nothing to do for them.
    fn dismiss(&mut self) {
        if let Ok(line) = self.take_line() {
            Ranked::new(CpuShard::new(Cpu::new(), line)).end().ok();
        }
    }

    /// Refuses what several processes cannot train yet, and says how many of them have nothing to draw.
    pub(in crate::cli) fn refuse(&self, config: &Config) -> Result<(), UsageError> {
        let is_gpu = self.device_options(config).is_gpu();
        let (problem, remedy) = if config.optimize.primitive == PrimitiveName::Surfels && is_gpu {
            ("trains no surfels on GPUs", "Leave --primitive surfels out")
        } else if config.optimize.primitive == PrimitiveName::Triangles {
            ("trains no triangles, which share vertices", "Leave --primitive triangles out")
        } else if config.has_coarse_stage() {
            (
                "has no coarse stage of SuGaR, whose Gaussians are compared with neighbours on other ranks",
                "Leave --regularize out",
            )
        } else if compensation(&config.optimize).is_some() {
            ("learns no colours of photographs", "Leave --appearance out")
        } else {
            self.warn_of_idle(config.optimize.batch_views);
            return Ok(());
        };
        let world = self.world();
        Err(UsageError(format!(
            "a run of several processes, here {world}, {problem}. {remedy}, or train in one, without --ranks and \
             --gpus"
        )))
    }

    fn warn_of_idle(&self, views: u32) {
        let idle = self.world().saturating_sub(views);
        if idle > 0 {
            tracing::warn!(
                "--batch-views {views}: {idle} of {} ranks have no view of a step to draw; they hold their \
                 share of the Gaussians",
                self.world()
            );
        }
    }
}
