//! `splat synth --scene NAME`: the true mesh, the masks, and a model of flat Gaussians.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use splat::dataset::View;
use splat::math::linalg::mul_transposed;
use splat_mesh::file::read_mesh;
use splat_mesh::search::BoxTree;

use crate::common::geometry::training_views;
use crate::common::program::{Ended, TestFolder, files_below, put, text};

/// Writes a small scene into a folder of the place.
fn synth(place: &TestFolder, scene: &str, flags: &[&str]) -> Ended {
    let line = format!("synth --scene {scene} --width=40 --height=30 --points=50 -o {scene}");
    place.splat(&line, flags)
}

/// Names below a folder of a scene.
fn names(folder: &Path) -> BTreeSet<PathBuf> {
    let files = files_below(folder).into_iter();
    files.map(|(path, _)| path.strip_prefix(folder).unwrap().to_owned()).collect()
}

/// True if the ray through the middle of each pixel meets the mesh.
fn outline(tree: &BoxTree<'_>, view: &View) -> Vec<bool> {
    let (camera, origin) = (&view.camera, view.pose.centre_world());
    let pixels = (0..camera.height).flat_map(|y| (0..camera.width).map(move |x| [x, y]));
    pixels
        .map(|pixel| {
            let at: [f64; 2] = std::array::from_fn(|i| {
                (f64::from(pixel[i]) + 0.5 - camera.centre_px[i]) / camera.focal_px[i]
            });
            let direction = mul_transposed(&view.pose.rotation, [at[0], at[1], 1.0]);
            tree.is_hit(origin, direction, [0.0, f64::INFINITY])
        })
        .collect()
}

#[test]
fn photographs_and_masks_show_what_the_true_mesh_covers() {
    let place = TestFolder::empty();
    for scene in ["dtu", "torus", "room"] {
        synth(&place, scene, &["--views=5", "--truth-cells=96"]).done().says(&["truth.ply"]);
        let folder = place.path(scene);
        let mesh = read_mesh(&folder.join("truth.ply")).unwrap();
        let tree = BoxTree::new(&mesh).unwrap();
        for view in training_views(&folder, 100) {
            let covered = outline(&tree, &view);
            let count = covered.iter().filter(|covered| **covered).count();
            assert!(count * 12 > covered.len(), "{scene} {}: {count} pixels", view.name);
            assert_eq!(scene == "room", count == covered.len(), "{scene} {}", view.name);
            let open = |kind: &str| image::open(folder.join(kind).join(&view.name)).unwrap();
            let photograph = open("images").into_rgb8();
            let lit = photograph.pixels().map(|pixel| pixel.0 != [0; 3]);
            let wrong = lit.zip(&covered).filter(|(lit, covered)| lit != *covered).count();
            // Pixels of the outline are partly covered.
            assert!(wrong * 12 < covered.len(), "{scene} {}: {wrong} pixels", view.name);
            if scene != "dtu" {
                assert!(!folder.join("masks").exists());
                continue;
            }
            let mask = open("masks").into_luma8();
            let wrong = mask.pixels().zip(&covered).filter(|(mask, covered)| {
                assert!([0, 255].contains(&mask.0[0]));
                (mask.0[0] == 255) != **covered
            });
            assert!(wrong.count() * 50 < covered.len(), "{scene} {}", view.name);
        }
    }
}

#[test]
fn scenes_have_the_views_that_their_names_promise() {
    let place = TestFolder::empty();
    for (scene, views) in [("sphere", 48), ("dtu", 49), ("room", 120)] {
        let line = "synth --points=5 --truth-cells=32 --width=16 --height=16";
        place.splat(line, &["--scene", scene, "-o", scene]).done();
        assert_eq!(names(&place.path(scene).join("images")).len(), views, "{scene}");
    }
    assert_eq!(names(&place.path("dtu/masks")), names(&place.path("dtu/images")));
}

#[test]
fn masks_of_another_scene_are_not_left_to_hide_a_new_one() {
    let place = TestFolder::empty();
    synth(&place, "dtu", &["--views=2", "--truth-cells=32"]).done();
    let before = files_below(&place.path("dtu"));
    let (dtu, masks) = (place.path("dtu"), place.path("dtu/masks"));
    place
        .splat("synth --views=2 -o", &[text(&dtu)])
        .refused(1, &[text(&masks), "Name another folder"]);
    assert!(files_below(&place.path("dtu")) == before);
    synth(&place, "dtu", &["--views=2", "--truth-cells=32"]).done();
    assert!(files_below(&place.path("dtu")) == before);
}

