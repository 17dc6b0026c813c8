//! Scenes far from the origin and in extreme units: they train as well as others, and all commands agree on where
//! they are.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use rstest::rstest;
use splat::dataset::Frame;
use splat::export::{frame_of_file, read_ply};
use splat::math::linalg::{Vec3, length, sub};
use splat_mesh::file::read_mesh;

use crate::common::program::{Ended, TestFolder, Text as _, end, header, splat, text, words};
use crate::common::synthetic::with_moved_scene;
use crate::synthetic_scenes::copy_of;

const ITERATIONS: u32 = 60;

// A mesh needs a hundred opaque Gaussians.
const FLAGS: [&str; 5] =
    words("--eval --test-every=4 --sh-degree=1 --checkpoint-iterations=30 --init-opacity=0.9");

/// UTM coordinates.
const UTM: Vec3<f64> = [500_000.0, 4_500_000.0, 120.0];

/// The scene as it is, trained.
static ORIGIN: LazyLock<TestFolder> = LazyLock::new(|| trained(1.0, [0.0; 3]));

/// Moves the scene to UTM coordinates.
static FAR: LazyLock<TestFolder> = LazyLock::new(|| trained(1.0, UTM));

fn trained(factor: f64, offset: Vec3<f64>) -> TestFolder {
    let place = with_moved_scene(factor, offset);
    place.trained(ITERATIONS, &FLAGS);
    place
}

/// PSNR of the held-out views at the end of training, dB.
fn psnr(place: &TestFolder) -> f64 {
    place.psnr("model", ITERATIONS)
}

fn ply(place: &TestFolder) -> std::path::PathBuf {
    place.ply(ITERATIONS)
}

/// Centres of a PLY in scene coordinates.
fn centres(path: &Path) -> Vec<Vec3<f64>> {
    let frame = frame_of_file(path).unwrap();
    let gaussians = read_ply(path).unwrap();
    let rows = gaussians.means.as_chunks::<3>().0.iter();
    rows.map(|mean| frame.to(&Frame::SCENE, mean.map(f64::from))).collect()
}

#[rstest]
#[case(1.0, [1e4, -9e3, 1e3])]
#[case(1.0, [5e5, 4.5e6, 120.0])]
#[case(1.0, [5e6, -4e6, 3e6])]
#[case(1e-4, [0.0; 3])]
#[case(1e-2, [0.0; 3])]
#[case(1e2, [0.0; 3])]
#[case(1e4, [0.0; 3])]
#[case(1e-3, [500.0, 4500.0, 0.12])]
fn a_scene_trains_as_well_anywhere_and_in_any_unit(#[case] factor: f64, #[case] offset: Vec3<f64>) {
    let place = trained(factor, offset);
    let [expected, found] = [&*ORIGIN, &place].map(psnr);
    assert!(expected > 15.0, "{expected}");
    assert!((found - expected).abs() < 0.05, "{found} dB, at the origin {expected} dB");
    // The Gaussians are where they are at the origin.
    let (here, there) = (centres(&ply(&ORIGIN)), centres(&ply(&place)));
    let mean = |centres: &[Vec3<f64>]| {
        [0, 1, 2].map(|axis| centres.iter().map(|c| c[axis]).sum::<f64>() / centres.len() as f64)
    };
    let (here, there) = (mean(&here), mean(&there));
    let back = [0, 1, 2].map(|axis| (there[axis] - offset[axis]) / factor);
    assert!(length(sub(here, back)) < 0.05, "{here:?} {back:?}");
    // Measured anew, the saved model is as good.
    place.run("eval", &[]).done();
    assert!((psnr(&place) - found).abs() < 0.01, "{} dB, in training {found} dB", psnr(&place));
}

#[test]
fn files_are_in_scene_coordinates_or_name_their_offset() {
    let place = &*FAR;
    header(&ply(place)).assert_holds(&["\ncomment offset 500000 4500000 120\n"]);
    place.read("model/config.toml").assert_holds(&["offset = \"500000,4500000,120\""]);
    let cameras = place.json("model/cameras.json");
    let of_origin = ORIGIN.json("model/cameras.json");
    for (here, there) in of_origin.as_array().unwrap().iter().zip(cameras.as_array().unwrap()) {
        for axis in 0..3 {
            let [here, there] = [here, there].map(|it| it["position"][axis].as_f64().unwrap());
            assert!((there - here - UTM[axis]).abs() < 1e-6);
        }
    }
    // Scenes near the origin have neither.
    assert!(!header(&ply(&ORIGIN)).contains("offset"));
    let config = ORIGIN.read("model/config.toml");
    assert!(!config.contains("offset") && !config.contains("unit"), "{config}");
}

