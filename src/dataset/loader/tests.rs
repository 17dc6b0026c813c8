//! The loader with decoders made for the test: slow, failing, panicking.
#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::dataset::AlphaMeaning;
use crate::math::random::{RandomStream, RandomUse};

/// Bytes of each test image, and what is reserved for it while it is decoded.
pub(super) const KEPT: u64 = 5 * 3 * 3;
pub(super) const RESERVED: u64 = 5 * 3 * 4;

fn source(index: usize, size: [u32; 2]) -> ImageSource {
    ImageSource {
        path: PathBuf::from(index.to_string()),
        mask: None,
        full_size: size,
        size,
        apply_orientation: false,
        undistort: None,
        alpha: AlphaMeaning::Mask,
        depth: None,
        normals: None,
    }
}

pub(super) fn sources(count: usize) -> Vec<ImageSource> {
    (0..count).map(|index| source(index, [5, 3])).collect()
}

pub(super) fn number(source: &ImageSource) -> usize {
    source.path.to_str().unwrap().parse().unwrap()
}

/// An image that shows its index.
pub(super) fn picture(source: &ImageSource) -> Image {
    let [width, height] = source.size;
    let value = number(source) as u8;
    Image {
        width,
        height,
        rgb: vec![value; (width * height * 3) as usize],
        mask: None,
        depth: None,
        normals: None,
    }
}

pub(super) fn cache(images: u64) -> Residency {
    Residency::OnDemand { cache: Bytes(images * RESERVED) }
}

fn loader(
    count: usize,
    policy: Residency,
    decoder: impl Fn(&ImageSource) -> Result<Image, ImageError> + Send + Sync + 'static,
) -> ImageLoader {
    ImageLoader::with_decoder(sources(count), policy, Box::new(decoder), None)
}

pub(super) fn failing(source: &ImageSource) -> ImageError {
    ImageError::Truncated { path: source.path.display().to_string(), bytes: 1 }
}

/// Waits for what worker threads are about to do; a test that waits in vain fails.
pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn images_are_decoded_ahead_in_order_until_the_cache_is_full() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let loader = loader(20, cache(3), move |source| {
        seen.lock().unwrap().push(number(source));
        Ok(picture(source))
    });
    assert_eq!((loader.held(), loader.statistics().decoded), (Bytes(0), 0));
    let order = [7, 3, 19, 0, 11, 4, 8, 2];
    loader.schedule_decoding(&order);
    for (done, &index) in order.iter().enumerate() {
        // Room for three, of which the image used last takes one until the next fetch.
        let ahead = (done + 2).min(order.len());
        eventually("decoding ahead", || log.lock().unwrap().len() >= ahead);
        let image = loader.fetch(index).unwrap();
        assert_eq!(image.rgb[0], index as u8);
        assert!(loader.held() <= Bytes(3 * RESERVED));
    }
    // Each decoded once; two workers may finish in either order, so neighbours may swap.
    let mut decoded = log.lock().unwrap().clone();
    for (turn, index) in decoded.iter().enumerate() {
        let own = order.iter().position(|i| i == index).unwrap();
        assert!(own.abs_diff(turn) < MAX_WORKERS, "{decoded:?}");
    }
    decoded.sort_unstable();
    let mut all = order.to_vec();
    all.sort_unstable();
    assert_eq!(decoded, all);
}

#[test]
fn a_permutation_longer_than_the_cache_is_decoded_once_per_epoch() {
    let loader = loader(50, cache(6), |source| Ok(picture(source)));
    for epoch in 0..4 {
        let order = RandomStream::new(1, epoch, RandomUse::ViewOrder).permutation(50);
        loader.schedule_decoding(&order);
        for index in order {
            loader.fetch(index).unwrap();
        }
    }
    let decoded = loader.statistics().decoded;
    assert!(decoded <= 200, "{decoded} decodes for 200 fetches");
}

