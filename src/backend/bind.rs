//! Gaussians that are bound to the triangles of a mesh and move with it.

use std::sync::Arc;

use super::{AdamStep, DeviceError, Rates, Render};
use crate::model::{BoundColumns, BoundTopology, Gaussians};

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
        model: &mut Self::Model,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<Self::Binding, DeviceError>;

    /// Moves the mesh, the Gaussians' shapes, opacities and colours down the mean gradient of the views, and then the
    /// Gaussians to their positions on the mesh. Sums are in a fixed order.
    fn step_bound(
        &mut self,
        model: &mut Self::Model,
        binding: &mut Self::Binding,
        gradients: Self::Gradients,
        step: &BoundStep,
    ) -> Result<(), DeviceError>;

    /// Reads the learned state back.
    fn read_binding(&mut self, binding: &Self::Binding) -> Result<BoundState, DeviceError>;
}
