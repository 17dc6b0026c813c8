//! Models whose colours and moments lie in the host's memory: all that is done with them is, bit for bit, what is done
//! with a compact model in the GPU's. `SPLAT_NO_VMM=1` runs the same on memory that is copied as it grows.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use splat::backend::cuda::Model;
use splat::backend::cuda::heap::{Buffer as _, Heap, Region};
use splat::backend::cuda::session::Session;
use splat::layout::{MemoryPlace, Slot};
use splat::memory::{Allowance, Fallback, Limit};

use crate::common::cuda::{assert_same_rows, held, image, snapshot, uneven};
use crate::prelude::*;

const MIB: u64 = 1 << 20;

const SIZE: [u32; 2] = [64, 64];

/// More steps than those whose drifts the kernels' arguments hold.
const LONG: u32 = 150;

fn offloaded() -> Cuda {
    open_compact(Storage::Offloaded)
}

fn views() -> [View; 2] {
    [straight(), looking_back()].map(|view| resized(&view, SIZE))
}

/// A Gaussian for each 8x4 px of a view of this size along these axes, far smaller than that: one warp alone adds to
/// the gradient of each, so that the order of sums is always the same.
pub(super) fn specks_of(size: [u32; 2], [right, down, ahead]: [[f64; 3]; 3]) -> Gaussians {
    let camera = &resized(&straight(), size).camera;
    let depth = 3.0;
    let mut specks = Vec::new();
    for y in (2..size[1]).step_by(4) {
        for x in (4..size[0]).step_by(8) {
            let along = |px: u32, axis: usize| {
                (f64::from(px) - camera.centre_px[axis]) / camera.focal_px[axis] * depth
            };
            let (x_cam, y_cam) = (along(x, 0), along(y, 1));
            let mean = std::array::from_fn(|i| {
                (right[i] * x_cam + down[i] * y_cam + ahead[i] * depth) as f32
            });
            let shade = 0.1 + 0.8 * (x + y) as f32 / (size[0] + size[1]) as f32;
            specks.push(gaussian(mean, 1e-3, 0.8, [shade, 1.0 - shade, 0.5]));
        }
    }
    together(&specks)
}

fn specks() -> Gaussians {
    together(&views().map(|view| specks_of(SIZE, view.pose.rotation)))
}

fn shots() -> [Shot; 2] {
    let [ahead, back] = views();
    [(1, ahead), (2, back)].map(|(index, view)| noisy_shot(index, &view, settings(3, 8)))
}

pub(super) fn assert_colours_moved(start: &Gaussians, end: &Gaussians) {
    // New Gaussians come after those of the start.
    let moved = strays(&end.sh_dc[..start.sh_dc.len()], &start.sh_dc, |_| 0.01);
    assert!(moved * 2 > start.sh_dc.len(), "only {moved} colours moved");
}

/// Steps over one view, then many over the other, then over both in turn.
fn train(device: &mut Cuda) -> (Snapshot<Gaussians>, Vec<f64>) {
    let [ahead, back] = shots();
    let mut model = device.upload(&specks()).unwrap();
    let turns = (0..30).flat_map(|_| [&ahead, &back]);
    let steps =
        [&ahead; 5].into_iter().chain(std::iter::repeat_n(&back, LONG as usize)).chain(turns);
    let mut losses = Vec::new();
    for (number, shot) in (1..).zip(steps) {
        losses.push(step(device, &mut model, shot, (number, COLOUR_RATES)).total);
    }
    (snapshot(device, &mut model), losses)
}

#[test]
#[ignore = "needs a CUDA device"]
fn training_with_colours_on_the_host_is_bit_for_bit_that_in_memory() {
    let (expected, losses) = train(&mut open_compact(Storage::Compact));
    let (again, _) = train(&mut open_compact(Storage::Compact));
    assert_same_rows(&again, &expected, "the same twice, with which this test stands");
    let (found, found_losses) = train(&mut offloaded());
    assert_same_rows(&found, &expected, "on the host");
    assert_near(&found_losses, &losses, |loss| 1e-5 * loss, "loss");
    assert_colours_moved(&specks(), &expected.parameters);
}

