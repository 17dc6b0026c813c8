//! Presets: for cards, by name and by `auto`, and that of a run of which nothing else is said.

use std::fs;

use crate::common::program::{TestFolder, end, splat, text};

fn stored_config(place: &TestFolder) -> String {
    fs::read_to_string(place.model().join("config.toml")).unwrap()
}

#[test]
fn the_preset_of_a_12_gib_card_is_taken_and_forecast() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--preset", "12gb"]);
    let config = stored_config(&place);
    assert!(config.contains("vram_limit = \"12GiB\""), "{config}");
    assert!(
        config.contains("optimize_memory = \"auto\"") && config.contains("compact"),
        "{config}"
    );
    let plan = end(splat().args(["plan", "-s"]).arg(place.scene())).done();
    assert!(plan.stdout.contains("--preset 12gb"), "{}", plan.stdout);
}

#[test]
fn auto_takes_the_preset_that_doctor_names() {
    let place = TestFolder::with_scene();
    let doctor = end(splat().args(["doctor", "--json"]));
    let doctor: serde_json::Value = serde_json::from_str(&doctor.stdout).unwrap();
    let card = doctor["gpu_memory"].as_u64();
    assert_eq!(end(splat().arg("doctor")).stdout.contains("(--preset auto)"), card.is_some());
    let limit = match doctor["preset"].as_str() {
        Some(name) => format!("vram_limit = \"{}GiB\"", name.trim_end_matches("gb")),
        // Nothing is written of what has no value.
        None => "fragmentation = \"normal\"".to_owned(),
    };
    let said = place.trained(2, &["--preset", "auto"]).says(&["--preset auto: "]);
    assert_eq!(said.stderr.contains("for a card of"), card.is_some(), "{said:#?}");
    assert!(stored_config(&place).contains(&limit), "{limit}");
    // What is typed wins over it, as over every preset.
    place.trained_into("typed", 2, &["--preset", "auto", "--vram-limit", "3GiB"]);
    let typed = fs::read_to_string(place.path("typed/config.toml")).unwrap();
    assert!(typed.contains("vram_limit = \"3GiB\""), "{typed}");
    let mut plan = splat();
    end(plan.args(["plan", "--preset", "auto", "-s"]).arg(place.scene()))
        .done()
        .says(&["--preset auto: "]);
}

#[test]
fn a_preset_that_does_not_exist_is_refused_with_the_names_of_all() {
    let place = TestFolder::with_scene();
    let ended = end(place.train().args(["--preset", "10gb"]));
    ended.refused(2, &["`10gb`", "8gb, 12gb, 16gb, 24gb", "auto"]);
    assert!(!place.model().exists(), "{} is made", text(&place.model()));
}

#[test]
fn only_typed_options_are_named_that_have_no_effect() {
    let place = TestFolder::with_scene();
    let train = ["--preset", "16gb", "--eval"];
    let trained =
        place.trained(2, &train).says(&["the preset's limits of GPU memory are without effect"]);
    assert!(!trained.stderr.contains("--vram-limit"), "nobody typed it: {trained:#?}");
    let eval = |flags: &[&str]| {
        let mut eval = splat();
        end(eval.args(["eval", "--device=cpu", "-m"]).arg(place.model()).args(flags)).done()
    };
    let ended = eval(&[]);
    assert!(!ended.stderr.contains("without effect"), "nothing was typed: {ended:#?}");
    let typed = eval(&["--vram-limit=2GiB"]);
    typed.says(&["without effect on the CPU: --vram-limit\n"]);
}

