//! Truncated signed distances: fusion of the depths of all training views (Curless and Levoy 1996; after training as
//! in 2D Gaussian Splatting, Huang et al. 2024).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use splat_mesh::Watch;
use splat_mesh::tsdf::{Fusion, Space, Survey};

use super::drawn::ALL_VIEWS;
use super::finish::{Extracted, ExtractionFigures};
use super::options::TsdfOptions;
use super::{DrawnModel, ExtractionError, Focus, WorldBox};
use crate::backend::{PixelDepth, TrainDevice};
use crate::memory::Bytes;

/// Host memory of a brick of 512 voxels: distances, weights and colours, their means during the extraction, key,
/// neighbours and directions.
pub(super) const BRICK_BYTES: u64 = 512 * (8 + 4) + 512;
const SURVEY: &str = "finding the surface";
const FUSION: &str = "fusing depths";

/// Fuses the training views within a box, or in contracted space without a box, in at most `room` of the host's
/// memory. Each view is drawn twice, so that no view is kept: a first pass finds the bricks near surfaces, a second one
/// fuses the voxels.
pub fn fuse<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    world_box: Option<&WorldBox>,
    focus: &Focus,
    options: &TsdfOptions,
    room: Bytes,
) -> Result<Extracted, ExtractionError> {
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, on_progress: drawn.on_progress };
    let space = match world_box {
        Some(within) => {
            let fitted = within.longest_side() / f64::from(options.resolution());
            Space::in_box(within.low, within.high, options.voxel.unwrap_or(fitted))?
        }
        None => Space::contracted(focus.centre, focus.radius, options.resolution())?,
    };
    let mut place = FusionPlace::Device;
    let begun = Instant::now();
    let survey = place.first_that_fits(
        drawn,
        |drawn| {
            let mut survey = drawn.device.new_survey(space)?;
            drawn.each_frame(SURVEY, |device, frame, seen| {
                device.survey_depths(&mut survey, frame, seen)
            })?;
            Ok(drawn.device.read_survey(survey)?)
        },
        |drawn| {
            let mut survey = Survey::new(space);
            drawn.each(SURVEY, ALL_VIEWS, PixelDepth::Median, |view| {
                Ok(survey.add(&view.depth_view(), &watch)?)
            })?;
            Ok(survey)
        },
    )?;
    let granted = usize::try_from(room.0 / BRICK_BYTES).unwrap_or(usize::MAX);
    let bricks = Arc::new(survey.finish(granted)?);
    tracing::info!(
        "depths of the training views fill {} bricks of 8x8x8 voxels of {:.4}, {:.1} s",
        bricks.len(),
        space.voxel,
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    let fusion = place.first_that_fits(
        drawn,
        |drawn| {
            let mut voxels = drawn.device.new_voxels(&bricks)?;
            drawn.each_frame(FUSION, |device, frame, seen| {
                device.fuse_depths(&mut voxels, frame, seen)
            })?;
            Ok(drawn.device.read_voxels(voxels)?)
        },
        |drawn| {
            let mut fusion = Fusion::new(Arc::clone(&bricks));
            drawn.each(FUSION, ALL_VIEWS, PixelDepth::Median, |view| {
                Ok(fusion.add(&view.depth_view(), &watch)?)
            })?;
            Ok(fusion)
        },
    )?;
    let seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let fused = fusion.surface(&watch)?;
    tracing::info!(
        "depths fused in {seconds:.1} s, {} triangles made of them in {:.1} s",
        fused.mesh.faces.len(),
        begun.elapsed().as_secs_f64()
    );
    let (voxel, bricks, views) = (space.voxel, fused.bricks, fused.views);
    Ok(Extracted::whole(fused.mesh, ExtractionFigures::Tsdf { voxel, bricks, views }))
}

/// Processor that fuses depths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FusionPlace {
    /// The device that draws them.
    Device,
    /// The host, if the device has too little memory.
    Host,
}

impl FusionPlace {
    /// Runs a part of the work on the device. After the first part that exceeds the device's memory, all parts run on
    /// the host.
    fn first_that_fits<D, R>(
        &mut self,
        drawn: &mut D,
        on_device: impl FnOnce(&mut D) -> Result<R, ExtractionError>,
        on_host: impl FnOnce(&mut D) -> Result<R, ExtractionError>,
    ) -> Result<R, ExtractionError> {
        if *self == Self::Device {
            match on_device(drawn) {
                Err(ExtractionError::Device(error)) if error.is_out_of_memory() => {
                    tracing::warn!(
                        "depths are fused on the processor, which takes longer: beside the model the \
                         GPU has no memory for this. {error}"
                    );
                    *self = Self::Host;
                }
                done => return done,
            }
        }
        on_host(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DeviceError;

    #[test]
    fn work_moves_to_the_host_once_the_device_is_full() {
        let full = || DeviceError::OutOfMemory {
            label: "voxels",
            wanted: Bytes(2),
            held: Bytes(0),
            free: Bytes(1),
            largest: Vec::new(),
        };
        let mut place = FusionPlace::Device;
        let on_host = |count: &mut u32| {
            *count += 1;
            Ok("host")
        };
        let mut count = 0;
        let done = place.first_that_fits(&mut count, |_| Ok("device"), on_host);
        assert_eq!((done.ok(), place), (Some("device"), FusionPlace::Device));
        let done = place.first_that_fits(&mut count, |_| Err(full().into()), on_host);
        assert_eq!((done.ok(), place), (Some("host"), FusionPlace::Host));
        let done = place.first_that_fits(&mut count, |_| Ok("device"), on_host);
        assert_eq!((done.ok(), count), (Some("host"), 2));
        let mut place = FusionPlace::Device;
        let broken = || Err(DeviceError::NoDriver.into());
        let done = place.first_that_fits(&mut count, |_| broken(), on_host);
        assert!(matches!(done, Err(ExtractionError::Device(DeviceError::NoDriver))));
        assert_eq!(place, FusionPlace::Device);
    }
}
