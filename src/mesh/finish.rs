//! From what an extraction leaves to a mesh that other programs open.

use std::time::Instant;

use serde::Serialize;
use splat_mesh::clean::{CleanCounts, CleanOptions, Sides, clean};
use splat_mesh::decimate::{DecimateOptions, decimate};
use splat_mesh::{Mesh, MeshReport, vertex_normals};

use super::{ExtractionError, MeshOptions, Surface};
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
    /// What cleaning found, for each surface.
    pub cleaned: Vec<CleanCounts>,
    /// Triangles before decimation; none where there were few enough.
    pub decimated_from: Option<usize>,
    /// Seconds that it took.
    pub seconds: StepSeconds,
}

/// Seconds of the steps after the extraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepSeconds {
    /// Cleaning.
    pub cleaning: f64,
    /// Decimation.
    pub decimation: f64,
}

/// Cleans surfaces that cameras at `eyes` (world space) have seen, decimates them, each to its part of
/// the target, joins them and gives them normals.
pub fn finish(
    surfaces: Vec<Surface>,
    eyes: &[Vec3<f64>],
    options: &MeshOptions,
) -> Result<Finished, ExtractionError> {
    let extracted = surfaces.iter().map(|surface| surface.mesh.faces.len()).sum();
    let (mut seconds, mut cleaned) = (StepSeconds::default(), Vec::new());
    let cleaning = CleanOptions {
        min_component: options.min_component.0,
        sides: Sides::Outward(eyes),
        fill_hole_edges: options.fill_holes,
    };
    let mut parts = Vec::new();
    for Surface { mesh, weight } in surfaces {
        let (mesh, counts) = timed(&mut seconds.cleaning, || clean(mesh, &cleaning))?;
        cleaned.push(counts);
        parts.push(Surface { mesh, weight });
    }
    let clean_faces = parts.iter().map(|part| part.mesh.faces.len()).sum();
    let targets = targets(&parts, options.decimation_target);
    let mut mesh = Mesh::default();
    for (part, target) in parts.into_iter().zip(targets) {
        let smaller = match target {
            Some(target) => timed(&mut seconds.decimation, || decimated(part.mesh, target))?,
            None => part.mesh,
        };
        append(&mut mesh, smaller);
    }
    let is_decimated = mesh.faces.len() < clean_faces;
    if options.decimation_target > 0 && mesh.faces.len() > options.decimation_target {
        tracing::warn!(
            "the mesh keeps {} triangles, above --decimation-target {}: the surface allows no fewer",
            mesh.faces.len(),
            options.decimation_target
        );
    }
    mesh.normals = vertex_normals(&mesh);
    let report = MeshReport::of(&mesh).map_err(splat_mesh::clean::CleanError::from)?;
    let decimated_from = is_decimated.then_some(clean_faces);
    let work = FinishingWork { extracted, cleaned, decimated_from, seconds };
    Ok(Finished { mesh, work, report })
}

/// How far each surface is decimated, if at all: those with fewer triangles than their part leave the
/// rest to the others.
fn targets(surfaces: &[Surface], target: usize) -> Vec<Option<usize>> {
    let faces = |surface: &Surface| surface.mesh.faces.len();
    let mut targets = vec![None; surfaces.len()];
    if target == 0 || surfaces.iter().map(faces).sum::<usize>() <= target {
        return targets;
    }
    let (mut left, mut open) = (target, (0..surfaces.len()).collect::<Vec<_>>());
    loop {
        let weights: f64 = open.iter().map(|&index| surfaces[index].weight).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most `left`"
        )]
        let part = |index: usize| (left as f64 * surfaces[index].weight / weights) as usize;
        let (small, large): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&index| faces(&surfaces[index]) <= part(index));
        if small.is_empty() {
            for index in large {
                targets[index] = Some(part(index));
            }
            return targets;
        }
        left -= small.iter().map(|&index| faces(&surfaces[index])).sum::<usize>();
        open = large;
    }
}

fn decimated(mesh: Mesh, target: usize) -> Result<Mesh, ExtractionError> {
    Ok(decimate(mesh, &DecimateOptions::to(target))?.0)
}

/// Adds the seconds that a step takes.
fn timed<T>(seconds: &mut f64, step: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = step();
    *seconds += started.elapsed().as_secs_f64();
    done
}

/// Adds a mesh without joining it.
fn append(mesh: &mut Mesh, other: Mesh) {
    let first = u32::try_from(mesh.vertices.len()).unwrap_or(u32::MAX);
    mesh.faces.extend(other.faces.iter().map(|face| face.map(|vertex| vertex + first)));
    mesh.vertices.extend(other.vertices);
    mesh.colors.extend(other.colors);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(faces: usize, weight: f64) -> Surface {
        Surface { mesh: Mesh { faces: vec![[0, 1, 2]; faces], ..Mesh::default() }, weight }
    }

    #[test]
    fn triangles_are_parted_by_weight_and_the_small_leave_theirs() {
        let of = |surfaces: &[Surface], target| targets(surfaces, target);
        assert_eq!(of(&[surface(900, 3.0), surface(900, 1.0)], 400), [Some(300), Some(100)]);
        assert_eq!(of(&[surface(900, 3.0), surface(50, 1.0)], 400), [Some(350), None]);
        assert_eq!(of(&[surface(900, 3.0), surface(900, 1.0)], 1800), [None, None]);
        assert_eq!(of(&[surface(900, 3.0)], 0), [None]);
        assert_eq!(of(&[surface(900, 0.0), surface(10, 1.0)], 500), [Some(490), None]);
    }
}
