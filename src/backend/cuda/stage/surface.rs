//! Stage `regularise`: what has Gaussians lie on surfaces (SuGaR: Guédon and Lepetit 2024, section
//! 4.1), and its gradients of their geometry. The twin of `backend/cpu/stage/surface.rs`.

use super::neighbours::Neighbours;
use super::project::Splats;
use super::sampled_depths::{DepthMap, Sampled};
use crate::abi::{Camera, EntropyArgs, In, Out, RegulariseArgs, SURFACE_BLOCK, SeenArgs};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::launch::Kernel;
use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::{Block, Buffer, host_len};
use crate::backend::cuda::memory::sort::exclusive_sum;
use crate::backend::cuda::memory::status::Report;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Neighbourhood, Pending, SurfaceRule, SurfaceTerms};
use crate::layout::{SURFACE_GRADIENTS, SurfaceRows, ViewSizes};
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
            sdf: sums.sdf / samples,
        };
        let all = [terms.entropy, terms.density, terms.normal, terms.sdf];
        match all.into_iter().find(|value| !value.is_finite()) {
            Some(value) => Err(DeviceError::LossNotFinite { value }),
            None => Ok(terms),
        }
    }
}

/// What is left of a view behind its backward pass.
#[derive(Clone, Copy)]
pub(crate) struct SampledView<'a> {
    pub(crate) splats: &'a Splats,
    pub(crate) camera: &'a Camera,
    /// Where distances were compared.
    pub(crate) depth_map: Option<&'a DepthMap>,
}

