//! Pictures of a model's errors and density.

use rayon::prelude::*;

use super::event::Picture;
use crate::backend::Rendered;
use crate::dataset::Image;
use crate::math::normals::blended_normal;

/// Mean absolute error of a pixel that is shown as white, 0 to 1.
const WHITE_ERROR: f64 = 0.25;

/// Number of blended Gaussians that is shown as white.
const WHITE_COUNT: u32 = 1023;

/// Maps 0..1 to black, red, yellow and white.
///
/// This is the `hot` colour map: red rises over the first third, green over the second and blue over the last. Its
/// lightness rises throughout, so that it also works in grey.
pub fn heat(value: f64) -> [u8; 3] {
    let rise = 3.0 * if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
    [byte(rise), byte(rise - 1.0), byte(rise - 2.0)]
}

/// Converts 0..1 to 0..255.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0..=255 before"
)]
pub fn byte(value: f64) -> u8 {
    (255.0 * value).round().clamp(0.0, 255.0) as u8
}

/// Converts a render to 8 bits, clamped and rounded.
pub fn render_picture(rendered: &Rendered) -> Picture {
    Picture {
        width: rendered.width,
        height: rendered.height,
        rgb: rendered.rgb.par_iter().map(|&value| byte(f64::from(value))).collect(),
    }
}

/// Returns a photograph as a picture, without its mask.
pub fn photo_picture(image: &Image) -> Picture {
    Picture { width: image.width, height: image.height, rgb: image.rgb.clone() }
}

/// Maps the mean over the channels of |render - ground truth| to heat. White is 0.25 and more.
///
/// Both pictures should have the same size. Pixels that one of them lacks are black.
pub fn error_map(render: &Picture, ground_truth: &Picture) -> Picture {
    let pixels = render.rgb.par_chunks_exact(3).zip(ground_truth.rgb.par_chunks_exact(3));
    let errors = pixels.map(|(a, b)| {
        let sum: u32 = a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
        f64::from(sum) / (3.0 * 255.0)
    });
    picture(render.width, render.height, errors.map(|error| heat(error / WHITE_ERROR)))
}

/// Maps the number of blended Gaussians per pixel, [height, width], to heat.
///
/// The logarithmic scale is the same for all pictures: black is 0, the middle is 31, white is 1023 and more.
pub fn density_map(counts: &[u32], width: u32, height: u32) -> Picture {
    let full = f64::from(WHITE_COUNT).ln_1p();
    picture(width, height, counts.par_iter().map(|&count| heat(f64::from(count).ln_1p() / full)))
}

/// Builds a picture of exactly `width` x `height`. Missing pixels are black.
fn picture(
    width: u32,
    height: u32,
    pixels: impl IndexedParallelIterator<Item = [u8; 3]>,
) -> Picture {
    let mut rgb = vec![0; width as usize * height as usize * 3];
    rgb.par_chunks_exact_mut(3).zip(pixels).for_each(|(rgb, pixel)| rgb.copy_from_slice(&pixel));
    Picture { width, height, rgb }
}

// Depth and normal pictures.

/// Smallest sum of weights of a visible pixel.
const WEIGHT_MIN: f32 = 1.0 / 255.0;

/// Depth and normal maps of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct SurfaceMaps {
    /// Width, px.
    pub width: u32,
    /// Height, px.
    pub height: u32,
    /// Surface at each pixel, [height, width]. `None` if nothing is drawn.
    pub pixels: Vec<Option<SurfacePixel>>,
}

/// Surface at a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfacePixel {
    /// Depth along the view axis, world units: the weighted mean over the blended splats, or the median depth at
    /// which half of the light is stopped.
    pub depth: f32,
    /// Unit normal towards the camera in camera axes (x right, y down, z along the view). `None` without normals.
    pub normal_cam: Option<[f32; 3]>,
}

impl SurfaceMaps {
    /// Reads the maps of a view. `None` if it was rendered without them. With median depths a pixel is visible where
    /// half of the light is stopped.
    pub fn of(rendered: &Rendered) -> Option<Self> {
        let (sums, _) = rendered.surface.as_deref()?.as_chunks::<4>();
        let medians = rendered.median_depths.as_deref();
        let pixels = sums.iter().enumerate().map(|(pixel, &[depth, x, y, weight])| {
            let depth = medians.map_or(depth / weight, |medians| medians[pixel]);
            (weight >= WEIGHT_MIN && depth > 0.0).then(|| SurfacePixel {
                depth,
                normal_cam: Some(blended_normal([x / weight, y / weight])),
            })
        });
        let (width, height) = (rendered.width, rendered.height);
        Some(Self { width, height, pixels: pixels.collect() })
    }

