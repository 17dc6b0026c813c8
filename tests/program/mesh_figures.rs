//! `splat eval --geometry`: figures of a mesh against the truth.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::program::{Ended, TestFolder, end, splat, text};
use serde_json::Value;
use splat_mesh::Mesh;
use splat_mesh::file::{read_mesh, write_ply};

/// A scene of a sphere with its truth, and a model of it.
fn place() -> TestFolder {
    static SPHERE: OnceLock<TestFolder> = OnceLock::new();
    let made = SPHERE.get_or_init(|| {
        let place = TestFolder::empty();
        let mut command = splat();
        command.args(["synth", "--scene=sphere", "--views=4", "--width=24", "--height=18"]);
        command.args(["--points=20", "--truth-cells=40", "--gaussian-count=100"]);
        command.arg("--gaussians").arg(place.model()).arg("-o").arg(place.scene());
        end(&mut command).done();
        place
    });
    let place = TestFolder::beside(made);
    fs::create_dir(place.model()).unwrap();
    fs::copy(made.model().join("config.toml"), place.model().join("config.toml")).unwrap();
    place
}

fn truth(place: &TestFolder) -> PathBuf {
    place.scene().join("truth.ply")
}

fn eval(place: &TestFolder, flags: &[&str]) -> Ended {
    let mut command = splat();
    command.args(["eval", "-m"]).arg(place.model()).arg("--geometry").arg(truth(place));
    end(command.args(flags))
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

fn write(path: &Path, mesh: &Mesh) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_ply(&mut BufWriter::new(fs::File::create(path).unwrap()), mesh).unwrap();
}

/// The truth, this much larger and moved.
fn scaled(place: &TestFolder, factor: f32, shift: [f32; 3]) -> Mesh {
    let mut mesh = read_mesh(&truth(place)).unwrap();
    for vertex in &mut mesh.vertices {
        *vertex = std::array::from_fn(|axis| factor * vertex[axis] + shift[axis]);
    }
    mesh
}

fn number(figures: &Value, pointer: &str) -> f64 {
    figures.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}"))
}

#[test]
fn the_truth_against_itself_has_no_distance() {
    let place = place();
    let ended = eval(&place, &["--json", "--mesh", text(&truth(&place))]).done();
    let figures = json(&ended);
    for over in ["uniform", "visible", "scan/figures"] {
        // The places of vertices are single precision.
        assert!(number(&figures, &format!("/{over}/chamfer")) < 1e-6, "{over}");
        for score in 0..3 {
            assert_eq!(number(&figures, &format!("/{over}/scores/{score}/f_score")), 1.0);
        }
    }
    assert_eq!(number(&figures, "/scan/mesh_only") + number(&figures, "/scan/truth_only"), 0.0);
    assert_eq!(number(&figures, "/report/genus"), 0.0);
    // --json leaves the same figures in the model folder.
    let kept: Value =
        serde_json::from_slice(&fs::read(place.model().join("geometry.json")).unwrap()).unwrap();
    assert_eq!(kept, figures);
}

#[test]
fn a_larger_sphere_is_as_far_as_it_is_larger_until_it_is_aligned() {
    let place = place();
    let mesh = place.path("larger.ply");
    write(&mesh, &scaled(&place, 1.01, [0.0; 3]));
    let flags = ["--json", "--threshold=0.02", "--mesh", text(&mesh)];
    let figures = json(&eval(&place, &flags).done());
    for pointer in ["/uniform/chamfer", "/uniform/accuracy/median", "/visible/completeness/mean"] {
        // Faces of 40 cells lie up to 3e-4 below the sphere, these and those.
        let found = number(&figures, pointer);
        assert!((found - 0.01).abs() < 2e-4, "{pointer}: {found}");
    }
    // The diagonal is 2 √3: at 0.2 % nothing agrees, at 0.5 % all does.
    assert!((number(&figures, "/diagonal") - 12_f64.sqrt()).abs() < 2e-3);
    let scores = [0, 1, 3].map(|i| number(&figures, &format!("/uniform/scores/{i}/f_score")));
    assert_eq!(scores, [0.0, 1.0, 1.0]);
    assert_eq!(number(&figures, "/uniform/scores/3/threshold"), 0.02);

    write(&mesh, &scaled(&place, 1.05, [0.02, -0.01, 0.03]));
    let aligned = eval(&place, &["--align=icp", "--mesh", text(&mesh)]).done();
    assert!(aligned.stdout.contains("moved onto the truth: scale 0.952"), "{}", aligned.stdout);
    let kept = fs::read(place.model().join("geometry.json")).unwrap();
    let figures: Value = serde_json::from_slice(&kept).unwrap();
    assert!((1.05 * number(&figures, "/alignment/scale") - 1.0).abs() < 1e-4);
    assert!(number(&figures, "/uniform/chamfer") < 5e-4);
}

