//! Whole runs with each way of adding and removing Gaussians.

use rstest::rstest;
use serde_json::Value;
use splat::export::read_ply;
use splat::math::sigmoid;
use splat::model::Gaussians;

use crate::common::program::{TestFolder, Text as _, end, header, splat, text, words};
use crate::synthetic_scenes::with_model;

/// Densification steps every 20 iterations from 40 to 120 of a run of 160, from Gaussians near death.
const MARKOV_CHAIN: [&str; 11] = words(
    "--strategy=mcmc --densify-from-iter=30 --densify-until-iter=130 --densification-interval=20 \
     --max-points=233 --init-opacity=0.006 --position-lr-max-steps=160 --sh-degree-interval=50 \
     --seed=3 --save-iterations=-1 --test-iterations=-1",
);

fn sum(events: &[Value], field: &str) -> u64 {
    events.iter().map(|event| event[field].as_u64().unwrap()).sum()
}

#[test]
fn mcmc_relocates_and_adds_gaussians_up_to_its_cap_and_resumes() {
    let place = TestFolder::with_scene();
    place.trained(160, &[&MARKOV_CHAIN[..], &["--checkpoint-iterations=50,80"]].concat());
    let steps = place.events("model", "relocated");
    let numbers = |key: &str| place.numbers("model", "relocated", key);
    assert_eq!(numbers("iteration"), [40, 60, 80, 100, 120]);
    // A twentieth of 200 each time, then what the cap leaves.
    assert_eq!(numbers("gaussians"), [210, 220, 231, 233, 233]);
    assert_eq!((sum(&steps, "born"), sum(&steps, "refused")), (33, 0));
    assert!(sum(&steps, "relocated") > 0, "nobody was dead: {steps:#?}");
    for kind in ["densified", "opacity_reset"] {
        assert!(place.events("model", kind).is_empty(), "{kind}");
    }
    // Of the preset, beneath what was typed.
    stored_config(&place).assert_holds(&["scale_reg = 0.01\n", "init_opacity = 0.006\n"]);
    // Between two densification steps, and where one is due.
    for iteration in [50, 80] {
        place.assert_continues("model", iteration, 160);
    }
}

/// Densification steps every 30 iterations of a run of 140.
const WINDOW: [&str; 4] = words(
    "--densify-from-iter=30 --densify-until-iter=130 --densification-interval=30 \
     --densify-grad-threshold=0.005",
);

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
        let steps = place.events(model, "densified");
        assert_eq!(steps.len(), 3, "{model}");
        born.push(sum(&steps[..1], "cloned") + sum(&steps[..1], "split"));
        let header = header(&place.checkpoint_of(model, 140));
        let gathers_both = ["gof", "mip"].contains(&model);
        assert_eq!(header.contains("absolute_norm_sums"), gathers_both, "{model}");
        assert_eq!(header.contains("\"filter_3d\""), model == "mip", "{model}");
    }
    // Cameras stand about one extent away, and nearer Gaussians have less say.
    place.trained_into("faded", 140, &[&WINDOW[..], &["--near-fade=1"]].concat());
    let faded = &place.events("faded", "densified")[..1];
    let faded = sum(faded, "cloned") + sum(faded, "split");
    assert!(faded < born[0], "{faded} of {}", born[0]);
    // Absolute values are larger than those that cancel, and GOF takes its own beside the others.
    let [plain, absolute, gof, _] = born[..] else { panic!("{born:?}") };
    assert!(plain < absolute && plain < gof, "{born:?}");
}

