//! Patches in neighbouring views: their term of a surface, and its gradients.

use splat::backend::cpu::Model;

use crate::common::patches::{
    Pair, PatchCounts, beside, clear_discs, count_patches, drawing, first_step, gradients_of,
    has_sure_medians, photograph, wall,
};
use crate::prelude::*;

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
    let turned = [[1.0, 0.2, 0.0, 0.0], [1.0, 0.0, -0.2, 0.0]].map(|quat| cost(2.0, quat));
    let others = [cost(1.8, FACING), cost(2.25, FACING), turned[0], turned[1]];
    assert!(right < 0.02, "{right}");
    assert!(others.iter().all(|&other| other > 2.0 * right), "{right} and {others:?}");
}

fn a_wall_moves_to_where_it_was_photographed<B: TrainDevice>(device: &mut B) {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 0]), drawing(1));
    for start in [1.85, 2.15] {
        let mut model = device.upload(&wall(start, FACING)).unwrap();
        let rates = Rates { means: 0.01, ..AT_REST };
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
    let Some(DeviceError::MissingInput { term, input }) = refused else { panic!("{refused:?}") };
    assert_eq!((term, input), ("multi-view", "another view"));
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

// The comparison of patches in neighbouring views: every device against the CPU backend in double precision.
//
// No patch of the scenes is near the limits at which it is left out or hidden, and the photographs are smooth. So the
// tests compare arithmetic, not the side of an edge on which rounding falls.

each_backend!(
    losses_and_gradients_of_patches_agree_with_the_oracle,
    patches_and_normals_agree_with_the_oracle_together,
    patches_beside_masks_agree_with_the_oracle,
    an_image_smaller_than_a_patch_has_no_term,
);

fn assert_steps_agree<B: TrainDevice>(
    device: &mut B,
    (gaussians, pair, drawing): (&Gaussians, &Pair, &DrawSettings),
    terms: &Terms,
    (share, what): (f64, &str),
) {
    let [(found, values), (expected, expected_values)] =
        beside_oracle!(device, first_step(device, gaussians, (pair, drawing), terms));
    let [value, expected_value] =
        [values, expected_values].map(|all| all.get("multi_view").unwrap());
    assert!(expected_value > 0.01, "{what}: {expected_value}");
    // A median is right to 1e-6 of its depth, which is 1e-5 px, and the photograph changes by a tenth a
    // pixel where its deviation is a tenth.
    let error = (value - expected_value).abs();
    assert!(error < 1e-5, "{what}: {value} for {expected_value}");
    assert_gradients_agree(&found, &expected, (share * GRADIENT_TOLERANCE, what));
}

fn losses_and_gradients_of_patches_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[19, 15], [37, 29], [65, 43]]) {
        let first_px = [u32::from(seed % 2 == 0), u32::from(seed > 1)];
        let (pair, drawing) = (Pair::of_size(size, first_px).in_doubt(), drawing(seed));
        let gaussians = clear_discs(&pair, &drawing, seed);
        let (scene, what) = ((&gaussians, &pair, &drawing), format!("{size:?} px"));
        assert_steps_agree(device, scene, &patches_alone(), (1.0, &what));
    }
}

fn patches_and_normals_agree_with_the_oracle_together<B: TrainDevice>(device: &mut B) {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 1]).in_doubt(), drawing(7));
    let clear = (30..130).map(|seed| clear_discs(&pair, &drawing, seed));
    let gaussians = clear.into_iter().find(|discs| has_sure_medians(discs, &pair, &drawing));
    let gaussians = gaussians.expect("one scene in a hundred without a near thing");
    for depths in [NormalDepths::Median, NormalDepths::Opaque, NormalDepths::All] {
        let terms = patches_alone().with(Term::DepthNormal { depths }, 0.05);
        let (scene, what) = ((&gaussians, &pair, &drawing), format!("with {depths:?}"));
        assert_steps_agree(device, scene, &terms, (1.0, &what));
    }
}

