//! Gaussians bound to a mesh on every device, held against the CPU backend in double precision: where they
//! are, how the mesh and their form move, and that each run has the same bits.

use splat::backend::{BoundState, BoundStep};
use splat::math::bound::PerTriangle;
use splat::math::linalg::rotation;
use splat::model::{BoundColumns, BoundTopology};

use crate::prelude::*;

each_backend!(
    a_step_moves_the_mesh_and_the_forms_as_in_double_precision,
    every_step_has_the_same_bits,
    what_is_bound_goes_on_from_what_was_read,
    a_vertex_that_is_no_number_is_named,
);

/// A crumpled sheet of triangles before the camera of [`view`], with an edge of three faces.
fn sheet(per_triangle: PerTriangle) -> (Arc<BoundTopology>, BoundState, Gaussians) {
    const SIDE: u32 = 5;
    let mut draws = Draws::new(11);
    let mut vertices = Vec::new();
    for (x, y) in (0..SIDE * SIDE).map(|i| (i % SIDE, i / SIDE)) {
        let mut along = |at: u32| (f64::from(at) - 2.0) * 0.5 + draws.uniform(-0.1, 0.1);
        let place = [along(x), along(y)];
        vertices.push([place[0], place[1], 3.0 + draws.uniform(-0.2, 0.2)].map(Real::to_f32));
    }
    let mut faces = Vec::new();
    for (x, y) in (0..(SIDE - 1) * (SIDE - 1)).map(|i| (i % (SIDE - 1), i / (SIDE - 1))) {
        let corner = y * SIDE + x;
        faces.push([corner, corner + 1, corner + SIDE]);
        faces.push([corner + 1, corner + SIDE + 1, corner + SIDE]);
    }
    faces.push([6, 7, 17]);
    let topology = BoundTopology::new(faces, vertices.len(), per_triangle, 1e-4_f32.ln()).unwrap();
    let mut columns = BoundColumns::at_rest(&vertices, &topology);
    for turn in &mut columns.turns {
        *turn += draws.uniform(-0.8, 0.8).to_f32();
    }
    for log_scale in &mut columns.log_scales {
        *log_scale += draws.uniform(-0.3, 0.6).to_f32();
    }
    let mut gaussians = Gaussians::zeros(1, topology.gaussians());
    for values in [&mut gaussians.opacity_logits, &mut gaussians.sh_dc, &mut gaussians.sh_rest] {
        values.iter_mut().for_each(|value| *value = draws.uniform(-0.5, 0.8).to_f32());
    }
    (Arc::new(topology), BoundState::new(columns), gaussians)
}

/// Takes steps from this state, from the first step on. Returns the learned state and the Gaussians.
fn stepped<B: TrainDevice>(
    device: &mut B,
    (topology, state, gaussians): &(Arc<BoundTopology>, BoundState, Gaussians),
    steps: u32,
) -> Result<(BoundState, Gaussians), DeviceError> {
    let mut model = device.upload(gaussians)?;
    let mut binding = device.bind(&mut model, topology, state)?;
    let view = view();
    let target = device.target(0, &photo(view.camera.width, view.camera.height, None))?;
    let drawing = DrawSettings { pass: Pass::Train, sh_degree: 1, ..DrawSettings::DEFAULT };
    let terms = Terms::photometric(0.2);
    for number in 1..=steps {
        let mut gradients = B::Gradients::default();
        let seen = ((&view, &drawing), (&target, &terms));
        device.add_view(&mut model, seen.0, seen.1, &mut gradients)?.read()?;
        let step = BoundStep { adam: AdamStep::new(number, RATES), normal_consistency: 0.1 };
        device.step_bound(&mut model, &mut binding, gradients, &step)?;
    }
    device.synchronize()?;
    let state = device.read_binding(&binding)?;
    Ok((state, device.download(&mut model)?))
}

fn a_step_moves_the_mesh_and_the_forms_as_in_double_precision<B: TrainDevice>(device: &mut B) {
    for per_triangle in PerTriangle::ALL {
        let sheet = sheet(per_triangle);
        let [(found, found_gaussians), (expected, expected_gaussians)] =
            beside_oracle!(device, stepped(device, &sheet, 1).unwrap());
        let what = format!("{per_triangle:?}");
        // After the first step the first moments are a tenth of the gradients.
        let moments = found.first_moments.values().into_iter().zip(expected.first_moments.values());
        for (column, (found, expected)) in moments.enumerate() {
            let largest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            assert!(largest > 0.0, "{what}: nothing moves column {column}");
            // A pixel of a borderline splat is seen in one precision alone.
            let allowed = |_| 2e-3 * f64::from(largest);
            assert_near(found, expected, allowed, format_args!("{what}, column {column}"));
        }
        // The step of Adam has the length of its rate, whatever the gradient: signs alone may differ where it is 0.
        let (means, exact) = (&found_gaussians.means, &expected_gaussians.means);
        assert_near(means, exact, |mean| 3e-3 * mean.abs().max(1.0), format_args!("{what}, mean"));
        let quats = found_gaussians.quats.as_chunks::<4>().0.iter();
        for (found, expected) in quats.zip(expected_gaussians.quats.as_chunks::<4>().0) {
            let [found, expected] = [found, expected].map(|quat| rotation(quat.map(f64::from)));
            let (found, expected) = (found.as_flattened(), expected.as_flattened());
            assert_near(found, expected, |_| 2e-2, format_args!("{what}, rotation"));
        }
        assert_eq!(found_gaussians.log_scales[0], sheet.0.log_thickness);
        assert_eq!(found_gaussians.log_scales[1..3], found.values.log_scales[..2]);
        assert!(found_gaussians.opacity_logits != sheet.2.opacity_logits);
    }
}

fn every_step_has_the_same_bits<B: TrainDevice>(device: &mut B) {
    let sheet = sheet(PerTriangle::Three);
    let mesh = |device: &mut B| stepped(device, &sheet, 1).unwrap().0.first_moments;
    // Without the photograph: what the raster adds up by atomics differs from run to run on a GPU.
    let creases = |device: &mut B| {
        let mut dark = sheet.clone();
        dark.2.opacity_logits.fill(-20.0);
        stepped(device, &dark, 3).unwrap().0
    };
    assert_eq!(creases(device), creases(device));
    assert_eq!(mesh(device).vertices.len(), sheet.1.values.vertices.len());
}

fn what_is_bound_goes_on_from_what_was_read<B: TrainDevice>(device: &mut B) {
    let (topology, state, gaussians) = sheet(PerTriangle::Four);
    let start = (topology, state, gaussians);
    let (read, placed) = stepped(device, &start, 0).unwrap();
    assert_eq!(read, start.1);
    let (moved, _) = stepped(device, &start, 2).unwrap();
    let (again, there) = stepped(device, &(start.0.clone(), moved.clone(), placed), 0).unwrap();
    assert_eq!(again, moved);
    assert!(there.means.iter().all(|value| value.is_finite()));
}

fn a_vertex_that_is_no_number_is_named<B: TrainDevice>(device: &mut B) {
    let (topology, mut state, gaussians) = sheet(PerTriangle::One);
    state.values.vertices[30] = f32::NAN;
    let error = stepped(device, &(topology, state, gaussians), 1).unwrap_err();
    assert!(matches!(error, DeviceError::NotFinite { .. }), "{error}");
}
