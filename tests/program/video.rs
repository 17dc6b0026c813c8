//! `splat video`: a model from a moving camera.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rstest::rstest;
use serde_json::{Value, json};

use crate::common::program::{Ended, TestFolder, end, splat, text};
use crate::synthetic_scenes::fixture;

/// A trained model with the pictures that `splat render` draws of it.
static TRAINED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("video", |place| {
        place.trained(30, &["--preset=reference"]);
        place.run("render", &["--quiet"]).done();
    })
});

/// `splat video` of the model into a place of its own, with a program as ffmpeg.
fn video(out: &TestFolder, file: &str, ffmpeg: &str, flags: &[&str]) -> Ended {
    let mut command = splat();
    command.args(["video", "--device=cpu", "-m"]).arg(TRAINED.model());
    command.arg("--file").arg(out.path(file)).args(flags).env("FFMPEG", ffmpeg);
    end(&mut command)
}

/// A program that takes ffmpeg's place: it notes its arguments and what it finds, and writes the video.
fn ffmpeg_of_test(out: &TestFolder, ends_with: u32) -> PathBuf {
    let (path, noted) = (out.path("ffmpeg"), out.path("noted"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *-encoders*) echo ' V..... libx264 H.264'; exit 0;; esac\n\
         for last; do :; done\nprintf '%s\\n' \"$@\" > '{}'\nls \"$(dirname \"$8\")\" >> '{}'\n\
         echo video > \"$last\"\necho 'it says why' >&2\nexit {ends_with}\n",
        noted.display(),
        noted.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn frames(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn pixels(path: &Path) -> image::RgbImage {
    image::open(path).unwrap().to_rgb8()
}

/// Mean squared difference of two pictures.
fn apart(one: &image::RgbImage, other: &image::RgbImage) -> f64 {
    let differences = one.as_raw().iter().zip(other.as_raw());
    let squares: f64 = differences.map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    squares / one.as_raw().len() as f64
}

#[test]
fn a_list_of_cameras_is_a_path_whose_frames_are_their_views() {
    let out = TestFolder::empty();
    let path = TRAINED.model().join("cameras.json");
    let ended = video(&out, "frames", "/nonexistent", &["--path", text(&path)]).done();
    assert_eq!(ended.stdout.trim(), text(&out.path("frames")));
    let drawn: Vec<_> = frames(&out.path("frames")).iter().map(|path| pixels(path)).collect();
    let renders = frames(&TRAINED.model().join("train/ours_30/renders"));
    let renders: Vec<_> = renders.iter().map(|path| pixels(path)).collect();
    assert_eq!(drawn.len(), renders.len());
    for (at, frame) in drawn.iter().enumerate() {
        let differences: Vec<f64> = renders.iter().map(|render| apart(frame, render)).collect();
        let nearest = (0..renders.len()).min_by(|&a, &b| differences[a].total_cmp(&differences[b]));
        // The file has no principal point, so that the pictures are moved by a pixel.
        assert_eq!(nearest, Some(at), "{differences:?}");
        assert!(differences[at] < 100.0, "{differences:?}");
    }
}

#[test]
fn cameras_of_the_scene_are_passed_exactly() {
    let out = TestFolder::empty();
    let flags = ["--path=cameras", "--seconds=1", "--fps=15"];
    video(&out, "frames", "/nonexistent", &flags).done();
    let drawn = frames(&out.path("frames"));
    assert_eq!(drawn.len(), 15);
    let renders = TRAINED.model().join("train/ours_30/renders");
    let ends = [(0, 0), (14, frames(&renders).len() - 1)];
    for (frame, view) in ends {
        let (drawn, render) = (pixels(&drawn[frame]), pixels(&frames(&renders)[view]));
        let most = drawn.as_raw().iter().zip(render.as_raw()).map(|(a, b)| a.abs_diff(*b)).max();
        // Places on the path are those of the camera but for rounding.
        assert!(most <= Some(1), "{frame}: {most:?}");
    }
    assert_ne!(pixels(&drawn[0]), pixels(&drawn[7]));
}

#[rstest]
#[case::orbit("orbit")]
#[case::ellipse("ellipse")]
fn a_path_around_the_scene_has_all_frames_and_ffmpeg_gets_them(#[case] path: &str) {
    let out = TestFolder::empty();
    let ffmpeg = ffmpeg_of_test(&out, 0);
    let flags =
        ["--path", path, "--seconds=0.5", "--fps=24", "--width=33", "--height=21", "--json"];
    let made = video(&out, "round.mp4", text(&ffmpeg), &flags).done().says(&["32 x 20 px"]);
    let made = made.json();
    let expected = json!({"file": out.path("round.mp4"), "frames": 12, "fps": 24.0, "width": 32,
        "height": 20});
    assert_eq!(made, expected);
    let noted = out.read("noted");
    let seen: Vec<&str> = noted.lines().collect();
    assert!(seen.contains(&"libx264") && seen.contains(&"24"), "{noted}");
    assert_eq!(seen.iter().filter(|line| line.ends_with(".png")).count(), 1 + 12, "{noted}");
    assert!(out.path("round.mp4").is_file() && !out.path("round_frames").exists());
    assert_eq!(frames(&out.path("")).len(), 3, "the video, the program and its notes");
}

#[test]
fn without_ffmpeg_the_frames_are_kept_and_the_command_fails() {
    let out = TestFolder::empty();
    let flags = ["--seconds=0.1", "--fps=30"];
    let expected =
        ["/nonexistent/ffmpeg cannot be started", "Install ffmpeg", "FFMPEG", "a_frames"];
    video(&out, "a.mp4", "/nonexistent/ffmpeg", &flags).refused(1, &expected);
    assert_eq!(frames(&out.path("a_frames")).len(), 3);
    assert!(!out.path("a.mp4").exists());
}

#[test]
fn what_ffmpeg_cannot_make_costs_no_frame_and_no_earlier_video() {
    let out = TestFolder::empty();
    let ffmpeg = ffmpeg_of_test(&out, 1);
    fs::write(out.path("a.mp4"), "of before").unwrap();
    let flags = ["--seconds=0.1", "--fps=30", "--overwrite"];
    let expected = ["a.mp4: is not made", "it says why", "a_frames"];
    for kept in ["a_frames", "a_frames-2"] {
        video(&out, "a.mp4", text(&ffmpeg), &flags).refused(1, &expected);
        assert_eq!(frames(&out.path(kept)).len(), 3);
    }
    assert_eq!(out.read("a.mp4"), "of before");
    let names = frames(&out.path(""));
    assert!(!names.iter().any(|path| path.to_str().unwrap().contains(".frames-")), "{names:?}");
}

#[test]
fn what_is_there_stays_unless_a_file_of_its_name_may_be_replaced() {
    let out = TestFolder::empty();
    fs::create_dir(out.path("frames")).unwrap();
    for name in ["00000.png", "00099.png", "notes.txt"] {
        fs::write(out.path("frames").join(name), "mine").unwrap();
    }
    let flags = ["--seconds=0.1", "--fps=20"];
    let all_mine = || {
        let paths = frames(&out.path("frames"));
        paths.iter().filter(|path| fs::read(path).unwrap() == b"mine").count()
    };
    video(&out, "frames", "/nonexistent", &flags).refused(2, &["is there already", "--overwrite"]);
    // A command that fails later has replaced nothing.
    let typo = [&flags[..], &["--overwrite", "--path=typo.json"]].concat();
    video(&out, "frames", "/nonexistent", &typo).refused(2, &["typo.json"]);
    assert_eq!(all_mine(), 3);
    video(&out, "frames", "/nonexistent", &[&flags[..], &["--overwrite"]].concat()).done();
    assert_eq!((all_mine(), frames(&out.path("frames")).len()), (2, 4));
    assert!(!out.path("other").exists());
    fs::create_dir(out.path("b.mp4")).unwrap();
    video(&out, "b.mp4", "/nonexistent", &flags).refused(2, &["b.mp4: is a folder"]);
}

#[test]
fn a_track_says_its_size_and_speed_and_flags_win() {
    let out = TestFolder::empty();
    let path = out.path("track.json");
    let frame = json!({"position": [3, -1, 0], "target": [0, 0, 0], "fov": 50});
    let track = json!({"fps": 12, "width": 40, "height": 30, "frames": [frame, frame, frame]});
    fs::write(&path, track.to_string()).unwrap();
    let made = |file: &str, flags: &[&str]| -> Value {
        let flags = [&["--path", text(&path), "--json"], flags].concat();
        video(&out, file, "/nonexistent", &flags).done().json()
    };
    let shown = |made: &Value| ["frames", "fps", "width", "height"].map(|key| made[key].clone());
    assert_eq!(shown(&made("a", &[])), [json!(3), json!(12.0), json!(40), json!(30)]);
    let wide = made("b", &["--width=80", "--fps=10", "--seconds=2"]);
    assert_eq!(shown(&wide), [json!(20), json!(10.0), json!(80), json!(60)]);
    assert_eq!(pixels(&out.path("b/00000.png")).dimensions(), (80, 60));
}

#[rstest]
#[case(&["--path=circle"], 2, &["--path circle", "orbit, ellipse or cameras"])]
#[case(&["--file=movie.avi"], 2, &["movie.avi", ".mp4"])]
#[case(&["--seconds=0"], 2, &["--seconds 0", "above 0"])]
#[case(&["--seconds=nan"], 2, &["--seconds"])]
#[case(&["--fps=-1"], 2, &["--fps"])]
#[case(&["--width=20000"], 2, &["--width 20000", "16384"])]
#[case(&["--seconds=86400", "--fps=1000"], 2, &["frames", "are the most"])]
fn what_makes_no_video_is_refused(
    #[case] flags: &[&str],
    #[case] code: i32,
    #[case] expected: &[&str],
) {
    let out = TestFolder::empty();
    let line = if flags[0].starts_with("--file") { "video -m" } else { "video --file frames -m" };
    let model = TRAINED.model();
    let flags = [&[text(&model), "--device=cpu"], flags].concat();
    out.splat(line, &flags).refused(code, expected);
    assert!(!out.path("frames").join("00000.png").exists());
}

#[test]
fn a_path_that_is_none_is_named_with_its_file() {
    let out = TestFolder::empty();
    let path = out.path("path.json");
    for (text_of_file, expected) in [("{", "no JSON"), ("{\"camera_path\": []}", "no cameras")] {
        fs::write(&path, text_of_file).unwrap();
        video(&out, "frames", "/nonexistent", &["--path", text(&path)])
            .refused(3, &["path.json", expected]);
    }
}

#[test]
fn pictures_of_a_run_are_kept_and_become_a_video() {
    let place = TestFolder::beside(&TRAINED);
    let flags = ["--timelapse", "view_003.png", "--test-iterations=-1"];
    place.trained(40, &flags);
    let folder = place.model().join("timelapse");
    let kept = frames(&folder);
    // The start, and one after each of so few iterations.
    assert_eq!(kept.len(), 41, "{kept:?}");
    assert_eq!(kept[0].file_name().unwrap(), "000000.png");
    assert_eq!(kept[40].file_name().unwrap(), "000040.png");
    let photograph = pixels(&place.image(3));
    let [first, last] = [&kept[0], &kept[40]].map(|path| pixels(path));
    assert_eq!(photograph.dimensions(), last.dimensions());
    assert!(apart(&last, &photograph) < 0.8 * apart(&first, &photograph), "it is that view");
    // What training does is the same without.
    place.trained_into("without", 40, &flags[2..]);
    place.assert_same(["model", "without"], 40);

    let ffmpeg = ffmpeg_of_test(&place, 0);
    let film = |file: &str| {
        let mut command = splat();
        command.args(["video", "--timelapse", "--json", "-m"]).arg(place.model());
        command.arg("--file").arg(place.path(file)).env("FFMPEG", &ffmpeg);
        end(&mut command)
    };
    let made = film("film.mp4").done().json();
    assert_eq!((&made["frames"], &made["width"]), (&json!(41), &json!(48)), "{made}");
    assert!(place.read("noted").contains("00040.png"));
    film("folder").done();
    assert_eq!(frames(&place.path("folder")).len(), 41);
    assert!(fs::read(&kept[40]).unwrap() == fs::read(place.path("folder/00040.png")).unwrap());
    let line = "video --timelapse --overwrite -m MODEL --file";
    place.splat(line, &[text(&folder)]).refused(2, &["the pictures themselves"]);
    assert_eq!(frames(&folder), kept);
    // Another run into the folder has pictures of its own alone, and a run that goes on has none of another view.
    place.trained(20, &flags);
    assert_eq!(frames(&folder).len(), 21);
    let other = ["--resume", "--iterations=25", "--timelapse", "view_004.png"];
    end(place.train().args(other)).refused(2, &["view_003.png", "another folder"]);
    place.resume(&["--iterations=25"]).done();
    assert_eq!(frames(&folder).len(), 26);
}

#[test]
fn a_timelapse_of_no_view_or_without_pictures_is_refused() {
    let place = TestFolder::beside(&TRAINED);
    let flags = ["--timelapse", "view_99.png", "--iterations=5"];
    end(place.train().args(flags)).refused(2, &["view_99.png", "like view_000.png"]);
    let line = "video --timelapse --file film.mp4 -m";
    let parts = ["timelapse", "0 pictures", "--timelapse IMAGE"];
    place.splat(line, &[text(&TRAINED.model())]).refused(3, &parts);
}
