//! Surfels: what every device draws of them, and its steps, against the CPU backend in double precision.

use crate::normals::{first_step, with_depths};
use crate::prelude::*;

each_backend!(
    images_of_surfels_agree_with_the_oracle,
    depths_and_normals_of_surfels_agree_with_the_oracle,
    steps_of_surfels_agree_with_the_oracle,
    steps_by_normals_and_depths_of_surfels_agree_with_the_oracle,
    a_step_of_surfels_goes_down_the_mean_gradient_of_its_views,
    surfels_that_are_hard_to_see_agree_with_the_oracle,
    weights_and_contributions_of_surfels_agree_with_the_oracle,
    what_surfels_lack_is_refused,
);

const SIZES: [[u32; 2]; 5] = [[1, 1], [16, 16], [17, 33], [37, 29], [203, 47]];

fn surfel_settings(seed: u64) -> DrawSettings {
    DrawSettings { footprint: Footprint::Surfel, ..settings(3, seed) }
}

/// Surfels of which none is seen nearly from its edge, where a little rounding turns much.
fn facing_surfels(count: usize, seed: u64) -> Gaussians {
    let mut surfels = tame_gaussians(count, seed, 3);
    let mut draws = Draws::new(seed + 100);
    for quat in surfels.quats.as_chunks_mut::<4>().0 {
        let [x, y] = draws.array::<2>(-0.35, 0.35);
        *quat = [1.0, x, y, draws.uniform(-1.0, 1.0)].map(f64::to_f32);
    }
    surfels
}

fn images_of_surfels_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip(SIZES) {
        let view = resized(&view(), size);
        for count in [0, 3, 40, 300] {
            let surfels = facing_surfels(count, seed);
            assert_images_agree(device, &surfels, &view, &surfel_settings(seed));
        }
    }
}

fn depths_and_normals_of_surfels_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let (mut medians, mut off) = (0, 0);
    for (seed, size) in (1..).zip(SIZES) {
        let view = resized(&view(), size);
        for count in [0, 40, 300] {
            let surfels = facing_surfels(count, seed);
            let maps = DrawSettings {
                pass: Pass::Eval,
                surface: true,
                inverse_depth: true,
                median: true,
                ..surfel_settings(seed)
            };
            let [found, expected] = beside_oracle!(device, {
                let model = device.upload(&surfels).unwrap();
                drawn_either(device, &model, (&view, &maps))
            });
            let clear = clear_pixels(&composite(&surfels, &view, &maps));
            let of = |rendered: &Rendered, pixel: usize| {
                let surface = &rendered.surface.as_ref().unwrap()[pixel * 4..][..4];
                let inverse_depth = rendered.inverse_depths.as_ref().unwrap()[pixel];
                let median = rendered.median_depths.as_ref().unwrap()[pixel];
                [surface[0], surface[1], surface[2], surface[3], inverse_depth, median]
            };
            for (pixel, _) in clear.iter().enumerate().filter(|&(_, &clear)| clear) {
                let (found, expected) = (of(&found, pixel), of(&expected, pixel));
                let what = format_args!("{size:?} px, {count}, pixel {pixel}");
                // The tolerance of colours times depths of up to 4 and inverse depths of up to 10.
                assert_near(&found[..5], &expected[..5], |_| 1e-3, what);
                medians += usize::from(expected[5] > 0.0);
                off += usize::from((found[5] - expected[5]).abs() > 1e-3);
            }
        }
    }
    // Where the transmittance falls to about one half, either of two surfels may take it.
    assert!(medians > 1000 && off * 200 < medians, "{off} of {medians} medians are off");
}

fn steps_of_surfels_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(1, 1), (8, 2), (60, 3), (200, 4)] {
        for counted in [Counted::Clear, Counted::Some] {
            for statistics in [Statistics::Norms, Statistics::Both, Statistics::Disagreement] {
                let surfels = facing_surfels(count, seed);
                let settings = DrawSettings { statistics, ..surfel_settings(seed) };
                let shot = shot(&surfels, &view(), settings, (seed, counted));
                let what = format!("{count} surfels, {counted:?}, {statistics:?}");
                assert_first_steps_agree(device, &surfels, &shot, &what);
            }
        }
    }
}

fn steps_by_normals_and_depths_of_surfels_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    // Inverse depths alone.
    for (count, seed) in [(8, 2), (60, 3)] {
        let surfels = facing_surfels(count, seed);
        let shot = shot(&surfels, &view(), surfel_settings(seed), (seed, Counted::Clear));
        let shot = with_depths(shot, &surfels);
        assert_first_steps_agree(device, &surfels, &shot, "inverse depths of surfels");
    }
    for (seed, size) in (1..).zip([[11, 11], [17, 33], [37, 29], [65, 18]]) {
        let view = resized(&view(), size);
        let settings = DrawSettings { surface: true, ..surfel_settings(seed) };
        let mut surfels = clear_gaussians(12, seed, &[(&view, settings)]);
        surfels.quats = facing_surfels(12, seed).quats;
        let plain = shot(&surfels, &view, settings, (seed, Counted::Clear));
        let both = with_depths(shot(&surfels, &view, settings, (seed, Counted::Clear)), &surfels);
        for shot in [plain, both] {
            for depths in [NormalDepths::All, NormalDepths::Opaque] {
                let [found, expected] =
                    beside_oracle!(device, first_step(device, &surfels, (&shot, depths)))
                        .map(|(step, _)| step.snapshot);
                let what = format!("{size:?} px, {depths:?}");
                assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, &what));
            }
        }
    }
}

