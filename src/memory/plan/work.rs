//! Work of a device and its scratch, found by a dry run of the device's stages: see [`crate::backend::cuda::dry_run`].

use std::ops::Range;

use serde::Serialize;

use crate::abi::TILE;
use crate::layout::{
    BoundSizes, DepthUse, FACES_PER_VERTEX, GAUSSIANS, Library, ModelSize, OptionalColumns,
    PackSizes, ROWS_TO_PACK, Records, Replay, RowForm, SampleSlots, Scratch, Source as _, Storage,
    TABLE_PARTS, ViewRequest,
};
use crate::memory::{Bytes, TrainingScale};

/// Returns the scratch of some work on a model.
pub type DryRun = fn(&Library, &ModelSize, &Work) -> Scratch;

/// Kind of a densification step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DensifyShape {
    /// Gaussians are copied, split and removed.
    Grow,
    /// Gaussians move, and copies are added.
    Relocate,
}

/// Work on a model.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Draws views, and takes a step where they are trained on.
    Views(PlannedViews),
    /// Adds the best of the candidates, and removes some Gaussians.
    Densify {
        /// New Gaussians.
        new_gaussians: u64,
        /// Candidates.
        wanted: u64,
    },
    /// Removes all Gaussians but the best of the candidates.
    Retain {
        /// Candidates.
        candidates: u64,
        /// Gaussians that stay.
        kept: u64,
    },
    /// Moves dead Gaussians to living ones.
    MoveDead,
    /// Adds this number of copies.
    AddCopies(u64),
    /// Puts the Gaussians in the order of their centres.
    Reorder,
    /// Finds the nearest neighbours of all Gaussians.
    FindNeighbours,
    /// Computes the 3D filter.
    Smooth {
        /// Training views.
        views: u64,
    },
}

/// Gaussians that are sampled by terms at samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// All visible Gaussians.
    Seen,
    /// Gaussians near the depths of the view, with which samples are compared.
    Shown,
}

/// Views that are drawn one after the other.
#[derive(Clone, Copy, Debug)]
pub struct PlannedViews {
    /// Views of a step.
    pub count: u32,
    /// Size of each view.
    pub view: ViewSize,
    /// Maps to draw, and their use.
    pub request: ViewRequest,
    /// True if the views are drawn in [`crate::layout::BANDS`] bands of equal height.
    pub in_bands: bool,
    /// Terms at samples, after the backward pass.
    pub samples: Option<Samples>,
    /// Number of points whose transmittance is computed in place of the image.
    pub places: Option<u64>,
    /// Use of the depths, if they are fused.
    pub depths: Option<DepthUse>,
    /// The mesh that the Gaussians are bound to.
    pub bound: Option<BoundSizes>,
}

impl PlannedViews {
    /// Creates the request of one view without samples, points, fusion or mesh.
    pub fn one(view: &ViewSize, request: ViewRequest, in_bands: bool) -> Self {
        Self {
            count: 1,
            view: *view,
            request,
            in_bands,
            samples: None,
            places: None,
            depths: None,
            bound: None,
        }
    }
}

impl From<PlannedViews> for Work {
    fn from(views: PlannedViews) -> Self {
        Self::Views(views)
    }
}

/// Returns the scratch of copying rows between host and device, one part of every table (parameters, first and second
/// moments) after the other. Only rows in less than single precision need scratch.
pub(super) fn transfer(model: &ModelSize, rows: u64, parts: Range<usize>) -> Scratch {
    let source = Replay::default();
    for part in parts {
        let of_tables = model.forms().zip(model.values()).skip(part).step_by(TABLE_PARTS);
        for (form, values) in of_tables {
            let sizes = PackSizes { rows, values: values.into() };
            let Ok(block) = source.take_if(form != RowForm::Floats, &ROWS_TO_PACK, &sizes);
            drop(block);
        }
    }
    source.scratch()
}

/// Returns the scratch of sampling rows for a histogram.
pub(super) fn sample(model: &ModelSize, rows: u64) -> Scratch {
    let source = Replay::default();
    let Ok(sample) = SampleSlots::reserve(&source, rows, model.parameters());
    drop(sample);
    source.scratch()
}

