//! From what an extraction leaves to a mesh that other programs open.

use std::time::Instant;

use serde::Serialize;
use splat_mesh::clean::{
    CleanCounts, CleanError, CleanOptions, Dropped, MinComponent, Sides, clean, drop_small,
};
use splat_mesh::decimate::{DecimateOptions, decimate};
use splat_mesh::{Mesh, MeshReport, vertex_normals};

use super::{ExtractionError, MeshOptions, Surface};
use crate::math::linalg::Vec3;

/// Fewest triangles of a piece of a decimated surface.
const CRUMB_FACES: usize = 10;

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
    /// Pieces that were too small.
    pub dropped: Dropped,
    /// What cleaning found after that, for each surface.
    pub cleaned: Vec<CleanCounts>,
    /// Triangles before decimation; none where there were few enough.
    pub decimated_from: Option<usize>,
    /// Triangles that --postprocess-mesh took off the border.
    pub peeled: usize,
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

/// Drops small pieces, decimates surfaces that cameras at `eyes` (world space) have seen, each to its part
/// of the target, cleans and joins them and gives them normals.
pub fn finish(
    mut surfaces: Vec<Surface>,
    eyes: &[Vec3<f64>],
    options: &MeshOptions,
) -> Result<Finished, ExtractionError> {
    let MeshOptions { decimation_target, fill_holes, .. } = *options;
    let min_component = options.least_component().0;
    let faces = |surfaces: &[Surface]| surfaces.iter().map(|it| it.mesh.faces.len()).sum::<usize>();
    let extracted = faces(&surfaces);
    let (mut seconds, mut dropped, mut cleaned) =
        (StepSeconds::default(), Dropped::default(), Vec::new());
    for surface in &mut surfaces {
        // Before decimation, which would spend triangles on them.
        let small = timed(&mut seconds.cleaning, || drop_small(&mut surface.mesh, min_component));
        dropped.components += small.components;
        dropped.faces += small.faces;
    }
    let wanted = faces(&surfaces);
    if wanted == 0 && extracted > 0 {
        let min_component = options.least_component().to_string();
        return Err(ExtractionError::NothingLeft { faces: extracted, min_component });
    }
    surfaces.retain(|surface| extracted == 0 || !surface.mesh.faces.is_empty());
    let (mut mesh, mut decimated_away) = (Mesh::default(), Vec::new());
    for (surface, target) in targets(surfaces, decimation_target) {
        let faces = surface.mesh.faces.len();
        let min_component = if target.is_some() { crumbs(min_component) } else { min_component };
        let cleaning = CleanOptions {
            min_component,
            sides: Sides::Outward(eyes),
            fill_hole_edges: fill_holes,
        };
        let smaller = match target {
            Some(target) => timed(&mut seconds.decimation, || decimated(surface.mesh, target)),
            None => Ok(surface.mesh),
        };
        let cleaned_up =
            smaller.and_then(|mesh| timed(&mut seconds.cleaning, || clean(mesh, &cleaning)));
        match (cleaned_up, target) {
            (Ok((surface, counts)), _) => {
                cleaned.push(counts);
                append(&mut mesh, surface);
            }
            // What is left of another surface is worth more than nothing.
            (
                Err(CleanError::DecimatedAway { .. } | CleanError::NothingLeft { .. }),
                Some(target),
            ) => {
                decimated_away.push((faces, target));
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    if mesh.faces.is_empty() && !decimated_away.is_empty() {
        return Err(ExtractionError::DecimatedAway { faces: wanted, target: decimation_target });
    }
    for (faces, target) in decimated_away {
        tracing::warn!(
            "a surface of {faces} triangles is left out: it has no form of {target} or fewer, its part of \
             --decimation-target {decimation_target}"
        );
    }
    if decimation_target > 0 && mesh.faces.len() > decimation_target {
        tracing::warn!(
            "the mesh keeps {} triangles, above --decimation-target {decimation_target}: the surface \
             allows no fewer",
            mesh.faces.len(),
        );
    }
    mesh.normals = vertex_normals(&mesh);
    let report = MeshReport::of(&mesh).map_err(CleanError::from)?;
    let decimated_from = (decimation_target > 0 && wanted > decimation_target).then_some(wanted);
    let work = FinishingWork { extracted, dropped, cleaned, decimated_from, peeled: 0, seconds };
    Ok(Finished { mesh, work, report })
}

/// The smallest piece that stays of a decimated surface: decimation tears off some of a few triangles.
fn crumbs(asked: MinComponent) -> MinComponent {
    match asked {
        MinComponent::Faces(0) => asked,
        _ => MinComponent::Faces(CRUMB_FACES),
    }
}

/// The surfaces, and how far each is decimated, if at all: those with fewer triangles than their part leave
/// the rest to the others.
fn targets(surfaces: Vec<Surface>, target: usize) -> Vec<(Surface, Option<usize>)> {
    let faces: Vec<usize> = surfaces.iter().map(|surface| surface.mesh.faces.len()).collect();
    let weights: Vec<f64> = surfaces.iter().map(|surface| surface.weight).collect();
    surfaces.into_iter().zip(parted(&faces, &weights, target)).collect()
}

fn parted(faces: &[usize], weights: &[f64], target: usize) -> Vec<Option<usize>> {
    let mut targets = vec![None; faces.len()];
    if target == 0 || faces.iter().sum::<usize>() <= target {
        return targets;
    }
    let (mut left, mut open) = (target, (0..faces.len()).collect::<Vec<_>>());
    loop {
        let all: f64 = open.iter().map(|&index| weights[index]).sum();
        let share =
            |index: usize| if all > 0.0 { weights[index] / all } else { 1.0 / open.len() as f64 };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most `left`"
        )]
        let part = |index: usize| ((left as f64 * share(index)) as usize).max(1);
        let (small, large): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&index| faces[index] <= part(index));
        if small.is_empty() {
            for index in large {
                targets[index] = Some(part(index));
            }
            return targets;
        }
        left -= small.iter().map(|&index| faces[index]).sum::<usize>();
        open = large;
    }
}

