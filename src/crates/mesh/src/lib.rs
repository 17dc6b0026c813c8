//! Triangle meshes, and the surfaces that points, depth maps and tetrahedra give them.
//!
//! Knows nothing of Gaussians, cameras' files or devices. In the order of use:
//!
//! | part | from | to |
//! |---|---|---|
//! | [`tsdf`] | depth maps | signed distances on [`bricks`] |
//! | [`points`], [`poisson`] | oriented points | an implicit function on [`bricks`] |
//! | [`cubes`] | a function on bricks | a mesh |
//! | [`free_space`] | places and depth maps | which of them views look through |
//! | [`delaunay`], [`tetrahedra`] | points, and what is inside | a mesh |
//! | [`restricted`] | a cloud of triangles | a mesh of their vertices |
//! | [`clean`], [`decimate`] | a mesh | a better or smaller one |
//! | [`atlas`] | a mesh | where its faces lie on a picture |
//! | [`draw`] | a mesh and a camera | what the camera sees |
//! | [`bake`] | a mesh, its atlas and views of it | its texture |
//! | [`compare`], [`search`], [`MeshReport`] | two meshes, one mesh | figures |
//! | [`file`](mod@file) | PLY, OBJ, GLB | and back |

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

/// The caller asked for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request. Give the same command again to start over")]
pub struct Stopped;

/// The caller's side of a long computation.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Set by the caller when the computation is to end.
    pub stop: &'a AtomicBool,
    /// Told a stage's name and the share of it that is done, 0 to 1.
    pub told: &'a (dyn Fn(&'static str, f64) + Sync),
}

impl Watch<'_> {
    /// An error once the caller wants the end.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Tells how far a stage is; an error once the caller wants the end.
    pub fn tell(&self, stage: &'static str, share: f64) -> Result<(), Stopped> {
        (self.told)(stage, share);
        self.check()
    }
}
