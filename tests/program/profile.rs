//! `splat profile`: what it makes of the logs of runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use splat::backend::nvidia::{GpuSample, Throttle};
use splat::backend::{MemoryEntry, MemoryKind};
use splat::memory::{Bytes, Fallback, FallbackChange};
use splat::telemetry::JsonLines;
use splat::train::event::{
    Buffers, Event, GpuReport, MemoryReport, Phase, PhasePeak, PhasePeaks, RunTimes, Sink, Step,
    Tensors, TermValues, Vram,
};

use crate::common::program::{
    Ended, TestFolder, Text as _, end, ended, events_files, holds, splat, started_once, text,
    training, values_of_tags, words,
};
use crate::synthetic_scenes::with_model;

fn profile(model: &Path, flags: &[&str]) -> Ended {
    end(splat().arg("profile").arg(model).args(flags))
}

fn json(model: &Path) -> Value {
    profile(model, &["--json"]).done().json()
}

fn mib(count: u64) -> Bytes {
    Bytes(count << 20)
}

fn entry(label: &'static str, kind: MemoryKind, mapped: u64, peak: u64) -> MemoryEntry {
    let [mapped, peak] = [mapped, peak].map(mib);
    MemoryEntry { label, kind, bytes: mapped, mapped, peak, at_peak: mapped }
}

fn step(iteration: u32) -> Event {
    let (before, images, iterations, total, ms) = (iteration - 1, 1, 300, 0.2, 20.0);
    let values = TermValues(vec![("l1", 0.1), ("ssim", 0.9)]);
    let gaussians = 1000 + 10 * iteration as usize;
    Event::Step(Step { before, iteration, images, iterations, values, total, gaussians, ms })
}

/// A GPU that holds more by 64 MiB every 100 iterations.
fn memory(iteration: u32) -> Event {
    let growth = u64::from(iteration / 100) * 64;
    let vram = Vram {
        allocated: mib(1000 + growth),
        reserved: mib(1200 + growth),
        context: mib(400),
        photographs: mib(100),
        scratch: mib(256),
        slack: mib(120),
        large_count: 3,
        creep: (iteration >= 200).then_some(mib(2)),
        budget: Some(mib(2048)),
    };
    Event::Memory(MemoryReport {
        iteration,
        tensors: Tensors {
            parameters: mib(100 + growth / 3),
            optimizer: mib(200 + growth / 3),
            images: mib(150),
            ..Tensors::default()
        },
        vram: Some(vram),
        offloaded: None,
        host_resident: Some(mib(700)),
        host_total: Some(mib(8192)),
        host_limit: None,
        host_creep: None,
        peaks: PhasePeaks::default(),
    })
}

fn buffers(iteration: u32, after: Phase, splats: u64) -> Event {
    let entries = vec![
        entry("context and code", MemoryKind::Context, 400, 400),
        entry("geometry", MemoryKind::Region, 128, 128),
        entry("sh", MemoryKind::Region, 640, 640),
        entry("sh, first moments", MemoryKind::Region, 320, 320),
        entry("scratch", MemoryKind::Arena, 256, 300),
        entry("splats", MemoryKind::Block, 0, splats),
        entry("staging of the model", MemoryKind::Pinned, 32, 32),
    ];
    Event::Buffers(Buffers { iteration, after, gaussians: 4000, entries })
}

/// The log of a run on a GPU, from iteration `from` to `to`, with or without its end.
fn log(folder: &Path, from: u32, to: u32, profiled: bool) {
    fs::create_dir_all(folder).unwrap();
    let mut sink = JsonLines::create(folder, (from > 0).then_some(from)).unwrap();
    let mut send = |event: &Event| sink.on(event).unwrap();
    send(&Event::Started {
        model_path: folder.to_owned(),
        device: "a GPU, 16.0 GiB".to_owned(),
        gpu: Some("GPU-0".to_owned()),
        train_views: 43,
        test_views: 7,
        gaussians: 1000,
        iteration: from,
        iterations: 300,
    });
    for iteration in from + 1..=to {
        send(&step(iteration));
        if iteration.is_multiple_of(50) {
            let sample = GpuSample {
                utilization: Some(90),
                memory_used: Some(mib(3000)),
                memory_total: Some(mib(4000)),
                temperature_c: Some(40 + iteration / 10),
                power_limit_w: Some(320.0),
                fan_percent: Some(55),
                clock_memory_mhz: Some(9501),
                pstate: Some(2),
                memory_load: Some(40),
                throttle: Some(if iteration == 150 { vec![Throttle::PowerLimit] } else { vec![] }),
                ..GpuSample::default()
            };
            send(&Event::Gpu(GpuReport { iteration, sample }));
        }
        if iteration.is_multiple_of(100) {
            send(&memory(iteration));
            if profiled {
                send(&buffers(iteration, Phase::Training, u64::from(iteration)));
            }
        }
    }
    if profiled {
        send(&buffers(to, Phase::Evaluation, 9));
    }
    if to == 300 {
        let change =
            FallbackChange { fallback: Fallback::Photographs, given_up: true, bytes: mib(312) };
        send(&Event::Fallback { iteration: 250, change, held: mib(1536), budget: mib(2048) });
        let (gaussians, training_seconds) = (4000, 1.5);
        let mut peaks = PhasePeaks::default();
        for (phase, vram) in [(Phase::Training, 1700), (Phase::Evaluation, 1650)] {
            peaks.raise(phase, PhasePeak { vram: Some(mib(vram)), host: Some(mib(700)) });
        }
        send(&Event::Finished {
            iteration: to,
            gaussians,
            training_seconds,
            interrupted: false,
            peaks,
            times: RunTimes::default(),
        });
    }
}

