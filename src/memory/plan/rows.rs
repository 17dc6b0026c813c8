//! Rows of a plan, one for each label, and the regions of a model.

use serde::{Serialize, Serializer};

use crate::layout::{Live, ModelSize, Storage};
use crate::memory::Bytes;

/// The memory of one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedRow {
    /// Label of the ledger.
    pub label: &'static str,
    /// Size.
    pub bytes: Bytes,
}

impl From<Live> for PlannedRow {
    fn from(live: Live) -> Self {
        Self { label: live.label, bytes: Bytes(live.bytes) }
    }
}

impl ModelSize {
    /// Returns the size of each region, in the order of growth.
    pub fn regions(&self) -> Vec<PlannedRow> {
        let row = |(label, bytes)| PlannedRow { label, bytes: Bytes(bytes) };
        self.region_bytes().map(row).collect()
    }

    /// Returns the bytes of all regions.
    pub fn bytes(&self) -> Bytes {
        self.regions().iter().map(|row| row.bytes).sum()
    }

    /// Returns the bytes of the parameters in the host's columns.
    pub(super) fn host_bytes(&self) -> u64 {
        self.gaussians * self.parameters() * size_of::<f32>() as u64
    }
}

impl Serialize for Storage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Full => "full",
            Self::HalfColors => "half_colors",
            Self::Compact => "compact",
            Self::Offloaded => "offloaded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{GAUSSIANS, OptionalColumns};

    fn size(gaussians: u64, sh_degree: u32, storage: Storage) -> ModelSize {
        ModelSize {
            gaussians,
            schema: &GAUSSIANS,
            sh_degree,
            storage,
            optional: OptionalColumns::NONE,
        }
    }

    fn million(sh_degree: u32, storage: Storage) -> u64 {
        size(1 << 20, sh_degree, storage).bytes().0 >> 20
    }

    #[test]
    fn a_gaussian_takes_the_documented_bytes() {
        assert_eq!(
            [Storage::Full, Storage::HalfColors, Storage::Compact]
                .map(|storage| million(3, storage)),
            [716, 620, 320]
        );
        // The device holds colours and their moments, 200 bytes, of every sixteenth row.
        assert_eq!(million(3, Storage::Offloaded), 120 + 200 / 16);
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
    fn tables_have_whole_lane_blocks() {
        let rows = size(33, 1, Storage::Full).regions();
        let bytes =
            |label: &str| rows.iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0);
        assert_eq!(bytes("geometry"), 64 * 11 * 4);
        assert_eq!(bytes("sh"), 64 * 12 * 4);
        assert_eq!(bytes("sh, steps taken"), 2 * 4);
        assert_eq!(bytes("density statistics, views"), 33 * 4);
    }
}
