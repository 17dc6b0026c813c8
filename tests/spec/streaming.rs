//! Writing and resuming take host memory for one chunk of the model, not for a second model.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use splat::backend::CHUNK_ROWS;
use splat::config::Config;
use splat::export::{RenderMode, read_ply};
use splat::memory::TrainingScale;
use splat::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};
use splat::train::save::{DeviceModel, write_point_cloud};

use crate::common::prelude::*;
use crate::common::program;
use crate::common::scene::as_in_a_ply;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call is the system's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both at once, as if the system copies.
        took(bytes);
        // SAFETY: the caller's promises are passed on.
        let moved = unsafe { System.realloc(address, layout, bytes) };
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the largest allocation of `work` beyond the memory before.
fn most_held<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.load(Ordering::SeqCst);
    MOST.store(before, Ordering::SeqCst);
    let done = work();
    (done, MOST.load(Ordering::SeqCst) - before)
}

/// Gaussians of degree 1: three chunks and a part of one.
const COUNT: usize = 3 * CHUNK_ROWS + 1021;

/// Bytes of a Gaussian's parameters, and of a whole row.
const PARAMETERS: usize = 23 * 4;
const ROW: usize = 3 * PARAMETERS + 8;

/// Buffers, names and headers.
const SLACK: usize = 3 << 20;

fn model() -> Snapshot<Gaussians> {
    let mut value = 0_u16;
    let mut fill = || {
        let mut host = Gaussians::zeros(1, COUNT);
        for v in host.groups_mut().into_iter().flatten() {
            value = (value + 1) % 65_521;
            *v = f32::from(value);
        }
        // Larger scales are invalid.
        host.log_scales.iter_mut().for_each(|v| *v %= 30.0);
        host
    };
    Snapshot {
        parameters: fill(),
        first_moments: fill(),
        second_moments: fill(),
        gradient_norm_sums: vec![0.5; COUNT],
        views_seen: (0..).take(COUNT).collect(),
        absolute_norm_sums: Vec::new(),
        filter_3d: Vec::new(),
    }
}

// A single test, because the allocator counts for the whole process.
#[test]
fn the_host_holds_one_chunk_while_a_model_is_written_and_resumed() {
    let this = "streaming::the_host_holds_one_chunk_while_a_model_is_written_and_resumed";
    if !program::is_of(this) {
        return;
    }
    let mut device = Cpu::<f32>::new();
    let snapshot = model();
    let mut model = device.restore(snapshot.clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();

    let ply = folder.path().join("point_cloud.ply");
    let ((), held) = most_held(|| {
        write_point_cloud(&ply, RenderMode::default(), &mut device, &mut model, &[]).unwrap()
    });
    assert!(held < CHUNK_ROWS * PARAMETERS + SLACK, "{held} bytes for a PLY");
    assert!(held > CHUNK_ROWS * PARAMETERS, "{held} bytes cannot be all");
    assert!(read_ply(&ply).unwrap() == as_in_a_ply(snapshot.parameters.clone()));

    let about = Checkpoint {
        paced: None,
        iteration: 7,
        config: Config::default(),
        train_views: vec!["a".to_owned()],
        occasion: Occasion::Requested,
        training_scale: TrainingScale::FULL,
    };
    let (path, held) = most_held(|| {
        let mut resident = DeviceModel { device: &mut device, model: &mut model };
        about.write(folder.path(), &mut resident, None).unwrap()
    });
    assert!(held < CHUNK_ROWS * ROW + SLACK, "{held} bytes for a checkpoint");
    assert!(held > CHUNK_ROWS * ROW, "{held} bytes cannot be all");

    drop(model);
    let (mut stored, held) = most_held(|| StoredCheckpoint::open(&path).unwrap());
    assert!(held < SLACK, "{held} bytes to look a checkpoint over");
    // The CPU's model is in host memory itself.
    let (mut model, held) = most_held(|| device.load(&mut stored).unwrap());
    assert!(held < (COUNT + CHUNK_ROWS) * ROW + SLACK, "{held} bytes to resume");
    assert!(held > COUNT * ROW, "{held} bytes cannot be all");
    assert!(device.snapshot(&mut model).unwrap() == snapshot);
}
