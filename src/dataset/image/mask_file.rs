//! Masks in files of their own.

use std::path::Path;

use super::error::{ImageError, name};
use super::mask::same_shape;
use super::{codec, resample};

/// The mask in the file `path` for a photograph of `size`.
///
/// A pixel counts when it is at least half as bright as the brightest one: that takes 0 and 255,
/// 0 and 1 and the noise that JPEG leaves around black all for what they mean. An even black mask
/// counts nowhere.
pub(super) fn load(
    path: &Path,
    upright: bool,
    photograph: &Path,
    size: [u32; 2],
) -> Result<Vec<u8>, ImageError> {
    let grey = codec::pixels(path, upright)?.into_luma16();
    let own_size = [grey.width(), grey.height()];
    check_size(path, own_size, photograph, size)?;
    let brightest = grey.as_raw().iter().copied().max().unwrap_or(0);
    let threshold = brightest.div_ceil(2).max(1);
    let mask = grey.as_raw().iter().map(|&v| if v >= threshold { 255 } else { 0 }).collect();
    resample::mask(path, mask, own_size, size)
}

/// Fails where the header of a mask says other proportions than those of its photograph of `size`. What
/// cannot be read is found out when the photograph is decoded.
pub(in crate::dataset) fn check_mask(
    path: &Path,
    upright: bool,
    photograph: &Path,
    size: [u32; 2],
) -> Result<(), ImageError> {
    let Ok(header) = codec::header(path) else { return Ok(()) };
    check_size(path, header.size(upright), photograph, size)
}

fn check_size(
    path: &Path,
    size: [u32; 2],
    photograph: &Path,
    photograph_size: [u32; 2],
) -> Result<(), ImageError> {
    if same_shape(size, photograph_size) {
        return Ok(());
    }
    let (path, photograph) = (name(path), name(photograph));
    Err(ImageError::MaskShape { path, size, photograph, photograph_size })
}