#[test]
fn a_profiled_run_names_its_largest_buffers_and_what_they_are_for() {
    let place = TestFolder::empty();
    let model = place.model();
    log(&model, 0, 300, true);
    let found = json(&model);
    assert_eq!((&found["profiled"], &found["finished"]), (&true.into(), &true.into()));
    assert_eq!((&found["iteration"], &found["gaussians"]), (&300.into(), &4000.into()));
    let peak = 400 + 128 + 640 + 320 + 256;
    assert_eq!(found["peak"]["bytes"], mib(peak).0);
    assert_eq!(found["peak"]["budget"], mib(2048).0);
    let categories = [0, 1, 3].map(|at| &found["categories"][at]["category"]);
    assert_eq!(categories, ["parameters", "optimizer", "scratch"]);
    assert_eq!(found["categories"][0]["bytes"], mib(768).0);
    let first = &found["buffers"][0];
    assert_eq!((&first["label"], &first["peak"]), (&"sh".into(), &mib(640).0.into()));
    assert_eq!(first["purpose"], "colours");
    assert_eq!(found["peaks"]["evaluation"]["vram"], mib(1650).0);
    let splats = found["buffers"].as_array().unwrap().iter().find(|it| it["label"] == "splats");
    let splats = splats.unwrap();
    assert_eq!((&splats["peak"], &splats["iteration"]), (&mib(300).0.into(), &300.into()));
    assert_eq!(splats["after"], "training");
    assert_eq!(found["changes"][0]["rung"], "photographs");
    let gpu = &found["gpu"];
    assert_eq!((&gpu["samples"], &gpu["temperature_max_c"]), (&6.into(), &70.into()));
    assert!((gpu["throttled_percent"]["power_limit"].as_f64().unwrap() - 100.0 / 6.0).abs() < 1e-9);
    assert!(gpu["power_mean_w"].is_null());

    let shown = profile(&model, &[]).done().stdout;
    shown.assert_holds(&[
        "300 of 300 iterations, complete; 4000 Gaussians",
        "1744.0 MiB of 2048.0 MiB that may be taken",
        "parameters                               768.0 MiB    44.0 %",
        "sh                            region          640.0 MiB   36.7 %  by    100  colours",
        &format!("iteration 250: {}: 312.0 MiB", Fallback::Photographs.words(true)),
        "(1.50 of 2.00 GiB were held)",
        "peaks of GPU memory\n  training                                1700.0 MiB\n  evaluation ",
        "slowed (power limit)                      16.7 % of the samples",
        "power that it may draw                   320.0 W",
        "fan, most                                 55.0 %",
        "clock of its memory, mean               9501.0 MHz",
        "slowest performance state, 0 to 15         2.0\n",
        "memory read or written, mean              40.0 % of the time",
        "slack: 8.6 % of the memory served nothing at the end",
        "      300        4000     1192.0 MiB     1392.0 MiB        2.0 MiB      700.0 MiB",
    ]);
    assert!(!shown.contains("--profile-tensors"), "{shown}");
    assert!(shown.lines().all(|line| line.trim_end() == line), "{shown}");
}

#[test]
fn of_a_resumed_run_the_later_part_counts() {
    let place = TestFolder::empty();
    let model = place.model();
    log(&model, 0, 250, true);
    log(&model, 150, 300, false);
    let found = json(&model);
    assert_eq!((&found["finished"], &found["starts"]), (&true.into(), &2.into()));
    let iterations = |key: &str| -> Vec<u64> {
        let reports = found[key].as_array().unwrap().iter();
        reports.map(|it| it["iteration"].as_u64().unwrap()).collect()
    };
    // The records of buffers are only those of the first part, up to where it was resumed.
    let buffers = iterations("buffers");
    assert!(buffers.iter().all(|&iteration| iteration == 100), "{buffers:?}");
    assert_eq!(iterations("growth"), [100, 200, 300]);
    profile(&model, &[]).done().prints(&["resumed 1 time"]);
}

