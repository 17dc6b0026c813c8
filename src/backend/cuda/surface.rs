//! Stage `regularise`: what has Gaussians lie on surfaces (SuGaR: Guédon and Lepetit 2024, section
//! 4.1), and its gradients of their geometry. The twin of `backend/cpu/surface.rs`.

use super::heap::{Block, Buffer};
use super::lanes::LANES;
use super::model::Model;
use super::neighbours::Neighbours;
use super::project::{Splats, count_u32};
use super::session::Session;
use super::sort::exclusive_sum;
use super::status::Report;
use crate::abi::{EntropyArgs, In, Out, RegulariseArgs, SURFACE_BLOCK, SURFACE_WIDTH, SeenArgs};
use crate::backend::{DeviceError, Neighbourhood, Pending, SurfaceRule, SurfaceTerms};
use crate::math::Real;
use crate::math::random::{Purpose, Stream as Random};

/// Blocks of the kernels that take samples: enough for any GPU, and few enough that what each adds to
/// the terms in the end does not count.
const MOST_BLOCKS: usize = 4096;

/// Neighbours that half a warp has lanes for.
const HALF_WARP: u32 = 16;

/// The surface terms on their way to the host.
pub struct PendingSurface {
    report: Report,
    /// Gaussians that the view sees.
    seen: usize,
    samples: u32,
}

impl Pending<SurfaceTerms> for PendingSurface {
    fn is_ready(&self) -> bool {
        self.report.is_ready()
    }

    fn read(self) -> Result<SurfaceTerms, DeviceError> {
        let sums = self.report.read_surface()?;
        let samples = f64::from(self.samples.max(1));
        let terms = SurfaceTerms {
            entropy: sums.entropy / self.seen.max(1) as f64,
            density: sums.density / samples,
            normal: sums.normal / samples,
        };
        let all = [terms.entropy, terms.density, terms.normal];
        match all.into_iter().find(|value| !value.is_finite()) {
            Some(value) => Err(DeviceError::LossNotFinite { value }),
            None => Ok(terms),
        }
    }
}

/// Adds the gradients of what the rule asks for to `geometry`, [n, 12], which is made where there is
/// none. All memory is taken before anything is added: where it is refused nothing has happened.
pub(super) fn regularise(
    session: &mut Session,
    model: &Model,
    (splats, near): (&Splats, Option<&Neighbours>),
    geometry: &mut Option<Block<f32>>,
    rule: &SurfaceRule,
) -> Result<PendingSurface, DeviceError> {
    match near {
        Some(near) if rule.is_sampled() => near.check(model)?,
        None if rule.is_sampled() => return Err(DeviceError::NoNeighbours),
        _ => {}
    }
    session.status.clear_surface(&session.stream)?;
    let has_entropy = rule.entropy != 0.0;
    let is_sampled = rule.is_sampled() && rule.samples > 0;
    if splats.visible > 0 && (has_entropy || is_sampled) {
        let d_geometry = match geometry {
            Some(there) => there,
            None => geometry.insert(zeros(session, model.len())?),
        };
        let rows = seen_rows(session, splats, model.len())?;
        if has_entropy {
            regularise_entropy(session, model, &rows, (rule.entropy, d_geometry))?;
        }
        if let Some(near) = near.filter(|_| is_sampled) {
            regularise_samples(session, model, (&rows, near), (rule, d_geometry))?;
        }
    }
    let report = session.status.report_surface(&session.heap, &session.stream)?;
    Ok(PendingSurface { report, seen: splats.visible, samples: rule.samples })
}

/// Gradients of so many Gaussians' geometry that nothing was added to.
fn zeros(session: &Session, gaussians: usize) -> Result<Block<f32>, DeviceError> {
    let len = gaussians.saturating_mul(SURFACE_WIDTH as usize);
    let mut block = session.heap.scratch("surface gradients", len)?;
    block.zero(&session.stream)?;
    Ok(block)
}

/// The rows of the Gaussians that the view sees, ascending. Slots are in the order in which blocks of
/// threads came; samples are drawn by place, so that a run would not be the same twice.
fn seen_rows(
    session: &Session,
    splats: &Splats,
    gaussians: usize,
) -> Result<Block<u32>, DeviceError> {
    let lane_blocks = gaussians.div_ceil(LANES);
    let mut rows = session.heap.scratch("surface rows", splats.visible)?;
    let mut counts = session.heap.scratch("surface counts", lane_blocks)?;
    let mut firsts = session.heap.scratch("surface counts", lane_blocks)?;
    let splat_from_gaussian = splats.splat_from_gaussian.read();
    let (n, seen) = (count_u32(gaussians)?, count_u32(splats.visible)?);
    let count = SeenArgs {
        splat_from_gaussian,
        counts: counts.write(),
        firsts: In::NULL,
        rows: Out::NULL,
        n,
        seen,
    };
    session.kernels.count_seen.over(&session.stream, gaussians, &count)?;
    exclusive_sum(&session.heap, &session.stream, lane_blocks, &counts, &mut firsts)?;
    let list = SeenArgs {
        splat_from_gaussian,
        counts: Out::NULL,
        firsts: firsts.read(),
        rows: rows.write(),
        n,
        seen,
    };
    session.kernels.list_seen.over(&session.stream, gaussians, &list)?;
    Ok(rows)
}

fn regularise_entropy(
    session: &mut Session,
    model: &Model,
    rows: &Block<u32>,
    (weight, d_geometry): (f64, &mut Block<f32>),
) -> Result<(), DeviceError> {
    let args = EntropyArgs {
        geometry: model.geometry(),
        rows: rows.read(),
        d_geometry: d_geometry.write(),
        sums: session.status.surface(),
        seen: count_u32(rows.len())?,
        d_entropy: f32::of(weight / rows.len() as f64),
    };
    session.kernels.regularise_entropy.over(&session.stream, rows.len(), &args)
}

fn regularise_samples(
    session: &mut Session,
    model: &Model,
    (rows, near): (&Block<u32>, &Neighbours),
    (rule, d_geometry): (&SurfaceRule, &mut Block<f32>),
) -> Result<(), DeviceError> {
    let key = |purpose| Random::new(rule.seed, u64::from(rule.iteration), purpose).key();
    let share = |weight: f64| f32::of(weight / f64::from(rule.samples));
    let args = RegulariseArgs {
        geometry: model.geometry(),
        rows: rows.read(),
        near: near.rows(),
        d_geometry: d_geometry.write(),
        sums: session.status.surface(),
        key: key(Purpose::SurfaceSample),
        normal_key: key(Purpose::SurfaceNormal),
        seen: count_u32(rows.len())?,
        list_len: near.count(),
        samples: rule.samples,
        d_density: share(rule.density),
        d_normal: share(rule.normal),
        reserved: 0,
    };
    let (kernel, lanes) = if near.count() <= HALF_WARP {
        (&session.kernels.regularise_16, HALF_WARP)
    } else {
        (&session.kernels.regularise_32, 2 * HALF_WARP)
    };
    let blocks = rule.samples.div_ceil(SURFACE_BLOCK / lanes) as usize;
    kernel.blocks(&session.stream, blocks.min(MOST_BLOCKS), &args)
}
