//! Backward passes against central differences of their forward passes, in double precision.

use rstest::rstest;
use splat::backend::{BoundState, BoundStep};
use splat::math::blend::{ScreenGradient, alpha, alpha_bwd, exponent};
use splat::math::bound::{PerTriangle, crease};
use splat::math::linalg::{add, mul};
use splat::math::sh;
use splat::math::splat::{EllipseGradient, Shape};
use splat::math::ssim::{Pair, ssim, ssim_with_gradient};
use splat::model::{BoundColumns, BoundTopology};

use crate::common::oracle::assert_projection_differences;
use crate::common::prelude::*;
use crate::common::scene::{target, viewpoint};

/// Tolerances of every backward pass. Gradients below the floor of 1e-6 drown in the rounding of the difference and
/// are compared absolutely.
const EXACT: (f64, f64) = (1e-6, 1e-6);

#[test]
fn spherical_harmonics_agree_with_their_differences_at_every_degree() {
    let mut draws = Draws::new(2);
    for degree in 0..=3 {
        for _ in 0..5 {
            let (dir, d_b) = (draws.array::<3>(-1.0, 1.0), draws.array::<16>(-1.0, 1.0));
            let found = sh::basis_bwd(degree, dir, &d_b);
            for i in 0..3 {
                let f = |x| {
                    sh::basis(degree, with(dir, i, x)).iter().zip(d_b).map(|(b, d)| b * d).sum()
                };
                assert_relative(found[i], derivative(dir[i], f), EXACT, "sh basis");
            }
        }
    }
}

#[test]
fn projection_agrees_with_its_differences_inside_and_outside_the_guard() {
    let view = viewpoint(&view(), NEAR);
    let mut draws = Draws::new(3);
    let mut outside = 0;
    for case in 0..60 {
        let reach = if case % 2 == 0 { 0.3 } else { 3.0 };
        let shape = Shape {
            mean_world: [
                draws.uniform(-reach, reach),
                draws.uniform(-reach, reach),
                draws.uniform(0.8, 3.0),
            ],
            log_scale: draws.array(-4.0, -0.5),
            quat: draws.array(-1.0, 1.0),
            smoothing: 0.0,
        };
        let d = EllipseGradient {
            d_mean_px: draws.array(-1.0, 1.0),
            d_conic: draws.array(-1.0, 1.0),
            d_log_kept: 0.0,
            d_depth: 0.0,
        };
        let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
        outside += usize::from((mean_cam[0] / mean_cam[2]).abs() > 0.65);
        assert_projection_differences(&view, &shape, &d);
    }
    assert!(outside > 5, "only {outside} Gaussians lay outside the guard band");
}

#[test]
fn pixel_opacity_is_flat_if_clamped() {
    let (conic, offset) = ([0.3, 0.07, 0.4], [0.01, 0.0]);
    let clamped = alpha(0.999, exponent(conic, offset)).unwrap();
    let mut found = ScreenGradient::default();
    alpha_bwd(conic, offset, 0.999, clamped, 1.0, &mut found);
    assert_eq!(found.d_opacity, 0.0);
}

#[test]
fn ssim_agrees_with_its_differences_even_in_tiny_images() {
    for size in [[17, 13], [12, 30], [11, 81], [7, 9], [4, 2], [1, 1]] {
        let mut draws = Draws::new(5);
        let n = size[0] * size[1] * 3;
        let x: Vec<f64> = (0..n).map(|_| draws.uniform(0.0, 1.0)).collect();
        let y: Vec<f64> = (0..n).map(|_| draws.uniform(0.0, 1.0)).collect();
        let mut found = vec![0.0; n];
        let value = ssim_with_gradient(Pair { x: &x, y: &y, size }, 1.0, &mut found);
        assert_eq!(value, ssim(Pair { x: &x, y: &y, size }));
        for i in (0..n).step_by(1 + n / 40) {
            let f = |v| {
                let mut x = x.clone();
                x[i] = v;
                ssim(Pair { x: &x, y: &y, size })
            };
            assert_relative(found[i], derivative(x[i], f), EXACT, "ssim");
        }
    }
}

/// Returns overlapping Gaussians, one behind the camera, one outside the image, so that no pixel lies within a
/// difference's step of a cut-off.
fn gaussians() -> Gaussians {
    let mut draws = Draws::new(10);
    let mut gaussians = nine(&mut draws, [-3.2, -1.4]);
    for value in &mut gaussians.sh_rest {
        *value = draws.uniform(-0.2, 0.2).to_f32();
    }
    gaussians.means[3] = 9.0;
    gaussians
}

