//! Input whose numbers cannot be meant: points and Gaussians beyond what can be drawn, photographs of
//! a pixel.

use std::fs;
use std::path::Path;

use crate::common::program::{Ended, TestFolder, end, splat, text};
use image::{Rgb, RgbImage};
use rstest::rstest;
use safetensors::{Dtype, SafeTensors};

/// Trains for two iterations; refused as bad input with these words, before a folder is made.
fn refused(place: &TestFolder, flags: &[&str], parts: &[&str]) -> Ended {
    let ended = end(place.train().args(["--iterations", "2"]).args(flags)).refused(3, parts);
    assert!(!place.model().exists(), "a refused run leaves no folder");
    ended
}

/// Bytes of a binary file from `at` on become those of `value`.
fn overwrite(path: &Path, at: usize, value: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + value.len()].copy_from_slice(value);
    fs::write(path, bytes).unwrap();
}

#[test]
fn points_too_far_away_to_be_meant_are_refused() {
    let place = TestFolder::with_scene();
    // The count and the first point's number come before its position.
    overwrite(&place.points(), 16, &1e25_f64.to_le_bytes());
    refused(&place, &[], &[text(&place.points()), "point 1", "1e25", "1e12"]);
    fs::remove_file(place.points()).unwrap();
    let path = place.points().with_extension("txt");
    fs::write(&path, "# points\n7 0 0 0 1 2 3 0.5\n8 0 -1e25 0 1 2 3 0.5\n").unwrap();
    refused(&place, &[], &[text(&path), "line 3", "-1e25", "1e12"]);
}

/// Where the values of the first row begin in a PLY of ours, and how many each row has.
fn first_row(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap();
    let end = b"end_header\n";
    bytes.windows(end.len()).position(|window| window == end).unwrap() + end.len()
}

#[rstest]
#[case::centre(1, 1e25, "`y`")]
#[case::scale(56, 1000.0, "`scale_1`")]
#[case::colour(6, 3e38, "`f_dc_0`")]
#[case::harmonic(16, -3e38, "`f_rest_7`")]
fn gaussians_that_cannot_be_drawn_are_refused(
    #[case] column: usize,
    #[case] value: f32,
    #[case] name: &str,
) {
    let place = TestFolder::with_scene();
    place.trained_into("first", 2, &["--eval"]);
    let path = place.ply_of("first", 2);
    overwrite(&path, first_row(&path) + 4 * column, &value.to_le_bytes());
    let written = if value.abs() < 1e6 { value.to_string() } else { format!("{value:e}") };
    let parts = [text(&path), "row 0", name, &written];
    let of_init = [text(&path), "Gaussian 0", &format!("{value:e}")];
    refused(&place, &["--init", text(&path)], &of_init);
    let mut eval = splat();
    end(eval.args(["eval", "--device=cpu", "-m"]).arg(place.path("first"))).refused(3, &parts);
}

/// Every number of these kinds that a model's files hold.
fn saved_numbers(place: &TestFolder, iteration: u32) -> Vec<f32> {
    let ply = place.ply(iteration);
    let rows = fs::read(&ply).unwrap().split_off(first_row(&ply));
    let checkpoint = fs::read(place.checkpoint(iteration)).unwrap();
    let tensors = SafeTensors::deserialize(&checkpoint).unwrap();
    let floats = tensors.tensors().into_iter().filter(|(_, it)| it.dtype() == Dtype::F32);
    let bytes = floats.flat_map(|(_, tensor)| tensor.data().to_vec());
    let bytes: Vec<u8> = rows.into_iter().chain(bytes).collect();
    bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

#[test]
fn what_is_just_near_enough_trains_and_everything_saved_is_finite() {
    let place = TestFolder::with_scene();
    overwrite(&place.points(), 16, &9e11_f64.to_le_bytes());
    place.trained(4, &[]);
    assert!(saved_numbers(&place, 4).iter().all(|value| value.is_finite()));
    let path = place.path("large.ply");
    fs::copy(place.ply(4), &path).unwrap();
    // A flat one is the hardest.
    overwrite(&path, first_row(&path) + 4 * 55, &29.5_f32.to_le_bytes());
    place.trained(4, &["--init", text(&path)]);
    assert!(saved_numbers(&place, 4).iter().all(|value| value.is_finite()));
}

#[test]
fn exposures_that_are_not_finite_are_not_saved() {
    let place = TestFolder::with_scene();
    let flags = ["--iterations=1", "--exposure", "--exposure-lr-init=1e41", "--eval-train=0"];
    let ended = end(place.train().args(flags).arg("--exposure-lr-final=1e41"));
    ended.refused(1, &["training view ", "its exposure", "inf", "diverged", "learning rates"]);
    assert!(!place.checkpoint(1).exists() && !place.model().join("exposure.json").exists());
}

#[test]
fn a_photograph_of_one_pixel_does_not_pass_for_any_camera() {
    let place = TestFolder::with_scene();
    RgbImage::from_pixel(1, 1, Rgb([9, 9, 9])).save(place.image(5)).unwrap();
    refused(&place, &[], &[text(&place.image(5)), "1x1", "48x36"]);
}

#[test]
fn a_mask_of_one_pixel_does_not_pass_for_any_photograph() {
    let place = TestFolder::with_scene();
    let mask = place.scene().join("masks/view_005.png");
    fs::create_dir_all(mask.parent().unwrap()).unwrap();
    RgbImage::from_pixel(1, 1, Rgb([255; 3])).save(&mask).unwrap();
    refused(&place, &[], &[text(&mask), "1x1", "48x36", "proportions"]);
    // Half of the size is the same shape.
    RgbImage::from_pixel(24, 18, Rgb([255; 3])).save(&mask).unwrap();
    place.trained(1, &[]);
}
