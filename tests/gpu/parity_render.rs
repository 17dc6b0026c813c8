//! Images and losses of every device against the CPU backend in double precision.

use splat::backend::Reach;
use splat::math::adam::Moments;
use splat::math::linalg::{mul_transposed, sub};
use splat::math::splat::bounds;

use crate::common::oracle::{self, assert_agrees, assert_same_steps, draw};
use crate::common::scene::{Splat, composite_pixel, splats};
use crate::filters::{MIP, SAMPLED_FROM, smoothed};
use crate::normals::with_depths;
use crate::parity_step::{assert_alike, gaussians as seen_and_behind};
use crate::parity_surface::{CANCELLED, crowd};
use crate::prelude::*;

each_backend!(
    images_agree_with_the_oracle,
    images_agree_with_every_degree_stored_and_in_use,
    gaussians_far_beside_an_image_are_left_out_if_asked,
    losses_agree_with_the_oracle_whatever_the_size,
    losses_agree_with_the_oracle_whatever_the_weights,
    a_mask_that_excludes_everything_leaves_no_loss,
    metrics_agree_with_the_oracle_with_and_without_a_mask,
);

const SIZES: [[u32; 2]; 6] = [[1, 1], [3, 2], [10, 10], [11, 11], [17, 33], [37, 29]];

fn images_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (i, size) in (1..).zip([[1, 1], [16, 16], [17, 33], [37, 29], [15, 130], [203, 47]]) {
        let view = resized(&view(), size);
        for count in [3, 40, 300] {
            let gaussians = tame_gaussians(count, i, 3);
            assert_images_agree(device, &gaussians, &view, &settings(3, i));
        }
    }
}

fn images_agree_with_every_degree_stored_and_in_use<B: TrainDevice>(device: &mut B) {
    let mut images = Vec::new();
    for stored in 0..=3 {
        for used in 0..=stored {
            let gaussians = tame_gaussians(60, 7, stored);
            assert_images_agree(device, &gaussians, &view(), &settings(used, 5));
            images.push(draw(device, &gaussians, &view(), &settings(used, 5)).rgb);
        }
    }
    // Degrees matter: no two of the images in which more is in use are the same.
    assert!(images.windows(2).all(|pair| pair[0] != pair[1]));
}

/// A Gaussian 2 away whose standard deviation is 1, with its centre beside each edge. The bounds are one image's width at
/// x/z = -1.324 and 1.383, and one height at y/z = -1.044 and 0.979.
fn gaussians_far_beside_an_image_are_left_out_if_asked<B: TrainDevice>(device: &mut B) {
    let view = view();
    let mut brightness = |slope: [f64; 2], cuts_sides: bool| {
        let mut one = tame_gaussians(1, 1, 0);
        let mean_cam = [2.0 * slope[0], 2.0 * slope[1], 2.0];
        let mean = mul_transposed(&view.pose.rotation, sub(mean_cam, view.pose.translation));
        one.means.copy_from_slice(&mean.map(f64::to_f32));
        one.log_scales.fill(0.0);
        one.opacity_logits.fill(4.0);
        one.sh_dc.fill(1.0);
        let model = device.upload(&one).unwrap();
        let settings = RenderSettings { cuts_sides, ..RenderSettings::DEFAULT };
        let frame = device.render(&model, &view, &settings, RenderRequest::IMAGE).unwrap();
        device.image(&frame).unwrap().rgb.iter().sum::<f32>()
    };
    for (inside, outside) in [
        ([1.37, 0.0], [1.40, 0.0]),
        ([-1.31, 0.0], [-1.34, 0.0]),
        ([0.0, 0.97], [0.0, 0.99]),
        ([0.0, -1.03], [0.0, -1.06]),
    ] {
        let all = brightness(inside, false);
        assert!(all > 1.0 && brightness(outside, false) > 1.0);
        assert_eq!(brightness(inside, true).to_bits(), all.to_bits());
        assert_eq!(brightness(outside, true), 0.0);
    }
}

fn assert_losses_like_the_oracles<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
) {
    let [found, expected] =
        beside_oracle!(device, FirstStep::taken_by(device, gaussians, shot).loss);
    let what = format!("{} x {} px", shot.photo.width, shot.photo.height);
    assert_losses_agree(&found, &expected, (shot.size(), &what));
}

