//! What closes a surface through free space: a closed surface through points goes on where there are none, and
//! hides there what is behind from the cameras.

use rayon::prelude::*;
use splat_mesh::free_space::SightVotes;
use splat_mesh::place::Bounds;
use splat_mesh::points::have_points_within;

use super::fitted::FittedSurface;
use super::{DrawnModel, ExtractionError, WorldBox};
use crate::backend::{PixelDepth, TrainDevice};

/// Cells from a surface up to which a place is on it: the finest cells blur it by two or three.
const MARGIN_CELLS: f64 = 4.0;

/// Cells to the nearest point beyond which a vertex closes the surface through free space. A nearer one closes
/// a small hole between points, which looks better closed.
const FAR_CELLS: f64 = 8.0;

/// Points a cell below which a vertex can be far from all.
const SPARSE: f32 = 0.5;

/// Which vertices of each surface are far from all points, and looked through by more training views than
/// show them, at what is in the box `meshed` or at nothing.
pub(super) fn in_free_space<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    surfaces: &[FittedSurface],
    meshed: &WorldBox,
) -> Result<Vec<Vec<bool>>, ExtractionError> {
    let meshed = Bounds { low: meshed.low, high: meshed.high };
    let far: Vec<FarVertices> = surfaces.iter().map(FarVertices::of).collect();
    let mut votes: Vec<SightVotes<'_>> = far
        .iter()
        .zip(surfaces)
        .map(|(far, FittedSurface { figures, .. })| {
            SightVotes::new(&far.places, MARGIN_CELLS * figures.cell, meshed)
        })
        .collect();
    drawn.each("finding free space", PixelDepth::Median, |view| {
        votes.iter_mut().for_each(|votes| votes.add(&view.depth_view()));
        Ok(())
    })?;
    let of_surface = |((votes, far), fitted): ((&SightVotes<'_>, &FarVertices), &FittedSurface)| {
        let mut free = vec![false; fitted.densities.len()];
        for (&row, is_free) in far.rows.iter().zip(votes.is_free()) {
            free[row] = is_free;
        }
        free
    };
    Ok(votes.iter().zip(&far).zip(surfaces).map(of_surface).collect())
}

/// The vertices of a surface that are far from its points.
struct FarVertices {
    rows: Vec<usize>,
    /// World space.
    places: Vec<[f32; 3]>,
}

impl FarVertices {
    fn of(FittedSurface { surface, densities, points, figures }: &FittedSurface) -> Self {
        let vertices = &surface.mesh.vertices;
        // Only where the cells have no points the nearest can be far.
        let sparse: Vec<usize> =
            (0..vertices.len()).filter(|&row| densities[row] < SPARSE).collect();
        let places: Vec<[f32; 3]> = sparse.iter().map(|&row| vertices[row]).collect();
        let is_near = have_points_within(points, &places, FAR_CELLS * figures.cell);
        let (rows, places) = sparse
            .into_par_iter()
            .zip(places)
            .zip(is_near)
            .filter(|&(_, is_near)| !is_near)
            .map(|(vertex, _)| vertex)
            .unzip();
        Self { rows, places }
    }
}
