//! An ensemble is trained first, and its mean renders train the model.

use std::fs;

use image::open;
use rstest::rstest;
use splat::config::Config;
use splat::dataset::Dataset;
use splat::train::forecast::photographs;

use crate::common::program::{TestFolder, end, ended, send, started_until, training, words};

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

    // The renders are copied, also into the folder of another run. A loader that keeps all images reads the copies.
    place.trained_into("model", 80, &FLAGS);
    let checkpoint = place.checkpoint_of("unbroken", 31);
    place.train_from(&checkpoint, "model", &["--high-dram"]).done().omits(&["left out"]);
    place.assert_same(["unbroken", "model"], 80);
}

#[rstest]
#[case::without_a_render("pseudo_views/00003.png", &[], "00003.png")]
#[case::without_its_cameras("pseudo_views/cameras.json", &[], "cameras.json")]
#[case::with_cameras_of_another_seed("input.ply", &["--seed=4"], "another --seed")]
fn a_run_that_cannot_use_its_renders_goes_on_only_without_them(
    #[case] lost: &str,
    #[case] flags: &[&str],
    #[case] why: &str,
) {
    let place = trained(&[]);
    fs::remove_file(place.path("unbroken").join(lost)).unwrap();
    let checkpoint = place.checkpoint_of("unbroken", 31);
    let go_on = |flags: &[&str]| place.train_from(&checkpoint, "model", flags);
    go_on(flags).refused(3, &[why, "--ensemble 0"]);
    go_on(&[flags, &["--ensemble=0"]].concat()).done().says(&["photographs alone"]);
    assert_eq!(place.config("model").optimize.ensemble, 0);
    assert!(!place.model().join("pseudo_views").exists());
}

#[test]
fn a_run_without_its_renders_keeps_its_number_of_images() {
    let place = TestFolder::with_scene();
    let passes = ["--max-passes=2", "--checkpoint-iterations=40"];
    place.trained_into("unbroken", 80, &[&FLAGS[..5], &passes].concat());
    let checkpoint = place.checkpoint_of("unbroken", 40);
    place.train_from(&checkpoint, "model", &["--ensemble=0"]).done();
    place.train_from(&checkpoint, "longer", &["--ensemble=0", "--iterations=90"]).done();
    // Two passes over 7 photographs and 14 renders, or six over photographs.
    let images = |model: &str| place.numbers(model, "ended", "images");
    assert_eq!((images("unbroken"), images("model")), (vec![42], vec![42]));
    assert_eq!(place.config("model").optimize.max_passes, 6);
}

#[test]
fn another_number_of_models_has_no_effect_on_a_run_that_goes_on() {
    let place = trained(&[]);
    let checkpoint = place.checkpoint_of("unbroken", 31);
    place
        .train_from(&checkpoint, "model", &["--ensemble=3"])
        .done()
        .says(&["--ensemble 3 has no effect: the ensemble of 2 is already trained"]);
    place.assert_same(["unbroken", "model"], 80);
    place.trained_into("alone", 40, &["--save-iterations=-1"]);
    let alone = place.checkpoint_of("alone", 40);
    let flags = ["--ensemble=2", "--iterations=50"];
    place.train_from(&alone, "more", &flags).done().says(&["the run began without an ensemble"]);
}

#[rstest]
#[case::interrupted_in_the_ensemble("00000.png", "INT")]
#[case::killed_after_the_ensemble("cameras.json", "KILL")]
fn a_run_without_a_checkpoint_starts_again_and_ends_in_the_same_bytes(
    #[case] written: &str,
    #[case] signal: &str,
) {
    let place = TestFolder::with_scene();
    // Passes of the final model and of the models of its ensemble are settled differently.
    let flags = [&FLAGS[..5], &["--max-passes=65", "--few-view-passes=100"]].concat();
    let begun = place.model().join("pseudo_views");
    let child = started_until(
        training(&place, &[&flags[..], &["--iterations=800"]].concat()),
        &begun.join(written),
    );
    send(signal, &child);
    let end = ended(child);
    if signal == "INT" {
        end.ends(130).says(&["interrupted while the ensemble trains, without a checkpoint"]);
    }
    assert!(!place.model().join("checkpoints").exists());
    // A file of the user stays.
    fs::write(begun.join("mine.txt"), "mine").unwrap();
    place.resume(&["--verbose"]).done().says(&["model 2 of 2"]);
    place.trained_into("unbroken", 800, &flags);
    place.assert_same(["unbroken", "model"], 800);
}

#[test]
fn models_of_an_ensemble_change_the_result_and_count_as_training() {
    let place = trained(&[]);
    place.trained_into("alone", 80, &[&FLAGS[..], &["--ensemble=0"]].concat());
    assert!(!place.path("alone/pseudo_views").exists());
    assert!(place.ply_bytes("unbroken", 80) != place.ply_bytes("alone", 80));
    let seconds = |key: &str| place.json("unbroken/summary.json")[key].as_f64().unwrap();
    let finished = &place.events("unbroken", "finished")[0];
    let of_ensemble = finished["ensemble_seconds"].as_f64().unwrap();
    assert!(of_ensemble > 0.0 && seconds("training_seconds") > of_ensemble);
    assert!(seconds("training_seconds") < seconds("wall_seconds"));
}

#[test]
fn the_clock_of_a_run_counts_its_ensemble() {
    let place = TestFolder::with_scene();
    let flags = ["--preset=fast", "--time-budget=3600s", "--max-passes=2", "--ensemble=3"];
    let flags = [&flags[..], &["--checkpoint-iterations=1000", "--seed=3"]].concat();
    end(place.train_into("model").args(&flags)).done();
    assert_eq!(place.config("model").optimize.ensemble, 3);
    // Two passes over 8 photographs and 16 renders.
    assert_eq!(place.numbers("model", "ended", "images"), [48]);
    let finished = &place.events("model", "finished")[0];
    let seconds = |key: &str| finished[key].as_f64().unwrap();
    assert!(seconds("training_seconds") > seconds("ensemble_seconds"));
    assert_eq!(place.json("model/summary.json")["options"]["optimize.ensemble"], 3);
    // The clock of a checkpoint counts the ensemble.
    let checkpoint = place.checkpoint_of("model", 1000);
    let short = format!("--time-budget={}s", 0.9 * seconds("ensemble_seconds"));
    place.train_from(&checkpoint, "model", &[&short, "--max-passes=9"]).refused(2, &["is over"]);
}

#[rstest]
#[case::ranks(&["--ranks=2"], "several ranks train one model")]
#[case::a_target(&["--until-psnr=20"], "--ensemble has no effect with")]
#[case::a_short_budget(&["--time-budget=0.1s"], "--time-budget is too short for it")]
#[case::one_training_view(&["--test-views=7"], "an ensemble needs 2 to 200 training views, and the scene has 1")]
fn an_ensemble_that_is_left_out_is_named(#[case] flags: &[&str], #[case] why: &str) {
    let place = TestFolder::with_scene();
    let flags = [&["--iterations=20", "--ensemble=2"], flags].concat();
    end(place.train().args(flags)).done().says(&[why]);
    assert!(!place.model().join("pseudo_views").exists());
    assert_eq!(place.config("model").optimize.ensemble, 0);
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
