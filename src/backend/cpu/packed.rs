//! Packed parts of a model's tables in compact storage. The layout is defined in `kernels/state.cuh`.

use std::ops::Range;

use crate::layout::{ModelSize, OptionalColumns, RowForm, Schema, Storage, TABLE_PARTS};
use crate::math::compact::{
    NEAREST, decode_bfloat, decode_first, decode_half, decode_second, encode_bfloat, encode_first,
    encode_half, encode_second, inverse_scale, rounded_scale, with_byte, with_half,
};
use crate::model::Primitive;

/// Values, first moments or second moments of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TablePart {
    /// Index of the table in the schema.
    pub(super) table: usize,
    /// 0 for values, 1 and 2 for first and second moments.
    pub(super) part: usize,
}

impl TablePart {
    /// Returns the parts (values, first and second moments) of the table that holds a column.
    pub(super) fn of_column<P: Primitive>(column: usize) -> [Self; TABLE_PARTS] {
        let table = usize::from(P::SCHEMA.columns[column].table);
        [0, 1, 2].map(|part| Self { table, part })
    }

    pub(super) fn is_moment(self) -> bool {
        self.part > 0
    }
}

/// A part that is packed into words, row after row.
#[derive(Clone, Debug)]
pub(super) struct PackedPart {
    pub(super) of: TablePart,
    pub(super) form: RowForm,
    /// Number of values per row.
    values: u32,
    pub(super) words: Vec<u32>,
}

impl PackedPart {
    /// Returns the empty parts that `storage` packs into words.
    pub(super) fn all(schema: &'static Schema, sh_degree: u32, storage: Storage) -> Vec<Self> {
        let optional = OptionalColumns::NONE;
        let size = ModelSize { gaussians: 0, schema, sh_degree, storage, optional };
        let parts = size.forms().zip(size.values()).enumerate();
        parts
            .filter(|&(_, (form, _))| form != RowForm::Floats)
            .map(|(number, (form, values))| {
                let of = TablePart { table: number / TABLE_PARTS, part: number % TABLE_PARTS };
                Self { of, form, values, words: Vec::new() }
            })
            .collect()
    }

    /// Returns the number of words per row.
    pub(super) fn width(&self) -> usize {
        self.form.words(self.values) as usize
    }

    pub(super) fn row(&self, row: usize) -> &[u32] {
        &self.words[row * self.width()..][..self.width()]
    }

    pub(super) fn value(&self, row: usize, k: usize) -> f32 {
        decode(self.form, self.row(row), k)
    }

    /// Appends a row. Each value is rounded to nearest.
    pub(super) fn push(&mut self, values: &[f32]) {
        self.words.extend(pack(self.form, values));
    }

    /// Appends the mean of two rows, rounded to nearest.
    pub(super) fn push_mean(&mut self, [a, b]: [usize; 2]) {
        let mean = |k| 0.5 * (self.value(a, k) + self.value(b, k));
        let values: Vec<f32> = (0..self.values as usize).map(mean).collect();
        self.push(&values);
    }

    /// Zeros these values of every row. Supports 16-bit forms only: 8-bit forms share a scale.
    pub(super) fn clear(&mut self, values: Range<usize>) {
        let width = self.width();
        for row in self.words.chunks_exact_mut(width) {
            for k in values.clone() {
                row[k / 2] = with_half(row[k / 2], place(k, 2), 0);
            }
        }
    }
}

/// Decodes value `k` of a packed row.
pub(super) fn decode(form: RowForm, words: &[u32], k: usize) -> f32 {
    match form {
        RowForm::Floats => f32::from_bits(words[k]),
        RowForm::Halves => decode_half(words[k / 2], place(k, 2)),
        RowForm::Bfloats => decode_bfloat(words[k / 2], place(k, 2)),
        RowForm::Firsts => decode_first(words[1 + k / 4], place(k, 4)) * f32::from_bits(words[0]),
        RowForm::Seconds => decode_second(words[1 + k / 4], place(k, 4)) * f32::from_bits(words[0]),
    }
}

/// Stores a code, given in the upper bits, as value `k` of a packed row.
pub(super) fn set_code(form: RowForm, words: &mut [u32], k: usize, code: u32) {
    let word = match form {
        RowForm::Floats => &mut words[k],
        RowForm::Halves | RowForm::Bfloats => &mut words[k / 2],
        RowForm::Firsts | RowForm::Seconds => &mut words[1 + k / 4],
    };
    *word = match form {
        RowForm::Floats => code,
        RowForm::Halves | RowForm::Bfloats => with_half(*word, place(k, 2), code),
        RowForm::Firsts | RowForm::Seconds => with_byte(*word, place(k, 4), code),
    };
}

