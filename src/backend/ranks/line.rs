//! Values that ranks exchange: the commands of rank 0, and reports on each rank's view.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use splat_ranks::exchange::{Exchange, ExchangeError};

use super::view::{RankView, ViewSetup};
use crate::abi::terms::Terms;
use crate::backend::{
    AdamStep, Adjust, Candidates, DeviceError, EditRule, LossValues, Pending, Pick, RenderSettings,
    ScoreRule,
};
use crate::dataset::View;
use crate::math::morton::Cube;

/// Reason why a rank does not join a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Problem {
    /// The scene differs.
    Scene(String),
    /// The device cannot be used.
    Device(String),
}

/// Connection of a rank to the others. Clones share it. All ranks make the same calls in the same order.
#[derive(Clone)]
pub struct RankLine {
    rank: u32,
    world: u32,
    exchange: Arc<Mutex<Exchange>>,
}

impl RankLine {
    /// Creates the line over an exchange.
    pub fn new(exchange: Exchange) -> Self {
        let (rank, world) = (exchange.rank(), exchange.world());
        Self { rank, world, exchange: Arc::new(Mutex::new(exchange)) }
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Makes a call of the exchange, which keeps an error for later calls.
    fn call<T>(
        &self,
        make: impl FnOnce(&mut Exchange) -> Result<T, ExchangeError>,
    ) -> Result<T, DeviceError> {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(make(&mut exchange)?)
    }

    /// Sends a value from rank 0 to all ranks.
    pub(in crate::backend) fn give<T: Serialize>(&self, value: &T) -> Result<(), DeviceError> {
        let bytes = encoded(value, 0)?;
        self.call(|exchange| exchange.broadcast(Some(bytes)).map(drop))
    }

    /// Receives a value from rank 0.
    pub(in crate::backend) fn take<T: DeserializeOwned>(&self) -> Result<T, DeviceError> {
        decoded(0, &self.call(|exchange| exchange.broadcast(None))?)
    }

    /// Sends each rank its value, and returns the values of all ranks, by rank.
    pub(in crate::backend) fn all_to_all<T: Serialize, U: DeserializeOwned>(
        &self,
        outgoing: &[T],
    ) -> Result<Vec<U>, DeviceError> {
        let outgoing = outgoing.iter().map(|value| encoded(value, self.rank));
        let outgoing = outgoing.collect::<Result<_, _>>()?;
        by_rank(&self.call(|exchange| exchange.all_to_all(outgoing))?)
    }

    /// Returns every rank's value, by rank.
    pub(in crate::backend) fn all_gather<T: Serialize + DeserializeOwned>(
        &self,
        mine: &T,
    ) -> Result<Vec<T>, DeviceError> {
        let mine = encoded(mine, self.rank)?;
        by_rank(&self.call(|exchange| exchange.all_gather(mine))?)
    }

    /// Reports that this rank can join the run. Returns an error if another rank cannot.
    pub(super) fn check_problems(&self) -> Result<(), DeviceError> {
        let problems = (0..).zip(self.all_gather(&None::<Problem>)?);
        let mut found = problems.filter_map(|(rank, problem)| Some((rank, problem?)));
        match found.next() {
            None => Ok(()),
            Some((rank, Problem::Scene(problem))) => Err(DeviceError::OtherScene { rank, problem }),
            Some((rank, Problem::Device(problem))) => {
                Err(DeviceError::RankDevice { rank, problem })
            }
        }
    }

    /// Returns every rank's value, by rank, on rank 0 only.
    pub(in crate::backend) fn gather_first<T: Serialize + DeserializeOwned>(
        &self,
        mine: &T,
    ) -> Result<Option<Vec<T>>, DeviceError> {
        let outgoing = (0..self.world).map(|rank| (rank == 0).then_some(mine));
        let incoming: Vec<Option<T>> = self.all_to_all(&outgoing.collect::<Vec<_>>())?;
        Ok(incoming.into_iter().collect())
    }
}

fn by_rank<T: DeserializeOwned>(incoming: &[Vec<u8>]) -> Result<Vec<T>, DeviceError> {
    (0..).zip(incoming).map(|(rank, bytes)| decoded(rank, bytes)).collect()
}

fn encoded<T: Serialize>(value: &T, rank: u32) -> Result<Vec<u8>, DeviceError> {
    postcard::to_stdvec(value).map_err(|error| unreadable(rank, &error))
}

fn decoded<T: DeserializeOwned>(rank: u32, bytes: &[u8]) -> Result<T, DeviceError> {
    postcard::from_bytes(bytes).map_err(|error| unreadable(rank, &error))
}

fn unreadable(rank: u32, error: &postcard::Error) -> DeviceError {
    DeviceError::of_rank(rank, format!("what it sends cannot be read: {error}"))
}

// Commands.

/// Version of the protocol between ranks. Increment it if a command or its data change.
pub const RANK_PROTOCOL: u32 = 7;

/// A command to all ranks.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum RankCommand {
    /// Open the scene of a run, by its configuration (TOML) and fingerprint.
    Begin { config: String, scene: u64 },
    /// Receive rows of a new model that has this number of rows.
    Load { sh_degree: u32, rows: usize },
    /// Send rank 0 the rows of these numbers.
    Read(Range<usize>),
    /// Send it the parameters of the rows of these numbers.
    Sample(Vec<usize>),
    /// Sort the rows along the Z-curve of a cube, and distribute them again.
    Reorder(Cube),
    /// Project into a view that rank 0 shows or measures.
    Draw(ViewSetup),
    /// Draw, compare and differentiate these views, by rank.
    Train(Vec<Option<RankView>>),
    /// Report the results of the last step's views.
    Report,
    /// Move down the gradients.
    Step(AdamStep),
    /// Sum the rows' blend weights over views.
    Weigh { views: Vec<View>, settings: RenderSettings },
    /// Select among candidates.
    Select { candidates: Candidates, pick: Pick },
    /// Find the candidates.
    Score(ScoreRule),
    /// Report the number of new Gaussians, at most this one, for which there is memory.
    Grant(usize),
    /// Edit the model by what was selected.
    Edit(EditRule),
    /// Change all rows alike.
    Adjust(Adjust),
    /// Compute the 3D filter from these views, which sample the scene from a depth on.
    Smooth { views: Vec<View>, sampled_from: f64 },
    /// The run is over.
    End,
}