/// Takes densification steps of all kinds, a reordering and a reset. Returns a snapshot after each.
fn live(device: &mut Cuda, model: &mut Model) -> Vec<Snapshot<Gaussians>> {
    let mut found = vec![snapshot(device, model)];
    let cube = Cube { centre: [0.3, 0.1, 2.0], half_side: 3.0 };
    device.reorder(model, &cube).unwrap();
    found.push(snapshot(device, model));
    device.adjust(model, &Adjust::ResetOpacity(0.3)).unwrap();
    let rule = DensifyRule {
        gradient_min: 0.005,
        small_max: 0.2,
        opacity_min: 0.05,
        iteration: 100,
        ..DensifyRule::ALL
    };
    let new_gaussians = score(device, model, &rule).count();
    let done = densify(device, model, &rule, new_gaussians).unwrap();
    assert!(done.copied + done.split > 100 && done.removed > 0, "{done:?}");
    found.push(snapshot(device, model));
    let rule = RelocateRule { opacity_min: 0.1, seed: 5, iteration: 200 };
    relocate(device, model, &rule).unwrap();
    multiply(device, model, &rule, 1000).unwrap();
    found.push(snapshot(device, model));
    device.reorder(model, &cube).unwrap();
    found.push(snapshot(device, model));
    found
}

#[test]
#[ignore = "needs a CUDA device"]
fn densification_and_reordering_are_the_same_with_colours_on_the_host() {
    for count in [33, 20_001] {
        let start = held(&uneven(count, 3, 7));
        let [expected, found] = [Storage::Compact, Storage::Offloaded].map(|storage| {
            let mut device = open_compact(storage);
            let mut model = device.restore(start.clone()).unwrap();
            assert_eq!(model.storage(), storage);
            let seen = if count < 1000 { Vec::new() } else { live(&mut device, &mut model) };
            let sample: Gaussians = device.sample(&mut model, &[0, 7, count - 1]).unwrap();
            (seen, sample, image(&mut device, &model, &view()), snapshot(&mut device, &mut model))
        });
        for (number, (found, expected)) in found.0.iter().zip(&expected.0).enumerate() {
            assert_same_rows(found, expected, &format!("{count}, stage {number}"));
        }
        assert_eq!((found.1, found.2), (expected.1, expected.2), "{count}");
        assert_same_rows(&found.3, &expected.3, "in the end");
    }
}

