//! Exact nearest points on the surfaces of solids.

use std::f64::consts::TAU;

use crate::math::linalg::{Vec3, add, dot, length, normalize, scale, sub};

/// A point of a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfacePoint {
    /// Position, world units.
    pub position: Vec3<f64>,
    /// Outward unit normal; upwards for the floor.
    pub normal: Vec3<f64>,
    /// Signed distance of the query point, world units; negative inside a solid.
    pub distance: f64,
}

/// Starts of the search for a gourd's nearest point, in shares of a lobe: each lobe and valley may have a local
/// minimum.
const STARTS: [f64; 5] = [0.0, -0.5, -0.25, 0.25, 0.5];
const NEAREST_STEPS: usize = 200;

/// Tangential step at which a search ends, world units. The error of the distance is of its square.
const STILL: f64 = 1e-9;

/// Upper bound on the curvature of a gourd's surface, per world unit.
const CURVATURE: f64 = 8.0;

impl Solid {
    /// Returns the nearest point of the surface, relative to the centre.
    pub(super) fn nearest(self, point: Vec3<f64>) -> SurfacePoint {
        match self {
            Self::Ball { radius } => nearest_of_ball([0.0; 3], radius, point),
            Self::Ring { radius, thickness } => {
                let out = outward([point[0], 0.0, point[2]]);
                nearest_of_ball(scale(out, radius), thickness, point)
            }
            Self::Gourd { .. } => {
                let found = STARTS.map(|share| self.searched(point, share));
                let nearer = |a: SurfacePoint, b: SurfacePoint| {
                    if b.distance.abs() < a.distance.abs() { b } else { a }
                };
                found.into_iter().fold(found[0], nearer)
            }
        }
    }

    /// Descends along a gourd's surface from a start beside the point, offset by `share` of a lobe. Returns the end.
    fn searched(self, point: Vec3<f64>, share: f64) -> SurfacePoint {
        let Self::Gourd { radius, lobes, .. } = self else {
            return nearest_of_ball([0.0; 3], 0.0, point);
        };
        let (sine, cosine) = (share * TAU / lobes).sin_cos();
        let out = outward(point);
        let turned = [cosine * out[0] - sine * out[2], out[1], sine * out[0] + cosine * out[2]];
        let mut at = scale(turned, radius);
        for _ in 0..NEAREST_STEPS {
            let (height, d_height) = self.height(at);
            at = sub(at, scale(d_height, height / dot(d_height, d_height)));
            let normal = normalize(self.height(at).1);
            let offset = sub(point, at);
            let across = sub(offset, scale(normal, dot(offset, normal)));
            // A full step overshoots if the surface is more curved than a ball around the point.
            at = add(at, scale(across, 1.0 / (1.0 + CURVATURE * length(offset))));
            if length(across) < STILL && height.abs() < STILL {
                break;
            }
        }
        let (height, d_height) = self.height(at);
        let position = sub(at, scale(d_height, height / dot(d_height, d_height)));
        let side = if self.height(point).0 < 0.0 { -1.0 } else { 1.0 };
        SurfacePoint {
            position,
            normal: normalize(self.height(position).1),
            distance: side * length(sub(point, position)),
        }
    }

    /// Returns how far a point is beyond a gourd's surface in radial direction, and the gradient. The value is no
    /// distance, but 0 on the surface.
    fn height(self, point: Vec3<f64>) -> (f64, Vec3<f64>) {
        let Self::Gourd { radius, lobes, depth, twist } = self else { return (0.0, [0.0; 3]) };
        let from_centre = length(point).max(1e-9);
        let [x, y, z] = scale(point, 1.0 / from_centre);
        let across2 = x * x + z * z;
        let (sine, cosine) = (lobes * z.atan2(x) + twist * point[1]).sin_cos();
        let height = from_centre - radius * (1.0 + depth * across2 * cosine);
        let d_across2 = scale(sub([x, 0.0, z], scale([x, y, z], across2)), 2.0 / from_centre);
        // across2 times the gradient of the angle, which is unbounded near the axis.
        let d_angle = [-lobes * z / from_centre, twist * across2, lobes * x / from_centre];
        let d_lobes = sub(scale(d_across2, cosine), scale(d_angle, sine));
        (height, sub([x, y, z], scale(d_lobes, radius * depth)))
    }

