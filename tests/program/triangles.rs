//! Models of triangles: exported, started from, and refused where only Gaussians have a use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rstest::rstest;
use splat::config::PrimitiveName;
use splat::export::{
    PlyModel, PlyTriangles, StoredWindow, read_ply, read_ply_model, read_ply_primitive, write_ply,
    write_ply_triangles,
};
use splat::math::linalg::{dot, length, scale, sub};
use splat::math::sigmoid;
use splat::model::{FLAT_LOG_SCALE, Gaussians, Primitive as _, TriangleMesh};
use splat_mesh::Mesh;
use splat_mesh::file::{read_glb, read_mesh};

use crate::common::program::{Ended, TestFolder, Text as _, end, header, text, words};
use crate::synthetic_scenes::{copy_of, fixture};

const WINDOW: StoredWindow = StoredWindow { exponent: 0.25, opacity_floor: 0.5 };

/// A model folder whose Gaussians are three to a triangle.
static TRIANGLES: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("triangles", |place| {
        place.trained(20, &["--preset=reference", "--eval", "--sh-degree-interval=5"]);
        let ply = place.ply(20);
        let mut vertices = read_ply(&ply).unwrap();
        vertices.log_scales.fill(0.0);
        // As far from grey as longer training makes them.
        vertices.sh_rest.iter_mut().step_by(2).for_each(|it| *it += 0.2);
        vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(vertices.len());
        let count = u32::try_from(vertices.len()).unwrap() / 3 * 3;
        let faces = (0..count).step_by(3).map(|first| [first, first + 1, first + 2]).collect();
        write_ply_triangles(&ply, &TriangleMesh { vertices, faces }, WINDOW).unwrap();
        let config = place.read("model/config.toml");
        let config = config.replace("primitive = \"gaussians\"", "primitive = \"triangles\"");
        fs::write(place.path("model/config.toml"), config).unwrap();
    })
});

fn export(place: &TestFolder, args: &[&str]) -> Ended {
    place.splat("export", args)
}

/// The mesh of a file, as other commands read it.
fn mesh_of(path: &Path) -> Mesh {
    if path.extension().is_some_and(|it| it == "glb") {
        read_glb(path).unwrap().mesh
    } else {
        read_mesh(path).unwrap()
    }
}

