//! `--host-limit`: kept, or refused before anything is trained.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use crate::common::program::{Ended, TestFolder, end, splat, text};
use crate::fixtures::fixture;
use rstest::rstest;
use splat::synth::{SynthOptions, write_scene};

/// A scene whose photographs take most of what the program takes while they are decoded.
static SCENE: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("large_photographs", |place| {
        let (views, width, height, points) = (6, 960, 720, 200);
        let options = SynthOptions { views, width, height, points, ..SynthOptions::default() };
        fs::remove_dir_all(place.scene()).unwrap();
        write_scene(&place.scene(), &options).unwrap();
    })
});

const FLAGS: [&str; 4] = ["--iterations=10", "-r=8", "--eval", "--eval-train=0"];

/// The same at full size, where most is taken by the comparison with photographs.
const FULL_SIZE: [&str; 4] = ["--iterations=4", "-r=1", "--eval", "--eval-train=2"];

/// The limit that an error proposes, MiB. The table above it adds up to that.
fn proposed(ended: &Ended) -> u64 {
    let (table, rest) = ended.stderr.split_once("Give ").unwrap_or_else(|| panic!("{ended:#?}"));
    let limit = rest.split("MiB").next().unwrap().trim().parse().unwrap();
    let row = |line: &str| Some(line.trim().split_once(" MiB  ")?.0.parse::<u64>().unwrap());
    let mut rows: Vec<u64> = table.lines().filter_map(row).collect();
    assert_eq!(rows.pop(), Some(limit), "{ended:#?}");
    assert_eq!(rows.iter().sum::<u64>(), limit, "{ended:#?}");
    assert!(table.contains(" 2 MiB  differences from run to run\n"), "{ended:#?}");
    limit
}

fn limited(limit: u64) -> String {
    format!("--host-limit={limit}MiB")
}

