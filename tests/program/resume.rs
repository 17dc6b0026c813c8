//! A run that stopped goes on as if it had not.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use rstest::rstest;
use safetensors::SafeTensors;
use splat::export::read_ply;
use splat::math::compact::{NEAREST, decode_half, encode_half};

use crate::common::program::{
    Ended, TestFolder, Text as _, assert_no_litter, end, ended, files_below, header, kill, send,
    started_until, text, training, training_by, words,
};
use crate::synthetic_scenes::{fixture, with_model};

/// Density control, two steps of the SH degree, a reset of the opacities and random backgrounds
/// within 400 iterations.
const EVENTFUL: [&str; 13] = words(
    "--sh-degree-interval=70 --densify-from-iter=40 --densify-until-iter=350 \
     --densification-interval=30 --densify-grad-threshold=0.00005 --opacity-reset-interval=150 \
     --position-lr-max-steps=400 --max-points=1500 --random-background --seed=3 \
     --save-iterations=-1 --test-iterations=-1 --eval",
);

/// A run without checkpoints on its way, in `unbroken`.
static UNBROKEN: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("eventful", |place| {
        place.trained_into("unbroken", 400, &EVENTFUL);
    })
});

/// Iterations at which such a run is stopped.
const STOPS: [u32; 6] = [31, 35, 60, 150, 330, 355];

/// A run with a checkpoint at each stop, in `unbroken`.
static WITH_STOPS: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("eventful_with_stops", |place| {
        trained_with_stops(place, 400, &EVENTFUL, &STOPS);
    })
});

/// Iterations at which a run with filters is stopped.
const STOPS_WITH_FILTERS: [u32; 3] = [60, 75, 97];

/// Iterations of such a run. After density control, filters come every 100 iterations, but for the last 100.
const FILTERED: u32 = 205;

/// A run with both filters, in `unbroken`: densification steps after 60 and 90 iterations, an opacity reset after 80,
/// and a filter after 100 that follows no densification step.
static WITH_FILTERS: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("eventful_with_filters", |place| {
        let sooner = ["--densify-until-iter=95", "--opacity-reset-interval=80"];
        let flags = [&EVENTFUL[..], &sooner, &["--antialiasing", "--filter-3d"]].concat();
        trained_with_stops(place, FILTERED, &flags, &STOPS_WITH_FILTERS);
        let events = place.read("unbroken/run.jsonl");
        assert_eq!(events.matches("\"densified\"").count(), 2);
        assert_eq!(events.matches("\"opacity_reset\"").count(), 1);
    })
});

fn trained_with_stops(place: &TestFolder, iterations: u32, flags: &[&str], stops: &[u32]) {
    let stops = stops.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let stops = format!("--checkpoint-iterations={stops}");
    place.trained_into("unbroken", iterations, &[flags, &[&stops]].concat());
}

/// Goes on in `model`.
fn resumed(place: &TestFolder, flags: &[&str]) -> Ended {
    end(place.train().args(["--resume", "auto"]).args(flags)).done()
}

#[test]
fn a_killed_run_ends_in_the_same_bytes() {
    let place = TestFolder::beside(&UNBROKEN);
    UNBROKEN.read("unbroken/run.jsonl").assert_holds(&["\"densified\"", "\"opacity_reset\""]);
    let flags = [&EVENTFUL[..], &["--iterations=400", "--checkpoint-iterations=200"]].concat();
    let mut child = started_until(training(&place, &flags), &place.checkpoint(200));
    kill(&mut child);
    assert!(!place.ply(400).exists(), "the run was over before it was killed");
    // As if it had been killed in the middle of writing the next one.
    fs::write(place.model().join("checkpoints/.splat-Ab1c2D.tmp"), "half").unwrap();
    resumed(&place, &[]).says(&["iteration 200"]);
    assert_no_litter(&place.model());
    assert!(UNBROKEN.ply_bytes("unbroken", 400) == place.ply_bytes("model", 400));
}

