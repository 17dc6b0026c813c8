//! Dry runs of the stages, without memory and without work. The plan takes the sizes of scratch from them.

use std::cell::Cell;
use std::rc::Rc;

use super::device::stream::DryQueue;
use super::frame::{self, Frame, Gradients};
use super::memory::heap::host_len;
use super::model::tables::{self, FaceTables};
use super::photos::Target;
use super::session::BandPolicy;
use super::stage::appearance::ColorTables;
use super::stage::densify::{self, DensifyWork};
use super::stage::neighbours::{NearestLists, neighbours};
use super::stage::relocate::{DrawRule, MultinomialSampler};
use super::stage::{reorder, smooth};
use crate::abi::TILE;
use crate::abi::terms::TERM_SUMS;
use crate::backend::cuda::prelude::*;
use crate::backend::{
    AdamStep, AppearanceRule, AppearanceTables, Candidates, ColorRoom, Compensation, DrawSettings,
    Drawn, Footprint, Grow, Into, Keep, NormalDepths, Objective, Rates, RenderRequest,
    RenderSettings, SampleRule, ScoreRule, Shown, TableStep, Term, Terms, Window,
};
use crate::dataset::{Camera, Pose, View};
use crate::layout::{
    BANDS, BOUND_GRADIENTS, ColorUse, DepthSlots, Library, ModelSize, Records, Scratch, Use,
    ViewRequest,
};
use crate::math::Divisor;
use crate::math::morton::Cube;
use crate::memory::plan::{PlannedViews, Samples, Work};
use crate::model::Gaussians;

/// Bytes of a fault and the sums behind it.
const REPORT_BYTES: usize = 8 * (1 + TERM_SUMS as usize);

/// Neighbours per Gaussian of the search. The scratch does not depend on the number.
const NEIGHBOURS: u32 = 1;

/// Counts that kernels would report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub(super) visible: u32,
    /// Number of pairs of a splat and a tile.
    pub(super) instances: u64,
    /// Number of bands of tile rows. Each band's first row has all instances of the band.
    pub(super) bands: u64,
    pub(super) candidates: [u32; 2],
    /// Number of rows to remove, and number of rows from the first of them on.
    pub(super) removed: [u32; 2],
    pub(super) dead: u32,
}

impl Reported {
    /// Writes the counts that lie in the buffer with this label. All bytes are zero before.
    pub(super) fn write(&self, label: &str, host: &mut [u8]) {
        match (label, host.len()) {
            ("status", 16) => {
                host[..8].copy_from_slice(&self.instances.to_le_bytes());
                host[8..12].copy_from_slice(&self.visible.to_le_bytes());
            }
            // No fault, before the sums.
            ("status", REPORT_BYTES) => host[..8].fill(0xff),
            ("instances of rows", bytes) => {
                let bands = self.bands.max(1);
                let rows = host_len((bytes as u64 / 8).div_ceil(bands));
                let of_band = self.instances.div_ceil(bands).to_le_bytes();
                for first in host.chunks_exact_mut(8).step_by(rows) {
                    first.copy_from_slice(&of_band);
                }
            }
            ("density counts", _) => {
                let [small, large] = self.candidates;
                let [removed, from_first] = self.removed;
                let words = [small, large, small, large, removed, from_first];
                for (word, count) in host.chunks_exact_mut(4).zip(words) {
                    word.copy_from_slice(&count.to_le_bytes());
                }
            }
            // All scores have the first digit.
            ("density digits", _) => host[..4].fill(0xff),
            ("density sources", _) => host.copy_from_slice(&self.dead.to_le_bytes()),
            ("density weights", _) => host[0] = 1,
            _ => {}
        }
    }
}

/// Returns the scratch of some work on a model, or an endless one if the work is refused.
pub fn scratch(library: &Library, model: &ModelSize, work: &Work) -> Scratch {
    DryRun::open(library, model, work)
        .and_then(|mut run| run.scratch(work))
        .unwrap_or_else(|_refused| Scratch::endless())
}

