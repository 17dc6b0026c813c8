//! Colours that cameras changed: gradients against differences, and every device against the CPU backend
//! in double precision.

use std::slice::from_ref;

use splat::backend::cpu::Model;
use splat::backend::{AppearanceRule, AppearanceTables, Compensation, TableStep};
use splat::math::appearance::{
    GRID_WIDTH, GridPlace, affine, total_variation, total_variation_bwd,
};

use crate::prelude::*;
use crate::support::{image, shown_of};

each_backend!(
    three_visits_take_the_same_way_as_the_oracle,
    tables_that_change_nothing_leave_the_loss_as_it_is,
    an_exposure_is_learned_from_photographs_that_have_one,
    a_grid_learns_what_differs_from_place_to_place,
    corrected_colours_are_measured_as_the_oracle_does,
    a_photograph_that_differs_by_an_affine_map_is_met,
    what_cannot_be_is_an_error,
);

const KINDS: [Compensation; 2] = [Compensation::Exposure, Compensation::BilateralGrid];

/// An epsilon at which even the smallest gradients have a say in how far they move their value, and
/// not only their sign, which rounding may change.
const RULE: AppearanceRule = AppearanceRule {
    rate_init: 0.02,
    rate_final: 0.01,
    iterations: 100,
    warm_up: 10,
    epsilon: 1e-3,
    total_variation: 10.0,
};

/// Tables of three views that change colours a little, in the midst of training.
fn tables(kind: Compensation, seed: u64) -> AppearanceTables {
    let mut draws = Draws::new(seed);
    let mut tables = AppearanceTables::identity(kind, 3);
    tables.steps = vec![4, 3, 5];
    for value in &mut tables.values {
        *value += draws.uniform(-0.1, 0.1).to_f32();
    }
    for (first, second) in tables.first_moments.iter_mut().zip(&mut tables.second_moments) {
        *first = draws.uniform(-1e-3, 1e-3).to_f32();
        *second = draws.uniform(0.0, 1e-5).to_f32();
    }
    tables
}

fn compensated(kind: Compensation, settings: DrawSettings) -> DrawSettings {
    DrawSettings { compensation: Some(kind), ..settings }
}

struct Learned {
    losses: Vec<Loss>,
    tables: AppearanceTables,
    snapshot: Snapshot<Gaussians>,
}

/// Trains the colours of the second view in these iterations; the Gaussians stay where they are.
fn learn<B: TrainDevice>(
    device: &mut B,
    (gaussians, shot): (&Gaussians, &Shot),
    tables: &AppearanceTables,
    (rule, iterations): (AppearanceRule, &[u32]),
) -> Learned {
    let mut model = device.upload(gaussians).unwrap();
    let mut appearance = device.upload_tables(tables).unwrap();
    let mut losses = Vec::new();
    for &number in iterations {
        let step = TableStep { view: 1, number, rule };
        let target = device.target(shot.index, &shot.photo).unwrap();
        let frame = device.draw(&model, &shot.view, &shot.settings).unwrap();
        let frame = device.compensate(&mut appearance, frame, &step).unwrap();
        let (frame, loss) = device.compare(&model, frame, &target, &shot.terms).unwrap();
        let frame = device.learn(&mut appearance, frame, &step).unwrap();
        let mut gradients = Default::default();
        device.backward(&mut model, frame, None, &mut gradients).unwrap();
        device.step(&mut model, gradients, &AdamStep::new(number, AT_REST)).unwrap();
        losses.push(loss.read().unwrap().into());
    }
    let tables = device.read_tables(&appearance).unwrap();
    Learned { losses, tables, snapshot: device.snapshot(&mut model).unwrap() }
}

