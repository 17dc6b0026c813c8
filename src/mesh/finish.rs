//! From what an extraction leaves to a mesh that other programs open.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;
use splat_mesh::clean::{
    CleanCounts, CleanError, CleanOptions, Dropped, MinComponent, Sides, clean, drop_small,
    face_centres, keep_faces, peel_border,
};
use splat_mesh::decimate::{DecimateOptions, decimate};
use splat_mesh::file::{Glb, ObjTexture, write_mtl, write_obj, write_ply};
use splat_mesh::{Mesh, MeshReport, vertex_normals};

use super::level_set::OpaqueGaussians;
use super::options::PostprocessOptions;
use super::{ExtractionError, MeshFormat, MeshOptions, MeshTexture};
use crate::dataset::Frame;
use crate::export::write_offset;
use crate::files::{OutputError, write_atomically};
use crate::math::Real;
use crate::math::linalg::Vec3;
use crate::model::Gaussians;

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

// Result of every method.

/// What a method leaves, and how it was made.
#[derive(Clone, Debug)]
pub struct Extracted {
    /// Surfaces that are finished each by itself and do not touch.
    pub surfaces: Vec<Surface>,
    /// How they were made.
    pub figures: ExtractionFigures,
}

impl Extracted {
    /// One surface.
    pub(super) fn whole(mesh: Mesh, figures: ExtractionFigures) -> Self {
        Self { surfaces: vec![Surface { mesh, weight: 1.0 }], figures }
    }
}

/// A surface, world space, with colours.
#[derive(Clone, Debug)]
pub struct Surface {
    /// Its triangles.
    pub mesh: Mesh,
    /// Its part of the triangles that are wanted in all, over the sum of the parts.
    pub weight: f64,
}

/// Figures of a method.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExtractionFigures {
    /// Of fused depths.
    Tsdf {
        /// Side of a voxel: scene units in a box, radii of the cameras in contracted space.
        voxel: f64,
        /// Bricks of 8x8x8 voxels.
        bricks: usize,
        /// Training views.
        views: usize,
    },
    /// Of a surface through points: the box, and then what is around it.
    Poisson(Vec<PoissonFigures>),
    /// Of a surface cut from tetrahedra.
    Tetrahedra {
        /// Points that they span: of the Gaussians, and the corners of a box around all.
        points: usize,
        /// How many there are.
        tetrahedra: usize,
        /// Triangles on edges that were too long.
        dropped: usize,
    },
}

/// Figures of a surface through points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoissonFigures {
    /// Points that it was fitted to.
    pub points: usize,
    /// Points that were left out as outliers.
    pub outliers: usize,
    /// Share of the normals that agree with their neighbours'.
    pub agreement: f64,
    /// 2^depth cells lie along the cube.
    pub depth: u32,
    /// Side of a cell, scene units.
    pub cell: f64,
    /// Triangles that were cut off because the training views look through them.
    pub in_free_space: usize,
    /// Triangles that were cut off because few points are around.
    pub trimmed: usize,
}

// The frayed border of a mesh, taken off where there are few Gaussians, as SuGaR's post-processing does it.

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

// Meshes as files.

/// Which files of a mesh are written.
#[derive(Clone, Copy, Debug)]
pub struct MeshFiles<'a> {
    /// Formats, however often each is named.
    pub formats: &'a [MeshFormat],
    /// Coordinates of the vertices, which the files keep.
    pub frame: &'a Frame,
}

/// Writes `FOLDER/STEM.EXTENSION` for each format, however often it is named, each whole or not at all, a
/// textured OBJ after its MTL and PNG; their paths.
pub fn write_mesh(
    folder: &Path,
    stem: &str,
    files: &MeshFiles<'_>,
    mesh: &Mesh,
    texture: Option<&MeshTexture>,
) -> Result<Vec<PathBuf>, OutputError> {
    let MeshFiles { formats, frame } = *files;
    let path_of = |extension| folder.join(stem).with_extension(extension);
    let png_path = path_of("png");
    let png = texture
        .map(|texture| texture.picture.png())
        .transpose()
        .map_err(|error| OutputError::new(&png_path, error.into()))?;
    let textured = texture.map(|texture| &texture.atlas).zip(png.as_deref());
    let mut written = Vec::new();
    for (place, &format) in formats.iter().enumerate() {
        if formats[..place].contains(&format) {
            continue;
        }
        let path = path_of(format.extension());
        match (format, textured) {
            (MeshFormat::Ply, _) => write_atomically(&path, |out| write_ply(out, mesh))?,
            (MeshFormat::Glb, _) => {
                let refused = |error| OutputError::new(&path, io::Error::other(error));
                let glb = Glb::new(mesh, textured).map_err(refused)?;
                write_atomically(&path, |out| glb.write(out))?;
            }
            (MeshFormat::Obj, None) => write_atomically(&path, |out| write_obj(out, mesh, None))?,
            (MeshFormat::Obj, Some((atlas, png))) => {
                let mtl_path = path_of("mtl");
                write_atomically(&png_path, |out| out.write_all(png))?;
                write_atomically(&mtl_path, |out| write_mtl(out, &format!("{stem}.png")))?;
                let mtl_name = format!("{stem}.mtl");
                let texture = Some(ObjTexture { atlas, mtl_name: &mtl_name });
                write_atomically(&path, |out| write_obj(out, mesh, texture))?;
                written.extend([mtl_path, png_path.clone()]);
            }
        }
        write_offset(&path, frame)?;
        written.push(path);
    }
    Ok(written)
}

/// Converts the vertices of a mesh between coordinates.
pub fn convert_mesh(mesh: &mut Mesh, from: &Frame, to: &Frame) {
    if from != to {
        for vertex in &mut mesh.vertices {
            *vertex = from.to(to, vertex.map(f64::from)).map(Real::to_f32);
        }
    }
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
