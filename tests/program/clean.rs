//! `splat clean`: what it removes, what it writes, and what it leaves alone.

use std::fs;
use std::sync::LazyLock;

use image::{Rgb, RgbImage};
use rstest::rstest;
use serde_json::Value;
use splat::backend::cpu::Cpu;
use splat::backend::{Photo, RenderSettings, Stay};
use splat::dataset::{Dataset, ImageLoader, Residency};
use splat::export::{read_ply, write_ply};
use splat::math::Real;
use splat::math::linalg::{Vec3, add, scale, sub};
use splat::model::Gaussians;
use splat::train::Views;

use crate::common::Draws;
use crate::common::prelude::*;
use crate::common::program::{
    Ended, SIZE, TestFolder, VIEWS, assert_no_litter, end, files_below, text,
};
use crate::common::scene::{gaussian, together};
use crate::synthetic_scenes::{copy_of, fixture_of, with_model};

/// A small trained model.
fn trained() -> TestFolder {
    with_model(150, &["--eval", "--sh-degree-interval=20", "--max-points=600"])
}

fn clean(place: &TestFolder, args: &[&str]) -> Ended {
    place.splat("clean --device=cpu -m model", args)
}

/// Mean PSNR of a split's views, dB.
fn psnr(place: &TestFolder, model: &str, split: &str) -> f64 {
    place.splat("eval --json --device=cpu", &["--split", split, "-m", model]).done().psnr()
}

/// Number of Gaussians that a rule removes.
fn removed(report: &Value, rule: &str) -> u64 {
    let of = |it: &&Value| it["rule"] == rule;
    report["removed"].as_array().unwrap().iter().find(of).unwrap()["removed"].as_u64().unwrap()
}

#[test]
fn a_cleaned_model_is_a_model_that_is_no_worse() {
    let place = trained();
    let before = files_below(&place.model());
    let report = clean(&place, &["--json"]).done().json();
    let [all, left] =
        ["model", "model/clean"].map(|model| read_ply(&place.ply_of(model, 150)).unwrap());
    assert_eq!(report["gaussians_before"], all.len());
    assert_eq!(report["gaussians_after"], left.len());
    assert!(left.len() < all.len() && removed(&report, "redundant") > 0, "{report}");
    let rules = report["removed"].as_array().unwrap();
    let sum: u64 = rules.iter().map(|rule| rule["removed"].as_u64().unwrap()).sum();
    assert_eq!(sum, (all.len() - left.len()) as u64);
    // It says what `splat eval` measures, of which both draw in single precision.
    let reported = ["psnr_before", "psnr_after"].map(|key| report[key].as_f64().unwrap());
    for (model, reported) in ["model", "model/clean"].into_iter().zip(reported) {
        let found = psnr(&place, model, "train");
        assert!((reported - found).abs() < 1e-3, "{model}: {reported} {found}");
    }
    assert!(reported[1] >= reported[0] - 0.05, "{report}");
    // The views that were held out still are.
    psnr(&place, "model/clean", "test");
    // The model itself is what it was, but for what is beside its Gaussians.
    for (path, content) in &before {
        let is_table = path.parent() == Some(&place.model());
        assert!(is_table || fs::read(path).unwrap() == *content, "{}", path.display());
    }
    assert_eq!(place.json("model/clean/clean.json")["gaussians_after"], left.len());
    assert_no_litter(&place.model());
}

#[test]
fn a_dry_run_says_the_same_and_writes_nothing() {
    let place = trained();
    let before = files_below(&place.model());
    clean(&place, &["--dry-run"]).done().prints(&["would be left", "PSNR of 7 training views"]);
    let report = clean(&place, &["--dry-run", "--json"]).done().json();
    assert!(report["to"].is_null());
    assert!(files_below(&place.model()) == before);
    assert!(!place.model().join("clean").exists());
    // What is written is what was said.
    let written = clean(&place, &["--json", "-o", "other"]).done().json();
    assert_eq!(written["removed"], report["removed"]);
    assert_eq!(written["to"], "other");
}

