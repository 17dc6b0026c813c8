//! Models of triangles: exported, started from, and refused where only Gaussians have a use.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::common::program::{Ended, TestFolder, end, splat, text};
use crate::fixtures::{copy_of, fixture};
use rstest::rstest;
use serde_json::Value;
use splat::config::PrimitiveName;
use splat::export::{StoredWindow, read_ply, read_ply_primitive, write_ply_triangles};
use splat::model::{Gaussians, TriangleMesh};
use splat_mesh::Mesh;
use splat_mesh::file::{read_glb, read_mesh};

const WINDOW: StoredWindow = StoredWindow { exponent: 0.25, opacity_floor: 0.5 };

/// A model folder whose Gaussians are three to a triangle.
static TRIANGLES: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("triangles", |place| {
        place.trained(20, &["--preset=reference", "--eval", "--sh-degree-interval=5"]);
        let ply = place.ply(20);
        let mut vertices = read_ply(&ply).unwrap();
        vertices.log_scales.fill(0.0);
        // As far from grey as longer training makes them.
        vertices.sh_rest.iter_mut().step_by(2).for_each(|it| *it += 0.2);
        vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(vertices.len());
        let count = u32::try_from(vertices.len()).unwrap() / 3 * 3;
        let faces = (0..count).step_by(3).map(|first| [first, first + 1, first + 2]).collect();
        write_ply_triangles(&ply, &TriangleMesh { vertices, faces }, WINDOW).unwrap();
        let config = place.model().join("config.toml");
        let text = fs::read_to_string(&config).unwrap();
        let text = text.replace("primitive = \"gaussians\"", "primitive = \"triangles\"");
        fs::write(config, text).unwrap();
    })
});

fn of_model(place: &TestFolder, command: &str, flags: &[&str]) -> Ended {
    let mut line = splat();
    line.current_dir(place.path("")).args([command, "-m", "model"]).args(flags);
    end(&mut line)
}

