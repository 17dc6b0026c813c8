//! Ranks other than 0, which carry out the commands of rank 0.

use super::line::{Problem, RankCommand, RankLine, RankNews, ViewReport};
use super::shard::{RankShard, Shard};
use super::view::{RankView, ViewSetup};
use crate::abi::terms::Terms;
use crate::backend::{
    Device, DeviceError, DrawSettings, Drawn, FallbackState, LossValues, Objective, Pending,
    Render, Scored, Store as _, TrainRequest,
};
use crate::model::Gaussians;

type OwnGradients<S> = <<S as Shard>::Device as Render<Gaussians>>::Gradients;
type OwnFrame<S, T> = <<S as Shard>::Device as Render<Gaussians>>::Frame<T>;
type OwnLosses<S> = <<S as Shard>::Device as Render<Gaussians>>::Losses;
type OwnTarget<S> = <<S as Shard>::Device as Device>::Target;

/// One of the ranks that follow rank 0.
pub struct Follower<S: RankShard> {
    shard: S,
    share: Option<S::Share>,
    gradients: OwnGradients<S>,
    selection: Option<S::Selection>,
    /// Report on the view of the last step, not yet sent.
    report: OwedReport<OwnLosses<S>>,
}

/// Report on a view, not yet sent.
enum OwedReport<L> {
    Known(ViewReport),
    /// Values of the terms, which the device may still be computing.
    Values(L),
}

impl<L: Pending<LossValues>> OwedReport<L> {
    const NONE: Self = Self::Known(ViewReport::NoView);

    /// Waits for the device.
    fn read(self) -> ViewReport {
        match self {
            Self::Known(report) => report,
            Self::Values(values) => values
                .read()
                .map_or_else(|error| ViewReport::Failed(error.to_string()), ViewReport::added),
        }
    }
}

/// First command of a run.
#[derive(Debug)]
pub enum Opening {
    /// A run. The rank joins by [`Follower::join`] or declines with a reason.
    Begin {
        /// The run's configuration, TOML.
        config: String,
        /// The scene's fingerprint.
        scene: u64,
    },
    /// The end: there was nothing to train.
    End,
}

impl Opening {
    /// Receives the first command of rank 0.
    pub fn receive(line: &RankLine) -> Result<Self, DeviceError> {
        match line.take()? {
            RankCommand::Begin { config, scene } => Ok(Self::Begin { config, scene }),
            RankCommand::End => Ok(Self::End),
            command => Err(DeviceError::of_rank(0, format!("it begins no run, but {command:?}"))),
        }
    }

    /// Sends all ranks the reason why this rank does not join the run.
    pub fn decline(line: &RankLine, problem: Problem) -> Result<(), DeviceError> {
        line.all_gather(&Some(problem)).map(drop)
    }
}

/// Result of a command.
#[derive(Debug)]
pub enum RankOrder {
    /// The command is done.
    Done,
    /// Views to draw with [`Follower::train`], by rank.
    Train(Vec<Option<RankView>>),
    /// The run is over.
    End,
}

/// A photograph and the terms of its comparison with a view.
#[derive(Debug)]
pub struct RankTarget<T> {
    /// The photograph.
    pub target: T,
    /// The terms.
    pub terms: Terms,
}

