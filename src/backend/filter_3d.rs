//! The 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1).

use super::{DeviceError, Store};
use crate::dataset::View;
use crate::model::Gaussians;

/// Devices that filter Gaussians in space.
pub trait Filter3d: Store<Gaussians> {
    /// Widens every Gaussian to what these views can resolve of it, from now on and until the next
    /// call. It is drawn with the filter, and its gradients go through it. After
    /// [`super::Edit::densify`] the filter is zero.
    ///
    /// Views sample what is deeper than `sampled_from`, world units along their axes.
    fn update_filter_3d(
        &mut self,
        model: &mut Self::Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError>;
}
