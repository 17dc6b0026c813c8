//! A scene on disk: photographs with cameras, and points.

mod camera;
pub mod colmap;
mod describe;
mod error;
mod finder;
mod folders;
mod frame;
mod image;
mod lens;
mod loader;
mod maps;
mod photographs;
pub mod points_ply;
mod shot;
mod transforms;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use camera::{OpticalAxis, stem, viewing_distance};
use describe::{Description, describe};
use finder::{first_few, utf8};
use image::check_mask;
use lens::Implausible;
use shot::{Holdout, Shot};

use crate::config::{Config, SceneOptions, TestList};
use crate::math::Real as _;
use crate::math::linalg::{Vec3, add, length, scale, sub};
use crate::math::quantile::median;

pub use camera::{Camera, Pose, View};
pub use error::DatasetError;
pub use frame::Frame;
pub use image::{Image, ImageError, ImageHeader, InverseDepthMap, NormalMap, decode, probe};
pub use lens::{Distortion, Lens, LensError, Undistortion};
pub use loader::{ImageLoader, LoaderStatistics, Residency, bytes_to_decode};
pub use maps::{DepthsError, NormalsError};
pub use shot::{AlphaMeaning, DepthFile, FARTHEST, ImageSource, NormalFile, PointCloud};
pub use transforms::TransformsError;

/// Margin that Inria's trainer adds to the cameras' extent.
const EXTENT_MARGIN: f64 = 1.1;

/// A scene for the trainer: everything but the pixels, in coordinates of its frame.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Scene folder.
    pub root: PathBuf,
    /// Coordinates of poses, points and lengths.
    pub frame: Frame,
    /// Views with a usable image, in the order of names.
    pub views: Vec<View>,
    /// Source of each view's pixels, in the order of `views`.
    pub sources: Vec<ImageSource>,
    /// Indices into `views` of the training views, ascending.
    pub train: Vec<usize>,
    /// Indices into `views` of the held-out views, ascending.
    pub test: Vec<usize>,
    /// Initial points; may be empty.
    pub points: PointCloud,
    /// Half side of the cube that random Gaussians fill if `points` is empty, world units; if the format of the scene
    /// defines it (1.3 for Blender).
    pub random_half_side: Option<f64>,
    /// Share of the viewing distance within which no Gaussian is drawn (`--near-share`).
    pub near_share: f64,
    /// Warnings, one sentence each (images missing, points dropped).
    pub warnings: Vec<String>,
}

impl Dataset {
    /// Reads a scene, and only the headers of its photographs.
    ///
    /// A folder with a COLMAP model is a COLMAP scene; else `transforms_train.json` makes it a Blender scene, else
    /// `transforms.json` a nerfstudio scene. Views are sorted by name. A photograph that is missing or unreadable, or
    /// whose camera is impossible, is left out with a warning.
    ///
    /// With `eval`, every view i of the remaining ones with i % `test_every` == 0 is held out; in a Blender scene,
    /// the views of `transforms_test.json` (training views without `eval`). `test_list` and `test_views` take
    /// precedence.
    pub fn load(options: &SceneOptions) -> Result<Self, DatasetError> {
        let root = options.source_path.clone().ok_or(DatasetError::NoScene)?;
        DatasetError::check_folder(&root)?;
        if !root.is_dir() {
            return Err(if root.exists() {
                DatasetError::SceneIsFile { path: root }
            } else {
                DatasetError::SceneMissing { path: root }
            });
        }
        // Checked before the scene is read, because the option is at fault.
        photographs::trained_size([1, 1], options.resolution, options.resolution_scale)?;
        let mut scene = describe(&root, options)?;
        scene.shots.sort_by(|a, b| a.name.cmp(&b.name));
        let poses: Vec<_> = scene.shots.iter().map(|shot| &shot.pose).collect();
        let frame = Frame::of(options, &poses, &scene.points);
        for shot in &mut scene.shots {
            shot.pose = Frame::SCENE.pose_to(&frame, &shot.pose);
        }
        let KeptViews { views, mut sources, held_out: listed } = keep(&mut scene, &root, options)?;
        let known = KnownViews {
            all: scene.shots.iter().map(|shot| shot.name.as_str()).collect(),
            kept: &views,
            listed: &listed,
            holdout: scene.holdout,
        };
        let held_out = held_out(options, &known)?;
        let (test, train): (Vec<usize>, Vec<usize>) =
            (0..views.len()).partition(|&index| held_out[index]);
        if train.is_empty() {
            return Err(DatasetError::NothingToTrain { path: root, count: views.len() });
        }
        scene.warnings.extend(stray_cameras(&views));
        if options.eval && test.is_empty() {
            scene.warnings.push(format!(
                "--eval: {} holds out none of its {} views. Choose some with --test-views or --test-list",
                root.display(),
                views.len()
            ));
        }
        if let Some(folder) = &options.depths {
            let trained = train.iter().map(|&index| (views[index].name.as_str(), index));
            let mut found = maps::find_depths(root.join(folder), &scene.depth_scales, trained)?;
            scene.warnings.extend(found.warning("inverse depths"));
            let unit = frame.unit_in(&Frame::SCENE).to_f32();
            for (_, file) in &mut found.files {
                // Converts inverse depths to the frame's unit.
                file.scale *= unit;
                file.offset *= unit;
            }
            found.files.into_iter().for_each(|(index, file)| sources[index].depth = Some(file));
        }
        Ok(Self {
            root,
            frame,
            views,
            sources,
            train,
            test,
            points: scene.points.converted(&Frame::SCENE, &frame),
            random_half_side: scene
                .random_half_side
                .map(|side| side * Frame::SCENE.unit_in(&frame)),
            near_share: options.near_share,
            warnings: scene.warnings,
        })
    }