#[test]
fn a_later_announcement_replaces_the_earlier_and_what_comes_sooner_wins() {
    let loader = loader(40, cache(4), |source| Ok(picture(source)));
    loader.schedule_decoding(&[0, 1, 2, 3, 4, 5, 6, 7]);
    eventually("a full cache", || loader.statistics().decoded >= 4);
    // Images 0 to 3 are still scheduled, but their turns come last now.
    loader.schedule_decoding(&[30, 31, 32, 33, 0, 1, 2, 3]);
    eventually("the new order", || loader.statistics().decoded >= 8);
    for index in 30..34 {
        loader.fetch(index).unwrap();
    }
    assert_eq!(loader.statistics().missed, 0);
}

#[test]
fn a_fetch_does_not_wait_for_images_decoded_ahead() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let busy = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&busy);
    let loader = loader(20, cache(20), move |source| {
        if number(source) < 10 {
            begun.fetch_add(1, Ordering::SeqCst);
            gate.lock().unwrap().recv().ok();
        }
        Ok(picture(source))
    });
    loader.schedule_decoding(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    eventually("a worker that is busy", || busy.load(Ordering::SeqCst) >= 1);
    // Returns although every worker is stuck.
    assert_eq!(loader.fetch(15).unwrap().rgb[0], 15);
    assert_eq!(loader.statistics().missed, 1);
    // An image in flight is waited for, and not decoded twice.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| loader.fetch(0).unwrap());
        eventually("a fetch that waits", || loader.statistics().waited == 1);
        drop(release);
        assert_eq!(waiting.join().unwrap().rgb[0], 0);
    });
}

#[test]
fn a_failure_is_remembered_and_told_to_everyone() {
    let loader = loader(6, cache(6), |source| match number(source) {
        2 => Err(failing(source)),
        4 => panic!("index out of range"),
        _ => Ok(picture(source)),
    });
    loader.schedule_decoding(&[0, 1, 2, 3, 4, 5]);
    for _ in 0..3 {
        for index in 0..6 {
            let outcome = loader.fetch(index);
            match index {
                2 => assert!(matches!(*outcome.unwrap_err(), ImageError::Truncated { .. })),
                4 => assert!(matches!(*outcome.unwrap_err(), ImageError::Panicked { .. })),
                _ => assert_eq!(outcome.unwrap().rgb[0], index as u8),
            }
        }
    }
    assert_eq!(loader.statistics().decoded, 6);
    let missing = loader.fetch(6).unwrap_err().to_string();
    assert_eq!(missing, "image 6 was requested, but the scene has 6 images");
}

#[test]
fn an_image_larger_than_the_cache_is_served_and_not_kept() {
    let mut sources = sources(4);
    sources[1].size = [50, 40];
    let decoder = Box::new(|source: &ImageSource| Ok(picture(source)));
    let loader = ImageLoader::with_decoder(sources, cache(2), decoder, None);
    loader.schedule_decoding(&[0, 1, 2, 1]);
    for index in [0, 1, 2, 1] {
        assert_eq!(loader.fetch(index).unwrap().rgb[0], index as u8);
        assert!(loader.held() <= Bytes(2 * RESERVED));
    }
    // Never decoded ahead, for nothing would remain of it.
    assert!(loader.statistics().missed >= 2);
}

#[test]
fn what_a_caller_holds_is_not_given_up_and_counts() {
    let loader = loader(10, cache(2), |source| Ok(picture(source)));
    let (first, second) = (loader.fetch(0).unwrap(), loader.fetch(1).unwrap());
    assert_eq!(loader.held(), Bytes(2 * KEPT));
    // No room: decoded for the caller alone.
    let third = loader.fetch(2).unwrap();
    assert_eq!(loader.held(), Bytes(2 * KEPT));
    assert!(Arc::ptr_eq(&first, &loader.fetch(0).unwrap()));
    assert!(!Arc::ptr_eq(&third, &loader.fetch(2).unwrap()));
    drop((first, second));
    let kept = loader.fetch(3).unwrap();
    assert!(Arc::ptr_eq(&kept, &loader.fetch(3).unwrap()));
}