/// The largest difference of colours of a channel.
fn farthest(one: &Mesh, other: &Mesh) -> f32 {
    assert_eq!(one.colors.len(), other.colors.len());
    let pairs = one.colors.as_flattened().iter().zip(other.colors.as_flattened());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn triangles_are_exported_with_the_colours_that_views_have() {
    let place = copy_of(&TRIANGLES);
    let made = ["a.glb", "a.obj", "a.ply"].map(|name| {
        let made = export(&place, &["-m", "model", "-o", name, "--json"]).done().json();
        assert_eq!(made["colors"], "views", "{made}");
        let mesh = mesh_of(&place.path(name));
        assert_eq!(made["triangles"], mesh.faces.len());
        assert_eq!(made["vertices"], mesh.vertices.len());
        mesh
    });
    let [glb, obj, ply] = &made;
    assert!(ply.faces.len() > 50 && glb.faces == ply.faces && obj.faces == ply.faces);
    assert_eq!(glb.vertices, ply.vertices);
    // Colours of a PLY are bytes.
    assert!(farthest(glb, ply) < 0.003 && farthest(obj, ply) < 0.003);
    export(&place, &["-m", "model", "-o", "base.ply", "--colors=base"]).done();
    let base = mesh_of(&place.path("base.ply"));
    assert!(farthest(&base, ply) > 0.005, "harmonics above degree 0 have a say");
    let vertices = read_ply_vertices(&place);
    let first = 0.5 + vertices.sh_dc[1] * 0.282_094_8;
    assert!((base.colors[0][1] - first.clamp(0.0, 1.0)).abs() < 0.003);
    // A PLY by itself has no cameras.
    let from = place.ply(20);
    export(&place, &[text(&from), "-o", "alone.ply"]).done().says(&["no training cameras", "-m"]);
    assert_eq!(mesh_of(&place.path("alone.ply")), base);
    export(&place, &[text(&from), "-o", "b.ply", "--colors=views"])
        .refused(2, &["--colors views", "--colors base"]);
}

#[test]
fn colours_are_fitted_to_the_photographs_of_the_run() {
    let place = copy_of(&TRIANGLES);
    let figures = |name: &str| -> f64 {
        let flags = ["--mesh-images", "--mesh", name, "--split=train", "--json"];
        place.run("eval", &flags).done().json()["psnr"].as_f64().unwrap()
    };
    export(&place, &["-m", "model", "-o", "views.glb"]).done();
    let flags = ["-m", "model", "-o", "fitted.glb", "--colors=photographs"];
    let made = export(&place, &[&flags[..], &["--json"]].concat()).done().json();
    assert_eq!(made["colors"], "photographs");
    let [before, after] = ["psnr_before", "psnr"].map(|key| made[key].as_f64().unwrap());
    // The mesh covers a small part of the pictures, and no colour helps beside it.
    assert!(after > before + 0.3, "{made}");
    let [views, fitted] = ["views.glb", "fitted.glb"].map(figures);
    // The mean over views differs from the mean over all pixels; the last densification step counts, too.
    assert!(fitted > views + 0.3 && (views - before).abs() < 1.0, "{views} {fitted} {made}");
    let again = export(&place, &[&flags[..], &["--overwrite"]].concat()).done();
    again.prints(&["fitted to the training photographs"]);
    let whole = mesh_of(&place.path("fitted.glb"));
    let moved = mesh_of(&place.path("views.glb"));
    assert_eq!((&whole.vertices, &whole.faces), (&moved.vertices, &moved.faces));
    // What is cut off has had its share in the photographs.
    let sphere = "--crop-sphere=0,-0.5,0,1.2";
    export(&place, &["-m", "model", "-o", "part.glb", "--colors=photographs", sphere]).done();
    let part = mesh_of(&place.path("part.glb"));
    assert!(!part.faces.is_empty() && part.faces.len() < whole.faces.len());
    for (place, color) in part.vertices.iter().zip(&part.colors) {
        let same = whole.vertices.iter().position(|other| other == place).unwrap();
        assert_eq!(whole.colors[same], *color);
    }
    let from = place.ply(20);
    export(&place, &[text(&from), "-o", "b.ply", "--colors=photographs"])
        .refused(2, &["--colors photographs", "-m MODEL"]);
    let elsewhere = ["--overwrite", "-s", "nowhere"];
    export(&place, &[&flags[..], &elsewhere].concat()).refused(3, &["nowhere"]);
}

fn read_ply_vertices(place: &TestFolder) -> Gaussians {
    read_ply_model(&place.ply(20)).unwrap().gaussians
}

#[test]
fn triangles_are_cut_and_placed() {
    let place = copy_of(&TRIANGLES);
    export(&place, &["-m", "model", "-o", "all.ply"]).done();
    let all = mesh_of(&place.path("all.ply"));
    let line = "export -m model -o part.ply --crop=-99,-99,-99,0,99,99 --scale=2 --up=y \
                --translate=1,0,0 --json";
    let made = place.splat(line, &[]).done().json();
    let part = mesh_of(&place.path("part.ply"));
    let is_left = |face: &&[u32; 3]| face.iter().all(|&v| all.vertices[v as usize][0] <= 0.0);
    let kept: Vec<_> = all.faces.iter().filter(is_left).collect();
    assert!(!kept.is_empty() && kept.len() < all.faces.len());
    assert_eq!(made["left_out"], all.faces.len() - kept.len());
    assert_eq!(part.faces.len(), kept.len());
    for (before, after) in kept.into_iter().flatten().zip(part.faces.as_flattened()) {
        let [x, y, z] = all.vertices[*before as usize];
        let found = part.vertices[*after as usize];
        for (found, wanted) in found.iter().zip([2.0 * x + 1.0, -2.0 * y, -2.0 * z]) {
            assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
        }
    }
    export(&place, &["-m", "model", "-o", "none.ply", "--crop=90,90,90,91,91,91"])
        .refused(3, &["point_cloud.ply", "none of its triangles", "--crop"]);
}

#[rstest]
#[case::spz("a.spz")]
#[case::sog("a.sog")]
#[case::splat("a.splat")]
#[case::packed("a.compressed.ply")]
#[case::html("a.html")]
fn formats_of_gaussians_are_refused(#[case] name: &str) {
    let place = copy_of(&TRIANGLES);
    export(&place, &["-m", "model", "-o", name])
        .refused(2, &[name, "holds triangles", ".glb, .obj or .ply"]);
    assert!(!place.path(name).exists());
}

#[test]
fn an_obj_of_gaussians_is_refused_with_the_command_that_makes_a_mesh() {
    let place = copy_of(&TRIANGLES);
    let gaussians = place.path("gaussians.ply");
    write_ply(&gaussians, &read_ply_vertices(&place)).unwrap();
    export(&place, &["gaussians.ply", "-o", "a.obj"]).refused(2, &["a.obj", "splat mesh"]);
    let base = export(&place, &["gaussians.ply", "-o", "a.ply", "--colors=base"]);
    base.done().says(&["--colors has no effect"]);
}

#[rstest]
#[case(&TRIANGLES, "clean", &[], &["splat clean", "triangles"])]
#[case(&TRIANGLES, "mesh", &[], &["a mesh already", "splat export"])]
#[case(&TRIANGLES, "mesh", &["--method=poisson"], &["a mesh already", "splat export"])]
#[case(&TRIANGLES, "refine", &[], &["splat refine", "triangles"])]
#[case(&TRIANGLES, "sugar", &["--skip-coarse"], &["splat sugar", "--primitive triangles"])]
#[case(&TRIANGLES, "render", &["--normals"], &["--normals", "--depth"])]
#[case(&TRIANGLES, "render", &["--depth", "--median-depth"], &["--median-depth", "Leave it out"])]
#[case(&TRIANGLES, "eval", &["--samples=3"], &["1, 2 or 4"])]
#[case(&SURFELS_TRAINED, "mesh", &["--method=poisson"], &["--method poisson", "surfels", "--method tsdf"])]
#[case(&SURFELS_TRAINED, "mesh", &["--method=tetrahedra"], &["--method tetrahedra", "surfels", "--method tsdf"])]
#[case(&SURFELS_TRAINED, "mesh", &["--postprocess-mesh"], &["--postprocess-mesh", "surfels"])]
#[case(&SURFELS_TRAINED, "refine", &[], &["surfels", "splat mesh"])]
#[case(&SURFELS_TRAINED, "sugar", &["--skip-coarse"], &["surfels", "--method tsdf"])]
fn what_has_no_use_for_a_primitive_says_so(
    #[case] model: &LazyLock<TestFolder>,
    #[case] command: &str,
    #[case] flags: &[&str],
    #[case] expected: &[&str],
) {
    copy_of(model).run(command, flags).refused(2, expected);
}

#[test]
fn a_ply_of_another_kind_than_the_run_is_refused() {
    let place = copy_of(&TRIANGLES);
    let ply = place.ply(20);
    assert_eq!(read_ply_primitive(&ply).unwrap(), PrimitiveName::Triangles);
    let init = |flags: &[&str]| {
        let mut train = place.train_into("next");
        train.args(["--iterations=1", "--init", text(&ply)]).args(flags);
        end(&mut train)
    };
    init(&[]).refused(2, &["--init", "holds triangles", "--primitive triangles"]);
    init(&["--primitive=surfels"]).refused(2, &["holds triangles", "--primitive triangles"]);
    let coarse = ["--regularize=density", "-c", text(&ply)];
    end(place.train_into("coarse").args(coarse)).refused(2, &["-c", "triangles", "--init"]);
    write_ply(&ply, &read_ply_vertices(&place)).unwrap();
    init(&["--primitive=triangles"]).refused(2, &["holds Gaussians", "scene's points"]);
    place.run("eval", &[]).refused(3, &["holds Gaussians", "config.toml"]);
}

#[test]
fn triangles_are_measured_and_rendered_with_their_depths() {
    let place = copy_of(&TRIANGLES);
    let psnr = |flags: &[&str]| place.run("eval", &[&["--json"], flags].concat()).done().psnr();
    let finest = psnr(&[]);
    assert_eq!(psnr(&["--samples=4"]), finest);
    assert!(psnr(&["--samples=1"]) != finest);
    // As another program leaves it.
    let config = place.read("model/config.toml").replace("\"triangles\"", "\"gaussians\"");
    fs::write(place.path("model/config.toml"), config).unwrap();
    assert_eq!(psnr(&[]), finest, "the PLY says what it holds");
    place.run("render", &["--skip-train", "--depth", "--samples=1"]).done();
    let folder = place.model().join("test/ours_20");
    let depths = image::open(folder.join("depth/00000.png")).unwrap().into_luma16();
    let scale = place.json("model/test/ours_20/depth/scale.json");
    let per_unit = scale["values_per_world_unit"].as_f64().unwrap();
    let drawn: Vec<f64> =
        depths.pixels().filter(|it| it[0] > 0).map(|it| f64::from(it[0]) / per_unit).collect();
    // The cameras of the scene stand some units from what they look at.
    assert!(drawn.len() > 100 && drawn.iter().all(|&depth| depth > 0.1), "{}", drawn.len());
    assert!(folder.join("renders/00000.png").exists() && !folder.join("normals").exists());
}

// `--primitive triangles`: triangles between shared vertices that become opaque, as MeshSplatting trains them.

const ITERATIONS: u32 = 300;

/// More vertices than 200 points have at first.
const MOST: usize = 1500;

const FLAGS: [&str; 8] = words(
    "--primitive=triangles --eval --max_points=1500 --size_probs_zero=0 \
     --splitt_large_triangles=10 --delaunay-iter=110 --checkpoint-iterations=85,150 \
     --save-iterations=100,111",
);

static TRAINED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("train_triangles", |place| {
        place.trained(ITERATIONS, &FLAGS);
    })
});

