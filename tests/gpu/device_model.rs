//! The model on a CUDA device against the model on the processor: what goes there comes back, and
//! density control leaves the same rows in the same order.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::collections::HashSet;

use splat::backend::Store;
use splat::math::random::{RandomStream, RandomUse};
use splat::memory::Limit;

use crate::prelude::*;

/// Sizes around whole blocks of 32 lanes, and one that is odd.
const SIZES: [usize; 6] = [0, 1, 31, 32, 33, 1021];

/// Enough for the largest model here, several times over.
const BUDGET: Bytes = Bytes(4 << 30);

/// A rule for which `random` has candidates, clones, splits, transparent and overlarge Gaussians.
const RULE: DensifyRule = DensifyRule {
    gradient_min: 0.5,
    small_max: 0.1,
    opacity_min: 0.005,
    scale_max: Some(1.0),
    ..DensifyRule::ALL
};

const ALL: usize = usize::MAX;

fn cuda() -> Cuda {
    open(BUDGET)
}

fn open(budget: Bytes) -> Cuda {
    let options = CudaOptions {
        vram_limit: Some(Limit::Bytes(budget)),
        vram_threshold: 1.0,
        ..CudaOptions::default()
    };
    cuda::open_with(&options).expect("a CUDA device")
}

/// Gaussians whose values are all drawn; gradients take eight values, so that many are equal.
fn random(count: usize, sh_degree: u32, seed: u64) -> Snapshot<Gaussians> {
    let stream = RandomStream::new(seed, 0, RandomUse::Sample);
    let mut index = 0;
    let mut next = || {
        index += 1;
        stream.normal(index) as f32
    };
    let mut drawn = || {
        let mut part = Gaussians::zeros(sh_degree, count);
        part.groups_mut().into_iter().flatten().for_each(|value| *value = next());
        part
    };
    let [mut parameters, first_moments, second_moments] = [drawn(), drawn(), drawn()];
    // Scales around 0.1 and up to 4, opacities down to 0.0003.
    parameters.log_scales.iter_mut().for_each(|scale| *scale = *scale * 1.2 - 3.5);
    parameters.opacity_logits.iter_mut().for_each(|logit| *logit = *logit * 2.5 - 1.0);
    let views_seen: Vec<u32> = (0..count as u64).map(|i| stream.bits(i) as u32 % 5).collect();
    let gradients = (0..count as u64).map(|i| (stream.bits(i) >> 32) % 8);
    let sums = gradients.zip(&views_seen).map(|(g, &seen)| g as f32 / 8.0 * seen.max(1) as f32);
    let gradient_norm_sums = sums.collect();
    Snapshot {
        parameters,
        first_moments,
        second_moments,
        gradient_norm_sums,
        views_seen,
        absolute_norm_sums: Vec::new(),
        filter_3d: Vec::new(),
    }
}

