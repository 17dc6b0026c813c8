//! Rank 0 as a device: what the trainer asks of it, all ranks do.

use std::ops::Range;
use std::rc::Rc;

use super::command::RankCommand;
use super::losses::{FailedStep, LateReports, RankLosses};
use super::report::{RankNews, ViewReport};
use super::shard::{RankShard, Shard};
use super::view::{RankOutcome, RankView, Ranks, Sight};
use crate::abi::terms::Terms;
use crate::backend::frame_state::{Drawn, FrameState, Scored, Shown, Trainable};
use crate::backend::{
    AdamStep, Device, DeviceError, DeviceInfo, DeviceMemory, Drawing, LadderState, Look, Measured,
    ModelShape, Objective, Peaks, Photo, Render, RenderSettings, Rendered, Rows, Snapshot, Store,
    Wants, check_rows,
};
use crate::dataset::View;
use crate::math::morton::Cube;
use crate::memory::plan::OptionalColumns;
use crate::memory::{Bytes, TrainingScale};
use crate::model::{Gaussians, Primitive as _};

/// Rank 0 of several devices that train a model together.
pub struct Ranked<S: RankShard> {
    pub(super) shard: S,
    most_rows: Option<usize>,
    /// Told the number of an image of each step.
    progress: Option<Box<dyn Fn(u64)>>,
    /// The image that this rank draws next.
    image: u32,
    /// Views that other ranks draw with it.
    others: Vec<RankView>,
    /// The views whose gradients are on their way.
    round: Option<LeadRound<S>>,
    /// What became of the views of other ranks.
    outcomes: Vec<RankOutcome<LeadLosses<S>>>,
    /// Where what the other ranks say of the views of the last round will be found.
    awaited: Option<Rc<LateReports>>,
    /// Why a part of a step has failed here, which the others have begun, if that is so: nothing can be asked of
    /// them.
    failed: FailedStep,
}

type LeadLosses<S> = RankLosses<<<S as Shard>::Device as Render<Gaussians>>::Losses>;

/// A round on its way.
struct LeadRound<S: RankShard> {
    round: S::Round,
    others: Vec<RankView>,
    /// Why those of other ranks cannot be compared, by rank, where that is so.
    problems: Vec<Option<String>>,
}

impl<S: RankShard> Ranked<S> {
    /// The device of a shard as that of rank 0.
    pub fn new(shard: S) -> Self {
        Self {
            shard,
            most_rows: None,
            progress: None,
            image: 0,
            others: Vec::new(),
            round: None,
            outcomes: Vec::new(),
            awaited: None,
            failed: FailedStep::default(),
        }
    }

    /// Has this called with the number of an image of each step.
    #[must_use]
    pub fn with_progress(self, progress: impl Fn(u64) + 'static) -> Self {
        Self { progress: Some(Box::new(progress)), ..self }
    }

    /// Lets the other ranks go: nothing is asked of them any more.
    pub fn end(&mut self) -> Result<(), DeviceError> {
        self.tell(&RankCommand::End)
    }

    /// Has all ranks do something.
    pub(super) fn tell(&self, command: &RankCommand) -> Result<(), DeviceError> {
        self.failed.check()?;
        self.shard.line().tell(command)
    }

    /// Does a part of a step that all ranks have begun.
    fn within_step<T>(
        &mut self,
        part: impl FnOnce(&mut S) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        part(&mut self.shard).inspect_err(|error| self.failed.note(error))
    }

    /// The view that this rank draws, in the row of all ranks' views.
    fn by_rank(&mut self, own: RankView) -> Vec<Option<RankView>> {
        let mut views = vec![Some(own)];
        views.extend(std::mem::take(&mut self.others).into_iter().map(Some));
        views.resize(self.shard.line().world() as usize, None);
        views
    }

    /// What the ranks say of the round before.
    fn hear_reports(&mut self, reports: Vec<ViewReport>) -> Result<(), DeviceError> {
        for (rank, report) in (0..).zip(&reports) {
            report.check(rank)?;
        }
        if let Some(awaited) = self.awaited.take() {
            awaited.come(reports);
        }
        Ok(())
    }
}

/// Rows whose moments and statistics are zero.
struct FreshRows<'a>(&'a Gaussians);

impl Rows<Gaussians> for FreshRows<'_> {
    type Error = DeviceError;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn shape(&mut self) -> Result<Gaussians, DeviceError> {
        Ok(Gaussians::empty(self.0.sh_degree))
    }

    fn fresh(&self) -> Option<&Gaussians> {
        Some(self.0)
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError> {
        let zeros = Snapshot::zeros(self.0.sh_degree, rows.len(), OptionalColumns::NONE);
        Ok(Snapshot { parameters: self.0.rows(rows), ..zeros })
    }
}

