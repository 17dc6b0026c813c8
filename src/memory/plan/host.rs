//! Memory of a run on the host, beside the program and the driver.

use super::photographs::{PlannedColorTables, PlannedPhotographs};
use super::rows::PlannedRow;
use crate::layout::{ModelSize, PHOTOS_ON_THEIR_WAY, STAGING, STAGING_WORDS};
use crate::memory::Bytes;

/// Threads that decode photographs ahead, at most.
const DECODERS: usize = 4;

/// Views of an evaluation that are shown as pictures.
pub const PICTURED_VIEWS: usize = 5;

/// Pictures of such a view, at most: render, photograph, error, density, depths and normals.
pub const PICTURES_OF_VIEW: u64 = 6;

/// The host's side of a run.
#[derive(Clone, Debug)]
pub struct Host<'a> {
    /// The model.
    pub model: ModelSize,
    /// Gaussians at the start, which the host makes.
    pub start: u64,
    /// The photographs as they are trained on.
    pub photographs: &'a PlannedPhotographs,
    /// Bytes of the photographs as they are stored, before they are resized.
    pub full_size: &'a [u64],
    /// Bytes of decoded photographs; `None` if all are kept.
    pub cache: Option<Bytes>,
    /// Tables of the photographs' colours.
    pub colors: Option<PlannedColorTables>,
    /// Rows of the model that are on their way to a file at once.
    pub chunk_rows: u64,
}

impl Host<'_> {
    /// Returns the most that each part takes; not all do at once.
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
        // Those that wait, and those of the next view.
        let pictures = (PICTURED_VIEWS as u64 + 1) * PICTURES_OF_VIEW * photographs.largest();
        [
            ("decoded photographs", kept),
            ("photographs being decoded", largest.iter().take(DECODERS).sum()),
            (PHOTOS_ON_THEIR_WAY.label, 2 * photographs.largest()),
            // Two halves.
            (STAGING.label, 2 * STAGING.bytes(&STAGING_WORDS.into())),
            ("Gaussians at the start", parameters(self.start)),
            ("rows on their way to a file", saved(chunk)),
            // Where `--host-limit` leaves no room, none of the following wait: training does.
            ("pictures on their way to TensorBoard", pictures),
            // Of a checkpoint and of a PLY.
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

/// The tables that lie in the host's memory.
fn offloaded_row(bytes: u64) -> PlannedRow {
    PlannedRow { label: "colours and their moments", bytes: Bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::{OptionalColumns, Storage};

    #[test]
    fn decoded_photographs_stay_within_the_cache() {
        let photographs = PlannedPhotographs { trained: vec![100; 8], held_out: vec![300] };
        let (storage, optional) = (Storage::Compact, OptionalColumns::NONE);
        let model = ModelSize {
            gaussians: 1 << 20,
            schema: &crate::layout::GAUSSIANS,
            sh_degree: 3,
            storage,
            optional,
        };
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
