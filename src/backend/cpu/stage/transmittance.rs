//! Stage `transmittance`: transmittance between a view's camera and points.

use rayon::prelude::*;

use super::bin::Bins;
use crate::backend::transmittances::NOT_SEEN;
use crate::math::Real;
use crate::math::blend::TRANSMITTANCE_MIN;
use crate::math::field::place_px;
use crate::math::linalg::{Vec3, add, mul};
use crate::math::splat::{TILE, Viewpoint};
use crate::math::transmittance::RayGaussian;

/// Returns the transmittance at each point (world units); [`NOT_SEEN`] outside the view.
pub(crate) fn at_places<R: Real>(
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
            let on_ray = rays[index].on_ray(slopes);
            if on_ray.is_met() {
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
