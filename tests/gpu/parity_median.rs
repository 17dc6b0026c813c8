//! Median depths, and the light that passes to places: every device against the CPU backend in double
//! precision.

use crate::common::prelude::*;

use crate::common::Draws;
use crate::common::drawing::drawn_either;
use crate::common::scene::{gaussian, resized, straight, tame_gaussians, together};
use splat::backend::TrainDevice;
use splat::backend::cpu::Cpu;
use splat::backend::transmittances::NOT_SEEN;
use splat::dataset::View;
use splat::math::Real;
use splat::math::linalg::{mul_transposed, sub};
use splat::model::Gaussians;

each_backend!(
    half_of_the_light_passes_to_the_median_depths,
    light_that_passes_to_places_agrees_with_the_oracle,
    a_wall_is_seen_before_its_middle,
    what_a_view_does_not_see_has_no_transmittance,
);

/// A Gaussian that a ray barely meets counts or not, by rounding: one step of 8 bits.
const BARELY_MET: f32 = 0.005;

fn with_median(drawing: Drawing) -> Drawing {
    Drawing { median: true, ..drawing }
}

fn medians<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, view: &View) -> Vec<f32> {
    let model = device.upload(gaussians).unwrap();
    let drawing = with_median(Drawing::DEFAULT);
    drawn_either(device, &model, (view, &drawing)).median_depths.expect("they were asked for")
}

fn transmittances<B: TrainDevice>(
    device: &mut B,
    (gaussians, view): (&Gaussians, &View),
    places: &[[f32; 3]],
) -> Vec<f32> {
    let model = device.upload(gaussians).unwrap();
    device.transmittances(&model, view, &Drawing::DEFAULT.settings(), places).unwrap()
}

/// What a pixel shows at a depth, world space.
fn place(view: &View, pixel: usize, depth: f64) -> [f32; 3] {
    let width = view.camera.width as usize;
    let at_px = [pixel % width, pixel / width].map(|at| at as f64 + 0.5);
    let [x, y] =
        [0, 1].map(|axis| (at_px[axis] - view.camera.centre_px[axis]) / view.camera.focal_px[axis]);
    let cam = [x * depth, y * depth, depth];
    mul_transposed(&view.pose.rotation, sub(cam, view.pose.translation)).map(|x| x.to_f32())
}

fn half_of_the_light_passes_to_the_median_depths<B: TrainDevice>(device: &mut B) {
    let mut with_depth = 0;
    for (seed, size) in (1..).zip([[1, 1], [16, 16], [17, 33], [37, 29], [64, 50]]) {
        let view = resized(&straight(), size);
        for count in [0, 3, 40, 300] {
            let gaussians = tame_gaussians(count, seed, 3);
            let found = medians(device, &gaussians, &view);
            let expected = medians(&mut Cpu::<f64>::new(), &gaussians, &view);
            assert_eq!(found.len(), (size[0] * size[1]) as usize);
            let oracle = &mut Cpu::<f64>::new();
            // Far behind all of them where there is no median.
            let depth = |depth: f32| if depth > 0.0 { f64::from(depth) } else { 1e4 };
            let places: Vec<[f32; 3]> =
                (0..found.len()).map(|pixel| place(&view, pixel, depth(found[pixel]))).collect();
            let passes = transmittances(oracle, (&gaussians, &view), &places);
            let mut apart = 0;
            for (pixel, &passed) in passes.iter().enumerate() {
                let what = format!("{size:?} px, {count}, {pixel}: {} {passed}", found[pixel]);
                if found[pixel] > 0.0 {
                    with_depth += 1;
                    assert!((passed - 0.5).abs() < BARELY_MET, "{what}");
                } else {
                    assert!(passed > 0.5 - BARELY_MET || expected[pixel] <= 0.0, "{what}");
                }
                apart += usize::from((found[pixel] - expected[pixel]).abs() > 1e-3);
            }
            // A few rays barely meet one more, or lose their half where next to nothing is.
            assert!(apart * 50 <= found.len(), "{size:?} px, {count}: {apart} apart");
        }
    }
    assert!(with_depth > 1000, "{with_depth}");
}

fn light_that_passes_to_places_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [37, 29]);
    let mut draws = Draws::new(7);
    for count in [0, 3, 40, 300] {
        let gaussians = tame_gaussians(count, 5, 3);
        let places: Vec<[f32; 3]> =
            (0..2000).map(|_| draws.array::<3>(-1.0, 4.0).map(f64::to_f32)).collect();
        let found = transmittances(device, (&gaussians, &view), &places);
        let expected = transmittances(&mut Cpu::<f64>::new(), (&gaussians, &view), &places);
        assert_eq!(found.len(), places.len());
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let what = format!("{count}, {:?}: {found} for {expected}", places[index]);
            assert!((found - expected).abs() < BARELY_MET, "{what}");
        }
        assert!(transmittances(device, (&gaussians, &view), &[]).is_empty());
    }
}

fn a_wall_is_seen_before_its_middle<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [33, 33]);
    let mut wall = gaussian([0.0, 0.0, 2.0], 5.0, 0.95, [0.5; 3]);
    wall.log_scales[2] = 0.02_f32.ln();
    let found = medians(device, &wall, &view);
    // Where its opacity is 3/4.
    let expected = 2.0 - 0.02 * (2.0_f32 * (0.95_f32 / 0.75).ln()).sqrt();
    let centre = found[16 * 33 + 16];
    assert!((centre - expected).abs() < 1e-4, "{centre} for {expected}");
    let behind = gaussian([0.0, 0.0, 3.0], 0.1, 0.9, [0.5; 3]);
    let both = medians(device, &together(&[wall, behind]), &view);
    assert!((both[16 * 33 + 16] - expected).abs() < 1e-4, "{}", both[16 * 33 + 16]);
}

fn what_a_view_does_not_see_has_no_transmittance<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [37, 29]);
    let gaussians = tame_gaussians(40, 5, 3);
    let places = [[0.0, 0.0, -1.0], [50.0, 0.0, 1.0], [0.0, -50.0, 1.0], [f32::NAN, 0.0, 1.0]];
    assert_eq!(transmittances(device, (&gaussians, &view), &places), [NOT_SEEN; 4]);
}

#[cfg(kernels)]
mod on_the_device {
    use splat::backend::cuda::BandPolicy;

    use super::*;
    use crate::common::cuda;

    #[test]
    #[ignore = "needs a CUDA device"]
    fn bands_give_the_medians_and_the_light_of_the_view_at_once() {
        let device = &mut cuda::open();
        let mut draws = Draws::new(8);
        for (seed, size) in (1..).zip([[203, 147], [37, 29], [64, 131], [1, 130], [16, 16]]) {
            let view = resized(&straight(), size);
            let gaussians = tame_gaussians(1500, seed, 3);
            let places: Vec<[f32; 3]> =
                (0..5000).map(|_| draws.array::<3>(-1.0, 4.0).map(f64::to_f32)).collect();
            let bits = |device: &mut _| -> Vec<u32> {
                let depths = medians(device, &gaussians, &view);
                let passes = transmittances(device, (&gaussians, &view), &places);
                depths.into_iter().chain(passes).map(f32::to_bits).collect()
            };
            device.set_bands(BandPolicy::Never);
            let whole = bits(device);
            for bands in [1, 2, 3, u32::MAX] {
                device.set_bands(BandPolicy::AtLeast(bands));
                assert!(bits(device) == whole, "{size:?} px, {bands} bands");
            }
        }
    }
}
