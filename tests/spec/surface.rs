//! The surface terms of the stage `surface` against their definition, their gradients against central differences,
//! and their effect on Gaussians.

use splat::backend::cpu::{Gradients, Model};
use splat::math::field::{distance, distance_bwd, entropy, entropy_bwd};
use splat::memory::Bytes;

use crate::common::prelude::*;
use crate::common::surface::{
    Definition, Frozen, Solid, geometry, geometry_gradients, lists, regularised, seeing, sheet,
};

/// Tolerances of every backward pass. Below the floor gradients drown in the rounding of the difference.
const EXACT: (f64, f64) = (1e-6, 1e-6);

/// Tolerances of a total of order 1, whose own rounding is 1e-11 of a difference over a step of 1e-4.
const EXACT_IN_SUM: (f64, f64) = (1e-6, 1e-5);

const RULE: SurfaceRule = SurfaceRule { samples: 203, ..SurfaceRule::UNEQUAL };

const OFF: SurfaceRule = SurfaceRule { entropy: 0.0, density: 0.0, normal: 0.0, ..RULE };

const NEAR: u32 = 5;

/// Returns Gaussians that meet every branch: overlapping ones in all directions, some too transparent to be seen, and
/// five specks in one position with a wide one whose only neighbours they are. Returns the visible rows, too.
fn every_kind() -> (Gaussians, Vec<usize>) {
    let mut draws = Draws::new(31);
    let mut parts = vec![gaussian([0.3, 0.2, 2.0], 1e-5, 0.9, [0.5; 3]); NEAR as usize];
    parts.push(gaussian([0.3, 0.2, 2.0], 1.0, 0.8, [0.5; 3]));
    for row in 0..18 {
        let mean = [draws.uniform(-0.1, 0.1), draws.uniform(-0.1, 0.1), draws.uniform(0.4, 0.5)];
        let mut one = gaussian(mean.map(f64::to_f32), 1.0, 0.9, [0.5; 3]);
        let logit = if row % 3 == 2 { UNSEEN_LOGIT } else { draws.uniform(-2.0, 4.0) };
        one.opacity_logits = vec![logit.to_f32()];
        one.log_scales = draws.array::<3>(-3.5, -1.5).map(f64::to_f32).to_vec();
        parts.push(one);
    }
    let mut all = together(&parts);
    // Keep the smallest axis the same.
    for (i, log_scale) in all.log_scales.iter_mut().enumerate() {
        *log_scale += [0.0, 0.13, 0.29][(i + i / 3) % 3];
    }
    all.quats = (0..all.len() * 4).map(|_| draws.uniform(-1.0, 1.0).to_f32()).collect();
    let logits = all.opacity_logits.iter().enumerate();
    let visible = logits.filter(|&(_, &l)| l > -5.0).map(|(row, _)| row).collect();
    (all, visible)
}

/// Logit of an opacity just below the visible 1/255.
const UNSEEN_LOGIT: f64 = -5.6;

