//! The values of terms of views that several ranks draw: those of the others come with what they say in the next
//! round, so that nobody waits for them.

use std::cell::RefCell;
use std::rc::Rc;

use super::command::RankCommand;
use super::line::RankLine;
use super::report::ViewReport;
use crate::abi::terms::Terms;
use crate::backend::{DeviceError, LossValues, Pending};

/// The values of a view's terms, which this rank or another finds.
pub enum RankLosses<L> {
    /// There are none.
    None,
    /// This rank's.
    Own(L),
    /// Another's.
    Late {
        /// Which.
        rank: u32,
        /// The terms that it compares its view by.
        terms: Terms,
        /// Where what it says will be found.
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

/// Why a step failed on rank 0 that the others had begun, if one did: they wait within it, and hear nothing.
#[derive(Clone, Default)]
pub(super) struct FailedStep(Rc<RefCell<Option<String>>>);

impl FailedStep {
    /// Keeps the first reason.
    pub(super) fn note(&self, error: &DeviceError) {
        self.0.borrow_mut().get_or_insert_with(|| error.to_string());
    }

    /// An error where a step has failed.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        match &*self.0.borrow() {
            Some(message) => Err(DeviceError::OfRank { rank: 0, message: message.clone() }),
            None => Ok(()),
        }
    }
}

/// What the ranks say of the views of a round.
pub struct LateReports {
    line: RankLine,
    failed: FailedStep,
    found: RefCell<Option<Vec<ViewReport>>>,
}

impl LateReports {
    /// Those that will come this way.
    pub(super) fn new(line: RankLine, failed: FailedStep) -> Self {
        Self { line, failed, found: RefCell::new(None) }
    }

    fn are_there(&self) -> bool {
        self.found.borrow().is_some()
    }

    /// Here they are, by rank, unless they were asked for before.
    pub(super) fn come(&self, reports: Vec<ViewReport>) {
        self.found.borrow_mut().get_or_insert(reports);
    }

    /// What a rank says, which is asked for where it has not come.
    fn of(&self, rank: u32) -> Result<ViewReport, DeviceError> {
        if !self.are_there() {
            self.failed.check()?;
            self.line.tell(&RankCommand::Report)?;
            self.come(self.line.all_gather(&ViewReport::NoView)?);
        }
        let found = self.found.borrow();
        let report = found.as_ref().and_then(|reports| reports.get(rank as usize));
        Ok(report.cloned().unwrap_or(ViewReport::NoView))
    }
}
