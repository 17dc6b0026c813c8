//! A scene on disk: photographs with cameras, and points.

mod camera;
mod image;
mod lens;
mod loader;

use std::path::PathBuf;

pub use camera::{Camera, Pose, View};
pub use image::{Image, ImageError, ImageHeader, decode, probe};
pub use lens::Undistortion;
pub use loader::{ImageLoader, LoaderStatistics, Residency};

/// A scene as the trainer sees it: everything but the pixels.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Scene folder.
    pub root: PathBuf,
    /// Views with a usable image, in the order of names.
    pub views: Vec<View>,
    /// How to get the pixels of each view; same order as `views`.
    pub sources: Vec<ImageSource>,
    /// Indices into `views` of those trained on, ascending.
    pub train: Vec<usize>,
    /// Indices into `views` of those held out, ascending.
    pub test: Vec<usize>,
    /// Points that the Gaussians start from; may be empty.
    pub points: PointCloud,
    /// Half side of the cube that random Gaussians fill where `points` is empty and the scene's
    /// format fixes it, world units (1.3 for Blender scenes).
    pub random_half_side: Option<f64>,
    /// Things the user should know, one sentence each (images missing, points dropped).
    pub warnings: Vec<String>,
}

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
}

/// What an alpha channel means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AlphaMeaning {
    /// Pixels below half opacity do not count (COLMAP scenes).
    Mask,
    /// The colour is blended over this background, 0..1 (Blender scenes).
    BlendOver([f32; 3]),
}

/// Coloured points in the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud {
    /// World units, [n][3].
    pub positions: Vec<[f32; 3]>,
    /// sRGB, [n][3].
    pub colors: Vec<[u8; 3]>,
}

impl Dataset {
    /// 1.1 times the largest distance of a training camera from their mean, world units.
    pub fn extent(&self) -> f64 {
        0.0
    }
}
