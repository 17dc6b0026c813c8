//! A scene on disk: photographs with cameras, and points.

mod agreement;
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
pub mod points_ply;
mod pseudo;
mod shot;
mod transforms;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use camera::{OpticalAxis, stem, viewing_distance};
use describe::{Description, describe};
use finder::{first_few, utf8};
use image::{ROUNDED_SHARE, check_mask};
use lens::Implausible;
use shot::{Holdout, Shot};
use splat_mesh::narrow::floor_u32;

use crate::config::{Config, SceneOptions, TestList};
use crate::math::Real as _;
use crate::math::linalg::{Vec3, add, length, scale, sub};
use crate::math::quantile::median;

pub use agreement::{Coverage, exposure_step};
pub use camera::{Camera, Pose, View};
pub use error::DatasetError;
pub use frame::Frame;
pub use image::{Image, ImageError, ImageHeader, InverseDepthMap, NormalMap, decode, probe};
pub use lens::{Distortion, Lens, LensError, Undistortion};
pub use loader::{ImageLoader, LoaderStatistics, Residency, bytes_to_decode};
pub use maps::{DepthsError, NormalsError};
pub use pseudo::{PSEUDO_VIEWS, PSEUDO_VIEWS_OF};
pub use shot::{AlphaMeaning, DepthFile, FARTHEST, ImageSource, NormalFile, PointCloud};
pub use transforms::TransformsError;

