//! `splat mesh`: a known surface of Gaussians becomes that surface, and what has none is refused.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use rstest::rstest;
use splat::export::write_ply;
use splat::math::Real;
use splat::math::random::{RandomStream, RandomUse};
use splat::model::Gaussians;
use splat_mesh::file::read_mesh;
use splat_mesh::{Mesh, MeshReport};

use crate::common::program::{Ended, TestFolder};
use crate::common::scene::{together, without};
use crate::common::surface::{RADIUS, ball, coarse_ball, write_ball_scene};
use crate::synthetic_scenes::{copy_of, fixture};

/// Half a percent of the ball's diameter.
const ACCURACY: f64 = 0.005 * 2.0 * RADIUS;

/// A scene of the ball with a model.
static TRAINED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("mesh", |place| {
        fs::remove_dir_all(place.scene()).unwrap();
        write_ball_scene(&place.scene(), 16, (160, 120));
        place.trained(1, &["--sh-degree=0", "--test-iterations=-1"]);
    })
});

/// The ball in few and small views, with a model.
static COARSE: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("coarse_mesh", |place| {
        fs::remove_dir_all(place.scene()).unwrap();
        write_ball_scene(&place.scene(), 8, (80, 60));
        place.trained(1, &["--sh-degree=0", "--test-iterations=-1"]);
    })
});

/// A model folder of the ball's scene whose Gaussians are replaced by others.
pub(super) fn place_of(gaussians: &Gaussians) -> TestFolder {
    with_gaussians(&TRAINED, gaussians)
}

/// Returns a model folder with few and small views, whose Gaussians are replaced by others.
pub(super) fn coarse_place_of(gaussians: &Gaussians) -> TestFolder {
    with_gaussians(&COARSE, gaussians)
}

fn with_gaussians(trained: &TestFolder, gaussians: &Gaussians) -> TestFolder {
    let place = copy_of(trained);
    write_ply(&place.ply(1), gaussians).unwrap();
    place
}

/// The ball without what lies below its middle.
fn half_a_ball() -> Gaussians {
    let ball = ball();
    let (means, _) = ball.means.as_chunks::<3>();
    let below: Vec<usize> = (0..means.len()).filter(|&row| means[row][2] < 0.0).collect();
    without(&ball, &below)
}

/// The ball's model, which no test changes but by its meshes.
static BALL: LazyLock<TestFolder> = LazyLock::new(|| place_of(&ball()));

pub(super) fn meshed(place: &TestFolder, flags: &[&str]) -> Ended {
    place.run("mesh", flags)
}

pub(super) fn file(place: &TestFolder, name: &str) -> PathBuf {
    place.model().join("mesh/iteration_1").join(name)
}

/// Mean distance of the vertices from the ball's surface.
fn mean_distance(mesh: &Mesh) -> f64 {
    let radius = |vertex: &[f32; 3]| vertex.iter().map(|x| x * x).sum::<f32>().sqrt();
    let off = mesh.vertices.iter().map(|vertex| (f64::from(radius(vertex)) - RADIUS).abs());
    off.sum::<f64>() / mesh.vertices.len() as f64
}

/// Red where x is positive, blue where it is negative, but for a seam.
fn assert_colours(mesh: &Mesh) {
    assert_eq!(mesh.colors.len(), mesh.vertices.len());
    for (vertex, color) in mesh.vertices.iter().zip(&mesh.colors) {
        if vertex[0].abs() > 0.15 {
            let is_red = color[0] > color[2];
            assert_eq!(is_red, vertex[0] > 0.0, "{vertex:?} {color:?}");
        }
    }
}