fn losses_agree_with_the_oracle_whatever_the_size<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip(SIZES) {
        let (gaussians, shot) = clear_shot(size, seed, settings(3, seed));
        assert_losses_like_the_oracles(device, &gaussians, &shot);
        // A mask excludes pixels.
        let gaussians = tame_gaussians(60, seed, 3);
        let shot = oracle::shot(&gaussians, &shot.view, shot.settings, (seed, Counted::Some));
        assert_losses_like_the_oracles(device, &gaussians, &shot);
    }
}

fn losses_agree_with_the_oracle_whatever_the_weights<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 9, 3);
    let mut shot = shot(&gaussians, &view(), settings(3, 4), (3, Counted::Clear));
    for lambda_dssim in [0.0, 0.2, 0.7, 1.0] {
        shot.terms = Terms::photometric(lambda_dssim);
        assert_losses_like_the_oracles(device, &gaussians, &shot);
    }
}

fn a_mask_that_excludes_everything_leaves_no_loss<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(20, 3, 3);
    let mut shot = shot(&gaussians, &view(), settings(3, 1), (1, Counted::Clear));
    shot.photo = Arc::new(Image { mask: masked(&view()), ..Image::clone(&shot.photo) });
    let step = FirstStep::taken_by(device, &gaussians, &shot);
    // Both images are black: nothing differs and everything is alike. SSIM is a mean of ones that
    // single precision adds up.
    assert_eq!(step.loss.l1, 0.0);
    assert!((step.loss.ssim - 1.0).abs() < 1e-6 && step.loss.total.abs() < 1e-6);
    assert!(gradients(&step.snapshot).iter().all(|(_, _, d)| d.iter().all(|&d| d.abs() < 1e-9)));
}

fn metrics_agree_with_the_oracle_with_and_without_a_mask<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip(SIZES) {
        let (gaussians, all) = clear_shot(size, seed, settings(3, seed));
        let some = shot(&gaussians, &all.view, all.settings, (seed, Counted::Some));
        for shot in [all, some] {
            let [found, expected] = beside_oracle!(device, {
                let model = device.upload(&gaussians).unwrap();
                let settings = DrawSettings { pass: Pass::Eval, ..shot.settings };
                let frame = device.show(&model, &shot.view, &settings).unwrap();
                let target = device.target(shot.index, &shot.photo).unwrap();
                device.measure(&frame, &target).unwrap()
            });
            assert_measured_alike(&found, &expected, format_args!("{size:?} px"));
        }
    }
}

// Steps that take several views, of every device against the CPU backend in double precision.

each_backend!(
    batches_of_every_size_agree_with_the_oracle,
    sampled_terms_of_several_views_agree_with_the_oracle,
    regularisers_and_noise_come_once_a_step,
    colours_that_no_view_of_a_batch_sees_move_on_as_the_oracles,
);

/// Sizes of batches: today's step, and those of several views.
const BATCHES: [usize; 4] = [1, 2, 5, 8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Colours,
    InverseDepths,
    Normals,
    /// The opacities' entropy is added to the geometry's gradients.
    Entropy,
    Filters,
    All,
}

const KINDS: [Kind; 6] =
    [Kind::Colours, Kind::InverseDepths, Kind::Normals, Kind::Entropy, Kind::Filters, Kind::All];

/// Weight of the normals, and of the entropy, in the loss.
const WEIGHT: f64 = 0.3;

/// Returns views from `count` places, of different sizes.
fn views(count: usize) -> Vec<View> {
    let aside = |i: usize| {
        let at = u8::try_from(i).map(f64::from).unwrap();
        let mut aside = if i.is_multiple_of(2) { view() } else { straight() };
        aside.pose.translation = [0.05 * at - 0.2, 0.1 - 0.03 * at, 0.1 + 0.04 * at];
        let side = u32::try_from(i).unwrap();
        resized(&aside, [37 - 2 * side, 29 + side])
    };
    (0..count).map(aside).collect()
}

