//! A rank that has met the others: its exchange, and its line to the coordinator.

use std::process;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use splat_ranks::exchange::{Exchange, Mesh, Sockets, Watched};
use splat_ranks::join::{Claim, ClaimKind, Joined, join};
use splat_ranks::launch::{Launch, Meeting};
use splat_ranks::link::{Departure, Link};
use splat_ranks::supervise::JOIN_TIME;

use super::super::exit::{Exit, device_error};
use super::super::signals;
use super::errors::NoParty;
use crate::backend::DeviceError;
use crate::backend::cpu::ranks::RANK_PROTOCOL;
use crate::telemetry::{ProgressStyle, log_error};

/// How long a rank that has lost another waits to hear what became of it.
const NEWS_TIME: Duration = Duration::from_secs(5);

/// How long a rank waits for what the others are to send it while they work together. A round of density control
/// or an evaluation of one rank takes no such time.
const STUCK_TIME: Duration = Duration::from_secs(300);

/// What a rank has of the others.
pub(in crate::cli) struct Party {
    world: u32,
    /// Nothing once it is taken.
    exchange: Option<Box<dyn Exchange>>,
    pub(super) link: Arc<Link>,
}

impl Party {
    /// Meets the other ranks. From then on a rank that is gone ends this process.
    pub(super) fn join(launch: &Launch) -> anyhow::Result<Self> {
        let joined = join(launch, &claims(), JOIN_TIME).map_err(|source| NoParty { source })?;
        let Joined { rank, world, data, peers, key, link, warning } = joined;
        if let Some(warning) = warning.filter(|_| rank == 0) {
            tracing::warn!("{warning}");
        }
        let link = Arc::new(link);
        let is_supervised = matches!(launch.meeting, Meeting::Supervisor { .. });
        link.watch(signals::ask_to_stop, move |departure| end(&departure, is_supervised))?;
        let mesh = Mesh { rank, listener: data, peers, key, patience: JOIN_TIME };
        let connected = Sockets::connect(mesh);
        let watched = connected.and_then(|sockets| Watched::new(sockets, STUCK_TIME));
        let exchange = watched.map_err(|error| {
            link.fail(Exit::Device.code(), &error.to_string());
            DeviceError::from(error)
        })?;
        Ok(Self { world, exchange: Some(Box::new(exchange)), link })
    }

    /// How many ranks there are.
    pub(in crate::cli) fn world(&self) -> u32 {
        self.world
    }

    /// The way to the other ranks, which only one device can have.
    pub(super) fn take_exchange(&mut self) -> anyhow::Result<Box<dyn Exchange>> {
        self.exchange.take().context("the ranks have done their work already")
    }
}

/// What must be equal on all ranks before they work together; their scenes are compared when a run begins.
fn claims() -> Vec<Claim> {
    let claim = |what: &str, value: String, kind| Claim { what: what.to_owned(), value, kind };
    let typed: Vec<_> = std::env::args().skip(1).collect();
    vec![
        claim("version of the program", env!("CARGO_PKG_VERSION").to_owned(), ClaimKind::Version),
        claim("version of what ranks send", RANK_PROTOCOL.to_string(), ClaimKind::Version),
        claim("command line", typed.join(" "), ClaimKind::Options),
    ]
}

/// Ends this process since another rank is gone. The supervisor, where there is one, says so.
#[expect(clippy::exit, reason = "the thread that trains waits for a rank that is gone")]
fn end(departure: &Departure, is_supervised: bool) {
    if !is_supervised {
        log_error(ProgressStyle::Plain, &departure.to_string());
    }
    process::exit(i32::from(Exit::Device.code()));
}

/// After an error that another rank's end may be the cause of: waits for the news, which ends the process.
pub(super) fn wait_for_news(error: &anyhow::Error) {
    if matches!(device_error(error), Some(DeviceError::Exchange(_))) {
        sleep(NEWS_TIME);
    }
}

/// After an error of a rank that obeys: rank 0, which is told of it, ends the run and with it this process.
pub(super) fn wait_for_lead() {
    sleep(NEWS_TIME);
}
