//! The comparison of patches in neighbouring views: every device against the CPU backend in double
//! precision.
//!
//! The scenes are such that no patch is left out or taken for hidden by a hair, and the photographs are
//! smooth: what is compared is arithmetic, and not which side of an edge rounding falls on.

use crate::common::prelude::*;
use std::sync::Arc;

use crate::common::oracle::{GRADIENT_TOLERANCE, assert_gradients_agree};
use crate::common::patches::{
    Pair, Told, clear_discs, drawing, first_step, has_sure_medians, told,
};
use splat::backend::cpu::Cpu;
use splat::backend::{NormalDepths, Term, Terms, TrainDevice};
use splat::dataset::Image;
use splat::model::Gaussians;

each_backend!(
    losses_and_gradients_of_patches_agree_with_the_oracle,
    patches_and_normals_agree_with_the_oracle_together,
    patches_beside_masks_agree_with_the_oracle,
    an_image_smaller_than_a_patch_has_no_term,
);

fn patches_alone() -> Terms {
    Terms::default().with(Term::MultiView, 0.6)
}

fn assert_steps_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (pair, drawing): (&Pair, &Drawing),
    (terms, what): (&Terms, &str),
) {
    assert_steps_within(device, gaussians, (pair, drawing), terms, (GRADIENT_TOLERANCE, what));
}

fn assert_steps_within<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (pair, drawing): (&Pair, &Drawing),
    terms: &Terms,
    (tolerance, what): (f64, &str),
) {
    let (found, values) = first_step(device, gaussians, (pair, drawing), terms);
    let oracle = &mut Cpu::<f64>::new();
    let (expected, expected_values) = first_step(oracle, gaussians, (pair, drawing), terms);
    let [value, expected_value] =
        [values, expected_values].map(|all| all.get("multi_view").unwrap());
    assert!(expected_value > 0.01, "{what}: {expected_value}");
    // A median is right to 1e-6 of its depth, which is 1e-5 px, and the photograph changes by a tenth a
    // pixel where its deviation is a tenth.
    let error = (value - expected_value).abs();
    assert!(error < 1e-5, "{what}: {value} for {expected_value}");
    assert_gradients_agree(&found, &expected, (tolerance, what));
}

fn losses_and_gradients_of_patches_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[19, 15], [37, 29], [65, 43]]) {
        let first_px = [u32::from(seed % 2 == 0), u32::from(seed > 1)];
        let (pair, drawing) = (Pair::of_size(size, first_px).in_doubt(), drawing(seed));
        let gaussians = clear_discs(&pair, &drawing, seed);
        let what = format!("{size:?} px");
        assert_steps_agree(device, &gaussians, (&pair, &drawing), (&patches_alone(), &what));
    }
}

fn patches_and_normals_agree_with_the_oracle_together<B: TrainDevice>(device: &mut B) {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 1]).in_doubt(), drawing(7));
    let clear = (30..130).map(|seed| clear_discs(&pair, &drawing, seed));
    let gaussians = clear.into_iter().find(|discs| has_sure_medians(discs, &pair, &drawing));
    let gaussians = gaussians.expect("one scene in a hundred without a near thing");
    for depths in [NormalDepths::Median, NormalDepths::Opaque, NormalDepths::All] {
        let terms = patches_alone().with(Term::DepthNormal { depths }, 0.05);
        let what = format!("with {depths:?}");
        assert_steps_agree(device, &gaussians, (&pair, &drawing), (&terms, &what));
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
    let all = told(&gaussians, &pair, &drawing).unwrap();
    pair.photo = hide(&pair.photo, [20, 18]);
    pair.other_photo = hide(&pair.other_photo, [33, 0]);
    let left = told(&gaussians, &pair, &drawing).unwrap();
    assert!(left.compared + 20 < all.compared, "{left:?} of {all:?}");
    assert_steps_agree(device, &gaussians, (&pair, &drawing), (&patches_alone(), "masks"));
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
        let what = (GRADIENT_TOLERANCE / 3.0, &*format!("scene {seed}"));
        assert_steps_within(device, &gaussians, (&pair, &drawing), &patches_alone(), what);
    }
}

/// Without a device: the scenes are what the tests above take them for, so that single precision has
/// nothing to decide.
#[test]
fn most_patches_are_compared_and_none_by_a_hair() {
    let (pair, drawing) = (Pair::of_size([37, 29], [0, 1]).in_doubt(), drawing(7));
    let gaussians = clear_discs(&pair, &drawing, 7);
    let Some(Told { compared, hidden, left_out }) = told(&gaussians, &pair, &drawing) else {
        panic!("a decision is a near thing");
    };
    // 19 by 14 pixels are looked at, of which 16 by 11 or so have a patch.
    assert_eq!(compared + hidden + left_out, 19 * 14);
    assert!(compared > 80, "{compared} compared, {hidden} hidden, {left_out} left out");
}

#[cfg(kernels)]
mod on_the_device {
    use splat::backend::cuda::BandPolicy;

    use super::*;
    use crate::common::cuda;

    /// Patches reach over the border of two bands: each band leaves its part of the maps that they are
    /// taken from, and takes its part of their gradients.
    #[test]
    #[ignore = "needs a CUDA device"]
    fn patches_of_a_view_in_bands_agree_with_the_oracle() {
        let device = &mut cuda::open();
        for (seed, size) in (1..).zip([[37, 29], [65, 43]]) {
            let (pair, drawing) = (Pair::of_size(size, [0, 1]).in_doubt(), drawing(seed));
            let gaussians = clear_discs(&pair, &drawing, seed);
            let terms = patches_alone();
            for bands in [1, 2, u32::MAX] {
                device.set_bands(BandPolicy::AtLeast(bands));
                let model = device.upload(&gaussians).unwrap();
                let frame = device.draw(&model, &pair.view, &drawing).unwrap();
                assert!(frame.is_in_bands() && frame.bands() >= bands.min(size[1].div_ceil(16)));
                drop(frame);
                let what = format!("{size:?} px, {bands} bands");
                assert_steps_agree(device, &gaussians, (&pair, &drawing), (&terms, &what));
            }
        }
    }
}
