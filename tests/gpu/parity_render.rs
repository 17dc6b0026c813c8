//! Images and losses of every device against the CPU backend in double precision.

use crate::common::prelude::*;
use std::sync::Arc;

use crate::common::oracle::{
    Counted, FirstStep, Shot, assert_images_agree, assert_losses_agree, clear_gaussians, draw,
    gradients, noise, settings, shot,
};
use crate::common::scene::{composite, resized, tame_gaussians};
use crate::common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{Measured, Terms, TrainDevice};
use splat::dataset::Image;
use splat::model::Gaussians;

each_backend!(
    images_agree_with_the_oracle,
    images_agree_with_every_degree_stored_and_in_use,
    losses_agree_with_the_oracle_whatever_the_size,
    losses_agree_with_the_oracle_where_a_mask_excludes_pixels,
    losses_agree_with_the_oracle_whatever_the_weights,
    a_mask_that_excludes_everything_leaves_no_loss,
    metrics_agree_with_the_oracle_with_and_without_a_mask,
);

const SIZES: [[u32; 2]; 6] = [[1, 1], [3, 2], [10, 10], [11, 11], [17, 33], [37, 29]];

fn images_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (i, size) in (1..).zip([[1, 1], [16, 16], [17, 33], [37, 29], [15, 130], [203, 47]]) {
        let view = resized(&view(), size);
        for count in [3, 40, 300] {
            let gaussians = tame_gaussians(count, i, 3);
            assert_images_agree(device, &gaussians, &view, &settings(3, i));
        }
    }
}

fn images_agree_with_every_degree_stored_and_in_use<B: TrainDevice>(device: &mut B) {
    let mut images = Vec::new();
    for stored in 0..=3 {
        for used in 0..=stored {
            let gaussians = tame_gaussians(60, 7, stored);
            assert_images_agree(device, &gaussians, &view(), &settings(used, 5));
            images.push(draw(device, &gaussians, &view(), &settings(used, 5)).rgb);
        }
    }
    // Degrees matter: no two of the images in which more is in use are the same.
    assert!(images.windows(2).all(|pair| pair[0] != pair[1]));
}

fn assert_losses_like_the_oracles<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
) {
    let found = FirstStep::taken_by(device, gaussians, shot).loss;
    let expected = FirstStep::of_the_oracle(gaussians, shot).loss;
    let what = format!("{} x {} px", shot.photo.width, shot.photo.height);
    assert_losses_agree(&found, &expected, (shot.size(), &what));
}

fn losses_agree_with_the_oracle_whatever_the_size<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip(SIZES) {
        let view = resized(&view(), size);
        let settings = settings(3, seed);
        let gaussians = clear_gaussians(12, seed, &[(&view, settings)]);
        let shot = shot(&gaussians, &view, settings, (seed, Counted::All));
        assert_losses_like_the_oracles(device, &gaussians, &shot);
    }
}

fn losses_agree_with_the_oracle_where_a_mask_excludes_pixels<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip(SIZES) {
        let view = resized(&view(), size);
        let gaussians = tame_gaussians(60, seed, 3);
        let shot = shot(&gaussians, &view, settings(3, seed), (seed, Counted::Some));
        assert_losses_like_the_oracles(device, &gaussians, &shot);
    }
}

fn losses_agree_with_the_oracle_whatever_the_weights<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 9, 3);
    let shots = [0.0, 0.2, 0.7, 1.0].map(|lambda_dssim| {
        let mut shot = shot(&gaussians, &view(), settings(3, 4), (3, Counted::Clear));
        shot.terms = Terms::photometric(lambda_dssim);
        shot
    });
    for shot in shots {
        assert_losses_like_the_oracles(device, &gaussians, &shot);
    }
}

fn a_mask_that_excludes_everything_leaves_no_loss<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(20, 3, 3);
    let pixels = composite(&gaussians, &view(), &settings(3, 1));
    let mut photo = Image::clone(&noise(&pixels, &view(), 1, Counted::Clear));
    photo.mask = Some(vec![0; pixels.len()]);
    let mut shot = shot(&gaussians, &view(), settings(3, 1), (1, Counted::Clear));
    shot.photo = Arc::new(photo);
    let step = FirstStep::taken_by(device, &gaussians, &shot);
    // Both images are black: nothing differs and everything is alike. SSIM is a mean of ones that
    // single precision adds up.
    assert_eq!(step.loss.l1, 0.0);
    assert!((step.loss.ssim - 1.0).abs() < 1e-6 && step.loss.total.abs() < 1e-6);
    assert!(gradients(&step.snapshot).iter().all(|(_, _, d)| d.iter().all(|&d| d.abs() < 1e-9)));
}

fn metrics_agree_with_the_oracle_with_and_without_a_mask<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip(SIZES) {
        let view = resized(&view(), size);
        let settings = settings(3, seed);
        let gaussians = clear_gaussians(12, seed, &[(&view, settings)]);
        for counted in [Counted::All, Counted::Some] {
            let shot = shot(&gaussians, &view, settings, (seed, counted));
            let found = measured(device, &gaussians, &shot);
            let expected = measured(&mut Cpu::<f64>::new(), &gaussians, &shot);
            for (name, found, expected) in [
                ("mse", found.mse, expected.mse),
                ("l1", found.l1, expected.l1),
                ("ssim", found.ssim, expected.ssim),
            ] {
                let error = (found - expected).abs();
                assert!(error < 1e-5, "{size:?} px: {name} is {found} instead of {expected}");
            }
        }
    }
}

fn measured<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, shot: &Shot) -> Measured {
    let model = device.upload(gaussians).unwrap();
    let settings = Drawing { pass: Pass::Eval, ..shot.settings };
    let frame = device.show(&model, &shot.view, &settings).unwrap();
    let target = device.target(shot.index, &shot.photo).unwrap();
    device.measure(&frame, &target).unwrap()
}
