use super::*;
use crate::math::linalg::{normalize, sub};
use crate::math::random::{RandomStream, RandomUse};

/// A camera that is turned and stands beside the origin.
fn view() -> Viewpoint<f64> {
    Viewpoint {
        rotation: rotation([0.9, 0.1, -0.2, 0.05]),
        translation: [0.1, -0.2, 3.0],
        centre_world: [0.0; 3],
        focal_px: [210.0, 190.0],
        centre_px: [80.0, 61.5],
        size: [160, 120],
        near: 0.2,
        variance_px2: 0.0,
        compensates: false,
    }
}

/// Flat Gaussians in front of the camera, of sizes from a tenth of a pixel to half of the image.
fn shapes() -> Vec<Shape<f64>> {
    let stream = RandomStream::new(5, 0, RandomUse::Initialise);
    let draw =
        |i: u64, k: u64, low: f64, high: f64| low + (high - low) * stream.uniform(i * 16 + k);
    (0..200)
        .map(|i| Shape {
            mean_world: [0, 1, 2].map(|k| draw(i, k, -0.8, 0.8)),
            log_scale: [draw(i, 3, -6.5, -0.8), draw(i, 4, -6.5, -0.8), draw(i, 5, -20.0, 3.0)],
            quat: [6, 7, 8, 9].map(|k| draw(i, k, -1.0, 1.0)),
            smoothing: 0.0,
        })
        .collect()
}

/// Offsets from the centre of a surfel, up to the border of the image.
fn offsets(i: u64) -> impl Iterator<Item = [f64; 2]> {
    let stream = RandomStream::new(6, i, RandomUse::Initialise);
    (0..40).map(move |k| {
        let size = 60.0 * stream.uniform(3 * k + 2).powi(3);
        [0, 1].map(|axis| (2.0 * stream.uniform(3 * k + axis) - 1.0) * size)
    })
}

#[test]
fn a_ray_meets_a_surfel_where_it_meets_its_plane() {
    let view = view();
    let mut met = 0;
    for (i, shape) in (0..).zip(shapes()) {
        let Some(surfel) = project_surfel(&view, &shape) else { continue };
        let axes = mat_mul(&view.rotation, &rotation(shape.quat));
        let [first, second, normal] = [0, 1, 2].map(|axis| axes.map(|row| row[axis]));
        let mean = add(mul(&view.rotation, shape.mean_world), view.translation);
        for offset in offsets(i) {
            let meeting = surfel.meet(offset);
            let Some([u, v]) = meeting.on_disc else { continue };
            let ray = [
                (surfel.mean_px[0] + offset[0] - view.centre_px[0]) / view.focal_px[0],
                (surfel.mean_px[1] + offset[1] - view.centre_px[1]) / view.focal_px[1],
                1.0,
            ];
            let depth = dot(normal, mean) / dot(normal, ray);
            let on_plane = sub(scale(ray, depth), mean);
            let expected = [
                dot(on_plane, first) / shape.log_scale[0].exp(),
                dot(on_plane, second) / shape.log_scale[1].exp(),
            ];
            // Rounding of intersections at grazing angles.
            let tolerance = 1e-8 * (1.0 + u.abs() + v.abs());
            assert!((u - expected[0]).abs() < tolerance && (v - expected[1]).abs() < tolerance);
            let shown = meeting.depth_share * surfel.depth;
            assert!((shown / depth - 1.0).abs() < 1e-9, "{shown} {depth}");
            met += 1;
        }
    }
    assert!(met > 1000, "{met}");
}

