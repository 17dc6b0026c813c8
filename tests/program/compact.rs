//! `--optimize-memory` on the processor: the state that a GPU keeps, in as many bytes.

use std::fs;

use crate::common::program::TestFolder;
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
