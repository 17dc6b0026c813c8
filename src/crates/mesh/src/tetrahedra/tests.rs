//! Surfaces of known shapes, and of any labels at all.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::delaunay::{Want, delaunay};
use crate::known_meshes::{TORUS, TORUS_VOLUME, bad_edges, on_torus, torus_distance, volume};
use crate::place::{centroid, corners, doubled_area};
use crate::random::RandomSequence;
use crate::vector::{add, length, scale, sub};

/// Flat Gaussians on the torus, off it by up to half of their thickness.
fn torus_gaussians(count: usize) -> Vec<(Vec3, Vec3, f64)> {
    let mut noise = RandomSequence::of_seed(5);
    (0..count)
        .map(|_| {
            let (u, v) =
                (noise.uniform() * std::f64::consts::TAU, noise.uniform() * std::f64::consts::TAU);
            let [place, normal] = on_torus(u, v);
            (add(place, scale(normal, 0.01 * (noise.uniform() - 0.5))), normal, 0.01)
        })
        .collect()
}

fn cut_torus(sides: PivotSides, cutting: &Cutting) -> Cut {
    let pivots = Pivots::of(torus_gaussians(8_000), sides);
    let found = delaunay(&pivots.points, Want::Tetrahedra).unwrap();
    let label = |places: &[Vec3]| -> Result<Vec<bool>, CutError> {
        Ok(places.iter().map(|&place| torus_distance(place) < 0.0).collect())
    };
    let inside = pivots.labels(label(pivots.inner()).unwrap());
    let labelled =
        Labelled { points: &pivots.points, tetrahedra: &found.tetrahedra, inside: &inside };
    cut(&labelled, cutting, label).unwrap()
}

/// Each directed edge once, and its opposite once; the faces of each vertex one fan.
fn assert_closed_manifold(mesh: &Mesh) {
    assert_eq!(bad_edges(mesh), 0);
    let mut after = BTreeMap::new();
    let mut faces_at = vec![0; mesh.vertices.len()];
    for &[a, b, c] in &mesh.faces {
        for (vertex, from, to) in [(a, b, c), (b, c, a), (c, a, b)] {
            after.insert((vertex, from), to);
            faces_at[vertex as usize] += 1;
        }
    }
    for &[a, b, _] in &mesh.faces {
        let (mut at, mut turned) = (b, 0);
        loop {
            (at, turned) = (after[&(a, at)], turned + 1);
            if at == b {
                break;
            }
        }
        assert_eq!(turned, faces_at[a as usize], "vertex {a} joins several fans");
    }
}

/// Distance to a triangle, from above: by the best of a grid on it.
fn distance(point: Vec3, [a, b, c]: [Vec3; 3]) -> f64 {
    let mut least = f64::INFINITY;
    for i in 0..=6 {
        for j in 0..=6 - i {
            let (s, t) = (f64::from(i) / 6.0, f64::from(j) / 6.0);
            let on = add(a, add(scale(sub(b, a), s), scale(sub(c, a), t)));
            least = least.min(length(sub(on, point)));
        }
    }
    least
}

#[test]
fn torus_gaussians_give_a_closed_outward_torus() {
    for sides in [PivotSides::Outer, PivotSides::Both] {
        let found = cut_torus(sides, &Cutting::default());
        let mesh = &found.mesh;
        assert_closed_manifold(mesh);
        // Euler: 0 for one torus; E = 3/2 F.
        assert_eq!(2 * mesh.vertices.len(), mesh.faces.len());
        // Outward; chords of 8,000 points lie within .3 % of the size of the arc.
        let volume = volume(mesh);
        assert!((volume / TORUS_VOLUME - 1.0).abs() < 0.02, "{volume} against {TORUS_VOLUME}");
        assert_eq!(found.dropped_faces, 0);
    }
}

#[test]
fn the_chamfer_distance_of_a_torus_is_below_a_third_of_a_percent() {
    let mesh = cut_torus(PivotSides::Outer, &Cutting::default()).mesh;
    let side = 2.0 * (TORUS[0] + TORUS[1]);
    let (mut area, mut off) = (0.0, 0.0);
    for &face in &mesh.faces {
        let corners = corners(&mesh, face);
        let twice_area = length(doubled_area(corners));
        let distance = torus_distance(centroid(corners)).abs();
        (area, off) = (area + twice_area, off + twice_area * distance);
    }
    let mut noise = RandomSequence::of_seed(9);
    let samples = 40;
    let missing: f64 = (0..samples)
        .map(|_| {
            on_torus(
                noise.uniform() * std::f64::consts::TAU,
                noise.uniform() * std::f64::consts::TAU,
            )[0]
        })
        .map(|place| {
            let near = mesh.faces.iter().map(|&face| corners(&mesh, face)).filter(|face| {
                // No face is larger than .3.
                length(sub(face[0], place)) < 0.3
            });
            near.map(|face| distance(place, face)).fold(f64::INFINITY, f64::min)
        })
        .sum();
    let chamfer = (off / area + missing / f64::from(samples)) / 2.0;
    assert!(chamfer < 0.003 * side, "{chamfer} of {side}");
}

