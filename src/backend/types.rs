//! What passes between the trainer and a device.

use serde::Serialize;

use super::{Compensation, DeviceError};
use crate::layout::Rate;
use crate::math::adam::Moments;
use crate::math::splat::DILATION_PX2;
use crate::memory::plan::OptionalColumns;
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

/// What keeps a splat from falling between the centres of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScreenFilter {
    /// Variance added to every splat along both axes, px².
    pub variance_px2: f64,
    /// Whether opacity falls as the splat is widened, so that it adds up to as much as before: the
    /// 2D filter of Mip-Splatting (Yu et al. 2024, section 4.2).
    pub compensates: bool,
}

impl ScreenFilter {
    /// As in 3D Gaussian splatting (Kerbl et al. 2023): widened by 0.3 px² and not compensated.
    pub const DILATION: Self = Self { variance_px2: DILATION_PX2, compensates: false };
}

/// What density control gathers of the views that it observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Norms of the gradients of the splats' centres, each summed over the pixels first (Kerbl et
    /// al. 2023).
    Norms,
    /// Norms of sums of the absolute values that the pixels give (AbsGS, Ye et al. 2024).
    AbsoluteNorms,
    /// The norms, and beside them sums of the absolute values over both axes (GOF, Yu et al. 2024).
    Both,
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
    /// What keeps splats from falling between pixels.
    pub screen_filter: ScreenFilter,
    /// What a frame drawn to [`Pass::Observe`] tells density control.
    pub statistics: Statistics,
    /// Depth above which splats tell density control all they have to; what is nearer tells the less,
    /// by the square of its share of this depth (Pixel-GS, Zhang et al. 2024). World units along the
    /// view axis; at 0 all tell alike.
    pub fade_depth: f64,
    /// Whether inverse depths are drawn beside the colours; not in a frame drawn to [`Pass::Picture`].
    pub inverse_depth: bool,
    /// Whether the depths and normals of a surface are drawn beside the colours; not in a frame drawn to
    /// [`Pass::Picture`].
    pub surface: bool,
    /// What changes the colours before they are compared, so that the frame has room for it. A frame
    /// that is only looked at has room for [`super::Raster::correct_colors`] then.
    pub compensation: Option<Compensation>,
}

impl RenderSettings {
    /// A view on black as 3D Gaussian splatting draws it, to be looked at.
    pub const DEFAULT: Self = Self {
        pass: Pass::Eval,
        sh_degree: 0,
        background: [0.0; 3],
        near: 0.01,
        screen_filter: ScreenFilter::DILATION,
        statistics: Statistics::Norms,
        fade_depth: 0.0,
        inverse_depth: false,
        surface: false,
        compensation: None,
    };
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
    /// Sums of the weights over the depths, per world unit, [height, width]; of a frame drawn with
    /// [`RenderSettings::inverse_depth`].
    pub inverse_depths: Option<Vec<f32>>,
    /// Sums of the weights times the depths, in world units, and times x and y of the normals in camera
    /// axes, and the sums of the weights, [height, width, 4]; of a frame drawn with
    /// [`RenderSettings::surface`]. A Gaussian's normal is its shortest axis towards the camera.
    pub surface: Option<Vec<f32>>,
}

/// The weights of the loss.
#[derive(Clone, Copy, Debug)]
pub struct LossTerms {
    /// Loss is (1 - λ) L1 + λ (1 - SSIM).
    pub lambda_dssim: f64,
}

/// What each pixel counts for where normals are compared with depths; the mean is over all pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormalRule {
    /// All alike, as SuGaR has it: of what is nearly transparent, too.
    EveryPixel,
    /// By its opacity, to which no gradient goes this way (2D Gaussian splatting, Huang et al. 2024).
    ByOpacity,
}

/// A loss and its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossValue {
    /// Mean absolute error.
    pub l1: f64,
    /// Mean structural similarity.
    pub ssim: f64,
    /// Mean absolute error of the inverse depths, per world unit, where they were compared.
    pub depth_l1: Option<f64>,
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

impl Rates {
    /// The rate that columns of this description take.
    pub fn of(&self, rate: Rate) -> f64 {
        match rate {
            Rate::Means => self.means,
            Rate::LogScales => self.log_scales,
            Rate::Quats => self.quats,
            Rate::OpacityLogits => self.opacity_logits,
            Rate::ShDc => self.sh_dc,
            Rate::ShRest => self.sh_rest,
        }
    }
}

