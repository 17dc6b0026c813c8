//! Terms of surfaces and their gradients of every device against the CPU backend in double precision.

use splat::math::linalg::{mul_transposed, sub};

#[cfg(kernels)]
use crate::common::oracle::Groups;
use crate::common::surface::drawn_for;
use crate::prelude::*;
#[cfg(kernels)]
use std::time::Instant;

each_backend!(
    each_term_and_all_of_them_agree_with_the_oracle,
    lists_of_every_length_agree_with_the_oracle,
    any_number_of_samples_agrees_with_the_oracle,
    centres_that_coincide_agree_with_the_oracle,
    what_surfaces_ask_is_added_to_what_the_view_asks,
    what_two_terms_ask_adds_up,
    a_rule_that_asks_for_nothing_changes_nothing,
    a_view_that_sees_nothing_has_terms_of_nothing,
    neighbours_that_are_missing_or_stale_are_errors,
);

const RULE: SurfaceRule = SurfaceRule::UNEQUAL;

/// Terms that are on: entropy, density, normals.
const TERMS: [[bool; 3]; 5] = [
    [true, false, false],
    [false, true, false],
    [false, false, true],
    [false, true, true],
    [true, true, true],
];

fn with_terms([entropy, density, normal]: [bool; 3]) -> SurfaceRule {
    let on = |weight: f64, on: bool| if on { weight } else { 0.0 };
    SurfaceRule {
        entropy: on(RULE.entropy, entropy),
        density: on(RULE.density, density),
        normal: on(RULE.normal, normal),
        ..RULE
    }
}

/// A crowd in the middle of the view. One in three is too faint to be seen, and the others are so much
/// in view that every precision sees the same ones: samples are drawn among what is seen, by place.
/// What is unseen is a neighbour of what is seen.
pub(super) fn crowd(count: usize, seed: u64) -> Gaussians {
    crowd_in(&straight(), count, seed, [-3.5, -1.5])
}

/// A [`crowd`] in the middle of another view, with log-scales between these.
pub(super) fn crowd_in(view: &View, count: usize, seed: u64, [low, high]: [f64; 2]) -> Gaussians {
    let mut draws = Draws::new(seed);
    let parts: Vec<Gaussians> = (0..count)
        .map(|row| {
            let [x, y] = draws.array(-0.1, 0.1);
            let mean_cam = [x, y, draws.uniform(0.4, 0.7)];
            let mean = mul_transposed(&view.pose.rotation, sub(mean_cam, view.pose.translation));
            let mut one = gaussian(mean.map(f64::to_f32), 1.0, 0.5, [0.5; 3]);
            one.log_scales = draws.array::<3>(low, high).map(f64::to_f32).to_vec();
            one.quats = draws.array::<4>(-1.0, 1.0).map(f64::to_f32).to_vec();
            let logits = if row % 3 == 2 { [-9.0, -6.5] } else { [-2.0, 4.0] };
            one.opacity_logits = vec![draws.uniform(logits[0], logits[1]).to_f32()];
            one
        })
        .collect();
    together(&parts)
}

/// Takes a step by the terms at samples alone, and by drawn normals of this weight. Returns the terms, and moments that
/// are the gradients.
pub(super) fn compared<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (view, count, normals): (&View, u32, f64),
    rule: &SurfaceRule,
) -> (SurfaceTerms, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    let near = &device.neighbours(&model, count).unwrap();
    let photo = photo(view.camera.width, view.camera.height, masked(view));
    let target = &device.target(0, &photo).unwrap();
    let drawing = &DrawSettings { inverse_depth: normals != 0.0, ..drawn_for(rule) };
    let terms = &rule.terms().with(Term::DepthNormal { depths: NormalDepths::All }, normals);
    let (seen, mut gradients) =
        (Seen { view, drawing, target, terms, near: Some(near) }, Default::default());
    let [_, samples] = device.add_seen(&mut model, &seen, &mut gradients).unwrap();
    let terms = samples.read().unwrap().into();
    device.step(&mut model, gradients, &AdamStep::new(1, AT_REST)).unwrap();
    (terms, device.snapshot(&mut model).unwrap())
}

fn regularised<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    count: u32,
    rule: &SurfaceRule,
) -> (SurfaceTerms, Snapshot<Gaussians>) {
    compared(device, gaussians, (&straight(), count, 0.0), rule)
}

/// Terms within 1e-5: means of a thousand roundings, of depths that are right to a few 1e-7.
pub(super) fn assert_terms_agree(found: &SurfaceTerms, expected: &SurfaceTerms, what: &str) {
    let values = |of: &SurfaceTerms| [of.entropy, of.density, of.normal, of.sdf];
    let what = format_args!("{what}: entropy, density, normal or distance");
    assert_near(&values(found), &values(expected), |value| 1e-5 * value.max(1.0), what);
}

