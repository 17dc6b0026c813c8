//! The stages of a run, and its peak.

use super::forecast::{FixedMemory, Forecast, Played, Way, largest_that_fits, nccl, nccl_blocks};
use super::refinement::{self, PlannedCoarse};
use super::rows::{Granule, PlannedColorTables, PlannedPhotographs, PlannedRow};
use super::work::{
    DensifyShape, DryRun, PlannedViews, ViewGrowth, ViewSize, Work, sample, transfer,
};
use crate::abi::terms::Inputs;
use crate::layout::{
    ColorUse, Library, ModelSize, Records, Scratch, TABLE_PARTS, Use, ViewRequest, splat_capacity,
};
use crate::math::Divisor;
use crate::memory::Bytes;

/// The largest model divided by this bounds the new Gaussians of all densification steps but the first.
const NEW_GAUSSIANS_SHARE: u64 = 10;

/// A training run.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The model at its largest.
    pub model: ModelSize,
    /// Gaussians at the start.
    pub start: u64,
    /// Splats and instances of a view.
    pub seen: ViewGrowth,
    /// Views of a step.
    pub batch_views: u32,
    /// Divisor of the sides of the first training views.
    pub first_divisor: Divisor,
    /// Kind of the splats.
    pub records: Records,
    /// Maps that terms need of training views.
    pub inputs: Inputs,
    /// The photographs.
    pub photographs: PlannedPhotographs,
    /// Tables of the photographs' colours, if they are learned.
    pub colors: Option<PlannedColorTables>,
    /// Wanted and granted new Gaussians of the largest step. `None`: a tenth of the model is granted, and twice as many
    /// are wanted.
    pub new_gaussians: Option<[u64; 2]>,
    /// Kind of the densification steps.
    pub densify_shape: DensifyShape,
    /// Gaussians left after density control, if they are pruned then.
    pub target: Option<u64>,
    /// SuGaR's coarse stage, if it follows.
    pub coarse: Option<PlannedCoarse>,
    /// True if views may be drawn in bands if their lists do not fit.
    pub bands: bool,
    /// True if training views may be drawn smaller if they do not fit.
    pub resolution: bool,
    /// Context and code.
    pub context: Bytes,
    /// Allocation unit of the device.
    pub granule: Granule,
    /// The stages of the device.
    pub dry_run: DryRun,
}

impl PlannedRun {
    /// Forecasts the memory within a budget, or without a limit.
    pub fn forecast(&self, budget: Option<Bytes>) -> Forecast {
        self.fixed_memory().forecast(&self.ways(), |way| self.play(way), budget, self.least())
    }

    /// Returns the peak of each label of the ledger, at different times, with all photographs on the device. The
    /// arena's row is the largest end of its blocks.
    pub fn ledger(&self, in_bands: bool) -> Vec<PlannedRow> {
        let neighbours = self.coarse.map(|coarse| coarse.neighbours);
        self.fixed_memory().ledger(&self.play(Way { in_bands, neighbours, ..Way::USUAL }))
    }

