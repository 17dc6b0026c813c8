//! `--training-background`, `--reg-reach`, `--empty-weight` and `--relax-if-views-agree`, which depend on the photographs.

use std::fs;

use rstest::rstest;

use crate::common::program::{Ended, TestFolder, cut, end};

const ITERATIONS: u32 = 16;

/// Trains into a model folder; gives what was said.
fn trained(place: &TestFolder, model: &str, flags: &[&str]) -> Ended {
    let all = [&["--seed=4", "--densify-until-iter=8", "--progress=plain"], flags].concat();
    place.trained_into(model, ITERATIONS, &all)
}

fn gaussians(place: &TestFolder, model: &str) -> Vec<u8> {
    place.ply_bytes(model, ITERATIONS)
}

fn stored(place: &TestFolder, model: &str) -> String {
    stored_line(place, model, "training_background")
}

fn stored_line(place: &TestFolder, model: &str, key: &str) -> String {
    let config = place.read(&format!("{model}/config.toml"));
    config.lines().find(|line| line.starts_with(key)).unwrap().to_owned()
}

#[test]
fn weights_act_on_all_gaussians_of_an_object_and_on_those_seen_of_a_place() {
    let place = TestFolder::with_scene();
    let train = |model: &str, reach: &str, background: &str| {
        let [reach, background] =
            [format!("--reg-reach={reach}"), format!("--background={background}")];
        let weights = ["--opacity-reg=0.01", "--scale-limit=0.3", "--empty-weight=0.1"];
        trained(&place, model, &[&weights[..], &[&reach, &background]].concat())
    };
    let reach = |model| stored_line(&place, model, "reg_reach");
    // The photographs have a black background, which is empty before black and a wall before red.
    let ended = train("object", "auto", "0,0,0").says(&[
        "masked or background: --reg-reach all",
        "--scale-limit has no effect: the photographs show an object that was cut out",
    ]);
    // PNGs may have masks.
    ended.omits(&["--empty-weight has no effect"]);
    assert_eq!(reach("object"), "reg_reach = \"all\"");
    let ended = train("place", "auto", "1,0,0").says(&[
        "masked or background: --reg-reach seen",
        "--empty-weight has no effect: the photographs do not show an object that was cut out",
    ]);
    ended.omits(&["--scale-limit has no effect"]);
    assert_eq!(reach("place"), "reg_reach = \"seen\"");
    train("seen", "seen", "1,0,0");
    place.assert_same(["place", "seen"], ITERATIONS);
    train("all", "all", "1,0,0");
    // A preset's limit is not typed.
    let untyped = ["--preset=fast", "--max-points=400", "--background=0,0,0"];
    trained(&place, "untyped", &untyped)
        .omits(&["--scale-limit has no effect", "--empty-weight has no effect"]);
    assert!(gaussians(&place, "all") != gaussians(&place, "seen"));
    // A resumed run keeps the choice, though it shows other photographs.
    let longer = ["--resume", "--iterations=20", "--background=0,0,0"];
    end(place.train_into("place").args(longer)).done();
    assert_eq!(reach("place"), "reg_reach = \"seen\"");
}

