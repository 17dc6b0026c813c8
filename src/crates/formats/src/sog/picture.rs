//! Pictures of values: lossless WebP, four bytes a pixel.

use std::io::{self, Cursor};

use image_webp::{ColorType, DecodingError, WebPDecoder, WebPEncoder};

use crate::fault::FormatFault;
use splat_mesh::narrow::{floor_usize, to_u32};

/// The longest side of a WebP.
const MOST_SIDE: u32 = 16_383;

/// Sides of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PictureSize {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl PictureSize {
    /// The size, nearly square and of multiples of four, that holds a pixel for each of so many.
    pub(super) fn of_count(count: usize) -> Self {
        let width = 4 * floor_usize(((count as f64).sqrt() / 4.0).ceil()).max(1);
        let height = 4 * count.div_ceil(4 * width).max(1);
        Self { width: to_u32(width), height: to_u32(height) }
    }

    /// Whether a WebP can be so large.
    pub(super) const fn fits(self) -> bool {
        self.width <= MOST_SIDE && self.height <= MOST_SIDE
    }

    pub(super) const fn pixels(self) -> usize {
        self.width as usize * self.height as usize
    }
}

/// Packs a picture; pixels that are missing at its end are 0.
pub(super) fn encode(mut pixels: Vec<[u8; 4]>, size: PictureSize) -> io::Result<Vec<u8>> {
    pixels.resize(size.pixels(), [0; 4]);
    let mut bytes = Vec::new();
    WebPEncoder::new(&mut bytes)
        .encode(pixels.as_flattened(), size.width, size.height, ColorType::Rgba8)
        .map_err(io::Error::other)?;
    Ok(bytes)
}

/// Unpacks the first pixels of a picture that has at least so many, and not many more.
pub(super) fn decode(name: &str, bytes: &[u8], count: usize) -> Result<Vec<[u8; 4]>, FormatFault> {
    let fault = |error: &DecodingError| FormatFault::damaged(format!("its part {name}: {error}"));
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| fault(&error))?;
    let (width, height) = decoder.dimensions();
    let found = width as usize * height as usize;
    // Others pad to whole blocks, at most the longest side by four.
    if found < count || found > count + 4 * MOST_SIDE as usize {
        return Err(FormatFault::damaged(format!(
            "its part {name} has {width} x {height} pixels for {count} values"
        )));
    }
    if decoder.is_lossy() || decoder.is_animated() {
        return Err(FormatFault::damaged(format!("its part {name} is no lossless picture")));
    }
    let mut pixels = vec![[0, 0, 0, 255]; found];
    if decoder.has_alpha() {
        decoder.read_image(pixels.as_flattened_mut()).map_err(|error| fault(&error))?;
    } else {
        let mut colors = vec![0; 3 * found];
        decoder.read_image(&mut colors).map_err(|error| fault(&error))?;
        for (pixel, color) in pixels.iter_mut().zip(colors.as_chunks::<3>().0) {
            pixel[..3].copy_from_slice(color);
        }
    }
    pixels.truncate(count);
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use splat_mesh::random::RandomSequence;

    #[test]
    fn pictures_hold_a_pixel_each_and_nearly_no_more() {
        for count in [0, 1, 15, 16, 17, 300, 1025, 1_000_000, 9_000_001] {
            let size = PictureSize::of_count(count);
            assert!(size.pixels() >= count && size.fits(), "{count}: {size:?}");
            assert!(size.width.is_multiple_of(4) && size.height.is_multiple_of(4));
            assert!(size.pixels() - count <= 4 * size.width as usize + 16, "{count}: {size:?}");
        }
        assert!(!PictureSize::of_count(300_000_000).fits());
    }

    #[test]
    fn every_byte_comes_back_also_behind_an_alpha_of_zero() {
        let mut random = RandomSequence::of_seed(1);
        let size = PictureSize::of_count(777);
        let pixels: Vec<[u8; 4]> = (0..777)
            .map(|_| random.bits().to_le_bytes())
            .map(|[a, b, c, d, ..]| [a, b, c, if d < 90 { 0 } else { d }])
            .collect();
        let bytes = encode(pixels.clone(), size).unwrap();
        assert!(decode("a.webp", &bytes, 777).unwrap() == pixels);
        let error = decode("a.webp", &bytes, 900).unwrap_err().to_string();
        assert!(error.contains("a.webp has 28 x 28 pixels for 900"), "{error}");
        assert!(decode("a.webp", &bytes[..40], 777).is_err());
        // A picture without alpha is one whose alpha is 255.
        let opaque: Vec<[u8; 4]> = pixels.iter().map(|&[r, g, b, _]| [r, g, b, 255]).collect();
        let bytes = encode(opaque.clone(), size).unwrap();
        assert!(decode("a.webp", &bytes, 777).unwrap() == opaque);
    }
}
