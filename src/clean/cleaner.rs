//! A model during cleaning: removed Gaussians, contributions of the others, and steps within the allowed loss.

use serde::Serialize;
use splat_formats::{CropBox, CropSphere};

use crate::backend::{Contribution, Photo, RenderSettings, Stay, TrainDevice};
use crate::model::Gaussians;
use crate::train::event::{Metrics, Split};
use crate::train::{TrainError, Views};

/// Halvings of a set that costs too much before it is kept whole.
const HALVINGS: u32 = 4;

/// Gain of PSNR that counts as removed floaters, dB. Smaller gains come from Gaussians whose loss is invisible.
const FLOATER_GAIN: f64 = 0.5;

pub(super) struct Cleaner<'a, 'v, B: TrainDevice> {
    pub(super) evaluator: Evaluator<'a, 'v, B>,
    pub(super) gone: Vec<Option<CleanRule>>,
    /// Contributions of all Gaussians, removed or not.
    pub(super) now: Evaluation,
    /// Mean PSNR of the whole model, dB.
    pub(super) before: f64,
    /// Highest mean PSNR so far, dB.
    pub(super) best: f64,
    pub(super) max_loss: f64,
}

/// A proposed set of removed Gaussians with its result.
pub(super) struct Proposal {
    pub(super) gone: Vec<Option<CleanRule>>,
    pub(super) evaluation: Evaluation,
}

impl<B: TrainDevice> Cleaner<'_, '_, B> {
    /// Returns the Gaussians left for which `holds` is true.
    pub(super) fn left(&self, holds: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.gone.len()).filter(|&row| self.gone[row].is_none() && holds(row)).collect()
    }

    pub(super) fn weight_max(&self, row: usize) -> f64 {
        self.now.contributions[row].weight_max.into()
    }

    /// Returns the change of the error without the Gaussian, as a share of its weight.
    pub(super) fn harm(&self, row: usize) -> f64 {
        let contribution = &self.now.contributions[row];
        f64::from(contribution.error_change) / f64::from(contribution.weight).max(f64::MIN_POSITIVE)
    }

    /// Returns the lowest allowed mean PSNR, dB. A small gain may be lost again, up to the allowed loss.
    pub(super) fn min_psnr(&self) -> f64 {
        let gain = self.best - self.before;
        let spare = if gain < FLOATER_GAIN { gain.min(self.max_loss) } else { 0.0 };
        self.best - spare - self.max_loss
    }

    /// Evaluates the model without these Gaussians, too.
    pub(super) fn without(
        &mut self,
        rows: &[usize],
        rule: CleanRule,
    ) -> Result<Proposal, TrainError> {
        let mut gone = self.gone.clone();
        rows.iter().for_each(|&row| gone[row] = Some(rule));
        self.propose(gone)
    }

    pub(super) fn propose(&mut self, gone: Vec<Option<CleanRule>>) -> Result<Proposal, TrainError> {
        // `clean` has found an image of a training view.
        let evaluation = self.evaluator.evaluate(&gone)?.unwrap_or_default();
        Ok(Proposal { gone, evaluation })
    }

    pub(super) fn accept(&mut self, Proposal { gone, evaluation }: Proposal) {
        self.best = self.best.max(evaluation.psnr);
        (self.gone, self.now) = (gone, evaluation);
    }

    /// Removes the first of these Gaussians: all, half, a quarter and so on, until the loss is at most this share of
    /// the allowed loss.
    pub(super) fn drop_within(
        &mut self,
        mut rows: Vec<usize>,
        rule: CleanRule,
        share: f64,
    ) -> Result<(), TrainError> {
        for _ in 0..HALVINGS {
            if rows.is_empty() {
                return Ok(());
            }
            let proposal = self.without(&rows, rule)?;
            if proposal.evaluation.psnr >= self.best - share * self.max_loss {
                tracing::info!(
                    "{}: {} go, PSNR {:.3} dB",
                    rule.name(),
                    rows.len(),
                    proposal.evaluation.psnr
                );
                self.accept(proposal);
                return Ok(());
            }
            rows.truncate(rows.len() / 2);
        }
        Ok(())
    }
}

/// Options of cleaning.
#[derive(Clone, Debug)]
pub struct CleanOptions {
    /// Allowed loss of mean PSNR of the training views, dB, below the start. If the PSNR rises in between, the loss is
    /// at most twice this below the highest value, and at most once if the PSNR rose by 0.5 dB.
    pub max_loss: f64,
    /// Distance to a training camera below which Gaussians count as right before it, world units.
    pub near: f64,
    /// Boxes. At least one must contain a Gaussian; empty for no limit.
    pub boxes: Vec<CropBox>,
    /// Sphere that must contain a Gaussian.
    pub sphere: Option<CropSphere>,
}