/// The Gaussians, and the views of a batch with their photographs and terms.
fn batch(kind: Kind, count: usize, seed: u64) -> (Gaussians, Vec<Shot>) {
    let views = views(count);
    let drawing = |i: usize| {
        let mut drawing = settings(u32::try_from(i % 4).unwrap(), seed + i as u64);
        drawing.surface = matches!(kind, Kind::Normals | Kind::All);
        if kind == Kind::Filters {
            drawing.footprint = MIP;
        }
        drawing
    };
    let compares_maps = matches!(kind, Kind::Normals | Kind::All | Kind::InverseDepths);
    let gaussians = if compares_maps {
        let frames: Vec<_> = views.iter().enumerate().map(|(i, view)| (view, drawing(i))).collect();
        clear_gaussians(6, seed, &frames)
    } else {
        tame_gaussians(70, seed, 3)
    };
    let drawn = if kind == Kind::Filters { smoothed(&gaussians) } else { gaussians.clone() };
    let shots = views.iter().enumerate().map(|(i, view)| {
        let counted = if compares_maps { Counted::All } else { Counted::Clear };
        let mut shot = shot(&drawn, view, drawing(i), (seed + i as u64, counted));
        if matches!(kind, Kind::InverseDepths | Kind::All) {
            shot = with_depths(shot, &gaussians);
        }
        shot.terms = shot.terms_drawn();
        if shot.settings.surface {
            shot.terms.add(
                Term::DepthNormal { depths: [NormalDepths::All, NormalDepths::Opaque][i % 2] },
                WEIGHT,
            );
        }
        if matches!(kind, Kind::Entropy | Kind::All) {
            shot.terms.add(Term::Entropy, WEIGHT);
        }
        Shot { index: i, ..shot }
    });
    let shots = shots.collect();
    (gaussians, shots)
}

fn stepped_by<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (shots, kind): (&[Shot], Kind),
) -> Snapshot<Gaussians> {
    let mut model = device.upload(gaussians).unwrap();
    if kind == Kind::Filters {
        device.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
    }
    step_over(device, &mut model, shots, &AdamStep::new(1, RATES));
    device.snapshot(&mut model).unwrap()
}

fn batches_of_every_size_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, kind) in (300..).zip(KINDS) {
        for count in BATCHES {
            let (gaussians, shots) = batch(kind, count, seed);
            let [found, expected] =
                beside_oracle!(device, stepped_by(device, &gaussians, (&shots, kind)));
            let what = format!("{count} views, {kind:?}");
            assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, &what));
            // Density control learns of each view's own gradients.
            let sums = [&found, &expected].map(|snapshot| &snapshot.gradient_norm_sums);
            assert_sums_agree(sums[0], sums[1], 1e-3, &what);
        }
    }
}

fn sampled_terms_of_several_views_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = crowd(300, 91);
    for count in BATCHES {
        // Each view has samples of its own.
        let [found, expected] = beside_oracle!(device, {
            let mut model = device.upload(&gaussians).unwrap();
            let near = device.neighbours(&model, 16).unwrap();
            let mut gradients = Default::default();
            for (iteration, side) in (7_001..).zip(0..count) {
                // Views of other sizes, with the same visible set in every precision.
                let side = u32::try_from(side).unwrap();
                let view = resized(&straight(), [48 + side, 40 + side]);
                let rule = SurfaceRule { iteration, ..SurfaceRule::UNEQUAL };
                let seen = (&view, masked(&view));
                add_rule(device, &mut model, seen, (Some(&near), &rule), &mut gradients).unwrap();
            }
            device.step(&mut model, gradients, &AdamStep::new(1, AT_REST)).unwrap();
            device.snapshot(&mut model).unwrap()
        });
        let what = format!("{count} views");
        assert_columns_agree(&gradients(&found), &gradients(&expected), CANCELLED, &what);
    }
}

fn regularisers_and_noise_come_once_a_step<B: TrainDevice>(device: &mut B) {
    let (gaussians, shots) = batch(Kind::Colours, 5, 320);
    for (reach, moved) in
        [(Reach::All, MotionReach::All), (Reach::Seen, MotionReach::Unseen { longest: 1.0 })]
    {
        let noise = Noise { rate: 50.0, key: 77, moved };
        let step = AdamStep {
            regularisers: Regularisers { opacity: 0.3, scale: 0.7, reach },
            noise: Some(noise),
            sh_decay: 0.25,
            scale_limit: 0.02,
            ..AdamStep::new(1, AT_REST)
        };
        let [(_, found), (_, expected)] =
            beside_oracle!(device, stepped(device, &gaussians, &shots, &step));
        assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "with regularisers"));
        let pairs = found.parameters.means.iter().zip(&expected.parameters.means);
        for ((found, expected), start) in pairs.zip(&gaussians.means) {
            let way = (expected - start).abs();
            assert!((found - expected).abs() <= 1e-3 * way + 1e-6, "{found} for {expected}");
        }
        // Three quarters of a number are rounded once.
        assert_eq!(found.parameters.sh_rest, expected.parameters.sh_rest, "decayed harmonics");
        let pairs = found.parameters.log_scales.iter().zip(&expected.parameters.log_scales);
        let mut limited = 0;
        for ((found, expected), start) in pairs.zip(&gaussians.log_scales) {
            limited += usize::from(expected < start);
            // Two logarithms in single precision.
            assert!((found - expected).abs() <= 1e-5, "{found} for {expected}");
        }
        assert!(limited > 50, "only {limited} scales are limited");
    }
}

