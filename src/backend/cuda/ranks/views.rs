//! Views drawn by ranks: records on their way to who draws, and gradients on their way back.

use super::link::RankPart;
use super::records::{number, place, segments, unpack};
use super::share::{CudaShard, CudaShare};
use crate::abi::{SHORT_KEYS_MAX, ViewCamera};
use crate::backend::cuda::frame::{Frame, Gradients, ViewGradients};
use crate::backend::cuda::memory::heap::Heap;
use crate::backend::cuda::memory::status::SplatCounts;
use crate::backend::cuda::stage::project::{self, Counted, DrawnView, Splats};
use crate::backend::cuda::stage::weights;
use crate::backend::frame_state::{Drawn, Fresh, Scored};
use crate::backend::ranks::{RankNews, SharedViews};
use crate::backend::{
    AdamStep, DeviceError, Drawing, Noise, RankView, Regularisers, Render as _, RenderSettings,
    Sight, Statistics,
};
use crate::dataset::View;
use crate::layout::{Projected, Records, ViewSizes, splat_capacity};

/// Views that ranks draw at the same time, one each at most.
pub struct CudaRound {
    /// What the rows of this rank are in the views that others draw, by rank.
    parts: Vec<Option<PartOfView>>,
    /// Splats of each rank's rows in the view that this one draws, by rank; nothing where it draws none.
    in_own: Vec<u64>,
}

/// The splats of all ranks in the view that this one draws, if it draws any.
pub struct ViewSplats(Option<Splats>);

/// The rows of this rank in a view of another.
struct PartOfView {
    splats: Splats,
    camera: ViewCamera,
    drawing: Drawing,
}

/// Rows of this rank on their way to a view.
struct Projection<'a> {
    sight: &'a Sight,
    camera: ViewCamera,
    drawing: Drawing,
    room: Projected<Heap>,
    capacity: u64,
}

impl<'a> Projection<'a> {
    fn part(self, [visible, instances]: [u64; 2]) -> PartOfView {
        let Self { camera, drawing, room, .. } = self;
        let visible = usize::try_from(visible).unwrap_or(usize::MAX);
        let splats = Splats::of(room, Records::Ellipses, &SplatCounts { instances, visible });
        PartOfView { splats, camera, drawing }
    }

    fn of(
        shard: &mut CudaShard,
        share: &CudaShare,
        sight: &'a Sight,
        capacity: u64,
    ) -> Result<Self, DeviceError> {
        let drawing = sight.drawing();
        check_drawing(&drawing)?;
        let camera = project::camera(&sight.view, &drawing)?;
        let [columns, rows] = camera.tiles;
        // What a splat reaches is counted in 16 bits on its way.
        if columns * rows > SHORT_KEYS_MAX {
            let [width, height] = camera.size;
            return Err(DeviceError::Unavailable(format!(
                "a view of {width} x {height} px has more than {SHORT_KEYS_MAX} tiles of 16 x 16 px, which \
                 several GPUs do not share: lower the --resolution"
            )));
        }
        let sizes = sizes(share, capacity);
        let room = shard.cuda.with_room(|session| Projected::reserve(&session.heap, &sizes))?;
        Ok(Self { sight, camera, drawing, room, capacity })
    }
}

fn sizes(share: &CudaShare, capacity: u64) -> ViewSizes {
    let gaussians = share.local.len() as u64;
    ViewSizes { gaussians, visible: 0, capacity, records: Records::Ellipses, pixels: 0 }
}

/// Fails where a view is drawn with what ranks do not exchange.
fn check_drawing(drawing: &Drawing) -> Result<(), DeviceError> {
    let has_ellipses = drawing.footprint.records() == Records::Ellipses;
    if drawing.surface || drawing.median || drawing.inverse_squares || !has_ellipses {
        let what = "surfaces, surfels and triangles";
        return Err(DeviceError::Unsupported {
            primitives: "Gaussians on GPUs of several ranks",
            what,
        });
    }
    Ok(())
}