fn decimated(mesh: Mesh, target: usize) -> Result<Mesh, CleanError> {
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

    #[test]
    fn triangles_are_parted_by_weight_and_the_small_leave_theirs() {
        assert_eq!(parted(&[900, 900], &[3.0, 1.0], 400), [Some(300), Some(100)]);
        assert_eq!(parted(&[900, 50], &[3.0, 1.0], 400), [Some(350), None]);
        assert_eq!(parted(&[900, 900], &[3.0, 1.0], 1800), [None, None]);
        assert_eq!(parted(&[900], &[3.0], 0), [None]);
        assert_eq!(parted(&[900, 10], &[0.0, 1.0], 500), [Some(490), None]);
    }

    /// A flat sheet of so many squares along each side.
    fn sheet(squares: u16) -> Mesh {
        let side = u32::from(squares) + 1;
        let places = (0..=squares).flat_map(|y| (0..=squares).map(move |x| [x, y]));
        let faces = (0..side - 1).flat_map(|y| (0..side - 1).map(move |x| y * side + x));
        Mesh {
            vertices: places.map(|[x, y]| [f32::from(x), f32::from(y), 0.0]).collect(),
            faces: faces
                .flat_map(|at| [[at, at + 1, at + side], [at + 1, at + side + 1, at + side]])
                .collect(),
            ..Mesh::default()
        }
    }

    #[test]
    fn a_surface_that_is_decimated_away_does_not_take_others_with_it() {
        let surface = |squares: u16, weight: f64| Surface { mesh: sheet(squares), weight };
        let options = MeshOptions { decimation_target: 300, ..MeshOptions::default() };
        let eyes = [[0.0, 0.0, 9.0]];
        let finished = finish(vec![surface(20, 1.0), surface(3, 0.0)], &eyes, &options).unwrap();
        let faces = finished.mesh.faces.len();
        assert!((100..=300).contains(&faces) && finished.report.components == 1, "{faces}");
        let options = MeshOptions { decimation_target: 2, ..options };
        let error = finish(vec![surface(20, 1.0)], &eyes, &options).unwrap_err();
        let expected = ExtractionError::DecimatedAway { faces: 800, target: 2 };
        assert_eq!(error.to_string(), expected.to_string());
    }
}
