//! The stages of a run, and its peak.

#[cfg(test)]
mod tests;

use serde::Serialize;

use super::coarse::{self, PlannedCoarse};
use super::drawing::{PlannedBatch, PlannedDrawing};
use super::largest::largest;
use super::mapping::Granule;
use super::photographs::{PlannedColorTables, PlannedPhotographs};
use super::rounds::{self, RoundShape};
use super::rows::PlannedRow;
use super::seen::ViewGrowth;
use crate::layout::{
    ColorUse, ModelSize, PHOTOS_IN_TURN, RESIDENT_PHOTOS, Replay, RoundSizes, SCRATCH, STATUS, Use,
    ViewRequest, spare,
};
use crate::memory::{Bytes, TrainingScale};

/// Context and code: measured on an H200, driver 580, with kernels of compute capability 9.0.
pub const CONTEXT: Bytes = Bytes(526 << 20);

/// Of the Gaussians, how many a round may bring at once: more than was seen of any but the first.
const BIRTHS_SHARE: u64 = 10;

/// Name of the first stage.
const START: &str = "start";

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The model at its largest.
    pub model: ModelSize,
    /// Gaussians at its start.
    pub start: u64,
    /// What views see of it.
    pub seen: ViewGrowth,
    /// Views of a step.
    pub batch_views: u32,
    /// Whether views are drawn with inverse depths.
    pub inverse_depths: bool,
    /// Its photographs.
    pub photographs: PlannedPhotographs,
    /// What its photographs' cameras did to colours, where that is learned.
    pub colors: Option<PlannedColorTables>,
    /// Gaussians that would be born in a round, and those that are; without, a tenth of the model's
    /// are, and twice as many would be.
    pub births: Option<[u64; 2]>,
    /// What a round does.
    pub rounds: RoundShape,
    /// Gaussians that are left when density control has ended, where they are pruned then.
    pub target: Option<u64>,
    /// SuGaR's coarse stage, where it follows.
    pub coarse: Option<PlannedCoarse>,
    /// Whether views may be drawn in bands where their lists do not fit.
    pub bands: bool,
    /// Whether training views may be drawn smaller where they do not fit.
    pub resolution: bool,
    /// Context and code.
    pub context: Bytes,
    /// Unit of the device's memory.
    pub granule: Granule,
}

/// What is held at once in a stage of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedStage {
    /// What happens.
    pub name: &'static str,
    /// What is held when it is most. They add up.
    pub rows: Vec<PlannedRow>,
    /// All rows.
    pub total: Bytes,
}

/// What a run comes to within a budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The stages, in the order of a run.
    pub stages: Vec<PlannedStage>,
    /// The most that is held: that of the largest stage, and what the arena keeps of others and
    /// has beyond, as far as the budget allows.
    pub peak: Bytes,
    /// The least budget with which the run is made: with all photographs in turns, the most demanding
    /// views in bands if they may be, and lists of neighbours as short as they may be.
    pub least: Bytes,
    /// Whether views have to be drawn in bands.
    pub in_bands: bool,
    /// The share of their size at which training views have to be drawn.
    pub training_scale: f64,
    /// In the coarse stage, how many neighbours lists may have.
    pub neighbours: Option<u32>,
    /// How many photographs stay on the device to the end.
    pub photographs_resident: usize,
    /// How many there are.
    pub photographs: usize,
}

/// Scratch of a stage, and Gaussians that the model has then.
struct Played {
    name: &'static str,
    gaussians: u64,
    /// Neighbours in the lists that there are then.
    neighbours: u32,
    source: Replay,
}

impl Played {
    /// How far its blocks reached.
    fn reach(&self) -> Bytes {
        Bytes(self.source.reach())
    }
}

/// How a run makes do with little memory.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Views are drawn in bands.
    in_bands: bool,
    /// Neighbours in the lists of the coarse stage; 0 where there is none.
    neighbours: u32,
    /// How large training views are drawn.
    scale: TrainingScale,
}

impl PlannedRun {
    /// Within so many bytes, or as many as it takes.
    pub fn forecast(&self, budget: Option<Bytes>) -> Forecast {
        let (way, played) = self.played_within(budget);
        let resident = self.resident(&played, budget);
        let photographs = self.granule.whole(self.photographs.first(resident));
        let stages: Vec<PlannedStage> =
            played.iter().map(|played| self.stage(played, photographs)).collect();
        let need = stages.iter().map(|stage| stage.total).max().unwrap_or_default();
        let peak = self.expected_peak(&played, photographs, way);
        Forecast {
            peak: budget.map_or(peak, |budget| peak.min(budget)).max(need),
            least: self.least(),
            in_bands: way.in_bands,
            training_scale: way.scale.factor(),
            neighbours: self.coarse.map(|_| way.neighbours),
            stages,
            photographs_resident: resident,
            photographs: self.photographs.trained.len(),
        }
    }

