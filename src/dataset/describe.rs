//! Description of a scene's photographs, cameras and points.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use super::colmap::{self, FoundModel};
use super::error::DatasetError;
use super::finder::{
    Finder, ForeignName, FoundFiles, Reach, Wanted, file_in, find_file, first_few,
};
use super::folders;
use super::lens::LengthKeys;
use super::maps::{self, Masks};
use super::points_ply::{self, PlyPoints};
use super::shot::{AlphaMeaning, Holdout, Optics, PointCloud, Shot, not_finite};
use super::transforms::{self, Frame, Transforms};
use crate::config::SceneOptions;

/// Half side of the cube of Blender's objects, which random Gaussians fill.
const BLENDER_HALF_SIDE: f64 = 1.3;

/// A scene's description, before its photographs are opened.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) shots: Vec<Shot>,
    /// Folder of the photographs.
    pub(super) folder: PathBuf,
    pub(super) points: PointCloud<f64>,
    pub(super) warnings: Vec<String>,
    pub(super) alpha: AlphaMeaning,
    pub(super) holdout: Holdout,
    pub(super) random_half_side: Option<f64>,
    /// File of the scales of the photographs' depth maps.
    pub(super) depth_scales: PathBuf,
    /// Names of a camera's numbers in the scene's files.
    pub(super) length_keys: LengthKeys,
}

pub(super) fn describe(root: &Path, options: &SceneOptions) -> Result<Description, DatasetError> {
    if let Some(model) = folders::model(root, &options.images) {
        return describe_colmap(root, &model, options);
    }
    let is_blender = root.join(transforms::BLENDER_TRAIN).is_file();
    if !is_blender && !root.join(transforms::NERFSTUDIO).is_file() {
        for folder in colmap::USUAL_FOLDERS {
            DatasetError::check_folder(&root.join(folder))?;
        }
        return Err(folders::not_a_scene(root));
    }
    describe_transforms(root, is_blender, options)
}

fn describe_transforms(
    root: &Path,
    is_blender: bool,
    options: &SceneOptions,
) -> Result<Description, DatasetError> {
    let Transforms { mut frames, points, has_split, mut warnings } = if is_blender {
        transforms::read_blender(root)?
    } else {
        transforms::read(&root.join(transforms::NERFSTUDIO))?
    };
    warnings.extend(drop_repeated(&mut frames));
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
    let located = folders::of_transforms(root, &options.images, &names)?;
    warnings.extend(elsewhere(&located.files, "transforms file"));
    warnings.extend(located.warnings);
    let in_scene = Finder::new(root.to_owned(), Reach::Paths);
    let originals = located.may_be_scaled.then(|| in_scene.find(&names, Wanted::Photograph).paths);
    let (named_masks, missing_masks) = Masks::named(&frames, &in_scene);
    let clean: Vec<String> =
        names.iter().map(|name| ForeignName::new(name).after_parts(0)).collect();
    let masks = Masks::beside(&located.folder, root);
    let beside = masks.find(&clean.iter().map(String::as_str).collect::<Vec<_>>());
    warnings.extend(missing_masks);
    let mut shots = Vec::with_capacity(frames.len());
    for (at, (frame, path)) in frames.iter().zip(located.files.paths).enumerate() {
        let mut sized_by = None;
        if let (Some(originals), Some(path), Optics::Sizeless(lens)) =
            (&originals, &path, &frame.optics)
            && lens.has_px()
        {
            let unknown =
                || DatasetError::UnknownSize { path: path.clone(), name: frame.name.clone() };
            sized_by = Some(originals[at].clone().ok_or_else(unknown)?);
        }
        shots.push(Shot {
            name: name_of(frame, path.as_deref(), root),
            pose: frame.pose,
            optics: frame.optics,
            described_in: frame.described_in.clone(),
            sized_by,
            path,
            mask: named_masks[at].clone().or_else(|| beside[at].clone()),
            held_out: frame.held_out,
        });
    }
    warnings.extend(masks.without_use(&shots));
    warnings.extend(drop_shared_files(&mut shots));
    let points_path = match points {
        Some(name) => Some(find_file(root, &name)),
        // By the names of Inria's trainer and nerfstudio.
        None => file_in(root, &["points3d.ply", "sparse_pc.ply"]),
    };
    let points = match points_path {
        None => PointCloud::default(),
        Some(path) => read_points(&path, &mut warnings)?,
    };
    let holdout = if has_split { Holdout::AsListed } else { Holdout::EveryNth };
    if has_split && options.eval && options.test_every != SceneOptions::default().test_every {
        warnings.push(format!(
            "--test-every {}: not used, the scene says which views are held out. Choose others with \
             --test-views or --test-list",
            options.test_every
        ));
    }
    Ok(Description {
        shots,
        folder: located.folder,
        points,
        warnings,
        alpha: if is_blender {
            AlphaMeaning::BlendOver(options.background_color().0)
        } else {
            AlphaMeaning::Mask
        },
        holdout,
        random_half_side: is_blender.then_some(BLENDER_HALF_SIDE),
        depth_scales: root.join(colmap::USUAL_FOLDERS[0]).join(maps::PARAMETERS),
        length_keys: LengthKeys { focal: ["fl_x", "fl_y"], centre: ["cx", "cy"] },
    })
}

