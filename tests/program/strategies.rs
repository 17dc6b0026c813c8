//! Whole runs with each way of adding and removing Gaussians.

use std::fs;

use crate::common::program::{TestFolder, end, splat, text};
use rstest::rstest;
use serde_json::Value;

/// Rounds every 20 iterations from 40 to 120 of a run of 160, from Gaussians near death.
const MARKOV_CHAIN: [&str; 11] = [
    "--strategy=mcmc",
    "--densify-from-iter=30",
    "--densify-until-iter=130",
    "--densification-interval=20",
    "--max-points=233",
    "--init-opacity=0.006",
    "--position-lr-max-steps=160",
    "--sh-degree-interval=50",
    "--seed=3",
    "--save-iterations=-1",
    "--test-iterations=-1",
];

/// The events of one kind of a run.
fn events(place: &TestFolder, model: &str, kind: &str) -> Vec<Value> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

fn sum(events: &[Value], field: &str) -> u64 {
    events.iter().map(|event| event[field].as_u64().unwrap()).sum()
}

#[test]
fn mcmc_relocates_and_adds_gaussians_up_to_its_cap() {
    let place = TestFolder::with_scene();
    place.trained(160, &MARKOV_CHAIN);
    let rounds = events(&place, "model", "relocated");
    let at: Vec<u64> = rounds.iter().map(|event| event["iteration"].as_u64().unwrap()).collect();
    assert_eq!(at, [40, 60, 80, 100, 120]);
    // A twentieth of 200 each time, then what the cap leaves.
    let counts: Vec<u64> =
        rounds.iter().map(|event| event["gaussians"].as_u64().unwrap()).collect();
    assert_eq!(counts, [210, 220, 231, 233, 233]);
    assert_eq!((sum(&rounds, "born"), sum(&rounds, "refused")), (33, 0));
    assert!(sum(&rounds, "relocated") > 0, "nobody was dead: {rounds:#?}");
    for kind in ["densified", "opacity_reset"] {
        assert!(events(&place, "model", kind).is_empty(), "{kind}");
    }
    let config = fs::read_to_string(place.model().join("config.toml")).unwrap();
    // Of the preset, beneath what was typed.
    assert!(config.contains("scale_reg = 0.01\n") && config.contains("init_opacity = 0.006\n"));
}

#[test]
fn a_markov_chain_that_is_resumed_goes_on_as_if_it_had_not_stopped() {
    let place = TestFolder::with_scene();
    let flags = [&MARKOV_CHAIN[..], &["--checkpoint-iterations", "50", "80"]].concat();
    place.trained_into("unbroken", 160, &flags);
    let unbroken = fs::read(place.ply_of("unbroken", 160)).unwrap();
    // Between two rounds, and where one is due.
    for iteration in [50, 80] {
        let name = format!("unbroken/checkpoints/chkpnt_{iteration}.safetensors");
        let (checkpoint, model) = (place.path(&name), format!("from_{iteration}"));
        end(place.train_into(&model).args(["--start-checkpoint", text(&checkpoint)])).done();
        assert!(fs::read(place.ply_of(&model, 160)).unwrap() == unbroken, "{iteration}");
    }
}

/// Rounds every 30 iterations of a run of 140.
const WINDOW: [&str; 4] = [
    "--densify-from-iter=30",
    "--densify-until-iter=130",
    "--densification-interval=30",
    "--densify-grad-threshold=0.005",
];

#[test]
fn absgrad_and_gof_each_grow_a_model() {
    let place = TestFolder::with_scene();
    let mut born = Vec::new();
    for (model, strategy) in [
        ("plain", &[][..]),
        ("absolute", &["--absgrad"]),
        ("gof", &["--strategy=gof"]),
        ("mip", &["--preset=mip"]),
    ] {
        place.trained_into(model, 140, &[&WINDOW[..], strategy].concat());
        let rounds = events(&place, model, "densified");
        assert_eq!(rounds.len(), 3, "{model}");
        born.push(sum(&rounds[..1], "cloned") + sum(&rounds[..1], "split"));
        let checkpoint = place.path(model).join("checkpoints/chkpnt_140.safetensors");
        let header = String::from_utf8_lossy(&fs::read(checkpoint).unwrap()[..6000]).into_owned();
        let gathers_both = ["gof", "mip"].contains(&model);
        assert_eq!(header.contains("absolute_norm_sums"), gathers_both, "{model}");
        assert_eq!(header.contains("\"filter_3d\""), model == "mip", "{model}");
    }
    // Cameras stand about one extent away, and nearer Gaussians have less say.
    place.trained_into("faded", 140, &[&WINDOW[..], &["--near-fade=1"]].concat());
    let faded = &events(&place, "faded", "densified")[..1];
    let faded = sum(faded, "cloned") + sum(faded, "split");
    assert!(faded < born[0], "{faded} of {}", born[0]);
    // Absolute values are larger than those that cancel, and GOF takes its own beside the others.
    let [plain, absolute, gof, _] = born[..] else { panic!("{born:?}") };
    assert!(plain < absolute && plain < gof, "{born:?}");
}

