//! Transfers of models between host and device, and conversions of their storage.

use std::ops::Range;

use super::lanes::{self, LANES, PackRange, form_number, table_len, words};
use super::tables::{Model, catch_up};
use crate::abi::SampleArgs;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer, Heap, Pinned, Region, host_len};
use crate::backend::cuda::primitive::{CudaPrimitive, require_storage};
use crate::backend::cuda::session::Session;
use crate::backend::{Result, Snapshot, check_rows};
use crate::layout::{
    CONVERSION, ModelSize, PackSizes, ROWS_TO_PACK, RowForm, STAGING, STAGING_WORDS, SampleSlots,
    Source as _, TABLE_PARTS, forms,
};
use crate::memory::Bytes;
use crate::memory::plan::Storage;
use crate::model::Primitive;

/// Parts of a table, in order.
#[derive(Clone, Copy)]
enum Part {
    Parameters,
    FirstMoments,
    SecondMoments,
}

/// Uploads primitives to a model of as many zero rows.
pub(crate) fn upload<P: Primitive>(
    session: &Session,
    host: &P,
    mut model: Model<P>,
) -> Result<Model<P>> {
    Staging::new(session)?.send(session, &mut model, 0, host, Part::Parameters)?;
    Ok(model)
}

/// Downloads the parameters of these rows.
pub(crate) fn read_parameters<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    rows: &Range<usize>,
) -> Result<P> {
    check_rows(rows, model.len())?;
    Staging::new(session)?.fetch(session, model, rows, Part::Parameters)
}

/// Downloads parameters, moments and statistics of these rows.
pub(crate) fn read<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    rows: &Range<usize>,
) -> Result<Snapshot<P>> {
    check_rows(rows, model.len())?;
    let mut staging = Staging::new(session)?;
    let mut of = |part| staging.fetch(session, model, rows, part);
    let optional = |column: &Region<f32>| match column.is_empty() {
        true => Ok(Vec::new()),
        false => column.download_vec(&session.stream, rows.clone()),
    };
    Ok(Snapshot {
        parameters: of(Part::Parameters)?,
        first_moments: of(Part::FirstMoments)?,
        second_moments: of(Part::SecondMoments)?,
        gradient_norm_sums: model.gradient_norm_sums.download_vec(&session.stream, rows.clone())?,
        views_seen: model.views_seen.download_vec(&session.stream, rows.clone())?,
        absolute_norm_sums: optional(&model.absolute_norm_sums)?,
        filter_3d: optional(&model.filter_3d)?,
    })
}

/// Writes existing rows from `first` on, which begin at a lane block and end with a lane block or the model.
pub(crate) fn write<P: CudaPrimitive>(
    session: &Session,
    model: &mut Model<P>,
    first: usize,
    rows: &Snapshot<P>,
    staging: &mut Staging,
) -> Result {
    staging.send(session, model, first, &rows.parameters, Part::Parameters)?;
    staging.send(session, model, first, &rows.first_moments, Part::FirstMoments)?;
    staging.send(session, model, first, &rows.second_moments, Part::SecondMoments)?;
    model.gradient_norm_sums.upload(&session.stream, first, &rows.gradient_norm_sums)?;
    model.views_seen.upload(&session.stream, first, &rows.views_seen)?;
    let optional = rows.optional();
    if optional.absolute_norm_sums {
        model.enable_absolute_norms(session)?;
        model.absolute_norm_sums.upload(&session.stream, first, &rows.absolute_norm_sums)?;
    }
    if optional.filter_3d {
        model.enable_filter(session)?;
        model.filter_3d.upload(&session.stream, first, &rows.filter_3d)?;
    }
    Ok(())
}

/// Downloads the parameters of these rows, in their order.
pub(crate) fn sample<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    rows: &[usize],
) -> Result<P> {
    let mut host = P::zeros(model.sh_degree(), 0);
    let widths = widths(&host);
    let width: usize = widths.iter().sum();
    let at_once = host_len(SampleSlots::<Heap>::at_once(width as u64));
    let most = at_once.min(rows.len());
    let SampleSlots { rows: mut numbers, mut values } =
        SampleSlots::reserve(&session.heap, rows.len() as u64, width as u64)?;
    let mut staged = vec![0.0; most * width];
    for rows in rows.chunks(at_once) {
        let known: Result<Vec<u32>, _> = rows.iter().map(|&row| model.known_row(row)).collect();
        numbers.upload(&session.stream, 0, &known?)?;
        let staged = &mut staged[..rows.len() * width];
        let size = model.size();
        let of_tables = size.forms().zip(size.values()).zip(&model.tables).step_by(TABLE_PARTS);
        let mut first = 0;
        for ((form, values_of_row), table) in of_tables {
            let args = SampleArgs {
                table: table.read(),
                rows: numbers.read(),
                sample: values.write(),
                count: count_u32(rows.len())?,
                values: values_of_row,
                words: form.words(values_of_row),
                form: form_number(form),
                first,
                row_values: count_u32(width)?,
            };
            let threads = rows.len() * values_of_row as usize;
            session.kernels.sample_rows.over(&session.stream, threads, &args)?;
            first += values_of_row;
        }
        values.download(&session.stream, 0, staged)?;
        for mut rest in staged.chunks_exact(width) {
            for (&width, column) in widths.iter().zip(host.groups_mut()) {
                let (values, after) = rest.split_at(width);
                column.extend_from_slice(values);
                rest = after;
            }
        }
    }
    Ok(host)
}