/// The most that a command had in RAM, MiB.
fn peak_of(arguments: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_splat"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        if let Some(line) = fs::read_to_string(&status)
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
        {
            let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            most = most.max(kib / 1024);
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return most;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[rstest]
#[case::small_views(&FLAGS, "the largest photograph and its copies", "smaller photographs")]
#[case::large_views(&FULL_SIZE, "the comparison with a photograph", "a smaller --resolution")]
fn a_limit_that_cannot_be_kept_is_refused_and_the_one_proposed_is_kept(
    #[case] flags: &[&str],
    #[case] most: &str,
    #[case] remedy: &str,
) {
    let place = TestFolder::beside(&SCENE);
    let parts = ["--host-limit 1MiB", "cannot be kept", "Gaussians and their moments"];
    let refused = end(place.train().args(flags).arg("--host-limit=1MiB")).refused(4, &parts);
    assert!(refused.stderr.to_lowercase().contains(most), "{refused:#?}");
    assert!(!refused.stderr.contains("warning"), "nothing before the refusal: {refused:#?}");
    assert!(!place.model().exists(), "nothing is begun");
    let limit = proposed(&refused);
    assert!(!refused.stderr.contains("or more, or "), "nothing else helps: {refused:#?}");
    let nearly = limited(limit - 5);
    end(place.train().args(flags).arg(nearly)).refused(4, &["MiB or more, or ", remedy]);
    let (scene, model, limited) = (place.scene(), place.model(), limited(limit));
    let train = ["train", "--device=cpu", "-s", text(&scene), "-m", text(&model), &limited];
    let peak = peak_of(&[&train, flags].concat());
    assert!(10 * peak <= 11 * limit, "{peak} MiB of {limit}");
    assert!(model.join("summary.json").is_file());
    // It is refused where a model is measured, too, and the one that is proposed is kept.
    let eval = ["eval", "--device=cpu", "-m", text(&model)];
    let refused = end(splat().args(eval).arg("--host-limit=1MiB"));
    let limit = proposed(&refused.refused(4, &["--host-limit 1MiB", "cannot be kept"]));
    let peak = peak_of(&[&eval[..], &[&format!("--host-limit={limit}MiB")]].concat());
    assert!(10 * peak <= 11 * limit, "{peak} MiB of {limit}");
}

#[test]
fn a_model_grows_as_far_as_the_limit_allows() {
    let place = TestFolder::with_scene();
    let flags = [
        "--iterations=60",
        "--densify-from-iter=1",
        "--densify-until-iter=60",
        "--densification-interval=4",
        "--densify-grad-threshold=0",
        "--sh-degree=0",
        "--eval-train=0",
    ];
    let limit = proposed(&end(place.train().args(flags).arg("--host-limit=1MiB")));
    let ended = end(place.train().args(flags).arg(limited(limit + 2))).done();
    let (_, rest) = ended.stderr.split_once("--host-limit leaves memory for ").unwrap();
    let most: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    let summary = fs::read_to_string(place.model().join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let grown = summary["gaussians"].as_u64().unwrap();
    assert!(200 < grown && grown <= most, "{grown} of {most}");
    ended.says(&["Gaussians: density control adds none beyond that"]);
}

#[test]
fn a_plan_says_whether_the_limit_is_kept() {
    let place = TestFolder::beside(&SCENE);
    let plan = |flags: &[&str]| {
        let mut plan = splat();
        end(plan.args(["plan", "--gaussians=20000", "-s"]).arg(place.scene()).args(flags))
    };
    let cpu = ["--device=cpu", "-r=1"];
    let printed = plan(&cpu).done().stdout;
    assert!(printed.contains("RAM of the processor, which trains"), "{printed}");
    assert!(printed.contains("MiB at most: fits --host-limit 60%"), "{printed}");
    let refused = plan(&[&cpu[..], &["--host-limit=50MiB"]].concat());
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    assert!(refused.stdout.contains("does not fit --host-limit 50MiB"), "{refused:#?}");
    let limit = limited(proposed(&refused) + 6);
    let printed = plan(&[&cpu[..], &[&limit, "--json"]].concat()).done().stdout;
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["host_limit"]["fits"], true);
    assert_eq!(report["host_limit"]["on_processor"], true);
    // A guess of how far it grows is no demand: as in training, it grows as far as there is memory.
    let grows = |flags: &[&str]| {
        end(splat().args(["plan", "--device=cpu", "-r=8", "-s"]).arg(place.scene()).args(flags))
    };
    let start = proposed(&grows(&["--host-limit=1MiB"]));
    let printed = grows(&[&limited(start)]).done().stdout;
    assert!(printed.contains(&format!("fits --host-limit {start}MiB")), "{printed}");
    // Beside a GPU the model is no part of it.
    assert!(!plan(&[]).done().stdout.contains("--host-limit"));
    let printed = plan(&["--host-limit=4GiB"]).done().stdout;
    assert!(printed.contains("RAM beside a GPU: "), "{printed}");
    let refused = plan(&["--host-limit=2MiB"]);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    refused.says(&["--host-limit 2MiB", "cannot be kept", "Gaussians at the start"]);
}

#[test]
fn photographs_that_are_to_be_kept_give_way_to_the_limit() {
    let place = TestFolder::beside(&SCENE);
    let flags = ["--iterations=1", "-r=1", "--eval-train=0"];
    let limit = limited(proposed(&end(place.train().args(flags).arg("--host-limit=1MiB"))));
    let trained = |model: &str, more: &[&str]| {
        let ended = end(place.train_into(model).args(flags).args(more)).done();
        (ended, fs::read(place.ply_of(model, 1)).unwrap())
    };
    let (_, plain) = trained("plain", &[]);
    let (ended, limited) = trained("limited", &["--high-dram", &limit]);
    ended.says(&["warning", "--high-dram", "6 decoded images", "GiB", "on demand", "2GiB"]);
    assert!(plain == limited, "the limit changes no result");
}
