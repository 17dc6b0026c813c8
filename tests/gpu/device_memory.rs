//! The heap on a GPU: what the books say is what the driver says.

use crate::common::cuda::{Alone, alone};
use crate::common::process;
use splat::abi::Plain;
use splat::backend::DeviceError;
use splat::backend::cuda::heap::{Block, Buffer as _, Heap, Pinned, Region};
use splat::backend::cuda::session::Session;
use splat::backend::cuda::sort::{
    SortPairs, exclusive_sum, exclusive_sum_ordered, inclusive_sum, sort_pairs,
};
use splat::layout::{LIBRARY_SCRATCH, Slot};
use splat::memory::{Allowance, Bytes};

const MIB: usize = 1 << 20;

/// A region without a slot of the program.
fn region<T: Plain>(heap: &Heap, label: &'static str) -> Result<Region<T>, DeviceError> {
    heap.region(&Slot::unlisted(label))
}

/// Scratch without a slot of the program.
fn scratch<T: Plain>(
    heap: &Heap,
    label: &'static str,
    len: usize,
) -> Result<Block<T>, DeviceError> {
    heap.take(&Slot::unlisted(label), &(len as u64))
}

/// Page-locked memory without a slot of the program.
fn pinned<T: Plain>(
    heap: &Heap,
    label: &'static str,
    len: usize,
) -> Result<Pinned<T>, DeviceError> {
    heap.pinned(&Slot::unlisted(label), &(len as u64))
}

/// A session alone on the GPU: free memory is a figure of the whole of it.
fn session() -> (Alone, Session) {
    let alone = alone();
    let session = Session::open(None).unwrap_or_else(|error| panic!("{error}"));
    (alone, session)
}

/// The session's heap, and one that does without virtual memory.
fn heaps(session: &Session) -> [Heap; 2] {
    let plain =
        Heap::open_plain(&session.device, Allowance::new(None, 1.0, session.device.memory()))
            .unwrap();
    [session.heap.clone(), plain]
}

/// 200 rounds as density control and iterations make them.
fn cycles(session: &Session, heap: &Heap) {
    let mut regions: [Region<f32>; 3] =
        ["geometry", "sh", "moments"].map(|label| region(heap, label).unwrap());
    for round in 0..200_usize {
        for (number, region) in regions.iter_mut().enumerate() {
            // Up and down, never the same twice.
            let len = (round * 37 + number * 11) % 101 * 70_001 + 13;
            region.grow_zeroed(&session.stream, len).unwrap();
            region.shrink(len);
            if round % 10 == number {
                region.trim().unwrap();
            }
        }
        let mut first = scratch::<u32>(heap, "first", round * 40_009 % 3_000_017).unwrap();
        let second = scratch::<u16>(heap, "second", 1_000_003).unwrap();
        first.fill_ones(&session.stream).unwrap();
        drop(first);
        drop(scratch::<u8>(heap, "third", round * 1_001).unwrap());
        drop(second);
    }
    session.stream.synchronize().unwrap();
}