#[test]
fn budget_grows_to_its_number_at_an_even_pace_and_resumes() {
    let place = TestFolder::with_scene();
    let flags = words::<10>(
        "--strategy=budget --densify-from-iter=30 --densify-until-iter=130 \
         --densification-interval=20 --opacity-reset-interval=60 --max-points=300 \
         --checkpoint-iterations=70 --save-iterations=-1 --test-iterations=-1 --seed=3",
    );
    place.trained(160, &flags);
    let [counts, pruned, cloned, split] = ["gaussians", "pruned", "cloned", "split"]
        .map(|key| place.numbers("model", "densified", key));
    // The last densification step adds all missing Gaussians before it prunes.
    assert_eq!(counts.last().unwrap() + pruned.last().unwrap(), 300, "{counts:?} {pruned:?}");
    assert!(counts.iter().all(|&count| count <= 300), "{counts:?}");
    let born: Vec<u64> = cloned.iter().zip(&split).map(|(cloned, split)| cloned + split).collect();
    let (least, most) = (born.iter().min().unwrap(), born.iter().max().unwrap());
    assert!(born.len() >= 3 && *least > 0 && *most <= 3 * least, "{born:?}");
    assert_eq!(place.events("model", "opacity_reset").len(), 2);
    place.assert_continues("model", 70, 160);
}

#[test]
fn a_number_that_no_densification_step_reaches_is_reported() {
    let place = TestFolder::with_scene();
    let flags = ["--strategy=budget", "--densify-from-iter=20", "--max-points=300"];
    let ended = place.trained(20, &flags);
    let words = ["no densification step", "its 200 Gaussians", "--max-points 300"];
    ended.says(&words);
    // None was asked for.
    place
        .trained_into("enough", 20, &[&flags[..2], &["--max-points=200"]].concat())
        .omits(&[words[0]]);
    place.trained_into("short", 20, &["--preset=fast", "--densification-interval=2"]);
    let steps = place.numbers("short", "densified", "iteration");
    assert_eq!([steps[0], steps[steps.len() - 1]], [4, 8]);
}

#[test]
fn near_fade_weighs_no_disagreement() {
    let place = TestFolder::with_scene();
    let flags = [&WINDOW[..3], &["--strategy=budget", "--max-points=300"]].concat();
    place.trained_into("plain", 100, &flags);
    let faded = place.trained_into("faded", 100, &[&flags[..], &["--near-fade=1"]].concat());
    faded.says(&["--near-fade has no effect"]);
    assert_eq!(place.events("plain", "densified").len(), 2);
    place.assert_same(["plain", "faded"], 100);
}

#[test]
fn what_is_saved_of_a_filtered_model_is_what_was_measured() {
    let place = TestFolder::with_scene();
    place.trained(140, &[&WINDOW[..], &["--preset=mip", "--eval", "--test-every=4"]].concat());
    let trained = place.json("model/results.json");
    let found = place.run("eval", &["--json"]).done().json();
    // The PLY holds scales and opacities as they are drawn through the filter, rounded once more.
    for (name, key) in [("psnr", "PSNR"), ("ssim", "SSIM")] {
        let trained = trained["ours_140"][key].as_f64().unwrap();
        let found = found["mean"][name].as_f64().unwrap();
        assert!((found / trained - 1.0).abs() < 1e-5, "{key}: {found} instead of {trained}");
    }
    // What is optimised is narrower, and no model without the filter.
    let flags = ["--filter-3d=false", "--iterations=150"];
    let refused = place.train_from(&place.checkpoint(140), "none", &flags);
    refused.refused(2, &["chkpnt_140", "--filter-3d", "--init"]);
}

/// The Gaussians that runs of small scenes begin and end with.
#[rstest]
#[case::a_short_run_of_best(8, &["--preset=best", "--iterations=30"])]
#[case::two_views(2, &[])]
#[case::two_views_with_few_passes(2, &["--max-passes=65", "--few-view-passes=0"])]
fn halved_opacities_do_not_empty_a_model(#[case] views: u32, #[case] flags: &[&str]) {
    let place = TestFolder::empty();
    let line = "synth -o SCENE --width=32 --height=24 --points=60";
    place.splat(line, &[&format!("--views={views}")]).done();
    end(place.train().args(flags)).done();
    let left = place.numbers("model", "finished", "gaussians")[0];
    assert!(left >= 60, "{left} Gaussians are left of 60");
}

