//! Memory of drawing a model for its mesh.

use super::forecast::{FixedMemory, Forecast, Played, Way};
use super::rows::{Granule, PlannedPhotographs, PlannedRow};
use super::work::{DryRun, PlannedViews, ViewGrowth, transfer};
use crate::layout::{
    BRICK_MARKS, BRICKS, DepthUse, Library, Live, ModelSize, Records, VOXELS, ViewRequest,
    marks_len,
};
use crate::memory::Bytes;

/// Views that a meshing method draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurfaceDrawing {
    /// Means of the Gaussians' depths, near which the method searches for the surface.
    MeanDepths {
        /// True if median depths are drawn afterwards, to find free space.
        then_medians: bool,
    },
    /// Median depths, which are fused into voxels.
    FusedDepths {
        /// Bricks of voxels along each side of the lattice.
        along: [u32; 3],
        /// Bricks near a surface.
        filled: u64,
    },
    /// Transmittances of batches of points of this size.
    Places(u64),
}

/// Drawing of a model for its mesh, without photographs.
#[derive(Clone, Debug)]
pub struct PlannedMeshing {
    /// The model.
    pub model: ModelSize,
    /// Kind of its splats.
    pub records: Records,
    /// Splats and instances of a view.
    pub seen: ViewGrowth,
    /// Drawings of the method.
    pub drawing: SurfaceDrawing,
    /// True if a texture is baked from the Gaussians at the end.
    pub textured: bool,
    /// True if views may be drawn in bands if their lists do not fit.
    pub bands: bool,
    /// Context and code.
    pub context: Bytes,
    /// Allocation unit of the device.
    pub granule: Granule,
    /// The stages of the device.
    pub dry_run: DryRun,
}

static NONE: PlannedPhotographs = PlannedPhotographs { trained: Vec::new(), held_out: Vec::new() };

impl PlannedMeshing {
    /// Forecasts the memory within a budget, or without a limit. Views always have their full size, since smaller
    /// ones would show another surface.
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

