//! Maps of inverse depths of photographs.

use std::path::Path;

use fast_image_resize::FilterType;
use fast_image_resize::images::ImageRef;
use fast_image_resize::pixels::U16;
use image::DynamicImage;

use super::decoded::{self, InverseDepthMap};
use super::error::{ImageError, name};
use super::{codec, resample};
use crate::dataset::lens::Undistortion;
use crate::dataset::shot::ImageSource;

const KIND: MapKind = MapKind { name: "depth", flag: "--depths" };

/// Loads the map of a view, if it has one: decoded, straightened and resized like its photograph of size
/// `photograph_px`.
pub(super) fn load(
    source: &ImageSource,
    photograph_px: [u32; 2],
) -> Result<Option<InverseDepthMap>, ImageError> {
    let Some(file) = &source.depth else { return Ok(None) };
    let path = &file.path;
    let plane = decode(path, source.apply_orientation)?;
    let plane = plane.straightened(path, KIND, source, photograph_px)?;
    let values = resize(path, plane, source.size)?;
    Ok(Some(InverseDepthMap { values, scale: file.scale, offset: file.offset }))
}

/// Decodes 8- or 16-bit values without conversion, because the scales are fitted to the stored values.
fn decode(path: &Path, upright: bool) -> Result<Plane<u16>, ImageError> {
    let pixels = codec::pixels(path, upright)?;
    let px = [pixels.width(), pixels.height()];
    let values = match pixels {
        DynamicImage::ImageLuma8(grey) => grey.into_raw().into_iter().map(u16::from).collect(),
        DynamicImage::ImageLuma16(grey) => grey.into_raw(),
        DynamicImage::ImageRgb8(rgb) => {
            single_channel(path, rgb.as_raw())?.into_iter().map(u16::from).collect()
        }
        DynamicImage::ImageRgb16(rgb) => single_channel(path, rgb.as_raw())?,
        _ => return Err(ImageError::NoDepthMap { path: name(path) }),
    };
    Ok(Plane { px, values })
}

/// Returns one channel of `[n][3]` colours; fails unless all are grey.
fn single_channel<T: Copy + PartialEq>(path: &Path, rgb: &[T]) -> Result<Vec<T>, ImageError> {
    let grey = |pixel: &[T]| (pixel[0] == pixel[1] && pixel[1] == pixel[2]).then_some(pixel[0]);
    let channel: Option<Vec<T>> = rgb.chunks_exact(3).map(grey).collect();
    channel.ok_or_else(|| ImageError::NoDepthMap { path: name(path) })
}

/// Resizes the values by a filter without negative lobes, so that they stay in the range of their neighbours.
pub(super) fn resize(
    path: &Path,
    plane: Plane<u16>,
    size: [u32; 2],
) -> Result<Vec<u16>, ImageError> {
    let Plane { px, values } = plane;
    if px == size {
        return Ok(values);
    }
    let pixels: Vec<U16> = values.into_iter().map(U16::new).collect();
    let source = ImageRef::from_pixels(px[0], px[1], &pixels);
    let bytes = resample::convolve::<U16>(path, source, size, FilterType::Bilinear)?;
    Ok(bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect())
}

// A map of a photograph, before it has the trained size.

/// Kind of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapKind {
    /// Name in messages.
    pub(super) name: &'static str,
    /// Option of the maps' folder.
    pub(super) flag: &'static str,
}

impl MapKind {
    /// Fails if a map of `size` does not have the proportions of its photograph of `photograph_px`.
    pub(super) fn check_shape(
        self,
        path: &Path,
        size: [u32; 2],
        source: &ImageSource,
        photograph_px: [u32; 2],
    ) -> Result<(), ImageError> {
        if decoded::same_shape(size, photograph_px) {
            return Ok(());
        }
        Err(ImageError::MapShape {
            path: name(path),
            kind: self.name,
            flag: self.flag,
            size,
            photograph: name(&source.path),
            photograph_size: photograph_px,
        })
    }
}

/// Values of pixels, rows from the top.
pub(super) struct Plane<T> {
    pub(super) px: [u32; 2],
    pub(super) values: Vec<T>,
}

impl<T: Copy> Plane<T> {
    /// Straightens the map in the file `path` like its photograph of size `photograph_px`. Fails if the map does not
    /// have the photograph's proportions.
    pub(super) fn straightened(
        self,
        path: &Path,
        kind: MapKind,
        source: &ImageSource,
        photograph_px: [u32; 2],
    ) -> Result<Self, ImageError> {
        kind.check_shape(path, self.px, source, photograph_px)?;
        Ok(match &source.undistort {
            Some(lens) => self.straighten(lens, source.full_size, photograph_px),
            None => self,
        })
    }

    /// Resamples the map for a pinhole camera of `full_px`, by the nearest stored values.
    pub(super) fn straighten(
        &self,
        lens: &Undistortion,
        full_px: [u32; 2],
        photograph_px: [u32; 2],
    ) -> Self {
        let ratio = [0, 1].map(|i| f64::from(self.px[i]) / f64::from(photograph_px[i]));
        let mut values = Vec::with_capacity(full_px[0] as usize * full_px[1] as usize);
        resample::each_place(full_px, &|at| lens.source_px(at), |at| {
            let [x, y] = [0, 1].map(|i| nearest(at[i] * ratio[i], self.px[i]));
            values.push(self.values[y * self.px[0] as usize + x]);
        });
        Self { px: full_px, values }
    }
}