#[test]
fn triangles_are_trained_to_an_opaque_mesh() {
    let place = &*TRAINED;
    let PlyModel { gaussians: vertices, primitive, triangles } =
        read_ply_model(&place.ply(ITERATIONS)).unwrap();
    let PlyTriangles { faces, window } = triangles.unwrap();
    assert_eq!(primitive, PrimitiveName::Triangles);
    assert_eq!((window.exponent, window.opacity_floor), (1e-4, 0.9999));
    assert!(faces.len() > 200 && vertices.opacity_logits.len() <= MOST, "{}", faces.len());
    let used: BTreeSet<&u32> = faces.as_flattened().iter().collect();
    assert_eq!(used.len(), vertices.opacity_logits.len(), "no vertex is without a triangle");
    let psnr = place.run("eval", &["--json"]).done().psnr();
    assert!(psnr > 12.0, "{psnr}");
    // As the run itself measured it.
    let evaluated = place.events("model", "evaluated");
    let of_run = evaluated.iter().rfind(|event| event["split"] == "test").unwrap();
    let of_run = of_run["mean"]["psnr"].as_f64().unwrap();
    assert!((of_run - psnr).abs() < 0.05, "{of_run} {psnr}");
}

#[test]
fn densification_keeps_to_max_points_and_the_mesh_is_connected_once() {
    let place = &*TRAINED;
    let rounds = |key| place.numbers("model", "remeshed", key);
    assert_eq!(rounds("iteration")[..3], [10, 15, 20]);
    assert!(rounds("split").iter().sum::<u64>() > 100);
    assert!(rounds("pruned").iter().sum::<u64>() > 0);
    let vertices = rounds("gaussians");
    assert!(vertices.iter().all(|&count| count <= MOST as u64), "{vertices:?}");
    assert_eq!(place.numbers("model", "connected", "iteration"), [110]);
    // Every 20 iterations then, but four passes over the seven views at least, and at the end.
    let removals = |key| place.numbers("model", "hidden_removed", key);
    assert_eq!(removals("iteration"), [150, 190, 230, 270, 300]);
    let removed = removals("pruned");
    assert!(removed[..4].iter().sum::<u64>() > removed[4], "{removed:?}");
    assert!(removals("triangles").is_sorted_by(|before, after| before >= after));
}

