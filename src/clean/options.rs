//! What cleaning is told.

use splat_formats::{CropBox, CropSphere};

use crate::model::Gaussians;

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
    /// Whether a place lies in what is kept.
    pub(super) fn keeps(&self, place: [f32; 3]) -> bool {
        let in_box = self.boxes.is_empty() || self.boxes.iter().any(|it| it.contains(place));
        in_box && self.sphere.is_none_or(|sphere| sphere.contains(place))
    }

    /// Whether any of these Gaussians does.
    pub fn keeps_any(&self, gaussians: &Gaussians) -> bool {
        gaussians.means.as_chunks().0.iter().any(|&place| self.keeps(place))
    }
}
