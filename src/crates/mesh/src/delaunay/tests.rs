//! Triangulations of hard and of easy points, checked by what defines them.

use proptest::prelude::*;

use super::predicates::{is_inside, orientation};
use super::*;
use crate::random::{RandomSequence, RandomStream};
use crate::vector;

/// Shares that let even few points be inserted by many.
const SHARED: Shares = Shares { pieces: 8, alone: 300 };

fn random(count: usize) -> Vec<Vec3> {
    let mut noise = RandomSequence::of_seed(count as u64);
    (0..count).map(|_| std::array::from_fn(|_| noise.uniform())).collect()
}

fn lattice(side: i32) -> Vec<Vec3> {
    let cells = 0..side;
    cells
        .clone()
        .flat_map(|x| cells.clone().flat_map(move |y| (0..side).map(move |z| [x, y, z])))
        .map(|cell| cell.map(f64::from))
        .collect()
}

/// Whole points on the sphere of radius 65 (65² = 4,225 has many such).
fn on_a_sphere() -> Vec<Vec3> {
    let range = -65_i32..=65;
    let mut points = Vec::new();
    for x in range.clone() {
        for y in range.clone() {
            let square = 4_225 - x * x - y * y;
            let z = (0..=65).find(|z| z * z == square);
            points.extend(z.map(|z| [x, y, z].map(f64::from)));
            points.extend(z.map(|z| [x, y, -z].map(f64::from)));
        }
    }
    points
}

/// Checks links, signs, that the spheres across each face hold no point (which is enough:
/// Delaunay's lemma), that the hull is convex, and that each distinct point is a corner.
fn check(points: &[Vec3], found: &Delaunay) {
    let place = |name: u32| points[name as usize];
    let mut used = vec![false; points.len()];
    for (at, (corners, neighbours)) in found.tetrahedra.iter().zip(&found.neighbours).enumerate() {
        let places = corners.map(place);
        let [a, b, c, d] = places;
        assert!(orientation(a, b, c, d) > 0.0, "tetrahedron {at} is turned over");
        corners.iter().for_each(|&corner| used[corner as usize] = true);
        for (corner, &neighbour) in neighbours.iter().enumerate() {
            let mut face: Vec<u32> = (0..4).filter(|&k| k != corner).map(|k| corners[k]).collect();
            face.sort_unstable();
            if neighbour == OUTSIDE {
                continue;
            }
            let other = neighbour as usize;
            let back = found.neighbours[other].iter().position(|&link| link as usize == at);
            let back = back.expect("a neighbour links back");
            let mut theirs: Vec<u32> =
                (0..4).filter(|&k| k != back).map(|k| found.tetrahedra[other][k]).collect();
            theirs.sort_unstable();
            assert_eq!(face, theirs);
            let apex = place(found.tetrahedra[other][back]);
            // Name 0 is the lowest: on the sphere, the perturbation of another decides; only
            // strictly inside is wrong for sure.
            assert!(!strictly_inside(&places, apex), "tetrahedron {at} is not Delaunay");
        }
    }
    for &[duplicate, first] in &found.duplicates {
        assert_eq!(place(duplicate), place(first));
        assert!(first < duplicate && !used[duplicate as usize]);
        used[duplicate as usize] = true;
    }
    assert!(used.iter().all(|&used| used), "a point is missing");
    // Euler: the hull of the tetrahedra is one closed surface without handles.
    let hull = hull(found);
    let mut corners: Vec<u32> = hull.iter().flatten().copied().collect();
    corners.sort_unstable();
    corners.dedup();
    assert_eq!(hull.len(), 2 * corners.len() - 4);
    for face in &hull {
        let [a, b, c] = face.map(place);
        // No corner of the hull lies outside the plane of a face.
        for &corner in corners.iter().take(500) {
            assert!(orientation(a, b, c, place(corner)) >= 0.0, "the hull is not convex");
        }
    }
}

/// Faces on the hull, their normals inwards.
fn hull(found: &Delaunay) -> Vec<[u32; 3]> {
    let faces = found.tetrahedra.iter().zip(&found.neighbours).flat_map(|(corners, neighbours)| {
        (0..4)
            .filter(|&corner| neighbours[corner] == OUTSIDE)
            .map(|corner| predicates::OPPOSITE[corner].map(|other| corners[other]))
    });
    faces.collect()
}

/// Strictly inside the sphere: with the perturbation of any order of names.
fn strictly_inside(corners: &[Vec3; 4], point: Vec3) -> bool {
    is_inside([1, 2, 3, 4], corners, 0, point) && is_inside([0, 1, 2, 3], corners, 4, point)
}

