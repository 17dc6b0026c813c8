//! Views that a GPU draws in bands of rows of tiles, against the same views drawn at once.

use splat::backend::Work;
use splat::backend::cuda::Model;

use crate::prelude::*;

/// Drawn by the machinery of bands in a single one, in a few, and in one for each row of tiles.
const POLICIES: [BandPolicy; 4] = [
    BandPolicy::AtLeast(1),
    BandPolicy::AtLeast(2),
    BandPolicy::AtLeast(3),
    BandPolicy::AtLeast(u32::MAX),
];

/// Heights that are whole tiles and that are not, one row of tiles and many.
const SIZES: [[u32; 2]; 7] =
    [[203, 147], [37, 29], [64, 131], [48, 32], [131, 11], [1, 130], [16, 16]];

const PASSES: [Pass; 4] = [Pass::Eval, Pass::Picture, Pass::Train, Pass::Observe];

fn rows(size: [u32; 2]) -> u32 {
    size[1].div_ceil(16)
}

/// Gaussians of every kind, some of which cover every tile; more than a block of threads projects,
/// yet so few that hardly two are equally deep, which would come in any order.
fn gaussians(count: usize, seed: u64) -> Gaussians {
    let wide =
        [1.7, 2.3, 40.0].map(|depth| gaussian([0.1, 0.0, depth], 60.0, 0.3, [0.7, 0.2, 0.1]));
    let mut all = vec![tame_gaussians(count, seed, 3), random_gaussians(count / 2, seed + 1)];
    all.extend(wide);
    together(&all)
}

fn render(
    device: &mut Cuda,
    (model, view): (&Model, &View),
    settings: &DrawSettings,
    bands: BandPolicy,
) -> Result<DrawnBands, DeviceError> {
    device.set_bands(bands);
    let (image, bands, in_bands, work) = match settings.pass {
        Pass::Eval | Pass::Picture => {
            let frame = device.show(model, view, settings)?;
            (device.image(&frame)?, frame.bands(), frame.is_in_bands(), None)
        }
        Pass::Train | Pass::Observe => {
            let frame = device.draw(model, view, settings)?;
            let image = device.image(&frame)?;
            let work = device.profiler().unwrap().work(model, &frame)?;
            (image, frame.bands(), frame.is_in_bands(), work)
        }
    };
    Ok(DrawnBands { image, bands, in_bands, work })
}

struct DrawnBands {
    image: Rendered,
    bands: u32,
    in_bands: bool,
    work: Option<Work>,
}

/// The bits of a picture's values, its inverse depths behind its colours, and its counts.
fn bits(drawn: &DrawnBands) -> (Vec<u32>, Option<Vec<u32>>) {
    let image = drawn.image.clone();
    let values = image.rgb.into_iter().chain(image.inverse_depths.into_iter().flatten());
    (values.map(f32::to_bits).collect(), image.blended)
}

