//! SuGaR's coarse stage as a user runs it: when it does what, what it starts from, and how it goes on.

use std::fs;
use std::sync::LazyLock;

use rstest::rstest;
use splat::export::read_ply;

use crate::common::program::{TestFolder, Text as _, end, words};
use crate::synthetic_scenes::fixture;

/// A stage of 60 iterations with few samples: its prune comes after 16.
const STAGE: [&str; 4] =
    words("--sugar-iterations=60 --n-samples-for-sdf=300 --regularity-knn=8 --test-iterations=-1");

/// The iterations that the model is trained for before.
const START: u32 = 120;

/// Behind which the transparent go, and the last of all.
const PRUNE: u32 = START + 16;
const LAST: u32 = START + 60;

/// A model of the photometric stage alone, in `photometric`.
static PHOTOMETRIC: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("photometric", |place| {
        place.trained_into("photometric", START, &["--test-iterations=-1"]);
    })
});

/// Iterations at which a run of both stages is stopped.
const STOPS: [u32; 5] = [START, START + 9, PRUNE, PRUNE + 1, PRUNE + 20];

/// A run of both stages with a checkpoint at each stop, in `unbroken`.
static UNBROKEN: LazyLock<TestFolder> = LazyLock::new(|| {
    let stops = format!("--checkpoint-iterations={}", STOPS.map(|at| at.to_string()).join(","));
    fixture("both_stages", |place| {
        let flags = ["--regularize=dn-consistency", "--filter-3d", &stops];
        trained(place, "unbroken", &flags);
    })
});

fn iterations(place: &TestFolder, model: &str, kind: &str) -> Vec<u64> {
    place.numbers(model, kind, "iteration")
}

/// A run of both stages.
fn trained(place: &TestFolder, model: &str, flags: &[&str]) {
    place.trained_into(model, START, &[&STAGE[..], flags].concat());
}

#[test]
fn the_stage_follows_the_photometric_one_and_does_each_thing_in_its_time() {
    let place = TestFolder::with_scene();
    let flags = [&STAGE[..], &["--regularize=density", "--progress=plain"]].concat();
    place.trained(START, &flags).says(&[
        "Training ",
        &format!("[Coarse Training] Iter {START}: "),
        &format!("[Coarse Training] Iter {PRUNE}: 8 nearest neighbours of "),
    ]);
    let stages = [("coarse_started", START), ("pruned", PRUNE), ("neighbours", PRUNE)];
    for (kind, iteration) in stages.into_iter().chain([("finished", LAST)]) {
        assert_eq!(iterations(&place, "model", kind), [u64::from(iteration)], "{kind}");
    }
    let [pruned, left] =
        ["pruned", "gaussians"].map(|key| place.numbers("model", "pruned", key)[0]);
    assert!(pruned > 0 && left > 0, "{pruned} {left}");
    assert!(iterations(&place, "model", "densified").iter().all(|&it| it < u64::from(START)));

    // Both stages end in a model, and the second has the transparent no more.
    let rows = |iteration| read_ply(&place.ply(iteration)).unwrap().len() as u64;
    assert_eq!((rows(START), rows(LAST)), (pruned + left, left));
    for iteration in [START, LAST] {
        assert!(place.checkpoint(iteration).exists(), "{iteration}");
    }
}

#[rstest]
#[case::density("density", &["density", "normal"], &["entropy", "sdf", "dn"])]
#[case::distances("sdf", &["sdf", "normal"], &["entropy", "density", "dn"])]
#[case::depths_and_normals("dn-consistency", &["density", "normal", "dn"], &["entropy", "sdf"])]
#[case::medians_and_normals("median-normal", &["density", "normal", "dn"], &["entropy", "sdf"])]
fn each_kind_of_terms_is_told_in_its_time(
    #[case] kind: &str,
    #[case] on: &[&str],
    #[case] off: &[&str],
) {
    let place = TestFolder::with_scene();
    // Opacities are told of after 100 iterations and surfaces after 200.
    let kind = format!("--regularize={kind}");
    let flags =
        ["--sugar-iterations=240", "--n-samples-for-sdf=200", "--test-iterations=-1", &kind];
    place.trained_into("model", 60, &flags);
    let reports = place.events("model", "surface");
    assert_eq!(iterations(&place, "model", "surface"), [100, 200, 300]);
    assert!(reports[0]["entropy"].as_f64().unwrap() > 0.0, "{}", reports[0]);
    for term in ["density", "sdf", "normal", "dn"] {
        assert!(reports[0][term].is_null(), "{term}: {}", reports[0]);
    }
    for term in on {
        let value = reports[2][term].as_f64().unwrap();
        assert!(value > 0.0 && value.is_finite(), "{term}: {}", reports[2]);
    }
    for term in off {
        assert!(reports[2][term].is_null(), "{term}: {}", reports[2]);
    }
}

