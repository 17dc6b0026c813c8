//! Searches over rows (nearest centres, palettes), and the 3D filter.

use std::ops::Range;

use splat_formats::{CellLists, NearRow};

use super::device::Held;
use super::error::refused;
use super::{Device, DeviceError, Store};
use crate::abi::MOST_NEIGHBOURS;
use crate::dataset::View;
use crate::model::{Gaussians, Primitive};

/// Lists of nearest neighbours on a device.
pub trait NeighbourLists: Held {
    /// Returns the number of neighbours of each Gaussian, itself among them.
    fn count(&self) -> u32;
}

/// Devices that find nearest neighbours.
pub trait Neighbours<P: Primitive>: Store<P> {
    /// Rows of the nearest neighbours of each Gaussian, by the centres. Lists become stale when centres move, and
    /// invalid when rows are added, removed or moved ([`DeviceError::StaleNeighbours`]).
    type Lists: NeighbourLists;

    /// Finds the `count` nearest neighbours of each centre, nearest first and lower rows first among equals. A Gaussian
    /// is its own neighbour, unless `count` lower rows are at the same position. `count` is 1 to [`MOST_NEIGHBOURS`]
    /// and is lowered to the size of the model. Centres that are not finite are in no other list and have only
    /// themselves, `count` times. If there are fewer than `count` finite centres, a list is filled up with its own row.
    ///
    /// Exact to the last bit on every device: the squared distance is dx dx + dy dy + dz dz in single precision, each
    /// operation rounded by itself and summed from the left. A distance that overflows is infinite and comes last by
    /// its row.
    fn neighbours(
        &mut self,
        _model: &Self::Model,
        _count: u32,
    ) -> Result<Self::Lists, DeviceError> {
        refused("lists of neighbours")
    }

    /// Reads the neighbours of these rows, `[rows, k]`.
    fn read_neighbours(
        &mut self,
        lists: &Self::Lists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError>;

    /// Returns the longest lists that the device has memory for. If it shrinks, drop longer lists and find shorter
    /// ones before anything else is tried again (`Fallback::Neighbours`).
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

/// Devices that find the nearest centres of rows of numbers, for the palettes of SOG ([`splat_formats::RowSearch`]).
pub trait Palettes: Device {
    /// Rows to search for, kept between searches.
    type PaletteRows: Held;

    /// Copies rows of `width` numbers each to the device. Returns [`DeviceError::Unsupported`] if the device cannot
    /// search rows of this width.
    fn hold_rows(
        &mut self,
        _rows: &[f32],
        _width: usize,
    ) -> Result<Self::PaletteRows, DeviceError> {
        refused("palettes")
    }

    /// Finds for each row the nearest of the centres in its cells. Waits for the device.
    fn near_entries(
        &mut self,
        _rows: &mut Self::PaletteRows,
        _centers: &[f32],
        _cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        refused("palettes")
    }

    /// Finds for each row the `count` cells with the nearest centres, nearest first. Waits for the device.
    fn near_cells(
        &mut self,
        _rows: &mut Self::PaletteRows,
        _centers: &[f32],
        _count: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        refused("palettes")
    }
}

// The 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1).

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
