//! Truncated signed distances: the depths of all training views in one lattice (Curless and Levoy 1996;
//! after training as 2D Gaussian Splatting does it, Huang et al. 2024).

use std::sync::atomic::AtomicBool;

use splat_mesh::Mesh;
use splat_mesh::tsdf::{Space, Survey};
use splat_mesh::watch::Watch;

use super::{DrawnModel, ExtractionError, Focus, MeshOptions, Region};
use crate::backend::TrainDevice;
use crate::memory::Bytes;

/// Host memory of a brick of 512 voxels: distances, weights and colours, their means while the surface is
/// extracted, the key, neighbours and directions.
const BRICK_BYTES: u64 = 512 * (8 + 4) + 512;

/// A surface, and what it was made in.
#[derive(Clone, Debug)]
pub struct FusedSurface {
    /// The surface, world space, with colours.
    pub mesh: Mesh,
    /// Side of a voxel: scene units in a box, `radius` of the focus in contracted space.
    pub voxel: f64,
    /// Bricks of 8³ voxels.
    pub bricks: usize,
    /// Views that were fused.
    pub views: usize,
}

/// Fuses the training views within a region, or in all of the world where there is none, in at most
/// `room` of the host's memory. Each view is drawn twice, so that none is kept.
pub fn fuse<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    region: Option<&Region>,
    focus: &Focus,
    options: &MeshOptions,
    room: Bytes,
) -> Result<FusedSurface, ExtractionError> {
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| {} };
    let space = match region {
        Some(Region { low, high }) => {
            let voxel = options.voxel.unwrap_or_else(|| {
                region.map_or(0.0, Region::longest_side) / f64::from(options.mesh_resolution)
            });
            Space::in_box(*low, *high, voxel)?
        }
        None => Space::contracted(focus.centre, focus.radius, options.mesh_resolution)?,
    };
    let mut survey = Survey::new(space);
    drawn.each(|view| Ok(survey.add(&view.depth_view(), &watch)?))?;
    let granted = usize::try_from(room.0 / BRICK_BYTES).unwrap_or(usize::MAX);
    let mut fusion = survey.finish(granted)?;
    tracing::info!(
        "depths of the training views fill {} bricks of 8x8x8 voxels of {:.4}",
        fusion.bricks(),
        space.voxel()
    );
    drawn.each(|view| Ok(fusion.add(&view.depth_view(), &watch)?))?;
    let fused = fusion.surface(&watch)?;
    Ok(FusedSurface {
        mesh: fused.mesh,
        voxel: space.voxel(),
        bricks: fused.bricks,
        views: fused.views,
    })
}