/// With steps of other decays among them, before which all colours have to catch up, and more steps
/// than the tables reach back.
fn colours_that_no_view_of_a_batch_sees_move_on_as_the_oracles<B: TrainDevice>(device: &mut B) {
    let few = [2, 2, 2, 1, 1, 3, 3, 3, 8].repeat(2);
    let many = vec![2; 140];
    let gaussians = seen_and_behind();
    let mut shot = shot(&gaussians, &straight(), settings(3, 8), (9, Counted::Some));
    shot.settings.pass = Pass::Train;
    let start = in_training(gaussians, 82);
    for (what, sizes) in [("batches of other sizes", few), ("many batches", many)] {
        // All views look ahead.
        let [found, expected] = beside_oracle!(device, {
            let mut model = device.restore(start.clone()).unwrap();
            let mut images = 0;
            for &size in &sizes {
                images += size;
                let moments = Moments::of_batch(images, size);
                let step = AdamStep { moments, ..AdamStep::new(images, COLOUR_RATES) };
                step_over(device, &mut model, &vec![shot.clone(); size as usize], &step);
            }
            device.snapshot(&mut model).unwrap()
        });
        assert_alike(&found, &expected, what);
    }
}

#[cfg(kernels)]
mod on_the_device {
    use splat::backend::Render;
    use splat::backend::cuda::Model;

    use super::*;

    type Sums = <Cuda as Render<Gaussians>>::Gradients;

    fn add(device: &mut Cuda, model: &mut Model, shots: &[Shot]) -> Sums {
        let mut gradients = Sums::default();
        for shot in shots {
            add_shot(device, model, shot, &mut gradients);
        }
        gradients
    }

