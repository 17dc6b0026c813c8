use super::viewpoint::{about, looking};
use super::*;
use crate::known_meshes::{cube, joined, mesh_of, moved, sphere, subdivided, torus, turned_over};
use crate::mesh::Vec3;
use crate::vector::{length, sub};

fn plain(mesh: &Mesh, truth: &Mesh) -> Comparison {
    compare(mesh, truth, &[], &few()).unwrap()
}

/// As few samples and rays as the tolerances allow.
fn few() -> CompareOptions {
    CompareOptions { samples: [20_000, 20_000], scan_rays: [90, 60], ..CompareOptions::default() }
}

/// Cameras about the origin at this distance, in the plane z = 1 and below.
fn ring(distance: f64, count: u32) -> Vec<Viewpoint> {
    (0..count)
        .map(|i| {
            let angle = std::f64::consts::TAU * f64::from(i) / f64::from(count);
            let height = if i % 2 == 0 { 1.5 } else { -1.5 };
            looking([distance * angle.cos(), distance * angle.sin(), height], [0.0; 3])
        })
        .collect()
}

#[test]
fn spheres_a_hundredth_apart_are_that_far_however_fine_they_are() {
    let (small, large) = (sphere(1.0, 6), sphere(1.01, 6));
    for found in [plain(&large, &small), plain(&subdivided(&large), &small), plain(&small, &large)]
    {
        for distances in [&found.uniform.accuracy, &found.uniform.completeness] {
            assert!((distances.mean - 0.01).abs() < 1e-4, "{distances:?}");
            assert!((distances.median - 0.01).abs() < 1e-4 && (distances.p95 - 0.01).abs() < 1e-4);
            assert_eq!((distances.clamped_share, distances.opposed_share), (0.0, 0.0));
            assert!(distances.normal_agreement > 0.999);
        }
        assert!((found.uniform.chamfer - 0.01).abs() < 1e-4);
        // The diagonal is 2 √3: at .2 % nothing agrees, at .5 % all.
        let scores: Vec<f64> = found.uniform.scores.iter().map(|score| score.f_score).collect();
        assert_eq!(scores, [0.0, 1.0, 1.0]);
        assert!((found.diagonal / 12_f64.sqrt() - 1.0).abs() < 0.011);
        assert_eq!((found.report.genus, found.visible.is_none()), (Some(0), true));
        assert_eq!(
            found.crossings,
            FaceCrossings { sampled: found.crossings.sampled, crossing: 0 }
        );
    }
}

#[test]
fn what_is_missing_costs_recall_alone() {
    let truth = sphere(1.0, 5);
    let mut half = truth.clone();
    half.faces.retain(|face| face.iter().all(|&v| half.vertices[v as usize][2] > -1e-6));
    let options = CompareOptions { threshold: Some(1e-3), ..few() };
    let found = compare(&half, &truth, &[], &options).unwrap();
    let score = found.uniform.scores[3];
    // One sample of 20,000, and the strip of a threshold at the rim: area 2 pi .001 of 4 pi.
    assert!((score.recall - 0.5).abs() < 1e-3 && score.precision == 1.0, "{score:?}");
    assert!((score.f_score - 2.0 / 3.0).abs() < 1e-3);
    // Beyond 20 thresholds: nearly half, but for a strip of .02.
    assert!((found.uniform.completeness.clamped_share - 0.49).abs() < 1e-3);
    assert!(found.uniform.completeness.mean < 0.0101 && found.uniform.accuracy.mean < 1e-9);
}

#[test]
fn normals_that_point_the_other_way_are_counted() {
    let truth = sphere(1.0, 4);
    let found = plain(&turned_over(truth.clone()), &truth).uniform;
    assert_eq!((found.accuracy.opposed_share, found.completeness.opposed_share), (1.0, 1.0));
    assert!(found.accuracy.normal_agreement > 0.9999);
}

#[test]
fn unseen_sides_cost_nothing_in_the_scan_and_in_what_is_visible() {
    // The truth has a core that no camera sees; the mesh lacks it.
    let truth = joined(sphere(1.0, 5), &sphere(0.5, 4));
    let found = compare(&sphere(1.0, 5), &truth, &ring(4.0, 6), &few()).unwrap();
    let score = found.uniform.scores[0];
    // The core is a fifth of the truth's area.
    assert!((score.recall - 0.8).abs() < 0.005 && score.precision == 1.0, "{score:?}");
    let visible = found.visible.unwrap();
    assert_eq!((visible.scores[0].recall, visible.scores[0].precision), (1.0, 1.0));
    assert!(visible.completeness.samples < found.uniform.completeness.samples * 81 / 100);
    assert!(visible.chamfer < 1e-9);
    let scan = found.scan.unwrap();
    assert_eq!((scan.mesh_only, scan.truth_only, scan.median_depth_error), (0, 0, 0.0));
    assert!(scan.both > 5_000 && scan.figures.chamfer < 1e-9);
    // Neighbours stand one beside the other, round the ring.
    assert!(scan.views > 8, "{}", scan.views);
}