/// Page-locked memory for transfers of tables.
pub(crate) struct Staging {
    halves: [Pinned<u32>; 2],
}

impl Staging {
    pub(crate) fn new(session: &Session) -> Result<Self> {
        let half = || session.heap.pinned(&STAGING, &STAGING_WORDS.into());
        Ok(Self { halves: [half()?, half()?] })
    }

    /// Uploads a part of every table from the host's columns, from row `to` on, which begins a lane block.
    fn send<P: Primitive>(
        &mut self,
        session: &Session,
        model: &mut Model<P>,
        to: usize,
        host: &P,
        part: Part,
    ) -> Result {
        let groups = host.groups();
        let mut columns = &groups[..];
        for table in 0..P::SCHEMA.tables.len() {
            let (parts, others) = columns.split_at(P::SCHEMA.columns_of(table).count());
            columns = others;
            let table = TABLE_PARTS * table + part as usize;
            let width: usize = parts.iter().map(|part| part.width).sum();
            let mut staging = TableStaging::new(session, model, table, host.len())?;
            for (turn, rows) in pieces(0..host.len(), width).enumerate() {
                let half = &mut self.halves[turn % 2];
                let len = table_len(rows.len(), width);
                // Waits for the copy of the piece before the last.
                let blocks = &mut half.as_mut_slice()?[..len];
                lanes::pack(parts, rows.clone(), bytemuck::cast_slice_mut(blocks));
                staging.upload(session, &mut model.tables[table], to + rows.start, half, len)?;
            }
        }
        Ok(())
    }

    /// Downloads a part of every table for these rows.
    fn fetch<P: Primitive>(
        &mut self,
        session: &Session,
        model: &Model<P>,
        rows: &Range<usize>,
        part: Part,
    ) -> Result<P> {
        let before = rows.start % LANES;
        let rows = rows.start - before..rows.end;
        let mut host = P::zeros(model.sh_degree(), rows.len());
        let widths = widths(&host);
        let mut columns: Vec<(usize, &mut Vec<f32>)> =
            widths.into_iter().zip(host.groups_mut()).collect();
        let mut others = &mut columns[..];
        for table in 0..P::SCHEMA.tables.len() {
            let (columns, rest) = others.split_at_mut(P::SCHEMA.columns_of(table).count());
            others = rest;
            let table = TABLE_PARTS * table + part as usize;
            let table_width: usize = columns.iter().map(|(width, _)| width).sum();
            let mut staging = TableStaging::new(session, model, table, rows.len())?;
            let mut ask = |piece: &Range<usize>, half: &mut Pinned<u32>| {
                let len = table_len(piece.len(), table_width);
                staging.download(session, &model.tables[table], piece.start, half, len)
            };
            let [now, next] = &mut self.halves;
            let (mut now, mut next) = (now, next);
            let mut pieces = pieces(rows.clone(), table_width).peekable();
            if let Some(piece) = pieces.peek() {
                ask(piece, now)?;
            }
            while let Some(piece) = pieces.next() {
                if let Some(piece) = pieces.peek() {
                    ask(piece, next)?;
                }
                let blocks = &now.as_slice()?[..table_len(piece.len(), table_width)];
                let (from, to) = (piece.start - rows.start, piece.end - rows.start);
                let mut first = 0;
                for (width, values) in columns.iter_mut() {
                    let values = &mut values[from * *width..to * *width];
                    lanes::unpack(bytemuck::cast_slice(blocks), table_width, first, *width, values);
                    first += *width;
                }
                std::mem::swap(&mut now, &mut next);
            }
            for (width, values) in columns {
                values.drain(..before * *width);
            }
        }
        Ok(host)
    }
}

/// Transfers of one table. Single precision is copied directly; the device packs and unpacks other forms in scratch.
struct TableStaging {
    form: RowForm,
    values: usize,
    scratch: Option<Block<u32>>,
}