#[test]
#[ignore = "needs a CUDA device"]
fn two_hundred_cycles_give_all_memory_back() {
    let (_alone, session) = session();
    for heap in heaps(&session) {
        // Whatever the driver takes for itself on first use, it takes here.
        cycles(&session, &heap);
        heap.trim_scratch().unwrap();
        let (before, held) = (heap.driver_free().unwrap(), heap.total());
        cycles(&session, &heap);
        heap.trim_scratch().unwrap();
        assert_eq!(heap.driver_free().unwrap(), before, "virtual: {}", heap.is_virtual());
        assert_eq!(heap.total(), held);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_ledger_says_what_the_driver_says() {
    let (_alone, session) = session();
    for heap in heaps(&session) {
        let (free, total) = (heap.driver_free().unwrap(), heap.total());
        let agree = |step: &str| {
            let taken = free.0.abs_diff(heap.driver_free().unwrap().0);
            let charged = heap.total().0 - total.0;
            assert!(
                taken.abs_diff(charged) <= heap.granule().0,
                "{step}: the driver gave {taken} bytes, the ledger has {charged}; virtual: {}",
                heap.is_virtual()
            );
        };
        let mut sh = region::<f32>(&heap, "sh").unwrap();
        let mut geometry = region::<f32>(&heap, "geometry").unwrap();
        for len in [1, 1_000_003, 30_000_001, 150_000_007] {
            sh.grow(len).unwrap();
            geometry.grow(len / 3).unwrap();
            agree("grown");
        }
        let block = scratch::<u8>(&heap, "frame", 333 * MIB + 1).unwrap();
        agree("scratch");
        sh.shrink(10_000_019);
        sh.trim().unwrap();
        agree("trimmed");
        drop((block, geometry));
        heap.trim_scratch().unwrap();
        agree("given back");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn context_and_code_are_in_the_books() {
    // Only the first session of a process brings context and code to the GPU, where they stay.
    let alone = alone();
    if !process::is_of("device_memory::context_and_code_are_in_the_books") {
        return;
    }
    drop(alone);
    let (_alone, session) = session();
    let mapped = |label: &str| -> u64 {
        let entries = session.heap.ledger();
        entries.iter().filter(|entry| entry.label == label).map(|entry| entry.mapped.0).sum()
    };
    let fixed = mapped("context and code");
    // The code alone is less than a GiB; beyond that something else was counted.
    assert!(fixed < Bytes::GIB.0, "{fixed} bytes");
    assert!(fixed > MIB as u64, "{fixed} bytes for context and code");
    let status = mapped("status");
    assert!(status <= session.heap.granule().0, "{status} bytes for a few words");
    assert_eq!(session.heap.total().0, fixed + status, "nothing else is held after opening");
}

#[test]
#[ignore = "needs a CUDA device"]
fn what_a_region_holds_stays_when_it_grows() {
    let (_alone, session) = session();
    for heap in heaps(&session) {
        let mut region = region::<u32>(&heap, "ids").unwrap();
        let first: Vec<u32> = (0..1_000_003).map(|index| index * 7 + 1).collect();
        region.grow(first.len()).unwrap();
        region.upload(&session.stream, 0, &first).unwrap();
        let address = region.address();
        region.grow_zeroed(&session.stream, 20_000_001).unwrap();
        assert!(!heap.is_virtual() || region.address() == address);
        let mut found = vec![1; 20_000_001];
        region.download(&session.stream, 0, &mut found).unwrap();
        assert!(found[..first.len()] == first, "contents changed");
        assert!(found[first.len()..].iter().all(|&value| value == 0), "new values are not zero");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn beyond_the_budget_is_a_value() {
    let (_alone, session) = session();
    for heap in heaps(&session) {
        heap.set_budget(Bytes(heap.total().0 + 100 * MIB as u64));
        let before = heap.driver_free().unwrap();
        let mut region = region::<u8>(&heap, "sh").unwrap();
        region.grow(90 * MIB).unwrap();
        let Err(DeviceError::Refused(refusal)) = region.grow(101 * MIB) else {
            panic!("not refused");
        };
        assert_eq!(refusal.label, "sh");
        let block = scratch::<u8>(&heap, "frame", 30 * MIB);
        assert!(matches!(block, Err(DeviceError::Refused(_))));
        region.upload(&session.stream, 90 * MIB - 3, &[1, 2, 3]).unwrap();
        drop((block, region));
        assert_eq!(heap.driver_free().unwrap(), before);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn more_than_the_gpu_has_is_a_value() {
    let (_alone, session) = session();
    for heap in heaps(&session) {
        let before = heap.driver_free().unwrap();
        // What these books know nothing of, as if another program held it.
        let other =
            Heap::open_plain(&session.device, Allowance::new(None, 1.0, session.device.memory()))
                .unwrap();
        let mut foreign = region::<u8>(&other, "foreign").unwrap();
        foreign.grow(1024 * MIB).unwrap();
        // All of the card, which the budget would allow if nobody else held any.
        heap.set_budget(session.device.memory());
        let left = session.device.memory().0 - heap.total().0;
        let granule = heap.granule().0;
        let all = usize::try_from(left / granule * granule).unwrap();
        let mut region = region::<u8>(&heap, "sh").unwrap();
        let error = region.grow(all).unwrap_err();
        // The driver is not even asked: the heap looks what others hold.
        let DeviceError::Refused(refusal) = error else { panic!("{error}") };
        assert!(refusal.budget.0 + 1024 * MIB as u64 <= session.device.memory().0, "{refusal}");
        region.grow(MIB).unwrap();
        drop((region, foreign));
        assert_eq!(heap.driver_free().unwrap(), before);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn pinned_values_go_there_and_back() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    let mut host = pinned::<u32>(heap, "staging", 4_099).unwrap();
    for (index, value) in (0..).zip(host.as_mut_slice().unwrap()) {
        *value = index * 3 + 5;
    }
    let mut block = scratch::<u32>(heap, "block", 5_003).unwrap();
    block.fill_ones(stream).unwrap();
    block.upload_pinned(stream, 904, &host, 0..4_099).unwrap();
    let mut back = pinned::<u32>(heap, "back", 4_100).unwrap();
    block.download_pinned(stream, 903..5_003, &mut back).unwrap();
    let found = back.as_slice().unwrap();
    assert_eq!(found[0], u32::MAX);
    assert!(found[1..] == *host.as_slice().unwrap(), "contents changed");
    let held = heap.ledger().into_iter().find(|entry| entry.label == "staging").unwrap();
    assert_eq!(held.mapped, Bytes(4_099 * 4));
}

/// Numbers without pattern, the same on every run.
fn numbers(n: u64) -> impl Iterator<Item = u64> {
    (1..=n).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

#[test]
#[ignore = "needs a CUDA device"]
fn sorting_agrees_with_the_host() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    for n in [1_u32, 31, 5_003, 3_000_017] {
        let keys: Vec<u16> = numbers(n.into()).map(|key| (key & 0x3ff) as u16).collect();
        let values: Vec<u32> = (0..n).collect();
        let len = keys.len();
        let mut key_blocks = [(); 2].map(|()| scratch::<u16>(heap, "keys", len).unwrap());
        let mut value_blocks = [(); 2].map(|()| scratch::<u32>(heap, "values", len).unwrap());
        key_blocks[0].upload(stream, 0, &keys).unwrap();
        value_blocks[0].upload(stream, 0, &values).unwrap();
        let mut pairs = SortPairs {
            keys: key_blocks.each_mut(),
            values: value_blocks.each_mut(),
            n: len,
            bits: 0..10,
        };
        let half = sort_pairs(heap, stream, &mut pairs).unwrap();
        let mut expected: Vec<(u16, u32)> = keys.into_iter().zip(values).collect();
        expected.sort_by_key(|&(key, _)| key);
        let (mut found_keys, mut found_values) = (vec![0; len], vec![0; len]);
        key_blocks[half].download(stream, 0, &mut found_keys).unwrap();
        value_blocks[half].download(stream, 0, &mut found_values).unwrap();
        let found: Vec<(u16, u32)> = found_keys.into_iter().zip(found_values).collect();
        assert!(found == expected, "{n} pairs by 10 bits");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn sorting_by_32_bits_agrees_with_the_host() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    let keys: Vec<u32> = numbers(1_000_003).map(|key| (key >> 32) as u32).collect();
    let len = keys.len();
    let mut key_blocks = [(); 2].map(|()| scratch::<u32>(heap, "keys", len).unwrap());
    let mut value_blocks = [(); 2].map(|()| scratch::<u32>(heap, "values", len).unwrap());
    key_blocks[0].upload(stream, 0, &keys).unwrap();
    value_blocks[0].upload(stream, 0, &keys).unwrap();
    let mut pairs = SortPairs {
        keys: key_blocks.each_mut(),
        values: value_blocks.each_mut(),
        n: len,
        bits: 0..32,
    };
    let half = sort_pairs(heap, stream, &mut pairs).unwrap();
    let mut expected = keys;
    expected.sort_unstable();
    let mut found = vec![0; len];
    for blocks in [&key_blocks, &value_blocks] {
        blocks[half].download(stream, 0, &mut found).unwrap();
        assert!(found == expected, "not the host's order");
    }
}

/// What the library's scratch was at most since the peaks were reset.
fn library_scratch(heap: &Heap) -> u64 {
    heap.ledger()
        .iter()
        .find(|entry| entry.label == LIBRARY_SCRATCH.label)
        .map_or(0, |entry| entry.peak.0)
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_library_takes_the_scratch_that_is_planned() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    let library = heap.cub_scratch();
    // Around the ends of tiles, and far from them.
    for n in [1_usize, 4_864, 4_865, 8_832, 8_833, 98_304, 98_305, 1_000_003, 9_000_011] {
        let values = || {
            let mut block = scratch::<u32>(heap, "values", n).unwrap();
            block.zero(stream).unwrap();
            block
        };
        let (mut rows, mut others) = ([values(), values()], [values(), values()]);
        for bits in [7, 8, 13, 30, 32] {
            heap.reset_peak();
            let [keys, values] = [&mut rows, &mut others].map(|blocks| blocks.each_mut());
            let half = sort_pairs(heap, stream, &mut SortPairs { keys, values, n, bits: 0..bits })
                .unwrap();
            let planned = library.sort32.bytes(n as u64, bits);
            assert_eq!(library_scratch(heap), planned, "{n} pairs by {bits} bits");
            let is_second = library.sort32.ends_in_second(n as u64, bits);
            assert_eq!(half == 1, is_second, "{n} pairs by {bits} bits");
        }
        let mut keys = [(); 2].map(|()| scratch::<u16>(heap, "keys", n).unwrap());
        keys[0].zero(stream).unwrap();
        for bits in [7, 8, 13, 16] {
            heap.reset_peak();
            let (keys, values) = (keys.each_mut(), others.each_mut());
            let half = sort_pairs(heap, stream, &mut SortPairs { keys, values, n, bits: 0..bits })
                .unwrap();
            let is_second = library.sort16.ends_in_second(n as u64, bits);
            assert_eq!(half == 1, is_second, "{n} pairs of short keys by {bits} bits");
            // Before compute capability 9.0 the table has what the largest GPU takes.
            let planned = library.sort16.bytes(n as u64, bits);
            assert!(library_scratch(heap) <= planned, "{n} pairs of short keys by {bits} bits");
        }
        let (input, output) = (&rows[0], &mut others[0]);
        heap.reset_peak();
        exclusive_sum(heap, stream, n, input, output).unwrap();
        assert_eq!(library_scratch(heap), library.sum32.bytes(n as u64), "a sum of {n}");
        heap.reset_peak();
        exclusive_sum_ordered(heap, stream, n, input, &rows[1], output).unwrap();
        assert_eq!(library_scratch(heap), library.sum32.bytes(n as u64), "an ordered sum of {n}");
        let mut wide = scratch::<u64>(heap, "offsets", n).unwrap();
        wide.zero(stream).unwrap();
        heap.reset_peak();
        inclusive_sum(heap, stream, &mut wide).unwrap();
        assert_eq!(library_scratch(heap), library.sum64.bytes(n as u64), "a wide sum of {n}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn sums_agree_with_the_host() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    for n in [1_u64, 1_021, 2_000_003] {
        let values: Vec<u32> = numbers(n).map(|value| (value & 0xff) as u32).collect();
        let mut input = scratch::<u32>(heap, "counts", values.len()).unwrap();
        let mut output = scratch::<u32>(heap, "offsets", values.len()).unwrap();
        input.upload(stream, 0, &values).unwrap();
        exclusive_sum(heap, stream, values.len(), &input, &mut output).unwrap();
        let mut found = vec![0; values.len()];
        output.download(stream, 0, &mut found).unwrap();
        let expected: Vec<u32> = values
            .iter()
            .scan(0, |sum, value| {
                *sum += value;
                Some(*sum - value)
            })
            .collect();
        assert!(found == expected, "{n} values");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn sums_in_another_order_agree_with_the_host() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    // Primes, so that steps of 7 meet every number once.
    for n in [2_u32, 1_021, 2_000_003] {
        let values: Vec<u32> = numbers(n.into()).map(|value| (value & 0xff) as u32).collect();
        let order: Vec<u32> = (0..n).map(|index| (7 * index + 1) % n).collect();
        let mut input = scratch::<u32>(heap, "counts", values.len()).unwrap();
        let mut numbers = scratch::<u32>(heap, "order", values.len()).unwrap();
        let mut output = scratch::<u32>(heap, "offsets", values.len()).unwrap();
        input.upload(stream, 0, &values).unwrap();
        numbers.upload(stream, 0, &order).unwrap();
        exclusive_sum_ordered(heap, stream, values.len(), &input, &numbers, &mut output).unwrap();
        let mut found = vec![0; values.len()];
        output.download(stream, 0, &mut found).unwrap();
        let mut sum = 0;
        let mut expected = Vec::with_capacity(values.len());
        for &index in &order {
            expected.push(sum);
            sum += values[index as usize];
        }
        assert!(found == expected, "{n} values");
    }
}
