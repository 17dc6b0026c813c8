//! A decoded training image, and how it is made from files.

mod codec;
mod decoded;
mod depth;
mod error;
mod mask;
mod mask_file;
mod normals;
mod plane;
mod resample;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::source::{AlphaMeaning, ImageSource};

pub(super) use codec::guarded;
pub use decoded::{Image, ImageHeader, InverseDepthMap, NormalMap};
pub use error::ImageError;
pub(super) use mask_file::check_mask;
pub(super) use normals::check_normals;

/// Reads the header of a JPEG, PNG, WebP, TIFF or BMP file, whatever its name ends in, and no pixels.
pub fn probe(path: &Path) -> Result<ImageHeader, ImageError> {
    codec::header(path)
}

/// The image of a view as it is trained: decoded, masked, straightened and resized.
///
/// Besides the result, a photograph takes a few times its full size for as long as this runs.
/// Nothing here waits for another thread, so that it may run on any.
pub fn decode(source: &ImageSource) -> Result<Image, ImageError> {
    check_target(&source.path, source.size)?;
    let mut image = photograph(source)?;
    let photograph_px = [image.width, image.height];
    let depth = depth::load(source, photograph_px)?;
    let normals = normals::load(source, photograph_px)?;
    if let Some(path) = &source.mask {
        let upright = source.apply_orientation;
        let loaded = mask_file::load(path, upright, &source.path, photograph_px)?;
        image.mask = Some(mask::intersect(image.mask, loaded));
    }
    if let Some(lens) = &source.undistort {
        check_target(&source.path, source.full_size)?;
        image = resample::straighten(&image, source.full_size, |at| lens.source_px(at));
    }
    // A mask that hides nothing would make resizing slower.
    let image = resample::image(&source.path, image.settled(), source.size)?;
    Ok(Image { depth, normals, ..image.settled() })
}

/// A decoded image at another size, with its mask and its maps, by the same filters.
pub(super) fn resized(path: &Path, image: &Image, size: [u32; 2]) -> Result<Image, ImageError> {
    check_target(path, size)?;
    let from = [image.width, image.height];
    let map = |map: &InverseDepthMap| {
        let values = depth::resized(path, &map.values, [from, size])?;
        Ok(InverseDepthMap { values, ..*map })
    };
    let depth = image.depth.as_ref().map(map).transpose()?;
    let normals = image.normals.as_ref().map(|map| {
        let values = normals::resized(path, &map.values, [from, size])?;
        Ok::<_, ImageError>(NormalMap { values })
    });
    let normals = normals.transpose()?;
    let flat = Image { depth: None, normals: None, ..image.clone() };
    let smaller = resample::image(path, flat, size)?;
    Ok(Image { depth, normals, ..smaller.settled() })
}

/// The photograph at full size, its alpha channel put to use.
fn photograph(source: &ImageSource) -> Result<Image, ImageError> {
    let pixels = codec::pixels(&source.path, source.apply_orientation)?;
    let size = [pixels.width(), pixels.height()];
    if !pixels.color().has_alpha() {
        return Ok(Image::without_maps(size, pixels.into_rgb8().into_raw(), None));
    }
    let rgba = pixels.into_rgba8().into_raw();
    let colours = rgba.chunks_exact(4);
    let (rgb, mask) = match source.alpha {
        AlphaMeaning::Mask => {
            let rgb = colours.flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
            (rgb, Some(mask::from_alpha(&rgba)))
        }
        AlphaMeaning::BlendOver(background) => {
            (colours.flat_map(|pixel| over(pixel, background)).collect(), None)
        }
    };
    Ok(Image::without_maps(size, rgb, mask))
}

/// A pixel of `[4]` in front of a background of 0..1, both sRGB values.
fn over(pixel: &[u8], background: [f32; 3]) -> [u8; 3] {
    let alpha = f32::from(pixel[3]) / 255.0;
    [0, 1, 2].map(|channel| {
        let background = background[channel] * 255.0;
        resample::rounded(background + alpha * (f32::from(pixel[channel]) - background))
    })
}

/// Sizes come from cameras, which come from files: they are not allocated unchecked.
fn check_target(path: &Path, size: [u32; 2]) -> Result<(), ImageError> {
    let [width, height] = size;
    let bytes = (u64::from(width) * u64::from(height)).saturating_mul(4);
    if bytes == 0 || bytes > codec::MAX_DECODED {
        return Err(ImageError::UnusableTarget { path: error::name(path), width, height });
    }
    Ok(())
}
