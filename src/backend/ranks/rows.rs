//! Transfer of a model's rows from rank 0 to the ranks that hold them, and back.

use std::collections::VecDeque;
use std::ops::Range;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::line::RankLine;
use super::numbering::{Numbering, RankRows};
use crate::backend::{DeviceError, Rows, Snapshot, chunks};
use crate::math::sh::MAX_DEGREE;
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, Group, Primitive as _};

/// The rows of this rank, received in parts.
pub(in crate::backend) struct ReceivedRows<F> {
    len: usize,
    sh_degree: u32,
    optional: OptionalColumns,
    /// The next part; nothing after the last.
    next_part: F,
    /// Received rows that are not yet read.
    waiting: Option<Snapshot<Gaussians>>,
}

impl<E: From<DeviceError>, F: FnMut() -> Result<Option<Snapshot<Gaussians>>, E>> ReceivedRows<F> {
    /// Takes part in the distribution to other ranks after all own rows were read.
    pub(in crate::backend) fn end(mut self) -> Result<(), E> {
        while (self.next_part)()?.is_some() {}
        Ok(())
    }
}

impl<E: From<DeviceError>, F: FnMut() -> Result<Option<Snapshot<Gaussians>>, E>> Rows<Gaussians>
    for ReceivedRows<F>
{
    type Error = E;

    fn len(&self) -> usize {
        self.len
    }

    fn shape(&mut self) -> Result<Gaussians, E> {
        Ok(Gaussians::empty(self.sh_degree))
    }

    fn optional(&self) -> OptionalColumns {
        self.optional
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, E> {
        loop {
            if let Some(mut waiting) = self.waiting.take_if(|waiting| waiting.len() >= rows.len()) {
                if waiting.len() == rows.len() {
                    return Ok(waiting);
                }
                let rest = waiting.read(rows.len()..waiting.len())?;
                self.waiting = (!rest.is_empty()).then_some(rest);
                return Ok(waiting.read(0..rows.len())?);
            }
            let Some(part) = (self.next_part)()? else {
                let message = "it deals fewer rows out than this rank is to have";
                return Err(DeviceError::of_rank(0, message).into());
            };
            match &mut self.waiting {
                Some(waiting) => waiting.append(part),
                None => self.waiting = Some(part),
            }
        }
    }
}

/// Distributes the rows of `source`, a chunk at a time. Returns those of rank 0.
pub(in crate::backend) fn deal<'a, S: Rows<Gaussians>>(
    line: &'a RankLine,
    numbering: &'a Numbering,
    source: &'a mut S,
    sh_degree: u32,
) -> ReceivedRows<impl FnMut() -> Result<Option<Snapshot<Gaussians>>, S::Error> + 'a>
where
    S::Error: From<DeviceError>,
{
    let (len, optional) = (numbering.counts()[0], source.optional());
    let mut coming = chunks(source.len());
    let next_part = move || {
        let Some(numbers) = coming.next() else { return Ok(None) };
        let mut parts = vec![Vec::new(); line.world() as usize];
        let mut next = 0;
        for RankRows { rank, places } in numbering.pieces(&numbers) {
            parts[rank as usize].push(next..next + places.len());
            next += places.len();
        }
        let packed = match source.fresh() {
            Some(parameters) => {
                PackedRows::of_each_fresh(&parameters.rows(numbers.clone()), &parts)
            }
            None => PackedRows::of_each(&source.read(numbers.clone())?, &parts),
        };
        Ok(Some(swap(line, packed, numbering.rows_of(0, &numbers))?))
    };
    ReceivedRows { len, sh_degree, optional, next_part, waiting: None }
}

/// Receives this rank's share of the rows that rank 0 distributes.
pub(in crate::backend) fn take<'a>(
    line: &'a RankLine,
    numbering: &'a Numbering,
    sh_degree: u32,
) -> ReceivedRows<impl FnMut() -> Result<Option<Snapshot<Gaussians>>, DeviceError> + 'a> {
    let len = numbering.counts()[line.rank() as usize];
    let mut coming = chunks(numbering.len());
    let next_part = move || {
        let expected = coming.next().map(|numbers| numbering.rows_of(line.rank(), &numbers));
        expected.map(|rows| swap(line, Vec::new(), rows)).transpose()
    };
    ReceivedRows { len, sh_degree, optional: OptionalColumns::NONE, next_part, waiting: None }
}

