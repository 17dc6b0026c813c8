//! Structural similarity as the reference trainers' `metrics.py` finds it in PNGs.

use super::pictures::{photo_picture, render_picture};
use crate::backend::Rendered;
use crate::dataset::Image;
use crate::math::ssim::{Pair, zero_padded_ssim};

/// Of a render and its photograph, both of 8 bits. Where the photograph has a mask, both are multiplied
/// by it.
pub(super) fn reference_ssim(rendered: &Rendered, image: &Image) -> f64 {
    let counts = |at: usize| image.mask.as_ref().is_none_or(|mask| mask[at / 3] != 0);
    let values = |rgb: Vec<u8>| -> Vec<f64> {
        let masked = |(at, value)| if counts(at) { f64::from(value) / 255.0 } else { 0.0 };
        rgb.into_iter().enumerate().map(masked).collect()
    };
    let (x, y) = (values(render_picture(rendered).rgb), values(photo_picture(image).rgb));
    let size = [rendered.width, rendered.height].map(|side| side as usize);
    zero_padded_ssim(Pair { x: &x, y: &y, size })
}