#[rstest]
#[case::plain(&[])]
#[case::through_both_filters(&["--antialiasing", "--filter-3d"])]
fn straight_on_is_the_same_as_from_what_was_saved(#[case] filters: &[&str]) {
    let place = TestFolder::with_scene();
    let flags = [filters, &["--regularize=density", "--eval"]].concat();
    trained(&place, "at_once", &flags);
    // The earlier run tells the scene, its split and its screen filter; the 3D filter is in the PLY.
    let line = "train --device=cpu --regularize=density -m loaded -c at_once --iteration-to-load";
    place.splat(&format!("{line} {START}"), &STAGE).done();
    place.assert_same(["at_once", "loaded"], LAST);
    assert!(place.config("loaded").scene.eval);
    assert_eq!(iterations(&place, "loaded", "coarse_started"), [u64::from(START)]);
    assert!(iterations(&place, "loaded", "step")[0] > u64::from(START));
}

#[rstest]
#[case::where_the_stage_begins(STOPS[0])]
#[case::while_opacities_are_driven(STOPS[1])]
#[case::where_the_transparent_go(STOPS[2])]
#[case::after_them(STOPS[3])]
#[case::among_surfaces(STOPS[4])]
fn the_stage_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(#[case] iteration: u32) {
    UNBROKEN.assert_continues("unbroken", iteration, LAST);
}

#[test]
fn a_run_from_a_model_goes_on_though_a_preset_says_other_iterations() {
    let place = TestFolder::beside(&PHOTOMETRIC);
    let run = |model: &str, more: &[&str]| {
        let mut command = place.train_into(model);
        command.args(["--preset=sugar-density", "-c"]).arg(PHOTOMETRIC.path("photometric"));
        end(command.args(STAGE).args(more)).done()
    };
    run("unbroken", &["--checkpoint-iterations=150"]);
    fs::create_dir_all(place.model().join("checkpoints")).unwrap();
    fs::copy(place.checkpoint_of("unbroken", 150), place.checkpoint(150)).unwrap();
    run("model", &["--resume"]).says(&["iteration 150"]);
    place.assert_same(["unbroken", "model"], LAST);
}

#[test]
fn opacities_go_to_nothing_or_all_before_the_transparent_go() {
    let place = TestFolder::beside(&PHOTOMETRIC);
    // The same from the same model, which starts at iterations that are told apart by name alone.
    let stage = ["--sugar-iterations=400", "--n-samples-for-sdf=200", "--test-iterations=-1"];
    for start in ["7000", "40000"] {
        let mut command = place.train_into(start);
        command.args(["--regularize=density", "--iteration-to-load", start]);
        let model = PHOTOMETRIC.ply_of("photometric", START);
        end(command.arg("-c").arg(model).args(stage)).done();
        assert_eq!(iterations(&place, start, "pruned"), [start.parse::<u64>().unwrap() + 101]);
        let surfaces = place.events(start, "surface");
        let entropies: Vec<f64> =
            surfaces.iter().filter_map(|event| event["entropy"].as_f64()).collect();
        // Told once, at the end of its time; of opacities in the middle it would be ln 2.
        assert!(entropies.len() == 1 && entropies[0] < 0.5, "{entropies:?}");
    }
}

#[test]
fn models_that_do_not_serve_are_refused_by_name() {
    let place = TestFolder::beside(&PHOTOMETRIC);
    let from = |flags: &[&str]| {
        let mut command = place.train();
        command.arg("-c").arg(PHOTOMETRIC.path("photometric")).args(flags);
        end(&mut command)
    };
    from(&[]).refused(2, &["-c ", "--regularize density"]);
    let surfaces = "--regularize=density";
    from(&[surfaces, "--eval"]).refused(2, &["no view held out", "--eval false"]);
    from(&[surfaces, "--iteration-to-load=41"]).refused(3, &["iteration 41", "saved are 120"]);
    from(&[surfaces, "--init=other.ply"]).refused(2, &["--init"]);
    end(place.train().args([surfaces, "-c", "no/model"])).refused(3, &["no/model"]);
    from(&[surfaces, "--regularity-knn=33"]).refused(2, &["--regularity-knn", "1 to 32"]);
    assert!(!place.model().exists());
}

