//! `--primitive triangles`: triangles between shared vertices that become opaque, as MeshSplatting trains them.

use std::fs;
use std::sync::LazyLock;

use crate::common::program::{TestFolder, end, splat};
use crate::fixtures::{copy_of, fixture};
use rstest::rstest;
use serde_json::Value;
use splat::config::PrimitiveName;
use splat::export::{PlyModel, PlyTriangles, read_ply_model};
use splat::math::linalg::{dot, length, scale, sub};
use splat::math::sigmoid;

const ITERATIONS: u32 = 300;

/// More vertices than 200 points have at first.
const MOST: usize = 1500;

const FLAGS: [&str; 8] = [
    "--primitive=triangles",
    "--eval",
    "--max_points=1500",
    "--size_probs_zero=0",
    "--splitt_large_triangles=10",
    "--delaunay-iter=110",
    "--checkpoint-iterations=85,150",
    "--save-iterations=100,111",
];

static TRAINED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("train_triangles", |place| {
        place.trained(ITERATIONS, &FLAGS);
    })
});

fn events(place: &TestFolder, model: &str, kind: &str) -> Vec<Value> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

fn numbers(events: &[Value], field: &str) -> Vec<u64> {
    events.iter().map(|event| event[field].as_u64().unwrap()).collect()
}

#[test]
fn triangles_are_trained_to_an_opaque_mesh() {
    let place = &*TRAINED;
    let PlyModel { gaussians: vertices, primitive, triangles } =
        read_ply_model(&place.ply(ITERATIONS)).unwrap();
    let PlyTriangles { faces, window } = triangles.unwrap();
    assert_eq!(primitive, PrimitiveName::Triangles);
    assert_eq!((window.exponent, window.opacity_floor), (1e-4, 0.9999));
    assert!(faces.len() > 200 && vertices.opacity_logits.len() <= MOST, "{}", faces.len());
    let mut used: Vec<u32> = faces.as_flattened().to_vec();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), vertices.opacity_logits.len(), "no vertex is without a triangle");
    let mut eval = splat();
    eval.args(["eval", "--json", "--device=cpu", "-m"]).arg(place.model());
    let found: Value = serde_json::from_str(&end(&mut eval).done().stdout).unwrap();
    let psnr = found["mean"]["psnr"].as_f64().unwrap();
    assert!(psnr > 12.0, "{psnr}");
    // As the run itself measured it.
    let evaluated = events(place, "model", "evaluated");
    let of_run = evaluated.iter().rfind(|event| event["split"] == "test").unwrap();
    let of_run = of_run["mean"]["psnr"].as_f64().unwrap();
    assert!((of_run - psnr).abs() < 0.05, "{of_run} {psnr}");
}

#[test]
fn rounds_keep_to_max_points_and_the_mesh_is_connected_once() {
    let place = &*TRAINED;
    let rounds = events(place, "model", "remeshed");
    assert_eq!(numbers(&rounds, "iteration")[..3], [10, 15, 20]);
    assert!(numbers(&rounds, "split").iter().sum::<u64>() > 100);
    assert!(numbers(&rounds, "pruned").iter().sum::<u64>() > 0);
    let vertices = numbers(&rounds, "gaussians");
    assert!(vertices.iter().all(|&count| count <= MOST as u64), "{vertices:?}");
    assert_eq!(numbers(&events(place, "model", "connected"), "iteration"), [110]);
    // Every 20 iterations then, but four passes over the seven views at least, and at the end.
    let removals = events(place, "model", "hidden_removed");
    assert_eq!(numbers(&removals, "iteration"), [150, 190, 230, 270, 300]);
    let removed = numbers(&removals, "pruned");
    assert!(removed[..4].iter().sum::<u64>() > removed[4], "{removed:?}");
    assert!(numbers(&removals, "triangles").is_sorted_by(|before, after| before >= after));
}

/// Of each vertex, the least number of those that triangles connect it with.
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

