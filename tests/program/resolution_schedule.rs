//! `--resolution-schedule`: views that are drawn smaller at first.

use std::fs;
use std::path::Path;

use rstest::rstest;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use splat::config::OptimizeOptions;
use splat::export::read_ply;
use splat::math::adam::{Moments, batch_rate};
use splat::math::compact::{NEAREST, decode_half, encode_half};
use splat::model::Gaussians;

use crate::common::program::{SIZE, TestFolder, Text as _, end, words};

/// Views are quartered, then halved, then whole: of 100 iterations from the 11th and the 31st on, of 400 from
/// the 21st and the 91st.
const GROWING: [&str; 9] = words(
    "--resolution-schedule=linear --densify-from-iter=10 --densification-interval=10 \
     --densify-until-iter=200 --densify-grad-threshold=0.00005 --max-points=1500 --seed=3 --eval \
     --save-iterations=-1",
);

const ITERATIONS: u32 = 400;

/// The iterations after which views have another size, and what divides it.
fn sizes(place: &TestFolder, model: &str) -> Vec<(u64, u64)> {
    let numbers = |key: &str| place.numbers(model, "view_size", key);
    numbers("iteration").into_iter().zip(numbers("divisor")).collect()
}

#[test]
fn views_grow_and_are_evaluated_at_full_size() {
    let place = TestFolder::with_scene();
    let flags = [&GROWING[..], &["--test-iterations", "5", "30", "400", "--progress=plain"]];
    place.trained(ITERATIONS, &flags.concat()).says(&[
        "[ITER 0] Training views are drawn at 1/4 of their size",
        "[ITER 20] Training views are drawn at 1/2 of their size",
        "[ITER 90] Training views are drawn at full size",
    ]);
    assert_eq!(sizes(&place, "model"), [(0, 4), (20, 2), (90, 1)]);
    // Each view size has densification steps.
    assert!(!place.events("model", "densified").is_empty());
    let psnr = |model| -> Vec<f64> {
        let mut evaluated = place.events(model, "evaluated");
        evaluated.retain(|event| event["split"] == "test");
        evaluated.iter().map(|event| event["mean"]["psnr"].as_f64().unwrap()).collect()
    };
    let evaluated = psnr("model");
    assert_eq!(evaluated.len(), 3);
    assert!(evaluated.is_sorted(), "{evaluated:?}");
    // As well as a run whose views are always whole, or nearly so.
    place.trained_into("whole", ITERATIONS, &[&GROWING[1..], &["--test-iterations=400"]].concat());
    assert!(sizes(&place, "whole").is_empty());
    let whole = psnr("whole");
    assert!(evaluated[2] > whole[0] - 1.0, "{evaluated:?} instead of {whole:?}");
    // What is drawn later is of full size, too.
    place.run("render", &["--skip-train"]).done();
    let picture = place.model().join("test/ours_400/renders/00000.png");
    assert_eq!(image::image_dimensions(picture).unwrap(), SIZE);
}

#[test]
fn a_run_that_stopped_goes_on_at_the_size_that_it_had() {
    let place = TestFolder::with_scene();
    let stops = ["--checkpoint-iterations=5,10,15,31"];
    place.trained_into("unbroken", 100, &[&GROWING[..8], &stops].concat());
    // At a quarter, where the size changes, at a half, and when views are whole.
    for (iteration, expected) in [
        (5, &[(5, 4), (10, 2), (30, 1)][..]),
        (10, &[(10, 2), (30, 1)]),
        (15, &[(15, 2), (30, 1)]),
        (31, &[]),
    ] {
        let checkpoint = place.checkpoint_of("unbroken", iteration);
        place.train_from(&checkpoint, "resumed", &[]).done();
        assert_eq!(sizes(&place, "resumed"), expected, "{iteration}");
        place.assert_same(["unbroken", "resumed"], 100);
    }
}