/// Returns the bytes of scratch of training on a view of a model with this number of Gaussians.
pub fn view_scratch(
    dry_run: DryRun,
    library: &Library,
    gaussians: u64,
    planned: PlannedViews,
) -> Bytes {
    // A rank also draws splats of other ranks.
    let rows = match planned.request.records {
        Records::Ellipses | Records::Surfels => planned.view.visible,
        Records::Triangles => planned.view.visible.div_ceil(FACES_PER_VERTEX),
    };
    let model = plain(gaussians.max(rows));
    Bytes(dry_run(library, &model, &planned.into()).reach())
}

/// Returns the bytes of scratch of finding the neighbours of all Gaussians.
pub fn search_scratch(dry_run: DryRun, gaussians: u64) -> Bytes {
    Bytes(dry_run(&Library::default(), &plain(gaussians), &Work::FindNeighbours).reach())
}

/// Returns a model in full precision without harmonics, for work that depends on the number of rows only.
pub(super) fn plain(gaussians: u64) -> ModelSize {
    let (storage, optional) = (Storage::Full, OptionalColumns::NONE);
    ModelSize { gaussians, schema: &GAUSSIANS, sh_degree: 0, storage, optional }
}

// Splats and instances of a view as a function of the number of Gaussians.

/// Sizes of a view that its memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ViewSize {
    /// Width and height, px.
    pub px: [u32; 2],
    /// Number of visible Gaussians.
    pub visible: u64,
    /// Number of pairs of a splat and a tile.
    pub instances: u64,
}

impl ViewSize {
    /// Returns the number of pixels.
    pub fn pixels(&self) -> u64 {
        self.px.map(u64::from).iter().product()
    }

    /// Returns the number of tiles.
    pub fn tiles(&self) -> u64 {
        self.px.map(|side| u64::from(side.div_ceil(TILE))).iter().product()
    }
}

/// Growth of the most demanding view with the number of Gaussians.
///
/// A splat counts in every tile that its box touches. In a denser model splats get smaller while their surface, S
/// tiles in total, stays constant: V splats with sides of s tiles touch about (1 + s/2)² tiles each, with s² = S / V.
/// The sum is V + √(V S) + S/4, modelled as V + √(V S') + S' with a measured S'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ViewGrowth {
    /// Size of the largest view, px.
    pub px: [u32; 2],
    /// Share of the Gaussians that are visible.
    pub share: f64,
    /// S', tiles.
    pub surface: f64,
}

impl ViewGrowth {
    /// Fits the growth to a view of a model with this number of Gaussians.
    pub fn counted(gaussians: u64, view: &ViewSize) -> Self {
        let root = (view.visible as f64).sqrt();
        let more = view.instances.saturating_sub(view.visible) as f64;
        // x² + √V x = M - V.
        let x = 0.5 * ((root * root + 4.0 * more).sqrt() - root);
        Self { px: view.px, share: view.visible as f64 / gaussians.max(1) as f64, surface: x * x }
    }

    /// Returns the growth of the views at another scale.
    pub fn scaled(&self, scale: TrainingScale) -> Self {
        self.resized(scale.px(self.px))
    }

    /// Returns the growth of the views at another size, px. The surface scales with the number of tiles.
    pub fn resized(&self, px: [u32; 2]) -> Self {
        let tiles = |px: [u32; 2]| px.map(|side| f64::from(side) / f64::from(TILE));
        let ([wide, high], [new_wide, new_high]) = (tiles(self.px), tiles(px));
        Self { px, surface: self.surface * (new_wide * new_high) / (wide * high), ..*self }
    }

