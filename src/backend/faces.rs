//! Meshes: vertices, which are the rows of a model, and the triangles between them.

use std::sync::Arc;

use super::{AdamStep, DeviceError, Edit, Rates, Render};
use crate::model::{BoundColumns, BoundTopology, Gaussians};

/// What the views of late have shown of each triangle: of the training views since these figures were last
/// forgotten, or since the triangle is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaceStatistics {
    /// Largest weight that it had in any sample: its opacity there times what lies before it let through.
    pub weights: Vec<f32>,
    /// Largest distance of a corner from the middle of all, px.
    pub reaches_px: Vec<f32>,
    /// Norms of the loss's gradients of the corners' places, per px, summed over corners and views.
    pub gradient_norms: Vec<f32>,
}

impl FaceStatistics {
    /// Of so many triangles that no view has shown.
    pub fn zeros(faces: usize) -> Self {
        let zeros = vec![0.0; faces];
        Self { weights: zeros.clone(), reaches_px: zeros.clone(), gradient_norms: zeros }
    }

    /// A value of each triangle in each.
    pub fn columns(&self) -> [&Vec<f32>; 3] {
        let Self { weights, reaches_px, gradient_norms } = self;
        [weights, reaches_px, gradient_norms]
    }
}

/// Another mesh, of vertices that there are and of such between two of them.
#[derive(Clone, Copy, Debug)]
pub struct Remesh<'a> {
    /// Vertices that stay, ascending. They become the first ones, with their moments.
    pub kept: &'a [u32],
    /// Pairs of vertices that get a new one in their middle: its place, its colours and its opacity are their
    /// means, its moments zero. They follow those that stay, in this order. Either end may be one that goes.
    pub midpoints: &'a [[u32; 2]],
    /// The triangles, by the vertices' new numbers. Their statistics start afresh.
    pub faces: &'a [[u32; 3]],
}

/// A device that trains triangles between the rows of a model.
pub trait Faces: Edit<Gaussians> {
    /// Gives a model these triangles in place of those that it has, and forgets their statistics.
    fn set_faces(&mut self, model: &mut Self::Model, faces: &[[u32; 3]])
    -> Result<(), DeviceError>;

    /// The triangles; none of a model without.
    fn faces<'a>(&self, model: &'a Self::Model) -> &'a [[u32; 3]];

    /// Place and opacity logit of each vertex.
    fn vertices(&mut self, model: &Self::Model) -> Result<Vec<[f32; 4]>, DeviceError>;

    /// What views have shown of them.
    fn face_statistics(&mut self, model: &Self::Model) -> Result<FaceStatistics, DeviceError>;

    /// Has the triangles go on with these statistics, as a run that resumes does.
    fn set_face_statistics(
        &mut self,
        model: &mut Self::Model,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError>;

    /// Changes vertices and triangles; the mean of two opacities is one whatever the floor under them, and the
    /// scales of all vertices become those of [`log_sizes`](crate::math::adam::log_sizes).
    /// Where memory is refused nothing has changed.
    fn remesh(&mut self, model: &mut Self::Model, change: &Remesh<'_>) -> Result<(), DeviceError>;
}

// Gaussians that are bound to the triangles of a mesh, and move with it.

/// What is learned of a mesh and of the Gaussians' form on it, as it stands on the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundState {
    /// The values.
    pub values: BoundColumns,
    /// Running means of their gradients, before bias correction.
    pub first_moments: BoundColumns,
    /// Running means of the squared gradients, before bias correction.
    pub second_moments: BoundColumns,
}

impl BoundState {
    /// These values with moments of zero.
    pub fn new(values: BoundColumns) -> Self {
        let zeros = values.zeros_like();
        Self { values, first_moments: zeros.clone(), second_moments: zeros }
    }
}

/// A step of bound Gaussians.
#[derive(Clone, Copy, Debug)]
pub struct BoundStep {
    /// The step of Adam: the rate of the centres is that of the vertices, the rate of the log-scales that
    /// of those in the plane, the rate of the quaternions that of the complex numbers.
    pub adam: AdamStep,
    /// Weight of the mean over all hinges of 1 - cos of their angle.
    pub normal_consistency: f64,
}

impl BoundStep {
    /// Of it what Gaussians learn by themselves: centres, scales and rotations follow from what they are
    /// bound to.
    pub(super) fn of_gaussians(&self) -> AdamStep {
        let rates = Rates { means: 0.0, log_scales: 0.0, quats: 0.0, ..self.adam.rates };
        AdamStep { rates, ..self.adam }
    }

    /// Weight in the loss of each of so many hinges.
    pub(super) fn per_hinge(&self, hinges: usize) -> f64 {
        self.normal_consistency / hinges.max(1) as f64
    }
}

/// A device that trains Gaussians bound to a mesh.
pub trait Bind: Render<Gaussians> {
    /// A mesh, what is learned of it, and of the Gaussians on it.
    type Binding;

    /// Binds a model's Gaussians, as many as the topology has, and moves them to where they belong.
    /// Their opacities and colours stay as they are, with their moments.
    fn bind(
        &mut self,
        model: &mut Self::Model,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<Self::Binding, DeviceError>;

    /// Moves the mesh, the Gaussians' form, opacities and colours down the mean gradient of the views,
    /// and then the Gaussians to where they belong. Sums are in a fixed order.
    fn step_bound(
        &mut self,
        model: &mut Self::Model,
        binding: &mut Self::Binding,
        gradients: Self::Gradients,
        step: &BoundStep,
    ) -> Result<(), DeviceError>;

    /// What is learned, as it is now.
    fn read_binding(&mut self, binding: &Self::Binding) -> Result<BoundState, DeviceError>;
}
