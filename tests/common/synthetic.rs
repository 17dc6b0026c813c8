//! Synthetic scenes on disk, of which each is drawn once in a test program: many tests want the same.

use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::{env, fs, thread};

use image::imageops::FilterType;
use splat::dataset::colmap::{TrackedPoint, write_colmap};
use splat::dataset::{Frame, PointCloud, View};
use splat::math::linalg::{Vec3, mul, scale};
use splat::synth::{SynthOptions, write_scene};

use super::program::{TestFolder, put};

/// Contents of a scene's files, by their paths in its folder.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Scenes by their options.
static DRAWN: Mutex<BTreeMap<String, Arc<OnceLock<Files>>>> = Mutex::new(BTreeMap::new());

/// Writes the scene of these options, as `splat synth` does.
pub fn write_synthetic(folder: &Path, options: &SynthOptions) {
    let scene = Arc::clone(DRAWN.lock().unwrap().entry(format!("{options:?}")).or_default());
    for (name, content) in scene.get_or_init(|| drawn(options)) {
        put(&folder.join(name), content);
    }
}

fn drawn(options: &SynthOptions) -> Files {
    let folder = tempfile::tempdir().unwrap();
    write_scene(folder.path(), options).unwrap();
    let folders = ["images", "sparse/0"].map(|name| folder.path().join(name));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths
        .map(|path| {
            let content = fs::read(&path).unwrap();
            (path.strip_prefix(folder.path()).unwrap().to_owned(), content)
        })
        .collect()
}

// Scenes and other inputs that are no part of this package.

/// Names the folder that holds `fox/` and `bonsai/`.
const SCENES: &str = "SPLAT_TEST_SCENES";

/// Returns the folder of photographed scenes, as [`outside`] does.
pub fn real_scenes() -> Option<PathBuf> {
    outside(SCENES)
}

/// Returns the folder that a variable of the environment names, or says that the test is skipped.
pub fn outside(variable: &str) -> Option<PathBuf> {
    let folder = env::var_os(variable).map(PathBuf::from);
    if folder.is_none() {
        // The test harness hides what a test that passes prints, but not this. The thread of a test has
        // its name.
        let thread = thread::current();
        let test = thread.name().unwrap_or_default();
        let line = format!("skipped {test}: {variable} is not set\n");
        stderr().write_all(line.as_bytes()).unwrap();
    }
    folder
}

// A scene in other coordinates.

/// A folder with the tiny scene, its points p at `factor x p + offset`, and the same photographs.
pub fn with_moved_scene(factor: f64, offset: Vec3<f64>) -> TestFolder {
    let place = TestFolder::with_scene();
    let dataset = place.dataset();
    assert_eq!(dataset.frame, Frame::SCENE);
    let moved = |place: Vec3<f64>| [0, 1, 2].map(|axis| factor * place[axis] + offset[axis]);
    let view = |view: &View| {
        let mut view = view.clone();
        let centre = moved(view.pose.centre_world());
        view.pose.translation = scale(mul(&view.pose.rotation, centre), -1.0);
        view
    };
    let views: Vec<View> = dataset.views.iter().map(view).collect();
    write_sparse(&place, &views, &dataset.points, moved);
    place
}

/// Enlarges the photographs of a scene by a factor, because rendering them at that size is slow.
pub fn enlarge(place: &TestFolder, factor: u32) {
    let dataset = place.dataset();
    let view = |view: &View| {
        let mut view = view.clone();
        let [width, height] = [view.camera.width, view.camera.height].map(|side| side * factor);
        let path = place.scene().join("images").join(&view.name);
        let photograph = image::open(&path).unwrap();
        photograph.resize_exact(width, height, FilterType::Nearest).save(path).unwrap();
        view.camera = view.camera.resized(width, height);
        view
    };
    let views: Vec<View> = dataset.views.iter().map(view).collect();
    write_sparse(place, &views, &dataset.points, |place| place);
}

/// Replaces the cameras and points of a scene.
fn write_sparse(
    place: &TestFolder,
    views: &[View],
    points: &PointCloud,
    moved: impl Fn(Vec3<f64>) -> Vec3<f64>,
) {
    let point = |(place, &color): (&[f32; 3], &[u8; 3])| TrackedPoint {
        position: moved(place.map(f64::from)),
        color,
        error_px: 0.5,
        track: Vec::new(),
    };
    let points: Vec<TrackedPoint> =
        points.positions.iter().zip(&points.colors).map(point).collect();
    write_colmap(&place.scene().join("sparse/0"), views, &points).unwrap();
}
