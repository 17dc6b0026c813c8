//! Surfels: gradients against differences, and drawn images against the definition.

use splat::backend::Extra;
use splat::math::linalg::{add, dot, mul, rotation, scale, sub};
use splat::math::{sh, sigmoid};

use crate::common::prelude::*;
use crate::common::scene::target;

/// Returns surfels turned from the camera by at most about twice `turn` radians, all but the first in front of the
/// common view.
fn facing(seed: u64, log_scales: [f64; 2], turn: f64) -> Gaussians {
    let mut draws = Draws::new(seed);
    let mut surfels = nine(&mut draws, log_scales);
    for quat in surfels.quats.as_chunks_mut::<4>().0 {
        let [x, y] = draws.array::<2>(-turn, turn);
        let spin = draws.uniform(-0.5, 0.5);
        *quat = [1.0, x, y, spin].map(f64::to_f32);
    }
    for value in &mut surfels.sh_rest {
        *value = draws.uniform(-0.2, 0.2).to_f32();
    }
    surfels
}

const DRAWING: DrawSettings = DrawSettings {
    footprint: Footprint::Surfel,
    inverse_depth: true,
    inverse_squares: true,
    surface: true,
    ..COLOURS
};

const NORMAL_WEIGHT: f64 = 0.3;

/// Distortions are small.
const DISTORTION_WEIGHT: f64 = 20.0;

fn terms() -> Terms {
    Terms::photometric(0.2).with(Term::InverseDepth, 0.4)
}

/// Compares all gradients with differences. Returns how many of each parameter were large enough.
fn compare(surfels: &Gaussians, terms: &Terms) -> Vec<usize> {
    let mut model = Cpu::<f64>::new().upload(surfels).unwrap();
    let beside = &[("dn", NORMAL_WEIGHT), ("distortion", DISTORTION_WEIGHT)][..];
    let compared = (&Arc::new(target(false)), terms, beside);
    assert_view_differences(&mut model, &DRAWING, compared, &Parameter::ALL)
}

#[test]
fn gradients_of_discs_agree_with_their_differences() {
    let distortion = terms().with(Term::Distortion, DISTORTION_WEIGHT);
    for (seed, terms) in [(10, terms()), (13, distortion)] {
        let compared = compare(&facing(seed, [-2.0, -1.0], 0.3), &terms);
        assert!(compared.iter().all(|&count| count > 4), "{compared:?}");
        assert!(compared.iter().sum::<usize>() > 200, "{compared:?}");
    }
    let below_a_pixel = compare(&facing(11, [-9.0, -8.0], 0.3), &terms());
    let [means, log_scales, quats, ..] = below_a_pixel[..] else { panic!("{below_a_pixel:?}") };
    // The filter's shape does not depend on the disc's.
    assert!(means > 4 && log_scales == 0 && quats == 0, "{below_a_pixel:?}");
}

#[test]
fn gradients_of_normals_of_discs_and_depths_agree_with_differences() {
    // Discs that cover the image: at the end of a disc the depths have a step.
    let mut surfels = facing(12, [-0.5, -0.1], 0.08);
    surfels.means[2] = 1.5;
    surfels.opacity_logits.iter_mut().for_each(|logit| *logit += 1.0);
    let of_depths = Term::NormalMap;
    for (terms, term, least) in [
        (terms(), Term::DepthNormal { depths: NormalDepths::All }, 200),
        (terms(), Term::DepthNormal { depths: NormalDepths::Opaque }, 200),
        (Terms::default(), of_depths, 60),
        (terms(), of_depths, 60),
    ] {
        let compared = compare(&surfels, &terms.with(term, NORMAL_WEIGHT));
        assert!(compared.iter().sum::<usize>() > least, "{compared:?}");
    }
}