#[test]
fn checkpoints_on_the_way_do_not_change_the_result() {
    assert!(UNBROKEN.ply_bytes("unbroken", 400) == WITH_STOPS.ply_bytes("unbroken", 400));
}

#[rstest]
#[case::in_the_middle_of_an_epoch(STOPS[0])]
#[case::where_an_epoch_ends(STOPS[1])]
#[case::where_density_control_is_due(STOPS[2])]
#[case::where_opacities_are_reset(STOPS[3])]
#[case::where_gaussians_are_put_in_order(STOPS[4])]
#[case::after_density_control_ended(STOPS[5])]
fn any_iteration_is_a_good_one_to_stop_at(#[case] iteration: u32) {
    WITH_STOPS.assert_continues("unbroken", iteration, 400);
}

#[rstest]
#[case::where_a_densification_step_is_due(STOPS_WITH_FILTERS[0])]
#[case::between_densification_steps(STOPS_WITH_FILTERS[1])]
#[case::before_a_filter_that_follows_no_densification_step(STOPS_WITH_FILTERS[2])]
fn a_run_with_filters_goes_on_with_those_that_it_had(#[case] iteration: u32) {
    let checkpoint = WITH_FILTERS.checkpoint_of("unbroken", iteration);
    let bytes = fs::read(checkpoint).unwrap();
    String::from_utf8_lossy(&bytes).assert_holds(&["\"filter_3d\""]);
    WITH_FILTERS.assert_continues("unbroken", iteration, FILTERED);
    let saved = WITH_FILTERS.ply_of("unbroken", FILTERED);
    header(&saved).assert_holds(&["comment SplatRenderMode: mip"]);
}

#[rstest]
#[case::exposures("--exposure")]
#[case::bilateral_grids("--bilateral-grid")]
fn what_is_learned_of_colours_goes_on_too(#[case] flag: &str) {
    let place = TestFolder::with_scene();
    let flags = ["--checkpoint-iterations=31", flag, "--eval", "--save-iterations=-1"];
    place.trained_into("unbroken", 60, &flags);
    let checkpoint = place.checkpoint_of("unbroken", 31);
    place.train_from(&checkpoint, "model", &[]).done();
    place.assert_same(["unbroken", "model"], 60);
    let tables = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let names = ["values", "first_moments", "second_moments", "steps"];
        names.map(|name| tensors.tensor(&format!("appearance.{name}")).unwrap().data().to_vec())
    };
    let last = tables(&place.checkpoint_of("unbroken", 60));
    assert!(last == tables(&place.checkpoint(60)));
    assert!(last[0] != tables(&checkpoint)[0], "nothing was learned");

    // Exposures are written as the reference trainer does: [3, 4] of a photograph, its rows being the
    // columns of what multiplies colours here, and what is added last.
    let file = place.model().join("exposure.json");
    assert_eq!(file.exists(), flag == "--exposure");
    if flag == "--exposure" {
        let written = place.json("model/exposure.json");
        let views = written.as_object().unwrap();
        assert_eq!(views.len() * 12 * 4, last[0].len());
        // In the order of names, as the tables are.
        for (map, name) in last[0].chunks(48).zip(views.keys()) {
            let value = |i: usize| f32::from_le_bytes(map[i * 4..][..4].try_into().unwrap());
            for (row, column) in (0..3).flat_map(|row| (0..4).map(move |column| (row, column))) {
                let ours = if column < 3 { value(column * 4 + row) } else { value(row * 4 + 3) };
                let theirs = views[name][row][column].as_f64().unwrap();
                assert!((theirs - f64::from(ours)).abs() < 1e-7, "{name} {row} {column}");
            }
        }
    }

    // The held-out view is measured by corrected colours, too; and by other options it is not.
    place.read("model/results.json").assert_holds(&["\"PSNR\"", "CC_PSNR"]);
    let other = place.train_from(&checkpoint, "other", &[flag, "False"]).done();
    other.says(&["is left behind", "--exposure, --bilateral-grid"]);
    let results = place.read("other/results.json");
    assert!(!results.contains("CC_PSNR"), "{results}");
    assert!(!place.path("other/exposure.json").exists());
    // Nor does the file stay where its run goes on without.
    place.resume(&["--iterations=65", flag, "False"]).done();
    assert!(!place.model().join("exposure.json").exists());
}

