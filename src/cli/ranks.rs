//! `splat train --ranks`: which of a run's processes this one is, and what it does.

use std::ffi::OsString;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::Context;
use splat_ranks::exchange::Exchange;
use splat_ranks::join::{Claim, ClaimKind, Joined, join};
use splat_ranks::launch::{Launch, Rendezvous};
use splat_ranks::link::Link;
use splat_ranks::supervise::{JOIN_TIME, Supervised, Verdict};

use super::device::{self, DeviceOptions, RankPlace, Task};
use super::exit::{DataError, Exit, Interrupted, UsageError, device_error, message};
use super::folder::default_path;
use super::output::shell_word;
use super::rank_launch::{RankCount, gpu_of, launched};
use super::scene::{open_images, open_to_train};
use super::signals::{self, stop_on_signals};
use super::train_args::TrainArgs;
use crate::backend::DeviceError;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::ranks::CpuShard;
use crate::backend::ranks::{
    Follower, Leader, Opening, Problem, RANK_PROTOCOL, RankLine, RankShard,
};
use crate::config::{Config, PrimitiveName};
use crate::dataset::Dataset;
use crate::memory::Bytes;
use crate::telemetry::{log_error, release_notices};
use crate::train::appearance::compensation;
use crate::train::follower::{FollowerRun, fingerprint, fingerprint_of};

#[cfg(kernels)]
use crate::backend::cuda::ranks::CudaShard;

pub(super) use super::exit::{DeadRank, EndedRank, StoppedJoin};

// Role of this process in a run.

/// Role of a process in a run.
#[derive(Debug)]
pub(super) enum RankRole {
    /// All of it.
    Alone,
    /// The process starts N ranks.
    Supervisor(u32),
    /// The process is one of the ranks.
    Rank(Launch),
}

impl RankRole {
    /// Returns the role of this process, by its options and the environment.
    pub(super) fn of(args: &TrainArgs) -> anyhow::Result<Self> {
        let role = Self::among(args.ranks(), &args.ranks_flag())?;
        if args.clean && !matches!(role, Self::Alone) {
            return Err(UsageError(
                "--clean: the processes of --ranks and --gpus do not clean a model. Leave it out; splat clean -m \
                 MODEL cleans the model afterwards"
                    .to_owned(),
            )
            .into());
        }
        if let (Some(gpus), Self::Supervisor(_) | Self::Alone) = (args.gpus, &role) {
            gpus.check()?;
        }
        if args.ranks().may_be_several() && matches!(role, Self::Alone) {
            tracing::info!(
                "--ranks auto: no launcher has started several processes, so that this one trains alone"
            );
        }
        Ok(role)
    }

    /// `flag` is what was typed.
    fn among(count: RankCount, flag: &str) -> Result<Self, UsageError> {
        // Who asks for one process has it, whatever has started it; who asks for one GPU may not know of the others.
        if !count.may_be_several() && flag.is_empty() {
            return Ok(Self::Alone);
        }
        match (count, launched()?) {
            (RankCount::Auto | RankCount::Count(1), None) => Ok(Self::Alone),
            (RankCount::Count(world), None) => Ok(Self::Supervisor(world)),
            (RankCount::Count(world), Some(launch)) if launch.world != world => {
                Err(UsageError(format!(
                    "{}: the launcher has started {} processes. Give --ranks auto, or start {world}",
                    flag.trim_start(),
                    launch.world
                )))
            }
            (_, Some(launch)) => Ok(Self::Rank(launch)),
        }
    }
}

/// True if rank 0 prints the messages about the command line: this process starts the ranks or follows rank 0.
pub(super) fn leaves_words_to_rank_0(args: &TrainArgs) -> bool {
    match RankRole::among(args.ranks(), &args.ranks_flag()) {
        Ok(RankRole::Supervisor(_)) => true,
        Ok(RankRole::Rank(launch)) => launch.rank > 0,
        Ok(RankRole::Alone) | Err(_) => false,
    }
}

