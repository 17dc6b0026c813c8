use super::*;
use crate::math::blend::exponent;
use crate::math::linalg::{cross, rotation, sub};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::splat::{Rect, Spans, TILE, cover, reach_px};

const SIZE: [u32; 2] = [160, 120];
pub(super) const INRADIUS_MIN_PX: f64 = 0.01;

/// A camera that is turned and stands beside the origin.
fn view() -> Viewpoint<f64> {
    Viewpoint {
        rotation: rotation([0.9, 0.1, -0.2, 0.05]),
        translation: [0.1, -0.2, 3.0],
        centre_world: [0.0; 3],
        focal_px: [210.0, 190.0],
        centre_px: [80.0, 61.5],
        size: SIZE,
        near: 0.2,
        variance_px2: 0.0,
        compensates: false,
    }
}

/// Uniform numbers in -1..1, of which each stream has its own.
pub(super) struct Draws(RandomStream, u64);

impl Draws {
    pub(super) fn new(stream: u64) -> Self {
        Self(RandomStream::new(9, stream, RandomUse::Initialise), 0)
    }

    fn next(&mut self) -> f64 {
        self.1 += 1;
        2.0 * self.0.uniform(self.1) - 1.0
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * 0.5 * (self.next() + 1.0)
    }
}

/// Corners of both orientations about a place in the image: from a pixel to far larger than it, and slivers.
pub(super) fn triangles() -> Vec<[Vertex<f64>; 3]> {
    let of = |(k, size): (u64, f64)| {
        let mut draws = Draws::new(k);
        let middle = [draws.within(20.0, 140.0), draws.within(15.0, 105.0)];
        let width = if k.is_multiple_of(3) { 0.02 } else { 1.0 };
        let along = [draws.next(), draws.next()];
        [0; 3].map(|_| {
            let (a, b) = (size * draws.next(), size * width * draws.next());
            let px =
                [middle[0] + a * along[0] - b * along[1], middle[1] + a * along[1] + b * along[0]];
            Vertex {
                px,
                inverse_depth: draws.within(0.1, 3.0),
                opacity: draws.within(0.3, 0.9),
                color: [0; 3].map(|_| draws.within(0.0, 1.0)),
            }
        })
    };
    (0..160).zip([0.7, 3.0, 20.0, 400.0].into_iter().cycle()).map(of).collect()
}