impl CudaShard {
    /// Projects the rows of all ranks into these views, by rank; what ranks have to say, by rank.
    fn project_views(
        &mut self,
        share: &CudaShare,
        sights: &[Option<&Sight>],
        mut news: RankNews,
    ) -> Result<(CudaRound, Option<Splats>, Vec<RankNews>), DeviceError> {
        let (rank, world) = (self.rank(), self.world());
        let rows = [share.local.len(), share.numbering.len()].map(|rows| rows as u64);
        let mut projections: Vec<Option<Projection<'_>>> = (0..world).map(|_| None).collect();
        let Self { counts, cuda, .. } = self;
        counts.as_mut().ok_or_else(not_met)?.clear(&cuda.session)?;
        // The own view last: its place in memory grows, and while it is projected the ranks tell each other how
        // much the other views see.
        for of in (1..=world).map(|step| (rank + step) % world) {
            if of == rank {
                let Self { counts, cuda, .. } = self;
                counts.as_mut().ok_or_else(not_met)?.fetch_others(&cuda.session)?;
            }
            let Some(sight) = sights[of as usize] else { continue };
            let capacity = match of == rank {
                true => splat_capacity(self.cuda.session.most_visible as u64, rows[1]),
                false => splat_capacity(self.most_in_part, rows[0]),
            };
            let mut projection = Projection::of(self, share, sight, capacity)?;
            let Self { counts, cuda, .. } = self;
            let counts = counts.as_mut().ok_or_else(not_met)?.of(of);
            let counted =
                if of == rank { Counted::WithOthers(counts) } else { Counted::Away(counts) };
            let Projection { camera, drawing, room, .. } = &mut projection;
            let drawn = DrawnView { camera, settings: drawing };
            project::launch(&mut cuda.session, &share.local, drawn, room, &counted)?;
            projections[of as usize] = Some(projection);
        }
        let Self { counts, cuda, line, .. } = self;
        let counts = counts.as_mut().ok_or_else(not_met)?;
        counts.fetch_own(&cuda.session, rank)?;
        news.counts = counts.others()?;
        let mut all = line.all_gather(&news)?;
        check_counts(&all, world)?;
        all[rank as usize].counts[rank as usize] = counts.own()?;
        for (of, projection) in (0..world).zip(&mut projections) {
            if all[of as usize].problem.is_some() {
                *projection = None;
            }
            let splats = match of == rank {
                true => all.iter().map(|news| news.counts[of as usize][0]).sum(),
                false => all[rank as usize].counts[of as usize][0],
            };
            if let Some(projection) = projection {
                self.make_room(share, projection, splats, of == rank)?;
            }
        }
        let (round, own) = self.exchange_records(projections, &all)?;
        Ok((round, own, all))
    }

    /// Projects a view again where it sees more than there is room for.
    fn make_room(
        &mut self,
        share: &CudaShare,
        projection: &mut Projection<'_>,
        splats: u64,
        is_own: bool,
    ) -> Result<(), DeviceError> {
        if splats <= projection.capacity {
            return Ok(());
        }
        let rows = if is_own { share.numbering.len() } else { share.local.len() } as u64;
        match is_own {
            true => self.cuda.session.most_visible = usize::try_from(splats).unwrap_or(usize::MAX),
            false => self.most_in_part = splats,
        }
        let sight = projection.sight;
        *projection = Projection::of(self, share, sight, splat_capacity(splats, rows))?;
        let Projection { camera, drawing, room, .. } = projection;
        let drawn = DrawnView { camera, settings: drawing };
        let Self { counts, cuda, .. } = self;
        let counts = counts.as_mut().ok_or_else(not_met)?;
        // Places of splats are counted from 0. All counts are on the host by now, so any will do.
        counts.clear(&cuda.session)?;
        let counts = counts.of(0);
        let counted = if is_own { Counted::WithOthers(counts) } else { Counted::Away(counts) };
        project::launch(&mut cuda.session, &share.local, drawn, room, &counted)
    }

