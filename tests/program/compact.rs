//! `--optimize-memory` on the processor: the state that a GPU keeps, in as many bytes.

use std::fs;

use crate::common::program::{TestFolder, end, splat};
use serde_json::Value;
use splat::export::read_ply;
use splat::math::compact::{NEAREST, decode_half, encode_half};
use splat::model::Gaussians;

const ITERATIONS: u32 = 90;
const FLAGS: [&str; 6] = [
    "--eval",
    "--densify-from-iter=40",
    "--densification-interval=30",
    "--densify-grad-threshold=0.00005",
    "--opacity-reset-interval=60",
    "--sh-degree-interval=30",
];

fn model(place: &TestFolder, name: &str) -> Gaussians {
    read_ply(&place.ply_of(name, ITERATIONS)).unwrap()
}

fn psnr(place: &TestFolder, name: &str) -> f64 {
    let text = fs::read_to_string(place.path(name).join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let found = results.as_object().unwrap().values().find_map(|run| run["PSNR"].as_f64());
    found.unwrap_or_else(|| panic!("{text}"))
}

/// Bytes of the model a Gaussian, as the log has them.
fn bytes_each(place: &TestFolder, name: &str) -> u64 {
    let log = fs::read_to_string(place.path(name).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let memory = events.rev().find(|event| event["event"] == "memory").unwrap();
    let tensors = &memory["tensors"];
    let bytes = tensors["parameters"].as_u64().unwrap() + tensors["optimizer"].as_u64().unwrap();
    bytes / model(place, name).len() as u64
}

fn are_halves(values: &[f32]) -> bool {
    values.iter().all(|&value| decode_half(encode_half(value, NEAREST), 1) == value)
}

#[test]
fn the_processor_keeps_the_compact_state_and_trains_as_well() {
    let place = TestFolder::with_scene();
    let compact = [&FLAGS[..], &["--optimize-memory"]].concat();
    place.trained_into("full", ITERATIONS, &FLAGS);
    let ended = place.trained_into("compact", ITERATIONS, &compact);
    assert!(!ended.stderr.contains("without effect"), "{ended:#?}");
    place.trained_into("again", ITERATIONS, &compact);

    let [full, rounded, again] = ["full", "compact", "again"].map(|name| model(&place, name));
    // Colours are in 16 bits, and nothing else is.
    assert!(are_halves(&rounded.sh_dc) && are_halves(&rounded.sh_rest));
    assert!(!are_halves(&full.sh_dc) && !are_halves(&rounded.means));
    assert_eq!(rounded, again, "rounding follows from the seed");
    // Rows that were removed leave room behind.
    assert!((716..740).contains(&bytes_each(&place, "full")));
    assert!((320..335).contains(&bytes_each(&place, "compact")));
    // Rounding is unbiased: what is learned is as good.
    let [a, b] = ["full", "compact"].map(|name| psnr(&place, name));
    assert!((a - b).abs() < 0.5, "{a} and {b} dB");
}

#[test]
fn with_sh_only_colours_are_compact_and_a_resumed_run_is_the_same() {
    let place = TestFolder::with_scene();
    let half = [&FLAGS[..], &["--optimize-memory", "sh"]].concat();
    place.trained_into("half", ITERATIONS, &half);
    let rounded = model(&place, "half");
    assert!(are_halves(&rounded.sh_dc) && are_halves(&rounded.sh_rest));
    assert!(!are_halves(&rounded.means));
    assert!((620..644).contains(&bytes_each(&place, "half")));
    let config = fs::read_to_string(place.path("half/config.toml")).unwrap();
    assert!(config.contains("optimize_memory = \"sh\""), "{config}");

    place.trained_into("stopped", 50, &half);
    let mut resumed = place.train_into("stopped");
    resumed.args(["--resume", "--iterations", &ITERATIONS.to_string()]);
    end(&mut resumed).done();
    let ply = |name: &str| fs::read(place.ply_of(name, ITERATIONS)).unwrap();
    assert!(ply("half") == ply("stopped"), "moments are in full precision");
}

#[test]
fn a_new_run_is_compact_on_gpus_only() {
    let place = TestFolder::with_scene();
    place.trained_into("usual", ITERATIONS, &["--preset=fast"]);
    let config = fs::read_to_string(place.path("usual/config.toml")).unwrap();
    assert!(config.contains("optimize_memory = \"auto\""), "{config}");
    let trained = model(&place, "usual");
    assert!(!are_halves(&trained.sh_dc), "the CPU trains in full precision");
    let plan = |flags: &[&str]| {
        let mut plan = splat();
        plan.args(["plan", "--gaussians=1000000", "-s"]).arg(place.scene()).args(flags);
        end(&mut plan).done().stdout
    };
    assert!(plan(&[]).contains("SH degree 3, --optimize-memory\n"));
    assert!(plan(&["--optimize-memory=false"]).contains("SH degree 3, full precision"));
    assert!(plan(&["--preset=reference"]).contains("SH degree 3, full precision"));
}

#[test]
fn what_can_be_compact_is_said() {
    let place = TestFolder::with_scene();
    end(place.train().arg("--optimize-memory=colours"))
        .refused(2, &["--optimize-memory", "write true, false, auto or sh"]);
    fs::write(place.path("run.toml"), "[memory]\noptimize_memory = \"colours\"\n").unwrap();
    end(place.train().arg("--config").arg(place.path("run.toml")))
        .refused(2, &["run.toml", "optimize_memory", "\"sh\""]);
}
