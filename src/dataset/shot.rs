//! Photographs as scenes describe them.

use std::path::{Path, PathBuf};

use splat_mesh::narrow::round_u8;

use super::camera::{Camera, Pose};
use super::lens::{Distortion, Lens, LensError, Undistortion};
use crate::math::linalg::Mat3;

/// Supported extensions of photographs, lower case.
pub(super) const EXTENSIONS: [&str; 7] = ["png", "jpg", "jpeg", "webp", "tif", "tiff", "bmp"];

/// Unsupported extensions of photographs, lower case, for errors.
pub(super) const UNREAD_EXTENSIONS: [&str; 22] = [
    "avif", "heic", "heif", "gif", "jxl", "jp2", "j2k", "dng", "cr2", "cr3", "nef", "arw", "raf",
    "rw2", "orf", "exr", "hdr", "ppm", "pgm", "tga", "psd", "ico",
];

/// A photograph as the scene describes it, before its file is opened.
#[derive(Debug)]
pub(super) struct Shot {
    pub(super) name: String,
    pub(super) pose: Pose,
    pub(super) optics: Optics,
    /// File that describes the camera.
    pub(super) described_in: PathBuf,
    pub(super) path: Option<PathBuf>,
    /// Photograph with the camera's size, if that is another file.
    pub(super) sized_by: Option<PathBuf>,
    pub(super) mask: Option<PathBuf>,
    /// True if the scene itself holds the photograph out.
    pub(super) held_out: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Optics {
    /// A lens for photographs of a known size.
    Lens(Lens),
    /// A lens for photographs of any size.
    Sizeless(SizelessLens),
}

/// A lens whose file does not give the size of its photographs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizelessLens {
    /// Horizontal and vertical focal length.
    pub(super) focal: [Focal; 2],
    /// Principal point in px; the middle without one.
    pub(super) centre_px: [Option<f64>; 2],
    pub(super) distortion: Distortion,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Focal {
    Px(f64),
    /// Field of view.
    Angle {
        /// 0: along the width; 1: along the height.
        axis: usize,
        angle: f64,
    },
}

impl Optics {
    /// Returns the lens; `own_px` is the size of the photographs if the lens has none.
    pub(super) fn lens(&self, own_px: [u32; 2]) -> Result<Lens, LensError> {
        match self {
            Self::Lens(lens) => Ok(*lens),
            Self::Sizeless(lens) => lens.of_size(own_px),
        }
    }
}

impl SizelessLens {
    /// Returns the lens for photographs of `size` px.
    pub(super) fn of_size(&self, size: [u32; 2]) -> Result<Lens, LensError> {
        let half = size.map(|size| f64::from(size) / 2.0);
        let focal = |focal| match focal {
            Focal::Px(focal) => focal,
            Focal::Angle { axis, angle } => half[axis] / (angle / 2.0).tan(),
        };
        let camera = Camera {
            width: size[0],
            height: size[1],
            focal_px: self.focal.map(focal),
            centre_px: [0, 1].map(|axis| self.centre_px[axis].unwrap_or(half[axis])),
        };
        Lens::new(camera, self.distortion)
    }

    /// True if a length is in px, so that it implies the size of the photographs.
    pub(super) fn has_px(&self) -> bool {
        self.focal.iter().any(|focal| matches!(focal, Focal::Px(_)))
            || self.centre_px.iter().any(Option::is_some)
    }
}

/// Held-out views with `--eval` alone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holdout {
    /// Every n-th by name.
    EveryNth,
    /// The views of the scene's own test file.
    AsListed,
}

/// Largest valid coordinate of points and Gaussians, world units. Beyond it, products with squared distances exceed
/// the range of single precision.
pub const FARTHEST: f32 = 1e12;

/// Coloured points in the world: doubles in the scene's coordinates, or 32-bit floats in a [`Frame`](super::Frame).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud<T = f32> {
    /// Positions in world units, `[n][3]`.
    pub positions: Vec<[T; 3]>,
    /// Colours in sRGB, `[n][3]`.
    pub colors: Vec<[u8; 3]>,
}

