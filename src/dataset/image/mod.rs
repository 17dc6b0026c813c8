//! A decoded training image, and how it is made from files.

mod codec;
mod depth;
mod error;
mod mask;
mod resample;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{AlphaMeaning, ImageSource};
use crate::memory::Bytes;

pub(super) use codec::guarded;
pub use depth::DepthMap;
pub use error::ImageError;

/// 8-bit colours in sRGB, as photographs store them, and an optional mask; rows from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// [height, width, 3]; black where the image does not count.
    pub rgb: Vec<u8>,
    /// [height, width]: 255 where the image counts, 0 where it does not. `None`: everywhere.
    pub mask: Option<Vec<u8>>,
    /// Inverse depths, if the photograph has a map of them.
    pub depth: Option<DepthMap>,
}

impl Image {
    /// Host memory that the pixels take.
    pub fn bytes(&self) -> Bytes {
        Bytes::of::<u8>(self.rgb.len() + self.mask.as_ref().map_or(0, Vec::len))
            + self.depth.as_ref().map_or(Bytes(0), DepthMap::bytes)
    }

    /// Drops a mask that counts everywhere, and blackens what does not count.
    fn settled(mut self) -> Self {
        if let Some(mask) = self.mask.take_if(|mask| mask.iter().all(|&counts| counts == 255)) {
            drop(mask);
        }
        if let Some(mask) = &self.mask {
            for (pixel, &counts) in self.rgb.chunks_exact_mut(3).zip(mask) {
                if counts == 0 {
                    pixel.fill(0);
                }
            }
        }
        self
    }
}

/// What the header of an image file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// Width in px, as stored.
    pub width: u32,
    /// Height in px, as stored.
    pub height: u32,
    /// The EXIF orientation exchanges width and height.
    pub orientation_swaps: bool,
}

/// Reads the header of a JPEG, PNG or WebP file, whatever its name ends in, and no pixels.
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
    let depth = depth::load(source, [image.width, image.height])?;
    if let Some(path) = &source.mask {
        let size = [image.width, image.height];
        let loaded = mask::load(path, source.apply_orientation, &source.path, size)?;
        image.mask = Some(mask::intersect(image.mask, loaded));
    }
    if let Some(lens) = &source.undistort {
        check_target(&source.path, source.full_size)?;
        image = resample::straighten(&image, source.full_size, |at| lens.source_px(at));
    }
    // A mask that hides nothing would make resizing slower.
    let image = resample::image(&source.path, image.settled(), source.size)?;
    Ok(Image { depth, ..image.settled() })
}

/// The photograph at full size, its alpha channel put to use.
fn photograph(source: &ImageSource) -> Result<Image, ImageError> {
    let pixels = codec::pixels(&source.path, source.apply_orientation)?;
    let (width, height) = (pixels.width(), pixels.height());
    if !pixels.color().has_alpha() {
        return Ok(Image {
            width,
            height,
            rgb: pixels.into_rgb8().into_raw(),
            mask: None,
            depth: None,
        });
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
    Ok(Image { width, height, rgb, mask, depth: None })
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
