//! The nearest neighbours of all Gaussians, for surface terms and for meshing.

use std::ops::Range;

use super::render::Held;
use super::{DeviceError, Store};
use crate::abi::MOST_NEIGHBOURS;
use crate::model::Primitive;

/// Lists of nearest neighbours on a device.
pub trait NeighbourLists: Held {
    /// Neighbours of each Gaussian, itself among them.
    fn count(&self) -> u32;
}

/// Finding nearest neighbours.
pub trait Neighbours<P: Primitive>: Store<P> {
    /// For each Gaussian the rows of those whose centres are nearest. They are of the model as it
    /// was: centres that move make them stale, and rows that come, go or change places invalid, which
    /// they know ([`DeviceError::StaleNeighbours`]).
    type Lists: NeighbourLists;

    /// For each centre the `count` nearest, nearest first; of equal distances the lower row first. It
    /// is itself among them, unless `count` lower rows are in the same place. `count` is 1 to
    /// [`MOST_NEIGHBOURS`]; a model of fewer Gaussians gives as many as there are. Centres that are
    /// not finite are nobody's neighbours and have only themselves, `count` times, and so has the rest
    /// of a list where there are fewer finite centres than it is long.
    ///
    /// Exact to the last bit on every device: the squared distance is dx dx + dy dy + dz dz in single
    /// precision, each operation rounded by itself and the sum taken from the left. One that overflows
    /// is infinite, and comes last by its row.
    fn neighbours(&mut self, model: &Self::Model, count: u32) -> Result<Self::Lists, DeviceError>;

    /// These rows' neighbours, `[rows, k]` by row.
    fn read_neighbours(
        &mut self,
        lists: &Self::Lists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError>;

    /// The longest lists that the device has memory for at present. Who holds longer ones drops them
    /// and has shorter ones found before anything else is tried again: memory that is short waits for
    /// that (`Rung::Neighbours`).
    fn max_neighbours(&self) -> u32 {
        MOST_NEIGHBOURS
    }
}

/// How many neighbours a list has in a model of so many Gaussians.
pub(crate) fn list_len(count: u32, len: usize) -> Result<u32, DeviceError> {
    if count == 0 || count > MOST_NEIGHBOURS {
        return Err(DeviceError::NeighbourCount { count });
    }
    let len = u32::try_from(len).ok().ok_or(DeviceError::TooManyGaussians { wanted: len })?;
    Ok(count.min(len))
}
