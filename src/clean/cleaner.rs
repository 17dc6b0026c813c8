//! A model under way: what has gone, what is known of the rest, and steps that cost no more than is allowed.

use serde::Serialize;
use splat_formats::{CropBox, CropSphere};

use crate::backend::{Photo, RenderSettings, Stay, TrainDevice, Worth};
use crate::model::Gaussians;
use crate::train::event::{Metrics, Split};
use crate::train::{TrainError, Views};

/// Halvings of a set that costs too much, before none of it goes.
const HALVINGS: u32 = 4;

/// A gain from which on floaters have gone, dB. Less comes of Gaussians whose loss nobody sees.
const FLOATERS: f64 = 0.5;

/// A model under way.
pub(super) struct Cleaner<'a, 'v, B: TrainDevice> {
    pub(super) judge: Judge<'a, 'v, B>,
    pub(super) gone: Vec<Option<CleanRule>>,
    /// What is known of those that are left, and of those gone.
    pub(super) now: Judgement,
    /// Mean PSNR of all, dB.
    pub(super) before: f64,
    /// The same at its highest.
    pub(super) best: f64,
    pub(super) max_loss: f64,
}

/// What may go, and what would be left.
pub(super) struct Proposal {
    pub(super) gone: Vec<Option<CleanRule>>,
    pub(super) judged: Judgement,
}

impl<B: TrainDevice> Cleaner<'_, '_, B> {
    /// Those that are left and of which this holds.
    pub(super) fn left(&self, holds: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.gone.len()).filter(|&row| self.gone[row].is_none() && holds(row)).collect()
    }

    /// The largest blend weight of a Gaussian.
    pub(super) fn weight_max(&self, row: usize) -> f64 {
        self.now.worths[row].weight_max.into()
    }

    /// By how much the error would change, as a share of the Gaussian's weight.
    pub(super) fn harm(&self, row: usize) -> f64 {
        let worth = &self.now.worths[row];
        f64::from(worth.error_change) / f64::from(worth.weight).max(f64::MIN_POSITIVE)
    }

    /// The least mean PSNR that the loss leaves, dB. A small gain may be given up again, as far as the loss
    /// goes.
    pub(super) fn least(&self) -> f64 {
        let gain = self.best - self.before;
        let spare = if gain < FLOATERS { gain.min(self.max_loss) } else { 0.0 };
        self.best - spare - self.max_loss
    }

    /// What is known if these went, too.
    pub(super) fn without(
        &mut self,
        rows: &[usize],
        rule: CleanRule,
    ) -> Result<Proposal, TrainError> {
        let mut gone = self.gone.clone();
        rows.iter().for_each(|&row| gone[row] = Some(rule));
        self.propose(gone)
    }

    /// What is known if all these went.
    pub(super) fn propose(&mut self, gone: Vec<Option<CleanRule>>) -> Result<Proposal, TrainError> {
        // There was an image of a training view before.
        let judged = self.judge.judge(&gone)?.unwrap_or_default();
        Ok(Proposal { gone, judged })
    }

    pub(super) fn accept(&mut self, Proposal { gone, judged }: Proposal) {
        self.best = self.best.max(judged.psnr);
        (self.gone, self.now) = (gone, judged);
    }

    /// Removes as many of these as cost no more than this share of what is allowed, the first first: all,
    /// or half of them, and so on.
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
            if proposal.judged.psnr >= self.best - share * self.max_loss {
                tracing::info!(
                    "{}: {} go, PSNR {:.3} dB",
                    rule.name(),
                    rows.len(),
                    proposal.judged.psnr
                );
                self.accept(proposal);
                return Ok(());
            }
            rows.truncate(rows.len() / 2);
        }
        Ok(())
    }
}

// Options of cleaning.

