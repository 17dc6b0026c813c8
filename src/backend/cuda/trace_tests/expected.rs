//! What a drawn view is expected to take.

use super::case::SeenView;
use crate::abi::terms::{At, Terms, VALUE_ENTROPY, VALUE_SDF};
use crate::backend::Drawing;
use crate::backend::cuda::Model;
use crate::backend::cuda::session::{BandPolicy, Session};
use crate::backend::cuda::stage::blend;
use crate::layout::{ListSizes, Replay};
use crate::memory::plan::{self, DepthLook, PlannedBatch, SampledGaussians, ViewSize};
use crate::model::Primitive;

/// A view before it is drawn.
pub(super) struct Expected {
    gaussians: u64,
    view: ViewSize,
    most_visible: u64,
    drawing: Drawing,
    /// Where it is drawn in bands.
    bands: Option<Vec<ListSizes>>,
}

impl Expected {
    pub(super) fn of<P: Primitive>(
        session: &Session,
        model: &Model<P>,
        seen: SeenView,
        px: [u32; 2],
        drawing: Drawing,
    ) -> Self {
        let visible = seen.visible.into();
        let view = ViewSize { px, visible, instances: seen.instances };
        Self {
            gaussians: model.size().gaussians,
            view,
            most_visible: session.most_visible as u64,
            drawing,
            bands: match session.bands {
                BandPolicy::AtLeast(bands) => Some(Self::bands(&view, bands)),
                BandPolicy::Never | BandPolicy::WhenNeeded => None,
            },
        }
    }

    /// So many bands or more, each of as many rows of tiles. A row has its share of the instances.
    fn bands(view: &ViewSize, bands: u32) -> Vec<ListSizes> {
        let tiles = view.px.map(|side| side.div_ceil(crate::abi::TILE));
        let all = tiles[1];
        let rows = (all / bands.max(1)).max(1);
        let before = |row: u32| view.instances * u64::from(row) / u64::from(all);
        let of = |first: u32| {
            let end = all.min(first + rows);
            let instances = before(end) - before(first);
            ListSizes { tiles, rows: end - first, instances, counted: Some(view.visible) }
        };
        (0..all).step_by(rows as usize).map(of).collect()
    }

    /// The view is drawn, and terms at samples follow.
    pub(super) fn replay(&self, source: &Replay, terms: Option<&Terms>) {
        self.add_to(source, &mut PlannedBatch::default(), terms);
    }

    /// The same, but its gradients are kept with those of the views before.
    pub(super) fn add_to(&self, source: &Replay, kept: &mut PlannedBatch, terms: Option<&Terms>) {
        let terms = terms.filter(|terms| terms.active_at(At::Samples).next().is_some());
        let terms = terms.map(|terms| {
            let shown = terms.weight(VALUE_SDF) != 0.0;
            SampledGaussians { seen: terms.weight(VALUE_ENTROPY) != 0.0 || !shown, shown }
        });
        self.planned(terms).add_to(source, kept);
    }

    /// In place of the view's pixels, so many places are asked about.
    pub(super) fn replay_light(&self, source: &Replay, places: u64) {
        let drawing = self.planned(None);
        plan::PlannedDrawing { places: Some(places), ..drawing }.replay(source);
    }

    /// The view is drawn, and what each Gaussian is worth in it is found.
    pub(super) fn replay_worths(&self, source: &Replay) {
        plan::PlannedDrawing { worths: true, ..self.planned(None) }.replay(source);
    }

    /// The view is drawn, and its depths are looked at.
    pub(super) fn replay_look(&self, source: &Replay, look: DepthLook) {
        plan::PlannedDrawing { look: Some(look), ..self.planned(None) }.replay(source);
    }

    fn planned(&self, terms: Option<SampledGaussians>) -> plan::PlannedDrawing<'_> {
        plan::PlannedDrawing {
            gaussians: self.gaussians,
            view: &self.view,
            most_visible: Some(self.most_visible),
            wants: blend::wants(&self.drawing),
            bands: self.bands.clone(),
            terms,
            places: None,
            worths: false,
            look: None,
        }
    }
}
