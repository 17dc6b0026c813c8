//! LPIPS of every device against the CPU's, which is held against the `lpips` package elsewhere.

use splat::perceptual::{LpipsInput, LpipsNet};

use crate::common::lpips::{images, weights};
use crate::prelude::*;
#[cfg(kernels)]
use splat::perceptual::LayerSizes;

each_backend!(
    both_networks_agree_with_the_cpus_whatever_the_size,
    both_networks_agree_where_a_mask_excludes_pixels,
    what_is_too_small_or_of_another_size_is_refused,
);

fn shot(size: [u32; 2], seed: u64) -> (View, Image) {
    let [_, rgb] = images(size, seed);
    let [width, height] = size;
    (resized(&view(), size), Image { width, height, rgb, mask: None, depth: None, normals: None })
}

fn perceived<B: TrainDevice>(
    device: &mut B,
    net: LpipsNet,
    (view, image): &(View, Image),
    input: LpipsInput,
) -> Result<f64, DeviceError> {
    let model = device.upload(&tame_gaussians(60, 5, 3)).unwrap();
    let settings = DrawSettings { pass: Pass::Eval, ..settings(3, 5) };
    let net = device.load_lpips(&weights(net))?;
    let frame = device.show(&model, view, &settings).unwrap();
    let target = device.glance(&Arc::new(image.clone())).unwrap();
    device.lpips(&net, &frame, &target, input)
}

/// Sums run in another order, which costs 1e-5; and a device may take or leave a splat at the edge of
/// what is blended, which changes one pixel of a thousand by 1/255.
const TOLERANCE: f64 = 5e-4;

fn assert_perceived_alike<B: TrainDevice>(device: &mut B, net: LpipsNet, shot: &(View, Image)) {
    for input in [LpipsInput::Stretched, LpipsInput::EightBits] {
        let found = perceived(device, net, shot, input).unwrap();
        let expected = perceived(&mut Cpu::<f32>::new(), net, shot, input).unwrap();
        assert!(expected > 0.05, "{expected} would show no error");
        let size = [shot.1.width, shot.1.height];
        let error = (found - expected).abs() / expected;
        assert!(error < TOLERANCE, "{net:?}, {size:?}, {input:?}: {found} instead of {expected}");
    }
}

fn both_networks_agree_with_the_cpus_whatever_the_size<B: TrainDevice>(device: &mut B) {
    for net in LpipsNet::ALL {
        let least = net.side_min();
        for (seed, size) in (1..).zip([[least, least], [37, 45], [70, 50], [131, 97]]) {
            assert_perceived_alike(device, net, &shot(size, seed));
        }
    }
}

fn both_networks_agree_where_a_mask_excludes_pixels<B: TrainDevice>(device: &mut B) {
    for net in LpipsNet::ALL {
        let (view, mut image) = shot([61, 47], 9);
        let pixels = 61 * 47;
        image.mask = Some((0..pixels).map(|i| if i % 61 < 20 { 0 } else { 255 }).collect());
        assert_perceived_alike(device, net, &(view.clone(), image.clone()));
        // Two black images are alike.
        image.mask = Some(vec![0; pixels]);
        assert_eq!(perceived(device, net, &(view, image), LpipsInput::Stretched).unwrap(), 0.0);
    }
}

fn refused<B: TrainDevice>(device: &mut B, shot: &(View, Image)) -> DeviceError {
    perceived(device, LpipsNet::Alex, shot, LpipsInput::Stretched).unwrap_err()
}

fn what_is_too_small_or_of_another_size_is_refused<B: TrainDevice>(device: &mut B) {
    let error = refused(device, &shot([40, 30], 1));
    assert!(matches!(error, DeviceError::TooSmallForLpips { size: [40, 30], least: 31 }));
    let (view, _) = shot([40, 40], 1);
    let (_, image) = shot([41, 40], 1);
    let error = refused(device, &(view, image));
    assert!(matches!(error, DeviceError::TargetSize { .. }), "{error}");
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn strips_give_what_the_whole_image_gives_or_lpips_is_refused() {
    let mut device = cuda::open();
    // High, so that a strip is little of it; and so wide that no strip fits a granule.
    for (net, size) in [(LpipsNet::Vgg, [64, 1500]), (LpipsNet::Alex, [640, 1500])] {
        let shot = shot(size, 3);
        let weights = weights(net);
        let sizes = LayerSizes::new(net, size).unwrap();
        let model = device.upload(&tame_gaussians(60, 5, 3)).unwrap();
        let settings = DrawSettings { pass: Pass::Eval, ..settings(3, 5) };
        let frame = device.show(&model, &shot.0, &settings).unwrap();
        let target = device.glance(&Arc::new(shot.1.clone())).unwrap();
        let ready = device.load_lpips(&weights).unwrap();
        let whole = device.lpips(&ready, &frame, &target, LpipsInput::Stretched).unwrap();
        let cpu = perceived(&mut Cpu::<f32>::new(), net, &shot, LpipsInput::Stretched).unwrap();
        assert!((whole - cpu).abs() < TOLERANCE * cpu, "{net:?}: {whole} instead of {cpu}");

        let least = sizes.bytes(sizes.most());
        assert!(Bytes(2 * least.0) < sizes.bytes(1), "strips would save nothing");
        assert!(least > device.heap().granule(), "a strip would fit in what is left over");
        device.heap().trim_scratch().unwrap();
        let unlimited = device.heap().budget();
        for beyond in [least.0 / 2, least.0 / 4] {
            // Some granules for what is rounded up.
            let granules = 4 * device.heap().granule().0;
            let budget = Bytes(device.heap().total().0 + least.0 + beyond + granules);
            device.heap().set_budget(budget);
            let found = device.lpips(&ready, &frame, &target, LpipsInput::Stretched).unwrap();
            assert!(device.heap().total() <= budget);
            // Sums in another order.
            assert!((found - whole).abs() < 1e-5 * whole, "{net:?}: {found}, not {whole}");
            device.heap().trim_scratch().unwrap();
        }
        device.heap().set_budget(device.heap().total());
        let error = device.lpips(&ready, &frame, &target, LpipsInput::Stretched).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        device.heap().set_budget(unlimited);
        // Nothing was broken by the refusal.
        let again = device.lpips(&ready, &frame, &target, LpipsInput::Stretched).unwrap();
        assert!((again - whole).abs() < 1e-6 * whole, "{net:?}: {again}, not {whole}");
        device.heap().trim_scratch().unwrap();
    }
}
