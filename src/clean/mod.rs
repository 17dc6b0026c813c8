//! Taking Gaussians out of a trained model that no view needs, or that harm what views show: floaters,
//! haze, and what was never looked at.
//!
//! What a Gaussian is worth is measured over the training views, and so is the likeness of what is left:
//! no rule has a step that costs more than is allowed. Held-out views are not looked at.

mod cleaner;
mod steps;

use serde::Serialize;

pub use self::cleaner::{CleanOptions, CleanRule};
use self::cleaner::{Cleaner, Judge};
use self::steps::{Places, drop_harmful, drop_redundant};
use crate::backend::{RenderSettings, TrainDevice, Worth};
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive};
use crate::train::{TrainError, Views};

/// How many Gaussians a rule removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedByRule {
    /// Which.
    pub rule: CleanRule,
    /// How many.
    pub removed: usize,
}

/// What cleaning comes to.
#[derive(Clone, Debug)]
pub struct Cleaning {
    /// By which rule each Gaussian goes, if it does.
    pub gone: Vec<Option<CleanRule>>,
    /// Mean PSNR of the training views before, dB.
    pub psnr_before: f64,
    /// The same after all but the cut by place, which is made last.
    pub psnr_after: f64,
    /// How often all training views were drawn.
    pub passes: u32,
}

impl Cleaning {
    /// What each rule removes, in the order of the rules.
    pub fn by_rule(&self) -> Vec<RemovedByRule> {
        let count = |rule| self.gone.iter().filter(|&&gone| gone == Some(rule)).count();
        CleanRule::ALL.map(|rule| RemovedByRule { rule, removed: count(rule) }).to_vec()
    }

    /// The Gaussians that stay, in their order.
    pub fn left(&self, gaussians: &Gaussians) -> Gaussians {
        let mut left = Gaussians::empty(gaussians.sh_degree);
        for (to, from) in left.groups_mut().into_iter().zip(gaussians.groups()) {
            let rows = (0..self.gone.len()).filter(|&row| self.gone[row].is_none());
            let rows = rows.flat_map(|row| &from.values[row * from.width..][..from.width]);
            to.extend(rows);
        }
        left
    }

    /// How many Gaussians are removed.
    pub fn removed(&self) -> usize {
        self.gone.iter().flatten().count()
    }
}

/// Finds what is to be removed. `None` where no training view has an image.
pub fn clean<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    views: &mut Views<'_>,
    settings: RenderSettings,
    options: &CleanOptions,
) -> Result<Option<Cleaning>, TrainError> {
    let places = Places::of(gaussians, views);
    let mut judge = Judge::new(device, gaussians, views, settings)?;
    let Some(now) = judge.judge(&vec![None; gaussians.len()])? else { return Ok(None) };
    let (psnr_before, max_loss) = (now.psnr, options.max_loss);
    tracing::info!("{} Gaussians, PSNR {psnr_before:.3} dB on training views", gaussians.len());
    let gone = vec![None; gaussians.len()];
    let (before, best) = (psnr_before, psnr_before);
    let mut cleaner = Cleaner { judge, gone, now, before, best, max_loss };
    cleaner.drop_unseen();
    cleaner.drop_near(&places, options.near)?;
    cleaner.drop_huge(&places)?;
    drop_harmful(&mut cleaner)?;
    cleaner.drop_isolated(gaussians)?;
    // Some that were blamed for the isolated come back.
    drop_harmful(&mut cleaner)?;
    drop_redundant(&mut cleaner)?;
    cleaner.drop_unseen();
    let psnr_after = cleaner.now.psnr;
    let (mut gone, passes) = (cleaner.gone, cleaner.judge.passes);
    for (gone, &place) in gone.iter_mut().zip(gaussians.means.as_chunks().0) {
        if !options.keeps(place) {
            *gone = Some(CleanRule::Cropped);
        }
    }
    Ok(Some(Cleaning { gone, psnr_before, psnr_after, passes }))
}

/// What the host holds beside a model of so many Gaussians while it is cleaned, at most: what each is worth
/// with and without a step, where it is, how far it is from others, and whether it goes.
pub fn bytes_beside(gaussians: usize) -> Bytes {
    // On the processor a third and a fourth are in the making.
    let worths = Bytes::of::<[Worth; 4]>(gaussians);
    let places = Bytes::of::<[[f32; 3]; 3]>(gaussians) + Bytes::of::<[f64; 6]>(gaussians);
    worths + places + Bytes::of::<[Option<CleanRule>; 4]>(gaussians)
}