/// Returns the nearest pixel of a row or column to `at`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the row first; what is not a number becomes pixel 0"
)]
fn nearest(at: f64, length: u32) -> usize {
    at.clamp(0.0, f64::from(length) - 1.0) as usize
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use image::{ImageBuffer, Luma, LumaA, Pixel, PixelWithColorType, Rgb};
    use tempfile::TempDir;

    use super::*;
    use crate::dataset::shot::DepthFile;
    use crate::files::assert_parts;
    use crate::memory::Bytes;

    pub(in super::super) fn write<P>(
        folder: &TempDir,
        [width, height]: [u32; 2],
        pixel: impl Fn(u32, u32) -> P,
    ) -> PathBuf
    where
        P: Pixel + PixelWithColorType,
        [P::Subpixel]: image::EncodableLayout,
    {
        let path = folder.path().join("a.png");
        ImageBuffer::from_fn(width, height, pixel).save(&path).unwrap();
        path
    }

    fn load_at(
        path: PathBuf,
        photograph_px: [u32; 2],
        size: [u32; 2],
    ) -> Result<InverseDepthMap, ImageError> {
        let depth = Some(DepthFile { path, scale: 4.0, offset: -0.5 });
        let source =
            ImageSource { size, depth, ..ImageSource::plain("a.jpg".into(), photograph_px) };
        load(&source, photograph_px).map(Option::unwrap)
    }

    #[test]
    fn stored_values_are_not_converted() {
        let folder = tempfile::tempdir().unwrap();
        let size = [5, 3];
        let value = |x: u32, y: u32| u16::try_from(9000 * x + 1001 * y).unwrap();
        let expected: Vec<u16> = (0..3).flat_map(|y| (0..5).map(move |x| value(x, y))).collect();
        let map = load_at(write(&folder, size, |x, y| Luma([value(x, y)])), size, size).unwrap();
        assert_eq!((&map.values, map.offset), (&expected, -0.5));
        assert_eq!(map.scale_of_step() * 65_536.0, 4.0);
        let grey = write(&folder, size, |x, y| Rgb([value(x, y); 3]));
        assert_eq!(load_at(grey, size, size).unwrap().values, expected);
        let short = |x: u32, y: u32| u8::try_from(50 * x + y).unwrap();
        let expected: Vec<u16> =
            (0..3).flat_map(|y| (0..5).map(move |x| short(x, y).into())).collect();
        let grey = write(&folder, size, |x, y| Rgb([short(x, y); 3]));
        assert_eq!(load_at(grey, size, size).unwrap().values, expected);
        let map = load_at(write(&folder, size, |x, y| Luma([short(x, y)])), size, size).unwrap();
        assert_eq!((map.bytes(), map.scale, map.values), (Bytes(30), 4.0, expected));
    }

    #[test]
    fn maps_are_resized_with_their_photograph_and_keep_their_range() {
        let folder = tempfile::tempdir().unwrap();
        let ramp = write(&folder, [40, 24], |x, _| Luma([u16::try_from(1000 * x).unwrap()]));
        for size in [[20, 12], [10, 6], [80, 48]] {
            // The map may have another size than the photograph.
            let map = load_at(ramp.clone(), [80, 48], size).unwrap();
            let ratio = 40.0 / size[0] as f32;
            for (at, &value) in map.values.iter().enumerate() {
                let x = (at % size[0] as usize) as f32;
                let centre = ((x + 0.5) * ratio - 0.5).clamp(0.0, 39.0) * 1000.0;
                // A ramp stays a ramp up to rounding, except at the edges, where the filter is cut off.
                let edge = x < 2.0 || x > size[0] as f32 - 3.0;
                let tolerance = if edge { 1000.0 * ratio } else { 2.0 };
                assert!((f32::from(value) - centre).abs() <= tolerance, "{size:?} {at}: {value}");
                assert!(value <= 39_000);
            }
        }
    }

    #[test]
    fn invalid_depth_maps_are_rejected_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let size = [4, 4];
        let colours = write(&folder, size, |x, _| Rgb([u8::try_from(x).unwrap(), 0, 0]));
        let error = load_at(colours, size, size).unwrap_err().to_string();
        assert_parts(&error, &["a.png", "greyscale PNG"]);
        let transparent = write(&folder, size, |_, _| LumaA([3_u8, 9]));
        let error = load_at(transparent, size, size).unwrap_err().to_string();
        assert_parts(&error, &["is no depth map"]);
        let narrow = write(&folder, [20, 30], |_, _| Luma([7_u16]));
        let error = load_at(narrow, [40, 30], size).unwrap_err().to_string();
        assert_parts(&error, &["a.png", "20x30 px", "a.jpg", "40x30", "--depths"]);
    }

    #[test]
    fn map_is_undistorted_like_the_photograph() {
        use crate::dataset::{Camera, Distortion, Lens};
        let camera =
            Camera { width: 64, height: 48, focal_px: [50.0, 50.0], centre_px: [32.0, 24.0] };
        let distortion = Distortion::brown([-0.12, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2]);
        let (straight, undistort) = Lens::new(camera, distortion).unwrap().straighten().unwrap();
        let lens = undistort.unwrap();
        let full_px = [straight.width, straight.height];
        // At half the photograph's size.
        let values = (0..24 * 32).map(|i| u16::try_from(i % 32 * 100).unwrap()).collect();
        let plane = Plane { px: [32, 24], values };
        let straightened = plane.straighten(&lens, full_px, [64, 48]);
        assert_eq!(straightened.values.len(), (full_px[0] * full_px[1]) as usize);
        for (x, y) in [(10, 5), (40, 20), (30, 40)] {
            let [at, _] = lens.source_px([f64::from(x) + 0.5, f64::from(y) + 0.5]);
            let expected = 100.0 * (at / 2.0).floor();
            let found = straightened.values[(y * full_px[0] + x) as usize];
            // A position on a boundary may fall to the neighbour.
            assert!((f64::from(found) - expected).abs() <= 100.0, "{x} {y}: {found} {expected}");
        }
    }
}
