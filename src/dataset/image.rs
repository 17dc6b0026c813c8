//! A decoded training image.

use std::io;
use std::path::{Path, PathBuf};

use ::image::metadata::Orientation;
use ::image::{ImageDecoder, ImageReader};

use crate::memory::Bytes;

/// 8-bit colours in sRGB, as photographs store them, and an optional mask; rows from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// [height, width, 3].
    pub rgb: Vec<u8>,
    /// [height, width]: 255 where the image counts, 0 where it does not.
    pub mask: Option<Vec<u8>>,
}

impl Image {
    /// Host memory that the pixels take.
    pub fn bytes(&self) -> Bytes {
        Bytes::of::<u8>(self.rgb.len() + self.mask.as_ref().map_or(0, Vec::len))
    }
}

/// A photograph that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot be read: {source}. Copy or export the photograph again")]
pub struct ImageError {
    path: PathBuf,
    #[source]
    source: ::image::ImageError,
}

/// What the header of a photograph says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// Width as stored, px.
    pub width: u32,
    /// Height as stored, px.
    pub height: u32,
    /// Whether the EXIF orientation exchanges width and height.
    pub orientation_swaps: bool,
}

/// Reads the header of a photograph, not its pixels.
pub fn probe(path: &Path) -> Result<ImageHeader, ImageError> {
    let fail = |source| ImageError { path: path.to_owned(), source };
    let io_fail = |source: io::Error| fail(::image::ImageError::IoError(source));
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let mut decoder = reader.map_err(io_fail)?.into_decoder().map_err(fail)?;
    let (width, height) = decoder.dimensions();
    let orientation_swaps = matches!(
        decoder.orientation().unwrap_or(Orientation::NoTransforms),
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    Ok(ImageHeader { width, height, orientation_swaps })
}
