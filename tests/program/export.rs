//! `splat export`: models in the formats of other programs, and back.

use std::fs;
use std::path::Path;

use rstest::rstest;
use splat::export::read_ply;

use crate::common::program::{Ended, TestFolder, kill, program, put, text, words};
use crate::synthetic_scenes::with_model;

/// A small model with learned harmonics.
fn trained() -> TestFolder {
    with_model(150, &["--eval", "--sh-degree-interval=20", "--max-points=600"])
}

fn export(place: &TestFolder, args: &[&str]) -> Ended {
    place.splat("export", args)
}

/// PSNR of the held-out views as the Gaussians of this PLY show them.
fn psnr(place: &TestFolder, ply: &Path) -> f64 {
    put(&place.ply_of("measured", 150), fs::read(ply).unwrap());
    for file in ["config.toml", "trained_views.json"] {
        fs::copy(place.model().join(file), place.path("measured").join(file)).unwrap();
    }
    place.splat("eval --json --device=cpu -m measured", &[]).done().psnr()
}

#[test]
fn every_format_holds_the_model_and_is_read_back() {
    let place = trained();
    let ply = place.ply_of("model", 150);
    let before = psnr(&place, &ply);
    let count = read_ply(&ply).unwrap().len();
    // What a format may lose; .splat has no harmonics, and is compared with the model without them.
    let formats = [
        ("all.ply", 0.001),
        ("all.compressed.ply", 0.5),
        ("all.spz", 0.05),
        ("all.sog", 0.3),
        ("all.glb", 0.001),
        ("sog/meta.json", 0.3),
        ("lod/lod-meta.json", 0.3),
    ];
    let sizes: Vec<u64> = formats
        .into_iter()
        .map(|(name, loss)| {
            let made = export(&place, &["-m", "model", "-o", name, "--json"]).done().json();
            assert_eq!((&made["splats"], &made["sh_degree"]), (&count.into(), &3.into()), "{made}");
            let after = psnr_of_file(&place, name);
            assert!(after > before - loss, "{name}: {before} dB before, {after} dB after");
            made["bytes"].as_u64().unwrap()
        })
        .collect();
    assert!(3 * sizes[1] < sizes[0] && 3 * sizes[2] < sizes[0], "{sizes:?}");

    export(&place, &["-m", "model", "-o", "flat.ply", "--sh-degree=0"]).done();
    export(&place, &["-m", "model", "-o", "all.splat"]).done();
    let [flat, back] = ["flat.ply", "all.splat"].map(|name| psnr_of_file(&place, name));
    // Its colours are bytes, and clamped.
    assert!((flat - back).abs() < 0.5, "{flat} {back}");
}

#[test]
fn a_run_starts_from_an_spz_of_any_axes() {
    let place = trained();
    let whole = place.ply_of("model", 150);
    let count = format!("{} Gaussians", read_ply(&whole).unwrap().len());
    let start = |name: &str, flags: &[&str]| {
        let from = place.path(name);
        let flags = [&["--init", text(&from), "--densify-until-iter=0"], flags].concat();
        let model = format!("from_{name}");
        place.trained_into(&model, 1, &flags).says(&[&count]);
        psnr(&place, &place.ply_of(&model, 1))
    };
    export(&place, &["-m", "model", "-o", "rub.spz"]).done();
    export(&place, &["-m", "model", "-o", "luf.spz", "--spz-axes=luf"]).done();
    let expected = start("rub.spz", &[]);
    // One step with a fresh optimiser moves every value by its learning rate.
    assert!((psnr(&place, &whole) - expected).abs() < 1.5, "{expected}");
    let named = start("luf.spz", &[]);
    assert!((named - expected).abs() < 0.05, "{named} {expected}");
    // As a program writes it that leaves the axes of a PLY as they are and does not say so.
    export(&place, &["-m", "model", "-o", "odd.spz", "--rotate=180,0,0"]).done();
    let [odd, wrong] = [&["--init-spz-axes=rdf"][..], &[]].map(|flags| start("odd.spz", flags));
    assert!((odd - expected).abs() < 0.05 && wrong < expected - 3.0, "{odd} {wrong} {expected}");
}