/// Sends the parts to their ranks (rank 0 has parts, the others none) and returns this rank's part, with `rows` rows.
fn swap(
    line: &RankLine,
    parts: Vec<PackedRows>,
    rows: usize,
) -> Result<Snapshot<Gaussians>, DeviceError> {
    let mut outgoing: Vec<_> = parts.into_iter().map(Some).collect();
    outgoing.resize_with(line.world() as usize, || None);
    let incoming: Vec<Option<PackedRows>> = line.all_to_all(&outgoing)?;
    let part = incoming.into_iter().next().flatten();
    part.ok_or_else(|| DeviceError::of_rank(0, "it has dealt out no rows"))?.unpack(0, rows)
}

/// Returns the rows of these numbers with moments and statistics, on rank 0. `read` reads a rank's own rows.
pub(in crate::backend) fn read(
    line: &RankLine,
    numbering: &Numbering,
    numbers: &Range<usize>,
    mut read: impl FnMut(Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError>,
) -> Result<Option<Snapshot<Gaussians>>, DeviceError> {
    let pieces = numbering.pieces(numbers);
    let own = pieces.iter().filter(|piece| piece.rank == line.rank());
    let packed = |rows: Snapshot<_>| PackedRows::of(&rows);
    let own: VecDeque<_> =
        own.map(|piece| read(piece.places.clone()).map(packed)).collect::<Result<_, _>>()?;
    let Some(mut of_ranks) = line.gather_first(&own)? else { return Ok(None) };
    let mut all = read(0..0)?;
    for RankRows { rank, places } in pieces {
        let part = of_ranks[rank as usize].pop_front();
        let part = part.map(|part| part.unpack(rank, places.len())).transpose()?;
        let message = || format!("it does not send its rows {places:?}");
        all.append(part.ok_or_else(|| DeviceError::of_rank(rank, message()))?);
    }
    Ok(Some(all))
}

/// Returns the parameters of the rows of these numbers, in this order, on rank 0. `sample` reads a rank's own rows.
pub(in crate::backend) fn sample(
    line: &RankLine,
    numbering: &Numbering,
    numbers: &[usize],
    sample: impl FnOnce(&[usize]) -> Result<Gaussians, DeviceError>,
) -> Result<Option<Gaussians>, DeviceError> {
    let found: Vec<_> = numbers.iter().map(|&number| numbering.find(number)).collect();
    let own = found.iter().filter(|&&(owner, _)| owner == line.rank()).map(|&(_, place)| place);
    let own = sample(&own.collect::<Vec<_>>())?;
    let sh_degree = own.sh_degree;
    let Some(of_ranks) = line.gather_first(&own)? else { return Ok(None) };
    let requested = (0..line.world()).map(|rank| found.iter().filter(|of| of.0 == rank).count());
    for ((rank, rows), requested) in (0..).zip(&of_ranks).zip(requested) {
        if rows.len() != requested {
            let message = format!("it sends {} of {requested} rows", rows.len());
            return Err(DeviceError::of_rank(rank, message));
        }
    }
    let mut next = vec![0; of_ranks.len()];
    let mut all = Gaussians::empty(sh_degree);
    for (owner, _) in found {
        let row = &mut next[owner as usize];
        all.append(of_ranks[owner as usize].rows(*row..*row + 1));
        *row += 1;
    }
    Ok(Some(all))
}

// Rows as bytes: all numbers in one string, and values that all rows share once.

/// Rows with their moments and statistics.
///
/// Before training, all rows have the same moments, statistics, opacities and harmonics above degree 0. Of degree 3,
/// these would be 13 times as many bytes as the rest if they were sent for each row.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PackedRows {
    sh_degree: u32,
    rows: usize,
    has_absolute_norm_sums: bool,
    has_filter_3d: bool,
    /// True for each column that is sent as one row, since all rows are equal. Never for the first, the means.
    is_alike: Vec<bool>,
    /// Column after column.
    numbers: ByteString,
}

/// A column of rows, as bytes.
struct ColumnBytes<'a> {
    row_bytes: usize,
    /// Bytes of all rows, or of one if all rows are equal.
    bytes: &'a [u8],
}

impl ColumnBytes<'_> {
    fn rows(&self, rows: Range<usize>) -> &[u8] {
        &self.bytes[rows.start * self.row_bytes..rows.end * self.row_bytes]
    }

    /// True if all rows are equal.
    fn is_alike(&self) -> bool {
        let before = self.bytes.len().saturating_sub(self.row_bytes);
        before > 0 && self.bytes[self.row_bytes..] == self.bytes[..before]
    }
}

impl<'a> From<Group<'a>> for ColumnBytes<'a> {
    fn from(Group { width, values, .. }: Group<'a>) -> Self {
        Self { row_bytes: size_of::<f32>() * width, bytes: bytemuck::cast_slice(values) }
    }
}