fn export(place: &TestFolder, args: &[&str]) -> Ended {
    let mut command = splat();
    command.current_dir(place.path("")).arg("export").args(args);
    end(&mut command)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The mesh of a file, as other commands read it.
fn mesh_of(path: &Path) -> Mesh {
    if path.extension().is_some_and(|it| it == "glb") {
        read_glb(path).unwrap().mesh
    } else {
        read_mesh(path).unwrap()
    }
}

/// The largest difference of colours of a channel.
fn farthest(one: &Mesh, other: &Mesh) -> f32 {
    assert_eq!(one.colors.len(), other.colors.len());
    let pairs = one.colors.as_flattened().iter().zip(other.colors.as_flattened());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn triangles_are_exported_with_the_colours_that_views_have() {
    let place = copy_of(&TRIANGLES);
    let made = ["a.glb", "a.obj", "a.ply"].map(|name| {
        let made = json(&export(&place, &["-m", "model", "-o", name, "--json"]).done().stdout);
        assert_eq!(made["colors"], "views", "{made}");
        let mesh = mesh_of(&place.path(name));
        assert_eq!(made["triangles"], mesh.faces.len());
        assert_eq!(made["vertices"], mesh.vertices.len());
        mesh
    });
    let [glb, obj, ply] = &made;
    assert!(ply.faces.len() > 50 && glb.faces == ply.faces && obj.faces == ply.faces);
    assert_eq!(glb.vertices, ply.vertices);
    // Colours of a PLY are bytes.
    assert!(farthest(glb, ply) < 0.003 && farthest(obj, ply) < 0.003);
    export(&place, &["-m", "model", "-o", "base.ply", "--colors=base"]).done();
    let base = mesh_of(&place.path("base.ply"));
    assert!(farthest(&base, ply) > 0.005, "harmonics above degree 0 have a say");
    let vertices = read_ply_vertices(&place);
    let first = 0.5 + vertices.sh_dc[1] * 0.282_094_8;
    assert!((base.colors[0][1] - first.clamp(0.0, 1.0)).abs() < 0.003);
    // A PLY by itself has no cameras.
    let from = place.ply(20);
    export(&place, &[text(&from), "-o", "alone.ply"]).done().says(&["no training cameras", "-m"]);
    assert_eq!(mesh_of(&place.path("alone.ply")), base);
    export(&place, &[text(&from), "-o", "b.ply", "--colors=views"])
        .refused(2, &["--colors views", "--colors base"]);
}

#[test]
fn colours_are_fitted_to_the_photographs_of_the_run() {
    let place = copy_of(&TRIANGLES);
    let figures = |name: &str| -> f64 {
        let flags = ["--mesh-images", "--mesh", name, "--split=train", "--json"];
        json(&of_model(&place, "eval", &flags).done().stdout)["psnr"].as_f64().unwrap()
    };
    export(&place, &["-m", "model", "-o", "views.glb"]).done();
    let flags = ["-m", "model", "-o", "fitted.glb", "--colors=photographs"];
    let made = json(&export(&place, &[&flags[..], &["--json"]].concat()).done().stdout);
    assert_eq!(made["colors"], "photographs");
    let [before, after] = ["psnr_before", "psnr"].map(|key| made[key].as_f64().unwrap());
    // The mesh covers a small part of the pictures, and no colour helps beside it.
    assert!(after > before + 0.3, "{made}");
    let [views, fitted] = ["views.glb", "fitted.glb"].map(figures);
    // Means over views are other means than that of all pixels; the last round counts, too.
    assert!(fitted > views + 0.3 && (views - before).abs() < 1.0, "{views} {fitted} {made}");
    let ended = export(&place, &[&flags[..], &["--overwrite"]].concat()).done();
    assert!(ended.stdout.contains("fitted to the training photographs"), "{}", ended.stdout);
    let whole = mesh_of(&place.path("fitted.glb"));
    let moved = mesh_of(&place.path("views.glb"));
    assert_eq!((&whole.vertices, &whole.faces), (&moved.vertices, &moved.faces));
    // What is cut off has had its share in the photographs.
    let sphere = "--crop-sphere=0,-0.5,0,1.2";
    export(&place, &["-m", "model", "-o", "part.glb", "--colors=photographs", sphere]).done();
    let part = mesh_of(&place.path("part.glb"));
    assert!(!part.faces.is_empty() && part.faces.len() < whole.faces.len());
    for (place, color) in part.vertices.iter().zip(&part.colors) {
        let same = whole.vertices.iter().position(|other| other == place).unwrap();
        assert_eq!(whole.colors[same], *color);
    }
    let from = place.ply(20);
    export(&place, &[text(&from), "-o", "b.ply", "--colors=photographs"])
        .refused(2, &["--colors photographs", "-m MODEL"]);
    let elsewhere = ["--overwrite", "-s", "nowhere"];
    export(&place, &[&flags[..], &elsewhere].concat()).refused(3, &["nowhere"]);
}

fn read_ply_vertices(place: &TestFolder) -> Gaussians {
    splat::export::read_ply_model(&place.ply(20)).unwrap().gaussians
}

#[test]
fn triangles_are_cut_and_placed() {
    let place = copy_of(&TRIANGLES);
    export(&place, &["-m", "model", "-o", "all.ply"]).done();
    let all = mesh_of(&place.path("all.ply"));
    let flags =
        ["--crop=-99,-99,-99,0,99,99", "--scale=2", "--up=y", "--translate=1,0,0", "--json"];
    let made =
        export(&place, &[&["-m", "model", "-o", "part.ply"][..], &flags].concat()).done().stdout;
    let part = mesh_of(&place.path("part.ply"));
    let is_left = |face: &&[u32; 3]| face.iter().all(|&v| all.vertices[v as usize][0] <= 0.0);
    let kept: Vec<_> = all.faces.iter().filter(is_left).collect();
    assert!(!kept.is_empty() && kept.len() < all.faces.len());
    assert_eq!(json(&made)["left_out"], all.faces.len() - kept.len());
    assert_eq!(part.faces.len(), kept.len());
    for (before, after) in kept.into_iter().flatten().zip(part.faces.as_flattened()) {
        let [x, y, z] = all.vertices[*before as usize];
        let found = part.vertices[*after as usize];
        for (found, wanted) in found.iter().zip([2.0 * x + 1.0, -2.0 * y, -2.0 * z]) {
            assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
        }
    }
    export(&place, &["-m", "model", "-o", "none.ply", "--crop=90,90,90,91,91,91"])
        .refused(3, &["point_cloud.ply", "none of its triangles", "--crop"]);
}

#[rstest]
#[case::spz("a.spz")]
#[case::sog("a.sog")]
#[case::splat("a.splat")]
#[case::packed("a.compressed.ply")]
#[case::html("a.html")]
fn formats_of_gaussians_are_refused(#[case] name: &str) {
    let place = copy_of(&TRIANGLES);
    export(&place, &["-m", "model", "-o", name])
        .refused(2, &[name, "holds triangles", ".glb, .obj or .ply"]);
    assert!(!place.path(name).exists());
}

#[test]
fn an_obj_of_gaussians_is_refused_with_the_command_that_makes_a_mesh() {
    let place = copy_of(&TRIANGLES);
    let gaussians = place.path("gaussians.ply");
    splat::export::write_ply(&gaussians, &read_ply_vertices(&place)).unwrap();
    export(&place, &["gaussians.ply", "-o", "a.obj"]).refused(2, &["a.obj", "splat mesh"]);
    export(&place, &["gaussians.ply", "-o", "a.ply", "--colors=base"])
        .done()
        .says(&["--colors has no effect"]);
}

#[rstest]
#[case::clean("clean", &[], &["splat clean", "triangles"])]
#[case::mesh("mesh", &[], &["a mesh already", "splat export"])]
#[case::poisson("mesh", &["--method=poisson"], &["a mesh already", "splat export"])]
#[case::refine("refine", &[], &["splat refine", "triangles"])]
#[case::sugar("sugar", &["--skip-coarse"], &["splat sugar", "--primitive triangles"])]
#[case::normals("render", &["--normals"], &["--normals", "--depth"])]
#[case::median("render", &["--depth", "--median-depth"], &["--median-depth", "Leave it out"])]
#[case::samples("eval", &["--samples=3"], &["1, 2 or 4"])]
fn what_has_no_use_for_triangles_says_so(
    #[case] command: &str,
    #[case] flags: &[&str],
    #[case] said: &[&str],
) {
    let place = copy_of(&TRIANGLES);
    let flags = [&["--device=cpu"], flags].concat();
    of_model(&place, command, &flags).refused(2, said);
}

#[test]
fn a_ply_of_another_kind_than_the_run_is_refused() {
    let place = copy_of(&TRIANGLES);
    let ply = place.ply(20);
    assert_eq!(read_ply_primitive(&ply).unwrap(), PrimitiveName::Triangles);
    let init = |flags: &[&str]| {
        let mut train = place.train_into("next");
        train.args(["--iterations=1", "--init", text(&ply)]).args(flags);
        end(&mut train)
    };
    init(&[]).refused(2, &["--init", "holds triangles", "--primitive triangles"]);
    init(&["--primitive=surfels"]).refused(2, &["holds triangles", "--primitive triangles"]);
    let coarse = ["--regularize=density", "-c", text(&ply)];
    end(place.train_into("coarse").args(coarse)).refused(2, &["-c", "triangles", "--init"]);
    splat::export::write_ply(&ply, &read_ply_vertices(&place)).unwrap();
    init(&["--primitive=triangles"]).refused(2, &["holds Gaussians", "scene's points"]);
    of_model(&place, "eval", &["--device=cpu"]).refused(3, &["holds Gaussians", "config.toml"]);
}

#[test]
fn triangles_are_measured_and_rendered_with_their_depths() {
    let place = copy_of(&TRIANGLES);
    let psnr = |flags: &[&str]| {
        let flags = [&["--json", "--device=cpu"], flags].concat();
        let measured = json(&of_model(&place, "eval", &flags).done().stdout);
        measured["mean"]["psnr"].as_f64().unwrap()
    };
    let finest = psnr(&[]);
    assert_eq!(psnr(&["--samples=4"]), finest);
    assert!(psnr(&["--samples=1"]) != finest);
    // As another program leaves it.
    let config = place.model().join("config.toml");
    let text_of = fs::read_to_string(&config).unwrap();
    fs::write(config, text_of.replace("\"triangles\"", "\"gaussians\"")).unwrap();
    assert_eq!(psnr(&[]), finest, "the PLY says what it holds");
    of_model(&place, "render", &["--device=cpu", "--skip-train", "--depth", "--samples=1"]).done();
    let folder = place.model().join("test/ours_20");
    let depths = image::open(folder.join("depth/00000.png")).unwrap().into_luma16();
    let scale = json(&fs::read_to_string(folder.join("depth/scale.json")).unwrap());
    let per_unit = scale["values_per_world_unit"].as_f64().unwrap();
    let drawn: Vec<f64> =
        depths.pixels().filter(|it| it[0] > 0).map(|it| f64::from(it[0]) / per_unit).collect();
    // The cameras of the scene stand some units from what they look at.
    assert!(drawn.len() > 100 && drawn.iter().all(|&depth| depth > 0.1), "{}", drawn.len());
    assert!(folder.join("renders/00000.png").exists() && !folder.join("normals").exists());
}
