//! Gradients of compositing at the splats, against differences.

use super::super::bin::bin;
use super::*;
use crate::math::random::{RandomStream, RandomUse};
use crate::math::splat::Ellipse;

const SIZE: [u32; 2] = [9, 7];
const PIXELS: usize = 63;

const SETTINGS: Drawing = Drawing {
    inverse_depths: true,
    surface: true,
    background: [0.2, 0.5, 0.9],
    ..Drawing::DEFAULT
};

/// Uniform numbers in -1..1, of which each stream has its own.
fn draws(stream: u64, count: usize) -> Vec<f64> {
    let stream = RandomStream::new(5, stream, RandomUse::Sample);
    (0..count as u64).map(|i| 2.0 * stream.uniform(i) - 1.0).collect()
}

/// Splats so wide that every pixel is blended of all of them: no cut is near.
fn splats() -> Vec<Splat<f64>> {
    let splat = |i: usize| {
        let d = draws(i as u64, 10);
        let (xx, xy, yy) = (0.05 + 0.01 * d[0], 0.01 * d[1], 0.05 + 0.01 * d[2]);
        let det = xx * yy - xy * xy;
        Splat {
            row: i,
            ellipse: Ellipse {
                mean_px: [4.5 + 3.0 * d[3], 3.5 + 2.0 * d[4]],
                depth: 1.5 + d[5],
                cov_px2: [yy / det, -xy / det, xx / det],
                conic: [xx, xy, yy],
                kept: 1.0,
            },
            surfel: None,
            opacity: 0.5 + 0.3 * d[6],
            color: [d[7], d[8], d[9]].map(|c| 0.5 + 0.4 * c),
            surface: [1.5 + d[5], 0.6 * d[8], 0.6 * d[9]],
            pixels: Rect { x0: 0, y0: 0, x1: SIZE[0], y1: SIZE[1] },
            exponent_min: -20.0,
        }
    };
    (0..6).map(splat).collect()
}

/// Of the image, of the inverse depths and of the surface.
fn d_pixels() -> [Vec<f64>; 3] {
    [draws(100, PIXELS * 3), draws(101, PIXELS), draws(102, PIXELS * 3)]
}

fn drawn(splats: &[Splat<f64>]) -> (Bins, Canvas<f64>) {
    let bins = bin(splats, SIZE);
    let canvas = forward(splats, &bins, SIZE, &SETTINGS);
    (bins, canvas)
}

fn gradients(splats: &[Splat<f64>], d_pixels: &[Vec<f64>; 3]) -> Vec<ScreenGradient<f64>> {
    let (bins, canvas) = drawn(splats);
    let [image, inverse_depths, surface] = d_pixels;
    let d_canvas =
        CanvasGradient { image, inverse_depths, inverse_squares: &[], surface, through: &[] };
    backward(splats, &bins, &canvas, d_canvas)
}

#[test]
fn gradients_of_every_channel_agree_with_their_differences() {
    let d_pixels = d_pixels();
    let [d_image, d_depths, d_surface] = &d_pixels;
    let splats = splats();
    let objective = |splats: &[Splat<f64>]| -> f64 {
        let (_, canvas) = drawn(splats);
        let sum = |values: &[f64], d: &[f64]| values.iter().zip(d).map(|(v, d)| v * d).sum::<f64>();
        let channels = canvas.surface.chunks_exact(4).flat_map(|pixel| pixel[..3].to_vec());
        sum(&canvas.image, d_image)
            + sum(&canvas.inverse_depths, d_depths)
            + sum(&channels.collect::<Vec<_>>(), d_surface)
    };
    let found = gradients(&splats, &d_pixels);
    // Curvature leaves 1e-8 of central differences, rounding 1e-16 / 1e-4.
    let step = 1e-4;
    for (i, found) in found.iter().enumerate() {
        let assert_agrees = |name: &str, found: f64, moved: &dyn Fn(&mut Splat<f64>, f64)| {
            let at = |h: f64| {
                let mut splats = splats.clone();
                moved(&mut splats[i], h);
                objective(&splats)
            };
            let expected = (at(step) - at(-step)) / (2.0 * step);
            let error = (found - expected).abs();
            assert!(error < 1e-6 * expected.abs().max(1.0), "{i} {name}: {found} for {expected}");
            assert!(found.abs() > 1e-6, "{i} {name} takes no gradient");
        };
        for k in 0..3 {
            if k < 2 {
                let moved = move |s: &mut Splat<f64>, h| s.ellipse.mean_px[k] += h;
                assert_agrees("mean", found.d_mean_px[k], &moved);
            }
            // The conic is small, and the exponent steep in it.
            let moved = move |s: &mut Splat<f64>, h: f64| s.ellipse.conic[k] += 0.01 * h;
            assert_agrees("conic", 0.01 * found.d_conic[k], &moved);
            assert_agrees("color", found.d_color[k], &move |s, h| s.color[k] += h);
            assert_agrees("surface", found.d_surface[k], &move |s, h| s.surface[k] += h);
        }
        assert_agrees("opacity", found.d_opacity, &|s, h| s.opacity += h);
        let moved = |s: &mut Splat<f64>, h| s.ellipse.depth = 1.0 / (1.0 / s.ellipse.depth + h);
        // A move of the depth changes no order: bins are of the same splats, whose depths lie apart.
        assert_agrees("inverse depth", found.d_inverse_depth, &moved);
    }
}