    /// Reads a scene to train on, with the normal maps of its training views if requested.
    pub fn load_to_train(config: &Config) -> Result<Self, DatasetError> {
        let mut dataset = Self::load(&config.scene)?;
        if let Some(folder) = config.normals_folder() {
            let (folder, frame) = (dataset.root.join(folder), config.optimize.normals_frame);
            let Self { views, sources, train, .. } = &dataset;
            let found = maps::find_normals(folder, frame, views, sources, train)?;
            dataset.warnings.extend(found.warning("normals"));
            let sources = &mut dataset.sources;
            found.files.into_iter().for_each(|(index, file)| sources[index].normals = Some(file));
        }
        Ok(dataset)
    }

    /// Returns the number of pixels of all training views.
    pub fn train_pixels(&self) -> u64 {
        self.train.iter().map(|&view| self.views[view].camera.pixels() as u64).sum()
    }

    /// Returns the mean of the training cameras' positions, world units.
    pub fn centre(&self) -> Vec3<f64> {
        let sum = self.train_centres().fold([0.0; 3], add);
        scale(sum, 1.0 / self.train.len().max(1) as f64)
    }

    /// Returns 1.1 times the largest distance of a training camera from the mean, world units; 0 if all are in one
    /// place.
    pub fn extent(&self) -> f64 {
        let mean = self.centre();
        let distances = self.train_centres().map(|centre| length(sub(centre, mean)));
        EXTENT_MARGIN * distances.fold(0.0, f64::max)
    }

    /// True if a training camera sees one of the points (coordinates of the frame).
    pub fn sees_any(&self, points: &[[f32; 3]]) -> bool {
        let views: Vec<&View> = self.train.iter().map(|&index| &self.views[index]).collect();
        points.par_iter().any(|point| {
            let point = point.map(f64::from);
            views.iter().any(|view| view.sees(point))
        })
    }

    /// Returns the training cameras' distance to the point that they look at, world units; 0 if all are in one place.
    pub fn viewing_distance(&self) -> f64 {
        let pose = |&index: &usize| &self.views[index].pose;
        let axis =
            |pose: &Pose| OpticalAxis { centre: pose.centre_world(), forward: pose.rotation[2] };
        let axes = self.train.iter().map(pose).map(axis);
        viewing_distance(&axes.collect::<Vec<_>>(), self.centre())
    }

    fn train_centres(&self) -> impl Iterator<Item = Vec3<f64>> + '_ {
        self.train.iter().map(|&index| self.views[index].pose.centre_world())
    }
}

/// Warns of cameras so far from the others that the extent does not describe the scene.
fn stray_cameras(views: &[View]) -> Option<String> {
    const FACTOR: f64 = 1000.0;
    let centres: Vec<_> = views.iter().map(|view| view.pose.centre_world()).collect();
    let middle = [0, 1, 2].map(|axis| median(centres.iter().map(|centre| centre[axis])));
    let distances: Vec<f64> = centres.iter().map(|&centre| length(sub(centre, middle))).collect();
    let usual = median(distances.iter().copied());
    let is_stray = |distance: f64| usual > 0.0 && distance > FACTOR * usual;
    let mut stray = views.iter().zip(&distances).filter(|(_, distance)| is_stray(**distance));
    let (view, distance) = stray.next()?;
    Some(format!(
        "{} of {} cameras stand far from all others: {}, {distance:.3e} from their middle, half of them \
         within {usual:.3e}. Learning rates go by the farthest: remove such images from the scene",
        stray.count() + 1,
        views.len(),
        view.name
    ))
}

