//! The 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1).

use super::{DeviceError, Store};
use crate::dataset::View;
use crate::model::Gaussians;

/// Devices that filter Gaussians in space.
pub trait Filter3d: Store<Gaussians> {
    /// Widens every Gaussian to the resolution of these views, until the next call. Gaussians are drawn with the
    /// filter, and gradients go through it. [`super::Edit::edit`] resets it to zero.
    ///
    /// A view counts for Gaussians deeper than `sampled_from`, world units along its axis.
    fn update_filter_3d(
        &mut self,
        model: &mut Self::Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError>;
}
