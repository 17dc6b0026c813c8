//! Decodes JPEG, PNG, WebP, TIFF and BMP files, recognised by their content.

use std::any::Any;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::decoded::{ImageError, ImageHeader, name};
use crate::dataset::finder::extension_of;

/// Largest decoded image, bytes: 350 million 8-bit pixels, several times the largest cameras. A larger size in a
/// header is damage or an attack on the memory.
pub(super) const MAX_DECODED: u64 = 1 << 30;
const MAX_FILE: u64 = 1 << 30;

/// Initial part of a JPEG that is searched for its header, bytes. It is extended if EXIF does not fit.
const JPEG_HEADER: u64 = 64 << 10;

/// Reads only the header of a JPEG, PNG, WebP, TIFF or BMP file, whatever its extension.
pub fn probe(path: &Path) -> Result<ImageHeader, ImageError> {
    let (mut reader, format) = open(path)?;
    if format != ImageFormat::Jpeg {
        return guarded(path, || header_in(path, format, reader));
    }
    // The JPEG decoder reads all its input before it parses the first byte.
    let mut part = Vec::new();
    let mut wanted = JPEG_HEADER;
    loop {
        let missing = wanted - part.len() as u64;
        let got = reader
            .by_ref()
            .take(missing)
            .read_to_end(&mut part)
            .map_err(|source| unreadable(path, source))?;
        let result = guarded(path, || header_in(path, format, Cursor::new(part.as_slice())));
        if result.is_ok() || (got as u64) < missing {
            return result;
        }
        if wanted >= MAX_FILE {
            return Err(ImageError::FileTooLarge { path: name(path), limit: MAX_FILE });
        }
        wanted = (wanted * 16).min(MAX_FILE);
    }
}

/// Decodes the image in `path`, and rotates it upright if `upright` is true.
pub(super) fn pixels(path: &Path, upright: bool) -> Result<DynamicImage, ImageError> {
    let (reader, format) = open(path)?;
    if matches!(format, ImageFormat::Tiff | ImageFormat::Bmp) {
        // Such files may be as large as their pixels, so they are streamed.
        return guarded(path, || turned(path, decoder(path, format, reader)?, upright));
    }
    let mut bytes = Vec::new();
    reader.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|source| unreadable(path, source))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ImageError::FileTooLarge { path: name(path), limit: MAX_FILE });
    }
    guarded(path, || {
        let decoder = decoder(path, format, Cursor::new(bytes.as_slice()))?;
        if format == ImageFormat::Jpeg && !jpeg_is_whole(&bytes) {
            return Err(ImageError::Truncated { path: name(path), bytes: bytes.len() });
        }
        turned(path, decoder, upright)
    })
}

fn turned(
    path: &Path,
    mut decoder: impl ImageDecoder,
    upright: bool,
) -> Result<DynamicImage, ImageError> {
    let orientation = orientation(&mut decoder);
    let mut pixels =
        DynamicImage::from_decoder(decoder).map_err(|source| undecodable(path, source))?;
    if upright {
        pixels.apply_orientation(orientation);
    }
    Ok(pixels)
}

/// Runs `work` on the image in `path`. A panic becomes an error of that image.
///
/// The decoders are safe Rust for hostile input, but fuzzing has found out-of-range indices and overflows in each.
/// Such a file must cost one view, not the run. Asserting unwind safety is sound if `work` only reads shared data and
/// writes data that it owns, which is dropped with it.
pub(in crate::dataset) fn guarded<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(ImageError::Panicked { path: name(path), reason: message_of(panic.as_ref()) })
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no reason given".to_owned())
}

fn open(path: &Path) -> Result<(BufReader<File>, ImageFormat), ImageError> {
    let unreadable = |source| unreadable(path, source);
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let format = format_of(path, reader.fill_buf().map_err(unreadable)?)?;
    Ok((reader, format))
}

fn unreadable(path: &Path, source: std::io::Error) -> ImageError {
    ImageError::Unreadable { path: name(path), source }
}

fn undecodable(path: &Path, source: image::ImageError) -> ImageError {
    ImageError::Undecodable { path: name(path), source }
}