/// For each vertex, the least index of the vertices that triangles connect it with.
fn pieces(vertices: usize, faces: &[[u32; 3]]) -> Vec<u32> {
    let mut piece: Vec<u32> = (0..u32::try_from(vertices).unwrap()).collect();
    loop {
        let before = piece.clone();
        for face in faces {
            let least = face.iter().map(|&vertex| piece[vertex as usize]).min().unwrap();
            face.iter().for_each(|&vertex| piece[vertex as usize] = least);
        }
        if piece == before {
            return piece;
        }
    }
}

/// Number of vertices within an edge that does not end there.
fn t_junctions(places: &[[f32; 3]], faces: &[[u32; 3]]) -> usize {
    let edges: BTreeSet<[u32; 2]> = faces
        .iter()
        .flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]].map(|[a, b]| [a.min(b), a.max(b)]))
        .collect();
    let place = |vertex: u32| places[vertex as usize].map(f64::from);
    let is_within = |&[a, b]: &[u32; 2], vertex: u32| {
        let along = sub(place(b), place(a));
        let from = sub(place(vertex), place(a));
        let share = dot(along, from) / dot(along, along);
        let away = length(sub(from, scale(along, share)));
        // Places are f32: an edge of a hundredth among coordinates of a few units is known to 1e-5 of itself.
        (1e-3..1.0 - 1e-3).contains(&share) && away < 1e-4 * length(along)
    };
    let used: BTreeSet<&u32> = faces.as_flattened().iter().collect();
    let on_edge =
        |vertex: &u32| edges.iter().any(|edge| !edge.contains(vertex) && is_within(edge, *vertex));
    used.into_iter().filter(|vertex| on_edge(vertex)).count()
}

