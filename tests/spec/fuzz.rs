//! Readers of scenes and of Gaussians never panic, whatever the files hold. `.ci/release` runs these tests.

use std::fs;
use std::path::{Path, PathBuf};

use splat::config::SceneOptions;
use splat::dataset::Dataset;
use splat::export::{RenderMode, read_ply_model, splats_of};
use splat::synth::SynthOptions;
use splat_formats::{SplatFormat, write};

use crate::common::fuzz::Fuzz;
use crate::common::program::files_below;
use crate::common::scene::random_gaussians;
use crate::common::synthetic::write_synthetic;

const CAMERAS: &str =
    "# cameras\n1 OPENCV 32 24 30 31 16 12 0.01 0.02 0.001 0.002\n2 PINHOLE 32 24 30 30 16 12\n";

const FRAMES: &str = r#"{"camera_angle_x": 0.9, "fl_x": 30, "fl_y": 31, "cx": 16, "cy": 12, "w": 32, "h": 24,
 "k1": 0.01, "p1": 0.001, "camera_model": "OPENCV", "ply_file_path": "points.ply", "aabb_scale": 4,
 "frames": ["#;

fn scenes(folder: &Path) -> Vec<PathBuf> {
    let (width, height) = (32, 24);
    let options = SynthOptions { views: 4, width, height, points: 40, ..SynthOptions::default() };
    let [binary, text, frames] = ["binary", "text", "frames"].map(|name| folder.join(name));
    for scene in [&binary, &text, &frames] {
        write_synthetic(scene, &options);
    }
    let mut names: Vec<String> = fs::read_dir(binary.join("images"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for scene in [&text, &frames] {
        fs::remove_dir_all(scene.join("sparse")).unwrap();
    }
    let model = text.join("sparse/0");
    fs::create_dir_all(&model).unwrap();
    let images: String = (1..)
        .zip(&names)
        .map(|(id, name)| {
            format!("{id} 0.9 0.1 0.2 0.3 {id}.5 0 4 {} {name}\n1.5 2.5 1 3 4 -1\n", id % 2 + 1)
        })
        .collect();
    let points: String =
        (1..9).map(|id| format!("{id} {id}.5 -1 2e-1 255 0 9 0.5 1 0 2 1\n")).collect();
    for (name, text) in [("cameras", CAMERAS), ("images", &images), ("points3D", &points)] {
        fs::write(model.join(format!("{name}.txt")), text).unwrap();
    }
    let list: Vec<String> = names
        .iter()
        .map(|name| {
            let pose = "[[1, 0, 0, 0.5], [0, 0.6, -0.8, 2], [0, 0.8, 0.6, 3], [0, 0, 0, 1]]";
            format!(r#"{{"file_path": "images/{name}", "transform_matrix": {pose}}}"#)
        })
        .collect();
    let json = format!("{FRAMES}{}]}}", list.join(",\n"));
    fs::write(frames.join("transforms.json"), json).unwrap();
    let ply = "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty float z\n\
               property uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n\
               0 0 0 255 0 0\n1 2 3 0 255 9\n";
    fs::write(frames.join("points.ply"), ply).unwrap();
    vec![binary, text, frames]
}

fn load(scene: &Path) -> bool {
    let source_path = Some(scene.to_owned());
    let loaded = Dataset::load(&SceneOptions { source_path, ..SceneOptions::default() });
    loaded.is_ok_and(|dataset| dataset.extent().is_finite())
}

#[test]
#[ignore = "takes SPLAT_FUZZ_SECONDS"]
fn scenes_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let scenes = scenes(folder.path());
    for scene in &scenes {
        assert!(load(scene), "{}", scene.display());
    }
    let files: Vec<_> = scenes.iter().map(|scene| (scene, files_below(scene))).collect();
    let mut fuzz = Fuzz::of_environment();
    while fuzz.goes_on() {
        let (scene, files) = &files[fuzz.below(files.len())];
        let (path, valid) = &files[fuzz.below(files.len())];
        let input = fuzz.changed(valid);
        fs::write(path, &input).unwrap();
        fuzz.survives(&path.display().to_string(), &input, || {
            load(scene);
        });
        fs::write(path, valid).unwrap();
    }
}

#[test]
#[ignore = "takes SPLAT_FUZZ_SECONDS"]
fn files_of_gaussians_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let splats = splats_of(&random_gaussians(20, 1), RenderMode::Dilated).unwrap().splats;
    let names = [
        "a.ply",
        "a.compressed.ply",
        "a.splat",
        "a.spz",
        "a.sog",
        "a.glb",
        "sog/meta.json",
        "lod/lod-meta.json",
    ];
    for name in names {
        let path = folder.path().join(name);
        let format = SplatFormat::of_name(&path).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, &splats, &format).unwrap();
    }
    let read = |path: &Path| {
        let is_part = path.parent() != Some(folder.path());
        let whole = if is_part {
            path.ancestors().find(|it| it.parent() == Some(folder.path()))
        } else {
            Some(path)
        };
        let is_ok = splat_formats::read(whole.unwrap()).is_ok();
        if path.extension().is_some_and(|kind| kind == "ply") {
            let _ = read_ply_model(path);
        }
        is_ok
    };
    let files = files_below(folder.path());
    for (path, _) in &files {
        assert!(read(path), "{}", path.display());
    }
    let mut fuzz = Fuzz::of_environment();
    while fuzz.goes_on() {
        let (path, valid) = &files[fuzz.below(files.len())];
        let input = fuzz.changed(valid);
        fs::write(path, &input).unwrap();
        fuzz.survives(&path.display().to_string(), &input, || {
            read(path);
        });
        fs::write(path, valid).unwrap();
    }
}