    /// Reads depths from the inverse depths of opaque surfaces. `None` if the view was rendered without them.
    pub fn of_inverse_depths(rendered: &Rendered) -> Option<Self> {
        let depth = |&inverse: &f32| {
            (inverse > 0.0).then(|| SurfacePixel { depth: 1.0 / inverse, normal_cam: None })
        };
        let pixels = rendered.inverse_depths.as_deref()?.iter().map(depth).collect();
        Some(Self { width: rendered.width, height: rendered.height, pixels })
    }

    /// Draws depths as heat: near is white, `extent` is in the middle, far and empty pixels are black.
    ///
    /// The scale extent / (extent + depth) is the same for all pictures of a scene.
    pub fn depth_picture(&self, extent: f64) -> Picture {
        self.picture(|pixel| heat(extent / (extent + f64::from(pixel.depth))))
    }

    /// Draws normals as colours: red to the right, green up, blue towards the camera, black for empty pixels.
    pub fn normal_picture(&self) -> Picture {
        self.picture(|pixel| normal_color(pixel).map_or([0; 3], |color| color.map(byte)))
    }

    /// Returns depths as integers, [height, width]: world units times `values_per_unit`, clamped to
    /// 1..65,535. 0 means
    /// empty.
    pub fn depth_values(&self, values_per_unit: f64) -> Vec<u16> {
        let value =
            |pixel: &SurfacePixel| to_integer(f64::from(pixel.depth) * values_per_unit).max(1);
        self.pixels.iter().map(|pixel| pixel.as_ref().map_or(0, value)).collect()
    }

    /// Returns normals as integers, [height, width, 3]: (x right, y up, z towards the camera) mapped from -1..1 to
    /// 0..65,535. 0, 0, 0 means empty.
    pub fn normal_values(&self) -> Vec<u16> {
        let values = |pixel: &SurfacePixel| {
            Some(normal_color(pixel)?.map(|value| to_integer(MAX_U16 * value)))
        };
        let pixels = self.pixels.iter();
        pixels.flat_map(|pixel| pixel.as_ref().and_then(values).unwrap_or_default()).collect()
    }

    fn picture(&self, color: impl Fn(&SurfacePixel) -> [u8; 3]) -> Picture {
        let rgb = self.pixels.iter().flat_map(|pixel| pixel.as_ref().map_or([0; 3], &color));
        Picture { width: self.width, height: self.height, rgb: rgb.collect() }
    }
}

/// Largest 16-bit integer.
const MAX_U16: f64 = 65_535.0;

/// Maps a normal to 0..1 along x right, y up and z towards the camera.
fn normal_color(pixel: &SurfacePixel) -> Option<[f64; 3]> {
    let [x, y, z] = pixel.normal_cam?.map(f64::from);
    Some([x, -y, -z].map(|axis| 0.5 + 0.5 * axis))
}

