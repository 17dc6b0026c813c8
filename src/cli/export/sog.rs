//! Writing a SOG with what the machine has: its palette is searched for on a GPU, which also draws the
//! Gaussians to know from where they are seen.

use std::path::Path;

use splat_formats::{
    ColorFit, SceneCamera, SharedRows, SogTools, SplatFileError, SplatFormat, Splats, WriteReport,
    write, write_with,
};

use super::refit::Refit;
use crate::backend::{RenderSettings, TrainDevice, gpu};
use crate::cli::device::{self, DeviceOptions, Task};
use crate::config::{Config, DeviceChoice};
use crate::math::linalg::{add, length, scale, sub};
use crate::sog::{drawn_looks, with_device};

/// Fewer Gaussians than these are written before a GPU is ready.
const LEAST_FOR_GPU: usize = 20_000;

/// What is written, and where.
pub(super) struct SogExport<'a> {
    pub(super) to: &'a Path,
    pub(super) splats: &'a Splats,
    pub(super) format: &'a SplatFormat,
    /// Depth before which nothing is drawn, units of the placed scene.
    pub(super) near: f64,
    /// What its colours are fitted to, where they are.
    pub(super) refit: Option<&'a Refit>,
}

impl SogExport<'_> {
    /// The cameras that its options have.
    fn cameras(&self) -> &[SceneCamera] {
        match self.format {
            SplatFormat::Sog(options) | SplatFormat::SogFolder(options) => &options.cameras,
            SplatFormat::StreamedSog(options) => &options.sog.cameras,
            _ => &[],
        }
    }

    /// Whether a device has anything to do for it.
    fn has_palette(&self) -> bool {
        let is_sog = matches!(
            self.format,
            SplatFormat::Sog(_) | SplatFormat::SogFolder(_) | SplatFormat::StreamedSog(_)
        );
        is_sog && self.splats.sh_degree() > 0 && !self.splats.is_empty()
    }

    /// Writes on the chosen device.
    pub(super) fn write(self, device: DeviceChoice) -> anyhow::Result<WriteReport> {
        let wants_gpu = match device {
            DeviceChoice::Cpu => false,
            DeviceChoice::Cuda => true,
            DeviceChoice::Auto => {
                gpu::is_present() && gpu::kernels().is_some() && self.splats.len() >= LEAST_FOR_GPU
            }
        };
        if let Some(refit) = self.refit {
            return Ok(device::on(&refit.device_options(), OnDevice(self))??);
        }
        if !self.has_palette() || !wants_gpu {
            return Ok(write(self.to, self.splats, self.format)?);
        }
        let mut config = Config::default();
        config.run.device = DeviceChoice::Cuda;
        let (to, splats, format) = (self.to, self.splats, self.format);
        match device::on(&DeviceOptions::of(&config), OnDevice(self)) {
            Ok(written) => Ok(written?),
            Err(error) if device == DeviceChoice::Auto => {
                tracing::warn!(
                    "the GPU cannot be used: {error:#}. The palette of harmonics is searched for on the \
                     processor, which takes longer; --device cpu does so without asking"
                );
                Ok(write(to, splats, format)?)
            }
            Err(error) => Err(error),
        }
    }
}

/// Depth before which nothing is drawn in training with these cameras.
fn near_of(cameras: &[SceneCamera]) -> f64 {
    let centres = || cameras.iter().map(|camera| camera.position);
    let mean = scale(centres().fold([0.0; 3], add), 1.0 / cameras.len().max(1) as f64);
    let reach = centres().map(|centre| length(sub(centre, mean))).fold(0.0, f64::max);
    let is_spread = reach > f64::EPSILON * length(mean);
    if is_spread { RenderSettings::DEFAULT.near * reach } else { f64::INFINITY }
}

/// The work of a device. What the file itself cannot hold is no failure of the device.
struct OnDevice<'a>(SogExport<'a>);

impl Task for OnDevice<'_> {
    type Output = Result<WriteReport, SplatFileError>;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Self::Output> {
        let Self(export) = self;
        let cameras = export.cameras();
        // As far as in training, where the scene is small.
        let near = export.near.min(near_of(cameras));
        let seen = match cameras {
            [] => None,
            _ => drawn_looks(device, export.splats, cameras, near)
                .map_err(|error| {
                    tracing::warn!(
                        "the Gaussians cannot be drawn: {error}. How much each counts in the palette of \
                         harmonics is estimated from the cameras alone"
                    );
                })
                .ok(),
        };
        let SogExport { to, splats, format, refit, .. } = export;
        let mut failure = None;
        let fit = |device: &mut B, stored: Splats, alike: &SharedRows| match refit?
            .fit(device, stored, alike)
        {
            Ok(fitted) => Some(fitted),
            Err(error) => {
                failure = Some(error.context("--refit"));
                None
            }
        };
        let written = with_device(device, fit, |tools| {
            let fit = refit.map(|_| tools as &dyn ColorFit);
            let tools = SogTools { search: tools, seen: seen.as_ref(), fit };
            write_with(to, splats, format, &tools)
        });
        failure.map_or(Ok(written), Err)
    }
}