/// Warns of photographs in other places than the scene says.
fn elsewhere(files: &FoundFiles, says: &str) -> Option<String> {
    let count = files.elsewhere;
    (count > 0).then(|| {
        format!(
            "{count} photographs were found under another extension or in another folder than the \
             {says} says"
        )
    })
}

fn read_points(path: &Path, warnings: &mut Vec<String>) -> Result<PointCloud<f64>, DatasetError> {
    let PlyPoints { points, dropped, has_colors } = points_ply::read_points_ply(path)?;
    warnings.extend(not_finite(path, dropped, points.positions.len()));
    if !points.positions.is_empty() && !has_colors {
        warnings.push(format!(
            "{}: its points have no red, green and blue, so that all Gaussians start grey",
            path.display()
        ));
    }
    Ok(points)
}

/// Returns the name of a view: its frame's, with the extension that the frame omits.
fn name_of(frame: &Frame, path: Option<&Path>, root: &Path) -> String {
    let is_absolute = Path::new(&frame.name).is_absolute() || frame.name.contains(':');
    let name = ForeignName::new(&frame.name).after_parts(0);
    let Some(path) = path else { return name };
    if is_absolute && let Ok(below) = path.strip_prefix(root) {
        return below.to_string_lossy().into_owned();
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let base = name.rsplit_once('/').map_or(name.as_str(), |(_, base)| base);
    match file.strip_prefix(base) {
        Some(extension) => format!("{name}{extension}"),
        None => name,
    }
}

/// Drops frames with the same photograph, preferably keeping a held-out one.
fn drop_repeated(frames: &mut Vec<Frame>) -> Option<String> {
    let key = |(_, frame): (usize, &Frame)| ForeignName::new(&frame.name).folded();
    keep_first(frames, key, |frame| (&frame.name, frame.held_out))
}

/// Drops photographs that are one file under several names, likewise.
fn drop_shared_files(shots: &mut Vec<Shot>) -> Option<String> {
    let key = |(at, shot): (usize, &Shot)| {
        let file = shot.path.as_ref().map(|path| path.canonicalize().unwrap_or(path.clone()));
        // Photographs without a file are counted later.
        file.ok_or(at)
    };
    keep_first(shots, key, |shot| (&shot.name, shot.held_out))
}

/// Keeps the first of items with equal keys, or the first that is held out; warns of the others by name.
fn keep_first<T, K: Ord>(
    items: &mut Vec<T>,
    key: impl Fn((usize, &T)) -> K,
    about: fn(&T) -> (&String, bool),
) -> Option<String> {
    let mut kept = vec![true; items.len()];
    let mut chosen: BTreeMap<K, usize> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        match chosen.entry(key((at, item))) {
            Entry::Vacant(place) => {
                place.insert(at);
            }
            Entry::Occupied(mut place) if about(item).1 && !about(&items[*place.get()]).1 => {
                kept[place.insert(at)] = false;
            }
            Entry::Occupied(_) => kept[at] = false,
        }
    }
    let dropped = items.iter().zip(&kept).filter(|(_, kept)| !**kept);
    let names: Vec<String> = dropped.map(|(item, _)| about(item).0.clone()).collect();
    let mut kept = kept.into_iter();
    items.retain(|_| kept.next().unwrap_or(true));
    (!names.is_empty()).then(|| {
        format!(
            "{} views are left out, since the scene lists their photographs twice: {}",
            names.len(),
            first_few(&names)
        )
    })
}

fn describe_colmap(
    root: &Path,
    found: &FoundModel,
    options: &SceneOptions,
) -> Result<Description, DatasetError> {
    let model = colmap::read(&found.folder)?;
    let names: Vec<&str> = model.images.iter().map(|image| image.name.as_str()).collect();
    let located = folders::of_colmap(root, &found.folder, &options.images, &names)?;
    let mut warnings: Vec<String> = found.notice.iter().chain(&model.warnings).cloned().collect();
    warnings.extend(located.warnings);
    warnings.extend(elsewhere(&located.files, "COLMAP model"));
    let masks = Masks::beside(&located.folder, root);
    let masks_of_names = masks.find(&names);
    let mut shots = Vec::with_capacity(model.images.len());
    let mut lenses = BTreeMap::new();
    for ((image, path), mask) in model.images.iter().zip(located.files.paths).zip(masks_of_names) {
        // Once per camera, because finding a lens' fold takes thousands of steps.
        let lens = match lenses.entry(image.camera) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                // The reader has checked that the camera exists.
                let Some(lens) = model.lens(image.camera) else { continue };
                *place.insert(lens?)
            }
        };
        shots.push(Shot {
            name: image.name.clone(),
            pose: image.pose,
            optics: Optics::Lens(lens),
            described_in: model.cameras_path.clone(),
            sized_by: None,
            path,
            mask,
            held_out: false,
        });
    }
    warnings.extend(masks.without_use(&shots));
    warnings.extend(drop_shared_files(&mut shots));
    let mut points = model.points;
    let ply = found.folder.join("points3D.ply");
    if points.positions.is_empty() && ply.is_file() {
        points = read_points(&ply, &mut warnings)?;
    }
    Ok(Description {
        shots,
        folder: located.folder,
        points,
        warnings,
        alpha: AlphaMeaning::Mask,
        holdout: Holdout::EveryNth,
        random_half_side: None,
        depth_scales: found.folder.join(maps::PARAMETERS),
        length_keys: LengthKeys { focal: ["fx", "fy"], centre: ["cx", "cy"] },
    })
}