#[test]
fn a_page_has_the_cameras_of_the_model_where_the_scene_is() {
    let place = trained();
    export(&place, &["-m", "model", "-o", "scene.html"]).done();
    let page = place.read("scene.html");
    assert!(page.contains("<title>scene"), "the page is named as its file");
    // One of the eight views is held out.
    for (text, times) in [("view_00", 8), ("\"training\"", 7), ("\"held_out\"", 1)] {
        assert_eq!(page.matches(text).count(), times, "{text}");
    }
    export(&place, &["-m", "model", "-o", "moved.html", "--scale=2"]).done();
    let moved = place.read("moved.html");
    let first = |page: &str| -> f64 {
        let (_, position) = page.split_once("\"position\":[").unwrap();
        position.split(',').next().unwrap().parse().unwrap()
    };
    assert!((first(&moved) - 2.0 * first(&page)).abs() < 1e-9 && first(&page) != 0.0);
    let cameras = place.read("model/cameras.json");
    let (before, focal) = cameras.split_once("\"fx\":").unwrap();
    let broken = format!("{before}\"fx\":0{}", &focal[focal.find(['}', ',']).unwrap()..]);
    fs::write(place.model().join("cameras.json"), broken).unwrap();
    let dropped = export(&place, &["-m", "model", "-o", "seven.html"]).done();
    dropped.says(&["cameras.json: the camera view_00"]);
    assert_eq!(place.read("seven.html").matches("view_00").count(), 7);
    fs::write(place.model().join("cameras.json"), "[").unwrap();
    let without = export(&place, &["-m", "model", "-o", "without.html"]).done();
    without.says(&["cameras.json: cannot be read", "not known"]);
    export(&place, &["scene.html", "-o", "back.ply"]).refused(3, &["scene.html"]);
}

#[test]
fn what_is_cut_and_moved_is_what_was_asked_for() {
    let place = trained();
    let all = read_ply(&place.ply_of("model", 150)).unwrap();
    let line = "export -m model -o part.ply --crop=-9,-9,-9,0,9,9 --crop 0,-9,-9,9,0,9 --sh-degree 1 \
                --scale 2 --translate 1,0,0 --up y --json";
    let made = place.splat(line, &[]).done().json();
    let part = read_ply(&place.path("part.ply")).unwrap();
    let (places, _) = all.means.as_chunks::<3>();
    let kept: Vec<&[f32; 3]> = places.iter().filter(|[x, y, _]| *x <= 0.0 || *y <= 0.0).collect();
    assert!(kept.len() < all.len() && !kept.is_empty());
    assert_eq!(made["left_out"], all.len() - kept.len());
    assert_eq!((part.len(), part.sh_degree), (kept.len(), 1));
    // From -y to y is half a turn about x; then twice as large and one to the right.
    for ([x, y, z], found) in kept.into_iter().zip(part.means.as_chunks::<3>().0) {
        for (found, wanted) in found.iter().zip([2.0 * x + 1.0, -2.0 * y, -2.0 * z]) {
            assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
        }
    }
    let lengths =
        part.quats.as_chunks::<4>().0.iter().map(|q| q.iter().map(|v| v * v).sum::<f32>());
    assert!(lengths.into_iter().all(|squared| (squared - 1.0).abs() < 1e-5));
}

/// A model with more Gaussians than the palette of a SOG has entries for.
fn larger() -> TestFolder {
    with_model(150, &["--eval", "--sh-degree-interval=20", "--max-points=2500"])
}

/// PSNR of the held-out views as a file of another format shows them.
fn psnr_of_file(place: &TestFolder, name: &str) -> f64 {
    export(place, &[name, "-o", "back.ply", "--overwrite", "--quiet"]).done();
    psnr(place, &place.path("back.ply"))
}

#[test]
fn colours_fitted_again_lose_less_than_a_palette() {
    let place = larger();
    let before = psnr(&place, &place.ply_of("model", 150));
    export(&place, &["-m", "model", "-o", "plain.sog", "--device=cpu"]).done();
    place.splat("export -m model -o fitted.sog --refit=60 --device=cpu", &[]).done();
    let [plain, fitted] = ["plain.sog", "fitted.sog"].map(|sog| psnr_of_file(&place, sog));
    // A model that has just begun to train goes on to learn its colours.
    assert!(fitted > plain && plain > before - 0.3, "{before} {plain} {fitted}");
    // Only colours and opacities moved.
    let [plain, fitted] = ["plain", "fitted"].map(|name| {
        let ply = format!("{name}.ply");
        export(&place, &[&format!("{name}.sog"), "-o", &ply, "--quiet"]).done();
        read_ply(&place.path(&ply)).unwrap()
    });
    assert!(plain.means == fitted.means && plain.quats == fitted.quats);
    assert!(plain.log_scales == fitted.log_scales && plain.sh_dc != fitted.sh_dc);
}