fn assert_same_pixels(device: &mut Cuda, gaussians: &Gaussians, view: &View) {
    let size = [view.camera.width, view.camera.height];
    let model = device.upload(gaussians).unwrap();
    for (pass, inverse_depth) in PASSES.into_iter().flat_map(|pass| [(pass, false), (pass, true)]) {
        let settings = DrawSettings { pass, inverse_depth, ..settings(3, 5) };
        let whole = render(device, (&model, view), &settings, BandPolicy::Never).unwrap();
        assert!(!whole.in_bands && whole.bands == 1);
        let expected = bits(&whole);
        drop(whole);
        for policy in POLICIES {
            let frame = render(device, (&model, view), &settings, policy).unwrap();
            let BandPolicy::AtLeast(wanted) = policy else { panic!("{policy:?}") };
            let bands = wanted.min(rows(size));
            assert!(frame.in_bands, "{policy:?}");
            assert!(frame.bands >= bands && frame.bands <= rows(size), "{}", frame.bands);
            assert!(bits(&frame) == expected, "{size:?} px, {pass:?}, {policy:?}");
            assert_eq!(frame.work, None);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn bands_have_the_pixels_of_the_view_at_once() {
    let device = &mut cuda::open();
    for (seed, size) in (1..).zip(SIZES) {
        for view in [resized(&straight(), size), resized(&view(), size)] {
            assert_same_pixels(device, &gaussians(600, seed), &view);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn bands_have_the_pixels_of_more_than_65535_tiles() {
    let mut view = resized(&straight(), [8192, 2064]);
    view.camera.focal_px = [9000.0, 9100.0];
    let mut draws = Draws::new(3);
    let scattered: Vec<Gaussians> = (0..60)
        .map(|i| {
            let depth = 1.0 + 0.03 * i as f32;
            let place = [draws.uniform(-0.45, 0.45), draws.uniform(-0.12, 0.12)];
            let [x, y] = place.map(|slope| slope.to_f32() * depth);
            let scale = draws.uniform(0.002, 0.05).to_f32() * depth;
            gaussian([x, y, depth], scale, 0.6, [0.2, 0.9, 0.4])
        })
        .collect();
    let device = &mut cuda::open();
    let model = device.upload(&together(&scattered)).unwrap();
    let settings = DrawSettings { pass: Pass::Picture, ..settings(3, 5) };
    let whole = render(device, (&model, &view), &settings, BandPolicy::Never).unwrap();
    let expected = bits(&whole);
    drop(whole);
    assert!(expected.1.as_ref().unwrap().iter().filter(|&&count| count > 0).count() > 100_000);
    for policy in [BandPolicy::AtLeast(3), BandPolicy::AtLeast(u32::MAX)] {
        let frame = render(device, (&model, &view), &settings, policy).unwrap();
        assert!(bits(&frame) == expected, "{policy:?}");
        assert!(policy != BandPolicy::AtLeast(u32::MAX) || frame.bands == 129);
    }
}

fn shot(view: &View) -> Shot {
    noisy_shot(0, view, settings(3, 5))
}

/// A [`shot`] with inverse depths that are compared, and all statistics.
fn deep_shot(view: &View) -> Shot {
    let plain = shot(view);
    let mut draws = Draws::new(71);
    let value = || u16::try_from(draws.uniform(0.0, 65_536.0).floor_i32()).unwrap();
    let values = std::iter::repeat_with(value).take(view.camera.pixels()).collect();
    let depth = Some(InverseDepthMap { values, scale: 3.0, offset: -0.2 });
    let settings =
        DrawSettings { inverse_depth: true, statistics: Statistics::Both, ..plain.settings };
    Shot { photo: Arc::new(Image { depth, ..Image::clone(&plain.photo) }), settings, ..plain }
}

fn first_step(
    device: &mut Cuda,
    gaussians: &Gaussians,
    shot: &Shot,
    bands: BandPolicy,
) -> FirstStep {
    device.set_bands(bands);
    FirstStep::taken_by(device, gaussians, shot)
}

/// Compares losses of equal images: sums in double precision, in any order.
fn assert_same_loss(found: &Loss, expected: &Loss) {
    let depths = |loss: &Loss| loss.depth_l1.unwrap_or(-1.0);
    let values = |loss: &Loss| [loss.l1, loss.ssim, depths(loss)];
    assert_near(&values(found), &values(expected), |_| 1e-12, "l1, ssim, depths");
}

/// Returns the relative errors between gradients and density statistics of two steps, by group.
fn apart(found: &FirstStep, expected: &FirstStep) -> Vec<(&'static str, f64)> {
    let (found, expected) = (&found.snapshot, &expected.snapshot);
    let error = |a: &[f32], b: &[f32]| relative_error(&wide(a), &wide(b));
    let statistics = error(&found.gradient_norm_sums, &expected.gradient_norm_sums);
    let absolute = error(&found.absolute_norm_sums, &expected.absolute_norm_sums);
    let mut all = gradient_errors(found, expected);
    all.extend([("density statistics", statistics), ("absolute gradients", absolute)]);
    all
}

/// Gradients are added up in any order: steps over the whole view say how much that changes.
fn assert_same_step(found: &FirstStep, wholes: &[FirstStep], (roundings, what): (f64, &str)) {
    let expected = &wholes[0];
    assert_same_loss(&found.loss, &expected.loss);
    assert_eq!(found.snapshot.views_seen, expected.snapshot.views_seen, "{what}");
    let noise: Vec<_> = wholes[1..].iter().map(|other| apart(other, expected)).collect();
    assert!(!noise.is_empty());
    for (group, (name, error)) in apart(found, expected).into_iter().enumerate() {
        let noise = noise.iter().map(|errors| errors[group].1).fold(0.0, f64::max);
        let is_near = error <= 4.0 * noise + roundings;
        assert!(is_near, "{what}: {name} {error:.1e} apart, not {noise:.1e}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn bands_give_the_loss_and_the_gradients_of_the_view_at_once() {
    let device = &mut cuda::open();
    for (seed, size) in (1..).zip(SIZES) {
        let gaussians = tame_gaussians(1500, seed, 3);
        let view = resized(&straight(), size);
        for shot in [shot(&view), deep_shot(&view)] {
            let wholes: Vec<FirstStep> =
                (0..4).map(|_| first_step(device, &gaussians, &shot, BandPolicy::Never)).collect();
            let moved = gradients(&wholes[0].snapshot)[0].2.iter().filter(|&&d| d != 0.0).count();
            assert!(moved > 10, "{size:?} px: only {moved} means have a gradient");
            assert_eq!(wholes[0].loss.depth_l1.is_some(), shot.settings.inverse_depth);
            for policy in POLICIES {
                let found = first_step(device, &gaussians, &shot, policy);
                let with_depths = shot.settings.inverse_depth;
                // Few terms often come in the same order each time, and a log-scale's nearly cancel: in
                // another order it is 3e-6 off, all of them being 5e-6 from double precision. Those of
                // maps whose pixels have nothing to do with each other cancel even more.
                let roundings = if with_depths { 2e-5 } else { 1e-5 };
                let what = format!("{size:?} px, {policy:?}, depths: {with_depths}");
                assert_same_step(&found, &wholes, (roundings, &what));
            }
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_view_that_sees_nothing_is_drawn_in_bands_too() {
    let device = &mut cuda::open();
    let behind = gaussian([0.0, 0.0, -3.0], 0.1, 0.5, [0.5; 3]);
    let mut model = device.upload(&together(&vec![behind; 40])).unwrap();
    let view = resized(&straight(), [37, 70]);
    let shot = shot(&view);
    for policy in POLICIES {
        let frame = render(device, (&model, &view), &shot.settings, policy).unwrap();
        assert!(frame.image.rgb.chunks(3).all(|pixel| pixel == shot.settings.background));
        drop(frame);
        step(device, &mut model, &shot, (1, AT_REST));
    }
    let after = device.download(&mut model).unwrap();
    assert!(after.means.chunks(3).all(|mean| mean == [0.0, 0.0, -3.0]));
}

/// A device that gives up nothing when memory is short. `None` without virtual memory, where blocks lie where there is
/// room for them, not one behind the other.
fn stubborn() -> Option<Cuda> {
    let options = CudaOptions { give_up: Vec::new(), ..CudaOptions::default() };
    Some(cuda::open_with(&options).unwrap()).filter(|device| device.heap().is_virtual())
}

/// Gaussians each of which is in every tile of a view; no pixel is finished before the last.
fn layers(count: u32) -> Gaussians {
    let parts: Vec<Gaussians> = (0..count)
        .map(|i| {
            let depth = 1.0 + 1e-3 * i as f32;
            let color = if i % 3 == 0 { [0.9, 0.2, 0.1] } else { [0.1, 0.3, 0.8] };
            gaussian([0.0, 0.0, depth], 40.0 * depth, 0.0045, color)
        })
        .collect();
    together(&parts)
}

/// Bytes of scratch that an iteration takes at once.
fn scratch(device: &mut Cuda, model: &mut Model, shot: &Shot) -> u64 {
    device.set_bands(BandPolicy::Never);
    // Whatever stays is there after the first step.
    step(device, model, shot, (1, AT_REST));
    device.trim_memory().unwrap();
    let held = device.heap().total();
    device.heap().reset_peak();
    step(device, model, shot, (2, AT_REST));
    device.trim_memory().unwrap();
    assert_eq!(device.heap().total(), held);
    device.heap().peak().0 - held.0
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_view_that_does_not_fit_is_drawn_in_bands_within_the_budget() {
    let Some(device) = &mut stubborn() else { return };
    let gaussians = layers(1900);
    let shot = shot(&resized(&straight(), [1000, 1023]));
    let whole = [(); 3].map(|()| first_step(device, &gaussians, &shot, BandPolicy::Never));
    let mut model = device.upload(&gaussians).unwrap();
    let scratch = scratch(device, &mut model, &shot);
    // 7.6 million instances: what does not depend on them is small.
    assert!(scratch > 150 << 20, "{scratch} bytes");
    let all = device.heap().budget();
    device.heap().set_budget(Bytes(device.heap().total().0 + scratch / 2));
    device.heap().reset_peak();

    device.set_bands(BandPolicy::WhenNeeded);
    let frame = device.draw(&model, &shot.view, &shot.settings).unwrap();
    assert!(frame.is_in_bands());
    drop(frame);
    // With a model less there is a little more room.
    drop(model);
    let found = first_step(device, &gaussians, &shot, BandPolicy::WhenNeeded);
    assert!(device.heap().peak() <= device.heap().budget());
    assert_same_step(&found, &whole, (1e-6, "half of the scratch"));

    let mut model = device.upload(&gaussians).unwrap();
    let refused = render(device, (&model, &shot.view), &shot.settings, BandPolicy::Never);
    let Err(DeviceError::Refused(refusal)) = refused else { panic!("not refused") };
    assert_eq!(refusal.label, "instances");

    // Where it fits, it is drawn at once, and nothing else has changed.
    device.heap().set_budget(all);
    let frame = render(device, (&model, &shot.view), &shot.settings, BandPolicy::WhenNeeded);
    assert!(!frame.unwrap().in_bands);
    step(device, &mut model, &shot, (1, AT_REST));
}

/// A little more than the exact need is enough, and less is drawn in bands.
#[test]
#[ignore = "needs a CUDA device"]
fn a_view_is_drawn_at_once_as_long_as_it_fits() {
    let Some(device) = &mut stubborn() else { return };
    let gaussians = layers(1500);
    let shot = shot(&resized(&straight(), [1000, 1023]));
    let mut model = device.upload(&gaussians).unwrap();
    let scratch = scratch(device, &mut model, &shot);
    let held = device.heap().total().0;
    let granule = device.heap().granule().0;
    let all = device.heap().budget();
    let mut drawn_in_bands = |spare: i64| {
        device.heap().set_budget(Bytes((held + scratch).saturating_add_signed(spare)));
        let frame = render(device, (&model, &shot.view), &shot.settings, BandPolicy::WhenNeeded);
        let is_in_bands = frame.unwrap().in_bands;
        device.heap().set_budget(all);
        device.trim_memory().unwrap();
        is_in_bands
    };
    let granule = i64::try_from(granule).unwrap();
    let share = |part: u64| i64::try_from(scratch / part).unwrap();
    // What is said to be needed allows for holes between blocks; the arena takes up to an eighth more
    // than it is asked for.
    assert!(!drawn_in_bands(share(8) + 2 * granule));
    assert!(drawn_in_bands(-share(4)));
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_row_of_tiles_that_does_not_fit_is_refused_and_nothing_breaks() {
    let Some(device) = &mut stubborn() else { return };
    let gaussians = layers(1900);
    let shot = shot(&resized(&straight(), [4001, 61]));
    let mut model = device.upload(&gaussians).unwrap();
    let scratch = scratch(device, &mut model, &shot);
    // A row takes a quarter.
    let all = device.heap().budget();
    device.heap().set_budget(Bytes(device.heap().total().0 + scratch / 5));
    let refused = render(device, (&model, &shot.view), &shot.settings, BandPolicy::WhenNeeded);
    let Err(DeviceError::Refused(refusal)) = refused else { panic!("not refused") };
    assert_eq!(refusal.label, "instances");
    device.heap().set_budget(all);
    step(device, &mut model, &shot, (3, AT_REST));
}

#[test]
#[ignore = "needs a CUDA device"]
fn gradients_that_no_step_takes_do_not_show_in_the_next() {
    let device = &mut cuda::open();
    let gaussians = tame_gaussians(800, 21, 3);
    let shot = shot(&resized(&straight(), [90, 75]));
    let wholes = [(); 3].map(|()| first_step(device, &gaussians, &shot, BandPolicy::Never));
    device.set_bands(BandPolicy::AtLeast(2));
    let mut model = device.upload(&gaussians).unwrap();
    // Density control does not count it either.
    let settings = DrawSettings { pass: Pass::Train, ..shot.settings };
    let unobserved = Shot { settings, ..shot.clone() };
    let lost = add_shot(device, &mut model, &unobserved, &mut Default::default());
    let loss = step(device, &mut model, &shot, (1, RATES));
    assert_same_loss(&lost.into(), &loss);
    let found = FirstStep { loss, snapshot: device.snapshot(&mut model).unwrap() };
    assert_same_step(&found, &wholes, (1e-6, "after a frame that came to nothing"));
}