#[test]
fn a_finished_run_can_be_extended() {
    let place = TestFolder::with_scene();
    place.trained_into("at_once", 100, &EVENTFUL);
    place.trained(50, &EVENTFUL);
    resumed(&place, &["--iterations", "100"]).says(&["iteration 50"]);
    place.assert_same(["at_once", "model"], 100);
    assert!(place.ply(50).exists(), "what was saved before stays");
    assert_eq!(place.config("model").optimize.iterations, 100);
    // One record of both halves.
    let record = place.read("model/metrics.csv");
    assert_eq!(record.lines().count(), 1 + 2 * 2, "{record}");
}

#[test]
fn schedules_that_follow_the_iterations_do_so_only_with_their_preset() {
    let place = with_model(10, &["--preset=fast"]);
    let ended = resumed(&place, &["--iterations=20"]);
    ended.says(&["continues a schedule of 10", "--preset fast --iterations 20"]);
    resumed(&place, &["--preset=fast", "--iterations=30"]).omits(&["--position-lr-max-steps"]);
    let config = place.read("model/config.toml");
    config.assert_holds(&["position_lr_max_steps = 30\n", "densify_until_iter = 15\n"]);
}

#[test]
fn a_preset_that_the_run_did_not_begin_with_is_warned_of() {
    let place = with_model(10, &["--preset=best"]);
    let warned = "replaces options of a run that began with --preset best";
    resumed(&place, &["--preset=best", "--iterations=12"]).omits(&["replaces options"]);
    resumed(&place, &["--iterations=14"]).says(&["--preset best --iterations 14"]);
    resumed(&place, &["--preset=fast", "--iterations=16"]).says(&["--preset fast", warned]);
    // Memory is no part of the result, and reference replaces nothing.
    for flags in [["--preset=8gb", "--iterations=18"], ["--preset=reference", "--iterations=20"]] {
        resumed(&place, &flags).omits(&["replaces options"]);
    }
}

#[test]
fn a_run_that_is_moved_aside_goes_on_by_the_command_that_is_named() {
    let place = with_model(4, &[]);
    let aside = place.model().join("previous_1");
    let command = format!("splat train --resume -m {}", text(&aside));
    place.trained(5, &[]).says(&[&command]);
    let line = "train --device=cpu --resume --iterations=6 -m model/previous_1";
    place.splat(line, &[]).done().says(&["iteration 4"]);
    assert!(aside.join("point_cloud/iteration_6").is_dir() && place.ply(5).is_file());
}

#[test]
fn a_finished_run_says_that_it_is_finished() {
    let place = with_model(10, &[]);
    let before = place.ply_bytes("model", 10);
    resumed(&place, &[]).says(&["--iterations"]);
    assert!(place.ply_bytes("model", 10) == before);
}

#[test]
fn fewer_iterations_than_are_done_change_nothing() {
    // As a run that was killed after its checkpoint.
    let place = with_model(20, &["--checkpoint-iterations=8"]);
    fs::remove_file(place.checkpoint(20)).unwrap();
    let before = files_below(&place.model());
    let checkpoint = place.checkpoint(8);
    let parts = ["8 iterations are done", "5 requested", "nothing to train"];
    let ended = place.resume(&["--iterations=5"]).done().says(&parts).says(&[text(&checkpoint)]);
    ended.says(&["With the options that it had, the run continues to 20", "--start-checkpoint"]);
    place.train_from(&checkpoint, "model", &["--iterations=5"]).refused(2, &parts);
    assert!(files_below(&place.model()) == before);
    // A run that has reached its end is asked for more.
    place.trained_into("whole", 6, &[]);
    let whole = end(place.train_into("whole").args(["--resume", "--iterations=5"]));
    whole.done().says(&["6 iterations are done", "Ask for more with --iterations"]);
    place.resume(&[]).done();
    assert!(place.ply(20).is_file());
}

