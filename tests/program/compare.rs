//! `summary.json`, and `splat compare`.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use rstest::rstest;
use serde_json::{Value, json};
use splat_mesh::Mesh;
use splat_mesh::file::{read_mesh, write_ply};

use crate::common::program::{Ended, TestFolder, Text as _, end, splat, text};
use crate::synthetic_scenes::{fixture, with_model};

/// Two runs with held-out views, of which the second is longer.
static RUNS: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("compared", |place| {
        place.trained_into("a", 20, &["--preset=reference", "--eval", "--iterations=20"]);
        place.trained_into("b", 30, &["--preset=reference", "--eval", "--feature-lr=0.005"]);
    })
});

fn summary(place: &TestFolder, model: &str) -> Value {
    place.json(&format!("{model}/summary.json"))
}

fn compare(paths: &[&Path], flags: &[&str]) -> Ended {
    end(splat().arg("compare").args(paths).args(flags))
}

/// Summaries beside each other: that of the first run, and what is made of it.
struct Pair {
    place: TestFolder,
    kept: Value,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { place: TestFolder::empty(), kept: summary(&RUNS, "a") };
        pair.write("kept.json", &pair.kept);
        pair
    }

    fn write(&self, name: &str, summary: &Value) -> PathBuf {
        let path = self.place.path(name);
        fs::write(&path, summary.to_string()).unwrap();
        path
    }

    /// Compares what is made of the summary with the summary.
    fn changed(&self, change: impl FnOnce(&mut Value), flags: &[&str]) -> Ended {
        let mut changed = self.kept.clone();
        change(&mut changed);
        let path = self.write("changed.json", &changed);
        compare(&[&self.place.path("kept.json"), &path], flags)
    }

    /// Compares the summary with one that has another value of a metric of the held-out views.
    fn scaled(&self, metric: &str, factor: f64, flags: &[&str]) -> Ended {
        let value = self.kept["metrics"]["test"][metric].as_f64().unwrap();
        self.changed(|it| it["metrics"]["test"][metric] = json!(value * factor), flags)
    }
}

#[test]
fn a_run_leaves_its_figures_in_one_file() {
    let found = summary(&RUNS, "b");
    assert_eq!(found["metrics"]["test"]["psnr"], RUNS.psnr("b", 30));
    assert_eq!(found["metrics"]["test"]["iteration"], 30);
    assert_eq!((&found["state"], &found["iteration"]), (&"complete".into(), &30.into()));
    assert_eq!((&found["iterations"], &found["first_iteration"]), (&30.into(), &0.into()));
    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(found["options"]["optimize.feature_lr"], 0.005);
    assert_eq!(found["options"]["run.device"], "cpu");
    assert!(found["options"]["optimize.opacity_lr"].is_null(), "the default: {found}");
    let number = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{key}: {found}"));
    assert!(number("training_seconds") > 0.0 && number("wall_seconds") > 0.0);
    let speed = 30.0 / number("training_seconds");
    assert!((number("iterations_per_second") - speed).abs() < 1e-6 * speed);
    assert!(number("gaussians") > 0.0 && (0.0..1.0).contains(&number("mean_opacity")));
    assert!(number("peak_host") > 1e6 && found["peak_vram"].is_null());
    for name in ["total", "l1", "ssim"] {
        assert!(found["losses"][name].is_f64(), "{name}: {found}");
    }
}

#[test]
fn a_resumed_run_counts_what_it_took_before() {
    let place = with_model(10, &["--eval"]);
    let before = summary(&place, "model");
    end(place.train().args(["--eval", "--resume", "--iterations=14"])).done();
    let after = summary(&place, "model");
    assert_eq!((&after["iteration"], &after["first_iteration"]), (&14.into(), &0.into()));
    for key in ["training_seconds", "wall_seconds"] {
        assert!(after[key].as_f64() > before[key].as_f64(), "{key}: {before} {after}");
    }
    // From another checkpoint it is not known what came before.
    let path = place.model().join("summary.json");
    let known = fs::read_to_string(&path).unwrap();
    fs::write(&path, known.replace("\"iteration\": 14", "\"iteration\": 12")).unwrap();
    end(place.train().args(["--eval", "--resume", "--iterations=16"])).done();
    let after = summary(&place, "model");
    assert_eq!((&after["iteration"], &after["first_iteration"]), (&16.into(), &14.into()));
    compare(&[&place.model()], &[]).done().prints(&["of the iterations after 14"]);
    // A new run there is another one.
    place.trained(3, &[]);
    assert_eq!(summary(&place, "model")["iteration"], 3);
    assert_eq!(summary(&place, "model/previous_1")["iteration"], 16);
}

