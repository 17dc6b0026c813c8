//! Patches in neighbouring views: what they say of a surface, and their gradients.

use crate::common::differences::assert_differences;
use crate::common::prelude::*;

use crate::common::patches::{Pair, beside, clear_discs, drawing, gradients_of, photograph, wall};
use crate::common::scene::straight;
use splat::backend::cpu::{Cpu, Model, Parameter};
use splat::backend::{AdamStep, DeviceError, Rates, Term, Terms, TrainDevice};

each_backend!(
    a_wall_that_stands_where_it_was_photographed_costs_least,
    a_wall_moves_to_where_it_was_photographed,
    without_another_view_nothing_is_compared,
);

fn patches_alone() -> Terms {
    Terms::default().with(Term::MultiView, 0.6)
}

const FACING: [f32; 4] = [1.0, 0.0, 0.0, 0.0];

fn a_wall_that_stands_where_it_was_photographed_costs_least<B: TrainDevice>(device: &mut B) {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 0]), drawing(1));
    let mut cost = |depth: f32, quat: [f32; 4]| {
        let mut model = device.upload(&wall(depth, quat)).unwrap();
        let (_, values) = gradients_of(device, &mut model, (&pair, &drawing), &patches_alone());
        values.get("multi_view").unwrap()
    };
    // Half of the light is stopped a little before the middle of a disc.
    let right = cost(2.0, FACING);
    let others = [
        cost(1.8, FACING),
        cost(2.25, FACING),
        cost(2.0, [1.0, 0.2, 0.0, 0.0]),
        cost(2.0, [1.0, 0.0, -0.2, 0.0]),
    ];
    assert!(right < 0.02, "{right}");
    assert!(others.iter().all(|&other| other > 2.0 * right), "{right} and {others:?}");
}

fn a_wall_moves_to_where_it_was_photographed<B: TrainDevice>(device: &mut B) {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 0]), drawing(1));
    for start in [1.85, 2.15] {
        let mut model = device.upload(&wall(start, FACING)).unwrap();
        let rates = Rates {
            means: 0.01,
            log_scales: 0.0,
            quats: 0.0,
            opacity_logits: 0.0,
            sh_dc: 0.0,
            sh_rest: 0.0,
        };
        for number in 1..=30 {
            let pair = Pair { first_px: [number % 2, number / 2 % 2], ..pair.clone() };
            let (gradients, _) =
                gradients_of(device, &mut model, (&pair, &drawing), &patches_alone());
            device.step(&mut model, gradients, &AdamStep::new(number, rates)).unwrap();
        }
        let parameters = device.download(&mut model).unwrap();
        // The discs in the middle of both views: those at the border are seen by one.
        let inner = parameters.means.as_chunks::<3>().0.iter();
        let inner = inner.filter(|mean| mean[0].abs() < 0.45 && mean[1].abs() < 0.35);
        let depths: Vec<f32> = inner.map(|mean| mean[2]).collect();
        let mean = depths.iter().sum::<f32>() / depths.len() as f32;
        let before = (start - 2.0).abs();
        assert!((mean - 2.0).abs() < 0.4 * before, "from {start} to {mean}");
    }
}

fn without_another_view_nothing_is_compared<B: TrainDevice>(device: &mut B) {
    let pair = Pair::of_size([37, 29], [0, 0]);
    let model = device.upload(&wall(2.0, FACING)).unwrap();
    let frame = device.draw(&model, &pair.view, &drawing(1)).unwrap();
    let target = device.target(0, &pair.photo).unwrap();
    let refused = device.compare(&model, frame, &target, &patches_alone()).err();
    let expected = matches!(
        refused,
        Some(DeviceError::MissingInput { term: "multi-view", input: "another view" })
    );
    assert!(expected, "{refused:?}");
}

#[test]
fn the_whole_pipeline_agrees_with_its_difference_in_every_parameter() {
    let (pair, drawing) = (Pair::of_size([25, 19], [0, 1]).in_doubt(), drawing(4));
    let gaussians = clear_discs(&pair, &drawing, 4);
    let device = &mut Cpu::<f64>::new();
    let mut model = device.upload(&gaussians).unwrap();
    let terms = Terms::default().with(Term::MultiView, 100.0);
    let (gradients, _) = gradients_of(device, &mut model, (&pair, &drawing), &terms);
    let loss = |device: &mut Cpu<f64>, moved: &Model<f64>| {
        let mut moved = moved.clone();
        let (_, values) = gradients_of(device, &mut moved, (&pair, &drawing), &terms);
        100.0 * values.get("multi_view").unwrap()
    };
    // A step moves samples by a ten thousandth of a pixel, and one in a few thousand over the centre of a
    // pixel, where the slope of the photograph jumps by a tenth; a patch has 49 samples.
    let found = (&model, &gradients);
    let compared = assert_differences(device, found, &Parameter::ALL[..4], (2e-3, 2e-3), loss);
    assert!(compared.iter().zip([20, 15, 25, 5]).all(|(n, least)| *n >= least), "{compared:?}");
}

#[test]
fn a_photograph_of_the_wall_shows_the_same_place_in_both_views() {
    // A single bright spot, and where both cameras have it.
    let spot = |[x, y]: [f64; 2]| [if x.hypot(y) < 0.15 { 1.0 } else { 0.0 }; 3];
    for view in [straight(), beside()] {
        let photo = photograph(&view, spot);
        let pixels = photo.rgb.chunks(3).enumerate().filter(|(_, rgb)| rgb[0] > 0);
        let places: Vec<[f64; 2]> = pixels
            .map(|(at, _)| [at % photo.width as usize, at / photo.width as usize])
            .map(|at| at.map(|place| place as f64 + 0.5))
            .collect();
        let pose = &view.pose;
        let middle = [0, 1].map(|axis| {
            let depth = pose.rotation[2][2] * 2.0 + pose.translation[2];
            let along = pose.rotation[axis][2] * 2.0 + pose.translation[axis];
            view.camera.focal_px[axis] * along / depth + view.camera.centre_px[axis]
        });
        for axis in 0..2 {
            let mean = places.iter().map(|at| at[axis]).sum::<f64>() / places.len() as f64;
            // A spot of 6 px.
            assert!((mean - middle[axis]).abs() < 0.4, "{}: {mean} {middle:?}", view.name);
        }
    }
}
