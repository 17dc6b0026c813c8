//! Rows of a plan, one for each label: regions of a model, photographs and colour tables, in granules of a device.

use serde::{Serialize, Serializer};

use crate::abi::AFFINE_WIDTH;
use crate::layout::{
    COLOR_TABLES, ColorUse, Live, ModelSize, PHOTOS_ON_THEIR_WAY, STAGING, STAGING_WORDS, Storage,
    block_beside, fair_share, photo_after,
};
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

    /// Returns the bytes of the tables that the host holds.
    pub fn offloaded_bytes(&self) -> Bytes {
        Bytes(self.host_tables().map(|(_, bytes)| bytes).sum())
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

/// Smallest allocation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granule(pub Bytes);

impl Default for Granule {
    /// 2 MiB, the granule of NVIDIA's GPUs.
    fn default() -> Self {
        Self(Bytes(2 << 20))
    }
}

impl Granule {
    /// Rounds up to whole granules.
    pub fn whole(self, bytes: Bytes) -> Bytes {
        Bytes(bytes.0.checked_next_multiple_of(self.0.0.max(1)).unwrap_or(u64::MAX))
    }

    /// Returns the largest number of mapped bytes after a trim to `bytes`: the block in which they end stays whole.
    pub fn after_trim(self, bytes: Bytes) -> Bytes {
        let block = self.whole(Bytes(block_beside(bytes.0)));
        Bytes(self.whole(bytes).0.saturating_add(block.0))
    }
}

/// The photographs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedPhotographs {
    /// Bytes of each training photograph.
    pub trained: Vec<u64>,
    /// Bytes of each held-out photograph.
    pub held_out: Vec<u64>,
}

impl PlannedPhotographs {
    /// Returns the bytes of both upload buffers.
    pub fn turns(&self, granule: Granule) -> Bytes {
        let one = granule.whole(Bytes(self.largest()));
        one + one
    }

    /// Returns the bytes of the largest photograph.
    pub fn largest(&self) -> u64 {
        self.trained.iter().chain(&self.held_out).copied().max().unwrap_or(0)
    }

    /// Returns the bytes of all training photographs with their gaps.
    pub fn all(&self) -> Bytes {
        Bytes(self.ends().last().unwrap_or(0))
    }

    /// Returns the number of photographs that fit in `most` bytes.
    pub fn that_fit(&self, most: Bytes, granule: Granule) -> usize {
        self.ends().take_while(|&end| granule.whole(Bytes(end)) <= most).count()
    }

    /// Returns the number of resident photographs that leave memory to other users of `room` bytes.
    pub fn fair_share(&self, room: Bytes) -> usize {
        let most = fair_share(room.0);
        self.ends().take_while(|&end| end <= most).count()
    }

    /// Returns the bytes of the first `count` photographs.
    pub fn first(&self, count: usize) -> Bytes {
        Bytes(self.ends().take(count).last().unwrap_or(0))
    }

    /// Returns the end of each photograph, bytes.
    fn ends(&self) -> impl Iterator<Item = u64> + '_ {
        self.trained.iter().scan(0_u64, |end, bytes| {
            *end = photo_after(*end) + bytes;
            Some(*end)
        })
    }
}

/// Colour tables of training views, each with both moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedColorTables {
    /// Training views.
    pub views: u64,
    /// Values of a view's table.
    pub width: u64,
}

impl PlannedColorTables {
    /// Returns the row of all tables.
    pub(super) fn row(&self) -> PlannedRow {
        let bytes = Bytes(COLOR_TABLES.bytes(&(3 * self.views * self.width)));
        PlannedRow { label: COLOR_TABLES.label, bytes }
    }

    /// Returns the colour model of a training view.
    pub(super) fn color_use(&self) -> ColorUse {
        if self.width == u64::from(AFFINE_WIDTH) { ColorUse::Exposure } else { ColorUse::Grid }
    }
}

// Memory of a run on the host, without the program and the driver.

/// Maximum number of threads that decode photographs ahead.
const DECODERS: usize = 4;

/// Views of an evaluation that are written as pictures.
pub const PICTURED_VIEWS: usize = 5;

/// Maximum number of pictures of a view: render, photograph, error, density, depths and normals.
pub const PICTURES_OF_VIEW: u64 = 6;

/// Sizes of a run on the host.
#[derive(Clone, Debug)]
pub struct Host<'a> {
    /// The model.
    pub model: ModelSize,
    /// Gaussians at the start, which the host creates.
    pub start: u64,
    /// Photographs at the size of training.
    pub photographs: &'a PlannedPhotographs,
    /// Bytes of each photograph before it is resized.
    pub full_size: &'a [u64],
    /// Limit on the bytes of decoded photographs; `None` if all are kept.
    pub cache: Option<Bytes>,
    /// Tables of the photographs' colours.
    pub colors: Option<PlannedColorTables>,
    /// Rows of the model that are written to a file at once.
    pub chunk_rows: u64,
}

