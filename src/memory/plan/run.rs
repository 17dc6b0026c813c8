//! The stages of a run, and its peak.

#[cfg(test)]
mod tests;

use super::coarse::{self, PlannedCoarse};
use super::forecast::{Account, Budgeted, Forecast, Played, largest_that_fits, nccl, nccl_blocks};
use super::mapping::Granule;
use super::photographs::{PlannedColorTables, PlannedPhotographs};
use super::rows::PlannedRow;
use super::seen::ViewGrowth;
use super::work::{DryRun, PlannedViews, RoundShape, Work, sample, transfer};
use crate::abi::terms::Inputs;
use crate::layout::{
    ColorUse, Library, ModelSize, Records, Scratch, TABLE_PARTS, Use, ViewRequest,
};
use crate::math::Divisor;
use crate::memory::{Bytes, TrainingScale};

/// Share of the Gaussians that a densification step may add: more than any but the first adds.
const BIRTHS_SHARE: u64 = 10;

/// A training run.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The model at its largest.
    pub model: ModelSize,
    /// Gaussians at its start.
    pub start: u64,
    /// Splats and instances of a view.
    pub seen: ViewGrowth,
    /// Views of a step.
    pub batch_views: u32,
    /// By what the sides of training views are divided at first.
    pub first_divisor: Divisor,
    /// Kind of its splats.
    pub records: Records,
    /// Maps that terms need of training views.
    pub inputs: Inputs,
    /// Its photographs.
    pub photographs: PlannedPhotographs,
    /// Tables of the photographs' colours, if they are learned.
    pub colors: Option<PlannedColorTables>,
    /// Gaussians that would be born in a round, and those that are; without, a tenth of the model's
    /// are, and twice as many would be.
    pub births: Option<[u64; 2]>,
    /// Kind of the densification steps.
    pub rounds: RoundShape,
    /// Gaussians that are left when density control has ended, where they are pruned then.
    pub target: Option<u64>,
    /// SuGaR's coarse stage, where it follows.
    pub coarse: Option<PlannedCoarse>,
    /// True if views may be drawn in bands if their lists do not fit.
    pub bands: bool,
    /// True if training views may be drawn smaller if they do not fit.
    pub resolution: bool,
    /// Context and code.
    pub context: Bytes,
    /// Unit of the device's memory.
    pub granule: Granule,
    /// The stages of the device.
    pub dry_run: DryRun,
}

/// Fallbacks of a run for little memory.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Views are drawn in bands.
    in_bands: bool,
    /// Neighbours in the lists of the coarse stage; 0 where there is none.
    neighbours: u32,
    /// Size of training views.
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
        // Bands need less in some runs and more in others; shorter lists and smaller views always less.
        let ways = self.ways();
        let last = ways.last().copied().unwrap_or(self.usual());
        let is_least = |way: &Way| way.neighbours == last.neighbours && way.scale == last.scale;
        let least = |way| self.account().least_of(&self.play(way));
        ways.into_iter().filter(is_least).map(least).min().unwrap_or_default()
    }

    /// No fallback.
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

    /// Returns the run with another number of Gaussians.
    pub fn with(&self, gaussians: u64) -> Self {
        let start = self.start.min(gaussians);
        Self { model: self.model.with(gaussians), start, ..self.clone() }
    }

    /// The most Gaussians within a budget; nothing where not even one fits.
    pub fn largest(&self, budget: Bytes) -> Option<u64> {
        self.largest_shared(1, budget)
    }

    /// Returns the most Gaussians on several GPUs, each with this budget.
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
        let stage = |name, gaussians, scratch| Played::new(name, self.held(gaussians, 0), scratch);
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
        let library = Library::default();
        let dry_run = |rows, work| (self.dry_run)(&library, &model.with(rows), &work);
        let smoothed = |scratch: Scratch, rows| match model.optional.filter_3d {
            true => scratch.then(&dry_run(rows, Work::Smooth { views })),
            false => scratch,
        };
        let step = |view: &_, wants| PlannedViews {
            count: self.batch_views,
            ..PlannedViews::one(view, wants, in_bands)
        };
        let first = transfer(&model, self.start, 0..1);
        let first = first.then(&dry_run(self.start, Work::Reorder));
        let mut stages = vec![
            // The first photograph is sent when the model is there.
            stage("start", self.start, smoothed(first, self.start)).without_photographs(),
            stage("iteration", most, dry_run(most, step(&view, train).into())),
        ];
        if self.first_divisor != Divisor::One {
            // The largest of them, as if none were born later.
            let view = seen.resized(Divisor::Two.px(seen.px)).of(most);
            let wants = ViewRequest { divisor: Divisor::Two, ..train };
            stages.push(stage("smaller views", most, dry_run(most, step(&view, wants).into())));
        }
        if births > 0 {
            let before = most - births;
            let control = match self.rounds {
                RoundShape::Grow => dry_run(before, Work::Densify { births, wanted }),
                RoundShape::Relocate => {
                    dry_run(before, Work::MoveDead).then(&dry_run(before, Work::AddCopies(births)))
                }
            };
            stages.push(stage("density control", most, smoothed(control, most)));
            stages.push(stage("reorder", most, dry_run(most, Work::Reorder)));
        }
        let target = self.target.filter(|&target| target < most);
        if let Some(kept) = target {
            // Views that are drawn to measure weights take less.
            let wants = ViewRequest { colors: None, ..train.beside(Inputs::NONE) };
            let drawn = dry_run(most, PlannedViews::one(&view, wants, in_bands).into());
            let retained = dry_run(most, Work::Retain { candidates: most, kept });
            stages.push(stage("prune to target", most, drawn.then(&retained)));
        }
        if let Some(coarse) = self.coarse {
            let most = target.unwrap_or(most);
            let view = seen.of(most);
            let scratch = dry_run(most, Work::FindNeighbours)
                .then(&dry_run(most, coarse.views(step(&view, train)).into()))
                // Those that are too transparent are pruned once.
                .then(&dry_run(most, Work::Densify { births: 0, wanted: 0 }));
            let held = self.held(most, neighbours);
            stages.push(Played::new("coarse training", held, smoothed(scratch, most)));
        }
        if !self.photographs.held_out.is_empty() {
            let colors = self.colors.map(|_| ColorUse::Fit);
            let wants = ViewRequest { drawn_for: Use::Counts, colors, ..ViewRequest::default() };
            let shown = PlannedViews::one(&full_view, wants, in_bands);
            stages.push(stage("evaluation", most, dry_run(most, shown.into())));
        }
        stages.push(stage("statistics", most, sample(&model, most)));
        stages.push(stage("checkpoint", most, transfer(&model, most, 0..TABLE_PARTS)));
        stages
    }

    /// Memory of a whole stage without scratch and without the photographs that stay.
    fn held(&self, gaussians: u64, neighbours: u32) -> Vec<PlannedRow> {
        let tables = self.colors.map(|colors| colors.row());
        let regions = self.model.with(gaussians).regions();
        let lists = coarse::neighbour_lists(gaussians, neighbours);
        self.account().held(tables.into_iter().chain(regions).chain([lists]))
    }
}
