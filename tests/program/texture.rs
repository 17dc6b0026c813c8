//! `splat mesh --texture`: pictures on meshes, read back from the files that were written.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use image::{RgbImage, RgbaImage};
use serde_json::{Value, json};
use splat::dataset::View;
use splat_mesh::file::{MeshPicture, PaintedMesh};

use super::mesh::{coarse_place_of, file, meshed, place_of};
use crate::common::program::{Ended, TestFolder, text, words};
use crate::common::surface::{ball, coarse_ball};
use crate::common::synthetic::outside;

/// A ball, red where x is positive and blue where it is negative.
static BALL: LazyLock<TestFolder> = LazyLock::new(|| place_of(&ball()));

/// A corner of a textured mesh: where it is, and where on the picture, v down.
#[derive(Clone, Copy)]
struct TexturedCorner {
    place: [f32; 3],
    uv: [f32; 2],
}

/// A mesh and its picture, as a file has them.
struct TexturedFile {
    faces: Vec<[TexturedCorner; 3]>,
    picture: RgbImage,
}

fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> Vec<f32> {
    words.map(|word| word.parse().unwrap()).collect()
}

/// An OBJ with its MTL and PNG.
fn read_obj(path: &Path) -> TexturedFile {
    let (mut places, mut uvs, mut faces) = (Vec::new(), Vec::new(), Vec::new());
    let mut picture = None;
    for line in fs::read_to_string(path).unwrap().lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("v") => places.push(<[f32; 3]>::try_from(numbers(words)).unwrap()),
            // v runs up.
            Some("vt") => {
                uvs.push(<[f32; 2]>::try_from(numbers(words)).map(|[u, v]| [u, 1.0 - v]).unwrap())
            }
            Some("f") => {
                let corner = |word: &str| {
                    let named: Vec<usize> = word.split('/').map(|n| n.parse().unwrap()).collect();
                    TexturedCorner { place: places[named[0] - 1], uv: uvs[named[1] - 1] }
                };
                let corners: Vec<_> = words.map(corner).collect();
                faces.push(<[_; 3]>::try_from(corners).ok().unwrap());
            }
            Some("mtllib") => {
                let mtl = path.with_file_name(words.next().unwrap());
                let mtl = fs::read_to_string(mtl).unwrap();
                let named = mtl.lines().find_map(|line| line.strip_prefix("map_Kd ")).unwrap();
                picture = Some(image::open(path.with_file_name(named)).unwrap().into_rgb8());
            }
            _ => {}
        }
    }
    TexturedFile { faces, picture: picture.unwrap() }
}

fn read_glb(path: &Path) -> TexturedFile {
    let PaintedMesh { mesh, texture } = splat_mesh::file::read_glb(path).unwrap();
    assert!(mesh.colors.is_empty());
    let MeshPicture { atlas, picture } = texture.unwrap();
    let size = [picture.width, picture.height].map(|side| side as f32);
    let corner = |vertex: u32| {
        let [x, y] = atlas.places_px[vertex as usize];
        TexturedCorner { place: mesh.vertices[vertex as usize], uv: [x / size[0], y / size[1]] }
    };
    let faces = mesh.faces.iter().map(|face| face.map(corner)).collect();
    let texels = picture.texels.as_flattened().to_vec();
    let picture = RgbImage::from_raw(picture.width, picture.height, texels).unwrap();
    TexturedFile { faces, picture }
}

impl TexturedFile {
    /// The place and the colour in the middle of each face.
    fn middles(&self) -> impl Iterator<Item = ([f32; 3], [u8; 3])> {
        self.faces.iter().map(|corners| {
            let place =
                [0, 1, 2].map(|axis| corners.iter().map(|c| c.place[axis]).sum::<f32>() / 3.0);
            let [u, v] = [0, 1].map(|axis| corners.iter().map(|c| c.uv[axis]).sum::<f32>() / 3.0);
            let (x, y) = (u * self.picture.width() as f32, v * self.picture.height() as f32);
            (place, self.picture.get_pixel(x as u32, y as u32).0)
        })
    }

    /// True if both are the same but for the rounding of v.
    fn agrees_with(&self, other: &Self) -> bool {
        let is_near = |a: &TexturedCorner, b: &TexturedCorner| {
            a.place == b.place && (0..2).all(|axis| (a.uv[axis] - b.uv[axis]).abs() < 1e-6)
        };
        let mut corners = self.faces.as_flattened().iter().zip(other.faces.as_flattened());
        self.faces.len() == other.faces.len()
            && corners.all(|(a, b)| is_near(a, b))
            && self.picture == other.picture
    }

