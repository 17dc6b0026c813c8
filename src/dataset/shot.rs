//! Photographs as scenes describe them.

use std::path::PathBuf;

use super::camera::{Camera, Pose};
use super::lens::{Distortion, Lens, LensError};

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
