//! A rank other than 0 as a device: it does what rank 0 has all ranks do.

use std::sync::Arc;

use splat_ranks::exchange::Exchange;

use super::command::RankCommand;
use super::density::RankedSelection;
use super::report::ViewReport;
use super::shard::{ModelShare, Shard};
use crate::abi::terms::Terms;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::frame::{self, Frame};
use crate::backend::cpu::splat::Splat;
use crate::backend::cpu::stage::gradients::Gradients;
use crate::backend::frame_state::{Drawn, Scored};
use crate::backend::{DeviceError, Drawing, Edit, Objective, Pending, RankView, Sight, Wants};
use crate::dataset::Image;

/// One of the ranks that obey rank 0.
pub struct ObeyingCpu {
    shard: Shard,
    share: Option<ModelShare>,
    gradients: Gradients<f32>,
    selection: Option<RankedSelection>,
}

/// What the next command was.
#[derive(Debug)]
pub enum Order {
    /// It is done.
    Done,
    /// A run begins: [`ObeyingCpu::accept`] says that its scene is here.
    Begin {
        /// The run's configuration, TOML.
        config: String,
        /// The scene's fingerprint.
        scene: u64,
    },
    /// Views are to be drawn, by rank: [`ObeyingCpu::train`] does that.
    Train(Vec<Option<RankView>>),
    /// No more is to come.
    End,
}

/// A photograph, and the terms by which a view is compared with it.
#[derive(Debug)]
pub struct RankTarget {
    /// The photograph at the view's size.
    pub target: Arc<Image>,
    /// The terms.
    pub terms: Terms,
}

impl ObeyingCpu {
    /// The processor as one of those that exchange, not rank 0.
    pub fn new(exchange: Box<dyn Exchange>) -> Self {
        let (gradients, selection) = (Gradients::default(), None);
        Self { shard: Shard::new(Cpu::new(), exchange), share: None, gradients, selection }
    }

    /// Which rank it is.
    pub fn rank(&self) -> u32 {
        self.shard.rank()
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.shard.world()
    }

    /// Waits for the next command, and does it where it can alone.
    pub fn obey(&mut self) -> Result<Order, DeviceError> {
        let command = self.shard.hear()?;
        let shard = &mut self.shard;
        match command {
            RankCommand::Load { sh_degree, rows } => {
                self.share = Some(shard.take_rows(sh_degree, rows)?);
            }
            RankCommand::Begin { config, scene } => return Ok(Order::Begin { config, scene }),
            RankCommand::Train(views) => return Ok(Order::Train(views)),
            RankCommand::End => return Ok(Order::End),
            command => self.obey_with_model(command)?,
        }
        Ok(Order::Done)
    }

    fn obey_with_model(&mut self, command: RankCommand) -> Result<(), DeviceError> {
        let Self { shard, share, gradients, selection } = self;
        let share = share.as_mut().ok_or_else(no_model)?;
        match command {
            RankCommand::Read(numbers) => shard.read(share, &numbers).map(drop),
            RankCommand::Sample(numbers) => shard.sample(share, &numbers).map(drop),
            RankCommand::Reorder(cube) => shard.reorder(share, &cube),
            RankCommand::Draw(sight) => {
                let mut sights: Vec<Option<&Sight>> = vec![None; shard.world() as usize];
                sights[0] = Some(&sight);
                shard.project(share, &sights).map(drop)
            }
            RankCommand::Step(step) => shard.step(share, std::mem::take(gradients), &step),
            RankCommand::Weigh { views, settings } => shard.weigh(share, &views, &settings),
            RankCommand::Score => shard.score(share, None).map(drop),
            RankCommand::Select { candidates, pick } => {
                *selection = Some(shard.select(share, &candidates, pick)?);
                Ok(())
            }
            RankCommand::Edit(rule) => {
                let selection = selection.take().ok_or(DeviceError::StaleSelection)?;
                shard.edit(share, selection, &rule).map(drop)
            }
            RankCommand::Adjust(adjust) => shard.cpu.adjust(&mut share.local, &adjust),
            RankCommand::Smooth { views, sampled_from } => {
                shard.smooth(share, &views, sampled_from)
            }
            RankCommand::Begin { .. }
            | RankCommand::Load { .. }
            | RankCommand::Train(_)
            | RankCommand::End => Ok(()),
        }
    }

    /// Says to all that the scene of the run that begins is here; this processor works on it.
    pub fn accept(&mut self, cpu: Cpu<f32>) -> Result<(), DeviceError> {
        self.shard.cpu = cpu;
        self.shard.all_gather(&None::<String>).map(drop)
    }

    /// Says to all why it is not here.
    pub fn decline(&mut self, problem: String) -> Result<(), DeviceError> {
        self.shard.all_gather(&Some(problem)).map(drop)
    }

    /// Draws and compares this rank's view among those of all, or says why it cannot be compared; helps the
    /// others with theirs. What goes wrong with the own view is rank 0's to tell.
    pub fn train(
        &mut self,
        views: &[Option<RankView>],
        comparison: Option<Result<RankTarget, String>>,
    ) -> Result<(), DeviceError> {
        let share = self.share.as_mut().ok_or_else(no_model)?;
        let own = views.get(self.shard.rank() as usize).and_then(Option::as_ref);
        let has_photograph = matches!(comparison, Some(Ok(_)));
        let (round, splats) = self.shard.project_to_train(share, views, has_photograph)?;
        let (frame, report) = match (own, comparison) {
            (Some(view), Some(Ok(comparison))) => {
                let frame = drawn(&view.sight, &comparison.terms, splats);
                match frame.and_then(|frame| compared(share, frame, &comparison)) {
                    Ok((frame, report)) => (Some(frame), report),
                    Err(error) => (None, ViewReport::Failed(error.to_string())),
                }
            }
            (Some(_), Some(Err(why))) => (None, ViewReport::Undecodable(why)),
            (None, _) | (Some(_), None) => (None, ViewReport::NoView),
        };
        self.shard.add_gradients(share, round, frame, &mut self.gradients, &report).map(drop)
    }
}

fn drawn(
    sight: &Sight,
    terms: &Terms,
    splats: Vec<Splat<f32>>,
) -> Result<Frame<f32, Drawn>, DeviceError> {
    let &Sight { observe, divisor, .. } = sight;
    let wants = Wants { observe, inputs: terms.needs(), divisor, ..Wants::default() };
    frame::draw_splats(&sight.view, Drawing::trained(&sight.settings, &wants), splats)
}

fn compared(
    share: &ModelShare,
    frame: Frame<f32, Drawn>,
    comparison: &RankTarget,
) -> Result<(Frame<f32, Scored<Drawn>>, ViewReport), DeviceError> {
    let RankTarget { target, terms } = comparison;
    let objective = Objective { target, terms, near: None, other: None };
    let (frame, values) = frame.scored(&share.local, &objective)?;
    Ok((frame, ViewReport::added(values.read()?)))
}

fn no_model() -> DeviceError {
    let message = "it has dealt out no model".to_owned();
    DeviceError::OfRank { rank: 0, message }
}
