//! Decoding of training images.

mod codec;
mod decoded;
mod maps;
mod resample;

use std::path::Path;

use self::decoded::name;
use self::maps::Plane;
use super::shot::{AlphaMeaning, ImageSource};

pub use codec::probe;
pub use decoded::{Image, ImageError, ImageHeader, InverseDepthMap, NormalMap};

pub(super) use codec::guarded;
pub(super) use decoded::ROUNDED_SHARE;
pub(super) use maps::check_normals;

/// Decodes, masks, straightens and resizes the image of a view.
///
/// While this runs, a photograph takes a few times its full size besides the result. This waits for no other thread,
/// so that it may run on any.
pub fn decode(source: &ImageSource) -> Result<Image, ImageError> {
    check_target(&source.path, source.size)?;
    let mut image = photograph(source)?;
    let photograph_px = [image.width, image.height];
    let depth = maps::load_depths(source, photograph_px)?;
    let normals = maps::load_normals(source, photograph_px)?;
    if let Some(path) = &source.mask {
        let upright = source.apply_orientation;
        let loaded = load_mask(path, upright, &source.path, photograph_px)?;
        image.mask = Some(decoded::intersect(image.mask, loaded));
    }
    if let Some(lens) = &source.undistort {
        check_target(&source.path, source.full_size)?;
        image = resample::straighten(&image, source.full_size, |at| lens.source_px(at));
    }
    // A mask without masked pixels would make resizing slower.
    let image = resample::image(&source.path, image.settled(), source.size)?;
    Ok(Image { depth, normals, ..image.settled() })
}

/// Resizes a decoded image with its mask and its maps, by the same filters.
pub(super) fn resized(path: &Path, image: &Image, size: [u32; 2]) -> Result<Image, ImageError> {
    check_target(path, size)?;
    let from = [image.width, image.height];
    let map = |map: &InverseDepthMap| {
        let plane = Plane { px: from, values: map.values.clone() };
        Ok(InverseDepthMap { values: maps::resize_depths(path, plane, size)?, ..*map })
    };
    let depth = image.depth.as_ref().map(map).transpose()?;
    let map = |map: &NormalMap| {
        let plane = Plane { px: from, values: map.values.as_chunks().0.to_vec() };
        Ok(NormalMap { values: maps::resize_normals(path, plane, size)? })
    };
    let normals = image.normals.as_ref().map(map).transpose()?;
    let flat = Image { depth: None, normals: None, ..image.clone() };
    let smaller = resample::image(path, flat, size)?;
    Ok(Image { depth, normals, ..smaller.settled() })
}

/// Decodes the photograph at full size and applies its alpha channel.
fn photograph(source: &ImageSource) -> Result<Image, ImageError> {
    let pixels = codec::pixels(&source.path, source.apply_orientation)?;
    let size = [pixels.width(), pixels.height()];
    if !pixels.color().has_alpha() {
        return Ok(Image::without_maps(size, pixels.into_rgb8().into_raw(), None));
    }
    let rgba = pixels.into_rgba8().into_raw();
    let colours = rgba.chunks_exact(4);
    let (rgb, mask) = match source.alpha {
        AlphaMeaning::Mask => {
            let mask = colours.clone().map(|pixel| decoded::counts(pixel[3])).collect();
            (colours.flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(), Some(mask))
        }
        AlphaMeaning::BlendOver(background) => {
            (colours.flat_map(|pixel| over(pixel, background)).collect(), None)
        }
    };
    Ok(Image::without_maps(size, rgb, mask))
}

/// Blends an RGBA pixel over a background of 0..1, both in sRGB.
fn over(pixel: &[u8], background: [f32; 3]) -> [u8; 3] {
    let alpha = f32::from(pixel[3]) / 255.0;
    [0, 1, 2].map(|channel| {
        let background = background[channel] * 255.0;
        resample::rounded(background + alpha * (f32::from(pixel[channel]) - background))
    })
}

/// Checks a size before it is allocated: it comes from a camera's file.
fn check_target(path: &Path, size: [u32; 2]) -> Result<(), ImageError> {
    let [width, height] = size;
    let bytes = (u64::from(width) * u64::from(height)).saturating_mul(4);
    if bytes == 0 || bytes > codec::MAX_DECODED {
        return Err(ImageError::UnusableTarget { path: name(path), width, height });
    }
    Ok(())
}