#[test]
fn a_checkpoint_starts_a_run_in_another_folder_and_flags_change_it() {
    let place = with_model(10, &["--seed", "4", "--checkpoint-iterations", "5"]);
    let before = files_below(&place.model());
    place.train_from(&place.checkpoint(5), "other", &["--iterations=12"]).done();
    assert!(place.ply_of("other", 12).exists());
    assert!(files_below(&place.model()) == before, "the first run is not touched");
    let config = place.read("other/config.toml");
    assert!(config.contains("seed = 4") && config.contains("iterations = 12"), "{config}");
}

#[test]
fn a_checkpoint_of_another_folder_does_not_mix_two_runs() {
    let place = TestFolder::with_scene();
    place.trained_into("first", 10, &["--checkpoint-iterations", "5"]);
    place.trained(20, &[]);
    let checkpoint = place.checkpoint_of("first", 5);
    place.train_from(&checkpoint, "model", &[]).done().says(&["previous_1"]);
    assert!(place.ply(10).exists() && !place.ply(20).exists());
    assert!(place.model().join("previous_1/checkpoints/chkpnt_20.safetensors").exists());
}

#[test]
fn a_run_that_would_train_nothing_does_not_push_another_aside() {
    let place = TestFolder::with_scene();
    place.trained_into("first", 4, &[]);
    place.trained(4, &[]);
    let before = files_below(&place.model());
    let checkpoint = place.checkpoint_of("first", 4);
    let ended = place.train_from(&checkpoint, "model", &[]);
    ended.refused(2, &[text(&checkpoint), "--iterations"]);
    assert!(files_below(&place.model()) == before);
}

#[test]
fn a_smaller_cap_ends_growth_and_rewrites_no_history() {
    let place = with_model(4, &[]);
    let input = fs::read(place.model().join("input.ply")).unwrap();
    let ended = resumed(&place, &["--iterations", "6", "--max-points", "5"]).omits(&["are used"]);
    ended.says(&["warning", "200 Gaussians", "--max-points 5"]);
    assert!(fs::read(place.model().join("input.ply")).unwrap() == input);
    header(&place.ply(6)).assert_holds(&["element vertex 200\n"]);
}

#[test]
fn going_back_within_a_folder_names_the_newer_checkpoint() {
    let place = with_model(10, &["--checkpoint-iterations", "5"]);
    let back = place.train_from(&place.checkpoint(5), "model", &["--iterations=7"]);
    back.done().says(&["warning", text(&place.checkpoint(10))]);
    assert!(place.ply(7).exists() && place.ply(10).exists());
}

#[test]
fn a_model_folder_that_was_moved_goes_on_where_it_is() {
    let place = with_model(4, &[]);
    fs::rename(place.model(), place.path("moved")).unwrap();
    end(place.train_into("moved").args(["--resume", "--iterations=6"])).done();
    assert!(place.ply_of("moved", 6).exists() && !place.model().exists());
}

#[test]
fn without_a_folder_the_run_of_the_scene_goes_on() {
    let place = TestFolder::with_scene();
    let run = |flags: &[&str]| place.splat("train --device cpu -s scene", flags).done();
    run(&["--iterations=3"]);
    assert!(place.ply_of("output/scene", 3).exists());
    run(&["--iterations=5", "--resume"]).says(&["iteration 3"]);
    assert!(place.ply_of("output/scene", 5).exists());
    // A run that is no continuation does not touch the first.
    run(&["--iterations=2"]);
    assert!(place.ply_of("output/scene-2", 2).exists());
}

#[test]
fn without_a_checkpoint_the_run_starts_and_says_so() {
    let place = TestFolder::with_scene();
    let ended = place.resume(&["auto", "--iterations", "3"]).done();
    ended.says(&["no checkpoint", text(&place.model())]);
    assert!(place.ply(3).exists());
}

