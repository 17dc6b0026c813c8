//! A decoded image, and errors of image files.

use std::io;
use std::path::Path;

use crate::files::shell_word;
use crate::memory::Bytes;

/// Number of steps of a stored value per unit, before scaling.
const STEPS: f32 = 65_536.0;

/// 8-bit sRGB colours and an optional mask, rows from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// Colours [height, width, 3], black where masked.
    pub rgb: Vec<u8>,
    /// Mask [height, width]: 255 for pixels that count, 0 for masked pixels. `None`: all count.
    pub mask: Option<Vec<u8>>,
    /// Inverse depths, if the photograph has a map of them.
    pub depth: Option<InverseDepthMap>,
    /// Normals, if the photograph has a map of them.
    pub normals: Option<NormalMap>,
}

impl Image {
    /// Builds an image of this width and height without maps.
    pub(in crate::dataset) fn without_maps(
        [width, height]: [u32; 2],
        rgb: Vec<u8>,
        mask: Option<Vec<u8>>,
    ) -> Self {
        Self { width, height, rgb, mask, depth: None, normals: None }
    }

    /// Returns the size of the pixels in host memory.
    pub fn bytes(&self) -> Bytes {
        Bytes::of::<u8>(self.rgb.len() + self.mask.as_ref().map_or(0, Vec::len))
            + self.depth.as_ref().map_or(Bytes(0), InverseDepthMap::bytes)
            + self.normals.as_ref().map_or(Bytes(0), NormalMap::bytes)
    }

    /// True if the mask excludes the whole image.
    pub fn is_hidden(&self) -> bool {
        self.mask.as_ref().is_some_and(|mask| mask.iter().all(|&counts| counts == 0))
    }

    /// Drops a mask without masked pixels, and blackens masked pixels.
    pub(super) fn settled(mut self) -> Self {
        self.mask = self.mask.filter(|mask| mask.iter().any(|&counts| counts != 255));
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

/// Header of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// Width in px, as stored.
    pub width: u32,
    /// Height in px, as stored.
    pub height: u32,
    /// True if the EXIF orientation exchanges width and height.
    pub orientation_swaps: bool,
    /// True if the pixels are not grey.
    pub has_colors: bool,
}

impl ImageHeader {
    /// Returns width and height in px, as stored or rotated upright.
    pub(in crate::dataset) fn size(&self, upright: bool) -> [u32; 2] {
        let stored = [self.width, self.height];
        if upright && self.orientation_swaps { [stored[1], stored[0]] } else { stored }
    }
}

/// Inverse depths of a photograph's pixels, rows from the top: value / 65536 · scale + offset, per world unit.
#[derive(Clone, Debug, PartialEq)]
pub struct InverseDepthMap {
    /// Values [height, width].
    pub values: Vec<u16>,
    /// Scale of the values, per world unit.
    pub scale: f32,
    /// Offset of the inverse depths, per world unit.
    pub offset: f32,
}

impl InverseDepthMap {
    /// Returns the size of the values in host memory.
    pub fn bytes(&self) -> Bytes {
        Bytes::of::<u16>(self.values.len())
    }

    /// Returns the inverse depth of one step of a value, per world unit.
    pub fn scale_of_step(&self) -> f32 {
        self.scale / STEPS
    }
}

/// Normals of a photograph's pixels in camera axes (x right, y down, z along the view), rows from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalMap {
    /// Values [height, width, 3]: x, y and z times [`STORED_ONE`](crate::math::normals::STORED_ONE); zeros without a
    /// normal.
    pub values: Vec<i8>,
}

impl NormalMap {
    /// Returns the size of the values in host memory.
    pub fn bytes(&self) -> Bytes {
        Bytes::of::<i8>(self.values.len())
    }

    /// Converts a value to a byte in the same order, for means of bytes.
    pub fn biased(value: i8) -> u8 {
        value.cast_unsigned() ^ 0x80
    }

    /// Converts such a byte back to a value.
    pub fn unbiased(byte: u8) -> i8 {
        (byte ^ 0x80).cast_signed()
    }
}

// Mask of the pixels that count: 255 where they do, 0 where they do not.

/// Smallest averaged mask value of a pixel that counts.
const HALF: u8 = 128;

pub(super) fn intersect(mask: Option<Vec<u8>>, other: Vec<u8>) -> Vec<u8> {
    match mask {
        None => other,
        Some(mask) => mask.iter().zip(&other).map(|(a, b)| a & b).collect(),
    }
}

/// Thresholds an average to 0 or 255.
pub(super) fn counts(value: u8) -> u8 {
    if value >= HALF { 255 } else { 0 }
}

/// Largest change of a side by rounding to a pixel, as a share of the side: for sides of a few pixels, a whole pixel
/// would allow any shape.
pub(in crate::dataset) const ROUNDED_SHARE: f64 = 0.1;

