//! Changes of a mesh (vertices, opacities and order), invalid numbers, and missing capabilities.

use super::*;
use splat::backend::{Into, Remesh};
use splat::math::adam::floored;
use splat::math::linalg::{cross, length, sub};

const FLOOR: f64 = 0.3;

fn remesh<'a>(kept: &'a [u32], midpoints: &'a [[u32; 2]], faces: &'a [[u32; 3]]) -> Remesh<'a> {
    Remesh { kept, midpoints, faces }
}

/// Returns a mesh in training on a device with this storage, in single precision.
fn training(storage: Storage) -> (Cpu<f32>, Model<f32>) {
    let mut device = Cpu::with_storage(storage, 0);
    let soup = shared(10);
    let mut model = device.load(&mut in_training(soup.vertices, 3)).unwrap();
    device.set_faces(&mut model, &soup.faces).unwrap();
    (device, model)
}

/// Asserts that all scales of a vertex are the root of the mean area of its triangles.
fn assert_sizes_are_those_of_the_faces(vertices: &Gaussians, faces: &[[u32; 3]]) {
    let place = |row: u32| [0, 1, 2].map(|k| f64::from(vertices.means[3 * row as usize + k]));
    let area = |&[a, b, c]: &[u32; 3]| {
        let [u, v] = [sub(place(b), place(a)), sub(place(c), place(a))];
        0.5 * length(cross(u, v))
    };
    for row in 0..u32::try_from(vertices.len()).unwrap() {
        let own: Vec<f64> = faces.iter().filter(|face| face.contains(&row)).map(area).collect();
        let size = (own.iter().sum::<f64>() / own.len() as f64).sqrt();
        for &found in &vertices.log_scales[3 * row as usize..][..3] {
            // Rounding of single precision, which cannot resolve almost empty areas.
            let found = f64::from(found).exp();
            assert!((found - size).abs() < 1e-4 + 1e-5 * size, "{row}: {found} for {size}");
        }
    }
}

#[test]
fn kept_vertices_stay_as_they_are_and_new_ones_are_in_the_middle() {
    for storage in [Storage::Full, Storage::HalfColors, Storage::Compact] {
        let (mut device, mut model) = training(storage);
        let before = device.snapshot(&mut model).unwrap();
        let (kept, midpoints, faces) =
            ([1, 2, 5, 8], [[1, 2], [0, 5]], [[0, 1, 4], [2, 5, 3], [4, 5, 0]]);
        device.remesh(&mut model, &remesh(&kept, &midpoints, &faces)).unwrap();
        assert_eq!(device.faces(&model), faces);
        let statistics = device.face_statistics(&model).unwrap();
        assert_eq!(statistics, FaceStatistics::zeros(3));
        let after = device.snapshot(&mut model).unwrap();
        assert_eq!(after.views_seen, [0; 6]);
        assert_eq!(after.gradient_norm_sums, [0.0; 6]);
        // Without the scales, which hold the sizes of the triangles.
        let without_statistics = |mut row: Vec<u32>| {
            row.truncate(row.len() - 2);
            row.drain(3..6);
            row
        };
        let (old, new) = (rows(&before), rows(&after));
        for (place, &row) in kept.iter().enumerate() {
            let [old, new] =
                [old[row as usize].clone(), new[place].clone()].map(without_statistics);
            assert_eq!(old, new, "{storage:?}");
        }
        assert_sizes_are_those_of_the_faces(&after.parameters, &faces);
        for (place, ends) in (4..).zip(midpoints) {
            let opacity = |model: &Gaussians, row: usize| {
                floored(f64::from(model.opacity_logits[row]), FLOOR)
            };
            let [a, b] = ends.map(|row| opacity(&before.parameters, row as usize));
            let found = opacity(&after.parameters, place);
            assert!((found - 0.5 * (a + b)).abs() < 1e-6, "{found}");
            let groups = before.parameters.groups().into_iter().zip(after.parameters.groups());
            for (number, (old, new)) in groups.enumerate() {
                if [Parameter::OpacityLogits, Parameter::LogScales]
                    .map(|it| it as usize)
                    .contains(&number)
                {
                    continue;
                }
                for k in 0..old.width {
                    let [a, b] = ends.map(|row| old.values[row as usize * old.width + k]);
                    let found = new.values[place * new.width + k];
                    // Colours in half precision are rounded.
                    let error = (found - 0.5 * (a + b)).abs();
                    assert!(error <= 1e-3 * a.abs().max(b.abs()), "{storage:?} {found} {a} {b}");
                }
            }
            for moments in [&after.first_moments, &after.second_moments] {
                for group in moments.groups() {
                    let row = &group.values[place * group.width..][..group.width];
                    assert!(row.iter().all(|&value| value == 0.0), "{storage:?}");
                }
            }
        }
    }
}

