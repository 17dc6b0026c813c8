//! Fits cameras to photographs.

use std::path::Path;

use super::camera::Camera;
use super::error::DatasetError;
use super::image::{ImageHeader, ROUNDED_SHARE};
use super::lens::{Lens, Undistortion, whole};

/// Width that `-r -1` scales wider photographs to, px.
const DEFAULT_MAX_WIDTH: u32 = 1600;

/// A camera at the photograph's full size.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) camera: Camera,
    pub(super) undistort: Option<Undistortion>,
    /// True if the pixels are rotated by the EXIF orientation.
    pub(super) apply_orientation: bool,
}

/// Fits the camera to the photograph.
///
/// Structure from motion often ignores EXIF, so the stored pixels are used if their size equals the camera's or has
/// its shape. Otherwise the size after the EXIF rotation is tried.
pub(super) fn fit(lens: Lens, header: &ImageHeader, path: &Path) -> Result<Fitted, DatasetError> {
    let stored = [header.width, header.height];
    let turned = [header.height, header.width];
    let failed = |source| DatasetError::Lens { path: path.to_owned(), source };
    let solved = lens.size();
    let (size, apply_orientation) = if same_shape(stored, solved) {
        (stored, false)
    } else if header.orientation_swaps && same_shape(turned, solved) {
        (turned, true)
    } else {
        return Err(DatasetError::SizeMismatch {
            path: path.to_owned(),
            width: stored[0],
            height: stored[1],
            camera_width: solved[0],
            camera_height: solved[1],
        });
    };
    let lens = if size == solved { lens } else { lens.resized(size[0], size[1]) };
    let (camera, undistort) = lens.straighten().map_err(failed)?;
    Ok(Fitted { camera, undistort, apply_orientation })
}

/// True if `size` is `solved` scaled, with either side rounded to a pixel.
fn same_shape(size: [u32; 2], solved: [u32; 2]) -> bool {
    let [width, height] = size.map(f64::from);
    let [solved_width, solved_height] = solved.map(f64::from);
    size[0] > 0
        && size[1] > 0
        && (is_rounded(height, solved_height * width / solved_width)
            || is_rounded(width, solved_width * height / solved_height))
}

fn is_rounded(side: f64, exact: f64) -> bool {
    (side - exact).abs() <= (ROUNDED_SHARE * side).min(1.0)
}

/// Returns the trained size: the photograph's size at the resolution, times a scale.
pub(super) fn trained_size(
    full: [u32; 2],
    resolution: i32,
    scale: f64,
) -> Result<[u32; 2], DatasetError> {
    let size = size_by_resolution(full, resolution)?;
    Ok(size.map(|side| size_px((f64::from(side) * scale).round_ties_even())))
}

/// Returns the size that Inria's trainer chooses: 1, 2, 4 and 8 divide and round (halves to even), -1 limits the
/// width to 1600 px, other positive numbers are the width in px. The last two round down, so the width may be 1 px
/// less.
fn size_by_resolution(full: [u32; 2], resolution: i32) -> Result<[u32; 2], DatasetError> {
    let width = f64::from(full[0]);
    let scaled = |divisor: f64, round: fn(f64) -> f64| {
        full.map(|size| size_px(round(f64::from(size) / divisor)))
    };
    match resolution {
        1 | 2 | 4 | 8 => Ok(scaled(f64::from(resolution), f64::round_ties_even)),
        -1 if full[0] > DEFAULT_MAX_WIDTH => {
            Ok(scaled(width / f64::from(DEFAULT_MAX_WIDTH), f64::floor))
        }
        -1 => Ok(full),
        target if target > 0 => Ok(scaled(width / f64::from(target), f64::floor)),
        value => Err(DatasetError::Resolution { value }),
    }
}