    fn fixed_memory(&self) -> FixedMemory<'_> {
        let Self { context, granule, ref photographs, .. } = *self;
        FixedMemory { context, granule, photographs }
    }

    /// Returns the smallest sufficient budget.
    pub fn least(&self) -> Bytes {
        // Bands need less in some runs and more in others. Shorter lists and smaller views always need less.
        let mut ways = self.ways();
        if let Some(&Way { neighbours, scale, .. }) = ways.last() {
            ways.retain(|way| way.neighbours == neighbours && way.scale == scale);
        }
        self.fixed_memory().least(&ways, |way| self.play(way))
    }

    /// Returns all fallbacks, cheapest first.
    fn ways(&self) -> Vec<Way> {
        let lengths = self
            .coarse
            .map_or(vec![None], |coarse| coarse.lengths().into_iter().map(Some).collect());
        Way::all(Way::drawn(self.bands), self.resolution, &lengths)
    }

    /// Returns the run with another number of Gaussians.
    pub fn with(&self, gaussians: u64) -> Self {
        let start = self.start.min(gaussians);
        Self { model: self.model.with(gaussians), start, ..self.clone() }
    }

    /// Returns the largest number of Gaussians within a budget; `None` if not even one fits.
    pub fn largest(&self, budget: Bytes) -> Option<u64> {
        self.largest_shared(1, budget)
    }

    /// Returns the largest number of Gaussians on several GPUs with this budget each.
    pub fn largest_shared(&self, gpus: u32, budget: Bytes) -> Option<u64> {
        let nccl = nccl(gpus, nccl_blocks(budget));
        let fits = |gaussians: u64| self.with(gaussians).of_rank(gpus, nccl).least() <= budget;
        // Kernels count in 32 bits.
        fits(1).then(|| largest_that_fits(1, u64::from(u32::MAX), fits))
    }

    fn play(&self, Way { in_bands, neighbours, scale, .. }: Way) -> Vec<Played> {
        let most = self.model.gaussians;
        let [wanted, new_gaussians] = self.new_gaussians.unwrap_or_else(|| {
            let new_gaussians = (most / NEW_GAUSSIANS_SHARE).min(most.saturating_sub(self.start));
            // Choosing among more candidates takes more memory than taking all.
            [2 * new_gaussians, new_gaussians]
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
        let step = |view: &_, request| PlannedViews {
            count: self.batch_views,
            ..PlannedViews::one(view, request, in_bands)
        };
        let first = transfer(&model, self.start, 0..1);
        let first = first.then(&dry_run(self.start, Work::Reorder));
        let mut stages = vec![
            // The first photograph is uploaded after the model.
            stage("start", self.start, smoothed(first, self.start)).without_photographs(),
            stage("iteration", most, dry_run(most, step(&view, train).into())),
        ];
        if self.first_divisor != Divisor::One {
            // The largest model, as if no Gaussians were added later.
            let view = seen.resized(Divisor::Two.px(seen.px)).of(most);
            let request = ViewRequest { divisor: Divisor::Two, ..train };
            stages.push(stage("smaller views", most, dry_run(most, step(&view, request).into())));
        }
        if new_gaussians > 0 {
            let before = most - new_gaussians;
            let control = match self.densify_shape {
                DensifyShape::Grow => dry_run(before, Work::Densify { new_gaussians, wanted }),
                DensifyShape::Relocate => dry_run(before, Work::MoveDead)
                    .then(&dry_run(before, Work::AddCopies(new_gaussians))),
            };
            stages.push(stage("density control", most, smoothed(control, most)));
            stages.push(stage("reorder", most, dry_run(most, Work::Reorder)));
        }
        let target = self.target.filter(|&target| target < most);
        if let Some(kept) = target {
            // Drawing views to measure weights takes less.
            let request = ViewRequest { colors: None, ..train.beside(Inputs::NONE) };
            let drawn = dry_run(most, PlannedViews::one(&view, request, in_bands).into());
            let retained = dry_run(most, Work::Retain { candidates: most, kept });
            stages.push(stage("prune to target", most, drawn.then(&retained)));
        }
        if let Some(coarse) = self.coarse {
            let most = target.unwrap_or(most);
            let view = seen.of(most);
            let scratch = dry_run(most, Work::FindNeighbours)
                .then(&dry_run(most, coarse.views(step(&view, train)).into()))
                // Gaussians that are too transparent are pruned once.
                .then(&dry_run(most, Work::Densify { new_gaussians: 0, wanted: 0 }));
            let held = self.held(most, neighbours.unwrap_or(0));
            stages.push(Played::new("coarse training", held, smoothed(scratch, most)));
        }
        if !self.photographs.held_out.is_empty() {
            let colors = self.colors.map(|_| ColorUse::Fit);
            let request = ViewRequest { drawn_for: Use::Counts, colors, ..ViewRequest::default() };
            let shown = PlannedViews::one(&full_view, request, in_bands);
            stages.push(stage("evaluation", most, dry_run(most, shown.into())));
        }
        stages.push(stage("statistics", most, sample(&model, most)));
        stages.push(stage("checkpoint", most, transfer(&model, most, 0..TABLE_PARTS)));
        stages
    }

    /// Returns the memory of a whole stage without scratch and resident photographs.
    fn held(&self, gaussians: u64, neighbours: u32) -> Vec<PlannedRow> {
        let tables = self.colors.map(|colors| colors.row());
        let regions = self.model.with(gaussians).regions();
        let lists = refinement::neighbour_lists(gaussians, neighbours);
        self.fixed_memory().held(tables.into_iter().chain(regions).chain([lists]))
    }
}

/// Bytes of an instance in a view's list, scratch of the sort included.
const BYTES_OF_INSTANCE: u64 = 24;

/// Bytes of the splat's index of a Gaussian.
const BYTES_OF_SLOT: u64 = 4;

impl PlannedRun {
    /// Returns the run on each of several GPUs. A GPU holds its share of the Gaussians, draws one view per step of
    /// all Gaussians, and projects its share into the views of the other GPUs. Splats for other GPUs and the memory
    /// of NCCL are held all the time and count as context.
    pub fn of_rank(&self, gpus: u32, nccl: Bytes) -> Self {
        if gpus < 2 {
            return self.clone();
        }
        let world = u64::from(gpus.max(1));
        let (all, own) = (self.model.gaussians, self.model.gaussians.div_ceil(world));
        let view = self.seen.of(all);
        let seen = ViewGrowth::counted(own, &view);
        let beyond = self.beyond(own, &view, &seen.of(own));
        // Sent splats and their gradients share one buffer.
        let part = self.splats(view.visible.div_ceil(world), own) / 2 + BYTES_OF_SLOT * own;
        // The splats of all views of a batch stay until the step.
        let rounds = self.batch_views.div_ceil(gpus.max(1));
        let parts = u64::from(rounds) * (world - 1) * part;
        Self {
            model: self.model.with(own),
            start: self.start.div_ceil(world),
            seen,
            batch_views: rounds,
            context: Bytes(self.context.0 + nccl.0 + parts + beyond),
            ..self.clone()
        }
    }

    /// Returns the bytes of a view's splats and their gradients.
    fn splats(&self, visible: u64, gaussians: u64) -> u64 {
        let record = u64::from(self.records.width()) * size_of::<f32>() as u64;
        2 * record * splat_capacity(visible, gaussians)
    }

    /// Returns the bytes of a view's splats beyond the splats of the own share.
    fn beyond(&self, own: u64, view: &ViewSize, counted: &ViewSize) -> u64 {
        let splats = self.splats(view.visible, u64::MAX);
        let beyond = splats.saturating_sub(self.splats(counted.visible, own));
        beyond + BYTES_OF_INSTANCE * view.instances.saturating_sub(counted.instances)
    }

    /// Returns true if ranks can draw the run's views.
    pub fn can_be_shared(&self) -> bool {
        self.records == Records::Ellipses && self.coarse.is_none() && self.colors.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::cuda::dry_run;
    use crate::memory::plan::rows::bytes_of;
    use crate::memory::plan::work::plain;
    use crate::memory::plan::{CONTEXT, Maps, PlannedStage, Storage};

    const DEPTHS: Inputs = Inputs { inverse_depths: true, ..Inputs::NONE };

    const DISTORTION: Inputs =
        Inputs { inverse_depths: true, inverse_squares: true, maps: true, ..Inputs::NONE };

    fn run(gaussians: u64, storage: Storage) -> PlannedRun {
        PlannedRun {
            model: ModelSize { sh_degree: 3, storage, ..plain(gaussians) },
            start: 12_415,
            seen: ViewGrowth { px: [1061, 1894], share: 0.72, surface: 1.34e6 },
            first_divisor: Divisor::One,
            records: Records::Ellipses,
            inputs: Inputs::NONE,
            photographs: PlannedPhotographs {
                trained: vec![1061 * 1894 * 3; 43],
                held_out: vec![1061 * 1894 * 3; 7],
            },
            colors: None,
            new_gaussians: None,
            coarse: None,
            batch_views: 1,
            densify_shape: DensifyShape::Grow,
            target: None,
            bands: false,
            resolution: false,
            context: CONTEXT,
            granule: Granule::default(),
            dry_run,
        }
    }

    fn stage<'a>(forecast: &'a Forecast, name: &str) -> &'a PlannedStage {
        forecast.stages.iter().find(|stage| stage.name == name).unwrap()
    }

    /// Peaks measured by `splat bench` without photographs, context and code, in GiB, rounded to 0.01: see
    /// benches/README.md.
    #[test]
    fn peaks_equal_the_measured_ones() {
        let bench = |gaussians, storage, seen: ViewGrowth| {
            let run = PlannedRun {
                seen,
                photographs: PlannedPhotographs::default(),
                context: Bytes(0),
                ..run(gaussians, storage)
            };
            run.forecast(None).peak.gib()
        };
        let fox = run(1, Storage::Full).seen;
        let bonsai = ViewGrowth { px: [800, 533], share: 0.506, surface: 0.286e6 };
        let (full, compact) = (Storage::Full, Storage::Compact);
        for (gaussians, storage, seen, measured) in [
            (252_000, full, fox, 0.28),
            (1_000_000, full, fox, 0.85),
            (3_000_000, full, fox, 2.39),
            (6_000_000, full, fox, 4.71),
            (1_220_000, full, bonsai, 0.91),
            (252_000, compact, fox, 0.19),
            (1_000_000, compact, fox, 0.48),
            (3_000_000, compact, fox, 1.29),
            (6_000_000, compact, fox, 2.49),
        ] {
            let found = bench(gaussians, storage, seen);
            // Two per cent of the bytes held with the context and the photographs.
            let tolerance = 0.02 * (measured + 0.75);
            assert!(
                (found - measured).abs() < tolerance,
                "{gaussians}, {storage:?}: {found} for {measured}"
            );
        }
    }

    #[test]
    fn a_rank_holds_its_share_and_the_splats_of_one_view_of_all() {
        let one = run(6_000_000, Storage::Full);
        assert_eq!(one.of_rank(1, Bytes(0)).forecast(None).peak, one.forecast(None).peak);
        let [two, four] = [2, 4].map(|gpus| one.of_rank(gpus, nccl(gpus, 32)));
        assert_eq!((two.model.gaussians, four.model.gaussians), (3_000_000, 1_500_000));
        let beside_nccl =
            |run: &PlannedRun, gpus| run.forecast(None).peak.0 - nccl(gpus, 32).0 - one.context.0;
        let alone = one.forecast(None).peak.0 - one.context.0;
        // A quarter of the model, and more than a quarter of a view, which does not shrink with the share.
        let share = beside_nccl(&four, 4) as f64 / alone as f64;
        assert!((0.3..0.6).contains(&share), "{share}");
        assert!(beside_nccl(&two, 2) > beside_nccl(&four, 4));
        // In the view of another rank: an index per row, and splats whose buffer also takes the gradients.
        let visible = one.seen.of(6_000_000).visible.div_ceil(2);
        let part = 4 * 3_000_000 + 48 * splat_capacity(visible, 3_000_000);
        let eight = PlannedRun { batch_views: 8, ..one.clone() }.of_rank(2, nccl(2, 32));
        assert_eq!((eight.context.0 - two.context.0, eight.batch_views), (3 * part, 4));
        assert_eq!(one.with(0).of_rank(4, Bytes(0)).model.gaussians, 0);
        // More GPUs of one size hold more in total, but not in proportion: each view shows all Gaussians.
        let card = Bytes(24 << 30);
        let [alone, shared] = [1, 4].map(|gpus| one.largest_shared(gpus, card).unwrap());
        assert_eq!(Some(alone), one.largest(card));
        assert!((alone * 3 / 2..alone * 4).contains(&shared), "{alone} {shared}");
    }

    #[test]
    fn rows_add_up_and_the_peak_is_no_smaller_than_any_stage() {
        let forecast = run(3_000_000, Storage::Full).forecast(Some(Bytes(6 << 30)));
        let names: Vec<&str> = forecast.stages.iter().map(|stage| stage.name).collect();
        let expected = [
            "start",
            "iteration",
            "density control",
            "reorder",
            "evaluation",
            "statistics",
            "checkpoint",
        ];
        assert_eq!(names, expected);
        for stage in &forecast.stages {
            assert_eq!(stage.rows.iter().map(|row| row.bytes).sum::<Bytes>(), stage.total);
            assert!(stage.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.bytes)));
            assert!(stage.total <= forecast.peak, "{}", stage.name);
        }
        assert_eq!(forecast.photographs_resident, 43);
    }

    #[test]
    fn evaluation_takes_no_more_than_training() {
        for (storage, gaussians) in [(Storage::Full, 100_000), (Storage::Compact, 6_000_000)] {
            let plain = run(gaussians, storage);
            let others = [
                PlannedRun { bands: true, ..plain.clone() },
                PlannedRun { inputs: DEPTHS, ..plain.clone() },
                PlannedRun { records: Records::Surfels, inputs: DISTORTION, ..plain.clone() },
                PlannedRun { batch_views: 4, ..plain.clone() },
                PlannedRun { seen: ViewGrowth { share: 1.0, ..plain.seen }, ..plain.clone() },
                plain,
            ];
            for run in others {
                let forecast = run.forecast(Some(Bytes(80 << 30)));
                let [evaluation, training] =
                    ["evaluation", "iteration"].map(|name| stage(&forecast, name).total);
                assert!(evaluation <= training, "{evaluation} > {training}: {run:?}");
            }
        }
    }

    #[test]
    fn smaller_views_take_less_than_whole_ones_and_hold_a_smaller_photograph() {
        let whole = run(1_000_000, Storage::Full);
        for (inputs, bytes) in [(Inputs::NONE, 4), (DEPTHS, 9)] {
            let run = PlannedRun { first_divisor: Divisor::Four, inputs, ..whole.clone() };
            let forecast = run.forecast(None);
            let [smaller, iteration] =
                ["smaller views", "iteration"].map(|name| stage(&forecast, name));
            assert!(smaller.total < iteration.total, "{} of {}", smaller.total, iteration.total);
            let photograph = bytes_of(&smaller.rows, "smaller photograph");
            let least = 530 * 947 * bytes;
            // Blocks begin at aligned addresses.
            assert!((least..least + 1024).contains(&photograph), "{photograph}");
            let plain = PlannedRun { inputs, ..whole.clone() };
            assert_eq!(forecast.peak, plain.forecast(None).peak);
        }
    }

    #[test]
    fn photographs_are_evicted_when_the_model_needs_memory() {
        let run = run(3_000_000, Storage::Full);
        let least = run.least();
        let resident = |budget: u64| run.forecast(Some(Bytes(budget))).photographs_resident;
        assert_eq!(resident(least.0), 0);
        let some = resident(least.0 + (100 << 20));
        assert!((10..20).contains(&some), "{some}");
        // All stay resident, and unused arena memory does not evict them.
        assert_eq!(resident(least.0 + (300 << 20)), 43);
        let tight = run.forecast(Some(least));
        assert!(tight.peak <= least, "{} > {}", tight.peak, least);
    }

    #[test]
    fn views_are_drawn_in_bands_only_if_they_do_not_fit_at_once() {
        let at_once = run(3_000_000, Storage::Full);
        let banded = PlannedRun { bands: true, ..at_once.clone() };
        let (most, least) = (at_once.least(), banded.least());
        assert!(least.0 + (30 << 20) < most.0, "{least} {most}");
        assert!(!banded.forecast(Some(most)).in_bands);
        let tight = banded.forecast(Some(Bytes(most.0 - 1)));
        assert!(tight.in_bands && tight.peak < most);
        assert!(!at_once.forecast(Some(Bytes(most.0 - 1))).in_bands, "they may not be");
    }

    #[test]
    fn inverse_depths_take_a_map_its_gradient_and_a_fifth_of_the_states() {
        let colours = run(1_000_000, Storage::Full);
        let depths = PlannedRun { inputs: DEPTHS, ..colours.clone() };
        let row = |run: &PlannedRun, label| bytes_of(&run.ledger(false), label);
        for label in ["inverse depths", "gradient of inverse depths"] {
            assert_eq!((row(&colours, label), row(&depths, label)), (0, 1061 * 1894 * 4));
        }
        let states = "states of pixels";
        assert_eq!(row(&depths, states) * 4, row(&colours, states) * 5);
    }

    #[test]
    fn surfels_take_maps_and_gradients_if_their_terms_are_on() {
        let colours = PlannedRun { records: Records::Surfels, ..run(1_000_000, Storage::Full) };
        let normals = Inputs { maps: true, ..Inputs::NONE };
        let runs = [Inputs::NONE, normals, DISTORTION]
            .map(|inputs| PlannedRun { inputs, ..colours.clone() }.ledger(false));
        for (label, words) in [
            ("surface maps", [0, 4, 4]),
            ("inverse depths", [0, 0, 1]),
            ("inverse squares", [0, 0, 1]),
        ] {
            for label in [label.to_owned(), format!("gradient of {label}")] {
                let found = runs.each_ref().map(|rows| bytes_of(rows, &label));
                assert_eq!(found, words.map(|words| words * 1061 * 1894 * 4), "{label}");
            }
        }
    }

    #[test]
    fn compact_state_takes_less_than_half_of_the_model() {
        let [full, compact] = [Storage::Full, Storage::Compact].map(|s| run(6_000_000, s).least());
        assert!(compact.0 < full.0 * 6 / 10, "{compact} {full}");
    }

    #[test]
    fn colour_tables_take_their_bytes_and_an_image_beside_the_view() {
        let without = run(1_000_000, Storage::Full);
        let with = |width| PlannedRun {
            colors: Some(PlannedColorTables { views: 43, width }),
            ..without.clone()
        };
        let image = 1061 * 1894 * 12;
        for (width, sums) in [(12, 256 * 12), (24_576, 900 * 384)] {
            let more = with(width).least().0 - without.least().0;
            let expected = image + 4 * (3 * 43 * width + sums + width);
            // Whole granules of the tables and of the scratch.
            assert!(more.abs_diff(expected) <= 2 * (2 << 20), "{more} for {expected}");
        }
    }

    /// The capacity for splats, 48 bytes each, is a twentieth larger than the view.
    #[test]
    fn each_view_of_a_batch_but_the_last_holds_its_gradients() {
        let one = run(1_000_000, Storage::Full);
        let reach = |run: &PlannedRun| stage(&run.forecast(None), "iteration").total.0;
        let visible = one.seen.of(1_000_000).visible;
        let each = 4_000_000 + 48 * (visible + visible / 20);
        for batch_views in [2, 8] {
            let more = reach(&PlannedRun { batch_views, ..one.clone() }) - reach(&one);
            let expected = u64::from(batch_views - 1) * each;
            // Starts of blocks, and whole granules.
            assert!(more.abs_diff(expected) <= 2 << 20, "{batch_views}: {more} for {expected}");
        }
    }

    #[test]
    fn a_batch_of_the_coarse_stage_holds_no_less() {
        for maps in [Maps::Undrawn, Maps::Compared, Maps::Sampled] {
            let one = coarse(1_000_000, maps);
            let four = PlannedRun { batch_views: 4, ..one.clone() };
            let more = four.least().0 - one.least().0;
            let visible = one.seen.of(1_000_000).visible;
            assert!(more >= 3 * (4_000_000 + 48 * visible), "{maps:?}: {more}");
        }
    }

    fn coarse(gaussians: u64, maps: Maps) -> PlannedRun {
        let coarse = PlannedCoarse { neighbours: 16, shortens: true, maps };
        PlannedRun { coarse: Some(coarse), ..run(gaussians, Storage::Full) }
    }

    #[test]
    fn only_the_coarse_stage_holds_lists_of_neighbours() {
        let forecast = coarse(6_000_000, Maps::Undrawn).forecast(None);
        assert_eq!(forecast.neighbours, Some(16));
        for stage in &forecast.stages {
            let lists = stage.rows.iter().find(|row| row.label == "neighbours");
            let expected = (stage.name == "coarse training")
                .then(|| Granule::default().whole(Bytes(6_000_000 * 16 * 4)));
            assert_eq!(lists.map(|row| row.bytes), expected, "{}", stage.name);
            assert_eq!(stage.rows.iter().map(|row| row.bytes).sum::<Bytes>(), stage.total);
            assert!(stage.total <= forecast.peak, "{}", stage.name);
        }
        let total = |name| stage(&forecast, name).total.0;
        // The stage adds 384 MB of lists. Its 288 MB of gradients reuse the memory of splats, pairs and pixels.
        let more = total("coarse training") - total("iteration");
        assert!(more.abs_diff(384_000_000) < 4 << 20, "{more}");
        assert_eq!(run(6_000_000, Storage::Full).forecast(None).neighbours, None);
    }

    #[test]
    fn surface_maps_take_their_bytes_and_samples_a_little_more() {
        let [undrawn, compared, sampled] = [Maps::Undrawn, Maps::Compared, Maps::Sampled]
            .map(|maps| coarse(1_000_000, maps).least().0);
        assert!(undrawn < compared && compared <= sampled, "{undrawn} {compared} {sampled}");
        let view = coarse(1, Maps::Undrawn).seen.of(1_000_000);
        // Maps and features with their gradients, and the state of the pixels.
        let most = 32 * (view.pixels() + view.visible) + 16 * view.instances;
        assert!(compared - undrawn <= most + (8 << 20), "{} of {most}", compared - undrawn);
    }

    #[test]
    fn lists_become_shorter_only_if_bands_do_not_suffice() {
        let run = PlannedRun { bands: true, ..coarse(6_000_000, Maps::Undrawn) };
        let fixed = PlannedRun {
            coarse: run.coarse.map(|c| PlannedCoarse { shortens: false, ..c }),
            ..run.clone()
        };
        let (most, least) = (fixed.least(), run.least());
        // Six neighbours of 4 bytes.
        let gain = most.0 - least.0;
        assert!(gain.abs_diff(6_000_000 * 24) <= 8 << 20, "{gain}");
        let way = |budget: u64| {
            let forecast = run.forecast(Some(Bytes(budget)));
            assert!(forecast.peak.0 <= budget);
            (forecast.neighbours, forecast.in_bands)
        };
        assert_eq!(way(most.0).0, Some(16));
        assert_eq!(way(most.0 - 1).0, Some(12));
        assert_eq!(way(least.0).0, Some(10));
        assert_eq!(fixed.forecast(Some(least)).neighbours, Some(16), "they may not be");
        assert!(run.largest(most) > fixed.largest(most));
    }

    #[test]
    fn the_ledger_has_each_label_once_at_its_most() {
        let run = run(3_000_000, Storage::Full);
        let rows = run.ledger(false);
        let mut labels: Vec<&str> = rows.iter().map(|row| row.label).collect();
        labels.sort_unstable();
        assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{labels:?}");
        // The bytes that stages hold at once are at most the sum of the labels.
        for row in run.forecast(None).stages.iter().flat_map(|stage| &stage.rows) {
            let most = rows.iter().find(|most| most.label == row.label);
            assert!(most.is_some_and(|most| most.bytes >= row.bytes), "{row:?} of {most:?}");
        }
    }

    #[test]
    fn there_is_no_largest_number_if_nothing_fits() {
        assert_eq!(run(1000, Storage::Full).largest(Bytes(500 << 20)), None);
    }

    proptest! {
        #[test]
        fn the_largest_number_fits_and_one_more_does_not(
            mib in 800_u64..30_000,
            compact in any::<bool>(),
            stage in prop::option::of(any::<bool>()),
        ) {
            let storage = if compact { Storage::Compact } else { Storage::Full };
            let of_stage = |shortens| PlannedCoarse { neighbours: 16, shortens, maps: Maps::Compared };
            let run = PlannedRun { coarse: stage.map(of_stage), ..run(1, storage) };
            let budget = Bytes(mib << 20);
            let largest = run.largest(budget).unwrap();
            prop_assert!(run.with(largest).least() <= budget);
            prop_assert!(run.with(largest + 1).least() > budget);
            let forecast = run.with(largest).forecast(Some(budget));
            prop_assert!(forecast.peak <= budget);
        }
    }
}
