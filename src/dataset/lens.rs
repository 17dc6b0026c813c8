//! Lenses with distortion, and undistortion of their images.
//!
//! The trainer draws with pinhole cameras only, so other photographs are resampled once while they are loaded. Rays
//! are points `plane` = (x/z, y/z) of the plane at depth 1.

use std::f64::consts::TAU;
use std::fmt;
use std::ops::RangeInclusive;

use splat_mesh::narrow::floor_u32;

use super::camera::Camera;

/// Tangent of the widest ray on either side of a straightened image: tan 60°.
///
/// A pinhole image needs tan θ for the angle θ, so a fisheye's rim would take most of the pixels and show next to
/// nothing. A field of view beyond 120°, in either direction, is cropped.
const MAX_TANGENT: f64 = 1.732_050_807_568_877_2;

/// Largest width or height of a straightened image, in those of the photograph.
const MAX_GROWTH: f64 = 2.0;

/// Smallest plausible width or height of a straightened image, in those of the photograph.
const MIN_SHARE: f64 = 0.2;

/// Number of samples along each side of the photograph. The straightened sides are smooth, so the extremes between
/// samples are within 1e-4 of the curve's sag.
const BORDER_POINTS: u32 = 256;

/// Used share of the distance to the distortion's fold, where one pixel is stretched over many.
const SAFE_REACH: f64 = 0.98;

/// Lens parameters that no camera can have.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum LensError {
    #[error(
        "{parameter} is {value}, which no camera has. Solve the cameras again, or correct the value"
    )]
    Parameter { parameter: &'static str, value: f64 },
    #[error(
        "the distortion {distortion} folds the {width}x{height} px photograph over itself. Solve the cameras \
         again with a simpler model"
    )]
    Folds { distortion: String, width: u32, height: u32 },
}

/// A solved camera: a pinhole with distortion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lens {
    camera: Camera,
    distortion: Distortion,
    /// Largest |plane| up to which the distortion does not fold.
    reach: f64,
}

impl Lens {
    /// Builds a lens; fails if a parameter is not finite, or not positive where it must be.
    pub fn new(camera: Camera, distortion: Distortion) -> Result<Self, LensError> {
        let check = |parameter, value: f64, good: bool| {
            if good && value.is_finite() {
                Ok(())
            } else {
                Err(LensError::Parameter { parameter, value })
            }
        };
        for (parameter, size) in [("the width", camera.width), ("the height", camera.height)] {
            check(parameter, f64::from(size), size > 0)?;
        }
        for focal in camera.focal_px {
            check("the focal length", focal, focal > 0.0)?;
        }
        for centre in camera.centre_px {
            check("the principal point", centre, true)?;
        }
        for &coefficient in distortion.coefficients() {
            check("a distortion coefficient", coefficient, true)?;
        }
        Ok(Self { camera, distortion, reach: distortion.reach() })
    }

    /// Returns the size of the solved photograph, px.
    pub fn size(&self) -> [u32; 2] {
        [self.camera.width, self.camera.height]
    }

    /// Returns the lens for a resized photograph.
    pub fn resized(&self, width: u32, height: u32) -> Self {
        Self { camera: self.camera.resized(width, height), ..*self }
    }

    /// Projects a ray to the photograph, px.
    pub fn px_from_plane(&self, plane: [f64; 2]) -> [f64; 2] {
        let bent = self.distortion.bend(plane);
        std::array::from_fn(|i| bent[i] * self.camera.focal_px[i] + self.camera.centre_px[i])
    }

    /// Returns the ray of a point of the photograph; `None` if no ray in front of the camera reaches it.
    pub fn plane_from_px(&self, px: [f64; 2]) -> Option<[f64; 2]> {
        let bent =
            std::array::from_fn(|i| (px[i] - self.camera.centre_px[i]) / self.camera.focal_px[i]);
        self.distortion.unbend(bent, self.reach)
    }