#[test]
fn regularization_relaxes_if_many_views_with_equal_exposure_show_a_point() {
    // A place that all views show.
    let place = TestFolder::empty();
    let line = "synth --scene=demo --views=40 --width=64 --height=48 --points=400 -o SCENE";
    place.splat(line, &[]).done();
    let stored = |model: &str| {
        let config = place.config(model);
        assert!(!config.optimize.relax_if_views_agree, "the run stores the choice");
        (
            [config.optimize.lambda_dssim, config.optimize.opacity_reg],
            [config.scene.near_share, config.optimize.sh_decay, config.optimize.scale_limit],
            config.densify.unseen_noise_lr,
        )
    };
    let train = |model: &str, flags: &[&str]| {
        let fast = ["--preset=fast", "--max-points=400", "--background=1,0,0", "--seed=4"];
        place.trained_into(model, 2, &[&fast[..], flags].concat());
        stored(model)
    };
    let resume = |model: &str, iterations: &str, flags: &[&str]| {
        let all = [&["--resume", "--iterations", iterations, "--background=1,0,0"], flags].concat();
        end(place.train_into(model).args(all)).done();
        stored(model)
    };
    let usual = ([0.5, 0.01], [0.06, 1.0, 0.33], 3e6);
    let relaxed = ([0.2, 0.002], [0.0; 3], 0.0);
    assert_eq!(train("all", &[]), relaxed);
    assert_eq!(train("few", &["--test-views=20"]), usual);
    assert_eq!(train("off", &["--relax-if-views-agree=false"]), usual);
    assert_eq!(train("adc", &["--strategy=adc"]), usual);
    assert_eq!(train("object", &["--reg-reach=all"]), usual);
    let file = place.path("file.toml");
    fs::write(&file, "[optimize]\nlambda_dssim = 0.5\n").unwrap();
    let given = ["--near-share=0.03", "--opacity-reg=0.01", "--config", file.to_str().unwrap()];
    assert_eq!(train("given", &given), ([0.5, 0.01], [0.03, 0.0, 0.0], 0.0));
    let photographs = (0..40).map(|number| (number, place.image(number)));
    let bright: Vec<_> =
        photographs.map(|(number, path)| (number, image::open(&path).unwrap(), path)).collect();
    for (number, image, path) in &bright {
        let mut dark = image.to_rgb8();
        // Numbers of neighbours differ by less than 11, or by 13 or 21.
        let share = 20 - u16::try_from(number % 11).unwrap();
        dark.iter_mut()
            .for_each(|value| *value = u8::try_from(u16::from(*value) * share / 20).unwrap());
        dark.save(path).unwrap();
    }
    assert_eq!(train("dark", &[]), usual);
    let typed = ["--preset=fast", "--relax-if-views-agree", "--max-points=400"];
    place.trained_into("cut", 2, &typed).says(&["--relax-if-views-agree has no effect: the"]);
    assert_eq!(stored("cut"), usual);
    // A run that goes on keeps its values, though its photographs would now decide otherwise.
    assert_eq!(resume("all", "4", &[]), relaxed);
    assert_eq!(resume("all", "6", &["--preset=fast"]), relaxed);
    bright.iter().for_each(|(_, image, path)| image.save(path).unwrap());
    assert_eq!(resume("dark", "4", &["--preset=fast"]), usual);
}

#[test]
fn less_remains_around_a_masked_object_with_a_weight_of_its_empty_pixels() {
    // Solids before a black background.
    let place = TestFolder::empty();
    let line = "synth --scene=dtu --views=12 --width=48 --height=36 --points=400 --truth-cells=48 \
                -o SCENE";
    place.splat(line, &[]).done();
    for weight in ["0", "0.3"] {
        let flags = ["--empty-weight", weight, "--iterations=300", "--test-iterations=-1"];
        let line = "train --device=cpu --preset=fast --max-points=1000 -s SCENE -m";
        place.splat(line, &[&[weight], &flags[..]].concat()).done();
    }
    // Without masks the photographs show that nothing is around the solids.
    fs::remove_dir_all(place.scene().join("masks")).unwrap();
    let psnr =
        |model| place.splat("eval --json --device=cpu --split=train -m", &[model]).done().psnr();
    let [ignored, weighted] = ["0", "0.3"].map(psnr);
    // Measured: 23.1 and 27.6 dB.
    assert!(weighted > ignored + 2.0, "{ignored} dB, {weighted} dB with a weight");
}

/// The photographs' backdrop is black: 13 steps of 255 from the third, and 20 from the last.
#[rstest]
#[case::of_another_colour("1,0,0", "grey", "grey is behind the training views")]
#[case::black("0,0,0", "same", "% of the photographs' pixels have the background's colour")]
#[case::nearly_black("0.05,0.05,0.05", "same", "the background's colour to 16 steps of 255")]
#[case::dark("0.08,0.08,0.08", "grey", "grey is behind the training views")]
fn photographs_without_the_colour_of_the_background_bring_grey(
    #[case] background: &str,
    #[case] chosen: &str,
    #[case] expected: &str,
) {
    let place = TestFolder::with_scene();
    let train = |kind: &str| {
        let kind_flag = format!("--training-background={kind}");
        trained(&place, kind, &[&kind_flag, &format!("--background={background}")])
    };
    train("auto").says(&[expected]);
    assert_eq!(stored(&place, "auto"), format!("training_background = \"{chosen}\""));
    for kind in ["grey", "same"] {
        train(kind);
        let is_same = gaussians(&place, "auto") == gaussians(&place, kind);
        assert_eq!(is_same, kind == chosen, "{kind}");
    }
}