/// Columns of rows as they are sent, each with or without equal rows.
struct SentColumns<'a> {
    sh_degree: u32,
    has_absolute_norm_sums: bool,
    has_filter_3d: bool,
    columns: Vec<ColumnBytes<'a>>,
    is_alike: Vec<bool>,
}

impl<'a> SentColumns<'a> {
    fn of(rows: &'a Snapshot<Gaussians>) -> Self {
        let columns = columns(rows);
        Self {
            sh_degree: rows.parameters.sh_degree,
            has_absolute_norm_sums: !rows.absolute_norm_sums.is_empty(),
            has_filter_3d: !rows.filter_3d.is_empty(),
            is_alike: is_alike(&columns),
            columns,
        }
    }

    /// Columns of parameters whose other columns are zero. `one` is a row of zeros.
    fn of_fresh(parameters: &'a Gaussians, one: &'a Snapshot<Gaussians>) -> Self {
        let mut sent = Self::of(one);
        let own: Vec<ColumnBytes<'_>> =
            parameters.groups().into_iter().map(ColumnBytes::from).collect();
        sent.is_alike = is_alike(&own);
        sent.is_alike.resize(sent.columns.len(), true);
        sent.columns.splice(..own.len(), own);
        sent
    }

    /// The rows of these ranges.
    fn packed(&self, ranges: &[Range<usize>]) -> PackedRows {
        let row_count: usize = ranges.iter().map(Range::len).sum();
        let rows_of = |is_alike: bool| if is_alike { row_count.min(1) } else { row_count };
        let columns = self.columns.iter().zip(self.is_alike.iter().copied());
        let bytes = columns.clone().map(|(column, alike)| rows_of(alike) * column.row_bytes).sum();
        let mut numbers = Vec::with_capacity(bytes);
        for (column, is_alike) in columns {
            if is_alike {
                numbers.extend_from_slice(column.rows(0..rows_of(true)));
                continue;
            }
            for rows in ranges {
                numbers.extend_from_slice(column.rows(rows.clone()));
            }
        }
        PackedRows {
            sh_degree: self.sh_degree,
            rows: row_count,
            has_absolute_norm_sums: self.has_absolute_norm_sums,
            has_filter_3d: self.has_filter_3d,
            is_alike: self.is_alike.clone(),
            numbers: ByteString(numbers),
        }
    }
}

impl PackedRows {
    pub(super) fn of(rows: &Snapshot<Gaussians>) -> Self {
        let all = 0..rows.parameters.len();
        SentColumns::of(rows).packed(std::slice::from_ref(&all))
    }

    /// The rows of several, each of these ranges.
    pub(super) fn of_each(rows: &Snapshot<Gaussians>, parts: &[Vec<Range<usize>>]) -> Vec<Self> {
        let sent = SentColumns::of(rows);
        parts.iter().map(|ranges| sent.packed(ranges)).collect()
    }

    /// Packs each of these ranges of rows whose moments and statistics are zero.
    pub(super) fn of_each_fresh(rows: &Gaussians, parts: &[Vec<Range<usize>>]) -> Vec<Self> {
        let one = Snapshot::zeros(rows.sh_degree, 1, OptionalColumns::NONE);
        let sent = SentColumns::of_fresh(rows, &one);
        parts.iter().map(|ranges| sent.packed(ranges)).collect()
    }

    /// True if the number of bytes is that of such rows.
    fn is_whole(&self) -> bool {
        if self.sh_degree > MAX_DEGREE {
            return false;
        }
        let one = self.unpacked(1);
        let columns = columns(&one);
        // The means bound how many rows there can be.
        if columns.len() != self.is_alike.len() || self.is_alike[0] {
            return false;
        }
        let mut bytes = Some(0_usize);
        for (column, &is_alike) in columns.iter().zip(&self.is_alike) {
            let rows = if is_alike { self.rows.min(1) } else { self.rows };
            let own = rows.checked_mul(column.row_bytes);
            bytes = bytes.zip(own).and_then(|(bytes, own)| bytes.checked_add(own));
        }
        bytes == Some(self.numbers.0.len())
    }

    /// Returns N rows of these columns, all zero.
    fn unpacked(&self, rows: usize) -> Snapshot<Gaussians> {
        let optional = OptionalColumns {
            filter_3d: self.has_filter_3d,
            absolute_norm_sums: self.has_absolute_norm_sums,
        };
        Snapshot::zeros(self.sh_degree, rows, optional)
    }

