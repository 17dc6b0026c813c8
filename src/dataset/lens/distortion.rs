//! How lenses displace rays, forwards and backwards.
//!
//! The models are COLMAP's (its documentation, "Camera Models") and thereby OpenCV's ("Camera
//! Calibration and 3D Reconstruction" and "Fisheye camera model").

use std::fmt;

/// Steps between which a fold of a distortion is looked for, and the farthest place (84° off axis).
const SCAN_STEP: f64 = 1.0 / 512.0;
const SCAN_STEPS: u32 = 5120;

/// Newton's steps before a point counts as having no inverse; a dozen suffice where it has one.
const NEWTON_STEPS: usize = 50;

/// How a lens displaces rays on the plane at depth 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distortion {
    /// Radial and tangential: with r² = x² + y²,
    /// x' = x (1 + k1 r² + k2 r⁴ + k3 r⁶) / (1 + k4 r² + k5 r⁴ + k6 r⁶) + 2 p1 x y + p2 (r² + 2 x²)
    /// and likewise for y with p1 and p2 exchanged. All zeros: no distortion.
    Brown([f64; 8]),
    /// Equidistant fisheye: θ = atan r becomes θ (1 + k1 θ² + k2 θ⁴ + k3 θ⁶ + k4 θ⁸).
    Fisheye([f64; 4]),
}

/// The value of a function, and its derivative.
#[derive(Clone, Copy)]
struct Sloped {
    value: f64,
    slope: f64,
}

impl Distortion {
    /// Straight lines stay straight.
    pub const NONE: Self = Self::Brown([0.0; 8]);

    /// Radial coefficients k1 to k6 and tangential p1, p2.
    pub fn brown(radial: [f64; 6], tangential: [f64; 2]) -> Self {
        let [k1, k2, k3, k4, k5, k6] = radial;
        let [p1, p2] = tangential;
        Self::Brown([k1, k2, p1, p2, k3, k4, k5, k6])
    }

    /// All coefficients, in COLMAP's order.
    pub fn coefficients(&self) -> &[f64] {
        match self {
            Self::Brown(coefficients) => coefficients,
            Self::Fisheye(coefficients) => coefficients,
        }
    }

    /// Whether straight lines stay straight.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Where the ray `plane` seems to come from.
    pub fn bend(&self, plane: [f64; 2]) -> [f64; 2] {
        let [x, y] = plane;
        let squared = x * x + y * y;
        match *self {
            Self::Brown([_, _, p1, p2, ..]) => {
                let radial = self.gain(squared).value;
                [
                    x * radial + 2.0 * p1 * x * y + p2 * (squared + 2.0 * x * x),
                    y * radial + 2.0 * p2 * x * y + p1 * (squared + 2.0 * y * y),
                ]
            }
            Self::Fisheye(_) => {
                let r = squared.sqrt();
                // Below this the polynomial is 1 to the last bit and atan r / r would be 0 / 0.
                let radial = if r > 1e-9 { self.profile(r).value / r } else { 1.0 };
                [x * radial, y * radial]
            }
        }
    }

    /// The ray that seems to come from `bent`, if one within `reach` does.
    ///
    /// Newton's method on the radius first, held between bounds so that it cannot leave the part
    /// where the radius grows, then on both coordinates for the tangential terms.
    pub fn unbend(&self, bent: [f64; 2], reach: f64) -> Option<[f64; 2]> {
        let bent_radius = bent[0].hypot(bent[1]);
        if bent_radius <= f64::EPSILON {
            return self.polish(bent, bent, reach);
        }
        let radius = self.radius_from_bent(bent_radius, reach);
        match self {
            Self::Fisheye(_) => {
                let radius = radius?;
                Some(bent.map(|x| x * radius / bent_radius))
            }
            Self::Brown(_) => {
                // The tangential terms may bring back a point just beyond the radial reach.
                let share = radius.unwrap_or(reach) / bent_radius;
                self.polish(bent.map(|x| x * share), bent, reach)
            }
        }
    }

    /// Largest radius up to which the distorted radius grows; 10 where it grows for ever.
    pub fn reach(&self) -> f64 {
        if self.is_none() {
            return f64::from(SCAN_STEPS) * SCAN_STEP;
        }
        let mut reach = 0.0;
        let mut before = 0.0;
        for step in 1..=SCAN_STEPS {
            let r = f64::from(step) * SCAN_STEP;
            let Sloped { value: bent, slope } = self.profile(r);
            // The second condition stops at a pole of the rational part between two steps.
            if !(slope > 0.0 && bent > before) {
                break;
            }
            (reach, before) = (r, bent);
        }
        reach
    }

