//! Stage `regularise`: what has Gaussians lie on surfaces (SuGaR: Guédon and Lepetit 2024, section
//! 4.1), and its gradients of their geometry.
//!
//! Samples are looked at in blocks, and what a block says of a Gaussian is added up in the order of the
//! samples, so that sums do not depend on the number of threads.

use rayon::prelude::*;

use super::model::{Model, Parameter};
use super::{Gradients, Neighbours, ViewGradients};
use crate::backend::{DeviceError, SurfaceRule, SurfaceTerms};
use crate::math::Real;
use crate::math::field::{
    Bump, BumpGradient, GEOMETRY, aligned, density, density_bwd, entropy, entropy_bwd, normal_bwd,
    normal_weight, normal_weight_factor, sample_along, sample_bwd, sample_offset, sign,
    surface_density, surface_density_bwd, surface_thickness, surface_thickness_bwd,
};
use crate::math::linalg::{Vec3, add, dot, scale, sub};
use crate::math::noise::standard_normals;
use crate::math::random::{Purpose, Stream};

/// Samples whose gradients are held at a time.
const BLOCK: usize = 4096;

/// Gradients of one Gaussian's geometry, as [`BumpGradient::row`] orders them.
type Row<R> = [R; GEOMETRY];

/// Adds the gradients of what the rule asks for, and gives the terms' values.
pub(super) fn regularise<R: Real>(
    model: &Model<R>,
    near: Option<&Neighbours>,
    gradients: &mut Gradients<R>,
    rule: &SurfaceRule,
) -> Result<SurfaceTerms, DeviceError> {
    let view = the_view(&mut gradients.views)?;
    // By its name, before it spreads to its neighbours.
    view.fault.take().map_or(Ok(()), Err)?;
    let near = if rule.is_sampled() {
        let near = near.ok_or(DeviceError::NoNeighbours)?;
        near.check(model)?;
        Some(near)
    } else {
        None
    };
    let visible = &view.gaussian_from_splat;
    let mut terms = SurfaceTerms::default();
    if visible.is_empty() || (near.is_none() && rule.entropy == 0.0) {
        return Ok(terms);
    }
    gradients.geometry.resize(model.len() * GEOMETRY, R::ZERO);
    let rows = gradients.geometry.as_chunks_mut().0;
    if rule.entropy != 0.0 {
        terms.entropy = regularise_opacities(model, visible, rule.entropy, rows);
    }
    if let Some(near) = near {
        [terms.density, terms.normal] = Sampler::new(model, near, visible, rule).run(rows);
    }
    finite(terms)
}

/// The one view whose Gaussians are looked at.
fn the_view<R>(views: &mut [ViewGradients<R>]) -> Result<&mut ViewGradients<R>, DeviceError> {
    match views {
        [view] => Ok(view),
        [] => Err(DeviceError::NoLoss),
        _ => Err(DeviceError::OneViewPerStep),
    }
}

/// A term that left the finite numbers has taken gradients along.
fn finite(terms: SurfaceTerms) -> Result<SurfaceTerms, DeviceError> {
    let all = [terms.entropy, terms.density, terms.normal];
    match all.into_iter().find(|value| !value.is_finite()) {
        Some(value) => Err(DeviceError::LossNotFinite { value }),
        None => Ok(terms),
    }
}

/// Adds the gradients of the mean entropy of these opacities times `weight`; gives the mean.
fn regularise_opacities<R: Real>(
    model: &Model<R>,
    visible: &[usize],
    weight: f64,
    rows: &mut [Row<R>],
) -> f64 {
    let count = visible.len() as f64;
    let d_entropy = R::of(weight / count);
    let each: Vec<(R, R)> = visible
        .par_iter()
        .map(|&row| {
            let logit = model.row(Parameter::OpacityLogits, row)[0];
            (entropy(logit), entropy_bwd(logit, d_entropy))
        })
        .collect();
    let mut sum = 0.0;
    for (&row, (value, d_logit)) in visible.iter().zip(each) {
        sum += value.to_f64();
        rows[row][GEOMETRY - 1] += d_logit;
    }
    sum / count
}