#[rstest]
#[case::from_the_keyboard("INT", "", "  continue  splat train --resume")]
#[case::from_a_scheduler("TERM", "warn", "Continue with: splat train --resume")]
fn a_signal_ends_the_run_after_its_iteration(
    #[case] signal: &str,
    #[case] log: &str,
    #[case] command: &str,
) {
    let place = TestFolder::beside(&UNBROKEN);
    let flags = [&EVENTFUL[..], &["--iterations=400", "--checkpoint-iterations=40"]].concat();
    let mut run = training(&place, &flags);
    run.env("SPLAT_LOG", log);
    let child = started_until(run, &place.checkpoint(40));
    send(signal, &child);
    let stopped = ended(child).omits(&["--eval"]);
    stopped.refused(130, &[command, text(&place.model())]);
    assert!(!place.ply(400).exists(), "the run was over before the signal");
    assert_no_litter(&place.model());
    resumed(&place, &[]);
    assert!(UNBROKEN.ply_bytes("unbroken", 400) == place.ply_bytes("model", 400));
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let place = TestFolder::with_scene();
    let flags = ["--iterations=300", "--checkpoint-iterations=20"];
    let run = training_by(&["nohup"], &place, &flags);
    let child = started_until(run, &place.checkpoint(20));
    send("HUP", &child);
    ended(child).done().omits(&["stopping"]);
    assert!(place.ply(300).exists());
}

#[test]
fn the_number_of_threads_does_not_change_the_result() {
    let place = TestFolder::with_scene();
    for (model, threads) in [("one", "1"), ("three", "3")] {
        let mut command = place.train_into(model);
        command.env("RAYON_NUM_THREADS", threads).args(EVENTFUL).args(["--iterations", "100"]);
        end(&mut command).done();
    }
    place.assert_same(["one", "three"], 100);
}

#[test]
fn harmonics_are_dropped_aloud_where_fewer_are_asked_for() {
    let place = TestFolder::with_scene();
    let flags = ["--sh-degree-interval=4", "--checkpoint-iterations=20", "--feature-lr=0.05"];
    place.trained(20, &flags);
    let checkpoint = place.checkpoint(20);
    header(&place.ply(20)).assert_holds(&["f_rest_44\n"]);
    let lower = place.train_from(&checkpoint, "lower", &["--sh-degree=1", "--iterations=30"]);
    lower.done().says(&["SH degree 3", "--sh-degree 1", "dropped"]);
    let text_of_ply = header(&place.ply_of("lower", 30));
    assert!(text_of_ply.contains("f_rest_8\n") && !text_of_ply.contains("f_rest_9\n"));
    // The run goes on as one of the lower degree, without another word.
    end(place.train_into("lower").args(["--resume", "--iterations=35"])).done().omits(&["dropped"]);
    let last = place.checkpoint_of("lower", 35);
    for from in [&["--resume=auto"][..], &["--start-checkpoint", text(&last)]] {
        let higher = end(place.train_into("lower").args(from).arg("--sh-degree=3"));
        higher.refused(3, &[text(&last), "SH degree 1", "--sh-degree 1", "from the start"]);
    }
}

#[test]
fn a_checkpoint_goes_on_with_compact_memory_and_without() {
    let place = TestFolder::with_scene();
    for (model, switches) in [("on", ["false", "true"]), ("off", ["true", "false"])] {
        let before = ["--optimize-memory", switches[0]];
        place.trained_into(model, 30, &[&EVENTFUL[..], &before].concat());
        let mut resumed = place.train_into(model);
        resumed.args(["--resume", "--iterations=60", "--optimize-memory", switches[1]]);
        end(&mut resumed).done().says(&["iteration 30"]);
        // The processor, too, keeps colours in 16 bits with it, and only then.
        let colors = read_ply(&place.ply_of(model, 60)).unwrap().sh_dc;
        let is_half = |&value: &f32| decode_half(encode_half(value, NEAREST), 1) == value;
        assert_eq!(colors.iter().all(is_half), switches[1] == "true", "switched {model}");
    }
}