fn three_visits_take_the_same_way_as_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 3, 3);
    for kind in KINDS {
        for (seed, size) in (1..).zip([[37, 29], [1, 1], [3, 2], [16, 15], [90, 70]]) {
            let what = format!("{kind:?} {size:?}");
            let view = resized(&view(), size);
            let settings = compensated(kind, settings(3, seed));
            let shot = shot(&gaussians, &view, settings, (seed, Counted::Some));
            let (begun, visits) = (tables(kind, seed), [7, 8, 41]);
            let pair = (&gaussians, &shot);
            let [found, expected] =
                beside_oracle!(device, learn(device, pair, &begun, (RULE, &visits)));
            let tolerance = gradient_tolerance(size);
            for (found, expected) in found.losses.iter().zip(&expected.losses) {
                assert_losses_agree(found, expected, (size, &what));
            }
            assert_gradients_agree(&found.snapshot, &expected.snapshot, (tolerance, &what));
            assert_eq!(found.tables.steps, [4, 41, 5]);
            let row = kind.width()..2 * kind.width();
            fn columns(of: &AppearanceTables) -> [&[f32]; 3] {
                [&of.values, &of.first_moments, &of.second_moments]
            }
            let [found, expected, begun] = [&found.tables, &expected.tables, &begun].map(columns);
            for k in 0..3 {
                // Values of 1 carry a rounding of 6e-8, and move by 1e-2: their moves are compared.
                let part = |of: &[f32]| -> Vec<f64> {
                    let pairs =
                        wide(&of[row.clone()]).into_iter().zip(wide(&begun[k][row.clone()]));
                    pairs
                        .map(|(after, before)| if k == 0 { after - before } else { after })
                        .collect()
                };
                let error = relative_error(&part(found[k]), &part(expected[k]));
                let name = ["values", "first moments", "second moments"][k];
                assert!(error < tolerance, "{what}: {name} are {error:.1e} off");
                // Tables of other views stay equal to the bit.
                assert_eq!(found[k][..row.start], begun[k][..row.start], "{what}");
                assert_eq!(found[k][row.end..], begun[k][row.end..], "{what}");
            }
        }
    }
}

fn tables_that_change_nothing_leave_the_loss_as_it_is<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(40, 5, 3);
    let plain = shot(&gaussians, &view(), settings(3, 2), (4, Counted::All));
    let (losses, expected) =
        stepped(device, &gaussians, from_ref(&plain), &AdamStep::new(1, AT_REST));
    let expected_loss = losses[0].clone().into();
    for kind in KINDS {
        let shot = Shot { settings: compensated(kind, plain.settings), ..plain.clone() };
        let identity = AppearanceTables::identity(kind, 2);
        let found = learn(device, (&gaussians, &shot), &identity, (RULE, &[1]));
        let what = format!("{kind:?}");
        // Weights of a grid's corners add up to 1 but for their rounding.
        assert_losses_agree(&found.losses[0], &expected_loss, (shot.size(), &what));
        assert_gradients_agree(&found.snapshot, &expected, (1e-4, &what));
    }
}

fn photographed<B: TrainDevice>(
    device: &mut B,
    (gaussians, settings): (&Gaussians, &DrawSettings),
    change: impl Fn([f32; 3], usize) -> [f32; 3],
) -> Arc<Image> {
    let rgb = shown_of(device, gaussians, &view(), settings);
    let byte = |value: f32| u8::try_from((value * 255.0 + 0.5).floor_i32().clamp(0, 255)).unwrap();
    let pixels = rgb.as_chunks::<3>().0.iter().enumerate();
    let rgb = pixels.flat_map(|(i, c)| change(c.map(|v| v.clamp(0.0, 1.0)), i).map(byte));
    image([37, 29], rgb.collect())
}

fn calm(count: usize, seed: u64) -> (Gaussians, DrawSettings) {
    let mut gaussians = tame_gaussians(count, seed, 0);
    for value in &mut gaussians.sh_dc {
        *value = value.clamp(-1.4, 1.4);
    }
    (gaussians, DrawSettings { background: [0.3, 0.5, 0.7], ..settings(0, seed) })
}

fn learned<B: TrainDevice>(
    device: &mut B,
    kind: Compensation,
    scene: (&Gaussians, DrawSettings),
    photo: Arc<Image>,
) -> [f64; 2] {
    let (gaussians, settings) = scene;
    let (rate_final, iterations, warm_up) = (0.001, 150, 0);
    let (epsilon, total_variation) = (1e-15, 0.1);
    let rule = AppearanceRule { rate_final, iterations, warm_up, epsilon, total_variation, ..RULE };
    let shot = Shot { photo, ..noisy_shot(0, &view(), compensated(kind, settings)) };
    let begun = AppearanceTables::identity(kind, 2);
    let all: Vec<u32> = (1..=150).collect();
    let found = learn(device, (gaussians, &shot), &begun, (rule, &all));
    [found.losses[0].l1, found.losses[149].l1]
}

fn an_exposure_is_learned_from_photographs_that_have_one<B: TrainDevice>(device: &mut B) {
    let (gaussians, settings) = calm(60, 8);
    let photo = photographed(device, (&gaussians, &settings), |[r, g, b], _| {
        [0.7 * r + 0.1 * g, 0.6 * g + 0.1, 0.8 * b + 0.05 * r]
    });
    let scene = (&gaussians, settings);
    let [before, after] = learned(device, Compensation::Exposure, scene, photo);
    // What is left is less than two steps of 8 bits.
    assert!(before > 0.1 && after < 0.007, "{before} to {after}");
}