/// Adds the gradients of what the rule asks for to `geometry`, [n, 12], which is made where there is
/// none. All memory is taken before anything is added: where it is refused nothing has happened.
pub(crate) fn regularise(
    session: &mut Session,
    model: &Model,
    (sampled_view, near): (SampledView<'_>, Option<&Neighbours>),
    geometry: &mut Option<Block<f32>>,
    rule: &SurfaceRule,
) -> Result<PendingSurface, DeviceError> {
    match near {
        Some(near) if rule.is_sampled() => near.check(model)?,
        None if rule.is_sampled() => return Err(DeviceError::NoNeighbours),
        _ => {}
    }
    let depth_map = match sampled_view.depth_map {
        _ if !rule.compares_distances() => None,
        None => return Err(DeviceError::NoSurfaceMaps),
        there => there,
    };
    let SampledView { splats, camera, .. } = sampled_view;
    session.status.clear_surface(&session.stream)?;
    let has_entropy = rule.entropy != 0.0;
    let is_sampled = rule.is_sampled() && rule.samples > 0;
    if splats.visible > 0 && (has_entropy || is_sampled) {
        let sizes = splats.sizes(model.len(), camera);
        let d_geometry = match geometry {
            Some(there) => there,
            None => geometry.insert(zeros(session, &sizes)?),
        };
        let rows = if has_entropy || depth_map.is_none() {
            Some(seen_rows(session, splats, &sizes)?)
        } else {
            None
        };
        let near_surface =
            depth_map.map(|map| map.near(session, model, (splats, camera))).transpose()?;
        if let Some(rows) = rows.as_ref().filter(|_| has_entropy) {
            regularise_entropy(session, model, rows, (rule.entropy, d_geometry))?;
        }
        let of = match (depth_map, &near_surface, &rows) {
            (Some(map), Some(sampled), _) => Some(SampleSource::Shown(map, sampled)),
            (.., rows) => rows.as_ref().map(SampleSource::Seen),
        };
        if let (Some(near), Some(of)) = (near.filter(|_| is_sampled), of) {
            let from = (of, near, camera);
            regularise_samples(session, model, from, (rule, d_geometry))?;
        }
    }
    let report = session.status.report_surface(&session.heap, &session.stream)?;
    Ok(PendingSurface { report, seen: splats.visible, samples: rule.samples })
}

/// Gradients of all Gaussians' geometry that nothing was added to.
fn zeros(session: &Session, sizes: &ViewSizes) -> Result<Block<f32>, DeviceError> {
    let mut block = session.heap.take(&SURFACE_GRADIENTS, sizes)?;
    block.zero(&session.stream)?;
    Ok(block)
}

/// The rows of the Gaussians that the view sees, ascending. Slots are in the order in which blocks of
/// threads came; samples are drawn by place, so that a run would not be the same twice.
fn seen_rows(
    session: &Session,
    splats: &Splats,
    sizes: &ViewSizes,
) -> Result<Block<u32>, DeviceError> {
    let gaussians = host_len(sizes.gaussians);
    let SurfaceRows { mut rows, counts: [mut counts, mut firsts] } =
        SurfaceRows::reserve(&session.heap, sizes)?;
    let lane_blocks = counts.len();
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

/// What samples are taken of.
#[derive(Clone, Copy)]
enum SampleSource<'a> {
    /// Of all that the view sees.
    Seen(&'a Block<u32>),
    /// Of what is near the surface that it shows, distances from which are compared, too.
    Shown(&'a DepthMap, &'a Sampled),
}

fn regularise_samples(
    session: &mut Session,
    model: &Model,
    from: (SampleSource<'_>, &Neighbours, &Camera),
    (rule, d_geometry): (&SurfaceRule, &mut Block<f32>),
) -> Result<(), DeviceError> {
    let sums = session.status.surface();
    let plain = samples(model, from, rule)?;
    let args = RegulariseArgs { d_geometry: d_geometry.write(), sums, ..plain };
    let kernels = &session.kernels;
    let kernels = match from.0 {
        SampleSource::Seen(_) => [&kernels.regularise_16, &kernels.regularise_32],
        SampleSource::Shown(..) => [&kernels.regularise_shown_16, &kernels.regularise_shown_32],
    };
    take_samples(&session.stream, kernels, &args)
}

/// Adds the gradient of the depths that a view shows, where samples' distances are compared with them,
/// to that of its maps, [height, width, 4]. All memory is taken before anything is added.
pub(crate) fn compare_depths(
    session: &Session,
    model: &Model,
    (splats, camera, map): (&Splats, &Camera, &DepthMap),
    (near, rule): (&Neighbours, &SurfaceRule),
    d_surface: &mut Block<f32>,
) -> Result<(), DeviceError> {
    if splats.visible == 0 {
        return Ok(());
    }
    let sampled = &map.near(session, model, (splats, camera))?;
    let plain = samples(model, (SampleSource::Shown(map, sampled), near, camera), rule)?;
    let args = RegulariseArgs { d_surface: d_surface.write(), ..plain };
    let kernels = &session.kernels;
    take_samples(&session.stream, [&kernels.compare_shown_16, &kernels.compare_shown_32], &args)
}

/// The samples of a rule; nothing is added to.
fn samples<'a>(
    model: &'a Model,
    (of, near, camera): (SampleSource<'a>, &'a Neighbours, &Camera),
    rule: &SurfaceRule,
) -> Result<RegulariseArgs<'a>, DeviceError> {
    let key = |purpose| Random::new(rule.seed, u64::from(rule.iteration), purpose).key();
    let share = |weight: f64| f32::of(weight / f64::from(rule.samples));
    let (rows, depths, farthest, total) = match of {
        SampleSource::Seen(rows) => (rows, In::NULL, In::NULL, In::NULL),
        SampleSource::Shown(map, Sampled { rows, total }) => {
            (rows, map.depths.read(), map.farthest.read(), total.read())
        }
    };
    Ok(RegulariseArgs {
        geometry: model.geometry(),
        rows: rows.read(),
        near: near.rows(),
        d_geometry: Out::NULL,
        sums: Out::NULL,
        depths,
        farthest,
        d_surface: Out::NULL,
        total,
        key: key(Purpose::SurfaceSample),
        normal_key: key(Purpose::SurfaceNormal),
        camera: *camera,
        seen: count_u32(rows.len())?,
        list_len: near.count(),
        samples: rule.samples,
        d_density: share(rule.density),
        d_normal: share(rule.normal),
        d_sdf: share(rule.sdf),
        sdf_unit: f32::of(rule.sdf_unit),
        reserved: 0,
    })
}

/// Launches the first of the kernels where half a warp has lanes for the neighbours, or the second.
fn take_samples(
    stream: &Stream,
    [half, whole]: [&Kernel<RegulariseArgs<'static>>; 2],
    args: &RegulariseArgs<'_>,
) -> Result<(), DeviceError> {
    let (kernel, lanes) =
        if args.list_len <= HALF_WARP { (half, HALF_WARP) } else { (whole, 2 * HALF_WARP) };
    let blocks = args.samples.div_ceil(SURFACE_BLOCK / lanes) as usize;
    kernel.blocks(stream, blocks.min(MOST_BLOCKS), args)
}
