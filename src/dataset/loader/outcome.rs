//! What becomes of images that are asked for.

use std::sync::Arc;

use crate::dataset::{Image, ImageError};

/// The result of decoding an image. The error is shared, since every later fetch returns it.
pub(super) type Decoded = Result<Arc<Image>, Arc<ImageError>>;

/// How well decoding ahead worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderStatistics {
    /// Fetches that found the image decoded.
    pub ready: u64,
    /// Fetches that waited for a decode in flight.
    pub waited: u64,
    /// Fetches that had to decode.
    pub missed: u64,
    /// Images decoded, failures included.
    pub decoded: u64,
}
