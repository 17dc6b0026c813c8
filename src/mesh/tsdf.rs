//! Truncated signed distances: the depths of all training views in one lattice (Curless and Levoy 1996;
//! after training as 2D Gaussian Splatting does it, Huang et al. 2024).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use splat_mesh::tsdf::{Fusion, Space, Survey};
use splat_mesh::watch::Watch;

use super::drawn::PixelDepth;
use super::extracted::{Extracted, ExtractionFigures};
use super::options::TsdfOptions;
use super::{DrawnModel, ExtractionError, Focus, WorldBox};
use crate::backend::TrainDevice;
use crate::memory::Bytes;

/// Host memory of a brick of 512 voxels: distances, weights and colours, their means while the surface is
/// extracted, the key, neighbours and directions.
pub(super) const BRICK_BYTES: u64 = 512 * (8 + 4) + 512;

/// Fuses the training views within a box, or in all of the world where there is none, in at most
/// `room` of the host's memory. Each view is drawn twice, so that none is kept.
pub fn fuse<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    world_box: Option<&WorldBox>,
    focus: &Focus,
    options: &TsdfOptions,
    room: Bytes,
) -> Result<Extracted, ExtractionError> {
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| {} };
    let space = match world_box {
        Some(WorldBox { low, high }) => {
            let voxel = options.voxel.unwrap_or_else(|| {
                world_box.map_or(0.0, WorldBox::longest_side) / f64::from(options.mesh_resolution)
            });
            Space::in_box(*low, *high, voxel)?
        }
        None => Space::contracted(focus.centre, focus.radius, options.mesh_resolution)?,
    };
    let mut survey = Survey::new(space);
    drawn.each(PixelDepth::Median, |view| Ok(survey.add(&view.depth_view(), &watch)?))?;
    let granted = usize::try_from(room.0 / BRICK_BYTES).unwrap_or(usize::MAX);
    let bricks = Arc::new(survey.finish(granted)?);
    tracing::info!(
        "depths of the training views fill {} bricks of 8x8x8 voxels of {:.4}",
        bricks.len(),
        space.voxel()
    );
    let mut fusion = Fusion::new(bricks);
    drawn.each(PixelDepth::Median, |view| Ok(fusion.add(&view.depth_view(), &watch)?))?;
    let fused = fusion.surface(&watch)?;
    let (voxel, bricks, views) = (space.voxel(), fused.bricks, fused.views);
    Ok(Extracted::whole(fused.mesh, ExtractionFigures::Tsdf { voxel, bricks, views }))
}