#[test]
fn a_run_that_loses_its_model_ends_with_an_error() {
    let place = TestFolder::with_scene();
    // Opacities that do not rise again.
    let halved = ["--preset=fast", "--opacity-lr=0", "--opacity-reset-interval=2"];
    let steps = ["--densify-from-iter=20", "--densification-interval=8", "--iterations=60"];
    end(place.train().args(halved).args(steps))
        .refused(1, &["iteration 24", "the last Gaussian", "--iterations 6000"]);
    assert!(!place.path("model/point_cloud").exists());
}

// Presets: for cards, by name and by `auto`, and the default.

fn stored_config(place: &TestFolder) -> String {
    place.read("model/config.toml")
}

#[test]
fn the_preset_of_a_12_gib_card_is_taken_and_forecast() {
    let place = with_model(2, &["--preset", "12gb"]);
    let parts = ["vram_limit = \"12GiB\"", "optimize_memory = \"auto\"", "compact"];
    stored_config(&place).assert_holds(&parts);
    place.splat("plan -s SCENE", &[]).done().prints(&["--preset 12gb"]);
}

#[test]
fn auto_takes_the_preset_that_doctor_names() {
    let place = TestFolder::with_scene();
    let doctor = end(splat().args(["doctor", "--json"])).json();
    let card = doctor["gpu_memory"].as_u64();
    assert_eq!(end(splat().arg("doctor")).stdout.contains("(--preset auto)"), card.is_some());
    let limit = match doctor["preset"].as_str() {
        Some(name) => format!("vram_limit = \"{}GiB\"", name.trim_end_matches("gb")),
        // Nothing is written of what has no value.
        None => "fragmentation = \"normal\"".to_owned(),
    };
    let output = place.trained(2, &["--preset", "auto"]).says(&["--preset auto: "]);
    assert_eq!(output.stderr.contains("for a card of"), card.is_some(), "{output:#?}");
    assert!(stored_config(&place).contains(&limit), "{limit}");
    // A typed option wins over it, as over every preset.
    place.trained_into("typed", 2, &["--preset", "auto", "--vram-limit", "3GiB"]);
    place.read("typed/config.toml").assert_holds(&["vram_limit = \"3GiB\""]);
    place.splat("plan --preset auto -s SCENE", &[]).done().says(&["--preset auto: "]);
}

#[test]
fn only_typed_options_are_named_that_have_no_effect() {
    let place = TestFolder::with_scene();
    let train = ["--preset", "16gb", "--eval"];
    let expected = "the preset's limits of GPU memory are without effect";
    place.trained(2, &train).says(&[expected]).omits(&["--vram-limit"]);
    let eval = |flags: &[&str]| place.run("eval", flags).done();
    eval(&[]).omits(&["without effect"]);
    let typed = place.trained_into("typed", 1, &["--vram-limit=80%"]);
    typed.says(&["without effect on the CPU: --vram-limit"]);
    place.read("typed/config.toml").assert_holds(&["vram_limit = \"80%\""]);
    place.splat("eval --device=cpu --split=train -m typed", &[]).done().omits(&["without effect"]);
    eval(&["--vram-limit=2GiB"]).says(&["without effect on the CPU: --vram-limit\n"]);
}

#[test]
fn a_usual_run_settles_what_it_grows_to() {
    let place = TestFolder::with_scene();
    place.trained(2, &[]).says(&["2 iterations (--preset fast)"]).omits(&["up to"]);
    // One for 40 pixels of eight views of 48x36 px.
    stored_config(&place).assert_holds(&["max_points = 345\n"]);
    place.trained_into("growing", 220, &[]).says(&["up to 345 Gaussians"]);
    let stored = |model: &str| place.read(&format!("{model}/config.toml"));
    place.trained_into("best", 2, &["--preset", "best"]).omits(&["(--preset"]);
    place.trained_into("reference", 2, &["--preset", "reference"]);
    let reference = stored("reference");
    assert!(reference.contains("strategy = \"adc\"") && !reference.contains("max_points"));
}

