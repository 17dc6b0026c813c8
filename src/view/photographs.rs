//! Photographs for a page, as the trainer sees them.

use image::codecs::jpeg::JpegEncoder;
use image::imageops::{FilterType, resize};
use image::{ExtendedColorType, ImageEncoder as _, RgbImage};

use crate::dataset::{ImageError, ImageSource, decode};

/// Quality of the JPEG, of 100: beside this, differences to a render are those of the model.
const QUALITY: u8 = 95;

/// A photograph that cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum PhotographError {
    /// There is none of this number.
    #[error("there is no photograph of this camera")]
    Missing,
    /// It cannot be decoded.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// It cannot be encoded.
    #[error("the photograph cannot be made a JPEG: {0}")]
    Jpeg(#[from] image::ImageError),
}

/// Where the photographs of cameras are, in the cameras' order.
#[derive(Clone, Debug, Default)]
pub struct ShownPhotographs(Vec<ImageSource>);

impl ShownPhotographs {
    /// Those of these sources.
    pub fn of(sources: Vec<ImageSource>) -> Self {
        Self(sources)
    }

    /// Whether a camera has one.
    pub(super) fn has(&self, index: usize) -> bool {
        index < self.0.len()
    }

    /// A photograph as a JPEG of at most this width, px.
    pub(super) fn jpeg(&self, index: usize, width: u32) -> Result<Vec<u8>, PhotographError> {
        let source = self.0.get(index).ok_or(PhotographError::Missing)?;
        let decoded = decode(source)?;
        let size = [decoded.width, decoded.height];
        let picture = RgbImage::from_raw(size[0], size[1], decoded.rgb);
        let mut picture = picture.ok_or(PhotographError::Missing)?;
        if width < size[0] {
            let height = u64::from(size[1]) * u64::from(width) / u64::from(size[0]);
            let height = u32::try_from(height).unwrap_or(u32::MAX).max(1);
            picture = resize(&picture, width.max(1), height, FilterType::Triangle);
        }
        let mut jpeg = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut jpeg, QUALITY);
        let (width, height) = picture.dimensions();
        encoder.write_image(&picture, width, height, ExtendedColorType::Rgb8)?;
        Ok(jpeg)
    }
}
