//! Damaged and missing input: what is refused and with which exit code, and what is passed over.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use image::{Rgb, RgbImage};
use rstest::rstest;
use safetensors::{Dtype, SafeTensors};

use crate::common::program::{
    Ended, SIZE, TestFolder, VIEWS, assert_no_litter, cut, end, files_below, patch, text,
};
use crate::synthetic_scenes::{fixture, with_model};

/// Trains for two iterations; refused with this code and these words.
fn refused(place: &TestFolder, flags: &[&str], code: i32, parts: &[&str]) -> Ended {
    end(place.train().args(["--iterations", "2"]).args(flags)).refused(code, parts)
}

/// Refused as bad input before a folder is made.
fn refused_before(place: &TestFolder, flags: &[&str], parts: &[&str]) {
    refused(place, flags, 3, parts);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}

#[rstest]
#[case::on_demand("--low-dram")]
#[case::kept("--high-dram")]
fn a_photograph_with_a_good_header_and_a_broken_body_is_passed_over(#[case] memory: &str) {
    let place = TestFolder::with_scene();
    cut(&place.image(1), 200);
    place.trained(20, &[memory]).says(&["warning", "view_001.png"]);
    for number in 0..VIEWS {
        if number != 1 {
            cut(&place.image(number), 200);
        }
    }
    refused(&place, &[memory], 3, &["view_00"]);
}

#[rstest]
#[case("--exposure --bilateral-grid", 2, &["--bilateral-grid", "--exposure"])]
#[case("--preset=10gb", 2, &["`10gb`", "8gb, 12gb, 16gb, 24gb", "auto"])]
#[case("--strategy=adc --min-opacity=0.02", 2, &["--min-opacity", "less than 0.01", "--opacity-reset-interval"])]
#[case("--prune-scale=0", 2, &["--prune-scale", "above 0"])]
#[case("--resolution-scale=0.05", 2, &["--resolution-scale", "0.1 to 1"])]
#[case("--resolution-scale=1.5", 2, &["--resolution-scale", "0.1 to 1"])]
#[case("--resolution-scale=nan", 2, &["--resolution-scale", "0.1 to 1"])]
#[case("--accumulate=9", 2, &["--batch-views", "1 to 8"])]
#[case("--batch-views=0", 2, &["batch-views", "1 to 8"])]
#[case("--batch-views=9", 2, &["batch-views", "1 to 8"])]
#[case("--iterations=40 --target-gaussians=0", 2, &["--target-gaussians", "0", "1 to"])]
#[case("--iterations=40 --max-gaussian=9", 2, &["--max-gaussians"])]
#[case("--optimize-memory=colours", 2, &["--optimize-memory", "write true, false, auto or sh"])]
#[case("--offload=colours", 2, &["--offload", "none, sh"])]
#[case("--give-up=offload,nothing", 2, &["nothing", "offload"])]
#[case("--time-budget=0s", 2, &["is no time"])]
#[case("--time-budget=5x", 2, &["60s, 2m or 1h30m"])]
#[case("--time-budget=5s --exposure", 2, &["--exposure"])]
#[case("--time-budget=5s --regularize=sdf", 2, &["--regularize"])]
#[case("--until-psnr=0", 2, &["--until-psnr"])]
#[case("--until-psnr=20 --primitive=triangles", 2, &["--primitive triangles"])]
#[case("--quality=draft --preset=fast", 2, &["--preset"])]
#[case("--quality=superb", 2, &["draft, normal, high"])]
#[case("--checkpoint-minutes=-1", 2, &["--checkpoint-minutes", "0 and more"])]
#[case("--checkpoint-minutes=inf", 2, &["--checkpoint-minutes", "a finite number"])]
#[case("--keep-checkpoints=0", 2, &["--keep-checkpoints", "1 and more"])]
#[case("--live-every=-1", 2, &["--live-every", "0 to 86400"])]
#[case("--live-every=nan", 2, &["--live-every", "0 to 86400"])]
#[case("--live-control=perhaps", 2, &["--live-control"])]
#[case("-r densty", 2, &["densty", "1, 2, 4 or 8", "density", "dn_consistency"])]
#[case("--test-views 8", 3, &["--test-views 8", "8 views", "less than 8"])]
#[case("--test-views 0", 2, &["--test-views", "1 and more"])]
#[case("--eval False --test-views=3", 2, &["--eval", "is false", "--test-views"])]
#[case("--test-list nowhere.txt", 3, &["nowhere.txt", "--test-list"])]
#[case("--primitive=triangles --clean", 2, &["--clean", "--primitive triangles", "Leave --clean out"])]
#[case("--sugar-schedule=absolute --iterations=15000 --regularize=density", 2, &["15000", "relative"])]
#[case("--multi-view", 2, &["--multi-view", "--regularize median-normal"])]
#[case("--multi-view --regularize=density", 2, &["--multi-view", "--regularize median-normal"])]
#[case("--multi-view --regularize=dn-consistency", 2, &["--multi-view", "--regularize median-normal"])]
#[case("--primitive=triangles --antialiasing", 2, &["--antialiasing", "--upscaling-factor"])]
#[case("--primitive=triangles --preset=mip", 2, &["triangles"])]
#[case("--primitive=triangles --strategy=budget", 2, &["--strategy", "budget", "--add-percentage"])]
#[case("--primitive=surfels --regularize=density", 2, &["--regularize", "density", "surfels"])]
#[case("--skip_coarse", 2, &["--skip-coarse", "after training", "splat sugar -s", "splat mesh -m"])]
#[case("--coarse_checkpoint out/15000.pt", 2, &["--coarse-checkpoint", "after training", "splat sugar -s", "splat mesh -m"])]
#[case("--refinement_time short", 2, &["--refinement-time", "after training", "splat sugar -s", "splat mesh -m"])]
#[case("-r refinement", 2, &["-r refinement", "after training", "splat sugar -s", "splat mesh -m"])]
#[case("-r density --high_poly True", 2, &["--high-poly", "after training", "splat sugar -s", "splat mesh -m"])]
#[case("--preset=reference --target-gaussians=9 --iterations=40", 2, &["--densify-until-iter", "15000", "--target-gaussians", "less than --iterations"])]
fn options_that_cannot_be_are_refused_before_anything_is_written(
    #[case] line: &str,
    #[case] code: i32,
    #[case] parts: &[&str],
) {
    let place = TestFolder::with_scene();
    end(place.train().args(line.split(' '))).refused(code, parts);
    assert!(!place.model().exists());
}