    pub(super) fn bound(self) -> f64 {
        match self {
            Self::Ball { radius } => radius,
            Self::Ring { radius, thickness } => radius + thickness,
            Self::Gourd { radius, depth, .. } => radius * (1.0 + depth),
        }
    }

    /// Returns a lower bound on the distance from the surface, negative inside.
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
                // The lobes vanish towards the poles, where they would meet in a crease.
                let across = from_axis(point) / from_centre.max(1e-9);
                let angle = lobes * point[2].atan2(point[0]) + twist * point[1];
                let surface = radius * (1.0 + depth * across * across * angle.cos());
                // The flank of a lobe is nearer than the radial difference. The lobes blend into the bound, since a
                // jump of the distance would show in shadows.
                let near = (from_centre - surface) * 0.8;
                let far = ((outside - 0.1) / 0.2).clamp(0.0, 1.0);
                near + far * (outside - near)
            }
        }
    }

    /// Returns the distance along the ray, relative to the centre, to the first point of the surface, if it is below
    /// `before`.
    pub(super) fn meet(self, ray: &Ray, before: f64) -> Option<f64> {
        let [enter, leave] = ray.within([0.0; 3], self.bound())?;
        if let Self::Ball { .. } = self {
            return (enter > 0.0 && enter < before).then_some(enter);
        }
        ray.march([enter, leave.min(before)], STEPS, |at| self.distance(at))
    }

    /// Returns the ray's [`Ray::berth`] along the whole surface.
    pub(super) fn berth(self, ray: &Ray, widest: f64) -> f64 {
        if let Self::Ball { radius } = self {
            let nearest = -dot(ray.origin, ray.direction);
            let gap = length(ray.at(nearest)) - radius;
            return if nearest > 0.0 { (gap / nearest).clamp(0.0, widest) } else { widest };
        }
        let reach = self.bound() + widest * length(ray.origin);
        let Some(within) = ray.within([0.0; 3], reach) else { return widest };
        ray.berth(within, STEPS, widest, |at| self.distance(at))
    }
}

/// Returns the outward normal at a surface point, by central differences.
pub(super) fn normal(point: Vec3<f64>, distance: impl Fn(Vec3<f64>) -> f64) -> Vec3<f64> {
    const STEP: f64 = 1e-4;
    normalize(std::array::from_fn(|axis| {
        let mut offset = [0.0; 3];
        offset[axis] = STEP;
        distance(add(point, offset)) - distance(sub(point, offset))
    }))
}

fn nearest_of_ball(centre: Vec3<f64>, radius: f64, point: Vec3<f64>) -> SurfacePoint {
    let normal = outward(sub(point, centre));
    SurfacePoint {
        position: add(centre, scale(normal, radius)),
        normal,
        distance: length(sub(point, centre)) - radius,
    }
}

/// Normalises a vector; returns an arbitrary horizontal direction for zero.
fn outward(vector: Vec3<f64>) -> Vec3<f64> {
    if length(vector) > 0.0 { normalize(vector) } else { [1.0, 0.0, 0.0] }
}

/// A half line with a unit direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ray {
    pub origin: Vec3<f64>,
    pub direction: Vec3<f64>,
}

impl Ray {
    pub(super) fn at(&self, distance: f64) -> Vec3<f64> {
        add(self.origin, scale(self.direction, distance))
    }

    /// Returns the distances at which the ray's line enters and leaves a ball.
    pub(super) fn within(&self, centre: Vec3<f64>, radius: f64) -> Option<[f64; 2]> {
        let from_centre = sub(self.origin, centre);
        let middle = -dot(from_centre, self.direction);
        let half = radius * radius - (dot(from_centre, from_centre) - middle * middle);
        (half >= 0.0).then(|| [middle - half.sqrt(), middle + half.sqrt()])
    }