#[test]
fn depths_of_a_ball_are_fused_to_the_ball() {
    let ended = meshed(&BALL, &["--mesh-resolution=64", "--formats=ply,glb,obj"]).done();
    ended.says(&["meshing the box --bbox-min", "triangles"]);
    let mesh = read_mesh(&file(&BALL, "tsdf.ply")).unwrap();
    let distance = mean_distance(&mesh);
    // Half of the light is stopped up to two standard deviations, of 0.002, before the Gaussians' centres; the
    // plane of each stands off the ball by 0.0008 where the next begins.
    assert!(distance < 0.005, "{distance}");
    assert_colours(&mesh);
    let report = MeshReport::of(&mesh).unwrap();
    assert_eq!((report.components, report.nonmanifold_edges, report.misoriented_edges), (1, 0, 0));
    for other in ["tsdf.obj", "tsdf.glb"] {
        assert!(fs::metadata(file(&BALL, other)).unwrap().len() > 10_000, "{other}");
    }
    let obj = read_mesh(&file(&BALL, "tsdf.obj")).unwrap();
    assert_eq!((obj.vertices, obj.faces), (mesh.vertices, mesh.faces));
    let record = BALL.json("model/mesh/iteration_1/tsdf.json");
    assert_eq!(record["mesh"]["faces"].as_u64(), Some(report.faces as u64));
    assert_eq!(record["extraction"]["tsdf"]["views"].as_u64(), Some(16));
}

#[rstest]
#[case::poisson(
    "poisson",
    &["--method=poisson", "--surface-points=60000", "--density-trim=0"],
    "points found where the density is 0.3",
)]
#[case::tetrahedra(
    "tetrahedra",
    &["--method=tetrahedra", "--formats=ply"],
    "tetrahedra over 9008 points of 3000",
)]
fn a_ball_becomes_a_watertight_ball_that_looks_outwards(
    #[case] method: &str,
    #[case] flags: &[&str],
    #[case] expected: &str,
) {
    meshed(&BALL, flags).done().says(&[expected, "watertight"]);
    let path = file(&BALL, &format!("{method}.ply"));
    let mesh = read_mesh(&path).unwrap();
    let distance = mean_distance(&mesh);
    assert!(distance < ACCURACY, "{distance}");
    assert_colours(&mesh);
    let report = MeshReport::of(&mesh).unwrap();
    assert!(report.watertight, "{report:?}");
    // Three times what the accuracy of the radius allows.
    let exact = 4.0 / 3.0 * std::f64::consts::PI * RADIUS.powi(3);
    assert!((report.volume.unwrap() / exact - 1.0).abs() < 9.0 * ACCURACY, "{report:?}");
    if method == "tetrahedra" {
        let record = BALL.json("model/mesh/iteration_1/tetrahedra.json");
        assert_eq!(record["extraction"]["tetrahedra"]["points"].as_u64(), Some(9008));
        assert_eq!(report.components, 1, "{report:?}");
    }

    let before = fs::read(&path).unwrap();
    meshed(&BALL, flags).done();
    assert!(before == fs::read(&path).unwrap(), "another mesh of the same");
}

#[test]
fn an_open_surface_of_tetrahedra_has_no_long_edges() {
    let place = place_of(&half_a_ball());
    meshed(&place, &["--method=tetrahedra", "--formats=ply"]).done().says(&["watertight"]);
    let flags = ["--method=tetrahedra", "--formats=ply", "--open", "--max-edge=0.4"];
    meshed(&place, &flags).done().says(&["open: "]);
    let mesh = read_mesh(&file(&place, "tetrahedra.ply")).unwrap();
    assert!(mean_distance(&mesh) < ACCURACY, "{}", mean_distance(&mesh));
    let short = ["--method=tetrahedra", "--open", "--max-edge=1e-9"];
    meshed(&place, &short).refused(3, &["nothing is left of", "longest edge"]);
}

#[test]
fn a_mesh_has_at_most_the_triangles_that_are_asked_for() {
    let place = place_of(&ball());
    let flags = ["--mesh-resolution=64", "--decimation-target=1000", "--formats=ply", "--open"];
    let expected = ["decimated from", "--open has no effect with --method tsdf"];
    meshed(&place, &flags).done().says(&expected);
    let mesh = read_mesh(&file(&place, "tsdf.ply")).unwrap();
    assert!((500..=1000).contains(&mesh.faces.len()), "{}", mesh.faces.len());
    // Of a thousand triangles each stands off by a two-hundredth of the radius.
    assert!(mesh.vertices.len() > 250 && !file(&place, "tsdf.glb").exists());
}