/// Returns a session without a device, and the counts that it reports.
pub(super) fn session(heap: Heap) -> Result<(Session, Rc<Cell<Reported>>)> {
    let reported: Rc<Cell<Reported>> = Rc::default();
    let answer = Rc::clone(&reported);
    let queue = DryQueue::new(Rc::new(move |label, host| answer.get().write(label, host)));
    Ok((Session::dry(heap, [queue.clone(), queue])?, reported))
}

struct DryRun {
    session: Session,
    model: Model,
    reported: Rc<Cell<Reported>>,
}

impl DryRun {
    fn open(library: &Library, size: &ModelSize, work: &Work) -> Result<Self> {
        let heap = Heap::dry()?;
        heap.set_cub_scratch(*library);
        let (mut session, reported) = session(heap)?;
        session.storage = size.storage;
        let rows = host_len(size.gaussians);
        let mut model = tables::zeros::<Gaussians>(&mut session, size.sh_degree, rows)?;
        if size.optional.absolute_norm_sums {
            model.enable_absolute_norms(&session)?;
        }
        if size.optional.filter_3d {
            model.enable_filter(&session)?;
        }
        // Triangles are planned with the faces of a closed surface.
        if size.schema.has_faces() || draws_triangles(work) {
            let faces = host_len(Records::Triangles.most(size.gaussians));
            model.faces = Some(FaceTables::unknown(&session, faces)?);
        }
        Ok(Self { session, model, reported })
    }

    fn scratch(&mut self, work: &Work) -> Result<Scratch> {
        let Self { session, model, reported } = self;
        let heap = session.heap.clone();
        match *work {
            Work::Views(ref planned) => self.views(planned),
            Work::Densify { new_gaussians, wanted } => {
                let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
                let one = u32::from(!model.is_empty());
                reported.set(Reported {
                    candidates: [wanted, 0],
                    removed: [one, one],
                    ..Reported::default()
                });
                let new_gaussians = host_len(new_gaussians);
                heap.logged(|| densify(session, model, new_gaussians, wanted))
            }
            Work::Retain { candidates, kept } => {
                let candidates = u32::try_from(candidates).unwrap_or(u32::MAX);
                reported.set(Reported { candidates: [candidates, 0], ..Reported::default() });
                let kept = host_len(kept);
                heap.logged(|| {
                    let candidates = score(session, model, ScoreRule::Weight)?;
                    let mut work = DensifyWork::select(session, model, &candidates, kept)?;
                    work.retain(session, model).map(drop)
                })
            }
            Work::MoveDead => self.copy(Into::Dead),
            Work::AddCopies(new_gaussians) => self.copy(Into::NewRows(host_len(new_gaussians))),
            Work::Reorder => {
                let cube = Cube { centre: [0.0; 3], half_side: 1.0 };
                heap.logged(|| reorder::reorder(session, model, &cube))
            }
            Work::FindNeighbours => {
                heap.logged(|| neighbours(session, model, NEIGHBOURS).map(drop))
            }
            Work::Smooth { views } => {
                let view = view([1, 1]);
                let views = vec![&view; host_len(views)];
                heap.logged(|| smooth::smooth(session, model, &views, 0.2))
            }
        }
    }

    fn copy(&mut self, into: Into) -> Result<Scratch> {
        let Self { session, model, reported } = self;
        reported.set(Reported { dead: 1, ..Reported::default() });
        let rule = DrawRule { into, key: 0, opacity_min: 0.005 };
        session.heap.clone().logged(|| {
            let sampler = MultinomialSampler::select(session, model, rule)?;
            sampler.map_or(Ok(()), |mut sampler| sampler.edit(session, model).map(drop))
        })
    }

    fn views(&mut self, planned: &PlannedViews) -> Result<Scratch> {
        let Self { session, model, reported } = self;
        let PlannedViews { ref view, in_bands, .. } = *planned;
        // More than the model has would be searched forever.
        let most = planned.request.records.most(model.len() as u64);
        reported.set(Reported {
            visible: u32::try_from(view.visible.min(most)).unwrap_or(u32::MAX),
            instances: view.instances,
            bands: BANDS,
            ..Reported::default()
        });
        // As if the previous view had seen as many.
        session.most_visible = host_len(view.visible);
        let rows = u64::from(view.px[1].div_ceil(TILE)).div_ceil(BANDS);
        session.bands = match in_bands {
            true => BandPolicy::Rows(u32::try_from(rows).unwrap_or(u32::MAX)),
            false => BandPolicy::Never,
        };
        match planned.request.backward() {
            true => Training::of(session, model, planned)?.run(session, model),
            false => show(session, model, planned),
        }
    }
}