    /// The share of the faces that are red where x is positive and blue where it is negative.
    fn share_as_the_ball(&self) -> f64 {
        let away = self.middles().filter(|(place, _)| place[0].abs() > 0.15);
        let (mut right, mut all) = (0, 0);
        for (place, [red, _, blue]) in away {
            right += usize::from((red > blue.saturating_add(60)) == (place[0] > 0.0));
            all += 1;
        }
        assert!(all > 1000);
        f64::from(u32::try_from(right).unwrap()) / f64::from(u32::try_from(all).unwrap())
    }
}

#[test]
fn files_have_the_texture_where_it_belongs() {
    let mut pictures = BTreeMap::new();
    for atlas in ["charts", "boxes", "squares"] {
        let flags = ["--mesh-resolution=40", "--texture=gaussians", "--formats=glb,obj"];
        let atlas_flag = format!("--atlas={atlas}");
        meshed(&BALL, &[&flags[..], &[&atlas_flag]].concat()).done().says(&["texture of"]);
        let [obj, glb] = [read_obj(&file(&BALL, "tsdf.obj")), read_glb(&file(&BALL, "tsdf.glb"))];
        for read in [&obj, &glb] {
            let share = read.share_as_the_ball();
            assert!(share > 0.995, "{atlas}: {share}");
        }
        assert!(obj.agrees_with(&glb), "{atlas}: the files differ");
        let record = BALL.json("model/mesh/iteration_1/tsdf.json");
        let texture = &record["texture"];
        assert_eq!((&texture["atlas"], &texture["views"]), (&atlas.into(), &16.into()));
        let [seen, all] = ["seen_texels", "texels"].map(|key| texture[key].as_u64().unwrap());
        assert!(seen > all * 95 / 100 && all > 5000, "{atlas}: {texture}");
        pictures.insert(atlas, obj.picture);
    }
    assert_ne!(pictures["charts"], pictures["boxes"]);
}

/// A scene in views of this size, px, as a closed mesh with a texture of its photographs.
fn textured(scene: &str, [width, height]: [&str; 2]) -> TestFolder {
    let place = TestFolder::empty();
    let line = "synth --views=16 --points=300 --gaussian-count=10000 --truth-cells=48 \
                --gaussians MODEL -o SCENE";
    place.splat(line, &["--scene", scene, "--width", width, "--height", height]).done();
    let flags = words::<8>(
        "--method=poisson --surface-points=20000 --poisson-depth=6 --density-trim=0 \
         --bbox-min=-4,-4,-4 --bbox-max=4,4,4 --texture=photographs --texture-size=400",
    );
    meshed(&place, &flags).done().says(&["watertight", "texture of 400 x"]);
    place
}

fn mesh_images(place: &TestFolder, flags: &[&str]) -> Ended {
    place.run("eval", &[&["--mesh-images"][..], flags].concat())
}

