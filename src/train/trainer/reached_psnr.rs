//! The PSNR that ends a run.

/// The PSNR that ends a run, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReachedPsnr {
    /// The highest so far, dB.
    pub(super) best: Option<f64>,
    /// Whether that is enough.
    pub(super) is_enough: bool,
}