/// True if one size is the other one scaled, up to a pixel of rounding in the smaller.
pub(super) fn same_shape(a: [u32; 2], b: [u32; 2]) -> bool {
    let (small, large) = if a[0] <= b[0] { (a, b) } else { (b, a) };
    let rounding = |side: usize| (ROUNDED_SHARE * f64::from(small[side])).min(1.0);
    // Scales that round to the smaller size, for each side.
    let low = |side: usize| (f64::from(small[side]) - rounding(side)) / f64::from(large[side]);
    let high = |side: usize| (f64::from(small[side]) + rounding(side)) / f64::from(large[side]);
    low(0).max(low(1)) <= high(0).min(high(1))
}

// Errors.

/// Error of an image file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum ImageError {
    #[error("{path}: cannot be read: {source}. Check that the file is there and may be read")]
    Unreadable { path: String, source: io::Error },
    #[error(
        "{path}: is neither JPEG, PNG, WebP, TIFF nor BMP ({found}). Convert it: magick mogrify \
         -format png {}",
        shell_word(Path::new(.path))
    )]
    UnknownFormat { path: String, found: String },
    #[error("{path}: is empty (0 bytes). Copy the file again, or remove it")]
    Empty { path: String },
    #[error("{path}: {}", splat_mesh::file::ply::LFS_MESSAGE)]
    LfsPointer { path: String },
    #[error(
        "{path}: cannot be decoded: {source}. The file is damaged or of a rare kind; copy it again or export it again"
    )]
    Undecodable { path: String, source: ::image::ImageError },
    #[error(
        "{path}: breaks off after {bytes} bytes, before the image ends. Copy it again; if it is whole and only its end marker is missing, save it again"
    )]
    Truncated { path: String, bytes: usize },
    #[error("{path}: is larger than {limit} bytes. Export the photograph at a smaller size")]
    FileTooLarge { path: String, limit: u64 },
    #[error(
        "{path}: {width}x{height} px is no usable size (1 px to {limit} bytes decoded). Export the photograph at a usual size"
    )]
    UnusableSize { path: String, width: u32, height: u32, limit: u64 },
    #[error(
        "{path}: its camera asks for {width}x{height} px, which is no usable size. Correct the camera or choose another --resolution"
    )]
    UnusableTarget { path: String, width: u32, height: u32 },
    #[error(
        "{path}: the mask is {}x{} px, but its photograph {photograph} is {}x{} px. Give the mask the photograph's proportions",
        .size[0], .size[1], .photograph_size[0], .photograph_size[1]
    )]
    MaskShape { path: String, size: [u32; 2], photograph: String, photograph_size: [u32; 2] },
    #[error(
        "{path}: the {kind} map has {}x{} px, but {photograph} has {}x{}. Make it again, or remove it from the folder \
         of {flag}",
        .size[0], .size[1], .photograph_size[0], .photograph_size[1]
    )]
    MapShape {
        path: String,
        kind: &'static str,
        flag: &'static str,
        size: [u32; 2],
        photograph: String,
        photograph_size: [u32; 2],
    },
    #[error(
        "{path}: is no depth map: its pixels are not grey. Store inverse depths as a greyscale PNG of 16 \
         bits, not colours that stand for them"
    )]
    NoDepthMap { path: String },
    #[error(
        "{path}: is no normal map: its pixels are not red, green and blue. Store x, y and z of the \
         normals, from -1 to 1, as the colours of an RGB PNG or JPEG"
    )]
    NoNormalMap { path: String },
    #[error(
        "{path}: {percent} % of its normals point away from the camera. Say with --normals-frame what axes \
         they are in, or remove the map from the folder of --normals"
    )]
    NormalsFaceAway { path: String, percent: usize },
    #[error("{path}: cannot be resized: {reason}. Please report this together with the file")]
    Resize { path: String, reason: String },
    #[error("{path}: the decoder failed: {reason}. Export the image again, or leave it out")]
    Panicked { path: String, reason: String },
    #[error("image {index} was requested, but the scene has {count} images")]
    NoSuchImage { index: usize, count: usize },
}

/// Formats a path for a message.
pub(super) fn name(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_agree_up_to_rounding() {
        assert!(same_shape([1061, 1894], [1061, 1894]));
        assert!(same_shape([133, 237], [1061, 1894]));
        assert!(same_shape([1061, 1894], [132, 236]));
        assert!(!same_shape([1894, 1061], [1061, 1894]));
        assert!(!same_shape([800, 600], [800, 533]));
        assert!(!same_shape([400, 300], [800, 533]));
        assert!(same_shape([12, 8], [96, 64]) && same_shape([96, 64], [13, 9]));
        for size in [[1, 1], [2, 1], [2, 2], [4, 4]] {
            assert!(!same_shape(size, [96, 64]) && !same_shape([96, 64], size), "{size:?}");
        }
    }

    #[test]
    fn intersection_masks_the_pixels_of_both() {
        assert_eq!(intersect(None, vec![255, 0]), [255, 0]);
        let both = intersect(Some(vec![255, 255, 0, 0]), vec![255, 0, 255, 0]);
        assert_eq!(both, [255, 0, 0, 0]);
    }
}
