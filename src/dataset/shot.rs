//! Photographs as scenes describe them.

use std::path::PathBuf;

use super::camera::{Camera, Pose};
use super::lens::{Distortion, Lens, LensError, Undistortion};
use crate::math::linalg::Mat3;

/// Extensions of photographs that are read, lower case.
pub(super) const EXTENSIONS: [&str; 7] = ["png", "jpg", "jpeg", "webp", "tif", "tiff", "bmp"];

/// Extensions of photographs that are not read, lower case: an error says what they are.
pub(super) const UNREAD_EXTENSIONS: [&str; 22] = [
    "avif", "heic", "heif", "gif", "jxl", "jp2", "j2k", "dng", "cr2", "cr3", "nef", "arw", "raf",
    "rw2", "orf", "exr", "hdr", "ppm", "pgm", "tga", "psd", "ico",
];

/// A photograph as the scene describes it, before its file was looked at.
#[derive(Debug)]
pub(super) struct Shot {
    /// Name in the scene.
    pub(super) name: String,
    /// Pose of the camera.
    pub(super) pose: Pose,
    /// What took it.
    pub(super) optics: Optics,
    /// The file that describes its camera.
    pub(super) described_in: PathBuf,
    /// The file, where it exists.
    pub(super) path: Option<PathBuf>,
    /// The photograph whose size the camera is of, if that is another file.
    pub(super) sized_by: Option<PathBuf>,
    /// Its mask, where it has one.
    pub(super) mask: Option<PathBuf>,
    /// Held out by the scene itself.
    pub(super) held_out: bool,
}

/// What took a photograph.
#[derive(Clone, Copy, Debug)]
pub(super) enum Optics {
    /// A lens for photographs of a known size.
    Lens(Lens),
    /// A lens for photographs of any size.
    Sizeless(SizelessLens),
}

/// A lens whose file does not say how large its photographs are.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizelessLens {
    /// Horizontal and vertical focal length.
    pub(super) focal: [Focal; 2],
    /// Principal point in px; the middle if there is none.
    pub(super) centre_px: [Option<f64>; 2],
    /// What bends the rays.
    pub(super) distortion: Distortion,
}

/// A focal length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Focal {
    /// In px.
    Px(f64),
    /// By a field of view.
    Angle {
        /// 0: along the photograph's width; 1: along its height.
        axis: usize,
        /// In radians.
        angle: f64,
    },
}

impl Optics {
    /// The lens for photographs of `own_px`, if it does not say how large its photographs are.
    pub(super) fn lens(&self, own_px: [u32; 2]) -> Result<Lens, LensError> {
        match self {
            Self::Lens(lens) => Ok(*lens),
            Self::Sizeless(lens) => lens.of_size(own_px),
        }
    }
}

impl SizelessLens {
    /// The lens for photographs of `size` px.
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

    /// True if a length in px tells how large the photographs are.
    pub(super) fn has_px(&self) -> bool {
        self.focal.iter().any(|focal| matches!(focal, Focal::Px(_)))
            || self.centre_px.iter().any(Option::is_some)
    }
}

// The points that a scene starts from.

/// The largest coordinate that is believed, of points and of Gaussians, world units. Beyond it the
/// squares of distances, and what images multiply them with, leave the range of single precision.
pub const FARTHEST: f32 = 1e12;

/// Coloured points in the world: of doubles as the scene's files have them, and of 32-bit floats in a
/// [`Frame`](super::Frame).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud<T = f32> {
    /// World units, `[n][3]`.
    pub positions: Vec<[T; 3]>,
    /// sRGB, `[n][3]`.
    pub colors: Vec<[u8; 3]>,
}

/// Colours of 0 to 255 from numbers of any of the usual ranges.
///
/// Numbers with fractions are of 0 to 1 if none is above 2 (a little more than 1 is brighter than
/// white), else of 0 to 255. Whole numbers above 255 make the range 0 to 65535.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates to 0..=255 and makes NaN 0"
)]
pub(super) fn bytes_of_colors(colors: &[[f32; 3]], has_fractions: bool) -> Vec<[u8; 3]> {
    let brightest = colors.iter().flatten().copied().filter(|it| it.is_finite());
    let brightest = brightest.fold(0.0_f32, f32::max);
    let scale = match (has_fractions, brightest) {
        (true, ..=2.0) => 255.0,
        (false, 255.5..) => 255.0 / 65_535.0,
        _ => 1.0,
    };
    colors.iter().map(|color| color.map(|channel| (channel * scale).round() as u8)).collect()
}

// Source of a view's pixels.

/// Where the pixels of a view come from and what is done to them.
#[derive(Clone, Debug)]
pub struct ImageSource {
    /// The photograph.
    pub path: PathBuf,
    /// A greyscale file: white where the photograph counts, black where it does not.
    pub mask: Option<PathBuf>,
    /// Size after undistortion and before the final resize, px (of the view at `-r 1`).
    pub full_size: [u32; 2],
    /// Size that is trained, px; equals the view's camera.
    pub size: [u32; 2],
    /// Turn the stored pixels as the EXIF orientation says. Off where the camera's size fits the
    /// stored pixels, because the cameras were then solved on these.
    pub apply_orientation: bool,
    /// How the lens is taken out, for cameras that are not pinholes.
    pub undistort: Option<Undistortion>,
    /// What an alpha channel means.
    pub alpha: AlphaMeaning,
    /// Inverse depths of the photograph.
    pub depth: Option<DepthFile>,
    /// Normals of the photograph.
    pub normals: Option<NormalFile>,
}

impl ImageSource {
    /// True if there may be pixels that do not count: of a mask's file, or of an alpha channel, which a
    /// JPEG does not have.
    pub fn may_have_mask(&self) -> bool {
        let is_jpeg = self.path.extension().is_some_and(|extension| {
            ["jpg", "jpeg"].iter().any(|jpeg| extension.eq_ignore_ascii_case(jpeg))
        });
        self.mask.is_some() || (self.alpha == AlphaMeaning::Mask && !is_jpeg)
    }

    /// Bytes that the maps of a pixel take: 2 of its inverse depth, 3 of its normal, as far as there are
    /// files of them.
    pub fn map_bytes(&self) -> u64 {
        2 * u64::from(self.depth.is_some()) + 3 * u64::from(self.normals.is_some())
    }

    /// Bytes that a decoded pixel takes at the least: its colours, and a mask and maps of which there are
    /// files.
    pub fn pixel_bytes(&self) -> u64 {
        3 + u64::from(self.mask.is_some()) + self.map_bytes()
    }
}

/// A map of inverse depths on disk, as [`InverseDepthMap`](super::InverseDepthMap) has it.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthFile {
    /// A greyscale file of the photograph's proportions.
    pub path: PathBuf,
    /// What fits the map to the scene's unit, per world unit.
    pub scale: f32,
    /// The same, per world unit.
    pub offset: f32,
}

/// A map of normals on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalFile {
    /// A file in colours, of the photograph's proportions.
    pub path: PathBuf,
    /// From the map's axes to the camera's: x right, y down, z along the view. Keeps lengths.
    pub cam_from_map: Mat3<f64>,
}

/// What an alpha channel means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AlphaMeaning {
    /// Pixels below half opacity do not count (COLMAP scenes).
    Mask,
    /// The colour is blended over this background, 0..1 (Blender scenes).
    BlendOver([f32; 3]),
}
