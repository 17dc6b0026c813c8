//! Rows as ranks send them: all numbers in one string of bytes, and what training has not touched left out.

use std::ops::Range;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::backend::{DeviceError, Snapshot};
use crate::math::sh::MAX_DEGREE;
use crate::model::{Gaussians, Group, Primitive as _};

/// Rows with their moments and statistics.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PackedRows {
    sh_degree: u32,
    rows: usize,
    /// Whether moments and statistics are all zero, and left out.
    is_fresh: bool,
    has_absolute_norm_sums: bool,
    has_filter_3d: bool,
    numbers: ByteString,
}

impl PackedRows {
    pub(super) fn of(rows: &Snapshot<Gaussians>) -> Self {
        let all = 0..rows.parameters.len();
        Self::of_ranges(rows, std::slice::from_ref(&all), !has_trained(rows))
    }

    /// The rows of several, each of these ranges.
    pub(super) fn of_each(rows: &Snapshot<Gaussians>, parts: &[Vec<Range<usize>>]) -> Vec<Self> {
        let is_fresh = !has_trained(rows);
        parts.iter().map(|ranges| Self::of_ranges(rows, ranges, is_fresh)).collect()
    }

    fn of_ranges(all: &Snapshot<Gaussians>, ranges: &[Range<usize>], is_fresh: bool) -> Self {
        let mut packed = Self {
            sh_degree: all.parameters.sh_degree,
            rows: ranges.iter().map(Range::len).sum(),
            is_fresh,
            has_absolute_norm_sums: !all.absolute_norm_sums.is_empty(),
            has_filter_3d: !all.filter_3d.is_empty(),
            numbers: ByteString(Vec::new()),
        };
        let numbers = &mut packed.numbers.0;
        let mut columns = all.parameters.groups();
        let with_width = |name, values| Group { name, width: 1, values };
        if !is_fresh {
            columns.extend(all.first_moments.groups());
            columns.extend(all.second_moments.groups());
            columns.push(with_width("gradient norms", &all.gradient_norm_sums));
        }
        let optional = [&all.absolute_norm_sums, &all.filter_3d];
        let there = optional.into_iter().filter(|column| !column.is_empty());
        columns.extend(there.map(|column| with_width("optional", column)));
        let of_row: usize = columns.iter().map(|column| column.width).sum();
        numbers.reserve_exact(size_of::<f32>() * packed.rows * (of_row + 1));
        for Group { width, values, .. } in columns {
            for rows in ranges {
                let these = &values[rows.start * width..rows.end * width];
                numbers.extend_from_slice(bytemuck::cast_slice(these));
            }
        }
        for rows in ranges.iter().filter(|_| !is_fresh) {
            numbers.extend_from_slice(bytemuck::cast_slice(&all.views_seen[rows.clone()]));
        }
        packed
    }

    /// How many bytes the numbers are; nothing where no model has such rows.
    fn expected_bytes(&self) -> Option<usize> {
        if self.sh_degree > MAX_DEGREE {
            return None;
        }
        let values = Gaussians::SCHEMA.row_values(self.sh_degree) as usize;
        let of_row = if self.is_fresh { values } else { 3 * values + 2 };
        let optional = [self.has_absolute_norm_sums, self.has_filter_3d].map(usize::from);
        self.rows.checked_mul(4 * (of_row + optional[0] + optional[1]))
    }

