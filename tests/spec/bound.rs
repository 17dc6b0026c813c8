//! Gradients of Gaussians that are bound to a mesh, through raster and loss, against differences.

use splat::backend::{BoundState, BoundStep};
use splat::math::bound::{PerTriangle, crease};
use splat::model::{BoundColumns, BoundTopology};

use crate::common::prelude::*;

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
    let drawing = Drawing { pass: Pass::Train, sh_degree: 0, ..Drawing::DEFAULT };
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