    /// Returns the pinhole camera of the trained image, and the mapping from that image to the photograph.
    ///
    /// The pinhole camera keeps the focal lengths. Its image is the rectangle between the innermost points of the
    /// four straightened sides, so every pixel has a source. It is cropped to 60° on either side of the axis, to
    /// twice the photograph's size, and to where the distortion is one to one.
    pub fn straighten(&self) -> Result<(Camera, Option<Undistortion>), LensError> {
        if self.distortion.is_none() {
            return Ok((self.camera, None));
        }
        let rectangle = self.covered().ok_or_else(|| self.folds())?;
        let mut straight = self.camera;
        for axis in 0..2 {
            let focal = self.camera.focal_px[axis];
            let (low, high) = (rectangle.low[axis] * focal, rectangle.high[axis] * focal);
            // The slack absorbs rounding where the sides are straight and fall on whole pixels.
            let size = (high - low + 1e-6).floor();
            let photograph = f64::from(self.size()[axis]);
            if size < 1.0 || size < MIN_SHARE * photograph {
                return Err(self.folds());
            }
            straight.centre_px[axis] = (size - (high - low)) / 2.0 - low;
            let size = floor_u32(size);
            if axis == 0 { straight.width = size } else { straight.height = size }
        }
        Ok((straight, Some(Undistortion { lens: *self, straight })))
    }

    /// Returns the rectangle of the plane that the straightened image shows.
    fn covered(&self) -> Option<Rectangle> {
        let size = self.size().map(f64::from);
        let middle = self.plane_from_px([size[0] / 2.0, size[1] / 2.0])?;
        let growth: [f64; 2] =
            std::array::from_fn(|i| MAX_GROWTH * size[i] / 2.0 / self.camera.focal_px[i]);
        let mut rectangle = Rectangle {
            low: std::array::from_fn(|i| (middle[i] - growth[i]).max(-MAX_TANGENT)),
            high: std::array::from_fn(|i| (middle[i] + growth[i]).min(MAX_TANGENT)),
        };
        for step in 0..=BORDER_POINTS {
            let along = f64::from(step) / f64::from(BORDER_POINTS);
            for axis in 0..2 {
                let across = 1 - axis;
                // A border point without a ray gives no bound; `reach` bounds the rectangle there.
                let side = |position: f64| {
                    let mut px = [0.0; 2];
                    px[axis] = position;
                    px[across] = along * size[across];
                    self.plane_from_px(px).map(|plane| plane[axis])
                };
                if let Some(low) = side(0.0) {
                    rectangle.low[axis] = rectangle.low[axis].max(low);
                }
                if let Some(high) = side(size[axis]) {
                    rectangle.high[axis] = rectangle.high[axis].min(high);
                }
            }
        }
        // No side of the photograph crosses the rectangle, so it is inside the photograph if it contains the middle,
        // else outside.
        let holds_middle =
            (0..2).all(|i| rectangle.low[i] < middle[i] && middle[i] < rectangle.high[i]);
        holds_middle.then(|| rectangle.within(self.reach * SAFE_REACH, middle)).flatten()
    }

    fn folds(&self) -> LensError {
        LensError::Folds {
            distortion: self.distortion.to_string(),
            width: self.camera.width,
            height: self.camera.height,
        }
    }

    /// Returns the worst of the implausible numbers.
    pub(super) fn implausible(&self, keys: &LengthKeys) -> Option<Implausible> {
        let focal = (0..2).filter_map(|axis| self.implausible_focal(axis, keys.focal[axis]));
        let centre = (0..2).filter_map(|axis| self.implausible_centre(axis, keys.centre[axis]));
        let all: Vec<_> = focal.chain(centre).chain(self.implausible_stretch(keys)).collect();
        let worst = all.iter().position(|it| it.is_impossible).unwrap_or(0);
        all.into_iter().nth(worst)
    }

    fn implausible_focal(&self, axis: usize, key: &str) -> Option<Implausible> {
        let (focal, size) = (self.camera.focal_px[axis], self.size()[axis]);
        let side = f64::from(size);
        let is_fisheye = matches!(self.distortion, Distortion::Fisheye(_));
        let over = |side: f64| {
            let radians = if is_fisheye { side / focal } else { 2.0 * (side / 2.0 / focal).atan() };
            radians * 360.0 / TAU
        };
        let field = over(side);
        // The image circle of a fisheye may be smaller than the longer side.
        let shorter = f64::from(self.size()[0].min(self.size()[1]));
        let least = if is_fisheye { over(shorter) } else { field };
        let widest = |of_pinhole: f64| if is_fisheye { MAX_FISHEYE_FIELD } else { of_pinhole };
        let is_within = |fields: RangeInclusive<f64>, field: f64| {
            (*fields.start()..=widest(*fields.end())).contains(&field)
        };
        (!is_within(USUAL_FIELDS, field)).then(|| Implausible {
            is_impossible: !is_within(POSSIBLE_FIELDS, least),
            found: format!(
                "{key} = {} px, a field of view of {} degrees over {size} px",
                shown(focal),
                degrees(field)
            ),
            remedy: "Give it in px of the photograph, or solve the cameras again",
        })
    }

