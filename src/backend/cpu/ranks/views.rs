//! Views drawn by ranks: exchange of splats and gradients between the rank of a view and the ranks of rows.

use super::share::{CpuShard, ModelShare};
use crate::backend::cpu::frame::{self, Frame};
use crate::backend::cpu::primitive::{DrawnView, Splat};
use crate::backend::cpu::stage::gradients::{Gradients, ViewGradients};
use crate::backend::cpu::stage::project::project;
use crate::backend::cpu::stage::{adam, densify};
use crate::backend::ranks::{RankNews, SharedViews};
use crate::backend::{
    AdamStep, DeviceError, DrawSettings, Drawn, Fresh, RankView, RenderSettings, Scored,
    Statistics, ViewSetup,
};
use crate::dataset::View;

/// Views that ranks draw at the same time, at most one per rank.
pub struct SharedRound {
    /// Splats of this rank's rows in the view of each rank.
    own: Vec<Option<OwnSplats>>,
}

/// Splats of this rank's rows in a view.
struct OwnSplats {
    view: DrawnView<f32>,
    drawing: DrawSettings,
    /// Splats with row numbers of this rank.
    splats: Vec<Splat<f32>>,
    /// Error of the first row that is not finite.
    fault: Option<DeviceError>,
}

impl OwnSplats {
    /// Fails unless the drawing rank sends one value per splat.
    fn check(&self, rank: u32, values: usize) -> Result<(), DeviceError> {
        if values == self.splats.len() {
            return Ok(());
        }
        let message = format!("it sends values of {values} of {} splats", self.splats.len());
        Err(DeviceError::of_rank(rank, message))
    }
}

impl SharedViews for CpuShard {
    type Round = SharedRound;
    /// Splats in the order of row numbers of the whole model.
    type Splats = Vec<Splat<f32>>;

    fn project(
        &mut self,
        share: &ModelShare,
        setups: &[Option<&ViewSetup>],
    ) -> Result<(SharedRound, Vec<Splat<f32>>), DeviceError> {
        let own_splats = |setup: &ViewSetup| {
            let drawing = setup.drawing();
            let viewpoint = drawing.viewpoint(&setup.view);
            let view = DrawnView::new(viewpoint, &drawing);
            let (splats, fault) = project(&share.local, &view);
            OwnSplats { view, drawing, splats, fault }
        };
        let own: Vec<_> = setups.iter().map(|setup| setup.map(own_splats)).collect();
        let outgoing = own.iter().map(|own| {
            let splats = own.iter().flat_map(|own| &own.splats);
            let number = |row| usize::try_from(share.local.number(row)).unwrap_or(usize::MAX);
            splats.map(|splat| Splat { row: number(splat.row), ..*splat }).collect::<Vec<_>>()
        });
        let incoming: Vec<Vec<Splat<f32>>> = self.line.all_to_all(&outgoing.collect::<Vec<_>>())?;
        for (rank, part) in (0..).zip(&incoming) {
            let is_own = |splat: &Splat<f32>| {
                splat.row < share.numbering.len() && share.numbering.find(splat.row).0 == rank
            };
            if !part.is_sorted_by(|a, b| a.row < b.row) || !part.iter().all(is_own) {
                return Err(DeviceError::of_rank(rank, "it sends splats of rows that it has not"));
            }
        }
        let mut splats: Vec<Splat<f32>> = incoming.into_iter().flatten().collect();
        splats.sort_unstable_by_key(|splat| splat.row);
        Ok((SharedRound { own }, splats))
    }

    fn project_to_train(
        &mut self,
        share: &ModelShare,
        views: &[Option<RankView>],
        news: RankNews,
    ) -> Result<(SharedRound, Vec<Splat<f32>>, Vec<RankNews>), DeviceError> {
        let news = self.line.all_gather(&news)?;
        let setups = views.iter().zip(&news);
        let setups = setups
            .map(|(view, of)| view.as_ref().filter(|_| of.problem.is_none()).map(|v| &v.setup));
        let (round, splats) = self.project(share, &setups.collect::<Vec<_>>())?;
        Ok((round, splats, news))
    }

    fn draw<S: Fresh>(
        &mut self,
        _: &ModelShare,
        view: &View,
        drawing: DrawSettings,
        splats: Vec<Splat<f32>>,
    ) -> Result<Frame<f32, S>, DeviceError> {
        frame::draw_splats(view, drawing, splats)
    }

