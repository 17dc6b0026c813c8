//! `--offload`: what is planned of it on both sides of the bus, and what it does where there is no bus.

use std::fs;

use crate::common::program::{Ended, TestFolder, end, splat, text};
use serde_json::Value;
use splat::export::write_ply;
use splat::model::Gaussians;

const GAUSSIANS: u64 = 1 << 20;

fn plan(place: &TestFolder, flags: &[&str]) -> Ended {
    let number = format!("--gaussians={GAUSSIANS}");
    end(splat().args(["plan", "-s", text(&place.scene()), &number]).args(flags))
}

fn json(place: &TestFolder, flags: &[&str]) -> Value {
    let ended = plan(place, &[flags, &["--json"]].concat()).done();
    serde_json::from_str(&ended.stdout).unwrap()
}

fn bytes(rows: &Value, label: &str) -> Option<u64> {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["label"] == label).map(|row| row["bytes"].as_u64().unwrap())
}

#[test]
fn a_plan_takes_colours_off_the_gpu_and_shows_them_on_the_host() {
    let place = TestFolder::with_scene();
    let [compact, offloaded] = [&["--optimize-memory"][..], &["--offload=sh"]]
        .map(|flags| json(&place, &[flags, &["--vram-limit=16GiB"]].concat()));
    assert_eq!(
        (&compact["storage"], &offloaded["storage"]),
        (&"compact".into(), &"offloaded".into())
    );
    let host = "colours and their moments";
    assert_eq!(bytes(&compact["host"], host), None);
    // 24, 13 and 13 words.
    assert_eq!(bytes(&offloaded["host"], host), Some(200 * GAUSSIANS));
    let least = |report: &Value| report["least"].as_u64().unwrap();
    // The GPU holds a sixteenth of them, 12.5 MiB, and numbers of the 32,768 lane blocks, in granules of 2 MiB.
    assert_eq!(least(&compact) - least(&offloaded), 200 * GAUSSIANS - (14 << 20));
    for stage in offloaded["stages"].as_array().unwrap() {
        assert_eq!(bytes(&stage["rows"], "sh"), None, "{stage}");
        assert!(bytes(&stage["rows"], "geometry") > Some(0), "{stage}");
    }
    let largest = |report: &Value, key: &str| report["largest"][0][key].as_u64();
    assert_eq!(largest(&compact, "offloaded"), None);
    let [with, without] = ["offloaded", "compact"].map(|key| largest(&offloaded, key).unwrap());
    assert!(with as f64 > 1.4 * without as f64, "{with} beside {without}");
    // As many fit and no more.
    let fits = |count: u64| {
        let number = format!("--max-points={count}");
        let flags =
            ["plan", "-s", text(&place.scene()), &number, "--offload=sh"].map(str::to_owned);
        end(splat().args(flags).arg("--vram-limit=16GiB")).code
    };
    assert_eq!([fits(with), fits(with + 1000)], [Some(0), Some(4)]);
    let shown = plan(&place, &["--offload=sh"]).done().stdout;
    for part in
        ["SH degree 3, --offload sh", "--optimize-memory     --offload sh", host, "GiB of RAM"]
    {
        assert!(shown.contains(part), "no `{part}` in\n{shown}");
    }
}

#[test]
fn a_plan_for_ranks_has_the_share_of_each_on_the_gpu() {
    let place = TestFolder::with_scene();
    let flags = ["--offload=sh", "--optimize-memory=true", "--gpus=4"];
    let [compact, offloaded] =
        [&flags[1..], &flags].map(|flags| json(&place, flags)["least"].as_u64().unwrap());
    // A quarter of each table: 24, 13 and 13 MiB, less a sixteenth of that, in granules of 2 MiB.
    assert_eq!(compact - offloaded, (24 + 14 + 14 - 4) << 20);
}

