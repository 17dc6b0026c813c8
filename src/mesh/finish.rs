//! From what an extraction leaves to a mesh that other programs open.

use serde::Serialize;
use splat_mesh::clean::{CleanCounts, CleanError, CleanOptions, Sides, clean};
use splat_mesh::decimate::{DecimateOptions, decimate};
use splat_mesh::{Mesh, MeshReport, vertex_normals};

use super::{ExtractionError, MeshOptions};
use crate::math::linalg::Vec3;

/// A clean mesh of the wanted size.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The mesh, with normals.
    pub mesh: Mesh,
    /// What was done to it.
    pub work: FinishingWork,
    /// What kind of surface it is.
    pub report: MeshReport,
}

/// What cleaning and decimation did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FinishingWork {
    /// Triangles that the method made.
    pub extracted: usize,
    /// What cleaning found.
    pub cleaned: CleanCounts,
    /// Triangles before decimation; none where there were few enough.
    pub decimated_from: Option<usize>,
}

/// Cleans a surface that cameras at `eyes` (world space) have seen, decimates it and gives it normals.
pub fn finish(
    mesh: Mesh,
    eyes: &[Vec3<f64>],
    options: &MeshOptions,
) -> Result<Finished, ExtractionError> {
    let extracted = mesh.faces.len();
    let cleaning = CleanOptions {
        min_component: options.min_component.0,
        sides: Sides::Outward(eyes),
        fill_hole_edges: options.fill_holes,
    };
    let (mut mesh, cleaned) = clean(mesh, &cleaning).map_err(|error| match error {
        CleanError::NothingLeft { faces, .. } if faces > 0 => {
            ExtractionError::NothingLeft { faces, min_component: options.min_component }
        }
        other => other.into(),
    })?;
    let mut decimated_from = None;
    if options.decimation_target > 0 && mesh.faces.len() > options.decimation_target {
        decimated_from = Some(mesh.faces.len());
        let (smaller, decimated) = decimate(mesh, &DecimateOptions::to(options.decimation_target))?;
        if decimated.faces > options.decimation_target {
            tracing::warn!(
                "the mesh keeps {} triangles, above --decimation-target {}: the surface allows no \
                 fewer",
                decimated.faces,
                options.decimation_target
            );
        }
        mesh = smaller;
    }
    mesh.normals = vertex_normals(&mesh);
    let report = MeshReport::of(&mesh).map_err(CleanError::from)?;
    Ok(Finished { mesh, work: FinishingWork { extracted, cleaned, decimated_from }, report })
}