    fn add_gradients(
        &mut self,
        share: &mut ModelShare,
        round: SharedRound,
        frame: Option<Frame<f32, Scored<Drawn>>>,
        gradients: &mut Gradients<f32>,
    ) -> Result<(), DeviceError> {
        let incoming = self.return_values(share, frame.map(Frame::into_screen_gradients))?;
        for ((rank, own), screen) in (0..).zip(round.own).zip(incoming) {
            let (Some(own), Some(screen)) = (own, screen) else { continue };
            own.check(rank, screen.len())?;
            share.optional.absolute_norm_sums |= own.drawing.observe == Some(Statistics::Both);
            let OwnSplats { view, drawing, splats, fault } = own;
            densify::observe(&mut share.local, &splats, &screen, view.viewpoint.size, &drawing);
            let row_from_splat = splats.iter().map(|splat| splat.row).collect();
            let depth_map = None;
            gradients.views.push(ViewGradients { view, row_from_splat, screen, depth_map, fault });
        }
        Ok(())
    }

    fn weigh(
        &mut self,
        share: &mut ModelShare,
        views: &[View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        share.local.forget_statistics();
        let rank = self.rank() as usize;
        for round in views.chunks(self.world() as usize) {
            let setups: Vec<_> =
                round.iter().map(|view| ViewSetup::shown(view, settings, false)).collect();
            let mut by_rank: Vec<_> = setups.iter().map(Some).collect();
            by_rank.resize(self.world() as usize, None);
            let (round, splats) = self.project(share, &by_rank)?;
            let weights = match by_rank[rank] {
                Some(setup) => {
                    let frame: Frame<f32, Drawn> =
                        frame::draw_splats(&setup.view, setup.drawing(), splats)?;
                    Some(frame.into_weights())
                }
                None => None,
            };
            let incoming = self.return_values(share, weights)?;
            for ((rank, own), weights) in (0..).zip(&round.own).zip(incoming) {
                let (Some(own), Some(weights)) = (own, weights) else { continue };
                own.check(rank, weights.len())?;
                for (splat, weight) in own.splats.iter().zip(weights) {
                    share.local.gradient_norm_sums[splat.row] += weight;
                }
            }
        }
        Ok(())
    }

    /// Returns an error on all ranks if any rank has one.
    fn step(
        &mut self,
        share: &mut ModelShare,
        gradients: Gradients<f32>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        // Ranks must round by different random numbers.
        let seed = self.cpu.seed ^ u64::from(self.rank()) << 32;
        let moved = adam::step(&mut share.local, &gradients, step, seed, None);
        let moved = gradients.views.into_iter().find_map(|view| view.fault).map_or(moved, Err);
        let moved = moved.map_err(|error| numbered(error, share));
        let faults = self.line.all_gather(&moved.as_ref().err().map(ToString::to_string))?;
        moved?;
        let mut faults = (0..).zip(faults);
        let found = faults.find_map(|(rank, fault)| fault.map(|message| (rank, message)));
        found.map_or(Ok(()), |(rank, message)| Err(DeviceError::of_rank(rank, message)))
    }
}

impl CpuShard {
    /// Sends the values of a view's splats to the ranks of their rows. Returns the values of this rank's rows in the
    /// view of each rank, in the order of rows.
    fn return_values<T>(
        &mut self,
        share: &ModelShare,
        found: Option<(Vec<Splat<f32>>, Vec<T>)>,
    ) -> Result<Vec<Option<Vec<T>>>, DeviceError>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let outgoing = match found {
            None => (0..self.world()).map(|_| None).collect(),
            Some((splats, values)) => {
                let mut parts: Vec<_> = (0..self.world()).map(|_| Vec::new()).collect();
                for (splat, value) in splats.iter().zip(values) {
                    let (owner, _) = share.numbering.find(splat.row);
                    parts[owner as usize].push(value);
                }
                parts.into_iter().map(Some).collect::<Vec<_>>()
            }
        };
        self.line.all_to_all(&outgoing)
    }
}

/// Replaces the row of an error by its number in the whole model.
fn numbered(error: DeviceError, share: &ModelShare) -> DeviceError {
    match error {
        DeviceError::NotFinite { primitive, index, group, value } => {
            let number = usize::try_from(share.local.number(index)).unwrap_or(index);
            DeviceError::NotFinite { primitive, index: number, group, value }
        }
        error => error,
    }
}