#[rstest]
#[case::exposures(&["--exposure"])]
#[case::bilateral_grids(&["--bilateral-grid"])]
#[case::batches(&["--batch-views=4"])]
#[case::filters(&["--antialiasing", "--filter-3d"])]
#[case::gof(&["--strategy=gof"])]
#[case::budget(&["--strategy=budget"])]
#[case::mcmc(&["--strategy=mcmc"])]
#[case::smaller_photographs(&["-r=2"])]
#[case::a_coarse_stage(&["--regularize=density", "--sugar-iterations=8"])]
fn it_goes_with_other_options(#[case] flags: &[&str]) {
    let place = TestFolder::with_scene();
    place.trained(100, &[&GROWING[..], flags].concat());
    let found = sizes(&place, "model");
    // Of 24 x 18 px nothing smaller than a half is drawn, but what is asked for is told.
    assert_eq!(found.first(), Some(&(0, 4)));
    // In batches, after the one in which that iteration lies.
    let (whole_after, divisor) = found[found.len() - 1];
    assert!((30..=32).contains(&whole_after) && divisor == 1, "{found:?}");
    let steps = place.events("model", "step");
    assert!(steps.iter().all(|step| step["total"].as_f64().is_some_and(f64::is_finite)));
}

#[test]
fn a_plan_has_the_smaller_views_and_the_same_peak() {
    let place = TestFolder::with_scene();
    let [plain, growing] = [&[][..], &["--resolution-schedule=linear"]]
        .map(|flags| place.plan(&[&["--gaussians=100000"], flags].concat()));
    let stage = |report: &Value| {
        let stages = report["stages"].as_array().unwrap();
        stages.iter().find(|stage| stage["name"] == "smaller views").cloned()
    };
    assert!(stage(&plain).is_none());
    assert!(stage(&growing).unwrap().to_string().contains("smaller photograph"));
    assert_eq!(plain["peak"], growing["peak"]);
}

// Steps that take several views.

/// Densification steps and an opacity reset within 130 iterations, none of them at a multiple of four.
const EVENTFUL: [&str; 10] = words(
    "--densify-from-iter=20 --densify-until-iter=95 --densification-interval=25 \
     --densify-grad-threshold=0.00005 --opacity-reset-interval=61 --max-points=1500 \
     --random-background --seed=3 --save-iterations=-1 --test-iterations=-1",
);

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
fn what_is_due_comes_with_the_step_that_takes_its_image_and_resumes() {
    let place = TestFolder::with_scene();
    let trained = |model: &str, stops: &str, more: &[&str]| {
        let flags = ["--batch-views=4", "--checkpoint-iterations", stops];
        place.trained_into(model, 130, &[&EVENTFUL[..], &flags, more].concat());
    };
    trained("four", "52,54,66", &[]);
    assert_eq!(place.numbers("four", "densified", "iteration"), [28, 52, 76]);
    assert_eq!(place.numbers("four", "opacity_reset", "iteration"), [64]);
    let saved = place.numbers("four", "saved", "iteration");
    assert_eq!(saved, [52, 56, 68, 130, 130], "checkpoints, the model, and the last checkpoint");
    trained("exposed", "28", &["--exposure"]);
    // At a densification step, within an epoch, and with learned colours.
    for (model, stop) in [("four", 52), ("four", 68), ("exposed", 28)] {
        place.assert_continues(model, stop, 130);
    }
}

