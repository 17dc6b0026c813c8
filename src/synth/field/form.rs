//! Distances from solid forms, exact (Quilez, "Distance functions"). The axis of a form is y.

use crate::math::linalg::{Mat3, Vec3, dot, length, mul, rotation, sub};
use crate::synth::shape::Ray;

/// Steps along a ray past a form, more than any took that passed it.
const BERTH_STEPS: usize = 128;

/// A form around its own centre.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A ball.
    Ball { radius: f64 },
    /// A ring around the axis.
    Ring { radius: f64, thickness: f64 },
    /// A block.
    Block { half: Vec3<f64> },
    /// A cylinder.
    Cylinder { radius: f64, half_height: f64 },
    /// A cylinder with half balls at its ends.
    Capsule { radius: f64, half_height: f64 },
    /// A cone without its tip, with these radii at -y and at +y.
    Cone { radii: [f64; 2], half_height: f64 },
}

impl Form {
    /// Distance from the surface, world units; negative inside.
    pub(super) fn distance(self, point: Vec3<f64>) -> f64 {
        let from_axis = (point[0] * point[0] + point[2] * point[2]).sqrt();
        match self {
            Self::Ball { radius } => length(point) - radius,
            Self::Ring { radius, thickness } => plane([from_axis - radius, point[1]]) - thickness,
            Self::Block { half } => {
                let over: Vec3<f64> = std::array::from_fn(|axis| point[axis].abs() - half[axis]);
                let most = over[0].max(over[1]).max(over[2]);
                length(over.map(|over| over.max(0.0))) + most.min(0.0)
            }
            Self::Cylinder { radius, half_height } => {
                let over = [from_axis - radius, point[1].abs() - half_height];
                plane(over.map(|over| over.max(0.0))) + over[0].max(over[1]).min(0.0)
            }
            Self::Capsule { radius, half_height } => {
                let along = point[1] - point[1].clamp(-half_height, half_height);
                plane([from_axis, along]) - radius
            }
            Self::Cone { radii, half_height } => {
                let end = if point[1] < 0.0 { radii[0] } else { radii[1] };
                let to_end = [from_axis - from_axis.min(end), point[1].abs() - half_height];
                // The flank runs from the end at +y along `flank`.
                let flank = [radii[0] - radii[1], -2.0 * half_height];
                let from_end = [from_axis - radii[1], point[1] - half_height];
                let along = (from_end[0] * flank[0] + from_end[1] * flank[1])
                    / (flank[0] * flank[0] + flank[1] * flank[1]);
                let along = along.clamp(0.0, 1.0);
                let to_flank = [from_end[0] - along * flank[0], from_end[1] - along * flank[1]];
                let side = if to_flank[0] < 0.0 && to_end[1] < 0.0 { -1.0 } else { 1.0 };
                side * plane(to_end).min(plane(to_flank))
            }
        }
    }
}

impl Form {
    /// Radius of the ball around the centre that holds the form.
    fn bound(self) -> f64 {
        match self {
            Self::Ball { radius } => radius,
            Self::Ring { radius, thickness } => radius + thickness,
            Self::Block { half } => length(half),
            Self::Cylinder { radius, half_height } => plane([radius, half_height]),
            Self::Capsule { radius, half_height } => radius + half_height,
            Self::Cone { radii, half_height } => plane([radii[0].max(radii[1]), half_height]),
        }
    }
}

/// Length of a vector of the plane.
fn plane([x, y]: [f64; 2]) -> f64 {
    (x * x + y * y).sqrt()
}

/// A form in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    form: Form,
    centre: Vec3<f64>,
    /// Radius of the ball around the centre that holds the form.
    bound: f64,
    /// From world axes to the form's, where these are not the same.
    turn: Option<Mat3<f64>>,
}

impl Placed {
    pub(super) fn new(form: Form, centre: Vec3<f64>) -> Self {
        Self { form, centre, bound: form.bound(), turn: None }
    }

    /// The same, turned about an axis of length 1 by an angle in degrees.
    pub(super) fn turned(self, axis: Vec3<f64>, angle_deg: f64) -> Self {
        let (sine, cosine) = (0.5 * angle_deg.to_radians()).sin_cos();
        let turn = rotation([cosine, -sine * axis[0], -sine * axis[1], -sine * axis[2]]);
        Self { turn: Some(turn), ..self }
    }