/// What rank 0 must have got.
fn of_first<T>(found: Option<T>) -> Result<T, DeviceError> {
    let message = || "it has not got what the others sent".to_owned();
    found.ok_or_else(|| DeviceError::OfRank { rank: 0, message: message() })
}

impl<S: RankShard> Device for Ranked<S> {
    type Target = <S::Device as Device>::Target;

    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, uuid } = self.shard.as_device().info();
        DeviceInfo { name: format!("{name}, one of {} ranks", self.world()), uuid }
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Self::Target, DeviceError> {
        self.shard.device().upload_target(photo)
    }

    fn resident(&mut self, view: usize) -> Option<Self::Target> {
        self.shard.device().resident(view)
    }

    fn is_resident(&self, view: usize) -> bool {
        self.shard.as_device().is_resident(view)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.shard.device().synchronize()
    }

    fn memory(&mut self, peaks: Peaks) -> Option<DeviceMemory> {
        self.shard.device().memory(peaks)
    }

    fn take_peak(&mut self) -> Option<Bytes> {
        self.shard.device().take_peak()
    }

    fn limit_rows(&mut self, most: usize) {
        self.most_rows = Some(most);
    }

    fn aim_below(&mut self, aim: Option<Bytes>) -> Result<(), DeviceError> {
        self.shard.device().aim_below(aim)
    }

    fn training_scale(&self) -> TrainingScale {
        self.shard.as_device().training_scale()
    }

    fn use_training_scale(&mut self, scale: TrainingScale) -> Result<(), DeviceError> {
        self.shard.device().use_training_scale(scale)
    }

    fn take_changes(&mut self) -> Option<LadderState> {
        self.shard.device().take_changes()
    }
}

impl<S: RankShard> Store<Gaussians> for Ranked<S> {
    type Model = S::Share;

    fn upload(&mut self, host: &Gaussians) -> Result<S::Share, DeviceError> {
        self.load(&mut FreshRows(host))
    }

    fn load<R: Rows<Gaussians>>(&mut self, source: &mut R) -> Result<S::Share, R::Error>
    where
        R::Error: From<DeviceError>,
    {
        let sh_degree = source.shape()?.sh_degree;
        self.tell(&RankCommand::Load { sh_degree, rows: source.len() })?;
        self.shard.deal(source, sh_degree)
    }

    fn read_parameters(
        &mut self,
        model: &mut S::Share,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        Ok(self.read(model, rows)?.parameters)
    }

    fn read(
        &mut self,
        model: &mut S::Share,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        check_rows(&rows, self.len(model))?;
        self.tell(&RankCommand::Read(rows.clone()))?;
        of_first(self.shard.read(model, &rows)?)
    }

    fn sample(&mut self, model: &mut S::Share, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.tell(&RankCommand::Sample(rows.to_vec()))?;
        of_first(self.shard.sample(model, rows)?)
    }

    fn shape(&self, model: &S::Share) -> ModelShape {
        self.shard.shape(model)
    }

    fn reorder(&mut self, model: &mut S::Share, cube: &Cube) -> Result<(), DeviceError> {
        self.tell(&RankCommand::Reorder(*cube))?;
        self.shard.reorder(model, cube)
    }

    fn govern(&mut self, model: &mut S::Share, iteration: u32) -> Result<(), DeviceError> {
        self.shard.device().govern(S::local_mut(model), iteration)
    }

    fn grant_births(
        &mut self,
        model: &mut S::Share,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        self.tell(&RankCommand::Grant(requested))?;
        let own = self.shard.grant(model, requested)?;
        let room = self.most_rows.map_or(requested, |most| most.saturating_sub(self.len(model)));
        let granted = self.shard.line().all_gather(&own.min(room))?;
        Ok(granted.into_iter().fold(requested, usize::min))
    }
}

impl<S: RankShard> Render<Gaussians> for Ranked<S> {
    type Frame<T: FrameState> = <S::Device as Render<Gaussians>>::Frame<T>;
    type Gradients = <S::Device as Render<Gaussians>>::Gradients;
    type Losses = RankLosses<<S::Device as Render<Gaussians>>::Losses>;

