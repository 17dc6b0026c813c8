//! Pictures that show where a model is wrong and where it is dense.

use rayon::prelude::*;

use super::event::Picture;
use crate::backend::Rendered;
use crate::dataset::Image;

/// Mean absolute error of a pixel, 0..1, from which on the error map is white.
const WHITE_ERROR: f64 = 0.25;

/// Gaussians blended in a pixel from which on the density map is white.
const WHITE_COUNT: u32 = 1023;

/// A colour for a value of 0..1: black, red, yellow, white.
///
/// The ramp of a heated black body in three straight pieces, known as `hot` in plotting programs:
/// red rises over the first third, green over the second, blue over the last. Its lightness rises
/// throughout, so that the picture also reads in grey.
pub fn heat(value: f64) -> [u8; 3] {
    let rise = 3.0 * if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
    [byte(rise), byte(rise - 1.0), byte(rise - 2.0)]
}

/// 0..1 as 0..255.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0..=255 before"
)]
pub fn byte(value: f64) -> u8 {
    (255.0 * value).round().clamp(0.0, 255.0) as u8
}

/// A render as 8-bit pixels: clamped to 0..1 and rounded.
pub fn render_picture(rendered: &Rendered) -> Picture {
    Picture {
        width: rendered.width,
        height: rendered.height,
        rgb: rendered.rgb.par_iter().map(|&value| byte(f64::from(value))).collect(),
    }
}

/// A photograph as it was compared, without its mask.
pub fn photo_picture(image: &Image) -> Picture {
    Picture { width: image.width, height: image.height, rgb: image.rgb.clone() }
}

/// The mean over the channels of |render - ground truth| as heat; white from 0.25 of full scale.
///
/// Both pictures have one size; where they do not, what the smaller lacks is black.
pub fn error_map(render: &Picture, ground_truth: &Picture) -> Picture {
    let pixels = render.rgb.par_chunks_exact(3).zip(ground_truth.rgb.par_chunks_exact(3));
    let errors = pixels.map(|(a, b)| {
        let sum: u32 = a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
        f64::from(sum) / (3.0 * 255.0)
    });
    picture(render.width, render.height, errors.map(|error| heat(error / WHITE_ERROR)))
}

/// The number of Gaussians blended in each pixel, [height, width], as heat.
///
/// The scale is logarithmic and the same for all pictures: no Gaussian is black, 31 are in the
/// middle, 1023 and more are white.
pub fn density_map(counts: &[u32], width: u32, height: u32) -> Picture {
    let full = f64::from(WHITE_COUNT).ln_1p();
    picture(width, height, counts.par_iter().map(|&count| heat(f64::from(count).ln_1p() / full)))
}

/// A picture of exactly `width` x `height`; missing pixels are black.
fn picture(
    width: u32,
    height: u32,
    pixels: impl IndexedParallelIterator<Item = [u8; 3]>,
) -> Picture {
    let mut rgb = vec![0; width as usize * height as usize * 3];
    rgb.par_chunks_exact_mut(3).zip(pixels).for_each(|(rgb, pixel)| rgb.copy_from_slice(&pixel));
    Picture { width, height, rgb }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_runs_from_black_over_red_and_yellow_to_white() {
        assert_eq!(heat(0.0), [0, 0, 0]);
        assert_eq!(heat(1.0 / 3.0), [255, 0, 0]);
        assert_eq!(heat(2.0 / 3.0), [255, 255, 0]);
        assert_eq!(heat(1.0), [255, 255, 255]);
        assert_eq!((heat(-1.0), heat(7.0), heat(f64::NAN)), ([0; 3], [255; 3], [0; 3]));
    }

    #[test]
    fn heat_grows_lighter_all_the_way() {
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
}
