//! Searches over rows: the nearest centres, palettes; and the 3D filter, which looks at all views.

use std::ops::Range;

use splat_formats::{CellLists, NearRow};

use super::device::Held;
use super::{Device, DeviceError, Store};
use crate::abi::MOST_NEIGHBOURS;
use crate::dataset::View;
use crate::model::{Gaussians, Primitive};

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

// Searching rows of numbers for their nearest ones.

/// Devices that search rows of numbers for the nearest of others, of which the palettes of SOG are made: what
/// [`splat_formats::RowSearch`] asks for.
pub trait Palettes: Device {
    /// Rows that are searched for many times.
    type PaletteRows: Held;

    /// Keeps rows of `width` numbers each, one after the other. A device that has no search for rows of that
    /// width says [`DeviceError::Unsupported`].
    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<Self::PaletteRows, DeviceError>;

    /// For each row the nearest of the centres in its cells. Waits for the device.
    fn near_entries(
        &mut self,
        rows: &mut Self::PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError>;

    /// For each row the so many cells whose centres are nearest, the nearest first. Waits for the device.
    fn near_cells(
        &mut self,
        rows: &mut Self::PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError>;
}

// The 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1).

/// Devices that filter Gaussians in space.
pub trait Filter3d: Store<Gaussians> {
    /// Widens every Gaussian to what these views can resolve of it, from now on and until the next
    /// call. It is drawn with the filter, and its gradients go through it. After
    /// [`super::Edit::edit`] the filter is zero.
    ///
    /// Views sample what is deeper than `sampled_from`, world units along their axes.
    fn update_filter_3d(
        &mut self,
        model: &mut Self::Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError>;
}