#[test]
fn what_is_behind_the_camera_or_smaller_than_a_pixel_is_the_filters() {
    let tilted = Surfel {
        mean_px: [0.0; 2],
        depth: 2.0,
        along_u: [0.01, 0.0],
        along_v: [0.0, 0.01],
        tilt: [0.02, 0.0],
    };
    // At an offset of -60 px the plane is behind the camera.
    let meeting = tilted.meet([-60.0, 0.0]);
    assert!(meeting.on_disc.is_none());
    assert!((meeting.exponent + 3600.0).abs() < 1e-12 && meeting.depth_share == 1.0);
    let tiny = Surfel { along_u: [50.0, 0.0], along_v: [0.0, 50.0], ..tilted };
    // exp(-d²) is a Gaussian of variance one half.
    assert!((tiny.meet([0.3, 0.4]).exponent + 0.25).abs() < 1e-15);
}

/// What the gradients are tested on: a sum over meetings with fixed weights, and over the surfel's own
/// depth.
fn value(surfel: &Surfel<f64>, places: &[[f64; 2]]) -> f64 {
    let of_place = |(k, place): (usize, &[f64; 2])| {
        let offset = [place[0] - surfel.mean_px[0], place[1] - surfel.mean_px[1]];
        let meeting = surfel.meet(offset);
        let weight = 0.3 + 0.1 * k as f64;
        weight * meeting.exponent.exp()
            + 0.2 * surfel.depth * meeting.depth_share
            + 0.1 / (surfel.depth * meeting.depth_share)
    };
    places.iter().enumerate().map(of_place).sum()
}

fn value_bwd(surfel: &Surfel<f64>, places: &[[f64; 2]]) -> SurfelGradient<f64> {
    let mut sums = SurfelGradient::default();
    for (k, place) in places.iter().enumerate() {
        let offset = [place[0] - surfel.mean_px[0], place[1] - surfel.mean_px[1]];
        let meeting = surfel.meet(offset);
        let weight = 0.3 + 0.1 * k as f64;
        let (depth, share) = (surfel.depth, meeting.depth_share);
        let d_depth_here = 0.2 - 0.1 / (depth * share).powi(2);
        sums.d_depth += d_depth_here * share;
        let d_inverse_share = -d_depth_here * depth * share * share;
        let d_exponent = weight * meeting.exponent.exp();
        surfel.meet_bwd(offset, &meeting, d_exponent, d_inverse_share, &mut sums);
    }
    sums
}

#[test]
fn gradients_are_those_of_differences() {
    let view = view();
    let (mut compared, mut on_discs) = (0, 0);
    for shape in shapes() {
        let Some(surfel) = project_surfel(&view, &shape) else { continue };
        let places: Vec<[f64; 2]> = [[0.4, -0.3], [2.1, 1.2], [-1.4, 0.7], [0.1, 0.2]]
            .map(|offset: [f64; 2]| [surfel.mean_px[0] + offset[0], surfel.mean_px[1] + offset[1]])
            .to_vec();
        // Where disc and filter are equal there is a kink.
        let is_at_kink = places.iter().any(|place| {
            let offset = [place[0] - surfel.mean_px[0], place[1] - surfel.mean_px[1]];
            let filtered = -(offset[0] * offset[0] + offset[1] * offset[1]);
            let disc = {
                let along = |s: [f64; 2]| s[0] * offset[0] + s[1] * offset[1];
                let inverse = 1.0 + along(surfel.tilt);
                -0.5 * (along(surfel.along_u).powi(2) + along(surfel.along_v).powi(2))
                    / (inverse * inverse)
            };
            (disc - filtered).abs() < 1e-3 * filtered.abs()
        });
        if is_at_kink || surfel.along_u[0].abs() + surfel.along_v[0].abs() > 40.0 {
            continue;
        }
        on_discs += usize::from(surfel.meet([0.4, -0.3]).on_disc.is_some());
        let d = project_surfel_bwd(&view, &shape, &value_bwd(&surfel, &places)).unwrap();
        let shifted = |change: &dyn Fn(&mut Shape<f64>, f64)| {
            let at = |h: f64| {
                let mut moved = shape;
                change(&mut moved, h);
                value(&project_surfel(&view, &moved).unwrap(), &places)
            };
            let h = 1e-6;
            (at(h) - at(-h)) / (2.0 * h)
        };
        for k in 0..3 {
            let means = shifted(&|s, h| s.mean_world[k] += h);
            assert_near(d.d_mean_world[k], means);
            assert_near(d.d_log_scale[k], shifted(&|s, h| s.log_scale[k] += h));
        }
        for k in 0..4 {
            assert_near(d.d_quat[k], shifted(&|s, h| s.quat[k] += h));
        }
        compared += 1;
    }
    assert!(compared > 100 && on_discs > 50, "{compared} {on_discs}");
}