#[test]
fn runs_stand_side_by_side_with_changes_and_differences() {
    let (a, b) = (RUNS.path("a"), RUNS.path("b"));
    let shown = compare(&[&a, &b], &["--tolerance=100%"]).done().stdout;
    shown.assert_holds(&["test PSNR ↑", "test L1 ↓", "training loss ↓", "iterations a second ↑"]);
    shown.assert_holds(&["+50.00%", "optimize.feature_lr", "0.0025", "0.005"]);
    shown.assert_holds(&["no run is worse than"]);
    // They are other folders by nature.
    assert!(!shown.contains("output.model_path"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("peak of GPU memory"));
    assert_eq!(row, None, "neither run has used a GPU");
    assert!(shown.lines().all(|line| line.trim_end() == line), "{shown}");

    let markdown = compare(&[&a, &b], &["--tolerance=100%", "--markdown"]).done();
    markdown.prints(&["| --- | ---: | ---: | ---: |\n| test PSNR ↑ | "]);

    let flags = ["--baseline", text(&a), "--tolerance=100%", "--json"];
    let found = compare(&[&b], &flags).done().json();
    assert_eq!((&found["baseline"], &found["within_tolerance"]), (&text(&a).into(), &true.into()));
    assert_eq!(found["tolerance_percent"], 100.0);
    let run = &found["runs"][1];
    assert_eq!(run["path"], text(&b));
    assert_eq!(run["figures"]["iteration"]["value"], 30.0);
    assert_eq!(run["figures"]["iteration"]["change_percent"], 50.0);
    assert_eq!(run["figures"]["iteration"]["verdict"], Value::Null);
    assert_eq!(run["summary"], summary(&RUNS, "b"));
    let psnr = &run["figures"]["test.psnr"];
    assert!(["better", "worse"].contains(&psnr["verdict"].as_str().unwrap()), "{psnr}");
    assert_eq!(found["differences"]["optimize.feature_lr"], json!([0.0025, 0.005]));
}

#[rstest]
#[case::lower_psnr("psnr", 0.99)]
#[case::lower_ssim("ssim", 0.99)]
#[case::higher_lpips("lpips_vgg", 1.01)]
fn quality_outside_of_the_tolerance_ends_with_1(#[case] metric: &str, #[case] factor: f64) {
    let mut pair = Pair::new();
    pair.kept["metrics"]["test"]["lpips_vgg"] = json!(0.25);
    pair.write("kept.json", &pair.kept);
    let ended = pair.scaled(metric, factor, &[]).ends(1).prints(&["1.00% !"]);
    ended.says(&["changed.json: test ", "1.00%", "by more than 0.5%"]);
    let found = pair.scaled(metric, factor, &["--json"]).ends(1).json();
    assert_eq!(found["within_tolerance"], false);
    let key = format!("test.{metric}");
    assert_eq!(found["runs"][1]["figures"][key]["verdict"], "outside_tolerance");
    pair.scaled(metric, factor, &["--tolerance", "1.1%"]).done();
    // As much in the other direction is a gain.
    let shown = pair.scaled(metric, 2.0 - factor, &["--tolerance=0%"]).done().stdout;
    assert!(shown.contains("1.00%") && !shown.contains('!'), "{shown}");
}

#[test]
fn what_is_no_quality_or_not_known_is_no_failure() {
    let pair = Pair::new();
    for change in ["training_seconds", "wall_seconds", "gaussians"] {
        pair.changed(|it| it[change] = json!(1_000_000), &[]).done();
    }
    pair.scaled("l1", 3.0, &[]).done();
    let ended = pair.changed(|it| it["metrics"]["test"]["lpips_vgg"] = json!(0.5), &[]).done();
    let row = ended.stdout.lines().find(|line| line.starts_with("test LPIPS (vgg) ↓")).unwrap();
    let cells: Vec<_> = row.split_whitespace().skip(4).collect();
    assert_eq!(cells, ["-", "0.50000", "-"]);
    // What was measured and is no number is as bad as can be.
    let ended =
        pair.changed(|it| it["metrics"]["test"]["psnr"] = Value::Null, &["--tolerance=100%"]);
    ended.ends(1).says(&["test PSNR not finite"]);
}

#[test]
fn runs_without_quality_end_with_3_and_the_remedy_works() {
    let place = TestFolder::with_scene();
    for model in ["a", "b"] {
        place.trained_into(model, 2, &["--eval-train=0"]);
    }
    let (a, b) = (place.path("a"), place.path("b"));
    let ended = compare(&[&a, &b], &[]).ends(3).prints(&["training time"]);
    ended.says(&[text(&a), "no PSNR, SSIM or LPIPS", "splat eval -m", "--split train"]);
    // In the folder itself, it is no copy.
    let ended = compare(&[&a.join("summary.json"), &b], &[]).omits(&["copy"]);
    ended.says(&[&format!("splat eval -m {} ", text(&a))]);
    for model in ["a", "b"] {
        place.splat("eval --split=train -m", &[model]).done();
        assert!(summary(&place, model)["metrics"]["train"]["psnr"].is_f64());
    }
    compare(&[&a, &b], &["--tolerance=0%"]).done().prints(&["train PSNR ↑", "0.00%"]);
    // One run is only shown.
    compare(&[&a], &[]).done();
    // Its training views say nothing of another's held-out ones.
    let ended = compare(&[&RUNS.path("a"), &b], &[]);
    ended.ends(3).says(&["measured on different views", "splat eval"]);
}

#[test]
fn quality_of_other_views_is_not_compared() {
    let place = TestFolder::beside(&RUNS);
    let a = RUNS.path("a");
    let found = &summary(&RUNS, "a")["metrics"]["test"]["views"];
    assert_eq!((&found["count"], &found["largest_px"]), (&json!(1), &json!([48, 36])), "{found}");
    let note =
        "its test views are not those of the baseline, so their figures cannot be compared: ";
    for (model, flags, words) in [
        ("more", &["--test-views=3"][..], "3 views of up to 48x36 px"),
        ("smaller", &["--eval", "-r=2"], "1 view of up to 24x18 px"),
    ] {
        place.trained_into(model, 2, flags);
        let model = place.path(model);
        // Not even where all loss is accepted.
        let difference = format!("{words}, and 1 view of up to 48x36 px of the baseline");
        let ended = compare(&[&a, &model], &["--tolerance=100%"]).ends(3);
        let ended = ended.prints(&[&format!("{note}{difference}")]);
        let row = ended.stdout.lines().find(|line| line.starts_with("test PSNR ↑")).unwrap();
        assert_eq!(row.split_whitespace().last(), Some("-"), "no change is shown: {row}");
        ended.says(&["their test views differ", &difference, "Train one again"]);
        let found = compare(&[&a, &model], &["--json"]).ends(3).json();
        assert_eq!(found["within_tolerance"], Value::Null);
        assert_eq!(found["runs"][1]["figures"]["test.psnr"]["change_percent"], Value::Null);
    }
    let pair = Pair::new();
    let renamed =
        |split: &str| pair.changed(|it| it["metrics"][split]["views"]["digest"] = json!("0"), &[]);
    // By name alone.
    renamed("test").ends(3).prints(&["1 view of up to 48x36 px by other names"]);
    // Training views are no gate where held-out ones are compared.
    renamed("eval_train").done().prints(&["its eval_train views are not those"]);
    // A summary of an older version does not say.
    let older = pair.changed(|it| it["metrics"]["test"]["views"] = Value::Null, &[]);
    older.done().prints(&["which test views it was measured on is not known"]);
}

#[test]
fn a_tolerance_of_0_accepts_no_loss_however_small() {
    let pair = Pair::new();
    for zero in ["--tolerance=0", "--tolerance=0%"] {
        pair.scaled("psnr", 1.0, &[zero]).done();
        pair.scaled("psnr", 1.0 - 1e-13, &[zero]).ends(1).prints(&["!"]).omits(&["0.00%"]);
    }
    pair.scaled("psnr", 1.0 - 1e-13, &["--tolerance=0.1%"]).done();
}

#[test]
fn the_remedy_for_a_file_names_its_model_folder() {
    let pair = Pair::new();
    let ended = pair.changed(|it| it["metrics"] = json!({}), &[]).ends(3);
    let command = format!("splat eval -m {} ", text(&RUNS.path("a")));
    let ended = ended.says(&["changed.json: has no PSNR", &command]);
    // Figures that are measured there are not in the copy.
    let then = format!("changed.json is a copy: compare {} then", text(&RUNS.path("a")));
    assert!(ended.stderr.trim_end().ends_with(&then), "{ended:#?}");
    let kept = pair.place.path("kept");
    fs::create_dir(&kept).unwrap();
    fs::copy(pair.place.path("changed.json"), kept.join("summary.json")).unwrap();
    for path in [kept.clone(), kept.join("summary.json")] {
        let parts = [&command, " is a copy: compare "];
        compare(&[&pair.place.path("kept.json"), &path], &[]).says(&parts);
    }
    let others = |it: &mut Value| {
        let figures = it["metrics"]["test"].take();
        it["metrics"] = json!({ "train": figures });
    };
    pair.changed(others, &[]).says(&["Measure both alike", "kept.json is a copy", &then]);
}

#[test]
fn the_remedy_for_a_file_from_elsewhere_says_what_to_do_there() {
    let pair = Pair::new();
    let moved = |folder: Value| {
        let change = |it: &mut Value| {
            it["metrics"] = json!({});
            it["options"]["output.model_path"] = folder;
        };
        pair.changed(change, &[])
    };
    let away = "is a copy: /gone/model is not on this machine: measure it where it is, and copy";
    moved(json!("/gone/model")).says(&["Run splat eval -m /gone/model (", away]);
    let unnamed = "changed.json does not name its model folder: put that in place of MODEL";
    moved(Value::Null).says(&["Run splat eval -m MODEL (", unnamed]);
}

#[test]
fn a_run_that_is_not_finished_is_named() {
    let pair = Pair::new();
    for (state, words) in
        [("training", "20 of 50 iterations"), ("interrupted", "interrupted after 20")]
    {
        let change = |it: &mut Value| (it["state"], it["iterations"]) = (json!(state), json!(50));
        let parts = ["changed.json: it is not finished", words];
        pair.changed(change, &[]).done().prints(&parts);
    }
    let shown = pair.changed(|it| it["metrics"]["test"]["iteration"] = json!(7), &["--markdown"]);
    shown.done().prints(&["measured at iteration 7, those of the baseline at 20"]);
}

#[test]
fn what_is_no_run_is_refused_by_name() {
    let place = TestFolder::empty();
    let kept = RUNS.path("a");
    let missing = place.path("nowhere");
    compare(&[&kept, &kept], &[]).refused(2, &["is named twice"]);
    compare(&[&kept, &missing], &[]).refused(3, &[text(&missing), "summary.json", "no such file"]);
    compare(&[&kept], &["--baseline", text(&missing)]).refused(3, &[text(&missing)]);
    let old = place.path("old");
    fs::create_dir(&old).unwrap();
    fs::write(old.join("run.jsonl"), "").unwrap();
    compare(&[&old], &[]).refused(3, &[text(&old), "older version"]);
    for (content, reason) in [
        ("", "it is empty"),
        ("{}", "missing field"),
        ("{\"version\":", "ends too early"),
        ("ply\n\u{1}", "line 1"),
        ("[1]", "not hold a JSON object"),
        ("[]", "not hold a JSON object"),
    ] {
        fs::write(old.join("summary.json"), content).unwrap();
        compare(&[&kept, &old], &[]).refused(3, &[text(&old), "not the summary of a run", reason]);
    }
    let null = Path::new("/dev/null");
    compare(&[&kept, null], &[]).refused(3, &["/dev/null: is not the summary", "it is empty"]);
    compare(&[&RUNS.ply_of("a", 20)], &[]).refused(3, &["not the summary of a run"]);
    compare(&[&kept], &["--json", "--markdown"]).refused(2, &["--json"]);
    for flags in [&["--tolerance", "0.5"][..], &["--tolerance=-1%"], &["--tolerance", "-1%"]] {
        let parts = ["--tolerance", "is not a tolerance", "from 0% to 100%"];
        compare(&[&kept], flags).refused(2, &parts);
    }
    end(splat().arg("compare")).refused(2, &["RUN"]);
}

// `splat eval --geometry`: figures of a mesh against the truth.

/// A scene of a sphere with its truth, and a model of it.
fn place() -> TestFolder {
    static SPHERE: OnceLock<TestFolder> = OnceLock::new();
    let made = SPHERE.get_or_init(|| {
        let place = TestFolder::empty();
        let line = "synth --scene=sphere --views=4 --width=24 --height=18 --points=20 \
                    --truth-cells=40 --gaussian-count=100 --gaussians MODEL -o SCENE";
        place.splat(line, &[]).done();
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
    place.splat("eval -m MODEL --geometry", &[&[text(&truth(place))], flags].concat())
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
    let figures = eval(&place, &["--json", "--mesh", text(&truth(&place))]).done().json();
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
    assert_eq!(place.json("model/geometry.json"), figures);
}

#[test]
fn a_larger_sphere_is_as_far_as_it_is_larger_until_it_is_aligned() {
    let place = place();
    let mesh = place.path("larger.ply");
    write(&mesh, &scaled(&place, 1.01, [0.0; 3]));
    let flags = ["--json", "--threshold=0.02", "--mesh", text(&mesh)];
    let figures = eval(&place, &flags).done().json();
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
    aligned.prints(&["moved onto the truth: scale 0.952"]);
    let figures = place.json("model/geometry.json");
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
    ended.stdout.assert_holds(&[
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
    ]);
    let longest = ended.stdout.lines().skip(2).map(|line| line.chars().count()).max();
    assert!(longest < Some(220), "{}", ended.stdout);
    let other = eval(&place, &["--json", "--iteration=900"]).done().json();
    assert_eq!(other["mesh"], text(&mesh("iteration_900/tsdf.ply")));
    eval(&place, &["--iteration=7"]).refused(3, &["iteration 7", "splat mesh -m"]);
}

#[test]
fn what_cannot_be_measured_is_named_with_what_to_do() {
    let place = place();
    eval(&place, &[]).refused(3, &[text(&place.model()), "splat mesh -m", "--mesh"]);
    let points = b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n\
                   property float z\nend_header\n0 0 0\n";
    let file = |name: &str, content: &[u8]| fs::write(place.path(name), content).unwrap();
    file("words.ply", b"these are words");
    file("points.ply", points);
    file("mesh.glb", b"glTF");
    write(&place.path("flat.ply"), &scaled(&place, 0.0, [0.0; 3]));
    let cases: [(&str, &[&str]); 5] = [
        ("words.ply", &["words.ply", "line 1"]),
        ("points.ply", &["points.ply", "faces"]),
        ("flat.ply", &["mesh has no area"]),
        ("mesh.glb", &["mesh.glb", "PLY or OBJ"]),
        ("missing.ply", &["missing.ply"]),
    ];
    for (name, parts) in cases {
        eval(&place, &["--mesh", name]).refused(3, parts);
    }
    let truth = truth(&place);
    let named = ["--mesh", text(&truth)];
    for threshold in ["--threshold=0", "--threshold=-1", "--threshold=nan"] {
        eval(&place, &[&named[..], &[threshold]].concat()).refused(2, &["threshold", "above 0"]);
    }
    eval(&place, &[&named[..], &["--align=by-eye"]].concat()).refused(2, &["by-eye", "icp"]);
    place.run("eval", &named).refused(2, &["--geometry"]);
    assert!(!place.model().join("geometry.json").exists());
    fs::remove_file(place.model().join("config.toml")).unwrap();
    eval(&place, &named).refused(2, &["-s SCENE"]);
    eval(&place, &[&named[..], &["-s", text(&place.scene())]].concat()).done();
}
