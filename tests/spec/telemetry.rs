//! Telemetry of a run on a GPU: figures of the GPU, of its memory, and of fallbacks.

use std::fs;
use std::path::PathBuf;

use splat::backend::nvidia::{GpuSample, Throttle};
use splat::backend::{MemoryEntry, MemoryKind};
use splat::memory::{Bytes, Fallback, FallbackChange};
use splat::telemetry::{Progress, ProgressStyle, Sinks};
use splat::train::event::{
    Buffers, Completion, Event, GpuReport, MemoryReport, Phase, Sink, Step, SurfaceReport, Tensors,
    TermValues, Vram,
};

use crate::common::program::{events_files, log_lines, steps_of_tags, values_of_tags};

fn vram(iteration: u32, creep: Option<Bytes>) -> Event {
    let vram = Vram {
        allocated: Bytes(3 << 30),
        reserved: Bytes(4 << 30),
        context: Bytes(1 << 29),
        photographs: Bytes(1 << 28),
        scratch: Bytes(1 << 30),
        slack: Bytes(1 << 30),
        large_count: 4,
        creep,
        budget: Some(Bytes(8 << 30)),
    };
    Event::Memory(MemoryReport {
        iteration,
        tensors: Tensors { parameters: Bytes(1 << 20), ..Tensors::default() },
        vram: Some(vram),
        host_resident: Some(Bytes(1 << 30)),
        host_total: Some(Bytes(8 << 30)),
        ..MemoryReport::default()
    })
}

fn gpu(iteration: u32, sample: GpuSample) -> Event {
    Event::Gpu(GpuReport { iteration, sample })
}

fn fallback(iteration: u32, fallback: Fallback, given_up: bool) -> Event {
    let change = FallbackChange { fallback, given_up, bytes: Bytes(312 << 20) };
    Event::Fallback { iteration, change, held: Bytes(3 << 29), budget: Bytes(2 << 30) }
}

/// Sends events to the sinks of a run; returns its folder and the file of TensorBoard.
fn sent(events: impl IntoIterator<Item = Event>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut sinks = Sinks::for_run(folder.path(), ProgressStyle::None, None).unwrap();
    for event in events {
        sinks.on(&event).unwrap();
    }
    sinks.written().iter().for_each(Completion::wait);
    let file = events_files(folder.path())[0].clone();
    (folder, file)
}

#[test]
fn figures_of_a_gpu_are_scalars_if_known() {
    let sample = GpuSample {
        utilization: Some(97),
        memory_used: Some(Bytes(3 << 30)),
        memory_total: Some(Bytes(4 << 30)),
        temperature_c: Some(61),
        power_w: Some(312.5),
        power_limit_w: Some(350.0),
        fan_percent: Some(40),
        clock_memory_mhz: Some(2619),
        pstate: Some(0),
        memory_load: Some(61),
        clock_sm_mhz: Some(1980),
        throttle: Some(vec![Throttle::PowerLimit, Throttle::Temperature]),
    };
    let less = GpuSample { power_w: None, throttle: None, ..sample.clone() };
    let creep = Some(Bytes(1 << 28));
    let events = [gpu(50, sample), gpu(100, less), vram(100, None), vram(200, creep)];
    let (folder, file) = sent(events);
    let values = values_of_tags(&file);
    for (tag, value) in [
        ("utilization", 97.0),
        ("memory_percent", 75.0),
        ("temperature_c", 61.0),
        ("clock_sm_mhz", 1980.0),
        ("power_limit_w", 350.0),
        ("fan_percent", 40.0),
        ("clock_memory_mhz", 2619.0),
        ("pstate", 0.0),
        ("memory_load", 61.0),
    ] {
        assert_eq!(values[&format!("gpu/{tag}")], [(50, value), (100, value)], "{tag}");
    }
    assert_eq!(values["gpu/power_w"], [(50, 312.5)]);
    assert_eq!(values["gpu/throttle"], [(50, 2.0)]);
    for (tag, value) in [
        ("memory/vram_allocated_gb", 3.0),
        ("memory/vram_reserved_gb", 4.0),
        ("tensors/fragmentation_percent", 25.0),
        ("tensors/large_count", 4.0),
        ("memory/rung", 0.0),
    ] {
        assert_eq!(values[tag], [(100, value), (200, value)], "{tag}");
    }
    assert_eq!(values["memory/vram_creep_gb"], [(200, 0.25)]);

    let lines = log_lines(folder.path());
    assert_eq!(lines[0]["event"], "gpu");
    assert_eq!((&lines[0]["iteration"], &lines[0]["power_w"]), (&50.into(), &312.5.into()));
    assert_eq!(lines[0]["throttle"], serde_json::json!(["power_limit", "temperature"]));
    assert!(lines[1].get("power_w").is_none(), "{}", lines[1]);
    assert_eq!(lines[3]["vram"]["creep"], 1 << 28);
}