#[test]
fn a_configuration_that_cannot_be_read_is_refused() {
    let place = TestFolder::with_scene();
    let path = place.path("mine.toml");
    let with_config = |words: &[&str]| refused(&place, &["--config", text(&path)], 2, words);
    with_config(&[text(&path)]);
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    with_config(&[text(&path)]);
    fs::write(&path, "[optimize]\niteration = 5\n").unwrap();
    with_config(&[text(&path), "line 2", "iteration"]);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}

#[test]
fn a_model_folder_that_cannot_be_written_ends_with_1() {
    let place = TestFolder::with_scene();
    fs::write(place.model(), "a file in the way").unwrap();
    refused(&place, &[], 1, &[text(&place.model())]);
    let below = place.path("model/below");
    end(&mut place.train_into("model/below")).refused(1, &[text(&below)]);
    assert_eq!(fs::read_to_string(place.model()).unwrap(), "a file in the way");
}

#[test]
fn a_folder_where_a_result_should_go_ends_with_1() {
    let place = TestFolder::with_scene();
    fs::create_dir_all(place.ply(2).join("occupied")).unwrap();
    // Without a file of that name there is no earlier run to be moved aside.
    fs::create_dir_all(place.model().join("checkpoints")).unwrap();
    end(place.train().args(["--iterations", "2", "--eval"])).done();
    fs::remove_file(place.model().join("results.json")).unwrap();
    fs::create_dir_all(place.model().join("results.json/occupied")).unwrap();
    place.resume(&["--iterations=4", "--eval"]).refused(1, &["results.json"]);
    assert_no_litter(&place.model());
}