/// Takes samples of the Gaussians that a view sees.
struct Sampler<'a, R> {
    model: &'a Model<R>,
    near: &'a Neighbours,
    /// Rows of the Gaussians that are seen, ascending.
    visible: &'a [usize],
    samples: usize,
    /// Which Gaussians samples are taken of, and where in them.
    slots: Stream,
    places: Stream,
    /// What a sample's terms are worth; 0 of those that are off.
    d_density_error: R,
    d_normal_error: R,
}

/// A neighbour of the Gaussian that a sample was taken of.
struct Neighbour<R> {
    row: usize,
    bump: Bump<R>,
    /// Of the sample from its centre, in the world's units and in those of its scales.
    offset: Vec3<R>,
    whitened: Vec3<R>,
    /// Its own at the sample.
    density: R,
    gradient: BumpGradient<R>,
}

impl<'a, R: Real> Sampler<'a, R> {
    fn new(
        model: &'a Model<R>,
        near: &'a Neighbours,
        visible: &'a [usize],
        rule: &SurfaceRule,
    ) -> Self {
        let stream = |purpose| Stream::new(rule.seed, u64::from(rule.iteration), purpose);
        let share = |weight| R::of(weight / f64::from(rule.samples));
        Self {
            model,
            near,
            visible,
            samples: rule.samples as usize,
            slots: stream(Purpose::SurfaceSample),
            places: stream(Purpose::SurfaceNormal),
            d_density_error: share(rule.density),
            d_normal_error: share(rule.normal),
        }
    }

    /// Adds the gradients of all samples to the Gaussians' rows; gives the means of the terms.
    fn run(&self, rows: &mut [Row<R>]) -> [f64; 2] {
        // The Gaussian that the sample is of comes before its neighbours.
        let width = 1 + self.near.width();
        let mut block = vec![[R::ZERO; GEOMETRY]; width * BLOCK.min(self.samples)];
        let mut sums = [0.0; 2];
        for start in (0..self.samples).step_by(BLOCK) {
            let count = BLOCK.min(self.samples - start);
            let taken: Vec<(usize, [R; 2])> = block[..count * width]
                .par_chunks_mut(width)
                .enumerate()
                .map_init(Vec::new, |near, (i, rows)| self.sample((start + i) as u64, near, rows))
                .collect();
            for (_, terms) in &taken {
                sums = [sums[0] + terms[0].to_f64(), sums[1] + terms[1].to_f64()];
            }
            self.scatter(&taken, &block, rows);
        }
        sums.map(|sum| sum / self.samples as f64)
    }

    /// Adds what a block of samples says. Every thread looks through all of it for the Gaussians of
    /// its own, so that each hears the samples in their order.
    fn scatter(&self, taken: &[(usize, [R; 2])], block: &[Row<R>], rows: &mut [Row<R>]) {
        let share = rows.len().div_ceil(rayon::current_num_threads());
        rows.par_chunks_mut(share).enumerate().for_each(|(part, rows)| {
            let first = part * share;
            let mut hear = |row: usize, gradient: &Row<R>| {
                if let Some(sum) = row.checked_sub(first).and_then(|row| rows.get_mut(row)) {
                    for (sum, d) in sum.iter_mut().zip(gradient) {
                        *sum += *d;
                    }
                }
            };
            for (&(own, _), said) in taken.iter().zip(block.chunks(1 + self.near.width())) {
                hear(own, &said[0]);
                for (&row, gradient) in self.near.of(own).iter().zip(&said[1..]) {
                    hear(row as usize, gradient);
                }
            }
        });
    }