/// Puts NaN, infinities, and scales and opacities next to the rule's bounds into the first rows.
fn with_edges(mut snapshot: Snapshot<Gaussians>) -> Snapshot<Gaussians> {
    let near =
        |x: f32| (-2..=2).map(move |step| f32::from_bits(x.to_bits().wrapping_add_signed(step)));
    let scales = near(0.1_f32.ln()).chain(near(1.0_f32.ln() - 1e-7)).chain([
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ]);
    let Snapshot { parameters, gradient_norm_sums, views_seen, .. } = &mut snapshot;
    for (row, scale) in parameters.log_scales.chunks_exact_mut(3).zip(scales) {
        row.fill(scale);
    }
    let min = (0.005_f32 / 0.995).ln();
    let logits = near(min).chain([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    for (row, logit) in parameters.opacity_logits.iter_mut().skip(20).zip(logits) {
        *row = logit;
    }
    let sums = near(1.5).chain([f32::NAN, f32::INFINITY, -0.0]);
    for ((sum, seen), value) in gradient_norm_sums.iter_mut().zip(views_seen).skip(40).zip(sums) {
        (*sum, *seen) = (value, 3);
    }
    snapshot
}

/// All numbers that are none count as one: their bits depend on the operation that made them.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|&value| if value.is_nan() { f32::NAN } else { value }.to_bits()).collect()
}

fn triples(values: &[f32]) -> impl Iterator<Item = [f32; 3]> {
    values.chunks_exact(3).map(|v| [v[0], v[1], v[2]])
}

/// All values bit for bit; places of children, which are those not in `before`, up to rounding.
fn assert_same(
    found: &Snapshot<Gaussians>,
    expected: &Snapshot<Gaussians>,
    before: &Gaussians,
    what: &str,
) {
    assert_eq!(found.parameters.len(), expected.parameters.len(), "{what}: rows");
    assert_eq!(bits(&found.gradient_norm_sums), bits(&expected.gradient_norm_sums), "{what}");
    assert_eq!(found.views_seen, expected.views_seen, "{what}");
    for (part, found, expected) in paired_parts(found, expected) {
        let same = bits(found.values) == bits(expected.values);
        assert!(
            same || (part, found.name) == (0, "means"),
            "{what}: {} of part {part}",
            found.name
        );
    }
    let originals: HashSet<[u32; 3]> =
        triples(&before.means).map(|mean| mean.map(f32::to_bits)).collect();
    let rows = triples(&found.parameters.means)
        .zip(triples(&expected.parameters.means))
        .zip(triples(&expected.parameters.log_scales));
    for (row, ((found, expected), log_scale)) in rows.enumerate() {
        if found.map(f32::to_bits) == expected.map(f32::to_bits) {
            continue;
        }
        let original = originals.contains(&expected.map(f32::to_bits));
        assert!(!original, "{what}: row {row} is no child, but {found:?} is not {expected:?}");
        // The device contracts a * b + c to one rounding, and rounds exp, log and cos by itself: ten
        // operations differ in half a unit of the largest term, which is the mean or, at four
        // standard deviations, the parent's scale, 1.6 times the child's.
        let scale = log_scale.iter().fold(f32::MIN, |a, &b| a.max(b)).exp() * 1.6;
        for (found, expected) in found.into_iter().zip(expected) {
            let term = expected.abs() + 4.0 * scale;
            let near = (found - expected).abs() <= 10.0 * f32::EPSILON / 2.0 * term;
            let same = found == expected || (found.is_nan() && expected.is_nan());
            assert!(same || near, "{what}: row {row} is at {found}, not {expected}");
        }
    }
}

/// Runs the same densification steps on both devices. Returns their equal results.
fn densify_steps(
    start: &Snapshot<Gaussians>,
    rules: &[(DensifyRule, usize)],
) -> Vec<(Candidates, Edited)> {
    let (mut cpu, mut cuda) = (Cpu::<f32>::new(), cuda());
    let mut on_cuda = cuda.restore(start.clone()).unwrap();
    let mut done = Vec::new();
    for (number, &(rule, new_gaussians)) in rules.iter().enumerate() {
        let what = format!("{} rows, step {number}", start.parameters.len());
        // Start from equal values: positions of the last step's new Gaussians differ in rounding.
        let before: Snapshot<Gaussians> = cuda.snapshot(&mut on_cuda).unwrap();
        let mut on_cpu = cpu.restore(before.clone()).unwrap();
        let surveys = [score(&mut cpu, &on_cpu, &rule), score(&mut cuda, &on_cuda, &rule)];
        let edits = [
            densify(&mut cpu, &mut on_cpu, &rule, new_gaussians).unwrap(),
            densify(&mut cuda, &mut on_cuda, &rule, new_gaussians).unwrap(),
        ];
        assert_eq!((surveys[1], edits[1]), (surveys[0], edits[0]), "{what}");
        let expected = cpu.snapshot(&mut on_cpu).unwrap();
        let found = cuda.snapshot(&mut on_cuda).unwrap();
        assert_same(&found, &expected, &before.parameters, &what);
        done.push((surveys[0], edits[0]));
    }
    done
}

/// Longer than the memory that rows pass through: 21,824 rows of SH of degree 3.
#[test]
#[ignore = "needs a CUDA device"]
fn a_model_of_many_chunks_comes_back_whole() {
    let mut device = cuda();
    let snapshot = random(100_003, 3, 3);
    let mut model = device.restore(snapshot.clone()).unwrap();
    assert_eq!(device.snapshot(&mut model).unwrap(), snapshot);
    let rows: Vec<usize> = (0..50_000).map(|i| i * 7919 % 100_003).collect();
    let mut cpu = Cpu::<f32>::new();
    let mut on_cpu = cpu.restore(snapshot).unwrap();
    assert_eq!(device.sample(&mut model, &rows).unwrap(), cpu.sample(&mut on_cpu, &rows).unwrap());
    let behind: Result<Gaussians, DeviceError> = device.sample(&mut model, &[3, 100_003]);
    assert!(matches!(behind, Err(DeviceError::NoSuchRow { row: 100_003, len: 100_003 })));
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_model_takes_the_bytes_of_whole_blocks_of_32_rows() {
    let mut device = cuda();
    for (count, rows) in [(0, 0), (1, 32), (32, 32), (33, 64), (1021, 1024)] {
        for (sh_degree, coefficients) in [(0, 1), (1, 4), (2, 9), (3, 16)] {
            let model = device.upload(&Gaussians::zeros(sh_degree, count)).unwrap();
            let table = rows * (11 + 3 * coefficients) * 4;
            let [parameters, others] = device.model_bytes(&model);
            assert_eq!(parameters, Bytes(table));
            // Moments, statistics of each row, the steps that each block's SH has taken, and of each of the 4,096
            // latest steps two numbers for what was left behind at it.
            let behind = 4 * rows / 32 + 8 * 4096;
            assert_eq!(others, Bytes(2 * table + 8 * count as u64 + behind));
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn density_control_leaves_the_rows_that_the_processor_leaves() {
    for count in SIZES {
        for sh_degree in 0..=3 {
            densify_steps(&random(count, sh_degree, 5), &[(RULE, ALL)]);
        }
    }
    let [(survey, done)] = densify_steps(&random(1021, 1, 5), &[(RULE, ALL)])[..] else { panic!() };
    // The draws have some of everything.
    assert!(survey.small > 100 && survey.large > 100 && done.removed > 20, "{survey:?} {done:?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn numbers_that_are_none_and_values_next_to_a_bound_are_treated_alike() {
    let start = with_edges(random(333, 2, 6));
    densify_steps(&start, &[(RULE, ALL)]);
    densify_steps(&start, &[(DensifyRule { scale_max: None, ..RULE }, ALL)]);
    densify_steps(&start, &[(RULE, 50)]);
    // Every mean gradient that is a number passes.
    densify_steps(&start, &[(DensifyRule { gradient_min: f64::NEG_INFINITY, ..RULE }, 70)]);
}

#[test]
#[ignore = "needs a CUDA device"]
fn of_equal_gradients_the_first_rows_are_granted() {
    let start = random(1021, 0, 7);
    let model = splat::backend::cpu::Model::restore(&start);
    let new_gaussians = score(&mut Cpu::<f32>::new(), &model, &RULE).count();
    for granted in [0, 1, new_gaussians / 3, new_gaussians / 2, new_gaussians - 1, new_gaussians] {
        let [(_, done)] = densify_steps(&start, &[(RULE, granted)])[..] else { panic!() };
        assert_eq!(done.copied + done.split, granted);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn all_rows_or_none_may_be_pruned() {
    for count in SIZES {
        let none = DensifyRule { opacity_min: 0.0, scale_max: None, ..RULE };
        let all = DensifyRule { opacity_min: 1.5, ..RULE };
        let done = densify_steps(&random(count, 1, 8), &[(none, ALL), (all, ALL), (none, ALL)]);
        assert_eq!(done[0].1.removed, 0);
        assert_eq!(done[1].1.removed, count + done[0].0.count());
        assert_eq!(done[2].1, Edited::default());
    }
}

/// Memory after the last row holds pruned values, which new rows must not inherit.
#[test]
#[ignore = "needs a CUDA device"]
fn densification_steps_follow_each_other() {
    // Without statistics each mean gradient is 0: all are candidates, all are equal.
    let everyone = DensifyRule { gradient_min: 0.0, ..RULE };
    let steps = [
        (RULE, ALL),
        (DensifyRule { iteration: 700, ..everyone }, 100),
        (DensifyRule { opacity_min: 0.4, iteration: 800, ..everyone }, 301),
        (DensifyRule { opacity_min: 0.0, iteration: 900, ..everyone }, ALL),
        (DensifyRule { opacity_min: 0.7, gradient_min: 1.0, ..RULE }, ALL),
        (DensifyRule { opacity_min: 0.0, iteration: 1000, ..everyone }, ALL),
    ];
    for sh_degree in [0, 3] {
        let done = densify_steps(&random(1021, sh_degree, 9), &steps);
        assert!(done[2].1.removed > 400, "{done:?}");
    }
}

/// Several chunks of compaction: 47,392 rows each at degree 3.
#[test]
#[ignore = "needs a CUDA device"]
fn a_hundred_thousand_rows_are_compacted_in_their_order() {
    let start = random(100_000, 3, 10);
    let strict = DensifyRule { opacity_min: 0.3, ..RULE };
    let done = densify_steps(&start, &[(RULE, 20_000), (strict, ALL)]);
    assert!(done[0].0.count() > 20_000 && done[1].1.removed > 50_000, "{done:?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_reset_lowers_the_opacities_that_the_processor_lowers() {
    for count in SIZES {
        let start = with_edges(random(count, 1, 11));
        let reset = Adjust::ResetOpacity(0.01);
        let device = &mut cuda();
        let [found, expected] = beside!(
            device,
            Cpu::<f32>::new(),
            changed(device, &start, |device, model| device.adjust(model, &reset).unwrap()).1
        );
        assert_same(&found, &expected, &start.parameters, "reset");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn growth_beyond_the_budget_is_refused_and_the_model_stays_whole() {
    // 6 million rows of degree 0 take 1.0 GiB; twice as many do not fit beside the scratch.
    let mut device = open(Bytes(2 << 30));
    let host = random(6_000_000, 0, 12).parameters;
    let mut model = device.upload(&host).unwrap();
    let everyone = DensifyRule { gradient_min: 0.0, opacity_min: 0.5, ..RULE };
    let bytes = device.model_bytes(&model);
    let refused = densify(&mut device, &mut model, &everyone, ALL);
    assert!(matches!(refused, Err(DeviceError::Refused(_))), "{refused:?}");
    assert_eq!(device.len(&model), 6_000_000);
    assert_eq!(device.model_bytes(&model), bytes);
    assert!(device.download(&mut model).unwrap() == host);
    // A densification step without new Gaussians fits.
    let done = densify(&mut device, &mut model, &everyone, 0).unwrap();
    assert_eq!((done.copied, done.split), (0, 0));
    assert_eq!(device.len(&model), 6_000_000 - done.removed);
}

#[test]
#[ignore = "needs a CUDA device"]
fn rows_are_put_in_the_order_of_the_processor() {
    let cube = Cube { centre: [0.3, -0.1, 0.2], half_side: 0.7 };
    // The last takes two passes for each table of SH of degree 3.
    for count in SIZES.into_iter().chain([100_003, 200_003]) {
        for sh_degree in if count > 2000 { 3..=3 } else { 0..=3 } {
            let mut start = random(count, sh_degree, 13);
            let edges = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38, 1e-40, -0.0];
            for (mean, edge) in start.parameters.means.iter_mut().skip(20).step_by(4).zip(edges) {
                *mean = edge;
            }
            let device = &mut cuda();
            let [found, expected] = beside!(
                device,
                Cpu::<f32>::new(),
                changed(device, &start, |device, model| device.reorder(model, &cube).unwrap()).1
            );
            let what = format!("{count} rows of degree {sh_degree}");
            assert_same(&found, &expected, &start.parameters, &what);
            assert_eq!(bits(&found.parameters.means), bits(&expected.parameters.means), "{what}");
            assert!(count < 2 || found.views_seen != start.views_seen, "{what}: as before");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn an_order_that_there_is_no_scratch_for_is_refused_and_nothing_moves() {
    // Context and code are measured by what is free on the card, which other tests change.
    let _gpu = alone();
    let cube = Cube { centre: [0.0; 3], half_side: 1.0 };
    let host = random(6_000_000, 0, 15).parameters;
    let held = {
        let mut device = cuda();
        let _model: <Cuda as Store<Gaussians>>::Model = device.upload(&host).unwrap();
        let memory = device.entries();
        let on_device = memory.iter().filter(|entry| entry.kind != MemoryKind::Pinned);
        on_device.map(|entry| entry.mapped).sum::<Bytes>()
    };
    // Keys and numbers take 92 MiB.
    let mut device = open(Bytes(held.0 + (32 << 20)));
    let mut model = device.upload(&host).unwrap();
    let refused = device.reorder(&mut model, &cube);
    assert!(matches!(refused, Err(DeviceError::Refused(_))), "{refused:?}");
    assert!(device.download(&mut model).unwrap() == host);
}
