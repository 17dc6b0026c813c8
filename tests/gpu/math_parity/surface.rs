//! How the twins of what the terms of surfaces are made of are called.

use splat::math::Real;
use splat::math::field::{self, DensityKernel, DensityKernelGradient};
use splat::math::splat::Shape;

use super::{quat, triple};

pub(super) fn kernel<R: Real>(v: &[R]) -> DensityKernel<R> {
    let (log_scale, quat) = (triple(v), quat(&v[3..]));
    let shape = Shape { mean_world: [R::ZERO; 3], log_scale, quat, smoothing: R::ZERO };
    DensityKernel::new(&shape, v[7])
}

fn flat<R: Real>(d: &DensityKernelGradient<R>) -> Vec<R> {
    [&d.d_mean_world[..], &d.d_log_scale, d.d_axes.as_flattened(), &[d.d_opacity_logit]].concat()
}

pub(super) fn dense_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let (kernel, offset, mut d) = (kernel(v), triple(&v[8..]), DensityKernelGradient::default());
    let (whitened, density) = field::density(&kernel, offset);
    d.d_mean_world = field::density_bwd(&kernel, offset, whitened, density, v[11], &mut d);
    flat(&d)
}

pub(super) fn sampled_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let mut d = DensityKernelGradient::default();
    field::sample_bwd(&kernel(v), triple(&v[8..]), triple(&v[11..]), v[14], &mut d);
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
