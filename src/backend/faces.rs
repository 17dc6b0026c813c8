//! Meshes: a model's rows are the vertices, with triangles between them.

use super::{DeviceError, Edit};
use crate::model::Gaussians;

/// Statistics of each triangle over the training views, since they were last reset or the triangle was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaceStatistics {
    /// Largest weight in any sample: the opacity times the transmittance before the triangle.
    pub weights: Vec<f32>,
    /// Largest distance of a corner from the centroid, px.
    pub reaches_px: Vec<f32>,
    /// Norms of the loss's gradients of the corners' positions, per px, summed over corners and views.
    pub gradient_norms: Vec<f32>,
}

impl FaceStatistics {
    /// Creates the statistics of `faces` triangles that no view has shown.
    pub fn zeros(faces: usize) -> Self {
        let zeros = vec![0.0; faces];
        Self { weights: zeros.clone(), reaches_px: zeros.clone(), gradient_norms: zeros }
    }

    /// Returns the columns, each with a value for every triangle.
    pub fn columns(&self) -> [&Vec<f32>; 3] {
        let Self { weights, reaches_px, gradient_norms } = self;
        [weights, reaches_px, gradient_norms]
    }
}

/// A change of a mesh: vertices that stay, and new ones between pairs of vertices.
#[derive(Clone, Copy, Debug)]
pub struct Remesh<'a> {
    /// Vertices that stay, ascending. They become the first rows and keep their moments.
    pub kept: &'a [u32],
    /// Pairs of vertices that get a new one in the middle, with the mean position, colours and opacity and zero
    /// moments. New vertices follow those that stay, in this order. The ends need not stay.
    pub midpoints: &'a [[u32; 2]],
    /// The triangles by the new numbers of the vertices. Their statistics restart.
    pub faces: &'a [[u32; 3]],
}

/// A device that trains triangles between the rows of a model.
pub trait Faces: Edit<Gaussians> {
    /// Replaces a model's triangles and resets their statistics.
    fn set_faces(&mut self, model: &mut Self::Model, faces: &[[u32; 3]])
    -> Result<(), DeviceError>;

    /// Returns the triangles; none for a model without.
    fn faces<'a>(&self, model: &'a Self::Model) -> &'a [[u32; 3]];

    /// Reads the position and the opacity logit of each vertex.
    fn vertices(&mut self, model: &Self::Model) -> Result<Vec<[f32; 4]>, DeviceError>;

    /// Reads the triangles' statistics.
    fn face_statistics(&mut self, model: &Self::Model) -> Result<FaceStatistics, DeviceError>;

    /// Restores the triangles' statistics when a run resumes.
    fn set_face_statistics(
        &mut self,
        model: &mut Self::Model,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError>;

    /// Changes vertices and triangles. The mean of two opacities is independent of the opacity floor, and the scales
    /// of all vertices are set to [`log_sizes`](crate::math::adam::log_sizes). Nothing changes if memory is refused.
    fn remesh(&mut self, model: &mut Self::Model, change: &Remesh<'_>) -> Result<(), DeviceError>;
}