#[test]
fn terms_and_gradients_agree_with_the_definition_and_its_differences() {
    let (gaussians, visible) = every_kind();
    let mut device = Cpu::<f64>::new();
    let mut model = device.upload(&gaussians).unwrap();
    let near = device.neighbours(&model, NEAR).unwrap();
    let (found, gradients) = regularised(&mut device, &mut model, &near, &RULE);

    let lists = lists(&mut device, &near, model.len());
    let definition = Definition { visible: &visible, near: &lists, rule: RULE };
    let geometry = geometry(&model);
    let expected = definition.terms(&geometry, None);
    // A coordinate of 2 is right to 4e-16, and the specks measure 1e-5.
    assert_relative(found.entropy, expected.entropy, (1e-10, 1.0), "entropy");
    assert_relative(found.density, expected.density, (1e-10, 1.0), "density");
    assert_relative(found.normal, expected.normal, (1e-10, 1.0), "normal");

    let solids: &[Solid] = &geometry.iter().map(|row| Solid::new(row)).collect::<Vec<_>>();
    let samples = definition.samples(&geometry, None);
    let frozen: Vec<Frozen> = samples.iter().map(|sample| sample.weights(solids)).collect();
    let all = || samples.iter().flat_map(|s| s.near.iter().map(move |&k| (s, &solids[k])));
    let dense = samples.iter().filter(|sample| sample.density(solids) > 1.0).count();
    let far = all().filter(|(sample, solid)| solid.distance2(sample.x) >= 1e8).count();
    let flipped = frozen.iter().flatten().filter(|(_, side)| *side < 0.0).count();
    let alone = frozen.iter().filter(|list| list.iter().all(|(weight, _)| *weight == 0.0)).count();
    let unseen = all().filter(|(_, solid)| solid.opacity < 1.0 / 255.0).count();
    let met = [dense, far, flipped, alone, unseen];
    assert!(met.iter().all(|&times| times > 0), "dense, far, flipped, alone, unseen: {met:?}");

    let mut moved = geometry.clone();
    for row in 0..geometry.len() {
        for column in 0..11 {
            // A speck's density changes within its own size.
            let unit = if column < 3 { solids[row].scale[solids[row].thin()] } else { 1.0 };
            let at = geometry[row][column];
            let expected = derivative(0.0, |steps| {
                moved[row][column] = at + steps * unit;
                definition.total(&moved, &frozen)
            });
            moved[row][column] = at;
            let what = format!("Gaussian {row}, column {column}");
            assert_relative(gradients[row][column] * unit, expected, EXACT_IN_SUM, &what);
        }
    }
}

/// Returns Gaussians scattered about the plane z = 1, in any direction.
fn scattered(count: usize) -> Gaussians {
    let mut draws = Draws::new(77);
    let parts: Vec<Gaussians> = (0..count)
        .map(|_| {
            let beside = draws.array::<2>(-0.25, 0.25);
            let mean = [beside[0], beside[1], 1.0 + draws.uniform(-0.03, 0.03)].map(f64::to_f32);
            let mut one = gaussian(mean, 1.0, draws.uniform(0.4, 0.8).to_f32(), [0.5; 3]);
            one.log_scales = draws.array::<3>(-4.0, -3.0).map(f64::to_f32).to_vec();
            one.quats = draws.array::<4>(-1.0, 1.0).map(f64::to_f32).to_vec();
            one
        })
        .collect();
    together(&parts)
}

/// Returns the terms of Gaussians with 16 neighbours each, and the gradients of all geometry, `[n][11]`.
fn regularise<R: Real>(gaussians: &Gaussians, rule: &SurfaceRule) -> (SurfaceTerms, Vec<Vec<R>>) {
    let mut device = Cpu::<R>::new();
    let mut model = device.upload(gaussians).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    regularised(&mut device, &mut model, &near, rule)
}

#[test]
fn the_number_of_threads_changes_nothing() {
    // More than one block of samples.
    let samples = 9_001;
    let rule = SurfaceRule { samples, ..RULE };
    let distances = SurfaceRule { density: 0.2, normal: 0.2, samples, ..SurfaceRule::DISTANCES };
    for (gaussians, rule) in [(scattered(3_001), rule), (sheet(), distances)] {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| regularise::<f32>(&gaussians, &rule))
        };
        let (alone, together) = (run(1), run(3));
        assert_eq!(alone.0, together.0);
        assert!(alone.1 == together.1, "the gradients differ");
        assert_eq!(alone.0.sdf > 0.0, rule.sdf > 0.0);
        let moved = alone.1.iter().flatten().filter(|&&d| d != 0.0).count();
        assert!(rule.sdf > 0.0 || moved > 30_000, "{moved}");
    }
}

#[test]
fn a_small_gaussian_far_from_the_origin_keeps_its_digits() {
    let mut gaussians = scattered(300);
    gaussians.log_scales.iter_mut().for_each(|l| *l -= 4.0);
    gaussians.means.iter_mut().for_each(|x| *x = (*x * 0.02).mul_add(1.0, 1.0));
    gaussians.means.iter_mut().skip(2).step_by(3).for_each(|z| *z += 100.0);
    let (narrow, wide) =
        (regularise::<f32>(&gaussians, &RULE), regularise::<f64>(&gaussians, &RULE));
    // A few hundred roundings of 6e-8 each. Roundings at a coordinate of 100 would be 1 % of a scale of 5e-4.
    assert_relative(narrow.0.density, wide.0.density, (1e-5, 1.0), "density");
    assert_relative(narrow.0.normal, wide.0.normal, (1e-5, 1.0), "normal");
    for column in 0..11 {
        let of = |row: &Vec<f64>| row[column];
        let largest = wide.1.iter().map(|row| of(row).abs()).fold(0.0, f64::max);
        for (narrow, wide) in narrow.1.iter().zip(&wide.1) {
            let error = (narrow[column].to_f64() - wide[column]).abs() / largest;
            assert!(error < 1e-4, "column {column}: {error}");
        }
    }
}