#[test]
fn a_resumed_run_that_turns_to_the_preset_fast_settles_its_number() {
    let place = with_model(20, &["--preset", "reference"]);
    let resumed = ["--resume", "--preset", "fast", "--iterations", "220"];
    end(place.train().args(resumed)).done();
    let config = stored_config(&place);
    config.assert_holds(&[
        "max_points = 345\n",
        "opacity_reset_interval = 500\n",
        "max_passes = 0\n",
    ]);
}

#[test]
fn a_longer_resumed_run_is_not_held_to_passes_of_the_shorter_one() {
    let place = TestFolder::with_scene();
    end(place.train().args(["--max-passes=2", "--densify-until-iter=0"])).done();
    place.resume(&["--iterations=6030"]).done();
    // One image per iteration; every tenth is reported.
    let steps = place.numbers("model", "step", "iteration");
    assert_eq!(steps.iter().filter(|&&step| step > 6000).count(), 3);
    assert!(place.ply(6030).exists());
}

#[test]
fn the_reference_keeps_what_the_demonstration_and_ranks_have() {
    let place = TestFolder::with_scene();
    let ranks = ["--preset=reference", "--ranks=2"];
    for flags in [&["--iterations=4"][..], &["--resume", "--iterations=6"]] {
        end(place.train().args(ranks).args(flags)).done();
        assert_eq!(place.config("model").optimize.batch_views, 2);
    }
    let line = "train --demo --device=cpu --preset=reference --max-passes=1 -m demo";
    place.splat(line, &[]).done();
    place.read("demo/config.toml").assert_holds(&[
        "iterations = 1500\n",
        "eval = true\n",
        "strategy = \"adc\"\n",
    ]);
}

#[test]
fn iterations_that_never_come_are_said_where_they_were_typed() {
    let place = TestFolder::with_scene();
    let late = "--save-iterations 30000 is after the last iteration, 2: give --iterations 30000";
    let given = place.trained(2, &["--save-iterations", "1", "7000", "30000"]);
    given.says(&[late]).omits(&["or --preset reference"]);
    let mut usual = place.train_into("usual");
    let usual = usual.args(["--max-passes=1", "--test-iterations", "7000", "30000"]);
    end(usual).done().says(&["--test-iterations 30000 is after", "or --preset reference"]);
    place.trained_into("silent", 2, &[]).omits(&["after the last iteration"]);
}

#[test]
fn the_help_of_training_has_both_defaults_where_they_differ() {
    for command in ["train", "plan"] {
        let help = end(splat().args([command, "--help"])).done().stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        help.assert_holds(&[
            "6000; of --preset reference: 30000",
            "budget; of --preset reference: adc",
        ]);
    }
}

// `--target-gaussians`: a run that is pruned to a number of Gaussians when density control has ended.

/// Density control from 40 to 130 of a run of 160, which is pruned to 120 then.
const PRUNED: [&str; 9] = words(
    "--densify-from-iter=30 --densify-until-iter=130 --densification-interval=20 \
     --densify-grad-threshold=0.0005 --position-lr-max-steps=160 --sh-degree-interval=50 \
     --target-gaussians=120 --save-iterations=-1 --test-iterations=-1",
);

fn summary(place: &TestFolder, model: &str) -> Value {
    place.json(&format!("{model}/summary.json"))
}

/// The event of the one prune of a run.
fn pruned(place: &TestFolder, model: &str) -> Value {
    let mut events = place.events(model, "pruned_to_target");
    assert_eq!(events.len(), 1, "{events:#?}");
    events.remove(0)
}

fn gaussians(place: &TestFolder, model: &str, iteration: u32) -> usize {
    read_ply(&place.ply_of(model, iteration)).unwrap().len()
}