/// Returns the position of value `k` inside its word.
fn place(k: usize, in_word: usize) -> u32 {
    u32::try_from(k % in_word).unwrap_or(0)
}

/// Packs a row, rounding to nearest. Decoded values are packed to codes of the same values.
fn pack(form: RowForm, values: &[f32]) -> Vec<u32> {
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let mut words = vec![0; form.words(count) as usize];
    let mut inverse = 0.0;
    if matches!(form, RowForm::Firsts | RowForm::Seconds) {
        let scale = best_scale(form, values);
        words[0] = scale.to_bits();
        inverse = inverse_scale(scale);
    }
    for (k, &value) in values.iter().enumerate() {
        let code = match form {
            RowForm::Floats => value.to_bits(),
            // Keep NaN as the NaN of half precision.
            RowForm::Halves if value.is_nan() => 0x7e00_0000,
            RowForm::Halves => encode_half(value, NEAREST),
            RowForm::Bfloats => encode_bfloat(value, NEAREST),
            RowForm::Firsts | RowForm::Seconds => encode_share(form, value * inverse),
        };
        set_code(form, &mut words, k, code);
    }
    words
}

fn encode_share(form: RowForm, share: f32) -> u32 {
    if form == RowForm::Firsts {
        encode_first(share, NEAREST)
    } else {
        encode_second(share, NEAREST)
    }
}

/// Returns the scale with the least squared error. Eight candidates give the largest value one of eight mantissas:
/// decoded values fit one of the eight exactly.
fn best_scale(form: RowForm, values: &[f32]) -> f32 {
    let largest = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    if largest < f32::MIN_POSITIVE || largest.is_infinite() {
        return 0.0;
    }
    let misfit = |scale: f32| -> f32 {
        let inverse = inverse_scale(scale);
        let error = |&value: &f32| {
            let code = encode_share(form, value * inverse) >> 24;
            let share = if form == RowForm::Firsts {
                decode_first(code, 0)
            } else {
                decode_second(code, 0)
            };
            let error = (share * scale - value) / largest;
            error * error
        };
        values.iter().map(error).sum()
    };
    let (mut best, mut least) = (0.0, f32::INFINITY);
    for mantissa in 8_u8..16 {
        let scale = rounded_scale(largest / (f32::from(mantissa) / 16.0));
        let error = misfit(scale);
        if error < least {
            (best, least) = (scale, error);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::GAUSSIANS;

    /// Returns 48 values whose magnitudes differ by powers of two.
    fn values(form: RowForm) -> Vec<f32> {
        let value = |k: i32| (0.3 + 0.01 * k as f32) * 0.5_f32.powi(k % 9);
        let signed =
            |k: i32| if form != RowForm::Seconds && k % 3 == 0 { -value(k) } else { value(k) };
        (0..48).map(signed).collect()
    }

    #[test]
    fn parts_match_the_layout() {
        let parts = PackedPart::all(&GAUSSIANS, 3, Storage::Compact);
        let found: Vec<_> = parts.iter().map(|p| (p.of.table, p.of.part, p.width())).collect();
        assert_eq!(found, [(0, 1, 6), (1, 0, 24), (1, 1, 13), (1, 2, 13)]);
        assert!(PackedPart::all(&GAUSSIANS, 3, Storage::Full).is_empty());
    }

    #[test]
    fn packing_decoded_values_again_keeps_them() {
        for mut part in PackedPart::all(&GAUSSIANS, 3, Storage::Compact) {
            let given = &values(part.form)[..part.values as usize];
            part.push(given);
            let once: Vec<f32> = (0..given.len()).map(|k| part.value(0, k)).collect();
            part.push(&once);
            let twice: Vec<f32> = (0..given.len()).map(|k| part.value(1, k)).collect();
            assert_eq!(once, twice, "{:?}", part.form);
            for (found, given) in once.iter().zip(given) {
                // Three mantissa bits, or the least step of a share.
                assert!((found - given).abs() <= given.abs() / 16.0 + 1e-5, "{found} for {given}");
            }
        }
    }

    #[test]
    fn halves_keep_nan_and_clear_keeps_other_values() {
        let nan = pack(RowForm::Halves, &[f32::NAN, 1.0]);
        assert!(decode(RowForm::Halves, &nan, 0).is_nan());
        let mut parts = PackedPart::all(&GAUSSIANS, 0, Storage::Compact);
        let geometry = &mut parts[0];
        geometry.push(&[1.0; 11]);
        geometry.clear(10..11);
        assert_eq!((geometry.value(0, 10), geometry.value(0, 9)), (0.0, 1.0));
    }
}