#[test]
fn terms_that_are_off_have_no_value_and_no_gradient() {
    let run = |rule: &SurfaceRule| regularise::<f64>(&scattered(50), rule);
    let only = [
        SurfaceRule { entropy: 0.5, ..OFF },
        SurfaceRule { density: 0.5, ..OFF },
        SurfaceRule { normal: 0.5, ..OFF },
    ];
    let all = run(&RULE).0;
    let all = [all.entropy, all.density, all.normal];
    for (term, rule) in only.iter().enumerate() {
        let (terms, rows) = run(rule);
        let mut expected = [0.0; 3];
        expected[term] = all[term];
        assert_eq!([terms.entropy, terms.density, terms.normal], expected);
        // Opacities only, all, and rotations only.
        let touched = [[false, false, false, true], [true; 4], [false, false, true, false]][term];
        for (group, columns) in [0..3, 3..6, 6..10, 10..11].into_iter().enumerate() {
            let any = rows.iter().any(|row| row[columns.clone()].iter().any(|&d| d != 0.0));
            assert_eq!(any, touched[group], "term {term}, group {group}");
        }
    }
    let (terms, rows) = run(&OFF);
    assert_eq!(terms, SurfaceTerms::default());
    let (unsampled, _) = run(&SurfaceRule { samples: 0, ..only[1] });
    assert_eq!(unsampled, SurfaceTerms::default());
    assert!(rows.iter().flatten().all(|&d| d == 0.0));
}

#[test]
fn scales_below_the_minimum_get_almost_no_gradient() {
    let mut gaussians = scattered(100);
    gaussians.log_scales.fill(-40.0);
    let (terms, rows) = regularise::<f32>(&gaussians, &RULE);
    // Each Gaussian is alone, and the density on a surface is 1.
    assert!(terms.density > 0.2 && terms.density < 0.6, "{terms:?}");
    assert!(rows.iter().flatten().all(|d| d.is_finite()));
    // The remaining gradients come from moved samples, which are 4e-18 away, in units of 1e-8.
    assert!(rows.iter().all(|row| row[3..6].iter().all(|d| d.abs() < 1e-15)));
    assert!(rows.iter().any(|row| row[10] != 0.0));
}

#[test]
fn a_view_without_gaussians_has_no_terms() {
    let mut gaussians = scattered(20);
    gaussians.means.iter_mut().skip(2).step_by(3).for_each(|z| *z = -*z);
    for gaussians in [gaussians, Gaussians::zeros(3, 0)] {
        let (terms, rows) = regularise::<f64>(&gaussians, &RULE);
        assert_eq!(terms, SurfaceTerms::default());
        assert!(rows.iter().flatten().all(|&d| d == 0.0));
    }
}

#[test]
fn gradients_of_surface_terms_add_to_those_of_the_photograph() {
    let (gaussians, visible) = every_kind();
    let mut device = Cpu::<f64>::new();
    let mut model = device.upload(&gaussians).unwrap();
    let near = device.neighbours(&model, NEAR).unwrap();
    let (_, surface) = regularised(&mut device, &mut model, &near, &RULE);
    let alone = seeing(&mut device, &mut model, &straight(), None);
    let photograph = geometry_gradients(&device, &model, &alone);
    let (view, mut both) = (straight(), Gradients::default());
    for times in 1..=2 {
        let requested = (Some(&near), &RULE);
        add_rule(&mut device, &mut model, (&view, None), requested, &mut both).unwrap();
        let found = geometry_gradients(&device, &model, &both);
        for (row, found) in found.iter().enumerate() {
            for (column, &found) in found.iter().enumerate() {
                let once = photograph[row][column] + surface[row][column];
                // The mean over two equal views; the second time sums continue from the first.
                let what = format!("{times} times, Gaussian {row}, column {column}");
                assert_relative(found, once, (1e-12, 1e-3), &what);
            }
        }
    }
    let count = model.len();
    let more = both.bytes().0 - 2 * alone.bytes().0;
    assert_eq!(Bytes(more), Bytes::of::<f64>(count * 11));
    let moved = |rows: &[Vec<f64>], row: usize| rows[row].iter().any(|&d| d != 0.0);
    let unseen = (0..count).filter(|row| !visible.contains(row));
    assert!(unseen.clone().all(|row| !moved(&photograph, row)));
    assert!(unseen.clone().any(|row| moved(&surface, row)), "of an unseen neighbour");
    assert!(visible.iter().any(|&row| moved(&photograph, row) && moved(&surface, row)));
}

