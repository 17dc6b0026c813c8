//! A decoded training image.

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
