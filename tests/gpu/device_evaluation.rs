//! Evaluation beside training: it takes no more of a GPU's memory, whatever the held-out views show.

use std::sync::Arc;

use crate::common::cuda::{self, alone};
use crate::common::oracle::{AT_REST, Shot, settings, step};
use crate::common::prelude::*;
use crate::common::scene::{photo, resized, straight, tame_gaussians};
use splat::backend::Terms;
use splat::backend::cuda::{Cuda, Model};
use splat::dataset::{Image, View};
use splat::memory::Bytes;

/// A model that was trained on one view, and what that took.
struct Trained {
    device: Cuda,
    model: Model,
    peak: Bytes,
}

impl Trained {
    fn on(size: [u32; 2]) -> Self {
        let mut device = cuda::open();
        let mut gaussians = tame_gaussians(40_000, 91, 3);
        // As a trained model's: a few tiles each.
        gaussians.log_scales.iter_mut().for_each(|scale| *scale -= 2.0);
        let mut model = device.upload(&gaussians).unwrap();
        let view = resized(&straight(), size);
        let photo = photo(size[0], size[1], None);
        let terms = Terms::photometric(0.2);
        let shot = Shot { index: 0, view, photo, settings: settings(3, 5), terms };
        for iteration in 1..5 {
            step(&mut device, &mut model, &shot, (iteration, AT_REST));
        }
        device.synchronize().unwrap();
        let peak = device.take_peak().unwrap();
        Self { device, model, peak }
    }

    /// What an evaluation makes of a view: its pixels, its error and the memory that it took.
    fn evaluate(&mut self, view: &View, image: &Arc<Image>) -> (Vec<f32>, f64, Bytes) {
        let Self { device, model, .. } = self;
        device.take_peak();
        let target = device.glance(image).unwrap();
        let look = Drawing { pass: Pass::Picture, ..settings(3, 5) };
        let frame = device.show(model, view, &look).unwrap();
        let measured = device.measure(&frame, &target).unwrap();
        let rgb = device.image(&frame).unwrap().rgb;
        drop(frame);
        (rgb, measured.mse, device.take_peak().unwrap())
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_held_out_view_that_shows_more_than_training_is_drawn_with_less() {
    let _alone = alone();
    let mut trained = Trained::on([403, 304]);
    let size = [2015, 1520];
    let (view, image) = (resized(&straight(), size), photo(size[0], size[1], None));
    let training = trained.peak;
    trained.device.aim_below(Some(training)).unwrap();
    let (rgb, mse, within) = trained.evaluate(&view, &image);
    trained.device.aim_below(None).unwrap();
    assert!(trained.device.take_changes().unwrap().changes.is_empty(), "nothing is short");
    assert!(trained.device.heap().total() <= within, "what was taken beyond goes back");
    let (free_rgb, free_mse, without) = trained.evaluate(&view, &image);
    println!("training {training}, evaluation {within}, without an aim {without}");
    assert!(within < without, "{within} {without}: the view is too small to show it");
    // Its image, its photograph and what is kept of each pixel take what they take.
    let pixels = u64::from(size[0]) * u64::from(size[1]) * 40;
    let granules = 8 * trained.device.heap().granule().0;
    assert!(within <= training + Bytes(pixels + granules), "{within} {training}");
    assert_eq!(rgb, free_rgb, "bands change no pixel");
    // Sums in another order.
    assert!((mse - free_mse).abs() < 1e-5 * free_mse);
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_view_like_those_of_training_is_evaluated_with_no_more() {
    let _alone = alone();
    let mut trained = Trained::on([1021, 771]);
    let training = trained.peak;
    trained.device.aim_below(Some(training)).unwrap();
    let (view, image) = (resized(&straight(), [1021, 771]), photo(1021, 771, None));
    let (_, _, evaluation) = trained.evaluate(&view, &image);
    assert!(evaluation <= training, "{evaluation} {training}");
    trained.device.aim_below(None).unwrap();
}