#[test]
fn invalid_gaussians_are_named_even_if_unseen() {
    let (gaussians, visible) = every_kind();
    let mut device = Cpu::<f64>::new();
    let mut broken = gaussians.clone();
    broken.quats[visible[7] * 4] = f32::NAN;
    let mut model = device.upload(&broken).unwrap();
    let near = device.neighbours(&model, NEAR).unwrap();
    let (view, mut gradients) = (straight(), Gradients::default());
    let seen = (&view, masked(&view));
    let found = add_rule(&mut device, &mut model, seen, (Some(&near), &RULE), &mut gradients);
    let named = matches!(found, Err(DeviceError::NotFinite { index, .. }) if index == visible[7]);
    assert!(named, "{found:?}");

    // The moments of a Gaussian that only surface terms reach.
    let unseen = (0..gaussians.len()).rfind(|row| !visible.contains(row)).unwrap();
    let mut model = device.upload(&gaussians).unwrap();
    let mut snapshot = device.snapshot(&mut model).unwrap();
    snapshot.second_moments.log_scales[unseen * 3] = f32::INFINITY;
    for surfaces in [false, true] {
        let mut model = device.restore(snapshot.clone()).unwrap();
        let near = device.neighbours(&model, NEAR).unwrap();
        let rule = if surfaces { RULE } else { OFF };
        let (seen, mut gradients) = ((&view, masked(&view)), Gradients::default());
        let requested = (Some(&near), &rule);
        add_rule(&mut device, &mut model, seen, requested, &mut gradients).unwrap();
        let stepped = device.step(&mut model, gradients, &AdamStep::new(1, AT_REST));
        let named = matches!(stepped, Err(DeviceError::NotFinite { index, .. }) if index == unseen);
        assert_eq!(named, surfaces, "{stepped:?}");
    }
}

#[test]
fn entropy_and_distance_agree_with_their_differences() {
    for logit in [-9.0, -1.3, 0.0, 0.4, 7.0] {
        let expected = derivative(logit, entropy);
        assert_relative(entropy_bwd(logit, 1.0), expected, EXACT, "entropy");
    }
    // The maximum, and almost nothing, also in single precision.
    assert!((entropy(0.0) - std::f64::consts::LN_2).abs() < 1e-9);
    for logit in [-200.0_f32, 200.0] {
        assert!(entropy(logit).abs() < 1e-6 && entropy_bwd(logit, 1.0).abs() < 1e-6);
    }
    for density in [1e-9, 0.02, 0.5, 0.97] {
        let [d_density, d_beta] = distance_bwd(density, 0.03, 1.0);
        // In units of the density itself: a difference may not reach below 0.
        let expected = derivative(0.0, |x: f64| distance(density * x.exp(), 0.03));
        assert_relative(d_density * density, expected, EXACT, "density");
        assert_relative(d_beta, derivative(0.03, |x| distance(density, x)), EXACT, "beta");
    }
}

#[test]
fn the_distance_is_clamped_at_both_ends_of_the_density() {
    let at_least = 0.03 * (-2.0 * 1e-16_f64.ln()).sqrt();
    assert!((distance(0.0, 0.03) - at_least).abs() < 1e-15);
    assert_eq!(distance_bwd(0.0, 0.03, 1.0)[0], 0.0);
    for density in [1.0, 1.7, 30.0] {
        assert_eq!(distance(density, 0.03), 0.0);
        let [d_density, d_beta] = distance_bwd(density, 0.03, 1.0);
        assert_eq!(d_beta, 0.0);
        // Still downhill towards less density, and no steeper than just below 1.
        assert!(d_density < 0.0 && d_density > -0.03 / 1e-3 * 1.001, "{density}: {d_density}");
    }
}