#[rstest]
#[case::adc(&["--strategy=adc", "--eval"], "test")]
#[case::gof(&["--strategy=gof"], "eval_train")]
#[case::mcmc(&["--strategy=mcmc", "--max-points=300", "--batch-views=4"], "eval_train")]
#[case::filters(&["--antialiasing", "--filter-3d", "--optimize-memory"], "eval_train")]
fn a_run_is_pruned_once_and_stays_so(#[case] flags: &[&str], #[case] split: &str) {
    let place = TestFolder::with_scene();
    let ended =
        place.trained(160, &[&PRUNED[..], flags, &["--checkpoint-iterations=132"]].concat());
    let event = &pruned(&place, "model");
    let steps = place.events("model", "step");
    let before =
        steps.iter().rfind(|step| step["iteration"].as_u64() <= event["iteration"].as_u64());
    let before = before.and_then(|step| step["gaussians"].as_u64());
    let number = |key: &str| event[key].as_u64().unwrap();
    assert_eq!((number("target"), number("gaussians")), (120, 120));
    assert_eq!(Some(number("pruned") + 120), before);
    // The step of four views ends at 132.
    assert_eq!(number("iteration"), if flags.contains(&"--batch-views=4") { 132 } else { 130 });
    let psnr = |key: &str| event["psnr"][key].as_f64().unwrap();
    assert!(psnr("after") > 5.0 && psnr("after") < psnr("before") + 1.0, "{event}");
    assert_eq!(event["psnr"]["split"], split);
    let line = format!(
        "] Pruned {} Gaussians, 120 left; {split} PSNR {:.3} before, {:.3} after",
        number("pruned"),
        psnr("before"),
        psnr("after")
    );
    ended.says(&[&line]);
    assert_eq!(gaussians(&place, "model", 160), 120);
    let summary = summary(&place, "model");
    assert_eq!(summary["target"]["psnr"], event["psnr"]);
    assert_eq!(summary["target"]["pruned"], event["pruned"]);
    assert_eq!(summary["gaussians"], 120);
}

#[test]
fn a_pruned_run_that_is_resumed_ends_in_the_same_bytes() {
    let place = TestFolder::with_scene();
    let stops = ["--max-points=300", "--checkpoint-iterations=120,130,140"];
    for strategy in ["adc", "mcmc"] {
        let flag = format!("--strategy={strategy}");
        place.trained_into(strategy, 160, &[&PRUNED[..], &stops, &[&flag]].concat());
        // Before the prune, where it is due, and after it.
        for iteration in [120, 130, 140] {
            let model = format!("{strategy}_from_{iteration}");
            place.train_from(&place.checkpoint_of(strategy, iteration), &model, &[]).done();
            place.assert_same([&model, strategy], 160);
            let pruned = place.events(&model, "pruned_to_target").len();
            assert_eq!(pruned, usize::from(iteration <= 130), "{model}");
        }
        // In the folder itself the summary keeps what was done before.
        let before = summary(&place, strategy)["target"].clone();
        end(place.train_into(strategy).args(["--resume", "--iterations=162"])).done();
        assert_eq!(summary(&place, strategy)["target"], before);
    }
}

#[rstest]
#[case::of_the_run(&[], "--iterations=17")]
#[case::before_the_coarse_stage(
    &["--regularize=density", "--sugar-iterations=4"],
    "--sugar-iterations=6",
)]
fn a_prune_that_falls_into_the_last_step_comes_after_it(
    #[case] flags: &[&str],
    #[case] longer: &str,
) {
    let place = TestFolder::with_scene();
    let prune = ["--batch-views=4", "--densify-until-iter=13", "--target-gaussians=120"];
    let flags = [&prune, flags, &["--checkpoint-iterations=14"]].concat();
    place.trained(14, &flags).says(&["[ITER 14] Pruned", "120 left"]);
    let event = pruned(&place, "model");
    assert_eq!((&event["iteration"], &event["gaussians"]), (&14.into(), &120.into()));
    assert_eq!(gaussians(&place, "model", 14), 120);
    let before = summary(&place, "model");
    assert!(before["gaussians"].as_u64().unwrap() <= 120);
    // Nothing is left to prune after the checkpoint.
    place.resume(&[longer]).done();
    assert_eq!(summary(&place, "model")["target"], before["target"]);
}