fn a_grid_learns_what_differs_from_place_to_place<B: TrainDevice>(device: &mut B) {
    let (gaussians, settings) = calm(60, 9);
    let photo = photographed(device, (&gaussians, &settings), |rgb, i| {
        let right = (i % 37) as f32 / 37.0;
        rgb.map(|value| value * (0.4 + 0.5 * right))
    });
    let exposure =
        learned(device, Compensation::Exposure, (&gaussians, settings), Arc::clone(&photo));
    let grid = learned(device, Compensation::BilateralGrid, (&gaussians, settings), photo);
    assert!(grid[0] > 0.1 && grid[1] < 0.02, "{grid:?}");
    assert!(grid[1] < 0.5 * exposure[1], "{grid:?} {exposure:?}");
}

fn corrected<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, shot: &Shot) -> [Measured; 2] {
    let model = device.upload(gaussians).unwrap();
    let settings = compensated(Compensation::BilateralGrid, shot.settings);
    let settings = DrawSettings { pass: Pass::Eval, ..settings };
    let target = device.glance(&shot.photo).unwrap();
    let frame = device.show(&model, &shot.view, &settings).unwrap();
    let raw = device.measure(&frame, &target).unwrap();
    let frame = device.correct(frame, &target).unwrap();
    [raw, device.measure(&frame, &target).unwrap()]
}

fn corrected_colours_are_measured_as_the_oracle_does<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 13, 3);
    for (seed, size) in (1..).zip([[37, 29], [11, 12], [300, 260]]) {
        for counted in [Counted::Clear, Counted::Some] {
            let view = resized(&view(), size);
            let shot = shot(&gaussians, &view, settings(3, seed), (seed, counted));
            let [[raw, found], [_, expected]] =
                beside_oracle!(device, corrected(device, &gaussians, &shot));
            assert_measured_alike(&found, &expected, format_args!("{size:?}"));
            // The best map of all is no worse than the one that changes nothing, save where it leaves
            // 0..1: nowhere, with a photograph of noise.
            assert!(found.mse < raw.mse, "{size:?}: {} {}", found.mse, raw.mse);
        }
    }
}

fn a_photograph_that_differs_by_an_affine_map_is_met<B: TrainDevice>(device: &mut B) {
    let (gaussians, settings) = calm(60, 10);
    let photo = photographed(device, (&gaussians, &settings), |[r, g, b], _| {
        [0.6 * r + 0.2 * b, 0.5 * g + 0.3, 0.4 * b + 0.3 * g]
    });
    let shot = Shot { photo, ..noisy_shot(0, &view(), settings) };
    let [raw, found] = corrected(device, &gaussians, &shot);
    // What 8 bits lose is a third of half a step, squared: 1.3e-6.
    assert!(raw.mse > 1e-3 && found.mse < 2e-6, "{} to {}", raw.mse, found.mse);
}

fn what_cannot_be_is_an_error<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(10, 1, 0);
    let kind = Compensation::Exposure;
    let settings = compensated(kind, settings(0, 1));
    let step = TableStep { view: 2, number: 1, rule: RULE };
    let model = device.upload(&gaussians).unwrap();
    let mut appearance = device.upload_tables(&AppearanceTables::identity(kind, 2)).unwrap();
    let frame = device.draw(&model, &view(), &settings).unwrap();
    let error = device.compensate(&mut appearance, frame, &step).err();
    let expected = matches!(error, Some(DeviceError::NoSuchTable { view: 2, views: 2 }));
    assert!(expected, "{error:?}");
}

/// A model, colours of its only view, and a photograph from which no colour is nearer than 0.1, so that
/// differences cross no sign of L1.
struct Case {
    model: Model<f64>,
    appearance: AppearanceTables<f64>,
    photo: Arc<Image>,
    settings: DrawSettings,
}

const STILL: TableStep = TableStep {
    view: 0,
    number: 1,
    rule: AppearanceRule { rate_init: 0.0, rate_final: 0.0, ..RULE },
};

impl Case {
    fn new(kind: Compensation, masked: bool) -> Self {
        let mut device = Cpu::<f64>::new();
        let gaussians = tame_gaussians(12, 6, 1);
        let model = device.upload(&gaussians).unwrap();
        let settings = compensated(kind, settings(1, 6));
        let mut draws = Draws::new(14);
        let mut tables = AppearanceTables::identity(kind, 1);
        tables.values.iter_mut().for_each(|v| *v += draws.uniform(-0.1, 0.1).to_f32());
        let appearance = device.upload_tables(&tables).unwrap();
        let rgb = shown(&mut device, &model, &view(), &settings);
        let (size, values) = ([37, 29], &appearance.values);
        let rgb = (0..).zip(rgb.as_chunks::<3>().0).flat_map(|(i, c)| {
            let rgb = c.map(f64::from);
            let map = match kind {
                Compensation::Exposure => std::array::from_fn(|k| values[k]),
                Compensation::BilateralGrid => {
                    GridPlace::new([i % size[0], i / size[0]], size, rgb).slice(values).map
                }
            };
            affine(&map, rgb).map(|value| if value < 0.5 { 180 } else { 50 })
        });
        let rgb: Vec<u8> = rgb.collect();
        let kept = |i| if i % 7 < 4 { 255 } else { 0 };
        let mask = masked.then(|| (0..rgb.len() / 3).map(kept).collect());
        let photo = Arc::new(Image { mask, ..Image::clone(&image(size, rgb)) });
        Self { model, appearance, photo, settings }
    }