    /// First moments have 16 bits in the geometry and 8 in the colours, and are rounded by chance.
    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_compact_model_takes_the_gradients_of_one_in_full_precision() {
        for (seed, kind) in (340..).zip(KINDS) {
            for count in BATCHES {
                let (gaussians, shots) = batch(kind, count, seed);
                // Values that both storages hold exactly.
                let mut device = compact();
                let mut model = device.upload(&gaussians).unwrap();
                let gaussians = device.download(&mut model).unwrap();
                let [found, expected] = [compact(), full()]
                    .map(|mut device| stepped_by(&mut device, &gaussians, (&shots, kind)))
                    .map(|after| gradients(&after));
                for ((name, _, found), (_, _, expected)) in found.iter().zip(&expected) {
                    let what = format!("{count} views, {kind:?}, {name}");
                    if !name.starts_with("sh_") {
                        let floor = 0.1 * mean_size(expected);
                        assert_near(found, expected, |d| 1e-2 * d.abs().max(floor), what);
                    } else {
                        // Codes are an eighth of their value apart.
                        let error = relative_error(found, expected);
                        assert!(error < 0.1, "{what}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn nine_views_are_more_than_a_step_takes() {
        let (gaussians, mut shots) = batch(Kind::Colours, 8, 360);
        let mut device = cuda::open();
        let mut model = device.upload(&gaussians).unwrap();
        let mut sums = add(&mut device, &mut model, &shots);
        let Shot { view, photo, settings, terms, .. } = shots.remove(0);
        let target = device.target(8, &photo).unwrap();
        let added = device.add_view(&mut model, (&view, &settings), (&target, &terms), &mut sums);
        assert!(matches!(added, Err(DeviceError::TooManyViews { most: 8 })));
        // The eight that there are still make a step.
        device.step(&mut model, sums, &AdamStep::new(1, RATES)).unwrap();
    }

    fn held(device: &mut Cuda, label: &str) -> u64 {
        let memory = device.memory(Peaks::Keep).unwrap();
        let blocks = memory.entries.iter().filter(|entry| entry.kind == MemoryKind::Block);
        blocks.filter(|entry| entry.label == label).map(|entry| entry.bytes).sum::<Bytes>().0
    }

    /// 4 bytes a Gaussian and 48 a splat that there is room for.
    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_view_of_a_batch_keeps_its_gradients_alone() {
        let (gaussians, shots) = batch(Kind::Colours, 5, 370);
        let mut device = cuda::open();
        let mut model = device.upload(&gaussians).unwrap();
        let one = add(&mut device, &mut model, &shots[..1]);
        let each = ["splat of each Gaussian", "gradients of splats"].map(|label| {
            let bytes = held(&mut device, label);
            assert!(bytes > 0, "{label}");
            bytes
        });
        assert_eq!(held(&mut device, "splats"), 0);
        drop(one);
        let all = add(&mut device, &mut model, &shots);
        for (label, bytes) in ["splat of each Gaussian", "gradients of splats"].iter().zip(each) {
            assert_eq!(held(&mut device, label), 5 * bytes, "{label}");
        }
        for label in ["splats", "image", "gradient of the image", "instances"] {
            assert_eq!(held(&mut device, label), 0, "{label}");
        }
        device.step(&mut model, all, &AdamStep::new(1, RATES)).unwrap();
        assert_eq!(held(&mut device, "gradients of splats"), 0);
    }
}

// Images of unusual sizes, on every device against the definition in double precision.

each_backend!(
    images_one_pixel_wide_or_high_are_drawn_and_compared,
    images_8192_pixels_wide_or_high_are_drawn_and_compared,
    images_of_more_than_65535_tiles_are_drawn,
);

/// Gaussians on the axis of a camera with this image, in front of it, of a size in pixels that no
/// resolution changes by much.
fn scattered(count: usize, seed: u64, view: &View) -> Gaussians {
    let mut gaussians = tame_gaussians(count, seed, 3);
    let mut draws = Draws::new(seed + 1000);
    let camera = &view.camera;
    let longest = f64::from(camera.width.max(camera.height));
    for i in 0..count {
        let depth = draws.uniform(1.0, 3.0);
        let place = [0, 1].map(|axis| {
            let side = f64::from([camera.width, camera.height][axis]);
            let pixel = draws.uniform(-0.05, 1.05) * side;
            (pixel - camera.centre_px[axis]) / camera.focal_px[axis] * depth
        });
        let mean = [place[0], place[1], depth].map(f64::to_f32);
        gaussians.means[i * 3..][..3].copy_from_slice(&mean);
        for axis in 0..3 {
            // 8,192 px away a centre is right to half a thousandth of a pixel. That it does not
            // show, no splat is narrower than a few hundredths of the way.
            let radius_px = draws.uniform(0.004, 0.02) * longest + 0.5;
            let scale = radius_px * depth / camera.focal_px[0];
            gaussians.log_scales[i * 3 + axis] = scale.ln().to_f32();
        }
    }
    gaussians
}

/// A camera that looks along the z axis at an image of square pixels.
fn upright(size: [u32; 2]) -> View {
    let mut view = resized(&straight(), size);
    let focal_px = f64::from(size[0].max(size[1])) * 1.1;
    view.camera.focal_px = [focal_px, focal_px * 1.01];
    view
}

fn images_one_pixel_wide_or_high_are_drawn_and_compared<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [1, 2], [2, 1], [1, 129], [131, 1], [1, 17], [15, 1]]) {
        let view = upright(size);
        assert_agrees(device, &scattered(6, seed, &view), &view, &format!("{size:?} px"));
    }
}

fn images_8192_pixels_wide_or_high_are_drawn_and_compared<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[8192, 1], [1, 8192], [8192, 19], [13, 8192]]) {
        let view = upright(size);
        assert_agrees(device, &scattered(17, seed, &view), &view, &format!("{size:?} px"));
    }
}

/// 512 by 129 tiles.
const MANY_TILES: [u32; 2] = [8192, 2064];

fn images_of_more_than_65535_tiles_are_drawn<B: TrainDevice>(device: &mut B) {
    let view = upright(MANY_TILES);
    let settings = settings(3, 12);
    let mut gaussians = scattered(25, 13, &view);
    // One sits in the last tile.
    let camera = &view.camera;
    for (axis, side) in MANY_TILES.into_iter().enumerate() {
        let pixel = f64::from(side) - 7.3;
        let slope = (pixel - camera.centre_px[axis]) / camera.focal_px[axis];
        gaussians.means[axis] = slope.to_f32() * gaussians.means[2];
    }
    let image = draw(device, &gaussians, &view, &settings);
    let splats = splats(&gaussians, &view, &settings);
    let [width, height] = MANY_TILES;
    let corners = [0, width - 1].into_iter().flat_map(|x| [[x, 0], [x, height - 1]]);
    let mut draws = Draws::new(14);
    let spread = (0..4000).map(|_| {
        let [x, y] = MANY_TILES.map(|side| draws.uniform(0.0, f64::from(side)).floor_i32());
        [u32::try_from(x).unwrap(), u32::try_from(y).unwrap()]
    });
    let blended = assert_pixels(&image, &splats, corners.chain(spread), &settings);
    assert!(blended > 500, "only {blended} of the pixels show a Gaussian");
    assert!(counts(&image).last().is_some_and(|&count| count > 0), "the last tile is empty");
    assert_background_elsewhere(&image, &splats, &view, &settings);
}