#[test]
fn numbers_and_names_that_no_scene_has_are_refused() {
    let place = TestFolder::empty();
    synth(&place, "sphere", &["--truth-cells=8"]).refused(2, &["--truth-cells", "16 to 2048"]);
    synth(&place, "castle", &[]).refused(2, &["castle", "torus", "room"]);
    synth(&place, "sphere", &["--gaussian-count=500"]).refused(2, &["--gaussians"]);
    assert!(files_below(&place.path("")).is_empty());
}

#[test]
fn flat_gaussians_on_the_truth_are_a_model_that_looks_like_it() {
    let place = TestFolder::empty();
    let line = "synth --scene=torus --views=10 --truth-cells=64 --points=50 --gaussian-count=20000 \
                --gaussians MODEL -o SCENE";
    let synth = || place.splat(line, &[]).done();
    synth().says(&["20000 flat"]);
    let measured = place.run("eval", &["--json"]).done();
    let figures = measured.json();
    assert_eq!((&figures["gaussians"], &figures["iteration"]), (&20_000.into(), &1.into()));
    // The screen filter widens the outline by a pixel, and highlights are missing.
    assert!(measured.psnr() > 19.0, "{figures}");
    place.run("render", &[]).done();
    assert_eq!(names(&place.path("model/test/ours_1/renders")).len(), 2);
    // A model that was there is kept.
    let ply = place.ply_bytes("model", 1);
    synth().says(&["previous_1"]);
    assert!(place.ply_bytes("model/previous_1", 1) == ply && place.ply_bytes("model", 1) == ply);
}

// Places with trained models that several tests start from. Each is trained once, when the first test
// asks for it; no test changes it.

/// The folder of this process's fixtures. It is locked while the process lives; the next process that
/// finds it unlocked takes it over, so that no folders pile up.
static FOLDER: LazyLock<(PathBuf, File)> = LazyLock::new(|| {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    (0..).find_map(|number: u32| own(parent.join(format!("fixtures-{number}")))).unwrap()
});

/// An empty folder of this name, unless another process uses it.
fn own(folder: PathBuf) -> Option<(PathBuf, File)> {
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.try_lock().ok()?;
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    Some((folder, lock))
}

/// A place of its own with the scene of a fixture and a copy of its model.
pub(crate) fn copy_of(fixture: &TestFolder) -> TestFolder {
    let place = TestFolder::beside(fixture);
    for (path, content) in files_below(&fixture.model()) {
        put(&place.model().join(path.strip_prefix(fixture.model()).unwrap()), content);
    }
    place
}

/// A place of this name with what `train` makes of the tiny scene.
pub(crate) fn fixture(name: &str, train: impl FnOnce(&TestFolder)) -> TestFolder {
    fixture_of(name, TestFolder::write_scene, train)
}

/// A place of this name with what `train` makes of another scene.
pub(crate) fn fixture_of(
    name: &str,
    write_scene: impl FnOnce(&TestFolder),
    train: impl FnOnce(&TestFolder),
) -> TestFolder {
    let place = TestFolder::lasting(FOLDER.0.join(name));
    write_scene(&place);
    train(&place);
    place
}

/// Models of the tiny scene with their iterations and flags.
static MODELS: Mutex<Vec<(String, Arc<OnceLock<TestFolder>>)>> = Mutex::new(Vec::new());

/// Returns a place of its own with a copy of the model that these flags train. The tiny scene is shared with
/// other tests, so that no test may change it.
pub(crate) fn with_model(iterations: u32, flags: &[&str]) -> TestFolder {
    let line = format!("{iterations} {}", flags.join(" "));
    let (name, model) = {
        let mut models = MODELS.lock().unwrap();
        let number = models.iter().position(|(known, _)| *known == line).unwrap_or(models.len());
        if number == models.len() {
            models.push((line, Arc::default()));
        }
        (format!("model-{number}"), Arc::clone(&models[number].1))
    };
    copy_of(model.get_or_init(|| fixture(&name, |place| drop(place.trained(iterations, flags)))))
}
