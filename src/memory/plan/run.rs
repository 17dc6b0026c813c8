//! The stages of a run, and its peak.

#[cfg(test)]
mod tests;

use super::coarse::{self, PlannedCoarse};
use super::drawing::{PlannedBatch, PlannedDrawing};
use super::forecast::{Account, Budgeted, Forecast, Played};
use super::largest::largest_that_fits;
use super::mapping::Granule;
use super::nccl::{nccl, nccl_blocks};
use super::photographs::{PlannedColorTables, PlannedPhotographs};

use super::rounds::{self, RoundShape};
use super::rows::PlannedRow;
use super::seen::ViewGrowth;
use crate::abi::terms::Inputs;
use crate::layout::{ColorUse, ModelSize, Records, Replay, RoundSizes, Use, ViewRequest};
use crate::math::Divisor;
use crate::memory::{Bytes, TrainingScale};

/// Of the Gaussians, how many a round may bring at once: more than was seen of any but the first.
const BIRTHS_SHARE: u64 = 10;

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
    /// By what the sides of training views are divided at first.
    pub first_divisor: Divisor,
    /// What its Gaussians are on the screen.
    pub records: Records,
    /// What terms need of training views.
    pub inputs: Inputs,
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
        let Budgeted { stages, peak, resident } = self.account().budgeted(&played, budget);
        Forecast {
            peak,
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
        self.account().ledger(&self.play(Way { in_bands, ..self.usual() }))
    }

    fn account(&self) -> Account<'_> {
        let Self { context, granule, ref photographs, .. } = *self;
        Account { context, granule, photographs }
    }

    /// The least budget with which it is made.
    pub fn least(&self) -> Bytes {
        let least = |way| self.account().least_of(&self.play(way));
        self.ways().into_iter().map(least).min().unwrap_or_default()
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
        let found = self.account().first_that_fits(&self.ways(), |way| self.play(way), budget);
        found.unwrap_or_else(|| (self.usual(), self.play(self.usual())))
    }

    /// The same with another number of Gaussians.
    pub fn with(&self, gaussians: u64) -> Self {
        let start = self.start.min(gaussians);
        Self { model: self.model.with(gaussians), start, ..self.clone() }
    }

    /// The most Gaussians within a budget; nothing where not even one fits.
    pub fn largest(&self, budget: Bytes) -> Option<u64> {
        self.largest_shared(1, budget)
    }

    /// The same of so many GPUs, each with this budget.
    pub fn largest_shared(&self, gpus: u32, budget: Bytes) -> Option<u64> {
        let nccl = nccl(gpus, nccl_blocks(budget));
        let fits = |gaussians: u64| self.with(gaussians).of_rank(gpus, nccl).least() <= budget;
        // Kernels count in 32 bits.
        fits(1).then(|| largest_that_fits(1, u64::from(u32::MAX), fits))
    }

    fn play(&self, Way { in_bands, neighbours, scale }: Way) -> Vec<Played> {
        let most = self.model.gaussians;
        let [wanted, births] = self.births.unwrap_or_else(|| {
            let births = (most / BIRTHS_SHARE).min(most.saturating_sub(self.start));
            // More are wanted than may be born, which takes more than all of them.
            [2 * births, births]
        });
        let stage = |name, gaussians, play: &dyn Fn(&Replay)| {
            Played::new(name, self.held(gaussians, 0), play)
        };
        let model = self.model;
        let views = self.photographs.trained.len() as u64;
        let seen = self.seen.scaled(scale);
        let (view, full_view) = (seen.of(most), self.seen.of(most));
        let train = ViewRequest {
            drawn_for: Use::Backward,
            records: self.records,
            colors: self.colors.map(|colors| colors.color_use()),
            ..ViewRequest::default()
        };
        let train = train.beside(self.inputs);
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
            stage("start", self.start, &|source| {
                rounds::upload(source, &model, self.start);
                rounds::reorder(source, &model.with(self.start));
                smooth(source);
            })
            // The first is sent when the model is there.
            .without_photographs(),
            stage("iteration", most, &|source| batch(&drawing, source)),
        ];
        if self.first_divisor != Divisor::One {
            // The largest of them, as if none were born later.
            let view = seen.resized(Divisor::Two.px(seen.px)).of(most);
            stages.push(stage("smaller views", most, &|source| {
                let wants = ViewRequest { divisor: Divisor::Two, ..train };
                batch(&PlannedDrawing::new(most, &view, wants, in_bands), source);
            }));
        }
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
                let wants = ViewRequest { colors: None, ..train.beside(Inputs::NONE) };
                PlannedDrawing { wants, ..drawing.clone() }.replay(source);
                rounds::retain(source, &model, most, target);
            }));
        }
        if let Some(PlannedCoarse { maps, .. }) = self.coarse {
            let most = target.unwrap_or(most);
            let (model, view) = (model.with(most), seen.of(most));
            let coarse = stage("coarse training", most, &|source| {
                rounds::search(source, most);
                let wants = maps.added_to(train);
                let drawing = PlannedDrawing::new(most, &view, wants, in_bands);
                batch(&PlannedDrawing { terms: Some(maps.into()), ..drawing }, source);
                // What is too transparent goes, once.
                rounds::edit(source, &RoundSizes { model, births: 0, wanted: 0 }, true);
                smooth(source);
            });
            stages.push(Played { held: self.held(most, neighbours), ..coarse });
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
        let tables = self.colors.map(|colors| colors.row());
        let regions = self.model.with(gaussians).regions();
        let lists = coarse::neighbour_lists(gaussians, neighbours);
        self.account().held(tables.into_iter().chain(regions).chain([lists]))
    }
}
