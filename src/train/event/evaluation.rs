//! What comparisons of views with their photographs report.

use std::sync::Arc;

use serde::Serialize;

use crate::perceptual::LpipsNet;

/// Which views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Views trained on.
    Train,
    /// Views held out.
    Test,
    /// Some of the views trained on: those that `--eval-train` asks for.
    #[value(skip)]
    #[serde(rename = "eval_train")]
    EvalTrain,
}

impl Split {
    /// `train`, `test` or `eval_train`, as folders and tags spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
            Self::EvalTrain => "eval_train",
        }
    }
}

/// Likeness of a render and its photograph, both clamped to 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Peak signal-to-noise ratio in dB.
    pub psnr: f64,
    /// Structural similarity: 11x11 Gaussian window of sigma 1.5, mean over the valid region.
    pub ssim: f64,
    /// Mean absolute error.
    pub l1: f64,
    /// LPIPS, where weights of a network are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips: Option<f64>,
    /// The same by colours that fit the photograph's; only of models whose training changed colours.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Corrected>,
    /// As the reference trainers measure, where that is wanted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceMetrics>,
}

/// What the `metrics.py` of the reference trainers prints of the PNGs of a render and its photograph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReferenceMetrics {
    /// Structural similarity, mean over all pixels; beyond the border is black.
    #[serde(rename = "ref_ssim")]
    pub ssim: f64,
    /// LPIPS of VGG16, fed with 0..1.
    #[serde(rename = "ref_lpips", skip_serializing_if = "Option::is_none")]
    pub lpips: Option<f64>,
}

/// Likeness of a photograph and of a render whose colours, clamped to 0..1, are brought nearest to it by
/// an affine map of least squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Corrected {
    /// Peak signal-to-noise ratio in dB.
    #[serde(rename = "cc_psnr")]
    pub psnr: f64,
    /// Structural similarity.
    #[serde(rename = "cc_ssim")]
    pub ssim: f64,
}

/// Metrics of one view.
#[derive(Clone, Debug, Serialize)]
pub struct ViewMetrics {
    /// Position in the split, which views without metrics have, too.
    #[serde(skip)]
    pub position: usize,
    /// Name of the image in the scene.
    pub name: String,
    /// Width and height.
    #[serde(skip)]
    pub px: [u32; 2],
    /// Its metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Metrics of a split.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Finished iterations.
    pub iteration: u32,
    /// Which views.
    pub split: Split,
    /// Means over the views.
    pub mean: Metrics,
    /// The network of their LPIPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips_net: Option<LpipsNet>,
    /// Gaussians.
    pub gaussians: usize,
    /// Each view that could be measured, in the order of names.
    pub views: Vec<ViewMetrics>,
}

/// An 8-bit picture, [height, width, 3].
#[derive(Clone, Debug)]
pub struct Picture {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// Colours.
    pub rgb: Vec<u8>,
}

/// One evaluated view as pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Pictures {
    /// Finished iterations.
    pub iteration: u32,
    /// Which split the view is in.
    pub split: Split,
    /// Name of the image in the scene.
    pub name: String,
    /// The model's image.
    #[serde(skip)]
    pub render: Arc<Picture>,
    /// The photograph.
    #[serde(skip)]
    pub ground_truth: Arc<Picture>,
    /// Absolute error, as a heat map.
    #[serde(skip)]
    pub error: Arc<Picture>,
    /// Gaussians blended per pixel, as a heat map.
    #[serde(skip)]
    pub density: Arc<Picture>,
    /// Depths, as a heat map, where they were drawn.
    #[serde(skip)]
    pub depth: Option<Arc<Picture>>,
    /// Normals as colours, where they were drawn.
    #[serde(skip)]
    pub normals: Option<Arc<Picture>>,
}