#[test]
fn a_resumed_step_across_the_end_of_density_control_is_still_pruned() {
    let place = TestFolder::with_scene();
    let flags = ["--batch-views=4", "--densify-until-iter=13", "--checkpoint-iterations=16"];
    place.trained(16, &flags);
    let resumed = ["--resume", "--iterations=24", "--target-gaussians=120"];
    let resumed = end(place.train().args(resumed)).done();
    resumed.says(&["[ITER 16] Pruned", "120 left"]).omits(&["Gaussians stay"]);
}

#[test]
fn the_fewer_stay_the_more_it_costs() {
    let place = TestFolder::with_scene();
    let psnr = |target: &str| {
        place.trained_into(target, 160, &[&PRUNED[..], &["--target-gaussians", target]].concat());
        let event = pruned(&place, target);
        ["before", "after"].map(|key| event["psnr"][key].as_f64().unwrap())
    };
    // Half of the Gaussians go, and then most of them.
    let [before, after] = psnr("2000");
    let [same, fewer] = psnr("20");
    assert!(same == before && fewer < after, "{before} {after}, {same} {fewer}");
    assert!(before - after < 0.5, "{before} {after}");
}

#[test]
fn a_target_above_the_number_of_gaussians_changes_nothing() {
    let place = TestFolder::with_scene();
    let plain = [&PRUNED[..6], &PRUNED[7..]].concat();
    place.trained_into("plain", 160, &plain);
    let many = [&plain[..], &["--target-gaussians=100000"]].concat();
    place.trained(160, &many).says(&["Nothing to prune", "--target-gaussians 100000"]);
    let mut event = pruned(&place, "model");
    assert_eq!((&event["pruned"], event.get("psnr")), (&0.into(), None));
    event.as_object_mut().unwrap().retain(|key, _| key != "event" && key != "time");
    assert_eq!(summary(&place, "model")["target"], event);
    place.assert_same(["plain", "model"], 160);
}

#[test]
fn a_target_after_the_end_of_density_control_is_said_to_have_no_effect() {
    let place = TestFolder::with_scene();
    place.trained(40, &["--preset=reference", "--max-gaussians=250"]);
    // Density control ended before: the run continues from a later checkpoint.
    let late = ["--resume", "--iterations=50", "--densify-until-iter=30", "--target-gaussians=9"];
    end(place.train().args(late)).done().says(&[
        "warning",
        "has no effect on the 200 Gaussians",
        "iteration 30",
    ]);
}

#[test]
fn the_plan_shows_the_prune_and_what_is_left_for_the_coarse_stage() {
    let place = TestFolder::with_scene();
    let plan = |flags: &[&str]| {
        let fixed = ["--gaussians=2000000", "--regularize=sdf"];
        let report = place.plan(&[&fixed, flags].concat());
        let stages = report["stages"].as_array().unwrap().clone();
        move |name: &str| {
            let stage = stages.iter().find(|stage| stage["name"] == name)?;
            stage["total"].as_u64()
        }
    };
    let (plain, pruned) = (plan(&[]), plan(&["--target-gaussians=500000"]));
    assert_eq!(plain("prune to target"), None);
    assert!(pruned("prune to target").unwrap() > pruned("start").unwrap());
    assert!(pruned("coarse training").unwrap() < plain("coarse training").unwrap() * 3 / 4);
    assert_eq!(pruned("iteration"), plain("iteration"));
    assert_eq!(plan(&["--target-gaussians=2000000"])("prune to target"), None);
}

// Options of training that other trainers' users look for: smaller photographs, sums over several views,
// what is pruned, and switches of Mip-Splatting's that change nothing here.

