//! `splat refine`: Gaussians bound to a mesh learn the photographs with it, a refinement that was killed ends in
//! the same bytes, and what cannot be refined is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;
use splat::export::{read_ply, write_ply};
use splat::math::Real;
use splat::math::linalg::{cross, dot, normalize, rotation, sub};
use splat::model::Primitive as _;
use splat_mesh::file::{read_mesh, write_ply as write_mesh_ply};
use splat_mesh::{Mesh, MeshReport};

use crate::common::program::{
    Ended, TestFolder, cut, ended, files_below, kill, patch, program, send, started_once,
    started_until, text,
};
use crate::common::surface::{ball, write_ball_scene};
use crate::synthetic_scenes::{copy_of, fixture};

/// A model of a ball, meshed, in a scene with photographs of another ball. No test changes it.
static BALL: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("refine", |place| {
        fs::remove_dir_all(place.scene()).unwrap();
        write_ball_scene(&place.scene(), 16, (64, 48));
        place.trained(1, &["--sh-degree=1", "--eval", "--test-every=4"]);
        let mut model = ball();
        model.set_sh_degree(1);
        write_ply(&place.ply(1), &model).unwrap();
        let line = "mesh --device=cpu --method=poisson -m MODEL --surface-points=5000 \
                    --poisson-depth=5 --density-trim=0 --decimation-target=800";
        place.splat(line, &[]).done();
    })
});

/// The meshed ball in a place of its own.
fn ball_place() -> TestFolder {
    copy_of(&BALL)
}

fn refined(place: &TestFolder, flags: &[&str]) -> Ended {
    place.splat("refine --device=cpu --progress=plain -m MODEL", flags)
}

fn folder(place: &TestFolder) -> PathBuf {
    place.model().join("refined/iteration_1/poisson")
}

fn record(place: &TestFolder) -> Value {
    place.json("model/refined/iteration_1/poisson/refine.json")
}

fn point_cloud(place: &TestFolder, iterations: u32) -> PathBuf {
    folder(place).join(format!("point_cloud/iteration_{iterations}/point_cloud.ply"))
}

#[test]
fn bound_gaussians_learn_the_photographs_and_stay_on_their_triangles() {
    let place = ball_place();
    let ended = refined(&place, &["--iterations=30", "--gaussians_per_triangle", "3"]).done();
    assert_eq!(ended.stdout.lines().count(), 3, "{ended:?}");
    ended.says(&["refined: ", "dB before", "Evaluating test", "own Gaussians"]);
    let record = record(&place);
    let psnr = |when: &str| record[when]["psnr"].as_f64().unwrap();
    // What stands around the ball has no triangles, and weighs most of what is left.
    assert!(psnr("after") > psnr("before") + 0.05, "{record:#}");
    assert_eq!(record["before"]["views"].as_u64(), Some(4));

    let mesh = read_mesh(&folder(&place).join("mesh.ply")).unwrap();
    let before = read_mesh(&place.model().join("mesh/iteration_1/poisson.ply")).unwrap();
    let sizes = [&mesh, &before].map(|mesh| (mesh.faces.len(), mesh.vertices.len()));
    assert_eq!(sizes[0], sizes[1]);
    assert_eq!(mesh.colors.len(), mesh.vertices.len());
    assert!(MeshReport::of(&mesh).unwrap().watertight);
    assert!(fs::metadata(folder(&place).join("mesh.glb")).unwrap().len() > 10_000);

    let gaussians = read_ply(&point_cloud(&place, 30)).unwrap();
    assert_eq!((gaussians.len(), gaussians.sh_degree), (3 * mesh.faces.len(), 1));
    for (row, quat) in gaussians.quats.as_chunks::<4>().0.iter().enumerate() {
        let [a, b, c] = mesh.faces[row / 3].map(|v| mesh.vertices[v as usize].map(f64::from));
        let centre = [0, 1, 2].map(|axis| f64::from(gaussians.means[3 * row + axis]));
        let normal = normalize(cross(sub(b, a), sub(c, a)));
        let off = dot(sub(centre, a), normal);
        assert!(off.abs() < 1e-5, "Gaussian {row} lies {off} off its triangle");
        let along = dot(rotation(quat.map(f64::from)).map(|axes| axes[0]), normal);
        assert!(along > 1.0 - 1e-5, "Gaussian {row} is thin along {along}");
        let [thin, wide, _] = [0, 1, 2].map(|axis| gaussians.log_scales[3 * row + axis]);
        assert!(thin < wide - 3.0, "Gaussian {row}: {thin} {wide}");
    }

    // Training does not go on with what is bound.
    let checkpoint = folder(&place).join("checkpoints/chkpnt_30.safetensors");
    let bound = folder(&place);
    for from in [&["--resume"][..], &["--start-checkpoint", text(&checkpoint)]] {
        place
            .splat("train --device=cpu --iterations=1000 -m", &[&[text(&bound)], from].concat())
            .refused(3, &["splat refine", "--init", "point_cloud.ply"]);
    }

    // Its folder is a model folder: measured again, it has the same figures.
    let found = place.splat("eval --device=cpu --json -m", &[text(&bound)]).done().psnr();
    assert!((found - psnr("after")).abs() < 1e-3, "{found} {}", psnr("after"));
}