#[test]
fn budget_grows_to_its_number_at_an_even_pace_and_resumes() {
    let place = TestFolder::with_scene();
    let flags = [
        "--strategy=budget",
        "--densify-from-iter=30",
        "--densify-until-iter=130",
        "--densification-interval=20",
        "--opacity-reset-interval=60",
        "--max-points=300",
        "--checkpoint-iterations=70",
        "--save-iterations=-1",
        "--test-iterations=-1",
        "--seed=3",
    ];
    place.trained(160, &flags);
    let rounds = events(&place, "model", "densified");
    let counts: Vec<u64> =
        rounds.iter().map(|event| event["gaussians"].as_u64().unwrap()).collect();
    let pruned: Vec<u64> = rounds.iter().map(|event| event["pruned"].as_u64().unwrap()).collect();
    // In the last round as many are born as are missing, before it prunes.
    assert_eq!(counts.last().unwrap() + pruned.last().unwrap(), 300, "{rounds:#?}");
    assert!(counts.iter().all(|&count| count <= 300), "{counts:?}");
    let born: Vec<u64> = rounds
        .iter()
        .map(|event| event["cloned"].as_u64().unwrap() + event["split"].as_u64().unwrap())
        .collect();
    let (least, most) = (born.iter().min().unwrap(), born.iter().max().unwrap());
    assert!(rounds.len() >= 3 && *least > 0 && *most <= 3 * least, "{born:?}");
    assert_eq!(events(&place, "model", "opacity_reset").len(), 2);
    let unbroken = fs::read(place.ply_of("model", 160)).unwrap();
    let checkpoint = place.path("model/checkpoints/chkpnt_70.safetensors");
    let flags = ["--start-checkpoint", text(&checkpoint)];
    end(place.train_into("from_70").args(flags)).done();
    assert!(fs::read(place.ply_of("from_70", 160)).unwrap() == unbroken);
}

#[test]
fn a_number_that_no_round_grows_to_is_said() {
    let place = TestFolder::with_scene();
    let flags = ["--strategy=budget", "--densify-from-iter=20", "--max-points=300"];
    let ended = place.trained(20, &flags);
    let words = ["no densification step", "its 200 Gaussians", "--max-points 300"];
    ended.says(&words);
    // None was asked for.
    let ended = place.trained_into("enough", 20, &[&flags[..2], &["--max-points=200"]].concat());
    assert!(!ended.stderr.contains(words[0]), "{}", ended.stderr);
    place.trained_into("short", 20, &["--preset=fast", "--densification-interval=2"]);
    let rounds = events(&place, "short", "densified");
    let first = [&rounds[0], &rounds[rounds.len() - 1]].map(|round| round["iteration"].as_u64());
    assert_eq!(first, [Some(4), Some(8)]);
}

#[test]
fn near_fade_weighs_no_disagreement() {
    let place = TestFolder::with_scene();
    let flags = [&WINDOW[..3], &["--strategy=budget", "--max-points=300"]].concat();
    place.trained_into("plain", 100, &flags);
    place
        .trained_into("faded", 100, &[&flags[..], &["--near-fade=1"]].concat())
        .says(&["--near-fade has no effect"]);
    assert_eq!(events(&place, "plain", "densified").len(), 2);
    let ply = |model| fs::read(place.ply_of(model, 100)).unwrap();
    assert!(ply("plain") == ply("faded"));
}

#[test]
fn what_is_saved_of_a_filtered_model_is_what_was_measured() {
    let place = TestFolder::with_scene();
    place.trained(140, &[&WINDOW[..], &["--preset=mip", "--eval", "--test-every=4"]].concat());
    let read = |name: &str| fs::read_to_string(place.model().join(name)).unwrap();
    let trained: Value = serde_json::from_str(&read("results.json")).unwrap();
    let mut eval = splat();
    eval.args(["eval", "--json", "--device", "cpu", "-m"]).arg(place.model());
    let found: Value = serde_json::from_str(&end(&mut eval).done().stdout).unwrap();
    // The PLY holds scales and opacities as they are drawn through the filter, rounded once more.
    for (name, key) in [("psnr", "PSNR"), ("ssim", "SSIM")] {
        let trained = trained["ours_140"][key].as_f64().unwrap();
        let found = found["mean"][name].as_f64().unwrap();
        assert!((found / trained - 1.0).abs() < 1e-5, "{key}: {found} instead of {trained}");
    }
    // What is optimised is narrower, and no model without the filter.
    let checkpoint = place.checkpoint(140);
    let refused = end(place.train_into("none").args(["--filter-3d", "false"]).args([
        "--start-checkpoint",
        text(&checkpoint),
        "--iterations=150",
    ]));
    refused.refused(2, &["chkpnt_140", "--filter-3d", "--init"]);
}

/// The Gaussians that runs of small scenes begin and end with.
#[rstest]
#[case::a_short_run_of_best(8, &["--preset=best", "--iterations=30"])]
#[case::two_views(2, &[])]
#[case::two_views_with_few_passes(2, &["--max-passes=65", "--few-view-passes=0"])]
fn halved_opacities_do_not_empty_a_model(#[case] views: u32, #[case] flags: &[&str]) {
    let place = TestFolder::empty();
    let scene = place.scene();
    let size = ["--width=32", "--height=24", "--points=60"];
    end(splat().args(["synth", "-o", text(&scene), &format!("--views={views}")]).args(size)).done();
    end(place.train().args(flags)).done();
    let left = events(&place, "model", "finished")[0]["gaussians"].as_u64().unwrap();
    assert!(left >= 60, "{left} Gaussians are left of 60");
}

#[test]
fn a_run_that_loses_its_model_ends_with_an_error() {
    let place = TestFolder::with_scene();
    // Opacities that do not rise again.
    let halved = ["--preset=fast", "--opacity-lr=0", "--opacity-reset-interval=2"];
    let rounds = ["--densify-from-iter=20", "--densification-interval=8", "--iterations=60"];
    end(place.train().args(halved).args(rounds))
        .refused(1, &["iteration 24", "the last Gaussian", "--iterations 6000"]);
    assert!(!place.path("model/point_cloud").exists());
}
