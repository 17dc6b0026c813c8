//! Part of the stage `densify`: changes of all opacities.

use crate::abi::{FadeArgs, ResetArgs};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::model::tables::{GEOMETRY, GEOMETRY_FIRST, Model};
use crate::backend::cuda::session::Session;
use crate::math::{Real, inverse_sigmoid};

/// Lowers every opacity to at most `ceiling` and forgets the opacities' moments.
pub(crate) fn reset_opacity(
    session: &Session,
    model: &mut Model,
    ceiling: f64,
) -> Result<(), DeviceError> {
    let rows = model.len();
    let first_width = model.kernel_widths()[GEOMETRY_FIRST];
    let [geometry, geometry_first, geometry_second, ..] = model.tables();
    let args = ResetArgs {
        geometry: geometry.floats(),
        geometry_first,
        geometry_second: geometry_second.floats(),
        first_width,
        n: count_u32(rows)?,
        ceiling_logit: inverse_sigmoid(f32::of(ceiling)),
    };
    session.kernels.reset_opacity.over(&session.stream, rows, &args)
}

/// Multiplies every opacity by a factor, but not to below a floor, and forgets all moments. Colours have
/// caught up.
pub(crate) fn fade_opacity(
    session: &Session,
    model: &mut Model,
    factor: f64,
    floor: f64,
) -> Result<(), DeviceError> {
    let rows = model.len();
    let args = FadeArgs {
        geometry: model.tables()[GEOMETRY].floats(),
        n: count_u32(rows)?,
        factor: f32::of(factor),
        floor: f32::of(floor),
        reserved: 0,
    };
    session.kernels.fade_opacity.over(&session.stream, rows, &args)?;
    model.forget_moments(session)
}
