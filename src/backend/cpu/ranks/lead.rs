//! Rank 0 as a device: what the trainer asks of it, all ranks do.

use std::ops::Range;
use std::sync::Arc;

use splat_ranks::exchange::Exchange;

use super::command::RankCommand;
use super::report::ViewReport;
use super::round::SharedRound;
use super::shard::{ModelShare, Shard};
use crate::abi::terms::Terms;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::frame::{self, Frame, Ready};
use crate::backend::cpu::stage::gradients::Gradients;
use crate::backend::cpu::stage::neighbours::NearestLists;
use crate::backend::frame_state::{Drawn, FrameState, Scored, Shown, Trainable};
use crate::backend::{
    AdamStep, Device, DeviceError, DeviceInfo, Drawing, Look, Measured, ModelShape, Objective,
    Photo, RankOutcome, RankView, Ranks, Render, RenderSettings, Rendered, Rows, Sight, Snapshot,
    Store, Wants, check_rows,
};
use crate::dataset::{Image, View};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, Primitive as _};

/// Rank 0 of several processors that train a model together.
pub struct RankedCpu {
    pub(super) shard: Shard,
    most_rows: Option<usize>,
    /// Told the number of an image of each step.
    progress: Option<Box<dyn Fn(u64)>>,
    /// The image that this rank draws next.
    image: u32,
    /// Views that other ranks draw with it.
    others: Vec<RankView>,
    /// The views whose gradients are on their way.
    round: Option<(SharedRound, Vec<RankView>)>,
    /// What became of the views of other ranks.
    outcomes: Vec<RankOutcome<Ready>>,
}

impl RankedCpu {
    /// The processor as rank 0 of those that exchange.
    pub fn new(cpu: Cpu<f32>, exchange: Box<dyn Exchange>) -> Self {
        let (others, outcomes) = (Vec::new(), Vec::new());
        let shard = Shard::new(cpu, exchange);
        Self { shard, most_rows: None, progress: None, image: 0, others, round: None, outcomes }
    }

    /// Has this called with the number of an image of each step.
    #[must_use]
    pub fn with_progress(self, progress: impl Fn(u64) + 'static) -> Self {
        Self { progress: Some(Box::new(progress)), ..self }
    }

    /// Lets the other ranks go: nothing is asked of them any more.
    pub fn end(&mut self) -> Result<(), DeviceError> {
        self.shard.tell(&RankCommand::End)
    }

    /// The view that this rank draws, in the row of all ranks' views.
    fn by_rank(&mut self, own: RankView) -> Vec<Option<RankView>> {
        let mut views = vec![Some(own)];
        views.extend(std::mem::take(&mut self.others).into_iter().map(Some));
        views.resize(self.shard.world() as usize, None);
        views
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

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError> {
        let zeros = Gaussians::zeros(self.0.sh_degree, rows.len());
        Ok(Snapshot {
            gradient_norm_sums: vec![0.0; rows.len()],
            views_seen: vec![0; rows.len()],
            absolute_norm_sums: Vec::new(),
            filter_3d: Vec::new(),
            parameters: self.0.rows(rows),
            first_moments: zeros.clone(),
            second_moments: zeros,
        })
    }
}

/// What rank 0 must have got.
pub(super) fn of_first<T>(found: Option<T>) -> Result<T, DeviceError> {
    let message = || "it has not got what the others sent".to_owned();
    found.ok_or_else(|| DeviceError::OfRank { rank: 0, message: message() })
}

impl Device for RankedCpu {
    type Target = Arc<Image>;

    fn info(&self) -> DeviceInfo {
        let threads = rayon::current_num_threads();
        let name = format!("CPU, {} ranks of {threads} threads", self.shard.world());
        DeviceInfo { name, uuid: None }
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Arc<Image>, DeviceError> {
        Ok(Arc::clone(photo.image))
    }

    fn limit_rows(&mut self, most: usize) {
        self.most_rows = Some(most);
    }
}

impl Store<Gaussians> for RankedCpu {
    type Model = ModelShare;

    fn upload(&mut self, host: &Gaussians) -> Result<ModelShare, DeviceError> {
        self.load(&mut FreshRows(host))
    }

    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<ModelShare, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let sh_degree = source.shape()?.sh_degree;
        self.shard.tell(&RankCommand::Load { sh_degree, rows: source.len() })?;
        self.shard.deal(source, sh_degree)
    }

    fn read_parameters(
        &mut self,
        model: &mut ModelShare,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        Ok(self.read(model, rows)?.parameters)
    }

    fn read(
        &mut self,
        model: &mut ModelShare,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        check_rows(&rows, model.numbering.len())?;
        if rows.is_empty() {
            return Ok(model.local.read(0..0));
        }
        self.shard.tell(&RankCommand::Read(rows.clone()))?;
        of_first(self.shard.read(model, &rows)?)
    }

    fn sample(&mut self, model: &mut ModelShare, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.shard.tell(&RankCommand::Sample(rows.to_vec()))?;
        of_first(self.shard.sample(model, rows)?)
    }