    /// Takes one sample: the row of its Gaussian, the terms' values, and into `rows` the gradients of
    /// that Gaussian and of its neighbours.
    fn sample(
        &self,
        index: u64,
        near: &mut Vec<Neighbour<R>>,
        rows: &mut [Row<R>],
    ) -> (usize, [R; 2]) {
        // As many numbers apart as a device draws at a time.
        let own_row = self.visible[self.slots.below(2 * index, self.visible.len())];
        let own = self.bump(own_row);
        let along = sample_along(&own, standard_normals(self.places, index).map(R::of_f32));
        let offset = sample_offset(&own, along);
        near.clear();
        near.extend(self.near.of(own_row).iter().map(|&row| self.neighbour(row, &own, offset)));

        let mut gradient = BumpGradient::default();
        let terms = [
            self.compare_densities(&own, along, near, &mut gradient),
            self.compare_normals(&own, near, &mut gradient),
        ];
        rows[0] = gradient.row(self.model.shape(own_row).quat);
        for (row, neighbour) in rows[1..].iter_mut().zip(near.iter()) {
            *row = neighbour.gradient.row(self.model.shape(neighbour.row).quat);
        }
        (own_row, terms)
    }

    fn bump(&self, row: usize) -> Bump<R> {
        let opacity_logit = self.model.row(Parameter::OpacityLogits, row)[0];
        Bump::new(&self.model.shape(row), opacity_logit)
    }

    fn neighbour(&self, row: u32, own: &Bump<R>, offset: Vec3<R>) -> Neighbour<R> {
        let row = row as usize;
        let bump = self.bump(row);
        let offset = add(sub(own.mean_world, bump.mean_world), offset);
        let (whitened, density) = density(&bump, offset);
        Neighbour { row, bump, offset, whitened, density, gradient: BumpGradient::default() }
    }

    /// The absolute difference between the density at the sample and that of a surface through the
    /// Gaussian's middle plane.
    fn compare_densities(
        &self,
        own: &Bump<R>,
        along: Vec3<R>,
        near: &mut [Neighbour<R>],
        d_own: &mut BumpGradient<R>,
    ) -> R {
        if self.d_density_error == R::ZERO {
            return R::ZERO;
        }
        let found: R = near.iter().map(|n| n.density).sum();
        let beta = surface_thickness(near.iter().map(|n| n.bump.thickness()).sum(), near.len());
        let distance = along[own.thin];
        let target = surface_density(distance, beta);

        let error = found - target;
        let d_found = self.d_density_error * sign(error);
        let [d_distance, d_beta] = surface_density_bwd(distance, beta, target, -d_found);
        let (mut d_place, count) = ([R::ZERO; 3], near.len());
        for Neighbour { bump, offset, whitened, density, gradient, .. } in near {
            let d_offset = density_bwd(bump, *offset, (*whitened, *density), d_found, gradient);
            d_place = add(d_place, d_offset);
            gradient.d_mean_world = sub(gradient.d_mean_world, d_offset);
            gradient.d_log_scale[bump.thin] += surface_thickness_bwd(bump, beta, count, d_beta);
        }
        sample_bwd(own, along, d_place, d_distance, d_own);
        error.abs()
    }

    /// The squared difference between the Gaussian's normal and the weighted mean of its neighbours'.
    fn compare_normals(
        &self,
        own: &Bump<R>,
        near: &mut [Neighbour<R>],
        d_own: &mut BumpGradient<R>,
    ) -> R {
        if self.d_normal_error == R::ZERO {
            return R::ZERO;
        }
        let normal = own.normal();
        let (mut mean, mut sum) = ([R::ZERO; 3], R::ZERO);
        for Neighbour { bump, offset, density, .. } in near.iter() {
            let weight = normal_weight(bump, *offset, *density);
            mean = add(mean, scale(aligned(bump.normal(), normal).0, weight));
            sum += weight;
        }
        let factor = normal_weight_factor(sum);
        let residual = sub(normal, scale(mean, factor));

        let d_normal = scale(residual, R::TWO * self.d_normal_error);
        for Neighbour { bump, offset, density, gradient, .. } in near {
            let weight = factor * normal_weight(bump, *offset, *density);
            let (_, side) = aligned(bump.normal(), normal);
            normal_bwd(bump, scale(d_normal, -weight * side), gradient);
        }
        normal_bwd(own, d_normal, d_own);
        dot(residual, residual)
    }
}
