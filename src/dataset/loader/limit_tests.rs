//! The loader in a process with other memory.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use proptest::prelude::*;

use super::image_cache::ImageCache;
use super::tests::{KEPT, RESERVED, cache, eventually, picture, sources};
use super::*;

/// A loader in a process that holds other memory and checks it all the time.
fn beside(count: usize, policy: Residency, limit: u64) -> (ImageLoader, Arc<AtomicU64>) {
    let otherwise = Arc::new(AtomicU64::new(0));
    let held = Arc::clone(&otherwise);
    let watch = Watch::with(
        Bytes(limit),
        Duration::ZERO,
        Box::new(move |images| Some(images + Bytes(held.load(Ordering::SeqCst)))),
    );
    let decoder = Box::new(|source: &ImageSource| Ok(picture(source)));
    (ImageLoader::with_decoder(sources(count), policy, decoder, Some(watch)), otherwise)
}

#[test]
fn images_give_way_to_what_else_is_held_and_come_back() {
    let (loader, otherwise) = beside(40, cache(8), 100 * RESERVED);
    let order: Vec<usize> = (0..40).collect();
    loader.schedule_decoding(&order);
    eventually("a full cache", || loader.held() >= Bytes(8 * KEPT));
    // Room for three.
    otherwise.store(97 * RESERVED, Ordering::SeqCst);
    assert_eq!(loader.fetch(0).unwrap().rgb[0], 0);
    // A decode that was in flight keeps what was reserved for it, but not the image.
    eventually("room", || loader.held() <= Bytes(3 * RESERVED));
    for index in 1..10 {
        loader.fetch(index).unwrap();
        assert!(loader.held() <= Bytes(3 * RESERVED));
    }
    otherwise.store(0, Ordering::SeqCst);
    let before = loader.statistics().decoded;
    loader.fetch(10).unwrap();
    eventually("more images", || loader.statistics().decoded >= before + 4);
    eventually("a full cache again", || loader.held() >= Bytes(8 * KEPT));
}

#[test]
fn beyond_the_limit_images_are_decoded_on_demand_and_not_kept() {
    for policy in [cache(8), Residency::All] {
        let (loader, otherwise) = beside(10, policy, 1000);
        otherwise.store(5000, Ordering::SeqCst);
        let order: Vec<usize> = (0..10).chain(0..10).collect();
        loader.schedule_decoding(&order);
        for &index in &order {
            let image = loader.fetch(index).unwrap();
            assert_eq!(usize::from(image.rgb[0]), index);
            assert_eq!(loader.held(), Bytes(0));
        }
        let LoaderStatistics { ready, waited, missed, decoded } = loader.statistics();
        assert_eq!([ready, waited, missed, decoded], [0, 0, 20, 20]);
    }
}

#[test]
fn when_all_are_kept_they_are_only_as_long_as_the_limit_allows() {
    let (loader, otherwise) = beside(30, Residency::All, 100 * RESERVED);
    loader.load_all(|_, _| {}).unwrap();
    assert_eq!(loader.held(), Bytes(30 * KEPT));
    otherwise.store(100 * RESERVED - 5 * KEPT, Ordering::SeqCst);
    loader.fetch(3).unwrap();
    assert!(loader.held() <= Bytes(5 * KEPT), "{}", loader.held());
    for index in 0..30 {
        assert_eq!(usize::from(loader.fetch(index).unwrap().rgb[0]), index);
        assert!(loader.held() <= Bytes(5 * KEPT));
    }
}

#[test]
fn a_system_that_does_not_tell_leaves_the_cache_as_it_is() {
    let watch = Watch::with(Bytes(1), Duration::ZERO, Box::new(|_| None));
    let decoder = Box::new(|source: &ImageSource| Ok(picture(source)));
    let loader = ImageLoader::with_decoder(sources(4), cache(4), decoder, Some(watch));
    loader.load_all(|_, _| {}).unwrap();
    assert_eq!(loader.held(), Bytes(4 * KEPT));
}

