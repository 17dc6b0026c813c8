//! Gaussians that are bound to the triangles of a mesh, and move with it.

use std::sync::Arc;

use super::{AdamStep, DeviceError, Rates, Render};
use crate::model::{BoundColumns, BoundTopology, Gaussians};

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