#[test]
fn absolute_gradients_are_what_each_pixel_gives_by_itself() {
    let d_pixels = d_pixels();
    let splats = splats();
    let found = gradients(&splats, &d_pixels);
    let mut expected = vec![[0.0; 2]; splats.len()];
    for pixel in 0..PIXELS {
        let mut alone = d_pixels.clone();
        for values in &mut alone {
            let width = values.len() / PIXELS;
            values[..pixel * width].fill(0.0);
            values[(pixel + 1) * width..].fill(0.0);
        }
        for (sum, gradient) in expected.iter_mut().zip(gradients(&splats, &alone)) {
            for (sum, d) in sum.iter_mut().zip(gradient.d_mean_px) {
                *sum += d.abs();
            }
        }
    }
    for (found, expected) in found.iter().zip(&expected) {
        for axis in 0..2 {
            // Rounding of 63 terms in another order.
            let error = (found.d_mean_abs[axis] - expected[axis]).abs();
            assert!(error < 1e-12 * expected[axis], "{found:?} for {expected:?}");
            assert!(
                found.d_mean_px[axis].abs() < 0.9 * expected[axis],
                "nothing cancels: {found:?}"
            );
        }
    }
}

#[test]
fn inverse_depths_are_drawn_where_they_are_asked_for_over_nothing() {
    let splats = splats();
    let bins = bin(&splats, SIZE);
    let map = |settings: &Drawing| forward(&splats, &bins, SIZE, settings).inverse_depths;
    assert_eq!(map(&SETTINGS).len(), PIXELS);
    assert!(map(&Drawing { inverse_depths: false, ..SETTINGS }).is_empty());
    let alone = &splats[..1];
    let canvas = forward(alone, &bin(alone, SIZE), SIZE, &SETTINGS);
    let mut white = alone.to_vec();
    white[0].color = [1.0; 3];
    let black = Drawing { background: [0.0; 3], ..SETTINGS };
    let weights = forward(&white, &bin(&white, SIZE), SIZE, &black).image;
    for (inverse_depth, weight) in canvas.inverse_depths.iter().zip(weights.chunks_exact(3)) {
        // One rounding of each factor.
        assert!((inverse_depth - weight[0] / alone[0].ellipse.depth).abs() < 1e-15);
    }
    let nothing = forward::<f64>(&[], &bin::<f64>(&[], SIZE), SIZE, &SETTINGS);
    assert_eq!(nothing.inverse_depths, vec![0.0; PIXELS]);
}

#[test]
fn surface_maps_are_drawn_on_request_and_hold_the_opacity() {
    let splats = splats();
    let bins = bin(&splats, SIZE);
    let map = |settings: &Drawing| forward(&splats, &bins, SIZE, settings).surface;
    assert_eq!(map(&SETTINGS).len(), PIXELS * 4);
    assert!(map(&Drawing { surface: false, ..SETTINGS }).is_empty());
    assert!(map(&Drawing { surface: false, ..SETTINGS }).is_empty());
    let mut white = splats.clone();
    for splat in &mut white {
        splat.color = [1.0; 3];
    }
    let black = Drawing { background: [0.0; 3], ..SETTINGS };
    let weights = forward(&white, &bins, SIZE, &black).image;
    for (pixel, weight) in map(&SETTINGS).chunks_exact(4).zip(weights.chunks_exact(3)) {
        // The sum of the weights and 1 less the product of what passes differ by rounding.
        assert!((pixel[3] - weight[0]).abs() < 1e-14, "{} for {}", pixel[3], weight[0]);
    }
}