    /// Radial factor and its derivative by r², of the Brown model.
    fn gain(&self, squared: f64) -> Sloped {
        let Self::Brown([k1, k2, _, _, k3, k4, k5, k6]) = *self else {
            return Sloped { value: 1.0, slope: 0.0 };
        };
        let s = squared;
        let above = 1.0 + s * (k1 + s * (k2 + s * k3));
        let below = 1.0 + s * (k4 + s * (k5 + s * k6));
        let d_above = k1 + s * (2.0 * k2 + s * 3.0 * k3);
        let d_below = k4 + s * (2.0 * k5 + s * 3.0 * k6);
        let gain = above / below;
        Sloped { value: gain, slope: (d_above - gain * d_below) / below }
    }

    /// Distorted radius of a radius, and its derivative; tangential terms left out.
    fn profile(&self, r: f64) -> Sloped {
        match *self {
            Self::Brown(_) => {
                let Sloped { value: gain, slope: d_gain } = self.gain(r * r);
                Sloped { value: r * gain, slope: gain + 2.0 * r * r * d_gain }
            }
            Self::Fisheye([k1, k2, k3, k4]) => {
                let angle = r.atan();
                let s = angle * angle;
                let gain = 1.0 + s * (k1 + s * (k2 + s * (k3 + s * k4)));
                let slope = 1.0 + s * (3.0 * k1 + s * (5.0 * k2 + s * (7.0 * k3 + s * 9.0 * k4)));
                Sloped { value: angle * gain, slope: slope / (1.0 + r * r) }
            }
        }
    }

    /// The radius whose distorted radius is `bent`, if it is within `reach`.
    fn radius_from_bent(&self, bent: f64, reach: f64) -> Option<f64> {
        // Also false where a coefficient made it NaN.
        let within = bent <= self.profile(reach).value;
        if !within {
            return None;
        }
        let (mut low, mut high) = (0.0, reach);
        let mut r = bent.min(reach);
        for _ in 0..2 * NEWTON_STEPS {
            let Sloped { value, slope } = self.profile(r);
            if value > bent {
                high = r
            } else {
                low = r
            }
            let newton = r - (value - bent) / slope;
            let next =
                if newton > low && newton < high { newton } else { f64::midpoint(low, high) };
            if (next - r).abs() <= 2.0 * f64::EPSILON * r {
                return Some(next);
            }
            r = next;
        }
        Some(r)
    }

    /// Newton's method on both coordinates of the Brown model, from `start`.
    fn polish(&self, start: [f64; 2], bent: [f64; 2], reach: f64) -> Option<[f64; 2]> {
        let Self::Brown([_, _, p1, p2, ..]) = *self else {
            return Some(start);
        };
        let mut plane = start;
        for _ in 0..NEWTON_STEPS {
            let [x, y] = plane;
            let found = self.bend(plane);
            let miss = [bent[0] - found[0], bent[1] - found[1]];
            let Sloped { value: gain, slope: d_gain } = self.gain(x * x + y * y);
            let xx = gain + 2.0 * x * x * d_gain + 2.0 * p1 * y + 6.0 * p2 * x;
            let xy = 2.0 * x * y * d_gain + 2.0 * p1 * x + 2.0 * p2 * y;
            let yy = gain + 2.0 * y * y * d_gain + 2.0 * p2 * x + 6.0 * p1 * y;
            let determinant = xx * yy - xy * xy;
            let invertible = determinant > 0.0;
            if !invertible {
                return None;
            }
            let step = [
                (yy * miss[0] - xy * miss[1]) / determinant,
                (xx * miss[1] - xy * miss[0]) / determinant,
            ];
            plane = [x + step[0], y + step[1]];
            // Newton squares its error, so the step before last was already this small.
            let size = step[0].hypot(step[1]);
            if size <= 1e-14 * (1.0 + plane[0].hypot(plane[1])) {
                return (plane[0].hypot(plane[1]) <= reach).then_some(plane);
            }
        }
        None
    }
}

impl fmt::Display for Distortion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Brown(_) => "(k1, k2, p1, p2, k3, k4, k5, k6)",
            Self::Fisheye(_) => "(k1, k2, k3, k4)",
        };
        write!(f, "{name} = {:?}", self.coefficients())
    }
}