#[test]
fn a_mesh_that_was_connected_is_one_piece_without_t_junctions() {
    let largest_share = |iteration: u32| {
        let PlyModel { gaussians: vertices, triangles, .. } =
            read_ply_model(&TRAINED.ply(iteration)).unwrap();
        let faces = triangles.unwrap().faces;
        let piece = pieces(vertices.opacity_logits.len(), &faces);
        let mut counts = vec![0_usize; piece.len()];
        faces.iter().for_each(|face| counts[piece[face[0] as usize] as usize] += 1);
        let junctions = t_junctions(vertices.means.as_chunks::<3>().0, &faces);
        let largest = counts.into_iter().max().unwrap();
        (largest as f64 / faces.len() as f64, junctions)
    };
    // Before, each point has triangles of its own.
    let (loose, _) = largest_share(100);
    assert!(loose < 0.1, "{loose}");
    let (connected, junctions) = largest_share(111);
    assert!(connected > 0.95, "{connected}");
    assert_eq!(junctions, 0);
    // Triangles that are hidden or pruned later leave a few others apart.
    let (at_the_end, _) = largest_share(ITERATIONS);
    assert!(at_the_end > 0.9, "{at_the_end}");
}

#[test]
fn a_t_junction_is_found_where_there_is_one() {
    let places = [[0.0; 3], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [1.0, -1.0, 0.0]];
    assert_eq!(t_junctions(&places, &[[0, 1, 2], [0, 4, 3]]), 1);
    assert_eq!(t_junctions(&places, &[[0, 3, 2], [3, 1, 2], [0, 4, 3]]), 0);
}

#[test]
fn a_model_on_the_way_is_stored_with_its_window() {
    let stored = read_ply_model(&TRAINED.ply(100)).unwrap();
    let PlyTriangles { window, .. } = stored.triangles.unwrap();
    assert!((window.exponent - 0.6667).abs() < 0.001, "{window:?}");
    // The floor after iteration 95: that after 100 rises with the next step.
    let floor = 0.1 + 0.8999 * 45.0 / 190.0;
    assert!((window.opacity_floor - floor).abs() < 1e-6, "{window:?}");
    // Some are still transparent.
    let least = stored.gaussians.opacity_logits.iter().copied().fold(f32::MAX, f32::min);
    assert!(sigmoid(least) < 0.5, "{least}");
}

#[test]
fn a_resumed_run_is_one_that_never_stopped() {
    let place = copy_of(&TRAINED);
    let whole = place.ply_bytes("model", ITERATIONS);
    // Before hidden triangles are removed, and before the mesh is connected.
    for (from, later) in [(150, ITERATIONS), (85, 150)] {
        fs::remove_file(place.ply(ITERATIONS)).unwrap();
        fs::remove_file(place.checkpoint(later)).unwrap();
        fs::remove_file(place.checkpoint(ITERATIONS)).ok();
        let expected = format!("iteration {from}");
        place.resume(&["auto"]).done().says(&[&expected]);
        assert!(place.ply_bytes("model", ITERATIONS) == whole, "{expected}");
    }
    place
        .resume(&["--primitive=gaussians", "--iterations=400"])
        .refused(2, &["trains triangles", "--primitive gaussians", "--init"]);
    let more = format!("--iterations={}", ITERATIONS + 1);
    let resumed = place.resume(&["--indoor", &more]).done();
    resumed.says(&["--indoor has no effect on a resumed run"]);
    place.read("model/config.toml").assert_holds(&["indoor = false"]);
}

