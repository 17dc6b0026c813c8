//! Why there is no atlas.

use crate::check::MeshError;

/// Why there is no atlas.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AtlasError {
    /// It is no mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// There is nothing to lay out.
    #[error("no atlas of a mesh of {faces} faces without area: extract a surface first")]
    NoArea {
        /// Its faces.
        faces: usize,
    },
    /// The picture is too large.
    #[error("a texture of {found} x {found} texels: {most} x {most} is the most that is made")]
    TooLarge {
        /// Side that was asked for, in texels.
        found: u32,
        /// Greatest side, in texels.
        most: u32,
    },
    /// The picture is too small.
    #[error(
        "{charts} charts do not fit a texture of {side_px} x {side_px}: take a larger texture or \
         decimate the mesh"
    )]
    TooSmall {
        /// Pieces to be laid out.
        charts: usize,
        /// Side of the picture in texels.
        side_px: u32,
    },
    /// Squares leave nothing of a face.
    #[error("squares of {found} texels: a face needs a square of 4 or more")]
    Square {
        /// What was given.
        found: u32,
    },
    /// Regions fold over themselves.
    #[error("the {charts} regions still overlap after {rounds} rounds: clean or decimate the mesh")]
    Overlap {
        /// Regions.
        charts: usize,
        /// Rounds of parting them.
        rounds: usize,
    },
}
