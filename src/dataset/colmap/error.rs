//! What is wrong with a COLMAP model.

use std::io;
use std::path::PathBuf;

use crate::dataset::lens::LensError;

/// A COLMAP model that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ColmapError {
    /// A file is missing.
    #[error(
        "{folder}: holds neither {file}.bin nor {file}.txt. Export the model again with COLMAP \
         (`colmap model_converter`), all three files into one folder"
    )]
    Missing {
        /// Folder of the model.
        folder: PathBuf,
        /// Name without extension.
        file: &'static str,
    },
    /// The system refused to open or read a file.
    #[error("{path}: cannot be read: {source}. Check that it is a file and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A file with the content of something else.
    #[error("{path}: {found}")]
    OtherContent {
        /// The file.
        path: PathBuf,
        /// Content of the file, and the remedy.
        found: &'static str,
    },
    /// A binary file ends too early.
    #[error(
        "{path}: ends inside {reading}: {needed} more bytes belong there, {left} are left. Copy \
         the file again, or export the model again with COLMAP"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What was being read.
        reading: String,
        /// Bytes asked for.
        needed: u64,
        /// Bytes that were left.
        left: u64,
    },
    /// A value that cannot be meant.
    #[error(
        "{path}: {reading} {found}. The file is damaged or was not written by COLMAP: copy it \
         again, or export the model again with COLMAP"
    )]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What was being read.
        reading: String,
        /// What is wrong with it.
        found: String,
    },
    /// A line of a text file is not what belongs there.
    #[error(
        "{path}, line {line}: {found:?} stands where {expected} belongs. Correct the line, or \
         export the model again with COLMAP"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What stands there.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A camera model that is not in COLMAP's list.
    #[error(
        "{path}: camera {camera} has the model {model}, which COLMAP 4.2 does not know. Export \
         the model again with COLMAP, or update splat if a newer COLMAP wrote it"
    )]
    UnknownModel {
        /// The file.
        path: PathBuf,
        /// The camera's id.
        camera: u32,
        /// Name or number of the model.
        model: String,
    },
    /// A camera model that is known, but cannot be straightened.
    #[error(
        "{path}: camera {camera} has the unsupported model {model}. Train on the output of `colmap \
         image_undistorter`, or solve again with OPENCV or OPENCV_FISHEYE"
    )]
    UnsupportedModel {
        /// The file.
        path: PathBuf,
        /// The camera's id.
        camera: u32,
        /// Name of the model.
        model: &'static str,
    },
    /// Parameters of a camera that cannot be meant.
    #[error("{path}: camera {camera} ({model}): {source}")]
    Lens {
        /// The file.
        path: PathBuf,
        /// The camera's id.
        camera: u32,
        /// Name of the model.
        model: &'static str,
        /// What is wrong with them.
        #[source]
        source: LensError,
    },
    /// Two cameras with one id.
    #[error("{path}: camera {camera} is listed twice. Export the model again with COLMAP")]
    DuplicateCamera {
        /// The file.
        path: PathBuf,
        /// The id.
        camera: u32,
    },
    /// Two images with one name.
    #[error(
        "{path}: the image {name:?} is listed twice. Remove one, or export the model again with \
         COLMAP"
    )]
    DuplicateName {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// An image taken by a camera that is not listed.
    #[error(
        "{path}: the image {name:?} names camera {camera}, which is not among the {count} cameras \
         of the model. Take cameras and images from the same export"
    )]
    UnknownCamera {
        /// The file of the images.
        path: PathBuf,
        /// The image.
        name: String,
        /// The id that it names.
        camera: u32,
        /// Cameras listed.
        count: usize,
    },
    /// A model without a single usable image.
    #[error(
        "{path}: the model holds no image with a pose. Run COLMAP's mapper again, or point splat \
         at the larger of its models"
    )]
    Empty {
        /// The file of the images.
        path: PathBuf,
    },
}
