//! Cleaning: from what an extraction leaves to a manifold surface that points outwards.

mod components;
mod counts;
mod degenerate;
mod holes;
mod manifold;
mod outward;
mod peel;
mod weld;

pub use components::{Dropped, MinComponent, drop_small};
pub use counts::CleanCounts;
pub use peel::{face_centres, keep_faces, peel_border};

use crate::check::{MeshError, check_mesh};
use crate::mesh::{Mesh, Vec3};
use crate::normals::vertex_normals;
use crate::orient::orient;
use crate::place::{area, corners};
use crate::vertices::compact;

/// Rounds after which cleaning ends, whether or not a further one would find anything.
const MAX_ROUNDS: usize = 3;

/// Which side of a component becomes the outer one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sides<'a> {
    /// That of most of its area.
    Kept,
    /// The one that cameras see, whose places in world space these are; of a closed component that
    /// none sees, the one away from what it encloses. There need not be a camera.
    Outward(&'a [Vec3]),
}

/// What cleaning may remove and add.
#[derive(Clone, Copy, Debug)]
pub struct CleanOptions<'a> {
    /// The smallest component that stays.
    pub min_component: MinComponent,
    /// Which side of a component is the outer one.
    pub sides: Sides<'a>,
    /// Boundaries of at most so many edges are closed.
    pub fill_hole_edges: usize,
}

impl Default for CleanOptions<'_> {
    fn default() -> Self {
        let min_component = MinComponent::FaceShare(0.001);
        Self { min_component, sides: Sides::Outward(&[]), fill_hole_edges: 0 }
    }
}

/// Why there is no clean mesh.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CleanError {
    /// It was no mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A step removed all that there was.
    #[error(
        "nothing is left after {step}: {faces} faces of {vertices} vertices came to it. Extract a \
         finer surface, or let smaller components stay"
    )]
    NothingLeft {
        /// The step.
        step: &'static str,
        /// Faces before it.
        faces: usize,
        /// Vertices before it.
        vertices: usize,
    },
    /// Decimation removed all that there was.
    #[error(
        "zero triangles are left of {faces}: the surface has no form of {target} or fewer. Decimate it to \
         more"
    )]
    DecimatedAway {
        /// Faces before it.
        faces: usize,
        /// Faces that were asked for, at most.
        target: usize,
    },
}

/// Cleans a mesh: equal places become one vertex, slivers and doubled faces go, edges of more than two
/// faces and vertices of more than one fan are taken apart, small components go, faces are turned
/// outwards, small holes closed, unused vertices dropped. All but the first step are repeated until
/// they find nothing, at most three times.
///
/// Normals are computed anew where faces were turned over.
pub fn clean(
    mut mesh: Mesh,
    options: &CleanOptions<'_>,
) -> Result<(Mesh, CleanCounts), CleanError> {
    check_mesh(&mesh)?;
    // Once only: the vertices that later steps part lie at one place.
    let equal_vertices = weld::weld(&mut mesh);
    let mut counts = CleanCounts { equal_vertices, ..CleanCounts::default() };
    for _ in 0..MAX_ROUNDS {
        let before = counts.clone();
        round(&mut mesh, options, &mut counts)?;
        if counts.changes() == before.changes() {
            break;
        }
    }
    counts.unused_vertices = compact(&mut mesh);
    if counts.turned_faces > 0 && !mesh.normals.is_empty() {
        mesh.normals = vertex_normals(&mesh);
    }
    Ok((mesh, counts))
}

fn round(
    mesh: &mut Mesh,
    options: &CleanOptions<'_>,
    counts: &mut CleanCounts,
) -> Result<(), CleanError> {
    counts.rounds += 1;
    let came = (mesh.faces.len(), mesh.vertices.len());
    let left = |mesh: &Mesh, step| {
        let (faces, vertices) = came;
        if mesh.faces.is_empty() {
            return Err(CleanError::NothingLeft { step, faces, vertices });
        }
        Ok(())
    };
    left(mesh, "extraction")?;
    counts.degenerate_faces += degenerate::repair(mesh);
    left(mesh, "the removal of faces without area")?;
    counts.duplicate_faces += weld::drop_duplicate_faces(mesh);
    let parted = manifold::separate(mesh);
    counts.nonmanifold_edges += parted.edges;
    counts.split_vertices += parted.vertices;
    let dropped = drop_small(mesh, options.min_component);
    counts.small_components += dropped.components;
    counts.component_faces += dropped.faces;
    left(mesh, "the removal of small components")?;
    let areas: Vec<f64> = mesh.faces.iter().map(|&face| area(corners(mesh, face))).collect();
    let oriented = orient(&mut mesh.faces, &areas);
    let turned = match options.sides {
        Sides::Kept => vec![false; oriented.components.len()],
        Sides::Outward(cameras) => outward::turn_outward(mesh, &oriented, cameras)?,
    };
    counts.turned_faces += oriented.turned_and(&turned);
    counts.one_sided_edges = oriented.conflicts;
    let filled = holes::fill(mesh, options.fill_hole_edges);
    counts.filled_holes += filled.holes;
    counts.added_faces += filled.faces;
    Ok(())
}

#[cfg(test)]
mod tests;
