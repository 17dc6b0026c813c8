//! `--primitive surfels`: flat Gaussians that rays meet, as 2DGS trains them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::common::program::{Ended, TestFolder, end, splat, text};
use crate::fixtures::{copy_of, fixture};
use rstest::rstest;
use serde_json::Value;
use splat::config::PrimitiveName;
use splat::export::{PlyModel, read_ply, read_ply_model, write_ply};
use splat::model::{FLAT_LOG_SCALE, Gaussians, Primitive as _};

const ITERATIONS: u32 = 60;

/// With a round of density control.
const FLAGS: [&str; 6] = [
    "--primitive=surfels",
    "--eval",
    "--densify-from-iter=10",
    "--densification-interval=40",
    "--sh-degree-interval=20",
    "--max-points=600",
];

static TRAINED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("surfels", |place| {
        place.trained(ITERATIONS, &FLAGS);
    })
});

/// A command on the model in a place.
fn of_model(place: &TestFolder, command: &str, flags: &[&str]) -> Ended {
    let mut line = splat();
    line.current_dir(place.path("")).args([command, "-m", "model"]).args(flags);
    end(&mut line)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn header(ply: &Path) -> String {
    let bytes = fs::read(ply).unwrap();
    let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
    String::from_utf8(bytes[..end].to_vec()).unwrap()
}

fn ply(place: &TestFolder) -> PathBuf {
    place.ply(ITERATIONS)
}

/// PSNR of the held-out views.
fn psnr(ended: Ended) -> f64 {
    json(&ended.done().stdout)["mean"]["psnr"].as_f64().unwrap()
}

#[test]
fn a_model_of_surfels_has_two_scales_and_is_measured_and_rendered() {
    let place = copy_of(&TRAINED);
    let header = header(&ply(&place));
    assert!(header.contains("\ncomment SplatRenderMode: 2dgs\nproperty float x\n"), "{header}");
    assert!(header.contains("scale_1\n") && !header.contains("scale_2"), "{header}");
    let PlyModel { gaussians, primitive, .. } = read_ply_model(&ply(&place)).unwrap();
    assert_eq!(primitive, PrimitiveName::Surfels);
    assert!(gaussians.len() > 100, "{}", gaussians.len());
    let config = fs::read_to_string(place.model().join("config.toml")).unwrap();
    assert!(config.contains("primitive = \"surfels\"") && config.contains("min_opacity = 0.05"));
    let found = psnr(of_model(&place, "eval", &["--json", "--device=cpu"]));
    assert!(found > 10.0, "{found}");
    of_model(&place, "render", &["--device=cpu", "--skip-train"]).done();
    assert!(place.model().join(format!("test/ours_{ITERATIONS}/renders/00000.png")).exists());
}

#[test]
fn a_mesh_is_made_of_the_depths_at_which_rays_meet_surfels() {
    let place = TestFolder::beside(&TRAINED);
    // So that a hundred of them are opaque, which a surface needs.
    let flags = ["--primitive=surfels", "--init-opacity=0.8", "--densify-from-iter=300"];
    place.trained_into("opaque", 200, &flags);
    let mut mesh = splat();
    mesh.current_dir(place.path("")).args(["mesh", "-m", "opaque", "--device=cpu"]);
    end(mesh.args(["--mesh-resolution=64", "--formats=ply"])).done();
    let mesh = place.path("opaque").join("mesh/iteration_200/tsdf.ply");
    assert!(fs::metadata(&mesh).unwrap().len() > 100_000);
}

#[test]
fn a_folder_without_a_configuration_is_drawn_by_what_its_ply_says() {
    let place = copy_of(&TRAINED);
    let ours = psnr(of_model(&place, "eval", &["--json", "--device=cpu"]));
    // As 2DGS leaves it.
    fs::remove_file(place.model().join("config.toml")).unwrap();
    let scene = place.scene();
    let flags = ["--json", "--device=cpu", "--eval", "-s", text(&scene)];
    let theirs = psnr(of_model(&place, "eval", &flags));
    assert!((ours - theirs).abs() < 1e-9, "{ours} {theirs}");
    of_model(&place, "mesh", &["--device=cpu", "--method=poisson", "-s", text(&scene)])
        .refused(2, &["--method poisson", "surfels", "--method tsdf"]);
}

#[test]
fn a_resumed_run_is_one_that_never_stopped() {
    let place = TestFolder::beside(&TRAINED);
    place.trained_into("parts", ITERATIONS / 2, &FLAGS);
    let iterations = format!("--iterations={ITERATIONS}");
    end(place.train_into("parts").args(["--resume", &iterations]).args(FLAGS)).done();
    let parts = fs::read(place.ply_of("parts", ITERATIONS)).unwrap();
    assert!(parts == fs::read(ply(&TRAINED)).unwrap());
    end(place.train_into("parts").args(["--resume", "--primitive=gaussians", "--iterations=70"]))
        .refused(2, &["trains surfels", "--primitive gaussians", "--init"]);
    place.trained_into("others", 2, &[]);
    end(place.train_into("others").args(["--resume", "--primitive=surfels", "--iterations=3"]))
        .refused(2, &["trains gaussians", "--primitive surfels", "--init"]);
}

#[rstest]
#[case::antialiasing(&["--antialiasing"], &["--antialiasing", "surfels"])]
#[case::mip(&["--preset=mip"], &["surfels", "preset mip"])]
#[case::filter(&["--filter-3d"], &["--filter-3d", "surfels"])]
#[case::mcmc(&["--strategy=mcmc"], &["--strategy", "mcmc", "adc, gof or budget"])]
#[case::scales(&["--scale-reg=0.1"], &["--scale-reg", "surfels"])]
#[case::terms(&["--regularize=density"], &["--regularize", "density", "surfels"])]
#[case::pruned(&["--densification-interval=10"], &["--min-opacity", "is 0.05", "--opacity-lr"])]
fn what_is_for_gaussians_with_a_volume_is_refused(#[case] flags: &[&str], #[case] said: &[&str]) {
    let place = TestFolder::beside(&TRAINED);
    end(place.train().arg("--primitive=surfels").args(flags)).refused(2, said);
    assert!(!place.model().exists());
}

#[test]
fn commands_for_gaussians_with_a_volume_say_so() {
    let place = copy_of(&TRAINED);
    for method in ["poisson", "tetrahedra"] {
        of_model(&place, "mesh", &["--device=cpu", &format!("--method={method}")])
            .refused(2, &[&format!("--method {method}"), "surfels", "--method tsdf"]);
    }
    of_model(&place, "mesh", &["--device=cpu", "--postprocess-mesh"])
        .refused(2, &["--postprocess-mesh", "surfels"]);
    of_model(&place, "refine", &["--device=cpu"]).refused(2, &["surfels", "splat mesh"]);
    of_model(&place, "sugar", &["--device=cpu", "--skip-coarse"])
        .refused(2, &["surfels", "--method tsdf"]);
    let scene = place.scene();
    let sugar = ["--device=cpu", "--primitive=surfels", "-s", text(&scene)];
    of_model(&place, "sugar", &sugar).refused(2, &["surfels", "splat train"]);
    let from = ply(&place);
    let coarse = ["--regularize=density", "-c", text(&from)];
    end(place.train_into("coarse").args(coarse)).refused(2, &["-c", "surfels", "--init"]);
    assert!(!place.path("coarse").exists());
}

#[test]
fn surfels_are_cleaned_planned_and_profiled() {
    let place = copy_of(&TRAINED);
    of_model(&place, "clean", &["--device=cpu", "-o", "cleaned"]).done();
    let cleaned = header(&place.ply_of("cleaned", ITERATIONS));
    assert!(cleaned.contains("SplatRenderMode: 2dgs") && !cleaned.contains("scale_2"), "{cleaned}");
    let (scene, model) = (place.scene(), place.model());
    let mut plan = splat();
    plan.args(["plan", "--primitive=surfels", "-s", text(&scene), "--model", text(&model)]);
    end(&mut plan).done();
    end(splat().args(["profile", text(&model)])).done();
}

#[test]
fn every_format_holds_surfels_and_is_read_back() {
    let place = copy_of(&TRAINED);
    let surfels = read_ply(&ply(&place)).unwrap();
    let export = |args: &[&str]| {
        let mut command = splat();
        command.current_dir(place.path("")).arg("export").args(args);
        end(&mut command).done()
    };
    let formats = [
        "all.compressed.ply",
        "all.splat",
        "all.spz",
        "all.sog",
        "all.glb",
        "sog/meta.json",
        "lod/lod-meta.json",
    ];
    for name in formats {
        let made = json(&export(&["-m", "model", "-o", name, "--json"]).stdout);
        assert_eq!(made["splats"], surfels.len(), "{made}");
        assert!(made["errors"]["log_scale"].as_f64().unwrap() < 0.1, "{name}: {made}");
        export(&[name, "-o", "back.ply", "--overwrite"]);
        let PlyModel { gaussians, primitive, .. } =
            read_ply_model(&place.path("back.ply")).unwrap();
        assert_eq!((gaussians.len(), primitive), (surfels.len(), PrimitiveName::Gaussians));
        // SOG has them a hundred times flatter than the smallest of the other scales.
        for &[first, second, third] in gaussians.log_scales.as_chunks::<3>().0 {
            assert!(third <= -9.9 || third < first.min(second) - 4.5, "{name}: {third}");
        }
    }
    export(&["-m", "model", "-o", "all.html"]);
    // Of a PLY nothing is lost but the length of rotations.
    export(&["-m", "model", "-o", "all.ply"]);
    let PlyModel { gaussians, primitive, .. } = read_ply_model(&place.path("all.ply")).unwrap();
    assert_eq!(primitive, PrimitiveName::Surfels);
    assert_eq!(Gaussians { quats: surfels.quats.clone(), ..gaussians }, surfels);
}

/// Trains a step with rates of zero from a file; what is saved, and what was said.
fn begun(place: &TestFolder, init: &Path, flags: &[&str]) -> (PlyModel, Ended) {
    let frozen = [
        "position-lr-init",
        "position-lr-final",
        "feature-lr",
        "opacity-lr",
        "scaling-lr",
        "rotation-lr",
    ];
    let frozen: Vec<String> = frozen.iter().map(|rate| format!("--{rate}=0")).collect();
    let mut train = place.train_into("next");
    train.args(["--iterations=1", "--densify-until-iter=0", "--init", text(init)]);
    train.args(frozen).args(flags);
    let ended = end(&mut train).done();
    (read_ply_model(&place.ply_of("next", 1)).unwrap(), ended)
}

/// Values in the order of size: training keeps rows in another order than files.
fn sorted(values: &[f32]) -> Vec<f32> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted
}

