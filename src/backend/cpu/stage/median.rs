//! Stage `median`: the depth of each pixel by which half of the light is stopped.
//!
//! Rows of tiles run in parallel; a pixel meets the Gaussians in its tile's list.

use rayon::prelude::*;

use super::bin::Bins;
use crate::math::Real;
use crate::math::splat::{Rect, TILE, Viewpoint};
use crate::math::transmittance::{OnRay, RayGaussian, median_depth};

/// Median depths, world units along the view axis, [height, width]; 0 where there is none.
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

/// The Gaussians of a list that the ray of these slopes meets, in the list's order.
pub(crate) fn meet<R: Real>(
    rays: &[RayGaussian<R>],
    list: &[usize],
    slopes: [R; 2],
    met: &mut Vec<OnRay<R>>,
) {
    met.clear();
    met.extend(list.iter().map(|&index| rays[index].on_ray(slopes)).filter(OnRay::is_met));
}
