//! Rank 0 as a device: it passes the trainer's calls on to all ranks.

use std::ops::Range;
use std::rc::Rc;

use super::line::{FailedStep, LateReports, RankCommand, RankLosses, RankNews, ViewReport};
use super::shard::{RankShard, Shard};
use super::view::{RankOutcome, RankView, Ranks, ViewSetup};
use crate::abi::terms::Terms;
use crate::backend::{
    AdamStep, Adjust, Appearance, Bind, Candidates, Contributions, Device, DeviceError, DeviceInfo,
    DeviceMemory, DrawSettings, Drawn, Edit, EditRule, Edited, Faces, FallbackState, Filter3d,
    FrameState, Fuse, Held, Lpips, Measured, ModelShape, Neighbours, Objective, Palettes, Peaks,
    Photo, Pick, Render, RenderRequest, RenderSettings, Rendered, Rows, ScoreRule, Scored, Shown,
    Snapshot, Store, TrainRequest, Trainable, Transmittances, check_rows,
};
use crate::dataset::View;
use crate::math::morton::Cube;
use crate::memory::plan::OptionalColumns;
use crate::memory::{Bytes, TrainingScale};
use crate::model::{Gaussians, Primitive as _};
use crate::perceptual::{LpipsInput, LpipsWeights};

/// Rank 0 of several devices that train a model together.
pub struct Leader<S: RankShard> {
    pub(super) shard: S,
    most_rows: Option<usize>,
    /// Callback that receives the image index of each step.
    progress: Option<Box<dyn Fn(u64)>>,
    /// The image that this rank draws next.
    image: u32,
    /// Views that other ranks draw with it.
    others: Vec<RankView>,
    /// The step whose gradients are in transit.
    round: Option<LeaderRound<S>>,
    /// Results of the views of other ranks.
    outcomes: Vec<RankOutcome<LeaderLosses<S>>>,
    /// Reports of the other ranks on their views of the last step, filled when they arrive.
    awaited: Option<Rc<LateReports>>,
    /// Failure of this rank within a step that the others have begun. No command can be sent after it.
    failed: FailedStep,
}

type LeaderLosses<S> = RankLosses<<<S as Shard>::Device as Render<Gaussians>>::Losses>;

/// A step in progress.
struct LeaderRound<S: RankShard> {
    round: S::Round,
    others: Vec<RankView>,
    /// Reasons why views of other ranks cannot be compared, by rank.
    problems: Vec<Option<String>>,
}

impl<S: RankShard> Leader<S> {
    /// Creates rank 0 from its shard.
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

    /// Registers a callback that receives the image index of each step.
    #[must_use]
    pub fn with_progress(self, progress: impl Fn(u64) + 'static) -> Self {
        Self { progress: Some(Box::new(progress)), ..self }
    }

    /// Ends the run of the other ranks. They receive no later commands.
    pub fn end(&mut self) -> Result<(), DeviceError> {
        self.command(&RankCommand::End)
    }

    /// Sends a command to all ranks.
    pub(super) fn command(&self, command: &RankCommand) -> Result<(), DeviceError> {
        self.failed.check()?;
        self.shard.line().give(command)
    }

    /// Does a part of a step that all ranks have begun.
    fn within_step<T>(
        &mut self,
        part: impl FnOnce(&mut S) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        part(&mut self.shard).inspect_err(|error| self.failed.note(error))
    }

    /// Returns the views of all ranks, `own` first.
    fn by_rank(&mut self, own: RankView) -> Vec<Option<RankView>> {
        let mut views = vec![Some(own)];
        views.extend(std::mem::take(&mut self.others).into_iter().map(Some));
        views.resize(self.shard.line().world() as usize, None);
        views
    }

