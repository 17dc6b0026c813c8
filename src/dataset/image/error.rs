//! Errors of a photograph or its mask.

use std::io;
use std::path::Path;

use crate::files::shell_word;

/// Error of an image file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum ImageError {
    #[error("{path}: cannot be read: {source}. Check that the file is there and may be read")]
    Unreadable { path: String, source: io::Error },
    #[error(
        "{path}: is neither JPEG, PNG, WebP, TIFF nor BMP ({found}). Convert it: magick mogrify \
         -format png {}",
        shell_word(Path::new(.path))
    )]
    UnknownFormat { path: String, found: String },
    #[error("{path}: is empty (0 bytes). Copy the file again, or remove it")]
    Empty { path: String },
    #[error("{path}: {}", splat_mesh::file::ply::LFS_SAID)]
    LfsPointer { path: String },
    #[error(
        "{path}: cannot be decoded: {source}. The file is damaged or of a rare kind; copy it again or export it anew"
    )]
    Undecodable { path: String, source: ::image::ImageError },
    #[error(
        "{path}: breaks off after {bytes} bytes, before the image ends. Copy it again; if it is whole and only its end marker is missing, save it anew"
    )]
    Truncated { path: String, bytes: usize },
    #[error("{path}: is larger than {limit} bytes. Export the photograph at a smaller size")]
    FileTooLarge { path: String, limit: u64 },
    #[error(
        "{path}: {width}x{height} px is no usable size (1 px to {limit} bytes decoded). Export the photograph at a usual size"
    )]
    UnusableSize { path: String, width: u32, height: u32, limit: u64 },
    #[error(
        "{path}: its camera asks for {width}x{height} px, which is no usable size. Correct the camera or choose another --resolution"
    )]
    UnusableTarget { path: String, width: u32, height: u32 },
    #[error(
        "{path}: the mask is {}x{} px, but its photograph {photograph} is {}x{} px. Give the mask the photograph's proportions",
        .size[0], .size[1], .photograph_size[0], .photograph_size[1]
    )]
    MaskShape { path: String, size: [u32; 2], photograph: String, photograph_size: [u32; 2] },
    #[error(
        "{path}: the {kind} map has {}x{} px, but {photograph} has {}x{}. Make it again, or remove it from the folder \
         of {flag}",
        .size[0], .size[1], .photograph_size[0], .photograph_size[1]
    )]
    MapShape {
        path: String,
        kind: &'static str,
        flag: &'static str,
        size: [u32; 2],
        photograph: String,
        photograph_size: [u32; 2],
    },
    #[error(
        "{path}: is no depth map: its pixels are not grey. Store inverse depths as a greyscale PNG of 16 \
         bits, not colours that stand for them"
    )]
    NoDepthMap { path: String },
    #[error(
        "{path}: is no normal map: its pixels are not red, green and blue. Store x, y and z of the \
         normals, from -1 to 1, as the colours of an RGB PNG or JPEG"
    )]
    NoNormalMap { path: String },
    #[error(
        "{path}: {percent} % of its normals point away from the camera. Say with --normals-frame what axes \
         they are in, or remove the map from the folder of --normals"
    )]
    NormalsFaceAway { path: String, percent: usize },
    #[error("{path}: cannot be resized: {reason}. Please report this together with the file")]
    Resize { path: String, reason: String },
    #[error("{path}: the decoder failed: {reason}. Export the image anew, or leave it out")]
    Panicked { path: String, reason: String },
    #[error("image {index} was requested, but the scene has {count} images")]
    NoSuchImage { index: usize, count: usize },
}

/// Formats a path for a message.
pub(super) fn name(path: &Path) -> String {
    path.display().to_string()
}
