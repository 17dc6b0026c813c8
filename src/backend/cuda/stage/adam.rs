//! Stage `adam`: the projection's backward pass fused with Adam.

use std::rc::Rc;

use super::project::{Splats, filters_screen};
use crate::abi::{AdamArgs, MAX_VIEWS, ViewArgs};
use crate::backend::cuda::model::tables::{catch_up, pointers};
use crate::backend::cuda::prelude::*;
use crate::backend::cuda::primitive::{RATES, no_batches, require};
use crate::backend::{AdamStep, Capability, MotionReach, Reach};
use crate::layout::Records;
use crate::math::adam::Moments;
use crate::math::random::{RandomStream, RandomUse};
use crate::math::splat::PlaceGradients;

/// A view's inputs of a step.
#[derive(Clone, Copy)]
pub(crate) struct StepView<'a> {
    pub(crate) splats: &'a Splats,
    pub(crate) camera: &'a ViewCamera,
    pub(crate) sh_degree: u32,
    pub(crate) inverse_depths: bool,
    /// Rule for the gradients of the rows' positions.
    pub(crate) gradients: PlaceGradients,
}

impl<'a> StepView<'a> {
    /// Returns the gradients of the splats' surface features.
    fn d_features(&self) -> Option<&'a Block<f32>> {
        self.splats.features.as_ref().and_then(|features| features.gradients.as_ref())
    }

    /// True if the view has gradients of more than centres, conics, opacities and colours.
    fn is_extended(&self) -> bool {
        filters_screen(self.camera) || self.inverse_depths || self.d_features().is_some()
    }

    fn args(&self) -> ViewArgs<'a> {
        ViewArgs {
            splat_from_gaussian: self.splats.splat_from_gaussian.read(),
            gradients: self.splats.gradients.read(),
            d_features: self.d_features().map_or(In::NULL, Buffer::read),
            camera: *self.camera,
            sh_degree: self.sh_degree,
            by_distances: u32::from(self.gradients == PlaceGradients::EdgeDistances),
        }
    }
}