    fn implausible_centre(&self, axis: usize, key: &str) -> Option<Implausible> {
        let (centre, size) = (self.camera.centre_px[axis], self.size()[axis]);
        let side = f64::from(size);
        if (EDGE_MARGIN * side..=(1.0 - EDGE_MARGIN) * side).contains(&centre) {
            return None;
        }
        let outside = (-centre).max(centre - side).max(0.0);
        let angle = (outside / self.camera.focal_px[axis]).atan() * 360.0 / TAU;
        let found = if outside > 0.0 {
            format!("{key} = {} px, outside of a photograph of {size} px", shown(centre))
        } else {
            format!("{key} = {} px, at the edge of a photograph of {size} px", shown(centre))
        };
        let is_impossible = angle > MAX_ANGLE_FROM_AXIS;
        let remedy = match is_impossible {
            true => "Give it in px of the photograph, or solve the cameras again",
            false => "Right for crops alone; else give it in px of the photograph",
        };
        Some(Implausible { is_impossible, found, remedy })
    }

    fn implausible_stretch(&self, keys: &LengthKeys) -> Option<Implausible> {
        let [x, y] = self.camera.focal_px;
        let [key_x, key_y] = keys.focal;
        (x.max(y) > MAX_STRETCH * x.min(y)).then(|| Implausible {
            is_impossible: false,
            found: format!(
                "{key_x} = {} and {key_y} = {} px, pixels that are far from square",
                shown(x),
                shown(y)
            ),
            remedy: "Give both in px of the photograph, or solve the cameras again",
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Rectangle {
    low: [f64; 2],
    high: [f64; 2],
}

impl Rectangle {
    /// Shrinks the rectangle towards `middle` until its corners are within `reach` of the axis.
    fn within(self, reach: f64, middle: [f64; 2]) -> Option<Self> {
        let shrunk = |share: f64| Self {
            low: std::array::from_fn(|i| middle[i] + share * (self.low[i] - middle[i])),
            high: std::array::from_fn(|i| middle[i] + share * (self.high[i] - middle[i])),
        };
        let fits = |Self { low, high }: &Self| {
            let [x, y] = [0, 1].map(|i| low[i].abs().max(high[i].abs()));
            x.hypot(y) <= reach
        };
        if fits(&self) {
            return Some(self);
        }
        let (mut good, mut bad) = (0.0, 1.0);
        if !fits(&shrunk(good)) {
            return None;
        }
        for _ in 0..50 {
            let share = (good + bad) / 2.0;
            if fits(&shrunk(share)) { good = share } else { bad = share }
        }
        Some(shrunk(good))
    }
}

/// Mapping from the pixels of a straightened image to the photograph, both at full size.
#[derive(Clone, Debug, PartialEq)]
pub struct Undistortion {
    lens: Lens,
    straight: Camera,
}

impl Undistortion {
    /// Returns the position in the photograph of a point of the straightened image, px.
    pub fn source_px(&self, target_px: [f64; 2]) -> [f64; 2] {
        self.lens.px_from_plane(std::array::from_fn(|i| {
            (target_px[i] - self.straight.centre_px[i]) / self.straight.focal_px[i]
        }))
    }
}

// Distortion and its inverse. The models are COLMAP's ("Camera Models" in its documentation) and so OpenCV's ("Camera
// Calibration and 3D Reconstruction" and "Fisheye camera model").

/// Step of the search for a distortion's fold, and number of steps (up to 84° off the axis).
const SCAN_STEP: f64 = 1.0 / 512.0;
const SCAN_STEPS: u32 = 5120;

/// Newton steps before a point counts as having no inverse; a dozen suffice if there is one.
const NEWTON_STEPS: usize = 50;

/// Displacement of rays on the plane at depth 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distortion {
    /// Radial and tangential: with r² = x² + y²,
    /// x' = x (1 + k1 r² + k2 r⁴ + k3 r⁶) / (1 + k4 r² + k5 r⁴ + k6 r⁶) + 2 p1 x y + p2 (r² + 2 x²)
    /// and likewise for y with p1 and p2 exchanged. All zeros: no distortion.
    Brown([f64; 8]),
    /// Equidistant fisheye: θ = atan r becomes θ (1 + k1 θ² + k2 θ⁴ + k3 θ⁶ + k4 θ⁸).
    Fisheye([f64; 4]),
}

#[derive(Clone, Copy)]
struct Sloped {
    value: f64,
    slope: f64,
}

impl Distortion {
    /// No distortion.
    pub const NONE: Self = Self::Brown([0.0; 8]);

    /// Builds the Brown model from radial coefficients k1 to k6 and tangential p1, p2.
    pub fn brown(radial: [f64; 6], tangential: [f64; 2]) -> Self {
        let [k1, k2, k3, k4, k5, k6] = radial;
        let [p1, p2] = tangential;
        Self::Brown([k1, k2, p1, p2, k3, k4, k5, k6])
    }

    /// Returns all coefficients, in COLMAP's order.
    pub fn coefficients(&self) -> &[f64] {
        match self {
            Self::Brown(coefficients) => coefficients,
            Self::Fisheye(coefficients) => coefficients,
        }
    }

    /// True if straight lines stay straight.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Distorts a ray.
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

    /// Inverts [`Self::bend`]; `None` if no ray within `reach` is bent to `bent`.
    ///
    /// Newton's method first solves for the radius, bracketed so that it stays where the radius grows, then for both
    /// coordinates, for the tangential terms.
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

    /// Returns the largest radius up to which the distorted radius grows; 10 if it grows for ever.
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

    /// Returns the Brown model's radial factor and its derivative by r².
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

    /// Returns the distorted radius and its derivative, without tangential terms.
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

    /// Returns the radius whose distorted radius is `bent`, if it is within `reach`.
    fn radius_from_bent(&self, bent: f64, reach: f64) -> Option<f64> {
        // Also false for NaN.
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

    /// Solves for both coordinates of the Brown model by Newton's method, from `start`.
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

// Limits of focal lengths and principal points. Values beyond them are a mistake of units (shares of the width,
// millimetres, degrees) or of the solver.

/// Fields of view that can be trained on, degrees: from crops of satellite images to a pinhole whose border stretches
/// a pixel of the middle over 500.
pub(super) const POSSIBLE_FIELDS: RangeInclusive<f64> = 0.001..=175.0;

/// Usual fields of view of photographs, degrees.
const USUAL_FIELDS: RangeInclusive<f64> = 1.0..=150.0;

/// Largest field of view of a fisheye, degrees.
const MAX_FISHEYE_FIELD: f64 = 360.0;

/// Largest angle between the axis and the nearest point of a photograph, degrees.
const MAX_ANGLE_FROM_AXIS: f64 = 80.0;

/// Smallest distance of the usual principal point from the photograph's edges, as a share of the side.
const EDGE_MARGIN: f64 = 0.02;

/// Largest usual ratio of the focal lengths; anamorphic films have 2.
const MAX_STRETCH: f64 = 2.1;

/// Names of a camera's lengths in the files of a scene, for x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LengthKeys {
    pub(super) focal: [&'static str; 2],
    pub(super) centre: [&'static str; 2],
}

/// An implausible number of a camera.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Implausible {
    /// True if the camera cannot give a useful image.
    pub(super) is_impossible: bool,
    /// The number with its name and meaning.
    pub(super) found: String,
    pub(super) remedy: &'static str,
}

/// Formats a number for a message.
fn shown(number: f64) -> String {
    if (1e-3..1e7).contains(&number.abs()) || number == 0.0 {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

fn degrees(angle: f64) -> String {
    if angle < 0.01 { format!("{angle:.1e}") } else { format!("{angle:.2}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dataset::Camera;

    const KEYS: LengthKeys = LengthKeys { focal: ["fx", "fy"], centre: ["cx", "cy"] };

    const NONE: Distortion = Distortion::NONE;

    const FISHEYE: Distortion = Distortion::Fisheye([0.0; 4]);

    /// Focal lengths, principal point, distortion, and the expected fault (true: impossible).
    type Case = ([f64; 2], [f64; 2], Distortion, Option<(bool, &'static str)>);

    #[test]
    fn implausible_numbers_are_named() {
        let usual = ([152.0, 150.0], [82.0, 58.0]);
        let cases: [Case; 26] = [
            (usual.0, usual.1, NONE, None),
            // A crop of a corner that still holds the axis, and an anamorphic film.
            (usual.0, [5.0, 114.0], NONE, None),
            ([150.0, 300.0], usual.1, NONE, None),
            // A telescope, a wide pinhole and a fisheye with a field of 180 degrees.
            ([5e3, 5e3], usual.1, NONE, None),
            ([40.0, 40.0], usual.1, NONE, None),
            ([51.0, 51.0], usual.1, FISHEYE, None),
            // A crop of a satellite picture; no camera.
            ([2.06e6, 2.06e6], usual.1, NONE, Some((false, "fx = 2060000 px"))),
            ([2e7, 2e7], usual.1, NONE, Some((true, "fx = 2e7 px"))),
            // Fisheyes whose image circle is smaller than the width, and larger than any.
            ([23.0, 23.0], usual.1, FISHEYE, Some((false, "398.58 degrees over 160 px"))),
            ([19.0, 19.0], usual.1, FISHEYE, Some((true, "fx = 19 px"))),
            ([1e4, 1e4], usual.1, NONE, Some((false, "fx = 10000 px"))),
            ([152.0, 9.9e3], usual.1, NONE, Some((false, "fy = 9900 px"))),
            ([1e9, 150.0], usual.1, NONE, Some((true, "fx = 1e9 px"))),
            ([1e-3, 1e-3], usual.1, NONE, Some((true, "fx = 0.001 px"))),
            // Shares of the width; a fisheye beyond 360 degrees.
            ([0.95, 1.25], [0.5, 0.5], NONE, Some((true, "fx = 0.95 px"))),
            ([10.0, 10.0], usual.1, FISHEYE, Some((true, "fx = 10 px"))),
            ([20.0, 20.0], usual.1, NONE, Some((false, "151.93 degrees over 160 px"))),
            ([150.0, 400.0], usual.1, NONE, Some((false, "fx = 150 and fy = 400 px"))),
            (usual.0, [0.5, 58.0], NONE, Some((false, "cx = 0.5 px, at the edge"))),
            (usual.0, [82.0, 0.0], NONE, Some((false, "cy = 0 px"))),
            (
                usual.0,
                [400.0, 58.0],
                NONE,
                Some((false, "cx = 400 px, outside of a photograph of 160 px")),
            ),
            (usual.0, [-5000.0, 58.0], NONE, Some((true, "cx = -5000 px"))),
            (usual.0, [5000.0, 58.0], NONE, Some((true, "cx = 5000 px, outside"))),
            (usual.0, [82.0, 1e300], NONE, Some((true, "cy = 1e300 px"))),
            // A tile of a large photograph.
            ([5e3, 5e3], [-5000.0, 58.0], NONE, Some((false, "cx = -5000 px"))),
            // The impossible one is named first.
            (usual.0, [0.0, -5000.0], NONE, Some((true, "cy = -5000 px"))),
        ];
        for (focal_px, centre_px, distortion, expected) in cases {
            let camera = Camera { width: 160, height: 120, focal_px, centre_px };
            let found = Lens::new(camera, distortion).unwrap().implausible(&KEYS);
            let is_impossible = found.as_ref().map(|it| it.is_impossible);
            assert_eq!(is_impossible, expected.map(|it| it.0), "{camera:?}: {found:?}");
            if let (Some(found), Some((_, part))) = (found, expected) {
                assert!(found.found.contains(part), "{found:?} without {part}");
            }
        }
    }

    fn lens(focal_px: [f64; 2], distortion: Distortion) -> Lens {
        let camera = Camera { width: 1280, height: 960, focal_px, centre_px: [651.25, 467.75] };
        Lens::new(camera, distortion).unwrap()
    }

    const PLANE: [[f64; 2]; 4] = [[0.31, -0.17], [-0.62, 0.45], [0.05, 0.52], [-0.7, -0.5]];

    /// Focal lengths, coefficients in COLMAP's order, and the pixels of `PLANE` by pycolmap 4.2.1's
    /// `Camera.img_from_cam`: `SIMPLE_RADIAL`, RADIAL, OPENCV, `FULL_OPENCV` and `OPENCV_FISHEYE`.
    const RECORDED: &str = "
        900.5 900.5 -0.11 0 0 0 0 0 0 0
        926.56661875 316.76991875 128.9839352900001 846.814079225
        694.923394525 921.95330306 72.21049000000005 54.15035;
        900.5 900.5 -0.21 0.043 0 0 0 0 0 0
        923.2647385156249 318.580627265625 153.48178571969868 829.0333813324768
        693.8388503183407 910.6740433107439 104.01366461999999 76.86690329999999;
        901.5 905.25 -0.21 0.043 0.0021 -0.0013 0 0 0 0
        922.995528746875 318.26532632656244 150.28382670477612 833.4813910510809
        693.6589038833223 914.49606915033 102.71541286000001 76.33854814999995;
        901.5 905.25 -0.21 0.043 0.0021 -0.0013 0.011 0.023 -0.017 0.0031
        922.291149664258 318.65320551705736 153.1382755825872 831.40099559729
        693.4537017501217 912.3530896680999 104.79638456326518 77.83113957253443;
        501.5 505.25 0.043 -0.021 0.0113 -0.0037
        801.3863088156829 384.80153632681925 381.86848755900866 664.7308449566298
        674.564556346124 712.0344821063677 356.2506781125446 255.4605720215969";

    fn recorded() -> impl Iterator<Item = (Lens, Vec<[f64; 2]>)> {
        RECORDED.split(';').map(|text| {
            let numbers = text.split_whitespace().map(|number| number.parse().unwrap());
            let numbers: Vec<f64> = numbers.collect();
            let (&focal_px, rest) = numbers.split_first_chunk().unwrap();
            let (coefficients, px) = rest.split_at(rest.len() - 2 * PLANE.len());
            let distortion = match coefficients.try_into() {
                Ok(coefficients) => Distortion::Brown(coefficients),
                Err(_) => Distortion::Fisheye(coefficients.try_into().unwrap()),
            };
            (lens(focal_px, distortion), px.as_chunks().0.to_vec())
        })
    }

    #[test]
    fn projection_matches_colmap_and_inverts() {
        for (lens, expected) in recorded() {
            for (plane, expected) in PLANE.into_iter().zip(expected) {
                let px = lens.px_from_plane(plane);
                let back = lens.plane_from_px(expected).unwrap();
                for i in 0..2 {
                    // Rounding of numbers near 1000 in double precision, a few operations long.
                    assert!((px[i] - expected[i]).abs() < 1e-11, "{lens:?}: {px:?}");
                    assert!((back[i] - plane[i]).abs() < 1e-13, "{lens:?}: {back:?}");
                }
            }
        }
    }

    /// Asserts that every pixel corner on the rim of the straightened image has its source in the photograph.
    fn assert_covered(lens: &Lens) -> Camera {
        let (straight, undistortion) = lens.straighten().unwrap();
        let undistortion = undistortion.unwrap();
        let target = [straight.width, straight.height].map(f64::from);
        let photograph = lens.size().map(f64::from);
        for step in 0..=1000 {
            let along = f64::from(step) / 1000.0;
            for px in [
                [along * target[0], 0.0],
                [along * target[0], target[1]],
                [0.0, along * target[1]],
                [target[0], along * target[1]],
            ] {
                let source = undistortion.source_px(px);
                for i in 0..2 {
                    // The border is sampled, not solved: a hundredth of a pixel may be missing.
                    let inside = source[i] > -0.01 && source[i] < photograph[i] + 0.01;
                    assert!(inside, "{lens:?}: {px:?} comes from {source:?}");
                }
            }
        }
        straight
    }

    #[test]
    fn straightened_images_keep_the_focal_length_and_have_no_blank_pixels() {
        for (lens, _) in recorded() {
            let straight = assert_covered(&lens);
            assert_eq!(straight.focal_px, lens.camera.focal_px);
            // These lenses pull the rim inwards, so the straightened image is larger.
            assert!(straight.width > 1280 && straight.height > 960, "{straight:?}");
        }
        let pincushion = Distortion::brown([0.1, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let straight = assert_covered(&lens([900.0; 2], pincushion));
        assert!(straight.width < 1280 && straight.height < 960, "{straight:?}");
    }

    #[test]
    fn wide_and_folding_lenses_are_cropped() {
        // 180° across the diagonal and more: the corners see behind the camera.
        let fisheye = lens([420.0; 2], Distortion::Fisheye([0.01, 0.002, -0.001, 0.0001]));
        let straight = assert_covered(&fisheye);
        let half = f64::from(straight.width) / 2.0 / straight.focal_px[0];
        assert!(half <= MAX_TANGENT && half > 1.5, "{straight:?}");
        // r (1 - 0.6 r²) grows up to r = 0.745 only, and the corners lie at 0.89.
        let folding = Distortion::brown([-0.6, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let lens = lens([900.0; 2], folding);
        assert!((lens.reach - (1.0_f64 / 1.8).sqrt()).abs() < 0.003, "{}", lens.reach);
        let straight = assert_covered(&lens);
        let corner = f64::from(straight.width).hypot(f64::from(straight.height)) / 2.0 / 900.0;
        assert!(corner < lens.reach + 0.02, "{straight:?}");
    }

    #[test]
    fn a_lens_without_distortion_keeps_its_camera() {
        let none = lens([900.0, 901.0], Distortion::NONE);
        assert_eq!(none.straighten().unwrap(), (none.camera, None));
        let nothing = Distortion::brown([1e-15, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let lens = lens([900.0, 901.0], nothing);
        let (straight, _) = lens.straighten().unwrap();
        assert_eq!([straight.width, straight.height], lens.size());
        // 1e-15 of a ray's length of 1, times the focal length, and the slack of 1e-6.
        for i in 0..2 {
            assert!((straight.centre_px[i] - lens.camera.centre_px[i]).abs() < 1e-6);
        }
    }

    #[test]
    fn impossible_parameters_are_named() {
        let camera = Camera { width: 10, height: 9, focal_px: [0.0, 5.0], centre_px: [5.0, 4.0] };
        let error = Lens::new(camera, Distortion::NONE).unwrap_err().to_string();
        assert!(error.contains("focal length is 0"), "{error}");
        let camera = Camera { focal_px: [5.0; 2], ..camera };
        let nan = Distortion::Fisheye([0.0, f64::NAN, 0.0, 0.0]);
        assert!(Lens::new(camera, nan).unwrap_err().to_string().contains("NaN"));
    }

    proptest! {
        #[test]
        fn bending_and_unbending_agree(
            k in prop::array::uniform4(-0.3_f64..0.3),
            rational in prop::array::uniform2(-0.1_f64..0.1),
            tangential in prop::array::uniform2(-0.005_f64..0.005),
            plane in prop::array::uniform2(-1.0_f64..1.0),
        ) {
            let [k4, k5] = rational;
            let brown = Distortion::brown([k[0], k[1], k[2], k4, k5, 0.0], tangential);
            for distortion in [brown, Distortion::Fisheye(k.map(|k| k / 3.0))] {
                let reach = distortion.reach();
                // Near the fold the inverse is ill conditioned, and beyond it there are two.
                prop_assume!(plane[0].hypot(plane[1]) < 0.8 * reach);
                let back = distortion.unbend(distortion.bend(plane), reach);
                let back = back.expect("a ray within reach has an inverse");
                for i in 0..2 {
                    prop_assert!((back[i] - plane[i]).abs() < 1e-9, "{distortion}: {back:?}");
                }
            }
        }

        #[test]
        fn straightening_never_panics(
            k in prop::array::uniform8(prop::num::f64::ANY),
            focal in prop::array::uniform2(prop::num::f64::ANY),
            centre in prop::array::uniform2(-1e4_f64..1e4),
            size in prop::array::uniform2(0_u32..5000),
        ) {
            let [width, height] = size;
            let camera = Camera { width, height, focal_px: focal, centre_px: centre };
            let fisheye = Distortion::Fisheye([k[0], k[1], k[2], k[3]]);
            for distortion in [Distortion::Brown(k), fisheye] {
                if let Ok(lens) = Lens::new(camera, distortion) {
                    lens.straighten().ok();
                }
            }
        }
    }
}
