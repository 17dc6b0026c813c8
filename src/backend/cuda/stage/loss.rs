//! Stage `loss`: (1 - λ) L1 + λ (1 - SSIM) against the photograph, its gradient, and the metrics of a
//! render.

use crate::abi::{Camera, LOSS_COLUMNS, LOSS_ROWS, LOSS_TAPS, LossArgs, Out};
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::memory::status::Report;
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, LossTerms, LossValue, Measured, Pending};
use crate::math::ssim::taps;

/// What the sums of an image are divided by.
#[derive(Clone, Copy, Debug)]
struct LossCounts {
    /// Values: pixels times channels.
    values: f64,
    /// Windows times channels.
    windows: f64,
}

impl LossCounts {
    fn new(size: [u32; 2], margin: u32) -> Self {
        let times = |[width, height]: [u32; 2]| f64::from(width) * f64::from(height) * 3.0;
        Self { values: times(size), windows: times(size.map(|side| side - 2 * margin)) }
    }
}

/// A loss on its way to the host.
pub struct PendingLoss {
    report: Report,
    counts: LossCounts,
    lambda_dssim: f64,
    /// Weight of the inverse depths, where they were compared.
    depth_weight: Option<f64>,
}

impl Pending<LossValue> for PendingLoss {
    fn is_ready(&self) -> bool {
        self.report.is_ready()
    }

    fn read(self) -> Result<LossValue, DeviceError> {
        let (sums, depth) = self.report.read()?;
        let l1 = sums.absolute / self.counts.values;
        let ssim = sums.similarity / self.counts.windows;
        // Inverse depths have one channel.
        let depth_l1 = self.depth_weight.map(|_| depth * 3.0 / self.counts.values);
        let total = (1.0 - self.lambda_dssim) * l1
            + self.lambda_dssim * (1.0 - ssim)
            + self.depth_weight.unwrap_or(0.0) * depth_l1.unwrap_or(0.0);
        if !total.is_finite() {
            return Err(DeviceError::LossNotFinite { value: total });
        }
        Ok(LossValue { l1, ssim, depth_l1, total })
    }
}

/// The loss of an image, and its gradient in `d_image`. Inverse depths that were compared before count
/// with their weight.
pub(crate) fn loss(
    session: &mut Session,
    (image, camera): (&Block<f32>, &Camera),
    target: &Target,
    (terms, depth_weight): (&LossTerms, Option<f64>),
    d_image: &mut Block<f32>,
) -> Result<PendingLoss, DeviceError> {
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    let counts = launch(session, (image, camera), target, (terms, Some(d_image)))?;
    session.timers.end(&begun, &session.stream)?;
    let report = session.status.report(&session.heap, &session.stream)?;
    Ok(PendingLoss { report, counts, lambda_dssim: terms.lambda_dssim, depth_weight })
}

/// The metrics of an image held to 0..1. Waits for the device.
pub(crate) fn measure(
    session: &mut Session,
    (image, camera): (&Block<f32>, &Camera),
    target: &Target,
) -> Result<Measured, DeviceError> {
    let counts =
        launch(session, (image, camera), target, (&LossTerms { lambda_dssim: 0.0 }, None))?;
    let (sums, _) = session.status.report(&session.heap, &session.stream)?.read()?;
    Ok(Measured {
        mse: sums.squared / counts.values,
        l1: sums.absolute / counts.values,
        ssim: sums.similarity / counts.windows,
    })
}

/// Without `d_image` the image is held to 0..1 first.
fn launch(
    session: &mut Session,
    (image, camera): (&Block<f32>, &Camera),
    target: &Target,
    (terms, d_image): (&LossTerms, Option<&mut Block<f32>>),
) -> Result<LossCounts, DeviceError> {
    if target.size() != camera.size {
        return Err(DeviceError::TargetSize { target_px: target.size(), view_px: camera.size });
    }
    let (taps, margin) = taps::<{ LOSS_TAPS as usize }>(camera.size);
    let counts = LossCounts::new(camera.size, margin);
    session.status.clear_sums(&session.stream)?;
    target.wait(&session.stream)?;
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
    let args = LossArgs {
        image: image.read(),
        target: target.rgb(),
        mask: target.mask(),
        clamp: u32::from(d_image.is_none()),
        d_image: d_image.map_or(Out::NULL, Block::write),
        sums: session.status.sums(),
        size: camera.size,
        taps,
        margin,
        d_l1: ((1.0 - terms.lambda_dssim) / counts.values) as f32,
        d_similarity: (-terms.lambda_dssim / counts.windows) as f32,
        reserved: 0,
    };
    let [width, height] = camera.size;
    let strips = width.div_ceil(LOSS_COLUMNS) as usize * height.div_ceil(LOSS_ROWS) as usize;
    // One block per channel.
    session.kernels.loss.blocks(&session.stream, strips * 3, &args)?;
    target.used(&session.stream)?;
    Ok(counts)
}