/// Moves every row down the mean gradient of 1 to `MAX_VIEWS` views. Colours that no view sees catch up later.
/// `surface`, [n, 12], is added to the gradients of the geometry, which are left in `kept`, [n, 12].
pub(crate) fn step<P: CudaPrimitive>(
    session: &mut Session,
    model: &mut Model<P>,
    views: &[StepView<'_>],
    surface: Option<&Block<f32>>,
    kept: Option<&mut Block<f32>>,
    step: &AdamStep,
) -> Result {
    let first = views.first().ok_or(DeviceError::NoView)?;
    let mut view_args = [first.args(); MAX_VIEWS as usize];
    if views.len() > view_args.len() {
        return Err(DeviceError::TooManyViews { most: view_args.len() });
    }
    for (args, view) in view_args.iter_mut().zip(views) {
        *args = view.args();
    }
    let has_regularisers = !step.regularisers.are_off();
    require::<P>(Capability::Noise, step.noise.is_some())?;
    let has_limit = step.scale_limit > 0.0;
    require::<P>(Capability::Regularisers, has_regularisers || has_limit)?;
    let kernels = Rc::clone(model.kernels());
    let kernels = kernels.stored(model.storage());
    if views.len() > 1 && kernels.step_views.is_none() {
        return Err(no_batches::<P>());
    }
    let Moments { betas, corrections: [first_correction, second_correction], epsilon } =
        step.moments;
    if model.momentum.must_catch_up(betas) {
        catch_up(session, model)?;
    }
    model.momentum.set_betas(betas);
    let mut columns = P::SCHEMA.columns.iter();
    let rates: [f64; RATES] =
        std::array::from_fn(|_| columns.next().map_or(0.0, |column| step.rates.of(column.rate)));
    let begun = session.timers.begin(Stage::Step, &session.stream)?;
    let (gaussians, sh_width) = (model.len(), model.sh_width());
    let key = RandomStream::new(session.seed, u64::from(step.number), RandomUse::RoundStep).key();
    let is_extended = model.optional().filter_3d
        || views.iter().any(StepView::is_extended)
        || has_regularisers
        || has_limit
        || step.noise.is_some()
        || surface.is_some()
        || kept.is_some();
    let kind = first.splats.kind;
    let kernel = match (&kernels.step_views, views.len(), is_extended) {
        (_, 2.., _) if kind == Records::Surfels => &kernels.surfels::<P>()?.step_views,
        _ if kind == Records::Surfels => &kernels.surfels::<P>()?.step,
        (_, 2.., _) if kind == Records::Triangles => &kernels.vertices::<P>()?.step_views,
        _ if kind == Records::Triangles => &kernels.vertices::<P>()?.step,
        (Some(step_views), 2.., _) => step_views,
        (_, _, true) => &kernels.step_extended,
        (_, _, false) => &kernels.step,
    };
    let filter_3d = if model.filter_3d.is_empty() { In::NULL } else { model.filter_3d.read() };
    let size = model.size();
    let [geometry, geometry_first, geometry_second, sh, sh_first, sh_second] =
        pointers(&mut model.tables);
    let root_correction = second_correction.sqrt();
    let travel = [step.rates.sh_dc, step.rates.sh_rest]
        .map(|rate| rate / first_correction * root_correction);
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
    let args = AdamArgs {
        geometry: geometry.floats(),
        geometry_first,
        geometry_second: geometry_second.floats(),
        sh,
        sh_first,
        sh_second,
        sh_steps: model.sh_steps.write(),
        cache: model.lines.args(&size, model.momentum.steps() + 1),
        sh_drifts: if P::SCHEMA.is_lazy() { model.sh_drifts.write() } else { Out::NULL },
        views: view_args,
        fault: session.status.fault(P::SCHEMA),
        filter_3d,
        surface: surface.map_or(In::NULL, Buffer::read),
        d_geometry: kept.map_or(Out::NULL, Buffer::write),
        key,
        noise_key: step.noise.map_or(0, |noise| noise.key),
        lazy: model.momentum.now(),
        rates: rates.map(|rate| (rate / first_correction) as f32),
        beta_1: betas[0] as f32,
        beta_2: betas[1] as f32,
        // From double precision: 1 - 0.999 in single precision has a relative error of 1e-5.
        one_less_beta_1: (1.0 - betas[0]) as f32,
        one_less_beta_2: (1.0 - betas[1]) as f32,
        inverse_root_correction: (1.0 / root_correction) as f32,
        epsilon: epsilon as f32,
        gaussians: count_u32(gaussians)?,
        view_count: count_u32(views.len())?,
        view_share: (1.0 / views.len() as f64) as f32,
        sh_width,
        d_opacity: (step.regularisers.opacity / gaussians as f64) as f32,
        d_scale: (step.regularisers.scale / (3.0 * gaussians as f64)) as f32,
        noise_rate: step.noise.map_or(0.0, |noise| noise.rate) as f32,
        size_exponent: step.by_size.map_or(0.0, |by_size| by_size.exponent) as f32,
        size_offset: step.by_size.map_or(0.0, |by_size| by_size.offset()) as f32,
        seen_only: u32::from(step.regularisers.reach == Reach::Seen),
        noise_longest: step.noise.map_or(0.0, |noise| match noise.moved {
            MotionReach::All => 0.0,
            MotionReach::Unseen { longest } => longest as f32,
        }),
        sh_kept: (1.0 - step.sh_decay) as f32,
        scale_limit: step.scale_limit as f32,
        reserved: 0,
    };
    kernel.over(&session.stream, gaussians, &args)?;
    model.momentum.stepped(travel);
    if model.momentum.is_full() {
        catch_up(session, model)?;
    }
    session.timers.end(&begun, &session.stream)
}
