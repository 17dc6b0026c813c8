//! Scenes that break renderers, on every device against the CPU backend in double precision.

use crate::common::density::{DensifyRule, densify, score};
use crate::common::oracle::{
    Counted, FirstStep, GRADIENT_TOLERANCE, assert_agrees, assert_gradients_agree,
    assert_losses_agree, draw, gradients, settings, shot,
};
use crate::common::prelude::*;
use crate::common::scene::{gaussian, resized, straight, tame_gaussians, together};
use crate::common::{Draws, view};
use splat::backend::{Adjust, Rendered, Snapshot, TrainDevice};
use splat::dataset::View;
use splat::math::Real;
use splat::model::Gaussians;

each_backend!(
    one_gaussian_is_drawn_and_moved,
    no_gaussians_at_all_are_drawn_and_moved,
    where_none_is_visible_the_background_shows_and_nothing_moves,
    gaussians_behind_the_camera_show_the_background_and_do_not_move,
    behind_an_opaque_wall_nothing_takes_a_gradient,
    gaussians_smaller_than_any_pixel_are_drawn_and_moved,
    extremely_thin_gaussians_are_drawn_and_moved,
    gaussians_larger_than_the_scene_cover_every_tile,
    quaternions_of_any_length_turn_alike,
);

fn one_gaussian_is_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    let mut one = gaussian([0.1, -0.15, 1.3], 0.12, 0.7, [0.9, 0.4, 0.2]);
    one.log_scales[1] -= 0.7;
    one.quats = vec![0.8, 0.3, -0.4, 0.2];
    let step = assert_agrees(device, &one, &view(), "one Gaussian");
    assert_eq!(step.snapshot.views_seen, [1]);
}

fn no_gaussians_at_all_are_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    for sh_degree in [0, 3] {
        let none = Gaussians::zeros(sh_degree, 0);
        let settings = settings(sh_degree, 2);
        assert_nothing_moves(device, &none, &view(), &settings);
        let mut model = device.upload(&none).unwrap();
        let rule = DensifyRule {
            gradient_min: 0.0,
            small_max: 1.0,
            opacity_min: 0.005,
            scale_max: None,
            seed: 1,
            iteration: 100,
            with_quantile: false,
        };
        assert_eq!(score(device, &model, &rule).count(), 0);
        densify(device, &mut model, &rule, 10).unwrap();
        device.adjust(&mut model, &Adjust::ResetOpacity(0.01)).unwrap();
        let snapshot = device.snapshot(&mut model).unwrap();
        assert_eq!(snapshot.parameters, none);
        let restored = device.restore(snapshot).unwrap();
        assert_eq!(device.len(&restored), 0);
    }
}

fn where_none_is_visible_the_background_shows_and_nothing_moves<B: TrainDevice>(device: &mut B) {
    let aside = gaussian([9.0, 1.0, 2.0], 0.1, 0.9, [0.5; 3]);
    let below = gaussian([-0.5, 14.0, 3.0], 0.2, 0.8, [0.6; 3]);
    let transparent = gaussian([0.0, 0.0, 1.5], 0.3, 0.0038, [0.7; 3]);
    let too_near = gaussian([0.0, 0.0, 0.009], 0.01, 0.9, [0.8; 3]);
    let none_visible = together(&[aside, below, transparent, too_near]);
    assert_nothing_moves(device, &none_visible, &straight(), &settings(3, 3));
}

fn gaussians_behind_the_camera_show_the_background_and_do_not_move<B: TrainDevice>(device: &mut B) {
    let mut behind = tame_gaussians(77, 4, 3);
    for mean in behind.means.chunks_mut(3) {
        mean[2] = -mean[2].abs();
    }
    assert_nothing_moves(device, &behind, &straight(), &settings(3, 4));
}

fn counts(image: &Rendered) -> &[u32] {
    image.blended.as_deref().unwrap()
}

/// The image is the background, the loss the oracle's, and a step leaves every bit where it is.
fn assert_nothing_moves<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    view: &View,
    settings: &Drawing,
) {
    let image = draw(device, gaussians, view, settings);
    assert!(image.rgb.chunks(3).all(|pixel| pixel == settings.background));
    assert!(counts(&image).iter().all(|&count| count == 0));
    let shot = shot(gaussians, view, *settings, (5, Counted::All));
    let found = FirstStep::taken_by(device, gaussians, &shot);
    let expected = FirstStep::of_the_oracle(gaussians, &shot);
    assert_losses_agree(&found.loss, &expected.loss, (shot.size(), "nothing in view"));
    let zeros = Gaussians::zeros(gaussians.sh_degree, gaussians.len());
    let untouched = Snapshot {
        parameters: gaussians.clone(),
        first_moments: zeros.clone(),
        second_moments: zeros,
        gradient_norm_sums: vec![0.0; gaussians.len()],
        views_seen: vec![0; gaussians.len()],
        absolute_norm_sums: Vec::new(),
        filter_3d: Vec::new(),
    };
    assert_eq!(found.snapshot, untouched);
}

