//! Rows of a table between single precision and the words of a compact model.

use super::lanes::LANES;
use crate::abi::{
    FORM_BFLOATS, FORM_FIRSTS, FORM_FLOATS, FORM_HALVES, FORM_SECONDS, PackArgs, UnpackArgs,
};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::session::Session;
use crate::layout::RowForm;

/// The kernels' number of a form.
pub(crate) const fn form_number(form: RowForm) -> u32 {
    match form {
        RowForm::Floats => FORM_FLOATS,
        RowForm::Halves => FORM_HALVES,
        RowForm::Bfloats => FORM_BFLOATS,
        RowForm::Firsts => FORM_FIRSTS,
        RowForm::Seconds => FORM_SECONDS,
    }
}

/// The same; nothing for single precision, which needs no packing.
fn packed_number(form: RowForm) -> Option<u32> {
    (form != RowForm::Floats).then(|| form_number(form))
}

/// Words that a row of so many values takes.
pub(crate) fn words(form: RowForm, values: usize) -> usize {
    form.words(u32::try_from(values).unwrap_or(u32::MAX)) as usize
}

/// The lane blocks to copy, and their destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackRange {
    pub(crate) form: RowForm,
    /// Values of a row.
    pub(crate) values: usize,
    /// First lane block of the values in single precision, and of the words.
    pub(crate) float_block: usize,
    pub(crate) word_block: usize,
    pub(crate) blocks: usize,
}

impl PackRange {
    /// The bits of values in single precision, to words.
    pub(crate) fn pack<F: Buffer<Item = u32>, W: Buffer<Item = u32>>(
        &self,
        session: &Session,
        floats: &F,
        words: &mut W,
    ) -> Result<(), DeviceError> {
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

    /// Words to the bits of values.
    pub(crate) fn unpack<W: Buffer<Item = u32>, F: Buffer<Item = u32>>(
        &self,
        session: &Session,
        words: &W,
        floats: &mut F,
    ) -> Result<(), DeviceError> {
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

    fn floats(&self) -> std::ops::Range<usize> {
        let block = self.values * LANES;
        self.float_block * block..(self.float_block + self.blocks) * block
    }

    fn words(&self) -> std::ops::Range<usize> {
        let block = words(self.form, self.values) * LANES;
        self.word_block * block..(self.word_block + self.blocks) * block
    }
}
