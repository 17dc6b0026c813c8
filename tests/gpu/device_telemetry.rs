//! What a run on a GPU tells of the GPU and its memory.

use std::fs;

use crate::common::cuda;
use crate::common::events::{events_files, values_of_tags};
use crate::common::program::{Ended, TestFolder, end, splat};
use serde_json::Value;
use splat::backend::nvidia;
use splat::backend::{Device as _, DeviceInfo};

/// Density control ends here.
const UNTIL: u64 = 1000;

/// Long enough for the management library to be opened on the way.
const ITERATIONS: u64 = 3000;

/// A run on the GPU that records its buffers, and its log.
fn run() -> (TestFolder, Ended, Vec<Value>) {
    cuda::share();
    let place = TestFolder::with_scene();
    let mut command = place.train();
    command.args(["--device", "cuda", "--eval", "--progress", "plain", "--profile-tensors"]);
    command.args(["--densify-from-iter", "100", "--densify-grad-threshold", "5e-5"]);
    command.args(["--densify-until-iter", &UNTIL.to_string()]);
    command.args(["--iterations", &ITERATIONS.to_string(), "--test-iterations", "1500"]);
    let ended = end(&mut command).done();
    let log = fs::read_to_string(place.model().join("run.jsonl")).unwrap();
    let log = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (place, ended, log)
}

fn of_kind<'a>(log: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |event| event["event"] == kind)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_run_tells_of_the_gpu_of_memory_and_of_every_buffer() {
    let (place, ended, log) = run();
    let born = |event: &Value| number(&event["cloned"]) + number(&event["split"]);
    let grown = of_kind(&log, "densified").any(|event| born(event) > 0);
    assert!(grown, "nothing was born: creep would not be put to the test");
    gpu_is_sampled(&log);
    tags_are_there(&place);
    nothing_creeps(&log);
    buffers_add_up(&log);
    profile_names_all(&place);
    evaluation_holds_no_more_than_training(&place, &ended, &log);
    let last = ended.stderr.lines().rfind(|line| line.starts_with("Training 3000/3000")).unwrap();
    assert!(!last.contains("V:-"), "{last}");
    assert_eq!(last.contains("C:-"), nvidia::list().is_err(), "{last}");
}

fn gpu_is_sampled(log: &[Value]) {
    let samples: Vec<&Value> = of_kind(log, "gpu").collect();
    if let Err(reason) = nvidia::list() {
        eprintln!("no figures of the GPU can be had here: {reason}");
        assert!(samples.is_empty(), "{samples:?}");
        return;
    }
    assert!(samples.len() >= 3, "{} samples in {ITERATIONS} iterations", samples.len());
    for sample in samples {
        assert_eq!(number(&sample["iteration"]) % 50, 0, "{sample}");
        let (used, total) = (number(&sample["memory_used"]), number(&sample["memory_total"]));
        assert!(used > 0 && used < total, "{sample}");
    }
    let uuid = of_kind(log, "started").next().unwrap()["gpu"].as_str().unwrap();
    let listed = nvidia::list().unwrap();
    assert!(listed.iter().any(|gpu| gpu.uuid.as_deref() == Some(uuid)), "{uuid}: {listed:?}");
}

fn tags_are_there(place: &TestFolder) {
    let values = values_of_tags(&events_files(&place.model())[0]);
    for tag in ["vram_allocated_gb", "vram_reserved_gb", "host_rss_gb"] {
        let reported = &values[&format!("memory/{tag}")];
        assert!(reported.iter().all(|&(_, value)| value > 0.0), "{tag}: {reported:?}");
        assert_eq!(reported.len(), 30, "{tag}");
    }
    assert_eq!(values["tensors/large_count"].len(), 30);
    for tag in ["parameters", "optimizer", "activations", "images"] {
        let reported = &values[&format!("tensors/{tag}_mb")];
        assert!(reported.iter().all(|&(_, value)| value > 0.0), "{tag}: {reported:?}");
    }
    for (_, percent) in &values["tensors/fragmentation_percent"] {
        assert!((0.0..100.0).contains(percent), "{percent}");
    }
    assert!(values["memory/vram_creep_gb"].iter().all(|&(_, creep)| creep == 0.0));
    assert!(values.contains_key("tensors/gradients_mb") && values.contains_key("memory/rung"));
}

fn nothing_creeps(log: &[Value]) {
    let steady: Vec<&Value> =
        of_kind(log, "memory").filter(|event| number(&event["iteration"]) > UNTIL + 100).collect();
    assert!(steady.len() > 15);
    for event in steady {
        assert_eq!(number(&event["vram"]["creep"]), 0, "{event}");
    }
}