fn a_step_of_surfels_goes_down_the_mean_gradient_of_its_views<B: TrainDevice>(device: &mut B) {
    let surfels = facing_surfels(70, 31);
    let aside = moved(&resized(&view(), [45, 23]), [0.4, -0.2, 0.5]);
    let shots = [(0, view()), (1, aside)].map(|(index, view)| {
        let shot = shot(&surfels, &view, surfel_settings(5), (5, Counted::Clear));
        Shot { index, ..shot }
    });
    assert_step_agrees(device, &surfels, &shots, "two views");
}

/// One surfel at a depth of 2 with these scales, turned about the x axis by an angle.
fn turned(scales: [f64; 2], angle: f64, mean: [f32; 3]) -> Gaussians {
    let mut one = gaussian(mean, 1.0, 0.9, [0.8, 0.3, 0.1]);
    one.log_scales = vec![scales[0].ln().to_f32(), scales[1].ln().to_f32(), -20.0];
    one.quats = [(angle / 2.0).cos(), (angle / 2.0).sin(), 0.0, 0.0].map(f64::to_f32).to_vec();
    one
}

fn surfels_that_are_hard_to_see_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let right_angle = std::f64::consts::FRAC_PI_2;
    let hard = [
        ("seen almost from its edge", turned([0.2, 0.2], right_angle - 0.02, [0.05, 0.1, 2.0])),
        ("behind the camera", turned([0.2, 0.2], 0.3, [0.0, 0.0, -1.0])),
        ("a thousandth of a pixel", turned([1e-5, 1e-5], 0.4, [0.02, 0.01, 2.0])),
        ("a line", turned([0.5, 1e-4], 0.4, [0.0, 0.1, 2.0])),
        ("larger than the image", turned([3.0, 0.2], 0.2, [0.0, 0.0, 2.0])),
        ("beside the image", turned([0.3, 0.3], 0.5, [1.4, 0.2, 2.0])),
        ("reaching behind the camera", turned([2.0, 2.0], right_angle - 0.3, [0.0, 0.3, 1.0])),
    ];
    for (seed, (what, surfel)) in (1..).zip(&hard) {
        let wall = turned([4.0, 4.0], 0.1, [0.0, 0.0, 6.0]);
        let surfels = together(&[surfel.clone(), wall]);
        let settings = DrawSettings { sh_degree: 0, ..surfel_settings(seed) };
        assert_images_agree(device, &surfels, &view(), &settings);
        let shot = shot(&surfels, &view(), settings, (seed, Counted::Clear));
        let found = FirstStep::taken_by(device, &surfels, &shot).snapshot;
        let values = found.first_moments.means.iter().chain(&found.first_moments.quats);
        assert!(values.clone().all(|d| d.is_finite()), "{what}: {values:?}");
        assert_first_steps_agree(device, &surfels, &shot, what);
    }
}

fn weights_and_contributions_of_surfels_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let (surfels, view) = (facing_surfels(40, 9), view());
    let settings = RenderSettings { footprint: Footprint::Surfel, ..RenderSettings::DEFAULT };
    let image = &photo(view.camera.width, view.camera.height, None);
    let [found, expected] = beside_oracle!(device, {
        let mut model = device.upload(&surfels).unwrap();
        let mut sums = device.no_contributions(&model, &[false; 40]).unwrap();
        let target = device.glance(image).unwrap();
        device.add_contributions(&model, &view, &settings, &target, &mut sums).unwrap();
        let contributions = device.read_contributions(&sums).unwrap();
        device.weigh(&mut model, &[&view], &settings).unwrap();
        let contributed: Vec<f32> = contributions.iter().map(|found| found.weight).collect();
        [device.snapshot(&mut model).unwrap().gradient_norm_sums, contributed]
    });
    // A pixel of a borderline splat, whose weight is 1/255, is seen in one precision alone.
    let allowed = |weight: f64| 0.02 + 1e-3 * weight;
    assert_near(&found[0], &expected[0], allowed, "weight");
    assert_near(&found[1], &expected[1], allowed, "contribution");
    assert!(found[0].iter().filter(|&&weight| weight > 0.5).count() > 5);
}

fn what_surfels_lack_is_refused<B: TrainDevice>(device: &mut B) {
    let surfels = facing_surfels(4, 1);
    let model = device.upload(&surfels).unwrap();
    let settings = DrawSettings { surface: true, median: true, ..surfel_settings(1) };
    let Err(refused) = device.draw(&model, &view(), &settings) else { panic!("medians are drawn") };
    assert!(matches!(refused, DeviceError::Unsupported { primitives: "surfels", .. }), "{refused}");
    let settings = RenderSettings { footprint: Footprint::Surfel, ..RenderSettings::DEFAULT };
    let refused = device.transmittances(&model, &view(), &settings, &[[0.0, 0.0, 1.0]]);
    assert!(matches!(refused, Err(DeviceError::Unsupported { .. })));
}