fn draws_triangles(work: &Work) -> bool {
    matches!(work, Work::Views(planned) if planned.request.records == Records::Triangles)
}

fn densify(session: &mut Session, model: &mut Model, new_gaussians: usize, wanted: u32) -> Result {
    let keep = Keep { opacity_min: 0.005, scale_max: None, unseen: true };
    if model.faces.is_some() {
        return densify::dry(session, model, new_gaussians);
    }
    let (min, small_max) = (0.0, 0.0);
    let rule = match model.optional().absolute_norm_sums {
        true => ScoreRule::GradientOrQuantile { min, small_max },
        false => ScoreRule::Gradient { min, small_max },
    };
    let candidates = match wanted {
        0 => Candidates { rule, ..Candidates::NONE },
        _ => score(session, model, rule)?,
    };
    let mut work = DensifyWork::select(session, model, &candidates, new_gaussians)?;
    work.edit(session, model, &Grow::SplitRandom { shrink: 1.6, key: 0 }, &keep).map(drop)
}

fn score(session: &Session, model: &Model, rule: ScoreRule) -> Result<Candidates> {
    let gradient = rule.by_gradient().ok_or(DeviceError::UnsuitedEdit)?;
    densify::score(session, model, &rule, &gradient)
}

fn show(session: &mut Session, model: &mut Model, planned: &PlannedViews) -> Result<Scratch> {
    let (view, drawing) = (view(planned.view.px), drawing(&planned.request));
    let heap = session.heap.clone();
    if let Some(places) = planned.places {
        let places = vec![[0.0; 3]; host_len(places)];
        let draw = || frame::transmittances(session, model, &view, &drawing, &places).map(drop);
        return heap.logged(draw);
    }
    let target = Target::dry(&session.stream, planned.view.px, false)?;
    let pixels = planned.view.pixels();
    heap.logged(|| {
        let mut frame: Frame<Shown> = frame::draw(session, model, &view, &drawing)?;
        frame.measure(session, &target)?;
        if drawing.colors.is_some() {
            frame = frame.correct(session, &target)?;
        }
        let slots = planned.depths.map(|depths| DepthSlots::reserve(&heap, pixels, true, depths));
        drop((slots.transpose()?, frame));
        Ok(())
    })
}

/// Inputs of a step, which lie outside of the arena.
struct Training<'a> {
    planned: &'a PlannedViews,
    view: View,
    drawing: DrawSettings,
    terms: Terms,
    target: Target,
    near: Option<NearestLists>,
    tables: Option<ColorTables>,
}

impl<'a> Training<'a> {
    fn of(session: &mut Session, model: &Model, planned: &'a PlannedViews) -> Result<Self> {
        let (drawing, terms) = (drawing(&planned.request), terms(planned));
        let divisor = drawing.divisor;
        let px = planned.view.px.map(|side| (side + 1).saturating_mul(divisor.get()) - 1);
        let px = if divisor == Divisor::One { planned.view.px } else { px };
        let near = terms.needs().neighbours.then(|| neighbours(session, model, NEIGHBOURS));
        let tables = match drawing.colors {
            Some(ColorRoom::Learned(kind)) => {
                Some(ColorTables::new(session, &AppearanceTables::identity(kind, 1))?)
            }
            Some(ColorRoom::Corrected) | None => None,
        };
        Ok(Self {
            planned,
            view: view(planned.view.px),
            target: Target::dry(&session.stream, px, planned.request.inverse_depths)?,
            near: near.transpose()?,
            drawing,
            terms,
            tables,
        })
    }

