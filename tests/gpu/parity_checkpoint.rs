//! Models pass between devices, through memory and through a checkpoint's file.

use crate::common::oracle::{Counted, Shot, assert_images_agree, settings, shot, step};
use crate::common::prelude::*;
use crate::common::scene::{RATES, as_in_a_ply, tame_gaussians};
use crate::common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{CHUNK_ROWS, DeviceError, Rows, Snapshot, TrainDevice, chunks};
use splat::config::Config;
use splat::export::{RenderMode, read_ply};
use splat::memory::TrainingScale;
use splat::model::{Gaussians, Primitive};
use splat::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};
use splat::train::save::{DeviceModel, write_point_cloud};

each_backend!(
    a_model_trained_here_is_the_same_on_the_processor,
    a_model_trained_on_the_processor_is_the_same_here,
    a_model_goes_through_a_checkpoints_file_bit_for_bit,
    training_goes_on_the_same_way_after_a_change_of_device,
    every_row_of_a_model_of_any_size_comes_back,
    a_model_of_lower_degree_looks_like_one_with_zero_harmonics,
    any_range_of_rows_is_read,
    a_model_of_several_chunks_is_loaded_whole,
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
fn trained<B: TrainDevice>(device: &mut B) -> (B::Model, Vec<Shot>) {
    let gaussians = tame_gaussians(71, 19, 2);
    let shots = shots(&gaussians);
    let mut model = device.upload(&gaussians).unwrap();
    for (number, shot) in (1..=20).zip(shots.iter().cycle()) {
        step(device, &mut model, shot, (number, RATES));
    }
    (model, shots)
}

/// Through `first` to `second`: the same bits, and the same image within rounding.
fn assert_passes_on<A: TrainDevice, B: TrainDevice>(first: &mut A, second: &mut B) {
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
            .chain(
                [&s.absolute_norm_sums, &s.filter_3d]
                    .map(|v| v.iter().map(|v| v.to_bits()).collect()),
            )
            .collect()
    };
    assert_eq!(parts(found), parts(expected));
}

fn a_model_trained_here_is_the_same_on_the_processor<B: TrainDevice>(device: &mut B) {
    assert_passes_on(device, &mut Cpu::<f32>::new());
}

fn a_model_trained_on_the_processor_is_the_same_here<B: TrainDevice>(device: &mut B) {
    assert_passes_on(&mut Cpu::<f32>::new(), device);
}

fn about() -> Checkpoint {
    let train_views = vec!["view.png".to_owned()];
    let config = Config::default();
    let (occasion, training_scale) = (Occasion::Asked, TrainingScale::FULL);
    Checkpoint { iteration: 20, config, train_views, occasion, training_scale, paced: None }
}

fn a_model_goes_through_a_checkpoints_file_bit_for_bit<B: TrainDevice>(device: &mut B) {
    let (mut model, _) = trained(device);
    let folder = tempfile::tempdir().unwrap();
    // Straight after the last step, of which a device may have put off a part.
    let mut resident = DeviceModel { device: &mut *device, model: &mut model };
    let path = about().write(folder.path(), &mut resident, None).unwrap();
    let ply = folder.path().join("point_cloud.ply");
    write_point_cloud(&ply, RenderMode::default(), device, &mut model, &[]).unwrap();
    let snapshot = device.snapshot(&mut model).unwrap();
    assert_eq!(read_ply(&ply).unwrap(), as_in_a_ply(snapshot.parameters.clone()));
    let mut stored = StoredCheckpoint::open(&path).unwrap();
    let mut here = device.load(&mut stored).unwrap();
    assert_same_bits(&device.snapshot(&mut here).unwrap(), &snapshot);
    let mut processor = Cpu::<f32>::new();
    let mut there = processor.load(&mut stored).unwrap();
    assert_same_bits(&processor.snapshot(&mut there).unwrap(), &snapshot);
}

