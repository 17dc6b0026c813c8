//! What a drawn view is expected to take.

use super::case::Seen;
use crate::backend::cuda::Model;
use crate::backend::cuda::session::{BandPolicy, Session};
use crate::backend::cuda::stage::blend;
use crate::backend::{RenderSettings, SurfaceRule};
use crate::layout::{ListSizes, Replay};
use crate::memory::plan::{Drawing, SampleTerms, ViewSize};

/// A view before it is drawn.
pub(super) struct Expected {
    gaussians: u64,
    view: ViewSize,
    most_visible: u64,
    settings: RenderSettings,
    /// Where it is drawn in bands.
    bands: Option<Vec<ListSizes>>,
}

impl Expected {
    pub(super) fn of(
        session: &Session,
        model: &Model,
        seen: Seen,
        px: [u32; 2],
        settings: RenderSettings,
    ) -> Self {
        let visible = seen.visible.into();
        let view = ViewSize { px, visible, instances: seen.instances };
        Self {
            gaussians: model.size().gaussians,
            view,
            most_visible: session.most_visible as u64,
            settings,
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
    pub(super) fn drawing(&self, source: &Replay, rule: Option<&SurfaceRule>) {
        let terms = rule.map(|rule| {
            let shown = rule.sdf != 0.0;
            SampleTerms { seen: rule.entropy != 0.0 || !shown, shown }
        });
        let drawing = Drawing {
            gaussians: self.gaussians,
            view: &self.view,
            most_visible: Some(self.most_visible),
            wants: blend::wants(&self.settings),
            bands: self.bands.clone(),
            terms,
        };
        drawing.replay(source);
    }
}