impl CleanOptions {
    pub(super) fn keeps(&self, place: [f32; 3]) -> bool {
        let in_box = self.boxes.is_empty() || self.boxes.iter().any(|it| it.contains(place));
        in_box && self.sphere.is_none_or(|sphere| sphere.contains(place))
    }

    /// Returns true if any of these Gaussians is inside the crop.
    pub fn keeps_any(&self, gaussians: &Gaussians) -> bool {
        gaussians.means.as_chunks().0.iter().any(|&place| self.keeps(place))
    }
}

/// Reason for which a Gaussian is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanRule {
    /// No training view shows it.
    Unseen,
    /// It is right before a training camera.
    Near,
    /// It is far larger than the scene and contributes little.
    Huge,
    /// The training views are closer to their photographs without it.
    Harmful,
    /// It is far from all others and hardly changes the views.
    Isolated,
    /// The training views hardly change without it.
    Redundant,
    /// It is outside the crop.
    Cropped,
}

impl CleanRule {
    /// All rules, in the order of their use.
    pub const ALL: [Self; 7] = [
        Self::Unseen,
        Self::Near,
        Self::Huge,
        Self::Harmful,
        Self::Isolated,
        Self::Redundant,
        Self::Cropped,
    ];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Near => "before a camera",
            Self::Huge => "huge",
            Self::Harmful => "harmful",
            Self::Isolated => "isolated",
            Self::Redundant => "redundant",
            Self::Cropped => "cropped",
        }
    }
}

// Error of the training views without some Gaussians, and the contribution of each Gaussian.

pub(super) struct Evaluator<'a, 'v, B: TrainDevice> {
    device: &'a mut B,
    model: B::Model,
    views: &'a mut Views<'v>,
    settings: RenderSettings,
    pub(super) passes: u32,
}

/// Result of a pass without some of the Gaussians.
#[derive(Clone, Debug, Default)]
pub(super) struct Evaluation {
    /// Mean PSNR of the training views, dB.
    pub(super) psnr: f64,
    /// Sum over their pixels and channels.
    pub(super) squared_error: f64,
    /// Contribution of each Gaussian, removed or not.
    pub(super) contributions: Vec<Contribution>,
}

impl<'a, 'v, B: TrainDevice> Evaluator<'a, 'v, B> {
    pub(super) fn new(
        device: &'a mut B,
        gaussians: &Gaussians,
        views: &'a mut Views<'v>,
        settings: RenderSettings,
    ) -> Result<Self, TrainError> {
        let model = device.upload(gaussians)?;
        Ok(Self { device, model, views, settings, passes: 0 })
    }

    /// Evaluates the model without the removed Gaussians. `None` if no view has an image.
    pub(super) fn evaluate(
        &mut self,
        gone: &[Option<CleanRule>],
    ) -> Result<Option<Evaluation>, TrainError> {
        let Self { device, model, views, settings, passes } = self;
        *passes += 1;
        let absent: Vec<bool> = gone.iter().map(Option::is_some).collect();
        let mut sums = device.no_contributions(model, &absent)?;
        let order = views.split(Split::Train);
        let sent: Vec<usize> =
            order.iter().copied().filter(|&index| !device.is_resident(index)).collect();
        views.schedule_decoding(&sent);
        let (mut psnr, mut squared_error, mut count) = (0.0, 0.0, 0_u32);
        for &index in order {
            let target = match device.resident(index) {
                Some(target) => target,
                None => match views.fetch(index) {
                    Some(image) => {
                        let stay = Stay::Resident(index);
                        device.upload_target(Photo { image: &image, stay })?
                    }
                    None => continue,
                },
            };
            views.release(*device, index);
            // The mask hides the whole photograph.
            if views.is_hidden(index) {
                continue;
            }
            let view = views.view(index);
            let measured = device.add_contributions(model, view, settings, &target, &mut sums)?;
            let [width, height] = [view.camera.width, view.camera.height].map(f64::from);
            squared_error += measured.mse * width * height * 3.0;
            psnr += Metrics::from(measured).psnr;
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let contributions = device.read_contributions(&sums)?;
        Ok(Some(Evaluation { psnr: psnr / f64::from(count), squared_error, contributions }))
    }
}
