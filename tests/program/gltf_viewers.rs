//! The program's GLB in programs of others: three.js in a browser, and trimesh. They run where variables of
//! the environment name these programs, and pass elsewhere; `texture` reads the same files in any case.

use std::path::{Path, PathBuf};
use std::process::Command;

use image::RgbaImage;
use serde_json::{Value, json};
use splat::config::SceneOptions;
use splat::dataset::{Dataset, View};

use super::mesh::{file, meshed, place_of};
use super::texture::textured;
use crate::common::program::text;
use crate::common::surface::ball;

/// The scripts of these tests.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gltf").join(name)
}

/// Returns the path that a variable of the environment names. Prints how to get it if it is not set.
fn named(variable: &str, remedy: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        println!("not looked at: {variable} is not set. {remedy}");
    }
    found
}

/// Runs a script to its end; what it prints.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn camera(view: &View) -> Value {
    let camera = view.camera;
    json!({
        "size": [camera.width, camera.height],
        "focal": camera.focal_px,
        "centre": camera.centre_px,
        "rotation": view.pose.rotation,
        "eye": view.pose.centre_world(),
    })
}

/// PSNR of the pixels that are drawn, dB, but for the rim, where photographs mix the mesh with what is beside
/// it.
fn psnr_on_mesh(drawn: &RgbaImage, photograph: &image::RgbImage) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    let is_drawn = |x: u32, y: u32| drawn.get_pixel_checked(x, y).is_some_and(|p| p.0[3] == 255);
    for (x, y, truth) in photograph.enumerate_pixels() {
        let around = [(x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1)];
        if !is_drawn(x, y) || !around.iter().all(|&(x, y)| is_drawn(x, y)) {
            continue;
        }
        let pixel = drawn.get_pixel(x, y);
        for channel in 0..3 {
            sum += (f64::from(pixel.0[channel]) - f64::from(truth.0[channel])).powi(2);
            count += 1.0;
        }
    }
    assert!(count > 3000.0, "{count} values drawn");
    10.0 * (255.0_f64.powi(2) / (sum / count)).log10()
}

#[test]
fn a_browser_shows_the_mesh_as_the_photographs_do() {
    let remedy =
        "It names a folder where `npm install three puppeteer-core` was run; Chromium is needed";
    let Some(modules) = named("SPLAT_GLTF_NODE", remedy) else { return };
    let place = textured("sphere", ["256", "192"]);
    let options = SceneOptions { source_path: Some(place.scene()), ..SceneOptions::default() };
    let dataset = Dataset::load(&options).unwrap();
    let chosen: Vec<&View> =
        [0, dataset.train.len() / 2].iter().map(|&at| &dataset.views[dataset.train[at]]).collect();
    let cameras = place.path("cameras.json");
    let list: Vec<Value> = chosen.iter().map(|view| camera(view)).collect();
    std::fs::write(&cameras, serde_json::to_string(&list).unwrap()).unwrap();
    let mut node = Command::new("node");
    node.arg(script("draw.mjs")).arg(file(&place, "poisson.glb")).arg(&cameras);
    let turns = printed(node.arg(place.path("")).current_dir(modules));
    // Half a turn about x, so that y runs up.
    assert!(turns.lines().all(|turn| turn == "[1,0,0,0]"), "{turns}");
    for (number, view) in chosen.iter().enumerate() {
        let drawn = image::open(place.path(&format!("{number}.png"))).unwrap().into_rgba8();
        let photograph = image::open(place.scene().join("images").join(&view.name)).unwrap();
        let found = psnr_on_mesh(&drawn, &photograph.into_rgb8());
        println!("{}: {found:.2} dB on the mesh", view.name);
        assert!(found >= 24.0, "{}: {found}", view.name);
    }
}

#[test]
fn trimesh_finds_a_closed_ball_and_its_colours() {
    let remedy = "It names a Python with trimesh, networkx, scipy and pillow";
    let Some(python) = named("SPLAT_GLTF_PYTHON", remedy) else { return };
    let place = place_of(&ball());
    let flags = ["--method=poisson", "--surface-points=60000", "--density-trim=0"];
    let texture = ["--texture=gaussians", "--formats=ply,glb,obj"];
    meshed(&place, &[&flags[..], &texture[..]].concat()).done().says(&["watertight"]);
    for name in ["poisson.ply", "poisson.glb", "poisson.obj"] {
        let path = file(&place, name);
        let found = printed(Command::new(&python).arg(script("read.py")).arg(text(&path)));
        println!("{name}: {found}");
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["watertight"], true, "{name}: {found}");
        assert_eq!(found["winding"], true, "{name}: {found}");
        // A ball of radius 1 whose faces look outwards.
        let volume = found["volume"].as_f64().unwrap();
        assert!(
            (volume / (4.0 / 3.0 * std::f64::consts::PI) - 1.0).abs() < 0.06,
            "{name}: {found}"
        );
        if name != "poisson.ply" {
            assert!(found["as_the_ball"].as_f64().unwrap() > 0.99, "{name}: {found}");
        }
    }
}
