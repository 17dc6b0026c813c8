//! What the surface terms of SuGaR and meshing ask of a device.

use std::ops::Range;

use super::{DeviceError, Edit, NormalRule, Pending, SurfaceRule, SurfaceTerms};
use crate::abi::MOST_NEIGHBOURS;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Lists of nearest neighbours, wherever they are.
pub trait Neighbourhood {
    /// Neighbours of each Gaussian, itself among them.
    fn count(&self) -> u32;
    /// Bytes that all lists take.
    fn bytes(&self) -> Bytes;
}

/// What the Gaussians say of surfaces, for SuGaR's terms and for meshing.
pub trait Surface: Edit<Gaussians> {
    /// For each Gaussian the rows of those whose centres are nearest. They are of the model as it
    /// was: centres that move make them stale, and rows that come, go or change places worthless,
    /// which they know ([`DeviceError::StaleNeighbours`]).
    type Neighbours: Neighbourhood;
    /// Values of the surface terms, not yet read back.
    type SurfaceLoss: Pending<SurfaceTerms>;

    /// For each centre the `count` nearest, nearest first; of equal distances the lower row first. It
    /// is itself among them, unless `count` lower rows are in the same place. `count` is 1 to
    /// [`MOST_NEIGHBOURS`]; a model of fewer Gaussians gives as many as there are. Centres that are
    /// not finite are nobody's neighbours and have only themselves, `count` times, and so has the rest
    /// of a list where there are fewer finite centres than it is long.
    ///
    /// Exact to the last bit on every device: the squared distance is dx dx + dy dy + dz dz in single
    /// precision, each operation rounded by itself and the sum taken from the left. One that overflows
    /// is infinite, and comes last by its row.
    fn neighbours(
        &mut self,
        model: &Self::Model,
        count: u32,
    ) -> Result<Self::Neighbours, DeviceError>;

    /// The longest lists that the device has memory for at present. Who holds longer ones lets go of
    /// them and has shorter ones found before anything else is tried again: memory that is short waits
    /// for that (`Rung::Neighbours`).
    fn most_neighbours(&self) -> u32 {
        MOST_NEIGHBOURS
    }

    /// These rows' neighbours, `[rows, k]` by row.
    fn read_neighbours(
        &mut self,
        near: &Self::Neighbours,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError>;

    /// After the backward pass of one view, and before the step: adds the gradients of what the rule
    /// asks for to the geometry of the Gaussians that the view sees, and of their neighbours whether it
    /// sees them or not. Gives the values of the terms.
    ///
    /// Samples are taken of the Gaussians that the view sees, each as likely, with replacement, and
    /// looked at with the neighbours of the one that each was taken of; all is of raw scales and
    /// opacities. What is too transparent to be drawn (below 1/255) is not seen; SuGaR counts it, too.
    /// Density, normals and distances want neighbours, of this model since its rows last changed:
    /// [`DeviceError::NoNeighbours`], [`DeviceError::StaleNeighbours`]. A view that sees nothing has
    /// no terms.
    ///
    /// Distances want the view's depths, too, as
    /// [`SurfaceMaps::compare_sampled_depths`] left them, with the same rule, model and neighbours:
    /// [`DeviceError::NoSurfaceMaps`]. Samples of all terms are then taken only of those of the
    /// Gaussians whose centre is in the image and less than two standard deviations, towards the camera,
    /// from the surface that the depths show; where there are none these terms are 0. A sample outside
    /// the image or not beyond the nearest depth has no distance and adds 0 to their mean.
    ///
    /// What the view found broken is an error here already.
    fn regularise(
        &mut self,
        model: &Self::Model,
        near: Option<&Self::Neighbours>,
        gradients: &mut Self::Gradients,
        rule: &SurfaceRule,
    ) -> Result<Self::SurfaceLoss, DeviceError>;
}

/// What frames drawn with [`RenderSettings::surface`](super::RenderSettings::surface) show of surfaces.
pub trait SurfaceMaps: Surface {
    /// A mean not yet read back.
    type NormalLoss: Pending<f64>;

    /// After `loss` and before `backward`: compares the normals that are drawn with those of the
    /// surface that the drawn depths make up, by 1 - cos of the angle between them, and has `backward`
    /// carry on the gradient of `weight` times the mean over all pixels. Returns the mean itself.
    ///
    /// A pixel of the image's border, and one without depths beside it, has no surface: it counts like
    /// a right angle and has no gradient. A frame compared twice has the gradient of the last time.
    /// What came of [`SurfaceMaps::compare_sampled_depths`] is forgotten: that comes second. An error
    /// of a frame that was not drawn for training, or without the maps.
    fn compare_normals(
        &mut self,
        frame: &mut Self::Frame,
        weight: f64,
        rule: NormalRule,
    ) -> Result<Self::NormalLoss, DeviceError>;

    /// After `loss` and before `backward`, where [`SurfaceRule::sdf`] is not 0, does nothing otherwise:
    /// has `backward` carry on the gradient of the distances' term through the depths that are drawn,
    /// and leaves the depths for [`Surface::regularise`], which gives the term's value and the rest of
    /// its gradients.
    ///
    /// The depth of a pixel is what is blended of the depths over that of the farthest splat; between
    /// the pixels' centres it changes linearly. That of the farthest has no gradient. What more than
    /// one rule asks of a frame adds up. An error of a frame that was not drawn for training, or without
    /// the maps, and of stale neighbours.
    fn compare_sampled_depths(
        &mut self,
        model: &Self::Model,
        frame: &mut Self::Frame,
        near: &Self::Neighbours,
        rule: &SurfaceRule,
    ) -> Result<(), DeviceError>;
}

/// How many neighbours a list has in a model of so many Gaussians.
pub(super) fn list_len(count: u32, len: usize) -> Result<u32, DeviceError> {
    if count == 0 || count > MOST_NEIGHBOURS {
        return Err(DeviceError::NeighbourCount { count });
    }
    let len = u32::try_from(len).ok().ok_or(DeviceError::TooManyGaussians { wanted: len })?;
    Ok(count.min(len))
}
