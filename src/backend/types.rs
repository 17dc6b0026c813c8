//! What passes between the trainer and a device.

use serde::Serialize;

use super::DeviceError;
use crate::memory::{Bytes, Change};

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Only the image is wanted.
    Eval,
    /// The image is wanted, and how many Gaussians each pixel is blended of.
    Picture,
    /// The backward pass follows.
    Train,
    /// The backward pass follows, and tells density control what it sees.
    Observe,
}

/// How a view is drawn.
#[derive(Clone, Copy, Debug)]
pub struct RenderSettings {
    /// What the frame is for.
    pub pass: Pass,
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// Colour behind everything, 0..1.
    pub background: [f32; 3],
    /// Depth that a Gaussian must exceed to be drawn, world units along the view axis.
    pub near: f64,
}

/// A drawn view on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// Colours, [height, width, 3]; may leave 0..1.
    pub rgb: Vec<f32>,
    /// Gaussians blended in each pixel, [height, width]; of a frame drawn to [`Pass::Picture`].
    pub blended: Option<Vec<u32>>,
}

/// The weights of the loss.
#[derive(Clone, Copy, Debug)]
pub struct LossTerms {
    /// Loss is (1 - λ) L1 + λ (1 - SSIM).
    pub lambda_dssim: f64,
}

/// A loss and its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossValue {
    /// Mean absolute error.
    pub l1: f64,
    /// Mean structural similarity.
    pub ssim: f64,
    /// What is minimised.
    pub total: f64,
}

/// How far a render, clamped to 0..1, is from its photograph.
///
/// Where the photograph has a mask, both images are multiplied by it; means are over all pixels
/// and channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Mean squared error.
    pub mse: f64,
    /// Mean absolute error.
    pub l1: f64,
    /// Mean structural similarity.
    pub ssim: f64,
}

/// What kind of memory an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// The driver's own, and code.
    Context,
    /// Photographs on the device.
    Photographs,
    /// Lives as long as the model.
    Region,
    /// What the blocks of an iteration lie in.
    Arena,
    /// Lives for an iteration; lies in the arena, which takes the memory.
    Block,
    /// Page-locked memory of the host; no part of the device's.
    Pinned,
}

/// What the device's memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryEntry {
    /// What it holds.
    pub label: &'static str,
    /// What kind of memory it is.
    pub kind: MemoryKind,
    /// Bytes that hold something now.
    pub bytes: Bytes,
    /// Bytes that are taken now; a block takes those of its arena.
    pub mapped: Bytes,
    /// The most that was held or taken. Not all entries are at their most at once.
    pub peak: Bytes,
    /// What was taken when all of the device's entries together took most: these add up.
    pub at_peak: Bytes,
}

/// How a device's memory stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governed {
    /// What was given up or taken back since it was last told.
    pub changes: Vec<Change>,
    /// Bytes that the program holds.
    pub held: Bytes,
    /// Bytes that it may hold.
    pub budget: Bytes,
}

/// A value that the device may still be computing.
pub trait Pending<T> {
    /// Whether [`Self::read`] would not wait.
    fn is_ready(&self) -> bool;
    /// Waits for it. A fault that the device found in the meantime, such as a loss that is not
    /// finite, may come to light only here.
    fn read(self) -> Result<T, DeviceError>;
}

/// Learning rates of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Centres, world units.
    pub means: f64,
    /// Logarithms of the scales.
    pub log_scales: f64,
    /// Quaternions.
    pub quats: f64,
    /// Opacity logits.
    pub opacity_logits: f64,
    /// SH coefficients of degree 0.
    pub sh_dc: f64,
    /// SH coefficients above.
    pub sh_rest: f64,
}

/// One step of Adam (Kingma and Ba 2015): beta 0.9 and 0.999, epsilon 1e-15.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Number of this step, from 1, for the correction of the moments' bias. Gaussians born later
    /// share it: their zero moments are corrected as little as everybody's.
    pub number: u32,
    /// Learning rates.
    pub rates: Rates,
}

/// Children of a split are smaller than their parent by this factor.
pub(super) const SPLIT_SHRINK: f64 = 1.6;

/// When Gaussians are cloned, split and pruned (Kerbl et al. 2023, section 5).
#[derive(Clone, Copy, Debug)]
pub struct DensifyRule {
    /// Mean norm of the screen-space gradient, half the image being 1, from which one is wanted.
    pub gradient_min: f64,
    /// Largest scale that is cloned; above, it is split. World units.
    pub clone_scale_max: f64,
    /// Opacity below which a Gaussian is removed.
    pub opacity_min: f64,
    /// Largest scale that is kept, where large ones are removed. World units.
    pub scale_max: Option<f64>,
    /// Seed of the children's places.
    pub seed: u64,
    /// Finished iterations.
    pub iteration: u32,
}

/// What density control would like to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Gaussians to clone.
    pub clones: usize,
    /// Gaussians to split in two.
    pub splits: usize,
}

impl Survey {
    /// Gaussians that would be added.
    pub fn births(&self) -> usize {
        self.clones + self.splits
    }
}

/// How many Gaussians may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// At most so many; those with the highest gradient come first.
    pub births: usize,
}

/// What density control did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Densified {
    /// Gaussians cloned.
    pub cloned: usize,
    /// Gaussians split in two.
    pub split: usize,
    /// Candidates beyond the grant.
    pub refused: usize,
    /// Gaussians removed.
    pub pruned: usize,
}

/// Everything about a model that training changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot<P> {
    /// The parameters.
    pub parameters: P,
    /// Adam's running means of the gradients, before bias correction.
    pub first_moments: P,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: P,
    /// Sums of the norms of the screen-space gradients since the last round of density control.
    pub gradient_norm_sums: Vec<f32>,
    /// Number of views that saw each Gaussian since then.
    pub views_seen: Vec<u32>,
}