#[test]
fn the_border_is_taken_off_where_there_are_few_gaussians() {
    let place = coarse_place_of(&coarse_ball());
    // Half of the ball: its border lies on Gaussians, and stays unless their density is too low.
    let half = ["--mesh-resolution=40", "--bbox-min=-1.2,-1.2,-1.2", "--bbox-max=1.2,1.2,0"];
    let faces = |flags: &[&str]| {
        let flags = [&half[..], &["--formats=ply"], flags].concat();
        let output = meshed(&place, &flags).done().stderr;
        (read_mesh(&file(&place, "tsdf.ply")).unwrap().faces.len(), output)
    };
    let (all, output) = faces(&[]);
    assert!(output.contains("open: "), "{output}");
    let (most, _) = faces(&["--postprocess-mesh"]);
    let threshold = "--postprocess-density-threshold=0.5";
    let (few, output) = faces(&["--postprocess-mesh", threshold]);
    let (one_ring, _) = faces(&["--postprocess-mesh", threshold, "--postprocess-iterations=1"]);
    assert!(output.contains("taken off the border"), "{output}");
    assert!(few < one_ring && one_ring < most && most <= all, "{few} {one_ring} {most} {all}");
    assert!(few > all / 2, "{few} of {all}");
    let threshold = "--postprocess-density-threshold=1e9";
    let all_of_it = ["--postprocess-mesh", threshold, "--postprocess-iterations=1000"];
    meshed(&place, &[&half[..], &all_of_it].concat())
        .refused(3, &["zero triangles are left", "Lower --postprocess-density-threshold"]);
}

#[test]
fn options_that_others_replace_are_named() {
    let nothing = ["--bbox-min=5,5,5", "--bbox-max=6,6,6", "--center-bbox=false"];
    let voxels = ["--voxel=0.1", "--mesh-resolution=64"];
    let texture = ["--texture=gaussians", "--square-size=20"];
    let expected = [
        "--mesh-resolution has no effect with --voxel",
        "--center-bbox has no effect with --bbox-min and --bbox-max",
        "--square-size has no effect without --atlas squares",
    ];
    meshed(&BALL, &[&nothing[..], &voxels, &texture].concat()).refused(3, &expected);
}

#[test]
fn everything_is_meshed_without_a_box() {
    let place = place_of(&ball());
    meshed(&place, &["--unbounded", "--mesh-resolution=256", "--formats=ply"]).done();
    let mesh = read_mesh(&file(&place, "tsdf.ply")).unwrap();
    assert!(mean_distance(&mesh) < 2.0 * ACCURACY, "{}", mean_distance(&mesh));
}

#[test]
fn a_box_that_cannot_be_meshed_is_named() {
    let before = fs::read_dir(BALL.model()).unwrap().count();
    let trim = "--postprocess-mesh --postprocess-density-threshold=-1";
    for (line, code, message) in [
        (trim, 2, "--postprocess-density-threshold is -1"),
        ("--bbox-min=5,5,5 --bbox-max=6,6,6", 3, "The box that is found by itself: --bbox-min"),
        ("--bbox-min=1,0,0 --bbox-max=1,2,2", 2, "empty along x"),
        ("--bbox-min=1,0,0", 2, "without --bbox-max"),
        ("--bbox-min=1,0 --bbox-max=1,2,2", 2, "Give three finite numbers"),
        ("--voxel=0", 2, "--voxel above zero"),
        ("--voxel=1e-9", 2, "Use a --voxel of"),
        ("--method=poisson --surface-level=1", 2, "--surface-level is 1"),
        ("--method=tetrahedra --open --max-edge=0", 2, "--max-edge is 0"),
        ("--method=tetrahedra --max-edge=1", 2, "--open"),
    ] {
        let flags: Vec<&str> = line.split(' ').collect();
        meshed(&BALL, &flags).refused(code, &[message]);
    }
    assert!(fs::read_dir(BALL.model()).unwrap().count() <= before + 1);
}

#[test]
fn what_closes_half_a_ball_through_free_space_is_cut_off() {
    let place = place_of(&half_a_ball());
    let meshed_with = |flags: &[&str]| {
        let poisson = ["--method=poisson", "--surface-points=20000", "--formats=ply"];
        let ended = meshed(&place, &[&poisson, flags].concat()).done();
        let record = place.json("model/mesh/iteration_1/poisson.json");
        let cut = record["extraction"]["poisson"][0]["in_free_space"].as_u64().unwrap();
        (ended, cut, mean_distance(&read_mesh(&file(&place, "poisson.ply")).unwrap()))
    };
    let (_, none, closed) = meshed_with(&["--density-trim=0"]);
    let (_, still_none, _) = meshed_with(&["--density-min=0"]);
    let (ended, cut, open) = meshed_with(&["--density-trim=1e-6"]);
    assert_eq!((none, still_none), (0, 0));
    assert!(cut > 100, "{cut}");
    ended.says(&["triangles cut off that closed the surface"]);
    // What is left lies on the ball.
    assert!(open < 0.5 * closed && open < 4.0 * ACCURACY, "{open} {closed}");
}

