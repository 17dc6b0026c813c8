//! Stage `palette`: nearest-neighbour search of rows, by the search of the formats crate.

use splat_formats::{CellLists, HeldRows, HostSearch, NearRow, RowSearch as _};

use crate::backend::Held;
use crate::memory::Bytes;

/// Rows to search for.
#[derive(Clone, Debug)]
pub struct PaletteRows {
    rows: Vec<f32>,
    width: usize,
}

impl PaletteRows {
    pub(crate) fn new(rows: &[f32], width: usize) -> Self {
        Self { rows: rows.to_vec(), width }
    }

    fn held(&self) -> Box<dyn HeldRows + '_> {
        HostSearch.hold(&self.rows, self.width)
    }

    pub(crate) fn near_entries(&self, centers: &[f32], cells: &CellLists<'_>) -> Vec<NearRow> {
        self.held().nearest(centers, cells)
    }

    pub(crate) fn near_cells(&self, centers: &[f32], count: usize) -> Vec<u32> {
        self.held().near_cells(centers, count)
    }
}

impl Held for PaletteRows {
    fn bytes(&self) -> Bytes {
        Bytes::of::<f32>(self.rows.len())
    }
}