#[test]
fn the_usual_preset_asks_the_photographs_that_can_be_read() {
    let place = TestFolder::with_scene();
    cut(&place.image(0), 60);
    let flags = ["--background=1,0,0", "--max-points=400"];
    place.trained_into("model", ITERATIONS, &flags).says(&["grey is behind the training views"]);
    assert_eq!(stored(&place, "model"), "training_background = \"grey\"");
    // What was chosen stays, and nothing is said of it once density control is over.
    let longer = ["--resume", "--preset=fast", "--densify-until-iter=8", "--iterations=20"];
    let ended = end(place.train_into("model").args(longer).args(flags)).done();
    ended.omits(&["is behind the training views"]);
}

#[test]
fn without_density_control_nothing_else_is_behind_the_views() {
    let place = TestFolder::with_scene();
    let none = "--densify-until-iter=0";
    let flags = ["--seed=4", none, "--training-background=grey"];
    let grey = place.trained_into("grey", ITERATIONS, &flags);
    grey.says(&["--training-background has no effect with --densify-until-iter 0"]);
    place.trained_into("same", ITERATIONS, &["--seed=4", none]);
    place.assert_same(["grey", "same"], ITERATIONS);
}

// SuGaR's coarse stage where nothing is seen around an object: depth-normal consistency must not draw there.

/// Iterations of the photometric stage.
const START: u32 = 300;

/// A coarse stage with the term so heavy that it shows soon what it does in thousands of iterations.
struct Stage {
    iterations: u32,
    weight: &'static str,
    /// The views that are measured.
    split: &'static str,
}

/// The mean PSNR of a split's views after the last iteration.
fn psnr(place: &TestFolder, model: &str, split: &str) -> f64 {
    let evaluated = place.events(model, "evaluated");
    let last = evaluated.iter().rfind(|event| event["split"] == split).unwrap();
    last["mean"]["psnr"].as_f64().unwrap()
}

#[rstest]
// Floaters before the object show from other sides.
#[case::black(false, Stage { iterations: 600, weight: "0.6", split: "test" })]
// Pixels around the object do not count, so that what is drawn there soon grows over it.
#[case::masked(true, Stage { iterations: 300, weight: "0.3", split: "eval_train" })]
fn empty_backgrounds_stay_empty(#[case] is_masked: bool, #[case] stage: Stage) {
    // Solids before a black background.
    let place = TestFolder::empty();
    let line = "synth --scene=dtu --views=12 --width=48 --height=36 --points=400 --truth-cells=48 \
                -o SCENE";
    place.splat(line, &[]).done();
    if !is_masked {
        fs::remove_dir_all(place.scene().join("masks")).unwrap();
    }
    let train = |model: &str, flags: &[&str]| {
        place.splat("train --device=cpu --eval -s SCENE -m", &[&[model], flags].concat()).done();
    };
    let length = format!("--iterations={START}");
    train("photometric", &["--preset=reference", &length, "--test-iterations=-1"]);
    let photometric = place.path("photometric").display().to_string();
    let coarse = |model: &str, weight: &str, flags: &[&str]| {
        let kind = ["--regularize=dn-consistency", "-c", &photometric, "--dn-factor", weight];
        let last = (START + stage.iterations).to_string();
        let iterations = format!("--sugar-iterations={}", stage.iterations);
        let few = ["--n-samples-for-sdf=500", "--regularity-knn=8", &iterations];
        train(model, &[&kind[..], &few, &["--test-iterations", &last], flags].concat());
        psnr(&place, model, stage.split)
    };
    let without = coarse("without", "0", &[]);
    let with = coarse("with", stage.weight, &[]);
    let of_all = coarse("of_all", stage.weight, &["--dn-by-opacity=false"]);
    let found = format!("{without} dB without the term, {with} with it, {of_all} of all pixels");
    assert!(without - of_all > 2.9, "{found}");
    assert!(without - with < 0.5, "{found}");
}
