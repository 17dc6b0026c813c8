//! Nearest-neighbour search among rows of numbers.

use splat_formats::{CellLists, NearRow};

use super::{Device, DeviceError, Held};

/// Devices that find the nearest centres of rows of numbers, for the palettes of SOG ([`splat_formats::RowSearch`]).
pub trait Palettes: Device {
    /// Rows to search for, kept between searches.
    type PaletteRows: Held;

    /// Copies rows of `width` numbers each to the device. Returns [`DeviceError::Unsupported`] if the device cannot
    /// search rows of this width.
    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<Self::PaletteRows, DeviceError>;

    /// Finds for each row the nearest of the centres in its cells. Waits for the device.
    fn near_entries(
        &mut self,
        rows: &mut Self::PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError>;

    /// Finds for each row the `count` cells with the nearest centres, nearest first. Waits for the device.
    fn near_cells(
        &mut self,
        rows: &mut Self::PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError>;
}
