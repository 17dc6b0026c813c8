//! Surfaces over points on known shapes.

use std::f64::consts::TAU;

use super::*;
use crate::delaunay::{Want, delaunay};
use crate::known_meshes::{TORUS_VOLUME, bad_edges, on_torus, volume};
use crate::random::RandomSequence;

/// Points in a grid of angles, jittered a little, so that none lie on one sphere.
fn torus_points(around: i32, across: i32) -> Vec<Vec3> {
    let mut noise = RandomSequence::of_seed(1);
    let mut jitter = move || 0.4 * (noise.uniform() - 0.5);
    (0..around)
        .flat_map(|i| (0..across).map(move |j| (i, j)))
        .map(|(i, j)| {
            let u = (f64::from(i) + jitter()) / f64::from(around) * TAU;
            on_torus(u, (f64::from(j) + jitter()) / f64::from(across) * TAU)[0]
        })
        .collect()
}

/// Quadrangles between four angles, as triangles.
fn strip(columns: i32, rows: i32, place: impl Fn(f64, f64) -> Vec3) -> Vec<[Vec3; 3]> {
    let at =
        |i: i32, j: i32| place(f64::from(i) / f64::from(columns), f64::from(j) / f64::from(rows));
    (0..columns)
        .flat_map(|i| (0..rows).map(move |j| (i, j)))
        .flat_map(|(i, j)| {
            let (a, b, c, d) = (at(i, j), at(i + 1, j), at(i + 1, j + 1), at(i, j + 1));
            [[a, b, c], [a, c, d]]
        })
        .collect()
}

fn surface(points: &[Vec3], triangles: &[[Vec3; 3]]) -> Restricted {
    let found = delaunay(points, Want::Neighbours).unwrap();
    restricted(points, &found, triangles).unwrap()
}

#[test]
fn points_on_a_torus_give_a_closed_outward_torus() {
    let points = torus_points(90, 40);
    let mut soup = strip(120, 60, |s, t| on_torus(s * TAU, t * TAU)[0]);
    // A tenth of the soup is turned over: the rest outvotes it.
    for triangle in soup.iter_mut().step_by(10) {
        triangle.swap(0, 1);
    }
    let found = surface(&points, &soup);
    assert_eq!(found.conflicts, 0);
    assert_eq!(bad_edges(&found.mesh), 0);
    assert_eq!(found.mesh.vertices.len(), points.len());
    assert_eq!(found.mesh.faces.len(), 2 * points.len());
    // Chords of 40 to the circle lose 2 pi² / 3 / 40² = .4 % of the area.
    let share = volume(&found.mesh) / TORUS_VOLUME;
    assert!((share - 1.0).abs() < 0.01, "{share}");
}

#[test]
fn half_a_soup_gives_an_open_surface() {
    let points = torus_points(60, 30);
    let soup = strip(60, 60, |s, t| on_torus(s * TAU / 2.0, t * TAU)[0]);
    let found = surface(&points, &soup);
    assert_eq!(found.conflicts, 0);
    let faces = found.mesh.faces.len();
    // Half of the faces, but for those that the two borders of 30 points cut.
    assert!(faces.abs_diff(points.len()) < 90, "{faces}");
    for (vertex, &point) in found.mesh.vertices.iter().zip(&found.point_from_vertex) {
        let off = length(sub(vertex.map(f64::from), points[point as usize]));
        // Rounded to f32 at 1.4.
        assert!(off < 2e-7, "{off}");
        // One cell beyond the border, TAU / 60, at radius 1.4.
        assert!(vertex[1] > -0.25);
    }
}

#[test]
fn a_moebius_band_has_conflicts() {
    let band = |s: f64, t: f64| {
        let (u, width) = (s * TAU, 0.6 * (t - 0.5));
        let r = 1.0 + width * (u / 2.0).cos();
        [r * u.cos(), r * u.sin(), width * (u / 2.0).sin()]
    };
    let points: Vec<Vec3> = (0..80)
        .flat_map(|i| (0..9).map(move |j| (f64::from(i) / 80.0, f64::from(j) / 8.0)))
        .map(|(s, t)| band(s, 0.05 + 0.9 * t))
        .collect();
    let found = surface(&points, &strip(160, 16, band));
    assert!(found.conflicts > 0);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let points = torus_points(12, 6);
    let soup = strip(24, 12, |s, t| on_torus(s * TAU, t * TAU)[0]);
    let bare = delaunay(&points, Want::Tetrahedra).unwrap();
    let refused = restricted(&points, &bare, &soup).unwrap_err();
    assert!(matches!(refused, RestrictedError::Neighbours { neighbours: 0, .. }));
    let full = delaunay(&points, Want::Neighbours).unwrap();
    let refused = restricted(&points[..9], &full, &soup).unwrap_err();
    assert!(matches!(refused, RestrictedError::Stray { .. }));
    let far = soup.iter().map(|t| t.map(|p| add(p, [1e3; 3]))).collect::<Vec<_>>();
    let refused = restricted(&points, &full, &far).unwrap_err();
    assert_eq!(refused, RestrictedError::Apart { triangles: soup.len() });
    let mut broken = soup;
    broken[5][1][2] = f64::NAN;
    let refused = restricted(&points, &full, &broken).unwrap_err();
    assert!(matches!(refused, RestrictedError::UnfitTriangle { index: 5, .. }));
    assert_eq!(
        restricted(&points, &full, &[]).unwrap_err(),
        RestrictedError::Apart { triangles: 0 }
    );
}
