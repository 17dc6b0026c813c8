//! The heap on a GPU: the ledger and the driver agree.

use splat::abi::Plain;
use splat::backend::cuda::heap::{Block, Buffer as _, Heap, Pinned, Region};
use splat::backend::cuda::session::Session;
use splat::backend::cuda::sort::{
    SortKey, SortPairs, exclusive_sum, exclusive_sum_ordered, inclusive_sum, sort_pairs,
};
use splat::backend::cuda::{Model, Target};
use splat::layout::{LIBRARY_SCRATCH, Slot};
use splat::memory::{Allowance, Fallback, Limit};

use crate::common::cuda::Alone;
use crate::common::program::{self, TestFolder, end};
use crate::prelude::*;

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

/// A session alone on the GPU: free memory is a figure of the whole of it.
fn session() -> (Alone, Session) {
    let alone = alone();
    let session = Session::open(None).unwrap_or_else(|error| panic!("{error}"));
    (alone, session)
}

/// A heap that does without virtual memory.
fn plain_heap(session: &Session) -> Heap {
    let allowance = Allowance::new(None, 1.0, session.device.memory());
    Heap::open_plain(&session.device, allowance).unwrap()
}

/// The session's heap, and one that does without virtual memory.
fn heaps(session: &Session) -> [Heap; 2] {
    [session.heap.clone(), plain_heap(session)]
}