#[test]
fn a_scene_of_other_photographs_is_not_overwritten_by_a_synthetic_one() {
    let place = TestFolder::with_scene();
    let synth = || place.splat("synth --views=2 -o SCENE", &[]);
    let photograph = place.scene().join("images/DSC_0001.jpg");
    fs::write(&photograph, "precious").unwrap();
    let before = files_below(&place.scene());
    synth().refused(1, &[text(&photograph)]);
    assert!(files_below(&place.scene()) == before);
    // The demonstration's scene goes into `scene` of the model folder.
    let folder = place.path("");
    place.splat("train --demo --device=cpu -m", &[text(&folder)]).refused(1, &[text(&photograph)]);
    fs::remove_dir_all(place.scene().join("images")).unwrap();
    synth().refused(1, &["sparse"]);
    fs::create_dir(place.scene().join("images")).unwrap();
    synth().done();
}

#[test]
fn an_optimisation_that_diverges_is_no_fault_of_the_device() {
    let place = TestFolder::with_scene();
    let flags = ["--iterations=50", "--feature-lr=1e30"];
    end(place.train().args(flags)).refused(1, &["diverged", "learning rates"]);
    // Its record is not taken for that of the next run.
    place.trained(2, &[]).says(&["previous_1"]);
}

#[test]
fn more_random_gaussians_than_memory_holds_are_refused() {
    let place = TestFolder::with_scene();
    fs::write(place.points(), 0_u64.to_le_bytes()).unwrap();
    refused(&place, &["--init-num-pts", "4294967295"], 2, &["--init-num-pts", "GiB"]);
    place.trained(2, &["--init-num-pts", "4294967295", "--max-points", "70"]).says(&["70 random"]);
}

#[test]
fn the_cap_holds_from_the_start() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--max-points=77"]).says(&["warning", "200 points", " 77 Gaussians"]);
}

