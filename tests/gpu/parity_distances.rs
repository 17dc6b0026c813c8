//! Distances from the surface that a view's depths show, and their gradients, of every device against
//! the CPU backend in double precision.

use crate::common::oracle::{self, AT_REST, gradients};
use crate::common::prelude::*;
use crate::common::scene::{gaussian, photo, resized, straight, together};
use crate::common::surface::{ShownDepths, Solid, WITH_DEPTHS};
use crate::common::surface::{SurfaceRule, SurfaceTerms};
use crate::common::{Draws, view};
use splat::backend::cpu::Cpu;
use splat::backend::{AdamStep, NormalDepths, Snapshot, Term, TrainDevice};
use splat::dataset::View;
use splat::math::Real;
use splat::math::linalg::{mul_transposed, sub};
use splat::model::Gaussians;

each_backend!(
    distances_of_every_view_agree_with_the_oracle,
    lists_of_every_length_agree_with_the_oracle,
    any_number_of_samples_agrees_with_the_oracle,
    distances_and_the_other_terms_agree_with_the_oracle_together,
    distances_and_drawn_normals_agree_with_the_oracle_together,
);

/// Distances alone, in a unit of which they are a few.
const RULE: SurfaceRule = SurfaceRule::DISTANCES;

/// A crowd in the middle of a view, of which one in three is too faint to be seen, while every precision
/// sees the others: samples are drawn among what is seen, by place.
fn crowd(count: usize, seed: u64, view: &View) -> Gaussians {
    let mut draws = Draws::new(seed);
    let parts: Vec<Gaussians> = (0..count)
        .map(|row| {
            let [x, y] = draws.array(-0.1, 0.1);
            let mean_cam = [x, y, draws.uniform(0.4, 0.7)];
            let mean = mul_transposed(&view.pose.rotation, sub(mean_cam, view.pose.translation));
            let mut one = gaussian(mean.map(f64::to_f32), 1.0, 0.5, [0.5; 3]);
            one.log_scales = draws.array::<3>(-3.5, -1.9).map(f64::to_f32).to_vec();
            one.quats = draws.array::<4>(-1.0, 1.0).map(f64::to_f32).to_vec();
            let logits = if row % 3 == 2 { [-9.0, -6.5] } else { [-2.0, 4.0] };
            one.opacity_logits = vec![draws.uniform(logits[0], logits[1]).to_f32()];
            one
        })
        .collect();
    together(&parts)
}

/// Gaussians of a [`crowd`] that samples are taken of. Fails where single precision may find others.
fn near_surface(gaussians: &Gaussians, view: &View) -> Vec<usize> {
    let visible: Vec<usize> = (0..gaussians.len()).filter(|row| row % 3 != 2).collect();
    let of = |values: &[f32], width: usize, row: usize| {
        values[row * width..][..width].iter().copied().map(f64::from).collect::<Vec<_>>()
    };
    let solids: Vec<Solid> = (0..gaussians.len())
        .map(|row| {
            let groups = [(&gaussians.means, 3), (&gaussians.log_scales, 3), (&gaussians.quats, 4)];
            let mut values: Vec<f64> =
                groups.into_iter().flat_map(|(values, width)| of(values, width, row)).collect();
            values.extend(of(&gaussians.opacity_logits, 1, row));
            Solid::new(&values)
        })
        .collect();
    ShownDepths::new(gaussians, &visible, (view, &WITH_DEPTHS)).near_surface(&visible, &solids)
}

/// What a step without the pixels' say left behind: the terms, and moments that are the gradients.
fn compared<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (view, count, normals): (&View, u32, f64),
    rule: &SurfaceRule,
) -> (SurfaceTerms, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    let near = device.neighbours(&model, count).unwrap();
    let [width, height] = [view.camera.width, view.camera.height];
    let masked = photo(width, height, Some(vec![0; (width * height) as usize]));
    let target = device.target(0, &masked).unwrap();
    let settings = Drawing { inverse_depth: normals != 0.0, ..WITH_DEPTHS };
    let terms = rule.terms().with(Term::DepthNormal { depths: NormalDepths::All }, normals);
    let near = Some(&near);
    let seen = Seen { view, drawing: &settings, target: &target, terms: &terms, near };
    let mut gradients = Default::default();
    let [_, samples] = device.add_seen(&mut model, &seen, &mut gradients).unwrap();
    let terms = samples.read().unwrap().into();
    device.step(&mut model, gradients, &AdamStep::new(1, AT_REST)).unwrap();
    (terms, device.snapshot(&mut model).unwrap())
}