#[test]
fn the_scan_counts_what_one_surface_alone_has() {
    let truth = sphere(1.0, 5);
    let other = joined(sphere(1.0, 5), &moved(sphere(0.4, 4), [0.0, 0.0, 1.8]));
    let cameras = ring(5.0, 4);
    let found = compare(&other, &truth, &cameras, &few()).unwrap();
    let back = compare(&truth, &other, &cameras, &few()).unwrap();
    let (scan, back) = (found.scan.unwrap(), back.scan.unwrap());
    assert!(scan.mesh_only > 100 && scan.truth_only == 0);
    assert_eq!((back.mesh_only, back.truth_only), (0, scan.mesh_only));
    assert!(scan.figures.scores[1].precision < 0.99 && scan.figures.scores[1].recall > 0.999);
}

#[test]
fn alignment_finds_turn_scale_and_shift() {
    let truth = torus([1.0, 0.4], [60, 30], |u, v| {
        1.0 + 0.15 * (2.0 * u).sin() + 0.1 * (u + 2.0 * v).cos()
    });
    let away = Similarity {
        scale: 1.04,
        rotation: about([0.6, 0.0, 0.8], 0.1),
        translation: [0.05, -0.04, 0.03],
    };
    let options = CompareOptions { alignment: Alignment::Icp, ..few() };
    let found = compare(&away.applied_to(&truth), &truth, &[], &options).unwrap();
    let back = found.alignment.unwrap();
    for place in [[1.0, 0.5, 0.0], [-1.0, 0.0, 0.3], [0.0, -1.0, -0.3]] {
        assert!(length(sub(back.of(away.of(place)), place)) < 1e-4, "{back:?}");
    }
    assert!(found.uniform.chamfer < 1e-4);
    // A sphere's turns are open, and stay what they are.
    let found = compare(&moved(sphere(1.1, 4), [0.1, 0.0, 0.0]), &sphere(1.0, 4), &[], &options);
    let back = found.unwrap().alignment.unwrap();
    assert!((back.scale * 1.1 - 1.0).abs() < 1e-3 && (back.rotation[0][0] - 1.0).abs() < 1e-2);
}

#[test]
fn faces_that_pass_through_others_are_counted() {
    let apart = joined(cube(), &moved(cube(), [1.5, 0.0, 0.0]));
    let through = joined(cube(), &moved(cube(), [0.45, 0.4, 0.35]));
    let count = |mesh: &Mesh| self_crossings(&BoxTree::new(mesh).unwrap());
    assert_eq!(count(&apart), FaceCrossings { sampled: 24, crossing: 0 });
    assert!(count(&through).crossing >= 10, "{:?}", count(&through));
}

#[test]
fn surfaces_that_are_none_are_named() {
    let flat = mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0]], &[[0, 1, 1]]);
    let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
    let options = CompareOptions::default();
    let error = |mesh: &Mesh, truth: &Mesh, options: &CompareOptions| {
        compare(mesh, truth, &[], options).unwrap_err().to_string()
    };
    assert!(error(&cube(), &flat, &options).contains("the truth has no area in its 1 faces"));
    assert!(error(&Mesh::default(), &cube(), &options).contains("the mesh has no area"));
    assert!(
        error(&broken, &cube(), &options).contains("the mesh is no mesh: face 0 names vertex 1")
    );
    let negative = CompareOptions { threshold: Some(-1.0), ..options };
    assert!(error(&cube(), &cube(), &negative).contains("a threshold of -1"));
}

#[test]
fn figures_are_the_same_for_any_number_of_threads() {
    let truth = torus([1.0, 0.4], [40, 20], |u, v| 1.0 + 0.1 * (u + 2.0 * v).cos());
    let mesh = moved(truth.clone(), [0.03, 0.02, 0.01]);
    let cameras: Vec<Viewpoint> = ring(4.0, 2);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let samples = [5_000, 5_000];
        let options = CompareOptions { alignment: Alignment::Icp, samples, ..few() };
        pool.install(|| compare(&mesh, &truth, &cameras, &options).unwrap())
    };
    assert_eq!(run(1), run(5));
    let origin: Vec3 = Similarity::IDENTITY.of([0.0; 3]);
    assert_eq!(origin, [0.0; 3]);
}