    /// Takes the ranks' reports on the previous step.
    fn take_reports(&mut self, reports: Vec<ViewReport>) -> Result<(), DeviceError> {
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

/// Returns the value that rank 0 must have received.
fn of_first<T>(found: Option<T>) -> Result<T, DeviceError> {
    found.ok_or_else(|| DeviceError::of_rank(0, "it has not got what the others sent"))
}

impl<S: RankShard> Device for Leader<S> {
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

    fn take_changes(&mut self) -> Option<FallbackState> {
        self.shard.device().take_changes()
    }
}

impl<S: RankShard> Store<Gaussians> for Leader<S> {
    type Model = S::Share;

    fn upload(&mut self, host: &Gaussians) -> Result<S::Share, DeviceError> {
        self.load(&mut FreshRows(host))
    }

    fn load<R: Rows<Gaussians>>(&mut self, source: &mut R) -> Result<S::Share, R::Error>
    where
        R::Error: From<DeviceError>,
    {
        let sh_degree = source.shape()?.sh_degree;
        self.command(&RankCommand::Load { sh_degree, rows: source.len() })?;
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
        self.command(&RankCommand::Read(rows.clone()))?;
        of_first(self.shard.read(model, &rows)?)
    }

    fn sample(&mut self, model: &mut S::Share, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.command(&RankCommand::Sample(rows.to_vec()))?;
        of_first(self.shard.sample(model, rows)?)
    }

    fn shape(&self, model: &S::Share) -> ModelShape {
        self.shard.shape(model)
    }

    fn reorder(&mut self, model: &mut S::Share, cube: &Cube) -> Result<(), DeviceError> {
        self.command(&RankCommand::Reorder(*cube))?;
        self.shard.reorder(model, cube)
    }

    fn govern(&mut self, model: &mut S::Share, iteration: u32) -> Result<(), DeviceError> {
        self.shard.device().govern(S::local_mut(model), iteration)
    }

    fn grant_new_gaussians(
        &mut self,
        model: &mut S::Share,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        self.command(&RankCommand::Grant(requested))?;
        let own = self.shard.grant(model, requested)?;
        let room = self.most_rows.map_or(requested, |most| most.saturating_sub(self.len(model)));
        let granted = self.shard.line().all_gather(&own.min(room))?;
        Ok(granted.into_iter().fold(requested, usize::min))
    }
}

impl<S: RankShard> Render<Gaussians> for Leader<S> {
    type Frame<T: FrameState> = <S::Device as Render<Gaussians>>::Frame<T>;
    type Gradients = <S::Device as Render<Gaussians>>::Gradients;
    type Losses = RankLosses<<S::Device as Render<Gaussians>>::Losses>;

    fn render(
        &mut self,
        model: &S::Share,
        view: &View,
        settings: &RenderSettings,
        request: RenderRequest,
    ) -> Result<Self::Frame<Shown>, DeviceError> {
        let drawing = DrawSettings::shown(settings, request);
        let setup = ViewSetup::shown(view, settings, drawing.inputs().maps);
        self.command(&RankCommand::Draw(setup.clone()))?;
        let mut setups: Vec<Option<&ViewSetup>> = vec![None; self.world() as usize];
        setups[0] = Some(&setup);
        let (_, splats) = self.shard.project(model, &setups)?;
        self.shard.draw(model, view, drawing, splats)
    }

    fn render_train(
        &mut self,
        model: &S::Share,
        view: &View,
        settings: &RenderSettings,
        request: &TrainRequest,
    ) -> Result<Self::Frame<Drawn>, DeviceError> {
        let &TrainRequest { observe, divisor, .. } = request;
        let (settings, surface) = (*settings, request.inputs.maps);
        let setup = ViewSetup { view: view.clone(), settings, surface, observe, divisor };
        // The other ranks do not need the terms of this rank's view.
        let (image, terms) = (self.image, Terms::default());
        let own = RankView { image, iteration: image, index: 0, setup, terms };
        let views = self.by_rank(own);
        self.command(&RankCommand::Train(views.clone()))?;
        let (round, splats, news) =
            self.within_step(|shard| shard.project_to_train(model, &views, RankNews::NONE))?;
        let (problems, reports) = news.into_iter().map(|news| (news.problem, news.report)).unzip();
        self.take_reports(reports).inspect_err(|error| self.failed.note(error))?;
        let others = views.into_iter().skip(1).flatten().collect();
        self.round = Some(LeaderRound { round, others, problems });
        let drawing = DrawSettings::trained(&settings, request);
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
        let LeaderRound { round, others, problems } =
            self.round.take().ok_or(DeviceError::NoView)?;
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
        self.command(&RankCommand::Step(*step))?;
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

impl<S: RankShard> Ranks for Leader<S> {
    fn world(&self) -> u32 {
        self.shard.line().world()
    }

    fn begin(&mut self, config: String, scene: u64) -> Result<(), DeviceError> {
        self.command(&RankCommand::Begin { config, scene })?;
        self.shard.line().check_problems()?;
        self.shard.connect()
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

// Density control and the 3D filter.

impl<S: RankShard> Edit<Gaussians> for Leader<S> {
    type Selection = S::Selection;

    fn weigh(
        &mut self,
        model: &mut S::Share,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        let (views, settings): (Vec<View>, _) =
            (views.iter().copied().cloned().collect(), *settings);
        self.command(&RankCommand::Weigh { views: views.clone(), settings })?;
        self.shard.weigh(model, &views, &settings)
    }

    fn score(&mut self, model: &S::Share, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        if rule.by_gradient().is_none() {
            return Ok(Candidates { rule: *rule, ..Candidates::NONE });
        }
        self.command(&RankCommand::Score(*rule))?;
        self.shard.score(model, rule)
    }

    fn select(
        &mut self,
        model: &mut S::Share,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<S::Selection, DeviceError> {
        self.command(&RankCommand::Select { candidates: *candidates, pick })?;
        self.shard.select(model, candidates, pick)
    }

    fn edit(
        &mut self,
        model: &mut S::Share,
        selection: S::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        self.command(&RankCommand::Edit(*rule))?;
        self.shard.edit(model, selection, rule)
    }

    fn adjust(&mut self, model: &mut S::Share, adjust: &Adjust) -> Result<(), DeviceError> {
        self.command(&RankCommand::Adjust(*adjust))?;
        self.shard.adjust(model, adjust)
    }
}

impl<S: RankShard> Filter3d for Leader<S> {
    fn update_filter_3d(
        &mut self,
        model: &mut S::Share,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        let views: Vec<View> = views.iter().copied().cloned().collect();
        self.command(&RankCommand::Smooth { views: views.clone(), sampled_from })?;
        self.shard.smooth(model, &views, sampled_from)
    }
}

// Work on drawn views alone, which rank 0 does like any device. Work that several ranks cannot do together is refused
// by default.

/// A type without values.
#[derive(Clone, Copy, Debug)]
pub enum Impossible {}

impl Held for Impossible {
    fn bytes(&self) -> Bytes {
        match *self {}
    }
}

impl<S: RankShard> Lpips<Gaussians> for Leader<S> {
    type Net = <S::Device as Lpips<Gaussians>>::Net;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<Self::Net, DeviceError> {
        self.shard.device().load_lpips(weights)
    }

    fn lpips(
        &mut self,
        net: &Self::Net,
        frame: &Self::Frame<Shown>,
        target: &Self::Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        self.shard.device().lpips(net, frame, target, input)
    }
}

impl<S: RankShard> Neighbours<Gaussians> for Leader<S> {
    type Lists = <S::Device as Neighbours<Gaussians>>::Lists;

    fn read_neighbours(
        &mut self,
        lists: &Self::Lists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        self.shard.device().read_neighbours(lists, rows)
    }
}

impl<S: RankShard> Appearance<Gaussians> for Leader<S> {
    type Tables = Impossible;

    fn correct(
        &mut self,
        frame: Self::Frame<Shown>,
        target: &Self::Target,
    ) -> Result<Self::Frame<Shown>, DeviceError> {
        self.shard.device().correct(frame, target)
    }
}

impl<S: RankShard> Transmittances<Gaussians> for Leader<S> {}

impl<S: RankShard> Contributions<Gaussians> for Leader<S> {
    type ContributionSums = Impossible;
}

impl<S: RankShard> Palettes for Leader<S> {
    type PaletteRows = Impossible;
}

impl<S: RankShard> Fuse<Gaussians> for Leader<S> {
    type BrickSurvey = Impossible;
    type FusedVoxels = Impossible;
}

impl<S: RankShard> Bind for Leader<S> {
    type Binding = Impossible;
}

impl<S: RankShard> Faces for Leader<S> {}
