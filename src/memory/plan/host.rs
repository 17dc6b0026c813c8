//! Memory of a run on the host, without the program and the driver.

use super::rows::{PlannedColorTables, PlannedPhotographs, PlannedRow};
use crate::layout::{ModelSize, PHOTOS_ON_THEIR_WAY, STAGING, STAGING_WORDS};
use crate::memory::Bytes;

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
        let parameters = |gaussians| self.model.with(gaussians).host_bytes();
        let chunk = self.model.gaussians.min(self.chunk_rows);
        // Parameters, both moments and statistics.
        let saved = |rows| 3 * parameters(rows) + (8 + 4 * self.model.optional.count()) * rows;
        let offloaded: u64 = self.model.host_tables().map(|(_, bytes)| bytes).sum();
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
        .chain((offloaded > 0).then_some(offloaded_row(offloaded)))
        .collect()
    }
}

/// Returns the row of the tables in the host's memory.
fn offloaded_row(bytes: u64) -> PlannedRow {
    PlannedRow { label: "colours and their moments", bytes: Bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::Storage;
    use crate::memory::plan::work::plain;

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