#[test]
fn a_checkpoint_of_one_stage_does_not_go_on_in_the_other() {
    let place = TestFolder::beside(&PHOTOMETRIC);
    let checkpoint = PHOTOMETRIC.checkpoint_of("photometric", START);
    let from = |flags: &[&str]| place.train_from(&checkpoint, "model", flags);
    from(&["--regularize=density", "--iterations=50"])
        .refused(2, &["photometric stage", &format!("--iterations {START}")]);
    // Where the photometric stage ended, the other begins.
    from(&[&STAGE[..], &["--regularize=density"]].concat()).done();
    assert_eq!(iterations(&place, "model", "coarse_started"), [u64::from(START)]);

    // And not back, nor to the other side of the prune.
    place
        .resume(&["--iterations=400"])
        .refused(2, &["coarse stage", &format!("--iterations {START}")]);
    place
        .resume(&["--regularize=none", "--iterations=400"])
        .refused(2, &["--regularize as it was"]);
    place.resume(&["--sugar-iterations=4000"]).refused(2, &["prune", "--sugar-iterations"]);
    place.resume(&[]).done().says(&["To train longer, give --sugar-iterations"]);
}

#[test]
fn a_finished_run_continues_with_the_coarse_stage_from_its_own_model() {
    let place = TestFolder::with_scene();
    trained(&place, "at_once", &["--filter-3d", "--regularize=density"]);
    place.trained(START, &["--preset=reference", "--filter-3d", "--test-iterations=-1"]);
    let mut command = place.train();
    command.args(["--resume", "--regularize=density", "-c"]).arg(place.model()).args(STAGE);
    end(&mut command).done().says(&["-c has no effect"]);
    place.assert_same(["at_once", "model"], LAST);
}

#[test]
fn the_references_iterations_are_those_of_a_model_that_is_loaded() {
    let place = TestFolder::beside(&PHOTOMETRIC);
    let model = PHOTOMETRIC.ply_of("photometric", START);
    let run = |model_path: &str, start: &str, more: &[&str]| {
        let mut command = place.train_into(model_path);
        command.args(["--regularize=density", "--sugar-schedule=absolute"]).args(&STAGE[1..]);
        end(command.args(["--iteration-to-load", start, "-c"]).arg(&model).args(more))
    };
    // The last 40 of the reference's, behind its prune.
    run("late", "14960", &[]).done().says(&["transparent Gaussians stay"]);
    assert!(place.ply_of("late", 15_000).exists());
    assert!(place.events("late", "pruned").is_empty());
    run("over", "15000", &[]).refused(2, &["15000", "relative"]);
}

#[rstest]
#[case::samples_now_and_then(&["--sdf-every=5"])]
#[case::colours_of_each_photograph(&["--exposure"])]
#[case::a_markov_chain_before(&["--strategy=mcmc", "--max-points=250"])]
fn the_stage_goes_with_other_options(#[case] flags: &[&str]) {
    let place = TestFolder::with_scene();
    trained(&place, "model", &[&["--regularize=sdf"], flags].concat());
    assert_eq!(iterations(&place, "model", "finished"), [u64::from(LAST)]);
    assert!(place.numbers("model", "finished", "gaussians")[0] > 0);
    for kind in ["relocated", "densified"] {
        let late = iterations(&place, "model", kind);
        assert!(late.iter().all(|&it| it < u64::from(START)), "{kind}");
    }
}

#[test]
fn a_model_that_the_prune_empties_ends_without_an_error() {
    let place = TestFolder::with_scene();
    // Too transparent to come to more than half in so few iterations.
    let flags = ["--regularize=density", "--init-opacity=0.02", "--opacity-lr=0"];
    place.trained(40, &[&STAGE[..], &flags].concat()).says(&["the model is empty"]);
    assert_eq!(place.numbers("model", "finished", "gaussians"), [0]);
}

#[test]
fn the_processor_draws_fewer_samples_unless_a_number_is_given() {
    let place = TestFolder::with_scene();
    let stage = ["--regularize=density", "--sugar-iterations=1"];
    let notice = "on the CPU: --n-samples-for-sdf 10000; a GPU takes 1000000";
    place.trained(1, &stage).says(&[notice]);
    place.read("model/config.toml").assert_holds(&["n_samples_for_sdf = 10000\n"]);
    let given = [&stage[..], &["--n-samples-for-sdf=100"]].concat();
    place.trained_into("given", 1, &given).omits(&["on the CPU"]);
}