#[test]
fn the_demo_scene_becomes_a_closed_mesh_that_looks_like_it() {
    let place = textured("demo", ["128", "96"]);
    let figures =
        |flags: &[&str]| mesh_images(&place, &[&["--json"], flags].concat()).done().json();
    let textured = figures(&[]);
    let number = |figures: &Value, key: &str| figures[key].as_f64().unwrap();
    assert_eq!(textured["mesh"], text(&file(&place, "poisson.glb")));
    assert!(!file(&place, "poisson.png").exists(), "it is in the GLB");
    assert_eq!((&textured["is_textured"], &textured["split"]), (&true.into(), &"test".into()));
    assert_eq!(textured["views"].as_array().unwrap().len(), 2);
    assert!(number(&textured, "covered_psnr") > 24.0, "{textured}");
    assert!((0.1..0.9).contains(&number(&textured, "covered")), "{textured}");
    // A texture is better than colours of vertices, and views that it was made of than others.
    let colored = figures(&["--mesh", text(&file(&place, "poisson.ply"))]);
    assert_eq!(colored["is_textured"], false);
    assert!(number(&textured, "covered_psnr") > number(&colored, "covered_psnr"), "{colored}");
    let shown = figures(&["--split=train"]);
    assert!(number(&shown, "covered_psnr") > number(&textured, "covered_psnr") - 0.5, "{shown}");
    assert_eq!(place.json("model/mesh_images.json"), shown);
    let parts = ["poisson.glb", "texture", "2 test views", "PSNR", "on the mesh"];
    mesh_images(&place, &[]).done().prints(&parts);
    for name in ["00000.png", "00001.png"] {
        let picture = place.model().join("mesh_images/test").join(name);
        let pixels = image::open(&picture).unwrap().to_rgb8();
        let lit = pixels.pixels().filter(|pixel| pixel.0.iter().any(|&value| value > 25)).count();
        assert_eq!((pixels.width(), pixels.height()), (128, 96));
        assert!(lit > 1000, "{}: {lit} of {} pixels", picture.display(), 128 * 96);
    }

    // Files that do not serve are named.
    let broken = place.path("broken.glb");
    let glb = fs::read(file(&place, "poisson.glb")).unwrap();
    fs::write(&broken, &glb[..glb.len() / 2]).unwrap();
    let named = |path: &Path| mesh_images(&place, &["--mesh", text(path)]);
    named(&broken).refused(3, &[text(&broken), "it is truncated"]);
    named(&place.path("a.obj")).refused(3, &["a.obj", "as GLB"]);
    named(&place.path("missing.glb")).refused(3, &["missing.glb"]);
    mesh_images(&place, &["--iteration=7"]).refused(3, &[]);
    mesh_images(&place, &["--geometry=truth.ply"]).refused(2, &["--mesh-images"]);
    fs::remove_dir_all(place.model().join("mesh")).unwrap();
    mesh_images(&place, &[]).refused(3, &["holds no mesh", "splat mesh -m"]);
}

#[test]
fn what_makes_no_texture_is_named() {
    let place = coarse_place_of(&coarse_ball());
    meshed(&place, &["--square-size=8", "--bbox-min=5,5,5", "--bbox-max=6,6,6"])
        .refused(3, &["--square-size has no effect without --texture"]);
    let small = "--texture=gaussians --mesh-resolution=40 --atlas=squares --texture-size=64";
    for (line, message) in [
        ("--texture-size=63", "--texture-size is 63; allowed: from 64 to 16384"),
        ("--texture-size=20000", "--texture-size is 20000"),
        ("--square-size=3", "--square-size is 3; allowed: 4 and more"),
        ("--texture=paint", "photographs"),
        ("--atlas=xatlas", "squares"),
        ("--texture=gaussians --formats=ply", "Add glb or obj to --formats"),
        (small, "do not fit a texture of 64 x 64"),
    ] {
        let flags: Vec<&str> = line.split(' ').collect();
        meshed(&place, &flags).refused(2, &[message]);
    }
    assert!(!place.model().join("mesh").exists());
}

// The program's GLB in programs of others: three.js in a browser, and trimesh. These tests run where variables of
// the environment name the programs, and pass elsewhere.

/// The scripts of these tests.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gltf").join(name)
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
fn psnr_on_mesh(drawn: &RgbaImage, photograph: &RgbImage) -> f64 {
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

/// The variable names a folder where `npm install three puppeteer-core` was run; Chromium is needed.
#[test]
fn a_browser_shows_the_mesh_as_the_photographs_do() {
    let Some(modules) = outside("SPLAT_GLTF_NODE") else { return };
    let place = textured("sphere", ["256", "192"]);
    let dataset = place.dataset();
    let chosen: Vec<&View> =
        [0, dataset.train.len() / 2].iter().map(|&at| &dataset.views[dataset.train[at]]).collect();
    let cameras = place.path("cameras.json");
    let list: Vec<Value> = chosen.iter().map(|view| camera(view)).collect();
    fs::write(&cameras, serde_json::to_string(&list).unwrap()).unwrap();
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

/// The variable names a Python with trimesh, networkx, scipy and pillow.
#[test]
fn trimesh_finds_a_closed_ball_and_its_colours() {
    let Some(python) = outside("SPLAT_GLTF_PYTHON") else { return };
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
        let exact = 4.0 / 3.0 * std::f64::consts::PI;
        assert!((volume / exact - 1.0).abs() < 0.06, "{name}: {found}");
        if name != "poisson.ply" {
            assert!(found["as_the_ball"].as_f64().unwrap() > 0.99, "{name}: {found}");
        }
    }
}
