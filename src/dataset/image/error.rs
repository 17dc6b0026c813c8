//! Errors of a photograph or its mask.

use std::io;
use std::path::Path;

use crate::files::shell_word;

/// An image that cannot be used, in the words that the user reads.
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
    /// The content is of no format that is supported.
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
    /// No bytes.
    #[error("{path}: is empty (0 bytes). Copy the file again, or remove it")]
    Empty {
        /// The file.
        path: String,
    },
    /// The content was not fetched from the store of large files.
    #[error("{path}: {}", splat_mesh::file::ply::LFS_SAID)]
    LfsPointer {
        /// The file.
        path: String,
    },
    /// The decoder turned the content away.
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
        /// Bytes that are there.
        bytes: usize,
    },
    /// The file is larger than any photograph.
    #[error("{path}: is larger than {limit} bytes. Export the photograph at a smaller size")]
    FileTooLarge {
        /// The file.
        path: String,
        /// Bytes that are read at most.
        limit: u64,
    },
    /// The header promises more pixels than are decoded, or none.
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
        /// Bytes that a decoded image may take.
        limit: u64,
    },
    /// The camera asks for a size that no image can have.
    #[error(
        "{path}: its camera asks for {width}x{height} px, which is no usable size. Correct the camera or choose another --resolution"
    )]
    UnusableTarget {
        /// The photograph.
        path: String,
        /// Wanted width in px.
        width: u32,
        /// Wanted height in px.
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
        /// Size of the photograph as it is used, px.
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
        /// What it is a map of.
        kind: &'static str,
        /// The option that names its folder.
        flag: &'static str,
        /// Size of the map, px.
        size: [u32; 2],
        /// The photograph.
        photograph: String,
        /// Size of the photograph as it is used, px.
        photograph_size: [u32; 2],
    },
    /// A picture in colours, or one that is transparent, in place of a depth map.
    #[error(
        "{path}: is no depth map: its pixels are not grey. Store inverse depths as a greyscale PNG of 16 \
         bits, not colours that stand for them"
    )]
    NoDepthMap {
        /// The file.
        path: String,
    },
    /// A picture without three colours in place of a normal map.
    #[error(
        "{path}: is no normal map: its pixels are not red, green and blue. Store x, y and z of the \
         normals, from -1 to 1, as the colours of an RGB PNG or JPEG"
    )]
    NoNormalMap {
        /// The file.
        path: String,
    },
    /// A normal map in other axes than was said.
    #[error(
        "{path}: {percent} % of its normals point away from the camera. Say with --normals-frame what axes \
         they are in, or remove the map from the folder of --normals"
    )]
    NormalsFaceAway {
        /// The file.
        path: String,
        /// How many of those that it has.
        percent: usize,
    },
    /// The resampling library turned the image away.
    #[error("{path}: cannot be resized: {reason}. Please report this together with the file")]
    Resize {
        /// The file.
        path: String,
        /// The error of the library.
        reason: String,
    },
    /// The decoder failed in a way that it should not.
    #[error("{path}: the decoder failed: {reason}. Export the image anew, or leave it out")]
    Panicked {
        /// The file.
        path: String,
        /// The error of the decoder.
        reason: String,
    },
    /// A view was asked for that the scene does not have.
    #[error("image {index} was requested, but the scene has {count} images")]
    NoSuchImage {
        /// Index asked for.
        index: usize,
        /// Images of the scene.
        count: usize,
    },
}

/// How a path stands in a message.
pub(super) fn name(path: &Path) -> String {
    path.display().to_string()
}