/// Converts a rounded size to px; at least 1.
fn size_px(size: f64) -> u32 {
    whole(size).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::lens::Distortion;
    use crate::dataset::shot::{Focal, Optics, SizelessLens};

    #[test]
    fn resolutions_match_inria() {
        for (full, resolution, expected) in [
            ([1061, 1894], 1, [1061, 1894]),
            // Python rounds 530.5 and 132.5 to even.
            ([1061, 1894], 2, [530, 947]),
            ([1060, 1894], 8, [132, 237]),
            ([800, 533], 4, [200, 133]),
            ([800, 533], -1, [800, 533]),
            ([4000, 3000], -1, [1600, 1200]),
            ([800, 533], 400, [400, 266]),
            ([800, 533], 3, [3, 1]),
            ([3, 2], 8, [1, 1]),
        ] {
            assert_eq!(trained_size(full, resolution, 1.0).unwrap(), expected, "{resolution}");
        }
        for wrong in [0, -2, i32::MIN] {
            let error = trained_size([800, 533], wrong, 1.0).unwrap_err().to_string();
            assert!(error.contains(&wrong.to_string()), "{error}");
        }
    }

    fn lens(width: u32, height: u32) -> Lens {
        let camera = Camera { width, height, focal_px: [900.0, 910.0], centre_px: [500.0, 900.0] };
        Lens::new(camera, Distortion::NONE).unwrap()
    }

    fn fit_to(width: u32, height: u32, orientation_swaps: bool) -> Result<Fitted, DatasetError> {
        let header = ImageHeader { width, height, orientation_swaps, has_colors: true };
        fit(lens(1061, 1894), &header, Path::new("a.jpg"))
    }

    #[test]
    fn a_photograph_of_the_cameras_shape_scales_the_camera() {
        // 1061 / 8 = 132.6 and 1894 / 8 = 236.75, rounded either way.
        for (size, swaps) in [
            ([1061, 1894], false),
            ([1061, 1894], true),
            ([132, 236], false),
            ([133, 237], false),
            ([132, 237], false),
        ] {
            let fitted = fit_to(size[0], size[1], swaps).unwrap();
            assert_eq!([fitted.camera.width, fitted.camera.height], size);
            let scale = f64::from(size[0]) / 1061.0;
            assert!((fitted.camera.focal_px[0] - 900.0 * scale).abs() < 1e-9);
            assert!(!fitted.apply_orientation);
        }
    }
    #[test]
    fn tiny_sizes_do_not_fit_other_shapes() {
        assert!(same_shape([12, 8], [96, 64]) && same_shape([13, 9], [96, 64]));
        for size in [[1, 1], [2, 1], [1, 2], [2, 2], [4, 4]] {
            assert!(!same_shape(size, [96, 64]), "{size:?}");
        }
    }

    #[test]
    fn rotated_photographs_fit_and_others_are_rejected() {
        let fitted = fit_to(1894, 1061, true).unwrap();
        assert!(fitted.apply_orientation);
        assert_eq!([fitted.camera.width, fitted.camera.height], [1061, 1894]);
        for (width, height) in [(1894, 1061), (1061, 1800), (0, 0)] {
            let error = fit_to(width, height, false).unwrap_err().to_string();
            let size = format!("{width}x{height}");
            assert!(error.contains(&size) && error.contains("1061x1894"), "{error}");
        }
    }

    #[test]
    fn a_field_of_view_gives_the_focal_length() {
        let header =
            ImageHeader { width: 800, height: 600, orientation_swaps: false, has_colors: true };
        let angle = Focal::Angle { axis: 0, angle: std::f64::consts::FRAC_PI_2 };
        let lens =
            SizelessLens { focal: [angle; 2], centre_px: [None; 2], distortion: Distortion::NONE };
        let lens = Optics::Sizeless(lens).lens([800, 600]).unwrap();
        let fitted = fit(lens, &header, Path::new("r_0.png")).unwrap();
        // tan 45° is 1 to rounding.
        assert!((fitted.camera.focal_px[0] - 400.0).abs() < 1e-9);
        assert_eq!(fitted.camera.focal_px[0], fitted.camera.focal_px[1]);
        assert_eq!(fitted.camera.centre_px, [400.0, 300.0]);
    }
}