fn patches_beside_masks_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let mut pair = Pair::of_size([37, 29], [1, 0]).in_doubt();
    let hide = |image: &Arc<Image>, [from_x, from_y]: [u32; 2]| {
        let pixels = (0..image.height).flat_map(|y| (0..image.width).map(move |x| [x, y]));
        let mask = pixels.map(|[x, y]| if x >= from_x && y >= from_y { 0 } else { 255 });
        Arc::new(Image { mask: Some(mask.collect()), ..Image::clone(image) })
    };
    let drawing = drawing(9);
    let gaussians = clear_discs(&pair, &drawing, 9);
    let all = count_patches(&gaussians, &pair, &drawing).unwrap();
    pair.photo = hide(&pair.photo, [20, 18]);
    pair.other_photo = hide(&pair.other_photo, [33, 0]);
    let left = count_patches(&gaussians, &pair, &drawing).unwrap();
    assert!(left.compared + 20 < all.compared, "{left:?} of {all:?}");
    assert_steps_agree(device, (&gaussians, &pair, &drawing), &patches_alone(), (1.0, "masks"));
}

fn an_image_smaller_than_a_patch_has_no_term<B: TrainDevice>(device: &mut B) {
    for size in [[1, 1], [6, 20], [20, 6]] {
        let (pair, drawing) = (Pair::of_size(size, [0, 1]).in_doubt(), drawing(3));
        let gaussians = crate::common::patches::discs(9, 3);
        let (found, values) = first_step(device, &gaussians, (&pair, &drawing), &patches_alone());
        assert_eq!(values.get("multi_view"), Some(0.0), "{size:?}");
        assert!(found.first_moments.means.iter().all(|&moment| moment == 0.0), "{size:?}");
    }
}

/// Without a device: a GPU may round three times as much as the processor before it fails.
#[test]
fn single_precision_leaves_room_for_another_order_of_rounding() {
    let device = &mut Cpu::<f32>::new();
    for seed in 20..26 {
        let (pair, drawing) = (Pair::of_size([37, 29], [0, 0]).in_doubt(), drawing(seed));
        let gaussians = clear_discs(&pair, &drawing, seed);
        let (scene, what) = ((&gaussians, &pair, &drawing), format!("scene {seed}"));
        assert_steps_agree(device, scene, &patches_alone(), (1.0 / 3.0, &what));
    }
}

/// Without a device: the scenes are what the tests above take them for, so that single precision has
/// nothing to decide.
#[test]
fn most_patches_are_compared_and_none_by_a_hair() {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 1]).in_doubt(), drawing(7));
    let gaussians = clear_discs(&pair, &drawing, 7);
    let Some(PatchCounts { compared, hidden, left_out }) =
        count_patches(&gaussians, &pair, &drawing)
    else {
        panic!("a decision is a near thing");
    };
    // 19 by 14 pixels are tried; about 16 by 11 have a patch.
    assert_eq!(compared + hidden + left_out, 19 * 14);
    assert!(compared > 80, "{compared} compared, {hidden} hidden, {left_out} left out");
}

/// Patches reach over the border of two bands: each band leaves its part of the maps that they are
/// taken from, and takes its part of their gradients.
#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn patches_of_a_view_in_bands_agree_with_the_oracle() {
    let device = &mut cuda::open();
    for (seed, size) in (1..).zip([[37, 29], [65, 43]]) {
        let (pair, drawing) = (Pair::of_size(size, [0, 1]).in_doubt(), drawing(seed));
        let gaussians = clear_discs(&pair, &drawing, seed);
        for bands in [1, 2, u32::MAX] {
            device.set_bands(BandPolicy::AtLeast(bands));
            let model = device.upload(&gaussians).unwrap();
            let frame = device.draw(&model, &pair.view, &drawing).unwrap();
            assert!(frame.is_in_bands() && frame.bands() >= bands.min(size[1].div_ceil(16)));
            drop(frame);
            let scene = (&gaussians, &pair, &drawing);
            let what = format!("{size:?} px, {bands} bands");
            assert_steps_agree(device, scene, &patches_alone(), (1.0, &what));
        }
    }
}
