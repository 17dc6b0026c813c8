//! Errors of a photograph or its mask.

use std::io;
use std::path::Path;

use crate::files::shell_word;

/// Error of an image file.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be opened or read.
    #[error("{path}: cannot be read: {source}. Check that the file is there and may be read")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The format is not supported.
    #[error(
        "{path}: is neither JPEG, PNG, WebP, TIFF nor BMP ({found}). Convert it: magick mogrify \
         -format png {}",
        shell_word(Path::new(.path))
    )]
    UnknownFormat {
        /// The file.
        path: String,
        /// Kind of the file.
        found: String,
    },
    /// The file is empty.
    #[error("{path}: is empty (0 bytes). Copy the file again, or remove it")]
    Empty {
        /// The file.
        path: String,
    },
    /// The file is a pointer of Git LFS.
    #[error("{path}: {}", splat_mesh::file::ply::LFS_SAID)]
    LfsPointer {
        /// The file.
        path: String,
    },
    /// The decoder rejects the content.
    #[error(
        "{path}: cannot be decoded: {source}. The file is damaged or of a rare kind; copy it again or export it anew"
    )]
    Undecodable {
        /// The file.
        path: String,
        /// The error of the decoder.
        #[source]
        source: ::image::ImageError,
    },
    /// The end of the file is missing.
    #[error(
        "{path}: breaks off after {bytes} bytes, before the image ends. Copy it again; if it is whole and only its end marker is missing, save it anew"
    )]
    Truncated {
        /// The file.
        path: String,
        /// Number of present bytes.
        bytes: usize,
    },
    /// The file is larger than any photograph.
    #[error("{path}: is larger than {limit} bytes. Export the photograph at a smaller size")]
    FileTooLarge {
        /// The file.
        path: String,
        /// Largest number of bytes.
        limit: u64,
    },
    /// The size in the header is 0 or too large.
    #[error(
        "{path}: {width}x{height} px is no usable size (1 px to {limit} bytes decoded). Export the photograph at a usual size"
    )]
    UnusableSize {
        /// The file.
        path: String,
        /// Stored width in px.
        width: u32,
        /// Stored height in px.
        height: u32,
        /// Largest number of bytes of a decoded image.
        limit: u64,
    },
    /// The size of the camera is 0 or too large.
    #[error(
        "{path}: its camera asks for {width}x{height} px, which is no usable size. Correct the camera or choose another --resolution"
    )]
    UnusableTarget {
        /// The photograph.
        path: String,
        /// Requested width in px.
        width: u32,
        /// Requested height in px.
        height: u32,
    },
    /// The mask has other proportions than its photograph.
    #[error(
        "{path}: the mask is {}x{} px, but its photograph {photograph} is {}x{} px. Give the mask the photograph's proportions",
        .size[0], .size[1], .photograph_size[0], .photograph_size[1]
    )]
    MaskShape {
        /// The mask.
        path: String,
        /// Size of the mask, px.
        size: [u32; 2],
        /// The photograph.
        photograph: String,
        /// Size of the upright or stored photograph, px.
        photograph_size: [u32; 2],
    },
    /// A map has other proportions than its photograph.
    #[error(
        "{path}: the {kind} map has {}x{} px, but {photograph} has {}x{}. Make it again, or remove it from the folder \
         of {flag}",
        .size[0], .size[1], .photograph_size[0], .photograph_size[1]
    )]
    MapShape {
        /// The map.
        path: String,
        /// Kind of the map.
        kind: &'static str,
        /// Option of its folder.
        flag: &'static str,
        /// Size of the map, px.
        size: [u32; 2],
        /// The photograph.
        photograph: String,
        /// Size of the upright or stored photograph, px.
        photograph_size: [u32; 2],
    },
    /// A colour or transparent image instead of a depth map.
    #[error(
        "{path}: is no depth map: its pixels are not grey. Store inverse depths as a greyscale PNG of 16 \
         bits, not colours that stand for them"
    )]
    NoDepthMap {
        /// The file.
        path: String,
    },
    /// An image without three channels instead of a normal map.
    #[error(
        "{path}: is no normal map: its pixels are not red, green and blue. Store x, y and z of the \
         normals, from -1 to 1, as the colours of an RGB PNG or JPEG"
    )]
    NoNormalMap {
        /// The file.
        path: String,
    },
    /// A normal map in other axes than the option says.
    #[error(
        "{path}: {percent} % of its normals point away from the camera. Say with --normals-frame what axes \
         they are in, or remove the map from the folder of --normals"
    )]
    NormalsFaceAway {
        /// The file.
        path: String,
        /// Percentage of the normals.
        percent: usize,
    },
    /// The resampling library failed.
    #[error("{path}: cannot be resized: {reason}. Please report this together with the file")]
    Resize {
        /// The file.
        path: String,
        /// The error of the library.
        reason: String,
    },
    /// The decoder panicked.
    #[error("{path}: the decoder failed: {reason}. Export the image anew, or leave it out")]
    Panicked {
        /// The file.
        path: String,
        /// The error of the decoder.
        reason: String,
    },
    /// A view that the scene does not have.
    #[error("image {index} was requested, but the scene has {count} images")]
    NoSuchImage {
        /// Requested index.
        index: usize,
        /// Number of images in the scene.
        count: usize,
    },
}

/// Formats a path for a message.
pub(super) fn name(path: &Path) -> String {
    path.display().to_string()
}