#[test]
fn a_model_that_is_there_is_moved_aside_and_not_lost() {
    let place = trained();
    clean(&place, &["-o", "out"]).done();
    let before = place.ply_bytes("out", 150);
    clean(&place, &["-o", "out"]).refused(2, &["holds a model already", "--overwrite"]);
    assert!(place.ply_bytes("out", 150) == before);
    clean(&place, &["-o", "out", "--overwrite", "--max-loss=1"]).done();
    assert!(place.ply_bytes("out/previous_1", 150) == before);
    assert!(place.path("out/previous_1/clean.json").exists());
    // More may go where more may be lost.
    let [few, many] =
        ["out/previous_1", "out"].map(|model| read_ply(&place.ply_of(model, 150)).unwrap().len());
    assert!(many < few, "{many} {few}");
}

#[rstest]
#[case::no_model(&["-m", "nowhere"], 3, &["nowhere", "Train a model"])]
#[case::no_such_iteration(&["--iteration=7"], 3, &["no point cloud of iteration 7", "150"])]
#[case::itself(&["-o", "model"], 2, &["-o model", "Name another folder"])]
#[case::a_file(&["-o", "model/config.toml"], 3, &["config.toml", "is a file"])]
#[case::empty_box(&["--crop=90,90,90,91,91,91"], 3, &["none of its Gaussians is left", "--crop"])]
#[case::empty_ball(&["--crop-sphere=90,90,90,1"], 3, &["none of its Gaussians is left"])]
#[case::a_negative_loss(&["--max-loss=-1"], 2, &["--max-loss", "0 or more"])]
#[case::not_a_distance(&["--near=nan"], 2, &["--near", "finite"])]
fn what_cannot_be_cleaned_is_refused_with_the_remedy(
    #[case] args: &[&str],
    #[case] code: i32,
    #[case] says: &[&str],
) {
    let place = trained();
    clean(&place, args).refused(code, says);
    assert!(!place.model().join("clean/point_cloud").exists());
}

#[test]
fn a_model_without_training_views_is_not_cleaned() {
    let place = trained();
    let names: Vec<String> = (0..VIEWS).map(|view| format!("view_{view:03}.png")).collect();
    fs::write(place.path("all.txt"), names.join("\n")).unwrap();
    clean(&place, &["--test-list=all.txt"])
        .refused(3, &["none is left to train on", "--test-list"]);
}

#[test]
fn a_box_and_a_ball_cut_all_outside_of_them() {
    let place = trained();
    let args = ["--json", "--crop=-1,-1,-1,1,1,1", "--crop-sphere=0,0,0,1.2", "-o", "cut"];
    let report = clean(&place, &args).done().json();
    let left = read_ply(&place.ply_of("cut", 150)).unwrap();
    let (means, _) = left.means.as_chunks::<3>();
    assert!(!means.is_empty());
    for mean in means {
        let radius = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!(mean.iter().all(|x| x.abs() <= 1.0) && radius <= 1.2, "{mean:?}");
    }
    assert!(removed(&report, "cropped") > 0, "{report}");
    // What is cut still shows in the photographs: that is no loss.
    let fell = report["psnr_before"].as_f64().unwrap() - report["psnr_after"].as_f64().unwrap();
    assert!(fell <= 0.05, "{report}");
}

/// The scene of the next tests with a model of its truth.
static PLANTED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture_of(
        "planted",
        |place| {
            let line = "synth --views=12 --width=48 --height=36 --points=500 --gaussians=model \
                        --gaussian-count=3000 --output=scene --seed=3";
            fs::create_dir_all(place.path("")).unwrap();
            place.splat(line, &[]).done();
        },
        |_| (),
    )
});

/// Floaters between the cameras and what these look at, of a colour that the scene does not have.
fn floaters(dataset: &Dataset, model: &Gaussians, count: usize, opacities: [f64; 2]) -> Gaussians {
    let mut draws = Draws::new(11);
    let (means, _) = model.means.as_chunks::<3>();
    let one = |_| {
        let pick = |draws: &mut Draws, len: usize| {
            let at = draws.uniform(0.0, len as f64).floor_i32().unsigned_abs() as usize;
            at.min(len - 1)
        };
        let view = &dataset.views[dataset.train[pick(&mut draws, dataset.train.len())]];
        let camera: Vec3<f64> = view.pose.centre_world();
        let seen = means[pick(&mut draws, means.len())].map(f64::from);
        let along = draws.uniform(0.15, 0.6);
        let mean = add(camera, scale(sub(seen, camera), along));
        let size = 0.02 * draws.uniform(0.5, 2.0);
        let opacity = draws.uniform(opacities[0], opacities[1]);
        let mut floater =
            gaussian(mean.map(f64::to_f32), size.to_f32(), opacity.to_f32(), [1.0, 0.0, 1.0]);
        floater.sh_degree = model.sh_degree;
        floater.sh_rest = vec![0.0; model.sh_rest.len() / model.len()];
        floater
    };
    together(&(0..count).map(one).collect::<Vec<_>>())
}