pub(super) fn cross2(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// Barycentric weights by areas.
fn weights([a, b, c]: [[f64; 2]; 3], p: [f64; 2]) -> [f64; 3] {
    let area = cross2(a, b, c);
    [cross2(p, b, c) / area, cross2(a, p, c) / area, cross2(a, b, p) / area]
}

/// A place inside, by its weights.
pub(super) fn inside(corners: &[Vertex<f64>; 3], draws: &mut Draws) -> ([f64; 2], [f64; 3]) {
    let raw = [0; 3].map(|_| draws.within(0.02, 1.0));
    let shares = raw.map(|w| w / raw.iter().sum::<f64>());
    let px = [0, 1].map(|axis| (0..3).map(|i| shares[i] * corners[i].px[axis]).sum());
    (px, shares)
}

#[test]
fn what_is_linear_between_the_corners_is_what_their_weights_say() {
    let (mut orientations, mut seen) = ([0; 2], 0);
    for (k, corners) in (0..).zip(triangles()) {
        let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
        let px = corners.map(|corner| corner.px);
        orientations[usize::from(cross2(px[0], px[1], px[2]) > 0.0)] += 1;
        let mut draws = Draws::new(1000 + k);
        for _ in 0..20 {
            let (place, shares) = inside(&corners, &mut draws);
            let found = weights(px, place);
            assert!((0..3).all(|i| (found[i] - shares[i]).abs() < 1e-6), "{found:?} {shares:?}");
            let Some(hit) = triangle.hit(place, 0.3) else { continue };
            let color = triangle.color_at(&hit);
            for (channel, found) in color.into_iter().enumerate() {
                let of_corner = |i: usize| shares[i] * corners[i].color[channel];
                assert!((found - (0..3).map(of_corner).sum::<f64>()).abs() < 1e-6);
            }
            let inverse_depth: f64 = (0..3).map(|i| shares[i] * corners[i].inverse_depth).sum();
            assert!((triangle.inverse_depth_at(&hit) - inverse_depth).abs() < 1e-6);
            seen += 1;
        }
    }
    assert!(orientations.iter().all(|&n| n > 20) && seen > 1000, "{orientations:?} {seen}");
}

#[test]
fn opacity_falls_towards_the_nearest_edge_by_the_distance_to_it() {
    for (k, corners) in (0..).zip(triangles()) {
        let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
        let least = corners.iter().map(|corner| corner.opacity).fold(1.0, f64::min);
        let middle = triangle.hit(triangle.centre_px, 1.0).unwrap();
        assert!((middle.alpha - least).abs() < 1e-12);
        let px = corners.map(|corner| corner.px);
        let distance = |p: [f64; 2], i: usize| {
            let (a, b) = (px[(i + 1) % 3], px[(i + 2) % 3]);
            cross2(a, b, p) / (b[0] - a[0]).hypot(b[1] - a[1])
        };
        let nearest = |p| (0..3).map(|i| distance(p, i).abs()).fold(f64::INFINITY, f64::min);
        let radius = nearest(triangle.centre_px);
        let mut draws = Draws::new(2000 + k);
        for exponent in [1.0, 0.3, 1e-4] {
            let (place, _) = inside(&corners, &mut draws);
            let expected = least * (nearest(place) / radius).powf(exponent);
            match triangle.hit(place, exponent) {
                Some(hit) => assert!((hit.alpha - expected).abs() < 1e-6, "{expected}"),
                None => assert!(expected < ALPHA_MIN + 1e-6, "{expected}"),
            }
            // As far beyond the nearest edge as the circle is large there is nothing.
            let opposite = [0, 1].map(|axis| 2.0 * px[0][axis] - triangle.centre_px[axis]);
            assert!(triangle.hit(opposite, exponent).is_none());
        }
    }
}

#[test]
fn an_inverse_depth_is_that_of_the_ray_through_the_plane() {
    let view = view();
    let (mut draws, mut seen) = (Draws::new(1), 0);
    for _ in 0..60 {
        let worlds = [0; 3].map(|_| [0; 3].map(|_| draws.next()));
        let placed = worlds.map(|world| place_vertex(&view, world).unwrap());
        let corners = placed.map(|(px, inverse_depth)| Vertex {
            px,
            inverse_depth,
            opacity: 0.8,
            color: [0.5; 3],
        });
        let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
        let cams = worlds.map(|world| add(mul(&view.rotation, world), view.translation));
        let normal = cross(sub(cams[1], cams[0]), sub(cams[2], cams[0]));
        for _ in 0..10 {
            let (place, _) = inside(&corners, &mut draws);
            let slope = |axis: usize| (place[axis] - view.centre_px[axis]) / view.focal_px[axis];
            let depth = dot(normal, cams[0]) / dot(normal, [slope(0), slope(1), 1.0]);
            let Some(hit) = triangle.hit(place, 1e-4) else { continue };
            let found = triangle.inverse_depth_at(&hit);
            assert!((found * depth - 1.0).abs() < 1e-9, "{found} {depth}");
            seen += 1;
        }
    }
    assert!(seen > 300, "{seen}");
}

/// Relative to the largest that they may be.
pub(super) fn assert_near(found: f64, expected: f64, scale: f64, what: &str) {
    let error = (found - expected).abs() / (scale + expected.abs());
    assert!(error < 1e-6, "{what}: {found} against {expected}, error {error:.1e}");
}

/// By five-point differences over a share of the value's scale.
pub(super) fn difference(scale: f64, f: impl Fn(f64) -> f64) -> f64 {
    let h = 1e-4 * scale;
    (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h)
}

/// A sum over samples with fixed weights of what is blended of a triangle.
fn value(triangle: &Triangle<f64>, places: &[[f64; 2]], exponent: f64) -> f64 {
    let of_place = |(k, &place): (usize, &[f64; 2])| {
        let hit = triangle.hit(place, exponent).unwrap();
        let k = k as f64;
        (0.7 - 0.1 * k) * hit.alpha
            + dot([0.3, -0.2 * k, 0.5], triangle.color_at(&hit))
            + (0.2 + 0.1 * k) * triangle.inverse_depth_at(&hit)
    };
    places.iter().enumerate().map(of_place).sum()
}

fn value_bwd(
    triangle: &Triangle<f64>,
    places: &[[f64; 2]],
    exponent: f64,
) -> TriangleGradient<f64> {
    let mut sums = TriangleGradient::default();
    for (k, &place) in places.iter().enumerate() {
        let hit = triangle.hit(place, exponent).unwrap();
        let k = k as f64;
        let d = HitGradient {
            d_alpha: 0.7 - 0.1 * k,
            d_color: [0.3, -0.2 * k, 0.5],
            d_inverse_depth: 0.2 + 0.1 * k,
        };
        let fall_off = FallOff { exponent, strip_px: 0.0 };
        triangle.hit_bwd(&hit, &fall_off, &d, &mut sums);
    }
    sums
}

/// Least distance between the shares of a place, relative to what is left: where two are equal there is a kink.
pub(super) fn from_kink(triangle: &Triangle<f64>, place: [f64; 2]) -> f64 {
    let d = [place[0] - triangle.centre_px[0], place[1] - triangle.centre_px[1]];
    let mut left = triangle.slopes.map(|[x, y]| 1.0 - (x * d[0] + y * d[1]));
    left.sort_by(f64::total_cmp);
    (left[1] - left[0]).min(left[0])
}

#[test]
fn gradients_are_those_of_differences() {
    let (mut compared, mut narrow) = (0, 0);
    for (k, corners) in (0..).zip(triangles()) {
        for exponent in [1.0, 0.4, 0.05] {
            let Some(drawn) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
            let mut draws = Draws::new(3000 + k);
            let places: Vec<[f64; 2]> = (0..60)
                .map(|_| inside(&corners, &mut draws).0)
                .filter(|&place| from_kink(&drawn, place) > 0.05)
                .filter(|&place| drawn.hit(place, exponent).is_some())
                .take(5)
                .collect();
            let opacities = corners.map(|corner| corner.opacity);
            let apart = |i: usize| (opacities[i] - opacities[(i + 1) % 3]).abs();
            if places.len() < 5 || (0..3).any(|i| apart(i) < 1e-3) {
                continue;
            }
            let sums = value_bwd(&drawn, &places, exponent);
            let found =
                triangle_bwd(&corners, INRADIUS_MIN_PX, PlaceGradients::All, &sums).unwrap();
            let shifted = |i: usize, scale: f64, change: &dyn Fn(&mut Vertex<f64>, f64)| {
                difference(scale, |h| {
                    let mut moved = corners;
                    change(&mut moved[i], h);
                    value(&triangle(&moved, INRADIUS_MIN_PX).unwrap(), &places, exponent)
                })
            };
            // What moves by as much as the triangle is wide changes by about its value.
            let slopes = drawn.slopes.as_flattened();
            let inradius_px = 1.0 / slopes.iter().map(|m| m.abs()).fold(0.0, f64::max);
            narrow += usize::from(inradius_px < 0.05 * reach_px(&corners));
            for (i, d) in found.iter().enumerate() {
                for axis in 0..2 {
                    let expected = shifted(i, inradius_px, &|v, h| v.px[axis] += h);
                    assert_near(d.d_px[axis], expected, 1.0 / inradius_px, "place");
                }
                let expected = shifted(i, 1.0, &|v, h| v.opacity += h);
                assert_near(d.d_opacity, expected, 1.0, "opacity");
                let expected = shifted(i, 1.0, &|v, h| v.inverse_depth += h);
                assert_near(d.d_inverse_depth, expected, 1.0, "inverse depth");
                for c in 0..3 {
                    let expected = shifted(i, 1.0, &|v, h| v.color[c] += h);
                    assert_near(d.d_color[c], expected, 1.0, "colour");
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 200 && narrow > 20, "{compared} {narrow}");
}

#[test]
fn gradients_of_places_are_those_of_differences() {
    let (view, mut draws) = (view(), Draws::new(2));
    for _ in 0..50 {
        let world = [0; 3].map(|_| draws.next());
        let (d_px, d_inverse_depth) = ([draws.next(), draws.next()], draws.next());
        let found = place_vertex_bwd(&view, world, d_px, d_inverse_depth).unwrap();
        for k in 0..3 {
            let expected = difference(1.0, |h| {
                let mut moved = world;
                moved[k] += h;
                let (px, inverse_depth) = place_vertex(&view, moved).unwrap();
                px[0] * d_px[0] + px[1] * d_px[1] + inverse_depth * d_inverse_depth
            });
            assert_near(found[k], expected, 1.0, "world");
        }
    }
}

#[test]
fn a_cover_contains_every_pixel_that_has_a_sample_inside() {
    let (mut seen, mut without_centre) = (0, 0);
    for corners in triangles() {
        let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
        let covered = cover(&corners, SIZE);
        for y in 0..SIZE[1] {
            for x in 0..SIZE[0] {
                let sample = |k: u32| {
                    [(x, k % 4), (y, k / 4)].map(|(p, i)| f64::from(p) + (f64::from(i) + 0.5) / 4.0)
                };
                if !(0..16).any(|k| triangle.hit(sample(k), 1e-4).is_some()) {
                    continue;
                }
                seen += 1;
                let (ellipse, bounds) = covered.unwrap();
                let centre = [x, y].map(|p| f64::from(p) + 0.5);
                without_centre += usize::from(triangle.hit(centre, 1e-4).is_none());
                let d = [centre[0] - ellipse.mean_px[0], centre[1] - ellipse.mean_px[1]];
                assert!(exponent(ellipse.conic, d) > bounds.exponent_min, "{corners:?} {x} {y}");
                let Rect { x0, y0, x1, y1 } = bounds.pixels;
                assert!((x0..x1).contains(&x) && (y0..y1).contains(&y));
                let row = y / TILE * TILE;
                let spans = Spans::new(&ellipse, bounds.exponent_min, SIZE);
                let columns = spans.columns(row..(row + TILE).min(SIZE[1]));
                assert!(columns.contains(&x), "{columns:?} {x}");
            }
        }
    }
    assert!(seen > 10_000 && without_centre > 100, "{seen} {without_centre}");
}

#[test]
fn a_long_sliver_is_listed_in_single_precision() {
    for turn in 0..40 {
        let (sin, cos) = (f64::from(turn) * 0.11).sin_cos();
        let at = |along: f64, across: f64| {
            [80.0 + along * cos - across * sin, 60.0 + along * sin + across * cos]
        };
        let corners = [at(-7000.0, -0.3), at(9000.0, 0.0), at(-7000.0, 0.3)].map(|px| Vertex {
            px: px.map(f64::to_f32),
            inverse_depth: 1.0,
            opacity: 1.0,
            color: [0.5; 3],
        });
        let triangle = triangle(&corners, 0.01).unwrap();
        let (ellipse, bounds) = cover(&corners, SIZE).unwrap();
        let spans = Spans::new(&ellipse, bounds.exponent_min, SIZE);
        for y in 0..SIZE[1] {
            let row = y / TILE * TILE;
            let columns = spans.columns(row..(row + TILE).min(SIZE[1]));
            for x in 0..SIZE[0] {
                let centre = [x, y].map(|p| p as f32 + 0.5);
                let is_seen = triangle.hit(centre, 1e-4).is_some();
                assert!(!is_seen || columns.contains(&x), "{turn} {x} {y}");
            }
        }
    }
}

#[test]
fn what_is_behind_the_camera_or_not_finite_is_not_placed() {
    let view = Viewpoint { rotation: rotation([1.0, 0.0, 0.0, 0.0]), ..view() };
    let at = |z: f64| place_vertex(&view, [0.1, 0.2, z]);
    assert!(at(-2.7).is_some() && at(-2.85).is_none() && at(-5.0).is_none());
    assert!(at(f64::NAN).is_none() && at(f64::INFINITY).is_none());
    assert!(place_vertex(&view, [f64::INFINITY, 0.0, 0.0]).is_none());
    assert!(place_vertex_bwd(&view, [0.1, 0.2, -5.0], [1.0; 2], 1.0).is_none());
}

#[test]
fn what_has_no_width_no_opacity_or_no_pixel_is_not_seen() {
    let at = |px: [[f64; 2]; 3], opacity: f64| {
        px.map(|px| Vertex { px, inverse_depth: 1.0, opacity, color: [0.5; 3] })
    };
    let fine = [[10.0, 10.0], [20.0, 11.0], [14.0, 19.0]];
    assert!(triangle(&at(fine, 0.5), INRADIUS_MIN_PX).is_some());
    assert!(triangle(&at(fine, 0.003), INRADIUS_MIN_PX).is_none());
    assert!(triangle(&at(fine, f64::NAN), INRADIUS_MIN_PX).is_none());
    let from_edge = [[10.0, 10.0], [20.0, 20.0], [14.0, 14.0 + 1e-3]];
    assert!(triangle(&at(from_edge, 0.5), INRADIUS_MIN_PX).is_none());
    assert!(triangle(&at([[10.0; 2]; 3], 0.5), 0.0).is_none());
    for value in [f64::NAN, f64::INFINITY, 1e200] {
        let broken = at([[10.0, 10.0], [20.0, value], [14.0, 19.0]], 0.5);
        assert!(triangle(&broken, INRADIUS_MIN_PX).is_none());
        let d = TriangleGradient::default();
        assert!(triangle_bwd(&broken, INRADIUS_MIN_PX, PlaceGradients::All, &d).is_none());
    }
    let beside = fine.map(|[x, y]| [x - 30.0, y]);
    assert!(cover(&at(fine, 0.5), SIZE).is_some() && cover(&at(beside, 0.5), SIZE).is_none());
    let below = fine.map(|[x, y]| [x, y + 120.0]);
    assert!(cover(&at(below, 0.5), SIZE).is_none());
}