#[test]
fn gaussians_without_a_surface_are_refused() {
    let stream = RandomStream::new(0, 0, RandomUse::Initialise);
    let mut cloud = coarse_ball();
    for (index, value) in cloud.means.iter_mut().enumerate() {
        *value = (2.0 * stream.uniform(index as u64) - 1.0).to_f32();
    }
    for (index, value) in cloud.quats.iter_mut().enumerate() {
        *value = stream.normal(100_000 + index as u64).to_f32();
    }
    let place = coarse_place_of(&cloud);
    for method in METHODS {
        meshed(&place, method).refused(3, &["no consistent surface", "--force"]);
    }
    meshed(&place, &["--mesh-resolution=40", "--formats=ply", "--force"]).done();
    fs::remove_dir_all(place.model().join("mesh")).unwrap();
    let mut clear = coarse_ball();
    clear.opacity_logits.fill(-3.0);
    let place = coarse_place_of(&clear);
    meshed(&place, &[]).refused(3, &["no surface: 0 of 1000 Gaussians"]);
    assert!(!place.model().join("mesh").exists());
}

/// Flags of each method that make a small mesh.
const METHODS: [&[&str]; 3] = [
    &["--method=tsdf", "--mesh-resolution=40"],
    &["--method=poisson", "--surface-points=5000", "--poisson-depth=4"],
    &["--method=tetrahedra"],
];

#[test]
fn what_leaves_no_mesh_is_named_by_every_method_and_nothing_is_lost() {
    let place = coarse_place_of(&coarse_ball());
    meshed(&place, &["--mesh-resolution=40", "--formats=ply"]).done();
    let earlier = fs::read(file(&place, "tsdf.ply")).unwrap();
    for method in METHODS {
        let refused = |flags: &[&str], parts: &[&str]| {
            let flags = [method, &["--formats=ply"], flags].concat();
            meshed(&place, &flags).refused(3, parts);
        };
        let nothing = ["no surface: 0 of 1000 Gaussians", "The box that is found by itself"];
        refused(&["--bbox-min=5,5,5", "--bbox-max=6,6,6"], &nothing);
        // There is nothing in the middle of the ball.
        refused(&["--bbox-min=-0.2,-0.2,-0.2", "--bbox-max=0.2,0.2,0.2"], &nothing);
        refused(&["--min-component=99999999"], &["99999999", "--min-component"]);
        let nothing = ["zero triangles are left", "Give a larger --decimation-target"];
        refused(&["--decimation-target=3"], &nothing);
    }
    let files: Vec<_> = fs::read_dir(file(&place, "")).unwrap().collect();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(earlier == fs::read(file(&place, "tsdf.ply")).unwrap(), "the earlier mesh is lost");
}

#[test]
#[cfg(target_os = "linux")]
fn points_without_memory_are_refused_before_anything_is_drawn() {
    // Balls, each a little larger than the one before.
    let larger = |number: u8| {
        let mut ball = ball();
        ball.means.iter_mut().for_each(|x| *x *= 1.0 + 0.02 * f32::from(number));
        ball
    };
    let place = place_of(&together(&(0..8).map(larger).collect::<Vec<_>>()));
    let refused = meshed(&place, &["--host-limit=1MiB"])
        .refused(4, &["--host-limit 1MiB", "cannot be kept", "maps of a drawn view"]);
    let limit = format!("--host-limit={}MiB", refused.proposed_limit());
    // That is enough to draw the views, and not for what is made of them.
    meshed(&place, &["--method=tetrahedra", &limit])
        .refused(4, &["tetrahedra over 24000 Gaussians", "enough for ", "--method tsdf"]);
    meshed(&place, &["--method=poisson", &limit])
        .refused(4, &["307200 points of the surface", "Give --surface-points "]);
    assert!(!place.model().join("mesh").exists(), "something was written");
}
