//! Buffers of copies of rows between host and device, and between encodings.

use super::model::{ModelSize, table_len};
use super::slot::{CallLen, Count, Lifetime, ProcessLen, Source};

/// Words of page-locked memory that copies pass through: 2 MiB, beyond which the bus is no faster. There are two, so
/// that one is packed while the other is copied.
pub const STAGING_WORDS: u32 = 1 << 19;

/// Words of scratch of a conversion: 4 MiB, since conversions happen when memory is short.
const CONVERSION_WORDS: u64 = 1 << 20;

slots! {
    ProcessLen {
        pub STAGING: u32 = "staging of the model", Transfer, ProcessLen, 1,
            "the model on its way to and from files";
    }
    PackCount {
        pub ROWS_TO_PACK: u32 = "rows to pack", Transfer, PackCount, 1,
            "the model on its way to and from files";
    }
    ConversionCount {
        pub CONVERSION: u32 = "state on its way", Transfer, ConversionCount, 1,
            "the model while it goes over to fewer bits";
    }
    CallLen {
        SAMPLED_ROWS: u32 = "sampled rows", Transfer, CallLen, 1, "samples for the histograms";
        SAMPLE: f32 = "sample", Transfer, CallLen, 1, "samples for the histograms";
    }
}

/// Sizes of packed rows.
#[derive(Clone, Copy, Debug)]
pub struct PackSizes {
    /// Rows.
    pub rows: u64,
    /// Values of a row.
    pub values: u64,
}

/// Words of packed rows in a copy.
#[derive(Clone, Copy, Debug)]
pub struct PackCount;

impl Count for PackCount {
    type Sizes = PackSizes;

    const LIFETIME: Lifetime = Lifetime::Call;

    fn of(self, sizes: &PackSizes) -> u64 {
        table_len(sizes.rows, sizes.values).min(STAGING_WORDS.into())
    }
}

/// Words of a model's rows in a conversion.
#[derive(Clone, Copy, Debug)]
pub struct ConversionCount;

impl Count for ConversionCount {
    type Sizes = ModelSize;

    const LIFETIME: Lifetime = Lifetime::Call;

    fn of(self, size: &ModelSize) -> u64 {
        let widest = size.values().max().unwrap_or(1);
        table_len(size.gaussians, widest.into()).min(CONVERSION_WORDS)
    }
}

/// Buffers of sampled rows of a model.
pub struct SampleSlots<A: Source> {
    /// Indices of the rows.
    pub rows: A::Block<u32>,
    /// Parameters of the rows.
    pub values: A::Block<f32>,
}

impl<A: Source> SampleSlots<A> {
    /// Reserves the buffers for `rows` rows of `width` values, at most [`Self::at_once`].
    pub fn reserve(source: &A, rows: u64, width: u64) -> Result<Self, A::Error> {
        let rows = rows.min(Self::at_once(width));
        Ok(Self {
            rows: source.take(&SAMPLED_ROWS, &rows)?,
            values: source.take(&SAMPLE, &(rows * width))?,
        })
    }

    /// Returns the number of rows of `width` values that are copied at once.
    pub fn at_once(width: u64) -> u64 {
        u64::from(STAGING_WORDS) / width.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{GAUSSIANS, OptionalColumns, Storage};

    #[test]
    fn copies_are_no_longer_than_the_rows() {
        let words = |rows| ROWS_TO_PACK.len(&PackSizes { rows, values: 48 });
        assert_eq!([33, 1 << 20].map(words), [64 * 48, 1 << 19]);
        let optional = OptionalColumns::NONE;
        let size = |gaussians| ModelSize {
            gaussians,
            schema: &GAUSSIANS,
            sh_degree: 3,
            storage: Storage::Full,
            optional,
        };
        assert_eq!([33, 1 << 20].map(|n| CONVERSION.len(&size(n))), [64 * 48, 1 << 20]);
    }
}
