//! Memory of consecutive stages on a device, from the memory of each.

use serde::Serialize;

use super::rows::{Granule, PlannedPhotographs, PlannedRow};
use crate::layout::{PHOTOS_IN_TURN, RESIDENT_PHOTOS, SCRATCH, STATUS, Scratch, spare};
use crate::memory::{Bytes, TrainingScale};

/// Context and code, measured on an H200 (driver 580, kernels of compute capability 9.0).
pub const CONTEXT: Bytes = Bytes(526 << 20);

/// Budget below which NCCL uses fewer thread blocks.
const SMALL_BUDGET: Bytes = Bytes(32 << 30);

/// Returns the thread blocks of NCCL's kernels for this budget of each GPU. NCCL's memory depends on them.
pub fn nccl_blocks(budget: Bytes) -> u32 {
    if budget < SMALL_BUDGET { 16 } else { 32 }
}

/// Returns the bytes that NCCL takes on each GPU with this number of thread blocks. Fitted to NCCL 2.28 on H200s:
/// 1,020 MiB (2 GPUs, 32 blocks), 1,788 (4, 32), 1,116 (4, 16).
pub fn nccl(gpus: u32, blocks: u32) -> Bytes {
    if gpus < 2 {
        return Bytes(0);
    }
    Bytes((444 + u64::from(blocks) * (6 + 12 * u64::from(gpus - 1))) << 20)
}

/// Number of a stage's rows that a report lists one by one.
const LISTED_ROWS: usize = 6;

/// Memory of a stage of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedStage {
    /// Name of the stage.
    pub name: &'static str,
    /// Memory at its peak, by label. The rows add up.
    pub rows: Vec<PlannedRow>,
    /// All rows.
    pub total: Bytes,
}

impl PlannedStage {
    /// Returns the labels and bytes of the largest rows, and the sum of the others.
    pub fn largest_rows(&self) -> Vec<(String, Bytes)> {
        let (listed, others) = self.rows.split_at(self.rows.len().min(LISTED_ROWS));
        let mut rows: Vec<_> = listed.iter().map(|row| (row.label.to_owned(), row.bytes)).collect();
        if !others.is_empty() {
            let sum = others.iter().map(|row| row.bytes).sum();
            rows.push((format!("{} others", others.len()), sum));
        }
        rows
    }
}

/// The memory of a run within a budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The stages, in the order of a run.
    pub stages: Vec<PlannedStage>,
    /// Peak of all stages: the largest stage and the memory that the arena keeps beyond it, as far as the budget
    /// allows.
    pub peak: Bytes,
    /// Smallest sufficient budget: photographs in turns, the most demanding views in bands and the shortest lists of
    /// neighbours, if these are allowed.
    pub least: Bytes,
    /// True if views have to be drawn in bands.
    pub in_bands: bool,
    /// Scale of training views, 0 to 1.
    pub training_scale: f64,
    /// Neighbours in the lists of the coarse stage.
    pub neighbours: Option<u32>,
    /// Number of photographs that stay on the device to the end.
    pub photographs_resident: usize,
    /// Number of photographs.
    pub photographs: usize,
}

/// A stage: its regions and its scratch.
pub(super) struct Played {
    pub(super) name: &'static str,
    /// Memory without scratch and resident photographs.
    pub(super) held: Vec<PlannedRow>,
    /// True if photographs stay on the device during the stage.
    pub(super) has_photographs: bool,
    pub(super) scratch: Scratch,
}

impl Played {
    /// Creates a stage with resident photographs.
    pub(super) fn new(name: &'static str, held: Vec<PlannedRow>, scratch: Scratch) -> Self {
        Self { name, held, has_photographs: true, scratch }
    }

    /// Removes the photographs of a stage that ends before the first upload.
    pub(super) fn without_photographs(self) -> Self {
        Self { has_photographs: false, ..self }
    }

    /// Returns the largest end of a block.
    pub(super) fn reach(&self) -> Bytes {
        Bytes(self.scratch.reach())
    }

