//! Figures of logs that are made for the test.

use super::*;
use crate::train::event::{Phase, PhasePeak};

fn entry(label: &str, kind: &str, peak: u64, at_peak: u64) -> LoggedEntry {
    let [peak, at_peak] = [peak, at_peak].map(Bytes);
    let (label, kind) = (label.to_owned(), kind.to_owned());
    LoggedEntry { label, kind, bytes: at_peak, peak, at_peak }
}

fn recorded(iteration: u32, entries: Vec<LoggedEntry>) -> LoggedBuffers {
    LoggedBuffers { iteration, after: "training".to_owned(), gaussians: 7, entries }
}

fn memory(iteration: u32, vram: Option<log::LoggedVram>) -> LoggedMemory {
    let tensors = Tensors {
        parameters: Bytes(10),
        optimizer: Bytes(20),
        gradients: Bytes(1),
        activations: Bytes(2),
        images: Bytes(7),
        knn: Bytes(3),
    };
    let peaks = PhasePeaks::default();
    let (host_resident, host_total) = (Some(Bytes(1000)), Some(Bytes(10_000)));
    let host_creep = None;
    let host_limit = None;
    LoggedMemory {
        iteration,
        tensors,
        vram,
        host_resident,
        host_total,
        host_limit,
        host_creep,
        peaks,
    }
}

fn vram(reserved: u64, slack: u64) -> log::LoggedVram {
    log::LoggedVram {
        allocated: Bytes(80),
        reserved: Bytes(reserved),
        context: Bytes(40),
        photographs: Bytes(5),
        scratch: Bytes(20),
        slack: Some(Bytes(slack)),
        creep: None,
        budget: Some(Bytes(200)),
    }
}

fn bytes_of(profile: &Profile) -> Vec<(Category, u64)> {
    profile.categories.iter().map(|share| (share.category, share.bytes.0)).collect()
}

#[test]
fn buffers_stand_by_their_own_peaks_and_categories_by_that_of_all() {
    let log = Log {
        memory: vec![memory(100, Some(vram(100, 10)))],
        buffers: vec![
            recorded(
                100,
                vec![
                    entry("geometry", "region", 32, 32),
                    entry("scratch", "arena", 64, 64),
                    entry("splats", "block", 50, 0),
                    entry("staging of the model", "pinned", 500, 500),
                ],
            ),
            recorded(
                200,
                vec![
                    entry("geometry", "region", 48, 48),
                    entry("scratch", "arena", 60, 32),
                    entry("splats", "block", 20, 0),
                ],
            ),
        ],
        ..Log::default()
    };
    let profile = Profile::of(Path::new("m"), &log);
    let peak = profile.peak.unwrap();
    assert_eq!((peak.iteration, peak.bytes, peak.budget), (100, Bytes(96), Some(Bytes(200))));
    assert_eq!(
        bytes_of(&profile)[..4],
        [
            (Category::Parameters, 32),
            (Category::Optimizer, 0),
            (Category::Photographs, 0),
            (Category::Scratch, 64),
        ]
    );
    let found: Vec<_> = profile
        .buffers
        .iter()
        .map(|found| (found.label.as_str(), found.peak.0, found.iteration))
        .collect();
    let expected = [
        ("staging of the model", 500, 100),
        ("scratch", 64, 100),
        ("splats", 50, 100),
        ("geometry", 48, 200),
    ];
    assert_eq!(found, expected);
    assert!((profile.buffers[3].percent - 50.0).abs() < 1e-9);
}