/// How many vertices lie within an edge that does not end there.
fn t_junctions(places: &[[f32; 3]], faces: &[[u32; 3]]) -> usize {
    let mut edges: Vec<[u32; 2]> = faces
        .iter()
        .flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]].map(|[a, b]| [a.min(b), a.max(b)]))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let place = |vertex: u32| places[vertex as usize].map(f64::from);
    let is_within = |&[a, b]: &[u32; 2], vertex: u32| {
        let along = sub(place(b), place(a));
        let from = sub(place(vertex), place(a));
        let share = dot(along, from) / dot(along, along);
        let away = length(sub(from, scale(along, share)));
        // Places are f32: an edge of a hundredth among coordinates of a few units is known to 1e-5 of itself.
        (1e-3..1.0 - 1e-3).contains(&share) && away < 1e-4 * length(along)
    };
    let mut used = faces.as_flattened().to_vec();
    used.sort_unstable();
    used.dedup();
    let on_edge =
        |vertex: &u32| edges.iter().any(|edge| !edge.contains(vertex) && is_within(edge, *vertex));
    used.iter().filter(|&vertex| on_edge(vertex)).count()
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
    // What is hidden or pruned later leaves a few triangles apart.
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
    let whole = fs::read(place.ply(ITERATIONS)).unwrap();
    // Before hidden triangles are removed, and before the mesh is connected.
    for (from, later) in [(150, ITERATIONS), (85, 150)] {
        fs::remove_file(place.ply(ITERATIONS)).unwrap();
        fs::remove_file(place.checkpoint(later)).unwrap();
        fs::remove_file(place.checkpoint(ITERATIONS)).ok();
        let said = format!("iteration {from}");
        end(place.train().args(["--resume", "auto"])).done().says(&[&said]);
        assert!(fs::read(place.ply(ITERATIONS)).unwrap() == whole, "{said}");
    }
    end(place.train().args(["--resume", "--primitive=gaussians", "--iterations=400"]))
        .refused(2, &["trains triangles", "--primitive gaussians", "--init"]);
    let more = format!("--iterations={}", ITERATIONS + 1);
    end(place.train().args(["--resume", "--indoor", &more]))
        .done()
        .says(&["--indoor has no effect on a resumed run"]);
    let said = fs::read_to_string(place.model().join("config.toml")).unwrap();
    assert!(said.contains("indoor = false"), "{said}");
}

#[test]
fn batches_and_an_earlier_mesh_are_trained_too() {
    let place = TestFolder::beside(&TRAINED);
    // So few steps raise no opacity above the usual threshold.
    let flags =
        ["--batch-views=3", "--exposure", "--prune_triangles_threshold=0.1", "--max-points=900"];
    let connected = ["--primitive=triangles", "--delaunay-iter=60", "--hidden-interval=10"];
    place.trained_into("batch", 150, &[&connected, &flags[..]].concat());
    let removals = numbers(&events(&place, "batch", "hidden_removed"), "iteration");
    // Eight views four times are four intervals: steps of three images end behind 100 and 140.
    assert_eq!(removals, [102, 141, 150]);
    let from = TRAINED.ply(ITERATIONS);
    let init = format!("--init={}", from.display());
    place.trained_into(
        "next",
        20,
        &["--primitive=triangles", &init, "--delaunay-iter=0", "--max-points=1500"],
    );
    let read = |place: &TestFolder, model: &str, iteration| {
        read_ply_model(&place.ply_of(model, iteration)).unwrap().triangles.unwrap().faces.len()
    };
    let found = [read(&place, "batch", 150), read(&place, "next", 20)];
    assert!(found.iter().all(|&triangles| triangles > 50), "{found:?}");
    assert!(events(&place, "next", "connected").is_empty());
}

#[rstest]
#[case::antialiasing(&["--antialiasing"], &["--antialiasing", "--upscaling-factor"])]
#[case::mip(&["--preset=mip"], &["triangles"])]
#[case::filter(&["--filter-3d"], &["--filter-3d", "no extent"])]
#[case::mcmc(&["--strategy=mcmc"], &["--strategy", "mcmc", "density control of their own"])]
#[case::budget(&["--strategy=budget"], &["--strategy", "budget", "--add-percentage"])]
#[case::target(&["--target-gaussians=100"], &["--target-gaussians", "--max-points"])]
#[case::terms(&["--regularize=density"], &["--regularize", "density", "triangles"])]
#[case::samples(&["--upscaling_factor=8"], &["--upscaling-factor", "1 to 4"])]
fn what_is_for_gaussians_is_refused(#[case] flags: &[&str], #[case] said: &[&str]) {
    let place = TestFolder::beside(&TRAINED);
    end(place.train().arg("--primitive=triangles").args(flags)).refused(2, said);
    assert!(!place.model().exists());
}

#[test]
fn options_of_triangles_are_idle_on_gaussians_and_the_other_way_round() {
    let place = TestFolder::beside(&TRAINED);
    place.trained_into("round", 1, &["--set_sigma=0.5", "--set_weight=0.2", "--indoor"]).says(&[
        "--set-sigma has no effect without --primitive triangles",
        "--indoor has no effect without --primitive triangles",
    ]);
    place
        .trained_into(
            "flat",
            1,
            &["--primitive=triangles", "--min-opacity=0.1", "--scaling-lr=0.1"],
        )
        .says(&[
            "--min-opacity has no effect with --primitive triangles",
            "--scaling-lr has no effect",
        ]);
}