#[test]
fn a_resolution_scale_multiplies_what_resolution_leaves() {
    let place = TestFolder::with_scene();
    for (flags, px) in [
        (&[][..], [48, 36]),
        (&["--resolution-scale=0.5"][..], [24, 18]),
        (&["-r=2", "--resolution_scale", "0.5"][..], [12, 9]),
        (&["-r=24", "--resolution-scale=0.75"][..], [18, 14]),
    ] {
        assert_eq!(place.plan(flags)["scene"]["largest_px"], Value::from(px.to_vec()), "{flags:?}");
    }
    place.trained(5, &["--eval", "--resolution-scale=0.5"]);
    // It is a property of the run: what is measured and drawn later has the same size.
    place.run("eval", &[]).done().omits(&["other scene options"]);
    place.run("render", &["--skip-train"]).done();
    let picture = place.model().join("test/ours_5/renders/00000.png");
    assert_eq!(image::image_dimensions(picture).unwrap(), (24, 18));
}

/// Returns the model of 31 iterations with one densification step, after the 30th.
fn after_a_densification_step(place: &TestFolder, model: &str, flags: &[&str]) -> Gaussians {
    let step = ["--densify-from-iter=10", "--densification-interval=30", "--densify-until-iter=31"];
    place.trained_into(model, 31, &[&step, flags].concat());
    read_ply(&place.ply_of(model, 31)).unwrap()
}

fn largest_scale(model: &Gaussians, row: usize) -> f32 {
    model.log_scales[row * 3..][..3].iter().fold(f32::MIN, |most, &s| most.max(s)).exp()
}

#[rstest]
#[case::adc(&["--strategy=adc", "--opacity-reset-interval=100000"], 0.08)]
// It starts with opacities of a half.
#[case::mcmc(&["--strategy=mcmc"], 0.4)]
fn densification_leaves_nothing_more_transparent_than_min_opacity(
    #[case] flags: &[&str],
    #[case] min: f32,
) {
    let place = TestFolder::with_scene();
    let least = |model: &Gaussians| model.opacity_logits.iter().copied().fold(f32::MAX, f32::min);
    let usual = after_a_densification_step(&place, "usual", flags);
    let pruned = after_a_densification_step(
        &place,
        "pruned",
        &[flags, &[&format!("--min-opacity={min}")]].concat(),
    );
    let (usual, found) = (sigmoid(least(&usual)), sigmoid(least(&pruned)));
    // One iteration follows the densification step.
    assert!(usual < 0.75 * min && found > 0.95 * min, "{usual} and {found}");
    assert!(!pruned.is_empty());
}

#[test]
fn densification_removes_what_is_larger_than_prune_scale() {
    let place = TestFolder::with_scene();
    let extent = place.dataset().extent();
    let flags = ["--strategy=adc", "--opacity-reset-interval=20"];
    let usual = after_a_densification_step(&place, "usual", &flags);
    let mut scales: Vec<f32> = (0..usual.len()).map(|row| largest_scale(&usual, row)).collect();
    scales.sort_by(f32::total_cmp);
    let share = f64::from(scales[scales.len() / 2]) / extent;
    let flag = format!("--prune-scale={share}");
    let pruned = after_a_densification_step(&place, "pruned", &[&flags[..], &[&flag]].concat());
    assert!(!pruned.is_empty() && pruned.len() < usual.len(), "{} rows", pruned.len());
    let most = (0..pruned.len()).map(|row| largest_scale(&pruned, row)).fold(0.0, f32::max);
    // One iteration follows the densification step: 5e-3 of a logarithm.
    assert!(f64::from(most) <= share * extent * 1.02, "{most}");
}

#[test]
fn thresholds_of_density_control_say_that_the_coarse_stage_has_none() {
    let place = TestFolder::with_scene();
    place.trained_into("before", 2, &[]);
    let before = place.path("before");
    let coarse = ["--regularize=density", "--sugar-iterations=1", "--n-samples-for-sdf=100"];
    let thresholds = ["--min-opacity=0.004", "--prune-scale=0.2", "--target-gaussians=9"];
    end(place.train().args(["-c", text(&before)]).args(coarse).args(thresholds)).done().says(&[
        "--min-opacity has no effect with -c",
        "--prune-scale has no effect with -c",
        "--target-gaussians has no effect with -c",
    ]);
}