/// What is mapped by the books of every buffer is what the run says it has taken.
fn buffers_add_up(log: &[Value]) {
    let mut phases = Vec::new();
    for event in of_kind(log, "buffers") {
        let after = event["after"].as_str().unwrap();
        phases.push(after);
        let entries = event["entries"].as_array().unwrap();
        let on_device = entries.iter().filter(|entry| entry["kind"] != "pinned");
        let mapped: u64 = on_device.map(|entry| number(&entry["mapped"])).sum();
        if after != "training" {
            continue;
        }
        let memory = of_kind(log, "memory").find(|it| it["iteration"] == event["iteration"]);
        assert_eq!(number(&memory.unwrap()["vram"]["reserved"]), mapped, "{event}");
        // What lives for an iteration is gone by now, but not forgotten.
        let splats = entries.iter().find(|entry| entry["label"] == "splats").unwrap();
        assert_eq!(number(&splats["bytes"]), 0, "{event}");
        assert!(number(&splats["peak"]) > 0, "{event}");
    }
    for phase in ["training", "density_control", "evaluation", "saving"] {
        assert!(phases.contains(&phase), "{phase}: {phases:?}");
    }
    assert_eq!(phases.iter().filter(|&&phase| phase == "training").count(), 30);
}

fn profile_names_all(place: &TestFolder) {
    let shown = end(splat().args(["profile", "--json"]).arg(place.model())).done().stdout;
    let profile: Value = serde_json::from_str(&shown).unwrap();
    let all: u64 = number(&profile["peak"]["bytes"]);
    let categories = profile["categories"].as_array().unwrap();
    assert_eq!(categories.iter().map(|it| number(&it["bytes"])).sum::<u64>(), all);
    let unnamed: Vec<&Value> = profile["buffers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|buffer| {
            let purpose = buffer["purpose"].as_str().unwrap();
            ["an iteration", "lives as long as the model", "page-locked memory of the host"]
                .contains(&purpose)
        })
        .map(|buffer| &buffer["label"])
        .collect();
    assert!(unnamed.is_empty(), "buffers whose purpose `splat profile` does not know: {unnamed:?}");
    let budget = number(&profile["peak"]["budget"]);
    assert!(all <= budget, "{all} bytes were taken, {budget} may be");
}

/// In every place where a run tells of the peaks of its phases.
fn evaluation_holds_no_more_than_training(place: &TestFolder, ended: &Ended, log: &[Value]) {
    let peaks = &of_kind(log, "finished").last().unwrap()["peaks"];
    let vram = |phase: &str| number(&peaks[phase]["vram"]);
    let of_training = vram("training").max(vram("density_control"));
    assert!(vram("evaluation") > 0 && vram("evaluation") <= of_training, "{peaks}");
    let summary = fs::read_to_string(place.model().join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(&summary["peaks"], peaks);
    assert!(number(&summary["peak_vram"]) >= vram("saving"), "{summary}");
    let values = values_of_tags(&events_files(&place.model())[0]);
    for phase in ["training", "density_control", "evaluation", "saving"] {
        let gib = values[&format!("memory/peak_{phase}_gb")].last().unwrap().1;
        let expected = vram(phase) as f64 / f64::from(1 << 30);
        assert!((f64::from(gib) - expected).abs() < 1e-3 * expected, "{phase}: {gib} {expected}");
    }
    assert!(ended.stderr.contains("  memory    GPU "), "{ended:#?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_gpu_that_is_watched_is_the_one_that_works() {
    let gpu = cuda::open();
    let DeviceInfo { name, uuid } = gpu.info();
    let uuid = uuid.expect("an identifier");
    match nvidia::watch(&uuid, |look| look()) {
        Ok(sample) => {
            let listed = nvidia::list().unwrap();
            let same = listed.iter().find(|it| it.uuid.as_deref() == Some(&uuid)).unwrap();
            assert!(name.starts_with(&same.name), "{name} is not {}", same.name);
            assert_eq!(sample.memory_total, Some(same.memory));
            let held = gpu.heap().total().gib();
            assert!(sample.memory_used.unwrap().gib() > 0.5 * held, "{sample:?}, we hold {held}");
        }
        Err(reason) => assert!(nvidia::list().is_err(), "{uuid}: {reason}"),
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn doctor_finds_the_gpu_and_says_that_training_runs() {
    cuda::share();
    let reported = end(splat().args(["doctor", "--json"])).done().stdout;
    let found: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(found["devices"], serde_json::json!(["cuda", "cpu"]), "{found}");
    let gpu = &found["trains_on_gpu"];
    assert!(number(&gpu["budget"]) > 0 && gpu["uuid"].as_str().unwrap().starts_with("GPU-"));
    let shown = end(splat().arg("doctor")).done().stdout;
    assert!(shown.contains("GPU        ") && shown.contains("training may take"), "{shown}");
}