    /// Returns the rows that rank `rank` has sent. Fails if their number or size is wrong.
    pub(super) fn unpack(
        self,
        rank: u32,
        expected_rows: usize,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        // Checked before memory is allocated for the rows.
        if self.rows != expected_rows {
            let message = format!("it sends {} of {expected_rows} rows", self.rows);
            return Err(DeviceError::of_rank(rank, message));
        }
        if !self.is_whole() {
            let (rows, sh_degree) = (self.rows, self.sh_degree);
            let message = format!("what it sends is not {rows} Gaussians of degree {sh_degree}");
            return Err(DeviceError::of_rank(rank, message));
        }
        let mut unpacked = self.unpacked(self.rows);
        let row_bytes: Vec<usize> =
            columns(&unpacked).iter().map(|column| column.row_bytes).collect();
        let mut left = self.numbers.0.as_slice();
        let into = columns_mut(&mut unpacked).into_iter().zip(row_bytes);
        for ((column, row_bytes), &is_alike) in into.zip(&self.is_alike) {
            let sent = if is_alike { self.rows.min(1) * row_bytes } else { column.len() };
            let (these, rest) = left.split_at(sent);
            left = rest;
            // Zero as it is, a column takes no memory before it is written to.
            if is_alike && these.iter().any(|&byte| byte != 0) {
                column.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(these));
            } else if !is_alike {
                column.copy_from_slice(these);
            }
        }
        Ok(unpacked)
    }
}

/// The columns of rows, of which the last two may be missing.
fn columns(rows: &Snapshot<Gaussians>) -> Vec<ColumnBytes<'_>> {
    let single = |bytes| ColumnBytes { row_bytes: size_of::<f32>(), bytes };
    let groups = [&rows.parameters, &rows.first_moments, &rows.second_moments];
    let mut columns: Vec<ColumnBytes<'_>> =
        groups.into_iter().flat_map(Gaussians::groups).map(ColumnBytes::from).collect();
    columns.push(single(bytemuck::cast_slice(&rows.gradient_norm_sums)));
    columns.push(single(bytemuck::cast_slice(&rows.views_seen)));
    let optional = [&rows.absolute_norm_sums, &rows.filter_3d];
    let there = optional.into_iter().filter(|column| !column.is_empty());
    columns.extend(there.map(|column| single(bytemuck::cast_slice(column))));
    columns
}

/// Returns the columns in the order of [`columns`], to be filled.
fn columns_mut(rows: &mut Snapshot<Gaussians>) -> Vec<&mut [u8]> {
    let groups = [&mut rows.parameters, &mut rows.first_moments, &mut rows.second_moments];
    let columns = groups.into_iter().flat_map(Gaussians::groups_mut);
    let mut columns: Vec<&mut [u8]> =
        columns.map(|column| bytemuck::cast_slice_mut(column.as_mut_slice())).collect();
    columns.push(bytemuck::cast_slice_mut(&mut rows.gradient_norm_sums));
    columns.push(bytemuck::cast_slice_mut(&mut rows.views_seen));
    let optional = [&mut rows.absolute_norm_sums, &mut rows.filter_3d];
    let there = optional.into_iter().filter(|column| !column.is_empty());
    columns.extend(there.map(|column| bytemuck::cast_slice_mut(column.as_mut_slice())));
    columns
}

