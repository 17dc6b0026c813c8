//! Views drawn by ranks: exchange of records and gradients between the rank of a view and the ranks of rows.

use super::link::RankPart;
use super::projection::{
    PartOfView, ProjectedRows, Projection, check_drawing, place, segments, unpack,
};
use super::share::{CudaShard, CudaShare};
use crate::backend::cuda::frame::{Frame, Gradients};
use crate::backend::cuda::stage::contribution;
use crate::backend::cuda::stage::project::{self, DrawnView, Splats};
use crate::backend::ranks::{RankNews, SharedViews};
use crate::backend::{
    AdamStep, DeviceError, DrawSettings, Drawn, Fresh, Noise, RankView, Regularisers, Render as _,
    RenderSettings, Result, Scored, Statistics, ViewSetup,
};
use crate::dataset::View;
use crate::layout::splat_capacity;

/// Views that ranks draw at the same time, at most one per rank.
pub struct CudaRound {
    /// Splats of this rank's rows in the views of other ranks, by rank.
    parts: Vec<Option<PartOfView>>,
    /// Number of splats of each rank's rows in the view of this rank. Empty if it draws none.
    in_own: Vec<u64>,
}

/// Splats of all ranks in the view of this rank, if it draws one.
pub struct ViewSplats(Option<Splats>);

impl CudaRound {
    /// Returns the memory of the splats of this rank's rows in the views of others, and later of their gradients.
    fn places(&self) -> Result<Vec<RankPart>> {
        let parts = (0..).zip(&self.parts);
        let known = parts.filter_map(|(rank, part)| part.as_ref().map(|part| (rank, part)));
        known.map(|(rank, part)| Ok(RankPart { rank, range: part.place()? })).collect()
    }
}

impl CudaShard {
    /// Projects the rows of all ranks into the views of all ranks. Also returns the news of all ranks.
    fn project_views(
        &mut self,
        share: &CudaShare,
        setups: &[Option<&ViewSetup>],
        mut news: RankNews,
    ) -> Result<(CudaRound, Option<Splats>, Vec<RankNews>)> {
        let (rank, world) = (self.rank(), self.world());
        let rows = [share.local.len(), share.numbering.len()].map(|rows| rows as u64);
        let mut projections: Vec<Option<Projection<'_>>> = (0..world).map(|_| None).collect();
        let Self { counts, cuda, .. } = self;
        counts.as_mut().ok_or_else(not_connected)?.clear(&cuda.session)?;
        // The own view comes last, because its memory may grow, and the ranks exchange the counts of the other views
        // during its projection.
        for of in (1..=world).map(|step| (rank + step) % world) {
            if of == rank {
                let Self { counts, cuda, .. } = self;
                counts.as_mut().ok_or_else(not_connected)?.fetch_others(&cuda.session)?;
            }
            let Some(setup) = setups[of as usize] else { continue };
            let capacity = match of == rank {
                true => splat_capacity(self.cuda.session.most_visible as u64, rows[1]),
                false => splat_capacity(self.most_in_part, rows[0]),
            };
            let mut projection = Projection::of(self, share, setup, of == rank, capacity)?;
            let Self { counts, cuda, .. } = self;
            projection.launch(cuda, share, counts.as_mut().ok_or_else(not_connected)?.of(of))?;
            projections[of as usize] = Some(projection);
        }
        let Self { counts, cuda, line, .. } = self;
        let counts = counts.as_mut().ok_or_else(not_connected)?;
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
                self.make_room(share, projection, splats)?;
            }
        }
        let (round, own) = self.exchange_records(projections, &all)?;
        Ok((round, own, all))
    }

    /// Projects a view again if it has more splats than reserved.
    fn make_room(
        &mut self,
        share: &CudaShare,
        projection: &mut Projection<'_>,
        splats: u64,
    ) -> Result {
        if splats <= projection.capacity {
            return Ok(());
        }
        let is_own = projection.is_own();
        let rows = if is_own { share.numbering.len() } else { share.local.len() } as u64;
        match is_own {
            true => self.cuda.session.most_visible = usize::try_from(splats).unwrap_or(usize::MAX),
            false => self.most_in_part = splats,
        }
        let capacity = splat_capacity(splats, rows);
        *projection = Projection::of(self, share, projection.setup, is_own, capacity)?;
        let Self { counts, cuda, .. } = self;
        let counts = counts.as_mut().ok_or_else(not_connected)?;
        // The kernel counts splats from 0. All counts are on the host now, so any of them can be reused.
        counts.clear(&cuda.session)?;
        projection.launch(cuda, share, counts.of(0))
    }

    /// Sends the records of this rank's rows to the drawing ranks, and receives those of its own view.
    fn exchange_records(
        &mut self,
        projections: Vec<Option<Projection<'_>>>,
        all: &[RankNews],
    ) -> Result<(CudaRound, Option<Splats>)> {
        let rank = self.rank();
        let own_counts = &all[rank as usize].counts;
        let mut round = CudaRound { parts: Vec::new(), in_own: Vec::new() };
        let mut own = None;
        for (projection, &counts) in projections.into_iter().zip(own_counts) {
            let mut part = None;
            match projection.map(|projection| projection.done(counts)) {
                Some(ProjectedRows::Own(splats)) => own = Some(splats),
                Some(ProjectedRows::Part(sent)) => part = Some(sent),
                None => {}
            }
            round.parts.push(part);
        }
        let session = &self.cuda.session;
        let sends = round.places()?;
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
        self.link.as_ref().ok_or_else(not_connected)?.exchange(
            &session.stream,
            &sends,
            &receives,
        )?;
        if let Some(splats) = &mut own {
            let first = usize::try_from(round.in_own[rank as usize]).unwrap_or(usize::MAX);
            unpack(session, splats, first)?;
        }
        Ok((round, own))
    }

    /// Sends the gradients of this rank's view to the ranks of the rows, and receives those of its own rows in the
    /// views of other ranks, in place of the splats.
    fn return_gradients(&mut self, round: &mut CudaRound, own: Option<&Splats>) -> Result {
        let rank = self.rank();
        let mut sends = Vec::new();
        if let Some(splats) = own {
            let segments = segments(&round.in_own, rank);
            for (to, segment) in (0..).zip(segments).filter(|&(to, _)| to != rank) {
                sends.push(RankPart { rank: to, range: place(&splats.gradients, segment)? });
            }
        }
        let receives = round.places()?;
        let link = self.link.as_ref().ok_or_else(not_connected)?;
        link.check()?;
        link.exchange(&self.cuda.session.stream, &sends, &receives)
    }
}

