//! Figures of logs that are made for the test.

use super::*;

fn entry(label: &str, kind: &str, peak: u64, at_peak: u64) -> LoggedEntry {
    let [peak, at_peak] = [peak, at_peak].map(Bytes);
    LoggedEntry { label: label.to_owned(), kind: kind.to_owned(), peak, at_peak }
}

fn recorded(iteration: u32, entries: Vec<LoggedEntry>) -> LoggedBuffers {
    LoggedBuffers { iteration, after: "training".to_owned(), entries }
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
    LoggedMemory { iteration, tensors, vram, host_resident: Some(Bytes(1000)), peaks }
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
        memory_used: Some(Bytes(3)),
        memory_total: Some(Bytes(4)),
        temperature_c,
        power_w: None,
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
    assert_eq!(summary.throttled_percent.unwrap()["power_limit"], 50.0);
    assert!(gpu(&[]).is_none());
}