/// Terms within 1e-5: means of a thousand roundings, of depths that are right to a few 1e-7.
fn assert_terms_agree(found: &SurfaceTerms, expected: &SurfaceTerms, what: &str) {
    for (name, found, expected) in [
        ("entropy", found.entropy, expected.entropy),
        ("density", found.density, expected.density),
        ("normal", found.normal, expected.normal),
        ("distance", found.sdf, expected.sdf),
    ] {
        let error = (found - expected).abs();
        assert!(error <= 1e-5 * expected.max(1.0), "{what}: {name} is {found} for {expected}");
    }
}

/// Gradients within 5e-5 of the largest of all where the pixels' shares cancel.
fn assert_columns_agree(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>, what: &str) {
    let (found, expected) = (gradients(found), gradients(expected));
    let mut all = expected.iter().flat_map(|(.., values)| values);
    assert!(all.any(|value| value.abs() > 1e-4), "{what}: there are no gradients");
    oracle::assert_columns_agree(&found, &expected, 5e-5, what);
}

fn assert_agrees<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (view, count, normals): (&View, u32, f64),
    (rule, what): (&SurfaceRule, &str),
) -> SurfaceTerms {
    let found = compared(device, gaussians, (view, count, normals), rule);
    let expected = compared(&mut Cpu::<f64>::new(), gaussians, (view, count, normals), rule);
    assert_terms_agree(&found.0, &expected.0, what);
    assert_columns_agree(&found.1, &expected.1, what);
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
            let terms = assert_agrees(device, &gaussians, (&view, 16, 0.0), (&RULE, &what));
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
        assert_agrees(device, &gaussians, (&view, count, 0.0), (&RULE, &what));
    }
}

fn any_number_of_samples_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let gaussians = crowd(300, 21, &view);
    assert!(near_surface(&gaussians, &view).len() > 40);
    // Blocks take 8 samples of 12 neighbours at a time, and 4 of 20.
    for samples in [1, 2, 7, 8, 9, 33, 3_000] {
        for count in [12, 20] {
            let rule = SurfaceRule { samples, ..RULE };
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
        let rule = SurfaceRule { entropy: 0.7, density, normal, ..RULE };
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
    assert_agrees(device, &gaussians, (&view, 16, 0.05), (&RULE, "with normals"));
}

#[cfg(kernels)]
mod on_the_device {
    use splat::backend::cpu::Cpu;
    use splat::backend::cuda::BandPolicy;
    use splat::math::Real;

    use super::{
        RULE, assert_agrees, assert_columns_agree, assert_terms_agree, compared, crowd,
        near_surface,
    };
    use crate::common::scene::{resized, straight};
    use crate::common::{compact, cuda};

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
            assert_agrees(device, &gaussians, (&view, 16, 0.0), (&RULE, &what));
        }
    }

    /// A compact model keeps second moments of its geometry in full: their roots are the gradients'
    /// sizes. Its first moments are bfloats.
    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_compact_model_gets_the_same_gradients() {
        let view = straight();
        let gaussians = crowd(200, 61, &view);
        assert!(near_surface(&gaussians, &view).len() > 20);
        for count in [16, 32] {
            let at = (&view, count, 0.0);
            let mut found = compared(&mut compact::compact(), &gaussians, at, &RULE);
            let mut expected = compared(&mut Cpu::<f64>::new(), &gaussians, at, &RULE);
            assert_terms_agree(&found.0, &expected.0, "compact");
            // What a first moment is after one step, as far as its size goes.
            let size = |v: f32| (f64::from(v) / (1.0 - 0.999)).sqrt() * (1.0 - 0.9);
            for after in [&mut found.1, &mut expected.1] {
                let (first, second) = (&mut after.first_moments, &after.second_moments);
                for (first, second) in [
                    (&mut first.means, &second.means),
                    (&mut first.log_scales, &second.log_scales),
                    (&mut first.quats, &second.quats),
                    (&mut first.opacity_logits, &second.opacity_logits),
                ] {
                    for (first, &second) in first.iter_mut().zip(second) {
                        *first = size(second).to_f32();
                    }
                }
                first.sh_dc.fill(0.0);
                first.sh_rest.fill(0.0);
            }
            assert_columns_agree(&found.1, &expected.1, &format!("{count} neighbours, compact"));
        }
    }
}