// Masks in files of their own.

/// Loads the mask in the file `path` for a photograph of `size`.
///
/// A pixel counts if it is at least half as bright as the brightest one. This handles masks of 0 and 255, of 0 and 1,
/// and JPEG noise around black. In a black mask no pixel counts.
fn load_mask(
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

/// Fails if a mask's header does not have the proportions of its photograph of `size`. An unreadable mask is an error
/// when the photograph is decoded.
pub(super) fn check_mask(
    path: &Path,
    upright: bool,
    photograph: &Path,
    size: [u32; 2],
) -> Result<(), ImageError> {
    let Ok(header) = probe(path) else { return Ok(()) };
    check_size(path, header.size(upright), photograph, size)
}

fn check_size(
    path: &Path,
    size: [u32; 2],
    photograph: &Path,
    photograph_size: [u32; 2],
) -> Result<(), ImageError> {
    if decoded::same_shape(size, photograph_size) {
        return Ok(());
    }
    let (path, photograph) = (name(path), name(photograph));
    Err(ImageError::MaskShape { path, size, photograph, photograph_size })
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test values are small")]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use image::codecs::jpeg::JpegEncoder;
    use image::codecs::png::PngEncoder;
    use image::codecs::webp::WebPEncoder;
    use image::{ExtendedColorType, ImageEncoder};
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::files::assert_parts;
    use crate::memory::Bytes;

    /// A 16x12 gradient as lossy WebP, written by libwebp through Pillow at quality 60.
    const LOSSY_WEBP: &[u8] = b"RIFF\x4a\0\0\0WEBPVP8 \x3e\0\0\0\xb0\x01\0\x9d\x01\x2a\x10\0\x0c\0\x02\x80\x42\x25\xb0\x02\x74\x01\x0e\xb5\x6f\x68\0\xfe\xf9\xfc\xd9\x6d\xd0\xa8\x21\xef\x25\x35\xa2\x14\x1a\xb4\x14\x9f\x0a\x50\xf9\x90\xf7\x07\xc3\x92\xab\xff\xfc\x0a\xea\x7b\xfe\xd3\x3c\x33\x7b\xbe\x20\0\0";

    fn source(path: PathBuf, size: [u32; 2]) -> ImageSource {
        ImageSource::plain(path, size)
    }

    fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn png(pixels: &[u8], size: [u32; 2], color: ExtendedColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        PngEncoder::new(&mut bytes).write_image(pixels, size[0], size[1], color).unwrap();
        bytes
    }

    fn jpeg(pixels: &[u8], size: [u32; 2], exif: Option<Vec<u8>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = JpegEncoder::new_with_quality(&mut bytes, 95);
        if let Some(exif) = exif {
            encoder.set_exif_metadata(exif).unwrap();
        }
        encoder.write_image(pixels, size[0], size[1], ExtendedColorType::Rgb8).unwrap();
        bytes
    }

    fn webp(pixels: &[u8], size: [u32; 2]) -> Vec<u8> {
        let mut bytes = Vec::new();
        WebPEncoder::new_lossless(&mut bytes)
            .write_image(pixels, size[0], size[1], ExtendedColorType::Rgb8)
            .unwrap();
        bytes
    }

    /// Returns EXIF with only the orientation (TIFF 6.0, little endian, tag 0x112).
    fn exif(orientation: u8) -> Vec<u8> {
        let mut bytes = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        bytes.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    fn gradient(width: u32, height: u32) -> Vec<u8> {
        let row = move |y: u32| {
            (0..width).flat_map(move |x| [(x * 255 / width) as u8, (y * 9) as u8, 60])
        };
        (0..height).flat_map(row).collect()
    }

    #[test]
    fn format_is_detected_by_content() {
        let folder = TempDir::new().unwrap();
        let pixels = gradient(16, 12);
        let files = [
            ("a.jpg", png(&pixels, [16, 12], ExtendedColorType::Rgb8), 0),
            ("b.png", webp(&pixels, [16, 12]), 0),
            // JPEG at quality 95 and 4:2:0 chroma on a smooth gradient: a few levels.
            ("c", jpeg(&pixels, [16, 12], None), 12),
            // WebP at quality 60, where Pillow's own reading is up to 15 levels off.
            ("d.tiff", LOSSY_WEBP.to_vec(), 40),
        ];
        for (name, bytes, tolerance) in files {
            let path = write(&folder, name, &bytes);
            let header = probe(&path).unwrap();
            let (width, height) = (16, 12);
            let plain = ImageHeader { width, height, orientation_swaps: false, has_colors: true };
            assert_eq!(header, plain);
            let image = decode(&source(path, [16, 12])).unwrap();
            assert_eq!((image.width, image.height, &image.mask), (16, 12, &None));
            let expected = if name == "d.tiff" { webp_gradient() } else { pixels.clone() };
            let worst = image.rgb.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(worst <= tolerance, "{name}: {worst} levels off");
        }
    }

    fn webp_gradient() -> Vec<u8> {
        (0..12).flat_map(|y| (0..16).flat_map(move |x| [x * 16, y * 20, 90])).collect()
    }

    #[test]
    fn exif_rotation_is_applied_only_on_request() {
        let folder = TempDir::new().unwrap();
        // 3x2 blocks of 16 px in distinct greys; orientation 6 shows the image rotated clockwise.
        let grey = |x: u32, y: u32| (40 * (x / 16 + 3 * (y / 16)) + 10) as u8;
        let pixels: Vec<u8> =
            (0..32).flat_map(|y| (0..48).flat_map(move |x| [grey(x, y); 3])).collect();
        let path = write(&folder, "turned.jpg", &jpeg(&pixels, [48, 32], Some(exif(6))));
        assert_eq!(
            probe(&path).unwrap(),
            ImageHeader { width: 48, height: 32, orientation_swaps: true, has_colors: true }
        );
        let mut as_stored = source(path, [48, 32]);
        let stored = decode(&as_stored).unwrap();
        as_stored.size = [32, 48];
        as_stored.apply_orientation = true;
        let upright = decode(&as_stored).unwrap();
        // Clockwise: the left of the bottom row moves to the top left.
        assert!(stored.rgb[0].abs_diff(10) <= 3);
        assert!(upright.rgb[0].abs_diff(130) <= 3);
        assert!(upright.rgb.last().unwrap().abs_diff(90) <= 3);

        for (orientation, swaps) in [(1, false), (3, false), (4, false), (5, true), (8, true)] {
            let bytes = jpeg(&pixels, [48, 32], Some(exif(orientation)));
            let path = write(&folder, "any.jpg", &bytes);
            assert_eq!(probe(&path).unwrap().orientation_swaps, swaps, "orientation {orientation}");
        }
    }

    #[test]
    fn header_after_much_metadata_is_found() {
        let folder = TempDir::new().unwrap();
        let plain = jpeg(&gradient(24, 16), [24, 16], None);
        // Forty comment segments of 60 kB between the start and the rest.
        let mut bytes = plain[..2].to_vec();
        for _ in 0..40 {
            bytes.extend([0xff, 0xfe, 0xea, 0x62]);
            bytes.extend([b'x'; 60_000]);
        }
        bytes.extend(&plain[2..]);
        let path = write(&folder, "long.jpg", &bytes);
        assert_eq!(probe(&path).unwrap().width, 24);
        assert!(decode(&source(path, [24, 16])).is_ok());
    }

    #[test]
    fn pixels_below_half_opacity_do_not_count_and_are_black() {
        let folder = TempDir::new().unwrap();
        let rgba = [9, 8, 7, 255, 9, 8, 7, 128, 9, 8, 7, 127, 9, 8, 7, 0];
        let path = write(&folder, "alpha.png", &png(&rgba, [4, 1], ExtendedColorType::Rgba8));
        let image = decode(&source(path.clone(), [4, 1])).unwrap();
        assert_eq!(image.mask, Some(vec![255, 255, 0, 0]));
        assert_eq!(image.rgb, [9, 8, 7, 9, 8, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(image.bytes(), Bytes(16));

        let mut blended = source(path, [4, 1]);
        blended.alpha = AlphaMeaning::BlendOver([1.0, 0.5, 0.0]);
        let image = decode(&blended).unwrap();
        // c·a/255 + background·(1 - a/255), rounded.
        assert_eq!(image.rgb, [9, 8, 7, 132, 68, 4, 132, 68, 3, 255, 128, 0]);
        assert_eq!(image.mask, None);
    }

    #[test]
    fn opaque_alpha_grey_and_16_bit_images_become_8_bit_colours() {
        let folder = TempDir::new().unwrap();
        let bytes = png(&[1, 2, 3, 255, 4, 5, 6, 200], [2, 1], ExtendedColorType::Rgba8);
        let image = decode(&source(write(&folder, "opaque.png", &bytes), [2, 1])).unwrap();
        assert_eq!((image.rgb, image.mask), (vec![1, 2, 3, 4, 5, 6], None));

        let grey = png(&[0, 77, 255], [3, 1], ExtendedColorType::L8);
        let image = decode(&source(write(&folder, "grey.png", &grey), [3, 1])).unwrap();
        assert_eq!(image.rgb, [0, 0, 0, 77, 77, 77, 255, 255, 255]);

        let deep: Vec<u8> = [0_u16, 257 * 99, 65535].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let deep = png(&deep, [1, 1], ExtendedColorType::Rgb16);
        let image = decode(&source(write(&folder, "deep.png", &deep), [1, 1])).unwrap();
        assert_eq!(image.rgb, [0, 99, 255]);
    }

    #[test]
    fn masks_of_another_shape_are_errors() {
        let folder = TempDir::new().unwrap();
        let photograph = png(&[50; 8 * 4 * 3], [8, 4], ExtendedColorType::Rgb8);
        let mut masked = source(write(&folder, "a.png", &photograph), [8, 4]);
        for counts in [255, 1] {
            let mask = png(&[counts, counts, 0, 0, 0, 0, 0, 0], [4, 2], ExtendedColorType::L8);
            masked.mask = Some(write(&folder, "a.mask.png", &mask));
            let mask = decode(&masked).unwrap().mask.unwrap();
            let expected = [255, 255, 255, 255, 0, 0, 0, 0].repeat(2);
            assert_eq!(&mask[..16], expected, "white is {counts}");
            assert!(mask[16..].iter().all(|&v| v == 0));
        }
        let white = png(&[255; 8], [4, 2], ExtendedColorType::L8);
        masked.mask = Some(write(&folder, "white.png", &white));
        assert_eq!(decode(&masked).unwrap().mask, None);

        let tall = png(&[255; 8], [2, 4], ExtendedColorType::L8);
        masked.mask = Some(write(&folder, "tall.png", &tall));
        let message = decode(&masked).unwrap_err().to_string();
        assert_parts(&message, &["tall.png", "2x4", "a.png", "8x4", "proportions"]);
        masked.mask = Some(folder.path().join("none.png"));
        assert!(decode(&masked).unwrap_err().to_string().contains("none.png: cannot be read"));
    }

    #[test]
    fn undistortion_moves_pixels_and_masks_those_outside_the_photograph() {
        let rgb = (0..6 * 4).flat_map(|pixel| [pixel as u8 * 10, 1, 2]).collect();
        let mut mask = vec![255; 24];
        mask[8] = 0;
        let photograph = Image::without_maps([6, 4], rgb, Some(mask));
        // Two pixels to the right, one down, and a target of another size.
        let straight =
            resample::straighten(&photograph, [5, 4], |[x, y]| [x + 2.0, y + 1.0]).settled();
        let mask = straight.mask.unwrap();
        assert_eq!(&mask[..5], [0, 255, 255, 255, 0]);
        assert_eq!(&mask[15..], [0; 5]);
        assert_eq!(&straight.rgb[3..6], [90, 1, 2]);
        assert_eq!(&straight.rgb[12..15], [0, 0, 0]);
    }

    #[test]
    fn invalid_sizes_are_rejected_before_allocation() {
        let folder = TempDir::new().unwrap();
        let path = write(&folder, "a.png", &png(&[1, 2, 3], [1, 1], ExtendedColorType::Rgb8));
        for size in [[0, 5], [u32::MAX, u32::MAX], [40_000, 40_000]] {
            let message = decode(&source(path.clone(), size)).unwrap_err().to_string();
            assert!(message.contains("a.png: its camera asks for"), "{message}");
        }
        // A PNG header that promises 60,000 x 60,000 px with 16-bit alpha: 29 GB from 57 bytes.
        let mut bomb =
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x10\x06\0\0\0".to_vec();
        bomb.extend(crc(&bomb[12..]).to_be_bytes());
        bomb.extend(b"\0\0\0\0IDAT\x35\xaf\x06\x1e\0\0\0\0IEND\xae\x42\x60\x82");
        let path = write(&folder, "bomb.png", &bomb);
        for error in [probe(&path).unwrap_err(), decode(&source(path, [10, 10])).unwrap_err()] {
            assert!(matches!(error, ImageError::UnusableSize { .. }), "{error}");
            assert!(error.to_string().contains("60000x60000"), "{error}");
        }
    }

    /// Returns the checksum of a PNG chunk (ISO 3309).
    fn crc(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
        })
    }

    #[test]
    fn truncated_and_foreign_files_are_named_errors() {
        let folder = TempDir::new().unwrap();
        let pixels = gradient(40, 30);
        let files = [
            ("cut.jpg", jpeg(&pixels, [40, 30], Some(exif(1)))),
            ("cut.png", png(&pixels, [40, 30], ExtendedColorType::Rgb8)),
            ("cut.webp", webp(&pixels, [40, 30])),
            ("lossy.webp", LOSSY_WEBP.to_vec()),
        ];
        for (name, bytes) in files {
            // The last bytes of a PNG are the end marker, which carries no pixels; WebP pads.
            for keep in [0, 1, 3, 10, 20, bytes.len() / 2, bytes.len() - 14] {
                let path = write(&folder, name, &bytes[..keep]);
                let error = decode(&source(path, [10, 10])).expect_err(name).to_string();
                assert!(error.contains(name), "{error}");
            }
        }
        let whole = jpeg(&pixels, [40, 30], None);
        let unmarked = write(&folder, "unmarked.jpg", &whole[..whole.len() - 2]);
        let error = decode(&source(unmarked, [10, 10])).unwrap_err();
        assert!(matches!(error, ImageError::Truncated { .. }), "{error}");
        assert!(error.to_string().contains("save it again"), "{error}");
        // Data that phones append after the end (depth maps, videos) are ignored.
        let longer = write(&folder, "longer.jpg", &[whole.as_slice(), &[0; 999]].concat());
        assert!(decode(&source(longer, [10, 10])).is_ok());
        let text = write(&folder, "page.jpg", b"<html>404</html>");
        assert_parts(&probe(&text).unwrap_err().to_string(), &["page.jpg", "web page"]);
        let message = probe(Path::new("nowhere/x.jpg")).unwrap_err().to_string();
        assert!(message.contains("nowhere/x.jpg: cannot be read"), "{message}");
        assert!(decode(&source(folder.path().to_owned(), [1, 1])).is_err());
    }

    #[test]
    fn decoder_panic_is_an_error_of_the_image() {
        let path = Path::new("bad.jpg");
        let outcome: Result<(), _> = guarded(path, || panic!("index {} out of range", 7));
        let message = outcome.unwrap_err().to_string();
        assert_parts(&message, &["bad.jpg", "index 7 out of range"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

        #[test]
        fn damaged_files_never_panic(
            format in 0_usize..4,
            keep in 0.0_f64..1.3,
            flips in prop::collection::vec((0.0_f64..1.0, 1_u8..=255), 0..6),
        ) {
            let pixels = gradient(24, 17);
            let mut bytes = match format {
                0 => jpeg(&pixels, [24, 17], Some(exif(6))),
                1 => png(&pixels, [24, 17], ExtendedColorType::Rgb8),
                2 => webp(&pixels, [24, 17]),
                _ => LOSSY_WEBP.to_vec(),
            };
            bytes.truncate((bytes.len() as f64 * keep) as usize);
            for (place, flip) in flips {
                let at = (bytes.len() as f64 * place) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= flip;
                }
            }
            let folder = TempDir::new().unwrap();
            let path = write(&folder, "damaged", &bytes);
            let header = probe(&path);
            let mut source = source(path, [8, 6]);
            source.apply_orientation = true;
            match decode(&source) {
                Ok(image) => {
                    prop_assert!(header.is_ok());
                    prop_assert_eq!(image.rgb.len(), 8 * 6 * 3);
                }
                Err(error) => prop_assert!(error.to_string().contains("damaged")),
            }
        }
    }
}