// A rank that has met the others: its exchange, and its line to the coordinator.

/// Interval at which a rank checks for a request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time in which a rank that has lost another waits for the reason.
const NEWS_TIME: Duration = Duration::from_secs(8);

/// Time in which a failed rank leaves the report to rank 0. Shorter than [`NEWS_TIME`], so that rank 0 hears of a
/// failure that it does not know.
const LEAD_TIME: Duration = Duration::from_secs(3);

/// Most characters of a command line that are sent; of a longer one all is in a number.
const LONGEST_LINE: usize = 2048;

/// A rank that has met the others: its line to their bytes, and its link to the coordinator.
pub(super) struct RankGroup {
    place: RankPlace,
    /// Nothing once it is taken.
    line: Option<RankLine>,
    link: Arc<Link>,
}

impl RankGroup {
    /// Meets the other ranks of this command. From then on a rank that is gone ends this process.
    /// Until all are there, `stop` ends the waiting.
    fn join(launch: &Launch, args: &TrainArgs, stop: &AtomicBool) -> anyhow::Result<Self> {
        share_threads(launch);
        let is_supervised = matches!(launch.rendezvous, Rendezvous::Supervisor { .. });
        if is_supervised {
            // The supervisor receives the signal, too, and passes it on.
            signals::leave_interrupts_to_others();
        }
        let Joined { world, data, link, .. } = join_unless(stop, launch)?;
        let link = Arc::new(link);
        let (style, command) = (args.style(), resume_command(args));
        let end_with = move |lost| {
            if !is_supervised {
                let died = DeadRank { lost, command: command.clone() };
                log_error(style, &died.to_string());
            }
            end();
        };
        link.watch(signals::request_stop, end_with)?;
        let exchange = Exchange::connect(data, JOIN_TIME)
            .inspect_err(|error| link.fail(Exit::Device.code(), &error.to_string()))?;
        let line = Some(RankLine::new(exchange));
        let ranks_here = launch.local_world.unwrap_or(1);
        Ok(Self { place: RankPlace { world, ranks_here, gpu: gpu_of(launch) }, line, link })
    }

    pub(super) fn world(&self) -> u32 {
        self.place.world
    }

    /// Returns the options of this rank's device.
    pub(super) fn device_options(&self, config: &Config) -> DeviceOptions {
        DeviceOptions::of_rank(config, self.place)
    }

    /// The way to the other ranks, which only one device can have.
    fn take_line(&mut self) -> anyhow::Result<RankLine> {
        self.line.take().context("the ranks have done their work already")
    }

    /// Runs a task on all ranks, each on its device.
    pub(super) fn on_all<T: Task>(
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

    /// Runs a task on all ranks, by this rank's shard.
    fn by<S: RankShard, T: Task>(
        &mut self,
        shard: impl FnOnce(RankLine) -> S,
        task: T,
    ) -> anyhow::Result<T::Output> {
        let link = self.link.clone();
        let shard = shard(self.take_line()?);
        let mut device = Leader::new(shard).with_progress(move |image| link.progress(image));
        let done = task.run(&mut device);
        if done.as_ref().err().is_none_or(|error| error.is::<Interrupted>()) {
            // The run is over, whatever becomes of those that only have to go.
            device.end().ok();
        }
        done
    }

    /// Rejects what several processes cannot train yet. Logs how many processes have nothing to draw.
    pub(super) fn check(&self, config: &Config) -> Result<(), UsageError> {
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
            self.warn_about_idle(config.optimize.batch_views);
            return Ok(());
        };
        let world = self.world();
        Err(UsageError(format!(
            "a run of several processes, here {world}, {problem}. {remedy}, or train in one, without --ranks and \
             --gpus"
        )))
    }

