//! Refused operations on triangles: invalid numbers and missing capabilities.

use super::*;
use splat::backend::RenderSettings;

#[test]
fn invalid_numbers_are_left_out_and_reported_by_the_step() {
    let mut device = Cpu::<f64>::new();
    let mut soup = shared(10);
    soup.vertices.means[3 * 3] = f32::NAN;
    let mut model = upload(&mut device, &soup);
    let gradients = trained(&mut device, &mut model, WINDOW, &terms());
    let rates = crate::common::scene::RATES;
    let result = device.step(&mut model, gradients, &splat::backend::AdamStep::new(1, rates));
    assert!(matches!(result, Err(DeviceError::NotFinite { index: 3, .. })), "{result:?}");
}

#[test]
fn missing_capabilities_are_refused() {
    let mut device = Cpu::<f64>::new();
    let model = upload(&mut device, &shared(10));
    let shown = Drawing { pass: Pass::Eval, ..drawing(WINDOW) };
    for drawing in [
        Drawing { surface: true, ..shown },
        Drawing { median: true, ..shown },
        Drawing { pass: Pass::Picture, ..shown },
    ] {
        let refused = device.show(&model, &view(), &drawing);
        assert!(matches!(refused, Err(DeviceError::Unsupported { .. })), "{drawing:?}");
    }
    let settings: RenderSettings = shown.settings();
    let is_refused = |refused: Option<DeviceError>| {
        assert!(matches!(refused, Some(DeviceError::Unsupported { primitives: "triangles", .. })));
    };
    is_refused(device.transmittances(&model, &view(), &settings, &[[0.0; 3]]).err());
    let mut worths = device.no_worths(&model, &[false; 9]).unwrap();
    let photo = Arc::new(target(false));
    is_refused(device.add_worths(&model, &view(), &settings, &photo, &mut worths).err());
    // A model without triangles shows the background.
    let bare = device.upload(&shared(10).vertices).unwrap();
    let frame = device.show(&bare, &view(), &shown).unwrap();
    let image = device.image(&frame).unwrap();
    let background = BACKGROUND;
    assert!(image.rgb.as_chunks::<3>().0.iter().all(|pixel| *pixel == background));
    assert_eq!(device.face_statistics(&bare).unwrap(), FaceStatistics::default());
}
