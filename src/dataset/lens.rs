//! Lenses that bend straight lines, and the straightening of their images.
//!
//! The trainer draws with pinhole cameras only; a photograph taken through another lens is
//! resampled once, while it is loaded. Rays are written as points `plane` of the plane at depth 1
//! before the camera, (x/z, y/z).

mod distortion;

pub use distortion::Distortion;

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
        "the distortion {distortion} folds the {width}x{height} px photograph over itself, so it \
         cannot be straightened. Solve the cameras again, with a simpler model or a better start"
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lens(focal_px: [f64; 2], distortion: Distortion) -> Lens {
        let camera = Camera { width: 1280, height: 960, focal_px, centre_px: [651.25, 467.75] };
        Lens::new(camera, distortion).unwrap()
    }

    const PLANE: [[f64; 2]; 4] = [[0.31, -0.17], [-0.62, 0.45], [0.05, 0.52], [-0.7, -0.5]];

    /// What pycolmap 4.2.1's `Camera.img_from_cam` answers for `PLANE`, for `SIMPLE_RADIAL`, RADIAL,
    /// OPENCV, `FULL_OPENCV` and `OPENCV_FISHEYE`.
    fn recorded() -> Vec<(Lens, [[f64; 2]; 4])> {
        let brown = |k, p| Distortion::brown(k, p);
        vec![
            (
                lens([900.5; 2], brown([-0.11, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2])),
                [
                    [926.56661875, 316.76991875],
                    [128.9839352900001, 846.814079225],
                    [694.923394525, 921.95330306],
                    [72.21049000000005, 54.15035],
                ],
            ),
            (
                lens([900.5; 2], brown([-0.21, 0.043, 0.0, 0.0, 0.0, 0.0], [0.0; 2])),
                [
                    [923.2647385156249, 318.580627265625],
                    [153.48178571969868, 829.0333813324768],
                    [693.8388503183407, 910.6740433107439],
                    [104.01366461999999, 76.86690329999999],
                ],
            ),
            (
                lens([901.5, 905.25], brown([-0.21, 0.043, 0.0, 0.0, 0.0, 0.0], [0.0021, -0.0013])),
                [
                    [922.995528746875, 318.26532632656244],
                    [150.28382670477612, 833.4813910510809],
                    [693.6589038833223, 914.49606915033],
                    [102.71541286000001, 76.33854814999995],
                ],
            ),
            (
                lens(
                    [901.5, 905.25],
                    brown([-0.21, 0.043, 0.011, 0.023, -0.017, 0.0031], [0.0021, -0.0013]),
                ),
                [
                    [922.291149664258, 318.65320551705736],
                    [153.1382755825872, 831.40099559729],
                    [693.4537017501217, 912.3530896680999],
                    [104.79638456326518, 77.83113957253443],
                ],
            ),
            (
                lens([501.5, 505.25], Distortion::Fisheye([0.043, -0.021, 0.0113, -0.0037])),
                [
                    [801.3863088156829, 384.80153632681925],
                    [381.86848755900866, 664.7308449566298],
                    [674.564556346124, 712.0344821063677],
                    [356.2506781125446, 255.4605720215969],
                ],
            ),
        ]
    }

    #[test]
    fn rays_fall_where_colmap_says_and_come_back() {
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

    /// Every pixel corner on the rim of the straightened image has its source in the photograph.
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
            // These lenses pull the rim inwards, so the straightened image is the larger one.
            assert!(straight.width > 1280 && straight.height > 960, "{straight:?}");
        }
        let pincushion = Distortion::brown([0.1, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let straight = assert_covered(&lens([900.0; 2], pincushion));
        assert!(straight.width < 1280 && straight.height < 960, "{straight:?}");
    }

    #[test]
    fn a_fisheye_that_sees_half_the_world_is_cropped_to_sixty_degrees() {
        // 180° across the diagonal and more: the corners see behind the camera.
        let fisheye = lens([420.0; 2], Distortion::Fisheye([0.01, 0.002, -0.001, 0.0001]));
        let straight = assert_covered(&fisheye);
        let half = f64::from(straight.width) / 2.0 / straight.focal_px[0];
        assert!(half <= WIDEST && half > 1.5, "{straight:?}");
    }

    #[test]
    fn a_lens_that_folds_is_cropped_before_the_fold() {
        // r (1 - 0.6 r²) grows up to r = 0.745 only, and the corners lie at 0.89.
        let folding = Distortion::brown([-0.6, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let lens = lens([900.0; 2], folding);
        assert!((lens.reach - (1.0_f64 / 1.8).sqrt()).abs() < 0.003, "{}", lens.reach);
        let straight = assert_covered(&lens);
        let corner = f64::from(straight.width).hypot(f64::from(straight.height)) / 2.0 / 900.0;
        assert!(corner < lens.reach + 0.02, "{straight:?}");
    }

    #[test]
    fn an_undistorted_lens_is_used_as_it_is() {
        let lens = lens([900.0, 901.0], Distortion::NONE);
        assert_eq!(lens.straighten().unwrap(), (lens.camera, None));
    }

    #[test]
    fn a_distortion_that_vanishes_leaves_the_camera_as_it_was() {
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
        fn no_parameters_make_straightening_panic(
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