#[test]
fn without_buffers_the_parts_are_those_between_iterations_and_add_up() {
    let memories = [(100, 90), (200, 120), (300, 110)];
    let log = Log {
        memory: memories
            .map(|(iteration, reserved)| memory(iteration, Some(vram(reserved, 12))))
            .to_vec(),
        ..Log::default()
    };
    let profile = Profile::of(Path::new("m"), &log);
    assert!(!profile.profiled && profile.buffers.is_empty());
    assert_eq!(profile.peak.unwrap().iteration, 200);
    assert_eq!(bytes_of(&profile).iter().map(|(_, bytes)| bytes).sum::<u64>(), 120);
    assert_eq!(bytes_of(&profile).last().unwrap(), &(Category::Other, 25));
    let slack = profile.slack.unwrap();
    assert!((slack.most - 100.0 * 12.0 / 90.0).abs() < 1e-9, "{slack:?}");
    assert!((slack.last - 100.0 * 12.0 / 110.0).abs() < 1e-9, "{slack:?}");
}

#[test]
fn a_run_on_the_processor_has_neither_slack_nor_a_gpu() {
    let log = Log { memory: vec![memory(100, None)], ..Log::default() };
    let profile = Profile::of(Path::new("m"), &log);
    assert!(profile.slack.is_none() && profile.gpu.is_none());
    assert_eq!(profile.peak.unwrap().bytes, Bytes(43));
    assert_eq!(bytes_of(&profile).iter().map(|(_, bytes)| bytes).sum::<u64>(), 43);
    assert_eq!(bytes_of(&profile).last().unwrap(), &(Category::Other, 3));
}

#[test]
fn growth_is_told_at_ten_points_from_first_to_last() {
    for (reports, points) in [(0_u32, 0), (1, 1), (2, 2), (10, 10), (11, 10), (300, 10)] {
        let log =
            Log { memory: (1..=reports).map(|i| memory(i, None)).collect(), ..Log::default() };
        let at: Vec<u32> = growth(&log).iter().map(|point| point.iteration).collect();
        assert_eq!(at.len(), points, "{reports}");
        assert!(at.is_sorted_by(|a, b| a < b), "{at:?}");
        assert_eq!(at.first().copied(), (reports > 0).then_some(1));
        assert_eq!(at.last().copied(), (reports > 0).then_some(reports));
    }
}

#[test]
fn figures_of_the_gpu_are_over_the_samples_that_have_them() {
    let sample = |utilization, temperature_c, throttle: Option<&[&str]>| LoggedGpu {
        iteration: 50,
        utilization,
        memory_load: utilization.map(|load| load / 2),
        memory_used: Some(Bytes(3)),
        memory_total: Some(Bytes(4)),
        temperature_c,
        power_w: None,
        power_limit_w: Some(700.0),
        fan_percent: temperature_c,
        clock_sm_mhz: utilization,
        clock_memory_mhz: None,
        pstate: temperature_c.map(|degrees| degrees / 30),
        throttle: throttle.map(|all| all.iter().map(|&reason| reason.to_owned()).collect()),
    };
    let summary = gpu(&[
        sample(Some(90), None, Some(&["power_limit"])),
        sample(None, Some(70), Some(&[])),
        sample(Some(100), Some(60), None),
    ])
    .unwrap();
    assert_eq!((summary.samples, summary.utilization_mean), (3, Some(95.0)));
    assert_eq!((summary.temperature_max_c, summary.power_mean_w), (Some(70), None));
    assert_eq!(summary.memory_percent_max, Some(75.0));
    assert_eq!((summary.memory_load_mean, summary.power_limit_w), (Some(47.5), Some(700.0)));
    assert_eq!((summary.fan_max_percent, summary.pstate_slowest), (Some(70), Some(2)));
    assert_eq!((summary.clock_sm_mean_mhz, summary.clock_memory_mean_mhz), (Some(95.0), None));
    assert_eq!(summary.throttled_percent.unwrap()["power_limit"], 50.0);
    assert!(gpu(&[]).is_none());
}

fn found(log: &Log) -> Vec<Finding> {
    findings::of(log, slack(&log.memory).map(|slack| slack.mean))
}