#[test]
fn batches_and_an_earlier_mesh_are_trained_too() {
    let place = TestFolder::beside(&TRAINED);
    // These few steps raise no opacity above the default threshold.
    let flags =
        ["--batch-views=3", "--exposure", "--prune_triangles_threshold=0.1", "--max-points=900"];
    let connected = ["--primitive=triangles", "--delaunay-iter=60", "--hidden-interval=10"];
    place.trained_into("batch", 150, &[&connected, &flags[..]].concat());
    let removals = place.numbers("batch", "hidden_removed", "iteration");
    // Eight views four times are four intervals: steps of three images end behind 100 and 140.
    assert_eq!(removals, [102, 141, 150]);
    let init = format!("--init={}", TRAINED.ply(ITERATIONS).display());
    let flags = ["--primitive=triangles", &init, "--delaunay-iter=0", "--max-points=1500"];
    place.trained_into("next", 20, &flags);
    let found = [("batch", 150), ("next", 20)].map(|(model, iteration)| {
        read_ply_model(&place.ply_of(model, iteration)).unwrap().triangles.unwrap().faces.len()
    });
    assert!(found.iter().all(|&triangles| triangles > 50), "{found:?}");
    assert!(place.events("next", "connected").is_empty());
}

// `--primitive surfels`: flat Gaussians that rays meet, as 2DGS trains them.

const SURFELS_ITERATIONS: u32 = 60;

/// Flags of a run with a densification step.
const SURFELS_FLAGS: [&str; 6] = words(
    "--primitive=surfels --eval --densify-from-iter=10 --densification-interval=40 \
     --sh-degree-interval=20 --max-points=600",
);

static SURFELS_TRAINED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("surfels", |place| {
        place.trained(SURFELS_ITERATIONS, &SURFELS_FLAGS);
    })
});

fn ply(place: &TestFolder) -> PathBuf {
    place.ply(SURFELS_ITERATIONS)
}

#[test]
fn a_model_of_surfels_has_two_scales_and_is_measured_and_rendered() {
    let place = copy_of(&SURFELS_TRAINED);
    let header = header(&ply(&place));
    assert!(header.contains("\ncomment SplatRenderMode: 2dgs\nproperty float x\n"), "{header}");
    assert!(header.contains("scale_1\n") && !header.contains("scale_2"), "{header}");
    let PlyModel { gaussians, primitive, .. } = read_ply_model(&ply(&place)).unwrap();
    assert_eq!(primitive, PrimitiveName::Surfels);
    assert!(gaussians.len() > 100, "{}", gaussians.len());
    let parts = ["primitive = \"surfels\"", "min_opacity = 0.05"];
    place.read("model/config.toml").assert_holds(&parts);
    let found = place.run("eval", &["--json"]).done().psnr();
    assert!(found > 10.0, "{found}");
    place.run("render", &["--skip-train"]).done();
    let render = format!("model/test/ours_{SURFELS_ITERATIONS}/renders/00000.png");
    assert!(place.path(&render).exists());
}

#[test]
fn a_mesh_is_made_of_the_depths_at_which_rays_meet_surfels() {
    let place = TestFolder::beside(&SURFELS_TRAINED);
    // A surface needs opaque surfels: about a hundred are.
    let flags = ["--primitive=surfels", "--init-opacity=0.8", "--densify-from-iter=300"];
    place.trained_into("opaque", 200, &flags);
    place.splat("mesh -m opaque --device=cpu --mesh-resolution=64 --formats=ply", &[]).done();
    let mesh = place.path("opaque/mesh/iteration_200/tsdf.ply");
    assert!(fs::metadata(&mesh).unwrap().len() > 100_000);
}

#[test]
fn a_folder_without_a_configuration_is_drawn_by_what_its_ply_says() {
    let place = copy_of(&SURFELS_TRAINED);
    let ours = place.run("eval", &["--json"]).done().psnr();
    // As 2DGS leaves it.
    fs::remove_file(place.model().join("config.toml")).unwrap();
    let scene = place.scene();
    let theirs = place.run("eval", &["--json", "--eval", "-s", text(&scene)]).done().psnr();
    assert!((ours - theirs).abs() < 1e-9, "{ours} {theirs}");
    place
        .run("mesh", &["--method=poisson", "-s", text(&scene)])
        .refused(2, &["--method poisson", "surfels", "--method tsdf"]);
}

