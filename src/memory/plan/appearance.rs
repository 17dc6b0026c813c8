//! What colours that cameras changed take: tables for good, and scratch beside a view.

use super::frame::{Pass, ViewSize};
use super::stack::{Row, Stack, Taken};
use crate::abi::{
    AFFINE_WIDTH, COLOR_SHARES, FIT_SUMS, GRID_BWD_BLOCK, GRID_SHARES, GRID_X, GRID_Y,
};
use crate::memory::Bytes;

const WORD: u64 = 4;

/// Tables of the training views, each with both moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColorTables {
    /// Training views.
    pub views: u64,
    /// Values of a view's table.
    pub width: u64,
}

impl ColorTables {
    /// What all tables take.
    pub(super) fn row(&self) -> Row {
        Row { label: "colour tables", bytes: Bytes(3 * self.views * self.width * WORD) }
    }

    /// What stands beside the image of a view.
    pub(super) fn take(&self, stack: &mut Stack, view: &ViewSize, pass: Pass) -> [Taken; 3] {
        let cells = (GRID_X - 1) * (GRID_Y - 1);
        let (sums, width) = match pass {
            // In double precision, and for a fit of one map.
            Pass::Picture => (2 * COLOR_SHARES * FIT_SUMS, AFFINE_WIDTH.into()),
            Pass::Train { .. } if self.width == u64::from(AFFINE_WIDTH) => {
                (COLOR_SHARES * AFFINE_WIDTH, self.width)
            }
            Pass::Train { .. } => (cells * GRID_SHARES * GRID_BWD_BLOCK, self.width),
        };
        [
            ("compensated image", view.pixels() * 3),
            ("sums of colours", sums.into()),
            ("map of colours", width),
        ]
        .map(|(label, words)| stack.take(label, words * WORD))
    }
}