#[test]
fn a_scene_that_is_placed_is_fitted_where_its_photographs_were_taken() {
    let place = larger();
    let fit = ["-m", "model", "--refit=40", "--device=cpu"];
    let turn = ["--rotate=90,0,0", "--scale=2", "--translate=1,2,3"];
    export(&place, &[&fit[..], &["-o", "still.sog"]].concat()).done();
    export(&place, &[&fit[..], &turn, &["-o", "placed.sog"]].concat()).done();
    let back = ["--translate=-1,-2,-3", "-o", "near.ply"];
    export(&place, &[&["placed.sog"][..], &back].concat()).done();
    let back = ["--rotate=-90,0,0", "--scale=0.5", "-o", "back.sog"];
    export(&place, &[&["near.ply"][..], &back].concat()).done();
    let [still, placed] = ["still.sog", "back.sog"].map(|sog| psnr_of_file(&place, sog));
    // Harmonics are squeezed once more on the way back.
    assert!((still - placed).abs() < 0.3, "{still} {placed}");
}

#[rstest]
#[case::no_format(&["-m", "model", "-o", "model.xyz"], 2, &["model.xyz", ".spz", "--format"])]
#[case::there_already(&["-m", "model", "-o", "model/config.toml", "--format=ply"], 2, &["config.toml", "--overwrite"])]
#[case::nothing_left(&["-m", "model", "-o", "a.ply", "--crop=90,90,90,91,91,91"], 3, &["point_cloud.ply", "--crop"])]
#[case::no_model(&["-m", "nowhere", "-o", "a.ply"], 3, &["nowhere"])]
#[case::no_file(&["nowhere.spz", "-o", "a.ply"], 3, &["nowhere.spz"])]
#[case::other_file(&["model/config.toml", "-o", "a.ply"], 3, &["config.toml", "unknown format"])]
#[case::cut_off(&["cut.spz", "-o", "a.ply"], 3, &["cut.spz"])]
#[case::box_turned(&["-m", "model", "-o", "a.ply", "--crop=1,0,0,0,1,1"], 2, &["lesser corner"])]
#[case::few_numbers(&["-m", "model", "-o", "a.ply", "--translate=1,2"], 2, &["3 finite numbers"])]
#[case::bits(&["-m", "model", "-o", "a.spz", "--spz-sh-bits=9,4"], 2, &["from 1 to 8"])]
#[case::upside_down(&["-m", "model", "-o", "a.glb", "--up=y"], 2, &["turn the scene twice"])]
#[case::no_number(&["-m", "model", "-o", "a.ply", "--scale=nan"], 2, &["give a finite number"])]
#[case::stdout(&["-m", "model", "-o", "-", "--format=ply"], 2, &["an export is a file"])]
#[case::a_folder(&["-m", "model", "-o", "model", "--format=ply", "--overwrite"], 2, &["is no file"])]
#[case::others_files(&["-m", "model", "-o", "model/meta.json"], 2, &["model: is not empty", "--overwrite"])]
#[case::folder(&["-m", "model", "-o", "a.sog", "--format=sog-folder"], 2, &["meta.json"])]
#[case::refit_of_a_file(&["model/config.toml", "-o", "a.sog", "--refit"], 2, &["--refit", "-m MODEL"])]
#[case::refit_of_spz(&["-m", "model", "-o", "a.spz", "--refit"], 2, &["--refit is for SOG", "Leave it out"])]
#[case::refit_of_a_part(&["-m", "model", "-o", "a.sog", "--refit", "--crop=0,0,0,1,1,1"], 2, &["--crop", "cut off"])]
#[case::refit_without_scene(&["-m", "model", "-s", "gone", "-o", "a.sog", "--refit"], 3, &["gone"])]
#[case::nothing_named(&["-o", "a.ply"], 2, &["FILE"])]
fn what_cannot_be_exported_is_named(
    #[case] args: &[&str],
    #[case] code: i32,
    #[case] parts: &[&str],
) {
    let place = trained();
    let before = fs::read(place.model().join("config.toml")).unwrap();
    export(&place, &["-m", "model", "-o", "whole.spz"]).done();
    let whole = fs::read(place.path("whole.spz")).unwrap();
    fs::write(place.path("cut.spz"), &whole[..whole.len() / 2]).unwrap();
    export(&place, args).refused(code, parts);
    assert_eq!(fs::read(place.model().join("config.toml")).unwrap(), before);
    assert!(!place.path("a.ply").exists());
}

