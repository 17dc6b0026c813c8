//! Pictures in PNG files.

use std::path::Path;

use image::{ExtendedColorType, ImageEncoder, ImageError};

use super::{OutputError, write_atomically};

/// Writes samples, row by row, in the machine's order of bytes. The file appears when it is whole.
pub fn write_png(
    path: &Path,
    [width, height]: [u32; 2],
    bytes: &[u8],
    kind: ExtendedColorType,
) -> Result<(), OutputError> {
    write_atomically(path, |out| {
        let encoder = image::codecs::png::PngEncoder::new(out);
        encoder.write_image(bytes, width, height, kind).map_err(|error| match error {
            // What the system says, such as that the disk is full.
            ImageError::IoError(error) => error,
            error => std::io::Error::other(error),
        })
    })
}