#[test]
fn fallbacks_are_counted_and_reported_once() {
    let events = [
        fallback(600, Fallback::Photographs, true),
        fallback(700, Fallback::Bands, true),
        fallback(800, Fallback::Bands, true),
        vram(800, None),
        fallback(900, Fallback::Bands, false),
        vram(950, None),
    ];
    let (folder, file) = sent(events.clone());
    let values = values_of_tags(&file);
    let counts = [(600, 1.0), (700, 2.0), (800, 2.0), (800, 2.0), (900, 1.0), (950, 1.0)];
    assert_eq!(values["memory/rung"], counts);
    let shown = shown(&events, ProgressStyle::Plain);
    let first = shown.lines().next().unwrap();
    assert!(first.contains(Fallback::Photographs.words(true)), "{shown}");
    assert!(first.contains("312.0 MiB") && first.contains("1.50 of 2.00 GiB"), "{shown}");
    assert_eq!(shown.lines().count(), 4);
    let line = &log_lines(folder.path())[0];
    assert_eq!((&line["rung"], &line["given_up"]), (&"photographs".into(), &true.into()));
    assert_eq!((&line["bytes"], &line["budget"]), (&(312 << 20).into(), &(2u64 << 30).into()));
}

fn shown(events: &[Event], style: ProgressStyle) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    let mut sink = Progress::to_writer(style, fs::File::create(&path).unwrap());
    for event in events {
        sink.on(event).unwrap();
    }
    fs::read_to_string(path).unwrap()
}

fn coarse_stage() -> Vec<Event> {
    let step = |iteration| {
        let (values, total) = (TermValues(vec![("l1", 0.25), ("ssim", 0.5)]), 0.375);
        let (before, images, iterations) = (iteration - 1, 1, 9000);
        let (gaussians, ms) = (1_234_567, 20.0);
        Event::Step(Step { before, iteration, images, iterations, values, total, gaussians, ms })
    };
    let [early, late] = [(800, Some(0.5)), (900, None)].map(|(iteration, dn)| SurfaceReport {
        iteration,
        values: TermValues(
            dn.iter().flat_map(|dn: &f64| [("entropy", 0.25 * dn), ("dn", *dn)]).collect(),
        ),
        ..SurfaceReport::default()
    });
    let all = SurfaceReport {
        iteration: 1000,
        values: TermValues(vec![("density", 0.25), ("sdf", 0.75), ("normal", 1.5), ("dn", 1.25)]),
        share_near_surface: Some(0.625),
        mean_thickness: Some(0.03125),
    };
    vec![
        Event::Started {
            model_path: "m".into(),
            device: "CPU".to_owned(),
            gpu: None,
            train_views: 7,
            test_views: 1,
            gaussians: 1_234_567,
            iteration: 0,
            iterations: 9000,
        },
        step(700),
        Event::CoarseStarted { iteration: 700, iterations: 9000, gaussians: 1_234_567 },
        Event::Surface(early),
        Event::Pruned { iteration: 810, pruned: 234_567, gaussians: 1_000_000 },
        Event::Neighbours { iteration: 811, count: 16, gaussians: 1_000_000, seconds: 0.0312 },
        Event::Surface(late),
        Event::Surface(all),
        vram(1000, None),
        step(9000),
    ]
}

