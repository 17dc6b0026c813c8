//! Memory of training Gaussians that are bound to a mesh.

use super::forecast::{FixedMemory, Forecast, Played, Way};
use super::rows::{Granule, PlannedPhotographs, PlannedRow};
use super::work::{DryRun, PlannedViews, Samples, ViewGrowth, transfer};
use crate::layout::{
    BOUND_MESH, BOUND_VALUES, BoundSizes, Library, ModelSize, NEIGHBOURS, SearchSizes, TABLE_PARTS,
    Use, ViewRequest,
};
use crate::memory::Bytes;

/// A refinement of bound Gaussians.
#[derive(Clone, Debug)]
pub struct PlannedRefinement {
    /// The bound Gaussians.
    pub model: ModelSize,
    /// The mesh that they are bound to.
    pub bound: BoundSizes,
    /// Splats and instances of a view.
    pub seen: ViewGrowth,
    /// The model that the mesh was made from, and its views. It is measured first.
    pub measured: Option<(ModelSize, ViewGrowth)>,
    /// The photographs.
    pub photographs: PlannedPhotographs,
    /// True if a texture is baked from the Gaussians at the end.
    pub textured: bool,
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

impl PlannedRefinement {
    /// Forecasts the memory within a budget, or without a limit.
    pub fn forecast(&self, budget: Option<Bytes>) -> Forecast {
        self.fixed_memory().forecast(&self.ways(), |way| self.play(way), budget, self.least())
    }

    /// Returns the smallest sufficient budget.
    pub fn least(&self) -> Bytes {
        self.fixed_memory().least(&self.ways(), |way| self.play(way))
    }

    /// Returns the peak of each label of the ledger.
    pub fn ledger(&self, in_bands: bool) -> Vec<PlannedRow> {
        self.fixed_memory().ledger(&self.play(Way { in_bands, ..Way::USUAL }))
    }

    fn fixed_memory(&self) -> FixedMemory<'_> {
        let Self { context, granule, ref photographs, .. } = *self;
        FixedMemory { context, granule, photographs }
    }

    /// Returns all fallbacks, cheapest first.
    fn ways(&self) -> Vec<Way> {
        Way::all(Way::drawn(self.bands), self.resolution, &[None])
    }

    fn play(&self, Way { in_bands, scale, .. }: Way) -> Vec<Played> {
        let Self { model, bound, .. } = self;
        let fixed_memory = self.fixed_memory();
        let rows = model.gaussians;
        let alone = || fixed_memory.held(model.regions());
        let shown = ViewRequest { drawn_for: Use::Counts, ..ViewRequest::default() };
        let held_out = !self.photographs.held_out.is_empty();
        let mut stages = Vec::new();
        let draw = |model: &ModelSize, views: PlannedViews| {
            (self.dry_run)(&Library::default(), model, &views.into())
        };
        if let Some((measured, seen)) = self.measured.filter(|_| held_out) {
            let view = seen.of(measured.gaussians);
            let held = fixed_memory.held(measured.regions());
            let scratch = draw(&measured, PlannedViews::one(&view, shown, in_bands));
            let measuring = Played::new("measuring the model", held, scratch);
            stages.push(measuring.without_photographs());
        }
        let binding = Played::new("binding", self.held(), transfer(model, rows, 0..1));
        stages.push(binding.without_photographs());
        let view = self.seen.scaled(scale).of(rows);
        let request = ViewRequest { drawn_for: Use::Backward, ..ViewRequest::default() };
        let trained =
            PlannedViews { bound: Some(*bound), ..PlannedViews::one(&view, request, in_bands) };
        stages.push(Played::new("refinement", self.held(), draw(model, trained)));
        let full_view = self.seen.of(rows);
        let full = |request| draw(model, PlannedViews::one(&full_view, request, in_bands));
        stages.push(Played::new("evaluation", self.held(), full(shown)));
        let read = transfer(model, rows, 0..TABLE_PARTS);
        stages.push(Played::new("checkpoint", self.held(), read));
        if self.textured {
            let request = ViewRequest { maps: true, ..ViewRequest::default() };
            stages.push(Played::new("texture", alone(), full(request)));
        }
        stages
    }