fn training_goes_on_the_same_way_after_a_change_of_device<B: TrainDevice>(device: &mut B) {
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

fn every_row_of_a_model_of_any_size_comes_back<B: TrainDevice>(device: &mut B) {
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

/// Every value different from those around it, and from those in the same place of other chunks.
fn numbered(count: usize, sh_degree: u32) -> Snapshot<Gaussians> {
    let mut value = 0_u16;
    let mut next = || {
        // A prime: what is a power of two apart is not alike.
        value = (value + 1) % 65_521;
        f32::from(value) - 3e4
    };
    let mut fill = || {
        let mut host = Gaussians::zeros(sh_degree, count);
        host.groups_mut().into_iter().flatten().for_each(|v| *v = next());
        host
    };
    Snapshot {
        parameters: fill(),
        first_moments: fill(),
        second_moments: fill(),
        gradient_norm_sums: (0..count).map(|_| next()).collect(),
        views_seen: (0..count).map(|row| u32::try_from(row).unwrap() + 5).collect(),
        absolute_norm_sums: (0..count).map(|_| next()).collect(),
        filter_3d: (0..count).map(|_| next()).collect(),
    }
}

fn any_range_of_rows_is_read<B: TrainDevice>(device: &mut B) {
    let mut all = numbered(1021, 2);
    let mut model = device.restore(all.clone()).unwrap();
    for rows in [0..1021, 0..1, 31..33, 32..64, 33..97, 992..1021, 1020..1021, 500..500, 1021..1021]
    {
        let expected = all.read(rows.clone()).unwrap();
        assert_same_bits(&device.read(&mut model, rows.clone()).unwrap(), &expected);
        let parameters = device.read_parameters(&mut model, rows).unwrap();
        assert_eq!(parameters, expected.parameters);
    }
    for rows in [0..1022, 1021..1022, 2000..2001] {
        let error = device.read(&mut model, rows.clone()).unwrap_err();
        assert!(matches!(error, DeviceError::NoSuchRow { len: 1021, .. }), "{rows:?}: {error}");
        assert!(device.read_parameters(&mut model, rows).is_err());
    }
}

fn a_model_of_several_chunks_is_loaded_whole<B: TrainDevice>(device: &mut B) {
    let count = 2 * CHUNK_ROWS + 33;
    let mut all = numbered(count, 1);
    let mut model = device.load(&mut all).unwrap();
    assert_eq!(device.len(&model), count);
    for rows in chunks(count) {
        let expected = all.read(rows.clone()).unwrap();
        assert_same_bits(&device.read(&mut model, rows).unwrap(), &expected);
    }
    assert_same_bits(&device.snapshot(&mut model).unwrap(), &all);
}

fn a_model_of_lower_degree_looks_like_one_with_zero_harmonics<B: TrainDevice>(device: &mut B) {
    let (mut model, shots) = trained(device);
    let folder = tempfile::tempdir().unwrap();
    let mut whole = device.snapshot(&mut model).unwrap();
    let path = about().write(folder.path(), &mut whole.clone(), None).unwrap();
    let mut stored = StoredCheckpoint::open(&path).unwrap();
    stored.lower_sh_degree(1).unwrap();
    let lower = device.load(&mut stored).unwrap();
    // Of degree 2: eight coefficients above the constant one, of which three are of degree 1.
    for row in whole.parameters.sh_rest.chunks_exact_mut(24) {
        assert!(row[9..].iter().any(|&value| value != 0.0));
        row[9..].fill(0.0);
    }
    let zeroed = device.restore(whole).unwrap();
    for shot in &shots {
        let mut draw = |model: &B::Model, sh_degree| {
            let settings = Drawing { sh_degree, ..shot.settings };
            let frame = device.show(model, &shot.view, &settings).unwrap();
            device.image(&frame).unwrap()
        };
        let (lower, zeroed) = (draw(&lower, 1), draw(&zeroed, 2));
        // Adding zeros changes nothing but, where sums are rounded in another order, the last place.
        let apart = lower.rgb.iter().zip(&zeroed.rgb).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-6);
    }
}