#[test]
fn what_is_complete_is_left_and_other_options_need_overwrite() {
    let place = ball_place();
    refined(&place, &["--iterations=4"]).done();
    let files = || {
        let mut files = files_below(&folder(&place));
        files.retain(|(path, _)| !path.to_string_lossy().contains(".splat"));
        files
    };
    let before = files();
    let ended = refined(&place, &["--refinement_iterations", "4"]).done();
    assert_eq!(ended.stdout.lines().count(), 3);
    ended.says(&["is complete already"]);
    assert!(before == files(), "a complete refinement was changed");
    // What is asked for and is not there is written, after the last checkpoint.
    let requested = ["--iterations=4", "--formats=obj,ply,obj"];
    let ended = refined(&place, &requested).done();
    let written: Vec<&Path> = ended.stdout.lines().map(Path::new).collect();
    let [obj, ply] = ["mesh.obj", "mesh.ply"].map(|name| folder(&place).join(name));
    assert_eq!(written, [&point_cloud(&place, 4), &obj, &ply]);
    let mesh = fs::read(&ply).unwrap();
    fs::remove_file(&ply).unwrap();
    refined(&place, &requested).done().says(&["continuing from"]);
    assert!(fs::read(&ply).unwrap() == mesh && obj.is_file(), "another mesh");
    refined(&place, &requested).done().says(&["is complete already"]);
    refined(&place, &["--iterations=5", "-g", "4"])
        .refused(2, &["--iterations 4, now 5", "--gaussians-per-triangle 1, now 4", "--overwrite"]);
    let again = refined(&place, &["--iterations=5", "--overwrite", "True"]).done();
    again.says(&["poisson.previous_1"]);
    assert!(point_cloud(&place, 5).exists() && !point_cloud(&place, 4).exists());
    let aside = folder(&place).with_file_name("poisson.previous_1");
    assert!(aside.join("point_cloud/iteration_4/point_cloud.ply").exists());
}