impl<S: RankShard> Follower<S> {
    /// Creates a rank other than 0 from its shard, and confirms to all ranks that it has the run's scene.
    pub fn join(mut shard: S) -> Result<Self, DeviceError> {
        shard.line().check_problems()?;
        shard.connect()?;
        let (share, selection) = (None, None);
        let gradients = OwnGradients::<S>::default();
        Ok(Self { shard, share, gradients, selection, report: OwedReport::NONE })
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> u32 {
        self.shard.line().rank()
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.shard.line().world()
    }

    /// Returns the rank's device, for photographs.
    pub fn device(&mut self) -> &mut S::Device {
        self.shard.device()
    }

    /// Waits for the next command, and carries it out unless it needs the caller.
    pub fn follow(&mut self) -> Result<RankOrder, DeviceError> {
        match self.shard.line().take()? {
            RankCommand::Load { sh_degree, rows } => {
                self.share = Some(self.shard.take_rows(sh_degree, rows)?);
            }
            RankCommand::Begin { .. } => {
                return Err(DeviceError::of_rank(0, "it begins a run within a run"));
            }
            RankCommand::Report => {
                let report = std::mem::replace(&mut self.report, OwedReport::NONE).read();
                self.shard.line().all_gather(&report)?;
            }
            RankCommand::Train(views) => return Ok(RankOrder::Train(views)),
            RankCommand::End => return Ok(RankOrder::End),
            command => self.follow_with_model(command)?,
        }
        Ok(RankOrder::Done)
    }

    fn follow_with_model(&mut self, command: RankCommand) -> Result<(), DeviceError> {
        let Self { shard, share, gradients, selection, .. } = self;
        let share = share.as_mut().ok_or_else(no_model)?;
        match command {
            RankCommand::Read(numbers) => shard.read(share, &numbers).map(drop),
            RankCommand::Sample(numbers) => shard.sample(share, &numbers).map(drop),
            RankCommand::Reorder(cube) => shard.reorder(share, &cube),
            RankCommand::Draw(setup) => {
                let mut setups: Vec<Option<&ViewSetup>> = vec![None; shard.line().world() as usize];
                setups[0] = Some(&setup);
                shard.project(share, &setups).map(drop)
            }
            RankCommand::Step(step) => {
                shard.step(share, std::mem::take(gradients), &step)?;
                shard.device().govern(S::local_mut(share), step.number)?;
                log_changes(shard.device());
                Ok(())
            }
            RankCommand::Weigh { views, settings } => shard.weigh(share, &views, &settings),
            RankCommand::Score(rule) => shard.score(share, &rule).map(drop),
            RankCommand::Grant(wish) => {
                let granted = shard.grant(share, wish)?;
                shard.line().all_gather(&granted).map(drop)
            }
            RankCommand::Select { candidates, pick } => {
                *selection = Some(shard.select(share, &candidates, pick)?);
                Ok(())
            }
            RankCommand::Edit(rule) => {
                let selection = selection.take().ok_or(DeviceError::StaleSelection)?;
                shard.edit(share, selection, &rule).map(drop)
            }
            RankCommand::Adjust(adjust) => shard.adjust(share, &adjust),
            RankCommand::Smooth { views, sampled_from } => {
                shard.smooth(share, &views, sampled_from)
            }
            RankCommand::Begin { .. }
            | RankCommand::Load { .. }
            | RankCommand::Report
            | RankCommand::Train(_)
            | RankCommand::End => Ok(()),
        }
    }

    /// Draws and compares this rank's view, and projects rows into the views of the others. Rank 0 receives the reason
    /// if this rank's view fails and the others can continue.
    pub fn train(
        &mut self,
        views: &[Option<RankView>],
        comparison: Option<Result<RankTarget<OwnTarget<S>>, String>>,
    ) -> Result<(), DeviceError> {
        let Self { shard, share, gradients, report, .. } = self;
        let share = share.as_mut().ok_or_else(no_model)?;
        let own = views.get(shard.line().rank() as usize).and_then(Option::as_ref);
        let problem = comparison.as_ref().and_then(|found| found.as_ref().err().cloned());
        let message = std::mem::replace(report, OwedReport::NONE).read();
        let news = RankNews { problem, report: message, counts: Vec::new() };
        let (round, splats, _) = shard.project_to_train(share, views, news)?;
        let frame = match (own, comparison) {
            (Some(view), Some(Ok(comparison))) => {
                match compared(shard, share, view, splats, &comparison) {
                    Ok((frame, values)) => {
                        *report = OwedReport::Values(values);
                        Some(frame)
                    }
                    Err(error) if S::MUST_DRAW => return Err(error),
                    Err(error) => {
                        *report = OwedReport::Known(ViewReport::Failed(error.to_string()));
                        None
                    }
                }
            }
            (None, _) | (Some(_), None | Some(Err(_))) => None,
        };
        shard.add_gradients(share, round, frame, gradients)
    }
}

#[expect(clippy::type_complexity, reason = "a frame and its values, of associated types")]
fn compared<S: RankShard>(
    shard: &mut S,
    share: &S::Share,
    view: &RankView,
    splats: S::Splats,
    comparison: &RankTarget<OwnTarget<S>>,
) -> Result<(OwnFrame<S, Scored<Drawn>>, OwnLosses<S>), DeviceError> {
    let RankTarget { target, terms } = comparison;
    let &ViewSetup { observe, divisor, ref settings, ref view, .. } = &view.setup;
    let request =
        TrainRequest { observe, inputs: terms.needs(), divisor, ..TrainRequest::default() };
    let frame: OwnFrame<S, Drawn> =
        shard.draw(share, view, DrawSettings::trained(settings, &request), splats)?;
    let objective = Objective { target, terms, near: None, other: None };
    shard.device().objective(S::local(share), frame, &objective)
}

/// Logs the fallbacks that this rank has taken or undone. Only rank 0 writes the run's log.
fn log_changes(device: &mut impl Device) {
    let Some(FallbackState { changes, held, budget }) = device.take_changes() else { return };
    for change in changes {
        tracing::warn!(
            "{:.0} of {:.0} MiB are held here: {}",
            held.mib(),
            budget.mib(),
            change.fallback.words(change.given_up)
        );
    }
}

fn no_model() -> DeviceError {
    DeviceError::of_rank(0, "it has dealt out no model")
}