/// Share of the largest gradient of all that is allowed in a column in which all cancels.
pub(super) const CANCELLED: f64 = 1e-5;

fn assert_agrees<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    count: u32,
    (rule, what): (&SurfaceRule, &str),
) -> (SurfaceTerms, Snapshot<Gaussians>) {
    let [found, expected] = beside_oracle!(device, regularised(device, gaussians, count, rule));
    assert_terms_agree(&found.0, &expected.0, what);
    assert_columns_agree(&gradients(&found.1), &gradients(&expected.1), CANCELLED, what);
    found
}

fn moved(after: &Snapshot<Gaussians>) -> Vec<bool> {
    let logits = after.first_moments.opacity_logits.iter();
    let scales = after.first_moments.log_scales.chunks(3);
    logits.zip(scales).map(|(&logit, s)| logit != 0.0 || s.iter().any(|&d| d != 0.0)).collect()
}

fn each_term_and_all_of_them_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(3, 1), (40, 2), (400, 3)] {
        let gaussians = crowd(count, seed);
        for terms in TERMS {
            let what = format!("{count} Gaussians, {terms:?}");
            let (found, after) = assert_agrees(device, &gaussians, 16, (&with_terms(terms), &what));
            for (value, on) in [found.entropy, found.density, found.normal].into_iter().zip(terms) {
                assert!(if on { value > 1e-3 } else { value == 0.0 }, "{what}: {found:?}");
            }
            let moved = moved(&after);
            // Neighbours that the view does not see have a say in the density.
            assert_eq!(moved[2], terms[1], "{what}");
            assert!(moved[0] || !(terms[0] || terms[1]), "{what}");
        }
    }
}

fn lists_of_every_length_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = crowd(150, 11);
    for count in [1, 2, 10, 15, 16, 17, 31, 32] {
        assert_agrees(device, &gaussians, count, (&RULE, &format!("{count} neighbours")));
    }
    // As many as there are.
    for len in [1, 2, 5, 17] {
        let what = format!("a model of {len}");
        assert_agrees(device, &crowd(len, 12), 32, (&RULE, &what));
    }
}

fn any_number_of_samples_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = crowd(300, 21);
    // Blocks take 8 samples at a time; 40,000 are more than all blocks take at once.
    for samples in [1, 2, 7, 8, 9, 33, 40_000] {
        for count in [12, 20] {
            let rule = SurfaceRule { samples, ..RULE };
            let what = format!("{samples} samples of {count} neighbours");
            assert_agrees(device, &gaussians, count, (&rule, &what));
        }
    }
    let none = SurfaceRule { samples: 0, ..RULE };
    let (terms, _) = assert_agrees(device, &gaussians, 16, (&none, "no samples"));
    assert_eq!((terms.density, terms.normal), (0.0, 0.0));
}

fn centres_that_coincide_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    // Twenty in one place: the lists of the last hold the first sixteen, and not themselves.
    let mut gaussians = crowd(60, 31);
    let middle = [0.02, -0.03, 0.5];
    for mean in gaussians.means.as_chunks_mut::<3>().0.iter_mut().take(20) {
        *mean = middle;
    }
    assert_agrees(device, &gaussians, 16, (&RULE, "twenty in one place"));
    // Specks beside what is large: the squared distance is more than is looked at.
    for scales in gaussians.log_scales.as_chunks_mut::<3>().0.iter_mut().take(5) {
        *scales = [-14.0, -14.5, -15.0];
    }
    assert_agrees(device, &gaussians, 16, (&RULE, "specks among them"));
}

fn what_surfaces_ask_is_added_to_what_the_view_asks<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 3, 3);
    let shot = shot(&gaussians, &straight(), settings(3, 3), (3, Counted::Clear));
    // Entropy alone, which does not draw: tame Gaussians may be on the border of the view.
    let rule = with_terms([true, false, false]);
    let [found, expected] = beside_oracle!(device, shot_and_rule(device, &gaussians, &shot, &rule));
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "with entropy"));
    let without = shot_and_rule(device, &gaussians, &shot, &with_terms([false; 3]));
    assert_eq!(without.first_moments.sh_dc.len(), found.first_moments.sh_dc.len());
    let apart = without.first_moments.opacity_logits != found.first_moments.opacity_logits;
    assert!(apart, "entropy asks for nothing");
}

