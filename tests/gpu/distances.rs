//! Distances from the surface that a view's depths show: by their definition, their gradients against
//! differences of the whole pipeline, and what they do to Gaussians.

use splat::backend::cpu::{Model, NearestLists};
use splat::math::field::{
    DISTANCE_ERROR_MAX, distance_error, distance_error_bwd, place_px, place_px_bwd,
};

use crate::common::surface::{
    Definition, Sample, ShownDepths, Solid, WITH_DEPTHS, geometry, geometry_gradients, lists,
    looked_at, sheet,
};
#[cfg(kernels)]
use crate::parity_surface::assert_compact_agrees;
use crate::parity_surface::{assert_terms_agree, compared, crowd_in};
use crate::prelude::*;

each_backend!(
    distances_pull_a_sheet_to_the_surface_that_it_shows,
    what_was_not_drawn_or_not_found_is_refused,
    a_view_whose_surface_no_gaussian_is_near_has_no_samples,
);

const RULE: SurfaceRule = SurfaceRule { samples: 61, ..SurfaceRule::DISTANCES };

const NEAR: u32 = 3;

const FLOATING: usize = 10;

/// Row of the farthest visible Gaussian. Its depth stands behind all the others without a gradient, so that the
/// differences do not show it.
const FARTHEST: usize = 8;

const UNSEEN: usize = 0;

/// Ten Gaussians in the middle of the view, the first too faint to be seen, and one that floats before
/// them and is nobody's neighbour.
fn pile() -> Gaussians {
    let mut draws = Draws::new(12);
    let mut parts: Vec<Gaussians> = (0..10)
        .map(|_| {
            let [x, y] = draws.array(-0.3, 0.3);
            let mut one =
                gaussian([x, y, draws.uniform(1.2, 1.5)].map(f64::to_f32), 1.0, 0.5, [0.5; 3]);
            one.log_scales = draws.array::<3>(-2.6, -1.4).map(f64::to_f32).to_vec();
            one.quats = draws.array::<4>(-1.0, 1.0).map(f64::to_f32).to_vec();
            one.opacity_logits = vec![draws.uniform(0.0, 2.5).to_f32()];
            one
        })
        .collect();
    parts[UNSEEN].opacity_logits = vec![-5.7];
    let mut floating = gaussian([0.05, -0.02, 0.5], 0.04, 0.4, [0.5; 3]);
    floating.log_scales = vec![-3.0, -3.3, -3.6];
    floating.quats = vec![0.9, 0.3, -0.2, 0.1];
    parts.push(floating);
    together(&parts)
}

fn visible() -> Vec<usize> {
    (1..=FLOATING).collect()
}

/// The samples of a rule by the definition, of the Gaussians near the surface.
fn samples(
    device: &mut Cpu<f64>,
    model: &Model<f64>,
    near: &NearestLists,
    (rule, shown): (&SurfaceRule, &ShownDepths),
) -> (Vec<Solid>, Vec<usize>, Vec<Sample>) {
    let (geometry, lists) = (geometry(model), lists(device, near, model.len()));
    let solids: Vec<Solid> = geometry.iter().map(|row| Solid::new(row)).collect();
    let near_surface = shown.near_surface(&visible(), &solids);
    let definition = Definition { visible: &near_surface, near: &lists, rule: *rule };
    let samples = definition.samples(&geometry, None);
    (solids, near_surface, samples)
}