#[test]
fn options_of_another_format_are_said_to_change_nothing() {
    let place = trained();
    let expected = ["--spz-version has no effect", "--sog-seed has no effect"];
    let line = "export -m model -o a.ply --spz-version=4 --sog-seed=1";
    place.splat(line, &[]).done().says(&expected);
    let line = "export -m model -o b.ply --device=cpu --refit";
    place.splat(line, &[]).refused(2, &["--refit is for SOG"]);
    let expected = ["--source-path has no effect without --refit", "--lod-levels has no effect"];
    let line = "export -m model -o a.sog -s elsewhere --lod-levels=2";
    place.splat(line, &[]).done().says(&expected);
    export(&place, &["-m", "model", "-o", "a.spz", "--spz-version=4"]).done();
    assert!(fs::read(place.path("a.spz")).unwrap().starts_with(b"NGSP"));
}

/// Gaussians of a text PLY: columns beside position, opacity, scales and rotation, and rows of all.
fn text_ply(path: &Path, columns: &[&str], rows: &[&str]) {
    let own = [
        "x", "y", "z", "opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2",
        "rot_3",
    ];
    let own = own.iter().map(|name| format!("property float {name}\n")).collect::<String>();
    let more = columns.iter().map(|column| format!("property {column}\n")).collect::<String>();
    let head =
        format!("ply\nformat ascii 1.0\nelement vertex {}\n{own}{more}end_header\n", rows.len());
    fs::write(path, head + &rows.join("\n") + "\n").unwrap();
}

const COEFFICIENTS: [&str; 3] = ["float f_dc_0", "float f_dc_1", "float f_dc_2"];

/// The positions of a file, of an SPZ as they are stored.
fn stored_means(path: &Path) -> Vec<[f32; 3]> {
    let read = splat_formats::read_with_axes(path, Some(splat_formats::SpzAxes::SCENE)).unwrap();
    read.splats.into_columns().means
}

#[test]
fn an_spz_has_the_axes_of_the_format_and_all_others_come_back() {
    let place = TestFolder::empty();
    text_ply(&place.path("a.ply"), &COEFFICIENTS, &["1 2 3 0 -1 -2 -3 1 0.2 0 0 0 0 0"]);
    for version in ["3", "4"] {
        for (axes, stored) in [
            (None, [1.0, -2.0, -3.0]),
            (Some("rub"), [1.0, -2.0, -3.0]),
            (Some("rdf"), [1.0, 2.0, 3.0]),
            (Some("unchanged"), [1.0, 2.0, 3.0]),
            (Some("luf"), [-1.0, -2.0, 3.0]),
            (Some("ruf"), [1.0, -2.0, 3.0]),
            (Some("rfu"), [1.0, 3.0, -2.0]),
        ] {
            let flag = axes.map(|axes| format!("--spz-axes={axes}"));
            let version = format!("--spz-version={version}");
            let mut args = vec!["a.ply", "-o", "a.spz", "--overwrite", &version];
            args.extend(flag.as_deref());
            let ended = export(&place, &args).done();
            // Other programs find the name of axes in version 4 alone.
            let is_warned = ended.stderr.contains("--spz-version 4");
            let is_other = stored != [1.0, -2.0, -3.0];
            assert_eq!(is_warned, version.ends_with('3') && is_other, "{axes:?}");
            assert_eq!(stored_means(&place.path("a.spz")), [stored], "{axes:?}");
            export(&place, &["a.spz", "-o", "back.ply", "--overwrite"]).done();
            assert_eq!(stored_means(&place.path("back.ply")), [[1.0, 2.0, 3.0]], "{axes:?}");
        }
    }
    // A file of another program in the axes of a PLY, which does not say so.
    export(&place, &["a.ply", "-o", "a.spz", "--overwrite"]).done();
    let odd = |axes| export(&place, &["a.spz", "-o", "odd.ply", axes]);
    odd("--input-spz-axes=rdf").done();
    assert_eq!(stored_means(&place.path("odd.ply")), [[1.0, -2.0, -3.0]]);
    odd("--input-spz-axes=rdx").refused(2, &["rdx", "rub"]);
    export(&place, &["a.ply", "-o", "b.spz", "--up=y"]).refused(2, &["--up", "--spz-axes"]);
}