/// Bytes of the model's colours and their moments on the GPU and on the host.
fn taken(device: &mut Cuda) -> [u64; 2] {
    let labels = ["sh", "sh, first moments", "sh, second moments"];
    let entries = device.entries();
    let of = |kind| {
        let of_kind =
            entries.iter().filter(|entry| entry.kind == kind && labels.contains(&entry.label));
        of_kind.map(|entry| entry.mapped.0).sum()
    };
    [of(MemoryKind::Region), of(MemoryKind::Pinned)]
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_living_model_goes_to_the_host_and_comes_back() {
    let cases = [(33, Storage::Full), (100_003, Storage::Full), (5000, Storage::Compact)];
    for (count, storage) in cases {
        let start = uneven(count, 3, 91);
        let expected = held(&start);
        let mut device = open_compact(storage);
        let mut model = device.restore(start).unwrap();
        let [on_gpu, on_host] = taken(&mut device);
        assert_eq!(on_host, 0);
        let total = device.heap().total().0;
        let freed = device.offload(&mut model).unwrap();
        device.trim_memory().unwrap();
        assert_eq!(model.storage(), Storage::Offloaded);
        assert_eq!(taken(&mut device)[0], 0);
        assert!(taken(&mut device)[1] >= 200 * count as u64);
        let lines = device.entries().into_iter().find(|entry| entry.label == "sh, lines");
        let lines = lines.map_or(0, |entry| entry.mapped.0);
        let (freed, now) = (freed.0 + lines, device.heap().total().0);
        assert!(lines > 0 && freed >= on_gpu && now + on_gpu <= total + lines, "{freed}");
        assert_same_rows(&snapshot(&mut device, &mut model), &expected, "on the host");
        device.expand(&mut model).unwrap();
        assert_eq!((model.storage(), taken(&mut device)[1]), (Storage::Full, 0));
        assert_same_rows(&snapshot(&mut device, &mut model), &expected, "back");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn colours_go_to_the_host_in_the_middle_of_a_run_that_is_short_of_memory() {
    let _alone = alone();
    let start = uneven(100_000, 3, 17);
    let fallbacks = [Fallback::Slack, Fallback::Compact, Fallback::Offload, Fallback::NewGaussians];
    let options = CudaOptions { seed: 11, give_up: fallbacks.to_vec(), ..CudaOptions::default() };
    let mut found = Vec::new();
    // Leave less and less memory beside the model, until new Gaussians are refused.
    for mib in (4..300).rev().step_by(16) {
        let mut device = cuda::open_with(&options).unwrap();
        if !device.heap().is_virtual() {
            return;
        }
        let mut model = device.restore(start.clone()).unwrap();
        device.trim_memory().unwrap();
        let limit = Bytes(device.heap().total().0 + mib * MIB);
        device.heap().set_budget(limit);
        let granted = device.grant_new_gaussians(&mut model, 200_000).unwrap();
        let rule = RelocateRule { opacity_min: 0.0, seed: 5, iteration: 200 };
        if granted > 0 {
            multiply(&mut device, &mut model, &rule, granted).unwrap();
        }
        assert!(device.heap().total() <= limit, "{mib}: {}", device.heap().total());
        assert_eq!(device.len(&model), 100_000 + granted);
        let [on_gpu, on_host] = taken(&mut device);
        let is_offloaded = model.storage() == Storage::Offloaded;
        assert_eq!((on_gpu == 0, on_host > 0), (is_offloaded, is_offloaded), "{mib}");
        assert!(snapshot(&mut device, &mut model).parameters.sh_dc.iter().all(|v| v.is_finite()));
        if found.last() != Some(&model.storage()) {
            found.push(model.storage());
        }
    }
    assert_eq!(found, [Storage::Full, Storage::Compact, Storage::Offloaded]);
}

/// A region of the host without a slot of the program.
fn region(heap: &Heap) -> Region<u32> {
    heap.region_in(MemoryPlace::Host, &Slot::unlisted("sh")).unwrap()
}

#[test]
#[ignore = "needs a CUDA device"]
fn memory_of_the_host_takes_nothing_of_the_gpu_and_keeps_its_values() {
    let _alone = alone();
    let session = Session::open(None).unwrap();
    let allowance = Allowance::new(None, 1.0, session.device.memory());
    let plain = Heap::open_plain(&session.device, allowance).unwrap();
    for heap in [session.heap.clone(), plain] {
        // What the driver takes to reach the host's memory at all, it takes here.
        let mut first = region(&heap);
        first.grow(1 << 20).unwrap();
        drop(first);
        let values: Vec<u32> = (0..3_000_001).collect();
        let mut near =
            heap.take(&Slot::<u32, _>::unlisted("near"), &(values.len() as u64)).unwrap();
        near.upload(&session.stream, 0, &values).unwrap();
        let (free, total, pinned) = (heap.driver_free().unwrap(), heap.total(), heap.on_host());
        let mut sh = region(&heap);
        sh.grow_zeroed(&session.stream, values.len()).unwrap();
        sh.copy_from(&session.stream, 0, &near, 0..values.len()).unwrap();
        sh.grow_zeroed(&session.stream, 100_000_003).unwrap();
        // Page tables of 400 MB of other memory.
        let taken = free.0.abs_diff(heap.driver_free().unwrap().0);
        assert!(taken <= 4 * heap.granule().0, "{taken} bytes, virtual: {}", heap.is_virtual());
        assert_eq!(heap.total(), total);
        assert!(heap.on_host() >= Bytes(400_000_012));
        let mut read = |sh: &Region<u32>, first: usize| {
            let mut found = vec![1; values.len()];
            near.copy_from(&session.stream, 0, sh, first..first + values.len()).unwrap();
            near.download(&session.stream, 0, &mut found).unwrap();
            found
        };
        assert!(read(&sh, 0) == values, "what was there when it grew");
        assert!(read(&sh, values.len()).iter().all(|&value| value == 0), "what is new");
        sh.fill_words(&session.stream, 7).unwrap();
        assert!(read(&sh, 100_000_003 - values.len()).iter().all(|&value| value == 7));
        sh.shrink(10_000_000);
        sh.trim().unwrap();
        assert!(heap.on_host() < Bytes(60_000_000), "{}", heap.on_host());
        drop(sh);
        assert_eq!(heap.on_host(), pinned);
        // The scratch is still there.
        let taken = free.0.abs_diff(heap.driver_free().unwrap().0);
        assert!(taken <= 4 * heap.granule().0, "{taken} bytes stay");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_host_limit_refuses_colours_before_they_are_taken() {
    let limit = Limit::Bytes(Bytes(64 * MIB));
    let options = CudaOptions {
        storage: Storage::Offloaded,
        host_limit: limit,
        give_up: Vec::new(),
        ..CudaOptions::default()
    };
    let mut device = cuda::open_with(&options).unwrap();
    let refused = device.upload(&uneven(400_000, 3, 3).parameters).map(drop).unwrap_err();
    assert!(matches!(refused, DeviceError::HostRefused(_)), "{refused}");
    let message = refused.to_string();
    for part in ["`sh` needs", "MiB of RAM", "--host-limit 64MiB"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(taken(&mut device), [0, 0]);
}