#[test]
fn distances_agree_with_their_definition() {
    let (gaussians, view) = (pile(), straight());
    let shown = ShownDepths::new(&gaussians, &visible(), (&view, &WITH_DEPTHS));
    let device = &mut Cpu::<f64>::new();
    let mut model = device.upload(&gaussians).unwrap();
    let near = device.neighbours(&model, NEAR).unwrap();
    // Of a unit a thousand times smaller most are held.
    let (mut held, mut counted) = (0, 0);
    for sdf_unit in [0.05, 1e-3] {
        let rule = SurfaceRule { density: 1.3, normal: 0.9, sdf_unit, samples: 403, ..RULE };
        let found = looked_at(device, &mut model, (&view, &WITH_DEPTHS), (&near, &rule)).0;
        let (solids, near_surface, samples) = samples(device, &model, &near, (&rule, &shown));
        assert!(near_surface.len() >= 4 && near_surface.len() < 9, "{near_surface:?}");
        assert!(!near_surface.contains(&FLOATING));
        let mean = |of: &dyn Fn(&Sample) -> f64| {
            samples.iter().map(of).sum::<f64>() / samples.len() as f64
        };
        let error = |sample: &Sample| shown.error(sample, &solids, sdf_unit);
        held += samples.iter().filter(|sample| error(sample) == Some(100.0)).count();
        counted += samples.iter().filter(|sample| error(sample).is_some()).count();
        // Sums of a few hundred terms, and of the weights of a pixel.
        let sdf = mean(&|sample| error(sample).unwrap_or(0.0));
        assert_relative(found.sdf, sdf, (1e-9, 1e-3), "distance");
        // The others are sampled at the same places.
        let density = mean(&|sample| sample.density_error(&solids));
        assert_relative(found.density, density, (1e-9, 1e-3), "density");
        let normal = mean(&|sample| sample.normal_error(&solids));
        assert_relative(found.normal, normal, (1e-9, 1e-3), "normal");
    }
    assert!(held > 20 && counted < 806, "{held} held, {counted} counted");
}

fn total(model: &Model<f64>, near: &NearestLists, rule: &SurfaceRule) -> f64 {
    let (device, mut model) = (&mut Cpu::<f64>::new(), model.clone());
    let view = straight();
    let terms: SurfaceTerms = looked_at(device, &mut model, (&view, &WITH_DEPTHS), (near, rule)).0;
    RULE.sdf * terms.sdf
}

#[test]
fn the_whole_pipeline_agrees_with_its_difference_in_every_parameter() {
    let (gaussians, view) = (pile(), straight());
    let shown = ShownDepths::new(&gaussians, &visible(), (&view, &WITH_DEPTHS));
    let device = &mut Cpu::<f64>::new();
    let mut model = device.upload(&gaussians).unwrap();
    let near = device.neighbours(&model, NEAR).unwrap();
    let (_, gradients) = looked_at(device, &mut model, (&view, &WITH_DEPTHS), (&near, &RULE));
    let found = geometry_gradients(device, &model, &gradients);

    let depth = |row: &usize| gaussians.means[row * 3 + 2];
    let farthest = visible().into_iter().max_by(|a, b| depth(a).total_cmp(&depth(b)));
    assert_eq!(farthest, Some(FARTHEST));
    let (_, near_surface, samples) = samples(device, &model, &near, (&RULE, &shown));
    let is_compared = |row: usize| samples.iter().any(|sample| sample.near.contains(&row));
    assert!(!is_compared(FLOATING) && is_compared(UNSEEN), "whom samples hear");
    assert!(visible().iter().any(|row| is_compared(*row) && !near_surface.contains(row)));
    // By the map alone: centre, scales, rotation and opacity.
    for columns in [0..3, 3..6, 6..10, 10..11] {
        let most = found[FLOATING][columns.clone()].iter().fold(0.0, |a: f64, d| a.max(d.abs()));
        assert!(most > 1e-3, "{columns:?} of the floating one: {most}");
    }
    assert!(found[UNSEEN].iter().any(|d| d.abs() > 1e-3), "the faint one");

    for (row, found) in found.iter().enumerate() {
        let groups = Parameter::ALL[..4]
            .iter()
            .flat_map(|&p| (0..model.column(p).width).map(move |k| (p, k)));
        let groups: Vec<(Parameter, usize)> = groups.collect();
        for (&found, (parameter, k)) in found.iter().zip(groups) {
            let at = row * model.column(parameter).width + k;
            if (row, parameter, k) == (FARTHEST, Parameter::Means, 2) {
                continue;
            }
            let expected = derivative_between_cuts(model.column(parameter).values[at], |x| {
                let mut moved = model.clone();
                moved.column_mut(parameter).values[at] = x;
                total(&moved, &near, &RULE)
            });
            let what = format!("Gaussian {row} {parameter:?}[{k}]");
            // Below the floor gradients drown in the rounding of the difference.
            assert_relative(found, expected, (1e-6, 1e-3), &what);
        }
    }
}

