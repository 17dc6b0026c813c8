//! Textures as PNG.

use std::io::{self, Cursor, Write};

/// A picture of 8-bit sRGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Width in texels.
    pub width: u32,
    /// Height in texels.
    pub height: u32,
    /// Rows from the top, texels from the left, sRGB.
    pub texels: Vec<[u8; 3]>,
}

/// Most texels that are read.
const MOST_TEXELS: usize = 1 << 28;

/// Why there is no PNG, or no picture of one.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// Texels do not fill the picture.
    #[error(
        "{found} texels do not fill {width} x {height}: give one for each place of the picture"
    )]
    Size {
        /// Width in texels.
        width: u32,
        /// Height in texels.
        height: u32,
        /// Texels that were given.
        found: usize,
    },
    /// The decoder refuses.
    #[error("the PNG cannot be read: {0}")]
    Unreadable(#[from] png::DecodingError),
    /// Not what is written here.
    #[error("the PNG has not 8 bits of three channels each, or more than 16384 x 16384 texels")]
    OtherKind,
    /// The encoder refuses.
    #[error("the PNG cannot be written: {0}. Check the room on the disk and the picture's size")]
    Png(#[from] png::EncodingError),
}

impl Picture {
    /// A picture of one colour.
    pub fn plain(width: u32, height: u32, color: [u8; 3]) -> Self {
        Self { width, height, texels: vec![color; width as usize * height as usize] }
    }

    /// Writes the picture as PNG, marked as sRGB, its bytes as they are.
    pub fn write_png(&self, out: &mut dyn Write) -> Result<(), PictureError> {
        let &Self { width, height, ref texels } = self;
        if texels.len() as u64 != u64::from(width) * u64::from(height) {
            return Err(PictureError::Size { width, height, found: texels.len() });
        }
        let mut encoder = png::Encoder::new(out, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(bytemuck::cast_slice(texels))?;
        Ok(writer.finish()?)
    }

    /// The picture of a PNG of 8 bits and three channels, as this program writes them.
    pub fn from_png(bytes: &[u8]) -> Result<Self, PictureError> {
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info()?;
        let (color, depth) = reader.output_color_type();
        if (color, depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
            return Err(PictureError::OtherKind);
        }
        let png::Info { width, height, .. } = *reader.info();
        let count = u64::from(width) * u64::from(height);
        let mut texels = match usize::try_from(count) {
            Ok(count) if count <= MOST_TEXELS => vec![[0; 3]; count],
            _ => return Err(PictureError::OtherKind),
        };
        reader.next_frame(bytemuck::cast_slice_mut(&mut texels))?;
        Ok(Self { width, height, texels })
    }

    /// The picture as the bytes of a PNG.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        let mut bytes = Cursor::new(Vec::new());
        self.write_png(&mut bytes)?;
        Ok(bytes.into_inner())
    }
}

impl From<PictureError> for io::Error {
    fn from(error: PictureError) -> Self {
        match error {
            PictureError::Png(png::EncodingError::IoError(source)) => source,
            other => Self::new(io::ErrorKind::InvalidInput, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texels_come_back_as_they_were_marked_as_srgb() {
        let mut picture = Picture::plain(5, 3, [1, 2, 3]);
        picture.texels[7] = [250, 0, 128];
        let bytes = picture.png().unwrap();
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
        let mut texels = vec![0; 45];
        reader.next_frame(&mut texels).unwrap();
        assert_eq!(texels, bytemuck::cast_slice::<_, u8>(&picture.texels));
        assert_eq!((reader.info().width, reader.info().height), (5, 3));
        assert!(reader.info().srgb.is_some());
        assert_eq!(Picture::from_png(&picture.png().unwrap()).unwrap(), picture);
        assert!(Picture::from_png(&[1, 2, 3]).is_err());
        picture.texels.pop();
        let error = picture.png().unwrap_err().to_string();
        assert!(error.contains("14 texels do not fill 5 x 3"), "{error}");
    }
}
