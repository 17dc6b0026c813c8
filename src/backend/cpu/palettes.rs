//! Searching rows of numbers for their nearest ones.

use splat_formats::{CellLists, NearRow};

use super::Cpu;
use super::stage::palette::PaletteRows;
use crate::backend::{DeviceError, Palettes};
use crate::math::Real;

impl<R: Real> Palettes for Cpu<R> {
    type PaletteRows = PaletteRows;

    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<PaletteRows, DeviceError> {
        Ok(PaletteRows::new(rows, width))
    }

    fn near_entries(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        Ok(rows.near_entries(centers, cells))
    }

    fn near_cells(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        Ok(rows.near_cells(centers, count))
    }
}