#[test]
fn a_run_on_the_processor_is_told_by_what_it_holds() {
    let place = with_model(101, &["--profile-tensors"]);
    let found = json(&place.model());
    assert_eq!((&found["iteration"], &found["finished"]), (&101.into(), &true.into()));
    assert!(found["slack"].is_null() && found["gpu"].is_null(), "{found}");
    let growth = found["growth"].as_array().unwrap();
    assert_eq!(growth.len(), 2);
    assert_eq!((&growth[0]["iteration"], &growth[1]["iteration"]), (&100.into(), &101.into()));
    assert!(found["categories"][0]["bytes"].as_u64().unwrap() > 0, "{found}");
    let shown = profile(&place.model(), &[]).done().stdout;
    assert!(shown.contains("101 of 101 iterations, complete"), "{shown}");
    assert!(!shown.contains("--profile-tensors"), "it adds nothing on the processor: {shown}");
}

#[test]
fn the_peaks_of_each_phase_are_told_wherever_a_run_reports() {
    let place = TestFolder::with_scene();
    let flags = words::<9>(
        "--eval --progress=plain --test-iterations=12 --densify-from-iter=5 \
         --densification-interval=10 --densify-until-iter=25 --regularize=density \
         --sugar-iterations=6 --n-samples-for-sdf=100",
    );
    let ended = place.trained(30, &flags);
    let phases = ["training", "density_control", "coarse", "evaluation", "saving"];
    let finished = &place.events("model", "finished")[0];
    let summary = place.json("model/summary.json");
    let reported = json(&place.model());
    let tags = values_of_tags(&events_files(&place.model())[0]);
    for phase in phases {
        let peak = &finished["peaks"][phase]["host"];
        assert!(peak.as_u64().unwrap() > 1_000_000, "{phase}: {finished}");
        for report in [&summary, &reported] {
            assert_eq!(&report["peaks"][phase]["host"], peak);
        }
        let tagged = &tags[&format!("memory/peak_{phase}_gb")];
        assert!(tagged.last().unwrap().1 > 0.0, "{phase}: {tagged:?}");
    }
    let line = ended.stderr.lines().find(|line| line.starts_with("  memory    RAM "));
    assert!(line.is_some(), "{ended:#?}");
    let most = phases.map(|phase| finished["peaks"][phase]["host"].as_u64()).into_iter().max();
    assert!(summary["peak_host"].as_u64() >= most.unwrap());
    profile(&place.model(), &[]).done().prints(&["peaks of RAM\n  training  "]);
}

#[test]
fn a_folder_without_a_log_and_a_damaged_line_are_refused_by_name() {
    let place = TestFolder::empty();
    let model = place.model();
    let missing = model.join("run.jsonl");
    profile(&model, &[]).refused(3, &[text(&missing), "splat train"]);
    fs::create_dir_all(&model).unwrap();
    profile(&model, &["--json"]).refused(3, &[text(&missing)]);
    fs::write(&missing, "").unwrap();
    profile(&model, &[]).refused(3, &["no run has begun"]);

    log(&model, 0, 300, true);
    let whole = fs::read_to_string(&missing).unwrap();
    let mut lines: Vec<&str> = whole.lines().collect();
    lines[4] = &lines[4][..20];
    fs::write(&missing, lines.join("\n")).unwrap();
    profile(&model, &[]).refused(3, &["run.jsonl, line 5: "]);
}