    fn objective(&self, model: &Model<f64>, appearance: &AppearanceTables<f64>) -> f64 {
        let mut device = Cpu::<f64>::new();
        let mut appearance = appearance.clone();
        let frame = device.draw(model, &view(), &self.settings).unwrap();
        let frame = device.compensate(&mut appearance, frame, &STILL).unwrap();
        let terms = Terms::photometric(0.2);
        let (_, loss) = device.compare(model, frame, &self.photo, &terms).unwrap();
        let loss = loss.read().unwrap().total;
        let grid = &appearance.values;
        if grid.len() == GRID_WIDTH { loss + 10.0 * total_variation(grid) } else { loss }
    }
}

#[test]
fn gradients_of_tables_and_gaussians_agree_with_their_differences() {
    for (kind, masked) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let case = Case::new(kind, masked);
        let mut device = Cpu::<f64>::new();
        let (mut model, mut appearance) = (case.model.clone(), case.appearance.clone());
        let frame = device.draw(&model, &view(), &case.settings).unwrap();
        let frame = device.compensate(&mut appearance, frame, &STILL).unwrap();
        let terms = Terms::photometric(0.2);
        let (frame, _) = device.compare(&model, frame, &case.photo, &terms).unwrap();
        let frame = device.learn(&mut appearance, frame, &STILL).unwrap();
        let mut gradients = Default::default();
        device.backward(&mut model, frame, None, &mut gradients).unwrap();

        // Of zero first moments the step leaves a tenth of the gradient.
        let found: Vec<f64> =
            appearance.first_moments.iter().map(|first| first / (1.0 - 0.9)).collect();
        let mut largest: Vec<usize> = (0..found.len()).collect();
        largest.sort_by(|&a, &b| found[b].abs().total_cmp(&found[a].abs()));
        let some = largest.iter().copied().step_by(found.len().div_ceil(60)).take(40);
        let mut compared = 0;
        for k in some.chain(largest.iter().copied().take(20)) {
            let expected = derivative_between_cuts(case.appearance.values[k], |x| {
                let mut moved = case.appearance.clone();
                moved.values[k] = x;
                case.objective(&case.model, &moved)
            });
            // A loss of 0.5 carries a rounding of 1e-16, 1e-11 after division by the step.
            assert_relative(found[k], expected, (1e-6, 1e-5), &format!("{kind:?} value {k}"));
            compared += usize::from(found[k].abs() > 1e-5);
        }
        assert!(compared > 15, "{kind:?}: only {compared} gradients were large enough to tell");

        let loss = |_: &mut Cpu<f64>, moved: &Model<f64>| case.objective(moved, &case.appearance);
        let found = (&model, &gradients);
        // The maps have a kink where luma crosses a corner of the grid: one pixel of 1,073 may be there
        // within the step.
        let tolerance = if kind == Compensation::Exposure { 1e-6 } else { 1e-4 };
        let colours = [Parameter::ShDc, Parameter::ShRest];
        let compared = assert_differences(&mut device, found, &colours, (tolerance, 1e-4), loss);
        let compared: usize = compared.iter().sum();
        assert!(compared > 20, "{kind:?}: only {compared} gradients were large enough to tell");
    }
}

#[test]
fn the_total_variation_agrees_with_its_difference() {
    let mut draws = Draws::new(15);
    let mut grid: Vec<f64> = (0..GRID_WIDTH).map(|_| draws.uniform(-1.0, 1.0)).collect();
    // Corners of the grid, its edges and its inside.
    for k in [0, 11, 12, 191, 192, 3071, 3072, 12_345, GRID_WIDTH - 193, GRID_WIDTH - 1] {
        let start = grid[k];
        let found = total_variation_bwd(&grid, k);
        let expected = derivative_between_cuts(start, |x| {
            grid[k] = x;
            total_variation(&grid)
        });
        grid[k] = start;
        // A sum of 2 carries a rounding of 1e-14 over 70,000 terms: 1e-10 after division by the step.
        assert_relative(found, expected, (1e-4, 1e-5), &format!("value {k}"));
    }
}