#[test]
fn the_table_has_units_and_the_mesh_is_the_newest_of_the_model() {
    let place = place();
    let mesh = |name: &str| place.model().join("mesh").join(name);
    write(&mesh("iteration_900/tsdf.ply"), &scaled(&place, 1.2, [0.0; 3]));
    write(&mesh("iteration_1000/poisson.ply"), &scaled(&place, 1.1, [0.0; 3]));
    let newest = mesh("iteration_1000/tsdf.ply");
    write(&newest, &scaled(&place, 1.01, [0.0; 3]));
    let later = fs::metadata(mesh("iteration_1000/poisson.ply")).unwrap().modified().unwrap();
    let later = later + std::time::Duration::from_secs(60);
    fs::File::open(&newest).unwrap().set_modified(later).unwrap();
    fs::write(mesh("iteration_1000/tsdf.glb"), "another form of it").unwrap();
    let ended = eval(&place, &[]).done();
    for part in [
        text(&newest),
        text(&truth(&place)),
        "seen by cameras",
        "virtual scan",
        "Chamfer",
        "(0.28",
        "F-score at 0.01732",
        "normals agree",
        "watertight",
        "genus 0",
    ] {
        assert!(ended.stdout.contains(part), "{part} is missing:\n{}", ended.stdout);
    }
    let longest = ended.stdout.lines().skip(2).map(|line| line.chars().count()).max();
    assert!(longest < Some(220), "{}", ended.stdout);
    let other = json(&eval(&place, &["--json", "--iteration=900"]).done());
    assert_eq!(other["mesh"], text(&mesh("iteration_900/tsdf.ply")));
    eval(&place, &["--iteration=7"]).refused(3, &["iteration 7", "splat mesh -m"]);
}

#[test]
fn what_cannot_be_measured_is_named_with_what_to_do() {
    let place = place();
    eval(&place, &[]).refused(3, &[text(&place.model()), "splat mesh -m", "--mesh"]);
    let file = |name: &str, content: &[u8]| {
        let path = place.path(name);
        fs::write(&path, content).unwrap();
        path
    };
    let words = file("words.ply", b"these are words");
    eval(&place, &["--mesh", text(&words)]).refused(3, &[text(&words), "line 1"]);
    let points = b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n\
                   property float z\nend_header\n0 0 0\n";
    let points = file("points.ply", points);
    eval(&place, &["--mesh", text(&points)]).refused(3, &[text(&points), "faces"]);
    let flat = place.path("flat.ply");
    write(&flat, &scaled(&place, 0.0, [0.0; 3]));
    eval(&place, &["--mesh", text(&flat)]).refused(3, &["mesh has no area"]);
    let glb = file("mesh.glb", b"glTF");
    eval(&place, &["--mesh", text(&glb)]).refused(3, &[text(&glb), "PLY or OBJ"]);
    let missing = place.path("missing.ply");
    eval(&place, &["--mesh", text(&missing)]).refused(3, &[text(&missing)]);
    let truth = truth(&place);
    let named = ["--mesh", text(&truth)];
    for threshold in ["--threshold=0", "--threshold=-1", "--threshold=nan"] {
        eval(&place, &[&named[..], &[threshold]].concat()).refused(2, &["threshold", "above 0"]);
    }
    eval(&place, &[&named[..], &["--align=by-eye"]].concat()).refused(2, &["by-eye", "icp"]);
    let mut alone = splat();
    alone.args(["eval", "-m"]).arg(place.model()).args(named);
    end(&mut alone).refused(2, &["--geometry"]);
    assert!(!place.model().join("geometry.json").exists());
    fs::remove_file(place.model().join("config.toml")).unwrap();
    eval(&place, &named).refused(2, &["-s SCENE"]);
    eval(&place, &[&named[..], &["-s", text(&place.scene())]].concat()).done();
}
