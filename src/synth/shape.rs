//! Solids that a ray can meet.

use crate::math::linalg::{Vec3, add, dot, length, normalize, scale, sub};

/// A half line; `direction` has length 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ray {
    pub origin: Vec3<f64>,
    pub direction: Vec3<f64>,
}

impl Ray {
    /// The point at a distance from the origin.
    pub(super) fn at(&self, distance: f64) -> Vec3<f64> {
        add(self.origin, scale(self.direction, distance))
    }

    /// Distances at which the line of the ray enters and leaves a ball around 0.
    fn within(&self, radius: f64) -> Option<[f64; 2]> {
        let middle = -dot(self.origin, self.direction);
        let half = radius * radius - (dot(self.origin, self.origin) - middle * middle);
        (half >= 0.0).then(|| [middle - half.sqrt(), middle + half.sqrt()])
    }
}

/// A form around its own centre.
#[derive(Clone, Copy, Debug)]
pub(super) enum Solid {
    /// A ball.
    Ball { radius: f64 },
    /// A ring around the vertical axis.
    Ring { radius: f64, thickness: f64 },
    /// A ball with twisted lobes around the vertical axis, like a gourd.
    Gourd { radius: f64, lobes: f64, depth: f64, twist: f64 },
}

/// Distance from the vertical axis. No coordinate is so large or small that its square is not a number,
/// which is what `hypot` takes three times as long for.
fn from_axis(point: Vec3<f64>) -> f64 {
    (point[0] * point[0] + point[2] * point[2]).sqrt()
}

/// Distance at which a march has arrived, world units: a hundredth of a pixel of the default scene.
const ARRIVED: f64 = 2e-4;

/// Steps of a march, more than any ray took that arrived.
const STEPS: usize = 96;

impl Solid {
    /// Radius of the ball around the centre that holds the solid.
    pub(super) fn bound(self) -> f64 {
        match self {
            Self::Ball { radius } => radius,
            Self::Ring { radius, thickness } => radius + thickness,
            Self::Gourd { radius, depth, .. } => radius * (1.0 + depth),
        }
    }

    /// A lower bound of the distance from the surface, negative inside.
    pub(super) fn distance(self, point: Vec3<f64>) -> f64 {
        match self {
            Self::Ball { radius } => length(point) - radius,
            Self::Ring { radius, thickness } => {
                let from_ring = from_axis(point) - radius;
                (from_ring * from_ring + point[1] * point[1]).sqrt() - thickness
            }
            Self::Gourd { radius, lobes, depth, twist } => {
                let from_centre = length(point);
                let outside = from_centre - self.bound();
                if outside > 0.3 {
                    return outside;
                }
                // The lobes fade towards the poles, where they would meet in a crease.
                let across = from_axis(point) / from_centre.max(1e-9);
                let angle = lobes * point[2].atan2(point[0]) + twist * point[1];
                let surface = radius * (1.0 + depth * across * across * angle.cos());
                // The flank of a lobe is nearer than the radius says. The lobes fade into the
                // bound, so that the distance has no jump, which a shadow would show.
                let near = (from_centre - surface) * 0.8;
                let far = ((outside - 0.1) / 0.2).clamp(0.0, 1.0);
                near + far * (outside - near)
            }
        }
    }

    /// Distance along the ray, relative to the centre, to the first point of the surface, if that is
    /// nearer than `before`.
    pub(super) fn meet(self, ray: &Ray, before: f64) -> Option<f64> {
        let [enter, leave] = ray.within(self.bound())?;
        let leave = leave.min(before);
        if let Self::Ball { .. } = self {
            return (enter > 0.0 && enter < before).then_some(enter);
        }
        let mut at = enter.max(0.0);
        for _ in 0..STEPS {
            if at > leave {
                return None;
            }
            let step = self.distance(ray.at(at));
            if step < ARRIVED {
                return Some(at);
            }
            at += step;
        }
        None
    }

    /// How wide a berth the ray gives the solid: the smallest angle, in radians and not above
    /// `widest`, between the ray and the surface as its origin sees it; 0 where it is met.
    pub(super) fn berth(self, ray: &Ray, widest: f64) -> f64 {
        if let Self::Ball { radius } = self {
            let nearest = -dot(ray.origin, ray.direction);
            let gap = length(ray.at(nearest)) - radius;
            return if nearest > 0.0 { (gap / nearest).clamp(0.0, widest) } else { widest };
        }
        let reach = self.bound() + widest * length(ray.origin);
        let Some([enter, leave]) = ray.within(reach) else { return widest };
        let mut berth = widest;
        let mut at = enter.max(0.01);
        for _ in 0..STEPS {
            if at > leave || berth <= 0.0 {
                break;
            }
            let gap = self.distance(ray.at(at));
            berth = berth.min((gap / at).max(0.0));
            // Short steps near the surface, lest the narrowest place fall between two.
            at += (0.8 * gap).clamp(0.01, 0.4);
        }
        berth
    }

    /// Direction out of the solid at a point of its surface, by central differences.
    pub(super) fn normal(self, point: Vec3<f64>) -> Vec3<f64> {
        const STEP: f64 = 1e-4;
        normalize(std::array::from_fn(|axis| {
            let mut offset = [0.0; 3];
            offset[axis] = STEP;
            self.distance(add(point, offset)) - self.distance(sub(point, offset))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Solid; 3] = [
        Solid::Ball { radius: 0.7 },
        Solid::Ring { radius: 0.6, thickness: 0.2 },
        Solid::Gourd { radius: 0.8, lobes: 7.0, depth: 0.08, twist: 1.5 },
    ];

    #[test]
    fn a_ray_stops_on_the_surface_and_the_normal_points_back() {
        for shape in SHAPES {
            for i in 0..50 {
                let angle = f64::from(i) * 0.7;
                let origin = [3.0 * angle.cos(), -1.0, 3.0 * angle.sin()];
                let aim = [0.5 * angle.sin(), 0.1, 0.0];
                let ray = Ray { origin, direction: normalize(sub(aim, origin)) };
                let Some(at) = shape.meet(&ray, f64::INFINITY) else { continue };
                let point = ray.at(at);
                assert!(shape.distance(point).abs() < 2.0 * ARRIVED, "{shape:?}");
                assert!(dot(shape.normal(point), ray.direction) < 0.05, "{shape:?}");
            }
        }
    }

    #[test]
    fn the_berth_of_a_ray_falls_from_wide_to_nothing_without_jumps() {
        for shape in SHAPES {
            let mut last: Option<f64> = None;
            for i in 0..400 {
                let ray = Ray {
                    origin: [2.0 - f64::from(i) * 0.005, 0.1, 3.0],
                    direction: [0.0, 0.0, -1.0],
                };
                let berth = shape.berth(&ray, 0.2);
                // Half of 0.005/2, the change of the angle, would be exact; marching adds a little.
                assert!(last.is_none_or(|last| (last - berth).abs() < 0.01), "{shape:?} {i}");
                assert!(
                    shape.meet(&ray, f64::INFINITY).is_none() || berth < 0.01,
                    "{shape:?} {i} {berth}"
                );
                last = Some(berth);
            }
        }
    }

    #[test]
    fn a_ray_through_the_hole_of_the_ring_meets_nothing() {
        let ray = Ray { origin: [0.1, -2.0, 0.0], direction: [0.0, 1.0, 0.0] };
        assert!(SHAPES[1].meet(&ray, f64::INFINITY).is_none());
        assert!(SHAPES[0].meet(&ray, f64::INFINITY).is_some());
    }
}