/// Which of them a training view shows, if no other were there: of a colour that the scene does not have, a
/// blend weight of 1/20 changes a pixel by more than 8 steps of 8 bits.
fn shown(dataset: &Dataset, all: &Gaussians, planted: usize) -> Vec<bool> {
    let device = &mut Cpu::<f32>::new();
    let model = device.upload(all).unwrap();
    let first = all.len() - planted;
    let absent: Vec<bool> = (0..all.len()).map(|row| row >= first).collect();
    let mut sums = device.no_contributions(&model, &absent).unwrap();
    let residency = Residency::OnDemand { cache: splat::memory::Bytes(1 << 26) };
    let images = ImageLoader::new(dataset.sources.clone(), residency);
    let near = Views::new(dataset, &images).near();
    let settings = RenderSettings { sh_degree: all.sh_degree, near, ..RenderSettings::DEFAULT };
    for &index in &dataset.train {
        let image = images.fetch(index).unwrap();
        let target = device.upload_target(Photo { image: &image, stay: Stay::Transient }).unwrap();
        device
            .add_contributions(&model, &dataset.views[index], &settings, &target, &mut sums)
            .unwrap();
    }
    let contributions = device.read_contributions(&sums).unwrap();
    contributions[first..].iter().map(|contribution| contribution.weight_max > 0.05).collect()
}

#[rstest]
#[case::weak([0.1, 0.4])]
#[case::opaque([0.8, 0.99])]
fn floaters_that_a_view_shows_are_removed(#[case] opacities: [f64; 2]) {
    let planted = 500;
    let place = copy_of(&PLANTED);
    let healthy = psnr(&place, "model", "train");
    let ply = place.ply(1);
    let model = read_ply(&ply).unwrap();
    let dataset = place.dataset();
    let all = together(&[model.clone(), floaters(&dataset, &model, planted, opacities)]);
    let shown = shown(&dataset, &all, planted);
    write_ply(&ply, &all).unwrap();
    let report = clean(&place, &["--json", "-o", "cleaned"]).done().json();
    let left = read_ply(&place.ply_of("cleaned", 1)).unwrap();
    let bits = |gaussians: &Gaussians| -> Vec<[u32; 3]> {
        gaussians.means.as_chunks().0.iter().map(|mean: &[f32; 3]| mean.map(f32::to_bits)).collect()
    };
    let (left, all) = (bits(&left), bits(&all));
    let of_planted = all[model.len()..].iter().zip(&shown).filter(|&(_, &is_shown)| is_shown);
    let stay = of_planted.clone().filter(|(mean, _)| left.contains(mean)).count();
    let count = of_planted.count();
    assert!(count > 400, "{count} are shown");
    assert!(stay * 20 <= count, "{stay} of {count} stay: {report}");
    let cleaned = report["psnr_after"].as_f64().unwrap();
    assert!(cleaned >= healthy - 0.05, "{cleaned} dB, {healthy} dB without floaters: {report}");
}

#[test]
fn training_ends_with_what_clean_makes_of_its_model() {
    let place = trained();
    clean(&place, &[]).done();
    let flags = ["--eval", "--sh-degree-interval=20", "--max-points=600", "--clean"];
    let ended = place.trained_into("at_once", 150, &flags);
    assert_eq!(ended.stdout, "");
    let parts =
        ["Training complete", "Gaussians, ", " % removed", "PSNR of 7 training views", " -> "];
    ended.says(&parts);
    place.assert_same(["model", "at_once"], 150);
    place.assert_same(["model/clean", "at_once/clean"], 150);
    // The views that were held out still are.
    psnr(&place, "at_once/clean", "test");
    assert_no_litter(&place.path("at_once"));
}