/// Returns the format of a file from its first bytes.
fn format_of(path: &Path, bytes: &[u8]) -> Result<ImageFormat, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty { path: name(path) });
    }
    if bytes.starts_with(splat_mesh::file::ply::LFS_POINTER) {
        return Err(ImageError::LfsPointer { path: name(path) });
    }
    match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Jpeg | ImageFormat::Png | ImageFormat::WebP)) => Ok(format),
        Ok(ImageFormat::Bmp) => Ok(ImageFormat::Bmp),
        // The first image in a camera's raw file is a thumbnail.
        Ok(ImageFormat::Tiff) if !RAW_EXTENSIONS.contains(&extension_of(path).as_str()) => {
            Ok(ImageFormat::Tiff)
        }
        guessed => {
            Err(ImageError::UnknownFormat { path: name(path), found: kind_of(bytes, guessed.ok()) })
        }
    }
}

/// Extensions of cameras' raw files that are TIFF files, lower case.
const RAW_EXTENSIONS: [&str; 9] = ["dng", "nef", "cr2", "arw", "pef", "nrw", "srw", "3fr", "iiq"];

fn kind_of(bytes: &[u8], guessed: Option<ImageFormat>) -> String {
    let brand = bytes.get(4..12).unwrap_or_default();
    let known: [(&[u8], &str); 7] = [
        (b"<", "text, perhaps a web page"),
        (b"8BPS", "Photoshop"),
        (b"%PDF", "PDF"),
        (b"II\x2b\0", "BigTIFF"),
        (b"\xff\x0a", "JPEG XL"),
        (b"\0\0\0\x0cJXL ", "JPEG XL"),
        (b"\0\0\0\x0cjP", "JPEG 2000"),
    ];
    if let Some((_, kind)) = known.iter().find(|(start, _)| bytes.starts_with(start)) {
        return (*kind).to_owned();
    }
    match (brand, guessed) {
        (b"ftypheic" | b"ftypheix" | b"ftypmif1" | b"ftyphevc", _) => "HEIC".to_owned(),
        (_, Some(ImageFormat::Tiff)) => "a camera's raw file".to_owned(),
        (_, Some(ImageFormat::Avif)) => "AVIF".to_owned(),
        (_, Some(format)) => format!("{format:?}").to_uppercase(),
        (_, None) => {
            format!("unknown: it begins with `{}`", bytes[..bytes.len().min(8)].escape_ascii())
        }
    }
}

fn header_in<R: BufRead + Seek>(
    path: &Path,
    format: ImageFormat,
    reader: R,
) -> Result<ImageHeader, ImageError> {
    let mut decoder = decoder(path, format, reader)?;
    let (width, height) = decoder.dimensions();
    let has_colors = decoder.color_type().has_color();
    let orientation_swaps = matches!(
        orientation(&mut decoder),
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    Ok(ImageHeader { width, height, orientation_swaps, has_colors })
}

/// Returns a decoder that has read the header and checked that the pixels fit the limits.
fn decoder<'a, R: BufRead + Seek + 'a>(
    path: &Path,
    format: ImageFormat,
    reader: R,
) -> Result<impl ImageDecoder + 'a, ImageError> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED);
    let mut reader = ImageReader::with_format(reader, format);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|source| undecodable(path, source))?;
    if matches!(decoder.color_type(), ColorType::Rgb32F | ColorType::Rgba32F) {
        let found = "TIFF of numbers with fractions, whose range is unknown".to_owned();
        return Err(ImageError::UnknownFormat { path: name(path), found });
    }
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 || decoder.total_bytes() > MAX_DECODED {
        let path = name(path);
        return Err(ImageError::UnusableSize { path, width, height, limit: MAX_DECODED });
    }
    Ok(decoder)
}

/// Returns the EXIF orientation; a photograph with unreadable EXIF counts as upright.
fn orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    decoder.orientation().unwrap_or(Orientation::NoTransforms)
}

/// True if the end marker of a JPEG follows its image data.
///
/// The decoder fills missing rows with grey and reports success, and grey must not be trained on. A photograph that
/// lacks only the marker looks as if it lost its last rows, so it is rejected too, as by Pillow. Segments are skipped
/// by their length, so that the end of an embedded thumbnail does not count (ITU-T T.81, annex B).
fn jpeg_is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|&b| b == 0xff))
        else {
            return false;
        };
        at += found + 1;
        match bytes.get(at) {
            None => return false,
            // End of image.
            Some(0xd9) => return true,
            // A fill byte before the marker.
            Some(0xff) => {}
            // Stuffing, restart and other markers that stand alone.
            Some(0x00 | 0x01 | 0xd0..=0xd8) => at += 1,
            Some(_) => {
                let Some(&[high, low]) = bytes.get(at + 1..at + 3) else { return false };
                at += 1 + usize::from(u16::from_be_bytes([high, low])).max(2);
            }
        }
    }
}