    /// Returns the memory that is held from the first step to the last.
    fn held(&self) -> Vec<PlannedRow> {
        let row = |label, bytes| PlannedRow { label, bytes: Bytes(bytes) };
        let mesh = [
            row(BOUND_MESH.label, BOUND_MESH.bytes(&self.bound)),
            row(BOUND_VALUES.label, BOUND_VALUES.bytes(&self.bound)),
        ];
        self.fixed_memory().held(self.model.regions().into_iter().chain(mesh))
    }
}

// Memory of SuGaR's coarse stage beyond an iteration: lists of neighbours, and the scratch of finding them and of
// surface terms.

/// Shorter lengths of neighbour lists for little memory ([`crate::memory::Fallback::Neighbours`]), in descending order.
pub const FEWER_NEIGHBOURS: [u32; 2] = [12, 10];

/// Surface maps of the coarse stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    /// No maps.
    Undrawn,
    /// Depths and normals, compared before the backward pass.
    Compared,
    /// Depths, normals and median depths, whose normals are compared.
    Medians,
    /// Depths and normals. Samples are compared with the depths before and after the backward pass.
    Sampled,
}

impl Maps {
    /// Returns true if maps are drawn.
    pub fn are_drawn(self) -> bool {
        self != Self::Undrawn
    }
}

/// Sizes of the coarse stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCoarse {
    /// Neighbours in a Gaussian's list.
    pub neighbours: u32,
    /// True if lists may be shortened.
    pub shortens: bool,
    /// Maps of surfaces.
    pub maps: Maps,
}

impl PlannedCoarse {
    /// Returns the allowed lengths of the lists, in descending order.
    pub fn lengths(&self) -> Vec<u32> {
        let fewer = FEWER_NEIGHBOURS.into_iter().filter(|&fewer| fewer < self.neighbours);
        let fewer = fewer.filter(|_| self.shortens);
        [self.neighbours].into_iter().chain(fewer).collect()
    }

    /// Returns the views of an iteration of the stage, from the views of an iteration before it.
    pub fn views(&self, before: PlannedViews) -> PlannedViews {
        let (maps, median) = (self.maps.are_drawn(), self.maps == Maps::Medians);
        let request = ViewRequest { inverse_squares: false, maps, median, ..before.request };
        let samples = match self.maps {
            Maps::Undrawn | Maps::Compared | Maps::Medians => Samples::Seen,
            Maps::Sampled => Samples::Shown,
        };
        PlannedViews { request, samples: Some(samples), ..before }
    }
}