#[test]
fn a_checkpoint_of_another_version_is_refused() {
    let place = with_model(2, &[]);
    let path = place.checkpoint(2);
    patch(&path, br#""version":"1""#, br#""version":"9""#);
    refused(&place, &["--resume", "auto"], 3, &[text(&path), "version 9", "version 1"]);
    refused(&place, &["--start-checkpoint", text(&path)], 3, &[text(&path), "version 9"]);
}

#[test]
fn a_truncated_checkpoint_gives_way_to_the_one_before_aloud() {
    let place = with_model(6, &["--checkpoint-iterations", "2", "4"]);
    for iteration in [4, 6] {
        cut(&place.checkpoint(iteration), 5000);
    }
    let (newest, before) = (place.checkpoint(6), place.checkpoint(4));
    let ended = end(place.train().args(["--iterations=8", "--resume=auto"])).done();
    ended.says(&["warning", text(&newest), text(&before), "iteration 2"]);
    assert!(place.ply(8).exists());
}

#[test]
fn when_no_checkpoint_is_whole_nothing_is_thrown_away() {
    let place = with_model(4, &["--checkpoint-iterations", "2"]);
    cut(&place.checkpoint(2), 7);
    fs::write(place.checkpoint(4), "").unwrap();
    let before = files_below(&place.model());
    let [earlier, last] = [2, 4].map(|iteration| place.checkpoint(iteration));
    refused(&place, &["--resume=auto"], 3, &[text(&last), text(&earlier)]);
    assert!(files_below(&place.model()) == before);
}

#[test]
fn a_checkpoint_that_is_none_is_refused() {
    let place = TestFolder::with_scene();
    for path in [place.path("missing.safetensors"), place.image(0), place.scene()] {
        refused(&place, &["--start-checkpoint", text(&path)], 3, &[text(&path)]);
    }
}

#[test]
fn a_ply_with_missing_columns_or_rows_is_refused() {
    let place = with_model(2, &["--eval"]);
    let path = place.ply(2);
    let eval = || place.run("eval", &[]);
    let whole = fs::read(&path).unwrap();
    patch(&path, b"property float opacity\n", b"property float opacitx\n");
    eval().refused(3, &[text(&path), "opacity"]);
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    eval().refused(3, &[text(&path)]);
    fs::remove_file(&path).unwrap();
    eval().refused(3, &[text(&place.model()), "point_cloud.ply"]);
    place.run("render", &[]).refused(3, &[text(&place.model())]);
}

/// Continues from iteration 2 to 4 with a limit of `kib` KiB on the size of a file.
#[cfg(unix)]
fn resumed_on_a_full_disk(place: &TestFolder, kib: u32) -> Ended {
    let checkpoint = place.checkpoint(2);
    place.train_on_full_disk(kib, &["--iterations=4", "--start-checkpoint", text(&checkpoint)])
}

#[cfg(unix)]
#[test]
fn a_disk_that_fills_while_saving_leaves_the_old_files() {
    let place = with_model(4, &["--checkpoint-iterations", "2"]);
    let results = [place.ply(4), place.checkpoint(2), place.checkpoint(4)];
    let content = |path: &Path| fs::read(path).unwrap();
    let before = results.each_ref().map(|path| content(path));
    let ply_kibibytes = u32::try_from(before[0].len() / 1024).unwrap();
    // Too small for the PLY, then for the checkpoint, which is about three times as large.
    for (kibibytes, path) in [(ply_kibibytes / 2, &results[0]), (ply_kibibytes + 20, &results[2])] {
        resumed_on_a_full_disk(&place, kibibytes).refused(1, &[text(path), "free space"]);
        assert_no_litter(&place.model());
        assert!(results.each_ref().map(|path| content(path)) == before, "an old file is damaged");
    }
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_from_the_start_ends_with_1() {
    let place = with_model(4, &["--checkpoint-iterations", "2"]);
    let config = fs::read(place.model().join("config.toml")).unwrap();
    resumed_on_a_full_disk(&place, 0).refused(1, &[text(&place.model())]);
    assert!(fs::read(place.model().join("config.toml")).unwrap() == config);
    assert_no_litter(&place.model());
}

// `-c`, `--init` and `--start-checkpoint` recognise each other's files, and those of `torch.save`.

/// A run of four iterations in `model`, with files beside it as other programs leave them.
static FILES: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("foreign_files", |place| {
        place.trained(4, &["--save-iterations=2", "--checkpoint-iterations=2"]);
        // As `torch.save` writes them, newer and older versions.
        let zip = b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0archive/data.pkl\x80\x02";
        fs::write(place.model().join("chkpnt2.pth"), zip).unwrap();
        fs::write(place.model().join("chkpnt9.pth"), b"\x80\x02\x8a\x0al\xfc").unwrap();
        fs::write(place.path("15000.pt"), zip).unwrap();
        fs::write(place.path("renamed.bin"), zip).unwrap();
    })
});

/// Trains from this file by this flag.
fn train(flag: &str, file: &Path) -> Ended {
    let place = TestFolder::beside(&FILES);
    let ended = end(place.train().args(["--regularize=density", flag]).arg(file));
    assert!(!place.model().exists(), "something was written");
    ended
}

#[rstest]
#[case::of_the_coarse_stage("-c", "-c")]
#[case::to_start_from("--init", "--init")]
#[case::to_resume("--start-checkpoint", "--init")]
fn pytorch_files_are_named_with_the_ply_to_use(#[case] flag: &str, #[case] instead: &str) {
    let expected = "is a PyTorch checkpoint, which this program does not read";
    let use_ply = |iteration| format!("use {instead} {}", text(&FILES.ply(iteration)));
    let folder = FILES.model();
    train(flag, &folder.join("chkpnt2.pth")).refused(3, &[expected, "chkpnt2.pth", &use_ply(2)]);
    // For an iteration without a PLY, the last PLY is suggested.
    train(flag, &folder.join("chkpnt9.pth")).refused(3, &[expected, &use_ply(4)]);
    for name in ["15000.pt", "renamed.bin"] {
        let generic = format!("use {instead} MODEL/point_cloud/iteration_N/point_cloud.ply");
        train(flag, &FILES.path(name)).refused(3, &[expected, name, &generic]);
    }
}

