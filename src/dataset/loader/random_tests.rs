//! The loader under random operations of several threads.
#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;

use super::tests::{RESERVED, cache, failing, number, picture, sources};
use super::*;
use crate::math::random::{RandomStream, RandomUse};

/// One thing that a caller does.
#[derive(Clone, Debug)]
enum Operation {
    Fetch(usize),
    /// Fetch, and hold on to the image for the next operations.
    Hold(usize),
    Announce(Vec<usize>),
    Forget(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0_usize..12).prop_map(Operation::Fetch),
        3 => (0_usize..12).prop_map(Operation::Hold),
        1 => prop::collection::vec(0_usize..14, 0..20).prop_map(Operation::Announce),
        2 => (0_usize..14).prop_map(Operation::Forget),
    ]
}

/// Does everything from one thread each, and checks every image and the bound all along.
fn perform(loader: &ImageLoader, threads: &[Vec<Operation>], bound: Bytes) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for operations in threads {
            let over = &over;
            scope.spawn(move || {
                let mut held = Vec::new();
                for operation in operations {
                    match operation {
                        Operation::Announce(order) => loader.schedule_decoding(order),
                        Operation::Forget(index) => loader.forget(*index),
                        Operation::Fetch(index) | Operation::Hold(index) => {
                            let outcome = loader.fetch(*index);
                            assert_eq!(outcome.is_err(), *index == 5);
                            if let Ok(image) = outcome {
                                assert_eq!(image.rgb[0], *index as u8);
                                if matches!(operation, Operation::Hold(_)) {
                                    held.push(image);
                                }
                            }
                        }
                    }
                    if held.len() > 3 {
                        held.clear();
                    }
                    if loader.held() > bound {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(!over.into_inner(), "more than {bound} held");
}

/// Image 5 fails, image 9 is larger than the cache.
fn awkward(images: u64) -> ImageLoader {
    let mut sources = sources(12);
    sources[9].size = [100, 100];
    let decoder = |source: &ImageSource| {
        if number(source) == 5 { Err(failing(source)) } else { Ok(picture(source)) }
    };
    ImageLoader::with_decoder(sources, cache(images), Box::new(decoder), None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_bound_holds_whatever_the_threads_do(
        threads in prop::collection::vec(prop::collection::vec(operation(), 1..40), 1..5),
        images in 0_u64..8,
    ) {
        perform(&awkward(images), &threads, Bytes(images * RESERVED));
    }
}

#[test]
fn ten_thousand_random_operations_of_four_threads_come_to_an_end() {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let threads: Vec<Vec<Operation>> = (0..4)
            .map(|thread| {
                let stream = RandomStream::new(thread, 0, RandomUse::Sample);
                (0..2500)
                    .map(|step| match stream.below(2 * step, 10) {
                        0 => Operation::Announce(
                            RandomStream::new(step, thread, RandomUse::ViewOrder).permutation(12),
                        ),
                        1..4 => Operation::Hold(stream.below(2 * step + 1, 12)),
                        _ => Operation::Fetch(stream.below(2 * step + 1, 12)),
                    })
                    .collect()
            })
            .collect();
        let loader = awkward(3);
        perform(&loader, &threads, Bytes(3 * RESERVED));
        drop(loader);
        sender.send(()).unwrap();
    });
    // Well under a second on two cores; a deadlock would never end.
    assert!(ended.recv_timeout(Duration::from_secs(60)).is_ok(), "deadlock, or a failed check");
}
