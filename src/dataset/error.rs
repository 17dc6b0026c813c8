//! Errors of a scene.

use std::io;
use std::path::{Path, PathBuf};

use super::colmap::ColmapError;
use super::image::ImageError;
use super::lens::LensError;
use super::maps::{DepthsError, NormalsError};
use super::points_ply::PointsPlyError;
use super::transforms::TransformsError;
use crate::files::entry_refusal;

/// Error of a scene.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// No scene was named.
    #[error("no scene is given. Name its folder with -s")]
    NoScene,
    /// The scene's folder is missing.
    #[error("{path}: there is no such folder. Check the path of the scene (-s)")]
    SceneMissing {
        /// The folder.
        path: PathBuf,
    },
    /// A folder cannot be listed.
    #[error("{path}: the folder cannot be read: {source}. Check its permissions")]
    FolderUnreadable {
        /// The folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The scene is a file.
    #[error("{path}: is a file, not the folder of a scene. Give the folder that holds it after -s")]
    SceneIsFile {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds no scene.
    #[error("{path}: holds {content}, and no scene{sought}. {remedy}")]
    NotAScene {
        /// The folder.
        path: PathBuf,
        /// Contents of the folder.
        content: String,
        /// Files that were looked for, after a colon; may be empty.
        sought: &'static str,
        /// Remedy.
        remedy: String,
    },
    /// Fault of the inverse depths of `--depths`.
    #[error(transparent)]
    Depths(#[from] DepthsError),
    /// Fault of the normals of `--normals`.
    #[error(transparent)]
    Normals(#[from] NormalsError),
    /// Fault of the COLMAP model.
    #[error(transparent)]
    Colmap(#[from] ColmapError),
    /// Fault of the transforms file.
    #[error(transparent)]
    Transforms(#[from] TransformsError),
    /// Fault of the points beside the transforms file.
    #[error(transparent)]
    Points(#[from] PointsPlyError),
    /// The folder of the photographs is missing.
    #[error("{path}: no such folder of photographs. Name the right one with --images{others}")]
    ImagesMissing {
        /// The folder.
        path: PathBuf,
        /// Folders that hold photographs, after a colon.
        others: String,
    },
    /// Every photograph is missing or unreadable.
    #[error(
        "{folder}: none of the scene's {count} photographs can be used, first: {first}. Name their folder with \
         --images{others}"
    )]
    NoImageLeft {
        /// Folder that was searched.
        folder: PathBuf,
        /// Number of photographs of the scene.
        count: usize,
        /// The first photograph with the reason.
        first: String,
        /// Folders that hold photographs, after a colon.
        others: String,
    },
    /// The size of a camera's photographs is unknown.
    #[error(
        "{path}: its camera has neither w nor h, and the photograph of {name} that it was solved on is \
         not there. Write w and h into the transforms file"
    )]
    UnknownSize {
        /// The photograph.
        path: PathBuf,
        /// The name in the scene.
        name: String,
    },
    /// A photograph does not fit its camera.
    #[error(
        "{path}: is {width}x{height} px, but its camera {camera_width}x{camera_height} px. Use the photographs \
         of the reconstruction, or copies scaled as a whole"
    )]
    SizeMismatch {
        /// The photograph.
        path: PathBuf,
        /// Width of the photograph in px.
        width: u32,
        /// Height of the photograph in px.
        height: u32,
        /// The camera's width in px.
        camera_width: u32,
        /// The camera's height in px.
        camera_height: u32,
    },
    /// A mask does not fit its photograph.
    #[error(transparent)]
    Mask(ImageError),
    /// A camera that does not suit this photograph.
    #[error("{path}: its camera cannot be used: {source}")]
    Lens {
        /// The photograph.
        path: PathBuf,
        /// Fault of the camera.
        #[source]
        source: LensError,
    },
    /// A camera that cannot give a useful image.
    #[error("{path}: the camera of {view} has {found}. {remedy}")]
    Camera {
        /// The file that describes the camera.
        path: PathBuf,
        /// Name of the photograph in the scene.
        view: String,
        /// The value with its meaning.
        found: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// An invalid resolution.
    #[error("--resolution {value} is no resolution. Give -1, 1, 2, 4, 8 or a width in px")]
    Resolution {
        /// The value.
        value: i32,
    },
    /// Every view is held out.
    #[error(
        "{path}: all of its {count} views are held out, none is left to train on. Leave --eval \
         out, or hold fewer out (--test-every, --test-views, --test-list)"
    )]
    NothingToTrain {
        /// The scene.
        path: PathBuf,
        /// Views of the scene.
        count: usize,
    },
    /// The file of `--test-list` cannot be read.
    #[error("{path}: the list of held-out views cannot be read: {source}. Check --test-list")]
    TestListUnreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The test list is empty.
    #[error("{path}: lists no view to hold out. Write one name a line")]
    EmptyTestList {
        /// The file.
        path: PathBuf,
    },
    /// The test list names unknown views.
    #[error(
        "--test-list names {count} {} that the scene does not have: {names}. Write names as the scene \
         does, for instance {example}", if *.count == 1 { "view" } else { "views" }
    )]
    UnknownTestViews {
        /// Number of unknown names.
        count: usize,
        /// The first few.
        names: String,
        /// A name that the scene has.
        example: String,
    },
    /// `--test-views` leaves no view to train on.
    #[error(
        "--test-views {wanted}: the scene has {count} views with a photograph, one of which at least \
         has to be trained on. Give less than {count}"
    )]
    TooManyTestViews {
        /// Views to hold out.
        wanted: u32,
        /// Views of the scene.
        count: usize,
    },
}

impl DatasetError {
    /// Fails if a folder exists and cannot be listed.
    pub(super) fn check_folder(path: &Path) -> Result<(), Self> {
        match entry_refusal(path) {
            Some(source) => Err(Self::FolderUnreadable { path: path.to_owned(), source }),
            None => Ok(()),
        }
    }
}
