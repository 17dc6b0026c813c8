//! Options of training that other trainers' users look for: smaller photographs, sums over several views,
//! what is pruned, and switches of Mip-Splatting's that change nothing here.

use std::fs;

use crate::common::program::{TestFolder, end, splat, text};
use rstest::rstest;
use serde_json::Value;
use splat::config::SceneOptions;
use splat::dataset::Dataset;
use splat::export::read_ply;
use splat::math::sigmoid;
use splat::model::Gaussians;

fn planned_px(place: &TestFolder, flags: &[&str]) -> Value {
    let mut plan = splat();
    plan.args(["plan", "--json", "-s"]).arg(place.scene()).args(flags);
    let report: Value = serde_json::from_str(&end(&mut plan).done().stdout).unwrap();
    report["scene"]["largest_px"].clone()
}

#[test]
fn a_resolution_scale_multiplies_what_resolution_leaves() {
    let place = TestFolder::with_scene();
    for (flags, px) in [
        (&[][..], [48, 36]),
        (&["--resolution-scale=0.5"][..], [24, 18]),
        (&["-r=2", "--resolution_scale", "0.5"][..], [12, 9]),
        (&["-r=24", "--resolution-scale=0.75"][..], [18, 14]),
    ] {
        assert_eq!(planned_px(&place, flags), Value::from(px.to_vec()), "{flags:?}");
    }
    for wrong in ["0.05", "1.5", "nan"] {
        let flag = format!("--resolution-scale={wrong}");
        end(place.train().arg(flag)).refused(2, &["--resolution-scale", "0.1 to 1"]);
    }
    place.trained(5, &["--eval", "--resolution-scale=0.5"]);
    // It is a property of the run: what is measured and drawn later has the same size.
    let mut eval = splat();
    eval.args(["eval", "--device=cpu", "-m"]).arg(place.model());
    let ended = end(&mut eval).done();
    assert!(!ended.stderr.contains("other scene options"), "{ended:#?}");
    let mut render = splat();
    render.args(["render", "--device=cpu", "--skip-train", "-m"]).arg(place.model());
    end(&mut render).done();
    let picture = fs::read(place.model().join("test/ours_5/renders/00000.png")).unwrap();
    let side = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| picture[at + i]));
    assert_eq!([side(16), side(20)], [24, 18]);
}

#[test]
fn accumulate_is_another_name_of_batch_views() {
    let place = TestFolder::with_scene();
    place.trained_into("batch", 24, &["--batch-views=4"]);
    place.trained_into("sum", 24, &["--accumulate", "4"]);
    let ply = |model: &str| fs::read(place.ply_of(model, 24)).unwrap();
    assert!(ply("batch") == ply("sum"));
    end(place.train().arg("--accumulate=9")).refused(2, &["--batch-views", "1 to 8"]);
}

/// The model after one round of density control, after 30 of 31 iterations.
fn after_a_round(place: &TestFolder, model: &str, flags: &[&str]) -> Gaussians {
    let round =
        ["--densify-from-iter=10", "--densification-interval=30", "--densify-until-iter=31"];
    place.trained_into(model, 31, &[&round, flags].concat());
    read_ply(&place.ply_of(model, 31)).unwrap()
}

fn largest_scale(model: &Gaussians, row: usize) -> f32 {
    model.log_scales[row * 3..][..3].iter().fold(f32::MIN, |most, &s| most.max(s)).exp()
}

#[rstest]
#[case::adc(&["--strategy=adc", "--opacity-reset-interval=100000"], 0.08)]
// It starts with opacities of a half.
#[case::mcmc(&["--strategy=mcmc"], 0.4)]
fn a_round_leaves_nothing_more_transparent_than_min_opacity(
    #[case] flags: &[&str],
    #[case] min: f32,
) {
    let place = TestFolder::with_scene();
    let least = |model: &Gaussians| model.opacity_logits.iter().copied().fold(f32::MAX, f32::min);
    let usual = after_a_round(&place, "usual", flags);
    let pruned =
        after_a_round(&place, "pruned", &[flags, &[&format!("--min-opacity={min}")]].concat());
    let (usual, found) = (sigmoid(least(&usual)), sigmoid(least(&pruned)));
    // One step follows the round.
    assert!(usual < 0.75 * min && found > 0.95 * min, "{usual} and {found}");
    assert!(!pruned.is_empty());
}

#[test]
fn a_round_removes_what_is_larger_than_prune_scale() {
    let place = TestFolder::with_scene();
    let options = SceneOptions { source_path: Some(place.scene()), ..SceneOptions::default() };
    let extent = Dataset::load(&options).unwrap().extent();
    let flags = ["--strategy=adc", "--opacity-reset-interval=20"];
    let usual = after_a_round(&place, "usual", &flags);
    let mut scales: Vec<f32> = (0..usual.len()).map(|row| largest_scale(&usual, row)).collect();
    scales.sort_by(f32::total_cmp);
    let share = f64::from(scales[scales.len() / 2]) / extent;
    let flag = format!("--prune-scale={share}");
    let pruned = after_a_round(&place, "pruned", &[&flags[..], &[&flag]].concat());
    assert!(!pruned.is_empty() && pruned.len() < usual.len(), "{} rows", pruned.len());
    let most = (0..pruned.len()).map(|row| largest_scale(&pruned, row)).fold(0.0, f32::max);
    // One step follows the round: 5e-3 of a logarithm.
    assert!(f64::from(most) <= share * extent * 1.02, "{most}");
}

#[test]
fn thresholds_that_would_remove_all_are_refused() {
    let place = TestFolder::with_scene();
    end(place.train().args(["--strategy=adc", "--min-opacity=0.02"]))
        .refused(2, &["--min-opacity", "less than 0.01", "--opacity-reset-interval"]);
    end(place.train().arg("--prune-scale=0")).refused(2, &["--prune-scale", "above 0"]);
}

#[test]
fn thresholds_of_density_control_say_that_the_coarse_stage_has_none() {
    let place = TestFolder::with_scene();
    place.trained_into("before", 2, &[]);
    let before = place.path("before");
    let coarse = ["--regularize=density", "--sugar-iterations=1", "--n-samples-for-sdf=100"];
    let thresholds = ["--min-opacity=0.004", "--prune-scale=0.2", "--target-gaussians=9"];
    end(place.train().args(["-c", text(&before)]).args(coarse).args(thresholds)).done().says(&[
        "--min-opacity has no effect with -c",
        "--prune-scale has no effect with -c",
        "--target-gaussians has no effect with -c",
    ]);
}

#[test]
fn mip_splattings_switches_are_ignored_with_a_notice() {
    let place = TestFolder::with_scene();
    let mut train = splat();
    let line = "train --verbose --device=cpu --iterations=2 --ray_jitter --resample_gt_image --load_allres \
                --sample_more_highres";
    train.args(line.split_whitespace()).args(["-s", text(&place.scene())]);
    train.args(["-m", text(&place.model())]);
    end(&mut train).done().says(&[
        "--ray-jitter is ignored: pixels are drawn and compared at their centres",
        "--resample-gt-image is ignored",
        "--load-allres is ignored: photographs are trained at the one size of --resolution",
        "--sample-more-highres is ignored",
    ]);
}
