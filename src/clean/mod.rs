//! Removes Gaussians from a trained model that no view needs or that harm views: floaters, haze, and unseen ones.
//!
//! Contributions and PSNR are measured over the training views, so that no rule takes a step that loses more PSNR
//! than allowed. Held-out views are not used.

mod cleaner;
mod steps;

use serde::Serialize;

pub use self::cleaner::{CleanOptions, CleanRule};
use self::cleaner::{Cleaner, Evaluator};
use self::steps::{Extents, drop_harmful, drop_redundant};
use crate::backend::{RenderSettings, TrainDevice, Worth};
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive};
use crate::train::{TrainError, Views};

/// Number of Gaussians that a rule removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedByRule {
    /// The rule.
    pub rule: CleanRule,
    /// Number of Gaussians.
    pub removed: usize,
}

/// Result of cleaning.
#[derive(Clone, Debug)]
pub struct Cleaning {
    /// Rule that removes each Gaussian, if any.
    pub gone: Vec<Option<CleanRule>>,
    /// Mean PSNR of the training views before cleaning, dB.
    pub psnr_before: f64,
    /// Mean PSNR after all rules except the crop, which comes last, dB.
    pub psnr_after: f64,
    /// Number of passes over the training views.
    pub passes: u32,
}

impl Cleaning {
    /// Counts the removed Gaussians of each rule, in the order of the rules.
    pub fn by_rule(&self) -> Vec<RemovedByRule> {
        let count = |rule| self.gone.iter().filter(|&&gone| gone == Some(rule)).count();
        CleanRule::ALL.map(|rule| RemovedByRule { rule, removed: count(rule) }).to_vec()
    }

    /// Returns the Gaussians that stay, in their order.
    pub fn left(&self, gaussians: &Gaussians) -> Gaussians {
        let mut left = Gaussians::empty(gaussians.sh_degree);
        for (to, from) in left.groups_mut().into_iter().zip(gaussians.groups()) {
            let rows = (0..self.gone.len()).filter(|&row| self.gone[row].is_none());
            let rows = rows.flat_map(|row| &from.values[row * from.width..][..from.width]);
            to.extend(rows);
        }
        left
    }

    /// Returns the number of removed Gaussians.
    pub fn removed(&self) -> usize {
        self.gone.iter().flatten().count()
    }
}

/// Finds the Gaussians to remove. `None` if no training view has an image.
pub fn clean<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    views: &mut Views<'_>,
    settings: RenderSettings,
    options: &CleanOptions,
) -> Result<Option<Cleaning>, TrainError> {
    let extents = Extents::of(gaussians, views);
    let mut evaluator = Evaluator::new(device, gaussians, views, settings)?;
    let Some(now) = evaluator.evaluate(&vec![None; gaussians.len()])? else { return Ok(None) };
    let (psnr_before, max_loss) = (now.psnr, options.max_loss);
    tracing::info!("{} Gaussians, PSNR {psnr_before:.3} dB on training views", gaussians.len());
    let gone = vec![None; gaussians.len()];
    let (before, best) = (psnr_before, psnr_before);
    let mut cleaner = Cleaner { evaluator, gone, now, before, best, max_loss };
    cleaner.drop_unseen();
    cleaner.drop_near(&extents, options.near)?;
    cleaner.drop_huge(&extents)?;
    drop_harmful(&mut cleaner)?;
    cleaner.drop_isolated(gaussians)?;
    // Gaussians that covered errors of the isolated ones may come back.
    drop_harmful(&mut cleaner)?;
    drop_redundant(&mut cleaner)?;
    cleaner.drop_unseen();
    let psnr_after = cleaner.now.psnr;
    let (mut gone, passes) = (cleaner.gone, cleaner.evaluator.passes);
    for (gone, &place) in gone.iter_mut().zip(gaussians.means.as_chunks().0) {
        if !options.keeps(place) {
            *gone = Some(CleanRule::Cropped);
        }
    }
    Ok(Some(Cleaning { gone, psnr_before, psnr_after, passes }))
}

/// Returns the largest host memory of cleaning beside a model of this size: contributions with and without a
/// step, positions, distances and rules.
pub fn bytes_beside(gaussians: usize) -> Bytes {
    // On the CPU a third and a fourth copy are being computed.
    let worths = Bytes::of::<[Worth; 4]>(gaussians);
    let extents = Bytes::of::<[[f32; 3]; 3]>(gaussians) + Bytes::of::<[f64; 6]>(gaussians);
    worths + extents + Bytes::of::<[Option<CleanRule>; 4]>(gaussians)
}