/// Compares these pixels with the definition; how many of them show a Gaussian.
fn assert_pixels(
    image: &Rendered,
    splats: &[Splat],
    places: impl Iterator<Item = [u32; 2]>,
    settings: &DrawSettings,
) -> usize {
    let mut blended = 0;
    for [x, y] in places {
        let expected = composite_pixel(splats, [x, y], settings.background);
        if expected.borderline {
            continue;
        }
        let at = y as usize * image.width as usize + x as usize;
        assert_eq!(counts(image)[at], expected.blended, "{x} {y}");
        for c in 0..3 {
            let error = (f64::from(image.rgb[at * 3 + c]) - expected.rgb[c]).abs();
            assert!(error < 1e-4, "{x} {y}: {error} apart");
        }
        blended += usize::from(expected.blended > 0);
    }
    blended
}

/// Asserts that no pixel outside of all bounds differs from the background.
fn assert_background_elsewhere(
    image: &Rendered,
    splats: &[Splat],
    view: &View,
    settings: &DrawSettings,
) {
    let size = [view.camera.width, view.camera.height];
    let mut inside = vec![false; counts(image).len()];
    for splat in splats {
        let Some(bounds) = bounds(&splat.ellipse, splat.opacity, size) else { continue };
        for y in bounds.pixels.y0..bounds.pixels.y1 {
            let row = y as usize * image.width as usize;
            inside[row + bounds.pixels.x0 as usize..row + bounds.pixels.x1 as usize].fill(true);
        }
    }
    let outside = inside.iter().filter(|&&inside| !inside).count();
    assert!(outside * 10 > inside.len(), "the Gaussians leave no background");
    for (i, pixel) in image.rgb.chunks(3).enumerate().filter(|&(i, _)| !inside[i]) {
        assert_eq!((pixel, counts(image)[i]), (&settings.background[..], 0), "pixel {i}");
    }
}

// Images that only a GPU draws in a bearable time.

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_step_over_an_image_of_more_than_65535_tiles_agrees_with_the_oracle() {
    let view = upright(MANY_TILES);
    let gaussians = scattered(25, 13, &view);
    let shot = shot(&gaussians, &view, settings(3, 12), (15, Counted::Clear));
    assert_first_steps_agree(&mut cuda::open(), &gaussians, &shot, "66,048 tiles");
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device with 24 GiB of memory"]
fn more_than_four_gibibytes_of_tile_instances_are_blended_in_their_order() {
    // 2,100 Gaussians in each of 262,144 tiles: 550 million instances, more than 2^31 bytes
    // however few bytes an instance takes.
    const COUNT: u32 = 2100;
    const OPACITY: f64 = 0.0041;
    let (red, blue) = ([0.9, 0.2, 0.1], [0.1, 0.3, 0.8]);
    let view = upright([8192, 8192]);
    let parts: Vec<Gaussians> = (0..COUNT)
        .map(|i| {
            // Every other one is far away, so that the order of the indices is not the order of
            // the depths. A million pixels wide: over the image the exponent falls by 2e-5.
            let (near, color) = if i % 2 == 0 { (1.0, red) } else { (4.0, blue) };
            let depth = near + 1e-3 * i as f32;
            gaussian([0.0, 0.0, depth], 111.0 * depth, OPACITY.to_f32(), color)
        })
        .collect();
    let gaussians = together(&parts);
    let settings = settings(3, 16);
    let image = draw(&mut cuda::open(), &gaussians, &view, &settings);
    assert!(counts(&image).iter().all(|&count| count == COUNT));
    // (1 - α)^1050 of the far half, of the near half, of the background.
    let half = (1.0 - OPACITY).powi(1050);
    let expected = [0, 1, 2].map(|c| {
        (1.0 - half) * f64::from(red[c])
            + half * (1.0 - half) * f64::from(blue[c])
            + half * half * f64::from(settings.background[c])
    });
    for (i, pixel) in image.rgb.chunks(3).enumerate() {
        for c in 0..3 {
            // 2,100 factors rounded in single precision, and the exponent of up to 2e-5.
            let error = (f64::from(pixel[c]) - expected[c]).abs();
            assert!(error < 5e-4, "pixel {i}: {pixel:?} instead of {expected:?}");
        }
    }
}

// Photographs made smaller for views that are drawn smaller, on every device: the same bytes, and the same
// step as with a photograph of the view's size.

each_backend!(
    a_smaller_photograph_has_these_bytes,
    a_step_is_that_over_a_photograph_of_the_views_size,
    smaller_views_count_as_much_in_disagreement,
    a_photograph_of_another_size_is_refused,
);

/// Returns the smaller photograph by definition, pixel by pixel.
fn shrunk(image: &Image, divisor: Divisor) -> Image {
    let (side, [width, height]) = (divisor.get(), divisor.px([image.width, image.height]));
    let mut small =
        Image { width, height, rgb: Vec::new(), mask: None, depth: None, normals: None };
    let (mut mask, mut values) = (Vec::new(), Vec::new());
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let square: Vec<usize> = (0..side * side)
            .map(|i| ((y * side + i / side) * image.width + x * side + i % side) as usize)
            .collect();
        let mean = |value: &dyn Fn(usize) -> f64| {
            let sum: f64 = square.iter().map(|&pixel| value(pixel)).sum();
            (sum / f64::from(side * side) + 0.5).floor_i32()
        };
        let counts = image.mask.as_ref().is_none_or(|mask| square.iter().all(|&at| mask[at] > 0));
        for channel in 0..3 {
            let mean = mean(&|pixel| f64::from(image.rgb[pixel * 3 + channel]));
            small.rgb.push(if counts { u8::try_from(mean).unwrap() } else { 0 });
        }
        mask.push(if counts { 255 } else { 0 });
        if let Some(map) = &image.depth {
            values.push(u16::try_from(mean(&|pixel| f64::from(map.values[pixel]))).unwrap());
        }
    }
    small.mask = image.mask.as_ref().map(|_| mask);
    small.depth = image.depth.as_ref().map(|map| InverseDepthMap { values, ..*map });
    small
}