// Reports on a view.

/// Report of a rank to the others, after it has projected its rows into the views of a step.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RankNews {
    /// Reason why its own view cannot be compared. The step continues without that view.
    pub(in crate::backend) problem: Option<String>,
    /// Result of its view of the previous step.
    pub(in crate::backend) report: ViewReport,
    /// Numbers of splats of its rows in the view of each rank, and of their pairs with tiles if the device counts
    /// them; `[world]`. 0 for its own view, which it counts later.
    pub(in crate::backend) counts: Vec<[u64; 2]>,
}

impl RankNews {
    /// No report.
    pub(in crate::backend) const NONE: Self =
        Self { problem: None, report: ViewReport::NoView, counts: Vec::new() };
}

/// Result of the view of a rank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::backend) enum ViewReport {
    /// The rank had no view.
    NoView,
    /// Its gradients are added.
    Added(Reported),
    /// The view cannot be drawn or compared: the reason.
    Failed(String),
}

/// The values of a view's terms at pixels.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::backend) struct Reported {
    total: f64,
    pairs: Vec<(String, f64)>,
}

impl ViewReport {
    /// Creates the report on a view with these values.
    pub(super) fn added(values: LossValues) -> Self {
        let LossValues { total, pairs } = values;
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self::Added(Reported { total, pairs })
    }

    /// Returns the values of these terms in the rank's view.
    pub(super) fn values(&self, rank: u32, terms: &Terms) -> Result<LossValues, DeviceError> {
        match self {
            Self::Added(Reported { total, pairs }) => {
                let names = || terms.active().flat_map(|weighted| weighted.term.values());
                let known = pairs.iter().filter_map(|(name, value)| {
                    names().find(|known| known.name == name).map(|known| (known.name, *value))
                });
                Ok(LossValues { total: *total, pairs: known.collect() })
            }
            Self::Failed(message) => Err(DeviceError::of_rank(rank, message)),
            Self::NoView => Err(DeviceError::of_rank(rank, "it has left out its view of the step")),
        }
    }

    /// Returns an error if the view failed.
    pub(super) fn check(&self, rank: u32) -> Result<(), DeviceError> {
        match self {
            Self::Failed(message) => Err(DeviceError::of_rank(rank, message)),
            Self::NoView | Self::Added(_) => Ok(()),
        }
    }
}

// Values of the terms. Values of other ranks arrive with the reports of the next step, so that no rank waits.

/// Values of a view's terms, computed by this rank or another.
pub enum RankLosses<L> {
    /// No values.
    None,
    /// Values of this rank.
    Own(L),
    /// Values of another rank.
    Late {
        /// Rank that draws the view.
        rank: u32,
        /// Terms of its view.
        terms: Terms,
        /// Reports of all ranks, once they have come.
        reports: Rc<LateReports>,
    },
}

impl<L: Pending<LossValues>> Pending<LossValues> for RankLosses<L> {
    fn is_ready(&self) -> bool {
        match self {
            Self::None => true,
            Self::Own(values) => values.is_ready(),
            Self::Late { reports, .. } => reports.are_there(),
        }
    }

    fn read(self) -> Result<LossValues, DeviceError> {
        match self {
            Self::None => Ok(LossValues::default()),
            Self::Own(values) => values.read(),
            Self::Late { rank, terms, reports } => reports.of(rank)?.values(rank, &terms),
        }
    }
}

/// Reason why a step failed on rank 0 while the others wait in it and receive no commands.
#[derive(Clone, Default)]
pub(super) struct FailedStep(Rc<RefCell<Option<String>>>);

impl FailedStep {
    /// Keeps the first reason.
    pub(super) fn note(&self, error: &DeviceError) {
        self.0.borrow_mut().get_or_insert_with(|| error.to_string());
    }

    /// Returns an error if a step has failed.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        match &*self.0.borrow() {
            Some(message) => Err(DeviceError::of_rank(0, message)),
            None => Ok(()),
        }
    }
}

/// Reports of the ranks on their views of a step.
pub struct LateReports {
    line: RankLine,
    failed: FailedStep,
    found: RefCell<Option<Vec<ViewReport>>>,
}

impl LateReports {
    /// Creates reports that arrive later on this line.
    pub(super) fn new(line: RankLine, failed: FailedStep) -> Self {
        Self { line, failed, found: RefCell::new(None) }
    }

    fn are_there(&self) -> bool {
        self.found.borrow().is_some()
    }

    /// Stores the reports, by rank, unless they were requested before.
    pub(super) fn come(&self, reports: Vec<ViewReport>) {
        self.found.borrow_mut().get_or_insert(reports);
    }

    /// Returns the report of a rank. Requests the reports if they have not arrived.
    fn of(&self, rank: u32) -> Result<ViewReport, DeviceError> {
        if !self.are_there() {
            self.failed.check()?;
            self.line.give(&RankCommand::Report)?;
            self.come(self.line.all_gather(&ViewReport::NoView)?);
        }
        let found = self.found.borrow();
        let report = found.as_ref().and_then(|reports| reports.get(rank as usize));
        Ok(report.cloned().unwrap_or(ViewReport::NoView))
    }
}