fn triangulated(points: &[Vec3], shares: Shares) -> Delaunay {
    delaunay_by(points, Want::Neighbours, shares).expect("the points span space")
}

/// The same tetrahedra for several shares and orders.
fn check_uniqueness(points: &[Vec3]) {
    let alone = triangulated(points, Shares { pieces: 1, alone: usize::MAX });
    check(points, &alone);
    for pieces in [2, 8, 16] {
        let shared = triangulated(points, Shares { pieces, ..SHARED });
        assert!(alone == shared, "{pieces} pieces give another triangulation");
    }
    let mut noise = RandomSequence::of_seed(7);
    let mut input_from_shuffled: Vec<usize> = (0..points.len()).collect();
    for (shuffle, pieces) in [1, 5, 16].into_iter().enumerate() {
        for last in (1..points.len()).rev() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            let other = (noise.uniform() * (last + 1) as f64) as usize;
            input_from_shuffled.swap(last, other);
        }
        let shuffled: Vec<Vec3> = input_from_shuffled.iter().map(|&at| points[at]).collect();
        let found = triangulated(&shuffled, Shares { pieces, ..SHARED });
        let places = |points: &[Vec3], found: &Delaunay| -> Vec<[Vec3; 4]> {
            let place = |corner: u32| points[corner as usize];
            found.tetrahedra.iter().map(|corners| corners.map(place)).collect()
        };
        assert!(
            places(&shuffled, &found) == places(points, &alone),
            "shuffle {shuffle} gives another triangulation"
        );
        assert!(found.neighbours == alone.neighbours);
    }
}

#[test]
fn random_points_have_one_triangulation() {
    check_uniqueness(&random(8_000));
}

#[test]
fn a_point_is_inserted_where_it_lies_though_homes_are_gone() {
    // Of these, points were once inserted from homes that the same piece had deleted.
    for (key, pieces) in [(17, 12), (18, 8)] {
        let stream = RandomStream::of_seed(key);
        let coordinate = |index: u64| stream.uniform(index);
        let points: Vec<Vec3> =
            (0..8_000).map(|point| [0, 1, 2].map(|axis| coordinate(3 * point + axis))).collect();
        let alone = triangulated(&points, Shares { pieces: 1, alone: usize::MAX });
        assert!(alone == triangulated(&points, Shares { pieces, ..SHARED }), "key {key}");
    }
}

#[test]
fn a_lattice_has_one_triangulation() {
    check_uniqueness(&lattice(13));
}

#[test]
fn points_on_a_sphere_have_one_triangulation() {
    check_uniqueness(&on_a_sphere());
}

#[test]
fn many_duplicates_have_one_triangulation() {
    let mut noise = RandomSequence::of_seed(3);
    let points: Vec<Vec3> =
        (0..4_000).map(|_| std::array::from_fn(|_| (noise.uniform() * 12.0).floor())).collect();
    check_uniqueness(&points);
}

#[test]
fn a_noisy_surface_has_one_triangulation() {
    let mut noise = RandomSequence::of_seed(11);
    let points: Vec<Vec3> = (0..8_000)
        .map(|_| {
            let (u, v) =
                (noise.uniform() * std::f64::consts::TAU, noise.uniform() * std::f64::consts::TAU);
            let (r, z) = (1.0 + 0.4 * v.cos() + 0.003 * noise.uniform(), 0.4 * v.sin());
            [r * u.cos(), r * u.sin(), z]
        })
        .collect();
    check_uniqueness(&points);
}

#[test]
fn a_long_line_before_one_triangle_is_triangulated() {
    let mut points: Vec<Vec3> = (0..600).map(|at| [f64::from(at), 0.0, 0.0]).collect();
    points.extend([[300.0, 1.0, 0.0], [300.0, 0.0, 1.0]]);
    let found = triangulated(&points, SHARED);
    check(&points, &found);
    assert_eq!(found.tetrahedra.len(), 599);
}

#[test]
fn two_skew_lines_make_a_tetrahedron_of_each_pair() {
    let mut points: Vec<Vec3> = (0..100).map(|at| [f64::from(at), 0.0, 0.0]).collect();
    points.extend((0..100).map(|at| [0.0, f64::from(at), 1.0]));
    let found = triangulated(&points, Shares { pieces: 4, alone: 40 });
    check(&points, &found);
    assert_eq!(found.tetrahedra.len(), 99 * 99);
}