#[test]
fn invalid_changes_are_refused_and_leave_the_mesh() {
    let (mut device, mut model) = training(Storage::Full);
    let before = (device.snapshot(&mut model).unwrap(), device.faces(&model).to_vec());
    let refused = device.set_faces(&mut model, &[[0, 1, 9]]);
    assert!(matches!(refused, Err(DeviceError::NoSuchRow { row: 9, len: 9 })));
    for change in [
        remesh(&[0, 9], &[], &[]),
        remesh(&[0, 1], &[[2, 11]], &[]),
        remesh(&[0, 1], &[[0, 1]], &[[0, 1, 3]]),
    ] {
        let refused = device.remesh(&mut model, &change);
        assert!(matches!(refused, Err(DeviceError::NoSuchRow { .. })), "{change:?}");
    }
    for kept in [[1, 0], [1, 1]] {
        let refused = device.remesh(&mut model, &remesh(&kept, &[], &[]));
        assert!(matches!(refused, Err(DeviceError::KeptNotAscending)));
    }
    let other = FaceStatistics::zeros(1);
    let refused = device.set_face_statistics(&mut model, &other);
    assert!(matches!(refused, Err(DeviceError::OtherFaces { found: 1, faces: 10 })));
    // Density control of Gaussians is refused, too.
    let rule = ScoreRule::Opacity { min: 0.5 };
    let candidates = device.score(&model, &rule).unwrap();
    let pick = Pick::WithReplacement { into: Into::NewRows(1), key: 1 };
    let selection = device.select(&mut model, &candidates, pick).unwrap();
    let refused = device.edit(&mut model, selection, &EditRule::Share);
    assert!(matches!(refused, Err(DeviceError::Unsupported { primitives: "triangles", .. })));
    let after = (device.snapshot(&mut model).unwrap(), device.faces(&model).to_vec());
    assert_eq!(before, after);
}

#[test]
fn an_empty_mesh_is_valid() {
    let (mut device, mut model) = training(Storage::Compact);
    device.remesh(&mut model, &remesh(&[], &[], &[])).unwrap();
    assert_eq!((model.len(), device.faces(&model).len()), (0, 0));
}

#[test]
fn triangles_follow_their_vertices_into_another_order() {
    let mut device = Cpu::<f64>::new();
    let soup = shared(10);
    let model = upload(&mut device, &soup);
    let mut other = model.clone();
    let cube = Cube { centre: [0.0, 0.0, 1.5], half_side: 1.0 };
    device.reorder(&mut other, &cube).unwrap();
    assert_ne!(device.faces(&other), device.faces(&model));
    let mut image = |model: &Model<f64>| {
        let frame =
            device.show(model, &view(), &DrawSettings { pass: Pass::Eval, ..drawing(WINDOW) });
        device.image(&frame.unwrap()).unwrap()
    };
    assert_eq!(image(&model), image(&other));
}

#[test]
fn opacities_stay_when_the_floor_rises() {
    for storage in [Storage::Full, Storage::Compact] {
        let (mut device, mut model) = training(storage);
        let before = device.snapshot(&mut model).unwrap();
        for (from, to) in [(0.0, 0.1), (0.1, 0.6), (0.6, 0.9999)] {
            let old = device.snapshot(&mut model).unwrap();
            let rise = Adjust::RaiseOpacityFloor { before: from, after: to };
            device.adjust(&mut model, &rise).unwrap();
            let new = device.snapshot(&mut model).unwrap();
            let logits = old.parameters.opacity_logits.iter().zip(&new.parameters.opacity_logits);
            for (&old, &new) in logits {
                let [old, new] =
                    [(old, from), (new, to)].map(|(logit, floor)| floored(f64::from(logit), floor));
                assert!((new - old.max(to)).abs() < 3e-6, "{old} {new}");
            }
        }
        let mut after = device.snapshot(&mut model).unwrap();
        after.parameters.opacity_logits.clone_from(&before.parameters.opacity_logits);
        assert_eq!(after, before);
    }
}

#[test]
fn invalid_numbers_are_left_out_and_reported_by_the_step() {
    let mut device = Cpu::<f64>::new();
    let mut soup = shared(10);
    soup.vertices.means[3 * 3] = f32::NAN;
    let mut model = upload(&mut device, &soup);
    let gradients = trained(&mut device, &mut model, WINDOW, &terms());
    let result = device.step(&mut model, gradients, &AdamStep::new(1, RATES));
    assert!(matches!(result, Err(DeviceError::NotFinite { index: 3, .. })), "{result:?}");
}

#[test]
fn missing_capabilities_are_refused() {
    let mut device = Cpu::<f64>::new();
    let model = upload(&mut device, &shared(10));
    let shown = DrawSettings { pass: Pass::Eval, ..drawing(WINDOW) };
    for drawing in [
        DrawSettings { surface: true, ..shown },
        DrawSettings { median: true, ..shown },
        DrawSettings { pass: Pass::Picture, ..shown },
    ] {
        let refused = device.show(&model, &view(), &drawing);
        assert!(matches!(refused, Err(DeviceError::Unsupported { .. })), "{drawing:?}");
    }
    let settings = shown.settings();
    let is_refused = |refused: Option<DeviceError>| {
        assert!(matches!(refused, Some(DeviceError::Unsupported { primitives: "triangles", .. })));
    };
    is_refused(device.transmittances(&model, &view(), &settings, &[[0.0; 3]]).err());
    let mut contributions = device.no_contributions(&model, &[false; 9]).unwrap();
    let photo = Arc::new(target(false));
    is_refused(
        device.add_contributions(&model, &view(), &settings, &photo, &mut contributions).err(),
    );
    // A model without triangles shows the background.
    let bare = device.upload(&shared(10).vertices).unwrap();
    let frame = device.show(&bare, &view(), &shown).unwrap();
    let image = device.image(&frame).unwrap();
    assert_eq!(image.rgb, BACKGROUND.repeat(image.rgb.len() / 3));
    assert_eq!(device.face_statistics(&bare).unwrap(), FaceStatistics::default());
}