fn shot_and_rule<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    rule: &SurfaceRule,
) -> Snapshot<Gaussians> {
    let shot = Shot { terms: rule.terms(), ..shot.clone() };
    stepped(device, gaussians, &[shot], &AdamStep::new(1, AT_REST)).1
}

fn what_two_terms_ask_adds_up<B: TrainDevice>(device: &mut B) {
    let gaussians = crowd(90, 41);
    let oracle = &mut Cpu::<f64>::new();
    // Moments that began with nothing are sums of gradients.
    let parts = [[true, true, false], [false, false, true]].map(|on| {
        let (_, after) = regularised(oracle, &gaussians, 16, &with_terms(on));
        gradients(&after)
    });
    let mut expected = parts[0].clone();
    let sums = expected.iter_mut().zip(&parts[1]);
    for (sum, more) in sums.flat_map(|((.., sum), (.., more))| sum.iter_mut().zip(more)) {
        *sum += more;
    }
    let (_, found) = regularised(device, &gaussians, 16, &RULE);
    assert_columns_agree(&gradients(&found), &expected, CANCELLED, "all terms at once");
}

fn a_rule_that_asks_for_nothing_changes_nothing<B: TrainDevice>(device: &mut B) {
    let gaussians = crowd(50, 51);
    let (terms, after) = regularised(device, &gaussians, 16, &with_terms([false; 3]));
    assert_eq!(terms, SurfaceTerms::default());
    assert!(!moved(&after).contains(&true));
    assert_eq!(after.parameters, gaussians);
}

fn a_view_that_sees_nothing_has_terms_of_nothing<B: TrainDevice>(device: &mut B) {
    let mut gaussians = crowd(50, 61);
    gaussians.means.as_chunks_mut::<3>().0.iter_mut().for_each(|mean| mean[2] = -mean[2].abs());
    let (terms, after) = regularised(device, &gaussians, 16, &RULE);
    assert_eq!(terms, SurfaceTerms::default());
    assert!(!moved(&after).contains(&true));
}

