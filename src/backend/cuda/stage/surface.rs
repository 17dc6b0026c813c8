//! Stage `surface`: terms that align Gaussians with surfaces (SuGaR: Guédon and Lepetit 2024, section 4.1). The twin
//! of `backend/cpu/stage/surface.rs`.

use super::loss::PendingLosses;
use super::neighbours::NearestLists;
use super::project::Splats;
use crate::abi::terms::{
    At, Inputs, SampleRule, Terms, VALUE_DENSITY, VALUE_ENTROPY, VALUE_NORMAL, VALUE_SDF,
};
use crate::abi::{EntropyArgs, NearArgs, RegulariseArgs, SURFACE_BLOCK, SeenArgs, ShowArgs};
use crate::backend::cuda::device::launch::Kernel;
use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::host_len;
use crate::backend::cuda::memory::sort::exclusive_sum;
use crate::backend::cuda::prelude::*;
use crate::backend::{NeighbourLists, check_inputs};
use crate::layout::{NearRows, SURFACE_GRADIENTS, Samples, SurfaceRows, ViewSizes};
use crate::math::random::{RandomStream, RandomUse};

/// Maximum number of blocks that take samples: enough for any GPU, few enough for cheap final sums.
const MAX_BLOCKS: usize = 4096;

/// Neighbours that half a warp has lanes for.
const HALF_WARP: u32 = 16;

/// A view after its backward pass.
#[derive(Clone, Copy)]
pub(crate) struct SampledView<'a> {
    pub(crate) splats: &'a Splats,
    pub(crate) camera: &'a ViewCamera,
    /// Depths, if distances are compared.
    pub(crate) depth_map: Option<&'a DepthMap>,
}

/// Adds the gradients of sampled terms to `geometry`, [n, 12]. Takes all memory before.
pub(crate) fn regularise<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    sampled_view: SampledView<'_>,
    near: Option<&NearestLists<P>>,
    geometry: &mut Option<Block<f32>>,
    terms: &Terms,
) -> Result<PendingLosses> {
    check_inputs(
        terms,
        Inputs { inverse_depths: true, maps: true, median: true, other_view: true, ..Inputs::NONE },
        near.is_some(),
    )?;
    let near = near.filter(|_| terms.needs().samples);
    if let Some(near) = near {
        near.check(model)?;
    }
    let SampledView { splats, camera, depth_map } = sampled_view;
    session.status.clear_sums(&session.stream)?;
    let entropy_weight = terms.weight(VALUE_ENTROPY);
    if splats.visible > 0 {
        let sizes = splats.sizes(model.len(), camera);
        let d_geometry = match geometry {
            Some(there) => there,
            None => geometry.insert(zeros(session, &sizes)?),
        };
        let rows = if entropy_weight != 0.0 || depth_map.is_none() {
            Some(seen_rows(session, splats, &sizes)?)
        } else {
            None
        };
        let near_surface =
            depth_map.map(|map| map.near(session, model, splats, camera)).transpose()?;
        if let Some(rows) = rows.as_ref().filter(|_| entropy_weight != 0.0) {
            let args = EntropyArgs {
                geometry: model.geometry(),
                rows: rows.read(),
                d_geometry: d_geometry.write(),
                sums: session.status.surface(),
                seen: count_u32(rows.len())?,
                d_entropy: f32::of(entropy_weight / rows.len() as f64),
            };
            session.kernels.regularise_entropy.over(&session.stream, rows.len(), &args)?;
        }
        let of = match (depth_map, &near_surface, &rows) {
            (Some(map), Some(sampled), _) => Some(SampleSource::Shown(map, sampled)),
            (.., rows) => rows.as_ref().map(SampleSource::Seen),
        };
        if let (Some(near), Some(of)) = (near, of) {
            let plain = samples(model, of, near, camera, terms)?;
            let sums = session.status.surface();
            let args = RegulariseArgs { d_geometry: d_geometry.write(), sums, ..plain };
            let kernels = &session.kernels;
            let kernels = match of {
                SampleSource::Seen(_) => [&kernels.regularise_16, &kernels.regularise_32],
                SampleSource::Shown(..) => {
                    [&kernels.regularise_shown_16, &kernels.regularise_shown_32]
                }
            };
            take_samples(&session.stream, kernels, &args)?;
        }
    }
    let report = session.status.report(&session.heap, &session.stream)?;
    let active = terms.active_at(At::Samples).copied().collect();
    Ok(PendingLosses::of_samples(report, active, splats.visible, terms.samples.count))
}

/// Allocates zero gradients of all Gaussians' geometry.
pub(super) fn zeros(session: &Session, sizes: &ViewSizes) -> Result<Block<f32>> {
    let mut block = session.heap.take(&SURFACE_GRADIENTS, sizes)?;
    block.zero(&session.stream)?;
    Ok(block)
}

/// Returns the visible rows, ascending: samples are drawn by position, and the order of splats varies.
fn seen_rows(session: &Session, splats: &Splats, sizes: &ViewSizes) -> Result<Block<u32>> {
    let gaussians = host_len(sizes.gaussians);
    let SurfaceRows { mut rows, counts: [mut counts, mut firsts] } =
        SurfaceRows::reserve(&session.heap, sizes)?;
    let lane_blocks = counts.len();
    let args = SeenArgs {
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        n: count_u32(gaussians)?,
        seen: count_u32(splats.visible)?,
        ..SeenArgs::default()
    };
    let count = SeenArgs { counts: counts.write(), ..args };
    session.kernels.count_seen.over(&session.stream, gaussians, &count)?;
    exclusive_sum(&session.heap, &session.stream, lane_blocks, &counts, &mut firsts)?;
    let list = SeenArgs { firsts: firsts.read(), rows: rows.write(), ..args };
    session.kernels.list_seen.over(&session.stream, gaussians, &list)?;
    Ok(rows)
}