/// Returns noise of this size. With a mask, one pixel in 31 does not count.
fn photograph([width, height]: [u32; 2], has_mask: bool) -> Arc<Image> {
    let pixels = width * height;
    let mask = has_mask.then(|| (0..pixels).map(|i| if i % 31 == 7 { 0 } else { 255 }).collect());
    let mut image = Image::clone(&photo(width, height, mask));
    if let Some(mask) = &image.mask {
        for (pixel, &counts) in image.rgb.chunks_exact_mut(3).zip(mask) {
            pixel.iter_mut().for_each(|value| *value = if counts > 0 { *value } else { 0 });
        }
    }
    let values = (0..pixels).map(|i| u16::try_from(i * 7919 % 65_536).unwrap()).collect();
    image.depth = Some(InverseDepthMap { values, scale: 2.0, offset: 0.125 });
    Arc::new(image)
}

fn a_smaller_photograph_has_these_bytes<B: TrainDevice>(device: &mut B) {
    let nothing = Gaussians::zeros(0, 0);
    let model = device.upload(&nothing).unwrap();
    for (divisor, size) in [
        (Divisor::Two, [90, 66]),
        (Divisor::Two, [91, 67]),
        (Divisor::Four, [183, 134]),
        (Divisor::Four, [64, 64]),
    ] {
        for has_mask in [false, true] {
            let image = photograph(size, has_mask);
            let expected = shrunk(&image, divisor);
            let view = resized(&straight(), divisor.px(size));
            let mut found = Vec::new();
            // On black and white a pixel shows its value and what is left of it, where it counts.
            for background in [[0.0; 3], [1.0; 3]] {
                let inverse_depth = true;
                let settings =
                    DrawSettings { background, inverse_depth, divisor, ..settings(0, 1) };
                let target = device.target(size[0] as usize, &image).unwrap();
                let frame = device.draw(&model, &view, &settings).unwrap();
                let terms = Terms::photometric(0.0).with(Term::InverseDepth, 1.0);
                let (_, values) = device.compare(&model, frame, &target, &terms).unwrap();
                let values = values.read().unwrap();
                found.push((values.get("l1").unwrap(), values.get("depth_l1").unwrap()));
            }
            let pixels = expected.rgb.len() / 3;
            let counts = |i: usize| expected.mask.as_ref().is_none_or(|mask| mask[i] > 0);
            let map = expected.depth.as_ref().unwrap();
            let mut sums = [0.0; 3];
            for pixel in (0..pixels).filter(|&pixel| counts(pixel)) {
                for &value in &expected.rgb[pixel * 3..][..3] {
                    sums[0] += f64::from(value) / 255.0;
                    sums[1] += 1.0 - f64::from(value) / 255.0;
                }
                sums[2] += f64::from(map.values[pixel]) / 65_536.0 * 2.0 + 0.125;
            }
            let [black, white, depth] =
                [sums[0] / 3.0, sums[1] / 3.0, sums[2]].map(|sum| sum / pixels as f64);
            // One byte that is one off changes the mean by 8e-7 and more; sums of single precision leave
            // a tenth of that.
            for (found, expected) in [(found[0], black), (found[1], white)] {
                assert!((found.0 - expected).abs() < 3e-7, "{size:?}: {} {expected}", found.0);
                assert!((found.1 - depth).abs() < 6e-7, "{size:?}: {} {depth}", found.1);
            }
        }
    }
}