#[test]
fn surfels_a_resumed_run_is_one_that_never_stopped() {
    let place = TestFolder::beside(&SURFELS_TRAINED);
    place.trained_into("parts", SURFELS_ITERATIONS / 2, &SURFELS_FLAGS);
    let iterations = format!("--iterations={SURFELS_ITERATIONS}");
    end(place.train_into("parts").args(["--resume", &iterations]).args(SURFELS_FLAGS)).done();
    let parts = place.ply_bytes("parts", SURFELS_ITERATIONS);
    assert!(parts == fs::read(ply(&SURFELS_TRAINED)).unwrap());
    end(place.train_into("parts").args(["--resume", "--primitive=gaussians", "--iterations=70"]))
        .refused(2, &["trains surfels", "--primitive gaussians", "--init"]);
    place.trained_into("others", 2, &[]);
    end(place.train_into("others").args(["--resume", "--primitive=surfels", "--iterations=3"]))
        .refused(2, &["trains gaussians", "--primitive surfels", "--init"]);
}

#[test]
fn no_coarse_stage_begins_with_surfels() {
    let place = copy_of(&SURFELS_TRAINED);
    let scene = place.scene();
    let sugar = ["--primitive=surfels", "-s", text(&scene)];
    place.run("sugar", &sugar).refused(2, &["surfels", "splat train"]);
    let from = ply(&place);
    let coarse = ["--regularize=density", "-c", text(&from)];
    end(place.train_into("coarse").args(coarse)).refused(2, &["-c", "surfels", "--init"]);
    assert!(!place.path("coarse").exists());
}

#[test]
fn surfels_are_cleaned_planned_and_profiled() {
    let place = copy_of(&SURFELS_TRAINED);
    place.run("clean", &["-o", "cleaned"]).done();
    let cleaned = header(&place.ply_of("cleaned", SURFELS_ITERATIONS));
    assert!(cleaned.contains("SplatRenderMode: 2dgs") && !cleaned.contains("scale_2"), "{cleaned}");
    place.splat("plan --primitive=surfels -s SCENE --model MODEL", &[]).done();
    place.splat("profile MODEL", &[]).done();
}

#[test]
fn every_format_holds_surfels_and_is_read_back() {
    let place = copy_of(&SURFELS_TRAINED);
    let surfels = read_ply(&ply(&place)).unwrap();
    let export = |args: &[&str]| export(&place, args).done();
    let files =
        "all.compressed.ply all.splat all.spz all.sog all.glb sog/meta.json lod/lod-meta.json";
    for name in files.split(' ') {
        let made = export(&["-m", "model", "-o", name, "--json"]).json();
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
    // A PLY loses nothing but the length of rotations.
    export(&["-m", "model", "-o", "all.ply"]);
    let PlyModel { gaussians, primitive, .. } = read_ply_model(&place.path("all.ply")).unwrap();
    assert_eq!(primitive, PrimitiveName::Surfels);
    assert_eq!(Gaussians { quats: surfels.quats.clone(), ..gaussians }, surfels);
}

/// Trains a step with rates of zero from a file; what is saved, and what was said.
fn begun(place: &TestFolder, init: &Path, flags: &[&str]) -> (PlyModel, Ended) {
    let frozen = words::<6>(
        "--position-lr-init=0 --position-lr-final=0 --feature-lr=0 --opacity-lr=0 --scaling-lr=0 \
         --rotation-lr=0",
    );
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
    let place = copy_of(&SURFELS_TRAINED);
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
    let place = TestFolder::beside(&SURFELS_TRAINED);
    let flags = ["--primitive=surfels", "--depth_ratio", "1", "--opacity_cull=0.04"];
    place.trained(1, &flags).says(&["--depth-ratio is ignored"]);
    place.read("model/config.toml").assert_holds(&["min_opacity = 0.04"]);
    let line = "mesh -m model --method=poisson --num_cluster 50 --mesh_res 64 --sdf_trunc 0.1 \
                --depth_trunc=3 --device=cpu";
    let expected = ["--sdf-trunc is ignored", "--depth-trunc is ignored", "surfels"];
    place.splat(line, &[]).refused(2, &expected);
}