    /// Sends the records of this rank's rows to who draws them, and takes those of its own view.
    fn exchange_records(
        &mut self,
        projections: Vec<Option<Projection<'_>>>,
        all: &[RankNews],
    ) -> Result<(CudaRound, Option<Splats>), DeviceError> {
        let rank = self.rank();
        let own_counts = |of: u32| all[rank as usize].counts[of as usize];
        let mut round = CudaRound { parts: Vec::new(), in_own: Vec::new() };
        let mut own = None;
        for (of, projection) in (0..).zip(projections) {
            let part = projection.map(|projection| projection.part(own_counts(of)));
            let (part, drawn) = if of == rank { (None, part) } else { (part, None) };
            round.parts.push(part);
            own = own.or(drawn.map(|part| part.splats));
        }
        let session = &self.cuda.session;
        let mut sends = Vec::new();
        for (of, part) in (0..).zip(&round.parts) {
            let Some(PartOfView { splats, .. }) = part else { continue };
            let range = place(splats.records.block()?, 0..splats.visible)?;
            sends.push(RankPart { rank: of, range });
        }
        let mut receives = Vec::new();
        if let Some(splats) = &mut own {
            round.in_own = all.iter().map(|news| news.counts[rank as usize][0]).collect();
            splats.instances = all.iter().map(|news| news.counts[rank as usize][1]).sum();
            let segments = segments(&round.in_own, rank);
            for (from, segment) in (0..).zip(&segments).filter(|&(from, _)| from != rank) {
                let range = place(splats.records.block()?, segment.clone())?;
                receives.push(RankPart { rank: from, range });
            }
            splats.visible = segments.iter().map(|segment| segment.end).max().unwrap_or(0);
        }
        self.link.as_ref().ok_or_else(not_met)?.exchange(&session.stream, &sends, &receives)?;
        if let Some(splats) = &mut own {
            let first = usize::try_from(round.in_own[rank as usize]).unwrap_or(usize::MAX);
            unpack(session, splats, first)?;
        }
        Ok((round, own))
    }

    /// Sends the gradients of the splats of this rank's view to the ranks of their rows, and takes those of the
    /// own rows in the views of others.
    fn bring_back(
        &mut self,
        round: &mut CudaRound,
        own: Option<&Splats>,
    ) -> Result<(), DeviceError> {
        let rank = self.rank();
        let mut sends = Vec::new();
        if let Some(splats) = own {
            let segments = segments(&round.in_own, rank);
            for (to, segment) in (0..).zip(segments).filter(|&(to, _)| to != rank) {
                sends.push(RankPart { rank: to, range: place(&splats.gradients, segment)? });
            }
        }
        let mut receives = Vec::new();
        for (from, part) in (0..).zip(&mut round.parts) {
            let Some(PartOfView { splats, .. }) = part else { continue };
            let range = place(&splats.gradients, 0..splats.visible)?;
            receives.push(RankPart { rank: from, range });
        }
        let link = self.link.as_ref().ok_or_else(not_met)?;
        link.check()?;
        link.exchange(&self.cuda.session.stream, &sends, &receives)
    }

    /// Puts the blend weights of all rows in these views where the statistics were.
    pub(super) fn add_weights(
        &mut self,
        share: &mut CudaShare,
        views: &[View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        share.local.forget_statistics(&self.cuda.session)?;
        let rank = self.rank() as usize;
        for views in views.chunks(self.world() as usize) {
            let observe = Some(Statistics::Norms);
            let sight = |view| Sight { observe, ..Sight::shown(view, settings, false) };
            let sights: Vec<_> = views.iter().map(sight).collect();
            let mut by_rank: Vec<_> = sights.iter().map(Some).collect();
            by_rank.resize(self.world() as usize, None);
            let (mut round, splats) = self.project(share, &by_rank)?;
            let own = match (by_rank[rank], splats) {
                (Some(sight), splats @ ViewSplats(Some(_))) => {
                    let frame: Frame<Drawn> =
                        self.draw(share, &sight.view, sight.drawing(), splats)?;
                    Some(frame.into_weights(&mut self.cuda.session, &mut share.local)?)
                }
                _ => None,
            };
            self.bring_back(&mut round, own.as_ref())?;
            let session = &self.cuda.session;
            if let Some(mut splats) = own {
                splats.visible = usize::try_from(round.in_own[rank]).unwrap_or(usize::MAX);
                weights::add(session, &mut share.local, &splats)?;
            }
            for PartOfView { mut splats, .. } in round.parts.into_iter().flatten() {
                number(session, &mut splats)?;
                weights::add(session, &mut share.local, &splats)?;
            }
        }
        Ok(())
    }
}

impl SharedViews for CudaShard {
    type Round = CudaRound;
    type Splats = ViewSplats;