/// Separate cases run in parallel.
#[rstest]
#[case::colours(false, 0.0, COLOURS, 0.0)]
#[case::masked(true, 0.0, COLOURS, 0.0)]
#[case::weighted_mask(true, 0.3, COLOURS, 0.0)]
#[case::depths(true, 0.0, DrawSettings { inverse_depth: true, ..COLOURS }, 0.4)]
fn the_whole_pipeline_agrees_with_its_difference_in_every_parameter(
    #[case] masked: bool,
    #[case] empty_weight: f64,
    #[case] drawing: DrawSettings,
    #[case] weight: f64,
) {
    let terms = Terms::default()
        .with(Term::Photometric { lambda_dssim: 0.2, empty_weight }, 1.0)
        .with(Term::InverseDepth, weight)
        .with(Term::NormalMap, weight);
    let mut model = Cpu::<f64>::new().upload(&gaussians()).unwrap();
    let compared = (&Arc::new(target(masked)), &terms, &[][..]);
    let compared = assert_view_differences(&mut model, &drawing, compared, &Parameter::ALL);
    let compared: usize = compared.iter().sum();
    assert!(compared > 200, "only {compared} gradients were large enough to tell");
}

fn crowd_gradients<R: Real>() -> [Vec<f64>; 6] {
    let mut draws = Draws::new(21);
    let count = 400;
    let mut crowd = Gaussians::zeros(3, count);
    for i in 0..count {
        let depth = draws.uniform(0.5, 4.0);
        let mean = [draws.uniform(-0.6, 0.6) * depth, draws.uniform(-0.5, 0.5) * depth, depth];
        crowd.means[i * 3..][..3].copy_from_slice(&mean.map(f64::to_f32));
        crowd.opacity_logits[i] = draws.uniform(-4.0, 6.0).to_f32();
        for axis in 0..3 {
            crowd.log_scales[i * 3 + axis] = draws.uniform(-6.0, -1.0).to_f32();
            crowd.sh_dc[i * 3 + axis] = draws.uniform(-0.8, 1.2).to_f32();
        }
        crowd.quats[i * 4..][..4].copy_from_slice(&draws.array::<4>(-1.0, 1.0).map(f64::to_f32));
    }
    let mut device = Cpu::<R>::new();
    let (mut model, mut gradients) = (device.upload(&crowd).unwrap(), Default::default());
    let (target, terms) = (Arc::new(target(false)), Terms::photometric(0.2));
    let seen = (&view(), &COLOURS);
    device.add_view(&mut model, seen, (&target, &terms), &mut gradients).unwrap();
    Parameter::ALL.map(|parameter| {
        let width = model.column(parameter).width;
        let row = |index| device.parameter_gradient(&model, &gradients, index);
        (0..count)
            .flat_map(|i| {
                row(i).row(parameter)[..width].iter().map(|d| d.to_f64()).collect::<Vec<_>>()
            })
            .collect()
    })
}

#[test]
fn single_precision_agrees_with_double_precision() {
    let (single, double) = (crowd_gradients::<f32>(), crowd_gradients::<f64>());
    for ((single, double), parameter) in single.iter().zip(&double).zip(Parameter::ALL) {
        let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let apart: Vec<f64> = single.iter().zip(double).map(|(a, b)| a - b).collect();
        // Rounding over 400 layers is 3e-6 of the gradient; a pixel on the other side of a cut-off may cost ten times
        // as much.
        assert!(norm(&apart) < 5e-5 * norm(double), "{parameter:?}: {:.1e}", norm(&apart));
        assert!(norm(double) > 0.0, "{parameter:?} takes no gradient");
    }
}

#[test]
fn several_views_of_one_photograph_step_as_one() {
    let gaussians = tame_gaussians(40, 31, 3);
    let shots = three_shots(&gaussians, [31, 23]);
    let stepped = |shots: &[&Shot]| {
        let (mut device, mut gradients) = (Cpu::<f64>::new(), Default::default());
        let mut model = device.upload(&gaussians).unwrap();
        for shot in shots {
            let target = device.target(shot.index, &shot.photo).unwrap();
            let seen = (&shot.view, &shot.settings);
            device.add_view(&mut model, seen, (&target, &shot.terms), &mut gradients).unwrap();
        }
        device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();
        device.snapshot(&mut model).unwrap()
    };
    let one = stepped(&[&shots[0]]);
    for count in [2, 3, 5, 8] {
        let several = stepped(&vec![&shots[0]; count]);
        let groups = several.parameters.groups().into_iter().zip(one.parameters.groups());
        for ((found, expected), start) in groups.zip(gaussians.groups()) {
            let step = |after: &[f32]| -> Vec<f64> {
                after.iter().zip(start.values).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect()
            };
            let (found, expected) = (step(found.values), step(expected.values));
            let error = relative_error(&found, &expected);
            assert!(error < 1e-6, "{count} views, {}: {error:e}", start.name);
        }
        // Each view is observed by its own gradients.
        let sums = several.gradient_norm_sums.iter().zip(&one.gradient_norm_sums);
        for (found, expected) in sums {
            let expected = expected * f32::from(u8::try_from(count).unwrap());
            assert!((found - expected).abs() <= 1e-6 * expected, "{found} for {expected}");
        }
    }
}