/// The Gaussians that are sampled.
#[derive(Clone, Copy)]
enum SampleSource<'a> {
    /// All visible Gaussians.
    Seen(&'a Block<u32>),
    /// Visible Gaussians near the drawn surface, whose distances are compared.
    Shown(&'a DepthMap, &'a Sampled),
}

/// Adds the gradient of the compared depths to that of the maps, [height, width, 4]. Takes all memory before.
pub(crate) fn compare_depths<P: CudaPrimitive>(
    session: &Session,
    model: &Model<P>,
    (splats, camera, map): (&Splats, &ViewCamera, &DepthMap),
    near: &NearestLists<P>,
    terms: &Terms,
    d_surface: &mut Block<f32>,
) -> Result {
    if splats.visible == 0 {
        return Ok(());
    }
    let sampled = &map.near(session, model, splats, camera)?;
    let plain = samples(model, SampleSource::Shown(map, sampled), near, camera, terms)?;
    let args = RegulariseArgs { d_surface: d_surface.write(), ..plain };
    let kernels = &session.kernels;
    take_samples(&session.stream, [&kernels.compare_shown_16, &kernels.compare_shown_32], &args)
}

/// Returns arguments of the samples, without outputs.
fn samples<'a, P: CudaPrimitive>(
    model: &'a Model<P>,
    of: SampleSource<'a>,
    near: &'a NearestLists<P>,
    camera: &ViewCamera,
    terms: &Terms,
) -> Result<RegulariseArgs<'a>> {
    let SampleRule { count, seed, iteration } = terms.samples;
    let key = |purpose| RandomStream::new(seed, u64::from(iteration), purpose).key();
    let share = |value| f32::of(terms.weight(value) / f64::from(count));
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
        depths,
        farthest,
        total,
        key: key(RandomUse::SurfaceSample),
        normal_key: key(RandomUse::SurfaceNormal),
        camera: *camera,
        seen: count_u32(rows.len())?,
        list_len: near.count(),
        samples: count,
        d_density: share(VALUE_DENSITY),
        d_normal: share(VALUE_NORMAL),
        d_sdf: share(VALUE_SDF),
        sdf_unit: f32::of(terms.sdf_unit().unwrap_or(1.0)),
        ..RegulariseArgs::default()
    })
}

/// Launches the first kernel if half a warp has enough lanes for the neighbours, else the second.
fn take_samples(
    stream: &Stream,
    [half, whole]: [&Kernel<RegulariseArgs<'static>>; 2],
    args: &RegulariseArgs<'_>,
) -> Result {
    let (kernel, lanes) =
        if args.list_len <= HALF_WARP { (half, HALF_WARP) } else { (whole, 2 * HALF_WARP) };
    let blocks = args.samples.div_ceil(SURFACE_BLOCK / lanes) as usize;
    kernel.blocks(stream, blocks.min(MAX_BLOCKS), args)
}

/// The drawn depths of a view.
pub(crate) type DepthMap = Samples<Heap>;

/// The Gaussians near the drawn surface.
pub(crate) struct Sampled {
    /// Rows, ascending; `[visible]`, with `total` rows filled.
    pub(crate) rows: Block<u32>,
    /// `[1]`
    pub(crate) total: Block<u32>,
}

impl DepthMap {
    /// Creates the depths from a view's surface maps.
    pub(crate) fn new(
        session: &Session,
        splats: &Splats,
        sizes: &ViewSizes,
        surface: &Block<f32>,
    ) -> Result<Self> {
        let (heap, stream) = (&session.heap, &session.stream);
        let pixels = surface.len() / 4;
        let Samples { mut depths, mut farthest } = Samples::reserve(heap, sizes)?;
        farthest.zero(stream)?;
        let args = ShowArgs {
            splats: splats.records.read(),
            surface: surface.read(),
            farthest: farthest.write(),
            depths: depths.write(),
            visible: count_u32(splats.visible)?,
            pixels: count_u32(pixels)?,
        };
        session.kernels.find_farthest.over(stream, splats.visible, &args)?;
        session.kernels.show_depths.over(stream, pixels, &args)?;
        Ok(Self { depths, farthest })
    }

    /// Lists the visible Gaussians near the drawn surface.
    pub(crate) fn near<P: CudaPrimitive>(
        &self,
        session: &Session,
        model: &Model<P>,
        splats: &Splats,
        camera: &ViewCamera,
    ) -> Result<Sampled> {
        let (heap, stream, gaussians) = (&session.heap, &session.stream, model.len());
        let NearRows { mut rows, mut total, mut masks, counts: [mut counts, mut firsts] } =
            NearRows::reserve(heap, &splats.sizes(gaussians, camera))?;
        let lane_blocks = counts.len();
        total.zero(stream)?;
        let args = NearArgs {
            geometry: model.geometry(),
            splat_from_gaussian: splats.splat_from_gaussian.read(),
            depths: self.depths.read(),
            masks: masks.write(),
            camera: *camera,
            n: count_u32(gaussians)?,
            seen: count_u32(splats.visible)?,
            ..NearArgs::default()
        };
        let count = NearArgs { counts: counts.write(), ..args };
        session.kernels.count_near.over(stream, gaussians, &count)?;
        exclusive_sum(heap, stream, lane_blocks, &counts, &mut firsts)?;
        let list =
            NearArgs { firsts: firsts.read(), rows: rows.write(), total: total.write(), ..args };
        session.kernels.list_near.over(stream, gaussians, &list)?;
        Ok(Sampled { rows, total })
    }
}