/// 1e-5 of the value: differences over 1e-6 have an error of its square times the third derivative, which
/// is large of a surfel that is small against its distance.
fn assert_near(found: f64, expected: f64) {
    let tolerance = 1e-5 * (1.0 + expected.abs());
    assert!((found - expected).abs() < tolerance, "{found} {expected}");
}

#[test]
fn a_cover_contains_all_that_is_seen() {
    let view = view();
    let (mut covered, mut seen) = (0, 0);
    for (i, shape) in (0..).zip(shapes()) {
        let Some(surfel) = project_surfel(&view, &shape) else { continue };
        for exponent_min in [-0.5, -2.0, -5.5] {
            let Some(cover) = surfel.cover(exponent_min) else { continue };
            covered += 1;
            for offset in offsets(i) {
                if surfel.meet(offset).exponent < exponent_min {
                    continue;
                }
                seen += 1;
                let d = [
                    surfel.mean_px[0] + offset[0] - cover.mean_px[0],
                    surfel.mean_px[1] + offset[1] - cover.mean_px[1],
                ];
                let inside = crate::math::blend::exponent(cover.conic, d);
                assert!(inside >= exponent_min * (1.0 + 1e-9), "{inside} {exponent_min}");
            }
        }
    }
    assert!(covered > 300 && seen > 1000, "{covered} {seen}");
}

#[test]
fn a_large_disc_is_covered_tightly() {
    // Seen from the front there is no perspective: the cover is the disc itself.
    let surfel = Surfel {
        mean_px: [10.0, 20.0],
        depth: 2.0,
        along_u: [0.1, 0.0],
        along_v: [0.0, 0.2],
        tilt: [0.0; 2],
    };
    let cover = surfel.cover(-4.0).unwrap();
    assert!((cover.cov_px2[0] - 100.0).abs() < 1e-9 && (cover.cov_px2[2] - 25.0).abs() < 1e-9);
    assert_eq!(cover.mean_px, surfel.mean_px);
}

#[test]
fn what_reaches_behind_the_camera_or_is_seen_from_its_edge_is_not_seen() {
    let view = Viewpoint { rotation: rotation([1.0, 0.0, 0.0, 0.0]), ..view() };
    let shape = Shape {
        mean_world: [0.0, 0.3, -2.0],
        log_scale: [0.0, 0.0, 0.0],
        // The disc lies level: its second axis is along the view.
        quat: [0.5_f64.sqrt(), 0.5_f64.sqrt(), 0.0, 0.0],
        smoothing: 0.0,
    };
    let level = project_surfel(&view, &shape).unwrap();
    assert!(level.cover(-5.0).is_none());
    let small = Shape { log_scale: [-3.0; 3], ..shape };
    assert!(project_surfel(&view, &small).unwrap().cover(-5.0).is_some());
    // The camera's centre is in its plane.
    let from_edge = Shape { mean_world: [-0.1, 0.2, -2.0], ..small };
    assert!(project_surfel(&view, &from_edge).is_none());
    let towards = normalize(add(shape.mean_world, view.translation));
    assert!(towards[2] > 0.0);
}

#[test]
fn the_third_scale_says_nothing() {
    let view = view();
    for shape in shapes().into_iter().take(20) {
        let log_scale = [shape.log_scale[0], shape.log_scale[1], f64::NEG_INFINITY];
        let other = Shape { log_scale, ..shape };
        let [a, b] = [shape, other].map(|s| project_surfel(&view, &s).map(|s| s.along_u));
        assert_eq!(a, b);
    }
}
