//! Where the pixels of a view come from.

use std::path::PathBuf;

use super::lens::Undistortion;
use crate::math::linalg::Mat3;

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
    /// Whether there may be pixels that do not count: of a mask's file, or of an alpha channel, which a
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