// Gaussians that are bound to a mesh, through raster and loss.

/// Weight of the creases, large enough beside the photograph.
const CREASES: f64 = 0.3;

/// Two triangles folded at an edge, with large Gaussians, before the camera of [`view`].
fn folded(per_triangle: PerTriangle) -> (Arc<BoundTopology>, BoundColumns, Gaussians) {
    let vertices = [[-0.8, -0.6, 3.0], [0.7, -0.7, 3.1], [-0.6, 0.7, 2.9], [0.9, 0.8, 3.4_f32]];
    let faces = vec![[0, 1, 2], [2, 1, 3]];
    let topology = BoundTopology::new(faces, 4, per_triangle, 1e-3_f32.ln()).unwrap();
    let mut columns = BoundColumns::at_rest(&vertices, &topology);
    for (row, turn) in columns.turns.iter_mut().enumerate() {
        *turn += [0.25, 0.75, -0.5][row % 3];
    }
    for (row, log_scale) in columns.log_scales.iter_mut().enumerate() {
        *log_scale += [0.25, -0.125][row % 2];
    }
    let mut gaussians = Gaussians::zeros(0, topology.gaussians());
    for (row, value) in gaussians.sh_dc.iter_mut().enumerate() {
        *value = [0.5, -0.25, 0.75, 0.0][row % 4];
    }
    (Arc::new(topology), columns, gaussians)
}

fn loss(
    topology: &Arc<BoundTopology>,
    columns: &BoundColumns,
    gaussians: &Gaussians,
) -> (f64, BoundColumns) {
    let mut device = Cpu::<f64>::new();
    let mut model = device.upload(gaussians).unwrap();
    let state = BoundState::new(columns.clone());
    let mut binding = device.bind(&mut model, topology, &state).unwrap();
    let view = view();
    let target = device.target(0, &photo(view.camera.width, view.camera.height, None)).unwrap();
    let drawing = DrawSettings { pass: Pass::Train, sh_degree: 0, ..DrawSettings::DEFAULT };
    let terms = Terms::photometric(0.2);
    let mut gradients = Default::default();
    let seen = ((&view, &drawing), (&target, &terms));
    let losses = device.add_view(&mut model, seen.0, seen.1, &mut gradients).unwrap();
    let total = losses.read().unwrap().total;
    let step = BoundStep { adam: AdamStep::new(1, AT_REST), normal_consistency: CREASES };
    device.step_bound(&mut model, &mut binding, gradients, &step).unwrap();
    let state = device.read_binding(&binding).unwrap();
    assert_eq!(&state.values, columns, "rates of 0 move nothing");
    let place =
        |vertex: u32| [0, 1, 2].map(|axis| f64::from(columns.vertices[3 * vertex as usize + axis]));
    let creases: f64 = topology.hinges.iter().map(|hinge| crease(&hinge.map(place))).sum();
    (total + CREASES * creases / topology.hinges.len() as f64, state.first_moments)
}

/// Returns the derivative of the loss by a value, from the two neighbouring step widths that agree best: too wide a
/// step crosses pixels at which splats end.
fn difference(value: f32, mut loss_at: impl FnMut(f32) -> f64) -> f64 {
    let estimates = [-13, -14, -15, -16].map(|power| {
        let step = 2.0_f32.powi(power);
        // The distance after rounding to single precision.
        let (before, after) = (value - step, value + step);
        (loss_at(after) - loss_at(before)) / (f64::from(after) - f64::from(before))
    });
    let disagreement = |pair: &[f64]| (pair[0] - pair[1]).abs();
    let best =
        estimates.windows(2).min_by(|a, b| disagreement(a).total_cmp(&disagreement(b))).unwrap();
    best[1]
}

#[test]
fn gradients_of_bound_gaussians_agree_with_differences() {
    for per_triangle in PerTriangle::ALL {
        let (topology, columns, gaussians) = folded(per_triangle);
        let (_, tenths) = loss(&topology, &columns, &gaussians);
        for column in 0..3 {
            let found = tenths.values()[column];
            let largest = found.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            for at in (0..found.len()).step_by(if column == 0 { 1 } else { 5 }) {
                let loss_at = |value: f32| {
                    let mut columns = columns.clone();
                    columns.values_mut()[column][at] = value;
                    loss(&topology, &columns, &gaussians).0
                };
                let expected = difference(columns.values()[column][at], loss_at);
                let found = 10.0 * f64::from(found[at]);
                let floor = 10.0 * largest.to_f64();
                let what = format!("{per_triangle:?}, value {at} of column {column}");
                assert_relative(found, expected, (1e-3, floor), &what);
            }
        }
    }
}
