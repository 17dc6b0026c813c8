//! Triangle meshes, and surfaces from points, depth maps and tetrahedra.
//!
//! Independent of Gaussians, scene files and devices. In the order of use:
//!
//! | module | from | to |
//! |---|---|---|
//! | [`tsdf`] | depth maps | signed distances on [`bricks`] |
//! | [`points`], [`poisson`] | oriented points | an implicit function on [`bricks`] |
//! | [`cubes`] | a function on bricks | a mesh |
//! | [`free_space`] | places and depth maps | the places in free space |
//! | [`delaunay`], [`tetrahedra`] | points and labels inside or outside | a mesh |
//! | [`restricted`] | loose triangles | a mesh of given points |
//! | [`clean`], [`decimate`] | a mesh | a better or smaller one |
//! | [`atlas`] | a mesh | positions of its faces on a picture |
//! | [`draw`] | a mesh and a camera | a picture |
//! | [`bake`] | a mesh, its atlas and views of it | its texture |
//! | [`compare`], [`search`], [`MeshReport`] | two meshes, one mesh | figures |
//! | [`file`](mod@file) | a mesh | PLY, OBJ, GLB, and back |

pub mod atlas;
pub mod bake;
pub mod bricks;
pub mod clean;
pub mod compare;
pub mod cubes;
pub mod decimate;
pub mod delaunay;
pub mod draw;
mod edges;
pub mod file;
pub mod free_space;
#[cfg(test)]
mod known_meshes;
mod mesh;
pub mod narrow;
pub mod place;
pub mod points;
pub mod poisson;
pub mod random;
mod report;
pub mod restricted;
pub mod search;
pub mod tetrahedra;
pub mod tsdf;

use std::sync::atomic::{AtomicBool, Ordering};

pub use mesh::{Camera, Mesh, MeshError, Vec3, check_mesh, vertex_normals};
pub use report::MeshReport;

/// Error of a computation that the caller stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request. Give the same command again to start over")]
pub struct Stopped;

/// Stop flag and progress of a long computation, which the caller owns.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Flag that the caller sets to stop the computation.
    pub stop: &'a AtomicBool,
    /// Callback for progress: a stage's name and its completed share, 0 to 1.
    pub on_progress: &'a (dyn Fn(&'static str, f64) + Sync),
}

impl Watch<'_> {
    /// Fails if the caller has stopped the computation.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Reports the progress of a stage; fails if the caller has stopped the computation.
    pub fn report(&self, stage: &'static str, share: f64) -> Result<(), Stopped> {
        (self.on_progress)(stage, share);
        self.check()
    }
}
