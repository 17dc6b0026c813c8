//! The order of tables on the device: blocks of 32 rows, column by column within a block.

use std::ops::Range;

use rayon::prelude::*;

use crate::abi::{
    FORM_BFLOATS, FORM_FIRSTS, FORM_FLOATS, FORM_HALVES, FORM_SECONDS, PackArgs, UnpackArgs,
};
use crate::backend::Result;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::session::Session;
use crate::layout::{self, RowForm};
use crate::model::Group;

/// Rows per block: the lanes of a warp.
pub(crate) const LANES: usize = layout::LANES as usize;

/// Returns the length of a table, including the padding of the last block.
pub(crate) const fn table_len(rows: usize, width: usize) -> usize {
    rows.div_ceil(LANES) * LANES * width
}

/// Fills the blocks of `rows`, which start at a whole block, from the table's columns. Padding lanes become zero.
pub(crate) fn pack(parts: &[Group<'_>], rows: Range<usize>, blocks: &mut [f32]) {
    let width: usize = parts.iter().map(|part| part.width).sum();
    blocks.par_chunks_mut(width * LANES).enumerate().for_each(|(number, block)| {
        let first = rows.start + number * LANES;
        let filled = rows.end.saturating_sub(first).min(LANES);
        if filled < LANES {
            block.fill(0.0);
        }
        let mut columns = block;
        for part in parts {
            let (lanes, rest) = columns.split_at_mut(part.width * LANES);
            for (lane, row) in (first..first + filled).enumerate() {
                let values = &part.values[row * part.width..][..part.width];
                for (column, &value) in values.iter().enumerate() {
                    lanes[column * LANES + lane] = value;
                }
            }
            columns = rest;
        }
    });
}

/// Copies the rows of a host column of `width` values from a table's blocks, where it starts at `first_column`.
pub(crate) fn unpack(
    blocks: &[f32],
    table_width: usize,
    first_column: usize,
    width: usize,
    values: &mut [f32],
) {
    if width == 0 {
        return;
    }
    let by_block = values.par_chunks_mut(width * LANES).zip(blocks.par_chunks(table_width * LANES));
    by_block.for_each(|(values, block)| {
        let lanes = &block[first_column * LANES..];
        for (lane, row) in values.chunks_exact_mut(width).enumerate() {
            for (column, value) in row.iter_mut().enumerate() {
                *value = lanes[column * LANES + lane];
            }
        }
    });
}

pub(crate) const fn form_number(form: RowForm) -> u32 {
    match form {
        RowForm::Floats => FORM_FLOATS,
        RowForm::Halves => FORM_HALVES,
        RowForm::Bfloats => FORM_BFLOATS,
        RowForm::Firsts => FORM_FIRSTS,
        RowForm::Seconds => FORM_SECONDS,
    }
}

/// Returns the kernels' number of a packed form; `None` for single precision.
fn packed_number(form: RowForm) -> Option<u32> {
    (form != RowForm::Floats).then(|| form_number(form))
}

pub(crate) fn words(form: RowForm, values: usize) -> usize {
    form.words(u32::try_from(values).unwrap_or(u32::MAX)) as usize
}

/// Lane blocks to pack or unpack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackRange {
    pub(crate) form: RowForm,
    pub(crate) values: usize,
    /// First lane block in single precision.
    pub(crate) float_block: usize,
    /// First lane block of words.
    pub(crate) word_block: usize,
    pub(crate) blocks: usize,
}

impl PackRange {
    /// Packs the bits of single-precision values into words.
    pub(crate) fn pack<F: Buffer<Item = u32>, W: Buffer<Item = u32>>(
        &self,
        session: &Session,
        floats: &F,
        words: &mut W,
    ) -> Result {
        let Some(form) = packed_number(self.form) else { return Ok(()) };
        floats.place("pack", &self.floats())?;
        words.place("pack", &self.words())?;
        let args = PackArgs {
            floats: floats.read().floats(),
            words: words.write(),
            float_block: count_u32(self.float_block)?,
            word_block: count_u32(self.word_block)?,
            blocks: count_u32(self.blocks)?,
            values: count_u32(self.values)?,
            form,
            reserved: 0,
        };
        session.kernels.pack_rows.over(&session.stream, self.blocks * LANES, &args)
    }

    /// Unpacks words into the bits of single-precision values.
    pub(crate) fn unpack<W: Buffer<Item = u32>, F: Buffer<Item = u32>>(
        &self,
        session: &Session,
        words: &W,
        floats: &mut F,
    ) -> Result {
        let Some(form) = packed_number(self.form) else { return Ok(()) };
        words.place("unpack", &self.words())?;
        floats.place("unpack", &self.floats())?;
        let args = UnpackArgs {
            words: words.read(),
            floats: floats.write().floats(),
            word_block: count_u32(self.word_block)?,
            float_block: count_u32(self.float_block)?,
            blocks: count_u32(self.blocks)?,
            values: count_u32(self.values)?,
            form,
            reserved: 0,
        };
        session.kernels.unpack_rows.over(&session.stream, self.blocks * LANES, &args)
    }

    fn floats(&self) -> Range<usize> {
        let block = self.values * LANES;
        self.float_block * block..(self.float_block + self.blocks) * block
    }

    fn words(&self) -> Range<usize> {
        let block = words(self.form, self.values) * LANES;
        self.word_block * block..(self.word_block + self.blocks) * block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `width` columns of distinct values.
    fn column(rows: usize, width: usize, base: f32) -> Vec<f32> {
        (0..rows * width).map(|i| base + i as f32).collect()
    }

    #[test]
    fn values_lie_in_the_lane_of_their_row() {
        let (first, second) = (column(37, 3, 1.0), column(37, 1, 1000.0));
        let parts =
            [(3, &first), (1, &second)].map(|(width, values)| Group { name: "", width, values });
        let mut blocks = vec![f32::NAN; table_len(37, 4)];
        pack(&parts, 0..37, &mut blocks);
        for row in 0..37 {
            let at = |column: usize| blocks[(row / 32 * 4 + column) * 32 + row % 32];
            assert_eq!([at(0), at(1), at(2)], first[row * 3..][..3]);
            assert_eq!(at(3), second[row]);
        }
        // The padding of the second block is zero.
        let padding = (37..64).flat_map(|row| (0..4).map(move |column| (row, column)));
        for (row, column) in padding {
            assert_eq!(blocks[(4 + column) * 32 + row % 32], 0.0);
        }
    }

    #[test]
    fn packing_in_chunks_round_trips() {
        for rows in [1, 31, 32, 33, 1021] {
            let columns = [column(rows, 3, 0.5), column(rows, 0, 0.0), column(rows, 7, -1e4)];
            let parts: Vec<Group<'_>> = columns
                .iter()
                .zip([3, 0, 7])
                .map(|(values, width)| Group { name: "", width, values })
                .collect();
            let mut back = columns.clone();
            back.iter_mut().for_each(|column| column.fill(f32::NAN));
            for start in (0..rows).step_by(96) {
                let chunk = start..(start + 96).min(rows);
                let mut blocks = vec![f32::NAN; table_len(chunk.len(), 10)];
                pack(&parts, chunk.clone(), &mut blocks);
                for (first, width, values) in [(0, 3, 0), (3, 0, 1), (3, 7, 2)] {
                    let rows = chunk.start * width..chunk.end * width;
                    unpack(&blocks, 10, first, width, &mut back[values][rows]);
                }
            }
            assert_eq!(back, columns);
        }
    }
}
