//! Stage `median`: the depth of each pixel at which half of the light is stopped, and its gradients.
//!
//! Rows of tiles run in parallel. Each pixel intersects the Gaussians in its tile's list.

use rayon::prelude::*;

use super::bin::Bins;
use super::blend::split_by_tile_row;
use crate::math::Real;
use crate::math::splat::{Rect, TILE, Viewpoint};
use crate::math::transmittance::{
    FALL_MIN, OnRay, RayGaussian, RayGaussianGradient, fall, median_depth,
};

/// Returns the median depths, world units along the view axis, `[height, width]`; 0 if there is none.
pub(crate) fn depths<R: Real>(rays: &[RayGaussian<R>], bins: &Bins, view: &Viewpoint<R>) -> Vec<R> {
    let [width, height] = view.size.map(|side| side as usize);
    let mut depths = vec![R::ZERO; width * height];
    let band = (width * TILE as usize).max(1);
    depths.par_chunks_mut(band).zip(0..bins.tiles[1]).for_each(|(depths, tile_y)| {
        let mut met = Vec::new();
        for tile_x in 0..bins.tiles[0] {
            let list = &bins.splat_from_instance[bins.range(tile_x, tile_y)];
            let area = Rect::of_tile(tile_x, tile_y, view.size);
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

/// Returns the gradients of the Gaussians along rays, one per splat.
pub(crate) fn backward<R: Real>(
    rays: &[RayGaussian<R>],
    bins: &Bins,
    view: &Viewpoint<R>,
    medians: MedianGradient<'_, R>,
) -> Vec<RayGaussianGradient<R>> {
    let mut per_instance = vec![RayGaussianGradient::default(); bins.splat_from_instance.len()];
    split_by_tile_row(&mut per_instance, bins).into_par_iter().for_each(|(tile_y, row)| {
        let row_start = bins.range(0, tile_y).start;
        for tile_x in 0..bins.tiles[0] {
            let range = bins.range(tile_x, tile_y);
            let out = &mut row[range.start - row_start..range.end - row_start];
            let list = &bins.splat_from_instance[range];
            add_tile(rays, list, Rect::of_tile(tile_x, tile_y, view.size), view, medians, out);
        }
    });
    // A single thread adds in instance order, so that sums do not depend on timing.
    let mut per_splat = vec![RayGaussianGradient::default(); rays.len()];
    for (&splat, gradient) in bins.splat_from_instance.iter().zip(&per_instance) {
        per_splat[splat].add(gradient);
    }
    per_splat
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
            let at = y as usize * view.size[0] as usize + x as usize;
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
    met.extend(list.iter().map(|&index| rays[index].on_ray(slopes)).filter(OnRay::is_met));
}