fn behind_an_opaque_wall_nothing_takes_a_gradient<B: TrainDevice>(device: &mut B) {
    // Transmittances of 0.01 and 0.0005 behind the first two; the third would leave less than
    // 0.0001, so that it and all behind it are left out of every pixel.
    let wall = [(0.5, 0.9999), (0.6, 0.95), (0.7, 0.9)].map(|(depth, opacity)| {
        let mut one = gaussian([0.0, 0.01, depth], 9.0, opacity, [0.3, 0.6, 0.9]);
        // Not a sphere, whose rotation takes no gradient but rounding.
        one.log_scales[0] += depth;
        one.log_scales[1] -= 0.3;
        one.quats = vec![0.9, 0.1, -0.2, depth];
        one
    });
    let mut behind = tame_gaussians(50, 6, 3);
    for mean in behind.means.chunks_mut(3) {
        mean[2] = mean[2].abs() + 1.0;
    }
    let all = together(&[together(&wall), behind]);
    let image = draw(device, &all, &straight(), &settings(3, 5));
    assert!(counts(&image).iter().all(|&count| count == 2));
    let step = assert_agrees(device, &all, &straight(), "a wall");
    for (name, width, gradients) in gradients(&step.snapshot) {
        assert!(gradients[2 * width..].iter().all(|&d| d == 0.0), "{name} behind the wall");
    }
    // The first is held to an opacity of 0.99, and the flat wall's place does not matter.
    assert!(step.snapshot.first_moments.sh_dc[0] != 0.0);
    assert!(step.snapshot.first_moments.opacity_logits[1] != 0.0);
    assert_eq!(step.snapshot.first_moments.opacity_logits[0], 0.0);
    // They are seen none the less: their bounds meet the image.
    assert!(step.snapshot.views_seen[3..].contains(&1));
}

fn gaussians_smaller_than_any_pixel_are_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    let mut points = tame_gaussians(90, 7, 3);
    for (i, scales) in points.log_scales.chunks_mut(3).enumerate() {
        // Not spheres, whose rotation takes no gradient but rounding.
        let turn = 0.01 * i as f32;
        scales.copy_from_slice(&[-30.0 - turn, -30.7 + turn, -29.6]);
    }
    let step = assert_agrees(device, &points, &view(), "points");
    // e^-30 of a unit is far below the dilation: only their form does not matter.
    assert!(step.snapshot.first_moments.means.iter().any(|&d| d != 0.0));
    assert!(step.snapshot.parameters.log_scales.iter().all(|s| s.is_finite()));
}

fn extremely_thin_gaussians_are_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    let mut flat = tame_gaussians(60, 8, 3);
    for (i, scales) in flat.log_scales.chunks_mut(3).enumerate() {
        scales[i % 3] = scales[(i + 1) % 3] + 1e-8_f32.ln();
    }
    assert_agrees(device, &flat, &view(), "discs");
}

fn gaussians_larger_than_the_scene_cover_every_tile<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [101, 77]);
    let mut huge = tame_gaussians(40, 9, 3);
    let mut draws = Draws::new(10);
    for i in 0..huge.len() {
        huge.means[i * 3 + 2] = huge.means[i * 3 + 2].abs() + 0.5;
        let scales = draws.array::<3>(2.0, 5.0).map(f64::to_f32);
        huge.log_scales[i * 3..][..3].copy_from_slice(&scales);
        // Faint enough that the last still shows.
        huge.opacity_logits[i] = draws.uniform(-3.5, -1.0).to_f32();
    }
    let image = draw(device, &huge, &view, &settings(3, 6));
    assert!(counts(&image).iter().all(|&count| count > 20), "{:?}", counts(&image).iter().min());
    assert_agrees(device, &huge, &view, "huge Gaussians");
}

fn quaternions_of_any_length_turn_alike<B: TrainDevice>(device: &mut B) {
    let mut gaussians = tame_gaussians(80, 11, 3);
    let mut draws = Draws::new(12);
    for quat in gaussians.quats.chunks_mut(4) {
        let length = 10_f64.powf(draws.uniform(-3.0, 3.0)).to_f32();
        for q in quat {
            *q *= length;
        }
    }
    let shot = shot(&gaussians, &view(), settings(3, 7), (8, Counted::Clear));
    let mut found = FirstStep::taken_by(device, &gaussians, &shot).snapshot;
    let mut expected = FirstStep::of_the_oracle(&gaussians, &shot).snapshot;
    // The gradient shrinks as the quaternion grows: times the length, all weigh alike.
    for step in [&mut found, &mut expected] {
        let rows = step.first_moments.quats.chunks_mut(4).zip(gaussians.quats.chunks(4));
        for (gradient, quat) in rows {
            let length = quat.iter().map(|q| q * q).sum::<f32>().sqrt();
            gradient.iter_mut().for_each(|d| *d *= length);
        }
    }
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "lengths of 1e-3 to 1e3"));
}