    fn shape(&self, model: &ModelShare) -> ModelShape {
        // Of all ranks, as those of this one are.
        let (rows, own) = (model.numbering.len(), model.local.len().max(1) as u64);
        let [parameters, optimizer] =
            model.local.bytes().map(|bytes| Bytes(bytes.0 * rows as u64 / own));
        let optional = if rows == 0 { OptionalColumns::NONE } else { model.optional };
        ModelShape { rows, optional, parameters, optimizer }
    }

    fn reorder(&mut self, model: &mut ModelShare, cube: &Cube) -> Result<(), DeviceError> {
        self.shard.tell(&RankCommand::Reorder(*cube))?;
        self.shard.reorder(model, cube)
    }

    fn grant_births(
        &mut self,
        model: &mut ModelShare,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        let Some(most) = self.most_rows else { return Ok(requested) };
        Ok(requested.min(most.saturating_sub(model.numbering.len())))
    }
}

impl Render<Gaussians> for RankedCpu {
    type Frame<S: FrameState> = Frame<f32, S>;
    type Gradients = Gradients<f32>;
    type Losses = Ready;

    fn render(
        &mut self,
        model: &ModelShare,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<Frame<f32, Shown>, DeviceError> {
        let drawing = Drawing::shown(settings, look);
        let sight = Sight::shown(view, settings, drawing.surface);
        self.shard.tell(&RankCommand::Draw(sight.clone()))?;
        let mut sights = vec![None; self.shard.world() as usize];
        sights[0] = Some(&sight);
        let (_, splats) = self.shard.project(model, &sights)?;
        frame::draw_splats(view, drawing, splats)
    }

    fn render_train(
        &mut self,
        model: &ModelShare,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<Frame<f32, Drawn>, DeviceError> {
        let &Wants { observe, divisor, .. } = wants;
        let (settings, surface) = (*settings, wants.inputs.maps);
        let sight = Sight { view: view.clone(), settings, surface, observe, divisor };
        // What else it is compared by is this rank's own affair.
        let (image, terms) = (self.image, Terms::default());
        let own = RankView { image, iteration: image, index: 0, sight, terms };
        let views = self.by_rank(own);
        self.shard.tell(&RankCommand::Train(views.clone()))?;
        let (round, splats) = self.shard.project_to_train(model, &views, true)?;
        let others = views.into_iter().skip(1).flatten().collect();
        self.round = Some((round, others));
        frame::draw_splats(view, Drawing::trained(&settings, wants), splats)
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &ModelShare,
        frame: Frame<f32, S>,
        objective: &Objective<'_, Arc<Image>, NearestLists>,
    ) -> Result<(Frame<f32, Scored<S>>, Ready), DeviceError> {
        frame.scored(&model.local, objective)
    }

    fn backward(
        &mut self,
        model: &mut ModelShare,
        frame: Frame<f32, Scored<Drawn>>,
        _near: Option<&NearestLists>,
        gradients: &mut Gradients<f32>,
    ) -> Result<Ready, DeviceError> {
        let (round, others) = self.round.take().ok_or(DeviceError::NoView)?;
        let own = ViewReport::NoView;
        let reports = self.shard.add_gradients(model, round, Some(frame), gradients, &own)?;
        let reports = (1..).zip(reports.into_iter().skip(1)).zip(&others);
        let outcomes = reports.map(|((rank, report), view)| report.outcome(rank, &view.terms));
        self.outcomes = outcomes.collect::<Result<_, _>>()?;
        Ok(Ready::default())
    }

    fn step(
        &mut self,
        model: &mut ModelShare,
        gradients: Gradients<f32>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        self.shard.tell(&RankCommand::Step(*step))?;
        self.shard.step(model, gradients, step)
    }

    fn measure<S: FrameState>(
        &mut self,
        frame: &Frame<f32, S>,
        target: &Arc<Image>,
    ) -> Result<Measured, DeviceError> {
        self.shard.cpu.measure(frame, target)
    }

    fn image<S: FrameState>(&mut self, frame: &Frame<f32, S>) -> Result<Rendered, DeviceError> {
        self.shard.cpu.image(frame)
    }
}

impl Ranks for RankedCpu {
    fn world(&self) -> u32 {
        self.shard.world()
    }

    fn begin(&mut self, config: String, scene: u64) -> Result<(), DeviceError> {
        self.shard.tell(&RankCommand::Begin { config, scene })?;
        let problems = (0..).zip(self.shard.all_gather(&None::<String>)?);
        let mut found = problems.filter_map(|(rank, problem)| Some((rank, problem?)));
        found
            .next()
            .map_or(Ok(()), |(rank, problem)| Err(DeviceError::OtherScene { rank, problem }))
    }

    fn share_views(&mut self, image: u32, others: Vec<RankView>) {
        if let Some(progress) = &self.progress {
            progress(u64::from(image));
        }
        (self.image, self.others) = (image, others);
    }

    fn take_shared(&mut self) -> Vec<RankOutcome<Ready>> {
        std::mem::take(&mut self.outcomes)
    }
}