/// Draws a pixel by the definition: intersections of the ray with each plane, front to back by the centres.
fn by_definition(surfels: &Gaussians, pixel: [u32; 2]) -> ([f64; 3], f64, f64) {
    let view = view();
    let rotation_view = view.pose.rotation;
    let ray = [0, 1].map(|axis| {
        let place = f64::from(pixel[axis]) + 0.5;
        (place - view.camera.centre_px[axis]) / view.camera.focal_px[axis]
    });
    let ray = [ray[0], ray[1], 1.0];
    let mut met = Vec::new();
    for i in 0..surfels.len() {
        let triple = |column: &[f32]| [0, 1, 2].map(|k| f64::from(column[i * 3 + k]));
        let mean = add(mul(&rotation_view, triple(&surfels.means)), view.pose.translation);
        if mean[2] <= NEAR {
            continue;
        }
        let quat = [0, 1, 2, 3].map(|k| f64::from(surfels.quats[i * 4 + k]));
        let axes = rotation(quat);
        let axis = |k: usize| mul(&rotation_view, axes.map(|row| row[k]));
        let [first, second, normal] = [0, 1, 2].map(axis);
        let depth = dot(normal, mean) / dot(normal, ray);
        let offset = sub(scale(ray, depth), mean);
        let scales = triple(&surfels.log_scales).map(f64::exp);
        let (u, v) = (dot(offset, first) / scales[0], dot(offset, second) / scales[1]);
        let centre = [0, 1].map(|k| mean[k] / mean[2] * view.camera.focal_px[k]);
        let px = [0, 1].map(|k| ray[k] * view.camera.focal_px[k] - centre[k]);
        let by_disc = if depth > 0.0 { 0.5 * (u * u + v * v) } else { f64::INFINITY };
        let by_filter = px[0] * px[0] + px[1] * px[1];
        let shown = if by_disc <= by_filter { depth } else { mean[2] };
        let opacity = sigmoid(f64::from(surfels.opacity_logits[i]));
        let alpha = (opacity * (-by_disc.min(by_filter)).exp()).min(0.99);
        let color = triple(&surfels.sh_dc).map(|c| (0.5 + sh::C0 * c).max(0.0));
        if alpha >= 1.0 / 255.0 {
            met.push((mean[2], alpha, color, shown));
        }
    }
    met.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut transmittance, mut sum, mut inverse_depth, mut median) = (1.0, [0.0; 3], 0.0, 0.0);
    for (_, alpha, color, depth) in met {
        sum = add(sum, scale(color, alpha * transmittance));
        inverse_depth += alpha * transmittance / depth;
        if transmittance > 0.5 && transmittance * (1.0 - alpha) <= 0.5 {
            median = depth;
        }
        transmittance *= 1.0 - alpha;
    }
    (
        add(sum, scale([0.2, 0.5, 0.9].map(|c: f32| f64::from(c)), transmittance)),
        inverse_depth,
        median,
    )
}

#[test]
fn a_view_agrees_with_ray_intersections() {
    let settings = RenderSettings {
        background: DRAWING.background,
        near: NEAR,
        footprint: Footprint::Surfel,
        ..RenderSettings::DEFAULT
    };
    let extra = Extra::Maps { inverse_depths: true, surface: true, median: true };
    let request = RenderRequest { extra, ..RenderRequest::IMAGE };
    let mut device = Cpu::<f64>::new();
    let mut medians = 0;
    for (seed, log_scales) in [(1, [-2.5, -1.0]), (2, [-6.0, -1.0]), (3, [-9.0, -3.0])] {
        let mut draws = Draws::new(seed);
        // Turned any way, some nearly seen from the edge.
        let mut surfels = nine(&mut draws, log_scales);
        surfels.opacity_logits.iter_mut().for_each(|logit| *logit += 1.5);
        let model = device.upload(&surfels).unwrap();
        let frame = device.render(&model, &view(), &settings, request).unwrap();
        let drawn = device.image(&frame).unwrap();
        let (inverse_depths, found_medians) =
            (drawn.inverse_depths.unwrap(), drawn.median_depths.unwrap());
        for y in 0..drawn.height {
            for x in 0..drawn.width {
                let at = (y * drawn.width + x) as usize;
                let (color, inverse_depth, median) = by_definition(&surfels, [x, y]);
                // Images have single precision.
                for (&found, expected) in drawn.rgb[at * 3..].iter().zip(color) {
                    assert!((f64::from(found) - expected).abs() < 1e-6, "{x} {y}");
                }
                assert!((f64::from(inverse_depths[at]) - inverse_depth).abs() < 1e-6, "{x} {y}");
                assert!((f64::from(found_medians[at]) - median).abs() < 1e-6, "{x} {y}");
                medians += usize::from(median > 0.0);
            }
        }
    }
    assert!(medians > 100, "{medians}");
}