impl Host<'_> {
    /// Returns the peak of each part. The peaks are at different times.
    pub fn rows(&self) -> Vec<PlannedRow> {
        let photographs = self.photographs;
        let all: u64 = photographs.trained.iter().chain(&photographs.held_out).sum();
        let kept = self.cache.map_or(all, |cache| cache.0.min(all));
        let mut largest = self.full_size.to_vec();
        largest.sort_unstable_by_key(|&bytes| std::cmp::Reverse(bytes));
        let parameters = |gaussians| gaussians * self.model.parameters() * size_of::<f32>() as u64;
        let chunk = self.model.gaussians.min(self.chunk_rows);
        // Parameters, both moments and statistics.
        let saved = |rows| 3 * parameters(rows) + (8 + 4 * self.model.optional.count()) * rows;
        let bytes = self.model.offloaded_bytes();
        let offloaded = PlannedRow { label: "colours and their moments", bytes };
        // The waiting pictures, and the pictures of the next view.
        let pictures = (PICTURED_VIEWS as u64 + 1) * PICTURES_OF_VIEW * photographs.largest();
        [
            ("decoded photographs", kept),
            ("photographs being decoded", largest.iter().take(DECODERS).sum()),
            (PHOTOS_ON_THEIR_WAY.label, 2 * photographs.largest()),
            // Two halves.
            (STAGING.label, 2 * STAGING.bytes(&STAGING_WORDS.into())),
            ("Gaussians at the start", parameters(self.start)),
            ("rows on their way to a file", saved(chunk)),
            // The following queues need no memory if `--host-limit` leaves none: training waits instead.
            ("pictures on their way to TensorBoard", pictures),
            // A checkpoint and a PLY.
            (
                "copies of the model for files",
                saved(self.model.gaussians) + parameters(self.model.gaussians),
            ),
        ]
        .map(|(label, bytes)| PlannedRow { label, bytes: Bytes(bytes) })
        .into_iter()
        .chain(self.colors.map(|colors| colors.row()))
        .chain((bytes > Bytes(0)).then_some(offloaded))
        .collect()
    }
}

/// Returns the bytes of the row with this label, 0 without one.
#[cfg(test)]
pub(super) fn bytes_of(rows: &[PlannedRow], label: &str) -> u64 {
    rows.iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::OptionalColumns;
    use crate::memory::plan::work::plain;

    fn size(gaussians: u64, sh_degree: u32, storage: Storage) -> ModelSize {
        ModelSize { sh_degree, storage, ..plain(gaussians) }
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
        let bytes = |label| bytes_of(&rows, label);
        assert_eq!(bytes("geometry"), 64 * 11 * 4);
        assert_eq!(bytes("sh"), 64 * 12 * 4);
        assert_eq!(bytes("sh, steps taken"), 2 * 4);
        assert_eq!(bytes("density statistics, views"), 33 * 4);
    }

    #[test]
    fn memory_is_taken_in_granules_and_freed_in_blocks() {
        let granule = Granule::default();
        for (bytes, whole, after_trim) in [
            (0, 0, 2),
            (1, 2, 4),
            (2 << 20, 2, 4),
            ((2 << 20) + 1, 4, 6),
            (100 << 20, 100, 102),
            (1 << 30, 1 << 10, (1 << 10) + 8),
            (10 << 30, 10 << 10, (10 << 10) + 64),
        ] {
            let mib = |bytes: Bytes| bytes.0 >> 20;
            assert_eq!(mib(granule.whole(Bytes(bytes))), whole, "{bytes}");
            assert_eq!(mib(granule.after_trim(Bytes(bytes))), after_trim, "{bytes}");
        }
        assert_eq!(granule.whole(Bytes(u64::MAX)), Bytes(u64::MAX));
    }

    #[test]
    fn photographs_stay_resident_as_memory_allows() {
        let photographs =
            PlannedPhotographs { trained: vec![1_000_000; 10], held_out: vec![3_000_000] };
        let granule = Granule::default();
        assert_eq!(photographs.turns(granule), Bytes(2 << 22));
        // Every photograph but the first follows a gap.
        assert_eq!(photographs.all(), Bytes(9 * 1_000_192 + 1_000_000));
        assert_eq!(photographs.fair_share(Bytes(6_000_000)), 2);
        assert_eq!(photographs.fair_share(Bytes(u64::MAX)), 10);
        assert_eq!(photographs.that_fit(Bytes(4 << 20), granule), 4);
        assert_eq!(photographs.that_fit(Bytes((4 << 20) - 1), granule), 2);
        assert_eq!((photographs.first(2), photographs.first(0)), (Bytes(2_000_192), Bytes(0)));
        assert_eq!(PlannedPhotographs::default().turns(granule), Bytes(0));
    }

    #[test]
    fn decoded_photographs_stay_within_the_cache() {
        let photographs = PlannedPhotographs { trained: vec![100; 8], held_out: vec![300] };
        let model = ModelSize { sh_degree: 3, storage: Storage::Compact, ..plain(1 << 20) };
        let host = Host {
            model,
            start: 10,
            photographs: &photographs,
            full_size: &[1, 7, 5, 3, 2],
            cache: Some(Bytes(500)),
            colors: None,
            chunk_rows: 1 << 16,
        };
        let bytes: Vec<u64> = host.rows().iter().map(|row| row.bytes.0).collect();
        let chunk = (1 << 16) * (3 * 59 * 4 + 8);
        let copies = (1 << 20) * (4 * 59 * 4 + 8);
        assert_eq!(bytes, [500, 17, 600, 4 << 20, 10 * 59 * 4, chunk, 36 * 300, copies]);
        let colors = Some(PlannedColorTables { views: 8, width: 12 });
        let tables = Host { colors, ..host.clone() }.rows();
        assert_eq!(tables.last().map(|row| row.bytes), Some(Bytes(3 * 8 * 12 * 4)));
        let model = ModelSize { storage: Storage::Offloaded, ..model };
        let offloaded = Host { model, ..host.clone() }.rows();
        assert_eq!(offloaded.len(), bytes.len() + 1);
        assert_eq!(offloaded.last().map(|row| row.bytes), Some(Bytes((1 << 20) * 200)));
        let all = Host { cache: None, ..host };
        assert_eq!(all.rows()[0].bytes, Bytes(1100));
    }
}