/// Returns the size of the neighbour lists. Lists are never longer than the model.
pub fn neighbour_lists(gaussians: u64, neighbours: u32) -> PlannedRow {
    let bytes = Bytes(NEIGHBOURS.bytes(&SearchSizes::of(gaussians, neighbours)));
    PlannedRow { label: NEIGHBOURS.label, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::dry_run;
    use crate::memory::plan::rows::bytes_of;
    use crate::memory::plan::work::plain;
    use crate::memory::plan::{CONTEXT, ViewSize, view_scratch};

    fn refinement(faces: u64) -> PlannedRefinement {
        let bound = BoundSizes::closed(faces, 1);
        PlannedRefinement {
            model: ModelSize { sh_degree: 3, ..plain(bound.gaussians) },
            bound,
            seen: ViewGrowth { px: [800, 533], share: 0.5, surface: 3e4 },
            measured: None,
            photographs: PlannedPhotographs { trained: vec![1 << 20; 9], held_out: vec![1 << 20] },
            textured: true,
            bands: true,
            resolution: false,
            context: CONTEXT,
            granule: Granule::default(),
            dry_run,
        }
    }

    #[test]
    fn a_triangle_takes_its_gaussian_and_two_hundred_bytes_of_the_mesh() {
        let forecast = refinement(1_000_000).forecast(None);
        let names: Vec<&str> = forecast.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names, ["binding", "refinement", "evaluation", "checkpoint", "texture"]);
        let row = |stage: usize, label| bytes_of(&forecast.stages[stage].rows, label);
        // Corners and hinges exist twice, with 1.5 hinges and half a vertex per face.
        let mesh = 1_000_000 * 4 * (2 * (3 + 6) + 1);
        assert!(row(1, "bound mesh").abs_diff(mesh) < 3 << 20, "{}", row(1, "bound mesh"));
        let values = 1_000_000 * 4 * (6 + 12);
        assert!(row(1, "bound values").abs_diff(values) < 3 << 20, "{}", row(1, "bound values"));
        assert_eq!((row(4, "bound mesh"), row(0, "resident photographs")), (0, 0));
        let ledger = refinement(1_000_000).ledger(false);
        assert_eq!(bytes_of(&ledger, "bound gradients"), 48_000_000);
    }

    #[test]
    fn fallbacks_are_used_only_if_memory_is_short() {
        // With this many instances the lists take more than a checkpoint.
        let few = refinement(300_000);
        let whole = PlannedRefinement { seen: ViewGrowth { surface: 2e7, ..few.seen }, ..few };
        let (least, at_once) =
            (whole.least(), PlannedRefinement { bands: false, ..whole.clone() }.least());
        assert!(least < at_once, "{least} {at_once}");
        assert!(!whole.forecast(Some(at_once)).in_bands);
        let tight = whole.forecast(Some(Bytes(at_once.0 - 1)));
        assert!(tight.in_bands && tight.peak < at_once);
        let tightest = whole.forecast(Some(least));
        assert!(tightest.peak <= least && tightest.training_scale == 1.0);
        assert!(tightest.photographs_resident <= tight.photographs_resident);
        let smaller = PlannedRefinement { resolution: true, ..whole };
        assert!(smaller.least() <= least);
    }

    #[test]
    fn the_model_of_the_mesh_is_measured_before_anything_is_bound() {
        let few = refinement(1000);
        let large = ModelSize { gaussians: 6_000_000, ..few.model };
        let measured = PlannedRefinement { measured: Some((large, few.seen)), ..few.clone() };
        assert_eq!(measured.forecast(None).stages[0].name, "measuring the model");
        assert!(measured.least().0 > few.least().0 + (4 << 30));
    }

    #[test]
    fn lists_take_four_bytes_a_neighbour_and_none_are_longer_than_the_model() {
        assert_eq!(neighbour_lists(6_000_000, 16).bytes, Bytes(384_000_000));
        assert_eq!(neighbour_lists(7, 16).bytes, Bytes(7 * 7 * 4));
        assert_eq!(neighbour_lists(0, 16).bytes, Bytes(0));
    }

    #[test]
    fn lists_become_shorter_in_steps() {
        let lengths = |neighbours, shortens| {
            PlannedCoarse { neighbours, shortens, maps: Maps::Undrawn }.lengths()
        };
        assert_eq!(lengths(16, true), [16, 12, 10]);
        assert_eq!(lengths(12, true), [12, 10]);
        assert_eq!(lengths(11, true), [11, 10]);
        assert_eq!(lengths(10, true), [10]);
        assert_eq!(lengths(32, false), [32]);
    }

    #[test]
    fn an_iteration_takes_the_view_and_the_gradients_behind_it() {
        let request = ViewRequest { drawn_for: Use::Backward, ..ViewRequest::default() };
        let view = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };
        let scratch = |maps, gaussians, instances| {
            let coarse = PlannedCoarse { neighbours: 16, shortens: false, maps };
            let view = ViewSize { instances, ..view };
            let views = coarse.views(PlannedViews::one(&view, request, false));
            view_scratch(dry_run, &Library::default(), gaussians, views).0
        };
        // Many instances: maps take 32 bytes per pixel and splat, and 16 per instance as the colours' state does.
        let plain = scratch(Maps::Undrawn, 1_000_000, 40_000_000);
        let maps = scratch(Maps::Compared, 1_000_000, 40_000_000);
        let expected = 32 * (800 * 533 + 400_000) + 16 * 40_000_000;
        assert!((maps - plain).abs_diff(expected) < 8192, "{} for {expected}", maps - plain);
        // The depths lie behind the lists, and the gradients behind the depths.
        let sampled = scratch(Maps::Sampled, 1_000_000, 40_000_000) - maps;
        let expected = 4 * 800 * 533 + 48_000_000 + 1_600_000 + 3 * 125_000;
        assert!(sampled.abs_diff(expected) < 8192, "{sampled} for {expected}");
        // Few instances: the memory behind the backward pass is largest. It grows by 48 bytes per invisible Gaussian,
        // and 4 for its number.
        let more = scratch(Maps::Undrawn, 9_000_000, 0) - scratch(Maps::Undrawn, 8_000_000, 0);
        assert!(more.abs_diff(52_250_000) < 1000, "{more}");
    }
}
