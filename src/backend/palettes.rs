//! Searching rows of numbers for their nearest ones.

use splat_formats::{CellLists, NearRow};

use super::{Device, DeviceError, Held};

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