#[test]
fn without_a_folder_the_newest_run_below_output_is_taken() {
    let place = TestFolder::empty();
    let profile = |flags: &[&str]| place.splat("profile", flags);
    for flags in [&[][..], &["latest"]] {
        profile(flags).refused(3, &["output: there is no run", "Name the model folder"]);
    }
    for name in ["b", "a", "empty"] {
        let folder = place.path("output").join(name);
        fs::create_dir_all(&folder).unwrap();
        if name != "empty" {
            log(&folder, 0, 300, false);
            // Within the resolution of the file system's clock.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    for flags in [&[][..], &["latest"], &["--follow"]] {
        let shown = profile(flags).done().stdout;
        assert!(shown.starts_with("output/a: 300 of 300"), "{shown}");
    }
    // A folder of that name is what it says.
    log(&place.path("latest"), 0, 200, false);
    assert!(profile(&["latest"]).done().stdout.starts_with("latest: 200 of 300"));
}

#[test]
fn as_many_buffers_are_listed_as_asked_for_with_types_and_shapes() {
    let place = TestFolder::empty();
    let model = place.model();
    log(&model, 0, 300, true);
    let shown = profile(&model, &["--top=2"]).done().stdout;
    shown.assert_holds(&["colours: u32[167772160]\n", "and 5 smaller ones (--top 7 lists all)"]);
    assert!(!shown.contains("splats "), "{shown}");
    let all = profile(&model, &["--top=7"]).done().stdout;
    assert!(all.contains("splats ") && !all.contains("smaller ones"), "{all}");
    let found = json(&model);
    let sh = &found["buffers"][0];
    let shape = serde_json::json!([167_772_160, 1]);
    assert_eq!((&sh["element"], &sh["shape"]), (&"u32".into(), &shape));
    profile(&model, &["--top=many"]).refused(2, &["--top"]);
}

#[test]
fn a_report_ends_with_findings_and_the_flags_that_help() {
    let place = TestFolder::empty();
    let model = place.model();
    log(&model, 0, 300, false);
    let shown = profile(&model, &[]).done().stdout;
    assert!(shown.contains("train with --profile-tensors"), "{shown}");
    assert!(!shown.contains("largest buffers"), "{shown}");
    let (_, findings) = shown.split_once("\nfindings\n").unwrap();
    let limit = "of 2048.0 MiB of the GPU memory that may be taken (83 %)";
    assert!(findings.contains("the nearest limit: 1700.0 ") && findings.contains(limit), "{shown}");
    assert!(!findings.contains("what helps"), "nothing has to be done: {shown}");
    // As much slack as makes it worth while.
    let path = model.join("run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let slack = format!("\"slack\":{}", mib(120).0);
    assert!(text.contains(&slack));
    fs::write(&path, text.replace(&slack, &format!("\"slack\":{}", mib(300).0))).unwrap();
    let shown = profile(&model, &[]).done().stdout;
    shown.assert_holds(&["served nothing on average\n    what helps: --fragmentation aggressive"]);
    assert_eq!(json(&model)["findings"][0]["kind"], "slack");
}

#[test]
fn a_run_is_followed_until_its_end() {
    let place = TestFolder::with_scene();
    let run = training(&place, &["--iterations=400", "--progress=none"]);
    let log = place.model().join("run.jsonl");
    let run = started_once(run, "a log", || holds(&log, "\"started\""));
    let shown = profile(&place.model(), &["--follow"]).done().stdout;
    ended(run).done();
    let drawn: Vec<&str> = shown.matches("of 400 iterations, ").collect();
    assert!(drawn.len() > 1, "it was not drawn again:\n{shown}");
    assert!(shown.contains("400 of 400 iterations, complete"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no escapes but on a terminal: {shown}");
    // One that was killed gets no further.
    let text = fs::read_to_string(&log).unwrap();
    let last = text.trim_end().rfind('\n').unwrap();
    fs::write(&log, &text[..=last]).unwrap();
    let shown = profile(&place.model(), &["--follow"]).done().stdout;
    assert!(shown.contains("not at its end") && shown.contains("nothing to follow"), "{shown}");
    profile(&place.model(), &["--follow", "--json"]).refused(2, &["--json"]);
}

#[test]
fn a_cut_last_line_is_passed_over_and_gone_once_the_run_is_resumed() {
    let place = with_model(20, &[]);
    let log = place.model().join("run.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let last = whole.trim_end().rfind('\n').unwrap() + 1;
    for end in [last + 1, last + 20, whole.len() - 2] {
        fs::write(&log, &whole[..end]).unwrap();
        assert_eq!(json(&place.model())["iteration"], 20);
    }
    // As a power cut may leave the last block of a file.
    fs::write(&log, whole[..last].to_owned() + "\0\0\0").unwrap();
    assert_eq!(json(&place.model())["finished"], false);
    place.resume(&["--iterations=25"]).done();
    let resumed = fs::read_to_string(&log).unwrap();
    assert!(resumed.starts_with(&whole[..last]));
    for line in resumed.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["event"].is_string(), "{line}");
    }
    let found = json(&place.model());
    assert_eq!((&found["iteration"], &found["starts"]), (&25.into(), &2.into()));
}

#[test]
fn a_list_of_buffers_that_nobody_recorded_is_not_asked_for_in_silence() {
    let place = with_model(2, &[]);
    for flags in [&["--top", "3"][..], &["--top=3", "--json"]] {
        let ended = profile(&place.model(), flags).done();
        ended.says(&["--top has no effect", text(&place.model()), "--profile-tensors"]);
    }
    assert_eq!(profile(&place.model(), &[]).done().stderr, "");
}