    fn warn_about_idle(&self, views: u32) {
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

/// Joins the other ranks. If a request to stop comes first, the waiting thread ends with this process.
fn join_unless(stop: &AtomicBool, launch: &Launch) -> anyhow::Result<Joined> {
    let (sender, receiver) = mpsc::channel();
    let (launch, claims) = (launch.clone(), claims());
    thread::spawn(move || sender.send(join(&launch, &claims, JOIN_TIME)).ok());
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(joined) => return Ok(joined?),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(StoppedJoin.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the thread that meets the other ranks has failed")
            }
        }
    }
}

/// Returns the facts that must be equal on all ranks; their scenes are compared when a run begins.
fn claims() -> Vec<Claim> {
    let claim = |what: &str, value: String, kind| Claim { what: what.to_owned(), value, kind };
    let typed: Vec<_> = std::env::args_os().skip(1).map(|arg| format!("{arg:?}")).collect();
    let mut line = typed.join(" ");
    if line.chars().count() > LONGEST_LINE {
        let all = fingerprint_of(line.as_bytes());
        let shown: String = line.chars().take(LONGEST_LINE).collect();
        line = format!("{shown} ... ({} bytes, {all:016x})", line.len());
    }
    vec![
        claim("version of the program", env!("CARGO_PKG_VERSION").to_owned(), ClaimKind::Version),
        claim("version of what ranks send", RANK_PROTOCOL.to_string(), ClaimKind::Version),
        claim("command line", line, ClaimKind::Options),
    ]
}

/// Ends this process since another rank is gone. The supervisor, where there is one, says so.
#[expect(clippy::exit, reason = "the thread that trains waits for a rank that is gone")]
fn end() {
    release_notices();
    process::exit(i32::from(Exit::Device.code()));
}

// Rank 0 trains and leads the other ranks.

/// Joins the other ranks, does rank 0's work, and dismisses the other ranks.
pub(super) fn lead<T>(
    launch: &Launch,
    args: &TrainArgs,
    work: impl FnOnce(&mut RankGroup) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Held to the end: the run takes the same, and a signal that comes before it counts.
    let stop = stop_on_signals()?;
    let mut group = RankGroup::join(launch, args, &stop)?;
    let done = work(&mut group);
    match &done {
        Err(error) if !error.is::<Interrupted>() => {
            // Another rank's end may be the cause. The news of it ends this process.
            if matches!(device_error(error), Some(DeviceError::Exchange(_))) {
                sleep(NEWS_TIME);
            }
            group.link.fail(Exit::of(error).code(), &message(error));
        }
        _ => {
            // Without training the other ranks still wait for work.
            if let Ok(line) = group.take_line() {
                Leader::new(CpuShard::new(Cpu::new(), line)).end().ok();
            }
            group.link.leave();
        }
    }
    done
}

// The other ranks have their photographs and their share of the model, and follow rank 0.

/// Follows rank 0 to the end of the run.
pub(super) fn follow(launch: &Launch, args: &TrainArgs) -> anyhow::Result<()> {
    // Held to the end: a signal that comes late is none that ends this process alone.
    let stop = stop_on_signals()?;
    let mut group = RankGroup::join(launch, args, &stop)?;
    pass_on(&group.link, &stop);
    let line = group.take_line()?;
    let done = follow_leader(&group, line);
    let link = &group.link;
    match &done {
        Ok(()) => link.leave(),
        Err(error) => {
            // Rank 0 may already know, and then ends the run and this process.
            sleep(LEAD_TIME);
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
            sleep(POLL_INTERVAL);
            if link.strong_count() == 0 {
                return;
            }
        }
        if let Some(link) = link.upgrade() {
            link.request_stop();
        }
    });
}

fn follow_leader(group: &RankGroup, line: RankLine) -> anyhow::Result<()> {
    let (config, scene) = match Opening::receive(&line)? {
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
    let work = RankWork { config: &config, dataset: &dataset, group };
    let options = group.device_options(&config);
    if options.is_gpu() {
        return work.on_gpu(&options, line);
    }
    work.follow(CpuShard::new(device::processor(&options)?, line))
}

/// The run of a rank that follows rank 0.
struct RankWork<'a> {
    config: &'a Config,
    dataset: &'a Dataset,
    group: &'a RankGroup,
}