#[test]
fn bisection_finds_the_surface_on_every_edge() {
    let found = cut_torus(PivotSides::Outer, &Cutting { bisections: 16, ..Cutting::default() });
    for vertex in &found.mesh.vertices {
        // Edges are at most 6 long: 6 / 2^17, and the rounding to f32.
        assert!(torus_distance(vertex.map(f64::from)).abs() < 5e-5);
    }
}

#[test]
fn faces_on_long_edges_are_dropped_from_an_open_surface() {
    let closed = cut_torus(PivotSides::Outer, &Cutting::default());
    let long_edges = LongEdges::Drop(Some(0.1));
    let open = cut_torus(PivotSides::Outer, &Cutting { long_edges, ..Cutting::default() });
    assert!(open.dropped_faces > 0);
    assert_eq!(open.mesh.faces.len() + open.dropped_faces, closed.mesh.faces.len());
    assert_eq!(open.mesh.vertices.len(), open.edge_from_vertex.len());
    let used: std::collections::BTreeSet<u32> = open.mesh.faces.iter().flatten().copied().collect();
    assert_eq!(used.len(), open.mesh.vertices.len());
    for vertex in &open.mesh.vertices {
        // What is left lies on the torus as before: 0.1 / 2^9.
        assert!(torus_distance(vertex.map(f64::from)).abs() < 2e-4);
    }
}

#[test]
fn polishing_moves_vertices_onto_the_level() {
    let mut mesh =
        cut_torus(PivotSides::Outer, &Cutting { bisections: 2, ..Cutting::default() }).mesh;
    let off = |mesh: &Mesh| {
        mesh.vertices.iter().map(|vertex| torus_distance(vertex.map(f64::from)).abs()).sum::<f64>()
            / mesh.vertices.len() as f64
    };
    let before = off(&mesh);
    let vacancy = |places: &[Vec3]| -> Result<Vec<f64>, CutError> {
        Ok(places
            .iter()
            .map(|&place| (0.5 + 50.0 * torus_distance(place)).clamp(0.0, 1.0))
            .collect())
    };
    let far = polish(&mut mesh, &Polish { tolerance: 0.02, ..Polish::default() }, vacancy).unwrap();
    let after = off(&mesh);
    // A vertex rests within .02 / 50 = .0004; a few are on slivers, whose normals lead astray.
    assert!(after < 0.0004 && after < 0.5 * before, "{after} after {before}");
    assert!(far < mesh.vertices.len() / 30, "{far} of {}", mesh.vertices.len());
}

#[test]
fn points_all_on_one_side_have_no_surface() {
    let points = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let cut_with = |inside: &[bool], tetrahedra: &[[u32; 4]]| {
        let labelled = Labelled { points: &points, tetrahedra, inside };
        cut(&labelled, &Cutting::default(), |places: &[Vec3]| -> Result<_, CutError> {
            Ok(vec![true; places.len() - 1])
        })
        .unwrap_err()
    };
    let one = [[0, 1, 2, 3]];
    assert_eq!(cut_with(&[true; 4], &one), CutError::OneSide { inside: 4, points: 4 });
    assert_eq!(cut_with(&[true; 3], &one), CutError::Labels { labels: 3, points: 4 });
    assert_eq!(
        cut_with(&[true; 4], &[[0, 1, 2, 9]]),
        CutError::Corner { tetrahedron: 0, corner: 9, points: 4 }
    );
    let mixed = [true, false, false, false];
    assert_eq!(cut_with(&mixed, &one), CutError::Labels { labels: 2, points: 3 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_labels_give_a_closed_outward_manifold(
        cells in prop::collection::vec([0..5_i32, 0..5, 0..5], 5..80),
        seed in any::<u64>(),
    ) {
        let gaussians = cells.iter().map(|cell| (cell.map(f64::from), [0.6, 0.0, 0.8], 0.1));
        let pivots = Pivots::of(gaussians, PivotSides::Outer);
        let found = delaunay(&pivots.points, Want::Tetrahedra).unwrap();
        let mut noise = RandomSequence::of_seed(seed);
        let mut inside = pivots.labels(pivots.inner().iter().map(|_| noise.uniform() < 0.5).collect());
        for &[duplicate, first] in &found.duplicates {
            inside[duplicate as usize] = inside[first as usize];
        }
        let any_inside = inside.iter().any(|&inside| inside);
        let labelled =
            Labelled { points: &pivots.points, tetrahedra: &found.tetrahedra, inside: &inside };
        let result = cut(&labelled, &Cutting::default(), |places: &[Vec3]| -> Result<_, CutError> {
            Ok(places.iter().map(|_| noise.uniform() < 0.5).collect())
        });
        match result {
            Ok(found) => {
                assert_closed_manifold(&found.mesh);
                prop_assert!(volume(&found.mesh) > 0.0);
            }
            Err(error) => prop_assert!(!any_inside, "{error}"),
        }
    }
}