    /// Returns the distance along the ray, in this range, at which `distance` from a surface falls to nothing.
    pub(super) fn march(
        &self,
        [enter, leave]: [f64; 2],
        steps: usize,
        distance: impl Fn(Vec3<f64>) -> f64,
    ) -> Option<f64> {
        let mut at = enter.max(0.0);
        for _ in 0..steps {
            if at > leave {
                return None;
            }
            let step = distance(self.at(at));
            if step < ARRIVED {
                return Some(at);
            }
            at += step;
        }
        None
    }

    /// Returns the smallest angle between this range of the ray and a surface as seen from the ray's origin, at most
    /// `widest`, radians; 0 if the ray hits.
    pub(super) fn berth(
        &self,
        [enter, leave]: [f64; 2],
        steps: usize,
        widest: f64,
        distance: impl Fn(Vec3<f64>) -> f64,
    ) -> f64 {
        let (mut berth, mut at) = (widest, enter.max(0.01));
        for _ in 0..steps {
            if at > leave || berth <= 0.0 {
                break;
            }
            let gap = distance(self.at(at));
            berth = berth.min((gap / at).max(0.0));
            // Short steps near the surface find the narrowest gap.
            at += (0.8 * gap).clamp(0.01, 0.4);
        }
        berth
    }
}

/// A shape around its own centre.
#[derive(Clone, Copy, Debug)]
pub(super) enum Solid {
    Ball {
        radius: f64,
    },
    /// Ring around the vertical axis.
    Ring {
        radius: f64,
        thickness: f64,
    },
    /// Ball with twisted lobes around the vertical axis, like a gourd.
    Gourd {
        radius: f64,
        lobes: f64,
        depth: f64,
        twist: f64,
    },
}

/// Returns the distance from the vertical axis. `hypot` takes three times as long, and coordinates are moderate.
fn from_axis(point: Vec3<f64>) -> f64 {
    (point[0] * point[0] + point[2] * point[2]).sqrt()
}