#[derive(Default)]
struct KeptViews {
    views: Vec<View>,
    sources: Vec<ImageSource>,
    /// True if the scene itself holds the view out.
    held_out: Vec<bool>,
}

/// Checks every photograph. Unusable ones are left out with a warning.
fn keep(
    scene: &mut Description,
    root: &Path,
    options: &SceneOptions,
) -> Result<KeptViews, DatasetError> {
    let opened: Vec<Result<Opened, Unusable>> =
        scene.shots.par_iter().map(|shot| open(shot, options, scene)).collect();
    let mut kept = KeptViews::default();
    let mut reasons = Vec::new();
    let mut doubts = Vec::new();
    let mut impossible = Vec::new();
    for (shot, opened) in scene.shots.iter().zip(opened) {
        match opened {
            Ok(Opened { view, source, doubt }) => {
                doubts.extend(doubt.map(|doubt| (shot, doubt)));
                kept.views.push(view);
                kept.sources.push(source);
                kept.held_out.push(shot.held_out);
            }
            Err(Unusable::LeftOut(reason)) => reasons.push(format!("{} ({reason})", shot.name)),
            Err(Unusable::Camera(it)) => impossible.push((shot, it)),
            Err(Unusable::Stop(error)) => return Err(*error),
        }
    }
    let count = scene.shots.len();
    if let Some((shot, Implausible { found, remedy, .. })) = doubts.first() {
        scene.warnings.push(format!(
            "{}: {} of {count} cameras are unusual, that of {} first: {found}. {remedy}",
            shot.described_in.display(),
            doubts.len(),
            shot.name
        ));
    }
    if let Some((shot, Implausible { found, remedy, .. })) = impossible.first() {
        let (path, view) = (shot.described_in.clone(), shot.name.clone());
        // The folder is at fault if more photographs are missing.
        if kept.views.is_empty() && impossible.len() >= reasons.len() {
            let (found, remedy) = (found.clone(), *remedy);
            return Err(DatasetError::Camera { path, view, found, remedy });
        }
        scene.warnings.push(format!(
            "{}: {} of {count} photographs are left out: the camera of {view} has {found}. {remedy}",
            path.display(),
            impossible.len()
        ));
    }
    if kept.views.is_empty() {
        let folder = scene.folder.clone();
        let first = reasons.into_iter().next().unwrap_or_default();
        let others = folders::with_photographs(root);
        return Err(DatasetError::NoImageLeft { folder, count, first, others });
    }
    if !reasons.is_empty() {
        let named = first_few(&reasons);
        let left_out = reasons.len();
        scene.warnings.push(format!("{left_out} of {count} photographs are left out: {named}"));
    }
    Ok(kept)
}

/// Reason why a photograph is not among the views.
enum Unusable {
    /// The photograph is left out for this reason.
    LeftOut(String),
    /// The photograph is left out because of an impossible number of its camera.
    Camera(Implausible),
    /// An error that stops the run.
    Stop(Box<DatasetError>),
}

struct Opened {
    view: View,
    source: ImageSource,
    /// Implausible number of its camera.
    doubt: Option<Implausible>,
}

/// Reads the header of a photograph and builds its view.
fn open(shot: &Shot, options: &SceneOptions, scene: &Description) -> Result<Opened, Unusable> {
    let stop = |error| Unusable::Stop(Box::new(error));
    let path = shot.path.clone().ok_or_else(|| Unusable::LeftOut("not found".to_owned()))?;
    let header: ImageHeader = probe(&path).map_err(|error| Unusable::LeftOut(error.to_string()))?;
    let own_px = match &shot.sized_by {
        None => [header.width, header.height],
        Some(original) => {
            let header = probe(original).map_err(|error| Unusable::LeftOut(error.to_string()))?;
            [header.width, header.height]
        }
    };
    let lens = shot.optics.lens(own_px);
    let lens = lens.map_err(|source| stop(DatasetError::Lens { path: path.clone(), source }))?;
    let doubt = lens.implausible(&scene.length_keys);
    let doubt = match doubt {
        Some(it) if it.is_impossible => return Err(Unusable::Camera(it)),
        doubt => doubt,
    };
    let fitted = photographs::fit(lens, &header, &path).map_err(stop)?;
    if let Some(mask) = &shot.mask {
        let upright = fitted.apply_orientation;
        check_mask(mask, upright, &path, header.size(upright))
            .map_err(|error| stop(DatasetError::Mask(error)))?;
    }
    let full_size = [fitted.camera.width, fitted.camera.height];
    let SceneOptions { resolution, resolution_scale, .. } = *options;
    let size = photographs::trained_size(full_size, resolution, resolution_scale).map_err(stop)?;
    let camera = fitted.camera.resized(size[0], size[1]);
    let view = View { name: shot.name.clone(), camera, pose: shot.pose };
    let source = ImageSource {
        mask: shot.mask.clone(),
        size,
        apply_orientation: fitted.apply_orientation,
        undistort: fitted.undistort,
        alpha: scene.alpha,
        ..ImageSource::plain(path, full_size)
    };
    Ok(Opened { view, source, doubt })
}