/// What is cleaned, and how.
#[derive(Clone, Debug)]
pub struct CleanOptions {
    /// By how much the mean PSNR of the training views may fall, dB: below what it was, and where it rises by
    /// more than this, twice as far below its highest; but no farther than this where it rises by 0.5 dB.
    pub max_loss: f64,
    /// Distance to a training camera up to which Gaussians are right before it, world units.
    pub near: f64,
    /// All outside of each of these goes; where there is none, nothing does.
    pub boxes: Vec<CropBox>,
    /// All outside goes.
    pub sphere: Option<CropSphere>,
}

impl CleanOptions {
    /// True if a place lies in what is kept.
    pub(super) fn keeps(&self, place: [f32; 3]) -> bool {
        let in_box = self.boxes.is_empty() || self.boxes.iter().any(|it| it.contains(place));
        in_box && self.sphere.is_none_or(|sphere| sphere.contains(place))
    }

    /// True if any of these Gaussians does.
    pub fn keeps_any(&self, gaussians: &Gaussians) -> bool {
        gaussians.means.as_chunks().0.iter().any(|&place| self.keeps(place))
    }
}

// Reasons for which a Gaussian is removed.

/// Why a Gaussian is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanRule {
    /// No training view shows anything of it.
    Unseen,
    /// It is right before a training camera.
    Near,
    /// It is far larger than the scene, and shows little.
    Huge,
    /// The training views are nearer to their photographs without it.
    Harmful,
    /// It is far from all others, and hardly changes what views show.
    Isolated,
    /// The training views hardly change without it.
    Redundant,
    /// It is outside of the box or ball that is kept.
    Cropped,
}

impl CleanRule {
    /// All, in the order in which they are applied.
    pub const ALL: [Self; 7] = [
        Self::Unseen,
        Self::Near,
        Self::Huge,
        Self::Harmful,
        Self::Isolated,
        Self::Redundant,
        Self::Cropped,
    ];

    /// As reports call it.
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

// Error of the training views without some Gaussians, and what each Gaussian
// is worth in them.

/// Draws all training views of one model.
pub(super) struct Judge<'a, 'v, B: TrainDevice> {
    device: &'a mut B,
    model: B::Model,
    views: &'a mut Views<'v>,
    settings: RenderSettings,
    /// How often they were drawn.
    pub(super) passes: u32,
}

/// What is known of a model without some of its Gaussians.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    /// Mean over the training views, dB.
    pub(super) psnr: f64,
    /// Sum over their pixels and channels.
    pub(super) squared_error: f64,
    /// What each Gaussian is worth, gone or not.
    pub(super) worths: Vec<Worth>,
}

impl<'a, 'v, B: TrainDevice> Judge<'a, 'v, B> {
    pub(super) fn new(
        device: &'a mut B,
        gaussians: &Gaussians,
        views: &'a mut Views<'v>,
        settings: RenderSettings,
    ) -> Result<Self, TrainError> {
        let model = device.upload(gaussians)?;
        Ok(Self { device, model, views, settings, passes: 0 })
    }

    /// Without those that are gone. `None` where no view has an image.
    pub(super) fn judge(
        &mut self,
        gone: &[Option<CleanRule>],
    ) -> Result<Option<Judgement>, TrainError> {
        let Self { device, model, views, settings, passes } = self;
        *passes += 1;
        let absent: Vec<bool> = gone.iter().map(Option::is_some).collect();
        let mut sums = device.no_worths(model, &absent)?;
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
            // Nothing of it would be compared.
            if views.is_hidden(index) {
                continue;
            }
            let view = views.view(index);
            let measured = device.add_worths(model, view, settings, &target, &mut sums)?;
            let [width, height] = [view.camera.width, view.camera.height].map(f64::from);
            squared_error += measured.mse * width * height * 3.0;
            psnr += Metrics::from(measured).psnr;
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let worths = device.read_worths(&sums)?;
        Ok(Some(Judgement { psnr: psnr / f64::from(count), squared_error, worths }))
    }
}
