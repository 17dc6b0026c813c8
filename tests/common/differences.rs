//! Gradients of the CPU backend against differences of what they are gradients of.

use splat::backend::cpu::{Cpu, Gradients, Model, Parameter};
use splat::math::linalg::dot;
use splat::math::splat::{EllipseGradient, Shape, Viewpoint, project, project_bwd};

use super::{assert_relative, derivative, derivative_between_cuts, with};

/// Holds the gradient of a projection to its differences. A sum of pixel coordinates is rounded a
/// hundred times as much as a function of order 1.
pub fn assert_projection_differences(
    view: &Viewpoint<f64>,
    shape: &Shape<f64>,
    d: &EllipseGradient<f64>,
) {
    const EXACT: (f64, f64) = (1e-6, 1e-4);
    let objective = |shape: &Shape<f64>| {
        let e = project(view, shape).expect("in front of the camera");
        let centre: f64 = (0..2).map(|i| e.mean_px[i] * d.d_mean_px[i]).sum();
        centre + dot(e.conic, d.d_conic) + d.d_log_kept * e.kept.ln() + d.d_depth * e.depth
    };
    let found = project_bwd(view, shape, d).expect("in front of the camera");
    for i in 0..3 {
        let f = |x| objective(&Shape { mean_world: with(shape.mean_world, i, x), ..*shape });
        let expected = derivative(shape.mean_world[i], f);
        assert_relative(found.d_mean_world[i], expected, EXACT, "mean");
        let f = |x| objective(&Shape { log_scale: with(shape.log_scale, i, x), ..*shape });
        let expected = derivative(shape.log_scale[i], f);
        assert_relative(found.d_log_scale[i], expected, EXACT, "log scale");
    }
    for i in 0..4 {
        let f = |x| objective(&Shape { quat: with(shape.quat, i, x), ..*shape });
        assert_relative(found.d_quat[i], derivative(shape.quat[i], f), EXACT, "quat");
    }
}

/// Holds the gradients of these parameters of every Gaussian to the differences of `loss`, with a
/// tolerance and a floor as of [`assert_relative`]. Says how many differences of each parameter are
/// above the floor, and so large enough to tell.
pub fn assert_differences(
    device: &mut Cpu<f64>,
    (model, gradients): (&Model<f64>, &Gradients<f64>),
    parameters: &[Parameter],
    tolerance: (f64, f64),
    mut loss: impl FnMut(&mut Cpu<f64>, &Model<f64>) -> f64,
) -> Vec<usize> {
    let mut compared = vec![0; parameters.len()];
    for index in 0..model.len() {
        let gradient = device.parameter_gradient(model, gradients, index);
        for (&parameter, compared) in parameters.iter().zip(&mut compared) {
            let width = model.column(parameter).width;
            for (k, &found) in gradient.row(parameter)[..width].iter().enumerate() {
                let at = index * width + k;
                let start = model.column(parameter).values[at];
                let expected = derivative_between_cuts(start, |x| {
                    let mut moved = model.clone();
                    moved.column_mut(parameter).values[at] = x;
                    loss(device, &moved)
                });
                let what = format!("Gaussian {index} {parameter:?}[{k}]");
                assert_relative(found, expected, tolerance, &what);
                *compared += usize::from(expected.abs() > tolerance.1);
            }
        }
    }
    compared
}
