//! Rows of the tests' own primitive on every device: what is put there comes back, and is found again
//! wherever it went.

use crate::common::Draws;
#[cfg(kernels)]
use crate::common::cuda;
use crate::common::isotropic::Balls;
use splat::backend::cpu::Cpu;
#[cfg(kernels)]
use splat::backend::cuda::Model;
#[cfg(kernels)]
use splat::backend::{Device, Peaks};
use splat::backend::{Neighbours, Snapshot, Store};
use splat::math::Real;
use splat::math::morton::Cube;
use splat::model::Primitive;

each_backend!(balls_come_back_as_they_were_put_there, balls_are_reordered_and_have_neighbours);

/// Sizes around whole blocks of 32 lanes, an odd one, and one of several chunks.
const SIZES: [usize; 7] = [0, 1, 31, 32, 33, 1021, 70_001];

/// Balls in training, every number of noise.
pub(crate) fn in_training(count: usize, seed: u64) -> Snapshot<Balls> {
    let mut draws = Draws::new(seed);
    let mut noise = || draws.uniform(-1.0, 1.0).to_f32();
    let mut part = || {
        let mut part = Balls::zeros(0, count);
        part.groups_mut().into_iter().flatten().for_each(|value| *value = noise());
        part
    };
    let [parameters, first_moments, second_moments] = [part(), part(), part()];
    Snapshot {
        gradient_norm_sums: parameters.opacity_logits.clone(),
        views_seen: (1_u32..).step_by(3).take(count).collect(),
        absolute_norm_sums: first_moments.opacity_logits.clone(),
        parameters,
        first_moments,
        second_moments,
        filter_3d: Vec::new(),
    }
}

fn balls_come_back_as_they_were_put_there<B: Store<Balls>>(device: &mut B) {
    for count in SIZES {
        let before = in_training(count, 6);
        let mut model = device.restore(before.clone()).unwrap();
        assert_eq!(device.len(&model), count);
        assert_eq!(device.snapshot(&mut model).unwrap(), before, "{count} balls");
        let uploaded = &mut device.upload(&before.parameters).unwrap();
        assert_eq!(device.download(uploaded).unwrap(), before.parameters, "{count} balls");
        if count > 40 {
            let part = device.read_parameters(&mut model, 37..count - 3).unwrap();
            assert_eq!(part, before.parameters.rows(37..count - 3));
            let rows = [count - 1, 0, 40, 0];
            let mut picked = Balls::zeros(0, 0);
            rows.iter().for_each(|&row| picked.append(before.parameters.rows(row..row + 1)));
            assert_eq!(device.sample(&mut model, &rows).unwrap(), picked);
        }
    }
}

fn balls_are_reordered_and_have_neighbours<B: Neighbours<Balls>>(device: &mut B) {
    let cube = Cube { centre: [0.1, 0.0, -0.2], half_side: 0.8 };
    let mut host = Cpu::<f32>::new();
    for count in [1, 33, 1021, 70_001] {
        let before = in_training(count, 7);
        let mut model = device.restore(before.clone()).unwrap();
        let mut expected = host.restore(before.clone()).unwrap();
        device.reorder(&mut model, &cube).unwrap();
        host.reorder(&mut expected, &cube).unwrap();
        let after = device.snapshot(&mut model).unwrap();
        assert_eq!(after, host.snapshot(&mut expected).unwrap(), "{count} balls");
        assert!(count == 1 || after != before);
        let found = device.neighbours(&model, 5).unwrap();
        let near = host.neighbours(&expected, 5).unwrap();
        assert_eq!(
            device.read_neighbours(&found, 0..count).unwrap(),
            host.read_neighbours(&near, 0..count).unwrap(),
            "{count} balls"
        );
        device.reorder(&mut model, &Cube { centre: [0.0; 3], half_side: 0.3 }).unwrap();
    }
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_model_of_balls_takes_what_its_schema_says() {
    let mut device = cuda::open();
    for count in [33, 70_001] {
        let model: Model<Balls> = device.restore(in_training(count, 6)).unwrap();
        let memory = device.memory(Peaks::Keep).unwrap();
        let used = |label| {
            let entry = memory.entries.iter().find(|entry| entry.label == label);
            entry.map_or(0, |entry| entry.bytes.0)
        };
        let regions = model.size().regions();
        assert_eq!(regions[0].bytes.0, count.next_multiple_of(32) as u64 * 8 * 4);
        for row in &regions {
            assert_eq!(used(row.label), row.bytes.0, "{} of {count}", row.label);
        }
        let bytes = model.bytes();
        assert_eq!(bytes[0] + bytes[1], regions.iter().map(|row| row.bytes).sum());
    }
}
