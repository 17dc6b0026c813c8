//! Stage `surface`: regularisers that align Gaussians with surfaces (SuGaR: Guédon and Lepetit 2024, section 4.1),
//! and their gradients.

use rayon::prelude::*;

use super::gradients::{DepthMap, Gradients};
use super::neighbours::NearestLists;
use crate::abi::terms::{
    At, Inputs, Means, SampleRule, Terms, VALUE_DENSITY, VALUE_ENTROPY, VALUE_NORMAL, VALUE_SDF,
};
use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::{DensityField, Drawable, Ellipsoid, density_field};
use crate::backend::{Capability, DeviceError, LossValues, check_inputs};
use crate::math::Real;
use crate::math::field::{
    DISTANCE_DENSITY_FACTOR, DensityKernel, DensityKernelGradient, GEOMETRY, PixelQuad, aligned,
    density, density_bwd, distance, distance_bwd, distance_error, distance_error_bwd, entropy,
    entropy_bwd, normal_bwd, normal_weight, normal_weight_factor, sample_along, sample_bwd,
    sample_offset, sign, surface_density, surface_density_bwd, surface_thickness,
    surface_thickness_bwd,
};
use crate::math::linalg::{Vec3, add, add_to, dot, scale, sub};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::relocate::standard_normals;
use crate::memory::Bytes;

/// Adds the gradients of the terms at samples of the last view; returns the terms' values.
pub(crate) fn regularise<R: Real, P: Drawable>(
    model: &Model<R, P>,
    near: Option<&NearestLists<P>>,
    gradients: &mut Gradients<R, P>,
    terms: &Terms,
) -> Result<LossValues, DeviceError> {
    let field = density_field(model, Capability::Surfaces)?;
    let view = gradients.views.last_mut().ok_or(DeviceError::NoView)?;
    // Report a fault by its row, before it spreads to neighbours.
    view.fault.take().map_or(Ok(()), Err)?;
    check_inputs(
        terms,
        Inputs { inverse_depths: true, maps: true, median: true, other_view: true, ..Inputs::NONE },
        near.is_some(),
    )?;
    let near = near.filter(|_| terms.needs().samples);
    if let Some(near) = near {
        near.check(model)?;
    }
    let visible = &view.row_from_splat;
    let mut means = Means::default();
    let entropy_weight = terms.weight(VALUE_ENTROPY);
    if !visible.is_empty() {
        gradients.geometry.resize(model.len() * GEOMETRY, R::ZERO);
        let rows = gradients.geometry.as_chunks_mut().0;
        if entropy_weight != 0.0 {
            means[VALUE_ENTROPY as usize] =
                regularise_opacities(field, visible, entropy_weight, rows);
        }
        if let Some(near) = near {
            let map = view.depth_map.as_ref();
            let sampler = Sampler::new(model, near, visible.clone(), terms, map)?;
            let [density, normal, sdf] = sampler.run(rows);
            means[VALUE_DENSITY as usize] = density;
            means[VALUE_NORMAL as usize] = normal;
            means[VALUE_SDF as usize] = sdf;
        }
    }
    LossValues::of(terms.active_at(At::Samples), &means).checked()
}