#[test]
fn a_look_is_taken_once_an_interval_and_images_held_back_are_told_once() {
    let watch = Watch::with(Bytes(1), Duration::from_secs(3600), Box::new(|_| None));
    assert_eq!([watch.is_due(), watch.is_due()], [true, false]);
    assert_eq!([watch.is_first_report(), watch.is_first_report()], [true, false]);
}

#[test]
fn all_images_decoded_take_three_bytes_a_pixel_and_a_mask_one_more() {
    let mut sources = sources(3);
    sources[1].mask = Some("mask.png".into());
    let decoder = Box::new(|source: &ImageSource| Ok(picture(source)));
    let loader = ImageLoader::with_decoder(sources, Residency::All, decoder, None);
    assert_eq!(loader.decoded_bytes(), Bytes(2 * 45 + 60));
}

/// One operation on the cache.
#[derive(Clone, Debug)]
enum Happening {
    /// Fetched, and held for as many of the following.
    Fetch(usize, usize),
    Begin(usize),
    Finish,
    Ahead,
    Announce(Vec<usize>),
    Capacity(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0_usize..12, 0_usize..4).prop_map(|(image, held)| Happening::Fetch(image, held)),
        2 => (0_usize..12).prop_map(Happening::Begin),
        3 => Just(Happening::Finish),
        4 => Just(Happening::Ahead),
        1 => prop::collection::vec(0_usize..12, 0..20).prop_map(Happening::Announce),
        3 => (0_u64..10).prop_map(|images| Happening::Capacity(images * RESERVED)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_the_capacity_becomes_only_what_is_in_use_exceeds_it(
        happenings in prop::collection::vec(happening(), 1..80),
    ) {
        let all = sources(12);
        let image = |index: usize| Arc::new(picture(&all[index]));
        let mut cache = ImageCache::new(Bytes(4 * RESERVED));
        let mut capacity = Bytes(4 * RESERVED);
        let (mut jobs, mut in_use) = (Vec::new(), Vec::<(usize, Arc<Image>)>::new());
        for happening in happenings {
            in_use.retain(|(left, _)| *left > 0);
            in_use.iter_mut().for_each(|(left, _)| *left -= 1);
            match happening {
                Happening::Fetch(index, held) => match cache.ask(index, Bytes(RESERVED)) {
                    Lookup::Hit(outcome) => in_use.push((held, outcome.unwrap())),
                    Lookup::InFlight(_) => {}
                    Lookup::Miss(job) => {
                        let outcome = image(job.image);
                        in_use.push((held, Arc::clone(&outcome)));
                        cache.finish(job, Ok(outcome));
                    }
                },
                Happening::Begin(index) => {
                    if let Lookup::Miss(job) = cache.ask(index, Bytes(RESERVED)) {
                        jobs.push(job);
                    }
                }
                Happening::Finish => {
                    if let Some(job) = jobs.pop() {
                        let outcome = image(job.image);
                        cache.finish(job, Ok(outcome));
                    }
                }
                Happening::Ahead => jobs.extend(cache.next_job(|_| Bytes(RESERVED))),
                Happening::Announce(order) => cache.schedule_decoding(order.into_iter()),
                Happening::Capacity(bytes) => capacity = Bytes(bytes),
            }
            cache.set_capacity(capacity);
            // An image may be in use twice, and decoded for its caller alone: this is a bound.
            let busy = jobs.len() as u64 * RESERVED + in_use.len() as u64 * KEPT;
            prop_assert!(cache.held().0 <= capacity.0.max(busy), "{} of {capacity}", cache.held());
            prop_assert!(cache.kept() <= cache.held());
        }
        in_use.clear();
        for job in jobs {
            let outcome = image(job.image);
            cache.finish(job, Ok(outcome));
        }
        cache.set_capacity(capacity);
        prop_assert!(cache.held() <= capacity);
        prop_assert_eq!(cache.kept(), cache.held());
        cache.set_capacity(Bytes(0));
        prop_assert_eq!(cache.held(), Bytes(0));
    }
}