#[test]
fn a_run_is_resumed_with_another_batch() {
    let place = TestFolder::with_scene();
    place.trained_into("model", 30, &["--preset=reference", "--batch-views=3"]);
    let before = place.checkpoint(30);
    let resumed = ["--resume=auto", "--iterations=50", "--batch-views=8", "--no-batch-scaling"];
    let checkpoints = ["--checkpoint-iterations", "31", "33", "41"];
    end(place.train().args(resumed).args(checkpoints)).done().says(&["iteration 30"]);
    let saved = place.numbers("model", "saved", "iteration");
    // Two views to the next multiple of eight, and two that are left at the end.
    assert_eq!(saved, [30, 30, 32, 40, 48, 50, 50], "the ends of the steps");
    let steps = place.numbers("model", "step", "iteration");
    assert_eq!(steps, [12, 21, 30, 40, 50], "steps that pass a multiple of ten");
    place.train_from(&before, "scaled", &["--iterations=32", "--batch-views=8"]).done();

    // Both runs see two views.
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
fn scaled_rates_are_others_and_batches_are_planned() {
    let place = TestFolder::with_scene();
    let of = |model: &str, flags: &[&str]| {
        place.trained_into(model, 24, flags);
        place.ply_bytes(model, 24)
    };
    let plain = of("plain", &["--batch-views=4", "--no-batch-scaling"]);
    assert!(plain != of("scaled", &["--batch-views=4"]));
    let one = of("one", &[]);
    assert!(one == of("batch-of-one", &["--batch-views=1"]));
    let planned = |flags: &[&str]| {
        place.plan(&[&["--gaussians=100000"], flags].concat())["peak"].as_u64().unwrap()
    };
    let [one, eight] = [planned(&[]), planned(&["--batch-views=8"])];
    // Seven views' places of 4 bytes a Gaussian.
    assert!(eight - one >= 7 * 400_000, "{one} {eight}");
}

// `--optimize-memory` on the processor: the state that a GPU keeps, in as many bytes.

const COMPACT_ITERATIONS: u32 = 90;

const FLAGS: [&str; 6] = words(
    "--eval --densify-from-iter=40 --densification-interval=30 --densify-grad-threshold=0.00005 \
     --opacity-reset-interval=60 --sh-degree-interval=30",
);

fn model(place: &TestFolder, name: &str) -> Gaussians {
    read_ply(&place.ply_of(name, COMPACT_ITERATIONS)).unwrap()
}

/// Bytes of the model a Gaussian, as the log has them.
fn bytes_each(place: &TestFolder, name: &str) -> u64 {
    let memory = place.events(name, "memory").pop().unwrap();
    let tensors = &memory["tensors"];
    let bytes = tensors["parameters"].as_u64().unwrap() + tensors["optimizer"].as_u64().unwrap();
    bytes / model(place, name).len() as u64
}

fn are_halves(values: &[f32]) -> bool {
    values.iter().all(|&value| decode_half(encode_half(value, NEAREST), 1) == value)
}

#[test]
fn the_processor_keeps_the_compact_state_and_trains_as_well() {
    let place = TestFolder::with_scene();
    let compact = [&FLAGS[..], &["--optimize-memory"]].concat();
    place.trained_into("full", COMPACT_ITERATIONS, &FLAGS);
    place.trained_into("compact", COMPACT_ITERATIONS, &compact).omits(&["without effect"]);
    place.trained_into("again", COMPACT_ITERATIONS, &compact);

    let [full, rounded, again] = ["full", "compact", "again"].map(|name| model(&place, name));
    // Colours are in 16 bits, and nothing else is.
    assert!(are_halves(&rounded.sh_dc) && are_halves(&rounded.sh_rest));
    assert!(!are_halves(&full.sh_dc) && !are_halves(&rounded.means));
    assert_eq!(rounded, again, "rounding follows from the seed");
    // Rows that were removed leave room behind.
    assert!((716..740).contains(&bytes_each(&place, "full")));
    assert!((320..335).contains(&bytes_each(&place, "compact")));
    // Rounding is unbiased: what is learned is as good.
    let [a, b] = ["full", "compact"].map(|name| place.psnr(name, COMPACT_ITERATIONS));
    assert!((a - b).abs() < 0.5, "{a} and {b} dB");
}

#[test]
fn with_sh_only_colours_are_compact_and_a_resumed_run_is_the_same() {
    let place = TestFolder::with_scene();
    let half = [&FLAGS[..], &["--optimize-memory", "sh"]].concat();
    place.trained_into("half", COMPACT_ITERATIONS, &half);
    let rounded = model(&place, "half");
    assert!(are_halves(&rounded.sh_dc) && are_halves(&rounded.sh_rest));
    assert!(!are_halves(&rounded.means));
    assert!((620..644).contains(&bytes_each(&place, "half")));
    place.read("half/config.toml").assert_holds(&["optimize_memory = \"sh\""]);

    place.trained_into("stopped", 50, &half);
    let mut resumed = place.train_into("stopped");
    resumed.args(["--resume", "--iterations", &COMPACT_ITERATIONS.to_string()]);
    end(&mut resumed).done();
    // Moments are in full precision.
    place.assert_same(["half", "stopped"], COMPACT_ITERATIONS);
}

#[test]
fn a_new_run_is_compact_on_gpus_only() {
    let place = TestFolder::with_scene();
    place.trained_into("usual", COMPACT_ITERATIONS, &["--preset=fast"]);
    place.read("usual/config.toml").assert_holds(&["optimize_memory = \"auto\""]);
    let trained = model(&place, "usual");
    assert!(!are_halves(&trained.sh_dc), "the CPU trains in full precision");
    for (flag, expected) in [
        (None, "SH degree 3, --optimize-memory\n"),
        (Some("--optimize-memory=false"), "SH degree 3, full precision"),
        (Some("--preset=reference"), "SH degree 3, full precision"),
    ] {
        place
            .splat("plan --gaussians=1000000 -s SCENE", flag.as_slice())
            .done()
            .prints(&[expected]);
    }
}