fn kinds(log: &Log) -> Vec<FindingKind> {
    found(log).iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_plain_run_is_told_its_nearest_limit_and_no_more() {
    let log = Log { memory: vec![memory(100, Some(vram(100, 9)))], ..Log::default() };
    let shown = found(&log);
    assert_eq!(kinds(&log), [FindingKind::Limit]);
    assert!(shown[0].text.contains("GPU") && shown[0].text.contains("(50 %)"), "{shown:?}");
    assert_eq!(shown[0].flags, None);
    let near = Log { memory: vec![memory(100, Some(vram(190, 9)))], ..Log::default() };
    assert!(found(&near)[0].flags.as_ref().unwrap().contains("--optimize-memory"));
    let on_cpu = LoggedMemory { host_creep: Some(Bytes(17 << 20)), ..memory(100, None) };
    let on_cpu = Log { memory: vec![on_cpu], ..Log::default() };
    assert!(found(&on_cpu)[0].text.starts_with("17.0 MiB of RAM"));
    assert!(found(&on_cpu)[1].text.contains("RAM that may be used (10 %)"));
    assert_eq!(growth(&on_cpu)[0].creep, Some(Bytes(17 << 20)));
}

#[test]
fn the_limit_of_the_ram_is_told_by_the_most_that_was_held() {
    let limited = LoggedMemory { host_limit: Some(Bytes(4000)), ..memory(100, None) };
    let mut log = Log { memory: vec![limited], ..Log::default() };
    assert!(found(&log)[0].text.contains("(25 %)"), "1000 bytes are held of 4000");
    log.peaks.raise(Phase::Saving, PhasePeak { vram: None, host: Some(Bytes(3900)) });
    let shown = found(&log);
    assert!(shown[0].text.contains("(98 %)"), "{shown:?}");
    assert!(shown[0].flags.as_ref().unwrap().contains("--host-limit"), "{shown:?}");
}

#[test]
fn leaks_slack_and_evaluations_are_found_with_what_helps() {
    let mib = |count: u64| Bytes(count << 20);
    let creeping = log::LoggedVram { creep: Some(mib(20)), ..vram(100, 11) };
    let mut log = Log { memory: vec![memory(100, Some(creeping))], ..Log::default() };
    assert_eq!(kinds(&log), [FindingKind::Leak, FindingKind::Slack, FindingKind::Limit]);
    let flags = |log: &Log, place: usize| found(log)[place].flags.clone().unwrap();
    assert!(flags(&log, 0).contains("--profile-tensors"));
    assert_eq!(flags(&log, 1), "--fragmentation aggressive");
    let at = |sh: u64, staging: u64| {
        vec![
            entry("geometry", "region", 9, 9),
            entry("sh", "region", sh, sh),
            entry("staging of the model", "pinned", staging, staging),
        ]
    };
    let other = LoggedBuffers { gaussians: 6, ..recorded(50, at(1, 1)) };
    log.buffers = vec![other, recorded(100, at(3 << 20, 1)), recorded(200, at(8 << 20, 99 << 20))];
    assert!(found(&log)[0].text.contains("`sh` grew most, by 5.0 MiB"));
    for (phase, vram) in [(Phase::Training, 70), (Phase::Evaluation, 100)] {
        log.peaks.raise(phase, PhasePeak { vram: Some(mib(vram)), host: None });
    }
    let shown = found(&log);
    assert_eq!(shown[2].kind, FindingKind::Evaluation);
    assert!(shown[2].text.contains("30.0 MiB more than training"), "{shown:?}");
    assert!(flags(&log, 2).contains("--test-every"));
    log.has_lpips = true;
    assert!(flags(&log, 2).contains("--enable-lpips false"));
}

#[test]
fn buffers_have_the_types_and_shapes_of_their_slots() {
    assert_eq!(shape("sh", Bytes(4 * 7)), Some([7, 1]));
    assert_eq!(shape("sh", Bytes(3)), None);
    assert_eq!(shape("nobody's", Bytes(4)), None);
    assert!(layout::only("keys of instances").is_none(), "two types share the label");
}