    /// Distance from the surface, world units; negative inside.
    pub(super) fn distance(&self, point: Vec3<f64>) -> f64 {
        let local = sub(point, self.centre);
        self.form.distance(self.turn.as_ref().map_or(local, |turn| mul(turn, local)))
    }

    /// No more than the distance from the surface, and quick.
    pub(super) fn least_distance(&self, point: Vec3<f64>) -> f64 {
        length(sub(point, self.centre)) - self.bound
    }

    /// Distances at which the line of a ray enters and leaves the ball around the form, of which
    /// every radius is so much larger.
    pub(super) fn within(&self, ray: &Ray, wider: f64) -> Option<[f64; 2]> {
        let from_centre = sub(ray.origin, self.centre);
        let radius = self.bound + wider;
        let middle = -dot(from_centre, ray.direction);
        let half = radius * radius - (dot(from_centre, from_centre) - middle * middle);
        (half >= 0.0).then(|| [middle - half.sqrt(), middle + half.sqrt()])
    }

    /// How wide a berth the ray gives the form: the smallest angle, in radians and not above `widest`,
    /// between the ray and the surface as its origin sees it; 0 where it is met.
    pub(super) fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        let wider = widest * length(sub(ray.origin, self.centre));
        let Some([enter, leave]) = self.within(ray, wider) else { return widest };
        let (mut berth, mut at) = (widest, enter.max(0.01));
        for _ in 0..BERTH_STEPS {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::{RandomStream, RandomUse};

    const FORMS: [Form; 6] = [
        Form::Ball { radius: 0.7 },
        Form::Ring { radius: 0.6, thickness: 0.2 },
        Form::Block { half: [0.3, 0.5, 0.7] },
        Form::Cylinder { radius: 0.4, half_height: 0.6 },
        Form::Capsule { radius: 0.3, half_height: 0.4 },
        Form::Cone { radii: [0.2, 0.6], half_height: 0.5 },
    ];

    #[test]
    fn a_step_down_the_gradient_ends_on_the_surface() {
        let stream = RandomStream::new(4, 0, RandomUse::Sample);
        for (kind, form) in FORMS.into_iter().enumerate() {
            let mut reached = 0;
            for i in 0..300 {
                let at = |c: u64| 2.4 * stream.uniform(3 * i + c) - 1.2;
                let point = [at(0), at(1), at(2)];
                let distance = form.distance(point);
                let gradient: Vec3<f64> = std::array::from_fn(|axis| {
                    let moved = |by: f64| {
                        let mut moved = point;
                        moved[axis] += by;
                        form.distance(moved)
                    };
                    (moved(1e-6) - moved(-1e-6)) / 2e-6
                });
                // But for creases, on which few points lie, an exact distance rises by 1.
                let on: Vec3<f64> = std::array::from_fn(|i| point[i] - distance * gradient[i]);
                reached += u32::from(form.distance(on).abs() < 1e-6);
            }
            assert!(reached > 295, "form {kind}: {reached}");
        }
    }

    #[test]
    fn forms_end_where_their_sizes_say() {
        let reach = [0.7, 0.2, 0.5, 0.6, 0.7, 0.5];
        for (form, reach) in FORMS.into_iter().zip(reach) {
            let at = if let Form::Ring { radius, .. } = form { radius } else { 0.0 };
            for side in [-1.0, 1.0] {
                assert!(form.distance([at, side * reach, 0.0]).abs() < 1e-12, "{form:?}");
                assert!(form.distance([at, side * (reach - 0.01), 0.0]) < 0.0, "{form:?}");
            }
        }
        assert!(FORMS[5].distance([0.6, 0.5, 0.0]).abs() < 1e-12);
        assert!(FORMS[5].distance([0.2, -0.5, 0.0]).abs() < 1e-12);
        let lying = Placed::new(FORMS[3], [1.0, 0.0, 0.0]).turned([0.0, 0.0, 1.0], 90.0);
        assert!(lying.distance([1.6, 0.0, 0.0]).abs() < 1e-12);
        assert!(lying.distance([1.0, 0.4, 0.0]).abs() < 1e-12);
        for form in FORMS {
            let placed = Placed::new(form, [0.0; 3]);
            let out = [form.bound() / 3.0_f64.sqrt(); 3];
            assert!(form.distance(out) > -1e-12 && placed.least_distance(out).abs() < 1e-12);
        }
    }
}