#[test]
fn a_killed_refinement_ends_in_the_same_bytes() {
    let (whole, killed) = (ball_place(), ball_place());
    let flags = ["--iterations=24", "--checkpoint-interval=6"];
    refined(&whole, &flags).done();
    let mut command = program(&[]);
    command.args(["refine", "--device=cpu", "--quiet", "-m"]).arg(killed.model()).args(flags);
    let has_checkpoint = || {
        [6, 12, 18].iter().any(|iteration| {
            folder(&killed).join(format!("checkpoints/chkpnt_{iteration}.safetensors")).exists()
        })
    };
    kill(&mut started_once(command, "a checkpoint", has_checkpoint));
    assert!(!point_cloud(&killed, 24).exists(), "it was over before it was killed");
    refined(&killed, &flags).done().says(&["continuing from", "resumed at"]);
    let results = |place: &TestFolder| {
        [point_cloud(place, 24), folder(place).join("mesh.ply")].map(|path| fs::read(path).unwrap())
    };
    assert!(results(&whole) == results(&killed));
    let psnr = |place: &TestFolder| record(place)["after"]["psnr"].as_f64();
    assert_eq!(psnr(&whole), psnr(&killed));
    assert_eq!(fs::read_dir(folder(&killed).join("checkpoints")).unwrap().count(), 1);
}