/// Returns medians of the angle in degrees between the smallest axes and the normal of the plane z = 1, and of the
/// Gaussians' extent along the normal.
fn fit(model: &Model<f64>) -> [f64; 2] {
    let solids: Vec<Solid> = geometry(model).iter().map(|row| Solid::new(row)).collect();
    let median = |of: &dyn Fn(&Solid) -> f64| {
        let mut all: Vec<f64> = solids.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let angle = |solid: &Solid| solid.normal()[2].abs().min(1.0).acos().to_degrees();
    let extent = |solid: &Solid| {
        (0..3).map(|i| (solid.axes[2][i] * solid.scale[i]).powi(2)).sum::<f64>().sqrt()
    };
    [median(&angle), median(&extent)]
}

/// Returns a sheet's fit and the terms' values, before and after 300 steps down the gradients.
fn after_steps(rule: &SurfaceRule) -> [([f64; 2], SurfaceTerms); 2] {
    let rates =
        Rates { means: 2e-4, log_scales: 5e-3, quats: 2e-3, opacity_logits: 1e-2, ..AT_REST };
    let mut device = Cpu::<f64>::new();
    let mut model = device.upload(&sheet()).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    // Samples at other positions than in training.
    let all = SurfaceRule { entropy: 1.0, density: 1.0, normal: 1.0, seed: 99, ..*rule };
    let before = (fit(&model), regularised(&mut device, &mut model, &near, &all).0);
    for number in 1..=300 {
        let (view, mut gradients) = (straight(), Gradients::default());
        let rule = SurfaceRule { iteration: number, ..*rule };
        let (seen, requested) = ((&view, masked(&view)), (Some(&near), &rule));
        add_rule(&mut device, &mut model, seen, requested, &mut gradients).unwrap();
        device.step(&mut model, gradients, &AdamStep::new(number, rates)).unwrap();
    }
    let after = (fit(&model), regularised(&mut device, &mut model, &near, &all).0);
    [before, after]
}

const ALONE: SurfaceRule = SurfaceRule { samples: 2_000, seed: 3, ..OFF };

#[test]
fn densities_make_a_sheet_thinner_and_turn_it_into_its_plane() {
    let [before, after] = after_steps(&SurfaceRule { density: 0.2, ..ALONE });
    let ([tilt, extent], terms) = after;
    assert!(terms.density < 0.5 * before.1.density, "{before:?} {after:?}");
    assert!(tilt < 0.7 * before.0[0] && extent < 0.9 * before.0[1], "{before:?} {after:?}");
}

#[test]
fn normals_only_turn_a_sheet_into_its_plane() {
    let [before, after] = after_steps(&SurfaceRule { normal: 0.2, ..ALONE });
    let ([tilt, _], terms) = after;
    assert!(terms.normal < 0.05 * before.1.normal, "{before:?} {after:?}");
    assert!(tilt < 0.2 * before.0[0], "{before:?} {after:?}");
    assert_eq!(terms.entropy, before.1.entropy);
}

#[test]
fn entropy_drives_opacities_to_either_end() {
    let [before, after] = after_steps(&SurfaceRule { entropy: 0.1, ..ALONE });
    assert!(after.1.entropy < 0.4 * before.1.entropy, "{before:?} {after:?}");
    assert_eq!(after.0, before.0);
}

#[test]
fn densities_and_normals_fit_a_sheet_to_its_plane() {
    let [before, after] = after_steps(&SurfaceRule { density: 0.2, normal: 0.2, ..ALONE });
    let ([tilt, extent], terms) = after;
    assert!(tilt < before.0[0] / 3.0 && extent < 0.7 * before.0[1], "{before:?} {after:?}");
    assert!(terms.density < before.1.density / 3.0, "{before:?} {after:?}");
    assert!(terms.normal < before.1.normal / 10.0, "{before:?} {after:?}");
}
