//! A rank that has met the others: its exchange, and its line to the coordinator.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::Context as _;
use splat_ranks::exchange::{Board, Mesh, Sockets, Watched};
use splat_ranks::join::{Claim, ClaimKind, Joined, join};
use splat_ranks::launch::{Launch, Meeting};
use splat_ranks::link::Link;
use splat_ranks::supervise::JOIN_TIME;

use super::super::device::{DeviceOptions, RankPlace};
use super::super::exit::{Exit, device_error};
use super::super::signals;
use super::super::train_args::TrainArgs;
use super::errors::{DeadRank, NoParty, StoppedMeeting};
use super::gpus::gpu_of;
use super::supervise::resume_command;
use crate::backend::DeviceError;
use crate::backend::ranks::{RANK_PROTOCOL, RankLine};
use crate::config::Config;
use crate::telemetry::{log_error, release_notices};
use crate::train::obey::fingerprint_of;

/// How often a rank looks whether it was asked to stop.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// How long a rank that has lost another waits to hear what became of it.
const NEWS_TIME: Duration = Duration::from_secs(8);

/// How long a rank that has failed leaves it to rank 0 to say so. Less than [`NEWS_TIME`]: what rank 0 does not know, it
/// hears then.
const LEAD_TIME: Duration = Duration::from_secs(3);

/// How long a rank waits for what the others are to send it while they work together. The longest that they take is
/// the opening of a scene.
const STUCK_TIME: Duration = Duration::from_secs(300);

/// Most characters of a command line that are sent; of a longer one all is in a number.
const LONGEST_LINE: usize = 2048;

/// What a rank has of the others.
pub(in crate::cli) struct Party {
    place: RankPlace,
    /// Nothing once it is taken.
    line: Option<RankLine>,
    pub(super) link: Arc<Link>,
}

impl Party {
    /// Meets the other ranks of this command. From then on a rank that is gone ends this process.
    /// Until all are there, `stop` ends the waiting.
    pub(super) fn join(
        launch: &Launch,
        args: &TrainArgs,
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let joined = join_unless(stop, launch)?;
        let Joined { rank, world, data, peers, key, link } = joined;
        let link = Arc::new(link);
        let is_supervised = matches!(launch.meeting, Meeting::Supervisor { .. });
        let (style, command) = (args.style(), resume_command(args));
        let told = move |departure| {
            if !is_supervised {
                let died = DeadRank { departure, command: command.clone() };
                log_error(style, &died.to_string());
            }
            end();
        };
        link.watch(signals::ask_to_stop, told)?;
        let mesh = Mesh { rank, listener: data, peers, key, patience: JOIN_TIME };
        let connected = Sockets::connect(mesh);
        let is_one_host = launch.local_world == Some(world);
        let faster = connected.and_then(|sockets| match is_one_host {
            true => Board::among(sockets),
            false => Ok(Board::without(sockets)),
        });
        let watched = faster.and_then(|exchange| Watched::new(exchange, STUCK_TIME));
        let exchange = watched.map_err(|error| {
            link.fail(Exit::Device.code(), &error.to_string());
            DeviceError::from(error)
        })?;
        let line = Some(RankLine::new(Box::new(exchange)));
        let ranks_here = launch.local_world.unwrap_or(1);
        Ok(Self { place: RankPlace { world, ranks_here, gpu: gpu_of(launch) }, line, link })
    }

    /// How many ranks there are.
    pub(in crate::cli) fn world(&self) -> u32 {
        self.place.world
    }

    /// What is asked of the device of this rank.
    pub(in crate::cli) fn device_options(&self, config: &Config) -> DeviceOptions {
        DeviceOptions::of_rank(config, self.place)
    }

    /// The way to the other ranks, which only one device can have.
    pub(super) fn take_line(&mut self) -> anyhow::Result<RankLine> {
        self.line.take().context("the ranks have done their work already")
    }
}

/// Meets the other ranks, unless it is asked to stop first: then the thread that waits for them ends with this
/// process.
fn join_unless(stop: &AtomicBool, launch: &Launch) -> anyhow::Result<Joined> {
    let (tell, told) = mpsc::channel();
    let (launch, claims) = (launch.clone(), claims());
    thread::spawn(move || tell.send(join(&launch, &claims, JOIN_TIME)).ok());
    loop {
        match told.recv_timeout(LOOK) {
            Ok(joined) => return Ok(joined.map_err(|source| NoParty { source })?),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(StoppedMeeting.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the thread that meets the other ranks has failed")
            }
        }
    }
}

/// What must be equal on all ranks before they work together; their scenes are compared when a run begins.
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

/// After an error that another rank's end may be the cause of: waits for the news, which ends the process.
pub(super) fn wait_for_news(error: &anyhow::Error) {
    if matches!(device_error(error), Some(DeviceError::Exchange(_))) {
        sleep(NEWS_TIME);
    }
}

/// After an error of a rank that obeys: rank 0 may have been told of it, and ends the run and with it this process.
pub(super) fn wait_for_lead() {
    sleep(LEAD_TIME);
}
