//! Lenses that bend straight lines, and the straightening of their images.
//!
//! The trainer draws with pinhole cameras only; a photograph taken through another lens is
//! resampled once, while it is loaded. Rays are written as points `plane` of the plane at depth 1
//! before the camera, (x/z, y/z).

mod distortion;
mod plausible;
#[cfg(test)]
mod tests;

pub use distortion::Distortion;
pub(super) use plausible::{Implausible, LengthKeys, POSSIBLE_FIELDS};

use super::camera::Camera;

/// Widest ray kept on either side of a straightened image: tan 60°.
///
/// A pinhole image needs tan θ for the angle θ, so that a fisheye's rim would take most of the
/// pixels and show next to nothing. What lies beyond 120° of field, in either direction, is cropped.
const WIDEST: f64 = 1.732_050_807_568_877_2;

/// A straightened image is at most this many times as wide or as high as the photograph.
const MOST_GROWTH: f64 = 2.0;

/// Below this share of the photograph's width or height the distortion cannot be meant.
const LEAST_SHARE: f64 = 0.2;

/// Points tried along each side of the photograph. Its straightened sides are smooth curves, so the
/// extremes between the points lie within 1e-4 of the curve's sag.
const BORDER_POINTS: u32 = 256;

/// Share of the distance to the fold of the distortion that is used; the fold itself stretches
/// one pixel over many.
const SAFE_REACH: f64 = 0.98;

/// Lens parameters that no camera can have.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum LensError {
    /// Not finite, or a focal length or size that is not positive.
    #[error(
        "{parameter} is {value}, which no camera has. Solve the cameras again, or correct the value"
    )]
    Parameter {
        /// What the parameter means.
        parameter: &'static str,
        /// What it is.
        value: f64,
    },
    /// No rectangle of the image plane is covered by the photograph.
    #[error(
        "the distortion {distortion} folds the {width}x{height} px photograph over itself. Solve the cameras \
         again with a simpler model"
    )]
    Folds {
        /// The distortion, with its coefficients.
        distortion: String,
        /// Width of the photograph in px.
        width: u32,
        /// Height of the photograph in px.
        height: u32,
    },
}

/// A camera as it was solved: a pinhole with a distortion before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lens {
    /// Size, focal lengths and principal point.
    camera: Camera,
    /// What bends the rays.
    distortion: Distortion,
    /// Largest |plane| up to which the distortion does not fold.
    reach: f64,
}

impl Lens {
    /// A lens; fails on parameters that are not finite or not positive where they must be.
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

    /// Size of the photograph in px, as it was solved.
    pub fn size(&self) -> [u32; 2] {
        [self.camera.width, self.camera.height]
    }

    /// The same lens with its photograph resized.
    pub fn resized(&self, width: u32, height: u32) -> Self {
        Self { camera: self.camera.resized(width, height), ..*self }
    }

    /// Where in the photograph a ray falls, px.
    pub fn px_from_plane(&self, plane: [f64; 2]) -> [f64; 2] {
        let bent = self.distortion.bend(plane);
        std::array::from_fn(|i| bent[i] * self.camera.focal_px[i] + self.camera.centre_px[i])
    }

    /// The ray of a point of the photograph; `None` if no ray before the camera falls there.
    pub fn plane_from_px(&self, px: [f64; 2]) -> Option<[f64; 2]> {
        let bent =
            std::array::from_fn(|i| (px[i] - self.camera.centre_px[i]) / self.camera.focal_px[i]);
        self.distortion.unbend(bent, self.reach)
    }

    /// The pinhole camera whose image is trained, and how to get that image from the photograph.
    ///
    /// The straightened camera keeps the focal lengths. Its image is the rectangle between the
    /// innermost points of the photograph's four straightened sides, so every pixel has a source;
    /// it is cropped to 60° on either side of the axis, to twice the photograph's size, and to
    /// where the distortion is one to one.
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
            if size < 1.0 || size < LEAST_SHARE * photograph {
                return Err(self.folds());
            }
            straight.centre_px[axis] = (size - (high - low)) / 2.0 - low;
            let size = whole(size);
            if axis == 0 { straight.width = size } else { straight.height = size }
        }
        Ok((straight, Some(Undistortion { lens: *self, straight })))
    }

    /// The rectangle of the plane that the straightened image shows.
    fn covered(&self) -> Option<Rectangle> {
        let size = self.size().map(f64::from);
        let middle = self.plane_from_px([size[0] / 2.0, size[1] / 2.0])?;
        let growth: [f64; 2] =
            std::array::from_fn(|i| MOST_GROWTH * size[i] / 2.0 / self.camera.focal_px[i]);
        let mut rectangle = Rectangle {
            low: std::array::from_fn(|i| (middle[i] - growth[i]).max(-WIDEST)),
            high: std::array::from_fn(|i| (middle[i] + growth[i]).min(WIDEST)),
        };
        for step in 0..=BORDER_POINTS {
            let along = f64::from(step) / f64::from(BORDER_POINTS);
            for axis in 0..2 {
                let across = 1 - axis;
                // A point of the border that no ray reaches bounds nothing: `reach` does.
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
        // No side of the photograph crosses the rectangle, so it lies wholly inside or wholly
        // outside of the photograph: inside if it holds the middle.
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
}

/// An axis-aligned rectangle of the plane.
#[derive(Clone, Copy, Debug)]
struct Rectangle {
    low: [f64; 2],
    high: [f64; 2],
}

impl Rectangle {
    /// The rectangle shrunk towards `middle` until its corners are within `reach` of the axis.
    fn within(self, reach: f64, middle: [f64; 2]) -> Option<Self> {
        let shrunk = |share: f64| Self {
            low: std::array::from_fn(|i| middle[i] + share * (self.low[i] - middle[i])),
            high: std::array::from_fn(|i| middle[i] + share * (self.high[i] - middle[i])),
        };
        let fits = |rectangle: &Self| rectangle.farthest_corner() <= reach;
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

    fn farthest_corner(&self) -> f64 {
        let x = self.low[0].abs().max(self.high[0].abs());
        x.hypot(self.low[1].abs().max(self.high[1].abs()))
    }
}

/// A size in px from a whole, positive number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole, positive, and at most twice a size that was a u32; `as` saturates"
)]
fn whole(size: f64) -> u32 {
    size as u32
}

/// Maps the pixels of a straightened image to those of the photograph, both at full size.
#[derive(Clone, Debug, PartialEq)]
pub struct Undistortion {
    lens: Lens,
    straight: Camera,
}

impl Undistortion {
    /// Where in the photograph the straightened image's point lies, px.
    pub fn source_px(&self, target_px: [f64; 2]) -> [f64; 2] {
        self.lens.px_from_plane(std::array::from_fn(|i| {
            (target_px[i] - self.straight.centre_px[i]) / self.straight.focal_px[i]
        }))
    }
}
