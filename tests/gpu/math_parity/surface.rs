//! How the twins of what the terms of surfaces are made of are called.

use splat::math::Real;
use splat::math::field::{self, Bump, BumpGradient};
use splat::math::splat::Shape;

use super::{quat, triple};

pub(super) fn bump<R: Real>(v: &[R]) -> Bump<R> {
    let (log_scale, quat) = (triple(v), quat(&v[3..]));
    let shape = Shape { mean_world: [R::ZERO; 3], log_scale, quat, smoothing: R::ZERO };
    Bump::new(&shape, v[7])
}

fn flat<R: Real>(d: &BumpGradient<R>) -> Vec<R> {
    [&d.d_mean_world[..], &d.d_log_scale, d.d_axes.as_flattened(), &[d.d_opacity_logit]].concat()
}

pub(super) fn dense_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let (bump, offset, mut d) = (bump(v), triple(&v[8..]), BumpGradient::default());
    let found = field::density(&bump, offset);
    d.d_mean_world = field::density_bwd(&bump, offset, found, v[11], &mut d);
    flat(&d)
}

pub(super) fn sampled_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let mut d = BumpGradient::default();
    field::sample_bwd(&bump(v), triple(&v[8..]), triple(&v[11..]), v[14], &mut d);
    flat(&d)
}

pub(super) fn surface_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let target = field::surface_density(v[0], v[1]);
    field::surface_density_bwd(v[0], v[1], target, v[2]).to_vec()
}

pub(super) fn turned<R: Real>(v: &[R]) -> Vec<R> {
    let (normal, side) = field::aligned(triple(v), triple(&v[3..]));
    [&normal[..], &[side]].concat()
}