    /// Returns the view of a model with this number of Gaussians.
    pub fn of(&self, gaussians: u64) -> ViewSize {
        let visible = gaussians as f64 * self.share.clamp(0.0, 1.0);
        let instances = visible + (visible * self.surface).sqrt() + self.surface;
        let instances = if gaussians == 0 { 0.0 } else { instances };
        ViewSize { px: self.px, visible: whole(visible), instances: whole(instances) }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count far below 2^63, and never negative"
)]
fn whole(count: f64) -> u64 {
    count.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::dry_run;
    use crate::layout::Use;

    const TRAIN: ViewRequest = ViewRequest {
        records: Records::Ellipses,
        drawn_for: Use::Backward,
        inverse_depths: false,
        inverse_squares: false,
        maps: false,
        median: false,
        colors: None,
        divisor: crate::math::Divisor::One,
    };
    const PICTURE: ViewRequest = ViewRequest { drawn_for: Use::Counts, ..TRAIN };

    const VIEW: ViewSize = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };

    fn model(gaussians: u64) -> ModelSize {
        ModelSize { sh_degree: 3, ..plain(gaussians) }
    }

    fn run(gaussians: u64, work: &Work) -> Scratch {
        dry_run(&Library::default(), &model(gaussians), work)
    }

    fn drawn(view: &ViewSize, request: ViewRequest, in_bands: bool) -> Scratch {
        run(1_000_000, &PlannedViews::one(view, request, in_bands).into())
    }

    fn reach(view: &ViewSize, request: ViewRequest) -> u64 {
        drawn(view, request, false).reach()
    }

    fn peak(scratch: &Scratch, label: &str) -> u64 {
        scratch.peaks().iter().find(|row| row.label == label).map_or(0, |row| row.bytes)
    }

    #[test]
    fn training_takes_a_hundred_bytes_a_splat_and_twenty_an_instance() {
        let bytes = reach(&VIEW, TRAIN);
        let more = |view: ViewSize| reach(&view, TRAIN) - bytes;
        let splats = more(ViewSize { visible: 500_000, ..VIEW });
        assert!(splats.abs_diff(100_000 * 2 * 48 * 21 / 20) < 1000, "{splats}");
        let instances = more(ViewSize { instances: 2_000_000, ..VIEW });
        assert!(instances.abs_diff(1_000_000 * 84 / 4) < 100_000, "{instances}");
        let pixels = reach(&ViewSize { px: [1600, 1066], ..VIEW }, TRAIN) - bytes;
        let tiles = 4 * VIEW.tiles();
        assert!(pixels.abs_diff(3 * VIEW.pixels() * 24) < 200 * tiles, "{pixels}");
    }

    #[test]
    fn drawing_takes_less_than_training() {
        assert!(reach(&VIEW, PICTURE) < reach(&VIEW, TRAIN));
    }

    #[test]
    fn bands_take_less_of_instances_and_more_of_splats() {
        let of = |instances, in_bands| {
            drawn(&ViewSize { instances, ..VIEW }, TRAIN, in_bands).reach() as f64
        };
        let each = |in_bands| (of(9_000_000, in_bands) - of(5_000_000, in_bands)) / 4e6;
        let ratio = each(true) / each(false);
        assert!((ratio - 0.25).abs() < 0.01, "{ratio}");
        // Twelve bytes per splat stay, and eight are temporary.
        let more = of(0, true) - of(0, false);
        assert!((4.8e6..8.1e6).contains(&more), "{more}");
    }

    #[test]
    fn many_tiles_take_longer_keys() {
        let keys = |px| peak(&drawn(&ViewSize { px, ..VIEW }, PICTURE, false), "keys of instances");
        assert_eq!(keys([800, 533]), 2 * 2 * 1_000_000);
        assert_eq!(keys([4096, 4112]), 2 * 4 * 1_000_000);
    }

    #[test]
    fn surface_terms_take_a_row_a_gaussian_and_a_word_a_splat() {
        let of = |visible, samples| {
            let request = ViewRequest { maps: true, ..TRAIN };
            let view = ViewSize { visible, ..VIEW };
            let one = PlannedViews::one(&view, request, false);
            run(1_000_000, &PlannedViews { samples: Some(samples), ..one }.into())
        };
        let seen = of(400_000, Samples::Seen);
        assert_eq!(peak(&seen, "surface gradients"), 48_000_000);
        assert_eq!(peak(&seen, "surface rows"), 1_600_000);
        assert_eq!(peak(&seen, "surface counts"), 2 * 31_250 * 4);
        let shown = of(400_000, Samples::Shown);
        assert_eq!(peak(&shown, "surface counts"), (3 * 31_250 + 1) * 4);
        assert_eq!(peak(&of(0, Samples::Shown), "surface gradients"), 0);
    }

    #[test]
    fn candidates_are_sorted_only_if_not_all_are_added() {
        let of = |new_gaussians| run(1_000_000, &Work::Densify { new_gaussians, wanted: 5000 });
        let all = of(5000);
        assert_eq!(peak(&all, "density flags") + peak(&all, "density ranks"), 8 * 1_005_000);
        assert_eq!(peak(&all, "candidates"), 0, "all are born");
        let some = of(4999);
        assert_eq!(peak(&some, "candidates"), 2 * 4 * 5000);
        assert!(some.reach() > all.reach());
    }

    #[test]
    fn moving_dead_gaussians_takes_at_most_the_memory_of_reordering() {
        for gaussians in [1, 1000, 1_000_000, 100_000_000] {
            let copies = run(gaussians, &Work::AddCopies(gaussians / 20));
            let step = run(gaussians, &Work::MoveDead).then(&copies);
            let order = run(gaussians + gaussians / 20, &Work::Reorder);
            // Parts of the library's scratch begin at aligned addresses.
            assert!(step.reach() <= order.reach() + 2048, "{gaussians}");
        }
        let step = run(1_000_000, &Work::MoveDead);
        assert_eq!(peak(&step, "density weights"), 8_000_000);
        assert_eq!(peak(&step, "density sources"), 4_000_000);
    }

    #[test]
    fn reordering_an_empty_model_takes_nothing() {
        for work in [Work::Reorder, Work::FindNeighbours] {
            assert_eq!(run(0, &work).reach(), 0, "{work:?}");
        }
    }

    #[test]
    fn finding_neighbours_takes_25_bytes_a_gaussian() {
        // Rows and keys are freed before the centres are allocated, but for the ordered rows. The first sort, by 24
        // bits, takes three passes and ends in the second buffer; the other sorts leave the rows there.
        let search = run(1 << 20, &Work::FindNeighbours);
        assert_eq!(peak(&search, "neighbour rows"), 8 << 20);
        assert_eq!(peak(&search, "neighbour keys"), 8 << 20);
        let boxes = (32_768 + 1024 + 32) * 32;
        assert_eq!(search.reach(), (8 << 20) + (16 << 20) + boxes);
        // A leaf needs no sort.
        let search = run(5, &Work::FindNeighbours);
        assert_eq!((peak(&search, "sort"), peak(&search, "neighbour centres")), (0, 32 * 16));
    }

    #[test]
    fn more_rows_than_kernels_count_never_fit() {
        assert_eq!(run(1 << 33, &Work::Reorder), Scratch::endless());
    }

    /// The search for the largest model needs hundreds of dry runs.
    #[test]
    fn a_dry_run_of_a_large_model_takes_no_time() {
        let begun = std::time::Instant::now();
        for _ in 0..10 {
            assert!(reach(&VIEW, TRAIN) > 0);
        }
        let each = begun.elapsed() / 10;
        assert!(each.as_millis() < 10, "{each:?}");
    }

    #[test]
    fn the_counted_view_is_reproduced() {
        for (gaussians, visible, instances) in
            [(1_000_000, 400_000, 900_000), (50, 50, 50), (7, 0, 0), (1000, 10, 1_000_000)]
        {
            let view = ViewSize { px: [48, 32], visible, instances };
            let again = ViewGrowth::counted(gaussians, &view).of(gaussians);
            assert!(again.visible.abs_diff(visible) <= 1, "{again:?}");
            assert!(again.instances.abs_diff(instances) <= 2, "{again:?} of {view:?}");
        }
    }

    #[test]
    fn a_denser_model_has_fewer_instances_a_splat() {
        let seen = ViewGrowth { px: [800, 533], share: 0.5, surface: 286_000.0 };
        let [few, many] = [100_000, 10_000_000].map(|gaussians| seen.of(gaussians));
        assert_eq!(many.visible, 100 * few.visible);
        let each = |view: &ViewSize| view.instances as f64 / view.visible as f64;
        assert!(each(&few) > 3.0 && each(&many) < 1.5, "{} {}", each(&few), each(&many));
        assert_eq!(seen.of(0), ViewSize { px: [800, 533], visible: 0, instances: 0 });
    }
}
