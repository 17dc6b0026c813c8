//! What every method ends with.

use serde::Serialize;
use splat_mesh::Mesh;

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
