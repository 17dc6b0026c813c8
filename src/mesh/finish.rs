//! Cleaning, decimation, post-processing and export of extracted surfaces.

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
use splat_mesh::narrow::floor_usize;
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

/// Minimum triangles of a component after decimation.
const MIN_DECIMATED_FACES: usize = 10;

/// A clean mesh of the wanted size.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The mesh, with normals.
    pub mesh: Mesh,
    /// Counts of the steps.
    pub work: FinishingWork,
    /// Topology of the surface.
    pub report: MeshReport,
}

/// Counts of cleaning and decimation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FinishingWork {
    /// Triangles of the extraction.
    pub extracted: usize,
    /// Components that were too small.
    pub dropped: Dropped,
    /// Counts of cleaning, for each surface.
    pub cleaned: Vec<CleanCounts>,
    /// Triangles before decimation; `None` without decimation.
    pub decimated_from: Option<usize>,
    /// Triangles that --postprocess-mesh removed from the border.
    pub peeled: usize,
    /// Seconds of the steps.
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

/// Drops small components, decimates each surface to its share of the target, cleans and merges the surfaces and adds
/// normals. Faces are oriented towards the cameras at `eyes` (world space).
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
        // Before decimation, which would spend triangles on small components.
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
    let all_faces: Vec<usize> = surfaces.iter().map(|it| it.mesh.faces.len()).collect();
    let weights: Vec<f64> = surfaces.iter().map(|it| it.weight).collect();
    let targets = divided(&all_faces, &weights, decimation_target);
    for (surface, target) in surfaces.into_iter().zip(targets) {
        let faces = surface.mesh.faces.len();
        let min_component = match min_component {
            MinComponent::Faces(0) => min_component,
            // Decimation tears off components of a few triangles.
            _ if target.is_some() => MinComponent::Faces(MIN_DECIMATED_FACES),
            _ => min_component,
        };
        let sides = Sides::Outward(eyes);
        let cleaning = CleanOptions { min_component, sides, fill_hole_edges: fill_holes };
        let smaller: Result<Mesh, CleanError> = match target {
            Some(target) => timed(&mut seconds.decimation, || {
                Ok(decimate(surface.mesh, &DecimateOptions::to(target))?.0)
            }),
            None => Ok(surface.mesh),
        };
        let is_gone = |error: &CleanError| {
            matches!(error, CleanError::DecimatedAway { .. } | CleanError::NothingLeft { .. })
        };
        let clean_up = |mesh| timed(&mut seconds.cleaning, || clean(mesh, &cleaning));
        match (smaller.and_then(clean_up), target) {
            (Ok((surface, counts)), _) => {
                cleaned.push(counts);
                append(&mut mesh, surface);
            }
            // Other surfaces are kept if one is decimated away.
            (Err(error), Some(target)) if is_gone(&error) => decimated_away.push((faces, target)),
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

/// Divides a target of triangles among surfaces; `None` without decimation. Surfaces below their share leave the rest
/// to the others.
fn divided(faces: &[usize], weights: &[f64], target: usize) -> Vec<Option<usize>> {
    let mut targets = vec![None; faces.len()];
    if target == 0 || faces.iter().sum::<usize>() <= target {
        return targets;
    }
    let (mut left, mut open) = (target, (0..faces.len()).collect::<Vec<_>>());
    loop {
        let all: f64 = open.iter().map(|&index| weights[index]).sum();
        let share =
            |index: usize| if all > 0.0 { weights[index] / all } else { 1.0 / open.len() as f64 };
        let part = |index: usize| floor_usize(left as f64 * share(index)).max(1);
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

/// Adds the seconds that a step takes.
fn timed<T>(seconds: &mut f64, step: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = step();
    *seconds += started.elapsed().as_secs_f64();
    done
}

fn append(mesh: &mut Mesh, other: Mesh) {
    let first = u32::try_from(mesh.vertices.len()).unwrap_or(u32::MAX);
    mesh.faces.extend(other.faces.iter().map(|face| face.map(|vertex| vertex + first)));
    mesh.vertices.extend(other.vertices);
    mesh.colors.extend(other.colors);
}

/// Surfaces of a method, and figures of the extraction.
#[derive(Clone, Debug)]
pub struct Extracted {
    /// Surfaces that are finished separately and do not touch.
    pub surfaces: Vec<Surface>,
    /// Figures of the extraction.
    pub figures: ExtractionFigures,
}

impl Extracted {
    /// Returns the result of a method with one surface.
    pub(super) fn whole(mesh: Mesh, figures: ExtractionFigures) -> Self {
        Self { surfaces: vec![Surface { mesh, weight: 1.0 }], figures }
    }
}

/// A surface, world space, with colours.
#[derive(Clone, Debug)]
pub struct Surface {
    /// Triangles of the surface.
    pub mesh: Mesh,
    /// Weight of the surface when the target number of triangles is divided.
    pub weight: f64,
}

/// Figures of a method.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExtractionFigures {
    /// Figures of fused depths.
    Tsdf {
        /// Side of a voxel: scene units in a box, radii of the cameras in contracted space.
        voxel: f64,
        /// Bricks of 8x8x8 voxels.
        bricks: usize,
        /// Training views.
        views: usize,
    },
    /// Figures of the surface in the box, then of the surface around the box.
    Poisson(Vec<PoissonFigures>),
    /// Figures of a surface cut from tetrahedra.
    Tetrahedra {
        /// Points of the Gaussians, and the corners of a bounding box.
        points: usize,
        /// Number of tetrahedra.
        tetrahedra: usize,
        /// Triangles on edges that were too long.
        dropped: usize,
    },
}

/// Figures of a Poisson surface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoissonFigures {
    /// Points of the fit.
    pub points: usize,
    /// Outliers that were removed.
    pub outliers: usize,
    /// Share of the normals that agree with the normals of their neighbours.
    pub agreement: f64,
    /// Octree depth: 2^depth cells along the cube.
    pub depth: u32,
    /// Side of a cell, scene units.
    pub cell: f64,
    /// Triangles that were cut off because training views see through them.
    pub in_free_space: usize,
    /// Triangles that were cut off because few points are nearby.
    pub trimmed: usize,
}

/// Peels the border of a mesh, ring by ring. Triangles with a high density of Gaussians at their centre stay. A
/// closed mesh does not change.
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
    let opaque = OpaqueGaussians::of(gaussians)?;
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

/// Options of the files of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct MeshFiles<'a> {
    /// Formats, duplicates allowed.
    pub formats: &'a [MeshFormat],
    /// Frame of the vertices, which is stored with the files.
    pub frame: &'a Frame,
}

/// Writes `FOLDER/STEM.EXTENSION` once for each format, atomically, and returns the paths. A textured OBJ follows its
/// MTL and PNG.
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
    fn triangles_are_divided_by_weight_and_small_surfaces_leave_the_rest() {
        assert_eq!(divided(&[900, 900], &[3.0, 1.0], 400), [Some(300), Some(100)]);
        assert_eq!(divided(&[900, 50], &[3.0, 1.0], 400), [Some(350), None]);
        assert_eq!(divided(&[900, 900], &[3.0, 1.0], 1800), [None, None]);
        assert_eq!(divided(&[900], &[3.0], 0), [None]);
        assert_eq!(divided(&[900, 10], &[0.0, 1.0], 500), [Some(490), None]);
    }

    /// Returns a flat sheet with this number of squares along each side.
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
    fn a_surface_that_is_decimated_away_leaves_the_others() {
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
