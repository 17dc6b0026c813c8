//! What Gaussians take for good.

use serde::Serialize;

use super::stack::Row;
use crate::abi::GEOMETRY_WIDTH;
use crate::memory::Bytes;

/// Gaussians of a lane block: tables come in whole ones.
const LANES: u64 = 32;

/// Bytes of a float, a count and a pair of halves.
const WORD: u64 = 4;

/// Regions of a model.
pub const REGIONS: usize = 11;

/// How colours and moments are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// 32 bits a value.
    #[default]
    Full,
    /// Colours in 16 bits, moments in 16 and 8.
    Compact,
}

/// Columns that a model has only where something needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalColumns {
    /// The smallest details that views could have told of each Gaussian (Mip-Splatting).
    pub filter_3d: bool,
    /// Sums of absolute gradients, for density control (GOF).
    pub absolute_norm_sums: bool,
}

impl OptionalColumns {
    /// None of them.
    pub const NONE: Self = Self { filter_3d: false, absolute_norm_sums: false };

    /// How many there are.
    pub fn count(self) -> u64 {
        u64::from(self.filter_3d) + u64::from(self.absolute_norm_sums)
    }
}

/// Gaussians, and what each of them consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSize {
    /// Gaussians.
    pub gaussians: u64,
    /// Highest degree of the spherical harmonics.
    pub sh_degree: u32,
    /// How they are stored.
    pub storage: Storage,
    /// What there is beside parameters, moments and statistics.
    pub optional: OptionalColumns,
}

impl ModelSize {
    /// The same with another number of Gaussians.
    pub fn with(self, gaussians: u64) -> Self {
        Self { gaussians, ..self }
    }

    /// What each region holds, in the order in which regions grow.
    pub fn regions(&self) -> [Row; REGIONS] {
        let [geometry, geometry_first, geometry_second, sh, sh_first, sh_second] =
            self.widths().map(|width| self.table(width));
        let a_word_each = self.gaussians * WORD;
        let where_there = |there: bool| if there { a_word_each } else { 0 };
        [
            ("geometry", geometry),
            ("geometry, first moments", geometry_first),
            ("geometry, second moments", geometry_second),
            ("sh", sh),
            ("sh, first moments", sh_first),
            ("sh, second moments", sh_second),
            ("sh, steps taken", self.gaussians.div_ceil(LANES) * WORD),
            ("density statistics, gradients", a_word_each),
            ("density statistics, views", a_word_each),
            (
                "density statistics, absolute gradients",
                where_there(self.optional.absolute_norm_sums),
            ),
            ("3d filter", where_there(self.optional.filter_3d)),
        ]
        .map(|(label, bytes)| Row { label, bytes: Bytes(bytes) })
    }

    /// Bytes that all regions hold.
    pub fn bytes(&self) -> Bytes {
        self.regions().iter().map(|row| row.bytes).sum()
    }

    /// Bytes of the parameters in the host's columns.
    pub(super) fn parameters(&self) -> u64 {
        self.gaussians * (u64::from(GEOMETRY_WIDTH) + self.sh_values()) * WORD
    }

    /// Values of harmonics per Gaussian.
    pub(super) fn sh_values(&self) -> u64 {
        3 * u64::from(self.sh_degree + 1).pow(2)
    }

    /// Words of all tables per Gaussian.
    pub(super) fn words(&self) -> u64 {
        self.widths().iter().sum()
    }

    /// Words of the widest table per Gaussian.
    pub(super) fn widest(&self) -> u64 {
        self.widths().into_iter().max().unwrap_or(1)
    }

    /// Words of each table per Gaussian.
    fn widths(&self) -> [u64; 6] {
        let geometry = u64::from(GEOMETRY_WIDTH);
        let sh = self.sh_values();
        match self.storage {
            Storage::Full => [geometry, geometry, geometry, sh, sh, sh],
            Storage::Compact => {
                // Codes of 8 bits with a scale.
                let moments = 1 + sh.div_ceil(4);
                [geometry, geometry.div_ceil(2), geometry, sh.div_ceil(2), moments, moments]
            }
        }
    }

    /// Bytes of a table of so many words per Gaussian.
    pub(super) fn table(&self, width: u64) -> u64 {
        self.gaussians.next_multiple_of(LANES) * width * WORD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(gaussians: u64, sh_degree: u32, storage: Storage) -> ModelSize {
        ModelSize { gaussians, sh_degree, storage, optional: OptionalColumns::NONE }
    }

    fn million(sh_degree: u32, storage: Storage) -> u64 {
        size(1 << 20, sh_degree, storage).bytes().0 >> 20
    }

    #[test]
    fn a_gaussian_takes_the_bytes_that_the_documentation_names() {
        assert_eq!((million(3, Storage::Full), million(3, Storage::Compact)), (716, 320));
        assert_eq!(million(0, Storage::Full), 4 * (3 * 11 + 3 * 3) + 8);
        assert_eq!(million(0, Storage::Compact), 4 * (11 + 6 + 11 + 2 + 2 + 2) + 8);
    }

    #[test]
    fn an_optional_column_takes_four_bytes_a_gaussian() {
        let plain = size(1000, 2, Storage::Compact);
        let filter = OptionalColumns { filter_3d: true, ..OptionalColumns::NONE };
        let both = OptionalColumns { absolute_norm_sums: true, ..filter };
        for (optional, more) in [(filter, 4000), (both, 8000)] {
            let with = ModelSize { optional, ..plain };
            assert_eq!(with.bytes().0, plain.bytes().0 + more);
        }
    }

    #[test]
    fn tables_come_in_whole_lane_blocks() {
        let rows = size(33, 1, Storage::Full).regions();
        let bytes =
            |label: &str| rows.iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0);
        assert_eq!(bytes("geometry"), 64 * 11 * 4);
        assert_eq!(bytes("sh"), 64 * 12 * 4);
        assert_eq!(bytes("sh, steps taken"), 2 * 4);
        assert_eq!(bytes("density statistics, views"), 33 * 4);
    }
}
