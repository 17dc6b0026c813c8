//! Meshes: a model's rows are the vertices, with triangles between them.

use std::sync::Arc;

use super::error::refused;
use super::{AdamStep, DeviceError, Edit, Rates, Render};
use crate::model::{BoundColumns, BoundTopology, Gaussians};

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
    fn set_faces(
        &mut self,
        _model: &mut Self::Model,
        _faces: &[[u32; 3]],
    ) -> Result<(), DeviceError> {
        refused("triangles")
    }

    /// Returns the triangles; none for a model without.
    fn faces<'a>(&self, _model: &'a Self::Model) -> &'a [[u32; 3]] {
        &[]
    }

    /// Reads the position and the opacity logit of each vertex.
    fn vertices(&mut self, _model: &Self::Model) -> Result<Vec<[f32; 4]>, DeviceError> {
        refused("triangles")
    }

    /// Reads the triangles' statistics.
    fn face_statistics(&mut self, _model: &Self::Model) -> Result<FaceStatistics, DeviceError> {
        Ok(FaceStatistics::zeros(0))
    }

    /// Restores the triangles' statistics when a run resumes.
    fn set_face_statistics(
        &mut self,
        _model: &mut Self::Model,
        _statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        refused("triangles")
    }

    /// Changes vertices and triangles. The mean of two opacities is independent of the opacity floor, and the scales
    /// of all vertices are set to [`log_sizes`](crate::math::adam::log_sizes). Nothing changes if memory is refused.
    fn remesh(
        &mut self,
        _model: &mut Self::Model,
        _change: &Remesh<'_>,
    ) -> Result<(), DeviceError> {
        refused("triangles")
    }
}

/// Learned state of a mesh and of the Gaussians' shapes on it, on the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundState {
    /// The values.
    pub values: BoundColumns,
    /// Adam's running means of the gradients, before bias correction.
    pub first_moments: BoundColumns,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: BoundColumns,
}

impl BoundState {
    /// Creates a state with zero moments.
    pub fn new(values: BoundColumns) -> Self {
        let zeros = values.zeros_like();
        Self { values, first_moments: zeros.clone(), second_moments: zeros }
    }
}

/// A step of bound Gaussians.
#[derive(Clone, Copy, Debug)]
pub struct BoundStep {
    /// The step of Adam. The rate of the means is used for the vertices, the rate of the log-scales for the scales in
    /// the plane, and the rate of the quaternions for the complex numbers.
    pub adam: AdamStep,
    /// Weight of the mean over all hinges of 1 - cos of their angle.
    pub normal_consistency: f64,
}

impl BoundStep {
    /// Returns the part of the step that acts on the Gaussians' own parameters. Centres, scales and rotations follow
    /// from the mesh.
    pub(super) fn of_gaussians(&self) -> AdamStep {
        let rates = Rates { means: 0.0, log_scales: 0.0, quats: 0.0, ..self.adam.rates };
        AdamStep { rates, ..self.adam }
    }

    pub(super) fn per_hinge(&self, hinges: usize) -> f64 {
        self.normal_consistency / hinges.max(1) as f64
    }
}

/// A device that trains Gaussians bound to a mesh.
pub trait Bind: Render<Gaussians> {
    /// A mesh with the learned state of the mesh and of the Gaussians on it.
    type Binding;

    /// Binds a model's Gaussians, as many as the topology has, and moves them to their positions on the mesh. Their
    /// opacities and colours keep their values and moments.
    fn bind(
        &mut self,
        _model: &mut Self::Model,
        _topology: &Arc<BoundTopology>,
        _state: &BoundState,
    ) -> Result<Self::Binding, DeviceError> {
        refused("mesh that they are bound to")
    }

    /// Moves the mesh, the Gaussians' shapes, opacities and colours down the mean gradient of the views, and then the
    /// Gaussians to their positions on the mesh. Sums are in a fixed order.
    fn step_bound(
        &mut self,
        _model: &mut Self::Model,
        _binding: &mut Self::Binding,
        _gradients: Self::Gradients,
        _step: &BoundStep,
    ) -> Result<(), DeviceError> {
        refused("mesh that they are bound to")
    }

    /// Reads the learned state back.
    fn read_binding(&mut self, _binding: &Self::Binding) -> Result<BoundState, DeviceError> {
        refused("mesh that they are bound to")
    }
}