#[test]
fn an_interrupted_refinement_says_how_to_go_on() {
    let place = ball_place();
    let mut command = program(&[]);
    command.args(["refine", "--device=cpu", "-m"]).arg(place.model());
    command.args(["--iterations=1000000", "-g", "3", "--overwrite", "--checkpoint-interval=2"]);
    let child = started_until(command, &folder(&place).join("checkpoints"));
    send("INT", &child);
    ended(child)
        .omits(&["--overwrite"])
        .refused(130, &["splat refine", "--gaussians-per-triangle=3", "--iterations=1000000"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_limit_below_the_mesh_is_refused_and_the_proposed_one_holds() {
    let place = ball_place();
    let flags = ["--iterations=2", "-g=6"];
    let parts = ["--host-limit 1MiB", "cannot be kept", "the mesh, and what is learned of it"];
    let refused = refined(&place, &[&flags[..], &["--host-limit=1MiB"]].concat());
    let refused = refused.refused(4, &parts);
    assert!(!place.model().join("refined").exists(), "something was written");
    let limit = format!("--host-limit={}MiB", refused.proposed_limit());
    refined(&place, &[&flags[..], &[&limit, "--give-up=slack,births"]].concat())
        .done()
        .says(&["--give-up births has no effect here"]);
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let place = ball_place();
    refined(&place, &["--iterations=4"]).done();
    let written = fs::read(point_cloud(&place, 4)).unwrap();
    let checkpoint = folder(&place).join("checkpoints/chkpnt_4.safetensors");
    cut(&checkpoint, 1000);
    let path = folder(&place).join("refine.json");
    let mut begun = record(&place);
    begun["results"] = Value::Null;
    fs::write(&path, begun.to_string()).unwrap();
    refined(&place, &["--iterations=4"]).done().says(&["chkpnt_4", "passed over"]);
    assert!(fs::read(point_cloud(&place, 4)).unwrap() == written);
    fs::write(&path, "{").unwrap();
    refined(&place, &["--iterations=4"]).refused(3, &["refine.json", "cannot be used"]);
}

/// A mesh of two triangles before the cameras.
fn square() -> Mesh {
    Mesh {
        vertices: vec![[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [1.0, 1.0, 0.0]],
        faces: vec![[0, 1, 2], [2, 1, 3]],
        ..Mesh::default()
    }
}

fn write(path: &Path, mesh: &Mesh) {
    write_mesh_ply(&mut fs::File::create(path).unwrap(), mesh).unwrap();
}

#[test]
fn a_mesh_without_colours_takes_those_of_the_model() {
    let place = ball_place();
    let path = place.path("square.ply");
    write(&path, &square());
    let flags = ["--mesh_path", text(&path), "--iterations=1", "-g=6", "--formats=obj"];
    refined(&place, &flags).done().says(&["has no vertex colours", "2 triangles, 12 Gaussians"]);
    let folder = place.model().join("refined/iteration_1/square");
    assert!(folder.join("mesh.obj").exists() && !folder.join("mesh.ply").exists());
}

#[test]
fn what_cannot_be_refined_is_named() {
    let place = ball_place();
    let file = |name: &str, mesh: &Mesh| write(&place.path(name), mesh);
    file("points.ply", &Mesh { faces: Vec::new(), ..square() });
    file("flat.ply", &Mesh { faces: vec![[0, 1, 1], [2, 2, 3]], ..square() });
    let mut broken = square();
    broken.vertices[2][1] = 0.25;
    file("broken.ply", &broken);
    patch(&place.path("broken.ply"), &0.25_f32.to_le_bytes(), &f32::NAN.to_le_bytes());
    fs::write(place.path("mesh.glb"), b"glTF").unwrap();
    for (name, line) in [
        ("nan.obj", "v 0 nan 0 1 1 1"),
        ("far.obj", "v 0 0 1e20 1 1 1"),
        ("colour.obj", "v 0 0 1 inf 1 1"),
        ("corner.obj", "f 1 2 9"),
        ("word.obj", "v 0 0 x"),
    ] {
        let corners = "v 0 0 0 0.5 0.5 0.5\nv 1 0 0 0.5 0.5 0.5\nv 0 1 0 0.5 0.5 0.5\n";
        fs::write(place.path(name), format!("{corners}{line}\nf 1 2 3\n")).unwrap();
    }
    let cases: [(&str, i32, &[&str]); 16] = [
        ("--mesh nan.obj", 3, &["nan.obj", "NaN"]),
        ("--mesh far.obj", 3, &["far.obj", "1e20"]),
        ("--mesh colour.obj", 3, &["colour.obj", "colours"]),
        ("--mesh corner.obj", 3, &["corner.obj", "line 4", "vertex 9"]),
        ("--mesh word.obj", 3, &["word.obj", "line 4", "\"x\""]),
        ("--mesh mesh.glb", 3, &["mesh.glb", "PLY or OBJ"]),
        ("--mesh points.ply", 3, &["points.ply", "no faces"]),
        ("--mesh flat.ply", 3, &["flat.ply", "zero triangles"]),
        ("--mesh broken.ply", 3, &["broken.ply", "NaN"]),
        ("--mesh missing.ply", 3, &["missing.ply", "cannot be read"]),
        ("-g 2", 2, &["--gaussians-per-triangle is 2", "1, 3, 4 and 6"]),
        ("--low-poly --high-poly", 2, &["--low-poly", "--high-poly"]),
        ("--iterations=0", 2, &["--iterations is 0"]),
        ("--vertices=3", 2, &["--vertices is 3"]),
        ("--normal-consistency=-1", 2, &["--normal-consistency is -1"]),
        ("--refinement-time=forever", 2, &["--refinement-time", "short"]),
    ];
    for (line, code, parts) in cases {
        let flags: Vec<&str> = line.split(' ').collect();
        refined(&place, &flags).refused(code, parts);
    }
    assert!(!place.model().join("refined").exists(), "something was written");
    let [first, seventh] =
        [1, 7].map(|number| place.path(&format!("model/mesh/iteration_{number}")));
    fs::rename(first, seventh).unwrap();
    refined(&place, &[]).refused(3, &["no mesh of iteration 1", "splat mesh -m", "--iteration 7"]);
}

#[test]
fn a_preset_decimates_and_flags_win_over_it() {
    let place = ball_place();
    let flags =
        ["--low_poly", "True", "--vertices=60", "--refinement-time=short", "--iterations=1"];
    refined(&place, &flags).done().says(&["decimated from"]);
    let mesh = read_mesh(&folder(&place).join("mesh.ply")).unwrap();
    assert!((40..=80).contains(&mesh.vertices.len()), "{}", mesh.vertices.len());
    let gaussians = read_ply(&point_cloud(&place, 1)).unwrap();
    assert_eq!(gaussians.len(), 6 * mesh.faces.len());
    let thickness = gaussians.log_scales[0].exp().to_f64();
    assert!(thickness > 1e-7 && thickness < 1e-4, "{thickness}");
}