#[test]
fn a_complete_run_is_cleaned_once_and_one_that_goes_on_again() {
    let place = trained();
    let resumed = |flags: &[&str]| end(place.train().args(["--resume", "--clean"]).args(flags));
    resumed(&[]).done().says(&["already trained for", " % removed"]);
    let first = place.ply_bytes("model/clean", 150);
    resumed(&[]).done().says(&["iteration 150 is cleaned already"]).omits(&["removed"]);
    assert!(place.ply_bytes("model/clean", 150) == first);
    let quiet = resumed(&["--preset=fast", "--iterations=160", "--quiet"]).done();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    assert!(place.ply_of("model/clean", 160).exists());
    assert!(place.ply_bytes("model/clean/previous_1", 150) == first);
    // What is said is JSON where progress is.
    let output = resumed(&["--iterations=165", "--progress=json"]).done();
    let lines = output.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages: Vec<String> = lines.map(|line| line["message"].to_string()).collect();
    assert!(messages.iter().any(|message| message.contains("PSNR of 7 training views")));
}

#[test]
fn sugar_is_not_followed_by_a_cleaning() {
    let sugar = TestFolder::with_scene().splat("sugar --clean -s SCENE -m sugar", &[]);
    sugar.refused(2, &["--clean", "splat clean -m MODEL"]);
}

// Views that their masks hide: nothing is learned from them, and nothing measured by them.

/// Gives views masks that are black everywhere.
fn hide(place: &TestFolder, views: impl IntoIterator<Item = usize>) {
    let masks = place.scene().join("masks");
    fs::create_dir_all(&masks).unwrap();
    for view in views {
        let black = RgbImage::from_pixel(SIZE.0, SIZE.1, Rgb([0; 3]));
        black.save(masks.join(format!("view_{view:03}.png"))).unwrap();
    }
}

#[test]
fn a_held_out_view_that_its_mask_hides_is_left_out_of_the_means() {
    let place = TestFolder::with_scene();
    let every_other = ["--eval", "--test-every", "2"];
    place.trained_into("whole", 6, &every_other);
    // Held out are views 0, 2, 4 and 6; a training view that is hidden ends nothing.
    hide(&place, [2, 3]);
    let expected = ["view_002.png: its mask hides every pixel", "left out of the means"];
    place.trained(6, &every_other).says(&expected);
    let means = place.psnr("model", 6);
    let per_view = place.json("model/per_view.json");
    let views = per_view["ours_6"]["PSNR"].as_object().unwrap();
    let numbers: Vec<&String> = views.keys().collect();
    // Numbered as their renders are.
    assert_eq!(numbers, ["00000.png", "00002.png", "00003.png"]);
    let psnr: Vec<f64> = views.values().map(|psnr| psnr.as_f64().unwrap()).collect();
    assert!((psnr.iter().sum::<f64>() / 3.0 - means).abs() < 1e-9 && means < 50.0, "{psnr:?}");

    let report = place.run("eval", &["--json"]).done().says(&expected).json();
    assert_eq!(report["views"].as_array().unwrap().len(), 3, "{report}");
    assert!((report["mean"]["psnr"].as_f64().unwrap() - means).abs() < 1e-3, "{report}");
    place.run("render", &["--skip-train"]).done();
    for number in 0..4 {
        let path = place.model().join(format!("test/ours_6/renders/{number:05}.png"));
        assert!(path.is_file(), "{} is missing", path.display());
    }
}

#[test]
fn held_out_views_that_are_all_hidden_cannot_be_measured() {
    let place = TestFolder::with_scene();
    hide(&place, [0]);
    place.trained(4, &["--eval"]).says(&["warning", "none of them is evaluated"]);
    assert!(!place.model().join("results.json").exists());
    place.run("eval", &[]).refused(3, &["test views", "hide every pixel", "invert"]);
    place.run("render", &["--skip-train"]).done();
    assert!(place.model().join("test/ours_4/renders/00000.png").is_file());
}

#[test]
fn training_views_that_are_all_hidden_are_refused() {
    let place = TestFolder::with_scene();
    hide(&place, 0..VIEWS);
    let mask = place.scene().join("masks/view_001.png");
    let ended = end(place.train().args(["--iterations", "2", "--eval"]));
    ended.refused(3, &["all 7 training views", text(&mask), "white where", "invert"]);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}