#[rstest]
#[case::floats(&["float red", "float green", "float blue"], "1 2 3 0 -1 -2 -3 1 0 0 0 255 0 9", "0 to 255")]
#[case::flat(&COEFFICIENTS, "1 2 3 0 -1 -2 -inf 1 0 0 0 0.5 0.5 0.5", "1 scales are beyond the range")]
#[case::thin(&COEFFICIENTS, "1 2 3 0 -1 -12 -14 1 0 0 0 0.5 0.5 0.5", "2 scales are beyond the range")]
fn plys_of_other_programs_are_read(
    #[case] columns: &[&str],
    #[case] row: &str,
    #[case] expected: &str,
) {
    let place = TestFolder::empty();
    text_ply(&place.path("in.ply"), columns, &[row]);
    let ended = export(&place, &["in.ply", "-o", "a.spz"]).done();
    let words = format!("{}{}", ended.stdout, ended.stderr);
    assert!(words.contains(expected), "{words}");
    // e^(1/32) - 1.
    let percent = words.split_once("scale ").unwrap().1.split(' ').next().unwrap();
    assert!(percent.parse::<f64>().unwrap() < 3.2, "{words}");
}

#[test]
fn a_ply_without_colours_says_so() {
    let place = TestFolder::empty();
    text_ply(&place.path("in.ply"), &[], &["1 2 3 0 -1 -2 -3 1 0 0 0"]);
    export(&place, &["in.ply", "-o", "a.spz"]).refused(3, &["in.ply", "f_dc_0"]);
}

#[test]
fn an_interrupted_export_leaves_nothing_and_is_repeated() {
    let place = TestFolder::empty();
    let rows: Vec<String> =
        (0..3000).map(|i| format!("{i} {} 3 0 -1 -2 -3 1 0 0 0 0 0 0", i % 7)).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    text_ply(&place.path("a.ply"), &COEFFICIENTS, &rows);
    let unfinished = |folder: &Path| -> Vec<String> {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(".splat-")).collect()
    };
    for wait in [5, 20, 40, 80, 160, 320] {
        let mut command = program(&[]);
        command.args(words::<5>("export a.ply -o lod/lod-meta.json --quiet"));
        let mut child = command.current_dir(place.path("")).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        kill(&mut child);
        assert_eq!(unfinished(&place.path("lod")), Vec::<String>::new(), "after {wait} ms");
        fs::remove_dir_all(place.path("lod")).ok();
    }
    // What a program of an earlier version, or one that is killed while it names parts, leaves.
    for name in ["lod/0_0/means_l.webp", "lod/.splat-Ab1.tmp"] {
        put(&place.path(name), "half");
    }
    export(&place, &["a.ply", "-o", "lod/lod-meta.json"]).done();
    assert_eq!(unfinished(&place.path("lod")), Vec::<String>::new());
    export(&place, &["a.ply", "-o", "lod/lod-meta.json"]).refused(2, &["--overwrite"]);
    put(&place.path("mine/photograph.webp"), "mine");
    export(&place, &["a.ply", "-o", "mine/meta.json"]).refused(2, &["is not empty"]);
}

#[cfg(unix)]
#[test]
fn an_export_follows_links() {
    let place = TestFolder::empty();
    text_ply(&place.path("a.ply"), &COEFFICIENTS, &["1 2 3 0 -1 -2 -3 1 0 0 0 0 0 0"]);
    std::os::unix::fs::symlink("there.spz", place.path("link.spz")).unwrap();
    for _ in 0..2 {
        export(&place, &["a.ply", "-o", "link.spz", "--overwrite"]).done();
        assert!(place.path("link.spz").is_symlink() && place.path("there.spz").is_file());
    }
}