/// Adds the weighted gradients of the mean entropy of these opacities; returns the mean.
fn regularise_opacities<R: Real>(
    field: &dyn DensityField<R>,
    visible: &[usize],
    weight: f64,
    rows: &mut [GeometryRow<R>],
) -> f64 {
    let count = visible.len() as f64;
    let d_entropy = R::of(weight / count);
    let each: Vec<(R, R)> = visible
        .par_iter()
        .map(|&row| {
            let logit = field.ellipsoid(row).opacity_logit;
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

// Stage `surface`: gradients of the depths that samples are compared with.

/// Depths of a frame and their gradient.
#[derive(Debug)]
pub(crate) struct Sampled<R> {
    pub(crate) map: DepthMap<R>,
    /// [height, width]
    d_depths: Vec<R>,
}

impl<R: Real> Sampled<R> {
    /// Starts with a zero gradient.
    pub(crate) fn new(map: DepthMap<R>) -> Self {
        let d_depths = vec![R::ZERO; map.depths.len()];
        Self { map, d_depths }
    }

    /// Adds the gradients of comparing the depths with the signed distances of samples of the visible rows.
    pub(crate) fn compare<P: Drawable>(
        &mut self,
        model: &Model<R, P>,
        near: &NearestLists<P>,
        visible: Vec<usize>,
        terms: &Terms,
    ) -> Result<(), DeviceError> {
        let Self { map, d_depths } = self;
        let sampler = Sampler::new(model, near, visible, terms, Some(map))?;
        sampler.each_depth(|cell, d_depth| {
            for (at, weight) in cell.pixels().into_iter().zip(cell.weights()) {
                d_depths[map.view.index(at)] += weight * d_depth;
            }
        });
        Ok(())
    }

    /// Adds the gradient to those of the surface map, `[height, width, 3]`, and of the final transmittance,
    /// `[height, width]`.
    pub(crate) fn add_to(&self, d_surface: &mut Vec<R>, d_through: &mut Vec<R>) {
        d_surface.resize(self.d_depths.len() * 3, R::ZERO);
        d_through.resize(self.d_depths.len(), R::ZERO);
        let pixels = d_surface.as_chunks_mut::<3>().0.iter_mut().zip(d_through);
        for ((d_surface, d_through), &d_depth) in pixels.zip(&self.d_depths) {
            d_surface[0] += d_depth;
            *d_through += d_depth * self.map.farthest;
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.map.bytes() + Bytes::of::<R>(self.d_depths.capacity())
    }
}

// Stage `surface`: samples, their comparisons, and the gradients.
//
// Samples are processed in blocks. The gradients of a block are added in sample order, so that sums do not depend on
// the thread count.

/// Number of samples whose gradients are held at once.
const BLOCK: usize = 4096;

/// Number of samples whose gradients one thread sorts by Gaussian.
const SORTED_AT_ONCE: usize = 256;

/// Gradients of one Gaussian's geometry, in the order of [`DensityKernelGradient::row`].
pub(crate) type GeometryRow<R> = [R; GEOMETRY];

/// Values of the terms of density, normal and distance.
type SampleTerms<R> = [R; 3];

/// An evaluated sample.
struct TakenSample<R> {
    /// Row of the sampled Gaussian.
    own_row: usize,
    terms: SampleTerms<R>,
}

/// Draws and compares samples of the Gaussians that a view sees.
pub(crate) struct Sampler<'a, R, P> {
    field: &'a dyn DensityField<R>,
    near: &'a NearestLists<P>,
    /// Kernels of all Gaussians, precomputed because each is used many times.
    kernels: Vec<DensityKernel<R>>,
    /// Rows of the sampled Gaussians, ascending.
    sampled: Vec<usize>,
    /// Depths to compare distances with, if any.
    map: Option<&'a DepthMap<R>>,
    distance_unit: R,
    samples: usize,
    /// Random streams of the sampled rows and of the positions in them.
    rows: RandomStream,
    places: RandomStream,
    /// Weights of a sample's terms; 0 if off.
    d_density_error: R,
    d_normal_error: R,
    d_distance_error: R,
}

/// A neighbour of a sampled Gaussian.
struct Neighbour<'a, R> {
    row: usize,
    kernel: &'a DensityKernel<R>,
    /// Offset of the sample from the neighbour's centre, in world units and in units of its scales.
    offset: Vec3<R>,
    whitened: Vec3<R>,
    /// Density of the neighbour at the sample.
    density: R,
    gradient: DensityKernelGradient<R>,
}

impl<'a, R: Real, P: Drawable> Sampler<'a, R, P> {
    /// Samples the Gaussians in `visible`, ascending; with a map only those near its surface.
    pub(crate) fn new(
        model: &'a Model<R, P>,
        near: &'a NearestLists<P>,
        mut visible: Vec<usize>,
        terms: &Terms,
        map: Option<&'a DepthMap<R>>,
    ) -> Result<Self, DeviceError> {
        let field = density_field(model, Capability::Surfaces)?;
        let kernels = kernels(field, model.len());
        if let Some(map) = map {
            visible.retain(|&row| map.has_near(&kernels[row]));
        }
        let SampleRule { count, seed, iteration } = terms.samples;
        let stream = |purpose| RandomStream::new(seed, u64::from(iteration), purpose);
        let share = |value| R::of(terms.weight(value) / f64::from(count));
        Ok(Self {
            field,
            near,
            kernels,
            sampled: visible,
            map,
            distance_unit: R::of(terms.sdf_unit().unwrap_or(1.0)),
            samples: count as usize,
            rows: stream(RandomUse::SurfaceSample),
            places: stream(RandomUse::SurfaceNormal),
            d_density_error: share(VALUE_DENSITY),
            d_normal_error: share(VALUE_NORMAL),
            d_distance_error: share(VALUE_SDF),
        })
    }

    /// Adds the gradients of all samples to the Gaussians' rows; returns the means of the terms.
    pub(crate) fn run(&self, rows: &mut [GeometryRow<R>]) -> SampleTerms<f64> {
        if self.sampled.is_empty() {
            return SampleTerms::default();
        }
        // The first of each sample's rows is that of its own Gaussian.
        let width = 1 + self.near.width();
        let mut block = vec![[R::ZERO; GEOMETRY]; width * BLOCK.min(self.samples)];
        let mut sums = SampleTerms::default();
        for start in (0..self.samples).step_by(BLOCK) {
            let count = BLOCK.min(self.samples - start);
            let taken: Vec<TakenSample<R>> = block[..count * width]
                .par_chunks_mut(width)
                .enumerate()
                .map_init(Vec::new, |near, (i, rows)| self.sample((start + i) as u64, near, rows))
                .collect();
            for TakenSample { terms, .. } in &taken {
                sums = add(sums, terms.map(Real::to_f64));
            }
            self.scatter(&taken, &block, rows);
        }
        sums.map(|sum| sum / self.samples as f64)
    }

    /// Adds the gradients of a block. Each thread owns a range of Gaussians and adds in sample order.
    fn scatter(
        &self,
        taken: &[TakenSample<R>],
        block: &[GeometryRow<R>],
        rows: &mut [GeometryRow<R>],
    ) {
        let share = rows.len().div_ceil(rayon::current_num_threads());
        let width = 1 + self.near.width();
        // Pairs of an index into the block and a local row, for each thread.
        let sorted: Vec<Vec<Vec<[usize; 2]>>> = taken
            .par_chunks(SORTED_AT_ONCE)
            .enumerate()
            .map(|(chunk, taken)| {
                let mut of_threads = vec![Vec::new(); rows.len().div_ceil(share)];
                for (sample, &TakenSample { own_row: own, .. }) in
                    (chunk * SORTED_AT_ONCE..).zip(taken)
                {
                    let near = self.near.of(own).iter().map(|&row| row as usize);
                    for (entry, row) in (sample * width..).zip(std::iter::once(own).chain(near)) {
                        of_threads[row / share].push([entry, row % share]);
                    }
                }
                of_threads
            })
            .collect();
        rows.par_chunks_mut(share).enumerate().for_each(|(thread, rows)| {
            for &[entry, row] in sorted.iter().flat_map(|of_threads| &of_threads[thread]) {
                add_to(&mut rows[row], &block[entry]);
            }
        });
    }

    /// Evaluates one sample and writes the gradients of its Gaussian and of the neighbours to `rows`.
    fn sample<'s>(
        &'s self,
        index: u64,
        near: &mut Vec<Neighbour<'s, R>>,
        rows: &mut [GeometryRow<R>],
    ) -> TakenSample<R> {
        let (own_row, along) = self.place(index, near);
        let own = &self.kernels[own_row];
        let mut gradient = DensityKernelGradient::default();
        let terms = [
            self.compare_densities(own, along, near, &mut gradient),
            self.compare_normals(own, near, &mut gradient),
            self.compare_distances(own, along, near, &mut gradient),
        ];
        rows[0] = gradient.row(self.field.ellipsoid(own_row).shape.quat);
        for (row, neighbour) in rows[1..].iter_mut().zip(near.iter()) {
            *row = neighbour.gradient.row(self.field.ellipsoid(neighbour.row).shape.quat);
        }
        TakenSample { own_row, terms }
    }

    /// Draws a sample: the row of its Gaussian, the position along its axes, and its neighbours.
    fn place<'s>(&'s self, index: u64, near: &mut Vec<Neighbour<'s, R>>) -> (usize, Vec3<R>) {
        // A GPU draws two numbers at a time.
        let own_row = self.sampled[self.rows.below(2 * index, self.sampled.len())];
        let own = &self.kernels[own_row];
        let along = sample_along(own, standard_normals(self.places, index).map(R::of_f32));
        let offset = sample_offset(own, along);
        near.clear();
        near.extend(self.near.of(own_row).iter().map(|&row| self.neighbour(row, own, offset)));
        (own_row, along)
    }

    fn neighbour(&self, row: u32, own: &DensityKernel<R>, offset: Vec3<R>) -> Neighbour<'_, R> {
        let row = row as usize;
        let kernel = &self.kernels[row];
        let offset = add(sub(own.mean_world, kernel.mean_world), offset);
        let (whitened, density) = density(kernel, offset);
        Neighbour {
            row,
            kernel,
            offset,
            whitened,
            density,
            gradient: DensityKernelGradient::default(),
        }
    }

    /// Returns the absolute difference between the density at the sample and that of an ideal surface through the
    /// Gaussian's middle plane.
    fn compare_densities(
        &self,
        own: &DensityKernel<R>,
        along: Vec3<R>,
        near: &mut [Neighbour<'_, R>],
        d_own: &mut DensityKernelGradient<R>,
    ) -> R {
        if self.d_density_error == R::ZERO {
            return R::ZERO;
        }
        let NearDensity { density: found, thickness: beta } = found(near);
        let distance = along[own.thin];
        let target = surface_density(distance, beta);

        let error = found - target;
        let d_found = self.d_density_error * sign(error);
        let [d_distance, d_beta] = surface_density_bwd(distance, beta, target, -d_found);
        let d_place = found_bwd(near, beta, [d_found, d_beta]);
        sample_bwd(own, along, d_place, d_distance, d_own);
        error.abs()
    }

    /// Returns the absolute difference between the signed distance by density and by the view's depths; 0 for samples
    /// outside the view.
    fn compare_distances(
        &self,
        own: &DensityKernel<R>,
        along: Vec3<R>,
        near: &mut [Neighbour<'_, R>],
        d_own: &mut DensityKernelGradient<R>,
    ) -> R {
        let Some(map) = self.map else { return R::ZERO };
        let Some(lookup) = map.look_up(own, sample_offset(own, along)) else { return R::ZERO };
        let compared = self.distance_error(near, lookup.height);
        let DistanceError { error, beta, d_found, d_beta, d_height } = compared;
        let d_density = found_bwd(near, beta, [d_found, d_beta]);
        let d_place = add(d_density, map.lookup_bwd(&lookup, d_height));
        sample_bwd(own, along, d_place, R::ZERO, d_own);
        error
    }

    fn distance_error(&self, near: &[Neighbour<'_, R>], height: R) -> DistanceError<R> {
        let NearDensity { density: found, thickness: beta } = found(near);
        let factor = R::of(DISTANCE_DENSITY_FACTOR);
        let predicted = distance(factor * found, beta);
        let error = distance_error(predicted, height, self.distance_unit);
        let [d_predicted, d_height] =
            distance_error_bwd(predicted, height, self.distance_unit, self.d_distance_error);
        let [d_density, d_beta] = distance_bwd(factor * found, beta, d_predicted);
        DistanceError { error, beta, d_found: factor * d_density, d_beta, d_height }
    }

    /// Visits the map positions at which samples are compared, in sample order, with the gradients of the depths.
    pub(crate) fn each_depth(&self, mut visit: impl FnMut(&PixelQuad<R>, R)) {
        let Some(map) = self.map.filter(|_| !self.sampled.is_empty()) else { return };
        for start in (0..self.samples).step_by(BLOCK) {
            let end = self.samples.min(start + BLOCK);
            let gradients: Vec<Option<(PixelQuad<R>, R)>> = (start..end)
                .into_par_iter()
                .map_init(Vec::new, |near, index| {
                    let (own_row, along) = self.place(index as u64, near);
                    let own = &self.kernels[own_row];
                    let lookup = map.look_up(own, sample_offset(own, along))?;
                    Some((lookup.cell, self.distance_error(near, lookup.height).d_height))
                })
                .collect();
            gradients.iter().flatten().for_each(|(cell, d_depth)| visit(cell, *d_depth));
        }
    }

    /// Returns the squared difference between the Gaussian's normal and the weighted mean of its neighbours'.
    fn compare_normals(
        &self,
        own: &DensityKernel<R>,
        near: &mut [Neighbour<'_, R>],
        d_own: &mut DensityKernelGradient<R>,
    ) -> R {
        if self.d_normal_error == R::ZERO {
            return R::ZERO;
        }
        let normal = own.normal();
        let (mut mean, mut sum) = ([R::ZERO; 3], R::ZERO);
        for Neighbour { kernel, offset, density, .. } in near.iter() {
            let weight = normal_weight(kernel, *offset, *density);
            mean = add(mean, scale(aligned(kernel.normal(), normal).0, weight));
            sum += weight;
        }
        let factor = normal_weight_factor(sum);
        let residual = sub(normal, scale(mean, factor));

        let d_normal = scale(residual, R::TWO * self.d_normal_error);
        for Neighbour { kernel, offset, density, gradient, .. } in near {
            let weight = factor * normal_weight(kernel, *offset, *density);
            let (_, side) = aligned(kernel.normal(), normal);
            normal_bwd(kernel, scale(d_normal, -weight * side), gradient);
        }
        normal_bwd(own, d_normal, d_own);
        dot(residual, residual)
    }
}

/// Precomputes the kernels of all Gaussians.
fn kernels<R: Real>(field: &dyn DensityField<R>, count: usize) -> Vec<DensityKernel<R>> {
    let kernel = |row| {
        let Ellipsoid { shape, opacity_logit } = field.ellipsoid(row);
        DensityKernel::new(&shape, opacity_logit)
    };
    (0..count).into_par_iter().map(kernel).collect()
}

/// Distance error of a sample and its gradients.
struct DistanceError<R> {
    error: R,
    /// Thickness of the surface that the neighbours form.
    beta: R,
    /// Weighted gradients of the neighbours' density, of the thickness, and of the distance of the map's surface behind
    /// the sample.
    d_found: R,
    d_beta: R,
    d_height: R,
}

/// Density of a sample's neighbours.
struct NearDensity<R> {
    /// Density at the sample.
    density: R,
    /// Thickness of the surface that they form.
    thickness: R,
}

fn found<R: Real>(near: &[Neighbour<'_, R>]) -> NearDensity<R> {
    let sum = near.iter().map(|n| n.kernel.thickness()).sum();
    let density = near.iter().map(|n| n.density).sum();
    NearDensity { density, thickness: surface_thickness(sum, near.len()) }
}

/// Adds the gradients of [`found`] to the neighbours' and returns that of the sample's position.
fn found_bwd<R: Real>(
    near: &mut [Neighbour<'_, R>],
    beta: R,
    [d_found, d_beta]: [R; 2],
) -> Vec3<R> {
    let (mut d_place, count) = ([R::ZERO; 3], near.len());
    for Neighbour { kernel, offset, whitened, density, gradient, .. } in near {
        let d_offset = density_bwd(kernel, *offset, *whitened, *density, d_found, gradient);
        d_place = add(d_place, d_offset);
        gradient.d_mean_world = sub(gradient.d_mean_world, d_offset);
        gradient.d_log_scale[kernel.thin] += surface_thickness_bwd(kernel, beta, count, d_beta);
    }
    d_place
}