#[test]
fn checkpoints_and_plys_are_named_with_the_flag_that_takes_them() {
    let (checkpoint, ply) = (FILES.checkpoint(2), FILES.ply(2));
    let [checkpoint, ply] = [&checkpoint, &ply].map(|path| text(path));
    for flag in ["-c", "--init"] {
        let ended = train(flag, Path::new(checkpoint));
        ended.refused(3, &["is a checkpoint. ", "--start-checkpoint", &format!("{flag} {ply}")]);
    }
    let ended = train("--start-checkpoint", Path::new(ply));
    ended.refused(3, &["is a PLY", &format!("--init {ply}"), "-c for"]);
}

#[test]
fn folders_are_named_with_what_lies_in_them() {
    let folder = FILES.model();
    let model = text(&folder);
    let ended = train("--init", &folder);
    ended.refused(3, &["is a folder", text(&FILES.ply(4)), &format!("-c {model}")]);
    train("--start-checkpoint", &folder).refused(3, &["--resume -m", text(&FILES.checkpoint(4))]);
    train("--start-checkpoint", &FILES.scene()).refused(3, &["is a folder, not a checkpoint"]);
}

#[test]
fn files_that_are_recognised_are_taken() {
    for (flag, file) in [
        ("-c", FILES.model()),
        ("-c", FILES.ply(2)),
        ("--init", FILES.ply(2)),
        ("--start-checkpoint", FILES.checkpoint(2)),
    ] {
        let place = TestFolder::beside(&FILES);
        let stage = ["--regularize=density", "--n-samples-for-sdf=100", "--sugar-iterations=3"];
        end(place.train().args(["--iterations=4", flag]).arg(file).args(stage)).done();
    }
}

/// Gaussians with one value that no training can start from, in a format.
fn with_value(name: &str, change: impl Fn(&mut splat_formats::SplatColumns)) -> std::path::PathBuf {
    let mut columns = splat_formats::read(&FILES.ply(4)).unwrap().splats.into_columns();
    change(&mut columns);
    let splats = splat_formats::Splats::from_columns(columns).unwrap().splats;
    let path = FILES.path(name);
    let format = splat_formats::SplatFormat::of_name(&path).unwrap();
    splat_formats::write(&path, &splats, &format).unwrap();
    path
}

#[test]
fn values_that_cannot_be_trained_are_named() {
    let harmonic = with_value("harmonic.glb", |it| it.sh_rest[1][2] = 1.5e28);
    train("--init", &harmonic).refused(3, &["harmonic.glb", "harmonic of 1.5e28"]);
    let place = with_value("place.ply", |it| it.means[3][0] = -1e20);
    train("--init", &place).refused(3, &["place.ply", "Gaussian 3", "coordinate"]);
    let colour = with_value("colour.glb", |it| it.sh_dc[0][1] = 1e9);
    train("--init", &colour).refused(3, &["colour.glb", "colour"]);
    let bytes = fs::read(with_value("nan.glb", |_| ())).unwrap();
    // The first coordinate of the binary part.
    let start = 28 + u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
    let broken = [&bytes[..start], &f32::NAN.to_le_bytes(), &bytes[start + 4..]].concat();
    fs::write(FILES.path("nan.glb"), broken).unwrap();
    train("--init", &FILES.path("nan.glb")).refused(3, &["nan.glb", "not finite", "splat export"]);
}

// Unusual input that still trains: backgrounds, sizes, masks, scenes without points.

#[rstest]
#[case::white("--white-background")]
#[case::random("--random-background")]
#[case::smaller("-r2")]
#[case::narrower("-r24")]
#[case::no_harmonics("--sh-degree=0")]
#[case::few_gaussians("--max-points=100")]
fn unusual_choices_train(#[case] flag: &str) {
    let place = with_model(10, &["--eval", flag]);
    // Far from trained, but an image: black or noise would be below.
    assert!(place.psnr("model", 10) > 3.0);
}

#[test]
fn where_decoded_photographs_are_kept_does_not_change_the_result() {
    let place = TestFolder::with_scene();
    for (model, flags) in
        [("low", "--low-dram"), ("high", "--high-dram"), ("tiny", "--image-cache=1KiB")]
    {
        place.trained_into(model, 10, &[flags]);
    }
    place.assert_same(["low", "high"], 10);
    place.assert_same(["low", "tiny"], 10);
}

