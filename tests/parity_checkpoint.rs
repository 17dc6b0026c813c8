//! Models pass between devices, through memory and through a checkpoint's file.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say so and stop"
)]

mod common;

use common::oracle::{Counted, Shot, assert_images_agree, settings, shot, step};
use common::scene::{RATES, tame_gaussians};
use common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{Raster, Snapshot};
use splat::config::Config;
use splat::model::{Gaussians, Primitive};
use splat::train::checkpoint::Checkpoint;

each_backend!(
    a_model_trained_here_is_the_same_on_the_processor,
    a_model_trained_on_the_processor_is_the_same_here,
    a_model_goes_through_a_checkpoints_file_bit_for_bit,
    training_goes_on_the_same_way_after_a_change_of_device,
    every_row_of_a_model_of_any_size_comes_back,
);

fn shots(gaussians: &Gaussians) -> Vec<Shot> {
    (0..3_u32)
        .map(|i| {
            let mut view = view();
            view.pose.translation[1] += 0.09 * f64::from(i) - 0.1;
            let shot = shot(gaussians, &view, settings(2, 5), (u64::from(20 + i), Counted::Clear));
            Shot { index: i as usize, ..shot }
        })
        .collect()
}

/// A model of 71 Gaussians of degree 2 after twenty steps.
fn trained<B: Raster<Gaussians>>(device: &mut B) -> (B::Model, Vec<Shot>) {
    let gaussians = tame_gaussians(71, 19, 2);
    let shots = shots(&gaussians);
    let mut model = device.upload(&gaussians).unwrap();
    for (number, shot) in (1..=20).zip(shots.iter().cycle()) {
        step(device, &mut model, shot, (number, RATES));
    }
    (model, shots)
}

/// Through `first` to `second`: the same bits, and the same image within rounding.
fn assert_passes_on<A: Raster<Gaussians>, B: Raster<Gaussians>>(first: &mut A, second: &mut B) {
    let (mut model, shots) = trained(first);
    let snapshot = first.snapshot(&mut model).unwrap();
    assert!(snapshot.second_moments.groups().iter().all(|g| g.values.iter().any(|&v| v > 0.0)));
    assert!(snapshot.views_seen.contains(&20));
    let mut restored = second.restore(snapshot.clone()).unwrap();
    assert_same_bits(&second.snapshot(&mut restored).unwrap(), &snapshot);
    let downloaded = second.download(&mut restored).unwrap();
    assert_eq!(downloaded, snapshot.parameters);
    assert_images_agree(first, &downloaded, &shots[0].view, &shots[0].settings);
    assert_images_agree(second, &downloaded, &shots[0].view, &shots[0].settings);
}

fn assert_same_bits(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>) {
    let parts = |s: &Snapshot<Gaussians>| -> Vec<Vec<u32>> {
        [&s.parameters, &s.first_moments, &s.second_moments]
            .iter()
            .flat_map(|part| part.groups())
            .map(|group| group.values.iter().map(|v| v.to_bits()).collect())
            .chain([s.gradient_norm_sums.iter().map(|v| v.to_bits()).collect()])
            .chain([s.views_seen.clone()])
            .collect()
    };
    assert_eq!(parts(found), parts(expected));
}

fn a_model_trained_here_is_the_same_on_the_processor<B: Raster<Gaussians>>(device: &mut B) {
    assert_passes_on(device, &mut Cpu::<f32>::new());
}

fn a_model_trained_on_the_processor_is_the_same_here<B: Raster<Gaussians>>(device: &mut B) {
    assert_passes_on(&mut Cpu::<f32>::new(), device);
}

fn a_model_goes_through_a_checkpoints_file_bit_for_bit<B: Raster<Gaussians>>(device: &mut B) {
    let (mut model, _) = trained(device);
    let snapshot = device.snapshot(&mut model).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let written = Checkpoint {
        iteration: 20,
        config: Config::default(),
        train_views: vec!["view.png".to_owned()],
        snapshot: snapshot.clone(),
    };
    let path = written.write(folder.path()).unwrap();
    let read = Checkpoint::read(&path).unwrap().snapshot;
    assert_same_bits(&read, &snapshot);
    let mut here = device.restore(read.clone()).unwrap();
    assert_same_bits(&device.snapshot(&mut here).unwrap(), &snapshot);
    let mut processor = Cpu::<f32>::new();
    let mut there = processor.restore(read).unwrap();
    assert_same_bits(&processor.snapshot(&mut there).unwrap(), &snapshot);
}

fn training_goes_on_the_same_way_after_a_change_of_device<B: Raster<Gaussians>>(device: &mut B) {
    let (mut model, shots) = trained(device);
    let mut oracle = Cpu::<f64>::new();
    let snapshot = device.snapshot(&mut model).unwrap();
    let mut elsewhere = oracle.restore(snapshot.clone()).unwrap();
    for (number, shot) in (21..=25).zip(&shots) {
        let here = step(device, &mut model, shot, (number, RATES)).total;
        let there = step(&mut oracle, &mut elsewhere, shot, (number, RATES)).total;
        // The masks kept the first step clear of cuts; a pixel in a hundred may part by one quantum.
        assert!((here - there).abs() < 4e-5, "step {number}: {here} here, {there} there");
    }
    // Moments of twenty steps outweigh rounding in the next gradients: nothing changes its sign.
    let (here, there) =
        (device.snapshot(&mut model).unwrap(), oracle.snapshot(&mut elsewhere).unwrap());
    let rates = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3];
    let groups = here.parameters.groups().into_iter().zip(there.parameters.groups());
    for ((here, there), rate) in groups.zip(rates) {
        let apart = here.values.iter().zip(there.values).map(|(a, b)| (a - b).abs());
        let strays = apart.filter(|&apart| apart > 0.05 * rate).count();
        assert!(strays * 50 <= here.values.len(), "{}: {strays} strays", here.name);
    }
    assert_eq!(here.views_seen, there.views_seen);
    assert_ne!(here.parameters, snapshot.parameters);
}

fn every_row_of_a_model_of_any_size_comes_back<B: Raster<Gaussians>>(device: &mut B) {
    // Around the blocks of 32 in which a device may keep its columns.
    for (count, sh_degree) in [(1, 0), (31, 1), (32, 2), (33, 3), (64, 0), (1025, 1)] {
        let gaussians = tame_gaussians(count, 23, sh_degree);
        let mut model = device.upload(&gaussians).unwrap();
        assert_eq!(device.len(&model), count);
        assert_eq!(device.download(&mut model).unwrap(), gaussians);
        let backwards: Vec<usize> = (0..count).rev().collect();
        let sample = device.sample(&mut model, &backwards).unwrap();
        let last = &gaussians.means[(count - 1) * 3..];
        assert_eq!(&sample.means[..3], last);
        assert_eq!(sample.sh_rest.len(), gaussians.sh_rest.len());
        let snapshot = device.snapshot(&mut model).unwrap();
        let zeros = Gaussians::zeros(sh_degree, count);
        assert_eq!((&snapshot.first_moments, &snapshot.second_moments), (&zeros, &zeros));
        assert_eq!(snapshot.views_seen, vec![0; count]);
    }
}