#[test]
fn renders_are_those_of_the_scene_at_the_origin() {
    let pictures = [&*ORIGIN, &*FAR].map(|place| {
        // The same Gaussians: what differs is where they are.
        let same = copy_of(place);
        let bytes = fs::read(ply(&ORIGIN)).unwrap();
        let end = bytes.windows(15).position(|it| it == b"property float ").unwrap();
        let offset = frame_of_file(&ply(place)).unwrap().offset;
        let [x, y, z] = offset;
        let comment = format!("comment offset {x} {y} {z}\n");
        let comment = if offset == [0.0; 3] { "" } else { &comment };
        fs::write(ply(&same), [&bytes[..end], comment.as_bytes(), &bytes[end..]].concat()).unwrap();
        same.run("render", &["--skip-train"]).done();
        let folder = same.model().join(format!("test/ours_{ITERATIONS}/renders"));
        image::open(folder.join("00000.png")).unwrap().to_rgb8()
    });
    let [here, there] = pictures;
    let largest = here.iter().zip(there.iter()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(largest <= 1, "{largest}");
}

#[test]
fn a_run_far_away_resumes_where_it_was() {
    let place = TestFolder::beside(&FAR);
    place.trained(30, &FLAGS);
    place.splat("train --device=cpu --resume --iterations=60 -m MODEL", &[]).done();
    let [here, there] = [&place, &*FAR].map(|place| centres(&ply(place)));
    assert_eq!(here.len(), there.len());
}

#[test]
fn exports_of_a_tiny_scene_keep_its_sizes_or_say_what_does() {
    let place = trained(1e-5, [0.0; 3]);
    let export = |from: &TestFolder, name: &str, flags: &[&str]| {
        place.splat("export --overwrite", &[&[text(&ply(from)), "-o", name], flags].concat()).done()
    };
    let has_clipped = |ended: &Ended| ended.stdout.contains("beyond the range");
    let spz =
        export(&place, "a.spz", &[]).says(&["SPZ cannot hold the sizes of", "Use --scale 1e"]);
    assert!(has_clipped(&spz));
    export(&place, "a.html", &[]).says(&["a.html: coordinates are divided by"]);
    for (from, name, flags) in [
        (&place, "a.spz", ["--scale", "1e5"].as_slice()),
        (&place, "a.html", &[]),
        (&place, "a.sog", &[]),
        (&ORIGIN, "a.spz", &[]),
        (&ORIGIN, "a.html", &[]),
    ] {
        let ended = export(from, name, flags);
        assert!(!has_clipped(&ended) && !ended.stderr.contains("cannot hold"), "{ended:#?}");
    }
}

#[test]
fn exports_start_other_runs_and_are_cut_in_scene_coordinates() {
    let place = TestFolder::beside(&FAR);
    let export = |flags: &[&str]| end(splat().arg("export").arg(ply(&FAR)).args(flags)).done();
    let spz = place.path("a.spz");
    export(&["-o", text(&spz)]).says(&["offset", "500000,4500000,120"]);
    assert_eq!(frame_of_file(&spz).unwrap().offset, UTM);
    place.trained(1, &["--init", text(&spz), "--sh-degree=1"]);
    let [started, far] = [&place.ply(1), &ply(&FAR)].map(|path| centres(path));
    assert_eq!(started.len(), far.len());
    let middle = far[0];
    let nearest = started.iter().map(|&centre| length(sub(centre, middle))).fold(1e9, f64::min);
    assert!(nearest < 0.02, "{nearest}");
    fs::write(place.path("a.spz.offset.json"), "{\"offset\": 5}").unwrap();
    end(place.train_into("refused").args(["--init", text(&spz)]))
        .refused(3, &["a.spz.offset.json", "Restore it"]);
    // A ball around one of them.
    let ball = format!("{},{},{},0.25", middle[0], middle[1], middle[2]);
    let cut = place.path("cut.ply");
    export(&["--crop-sphere", &ball, "-o", text(&cut)]);
    let kept = centres(&cut);
    assert!(!kept.is_empty() && kept.len() < far.len());
    assert!(kept.iter().all(|&centre| length(sub(centre, middle)) < 0.26));
    // Moved to the origin, nothing is left of the offset.
    let moved = place.path("moved.ply");
    export(&["--translate=-500000,-4500000,-120", "-o", text(&moved)]);
    assert_eq!(frame_of_file(&moved).unwrap(), Frame::SCENE);
    let moved = centres(&moved);
    assert!(moved.iter().zip(&far).all(|(&a, &b)| length(sub(a, sub(b, UTM))) < 1e-3));
}

#[test]
fn meshes_far_away_are_where_the_scene_is() {
    let flags = ["--mesh-resolution=48", "--formats=ply", "--force"];
    for place in [&*ORIGIN, &*FAR] {
        place.run("mesh", &flags).done();
    }
    let report = format!("model/mesh/iteration_{ITERATIONS}/tsdf.json");
    let mesh =
        |place: &TestFolder| place.model().join(format!("mesh/iteration_{ITERATIONS}/tsdf.ply"));
    let [here, there] = [&*ORIGIN, &*FAR].map(|place| place.json(&report));
    for (corner, axis) in (0..2).flat_map(|corner| (0..3).map(move |axis| (corner, axis))) {
        let [here, there] = [&here, &there].map(|it| it["bbox"][corner][axis].as_f64().unwrap());
        assert!((there - here - UTM[axis]).abs() < 0.2, "{here} {there}");
    }
    assert_eq!(frame_of_file(&mesh(&FAR)).unwrap().offset, UTM);
    assert!(read_mesh(&mesh(&FAR)).unwrap().vertices.iter().flatten().all(|x| x.abs() < 100.0));
    // Its own truth is where it is.
    let truth = mesh(&FAR);
    FAR.run("eval", &["--geometry", text(&truth), "--json"]).done();
    // A box in scene coordinates.
    let bounds = ["--bbox-min=499998,4499998,118", "--bbox-max=500002,4500001,122"];
    FAR.run("mesh", &[&bounds[..], &flags].concat()).done();
    let cut = FAR.json(&report);
    assert_eq!(cut["bbox"][0][1].as_f64(), Some(4_499_998.0));
}

#[test]
fn an_offset_is_chosen_by_a_flag_and_kept_by_a_model() {
    let place = TestFolder::beside(&FAR);
    place.trained(2, &["--offset=499990,4500000,100", "--unit=2"]);
    assert_eq!(frame_of_file(&place.ply(2)).unwrap().offset, [499_990.0, 4_500_000.0, 100.0]);
    let places = centres(&place.ply(2));
    assert!(places.iter().all(|&it| length(sub(it, UTM)) < 100.0), "{places:?}");
    let eval = place.run("eval", &["--split=train", "--offset=0,0,0"]);
    eval.refused(2, &["--offset", "Leave them out"]);
}
