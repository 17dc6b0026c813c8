//! Gradients at the edges of solid triangles.

use super::*;

const INRADIUS_MIN_PX: f64 = 0.01;

const PLACES: [[f64; 2]; 3] = [[7.0, 9.0], [52.0, 14.0], [21.0, 55.0]];

fn corners(opacity: f64) -> [Vertex<f64>; 3] {
    PLACES.map(|px| Vertex { px, inverse_depth: 1.0, opacity, color: [0.5; 3] })
}

#[test]
fn an_opacity_that_is_held_passes_a_gradient_in_strips_alone() {
    let drawn = triangle(&corners(1.0), INRADIUS_MIN_PX).unwrap();
    let hit = drawn.hit(drawn.centre_px, 1e-4).unwrap();
    assert_eq!(hit.alpha, TRIANGLE_ALPHA_MAX);
    let mut sums = TriangleGradient::default();
    let fall_off = FallOff { exponent: 1e-4, strip_px: 1.0 };
    let d = HitGradient { d_alpha: 1.0, d_color: [1.0; 3], d_inverse_depth: 1.0 };
    drawn.hit_bwd(&hit, &fall_off, &d, &mut sums);
    assert_eq!((sums.d_log_opacity, sums.d_shares), (0.0, [0.0; 3]));
    assert_eq!((sums.d_color[0], sums.d_inverse_depth[0]), ([1.0; 3], 1.0));

    // Half a pixel from the edge that faces the third corner.
    let edge = 2;
    let [x, y] = drawn.slopes[edge];
    let per_px = x.hypot(y);
    let along = (1.0 - 0.5 * per_px) / (per_px * per_px);
    let place = [drawn.centre_px[0] + x * along, drawn.centre_px[1] + y * along];
    let hit = drawn.hit(place, 1e-4).unwrap();
    let mut sums = TriangleGradient::default();
    drawn.hit_bwd(&hit, &fall_off, &d, &mut sums);
    assert_eq!((hit.alpha, sums.d_log_opacity), (TRIANGLE_ALPHA_MAX, 0.0));
    // Over the pixel to the edge, all of the largest opacity is lost.
    let expected = -TRIANGLE_ALPHA_MAX / per_px;
    assert!((sums.d_shares[edge] / expected - 1.0).abs() < 1e-12, "{:?}", sums.d_shares);
}

/// Gradients of the corners' places of what a triangle covers, summed over a grid of samples.
fn coverage_bwd(corners: &[Vertex<f64>; 3], fall_off: &FallOff<f64>) -> [[f64; 2]; 3] {
    const PER_PX: u32 = 20;
    let drawn = triangle(corners, INRADIUS_MIN_PX).unwrap();
    let mut sums = TriangleGradient::default();
    let cell = 1.0 / f64::from(PER_PX);
    let d = HitGradient { d_alpha: cell * cell, d_color: [0.0; 3], d_inverse_depth: 0.0 };
    for at in 0..(60 * PER_PX).pow(2) {
        let [column, row] = [at % (60 * PER_PX), at / (60 * PER_PX)];
        let place = [column, row].map(|k| (f64::from(k) + 0.5) * cell);
        if let Some(hit) = drawn.hit(place, fall_off.exponent) {
            drawn.hit_bwd(&hit, fall_off, &d, &mut sums);
        }
    }
    triangle_bwd(corners, INRADIUS_MIN_PX, PlaceGradients::All, &sums).unwrap().map(|d| d.d_px)
}

#[test]
fn strips_along_edges_give_on_average_what_the_covered_area_gives() {
    // The last is held at the largest opacity but in its strips.
    for (opacity, exponent) in [(0.9, 1.0), (0.9, 0.3), (0.9, 1e-4), (1.0, 1e-4)] {
        let corners = corners(opacity);
        // Of all that is covered, what lies above u of the window is (1 - u)² of the area A: the opacity's sum
        // is 2 o A / ((s + 1) (s + 2)).
        let per_area = 2.0 * opacity / ((exponent + 1.0) * (exponent + 2.0));
        let found = coverage_bwd(&corners, &FallOff { exponent, strip_px: 1.0 });
        let exact = coverage_bwd(&corners, &FallOff { exponent, strip_px: 0.0 });
        for i in 0..3 {
            let (from, to) = (PLACES[(i + 1) % 3], PLACES[(i + 2) % 3]);
            let expected = [from[1] - to[1], to[0] - from[0]].map(|d| 0.5 * per_area * d);
            let length = expected[0].hypot(expected[1]);
            let error = |d: [f64; 2]| (d[0] - expected[0]).hypot(d[1] - expected[1]) / length;
            // A strip is 1 px wide, a 15th of the inscribed radius, so it is about that much shorter than its edge.
            assert!(error(found[i]) < 0.08, "{exponent}: {:?}, not {expected:?}", found[i]);
            // Without strips no sample is where the slope of a solid triangle is.
            assert!(exponent > 0.1 || error(exact[i]) > 0.9, "{:?}", exact[i]);
        }
    }
}