/// Rounds and clamps to 16 bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0..=65535 before"
)]
fn to_integer(value: f64) -> u16 {
    value.round().clamp(0.0, MAX_U16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_runs_from_black_over_red_and_yellow_to_white_and_lightens_monotonically() {
        assert_eq!(heat(0.0), [0, 0, 0]);
        assert_eq!(heat(1.0 / 3.0), [255, 0, 0]);
        assert_eq!(heat(2.0 / 3.0), [255, 255, 0]);
        assert_eq!(heat(1.0), [255, 255, 255]);
        assert_eq!((heat(-1.0), heat(7.0), heat(f64::NAN)), ([0; 3], [255; 3], [0; 3]));
        let lightness = |i: i32| heat(f64::from(i) / 100.0).map(u32::from).iter().sum::<u32>();
        assert!((0..100).all(|i| lightness(i) < lightness(i + 1)));
    }

    #[test]
    fn the_error_map_is_black_where_the_pictures_agree() {
        let a = Picture { width: 3, height: 1, rgb: vec![10, 20, 30, 0, 0, 0, 255, 255, 255] };
        let b = Picture { width: 3, height: 1, rgb: vec![10, 20, 30, 0, 0, 63, 0, 0, 0] };
        let map = error_map(&a, &b);
        assert_eq!((map.width, map.height), (3, 1));
        assert_eq!(map.rgb[..3], [0, 0, 0]);
        // 63 / 765 = 0.0824 of full scale, 0.329 of the ramp: 0.988 of red.
        assert_eq!(map.rgb[3..6], [252, 0, 0]);
        assert_eq!(map.rgb[6..], [255, 255, 255]);
    }

    #[test]
    fn the_density_map_has_one_scale_for_all_pictures() {
        let map = density_map(&[0, 31, 1023, u32::MAX], 4, 1);
        assert_eq!(map.rgb[..3], [0, 0, 0]);
        assert_eq!(map.rgb[3..6], heat(0.5));
        assert_eq!(map.rgb[6..], [255; 6]);
        assert_eq!(density_map(&[], 2, 2).rgb, [0; 12]);
    }

    /// Returns a rendered row of pixels with these sums of depth, normal x and y, and weight.
    fn drawn(sums: &[[f32; 4]]) -> Rendered {
        Rendered {
            width: u32::try_from(sums.len()).unwrap(),
            height: 1,
            rgb: vec![0.0; 3 * sums.len()],
            blended: None,
            inverse_depths: None,
            inverse_squares: None,
            surface: Some(sums.concat()),
            median_depths: None,
        }
    }

    #[test]
    fn sums_are_divided_by_the_weights_of_views_with_maps() {
        let maps = SurfaceMaps::of(&drawn(&[[1.0, 0.3, 0.0, 0.5], [0.0; 4]])).unwrap();
        let pixel = maps.pixels[0].unwrap();
        assert_eq!(pixel.depth, 2.0);
        let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        let [x, _, z] = pixel.normal_cam.unwrap();
        assert!(close(x, 0.6) && close(z, -0.8), "{pixel:?}");
        assert_eq!(maps.pixels[1], None);
        assert_eq!(SurfaceMaps::of(&Rendered { surface: None, ..drawn(&[]) }), None);
    }

    #[test]
    fn median_depths_replace_means() {
        let sums = [[1.0, 0.3, 0.0, 0.5], [4.0, 0.0, 0.0, 1.0], [0.0; 4]];
        let medians = Some(vec![0.0, 3.0, 0.0]);
        let maps = SurfaceMaps::of(&Rendered { median_depths: medians, ..drawn(&sums) }).unwrap();
        let depths: Vec<_> = maps.pixels.iter().map(|pixel| pixel.map(|p| p.depth)).collect();
        assert_eq!(depths, [None, Some(3.0), None]);
    }

    #[test]
    fn inverse_depths_have_depths_and_no_normals() {
        let rendered = Rendered { inverse_depths: Some(vec![0.5, 0.0]), ..drawn(&[[0.0; 4]; 2]) };
        let maps = SurfaceMaps::of_inverse_depths(&rendered).unwrap();
        assert_eq!(maps.pixels[0], Some(SurfacePixel { depth: 2.0, normal_cam: None }));
        assert_eq!(maps.pixels[1], None);
        assert_eq!(maps.normal_values(), [0; 6]);
        assert_eq!(SurfaceMaps::of_inverse_depths(&drawn(&[])), None);
    }

    #[test]
    fn integer_depths_of_surfaces_are_never_0() {
        let row = [[3.0, 0.0, 0.0, 1.0], [1e-6, 0.0, 0.0, 1.0], [1e9, 0.0, 0.0, 1.0], [0.0; 4]];
        let maps = SurfaceMaps::of(&drawn(&row)).unwrap();
        assert_eq!(maps.depth_values(512.0), [1536, 1, 65_535, 0]);
        let picture = maps.depth_picture(3.0).rgb;
        assert_eq!((&picture[..3], &picture[9..]), (&heat(0.5)[..], &[0, 0, 0][..]));
    }

    #[test]
    fn normals_are_red_to_the_right_green_up_and_blue_to_the_camera() {
        let row = [[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, -1.0, 1.0], [0.0; 4]];
        let maps = SurfaceMaps::of(&drawn(&row)).unwrap();
        let expected = [[128, 128, 255], [255, 128, 128], [128, 255, 128], [0, 0, 0]];
        assert_eq!(maps.normal_picture().rgb, expected.concat());
        assert_eq!(maps.normal_values()[..3], [32_768, 32_768, 65_535]);
    }
}