fn neighbours_that_are_missing_or_stale_are_errors<B: TrainDevice>(device: &mut B) {
    let mut model = device.upload(&crowd(50, 71)).unwrap();
    let other = device.upload(&crowd(49, 72)).unwrap();
    let stale = device.neighbours(&other, 16).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    let view = straight();
    let mut added = |near, rule: &SurfaceRule| {
        let (seen, mut gradients) = ((&view, masked(&view)), Default::default());
        add_rule(device, &mut model, seen, (near, rule), &mut gradients)
    };
    let found = added(None, &RULE);
    assert!(matches!(found, Err(DeviceError::MissingInput { .. })), "{found:?}");
    let found = added(Some(&stale), &RULE);
    let expected = matches!(found, Err(DeviceError::StaleNeighbours { found: 49, len: 50 }));
    assert!(expected, "{found:?}");
    added(Some(&near), &RULE).unwrap();
    // Opacities have no neighbours.
    for near in [None, Some(&stale)] {
        added(near, &with_terms([true, false, false])).unwrap();
        added(near, &SurfaceRule { samples: 0, ..RULE }).unwrap();
    }
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_compact_model_gets_the_same_gradients() {
    let gaussians = crowd(300, 81);
    for count in [16, 32] {
        assert_compact_agrees(&gaussians, (&straight(), count), &RULE, CANCELLED);
    }
}

/// Asserts that a step of a compact model has the oracle's terms and gradients. It keeps second moments of its geometry
/// in full: their roots are the gradients' sizes.
#[cfg(kernels)]
pub(super) fn assert_compact_agrees(
    gaussians: &Gaussians,
    (view, count): (&View, u32),
    rule: &SurfaceRule,
    cancelled: f64,
) {
    let device = &mut compact();
    let [(terms, after), (expected_terms, expected)] =
        beside_oracle!(device, compared(device, gaussians, (view, count, 0.0), rule));
    assert_terms_agree(&terms, &expected_terms, "compact");
    let size = |v: &f32| (f64::from(*v) / (1.0 - 0.999)).sqrt();
    let groups = after.second_moments.groups();
    let found: Groups = groups
        .iter()
        .take(4)
        .map(|group| (group.name, group.width, group.values.iter().map(size).collect()))
        .collect();
    let mut expected = gradients(&expected);
    expected.truncate(found.len());
    expected.iter_mut().flat_map(|(.., v)| v).for_each(|v| *v = v.abs());
    assert!(expected.iter().flat_map(|(.., v)| v).any(|&value| value > 1e-4), "no gradients");
    assert_columns_agree(&found, &expected, cancelled, &format!("{count} neighbours, compact"));
}

/// Flat Gaussians on a wavy sheet, as close together as they are large; the view sees some two in five.
#[cfg(kernels)]
fn sheet(count: usize) -> Gaussians {
    let mut draws = Draws::new(91);
    let mut all = Gaussians::zeros(0, count);
    let spacing = 2.4 / (count as f64).sqrt();
    for row in 0..count {
        let [x, y] = draws.array::<2>(-1.2, 1.2);
        let z = 2.0 + 0.1 * (3.0 * x).sin() * (3.0 * y).cos() + draws.uniform(-1e-3, 1e-3);
        all.means[row * 3..][..3].copy_from_slice(&[x, y, z].map(f64::to_f32));
        let [a, b, thin] = draws.array::<3>(0.5, 1.0);
        let scales = [a * spacing, b * spacing, 0.1 * thin * spacing];
        let log_scales = scales.map(|s| s.ln().to_f32());
        all.log_scales[row * 3..][..3].copy_from_slice(&log_scales);
        let quat = [1.0, draws.uniform(-0.2, 0.2), draws.uniform(-0.2, 0.2), 0.0];
        all.quats[row * 4..][..4].copy_from_slice(&quat.map(f64::to_f32));
        all.opacity_logits[row] = draws.uniform(-1.0, 3.0).to_f32();
    }
    all
}

/// Most milliseconds that the stage may take on a data centre's GPU.
#[cfg(kernels)]
const MOST_MS: f64 = 6.0;

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device, and time"]
fn a_million_samples_among_six_million_gaussians_take_milliseconds() {
    let mut device: Cuda = cuda::open();
    let mut model = device.upload(&sheet(6_000_000)).unwrap();
    // As training has them: neighbours lie side by side.
    device.reorder(&mut model, &Cube { centre: [0.0, 0.0, 2.0], half_side: 1.2 }).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    let (view, size) = (resized(&straight(), [800, 600]), 800 * 600);
    let target = device.target(0, &photo(800, 600, Some(vec![0; size]))).unwrap();
    let drawing = DrawSettings { pass: Pass::Train, surface: true, ..DrawSettings::DEFAULT };
    let (rounds, samples) = (10, 1_000_000);
    let none = SurfaceRule { entropy: 0.0, density: 0.0, normal: 0.0, ..RULE };
    let none = SurfaceRule { sdf_unit: 0.1, samples, ..none };
    // Milliseconds of an objective and a backward pass by a rule, and the terms' values.
    let mut timed = |rule: SurfaceRule| {
        let mut run = |iteration| {
            let rule = SurfaceRule { iteration, ..rule };
            let terms = rule.terms();
            let lists = Some(&near);
            let frame = device.draw(&model, &view, &drawing).unwrap();
            device.synchronize().unwrap();
            let began = Instant::now();
            let objective = Objective { target: &target, terms: &terms, near: lists, other: None };
            let (frame, _) = device.objective(&model, frame, &objective).unwrap();
            let mut gradients = Default::default();
            let samples = device.backward(&mut model, frame, lists, &mut gradients);
            let samples = samples.unwrap();
            device.synchronize().unwrap();
            let ms = began.elapsed().as_secs_f64() * 1e3;
            (ms, SurfaceTerms::from(samples.read().unwrap()))
        };
        // The first finds room, and shows that what is timed is worth it.
        let (_, terms) = run(rounds);
        let sum: f64 = (0..rounds).map(|iteration| run(iteration).0).sum();
        (sum / f64::from(rounds), terms)
    };
    let (without, _) = timed(none);
    let weights = [
        [0.1, 0.0, 0.0, 0.0],
        [0.0, 0.2, 0.0, 0.0],
        [0.0, 0.0, 0.2, 0.0],
        [0.0, 0.0, 0.0, 0.2],
        [0.0, 0.0, 0.2, 0.2],
        [0.1, 0.2, 0.2, 0.0],
    ];
    let (mut all, mut with_distances) = (0.0, 0.0);
    for [entropy, density, normal, sdf] in weights {
        let (ms, terms) = timed(SurfaceRule { entropy, density, normal, sdf, ..none });
        let values = [terms.entropy, terms.density, terms.normal, terms.sdf];
        let on = [entropy > 0.0, density > 0.0, normal > 0.0, sdf > 0.0];
        assert_eq!(values.map(|value| value > 0.0), on, "{terms:?}");
        all = ms - without;
        if sdf > 0.0 {
            with_distances = all;
        }
        println!(
            "entropy {entropy}, density {density}, normal {normal}, distance {sdf}: {all:.2} ms, \
             {terms:?}"
        );
    }
    assert!(all <= MOST_MS, "{all:.2} ms");
    assert!(with_distances <= MOST_MS, "{with_distances:.2} ms");
}