#[rstest]
#[case::extended_name("view_000.png.png")]
#[case::same_name("view_000.png")]
fn masks_leave_pixels_out(#[case] name: &str) {
    let place = TestFolder::with_scene();
    place.trained_into("whole", 10, &[]);
    let masks = place.scene().join("masks");
    fs::create_dir(&masks).unwrap();
    let (width, height) = SIZE;
    RgbImage::from_fn(width, height, |x, _| Rgb([if x < width / 2 { 0 } else { 255 }; 3]))
        .save(masks.join(name))
        .unwrap();
    place.trained(10, &[]);
    let [whole, masked] = ["whole", "model"].map(|model| place.ply_bytes(model, 10));
    assert!(whole != masked, "the mask changes nothing");
    place.run("render", &[]).done();
    for kind in ["gt", "renders"] {
        let path = place.model().join(format!("train/ours_10/{kind}/00000.png"));
        let picture = image::open(path).unwrap().to_rgb8();
        assert!((0..height).all(|y| picture.get_pixel(3, y).0 == [0; 3]), "{kind}");
        assert!((0..height).any(|y| picture.get_pixel(width - 3, y).0 != [0; 3]), "{kind}");
    }
}

#[test]
fn control_characters_of_names_are_escaped_in_messages() {
    let place = TestFolder::with_scene();
    // COLMAP's names end with a zero, and hold anything else.
    let images = place.scene().join("sparse/0/images.bin");
    patch(&images, b"view_001.png", b"v\x1b[31m\r\n.png");
    let trained = place.trained(2, &[]).says(&[r"v\u{1b}[31m\r\n.png"]);
    assert!(trained.stderr.chars().all(|letter| letter == '\n' || !letter.is_control()));
    place.trained_into("new\nline", 1, &[]).says(&[", into ", r"new\nline"]);
    let nowhere = place.path("no\u{9b}2J\nerror: all is lost");
    let refused = place.splat("train --device=cpu -s", &[text(&nowhere)]);
    let refused = refused.refused(3, &[r"no\u{9b}2J\nerror: all is lost"]);
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:#?}");
}

// Input whose numbers cannot be meant: points and Gaussians beyond what can be drawn, photographs of
// a pixel.

/// Bytes of a binary file from `at` on become those of `value`.
pub(super) fn overwrite(path: &Path, at: usize, value: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + value.len()].copy_from_slice(value);
    fs::write(path, bytes).unwrap();
}

#[test]
fn points_too_far_away_to_be_meant_are_refused() {
    let place = TestFolder::with_scene();
    // The count and the first point's number come before its position.
    overwrite(&place.points(), 16, &1e25_f64.to_le_bytes());
    refused_before(&place, &[], &[text(&place.points()), "point 1", "1e25", "1e12"]);
    fs::remove_file(place.points()).unwrap();
    let path = place.points().with_extension("txt");
    fs::write(&path, "# points\n7 0 0 0 1 2 3 0.5\n8 0 -1e25 0 1 2 3 0.5\n").unwrap();
    refused_before(&place, &[], &[text(&path), "line 3", "-1e25", "1e12"]);
}

/// Position of the first row in a PLY of ours, bytes.
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
    let parts = ["first/point_cloud/iteration_2/point_cloud.ply", "row 0", name, &written];
    let of_init = [text(&path), "Gaussian 0", &format!("{value:e}")];
    refused_before(&place, &["--init", text(&path)], &of_init);
    place.splat("eval --device=cpu -m first", &[]).refused(3, &parts);
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
fn a_mask_of_one_pixel_does_not_pass_for_any_photograph() {
    let place = TestFolder::with_scene();
    let mask = place.scene().join("masks/view_005.png");
    fs::create_dir(mask.parent().unwrap()).unwrap();
    RgbImage::from_pixel(1, 1, Rgb([255; 3])).save(&mask).unwrap();
    refused_before(&place, &[], &[text(&mask), "1x1", "48x36", "proportions"]);
    // Half of the size is the same shape.
    RgbImage::from_pixel(24, 18, Rgb([255; 3])).save(&mask).unwrap();
    place.trained(1, &[]);
}
