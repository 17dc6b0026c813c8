//! Buffers of the search for nearest palette entries.

use super::slot::{CallLen, Source, StageLen, Taken as _};

slots! {
    StageLen {
        pub PALETTE_ROWS: f32 = "palette rows", Statistics, StageLen, 1,
            "harmonics that are to share a palette";
    }
    CallLen {
        CENTERS: f32 = "palette centres", Statistics, CallLen, 1, "harmonics of a palette";
        STARTS: u32 = "palette cells", Statistics, CallLen, 1, "harmonics of a palette";
        CELLS: u32 = "cells of palette rows", Statistics, CallLen, 1, "which harmonics are alike";
        ORDER: u32 = "order of palette rows", Statistics, CallLen, 1, "which harmonics are alike";
        NEAREST: u64 = "palette entries", Statistics, CallLen, 1, "which harmonics are alike";
    }
}

/// Lengths of the buffers of a search, in elements.
#[derive(Clone, Copy, Debug)]
pub struct SearchLengths {
    /// Rows.
    pub rows: u64,
    /// Values of all centres.
    pub centers: u64,
    /// Starts of cells: one more than cells.
    pub starts: u64,
    /// Cells of all rows.
    pub cells: u64,
}

impl SearchLengths {
    /// Creates the lengths; each of the rows has `per_row` cells.
    pub fn of(rows: usize, centers: usize, starts: usize, per_row: usize) -> Self {
        let [rows, centers, starts, cells] =
            [rows, centers, starts, rows * per_row].map(|length| length as u64);
        Self { rows, centers, starts, cells }
    }
}

/// Buffers of a search beside the rows.
pub struct SearchLists<A: Source> {
    /// [centres, width]
    pub centers: A::Block<f32>,
    /// [cells + 1]
    pub starts: A::Block<u32>,
    /// [n, cells of a row]
    pub cells: A::Block<u32>,
    /// [n x cells of a row]
    pub order: A::Block<u32>,
    /// `[n]`
    pub nearest: A::Block<u64>,
}

impl<A: Source> SearchLists<A> {
    /// Reserves the buffers for a search.
    pub fn reserve(source: &A, lengths: &SearchLengths) -> Result<Self, A::Error> {
        // A buffer has at least one element.
        let cells = lengths.cells.max(1);
        Ok(Self {
            centers: source.take(&CENTERS, &lengths.centers.max(1))?,
            starts: source.take(&STARTS, &lengths.starts.max(1))?,
            cells: source.take(&CELLS, &cells)?,
            order: source.take(&ORDER, &cells)?,
            nearest: source.take(&NEAREST, &lengths.rows.max(1))?,
        })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let lists = self.starts.bytes() + self.cells.bytes() + self.order.bytes();
        self.centers.bytes() + lists + self.nearest.bytes()
    }
}
