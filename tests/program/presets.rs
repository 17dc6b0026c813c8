//! Presets for cards, by name and by `auto`.

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
    assert!(config.contains("optimize_memory = false") && config.contains("compact"), "{config}");
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
fn eval_names_only_typed_options_that_have_no_effect() {
    let place = TestFolder::with_scene();
    let train = ["--preset", "16gb", "--eval"];
    place.trained(2, &train).says(&["without effect on the CPU: --vram-limit"]);
    let eval = |flags: &[&str]| {
        let mut eval = splat();
        end(eval.args(["eval", "--device=cpu", "-m"]).arg(place.model()).args(flags)).done()
    };
    let ended = eval(&[]);
    assert!(!ended.stderr.contains("without effect"), "nothing was typed: {ended:#?}");
    let typed = eval(&["--vram-limit=2GiB"]);
    typed.says(&["without effect on the CPU: --vram-limit\n"]);
}