    /// Returns the bytes without scratch and resident photographs.
    fn held_bytes(&self) -> Bytes {
        self.held.iter().map(|row| row.bytes).sum()
    }
}

/// Memory that all stages share.
#[derive(Clone, Copy)]
pub(super) struct FixedMemory<'a> {
    pub(super) context: Bytes,
    pub(super) granule: Granule,
    pub(super) photographs: &'a PlannedPhotographs,
}

/// Fallbacks of a forecast.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) in_bands: bool,
    /// True if depths are fused on the host.
    pub(super) on_host: bool,
    /// Neighbours in the lists of the coarse stage, if it follows.
    pub(super) neighbours: Option<u32>,
    pub(super) scale: TrainingScale,
}

impl Way {
    /// No fallbacks and no coarse stage.
    pub(super) const USUAL: Self =
        Self { in_bands: false, on_host: false, neighbours: None, scale: TrainingScale::FULL };

    /// Returns the values of `in_bands`: also true if bands are allowed.
    pub(super) fn drawn(bands: bool) -> &'static [bool] {
        if bands { &[false, true] } else { &[false] }
    }

    /// Returns all ways, cheapest first: with each value of `in_bands`, with each length of the neighbour lists, and
    /// with smaller training views.
    pub(super) fn all(drawn: &[bool], resolution: bool, lengths: &[Option<u32>]) -> Vec<Self> {
        let scales =
            TrainingScale::all().take_while(|&scale| resolution || scale == TrainingScale::FULL);
        let mut ways = Vec::new();
        for scale in scales {
            for &neighbours in lengths {
                let way = Self { neighbours, scale, ..Self::USUAL };
                ways.extend(drawn.iter().map(|&in_bands| Self { in_bands, ..way }));
            }
        }
        ways
    }
}

