//! What a run asks of a strategy of density control, and what it gives it to work with.

use crate::backend::{
    Adjust, Candidates, DeviceError, Edit, EditRule, Edited, FaceStatistics, Faces, Noise, Pick,
    Reach, Regularisers, Remesh, ScoreRule, Statistics,
};
use crate::config::{Config, RegReach};
use crate::memory::plan::RoundShape;
use crate::model::Gaussians;
use crate::train::event::RoundReport;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::{SceneScale, TrainError};

/// A strategy of density control. It is a function of the options and the iteration alone, so that a
/// resumed run goes the same way as one that was never stopped.
pub trait Strategy<D: Edit<Gaussians>> {
    /// What the backward pass of `iteration` (from 1) adds to the statistics, if anything.
    fn observes(&self, iteration: u32) -> Option<Statistics>;

    /// What a step has beside the gradients of the loss.
    fn step_extras(&self, turn: Turn) -> StepExtras;

    /// Whether there is a round after a step.
    fn due(&self, span: ImageSpan) -> bool;

    /// Whether Gaussians are put in the order of their places after that round.
    fn reorders(&self, span: ImageSpan) -> bool;

    /// The round after the iterations that are done.
    fn round(&self, site: &mut Site<'_, D>) -> Result<RoundReport, TrainError>;

    /// Returns the change of all Gaussians after a step and the round that is due then.
    ///
    /// `images_since` counts the images since the last such change, in runs whose iterations pass with the clock.
    fn adjust(&self, span: ImageSpan, images_since: Option<u32>) -> Option<Adjust>;

    /// What a round takes of the memory, as `splat plan` has it.
    fn shape(&self) -> RoundShape;
}

/// What a step has beside the gradients of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepExtras {
    /// What keeps Gaussians few and small.
    pub regularisers: Regularisers,
    /// Random motion.
    pub noise: Option<Noise>,
}

impl StepExtras {
    /// What the options add to the gradients of every strategy. It acts as it would in a scene of the
    /// unit size: scales are divided by the unit.
    pub(super) fn of(config: &Config, scene: SceneScale) -> Self {
        let options = &config.optimize;
        let scale = options.scale_reg / scene.unit;
        let reach = match options.reg_reach {
            RegReach::Seen => Reach::Seen,
            // `Auto` is left only if there were no photographs to settle it.
            RegReach::All | RegReach::Auto => Reach::All,
        };
        let regularisers = Regularisers { opacity: options.opacity_reg, scale, reach };
        Self { regularisers, noise: None }
    }
}

/// The model that a round is about, on its device.
pub struct Site<'a, D: Edit<Gaussians>> {
    device: &'a mut D,
    model: &'a mut D::Model,
    span: ImageSpan,
    images_per_iteration: Option<f64>,
    left_out: Vec<String>,
}

impl<'a, D: Edit<Gaussians>> Site<'a, D> {
    /// A model after a step.
    pub fn new(device: &'a mut D, model: &'a mut D::Model, span: ImageSpan) -> Self {
        Self { device, model, span, images_per_iteration: None, left_out: Vec::new() }
    }

    /// The same in a run whose iterations pass with the clock, so many images with each.
    pub fn with_pace(self, images_per_iteration: Option<f64>) -> Self {
        Self { images_per_iteration, ..self }
    }

    /// Images that pass with an iteration, where iterations pass with the clock.
    pub fn images_per_iteration(&self) -> Option<f64> {
        self.images_per_iteration
    }

    /// The step that is done.
    pub fn span(&self) -> ImageSpan {
        self.span
    }

    /// Finished iterations.
    pub fn iteration(&self) -> u32 {
        self.span.after
    }

    /// Number of Gaussians.
    pub fn len(&self) -> usize {
        self.device.len(self.model)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of so many births, as many as there is memory for. `--max-points` is the strategy's own affair.
    pub fn grant(&mut self, wanted: usize) -> Result<usize, TrainError> {
        Ok(self.device.grant_births(self.model, wanted)?)
    }

    /// Finds the candidates.
    pub fn score(&mut self, rule: &ScoreRule) -> Result<Candidates, TrainError> {
        Ok(self.device.score(self.model, rule)?)
    }

    /// Edits the model by the first of these picks that there is memory for. Where there is none for
    /// any, the model stays as it is, and the run warns that `what` happens.
    pub fn edit(
        &mut self,
        candidates: &Candidates,
        picks: &[Pick],
        rule: &EditRule,
        what: &str,
    ) -> Result<Option<Edited>, TrainError> {
        let mut refusal = None;
        for &pick in picks {
            match self.edit_once(candidates, pick, rule) {
                Err(error) if error.is_out_of_memory() => refusal = Some(error),
                done => return Ok(Some(done?)),
            }
        }
        self.left_out.extend(refusal.map(|error| format!("{what}: {error}")));
        Ok(None)
    }

    fn edit_once(
        &mut self,
        candidates: &Candidates,
        pick: Pick,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        let selection = self.device.select(self.model, candidates, pick)?;
        self.device.edit(self.model, selection, rule)
    }

    /// Says what was left out, and why.
    pub fn leave_out(&mut self, sentence: String) {
        self.left_out.push(sentence);
    }

    /// What was left out, in sentences for the user: what there was no memory for, above all.
    pub fn into_left_out(self) -> Vec<String> {
        self.left_out
    }
}

impl<D: Faces> Site<'_, D> {
    /// Place and opacity logit of each vertex.
    pub fn vertices(&mut self) -> Result<Vec<[f32; 4]>, TrainError> {
        Ok(self.device.vertices(self.model)?)
    }

    /// The triangles.
    pub fn faces(&self) -> Vec<[u32; 3]> {
        self.device.faces(self.model).to_vec()
    }

    /// What views have shown of them.
    pub fn face_statistics(&mut self) -> Result<FaceStatistics, TrainError> {
        Ok(self.device.face_statistics(self.model)?)
    }

    /// Changes the mesh by the first of these that there is memory for, which it returns. Where there is none for
    /// any, the mesh stays as it is, and the run warns that `what` happens.
    pub fn remesh<'c, 'm>(
        &mut self,
        changes: &'c [Remesh<'m>],
        what: &str,
    ) -> Result<Option<&'c Remesh<'m>>, TrainError> {
        let mut refusal = None;
        for change in changes {
            match self.device.remesh(self.model, change) {
                Err(error) if error.is_out_of_memory() => refusal = Some(error),
                done => return Ok(done.map(|()| Some(change))?),
            }
        }
        self.left_out.extend(refusal.map(|error| format!("{what}: {error}")));
        Ok(None)
    }
}