/// Maximum number of sampled points of the sparse cloud.
const SAMPLED_POINTS: usize = 1000;

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
    /// Indices into `views` of the pseudo-views of `--ensemble`, ascending, after those of all photographs.
    pub pseudo: Vec<usize>,
    /// Initial points; may be empty.
    pub points: PointCloud,
    /// Half side of the cube that random Gaussians fill if `points` is empty, world units; if the format of the scene
    /// defines it (1.3 for Blender).
    pub random_half_side: Option<f64>,
    /// Near plane of evaluations and of every second training image, as a share of the viewing distance (`--near-share`).
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
        trained_size([1, 1], options.resolution, options.resolution_scale)?;
        let mut scene = describe(&root, options)?;
        scene.shots.sort_by(|a, b| a.name.cmp(&b.name));
        let poses: Vec<_> = scene.shots.iter().map(|shot| &shot.pose).collect();
        let frame = Frame::of(options, &poses, &scene.points);
        for shot in &mut scene.shots {
            shot.pose = Frame::SCENE.pose_to(&frame, &shot.pose);
        }
        let kept = keep(&mut scene, &root, options)?;
        let held_out = held_out(options, &scene, &kept)?;
        let KeptViews { views, mut sources, .. } = kept;
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
            pseudo: Vec::new(),
            points: scene.points.converted(&Frame::SCENE, &frame),
            random_half_side: scene
                .random_half_side
                .map(|side| side * Frame::SCENE.unit_in(&frame)),
            near_share: options.near_share,
            warnings: scene.warnings,
        })
    }

    /// Reads a scene to train on, with the normal maps of its training views and the cameras of pseudo-views if
    /// requested.
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
        if config.distils() {
            let model_path = config.output.model_path.clone().unwrap_or_default();
            dataset.add_pseudo_views(&model_path, config.run.seed);
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

    /// Returns a sample of the initial points, evenly spread over their order.
    pub fn sampled_points(&self) -> Vec<Vec3<f64>> {
        let points = &self.points.positions;
        let step = points.len().div_ceil(SAMPLED_POINTS).max(1);
        points.iter().step_by(step).map(|point| point.map(f64::from)).collect()
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
    let read = |path: &Path| probe(path).map_err(|error| Unusable::LeftOut(error.to_string()));
    let header = read(&path)?;
    let solved = shot.sized_by.as_ref().map_or(Ok(header), |original| read(original))?;
    let lens = shot.optics.lens([solved.width, solved.height]);
    let lens = lens.map_err(|source| stop(DatasetError::Lens { path: path.clone(), source }))?;
    let doubt = match lens.implausible(&scene.length_keys) {
        Some(it) if it.is_impossible => return Err(Unusable::Camera(it)),
        doubt => doubt,
    };
    let fitted = fit(lens, &header, &path).map_err(stop)?;
    if let Some(mask) = &shot.mask {
        let upright = fitted.apply_orientation;
        check_mask(mask, upright, &path, header.size(upright))
            .map_err(|error| stop(DatasetError::Mask(error)))?;
    }
    let full_size = [fitted.camera.width, fitted.camera.height];
    let SceneOptions { resolution, resolution_scale, .. } = *options;
    let size = trained_size(full_size, resolution, resolution_scale).map_err(stop)?;
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

/// True if each view is held out.
fn held_out(
    options: &SceneOptions,
    scene: &Description,
    kept: &KeptViews,
) -> Result<Vec<bool>, DatasetError> {
    let count = kept.views.len();
    let mut options = options.clone();
    read_test_list(&mut options)?;
    if let Some(TestList::Names(names)) = &options.test_list {
        return by_name(names, scene, &kept.views);
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
            && match scene.holdout {
                Holdout::EveryNth => index.checked_rem(options.test_every as usize) == Some(0),
                Holdout::AsListed => kept.held_out[index],
            }
    };
    Ok((0..count).map(is_held_out).collect())
}

/// Chooses views by name. Names may lack their extension, as in other tools' lists.
fn by_name(
    names: &[String],
    scene: &Description,
    views: &[View],
) -> Result<Vec<bool>, DatasetError> {
    // Also views without a usable photograph.
    let all = || scene.shots.iter().map(|shot| shot.name.as_str());
    let mut sought: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut unknown = sought.clone();
    for name in all() {
        unknown.remove(name);
        unknown.remove(stem(name));
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|&name| name.to_owned()).collect();
        return Err(DatasetError::UnknownTestViews {
            count: unknown.len(),
            names: first_few(&unknown),
            example: all().next().unwrap_or_default().to_owned(),
        });
    }
    // `a` stands for `a.png`, unless a view is called `a`.
    sought.extend(all().filter(|name| names.iter().any(|it| it == stem(name))));
    Ok(views.iter().map(|view| sought.contains(view.name.as_str())).collect())
}

// Fits cameras to photographs.

/// Width that `-r -1` scales wider photographs to, px.
const DEFAULT_MAX_WIDTH: u32 = 1600;

/// A camera at the photograph's full size.
#[derive(Clone, Debug)]
struct Fitted {
    camera: Camera,
    undistort: Option<Undistortion>,
    /// True if the pixels are rotated by the EXIF orientation.
    apply_orientation: bool,
}

/// Fits the camera to the photograph.
///
/// Structure from motion often ignores EXIF, so the stored pixels are used if their size equals the camera's or has
/// its shape. Otherwise the size after the EXIF rotation is tried.
fn fit(lens: Lens, header: &ImageHeader, path: &Path) -> Result<Fitted, DatasetError> {
    let stored = [header.width, header.height];
    let turned = [header.height, header.width];
    let solved = lens.size();
    let (size, apply_orientation) = if same_shape(stored, solved) {
        (stored, false)
    } else if header.orientation_swaps && same_shape(turned, solved) {
        (turned, true)
    } else {
        return Err(DatasetError::SizeMismatch {
            path: path.to_owned(),
            width: stored[0],
            height: stored[1],
            camera_width: solved[0],
            camera_height: solved[1],
        });
    };
    let lens = if size == solved { lens } else { lens.resized(size[0], size[1]) };
    let (camera, undistort) =
        lens.straighten().map_err(|source| DatasetError::Lens { path: path.to_owned(), source })?;
    Ok(Fitted { camera, undistort, apply_orientation })
}

/// True if `size` is `solved` scaled, with either side rounded to a pixel.
fn same_shape(size: [u32; 2], solved: [u32; 2]) -> bool {
    let [width, height] = size.map(f64::from);
    let [solved_width, solved_height] = solved.map(f64::from);
    size[0] > 0
        && size[1] > 0
        && (is_rounded(height, solved_height * width / solved_width)
            || is_rounded(width, solved_width * height / solved_height))
}

fn is_rounded(side: f64, exact: f64) -> bool {
    (side - exact).abs() <= (ROUNDED_SHARE * side).min(1.0)
}

/// Returns the trained size: the photograph's size at the resolution, times a scale.
fn trained_size(full: [u32; 2], resolution: i32, scale: f64) -> Result<[u32; 2], DatasetError> {
    let size = size_by_resolution(full, resolution)?;
    Ok(size.map(|side| size_px((f64::from(side) * scale).round_ties_even())))
}

/// Returns the size that Inria's trainer chooses: 1, 2, 4 and 8 divide and round (halves to even), -1 limits the
/// width to 1600 px, other positive numbers are the width in px. The last two round down, so the width may be 1 px
/// less.
fn size_by_resolution(full: [u32; 2], resolution: i32) -> Result<[u32; 2], DatasetError> {
    let width = f64::from(full[0]);
    let scaled = |divisor: f64, round: fn(f64) -> f64| {
        full.map(|size| size_px(round(f64::from(size) / divisor)))
    };
    match resolution {
        1 | 2 | 4 | 8 => Ok(scaled(f64::from(resolution), f64::round_ties_even)),
        -1 if full[0] > DEFAULT_MAX_WIDTH => {
            Ok(scaled(width / f64::from(DEFAULT_MAX_WIDTH), f64::floor))
        }
        -1 => Ok(full),
        target if target > 0 => Ok(scaled(width / f64::from(target), f64::floor)),
        value => Err(DatasetError::Resolution { value }),
    }
}

/// Converts a rounded size to px; at least 1.
fn size_px(size: f64) -> u32 {
    floor_u32(size).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::lens::Distortion;

    #[test]
    fn resolutions_match_inria() {
        for (full, resolution, expected) in [
            ([1061, 1894], 1, [1061, 1894]),
            // Python rounds 530.5 and 132.5 to even.
            ([1061, 1894], 2, [530, 947]),
            ([1060, 1894], 8, [132, 237]),
            ([800, 533], 4, [200, 133]),
            ([800, 533], -1, [800, 533]),
            ([4000, 3000], -1, [1600, 1200]),
            ([800, 533], 400, [400, 266]),
            ([800, 533], 3, [3, 1]),
            ([3, 2], 8, [1, 1]),
        ] {
            assert_eq!(trained_size(full, resolution, 1.0).unwrap(), expected, "{resolution}");
        }
        for wrong in [0, -2, i32::MIN] {
            let error = trained_size([800, 533], wrong, 1.0).unwrap_err().to_string();
            assert!(error.contains(&wrong.to_string()), "{error}");
        }
    }

    fn lens(width: u32, height: u32) -> Lens {
        let camera = Camera { width, height, focal_px: [900.0, 910.0], centre_px: [500.0, 900.0] };
        Lens::new(camera, Distortion::NONE).unwrap()
    }

    fn fit_to(width: u32, height: u32, orientation_swaps: bool) -> Result<Fitted, DatasetError> {
        let header = ImageHeader { width, height, orientation_swaps, has_colors: true };
        fit(lens(1061, 1894), &header, Path::new("a.jpg"))
    }

    #[test]
    fn a_photograph_of_the_cameras_shape_scales_the_camera() {
        // 1061 / 8 = 132.6 and 1894 / 8 = 236.75, rounded either way.
        for (size, swaps) in [
            ([1061, 1894], false),
            ([1061, 1894], true),
            ([132, 236], false),
            ([133, 237], false),
            ([132, 237], false),
        ] {
            let fitted = fit_to(size[0], size[1], swaps).unwrap();
            assert_eq!([fitted.camera.width, fitted.camera.height], size);
            let scale = f64::from(size[0]) / 1061.0;
            assert!((fitted.camera.focal_px[0] - 900.0 * scale).abs() < 1e-9);
            assert!(!fitted.apply_orientation);
        }
    }

    #[test]
    fn tiny_sizes_do_not_fit_other_shapes() {
        assert!(same_shape([12, 8], [96, 64]) && same_shape([13, 9], [96, 64]));
        for size in [[1, 1], [2, 1], [1, 2], [2, 2], [4, 4]] {
            assert!(!same_shape(size, [96, 64]), "{size:?}");
        }
    }

    #[test]
    fn rotated_photographs_fit_and_others_are_rejected() {
        let fitted = fit_to(1894, 1061, true).unwrap();
        assert!(fitted.apply_orientation);
        assert_eq!([fitted.camera.width, fitted.camera.height], [1061, 1894]);
        for (width, height) in [(1894, 1061), (1061, 1800), (0, 0)] {
            let error = fit_to(width, height, false).unwrap_err().to_string();
            let size = format!("{width}x{height}");
            assert!(error.contains(&size) && error.contains("1061x1894"), "{error}");
        }
    }
}