    /// The most that goes by each label of the ledger, at different times, with all photographs on
    /// the device and views drawn at once, or in bands; of the arena, what its blocks reach.
    pub fn ledger(&self, in_bands: bool) -> Vec<PlannedRow> {
        let way = Way { in_bands, ..self.usual() };
        let played = self.play(way);
        let mut rows = self.held(self.model.gaussians, way.neighbours);
        let mut add = |label, bytes| rows.push(PlannedRow { label, bytes });
        add(RESIDENT_PHOTOS.label, self.granule.whole(self.photographs.all()));
        let reach = played.iter().map(|stage| stage.reach()).max().unwrap_or_default();
        add(SCRATCH.label, self.granule.whole(reach));
        for block in played.iter().flat_map(|stage| stage.source.peaks()).map(PlannedRow::from) {
            match rows.iter_mut().find(|row| row.label == block.label) {
                Some(row) => row.bytes = row.bytes.max(block.bytes),
                None => rows.push(block),
            }
        }
        rows
    }

    /// The least budget with which it is made.
    pub fn least(&self) -> Bytes {
        self.ways().into_iter().map(|way| self.least_of(&self.play(way))).min().unwrap_or_default()
    }

    /// Where nothing is given up.
    fn usual(&self) -> Way {
        let neighbours = self.coarse.map_or(0, |coarse| coarse.neighbours);
        Way { in_bands: false, neighbours, scale: TrainingScale::FULL }
    }

    /// All ways, the first the one that gives up least.
    fn ways(&self) -> Vec<Way> {
        let lengths = self.coarse.map_or(vec![0], |coarse| coarse.lengths());
        let drawn = if self.bands { &[false, true][..] } else { &[false] };
        let scales = TrainingScale::all()
            .take_while(|&scale| self.resolution || scale == TrainingScale::FULL);
        let mut ways = Vec::new();
        for scale in scales {
            for &neighbours in &lengths {
                ways.extend(drawn.iter().map(|&in_bands| Way { in_bands, neighbours, scale }));
            }
        }
        ways
    }

    /// The first way that fits, or the last.
    fn played_within(&self, budget: Option<Bytes>) -> (Way, Vec<Played>) {
        let mut last = (self.usual(), self.play(self.usual()));
        for way in self.ways() {
            last = (way, self.play(way));
            if budget.is_none_or(|budget| self.least_of(&last.1) <= budget) {
                break;
            }
        }
        last
    }

    /// The same with another number of Gaussians.
    pub fn with(&self, gaussians: u64) -> Self {
        let start = self.start.min(gaussians);
        Self { model: self.model.with(gaussians), start, ..self.clone() }
    }

    /// The most Gaussians within a budget; nothing where not even one fits.
    pub fn largest(&self, budget: Bytes) -> Option<u64> {
        let fits = |gaussians: u64| self.with(gaussians).least() <= budget;
        // Kernels count in 32 bits.
        fits(1).then(|| largest(1, u64::from(u32::MAX), fits))
    }