    /// The rows, as this rank has sent them.
    pub(super) fn unpack(self, rank: u32) -> Result<Snapshot<Gaussians>, DeviceError> {
        let (sh_degree, rows) = (self.sh_degree, self.rows);
        // Before memory is taken for them.
        if self.expected_bytes() != Some(self.numbers.0.len()) {
            let message = format!("what it sends is not {rows} Gaussians of degree {sh_degree}");
            return Err(DeviceError::OfRank { rank, message });
        }
        let zeros = || Gaussians::zeros(sh_degree, rows);
        let optional = |is_there| vec![0.0; if is_there { rows } else { 0 }];
        let mut unpacked = Snapshot {
            parameters: zeros(),
            first_moments: zeros(),
            second_moments: zeros(),
            gradient_norm_sums: vec![0.0; rows],
            views_seen: vec![0; rows],
            absolute_norm_sums: optional(self.has_absolute_norm_sums),
            filter_3d: optional(self.has_filter_3d),
        };
        let mut left = self.numbers.0.as_slice();
        let mut take = |into: &mut [u8]| {
            let (these, rest) = left.split_at(into.len());
            into.copy_from_slice(these);
            left = rest;
        };
        let mut fill = |column: &mut Vec<f32>| take(bytemuck::cast_slice_mut(column));
        unpacked.parameters.groups_mut().into_iter().for_each(&mut fill);
        if !self.is_fresh {
            unpacked.first_moments.groups_mut().into_iter().for_each(&mut fill);
            unpacked.second_moments.groups_mut().into_iter().for_each(&mut fill);
            fill(&mut unpacked.gradient_norm_sums);
        }
        fill(&mut unpacked.absolute_norm_sums);
        fill(&mut unpacked.filter_3d);
        if !self.is_fresh {
            take(bytemuck::cast_slice_mut(&mut unpacked.views_seen));
        }
        Ok(unpacked)
    }
}

/// Whether a step has left anything in the moments or the statistics.
fn has_trained(rows: &Snapshot<Gaussians>) -> bool {
    let is_set = |values: &[f32]| values.iter().any(|value| value.to_bits() != 0);
    let moments = [&rows.first_moments, &rows.second_moments];
    moments.into_iter().flat_map(Gaussians::values).any(is_set)
        || is_set(&rows.gradient_norm_sums)
        || rows.views_seen.iter().any(|&views| views > 0)
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
    use crate::backend::Rows as _;

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
        Snapshot {
            parameters: numbered(1.5),
            first_moments: numbered(moment),
            second_moments: numbered(2.0 * moment),
            gradient_norm_sums: vec![moment; count],
            views_seen: vec![if moment == 0.0 { 0 } else { 3 }; count],
            absolute_norm_sums: vec![0.25; if has_optional { count } else { 0 }],
            filter_3d: vec![0.5; if has_optional { count } else { 0 }],
        }
    }

    fn sent(rows: &Snapshot<Gaussians>) -> (Snapshot<Gaussians>, usize) {
        let bytes = postcard::to_stdvec(&PackedRows::of(rows)).unwrap();
        let packed: PackedRows = postcard::from_bytes(&bytes).unwrap();
        (packed.unpack(1).unwrap(), bytes.len())
    }

    #[test]
    fn rows_come_as_they_were_sent() {
        for count in [0, 1, 33] {
            for (moment, has_optional) in [(0.0, false), (0.0, true), (0.125, true)] {
                let rows = rows(count, moment, has_optional);
                assert_eq!(sent(&rows).0, rows, "{count} rows, moments of {moment}");
            }
        }
        // 27 harmonics and 11 more numbers, and as many of each moment with two statistics.
        let [fresh, trained] = [0.0, 0.125].map(|moment| sent(&rows(1000, moment, false)).1);
        assert!(fresh.abs_diff(4 * 38 * 1000) < 32, "{fresh} bytes");
        assert!(trained.abs_diff(4 * (3 * 38 + 2) * 1000) < 32, "{trained} bytes");
    }

    #[test]
    fn parts_of_rows_come_in_their_order() {
        for moment in [0.0, 0.125] {
            let rows = rows(12, moment, true);
            let parts = [vec![3..5, 9..12], vec![], vec![0..2, 2..3]];
            let sent = PackedRows::of_each(&rows, &parts);
            for (packed, ranges) in sent.into_iter().zip(parts) {
                let mut expected = rows.clone().read(0..0).unwrap();
                for range in ranges {
                    expected.append(rows.clone().read(range).unwrap());
                }
                assert_eq!(packed.unpack(0).unwrap(), expected);
            }
        }
    }

    #[test]
    fn what_is_no_rows_is_an_error_of_who_sent_it() {
        let wrong: [fn(&mut PackedRows); 4] = [
            |packed| packed.numbers.0.truncate(9),
            |packed| packed.rows = usize::MAX,
            |packed| packed.sh_degree = u32::MAX,
            |packed| packed.is_fresh = true,
        ];
        for change in wrong {
            let mut packed = PackedRows::of(&rows(5, 0.125, true));
            change(&mut packed);
            let message = packed.unpack(2).unwrap_err().to_string();
            assert!(message.contains("what it sends is not"), "{message}");
        }
    }
}