impl TableStaging {
    fn new<P: Primitive>(
        session: &Session,
        model: &Model<P>,
        table: usize,
        rows: usize,
    ) -> Result<Self> {
        let size = model.size();
        let form = size.forms().nth(table).unwrap_or(RowForm::Floats);
        let values = size.values().nth(table).unwrap_or(0) as usize;
        let sizes = PackSizes { rows: rows as u64, values: values as u64 };
        let is_packed = form != RowForm::Floats;
        Ok(Self { form, values, scratch: session.heap.take_if(is_packed, &ROWS_TO_PACK, &sizes)? })
    }

    /// Copies `len` single-precision values into the table, from `row` on.
    fn upload(
        &mut self,
        session: &Session,
        table: &mut Region<u32>,
        row: usize,
        half: &Pinned<u32>,
        len: usize,
    ) -> Result {
        let pack_range = self.pack_range(row, len);
        match &mut self.scratch {
            None => table.upload_pinned(&session.stream, row * self.values, half, 0..len),
            Some(scratch) => {
                scratch.upload_pinned(&session.stream, 0, half, 0..len)?;
                pack_range.pack(session, scratch, table)
            }
        }
    }

    /// Copies `len` values of the table to the host, from `row` on.
    fn download(
        &mut self,
        session: &Session,
        table: &Region<u32>,
        row: usize,
        half: &mut Pinned<u32>,
        len: usize,
    ) -> Result {
        let pack_range = self.pack_range(row, len);
        let first = row * self.values;
        match &mut self.scratch {
            None => table.download_pinned(&session.stream, first..first + len, half),
            Some(scratch) => {
                pack_range.unpack(session, table, scratch)?;
                scratch.download_pinned(&session.stream, 0..len, half)
            }
        }
    }

    fn pack_range(&self, row: usize, len: usize) -> PackRange {
        PackRange {
            form: self.form,
            values: self.values,
            float_block: 0,
            word_block: row / LANES,
            blocks: len / (self.values * LANES),
        }
    }
}

/// Splits rows into pieces of whole lane blocks that fit the staging memory.
fn pieces(rows: Range<usize>, width: usize) -> impl Iterator<Item = Range<usize>> {
    let at_once = STAGING_WORDS as usize / (width * LANES) * LANES;
    rows.clone().step_by(at_once).map(move |first| first..rows.end.min(first + at_once))
}

fn widths<P: Primitive>(host: &P) -> Vec<usize> {
    host.groups().iter().map(|group| group.width).collect()
}

// Conversions in place. Packed values are smaller, so packing runs from the first lane block to the last and never
// overwrites values that are still to be read. Unpacking runs from the last lane block to the first.

impl<P: CudaPrimitive> Model<P> {
    /// Makes the state compact and returns the bytes freed. If scratch is refused the model is unchanged.
    pub(crate) fn compact(&mut self, session: &Session) -> Result<Bytes> {
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

    /// Converts the state to full precision. If memory is refused the model is unchanged.
    pub(crate) fn expand(&mut self, session: &Session) -> Result {
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

    /// Makes the state compact, moves its lazy tables to the host if that has memory, and returns the bytes freed.
    pub(crate) fn offload(&mut self, session: &Session) -> Result<Bytes> {
        let mapped = self.bytes_mapped();
        self.compact(session)?;
        self.move_tables(session, Storage::Offloaded)?;
        Ok(Bytes(mapped.0.saturating_sub(self.bytes_mapped().0)))
    }

    /// Moves the tables of a compact model to their places in another compact storage. If memory is refused all stay.
    fn move_tables(&mut self, session: &Session, new: Storage) -> Result {
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

struct TableConverter<'a> {
    session: &'a Session,
    scratch: Block<u32>,
    blocks: usize,
}

struct ConvertedTable<'a> {
    table: &'a mut Region<u32>,
    /// The packed form.
    form: RowForm,
    values: usize,
}

impl<'a> TableConverter<'a> {
    fn new<P: Primitive>(session: &'a Session, model: &Model<P>) -> Result<Self> {
        let scratch = session.heap.take(&CONVERSION, &model.size())?;
        Ok(Self { session, scratch, blocks: model.len().div_ceil(LANES) })
    }

    /// Applies `convert` to every table whose form differs in the new storage.
    fn each_table<P: Primitive>(
        &mut self,
        model: &mut Model<P>,
        new: Storage,
        mut convert: impl FnMut(&mut Self, ConvertedTable<'_>) -> Result,
    ) -> Result {
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

    fn pack(&mut self, converted: ConvertedTable<'_>) -> Result {
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

    fn unpack(&mut self, converted: ConvertedTable<'_>) -> Result {
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