impl SharedViews for CudaShard {
    type Round = CudaRound;
    type Splats = ViewSplats;

    fn project(
        &mut self,
        share: &CudaShare,
        setups: &[Option<&ViewSetup>],
    ) -> Result<(CudaRound, ViewSplats)> {
        let (round, own, _) = self.project_views(share, setups, RankNews::NONE)?;
        Ok((round, ViewSplats(own)))
    }

    fn project_to_train(
        &mut self,
        share: &CudaShare,
        views: &[Option<RankView>],
        news: RankNews,
    ) -> Result<(CudaRound, ViewSplats, Vec<RankNews>)> {
        let setups: Vec<_> = views.iter().map(|view| view.as_ref().map(|v| &v.setup)).collect();
        let (round, own, news) = self.project_views(share, &setups, news)?;
        Ok((round, ViewSplats(own), news))
    }

    fn draw<S: Fresh>(
        &mut self,
        share: &CudaShare,
        view: &View,
        drawing: DrawSettings,
        ViewSplats(splats): ViewSplats,
    ) -> Result<Frame<S>> {
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
    ) -> Result {
        let session = &mut self.cuda.session;
        let own = frame.map(|frame| frame.into_view_gradients(session, &mut share.local));
        let mut own = own.transpose()?;
        self.return_gradients(&mut round, own.as_ref().map(|view| &view.splats))?;
        let session = &self.cuda.session;
        let rank = self.line.rank() as usize;
        for (of, part) in round.parts.into_iter().enumerate() {
            let view = match part {
                Some(part) => Some(part.into_gradients()),
                None => own.take_if(|_| of == rank),
            };
            let Some(mut view) = view else { continue };
            // It is unknown here if the drawing rank compares depths.
            view.settings.inverse_depths = true;
            gradients.add(session, &mut share.local, view)?;
        }
        Ok(())
    }

    fn weigh(
        &mut self,
        share: &mut CudaShare,
        views: &[View],
        settings: &RenderSettings,
    ) -> Result {
        share.local.forget_statistics(&self.cuda.session)?;
        let rank = self.rank() as usize;
        for views in views.chunks(self.world() as usize) {
            let observe = Some(Statistics::Norms);
            let setup = |view| ViewSetup { observe, ..ViewSetup::shown(view, settings, false) };
            let setups: Vec<_> = views.iter().map(setup).collect();
            let mut by_rank: Vec<_> = setups.iter().map(Some).collect();
            by_rank.resize(self.world() as usize, None);
            let (mut round, splats) = self.project(share, &by_rank)?;
            let own = match (by_rank[rank], splats) {
                (Some(setup), splats @ ViewSplats(Some(_))) => {
                    let frame: Frame<Drawn> =
                        self.draw(share, &setup.view, setup.drawing(), splats)?;
                    Some(frame.into_weights(&mut self.cuda.session, &mut share.local)?)
                }
                _ => None,
            };
            self.return_gradients(&mut round, own.as_ref())?;
            let parts = round.parts.into_iter().flatten();
            let of_parts = parts.map(|part| part.into_gradients().splats);
            for splats in own.into_iter().chain(of_parts) {
                contribution::add_weights(&self.cuda.session, &mut share.local, &splats)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, share: &mut CudaShare, gradients: Gradients, step: &AdamStep) -> Result {
        // Regularisers are means over the rows of all ranks.
        let scale = share.scale();
        let Regularisers { opacity, scale: of_scale, reach } = step.regularisers;
        let regularisers =
            Regularisers { opacity: opacity / scale, scale: of_scale / scale, reach };
        let noise = step.noise.map(|noise| Noise { key: self.own_key(noise.key), ..noise });
        let step = AdamStep { regularisers, noise, ..*step };
        self.cuda.step(&mut share.local, gradients, &step)
    }
}

/// Fails unless each rank has sent the counts of all views.
fn check_counts(all: &[RankNews], world: u32) -> Result {
    let short = (0..).zip(all).find(|(_, news)| news.counts.len() != world as usize);
    short.map_or(Ok(()), |(rank, _)| {
        let message = "it does not say how many splats it sends".to_owned();
        Err(DeviceError::OfRank { rank, message })
    })
}

fn not_connected() -> DeviceError {
    DeviceError::OfRank { rank: 0, message: "it has begun no run".to_owned() }
}