#[test]
fn surface_figures_are_scalars_if_known() {
    let (folder, file) = sent(coarse_stage());
    let values = values_of_tags(&file);
    assert_eq!(values["sugar/entropy"], [(800, 0.125)]);
    assert_eq!(values["sugar/dn"], [(800, 0.5), (1000, 1.25)]);
    for (tag, value) in [
        ("density", 0.25),
        ("sdf", 0.75),
        ("normal", 1.5),
        ("share_near_surface", 0.625),
        ("mean_thickness", 0.03125),
    ] {
        assert_eq!(values[&format!("sugar/{tag}")], [(1000, value)], "{tag}");
    }

    let lines = log_lines(folder.path());
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let stage = ["coarse_started", "surface", "pruned", "neighbours", "surface", "surface"];
    assert_eq!(events[..2], ["started", "step"]);
    assert_eq!(events[2..8], stage);
    assert!(lines[1].get("stage").is_none(), "{}", lines[1]);
    assert!(lines[2..].iter().all(|line| line["stage"] == "Coarse Training"), "{}", lines[2]);
    assert_eq!((&lines[3]["dn"], lines[3].get("density")), (&0.5.into(), None));
    assert_eq!((&lines[5]["count"], &lines[5]["seconds"]), (&16.into(), &0.0312.into()));
}

#[test]
fn progress_names_the_coarse_stage_after_its_start() {
    let events = coarse_stage();
    let plain = shown(&events, ProgressStyle::Plain);
    let lines: Vec<&str> = plain.lines().skip(1).collect();
    assert!(lines[0].starts_with("Training 700/9000 │ "), "{plain}");
    assert_eq!(
        lines[1..5],
        [
            "[Coarse Training] Iter 700: 1234567 Gaussians, up to iteration 9000",
            "[Coarse Training] Iter 810: 234567 transparent Gaussians pruned, 1000000 left",
            "[Coarse Training] Iter 811: 16 nearest neighbours of 1000000 Gaussians found in 0.03 s",
            "[Coarse Training] Iter 1000: Allocated: 3.00GB, Reserved: 4.00GB, Creep: -",
        ]
    );
    assert!(lines[5].starts_with("Coarse Training 9000/9000 │ "), "{plain}");
    assert_eq!(lines.len(), 6);
    let json = shown(&events, ProgressStyle::Json);
    let stages = json.lines().filter(|line| line.contains(r#""stage":"Coarse Training""#)).count();
    assert_eq!((stages, json.lines().count()), (8, 10));
}

#[test]
fn buffers_are_in_the_log_and_not_in_the_events() {
    let entry = MemoryEntry {
        label: "sh",
        kind: MemoryKind::Region,
        bytes: Bytes(60),
        mapped: Bytes(64),
        peak: Bytes(128),
        at_peak: Bytes(96),
    };
    let report = Buffers {
        iteration: 100,
        after: Phase::DensityControl,
        gaussians: 7,
        entries: vec![entry],
    };
    let (folder, file) = sent([Event::Buffers(report), vram(100, None)]);
    assert!(steps_of_tags(&file).keys().all(|tag| !tag.contains("sh")));
    let line = &log_lines(folder.path())[0];
    assert_eq!((&line["event"], &line["after"]), (&"buffers".into(), &"density_control".into()));
    assert_eq!((&line["iteration"], &line["gaussians"]), (&100.into(), &7.into()));
    assert_eq!(
        line["entries"],
        serde_json::json!([{
            "label": "sh", "kind": "region", "bytes": 60, "mapped": 64, "peak": 128, "at_peak": 96
        }])
    );
}
