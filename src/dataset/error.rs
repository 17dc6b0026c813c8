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
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum DatasetError {
    #[error("no scene is given. Name its folder with -s")]
    NoScene,
    #[error("{path}: there is no such folder. Check the path of the scene (-s)")]
    SceneMissing { path: PathBuf },
    #[error("{path}: the folder cannot be read: {source}. Check its permissions")]
    FolderUnreadable { path: PathBuf, source: io::Error },
    #[error("{path}: is a file, not the folder of a scene. Give the folder that holds it after -s")]
    SceneIsFile { path: PathBuf },
    #[error("{path}: holds {content}, and no scene{sought}. {remedy}")]
    NotAScene { path: PathBuf, content: String, sought: &'static str, remedy: String },
    #[error(transparent)]
    Depths(#[from] DepthsError),
    #[error(transparent)]
    Normals(#[from] NormalsError),
    #[error(transparent)]
    Colmap(#[from] ColmapError),
    #[error(transparent)]
    Transforms(#[from] TransformsError),
    #[error(transparent)]
    Points(#[from] PointsPlyError),
    #[error("{path}: no such folder of photographs. Name the right one with --images{others}")]
    ImagesMissing { path: PathBuf, others: String },
    #[error(
        "{folder}: none of the scene's {count} photographs can be used, first: {first}. Name their folder with \
         --images{others}"
    )]
    NoImageLeft { folder: PathBuf, count: usize, first: String, others: String },
    #[error(
        "{path}: its camera has neither w nor h, and the photograph of {name} that it was solved on is \
         not there. Write w and h into the transforms file"
    )]
    UnknownSize { path: PathBuf, name: String },
    #[error(
        "{path}: is {width}x{height} px, but its camera {camera_width}x{camera_height} px. Use the photographs \
         of the reconstruction, or copies scaled as a whole"
    )]
    SizeMismatch { path: PathBuf, width: u32, height: u32, camera_width: u32, camera_height: u32 },
    #[error(transparent)]
    Mask(ImageError),
    #[error("{path}: its camera cannot be used: {source}")]
    Lens { path: PathBuf, source: LensError },
    #[error("{path}: the camera of {view} has {found}. {remedy}")]
    Camera { path: PathBuf, view: String, found: String, remedy: &'static str },
    #[error("--resolution {value} is no resolution. Give -1, 1, 2, 4, 8 or a width in px")]
    Resolution { value: i32 },
    #[error(
        "{path}: all of its {count} views are held out, none is left to train on. Leave --eval \
         out, or hold fewer out (--test-every, --test-views, --test-list)"
    )]
    NothingToTrain { path: PathBuf, count: usize },
    #[error("{path}: the list of held-out views cannot be read: {source}. Check --test-list")]
    TestListUnreadable { path: PathBuf, source: io::Error },
    #[error("{path}: lists no view to hold out. Write one name a line")]
    EmptyTestList { path: PathBuf },
    #[error(
        "--test-list names {count} {} that the scene does not have: {names}. Write names as the scene \
         does, for instance {example}", if *.count == 1 { "view" } else { "views" }
    )]
    UnknownTestViews { count: usize, names: String, example: String },
    #[error(
        "--test-views {wanted}: the scene has {count} views with a photograph, one of which at least \
         has to be trained on. Give less than {count}"
    )]
    TooManyTestViews { wanted: u32, count: usize },
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