#[test]
fn a_usual_run_settles_what_it_grows_to() {
    let place = TestFolder::with_scene();
    let said = place.trained(2, &[]).says(&["2 iterations (--preset fast)"]);
    assert!(!said.stderr.contains("up to"), "no round comes: {}", said.stderr);
    let config = stored_config(&place);
    // One for 40 pixels of eight views of 48x36 px.
    assert!(config.contains("max_points = 345\n"), "{config}");
    place.trained_into("growing", 600, &[]).says(&["up to 345 Gaussians"]);
    let stored = |model: &str| fs::read_to_string(place.path(model).join("config.toml")).unwrap();
    let best = place.trained_into("best", 2, &["--preset", "best"]);
    assert!(!best.stderr.contains("(--preset"), "another was named: {best:#?}");
    place.trained_into("reference", 2, &["--preset", "reference"]);
    let reference = stored("reference");
    assert!(reference.contains("strategy = \"adc\"") && !reference.contains("max_points"));
}

#[test]
fn a_resumed_run_that_turns_to_the_preset_fast_settles_its_number() {
    let place = TestFolder::with_scene();
    place.trained(20, &["--preset", "reference"]);
    let resumed = ["--resume", "--preset", "fast", "--iterations", "400"];
    end(place.train().args(resumed)).done();
    let config = stored_config(&place);
    for line in ["max_points = 345\n", "opacity_reset_interval = 500\n", "max_passes = 0\n"] {
        assert!(config.contains(line), "{line}: {config}");
    }
}

#[test]
fn a_longer_resumed_run_is_not_held_to_passes_of_the_shorter_one() {
    let place = TestFolder::with_scene();
    let mut first = place.train();
    end(first.args(["--max-passes=2", "--densify-until-iter=0"])).done();
    end(place.train().args(["--resume", "--iterations=6030"])).done();
    let log = fs::read_to_string(place.model().join("run.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let steps =
        lines.filter(|line| line["event"] == "step" && line["iteration"].as_u64() > Some(6000));
    assert_eq!(steps.count(), 3, "an image an iteration, of which every tenth is told");
    assert!(place.ply(6030).exists());
}

#[test]
fn the_reference_keeps_what_the_demonstration_and_ranks_have() {
    let place = TestFolder::with_scene();
    let mut ranks = place.train();
    end(ranks.args(["--preset=reference", "--iterations=4", "--ranks=2"])).done();
    assert!(stored_config(&place).contains("batch_views = 2\n"));
    let mut resumed = place.train();
    end(resumed.args(["--resume", "--preset=reference", "--iterations=6", "--ranks=2"])).done();
    assert!(stored_config(&place).contains("batch_views = 2\n"));
    let mut demo = splat();
    demo.args(["train", "--demo", "--device=cpu", "--preset=reference", "--max-passes=1", "-m"]);
    end(demo.arg(place.path("demo"))).done();
    let config = fs::read_to_string(place.path("demo/config.toml")).unwrap();
    for line in ["iterations = 1500\n", "eval = true\n", "strategy = \"adc\"\n"] {
        assert!(config.contains(line), "{line}: {config}");
    }
}

#[test]
fn iterations_that_never_come_are_said_where_they_were_typed() {
    let place = TestFolder::with_scene();
    let late = "--save-iterations 30000 is after the last iteration, 2: give --iterations 30000";
    let said = place.trained(2, &["--save-iterations", "1", "7000", "30000"]).says(&[late]);
    assert!(!said.stderr.contains("or --preset reference"), "the length was given: {said:#?}");
    let mut usual = place.train_into("usual");
    let usual = usual.args(["--max-passes=1", "--test-iterations", "7000", "30000"]);
    end(usual).done().says(&["--test-iterations 30000 is after", "or --preset reference"]);
    let silent = place.trained_into("silent", 2, &[]);
    assert!(!silent.stderr.contains("after the last iteration"), "{}", silent.stderr);
}

#[test]
fn the_help_of_training_has_both_defaults_where_they_differ() {
    for command in ["train", "plan"] {
        let help = end(splat().args([command, "--help"])).done().stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for both in ["6000; of --preset reference: 30000", "budget; of --preset reference: adc"] {
            assert!(help.contains(both), "{command}: {both}");
        }
    }
}
