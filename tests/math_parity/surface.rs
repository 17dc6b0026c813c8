//! Of the functions that the terms of surfaces are made of: how their twins are called, and what those
//! without a probe are reached through.

use splat::math::Real;
use splat::math::field::{self, Bump, BumpGradient};
use splat::math::splat::Shape;

use super::{quat, triple};

/// As the table of the others.
pub(super) const REACHED_THROUGH: &[(&str, &str)] = &[
    ("pick", "thickness"),
    ("thickness", "normal_weight"),
    ("add_to", "normal_bwd"),
    ("times", "sample_along"),
    ("thinnest", "bump_of"),
    ("bump_of", "load_bump"),
    ("load_bump", "take_samples"),
    ("inverse_scale_of", "density"),
    ("sample_along", "take_samples"),
    ("sample_offset", "take_samples"),
    ("add_outer", "density_bwd"),
    ("surface_thickness", "density_term"),
    ("surface_thickness_bwd", "density_term"),
    ("density_term", "take_samples"),
    ("sign", "aligned"),
    ("normal_of", "normal_term"),
    ("normal_weight_factor", "normal_term"),
    ("normal_bwd", "normal_term"),
    ("normal_term", "take_samples"),
    ("take_samples", "regularise_16"),
];

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
