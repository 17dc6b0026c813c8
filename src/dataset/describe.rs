//! What a scene's files say of its photographs, cameras and points.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use super::error::DatasetError;
use super::listing::first_few;
use super::photographs::Photographs;
use super::points::PointCloud;
use super::shot::{Optics, Shot};
use super::source::AlphaMeaning;
use super::split::Holdout;
use super::{colmap, points_ply, transforms};
use crate::config::SceneOptions;

/// The cube that Blender's objects fit into has this half side, and random Gaussians fill it.
const BLENDER_HALF_SIDE: f64 = 1.3;

/// A scene's description, before its photographs are opened.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) shots: Vec<Shot>,
    /// Where the photographs are looked for.
    pub(super) folder: PathBuf,
    pub(super) points: PointCloud<f64>,
    pub(super) warnings: Vec<String>,
    pub(super) alpha: AlphaMeaning,
    pub(super) holdout: Holdout,
    pub(super) random_half_side: Option<f64>,
}

/// Reads the description of the scene in a folder.
pub(super) fn describe(root: &Path, options: &SceneOptions) -> Result<Description, DatasetError> {
    if let Some(folder) = colmap::find(root) {
        return describe_colmap(root, &folder, options);
    }
    let is_blender = root.join(transforms::BLENDER_TRAIN).is_file();
    if !is_blender && !root.join(transforms::NERFSTUDIO).is_file() {
        for folder in colmap::MODEL_FOLDERS {
            DatasetError::check_folder(&root.join(folder))?;
        }
        let mut sought: Vec<String> = colmap::MODEL_FOLDERS
            .iter()
            .flat_map(|folder| ["bin", "txt"].map(|kind| format!("{folder}/cameras.{kind}")))
            .collect();
        sought.extend([transforms::BLENDER_TRAIN, transforms::NERFSTUDIO].map(str::to_owned));
        return Err(DatasetError::NotAScene { path: root.to_owned(), sought: sought.join(", ") });
    }
    describe_transforms(root, is_blender, options)
}

fn describe_transforms(
    root: &Path,
    is_blender: bool,
    options: &SceneOptions,
) -> Result<Description, DatasetError> {
    let mut scene = if is_blender {
        transforms::read_blender(root)?
    } else {
        transforms::read_nerfstudio(root)?
    };
    let mut warnings = Vec::new();
    let mut without_mask = Vec::new();
    for shot in &mut scene.shots {
        if let Some(missing) = shot.mask.take_if(|mask| !mask.is_file()) {
            without_mask.push(missing.display().to_string());
        }
    }
    if !without_mask.is_empty() {
        let named = first_few(&without_mask);
        warnings.push(format!(
            "{} masks are missing, their photographs are used whole: {named}",
            without_mask.len()
        ));
    }
    let points = match &scene.points {
        None => PointCloud::default(),
        Some(path) => {
            let (points, dropped) = points_ply::read_points_ply(path)?;
            if dropped > 0 {
                warnings.push(format!(
                    "{}: {dropped} of its {} points have coordinates that are not finite; they \
                     are left out",
                    path.display(),
                    dropped + points.positions.len()
                ));
            }
            points
        }
    };
    Ok(Description {
        shots: scene.shots,
        folder: root.to_owned(),
        points,
        warnings,
        alpha: if is_blender {
            AlphaMeaning::BlendOver(options.background_color().0)
        } else {
            AlphaMeaning::Mask
        },
        holdout: if is_blender { Holdout::AsListed } else { Holdout::EveryNth },
        random_half_side: is_blender.then_some(BLENDER_HALF_SIDE),
    })
}

fn describe_colmap(
    root: &Path,
    model: &Path,
    options: &SceneOptions,
) -> Result<Description, DatasetError> {
    let model = colmap::read(model)?;
    let mut photographs = Photographs::new(root, &options.images)?;
    let names: Vec<&str> = model.images.iter().map(|image| image.name.as_str()).collect();
    let (files, elsewhere) = photographs.find(&names);
    let mut warnings = model.warnings.clone();
    if elsewhere > 0 {
        warnings.push(format!(
            "{elsewhere} photographs were found under another extension or in another folder than \
             the COLMAP model says"
        ));
    }
    let mut shots = Vec::with_capacity(model.images.len());
    let mut lenses = BTreeMap::new();
    for (image, path) in model.images.iter().zip(files) {
        // Once per camera: finding where a lens folds takes thousands of steps.
        let lens = match lenses.entry(image.camera) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                // The reader has made sure that the camera is there.
                let Some(lens) = model.lens(image.camera) else { continue };
                *place.insert(lens?)
            }
        };
        shots.push(Shot {
            name: image.name.clone(),
            pose: image.pose,
            optics: Optics::Lens(lens),
            path,
            mask: photographs.mask(&image.name),
            held_out: false,
        });
    }
    warnings.extend(photographs.masks_without_use(&shots));
    Ok(Description {
        shots,
        folder: root.join(&options.images),
        points: model.points,
        warnings,
        alpha: AlphaMeaning::Mask,
        holdout: Holdout::EveryNth,
        random_half_side: None,
    })
}