#[test]
fn a_run_starts_from_surfels_or_makes_them_of_gaussians() {
    let place = copy_of(&TRAINED);
    let surfels = read_ply(&ply(&place)).unwrap();
    let (same, _) = begun(&place, &ply(&place), &["--primitive=surfels"]);
    assert_eq!(same.primitive, PrimitiveName::Surfels);
    assert_eq!(sorted(&same.gaussians.log_scales), sorted(&surfels.log_scales));
    assert_eq!(sorted(&same.gaussians.quats), sorted(&surfels.quats));

    let (thick, ended) = begun(&place, &ply(&place), &[]);
    ended.says(&["holds surfels", "0.1 times as thick", "--primitive surfels"]);
    assert_eq!(thick.primitive, PrimitiveName::Gaussians);
    for scales in thick.gaussians.log_scales.as_chunks::<3>().0 {
        let third = scales[0].min(scales[1]) + 0.1_f32.ln();
        assert!((scales[2] - third).abs() < 1e-5, "{scales:?}");
    }

    let file = place.path("gaussians.ply");
    let mut gaussians = surfels.rows(0..50);
    gaussians.log_scales.as_chunks_mut::<3>().0.iter_mut().for_each(|it| *it = [-3.0, -5.0, -4.0]);
    write_ply(&file, &gaussians).unwrap();
    let (flat, ended) = begun(&place, &file, &["--primitive=surfels"]);
    ended.says(&["loses its shortest axis"]);
    assert_eq!(flat.primitive, PrimitiveName::Surfels);
    // The axis of the second goes, and the others stay in their circle.
    for scales in flat.gaussians.log_scales.as_chunks::<3>().0 {
        assert_eq!(*scales, [-4.0, -3.0, FLAT_LOG_SCALE]);
    }
}

#[test]
fn flags_of_2dgs_are_taken_or_passed_over_with_a_notice() {
    let place = TestFolder::beside(&TRAINED);
    let flags = ["--primitive=surfels", "--depth_ratio", "1", "--opacity_cull=0.04"];
    place.trained(1, &flags).says(&["--depth-ratio is ignored"]);
    let config = fs::read_to_string(place.model().join("config.toml")).unwrap();
    assert!(config.contains("min_opacity = 0.04"));
    let line =
        ["--method=poisson", "--num_cluster", "50", "--mesh_res", "64", "--sdf_trunc", "0.1"];
    of_model(&place, "mesh", &[&line[..], &["--depth_trunc=3", "--device=cpu"]].concat())
        .refused(2, &["--sdf-trunc is ignored", "--depth-trunc is ignored", "surfels"]);
}
