//! Views that their masks hide: nothing is learned from them, and nothing measured by them.

use std::fs;

use crate::common::program::{SIZE, TestFolder, VIEWS, end, splat, text};
use image::{Rgb, RgbImage};
use serde_json::Value;

/// Gives views masks that are black everywhere.
fn hide(place: &TestFolder, views: impl IntoIterator<Item = usize>) {
    let masks = place.scene().join("masks");
    fs::create_dir_all(&masks).unwrap();
    for view in views {
        let black = RgbImage::from_pixel(SIZE.0, SIZE.1, Rgb([0; 3]));
        black.save(masks.join(format!("view_{view:03}.png"))).unwrap();
    }
}

fn json(place: &TestFolder, name: &str) -> Value {
    let text = fs::read_to_string(place.model().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_held_out_view_that_its_mask_hides_is_left_out_of_the_means() {
    let place = TestFolder::with_scene();
    let every_other = ["--eval", "--test-every", "2"];
    place.trained_into("whole", 6, &every_other);
    // Held out are views 0, 2, 4 and 6; a training view that is hidden ends nothing.
    hide(&place, [2, 3]);
    let said = ["view_002.png: its mask hides every pixel", "left out of the means"];
    place.trained(6, &every_other).says(&said);
    let results = json(&place, "results.json");
    let means = results["ours_6"]["PSNR"].as_f64().unwrap();
    let per_view = json(&place, "per_view.json");
    let views = per_view["ours_6"]["PSNR"].as_object().unwrap();
    let numbers: Vec<&String> = views.keys().collect();
    // Numbered as their renders are.
    assert_eq!(numbers, ["00000.png", "00002.png", "00003.png"]);
    let psnr: Vec<f64> = views.values().map(|psnr| psnr.as_f64().unwrap()).collect();
    assert!((psnr.iter().sum::<f64>() / 3.0 - means).abs() < 1e-9 && means < 50.0, "{psnr:?}");

    let eval = end(splat().args(["eval", "--json", "--device=cpu", "-m"]).arg(place.model()));
    let eval = eval.done().says(&said);
    let report: Value = serde_json::from_str(&eval.stdout).unwrap();
    assert_eq!(report["views"].as_array().unwrap().len(), 3, "{report}");
    assert!((report["mean"]["psnr"].as_f64().unwrap() - means).abs() < 1e-3, "{report}");
    let mut render = splat();
    end(render.args(["render", "--skip-train", "--device=cpu", "-m"]).arg(place.model())).done();
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
    let mut eval = splat();
    eval.args(["eval", "--device=cpu", "-m"]).arg(place.model());
    end(&mut eval).refused(3, &["test views", "hide every pixel", "invert"]);
    let mut render = splat();
    end(render.args(["render", "--skip-train", "--device=cpu", "-m"]).arg(place.model())).done();
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
