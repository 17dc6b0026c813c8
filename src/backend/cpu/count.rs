//! How much of a model a view sees, without drawing it.

use rayon::prelude::*;

use super::ellipsoid::Ellipsoid;
use super::splat::DrawnView;
use super::stage::bin::for_each_tile;
use crate::backend::Footprint;
use crate::backend::viewpoint::viewpoint;
use crate::dataset::View;
use crate::math::splat::Shape;
use crate::model::Gaussians;

/// What a view sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedView {
    /// Gaussians that it sees: splats.
    pub visible: u64,
    /// Pairs of a splat and a tile that it reaches.
    pub instances: u64,
}

/// Counts the splats of a view that is drawn from this depth on and as this footprint, and the
/// tiles that they reach, as every device counts them but for rounding. What is not finite is left
/// out.
pub fn count(gaussians: &Gaussians, view: &View, near: f64, footprint: Footprint) -> CountedView {
    let viewpoint = viewpoint(view, near, footprint);
    let view = DrawnView { viewpoint, sh_degree: 0, surface: false, footprint };
    let sum = |a: CountedView, b: CountedView| CountedView {
        visible: a.visible + b.visible,
        instances: a.instances + b.instances,
    };
    (0..gaussians.len())
        .into_par_iter()
        .map(|index| count_one(gaussians, index, &view))
        .reduce(CountedView::default, sum)
}

fn count_one(gaussians: &Gaussians, index: usize, view: &DrawnView<f32>) -> CountedView {
    let triple = |column: &[f32]| [0, 1, 2].map(|k| column[index * 3 + k]);
    let shape = Shape {
        mean_world: triple(&gaussians.means),
        log_scale: triple(&gaussians.log_scales),
        quat: [0, 1, 2, 3].map(|k| gaussians.quats[index * 4 + k]),
        smoothing: 0.0,
    };
    let ellipsoid = Ellipsoid { shape, opacity_logit: gaussians.opacity_logits[index] };
    let Some(splat) = ellipsoid.splat(index, view) else { return CountedView::default() };
    let mut instances = 0;
    for_each_tile(&splat, view.viewpoint.size, |_, _| instances += 1);
    CountedView { visible: 1, instances }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Drawing;
    use crate::backend::Store as _;
    use crate::backend::cpu::Cpu;
    use crate::backend::cpu::stage::{bin, project};
    use crate::dataset::{Camera, Pose};
    use crate::math::Real;
    use crate::math::random::{RandomStream, RandomUse};

    #[test]
    fn a_view_sees_what_is_drawn_of_it() {
        let stream = RandomStream::new(7, 0, RandomUse::Sample);
        let draw = |i: usize, low: f64, high: f64| {
            (low + (high - low) * stream.uniform(i as u64)).to_f32()
        };
        let count_of = 2000;
        let mut gaussians = Gaussians::zeros(0, count_of);
        // Some behind the camera, some beside the image, some invisible.
        let columns: [(&mut Vec<f32>, f64, f64); 4] = [
            (&mut gaussians.means, -3.0, 3.0),
            (&mut gaussians.log_scales, -5.0, -1.0),
            (&mut gaussians.quats, 0.1, 1.0),
            (&mut gaussians.opacity_logits, -8.0, 4.0),
        ];
        for (first, (column, low, high)) in columns.into_iter().enumerate() {
            for (i, value) in column.iter_mut().enumerate() {
                *value = draw(first * 100_000 + i, low, high);
            }
        }
        let view = View {
            name: "view.png".to_owned(),
            camera: Camera {
                width: 203,
                height: 147,
                focal_px: [140.0, 150.0],
                centre_px: [99.0, 75.0],
            },
            pose: Pose {
                rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                translation: [0.1, -0.2, 1.0],
            },
        };
        let model = Cpu::<f32>::new().upload(&gaussians).unwrap();
        let mip = Footprint::Ellipse { variance_px2: 0.1, compensates: true };
        let counts = [Footprint::DILATED, mip].map(|footprint| {
            let point = viewpoint::<f32>(&view, 0.01, footprint);
            let drawn = DrawnView::new(point, &Drawing::DEFAULT);
            let (splats, _) = project::project(&model, &drawn);
            let bins = bin::bin(&splats, point.size);
            let counted = count(&gaussians, &view, 0.01, footprint);
            assert_eq!(counted.visible, splats.len() as u64);
            assert_eq!(counted.instances, bins.splat_from_instance.len() as u64);
            assert!((100..1900).contains(&splats.len()) && counted.instances > counted.visible);
            counted.instances
        });
        assert!(counts[1] < counts[0], "narrower splats reach fewer tiles: {counts:?}");
    }
}