impl RankWork<'_> {
    #[cfg(kernels)]
    fn on_gpu(&self, options: &DeviceOptions, line: RankLine) -> anyhow::Result<()> {
        match device::open_cuda(options) {
            Ok(cuda) => self.follow(CudaShard::new(cuda, line)),
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

    fn follow<S: RankShard>(&self, shard: S) -> anyhow::Result<()> {
        let &Self { config, dataset, group } = self;
        let images = open_images(dataset, &config.memory, Bytes(0))?;
        let progress = |image| group.link.progress(image);
        let rank = FollowerRun { dataset, images: &images, config, progress: &progress };
        Ok(rank.follow(&mut Follower::join(shard)?)?)
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

// Threads of ranks that share a host.

/// Says how many threads a process computes with.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Threads for each of so many ranks on this host.
fn threads_each(ranks: u32) -> usize {
    let own = thread::available_parallelism().map_or(1, usize::from);
    // A launcher that binds each rank to processors of its own has shared them already.
    let is_bound = online_processors().is_some_and(|all| own < all);
    if is_bound { own } else { (own / ranks.max(1) as usize).max(1) }
}

/// Processors of this host.
#[cfg(unix)]
fn online_processors() -> Option<usize> {
    // SAFETY: the number is the system's own; nothing of this process is touched.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).ok()
}

#[cfg(not(unix))]
fn online_processors() -> Option<usize> {
    None
}

/// Has this process take its share of the host's threads, where its launcher says how many ranks there are on the
/// host and the user has not said how many threads each takes. Comes before anything is computed.
fn share_threads(launch: &Launch) {
    let Some(ranks) = launch.local_world.filter(|&ranks| ranks > 1) else { return };
    if std::env::var_os(THREADS).is_some() {
        return;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads_each(ranks));
    if let Err(error) = pool.build_global() {
        tracing::debug!("ranks do not share the threads of this host: {error}");
    }
}

// The process that starts the ranks, waits for them and says how the run ended.

/// Time in which the other ranks end by themselves when one is gone.
const GRACE: Duration = Duration::from_secs(5);

/// Runs this program's command line in so many ranks.
pub(super) fn supervise(world: u32, args: &TrainArgs) -> anyhow::Result<()> {
    let stop = stop_on_signals()?;
    let command = resume_command(args);
    let program = std::env::current_exe().context("this program's own file is not known")?;
    let ranks = Supervised {
        program,
        args: std::env::args_os().skip(1).collect(),
        world,
        grace: GRACE,
        env: threads_of_rank(world),
    };
    match splat_ranks::supervise::supervise(&ranks, &stop)? {
        Verdict::Done => Ok(()),
        Verdict::Ended { code } => Err(EndedRank(code).into()),
        Verdict::Died(lost) => Err(DeadRank { lost, command }.into()),
    }
}

/// Ranks of one host share its threads, unless the user has said how many each takes.
fn threads_of_rank(world: u32) -> Vec<(OsString, OsString)> {
    if std::env::var_os(THREADS).is_some() {
        return Vec::new();
    }
    vec![(THREADS.into(), threads_each(world).to_string().into())]
}

/// The command that continues the run, which is about to make its folder.
fn resume_command(args: &TrainArgs) -> String {
    let named = args.options.output.model_path.clone();
    let folder = named.unwrap_or_else(|| match args.demo {
        true => Path::new("output").join("demo"),
        // Files may name another.
        false if args.config.is_some() || args.start_checkpoint.is_some() => "MODEL".into(),
        false => default_path(&args.options, args.resume.is_some()),
    });
    format!("splat train --resume -m {}{}", shell_word(&folder), args.ranks_flag())
}