#[test]
fn what_two_views_ask_is_averaged() {
    let device = &mut Cpu::<f64>::new();
    let mut model = device.upload(&pile()).unwrap();
    let near = device.neighbours(&model, NEAR).unwrap();
    let other = SurfaceRule { sdf: 0.3, seed: 8, ..RULE };
    let mut rows = |rules: &[SurfaceRule]| {
        let mut gradients = Default::default();
        for rule in rules {
            let (view, requested) = (straight(), (Some(&near), rule));
            let seen = (&view, masked(&view));
            add_rule(device, &mut model, seen, requested, &mut gradients).unwrap();
        }
        geometry_gradients(device, &model, &gradients)
    };
    let [one, two, both] = [rows(&[RULE]), rows(&[other]), rows(&[RULE, other])];
    for (row, both) in both.iter().enumerate() {
        for (column, &both) in both.iter().enumerate() {
            let expected = (one[row][column] + two[row][column]) / 2.0;
            assert_relative(both, expected, (1e-9, 1e-3), &format!("{row}, {column}"));
        }
    }
}

#[test]
fn errors_and_places_agree_with_their_differences() {
    for (distance, height) in [(0.3, 0.1), (0.1, -0.3), (0.2, -0.1), (0.4, 0.7)] {
        let [d_distance, d_height] = distance_error_bwd(distance, height, 0.05, 1.7);
        let f = |d, h| 1.7 * distance_error(d, h, 0.05);
        let expected = derivative(distance, |x| f(x, height));
        assert_relative(d_distance, expected, (1e-6, 1e-6), "distance");
        assert_relative(d_height, derivative(height, |x| f(distance, x)), (1e-6, 1e-6), "height");
    }
    assert_eq!(distance_error(9.0, 1.0, 0.05), DISTANCE_ERROR_MAX);
    assert_eq!(distance_error_bwd(9.0, 1.0, 0.05, 1.0), [0.0; 2]);
    assert!(distance_error(f64::NAN, 1.0, 0.05).is_nan());

    let view = crate::common::scene::viewpoint(&straight(), crate::common::scene::NEAR);
    let (point, d_place) = ([0.2, -0.15, 1.3], [0.7, -1.1]);
    let found = place_px_bwd(&view, point, d_place);
    for axis in 0..3 {
        let expected = derivative(point[axis], |x| {
            let mut moved = point;
            moved[axis] = x;
            let place = place_px(&view, moved).unwrap();
            place[0] * d_place[0] + place[1] * d_place[1]
        });
        assert_relative(found[axis], expected, (1e-6, 1e-6), "point");
    }
    for outside in [[9.0, 0.0, 1.0], [0.0, -9.0, 1.0], [0.0, 0.0, -1.0], [0.0, 0.0, f64::NAN]] {
        assert_eq!(place_px(&view, outside), None, "{outside:?}");
    }
}

fn distances_pull_a_sheet_to_the_surface_that_it_shows<B: TrainDevice>(device: &mut B) {
    let (means, log_scales, quats, opacity_logits) = (2e-4, 5e-3, 2e-3, 1e-2);
    let rates = Rates { means, log_scales, quats, opacity_logits, ..AT_REST };
    let mut model = device.upload(&sheet()).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    let rule = SurfaceRule { sdf: 0.2, sdf_unit: 0.01, samples: 2_000, ..RULE };
    let drawn = (&straight(), &WITH_DEPTHS);
    // At other places than those that are looked at.
    let other = SurfaceRule { seed: 99, ..rule };
    let before = looked_at(device, &mut model, drawn, (&near, &other)).0.sdf;
    for number in 1..=150 {
        let rule = SurfaceRule { iteration: number, ..rule };
        let (_, gradients) = looked_at(device, &mut model, drawn, (&near, &rule));
        device.step(&mut model, gradients, &AdamStep::new(number, rates)).unwrap();
    }
    let after = looked_at(device, &mut model, drawn, (&near, &other)).0.sdf;
    assert!(before > 0.1 && after < 0.6 * before, "{before} to {after}");
}

