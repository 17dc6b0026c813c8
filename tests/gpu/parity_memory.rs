//! A device's memory in the steady state. It is measured alone: tests that run beside it would
//! take and give back memory of the same device.

use crate::common::oracle::{AT_REST, Counted, Shot, settings, shot, step};
use crate::common::prelude::*;
use crate::common::scene::{resized, tame_gaussians};
use crate::common::view;
use splat::backend::TrainDevice;
use splat::memory::Bytes;

each_backend_anew!(two_hundred_iterations_over_the_same_views_take_no_more_memory);

fn two_hundred_iterations_over_the_same_views_take_no_more_memory<B: TrainDevice>(
    open: impl Fn() -> B,
) {
    #[cfg(kernels)]
    let _alone = crate::common::cuda::alone();
    let device = &mut open();
    let gaussians = tame_gaussians(1021, 91, 3);
    let shots: Vec<Shot> = [[37, 29], [203, 47], [64, 131]]
        .iter()
        .enumerate()
        .map(|(index, &size)| {
            let counted = (index as u64, Counted::Clear);
            let shot = shot(&gaussians, &resized(&view(), size), settings(3, 5), counted);
            Shot { index, ..shot }
        })
        .collect();
    let mut model = device.upload(&gaussians).unwrap();
    // Nothing moves, so that every round over the views asks for the same.
    let run = |device: &mut B, model: &mut B::Model, from: u32, to: u32| {
        for (number, shot) in (from..to).zip(shots.iter().cycle()) {
            step(device, model, shot, (number, AT_REST));
        }
        device.synchronize().unwrap();
    };
    run(device, &mut model, 1, 10);
    let before = held(device, &model);
    run(device, &mut model, 10, 211);
    assert_eq!(held(device, &model), before);
}

type MemoryInUse = (Vec<(&'static str, [Bytes; 2])>, [Bytes; 2], Option<Bytes>);

/// Bytes and peaks of what the device holds, the model's share, and what the driver has left.
fn held<B: TrainDevice>(device: &mut B, model: &B::Model) -> MemoryInUse {
    let entries = device.entries();
    let left = if entries.is_empty() { None } else { driver_free() };
    let entries = entries.iter().map(|entry| (entry.label, [entry.bytes, entry.peak])).collect();
    (entries, device.model_bytes(model), left)
}

#[cfg(kernels)]
fn driver_free() -> Option<Bytes> {
    Some(splat::backend::cuda::driver::CudaDevice::open(0).unwrap().free().unwrap())
}

/// Only a device with a driver has memory of its own.
#[cfg(not(kernels))]
fn driver_free() -> Option<Bytes> {
    None
}
