//! Where the surfaces of a synthetic scene are: what a model of it is measured by.

use super::nearest::SurfacePoint;
use super::scene::Scene;
use crate::math::linalg::Vec3;

/// The surfaces of the scene of a seed, without colours and light.
pub struct Truth {
    scene: Scene,
}

impl Truth {
    /// Of the scene that [`super::write_scene`] makes of this seed, whatever its other options.
    pub fn new(seed: u64) -> Self {
        Self { scene: Scene::new(seed) }
    }

    /// The point of the surfaces, the disc below all included, that is nearest to a point of the world.
    ///
    /// Parts of a surface that lie inside another solid are no surfaces. A point inside one solid whose
    /// nearest surface is such a part gets a point of the surfaces that may not be the nearest.
    pub fn nearest(&self, point_world: Vec3<f64>) -> SurfacePoint {
        self.scene.nearest(point_world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::{add, dot, length, scale, sub};
    use crate::math::random::{RandomStream, RandomUse};
    use crate::synth::SynthOptions;
    use crate::synth::cameras::{dome, ray_through};
    use crate::synth::scenery::Scenery as _;

    #[test]
    fn what_cameras_see_lies_on_the_surfaces_and_faces_as_they_do() {
        for seed in 0..4 {
            let (scene, truth) = (Scene::new(seed), Truth::new(seed));
            let (mut rays, mut turned) = (0, 0);
            for view in dome(&SynthOptions { seed, views: 6, ..SynthOptions::default() }) {
                for i in 0..300_u32 {
                    let at = [f64::from(i % 20) * 8.0 + 3.7, f64::from(i / 20) * 8.0 + 2.9];
                    let Some(hit) = scene.trace(&ray_through(&view, at)) else { continue };
                    let found = truth.nearest(hit.position);
                    // Where a march arrives, world units, and the slack of a gourd's bound.
                    assert!(found.distance.abs() < 4e-4, "seed {seed} {hit:?} {found:?}");
                    rays += 1;
                    turned += u32::from(dot(found.normal, hit.normal) < 0.999);
                }
            }
            // Only within 4e-4 of a crease may another surface be nearer than the one met.
            assert!(rays > 1000 && turned * 200 < rays, "seed {seed}: {turned} of {rays}");
        }
    }

    #[test]
    fn a_step_off_a_surface_is_as_long_as_the_distance() {
        let (scene, truth) = (Scene::new(2), Truth::new(2));
        let view = &dome(&SynthOptions::default())[30];
        let mut seen = 0;
        for i in 0..400_u32 {
            let at = [f64::from(i % 20) * 8.0 + 3.7, f64::from(i / 20) * 6.0 + 1.9];
            let Some(hit) = scene.trace(&ray_through(view, at)) else { continue };
            let on = truth.nearest(hit.position);
            let off = truth.nearest(add(on.position, scale(on.normal, 0.01)));
            // Valleys of the gourd bend by at most a fifth of 0.01; in a corner something else is
            // nearer.
            if dot(off.normal, on.normal) > 0.999 {
                assert!((off.distance - 0.01).abs() < 1e-9, "{on:?} {off:?}");
                seen += 1;
            }
        }
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn no_surface_found_is_inside_a_solid_and_the_floor_ends_at_its_rim() {
        let truth = Truth::new(1);
        let stream = RandomStream::new(3, 0, RandomUse::Sample);
        for i in 0..500_u64 {
            let draw = |c: u64| stream.uniform(3 * i + c) - 0.5;
            let point = [5.0 * draw(0), -1.0 + 2.4 * draw(1), 5.0 * draw(2)];
            let found = truth.nearest(point);
            let apart = length(sub(point, found.position));
            assert!((found.distance.abs() - apart).abs() < 1e-9, "{point:?} {found:?}");
            let again = truth.nearest(found.position).distance;
            assert!(again.abs() < 1e-6, "{point:?} {found:?} {again}");
        }
        let below = truth.nearest([3.3, 0.0, 0.0]);
        assert!((below.distance - 1.0).abs() < 1e-12 && below.normal == [0.0, -1.0, 0.0]);
        let beside = truth.nearest([2.0, -0.1, 0.0]);
        assert!((beside.distance - 0.1).abs() < 1e-12 && beside.position == [2.0, 0.0, 0.0]);
    }
}