fn what_was_not_drawn_or_not_found_is_refused<B: TrainDevice>(device: &mut B) {
    let model = device.upload(&sheet()).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    let fewer = device.upload(&pile()).unwrap();
    let stale = device.neighbours(&fewer, 3).unwrap();
    let target = device.target(0, &photo(37, 29, None)).unwrap();
    let mut refused = |surface, near| {
        let drawing = DrawSettings { surface, ..WITH_DEPTHS };
        let frame = device.draw(&model, &straight(), &drawing).unwrap();
        let objective = Objective { target: &target, terms: &RULE.terms(), near, other: None };
        device.objective(&model, frame, &objective).err()
    };
    for (surface, near) in [(false, Some(&near)), (true, None)] {
        let error = refused(surface, near);
        let expected = matches!(error, Some(DeviceError::MissingInput { term: "SDF", .. }));
        assert!(expected, "{surface}: {error:?}");
    }
    let error = refused(true, Some(&stale));
    assert!(matches!(error, Some(DeviceError::StaleNeighbours { .. })), "{error:?}");
    assert!(refused(true, Some(&near)).is_none());
}

fn a_view_whose_surface_no_gaussian_is_near_has_no_samples<B: TrainDevice>(device: &mut B) {
    // Two small ones, so transparent that both seem to be far behind the first and before the second.
    let mut parts =
        [[0.0, 0.0, 1.0], [0.01, 0.0, 3.0]].map(|at| gaussian(at, 0.005, 0.3, [0.5; 3]));
    parts[1].log_scales = vec![-4.0; 3];
    parts[1].means[0] = 0.4;
    let mut gaussians = together(&parts);
    // The farthest, which stands behind everything, is half outside the image: its centre has no depth.
    gaussians.means[3..].copy_from_slice(&[2.0, 0.0, 3.0]);
    gaussians.log_scales[3..].fill(0.0);
    let mut model = device.upload(&gaussians).unwrap();
    let near = device.neighbours(&model, 2).unwrap();
    let rule = SurfaceRule { entropy: 0.5, density: 1.0, normal: 1.0, ..RULE };
    let drawn = (&straight(), &WITH_DEPTHS);
    let (terms, gradients) = looked_at(device, &mut model, drawn, (&near, &rule));
    assert!(terms.entropy > 0.1, "{terms:?}");
    assert_eq!([terms.density, terms.normal, terms.sdf], [0.0; 3]);
    device.step(&mut model, gradients, &AdamStep::new(1, AT_REST)).unwrap();
    let moments = device.snapshot(&mut model).unwrap().first_moments;
    assert!(moments.means.iter().all(|&d| d == 0.0), "{:?}", moments.means);
    assert!(moments.opacity_logits.iter().all(|&d| d != 0.0));
}

// Distances from the surface that a view's depths show, and their gradients, of every device against
// the CPU backend in double precision.

each_backend!(
    distances_of_every_view_agree_with_the_oracle,
    lists_of_every_length_agree_with_the_oracle,
    any_number_of_samples_agrees_with_the_oracle,
    distances_and_the_other_terms_agree_with_the_oracle_together,
    distances_and_drawn_normals_agree_with_the_oracle_together,
);

fn crowd(count: usize, seed: u64, view: &View) -> Gaussians {
    crowd_in(view, count, seed, [-3.5, -1.9])
}

/// Gaussians of a [`crowd`] that samples are taken of. Fails where single precision may find others.
fn near_surface(gaussians: &Gaussians, view: &View) -> Vec<usize> {
    let visible: Vec<usize> = (0..gaussians.len()).filter(|row| row % 3 != 2).collect();
    let solid = |row| {
        let groups = gaussians.groups().into_iter().take(4);
        let values =
            groups.flat_map(|group| wide(&group.values[row * group.width..][..group.width]));
        Solid::new(&values.collect::<Vec<f64>>())
    };
    let solids: Vec<Solid> = (0..gaussians.len()).map(solid).collect();
    ShownDepths::new(gaussians, &visible, (view, &WITH_DEPTHS)).near_surface(&visible, &solids)
}

/// Share of the largest gradient of all that is allowed where the pixels' shares cancel.
const CANCELLED: f64 = 5e-5;

