//! Steps that take several views.

use std::fs;
use std::path::Path;

use crate::common::program::{TestFolder, end, splat, text};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use splat::config::OptimizeOptions;
use splat::math::adam::{Moments, batch_rate};

/// Rounds and an opacity reset within 130 iterations, none of them at a multiple of four.
const EVENTFUL: [&str; 10] = [
    "--densify-from-iter=20",
    "--densify-until-iter=95",
    "--densification-interval=25",
    "--densify-grad-threshold=0.00005",
    "--opacity-reset-interval=61",
    "--max-points=1500",
    "--random-background",
    "--seed=3",
    "--save-iterations=-1",
    "--test-iterations=-1",
];

/// Values of a key of all events of a kind in `run.jsonl`.
fn numbers(place: &TestFolder, model: &str, kind: &str, key: &str) -> Vec<u64> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_kind = events.filter(|event| event["event"] == kind);
    of_kind.map(|event| event[key].as_u64().unwrap()).collect()
}

/// Values of a tensor of a checkpoint.
fn tensor(checkpoint: &Path, name: &str) -> Vec<f64> {
    let bytes = fs::read(checkpoint).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let value = |word: &[u8]| {
        let word: [u8; 4] = word.try_into().unwrap();
        match tensor.dtype() {
            Dtype::U32 => u32::from_le_bytes(word).into(),
            Dtype::F32 => f32::from_le_bytes(word).into(),
            other => panic!("{name} is {other:?}"),
        }
    };
    tensor.data().chunks_exact(4).map(value).collect()
}

#[test]
fn iterations_count_views_in_batches_too() {
    let place = TestFolder::with_scene();
    place.trained(31, &["--batch-views=2"]);
    assert!(place.ply(31).exists());
    assert_eq!(numbers(&place, "model", "step", "iteration"), [10, 20, 30, 31]);
}

#[test]
fn what_is_due_comes_with_the_step_that_takes_its_image() {
    let place = TestFolder::with_scene();
    let flags = [&EVENTFUL[..], &["--batch-views=4", "--checkpoint-iterations=54"]].concat();
    place.trained_into("four", 130, &flags);
    let rounds = numbers(&place, "four", "densified", "iteration");
    assert_eq!(rounds, [28, 52, 76]);
    assert_eq!(numbers(&place, "four", "opacity_reset", "iteration"), [64]);
    let saved = numbers(&place, "four", "saved", "iteration");
    assert_eq!(saved, [56, 130, 130], "the checkpoint, the model, and the last checkpoint");
}

#[test]
fn a_batch_that_is_resumed_ends_in_the_same_bytes() {
    let place = TestFolder::with_scene();
    // Where a round is due, within an epoch, and where colours are learned.
    for (at, more) in [(52, &[][..]), (66, &[]), (28, &["--exposure"])] {
        let checkpoint = format!("--checkpoint-iterations={at}");
        let flags = [&EVENTFUL[..], &["--batch-views=4", &checkpoint], more].concat();
        place.trained_into("model", 130, &flags);
        let unbroken = fs::read(place.ply(130)).unwrap();
        // What came after the checkpoint is lost.
        fs::remove_file(place.ply(130)).unwrap();
        fs::remove_file(place.checkpoint(130)).unwrap();
        assert_eq!(fs::read_dir(place.model().join("checkpoints")).unwrap().count(), 1);
        end(place.train().args(["--resume", "auto"])).done();
        assert!(unbroken == fs::read(place.ply(130)).unwrap(), "{at}");
        fs::remove_dir_all(place.model()).unwrap();
    }
}

#[test]
fn a_run_is_resumed_with_another_batch() {
    let place = TestFolder::with_scene();
    place.trained_into("model", 30, &["--preset=reference", "--batch-views=3"]);
    let before = place.checkpoint(30);
    let resumed = ["--resume=auto", "--iterations=50", "--batch-views=8", "--no-batch-scaling"];
    let checkpoints = ["--checkpoint-iterations", "31", "33", "41"];
    let mut plain = place.train();
    end(plain.args(resumed).args(checkpoints)).done().says(&["iteration 30"]);
    let saved = numbers(&place, "model", "saved", "iteration");
    // Two views to the next multiple of eight, and two that are left at the end.
    assert_eq!(saved, [30, 30, 32, 40, 48, 50, 50], "the ends of the steps");
    let steps = numbers(&place, "model", "step", "iteration");
    assert_eq!(steps, [12, 21, 30, 40, 50], "steps that pass a multiple of ten");
    let mut scaled = place.train_into("scaled");
    scaled.args(["--start-checkpoint", text(&before), "--iterations=32", "--batch-views=8"]);
    end(&mut scaled).done();

    // The same two views in both.
    let seen = |checkpoint: &Path| {
        let counts = tensor(checkpoint, "statistics.views_seen");
        counts.into_iter().fold(0.0, f64::max)
    };
    assert_eq!(seen(&before), 30.0);
    for (model, moments, factor) in
        [("model", Moments::of_step(4), 1.0), ("scaled", Moments::of_batch(32, 2), batch_rate(2))]
    {
        let after = place.checkpoint_of(model, 32);
        assert_eq!(seen(&after), 32.0, "{model}");
        let rate = factor * OptimizeOptions::default().opacity_lr;
        let [first, second] = ["first_moments", "second_moments"]
            .map(|part| tensor(&after, &format!("{part}.opacity_logits")));
        let [from, to] = [&before, &after].map(|path| tensor(path, "parameters.opacity_logits"));
        let [first_correction, second_correction] = moments.corrections;
        let mut moved = 0;
        for i in 0..from.len() {
            let root = (second[i] / second_correction).sqrt() + moments.epsilon;
            let expected = rate * first[i] / first_correction / root;
            // Rounding to single precision of logits and of the moments.
            assert!((from[i] - to[i] - expected).abs() < 1e-6, "{model}, row {i}");
            moved += usize::from(expected.abs() > 0.1 * rate);
        }
        assert!(moved > from.len() / 2, "{model}: {moved} of {}", from.len());
    }
}

#[test]
fn scaled_rates_are_others_and_a_batch_of_none_or_nine_is_refused() {
    let place = TestFolder::with_scene();
    let of = |model: &str, flags: &[&str]| {
        place.trained_into(model, 24, flags);
        fs::read(place.ply_of(model, 24)).unwrap()
    };
    let plain = of("plain", &["--batch-views=4", "--no-batch-scaling"]);
    assert!(plain != of("scaled", &["--batch-views=4"]));
    let one = of("one", &[]);
    assert!(one == of("batch-of-one", &["--batch-views=1"]));
    for views in ["0", "9"] {
        let flag = format!("--batch-views={views}");
        end(place.train().arg(flag)).refused(2, &["batch-views", "1 to 8"]);
    }
    let planned = |flags: &[&str]| {
        let mut command = splat();
        command.args(["plan", "--json", "--gaussians=100000", "-s"]).arg(place.scene());
        let ended = end(command.args(flags)).done();
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["peak"].as_u64().unwrap()
    };
    let more = planned(&["--batch-views=8"]) - planned(&[]);
    assert!(
        more >= 7 * 400_000,
        "seven views' places of 4 bytes a Gaussian, and {more} are planned"
    );
}