impl FixedMemory<'_> {
    /// Returns the memory that all stages share and these regions, in whole granules.
    pub(super) fn held(&self, regions: impl IntoIterator<Item = PlannedRow>) -> Vec<PlannedRow> {
        let row = |label, bytes| PlannedRow { label, bytes };
        let whole = |row: PlannedRow| PlannedRow { bytes: self.granule.whole(row.bytes), ..row };
        let always = [
            row(crate::layout::CONTEXT.label, self.context),
            row(STATUS.label, self.granule.0),
            row(PHOTOS_IN_TURN.label, self.photographs.turns(self.granule)),
        ];
        always.into_iter().chain(regions.into_iter().map(whole)).collect()
    }

    /// Returns the smallest budget for the stages.
    pub(super) fn least_of(&self, played: &[Played]) -> Bytes {
        let need = |stage: &Played| stage.held_bytes() + self.granule.after_trim(stage.reach());
        played.iter().map(need).max().unwrap_or_default()
    }

    /// Returns the smallest budget for the stages of any of these ways.
    pub(super) fn least(&self, ways: &[Way], play: impl Fn(Way) -> Vec<Played>) -> Bytes {
        ways.iter().map(|&way| self.least_of(&play(way))).min().unwrap_or_default()
    }

    /// Forecasts the first way whose stages fit the budget, or the last way. `least` is the smallest sufficient budget.
    pub(super) fn forecast(
        &self,
        ways: &[Way],
        play: impl Fn(Way) -> Vec<Played>,
        budget: Option<Bytes>,
        least: Bytes,
    ) -> Forecast {
        let (mut way, mut played) = (Way::USUAL, Vec::new());
        for &next in ways {
            (way, played) = (next, play(next));
            if budget.is_none_or(|budget| self.least_of(&played) <= budget) {
                break;
            }
        }
        let resident = self.resident(&played, budget);
        let photographs = self.granule.whole(self.photographs.first(resident));
        let stages: Vec<PlannedStage> =
            played.iter().map(|played| self.stage(played, photographs)).collect();
        let need = stages.iter().map(|stage| stage.total).max().unwrap_or_default();
        let peak = self.expected_peak(&played, photographs);
        Forecast {
            stages,
            peak: budget.map_or(peak, |budget| peak.min(budget)).max(need),
            least,
            in_bands: way.in_bands,
            training_scale: way.scale.factor(),
            neighbours: way.neighbours,
            photographs_resident: resident,
            photographs: self.photographs.trained.len(),
        }
    }

    /// Returns the number of resident photographs. They are uploaded beside the small model and evicted as it grows.
    fn resident(&self, played: &[Played], budget: Option<Bytes>) -> usize {
        let Some(budget) = budget else { return self.photographs.trained.len() };
        let beside = |used: Bytes| Bytes(budget.0.saturating_sub(used.0));
        let at_start = played
            .first()
            .map_or(Bytes(0), |start| start.held_bytes() + self.granule.whole(start.reach()));
        let fair = self.photographs.fair_share(beside(at_start));
        fair.min(self.photographs.that_fit(beside(self.least_of(played)), self.granule))
    }

    fn stage(&self, played: &Played, photographs: Bytes) -> PlannedStage {
        let mut rows = played.held.clone();
        let photographs = if played.has_photographs { photographs } else { Bytes(0) };
        rows.push(PlannedRow { label: RESIDENT_PHOTOS.label, bytes: photographs });
        let blocks: Vec<PlannedRow> =
            played.scratch.at_peak().iter().copied().map(PlannedRow::from).collect();
        let used: Bytes = blocks.iter().map(|row| row.bytes).sum();
        rows.extend(blocks);
        // Rest of the arena: gaps, and the end of the last granule.
        let whole = self.granule.whole(played.reach());
        rows.push(PlannedRow { label: SCRATCH.label, bytes: Bytes(whole.0 - used.0) });
        rows.retain(|row| row.bytes > Bytes(0));
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        let total = rows.iter().map(|row| row.bytes).sum();
        PlannedStage { name: played.name, rows, total }
    }

    /// Estimates the peak: the arena keeps the memory of the largest stage and, on average, half a growth step more.
    fn expected_peak(&self, played: &[Played], photographs: Bytes) -> Bytes {
        let reach = played.iter().map(Played::reach).max().unwrap_or_default();
        let spare = Bytes(spare(reach.0) / 2);
        let held = played.iter().map(Played::held_bytes).max().unwrap_or_default();
        held + photographs + self.granule.whole(reach + spare)
    }

    /// Returns the peak of each label, at different times, with all photographs on the device.
    pub(super) fn ledger(&self, played: &[Played]) -> Vec<PlannedRow> {
        let reach = played.iter().map(Played::reach).max().unwrap_or_default();
        let beside = [
            (RESIDENT_PHOTOS.label, self.granule.whole(self.photographs.all())),
            (SCRATCH.label, self.granule.whole(reach)),
        ];
        let beside = beside.map(|(label, bytes)| PlannedRow { label, bytes });
        let held = played.iter().flat_map(|stage| stage.held.iter().copied());
        let blocks = played.iter().flat_map(|stage| stage.scratch.peaks());
        let blocks = blocks.copied().map(PlannedRow::from);
        let mut rows: Vec<PlannedRow> = Vec::new();
        for found in held.chain(beside).chain(blocks) {
            match rows.iter_mut().find(|row| row.label == found.label) {
                Some(row) => row.bytes = row.bytes.max(found.bytes),
                None => rows.push(found),
            }
        }
        rows
    }
}

/// Returns the largest number that fits, by bisection. `fit` fits, `too_many` does not.
pub fn largest_that_fits(mut fit: u64, mut too_many: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while too_many - fit > 1 {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle) {
            fit = middle;
        } else {
            too_many = middle;
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_takes_the_measured_bytes() {
        assert_eq!([1, 2, 4].map(|gpus| nccl(gpus, 32).0 >> 20), [0, 1020, 1788]);
        assert_eq!(nccl(4, 16).0 >> 20, 1116);
        assert_eq!([16, 80].map(|gib| nccl_blocks(Bytes(gib << 30))), [16, 32]);
    }
}