    fn project(
        &mut self,
        share: &CudaShare,
        sights: &[Option<&Sight>],
    ) -> Result<(CudaRound, ViewSplats), DeviceError> {
        let (round, own, _) = self.project_views(share, sights, RankNews::NONE)?;
        Ok((round, ViewSplats(own)))
    }

    fn project_to_train(
        &mut self,
        share: &CudaShare,
        views: &[Option<RankView>],
        news: RankNews,
    ) -> Result<(CudaRound, ViewSplats, Vec<RankNews>), DeviceError> {
        let sights: Vec<_> = views.iter().map(|view| view.as_ref().map(|v| &v.sight)).collect();
        let (round, own, news) = self.project_views(share, &sights, news)?;
        Ok((round, ViewSplats(own), news))
    }

    fn draw<S: Fresh>(
        &mut self,
        share: &CudaShare,
        view: &View,
        drawing: Drawing,
        ViewSplats(splats): ViewSplats,
    ) -> Result<Frame<S>, DeviceError> {
        check_drawing(&drawing)?;
        let camera = project::camera(view, &drawing)?;
        let drawn = DrawnView { camera: &camera, settings: &drawing };
        let splats = splats.ok_or(DeviceError::NoView)?;
        self.cuda.draw_splats(share.local.len(), drawn, splats)
    }

    fn add_gradients(
        &mut self,
        share: &mut CudaShare,
        mut round: CudaRound,
        frame: Option<Frame<Scored<Drawn>>>,
        gradients: &mut Gradients,
    ) -> Result<(), DeviceError> {
        let session = &mut self.cuda.session;
        let own = frame.map(|frame| frame.into_view_gradients(session, &mut share.local));
        let mut own = own.transpose()?;
        self.bring_back(&mut round, own.as_ref().map(|view| &view.splats))?;
        let session = &self.cuda.session;
        let rank = self.line.rank() as usize;
        for (of, part) in round.parts.into_iter().enumerate() {
            let mut view = match (part, of == rank) {
                (Some(PartOfView { mut splats, camera, drawing }), _) => {
                    if drawing.observe.is_some() {
                        number(session, &mut splats)?;
                    }
                    ViewGradients::of_rank(splats, camera, drawing)
                }
                (None, true) => {
                    let Some(mut view) = own.take() else { continue };
                    view.splats.visible = usize::try_from(round.in_own[rank]).unwrap_or(usize::MAX);
                    view
                }
                (None, false) => continue,
            };
            // A rank does not know whether who draws a view compares its depths.
            view.settings.inverse_depths = true;
            gradients.add(session, &mut share.local, view)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        share: &mut CudaShare,
        gradients: Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        // Their means are over the rows of all ranks.
        let scale = share.scale();
        let Regularisers { opacity, scale: of_scale } = step.regularisers;
        let regularisers = Regularisers { opacity: opacity / scale, scale: of_scale / scale };
        let noise = step.noise.map(|Noise { rate, key }| Noise { rate, key: self.own_key(key) });
        let step = AdamStep { regularisers, noise, ..*step };
        self.cuda.step(&mut share.local, gradients, &step)
    }
}

/// Whether all ranks have counted the views of all.
fn check_counts(all: &[RankNews], world: u32) -> Result<(), DeviceError> {
    let short = (0..).zip(all).find(|(_, news)| news.counts.len() != world as usize);
    short.map_or(Ok(()), |(rank, _)| {
        let message = "it does not say how many splats it sends".to_owned();
        Err(DeviceError::OfRank { rank, message })
    })
}

fn not_met() -> DeviceError {
    DeviceError::OfRank { rank: 0, message: "it has begun no run".to_owned() }
}
