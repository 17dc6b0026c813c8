//! Converts a model from one storage to the other, in place, and moves tables between device and host.
//!
//! Packed values are smaller, so packing runs from the first lane block to the last and never
//! overwrites values that are still to be read. Unpacking runs from the last lane block to the first.

use super::catch_up::catch_up;
use super::lanes::{LANES, table_len};
use super::pack::{PackRange, words};
use super::tables::Model;
use crate::backend::DeviceError;
use crate::backend::cuda::memory::heap::{Block, Buffer, Region};
use crate::backend::cuda::primitive::{CudaPrimitive, require_storage};
use crate::backend::cuda::session::Session;
use crate::layout::{CONVERSION, ModelSize, RowForm, forms};
use crate::memory::Bytes;
use crate::memory::plan::Storage;
use crate::model::Primitive;

impl<P: CudaPrimitive> Model<P> {
    /// Makes the state compact and returns the bytes that this frees. If scratch is refused the model
    /// is unchanged.
    pub(crate) fn compact(&mut self, session: &Session) -> Result<Bytes, DeviceError> {
        if self.storage().is_compact() {
            return Ok(Bytes(0));
        }
        require_storage::<P>(Storage::Compact)?;
        let mapped = self.bytes_mapped();
        let mut converter = TableConverter::new(session, self)?;
        catch_up(session, self)?;
        converter.each_table(self, Storage::Compact, TableConverter::pack)?;
        self.set_storage(Storage::Compact);
        self.shrink(self.len());
        self.trim()?;
        Ok(Bytes(mapped.0.saturating_sub(self.bytes_mapped().0)))
    }

    /// Brings the state to full precision. If memory is refused the model is unchanged.
    pub(crate) fn expand(&mut self, session: &Session) -> Result<(), DeviceError> {
        if self.storage() == Storage::Full {
            return Ok(());
        }
        self.move_tables(session, Storage::Compact)?;
        let mut converter = TableConverter::new(session, self)?;
        let rows = self.len();
        let wide = ModelSize { storage: Storage::Full, ..self.size() }.widths();
        let mut grown = self.tables.iter_mut().zip(wide.map(|width| width as usize));
        let grown = grown.try_for_each(|(table, width)| table.grow(table_len(rows, width)));
        if let Err(refusal) = grown {
            self.shrink(rows);
            self.trim()?;
            return Err(refusal);
        }
        catch_up(session, self)?;
        converter.each_table(self, Storage::Full, TableConverter::unpack)?;
        self.set_storage(Storage::Full);
        Ok(())
    }

    /// Makes the state compact, moves what is lazy of it to the host's memory and returns the bytes that
    /// this frees on the device. If the host's memory is refused the model is compact, and all there.
    pub(crate) fn offload(&mut self, session: &Session) -> Result<Bytes, DeviceError> {
        let mapped = self.bytes_mapped();
        self.compact(session)?;
        self.move_tables(session, Storage::Offloaded)?;
        Ok(Bytes(mapped.0.saturating_sub(self.bytes_mapped().0)))
    }

    /// Moves the tables of a compact model to where they lie in another compact storage; of any other
    /// model, none. If memory is refused all stay.
    fn move_tables(&mut self, session: &Session, new: Storage) -> Result<(), DeviceError> {
        if !self.storage().is_compact() || self.storage() == new {
            return Ok(());
        }
        require_storage::<P>(new)?;
        self.write_lines_back(session)?;
        let new_size = ModelSize { storage: new, ..self.size() };
        let places = self.size().memory_places().zip(new_size.memory_places());
        let tables = self.tables.iter().zip(places);
        let moved = tables.map(|(table, (old, new))| {
            (old != new).then(|| table.copied_to(&session.stream, new)).transpose()
        });
        let moved = moved.collect::<Result<Vec<_>, _>>()?;
        for (table, moved) in self.tables.iter_mut().zip(moved) {
            if let Some(moved) = moved {
                *table = moved;
            }
        }
        self.set_storage(new);
        let size = self.size();
        self.lines.grow(&size)?;
        self.lines.trim()?;
        Ok(())
    }

    fn bytes_mapped(&self) -> Bytes {
        self.mapped().into_iter().sum()
    }
}

/// The state of a conversion.
struct TableConverter<'a> {
    session: &'a Session,
    scratch: Block<u32>,
    /// Lane blocks of the model.
    blocks: usize,
}

/// A table that is converted.
struct ConvertedTable<'a> {
    table: &'a mut Region<u32>,
    /// Its packed form.
    form: RowForm,
    /// Values of a row.
    values: usize,
}

impl<'a> TableConverter<'a> {
    fn new<P: Primitive>(session: &'a Session, model: &Model<P>) -> Result<Self, DeviceError> {
        let scratch = session.heap.take(&CONVERSION, &model.size())?;
        Ok(Self { session, scratch, blocks: model.len().div_ceil(LANES) })
    }

    /// Applies `convert` to every table that lies otherwise in the model's new storage.
    fn each_table<P: Primitive>(
        &mut self,
        model: &mut Model<P>,
        new: Storage,
        mut convert: impl FnMut(&mut Self, ConvertedTable<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let old = forms(P::SCHEMA, model.storage());
        let forms = old.zip(forms(P::SCHEMA, new)).zip(model.size().values());
        for (table, ((old, new), values)) in model.tables.iter_mut().zip(forms) {
            if old != new {
                // One of the two is single precision.
                let form = if old == RowForm::Floats { new } else { old };
                convert(self, ConvertedTable { table, form, values: values as usize })?;
            }
        }
        Ok(())
    }

    fn pack(&mut self, converted: ConvertedTable<'_>) -> Result<(), DeviceError> {
        let ConvertedTable { table, form, values } = converted;
        let width = words(form, values) * LANES;
        let at_once = self.scratch.len() / width;
        for first in (0..self.blocks).step_by(at_once.max(1)) {
            let blocks = at_once.min(self.blocks - first);
            let pack_range = PackRange { form, values, float_block: first, word_block: 0, blocks };
            pack_range.pack(self.session, &*table, &mut self.scratch)?;
            let packed = 0..blocks * width;
            table.copy_from(&self.session.stream, first * width, &self.scratch, packed)?;
        }
        Ok(())
    }

    fn unpack(&mut self, converted: ConvertedTable<'_>) -> Result<(), DeviceError> {
        let ConvertedTable { table, form, values } = converted;
        let width = values * LANES;
        let at_once = self.scratch.len() / width;
        let mut end = self.blocks;
        while end > 0 {
            let blocks = at_once.min(end);
            end -= blocks;
            let pack_range = PackRange { form, values, float_block: 0, word_block: end, blocks };
            pack_range.unpack(self.session, &*table, &mut self.scratch)?;
            let unpacked = 0..blocks * width;
            table.copy_from(&self.session.stream, end * width, &self.scratch, unpacked)?;
        }
        Ok(())
    }
}