    fn render(
        &mut self,
        model: &S::Share,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<Self::Frame<Shown>, DeviceError> {
        let drawing = Drawing::shown(settings, look);
        let sight = Sight::shown(view, settings, drawing.inputs().maps);
        self.tell(&RankCommand::Draw(sight.clone()))?;
        let mut sights: Vec<Option<&Sight>> = vec![None; self.world() as usize];
        sights[0] = Some(&sight);
        let (_, splats) = self.shard.project(model, &sights)?;
        self.shard.draw(model, view, drawing, splats)
    }

    fn render_train(
        &mut self,
        model: &S::Share,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<Self::Frame<Drawn>, DeviceError> {
        let &Wants { observe, divisor, .. } = wants;
        let (settings, surface) = (*settings, wants.inputs.maps);
        let sight = Sight { view: view.clone(), settings, surface, observe, divisor };
        // What else it is compared by is this rank's own affair.
        let (image, terms) = (self.image, Terms::default());
        let own = RankView { image, iteration: image, index: 0, sight, terms };
        let views = self.by_rank(own);
        self.tell(&RankCommand::Train(views.clone()))?;
        let (round, splats, news) =
            self.within_step(|shard| shard.project_to_train(model, &views, RankNews::NONE))?;
        let (problems, reports) = news.into_iter().map(|news| (news.problem, news.report)).unzip();
        self.hear_reports(reports).inspect_err(|error| self.failed.note(error))?;
        let others = views.into_iter().skip(1).flatten().collect();
        self.round = Some(LeadRound { round, others, problems });
        let drawing = Drawing::trained(&settings, wants);
        self.within_step(|shard| shard.draw(model, view, drawing, splats))
    }

    fn objective<T: Trainable>(
        &mut self,
        model: &S::Share,
        frame: Self::Frame<T>,
        objective: &Objective<'_, Self::Target, Self::Lists>,
    ) -> Result<(Self::Frame<Scored<T>>, Self::Losses), DeviceError> {
        let local = S::local(model);
        let scored = self.within_step(|shard| shard.device().objective(local, frame, objective));
        scored.map(|(frame, losses)| (frame, RankLosses::Own(losses)))
    }

    fn backward(
        &mut self,
        model: &mut S::Share,
        frame: Self::Frame<Scored<Drawn>>,
        _near: Option<&Self::Lists>,
        gradients: &mut Self::Gradients,
    ) -> Result<Self::Losses, DeviceError> {
        let LeadRound { round, others, problems } = self.round.take().ok_or(DeviceError::NoView)?;
        self.within_step(|shard| shard.add_gradients(model, round, Some(frame), gradients))?;
        let reports = Rc::new(LateReports::new(self.shard.line().clone(), self.failed.clone()));
        self.awaited = Some(Rc::clone(&reports));
        let problems = problems.into_iter().skip(1).chain(std::iter::repeat(None));
        let outcomes = (1..).zip(others).zip(problems).map(|((rank, view), problem)| {
            let (terms, reports) = (view.terms, Rc::clone(&reports));
            match problem {
                Some(why) => RankOutcome::Undecodable(why),
                None => RankOutcome::Added([
                    RankLosses::Late { rank, terms, reports },
                    RankLosses::None,
                ]),
            }
        });
        self.outcomes = outcomes.collect();
        Ok(RankLosses::None)
    }

    fn step(
        &mut self,
        model: &mut S::Share,
        gradients: Self::Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        self.tell(&RankCommand::Step(*step))?;
        self.shard.step(model, gradients, step)
    }

    fn measure<T: FrameState>(
        &mut self,
        frame: &Self::Frame<T>,
        target: &Self::Target,
    ) -> Result<Measured, DeviceError> {
        self.shard.device().measure(frame, target)
    }

    fn image<T: FrameState>(&mut self, frame: &Self::Frame<T>) -> Result<Rendered, DeviceError> {
        self.shard.device().image(frame)
    }
}

impl<S: RankShard> Ranks for Ranked<S> {
    fn world(&self) -> u32 {
        self.shard.line().world()
    }

    fn begin(&mut self, config: String, scene: u64) -> Result<(), DeviceError> {
        self.tell(&RankCommand::Begin { config, scene })?;
        self.shard.line().refuse_problems()?;
        self.shard.meet()
    }

    fn share_views(&mut self, image: u32, others: Vec<RankView>) {
        if let Some(progress) = &self.progress {
            progress(u64::from(image));
        }
        (self.image, self.others) = (image, others);
    }

    fn take_shared(&mut self) -> Vec<RankOutcome<Self::Losses>> {
        std::mem::take(&mut self.outcomes)
    }
}