#[test]
fn points_1e_30_apart_are_kept_apart() {
    let mut points = random(2_000);
    let near: Vec<Vec3> = points[..500].iter().map(|p| p.map(|x| x * 1e-30)).collect();
    points.extend(near);
    check_uniqueness(&points);
}

#[test]
fn the_largest_and_smallest_coordinates_are_triangulated() {
    let mut points: Vec<Vec3> = random(300).iter().map(|p| p.map(|x| x * 1.4e45)).collect();
    points.extend(random(301).iter().map(|p| p.map(|x| (1.0 + x) * 8e-37)));
    let found = triangulated(&points, SHARED);
    check(&points, &found);
}

#[test]
fn no_point_lies_in_any_sphere() {
    for seed in 200..205 {
        let points = random(seed);
        let found = triangulated(&points, Shares { pieces: 3, alone: 50 });
        check(&points, &found);
        for corners in &found.tetrahedra {
            let places = corners.map(|corner| points[corner as usize]);
            for &point in &points {
                assert!(places.contains(&point) || !strictly_inside(&places, point));
            }
        }
    }
}

#[test]
fn the_tetrahedra_fill_the_hull() {
    let points = random(5_000);
    let found = triangulated(&points, SHARED);
    let place = |corner: u32| points[corner as usize];
    let volume = |[a, b, c, d]: [Vec3; 4]| {
        let (u, v, w) = (vector::sub(b, a), vector::sub(c, a), vector::sub(d, a));
        vector::dot(vector::cross(u, v), w) / 6.0
    };
    let filled: f64 = found.tetrahedra.iter().map(|corners| volume(corners.map(place))).sum();
    let around: f64 = hull(&found)
        .iter()
        .map(|face| face.map(place))
        .map(|[a, b, c]| volume([a, b, c, [0.5; 3]]))
        .sum();
    // Rounding of 34,000 terms, each of 1e-16 of at most 1/6.
    assert!((filled - around).abs() < 1e-12, "{filled} against {around}");
}

#[test]
fn without_neighbours_the_tetrahedra_are_the_same() {
    let points = random(3_000);
    let bare = delaunay(&points, Want::Tetrahedra).unwrap();
    assert!(bare.tetrahedra == triangulated(&points, SHARED).tetrahedra);
    assert!(bare.neighbours.is_empty());
}

/// Run alone, optimised: the peak is the process's.
#[test]
#[ignore = "takes seconds, and the memory of the whole process counts"]
#[cfg(target_os = "linux")]
fn a_million_points_take_less_than_320_bytes_each() {
    let points = random(1_000_000);
    let start = std::time::Instant::now();
    let found = delaunay(&points, Want::Tetrahedra).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    assert!(found.tetrahedra.len() > 6_700_000);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak * 1_024 < 320_000_000, "{peak} kB after {seconds:.1} s");
}

#[test]
fn points_that_span_nothing_are_refused() {
    let plane: Vec<Vec3> = random(100).iter().map(|&[x, y, _]| [x, y, 0.25]).collect();
    let refused = |points: &[Vec3]| delaunay(points, Want::Tetrahedra).unwrap_err();
    assert_eq!(refused(&plane), DelaunayError::Flat { distinct: 100 });
    assert_eq!(refused(&[[1.0; 3]; 9]), DelaunayError::Flat { distinct: 1 });
    assert_eq!(refused(&[]), DelaunayError::Flat { distinct: 0 });
    let line: Vec<Vec3> = (0..50).map(|at| [f64::from(at); 3]).collect();
    assert_eq!(refused(&line), DelaunayError::Flat { distinct: 50 });
}

#[test]
fn points_that_are_not_finite_are_named() {
    let mut points = random(10);
    points[7][1] = f64::INFINITY;
    let refused = delaunay(&points, Want::Tetrahedra).unwrap_err();
    assert_eq!(refused, DelaunayError::UnfitPoint { index: 7, point: points[7] });
    assert!(refused.to_string().contains("point 7"), "{refused}");
    points[7][1] = -2e45;
    assert!(delaunay(&points, Want::Tetrahedra).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn few_points_of_a_small_lattice_are_triangulated(
        cells in prop::collection::vec([0..4_i32, 0..4, 0..4], 4..60),
        pieces in 1..5_usize,
    ) {
        let points: Vec<Vec3> = cells.iter().map(|cell| cell.map(f64::from)).collect();
        if let Ok(found) = delaunay_by(&points, Want::Neighbours, Shares { pieces, alone: 8 }) {
            check(&points, &found);
        }
    }
}