    fn play(&self, Way { in_bands, neighbours, scale }: Way) -> Vec<Played> {
        let most = self.model.gaussians;
        let [wanted, births] = self.births.unwrap_or_else(|| {
            let births = (most / BIRTHS_SHARE).min(most.saturating_sub(self.start));
            // More are wanted than may be born, which takes more than all of them.
            [2 * births, births]
        });
        let stage = |name, gaussians, play: &dyn Fn(&Replay)| {
            let source = Replay::default();
            play(&source);
            Played { name, gaussians, neighbours: 0, source }
        };
        let model = self.model;
        let views = self.photographs.trained.len() as u64;
        let seen = self.seen.scaled(scale);
        let (view, full_view) = (seen.of(most), self.seen.of(most));
        let train = ViewRequest {
            drawn_for: Use::Backward,
            inverse_depths: self.inverse_depths,
            colors: self.colors.map(|colors| colors.color_use()),
            ..ViewRequest::default()
        };
        let smooth = |source: &Replay| {
            if model.optional.filter_3d {
                rounds::smooth(source, views);
            }
        };
        let drawing = PlannedDrawing::new(most, &view, train, in_bands);
        let batch = |drawing: &PlannedDrawing<'_>, source: &Replay| {
            let mut kept = PlannedBatch::default();
            (0..self.batch_views).for_each(|_| drawing.add_to(source, &mut kept));
        };
        let mut stages = vec![
            stage(START, self.start, &|source| {
                rounds::upload(source, &model, self.start);
                rounds::reorder(source, &model.with(self.start));
                smooth(source);
            }),
            stage("iteration", most, &|source| batch(&drawing, source)),
        ];
        if births > 0 {
            stages.extend([
                stage("density control", most, &|source| {
                    let before = model.with(most - births);
                    let sizes = RoundSizes { model: before, births, wanted };
                    match self.rounds {
                        RoundShape::Grow => rounds::densify(source, &sizes, true),
                        RoundShape::Relocate => {
                            rounds::relocate(source, before.gaussians);
                            rounds::add_copies(source, before.gaussians, births);
                        }
                    }
                    smooth(source);
                }),
                stage("reorder", most, &|source| rounds::reorder(source, &model)),
            ]);
        }
        let target = self.target.filter(|&target| target < most);
        if let Some(target) = target {
            stages.push(stage("prune to target", most, &|source| {
                // What is drawn to measure it takes less.
                let wants = ViewRequest { inverse_depths: false, colors: None, ..train };
                PlannedDrawing { wants, ..drawing.clone() }.replay(source);
                rounds::retain(source, &model, most, target);
            }));
        }
        if let Some(PlannedCoarse { maps, .. }) = self.coarse {
            let most = target.unwrap_or(most);
            let (model, view) = (model.with(most), seen.of(most));
            let coarse = stage("coarse training", most, &|source| {
                rounds::search(source, most);
                let wants = ViewRequest { maps: maps.are_drawn(), ..train };
                let drawing = PlannedDrawing::new(most, &view, wants, in_bands);
                batch(&PlannedDrawing { terms: Some(maps.into()), ..drawing }, source);
                // What is too transparent goes, once.
                rounds::edit(source, &RoundSizes { model, births: 0, wanted: 0 }, true);
                smooth(source);
            });
            stages.push(Played { neighbours, ..coarse });
        }
        if !self.photographs.held_out.is_empty() {
            let colors = self.colors.map(|_| ColorUse::Fit);
            let wants = ViewRequest { drawn_for: Use::Counts, colors, ..ViewRequest::default() };
            stages.push(stage("evaluation", most, &|source| {
                PlannedDrawing::new(most, &full_view, wants, in_bands).replay(source);
            }));
        }
        stages.push(stage("statistics", most, &|source| rounds::sample(source, &model, most)));
        stages.push(stage("checkpoint", most, &|source| rounds::read(source, &model, most)));
        stages
    }

    /// What lives through all of a stage but its scratch, and the photographs that stay.
    fn held(&self, gaussians: u64, neighbours: u32) -> Vec<PlannedRow> {
        let row = |label, bytes| PlannedRow { label, bytes };
        let mut rows = vec![
            row(crate::layout::CONTEXT.label, self.context),
            row(STATUS.label, self.granule.0),
            row(PHOTOS_IN_TURN.label, self.photographs.turns(self.granule)),
        ];
        let tables = self.colors.map(|colors| colors.row());
        rows.extend(tables.map(|tables| row(tables.label, self.granule.whole(tables.bytes))));
        let regions = self.model.with(gaussians).regions();
        let lists = coarse::neighbour_lists(gaussians, neighbours);
        let regions = regions.into_iter().chain([lists]);
        rows.extend(regions.map(|region| row(region.label, self.granule.whole(region.bytes))));
        rows
    }

    fn held_bytes(&self, gaussians: u64, neighbours: u32) -> Bytes {
        self.held(gaussians, neighbours).iter().map(|row| row.bytes).sum()
    }

    fn least_of(&self, played: &[Played]) -> Bytes {
        let need = |stage: &Played| {
            self.held_bytes(stage.gaussians, stage.neighbours)
                + self.granule.after_trim(stage.reach())
        };
        played.iter().map(need).max().unwrap_or_default()
    }

    /// Photographs come when the model is small, and leave where it needs their place.
    fn resident(&self, played: &[Played], budget: Option<Bytes>) -> usize {
        let Some(budget) = budget else { return self.photographs.trained.len() };
        let beside = |used: Bytes| Bytes(budget.0.saturating_sub(used.0));
        let at_start = played.first().map_or(Bytes(0), |start| {
            self.held_bytes(start.gaussians, 0) + self.granule.whole(start.reach())
        });
        let fair = self.photographs.fair_share(beside(at_start));
        fair.min(self.photographs.that_fit(beside(self.least_of(played)), self.granule))
    }

    fn stage(&self, played: &Played, photographs: Bytes) -> PlannedStage {
        let mut rows = self.held(played.gaussians, played.neighbours);
        // The first is sent when the model is there.
        let photographs = if played.name == START { Bytes(0) } else { photographs };
        rows.push(PlannedRow { label: RESIDENT_PHOTOS.label, bytes: photographs });
        let blocks: Vec<PlannedRow> =
            played.source.at_peak().into_iter().map(PlannedRow::from).collect();
        let used: Bytes = blocks.iter().map(|row| row.bytes).sum();
        rows.extend(blocks);
        // What the arena's blocks leave: gaps, and the rest of the last granule.
        let whole = self.granule.whole(played.reach());
        rows.push(PlannedRow { label: SCRATCH.label, bytes: Bytes(whole.0 - used.0) });
        rows.retain(|row| row.bytes > Bytes(0));
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        let total = rows.iter().map(|row| row.bytes).sum();
        PlannedStage { name: played.name, rows, total }
    }

    /// The arena keeps what the largest stage took of it, and grew in steps on the way: it ends, on
    /// average, half a step beyond.
    fn expected_peak(&self, played: &[Played], photographs: Bytes, way: Way) -> Bytes {
        let reach = played.iter().map(|stage| stage.reach()).max().unwrap_or_default();
        let spare = Bytes(spare(reach.0) / 2);
        let held = self.held_bytes(self.model.gaussians, way.neighbours);
        held + photographs + self.granule.whole(reach + spare)
    }
}