    fn fixed_memory(&self) -> FixedMemory<'static> {
        FixedMemory { context: self.context, granule: self.granule, photographs: &NONE }
    }

    /// Returns all fallbacks, cheapest first.
    fn ways(&self) -> Vec<Way> {
        let mut ways = Way::all(Way::drawn(self.bands), false, &[None]);
        if matches!(self.drawing, SurfaceDrawing::FusedDepths { .. }) {
            ways.extend(ways.clone().into_iter().map(|way| Way { on_host: true, ..way }));
        }
        ways
    }

    fn play(&self, Way { in_bands, on_host, .. }: Way) -> Vec<Played> {
        let model = &self.model;
        let view = self.seen.of(model.gaussians);
        let held = || self.fixed_memory().held(model.regions());
        let maps = ViewRequest { records: self.records, maps: true, ..ViewRequest::default() };
        let medians = ViewRequest { median: true, ..maps };
        let shown = |request| PlannedViews::one(&view, request, in_bands);
        let draw = |views: PlannedViews| (self.dry_run)(&Library::default(), model, &views.into());
        let stage = |name, scratch| Played::new(name, held(), scratch);
        let mut stages = vec![stage("model", transfer(model, model.gaussians, 0..1))];
        match self.drawing {
            SurfaceDrawing::MeanDepths { then_medians } => {
                stages.push(stage("depths", draw(shown(maps))));
                if then_medians {
                    stages.push(stage("free space", draw(shown(medians))));
                }
            }
            SurfaceDrawing::FusedDepths { .. } if on_host => {
                stages.push(stage("depths", draw(shown(medians))));
            }
            SurfaceDrawing::FusedDepths { along, filled } => {
                let with_depths =
                    |depths| draw(PlannedViews { depths: Some(depths), ..shown(medians) });
                let marks = BRICK_MARKS.bytes(&marks_len(along));
                let marks = Live { label: BRICK_MARKS.label, bytes: marks };
                stages.push(stage("bricks", with_depths(DepthUse::FindBricks).above(marks)));
                let filled = filled.max(1);
                let bricks = Live { label: BRICKS.label, bytes: BRICKS.bytes(&filled) };
                let voxels = Live { label: VOXELS.label, bytes: VOXELS.bytes(&filled) };
                stages
                    .push(stage("voxels", with_depths(DepthUse::Fuse).above(voxels).above(bricks)));
            }
            SurfaceDrawing::Places(count) => {
                let request = ViewRequest::default();
                let light = PlannedViews { places: Some(count), ..shown(request) };
                stages.push(stage("light", draw(light)));
            }
        }
        if self.textured {
            stages.push(stage("texture", draw(shown(maps))));
        }
        stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::CONTEXT;
    use crate::memory::plan::rows::bytes_of;
    use crate::memory::plan::work::plain;

    const MEANS: SurfaceDrawing = SurfaceDrawing::MeanDepths { then_medians: false };

    fn meshing(drawing: SurfaceDrawing) -> PlannedMeshing {
        PlannedMeshing {
            records: Records::Ellipses,
            model: ModelSize { sh_degree: 3, ..plain(1_000_000) },
            seen: ViewGrowth { px: [800, 533], share: 0.5, surface: 3e5 },
            drawing,
            textured: false,
            bands: false,
            context: CONTEXT,
            granule: Granule::default(),
            dry_run: crate::backend::cuda::dry_run,
        }
    }

    fn bytes(of: &PlannedMeshing, label: &str) -> u64 {
        bytes_of(&of.ledger(false), label)
    }

    #[test]
    fn depths_take_their_maps_and_the_median_the_rays_of_splats() {
        let fused = SurfaceDrawing::FusedDepths { along: [64; 3], filled: 20_000 };
        let [mean, median] = [MEANS, fused].map(meshing);
        let pixels = 800 * 533;
        assert_eq!(bytes(&mean, "surface maps"), 16 * pixels);
        assert_eq!((bytes(&mean, "median depths"), bytes(&mean, "splats on rays")), (0, 0));
        assert_eq!(bytes(&median, "median depths"), 4 * pixels);
        assert!(bytes(&median, "splats on rays") >= 500_000 * 4);
        assert_eq!(bytes(&median, "weighed depths"), 8 * pixels);
        assert_eq!(bytes(&median, "bricks in view"), 64 * 64 * 64 / 8);
        assert_eq!(bytes(&median, "voxels"), 20_000 * 512 * 8);
        assert!(median.least() > mean.least());
        let cut = meshing(SurfaceDrawing::MeanDepths { then_medians: true });
        assert_eq!(bytes(&cut, "median depths"), 4 * pixels);
        assert!(bytes(&cut, "splats on rays") >= 500_000 * 4);
        let names: Vec<_> = cut.forecast(None).stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names, ["model", "depths", "free space"]);
    }

    #[test]
    fn voxels_that_do_not_fit_are_left_to_the_host() {
        let fused = SurfaceDrawing::FusedDepths { along: [64; 3], filled: 200_000 };
        let planned = meshing(fused);
        let names = |budget| {
            let stages = planned.forecast(Some(budget)).stages;
            stages.iter().map(|stage| stage.name).collect::<Vec<_>>()
        };
        let least = planned.least();
        assert_eq!(names(Bytes(least.0 + (1 << 30))), ["model", "bricks", "voxels"]);
        assert_eq!(names(least), ["model", "depths"]);
        let no_voxels = meshing(SurfaceDrawing::FusedDepths { along: [64; 3], filled: 0 }).least();
        assert!(least <= no_voxels);
    }

    #[test]
    fn places_take_sixteen_bytes_and_no_picture() {
        let requested = meshing(SurfaceDrawing::Places(1 << 22));
        assert_eq!(bytes(&requested, "places"), 12 << 22);
        assert_eq!(bytes(&requested, "transmittances"), 4 << 22);
        assert_eq!(bytes(&requested, "image"), 0);
        let textured = PlannedMeshing { textured: true, ..requested };
        assert_eq!(bytes(&textured, "image"), 12 * 800 * 533);
    }

    #[test]
    fn bands_are_drawn_only_if_lists_do_not_fit() {
        let seen = ViewGrowth { surface: 2e7, ..meshing(MEANS).seen };
        let whole = PlannedMeshing { seen, ..meshing(MEANS) };
        let banded = PlannedMeshing { bands: true, ..whole.clone() };
        let most = whole.least();
        assert!(banded.least() < most);
        assert!(!banded.forecast(Some(most)).in_bands);
        assert!(banded.forecast(Some(Bytes(most.0 - 1))).in_bands);
        assert_eq!(banded.forecast(None).photographs, 0);
    }
}
