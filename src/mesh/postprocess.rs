//! The frayed border of a mesh, taken off where there are few Gaussians, as SuGaR's post-processing does it.

use rayon::prelude::*;
use splat_mesh::clean::{CleanError, face_centres, keep_faces, peel_border};
use splat_mesh::{MeshReport, vertex_normals};

use super::level_set::OpaqueGaussians;
use super::postprocess_options::PostprocessOptions;
use super::{ExtractionError, Finished};
use crate::model::Gaussians;

/// Takes triangles off the border of a mesh, ring by ring, but for those in whose middle the density of the
/// Gaussians is high; a closed mesh stays as it is.
pub fn postprocess(
    finished: Finished,
    gaussians: &Gaussians,
    options: &PostprocessOptions,
) -> Result<Finished, ExtractionError> {
    if !options.postprocess_mesh {
        return Ok(finished);
    }
    let Finished { mesh, mut work, .. } = finished;
    let mut stays = peel_border(&mesh, options.postprocess_iterations as usize);
    let Some(opaque) = OpaqueGaussians::of(gaussians) else {
        return Err(ExtractionError::TooManyGaussians { found: gaussians.len() });
    };
    let centres = face_centres(&mesh);
    stays.par_iter_mut().zip(&centres).for_each_init(Vec::new, |kernels, (stays, &centre)| {
        let threshold = options.postprocess_density_threshold;
        *stays = *stays || f64::from(opaque.density(centre, kernels)) > threshold;
    });
    let faces = mesh.faces.len();
    let mut mesh = keep_faces(mesh, &stays);
    if mesh.faces.is_empty() {
        return Err(ExtractionError::PeeledAway { faces });
    }
    work.peeled = faces - mesh.faces.len();
    mesh.normals = vertex_normals(&mesh);
    let report = MeshReport::of(&mesh).map_err(CleanError::from)?;
    Ok(Finished { mesh, work, report })
}
