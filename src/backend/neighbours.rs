//! The nearest neighbours of all Gaussians, for surface terms and for meshing.

use std::ops::Range;

use super::held::Held;
use super::{DeviceError, Store};
use crate::abi::MOST_NEIGHBOURS;
use crate::model::Primitive;

/// Lists of nearest neighbours on a device.
pub trait NeighbourLists: Held {
    /// Returns the number of neighbours of each Gaussian, itself among them.
    fn count(&self) -> u32;
}

/// Devices that find nearest neighbours.
pub trait Neighbours<P: Primitive>: Store<P> {
    /// Rows of the nearest neighbours of each Gaussian, by the centres. Lists become stale when centres move, and
    /// invalid when rows come, go or change places ([`DeviceError::StaleNeighbours`]).
    type Lists: NeighbourLists;

    /// Finds the `count` nearest neighbours of each centre, nearest first and lower rows first among equals. A
    /// Gaussian is its own neighbour, unless `count` lower rows are at the same position. `count` is 1 to
    /// [`MOST_NEIGHBOURS`] and is lowered to the size of the model. Centres that are not finite are in no other list
    /// and have only themselves, `count` times. If there are fewer than `count` finite centres, a list is filled up
    /// with its own row.
    ///
    /// Exact to the last bit on every device: the squared distance is dx dx + dy dy + dz dz in single precision, each
    /// operation rounded by itself and summed from the left. A distance that overflows is infinite and comes last by
    /// its row.
    fn neighbours(&mut self, model: &Self::Model, count: u32) -> Result<Self::Lists, DeviceError>;

    /// Reads the neighbours of these rows, `[rows, k]`.
    fn read_neighbours(
        &mut self,
        lists: &Self::Lists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError>;

    /// Returns the longest lists that the device has memory for. If it shrinks, drop longer lists and find shorter
    /// ones before anything else is tried again (`Rung::Neighbours`).
    fn max_neighbours(&self) -> u32 {
        MOST_NEIGHBOURS
    }
}

/// Returns the length of a list in a model of `len` Gaussians.
pub(crate) fn list_len(count: u32, len: usize) -> Result<u32, DeviceError> {
    if count == 0 || count > MOST_NEIGHBOURS {
        return Err(DeviceError::NeighbourCount { count });
    }
    let len = u32::try_from(len).ok().ok_or(DeviceError::TooManyGaussians { wanted: len })?;
    Ok(count.min(len))
}
