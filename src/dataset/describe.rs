//! Description of a scene's photographs, cameras and points.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use super::colmap::{self, FoundModel};
use super::error::DatasetError;
use super::finder::{Finder, ForeignName, Reach, Wanted, find_file, first_few};
use super::folders;
use super::lens::LengthKeys;
use super::maps::{self, Masks};
use super::points_ply::{self, PlyPoints};
use super::shot::{AlphaMeaning, Optics, PointCloud, Shot};
use super::split::Holdout;
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

/// Reads the description of the scene in a folder.
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
        transforms::read_nerfstudio(root)?
    };
    warnings.extend(drop_repeated(&mut frames));
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
    let located = folders::of_transforms(root, &options.images, &names)?;
    if located.files.elsewhere > 0 {
        warnings.push(format!(
            "{} photographs were found under another extension or in another folder than the \
             transforms file says",
            located.files.elsewhere
        ));
    }
    warnings.extend(located.warnings);
    let in_scene = Finder::new(root.to_owned(), Reach::Paths);
    let originals = located.may_be_scaled.then(|| in_scene.find(&names, Wanted::Photograph).paths);
    let named_masks = Masks::named(&frames, &in_scene);
    let clean: Vec<String> =
        names.iter().map(|name| ForeignName::new(name).after_parts(0)).collect();
    let masks = Masks::beside(&located.folder, root);
    let beside = masks.find(&clean.iter().map(String::as_str).collect::<Vec<_>>());
    warnings.extend(named_masks.warning());
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
            mask: named_masks.files[at].clone().or_else(|| beside[at].clone()),
            held_out: frame.held_out,
        });
    }
    warnings.extend(masks.without_use(&shots));
    warnings.extend(drop_shared_files(&mut shots));
    let points_path = match points {
        Some(name) => Some(find_file(root, &name)),
        None => points_beside(root),
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

/// Finds the points of a scene whose transforms file names none, by the names of Inria's trainer and nerfstudio.
fn points_beside(root: &Path) -> Option<PathBuf> {
    const NAMES: [&str; 2] = ["points3d.ply", "sparse_pc.ply"];
    let mut files: Vec<PathBuf> = fs::read_dir(root).ok()?.flatten().map(|it| it.path()).collect();
    files.sort_unstable();
    NAMES.iter().find_map(|name| {
        let is_it = |path: &&PathBuf| {
            path.file_name().is_some_and(|it| it.eq_ignore_ascii_case(name)) && path.is_file()
        };
        files.iter().find(is_it).cloned()
    })
}

fn read_points(path: &Path, warnings: &mut Vec<String>) -> Result<PointCloud<f64>, DatasetError> {
    let PlyPoints { points, dropped, has_colors } = points_ply::read_points_ply(path)?;
    if dropped > 0 {
        warnings.push(format!(
            "{}: {dropped} of its {} points have coordinates that are not finite; they are left out",
            path.display(),
            dropped + points.positions.len()
        ));
    }
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
    let keys = frames.iter().map(|frame| (ForeignName::new(&frame.name).folded(), frame.held_out));
    let kept = first_of_each(keys);
    let dropped = retain_listed(frames, &kept, |frame| frame.name.clone());
    repeated(&dropped)
}

/// Drops photographs that are one file under several names, likewise.
fn drop_shared_files(shots: &mut Vec<Shot>) -> Option<String> {
    let keys = shots.iter().enumerate().map(|(at, shot)| {
        let file = shot.path.as_ref().map(|path| path.canonicalize().unwrap_or(path.clone()));
        // Photographs without a file are counted later.
        (file.ok_or(at), shot.held_out)
    });
    let kept = first_of_each(keys);
    let dropped = retain_listed(shots, &kept, |shot| shot.name.clone());
    repeated(&dropped)
}

fn repeated(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "{} views are left out, since the scene lists their photographs twice: {}",
            names.len(),
            first_few(names)
        )
    })
}

/// True for the first of items with equal keys, or the first that is held out.
fn first_of_each<K: Ord>(keys: impl Iterator<Item = (K, bool)>) -> Vec<bool> {
    let mut kept = Vec::new();
    let mut chosen: BTreeMap<K, (usize, bool)> = BTreeMap::new();
    for (at, (key, held_out)) in keys.enumerate() {
        kept.push(true);
        match chosen.entry(key) {
            Entry::Vacant(place) => {
                place.insert((at, held_out));
            }
            Entry::Occupied(mut place) => {
                let (other, was_held_out) = *place.get();
                if held_out && !was_held_out {
                    kept[other] = false;
                    place.insert((at, true));
                } else {
                    kept[at] = false;
                }
            }
        }
    }
    kept
}

/// Removes items that are not kept, and returns their names.
fn retain_listed<T>(items: &mut Vec<T>, kept: &[bool], name: fn(&T) -> String) -> Vec<String> {
    let mut dropped = Vec::new();
    let mut kept = kept.iter();
    items.retain(|item| {
        let is_kept = kept.next().copied().unwrap_or(true);
        if !is_kept {
            dropped.push(name(item));
        }
        is_kept
    });
    dropped
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
    if located.files.elsewhere > 0 {
        warnings.push(format!(
            "{} photographs were found under another extension or in another folder than the COLMAP \
             model says",
            located.files.elsewhere
        ));
    }
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