fn assert_agrees<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (view, count, normals): (&View, u32, f64),
    (rule, what): (&SurfaceRule, &str),
) -> SurfaceTerms {
    let [found, expected] =
        beside_oracle!(device, compared(device, gaussians, (view, count, normals), rule));
    assert_terms_agree(&found.0, &expected.0, what);
    let (moments, expected) = (gradients(&found.1), gradients(&expected.1));
    let mut all = expected.iter().flat_map(|(.., values)| values);
    assert!(all.any(|value| value.abs() > 1e-4), "{what}: there are no gradients");
    assert_columns_agree(&moments, &expected, CANCELLED, what);
    found.0
}

fn distances_of_every_view_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let wide = resized(&straight(), [203, 147]);
    for (view, what) in [(straight(), "straight"), (view(), "turned"), (wide, "wide")] {
        for (count, seed) in [(3, 1), (40, 2), (400, 3)] {
            let gaussians = crowd(count, seed, &view);
            let near = near_surface(&gaussians, &view);
            let what = format!("{what}, {} near of {count} Gaussians", near.len());
            assert!(!near.is_empty() && near.len() <= count - count / 3, "{what}");
            let terms = assert_agrees(
                device,
                &gaussians,
                (&view, 16, 0.0),
                (&SurfaceRule::DISTANCES, &what),
            );
            assert!(terms.sdf > 0.1, "{what}: {terms:?}");
        }
    }
}

fn lists_of_every_length_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let gaussians = crowd(150, 11, &view);
    assert!(near_surface(&gaussians, &view).len() > 20);
    for count in [1, 10, 12, 16, 17, 32] {
        let what = format!("{count} neighbours");
        assert_agrees(device, &gaussians, (&view, count, 0.0), (&SurfaceRule::DISTANCES, &what));
    }
}

fn any_number_of_samples_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let gaussians = crowd(300, 21, &view);
    assert!(near_surface(&gaussians, &view).len() > 40);
    // Blocks take 8 samples of 12 neighbours at a time, and 4 of 20.
    for samples in [1, 2, 7, 8, 9, 33, 3_000] {
        for count in [12, 20] {
            let rule = SurfaceRule { samples, ..SurfaceRule::DISTANCES };
            let what = format!("{samples} samples of {count} neighbours");
            assert_agrees(device, &gaussians, (&view, count, 0.0), (&rule, &what));
        }
    }
}

fn distances_and_the_other_terms_agree_with_the_oracle_together<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let gaussians = crowd(300, 31, &view);
    let seen = near_surface(&gaussians, &view).len();
    assert!(seen > 40 && seen < 195, "{seen}");
    for (density, normal) in [(1.3, 0.0), (0.0, 0.9), (1.3, 0.9)] {
        let rule = SurfaceRule { entropy: 0.7, density, normal, ..SurfaceRule::DISTANCES };
        let what = format!("density {density}, normal {normal}");
        let terms = assert_agrees(device, &gaussians, (&view, 16, 0.0), (&rule, &what));
        let on = [terms.entropy > 0.1, terms.density > 1e-3, terms.normal > 1e-3];
        assert_eq!(on, [true, density > 0.0, normal > 0.0], "{terms:?}");
    }
}

fn distances_and_drawn_normals_agree_with_the_oracle_together<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let gaussians = crowd(60, 41, &view);
    assert!(!near_surface(&gaussians, &view).is_empty());
    assert_agrees(device, &gaussians, (&view, 16, 0.05), (&SurfaceRule::DISTANCES, "with normals"));
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn views_in_bands_agree_with_the_oracle() {
    let view = resized(&straight(), [203, 147]);
    let gaussians = crowd(200, 51, &view);
    assert!(near_surface(&gaussians, &view).len() > 20);
    let device = &mut cuda::open();
    for bands in [1, 2, 3, u32::MAX] {
        device.set_bands(BandPolicy::AtLeast(bands));
        let what = format!("{bands} bands");
        assert_agrees(device, &gaussians, (&view, 16, 0.0), (&SurfaceRule::DISTANCES, &what));
    }
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_compact_model_gets_the_same_gradients() {
    let view = straight();
    let gaussians = crowd(200, 61, &view);
    assert!(near_surface(&gaussians, &view).len() > 20);
    for count in [16, 32] {
        assert_compact_agrees(&gaussians, (&view, count), &SurfaceRule::DISTANCES, CANCELLED);
    }
}