/// Returns a photograph that scales down to this one, with extra columns and rows that fill no square.
fn enlarged(image: &Image, divisor: Divisor) -> Arc<Image> {
    let side = divisor.get();
    let [width, height] = [image.width, image.height].map(|length| length * side + side - 1);
    let from = |at: u32| {
        let [x, y] = [at % width / side, at / width / side];
        (y.min(image.height - 1) * image.width + x.min(image.width - 1)) as usize
    };
    let each = || (0..width * height).map(from);
    Arc::new(Image {
        width,
        height,
        rgb: each().flat_map(|pixel| [0, 1, 2].map(|c| image.rgb[pixel * 3 + c])).collect(),
        mask: image.mask.as_ref().map(|mask| each().map(|pixel| mask[pixel]).collect()),
        depth: None,
        normals: None,
    })
}

fn divided(shot: &Shot, divisor: Divisor) -> Shot {
    let settings = DrawSettings { divisor, ..shot.settings };
    Shot { photo: enlarged(&shot.photo, divisor), settings, ..shot.clone() }
}

fn a_step_is_that_over_a_photograph_of_the_views_size<B: TrainDevice>(device: &mut B) {
    for (seed, divisor) in [(5, Divisor::Two), (6, Divisor::Four)] {
        for counted in [Counted::Clear, Counted::Some] {
            let gaussians = tame_gaussians(60, seed, 3);
            let small = shot(&gaussians, &view(), settings(3, seed), (seed, counted));
            let found = FirstStep::taken_by(device, &gaussians, &divided(&small, divisor));
            let expected = FirstStep::of_the_oracle(&gaussians, &small);
            let what = format!("{divisor:?}, {counted:?}");
            assert_same_steps(&found, &expected, (small.size(), &what));
            let norms = [&found, &expected].map(|step| &step.snapshot.gradient_norm_sums);
            assert_near(norms[0], norms[1], |norm| 1e-3 * norm.max(1e-4), &what);
        }
    }
}

fn smaller_views_count_as_much_in_disagreement<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 7, 3);
    let statistics = Statistics::Disagreement;
    let settings = DrawSettings { statistics, ..settings(3, 7) };
    let small = shot(&gaussians, &view(), settings, (7, Counted::Clear));
    let sums = |step: FirstStep| step.snapshot.gradient_norm_sums;
    let alone = sums(FirstStep::of_the_oracle(&gaussians, &small));
    for divisor in [Divisor::Two, Divisor::Four] {
        let found = sums(FirstStep::taken_by(device, &gaussians, &divided(&small, divisor)));
        // Each pixel stands for a square of them.
        let times = (divisor.get() * divisor.get()) as f32;
        let expected: Vec<f32> = alone.iter().map(|sum| sum * times).collect();
        let largest = f64::from(expected.iter().fold(0.0_f32, |most, &sum| most.max(sum)));
        assert!(largest > 0.0);
        assert_near(&found, &expected, |sum| 5e-3 * sum + 1e-5 * largest, "sum");
    }
}

fn a_photograph_of_another_size_is_refused<B: TrainDevice>(device: &mut B) {
    let model = device.upload(&Gaussians::zeros(0, 0)).unwrap();
    let image = photograph([64, 48], false);
    let target = device.target(0, &image).unwrap();
    let settings = DrawSettings { divisor: Divisor::Two, ..settings(0, 1) };
    let compare = |device: &mut B, view: &View| {
        let frame = device.draw(&model, view, &settings)?;
        device.compare(&model, frame, &target, &Terms::photometric(0.2)).map(drop)
    };
    compare(device, &resized(&straight(), [32, 24])).unwrap();
    match compare(device, &resized(&straight(), [64, 48])) {
        Err(DeviceError::TargetSize { target_px, view_px }) => {
            assert_eq!((target_px, view_px), ([32, 24], [64, 48]));
        }
        other => panic!("{other:?}"),
    }
}
