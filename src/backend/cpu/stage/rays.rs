//! Stage `rays`: the visible Gaussians in a form for ray intersection, median depths of pixels, transmittances to
//! points, and the gradients.
//!
//! Rows of tiles run in parallel. Each pixel intersects the Gaussians in its tile's list.

use rayon::prelude::*;

use super::bin::Bins;
use crate::backend::NOT_SEEN;
use crate::backend::cpu::primitive::{DensityField, Splat};
use crate::math::Real;
use crate::math::blend::TRANSMITTANCE_MIN;
use crate::math::field::{GEOMETRY, place_px};
use crate::math::linalg::{Vec3, add, add_to, mul};
use crate::math::splat::{Rect, TILE, Viewpoint};
use crate::math::transmittance::{
    FALL_MIN, OnRay, RayGaussian, RayGaussianGradient, fall, median_depth,
};

/// Returns one Gaussian per splat.
pub(crate) fn rays<R: Real>(
    field: &dyn DensityField<R>,
    view: &Viewpoint<R>,
    splats: &[Splat<R>],
) -> Vec<RayGaussian<R>> {
    splats
        .par_iter()
        .map(|splat| {
            let ellipsoid = field.ellipsoid(splat.row);
            RayGaussian::new(view, &ellipsoid.shape, ellipsoid.opacity_logit)
        })
        .collect()
}

/// Adds the gradients of splats along rays to the geometry of their rows, `[rows, 11]`.
pub(crate) fn backward<R: Real>(
    field: &dyn DensityField<R>,
    view: &Viewpoint<R>,
    splats: &[Splat<R>],
    d_rays: &[RayGaussianGradient<R>],
    d_geometry: &mut [[R; GEOMETRY]],
) {
    for (splat, d_ray) in splats.iter().zip(d_rays) {
        let ellipsoid = field.ellipsoid(splat.row);
        let d = RayGaussian::new_bwd(view, &ellipsoid.shape, ellipsoid.opacity_logit, d_ray);
        add_to(&mut d_geometry[splat.row], &d);
    }
}

/// Returns the depths at which half of the light is stopped, world units along the view axis, `[height, width]`; 0 if
/// there is none.
pub(crate) fn median_depths<R: Real>(
    rays: &[RayGaussian<R>],
    bins: &Bins,
    view: &Viewpoint<R>,
) -> Vec<R> {
    let [width, height] = view.size.map(|side| side as usize);
    let mut depths = vec![R::ZERO; width * height];
    let band = (width * TILE as usize).max(1);
    depths.par_chunks_mut(band).zip(0..bins.tiles[1]).for_each(|(depths, tile_y)| {
        let mut met = Vec::new();
        for (area, list) in bins.row(tile_y, view.size) {
            for y in area.y0..area.y1 {
                for x in area.x0..area.x1 {
                    meet(rays, list, view.slopes([x, y]), &mut met);
                    let at = (y % TILE) as usize * width + x as usize;
                    depths[at] = median_depth(&met, view.near).unwrap_or(R::ZERO);
                }
            }
        }
    });
    depths
}

/// Median depths of a view and their gradients, `[height, width]`.
#[derive(Clone, Copy)]
pub(crate) struct MedianGradient<'a, R> {
    pub(crate) depths: &'a [R],
    pub(crate) d_depths: &'a [R],
}

/// Returns the gradients of the Gaussians along rays by those of the median depths, one per splat.
pub(crate) fn median_bwd<R: Real>(
    rays: &[RayGaussian<R>],
    bins: &Bins,
    view: &Viewpoint<R>,
    medians: MedianGradient<'_, R>,
) -> Vec<RayGaussianGradient<R>> {
    let visit = |area: Rect, list: &[usize], out: &mut [RayGaussianGradient<R>]| {
        add_tile(rays, list, area, view, medians, out);
    };
    bins.sums(rays.len(), view.size, visit, RayGaussianGradient::add)
}

/// Adds the gradients of a tile's pixels to each Gaussian in its list.
fn add_tile<R: Real>(
    rays: &[RayGaussian<R>],
    list: &[usize],
    area: Rect,
    view: &Viewpoint<R>,
    MedianGradient { depths, d_depths }: MedianGradient<'_, R>,
    out: &mut [RayGaussianGradient<R>],
) {
    let mut met = Vec::new();
    for y in area.y0..area.y1 {
        for x in area.x0..area.x1 {
            let at = view.index([x, y]);
            let (depth, d_depth) = (depths[at], d_depths[at]);
            if d_depth == R::ZERO {
                continue;
            }
            let slopes = view.slopes([x, y]);
            meet(rays, list, slopes, &mut met);
            let fall = fall(met.iter().copied(), depth);
            if fall * depth < R::of(FALL_MIN) {
                continue;
            }
            let d_log = d_depth / fall;
            for (&index, sums) in list.iter().zip(out.iter_mut()) {
                rays[index].log_transmittance_bwd(slopes, depth, d_log, sums);
            }
        }
    }
}

/// Collects the Gaussians of a list that a ray intersects, in list order.
pub(crate) fn meet<R: Real>(
    rays: &[RayGaussian<R>],
    list: &[usize],
    slopes: [R; 2],
    met: &mut Vec<OnRay<R>>,
) {
    met.clear();
    met.extend(list.iter().filter_map(|&index| rays[index].met_on_ray(slopes)));
}

/// Returns the transmittance at each point (world units); [`NOT_SEEN`] outside the view.
pub(crate) fn transmittances<R: Real>(
    rays: &[RayGaussian<R>],
    bins: &Bins,
    view: &Viewpoint<R>,
    places: &[[f32; 3]],
) -> Vec<f32> {
    let of = |place: &[f32; 3]| {
        let place_cam = add(mul(&view.rotation, place.map(R::of_f32)), view.translation);
        let Some(list) = list_at(bins, view, place_cam) else { return NOT_SEEN };
        let [x, y, depth] = place_cam;
        let slopes = [x / depth, y / depth];
        let dark = R::of(TRANSMITTANCE_MIN * TRANSMITTANCE_MIN);
        let mut squared = R::ONE;
        for &index in list {
            if let Some(on_ray) = rays[index].met_on_ray(slopes) {
                squared *= on_ray.squared_transmittance(depth);
            }
            // Factors are at most 1, so the product cannot recover.
            if squared < dark {
                return 0.0;
            }
        }
        squared.sqrt().to_f32()
    };
    places.par_iter().map(of).collect()
}

/// Returns the splats of the tile that a point projects to; `None` outside the view.
fn list_at<'a, R: Real>(
    bins: &'a Bins,
    view: &Viewpoint<R>,
    place_cam: Vec3<R>,
) -> Option<&'a [usize]> {
    let place = place_px(view, place_cam)?;
    let [x, y] = [0, 1].map(|axis| {
        let pixel = u32::try_from(place[axis].floor_i32()).unwrap_or(0);
        pixel.min(view.size[axis].saturating_sub(1)) / TILE
    });
    Some(&bins.splat_from_instance[bins.range(x, y)])
}