/// Returns true for each column whose rows are equal.
fn is_alike(columns: &[ColumnBytes<'_>]) -> Vec<bool> {
    (0..).zip(columns).map(|(number, column)| number > 0 && column.is_alike()).collect()
}

/// Bytes that are encoded as such, and not one after the other.
#[derive(Debug)]
struct ByteString(Vec<u8>);

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = ByteString;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<ByteString, E> {
                Ok(ByteString(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, moment: f32, has_optional: bool) -> Snapshot<Gaussians> {
        let numbered = |of: f32| {
            let mut rows = Gaussians::zeros(2, count);
            for (column, values) in (1u8..).zip(rows.groups_mut()) {
                for (i, value) in (0u16..).zip(values.iter_mut()) {
                    *value = of * (f32::from(column) + f32::from(i) / 7.0);
                }
            }
            rows
        };
        let mut parameters = numbered(1.5);
        parameters.quats = [0.5, 0.0, -0.0, 2.0].repeat(count);
        Snapshot {
            parameters,
            first_moments: numbered(moment),
            second_moments: numbered(2.0 * moment),
            gradient_norm_sums: vec![moment; count],
            views_seen: (0..count)
                .map(|i| if moment == 0.0 { 0 } else { u32::from(i % 3 == 1) })
                .collect(),
            absolute_norm_sums: vec![0.25; if has_optional { count } else { 0 }],
            filter_3d: vec![0.5; if has_optional { count } else { 0 }],
        }
    }

    fn sent(rows: &Snapshot<Gaussians>) -> (Snapshot<Gaussians>, usize) {
        let bytes = postcard::to_stdvec(&PackedRows::of(rows)).unwrap();
        let packed: PackedRows = postcard::from_bytes(&bytes).unwrap();
        (packed.unpack(1, rows.parameters.len()).unwrap(), bytes.len())
    }

    #[test]
    fn rows_come_as_they_were_sent() {
        for count in [0, 1, 33] {
            for (moment, has_optional) in [(0.0, false), (0.0, true), (0.125, true)] {
                let rows = rows(count, moment, has_optional);
                assert_eq!(sent(&rows).0, rows, "{count} rows, moments of {moment}");
            }
        }
        // 27 harmonics and 7 more numbers, since all rotations are alike; of each moment 4 more; one statistic that is
        // not alike.
        let [fresh, trained] = [0.0, 0.125].map(|moment| sent(&rows(1000, moment, false)).1);
        assert!(fresh.abs_diff(4 * 34 * 1000) < 512, "{fresh} bytes");
        assert!(trained.abs_diff(4 * (34 + 2 * 38 + 1) * 1000) < 512, "{trained} bytes");
    }

    fn taken(rows: &Snapshot<Gaussians>, ranges: &[Range<usize>]) -> Snapshot<Gaussians> {
        let mut taken = rows.clone().read(0..0).unwrap();
        taken.extend(ranges.iter().map(|range| rows.clone().read(range.clone()).unwrap()));
        taken
    }

    #[test]
    fn parts_of_rows_come_in_their_order() {
        for moment in [0.0, 0.125] {
            let rows = rows(12, moment, true);
            let parts = [vec![3..5, 9..12], vec![], vec![0..2, 2..3]];
            let sent = PackedRows::of_each(&rows, &parts);
            for (packed, ranges) in sent.into_iter().zip(parts) {
                let expected = taken(&rows, &ranges);
                assert_eq!(packed.unpack(0, expected.parameters.len()).unwrap(), expected);
            }
        }
    }

    #[test]
    fn fresh_rows_are_sent_as_their_parameters() {
        let rows = rows(9, 0.0, false);
        for parts in [vec![vec![1..4, 6..9], vec![0..1, 4..6]], vec![vec![], vec![3..4]]] {
            let packed = PackedRows::of_each_fresh(&rows.parameters, &parts);
            let whole = PackedRows::of_each(&rows, &parts);
            assert_eq!(packed[1].numbers.0, whole[1].numbers.0);
            assert_eq!(packed[1].is_alike, whole[1].is_alike);
            for (packed, ranges) in packed.into_iter().zip(&parts) {
                let expected = taken(&rows, ranges);
                assert_eq!(packed.unpack(0, expected.parameters.len()).unwrap(), expected);
            }
        }
    }

    #[test]
    fn rows_without_higher_harmonics_come_as_they_were_sent() {
        let mut rows = rows(7, 0.125, false);
        for part in [&mut rows.parameters, &mut rows.first_moments, &mut rows.second_moments] {
            (part.sh_degree, part.sh_rest) = (0, Vec::new());
        }
        assert_eq!(sent(&rows).0, rows);
        let all = vec![vec![0..7]];
        let fresh = PackedRows::of_each_fresh(&rows.parameters, &all).remove(0).unpack(0, 7);
        assert_eq!(fresh.unwrap().parameters, rows.parameters);
    }

    #[test]
    fn what_is_no_rows_is_an_error_of_who_sent_it() {
        let wrong: [fn(&mut PackedRows); 5] = [
            |packed| packed.numbers.0.truncate(9),
            |packed| packed.rows = usize::MAX,
            |packed| packed.sh_degree = u32::MAX,
            |packed| packed.is_alike.truncate(3),
            |packed| (packed.is_alike[0], packed.rows) = (true, usize::MAX),
        ];
        for change in wrong {
            let mut packed = PackedRows::of(&rows(5, 0.125, true));
            change(&mut packed);
            let rows = packed.rows;
            let message = packed.unpack(2, rows).unwrap_err().to_string();
            assert!(message.contains("what it sends is not"), "{message}");
        }
        let packed = PackedRows::of(&rows(5, 0.125, true));
        let message = packed.unpack(2, 4).unwrap_err().to_string();
        assert!(message.contains("it sends 5 of 4 rows"), "{message}");
    }
}
