//! The gradients of places by distances to edges alone, against differences of what they are the gradients of.

use super::tests::{
    Draws, INRADIUS_MIN_PX, assert_near, cross2, difference, from_kink, inside, triangles,
};
use super::*;

/// Distance of a place inside from the edge that faces corner `i`, px.
fn distance(px: &[[f64; 2]; 3], place: [f64; 2], i: usize) -> f64 {
    let (a, b) = (px[(i + 1) % 3], px[(i + 2) % 3]);
    (cross2(a, b, place) / (b[0] - a[0]).hypot(b[1] - a[1])).abs()
}

#[test]
fn with_the_circle_held_only_distances_to_edges_move_corners() {
    let mut compared = 0;
    for (k, corners) in (0..).zip(triangles()) {
        let Some(drawn) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
        let mut draws = Draws::new(4000 + k);
        let exponent = 0.6;
        let places: Vec<[f64; 2]> = (0..60)
            .map(|_| inside(&corners, &mut draws).0)
            .filter(|&place| from_kink(&drawn, place) > 0.05)
            .filter(|&place| drawn.hit(place, exponent).is_some())
            .take(4)
            .collect();
        if places.len() < 4 {
            continue;
        }
        let px = corners.map(|corner| corner.px);
        let inradius_px = distance(&px, drawn.centre_px, 0);
        let nearest = |place: &[f64; 2]| {
            let all = [0, 1, 2].map(|i| distance(&px, *place, i));
            if all[0] < all[1].min(all[2]) {
                0
            } else if all[1] < all[2] {
                1
            } else {
                2
            }
        };
        let edges: Vec<usize> = places.iter().map(nearest).collect();
        let mut sums = TriangleGradient::default();
        for &place in &places {
            let hit = drawn.hit(place, exponent).unwrap();
            // Gradients of colours and depths are there, and move no corner.
            let d = HitGradient { d_alpha: 0.7, d_color: [0.3, -0.2, 0.5], d_inverse_depth: 0.4 };
            drawn.hit_bwd(&hit, &FallOff { exponent, strip_px: 0.0 }, &d, &mut sums);
        }
        let by = |gradients| triangle_bwd(&corners, INRADIUS_MIN_PX, gradients, &sums).unwrap();
        let found = by(PlaceGradients::EdgeDistances);
        let value = |moved: &[[f64; 2]; 3]| -> f64 {
            let of = |(place, &edge): (&[f64; 2], &usize)| {
                let left = distance(moved, *place, edge) / inradius_px;
                0.7 * drawn.opacity * left.powf(exponent)
            };
            places.iter().zip(&edges).map(of).sum()
        };
        for (i, d) in found.iter().enumerate() {
            for axis in 0..2 {
                let expected = difference(inradius_px, |h| {
                    let mut moved = px;
                    moved[i][axis] += h;
                    value(&moved)
                });
                assert_near(d.d_px[axis], expected, 1.0 / inradius_px, "place");
            }
            let whole = &by(PlaceGradients::All)[i];
            assert_eq!((d.d_color, d.d_opacity), (whole.d_color, whole.d_opacity));
            assert_eq!(d.d_inverse_depth, whole.d_inverse_depth);
        }
        compared += 1;
    }
    // Of 160 triangles a half and more are wide enough for four samples away from where two edges are equally near.
    assert!(compared > 60, "{compared}");
}
