//! What a GPU counts of a view's work, where it can be told beforehand.

use crate::common::oracle::{AT_REST, Shot, settings, step};
use crate::common::prelude::*;
use crate::common::scene::{gaussian, photo, resized, straight, tame_gaussians, together};
use splat::backend::cuda::{Cuda, Model};
use splat::backend::{Render, RowWords, Terms, Work};
use splat::dataset::View;
use splat::memory::Bytes;
use splat::model::Gaussians;

/// Whole parts of 8 x 4 pixels, and tiles that are not whole.
const SIZE: [u32; 2] = [40, 24];
const PIXELS: u64 = 40 * 24;

fn work(device: &mut Cuda, model: &Model, view: &View, settings: &Drawing) -> Option<Work> {
    let frame = device.draw(model, view, settings).unwrap();
    device.profiler().unwrap().work(model, &frame).unwrap()
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_gaussian_that_covers_the_view_is_work_in_each_of_its_parts() {
    let device = &mut crate::common::cuda::open();
    let behind = gaussian([0.0, 0.0, -3.0], 0.1, 0.5, [0.5; 3]);
    let mut all = vec![behind; 40];
    all.push(gaussian([0.0, 0.0, 2.0], 50.0, 0.9, [0.0, 0.0, 1.0]));
    let mut model = device.upload(&together(&all)).unwrap();
    let (view, settings) = (resized(&straight(), SIZE), settings(0, 1));

    let tiles = 3 * 2;
    let expected = Work {
        gaussians: 41,
        row_words: RowWords { geometry: 11, geometry_moments: 22, sh: 48, sh_moments: 96 },
        visible: 1,
        lane_blocks_seen: 1,
        rows_fetched: 8,
        rows_late: 0,
        pixels: PIXELS,
        tiles,
        instances: tiles,
        instances_reached: tiles,
        splats_hit: 1,
        hit_words: PIXELS / 32,
        chunks: tiles,
        states: 0,
        pairs_evaluated: PIXELS,
    };
    assert_eq!(work(device, &model, &view, &settings), Some(expected));
    let photo = photo(SIZE[0], SIZE[1], None);
    let terms = Terms::photometric(0.2);
    let mut shot = Shot { index: 0, view: view.clone(), photo, settings, terms };
    step(device, &mut model, &shot, (1, AT_REST));
    assert_eq!(work(device, &model, &view, &settings), Some(expected));

    // A step that sees nothing leaves the colours behind.
    let blind = Drawing { near: 1e6, ..settings };
    let of_nothing = work(device, &model, &view, &blind).unwrap();
    assert_eq!((of_nothing.visible, of_nothing.lane_blocks_seen), (0, 0));
    assert_eq!((of_nothing.chunks, of_nothing.pairs_evaluated), (0, 0));
    shot.settings = blind;
    step(device, &mut model, &shot, (2, AT_REST));
    let expected = Work { rows_late: 8, ..expected };
    assert_eq!(work(device, &model, &view, &settings), Some(expected));
}

#[test]
#[ignore = "needs a CUDA device"]
fn no_fewer_pairs_are_evaluated_than_change_a_pixel() {
    let device = &mut crate::common::cuda::open();
    let model = device.upload(&tame_gaussians(4000, 3, 3)).unwrap();
    let (view, settings) = (resized(&straight(), [203, 147]), settings(3, 1));
    let picture = Drawing { pass: Pass::Picture, ..settings };
    let frame = device.show(&model, &view, &picture).unwrap();
    let blended = device.image(&frame).unwrap().blended.unwrap();
    let contributing: u64 = blended.into_iter().map(u64::from).sum();

    let work = work(device, &model, &view, &settings).unwrap();
    assert!(work.pairs_evaluated >= contributing && contributing > 0, "{contributing}: {work:?}");
    assert!(work.pairs_evaluated < 20 * contributing, "{contributing}: {work:?}");
    assert!(work.splats_hit <= work.visible && work.visible <= work.gaussians, "{work:?}");
    assert!(work.instances_reached <= work.instances, "{work:?}");
    assert!(work.chunks >= work.instances_reached.div_ceil(256), "{work:?}");
    assert!(work.visible <= work.rows_fetched, "{work:?}");
    assert!(work.rows_fetched <= work.lane_blocks_seen * 32, "{work:?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_copy_takes_its_time() {
    let mut device = crate::common::cuda::open();
    let profiler = Render::<Gaussians>::profiler(&mut device).unwrap();
    let copy = profiler.copy_speed().unwrap().unwrap();
    assert!(copy.bytes >= Bytes(1 << 28) && copy.bytes <= Bytes::GIB, "{copy:?}");
    // No GPU is as slow as a disk, or ten times as fast as any.
    assert!(copy.gb_per_s > 10.0 && copy.gb_per_s < 1e5, "{copy:?}");
}