/// True if a folder holds a scene: a COLMAP model with a folder of photographs, or a transforms file.
pub fn is_scene(root: &Path, images: &str) -> bool {
    folders::has_transforms(root)
        || folders::model(root, images)
            .is_some_and(|model| folders::has_photographs(root, &model.folder, images))
}

// Choice of the held-out views.

/// Returns `wanted` indices out of the first `count`, evenly spread from 0; all if there are fewer.
pub fn evenly_spread(wanted: usize, count: usize) -> impl Iterator<Item = usize> + Clone {
    let wanted = wanted.min(count);
    (0..wanted).map(move |k| k * count / wanted.max(1))
}

/// Replaces the file of `--test-list` by its names.
pub fn read_test_list(options: &mut SceneOptions) -> Result<(), DatasetError> {
    if let Some(TestList::File(path)) = &options.test_list {
        let names = names_in(path)?;
        options.test_list = Some(TestList::Names(names));
    }
    Ok(())
}

/// Returns the names in a file, one per line, without empty lines and `#` comments.
fn names_in(path: &Path) -> Result<Vec<String>, DatasetError> {
    let text = fs::read(path)
        .map_err(|source| DatasetError::TestListUnreadable { path: path.to_owned(), source })?;
    let text = utf8(&text);
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim);
    let names: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(DatasetError::EmptyTestList { path: path.to_owned() });
    }
    Ok(names)
}

/// Views of the scene, and its own choice of held-out ones.
struct KnownViews<'a> {
    /// Names of all views, also of those without a usable photograph.
    all: Vec<&'a str>,
    /// Views with a usable photograph.
    kept: &'a [View],
    /// True for each of these that the scene itself holds out.
    listed: &'a [bool],
    holdout: Holdout,
}

/// True if each view is held out.
fn held_out(options: &SceneOptions, known: &KnownViews<'_>) -> Result<Vec<bool>, DatasetError> {
    let count = known.kept.len();
    let mut options = options.clone();
    read_test_list(&mut options)?;
    if let Some(TestList::Names(names)) = &options.test_list {
        return by_name(names, known);
    }
    if let Some(wanted) = options.test_views {
        if wanted as usize >= count {
            return Err(DatasetError::TooManyTestViews { wanted, count });
        }
        let chosen: BTreeSet<usize> = evenly_spread(wanted as usize, count).collect();
        return Ok((0..count).map(|index| chosen.contains(&index)).collect());
    }
    let is_held_out = |index: usize| {
        options.eval
            && match known.holdout {
                Holdout::EveryNth => index.checked_rem(options.test_every as usize) == Some(0),
                Holdout::AsListed => known.listed[index],
            }
    };
    Ok((0..count).map(is_held_out).collect())
}

/// Chooses views by name. Names may lack their extension, as in other tools' lists.
fn by_name(names: &[String], known: &KnownViews<'_>) -> Result<Vec<bool>, DatasetError> {
    let mut sought: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut unknown = sought.clone();
    for name in &known.all {
        unknown.remove(name);
        unknown.remove(stem(name));
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|&name| name.to_owned()).collect();
        return Err(DatasetError::UnknownTestViews {
            count: unknown.len(),
            names: first_few(&unknown),
            example: known.all.first().map_or(String::new(), |&name| name.to_owned()),
        });
    }
    // `a` stands for `a.png`, unless a view is called `a`.
    sought.extend(known.all.iter().filter(|name| names.iter().any(|it| it == stem(name))));
    Ok(known.kept.iter().map(|view| sought.contains(view.name.as_str())).collect())
}