/// Runs 200 cycles of the allocations of density control and iterations.
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
fn context_and_code_are_in_the_ledger() {
    // Only the first session of a process brings context and code to the GPU, where they stay.
    let alone = alone();
    if !program::is_of("device_memory::context_and_code_are_in_the_ledger") {
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
        // Memory that is not in the ledger, as if another program held it.
        let other = plain_heap(&session);
        let mut foreign = region::<u8>(&other, "foreign").unwrap();
        foreign.grow(1024 * MIB).unwrap();
        // All of the card, which the budget would allow if nobody else held any.
        heap.set_budget(session.device.memory());
        let left = session.device.memory().0 - heap.total().0;
        let granule = heap.granule().0;
        let all = usize::try_from(left / granule * granule).unwrap();
        let mut region = region::<u8>(&heap, "sh").unwrap();
        let error = region.grow(all).unwrap_err();
        // The heap checks what other programs hold and does not call the driver.
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
    let mut host: Pinned<u32> = heap.pinned(&Slot::unlisted("staging"), &4_099).unwrap();
    for (index, value) in (0..).zip(host.as_mut_slice().unwrap()) {
        *value = index * 3 + 5;
    }
    let mut block = scratch::<u32>(heap, "block", 5_003).unwrap();
    block.fill_ones(stream).unwrap();
    block.upload_pinned(stream, 904, &host, 0..4_099).unwrap();
    let mut back: Pinned<u32> = heap.pinned(&Slot::unlisted("back"), &4_100).unwrap();
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

fn assert_sorted<K: SortKey + Ord + Default>(session: &Session, keys: &[K], bits: u32) {
    let (heap, stream, len) = (&session.heap, &session.stream, keys.len());
    let values: Vec<u32> = (0..).take(len).collect();
    let mut key_blocks = [(); 2].map(|()| scratch::<K>(heap, "keys", len).unwrap());
    let mut value_blocks = [(); 2].map(|()| scratch::<u32>(heap, "values", len).unwrap());
    key_blocks[0].upload(stream, 0, keys).unwrap();
    value_blocks[0].upload(stream, 0, &values).unwrap();
    let (keys_there, values_there) = (key_blocks.each_mut(), value_blocks.each_mut());
    let mut pairs = SortPairs { keys: keys_there, values: values_there, n: len, bits: 0..bits };
    let half = sort_pairs(heap, stream, &mut pairs).unwrap();
    let mut expected: Vec<(K, u32)> = keys.iter().copied().zip(values).collect();
    expected.sort_by_key(|&(key, _)| key);
    let (mut found_keys, mut found_values) = (vec![K::default(); len], vec![0; len]);
    key_blocks[half].download(stream, 0, &mut found_keys).unwrap();
    value_blocks[half].download(stream, 0, &mut found_values).unwrap();
    let found: Vec<(K, u32)> = found_keys.into_iter().zip(found_values).collect();
    assert!(found == expected, "{len} pairs by {bits} bits");
}

#[test]
#[ignore = "needs a CUDA device"]
fn sorting_agrees_with_the_host() {
    let (_alone, session) = session();
    for n in [1, 31, 5_003, 3_000_017] {
        let keys: Vec<u16> = numbers(n).map(|key| (key & 0x3ff) as u16).collect();
        assert_sorted(&session, &keys, 10);
    }
    let keys: Vec<u32> = numbers(1_000_003).map(|key| (key >> 32) as u32).collect();
    assert_sorted(&session, &keys, 32);
}

/// Returns the library's largest scratch since the peaks were reset, bytes.
fn library_scratch(heap: &Heap) -> u64 {
    let ledger = heap.ledger();
    let scratch = ledger.iter().find(|entry| entry.label == LIBRARY_SCRATCH.label);
    scratch.map_or(0, |entry| entry.peak.0)
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
fn sums_in_any_order_agree_with_the_host() {
    let (_alone, session) = session();
    let (heap, stream) = (&session.heap, &session.stream);
    // Primes, so that steps of 7 meet every number once; but for 1.
    for n in [1_u32, 2, 1_021, 2_000_003] {
        let values: Vec<u32> = numbers(n.into()).map(|value| (value & 0xff) as u32).collect();
        let order: Vec<u32> = (0..n).map(|index| (7 * index + 1) % n).collect();
        let [mut input, mut numbers, mut output] = ["counts", "order", "offsets"]
            .map(|label| scratch::<u32>(heap, label, values.len()).unwrap());
        input.upload(stream, 0, &values).unwrap();
        numbers.upload(stream, 0, &order).unwrap();
        let sums = |order: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
            let mut sum = 0;
            let mut before = |value| {
                sum += value;
                sum - value
            };
            order.map(|index| before(values[index as usize])).collect()
        };
        let mut found = vec![0; values.len()];
        exclusive_sum(heap, stream, values.len(), &input, &mut output).unwrap();
        output.download(stream, 0, &mut found).unwrap();
        assert!(found == sums(&mut (0..n)), "{n} values");
        exclusive_sum_ordered(heap, stream, values.len(), &input, &numbers, &mut output).unwrap();
        output.download(stream, 0, &mut found).unwrap();
        assert!(found == sums(&mut order.iter().copied()), "{n} values in another order");
    }
}

// Photographs that leave a GPU when the model needs their room: training goes on as if they had stayed.

/// Sizes of the photographs, with masks, inverse depths or normals: 15 MiB together.
const SIZES: [([u32; 2], bool); 3] =
    [([1279, 719], false), ([801, 601], true), ([1021, 767], true)];

/// Weight of the inverse depths and normals: so small that the runs differ by no more for them.
const MAP_WEIGHT: f64 = 0.01;

/// Iterations before the model grows: each view once.
const BEFORE: u32 = 3;

const AFTER: u32 = 10;

/// The model's growth takes several times as much memory as the photographs.
const GAUSSIANS: usize = 60_000;

/// Views with photographs of unlike brightness.
fn shots() -> Vec<Shot> {
    let shot = |(index, (size @ [width, height], masked)): (u32, ([u32; 2], bool))| {
        let mut draws = Draws::new(u64::from(index) + 31);
        let dark = 80.0 * f64::from(index);
        let mut bytes = |count: u32, low: f64, high: f64| -> Vec<u8> {
            (0..count)
                .map(|_| u8::try_from(draws.uniform(low, high).floor_i32()).unwrap())
                .collect()
        };
        let rgb = bytes(width * height * 3, dark, dark + 60.0);
        // The more of it, the later the view.
        let mask = masked.then(|| bytes(width * height, dark, 255.0));
        // Each far from what is drawn, and from the others.
        let values = vec![u16::try_from(9000 * (index + 1)).unwrap(); (width * height) as usize];
        let depth = (index != 1).then_some(InverseDepthMap { values, scale: 20.0, offset: 0.0 });
        // Normals at every pixel of the first map, at every third of the other.
        let step = if index == 0 { 1 } else { 3 };
        let normal = |pixel| if pixel % step == 0 { [0, 0, -127] } else { [0; 3] };
        let values = (0..width * height).flat_map(normal).collect();
        let normals = (index != 2).then_some(NormalMap { values });
        let maps = [depth.is_some(), normals.is_some()];
        let settings = DrawSettings { inverse_depth: maps.contains(&true), ..settings(3, 5) };
        let [depths, of_normals] = maps.map(|has_map| if has_map { MAP_WEIGHT } else { 0.0 });
        let terms = Terms::photometric(0.2)
            .with(Term::InverseDepth, depths)
            .with(Term::NormalMap, of_normals);
        let photo = Arc::new(Image { width, height, rgb, mask, depth, normals });
        Shot { index: index as usize, view: resized(&view(), size), photo, settings, terms }
    };
    (0..).zip(SIZES).map(shot).collect()
}

fn open(budget: Option<Bytes>) -> Result<Cuda, DeviceError> {
    cuda::open_with(&CudaOptions {
        vram_limit: budget.map(Limit::Bytes),
        vram_threshold: 1.0,
        // With `Bands`, photographs would have no room from the start.
        give_up: vec![Fallback::Slack, Fallback::Photographs],
        ..CudaOptions::default()
    })
}

struct Ran {
    losses: Vec<Loss>,
    /// Views whose photographs stayed before the model grew, and at the end.
    held: [usize; 2],
    /// More memory than was held at any time.
    peak: Bytes,
}

struct Stopped {
    error: DeviceError,
    /// True if the refusal left the model as it was. `None` if there was no model.
    unchanged: Option<bool>,
}

impl From<DeviceError> for Stopped {
    fn from(error: DeviceError) -> Self {
        Self { error, unchanged: None }
    }
}

/// Returns the photograph as training does: uploaded ahead, or now.
fn target(device: &mut Cuda, shot: &Shot) -> Result<Target, DeviceError> {
    device.resident(shot.index).map_or_else(|| device.target(shot.index, &shot.photo), Ok)
}

fn step(
    device: &mut Cuda,
    model: &mut Model,
    (shot, target): (&Shot, &Target),
    (number, rates): (u32, Rates),
) -> Result<Loss, DeviceError> {
    let (seen, mut gradients) = ((&shot.view, &shot.settings), Default::default());
    let loss = device.add_view(model, seen, (target, &shot.terms), &mut gradients)?;
    device.step(model, gradients, &AdamStep::new(number, rates))?;
    Ok(loss.read()?.into())
}

fn holds(device: &Cuda) -> usize {
    (0..SIZES.len()).filter(|&index| device.is_resident(index)).count()
}

/// Trains on each view, runs a densification step, and trains again. A target that was requested before the
/// densification step is used after it.
fn run(shots: &[Shot], gaussians: &Gaussians, budget: Option<Bytes>) -> Result<Ran, Stopped> {
    let mut device = open(budget)?;
    let mut model = device.upload(gaussians)?;
    let mut done = Done { losses: Vec::new(), held: 0, kept: device.download(&mut model)? };
    if let Err(error) = iterate(&mut device, &mut model, shots, &mut done) {
        let after = device.download(&mut model)?;
        return Err(Stopped { error, unchanged: Some(after == done.kept) });
    }
    let peak = device.entries().iter().map(|entry| entry.peak).sum();
    Ok(Ran { losses: done.losses, held: [done.held, holds(&device)], peak })
}

struct Done {
    losses: Vec<Loss>,
    held: usize,
    /// The model before the last attempt.
    kept: Gaussians,
}

fn iterate(
    device: &mut Cuda,
    model: &mut Model,
    shots: &[Shot],
    done: &mut Done,
) -> Result<(), DeviceError> {
    let of = |number: u32| &shots[number as usize % shots.len()];
    let mut early = None;
    for number in 1..=BEFORE + AFTER {
        let shot = of(number);
        if number == BEFORE + 1 {
            done.held = holds(device);
            early = Some(target(device, shot)?);
            // All are cloned and none is removed, whatever the rounding.
            densify(device, model, &DensifyRule::ALL, usize::MAX)?;
            done.kept = device.download(model)?;
        }
        let target = match early.take() {
            Some(target) => target,
            None => target(device, shot)?,
        };
        // Clones lie at their parents. Without a rate they stay there, so that both are seen alike.
        let rates = if number <= BEFORE { AT_REST } else { RATES };
        let loss = step(device, model, (shot, &target), (number, rates))?;
        done.losses.push(loss);
        done.kept = device.download(model)?;
        drop(target);
        if number != BEFORE && number < BEFORE + AFTER {
            let next = of(number + 1);
            let stay = Stay::Ahead(next.index);
            device.upload_target(Photo { image: &next.photo, stay })?;
        }
    }
    Ok(())
}

/// Finds the smallest budget, to the granule, that allows a run. Returns that run, and the one with one granule less.
fn least(shots: &[Shot], gaussians: &Gaussians, enough: Bytes) -> (Ran, Stopped) {
    const GRANULE: u64 = 2 << 20;
    let at = |granules: u64| run(shots, gaussians, Some(Bytes(granules * GRANULE)));
    let (mut low, mut high) = (0, enough.0.div_ceil(GRANULE));
    let (mut ran, mut stopped) = (None, None);
    while high - low > 1 {
        let middle = low.midpoint(high);
        match at(middle) {
            Ok(done) => (high, ran) = (middle, Some(done)),
            Err(stop) => (low, stopped) = (middle, Some(stop)),
        }
    }
    (ran.expect("less than the peak suffices"), stopped.expect("nothing does not suffice"))
}

fn assert_same_losses(found: &Ran, expected: &Ran) {
    assert_eq!(found.losses.len(), expected.losses.len());
    for (number, (found, expected)) in (1..).zip(found.losses.iter().zip(&expected.losses)) {
        let error = (found.total - expected.total).abs().max((found.l1 - expected.l1).abs());
        // Sums in another order, and what the first steps of Adam make of that, which are as long for a small gradient
        // as for a large one: two runs without a limit come to 8e-4. Photographs are further apart by far.
        assert!(error < 3e-3, "iteration {number}: {found:?} instead of {expected:?}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn photographs_make_room_for_the_model_and_the_losses_stay() {
    let _alone = alone();
    // Small ones, so that frames take little beside the model.
    let (shots, gaussians) = (shots(), small_gaussians(GAUSSIANS, 41));
    let unlimited = run(&shots, &gaussians, None).map_err(|stop| stop.error).unwrap();
    assert_eq!(unlimited.held, [SIZES.len(); 2], "a whole GPU has room for all");
    // A wrong photograph would be noticed.
    let apart = |a: usize, b: usize| (unlimited.losses[a].l1 - unlimited.losses[b].l1).abs();
    assert!(apart(0, 1).min(apart(1, 2)).min(apart(0, 2)) > 0.01, "{:?}", unlimited.losses);

    let (limited, stopped) = least(&shots, &gaussians, unlimited.peak + unlimited.peak);
    assert_eq!(limited.held, [SIZES.len(), 0], "first there was room for them, then not");
    assert_same_losses(&limited, &unlimited);

    for (limited, unlimited) in limited.losses.iter().zip(&unlimited.losses) {
        let depths = (limited.depth_l1, unlimited.depth_l1, 0.02);
        for (a, b, share) in [depths, (limited.normals, unlimited.normals, 0.1)] {
            assert_eq!(a.is_some(), b.is_some());
            let is_near = a.zip(b).is_none_or(|(a, b)| (a - b).abs() < share * b);
            assert!(is_near, "{limited:?} {unlimited:?}");
        }
    }

    let error = stopped.error;
    assert!(matches!(error, DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }), "{error}");
    assert_eq!(stopped.unchanged, Some(true), "a refusal changed the model");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_glance_keeps_nothing_and_lets_nothing_go() {
    let _alone = alone();
    let (shots, gaussians) = (shots(), tame_gaussians(101, 41, 3));
    let mut device = open(None).unwrap();
    let model = device.upload(&gaussians).unwrap();
    let measured = |device: &mut Cuda, shot: &Shot, target: &Target| {
        let frame = device.show(&model, &shot.view, &settings(3, 5)).unwrap();
        device.measure(&frame, target).unwrap().l1
    };
    let kept = device.target(0, &shots[0].photo).unwrap();
    let before = measured(&mut device, &shots[0], &kept);
    for _ in 0..5 {
        for shot in &shots[1..] {
            let target = device.glance(&shot.photo).unwrap();
            measured(&mut device, shot, &target);
        }
    }
    assert_eq!([0, 1, 2].map(|index| device.is_resident(index)), [true, false, false]);
    assert!(device.resident(1).is_none() && device.resident(2).is_none());
    let target = device.target(1, &shots[1].photo).unwrap();
    let by_target = measured(&mut device, &shots[1], &target);
    let glance = device.glance(&shots[1].photo).unwrap();
    let by_glance = measured(&mut device, &shots[1], &glance);
    assert!((by_target - by_glance).abs() < 1e-6, "{by_target} and {by_glance}");
    let after = measured(&mut device, &shots[0], &kept);
    assert!((after - before).abs() < 1e-6, "{after} instead of {before}");
}

// A card that other programs fill.

/// Memory of the card that stays free, per thousand: less than the 3 % that a run leaves to others, and enough for a
/// second program's context.
const LEFT_PERMILLE: u64 = 25;

#[test]
#[ignore = "needs a CUDA device"]
fn a_run_on_a_card_that_others_fill_says_who_and_what_helps() {
    let _alone = alone();
    let session = Session::open(None).unwrap_or_else(|error| panic!("{error}"));
    let heap = plain_heap(&session);
    let left = session.device.memory().0 / 1000 * LEFT_PERMILLE;
    let taken = usize::try_from(heap.driver_free().unwrap().0 - left).unwrap();
    let mut ballast: Region<u8> = heap.region(&Slot::unlisted("ballast")).unwrap();
    ballast.grow(taken).unwrap();

    let place = TestFolder::with_scene();
    let ended = end(place.train().args(["--device", "cuda", "--iterations", "2"]));
    let ended = ended.refused(4, &["has too little free memory", "--vram-threshold"]);
    for wrong in ["cannot be used", "most by nothing", "0.0 of 0.0"] {
        assert!(!ended.stderr.contains(wrong), "{ended:#?}");
    }
    // In a container, the driver may keep the names to itself.
    let own = format!("process {}", std::process::id());
    let is_named = ended.stderr.contains(&own) || ended.stderr.contains("does not name");
    assert!(is_named, "{ended:#?}");
    drop(ballast);
}