#[test]
fn a_forgotten_image_is_gone_and_does_not_come_back_by_itself() {
    let loader = loader(3, cache(3), |source| Ok(picture(source)));
    loader.schedule_decoding(&[0, 1, 0, 2]);
    eventually("three images", || loader.statistics().decoded == 3);
    let in_use = loader.fetch(1).unwrap();
    for index in [0, 1, 2, 77] {
        loader.forget(index);
    }
    assert_eq!(loader.held(), Bytes(KEPT), "what is in use counts");
    drop(in_use);
    loader.forget(1);
    assert_eq!(loader.held(), Bytes(0));
    // A worker would have taken up a turn that was left.
    thread::sleep(Duration::from_millis(30));
    assert_eq!(loader.statistics().decoded, 3);
    assert_eq!(loader.fetch(0).unwrap().rgb[0], 0);
    loader.schedule_decoding(&[2]);
    eventually("the image announced anew", || loader.statistics().decoded == 5);
}

#[test]
fn with_all_images_kept_none_is_forgotten() {
    let loader = loader(2, Residency::All, |source| Ok(picture(source)));
    loader.load_all(|_, _| {}).unwrap();
    loader.forget(0);
    assert_eq!(loader.held(), Bytes(2 * KEPT));
}

#[test]
fn many_images_in_the_cache_make_a_fetch_no_slower() {
    const IMAGES: usize = 40_000;
    let loader = loader(IMAGES, cache(IMAGES as u64 / 2), |source| Ok(picture(source)));
    let start = Instant::now();
    for index in 0..IMAGES {
        loader.fetch(index).unwrap();
    }
    // Half of the fetches give up another image. Sorting all that are kept for each took 15 s in
    // this test; a fraction of a second is left.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn dropping_a_busy_loader_ends_after_the_decodes_under_way() {
    let decoded = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&decoded);
    let loader = loader(200, cache(200), move |source| {
        thread::sleep(Duration::from_millis(5));
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(picture(source))
    });
    loader.schedule_decoding(&(0..200).collect::<Vec<_>>());
    eventually("a first image", || decoded.load(Ordering::SeqCst) > 0);
    drop(loader);
    let at_drop = decoded.load(Ordering::SeqCst);
    assert!(at_drop < 200, "all images were decoded before the workers stopped");
    thread::sleep(Duration::from_millis(20));
    assert_eq!(decoded.load(Ordering::SeqCst), at_drop);
}

#[test]
fn loading_all_keeps_all_and_counts_failures() {
    let loader = loader(30, Residency::All, |source| match number(source) {
        13 | 21 => Err(failing(source)),
        _ => Ok(picture(source)),
    });
    let last = AtomicUsize::new(0);
    let failures = loader
        .load_all(|done, of| {
            assert_eq!(of, 30);
            last.fetch_max(done, Ordering::SeqCst);
        })
        .unwrap();
    assert_eq!(failures.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [13, 21]);
    assert_eq!((last.into_inner(), loader.held()), (30, Bytes(28 * KEPT)));
    loader.schedule_decoding(&(0..30).collect::<Vec<_>>());
    for index in 0..30 {
        assert_eq!(loader.fetch(index).is_err(), [13, 21].contains(&index));
    }
    assert_eq!(loader.statistics().decoded, 30);

    let hopeless = self::loader(3, Residency::All, |source| Err(failing(source)));
    assert!(hopeless.load_all(|_, _| {}).is_err());
    let empty = self::loader(0, Residency::All, |source| Ok(picture(source)));
    assert!(empty.load_all(|_, _| {}).unwrap().is_empty());
}

#[test]
fn with_a_cache_of_two_images_one_is_decoded_while_the_other_is_in_use() {
    let small = loader(4, cache(1), |source| Ok(picture(source)));
    assert_eq!(small.least_to_decode_ahead(), Some(Bytes(2 * RESERVED)));
    let loader = loader(4, cache(2), |source| Ok(picture(source)));
    assert_eq!(loader.least_to_decode_ahead(), None);
    loader.schedule_decoding(&[0, 1, 2, 3]);
    eventually("the first image", || loader.statistics().decoded >= 1);
    for index in 0..3 {
        // As training does: the image before is gone when the next is asked for.
        let image = loader.fetch(index).unwrap();
        eventually("the next image", || loader.statistics().decoded >= index as u64 + 2);
        drop(image);
    }
    assert_eq!(loader.statistics().missed, 0);
}
