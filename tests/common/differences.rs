//! Gradients of the CPU backend against differences of what they are gradients of.

use splat::backend::cpu::{Cpu, Gradients, Model, Parameter};

use super::{assert_relative, derivative_between_cuts};

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