#[test]
fn a_host_limit_that_colours_do_not_fit_is_refused_with_a_table() {
    let place = TestFolder::with_scene();
    let flags = ["--offload=sh", "--host-limit=150MiB"];
    let refused = plan(&place, &flags);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    refused.says(&[
        "--host-limit 150MiB (150 MiB) cannot be kept",
        "       200 MiB  colours and their moments (--offload)\n",
        "fewer Gaussians (--max-points), or --offload none",
    ]);
    plan(&place, &["--offload=none", flags[1]]).done();
    plan(&place, &[flags[0], "--host-limit=2GiB"]).done();
}

#[test]
fn what_does_not_fit_a_card_is_told_that_the_host_may_have_colours() {
    let place = TestFolder::with_scene();
    let flags = ["--optimize-memory", "--vram-limit=1GiB", "--gaussians=1800000"];
    let scene = place.scene();
    let line = ["plan", "-s", text(&scene)];
    let ended = end(splat().args(line).args(flags));
    assert_eq!(ended.code, Some(4), "{ended:#?}");
    ended.says(&["It would fit with --offload sh and 343 MiB of RAM"]);
    end(splat().args(line).args(flags).arg("--offload=sh")).done();
    // Where the rung is named, training does it by itself.
    let rungs = ["--give-up=offload,births", "--json"];
    let ended = end(splat().args(line).args(flags).args(rungs));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(report["training_ends_with"].as_u64() > Some(1_800_000), "{report}");
}

#[test]
fn the_processor_has_nowhere_to_put_colours_and_trains_as_without() {
    let place = TestFolder::with_scene();
    let said = place.trained_into("with", 20, &["--offload=sh", "--eval"]);
    said.says(&["without effect on the CPU: --offload"]);
    place.trained_into("without", 20, &["--eval"]);
    let ply = |name: &str, iteration| fs::read(place.ply_of(name, iteration)).unwrap();
    assert!(ply("with", 20) == ply("without", 20));
    let config = fs::read_to_string(place.path("with/config.toml")).unwrap();
    assert!(config.contains("offload = \"sh\""), "{config}");
    // It is no part of the model: either goes on as the other.
    for (model, flag) in [("with", "--offload=none"), ("without", "--offload=sh")] {
        let mut resumed = place.train_into(model);
        end(resumed.args(["--resume", "--iterations=30", flag])).done().says(&["iteration 20"]);
    }
    assert!(ply("with", 30) == ply("without", 30));
}

#[test]
fn what_can_be_offloaded_is_said() {
    let place = TestFolder::with_scene();
    end(place.train().arg("--offload=colours")).refused(2, &["--offload", "none, sh"]);
    fs::write(place.path("run.toml"), "[memory]\noffload = \"geometry\"\n").unwrap();
    end(place.train().arg("--config").arg(place.path("run.toml")))
        .refused(2, &["run.toml", "geometry", "sh"]);
    end(place.train().args(["--give-up", "offload,nothing"])).refused(2, &["nothing", "offload"]);
}

#[test]
fn a_model_that_is_looked_at_is_refused_a_small_limit_with_what_helps() {
    let place = TestFolder::with_scene();
    place.trained_into("model", 2, &["--offload=sh", "--eval"]);
    let count = 300_000;
    let mut gaussians = Gaussians::zeros(3, count);
    gaussians.quats = [1.0, 0.0, 0.0, 0.0].repeat(count);
    write_ply(&place.ply_of("model", 2), &gaussians).unwrap();
    let model = place.path("model");
    let eval = |limit: u64| {
        let limit = format!("--host-limit={limit}MiB");
        end(splat().args(["eval", "--device=cuda", &limit, "-m"]).arg(&model))
    };
    let refused = eval(1);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    let (_, least) = refused.stderr.split_once("Give ").unwrap();
    let least: u64 = least.split_once("MiB").unwrap().0.parse().unwrap();
    // 58 MiB are colours, which need not be there.
    let refused = eval(least - 30);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    let words = ["58 MiB  colours and their moments (--offload)", "MiB or more, or --offload none"];
    assert!(!refused.says(&words).stderr.contains("--max-points"));
}
