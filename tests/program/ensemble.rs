//! An ensemble is trained first, and its mean renders train the model.

use std::fs;

use image::open;
use rstest::rstest;
use splat::config::Config;
use splat::dataset::Dataset;
use splat::train::forecast::photographs;

use crate::common::program::{TestFolder, Text as _, end, words};

/// Two models of 20 iterations, then one of 80.
const FLAGS: [&str; 6] = words(
    "--ensemble=2 --eval --seed=3 --save-iterations=-1 --test-iterations=-1 --checkpoint-iterations=31",
);

fn trained(flags: &[&str]) -> TestFolder {
    let place = TestFolder::with_scene();
    place.trained_into("unbroken", 80, &[&FLAGS[..], flags].concat());
    place
}

#[test]
fn a_run_that_stops_after_its_ensemble_goes_on_in_the_same_bytes() {
    let place = trained(&[]);
    // One of eight views is held out, and each other has two pseudo-views.
    let view = |number: u32| place.path(&format!("unbroken/pseudo_views/{number:05}.png"));
    assert!(view(13).exists() && !view(14).exists());
    let photograph = open(place.image(1)).unwrap().to_rgb8();
    let drawn = open(view(0)).unwrap().to_rgb8();
    assert_eq!(drawn.dimensions(), photograph.dimensions());
    assert!(drawn.pixels().any(|pixel| *pixel != *drawn.get_pixel(0, 0)), "nothing is drawn");
    // The ensemble leaves no model and no steps in the log.
    assert_eq!(place.numbers("unbroken", "step", "iteration"), [10, 20, 30, 40, 50, 60, 70, 80]);
    assert!(!place.path("unbroken/checkpoints/chkpnt_20.safetensors").exists());

    let went_on = place.path("unbroken").join("checkpoints/chkpnt_31.safetensors");
    fs::create_dir_all(place.model().join("pseudo_views")).unwrap();
    for file in fs::read_dir(place.path("unbroken/pseudo_views")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), place.model().join("pseudo_views").join(file.file_name())).unwrap();
    }
    place.train_from(&went_on, "model", &[]).done();
    place.assert_same(["unbroken", "model"], 80);
}

#[rstest]
#[case::without_its_renders("images", &[])]
#[case::with_cameras_of_another_seed("pseudo_views", &["--seed=4"])]
fn a_run_that_cannot_use_its_renders_says_so(#[case] kept: &str, #[case] flags: &[&str]) {
    let place = trained(&[]);
    let from = place.path("unbroken/pseudo_views");
    fs::create_dir_all(place.model()).unwrap();
    fs::rename(&from, place.model().join(kept)).unwrap();
    let checkpoint = place.checkpoint_of("unbroken", 31);
    let ended = place.train_from(&checkpoint, "model", flags).done();
    ended.says(&["pseudo-views of --ensemble are missing or have other cameras"]);
    assert_eq!(place.config("model").optimize.ensemble, 0);
}

#[test]
fn models_of_an_ensemble_change_the_result_and_count_as_training() {
    let place = trained(&[]);
    place.trained_into("alone", 80, &[&FLAGS[..], &["--ensemble=0"]].concat());
    assert!(!place.path("alone/pseudo_views").exists());
    assert!(place.ply_bytes("unbroken", 80) != place.ply_bytes("alone", 80));
    let logged = place.read("unbroken/run.jsonl");
    logged.assert_holds(&["model 1 of 2 of --ensemble", "model 2 of 2 of --ensemble"]);
}

#[rstest]
#[case::ranks(&["--ranks=2"], "several ranks train one model")]
#[case::a_budget(&["--time-budget=1s"], "--ensemble has no effect with")]
#[case::one_training_view(&["--test-views=7"], "the scene has 1 training views")]
fn an_ensemble_that_is_left_out_is_named(#[case] flags: &[&str], #[case] why: &str) {
    let place = TestFolder::with_scene();
    let flags = [&["--iterations=20", "--ensemble=2"], flags].concat();
    end(place.train().args(flags)).done().says(&[why]);
    assert!(!place.model().join("pseudo_views").exists());
}

#[test]
fn a_plan_counts_the_renders_among_the_photographs() {
    let place = TestFolder::with_scene();
    let mut config = Config::default();
    config.scene.source_path = Some(place.scene());
    let planned = |config: &Config| photographs(&Dataset::load_to_train(config).unwrap()).trained;
    let alone = planned(&config);
    config.optimize.ensemble = 2;
    // Two renders of each photograph's size.
    assert_eq!(planned(&config), [&alone[..], &alone, &alone].concat());
}
