//! Real photographs, decoded and resized.

use std::hint::black_box;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use splat::dataset::{ImageLoader, ImageSource, Residency, decode, probe};
use splat::memory::{Bytes, host_memory};

use crate::common::program;
use crate::common::synthetic::real_scenes;

fn scene(name: &str, divisor: u32) -> Option<Vec<ImageSource>> {
    let folder = real_scenes()?.join(name).join("images");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let sources = paths.into_iter().map(|path| {
        let header = probe(&path).unwrap();
        assert!(!header.orientation_swaps);
        let full_size = [header.width, header.height];
        let size = full_size.map(|side| (side + divisor / 2) / divisor);
        ImageSource { size, ..ImageSource::plain(path, full_size) }
    });
    Some(sources.collect())
}

#[test]
fn the_first_fox_image_agrees_with_pillow() {
    let Some(sources) = scene("fox", 8) else { return };
    assert_eq!((sources.len(), sources[0].full_size), (50, [1061, 1894]));
    let image = decode(&sources[0]).unwrap();
    assert_eq!((image.width, image.height, &image.mask), (133, 237, &None));
    // Means over a rectangle (x, y, width, height) of the image that Pillow decodes with
    // libjpeg-turbo and resizes with its own Lanczos filter.
    let expected = [
        ([0, 0, 133, 237], [140.847, 115.897, 95.508]),
        ([8, 16, 16, 16], [119.40, 104.77, 78.37]),
        ([60, 110, 16, 16], [100.66, 85.79, 55.93]),
        ([100, 40, 16, 16], [111.97, 81.48, 55.29]),
        ([40, 200, 16, 16], [221.72, 227.27, 223.87]),
    ];
    for ([left, top, width, height], colour) in expected {
        for (channel, expected) in colour.into_iter().enumerate() {
            let sum: f64 = (top..top + height)
                .flat_map(|y| (left..left + width).map(move |x| (y * 133 + x) * 3 + channel))
                .map(|at| f64::from(image.rgb[at]))
                .sum();
            let mean = sum / (width * height) as f64;
            println!("{left},{top} channel {channel}: {mean:.3}, expected {expected}");
            // The decoders round their transforms and interpolate the halved chroma differently: less than half a
            // level in the mean. Another filter is off by more: a box by 0.5 in the fourth rectangle.
            assert!((mean - expected).abs() < 0.4, "{left},{top}: {mean} is not {expected}");
        }
    }
}

/// Memory of this process, MiB.
fn resident() -> f64 {
    host_memory().map_or(0.0, |memory| memory.resident.mib())
}

/// Fetches photographs. Returns the most that the process and the loader held, MiB.
fn fetch_all(loader: &ImageLoader, order: &[usize]) -> [f64; 2] {
    let [mut peak, mut held] = [resident(), 0.0];
    for &index in order {
        loader.fetch(index).unwrap();
        held = f64::max(held, loader.held().mib());
        peak = peak.max(resident());
    }
    println!("{peak:.1} MiB at most, images {held:.1} at most, {:?}", loader.statistics());
    [peak, held]
}

#[test]
fn a_small_cache_serves_a_whole_scene_within_its_bound() {
    let Some(sources) = scene("bonsai", 4) else { return };
    if !program::is_of("images::a_small_cache_serves_a_whole_scene_within_its_bound") {
        return;
    }
    let count = sources.len();
    assert_eq!((count, sources[0].size), (292, [200, 133]));
    let (cache, start) = (Bytes(16 << 20), resident());
    let loader = ImageLoader::new(sources, Residency::OnDemand { cache });
    let order: Vec<usize> = (0..count).map(|turn| turn * 5 % count).collect();
    loader.schedule_decoding(&order);
    let [peak, held] = fetch_all(&loader, &order);
    assert!(held <= cache.mib(), "{held} MiB");
    // The cache, four photographs being decoded (each a few times its 1.3 MB), and the threads' heaps. All images at
    // full size would take 370 MB, all at this size 23 MB more.
    assert!(peak - start < 100.0, "{peak} MiB, {start} at the start");
}

#[test]
fn decoding_is_fast_enough() {
    for (name, divisor, images) in [("bonsai", 4, 40), ("fox", 8, 20)] {
        let Some(mut sources) = scene(name, divisor) else { return };
        sources.truncate(images);
        let clock = Instant::now();
        for source in &sources {
            decode(source).unwrap();
        }
        let ms = clock.elapsed().as_secs_f64() * 1e3 / images as f64;
        println!("{name} at 1/{divisor}: {ms:.1} ms per image on one thread");
        // Twenty times the time on an idle machine.
        assert!(ms < 1500.0);
    }
}

#[test]
fn the_process_stays_within_its_host_limit() {
    let Some(sources) = scene("bonsai", 1) else { return };
    if !program::is_of("images::the_process_stays_within_its_host_limit") {
        return;
    }
    let count = sources.len();
    // All images decoded take 374 MB; the cache is as large as allowed.
    let limit = Bytes(host_memory().map_or(0, |memory| memory.resident.0) + (150 << 20));
    let loader = ImageLoader::within(sources, Residency::All, limit, Bytes(0));
    let order: Vec<usize> = (0..2 * count).map(|turn| turn * 5 % count).collect();
    loader.schedule_decoding(&order);
    let [peak, held] = fetch_all(&loader, &order[..count]);
    // Between two measurements, and beside the cache, photographs are being decoded.
    assert!(peak < limit.mib() + 60.0, "{peak} MiB");
    // The cache uses the limit.
    assert!(held > 75.0, "{held} MiB");
    // Another part of the process takes most of the memory.
    let ballast = vec![1_u8; 100 << 20];
    loader.fetch(order[count]).unwrap();
    sleep(Duration::from_millis(300));
    let [peak, _] = fetch_all(&loader, &order[count..]);
    black_box(&ballast);
    assert!(peak < limit.mib() + 60.0, "{peak} MiB");
    assert!(loader.held().mib() < 75.0, "{} MiB", loader.held().mib());
}