/// One step of Adam (Kingma and Ba 2015).
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Number of this step, from 1.
    pub number: u32,
    /// Decay of the moments, and the correction of their bias. Gaussians born later share it: their
    /// zero moments are corrected as little as everybody's.
    pub moments: Moments,
    /// Learning rates.
    pub rates: Rates,
    /// What is added to the gradients of all Gaussians, seen or not.
    pub regularisers: Regularisers,
    /// Random motion of the centres after the step.
    pub noise: Option<Noise>,
}

impl AdamStep {
    /// A step down the gradients and nothing else.
    pub fn new(number: u32, rates: Rates) -> Self {
        let moments = Moments::of_step(number);
        Self { number, moments, rates, regularisers: Regularisers::default(), noise: None }
    }
}

/// Weights of what keeps Gaussians few and small (Kheradmand et al. 2024, section 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Regularisers {
    /// Of the mean opacity.
    pub opacity: f64,
    /// Of the mean scale over all axes, world units.
    pub scale: f64,
}

/// Random motion of Gaussians that are nearly transparent (Kheradmand et al. 2024, section 4.1): a
/// centre moves by `rate` · sigmoid(-100 (opacity - 0.005)) · Σ n, where Σ is the Gaussian's covariance
/// and n is standard normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Factor of the motion: the centres' learning rate times a constant.
    pub rate: f64,
    /// Key of the stream of random numbers.
    pub key: u64,
}

/// Weights of what has Gaussians lie on surfaces (SuGaR, Guédon and Lepetit 2024, section 4.1), and
/// where it is sampled. A weight of 0 switches its term off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceRule {
    /// Of the mean entropy of the opacities of the Gaussians that the view sees, which drives them to
    /// 0 or 1.
    pub entropy: f64,
    /// Of the mean absolute difference between the density of the Gaussians and that of a surface.
    pub density: f64,
    /// Of the mean squared difference between a Gaussian's normal and its neighbours'.
    pub normal: f64,
    /// Of the mean absolute difference between the distances from the surface that the Gaussians'
    /// density tells and that the view's depths show. Where it is not 0, samples are taken only of
    /// Gaussians near the surface that the depths show.
    pub sdf: f64,
    /// What these distances are divided by, world units; the reference's is a tenth of the scene's
    /// extent.
    pub sdf_unit: f64,
    /// Samples that densities, normals and distances are compared at.
    pub samples: u32,
    /// Seed of the samples' places.
    pub seed: u64,
    /// Finished iterations.
    pub iteration: u32,
}

impl SurfaceRule {
    /// Whether anything is asked for.
    pub fn asks(&self) -> bool {
        self.entropy != 0.0 || self.is_sampled()
    }

    /// Whether distances from the surface that a view shows are compared.
    pub fn compares_distances(&self) -> bool {
        self.samples > 0 && self.sdf != 0.0
    }

    /// Whether a term wants samples, and with them the Gaussians' neighbours.
    pub fn is_sampled(&self) -> bool {
        self.samples > 0 && (self.density != 0.0 || self.normal != 0.0 || self.sdf != 0.0)
    }
}

/// The surface terms' values, means without their weights; 0 of a term that is off or has nothing to
/// look at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SurfaceTerms {
    /// Entropy of the opacities, in nats.
    pub entropy: f64,
    /// Absolute difference of the densities.
    pub density: f64,
    /// Squared difference of the normals.
    pub normal: f64,
    /// Absolute difference of the distances, in units of [`SurfaceRule::sdf_unit`].
    pub sdf: f64,
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
    /// Which Gaussians are candidates.
    pub criterion: Criterion,
}

/// Which Gaussians are candidates of density control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Those whose mean gradient reaches [`DensifyRule::gradient_min`].
    Gradient,
    /// These, and as large a share of all by their absolute gradients: those not 0 that reach the
    /// quantile (GOF, Yu et al. 2024). Wants [`Statistics::Both`].
    Quantile,
}

/// How Gaussians are drawn and copied where density control is a Markov chain (Kheradmand et al.
/// 2024, section 4.3).
#[derive(Clone, Copy, Debug)]
pub struct RelocateRule {
    /// Opacity that the living exceed, and the least that a share of one gets.
    pub opacity_min: f64,
    /// Seed of the draws.
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
    /// Sums of the absolute screen-space gradients since then; empty where a model has none.
    pub absolute_norm_sums: Vec<f32>,
    /// Standard deviation of each Gaussian's 3D filter, world units; empty where a model has none.
    pub filter_3d: Vec<f32>,
}

impl<P> Snapshot<P> {
    /// Which of the optional columns there are. A model of no rows has none.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }
}