/// Distance at which a march ends, world units: a hundredth of a pixel of the default scene.
const ARRIVED: f64 = 2e-4;
const STEPS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::{assert_near, gradient};
    use crate::math::random::{RandomStream, RandomUse};

    const GOURDS: [Solid; 3] = [
        Solid::Gourd { radius: 0.76, lobes: 6.0, depth: 0.07, twist: 1.2 },
        Solid::Gourd { radius: 0.76, lobes: 8.0, depth: 0.07, twist: 2.2 },
        Solid::Gourd { radius: 0.8, lobes: 7.0, depth: 0.08, twist: 1.5 },
    ];

    fn points(count: u64) -> impl Iterator<Item = Vec3<f64>> {
        let stream = RandomStream::new(11, 0, RandomUse::Sample);
        (0..count)
            .map(move |i| std::array::from_fn(|c| 2.6 * stream.uniform(3 * i + c as u64) - 1.3))
    }

    /// Returns points of a gourd's surface about 0.014 apart, by bisection from the centre.
    fn grid(shape: Solid) -> Vec<Vec3<f64>> {
        let on = |i: u32, j: u32| {
            let (up, turn) = ((f64::from(i) + 0.5) * TAU / 360.0, f64::from(j) * TAU / 360.0);
            let out = [up.sin() * turn.cos(), up.cos(), up.sin() * turn.sin()];
            let (mut low, mut high) = (0.1, 2.0);
            for _ in 0..50 {
                let middle = 0.5 * (low + high);
                let inside = shape.height(scale(out, middle)).0 < 0.0;
                (low, high) = if inside { (middle, high) } else { (low, middle) };
            }
            scale(out, low)
        };
        (0..180).flat_map(|i| (0..360).map(move |j| on(i, j))).collect()
    }

    #[test]
    fn no_point_of_a_gourd_is_nearer_than_the_one_found() {
        for shape in GOURDS {
            let grid = grid(shape);
            for point in points(100) {
                let found = shape.nearest(point);
                let offset = sub(point, found.position);
                let least = grid.iter().map(|&on| length(sub(point, on))).fold(f64::MAX, f64::min);
                assert!(found.distance.abs() <= least + 1e-9, "{shape:?} {point:?}");
                // Half the diagonal of the grid's widest cell, which a flank stretches.
                assert!(found.distance.abs() > least - 0.012, "{shape:?} {point:?}");
                assert!(shape.height(found.position).0.abs() < 1e-9, "{shape:?} {point:?}");
                // The nearest point is straight below.
                let along = scale(found.normal, found.distance);
                assert!(length(sub(offset, along)) < 1e-6, "{shape:?} {point:?}");
                assert_eq!(found.distance < 0.0, shape.distance(point) < 0.0, "{point:?}");
            }
        }
    }

    #[test]
    fn marching_distances_are_lower_bounds() {
        for shape in GOURDS {
            for point in points(300).filter(|&point| shape.height(point).0 > 0.0) {
                assert!(shape.distance(point) <= shape.nearest(point).distance + 1e-9, "{point:?}");
            }
        }
    }

    #[test]
    fn heights_rise_by_their_gradient() {
        for shape in GOURDS {
            for point in points(40) {
                let (_, found) = shape.height(point);
                let expected = gradient(1e-5, point, |at| shape.height(at).0);
                for axis in 0..3 {
                    // Differences of numbers near 1 over 2e-5, and its square.
                    assert_near(found[axis], expected[axis], 1e-6, (shape, point));
                }
            }
        }
    }

    #[test]
    fn nearest_points_of_rings_and_balls_are_exact() {
        let ring = Solid::Ring { radius: 0.6, thickness: 0.2 };
        let found = ring.nearest([1.0, 0.3, 0.0]);
        // 0.5 from the circle in the ring's middle, at (0.6, 0, 0), 0.2 of it inside.
        assert_near(found.distance, 0.3, 1e-12, "distance");
        for (found, expected) in found.normal.into_iter().zip([0.8, 0.6, 0.0]) {
            assert_near(found, expected, 1e-12, "normal");
        }
        for shape in [ring, Solid::Ball { radius: 0.7 }] {
            for point in points(50) {
                let found = shape.nearest(point);
                assert_near(found.distance, shape.distance(point), 1e-12, point);
                assert!(shape.distance(found.position).abs() < 1e-12);
            }
            // Many points are equally near to the centre and the axis.
            assert!(shape.nearest([0.0; 3]).normal.iter().all(|n| n.is_finite()));
        }
    }

    const SHAPES: [Solid; 3] = [
        Solid::Ball { radius: 0.7 },
        Solid::Ring { radius: 0.6, thickness: 0.2 },
        Solid::Gourd { radius: 0.8, lobes: 7.0, depth: 0.08, twist: 1.5 },
    ];

    #[test]
    fn a_ray_stops_on_the_surface_with_its_normal_or_misses() {
        for shape in SHAPES {
            for i in 0..50 {
                let angle = f64::from(i) * 0.7;
                let origin = [3.0 * angle.cos(), -1.0, 3.0 * angle.sin()];
                let aim = [0.5 * angle.sin(), 0.1, 0.0];
                let ray = Ray { origin, direction: normalize(sub(aim, origin)) };
                let Some(at) = shape.meet(&ray, f64::INFINITY) else { continue };
                let point = ray.at(at);
                assert!(shape.distance(point).abs() < 2.0 * ARRIVED, "{shape:?}");
                let normal = normal(point, |at| shape.distance(at));
                assert!(dot(normal, ray.direction) < 0.05, "{shape:?}");
            }
        }
        let ray = Ray { origin: [0.1, -2.0, 0.0], direction: [0.0, 1.0, 0.0] };
        assert!(SHAPES[1].meet(&ray, f64::INFINITY).is_none());
        assert!(SHAPES[0].meet(&ray, f64::INFINITY).is_some());
    }

    #[test]
    fn the_berth_of_a_ray_is_continuous() {
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
                let met = shape.meet(&ray, f64::INFINITY);
                assert!(met.is_none() || berth < 0.01, "{shape:?} {i} {berth}");
                last = Some(berth);
            }
        }
    }
}