    fn run(mut self, session: &mut Session, model: &mut Model) -> Result<Scratch> {
        let heap = session.heap.clone();
        heap.logged(|| {
            let mut gradients = Gradients::default();
            for _ in 0..self.planned.count {
                self.add_view(session, model, &mut gradients)?;
            }
            let mut kept = None;
            if let Some(bound) = &self.planned.bound {
                kept = Some(session.heap.take(&BOUND_GRADIENTS, bound)?);
            }
            gradients.step(session, model, kept.as_mut(), &AdamStep::new(1, Rates::NONE))
        })
    }

    fn add_view(
        &mut self,
        session: &mut Session,
        model: &mut Model,
        gradients: &mut Gradients,
    ) -> Result {
        let Self { view, drawing, terms, target, near, tables, .. } = self;
        let near = near.as_ref();
        let frame: Frame<Drawn> = frame::draw(session, model, view, drawing)?;
        let objective = Objective { target, terms, near, other: None };
        let mut frame = match tables {
            None => frame.scored(session, model, &objective)?.0,
            Some(tables) => {
                let step = TableStep { view: 0, number: 1, rule: TABLES_AT_REST };
                let frame = frame.compensate(session, tables, &step)?;
                let (frame, _losses) = frame.scored(session, model, &objective)?;
                frame.learn(session, tables, &step)?
            }
        };
        if let Some(near) = near.filter(|_| terms.sdf_unit().is_some()) {
            frame.compare_sampled_depths(session, model, near)?;
        }
        frame.backward(session, model, near, gradients).map(drop)
    }
}

pub(super) const TABLES_AT_REST: AppearanceRule = AppearanceRule {
    rate_init: 0.0,
    rate_final: 0.0,
    iterations: 1,
    warm_up: 0,
    epsilon: 1e-15,
    total_variation: 0.0,
};

/// Weight of every term. Only the weight 0 changes the scratch.
const WEIGHT: f64 = 0.1;

/// Returns terms with gradients for every map that is drawn.
fn terms(planned: &PlannedViews) -> Terms {
    let ViewRequest { inverse_depths, inverse_squares, maps, median, .. } = planned.request;
    let mut terms = Terms::photometric(0.2);
    if inverse_depths {
        terms = terms.with(Term::InverseDepth, WEIGHT);
    }
    if maps {
        let depths = if median { NormalDepths::Median } else { NormalDepths::All };
        terms = terms.with(Term::DepthNormal { depths }, WEIGHT);
    }
    if inverse_depths && inverse_squares && maps {
        terms = terms.with(Term::Distortion, WEIGHT);
    }
    let of_samples = match planned.samples {
        None => return terms,
        Some(Samples::Seen) => Term::Entropy,
        Some(Samples::Shown) => Term::Sdf { unit: 1.0 },
    };
    terms.with(of_samples, WEIGHT).sampled_by(SampleRule { count: 1, seed: 0, iteration: 0 })
}

fn drawing(request: &ViewRequest) -> DrawSettings {
    let footprint = match request.records {
        Records::Ellipses => Footprint::DILATED,
        Records::Surfels => Footprint::Surfel,
        Records::Triangles => Footprint::Triangle(Window::SOLID),
    };
    let colors = |of_use| match of_use {
        ColorUse::Fit => ColorRoom::Corrected,
        ColorUse::Exposure => ColorRoom::Learned(Compensation::Exposure),
        ColorUse::Grid => ColorRoom::Learned(Compensation::BilateralGrid),
    };
    let settings = RenderSettings { footprint, ..RenderSettings::DEFAULT };
    DrawSettings {
        counts: request.drawn_for == Use::Counts,
        inverse_depths: request.inverse_depths,
        inverse_squares: request.inverse_squares,
        surface: request.maps,
        median: request.median,
        trains: request.backward(),
        colors: request.colors.map(colors),
        divisor: request.divisor,
        ..DrawSettings::shown(&settings, RenderRequest::IMAGE)
    }
}

pub(super) fn view(px: [u32; 2]) -> View {
    let [width, height] = px;
    let centre_px = px.map(|side| f64::from(side) / 2.0);
    View {
        name: String::new(),
        camera: Camera { width, height, focal_px: [100.0; 2], centre_px },
        pose: Pose {
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            translation: [0.0; 3],
        },
    }
}