/// Warns of points that are left out.
pub(super) fn not_finite(path: &Path, dropped: usize, kept: usize) -> Option<String> {
    (dropped > 0).then(|| {
        format!(
            "{}: {dropped} of its {} points have coordinates that are not finite; they are left out",
            path.display(),
            dropped + kept
        )
    })
}

/// Converts colours of any usual range to 0..255.
///
/// Fractions are in 0..1 if none is above 2 (slightly more than 1 is brighter than white), else in 0..255. Integers
/// above 255 make the range 0..65535.
pub(super) fn bytes_of_colors(colors: &[[f32; 3]], has_fractions: bool) -> Vec<[u8; 3]> {
    let brightest = colors.iter().flatten().copied().filter(|it| it.is_finite());
    let brightest = brightest.fold(0.0_f32, f32::max);
    let scale = match (has_fractions, brightest) {
        (true, ..=2.0) => 255.0,
        (false, 255.5..) => 255.0 / 65_535.0,
        _ => 1.0,
    };
    let byte = |channel: f32| round_u8(f64::from(channel * scale));
    colors.iter().map(|color| color.map(byte)).collect()
}

/// Source of a view's pixels, and their processing.
#[derive(Clone, Debug, Default)]
pub struct ImageSource {
    /// The photograph.
    pub path: PathBuf,
    /// Greyscale mask: white pixels count, black pixels do not.
    pub mask: Option<PathBuf>,
    /// Size after undistortion and before the final resize, px (of the view at `-r 1`).
    pub full_size: [u32; 2],
    /// Trained size, px; equals the view's camera.
    pub size: [u32; 2],
    /// True if the stored pixels are rotated by the EXIF orientation. False if the camera's size fits the stored
    /// pixels, because the cameras were then solved on these.
    pub apply_orientation: bool,
    /// Removal of the lens distortion, for cameras that are not pinholes.
    pub undistort: Option<Undistortion>,
    /// Meaning of an alpha channel.
    pub alpha: AlphaMeaning,
    /// Inverse depths of the photograph.
    pub depth: Option<DepthFile>,
    /// Normals of the photograph.
    pub normals: Option<NormalFile>,
}

impl ImageSource {
    /// Describes a photograph of this size without a mask, distortion and maps.
    pub fn plain(path: PathBuf, size: [u32; 2]) -> Self {
        Self { path, full_size: size, size, ..Self::default() }
    }

    /// True if some pixels may not count: because of a mask's file, or of an alpha channel (not in a JPEG).
    pub fn may_have_mask(&self) -> bool {
        let is_jpeg = self.path.extension().is_some_and(|extension| {
            ["jpg", "jpeg"].iter().any(|jpeg| extension.eq_ignore_ascii_case(jpeg))
        });
        self.mask.is_some() || (self.alpha == AlphaMeaning::Mask && !is_jpeg)
    }

    /// Returns the bytes of a pixel's maps: 2 for its inverse depth, 3 for its normal, if there are files.
    pub fn map_bytes(&self) -> u64 {
        2 * u64::from(self.depth.is_some()) + 3 * u64::from(self.normals.is_some())
    }

    /// Returns the smallest number of bytes of a decoded pixel: its colours, and a mask and maps if there are files.
    pub fn pixel_bytes(&self) -> u64 {
        3 + u64::from(self.mask.is_some()) + self.map_bytes()
    }
}

/// File of a map of inverse depths (see [`InverseDepthMap`](super::InverseDepthMap)).
#[derive(Clone, Debug, PartialEq)]
pub struct DepthFile {
    /// Greyscale file of the photograph's proportions.
    pub path: PathBuf,
    /// Scale from the map to inverse depths, per world unit.
    pub scale: f32,
    /// Offset of the inverse depths, per world unit.
    pub offset: f32,
}

/// File of a map of normals.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalFile {
    /// Colour file of the photograph's proportions.
    pub path: PathBuf,
    /// Rotation or reflection from the map's axes to the camera's: x right, y down, z along the view.
    pub cam_from_map: Mat3<f64>,
}

/// Meaning of an alpha channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AlphaMeaning {
    /// Pixels below half opacity do not count (COLMAP scenes).
    #[default]
    Mask,
    /// The colour is blended over this background, 0..1 (Blender scenes).
    BlendOver([f32; 3]),
}
