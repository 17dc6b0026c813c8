//! The tests' own primitive on every device: balls, which the product does not know, are drawn and
//! trained through the same traits as Gaussians, and as Gaussians that look the same.

use splat::backend::{Neighbours, Render, Store};
use splat::math::sh;

use crate::common::isotropic::{Balls, Seen, add_view, visible_balls};
use crate::prelude::*;
use crate::support;
#[cfg(kernels)]
use splat::backend::cuda::Model;

each_backend!(
    balls_look_like_gaussians_of_three_equal_scales,
    balls_move_as_gaussians_of_three_equal_scales,
    several_views_move_balls_as_the_oracle_does,
    balls_take_the_oracles_way_for_a_few_steps,
    a_short_training_comes_close_to_the_photographs,
    what_needs_a_density_in_space_is_refused,
    a_broken_ball_is_named,
);

/// Wider than a dilation of 0.3 px², so that opacities fall by much.
const COMPENSATED: Footprint = Footprint::Ellipse { variance_px2: 0.5, compensates: true };

fn drawing(footprint: Footprint) -> DrawSettings {
    DrawSettings { sh_degree: 0, footprint, ..COLOURS }
}

fn gaussians_of(balls: &Balls) -> Gaussians {
    let mut gaussians = Gaussians::zeros(0, balls.len());
    gaussians.means.clone_from(&balls.means);
    gaussians.log_scales = balls.log_scales.iter().flat_map(|&scale| [scale; 3]).collect();
    gaussians.quats = [1.0, 0.0, 0.0, 0.0].repeat(balls.len());
    gaussians.opacity_logits.clone_from(&balls.opacity_logits);
    gaussians.sh_dc = balls.colors.iter().map(|c| (c - 0.5) / sh::C0.to_f32()).collect();
    gaussians
}

/// Balls of which one is behind the camera and two have colours that are held at 0.
fn balls(count: usize, seed: u64) -> Balls {
    let mut balls = visible_balls(count, seed);
    balls.means[2] = -2.0;
    balls.colors[3 * 4] = -0.3;
    balls.colors[3 * 5 + 2] = -0.1;
    balls
}

/// Views from two places and of two sizes, with photographs of noise in which no pixel that counts is near a decision.
fn shots(balls: &Balls, drawing: DrawSettings) -> Vec<Shot> {
    let aside = moved(&resized(&straight(), [45, 23]), [0.2, -0.1, 0.3]);
    let gaussians = gaussians_of(balls);
    let numbered = |(index, view): (usize, &View)| {
        let shot = shot(&gaussians, view, drawing, (index as u64, Counted::Clear));
        Shot { index, ..shot }
    };
    [view(), aside].iter().enumerate().map(numbered).collect()
}

fn add<P: Primitive, B: Render<P>>(
    device: &mut B,
    model: &mut B::Model,
    shot: &Shot,
    gradients: &mut B::Gradients,
) -> f64 {
    let photo = Photo { image: &shot.photo, stay: Stay::Resident(shot.index) };
    let target = &device.upload_target(photo).unwrap();
    let (settings, request) = (&shot.settings.settings(), &shot.settings.train_request());
    let seen = Seen { view: &shot.view, settings, request, target, terms: &shot.terms };
    add_view::<P, B>(device, model, &seen, gradients).unwrap().total
}

fn first_step<P: Primitive, B: Render<P>>(device: &mut B, host: &P, shots: &[Shot]) -> Snapshot<P> {
    let mut model = device.upload(host).unwrap();
    let mut gradients = B::Gradients::default();
    for shot in shots {
        add::<P, B>(device, &mut model, shot, &mut gradients);
    }
    device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();
    device.snapshot(&mut model).unwrap()
}

fn image<P: Primitive, B: Render<P>>(
    device: &mut B,
    host: &P,
    view: &View,
    drawing: &DrawSettings,
) -> Vec<f32> {
    let model = device.upload(host).unwrap();
    let frame = device.render(&model, view, &drawing.settings(), RenderRequest::IMAGE).unwrap();
    device.image(&frame).unwrap().rgb
}

fn balls_look_like_gaussians_of_three_equal_scales<B>(device: &mut B)
where
    B: Render<Balls> + Render<Gaussians>,
{
    for (count, seed) in [(6, 1), (33, 2), (70, 3)] {
        let balls = balls(count, seed);
        let gaussians = gaussians_of(&balls);
        for filter in [Footprint::DILATED, COMPENSATED] {
            let drawing = drawing(filter);
            let found = image::<Balls, B>(device, &balls, &view(), &drawing);
            let alike = image::<Gaussians, B>(device, &gaussians, &view(), &drawing);
            let pixels = composite(&gaussians, &view(), &drawing);
            assert!(pixels.iter().any(|pixel| pixel.blended > 2));
            let values = found.chunks(3).zip(alike.chunks(3)).zip(&pixels);
            for (at, ((found, alike), pixel)) in values.enumerate() {
                // Where rounding may decide, a splat is left out: a quantum of 1/255 or two.
                let tolerance = if pixel.borderline { 2e-2 } else { 1e-4 };
                for k in 0..3 {
                    let what = format_args!("{count} balls, {filter:?}, pixel {at}");
                    let expected = [f64::from(alike[k]), pixel.rgb[k]];
                    assert_near(&[f64::from(found[k]); 2], &expected, |_| tolerance, what);
                }
            }
        }
    }
}

/// Converts Gaussians that look like balls to balls, by the chain rule.
fn as_balls(after: &Snapshot<Gaussians>) -> Snapshot<Balls> {
    let of = |part: &Gaussians| Balls {
        means: part.means.clone(),
        log_scales: part.log_scales.chunks(3).map(|d| d.iter().sum()).collect(),
        opacity_logits: part.opacity_logits.clone(),
        colors: part.sh_dc.iter().map(|d| d / sh::C0.to_f32()).collect(),
    };
    Snapshot {
        parameters: of(&after.parameters),
        first_moments: of(&after.first_moments),
        second_moments: of(&after.second_moments),
        gradient_norm_sums: after.gradient_norm_sums.clone(),
        views_seen: after.views_seen.clone(),
        absolute_norm_sums: Vec::new(),
        filter_3d: Vec::new(),
    }
}

fn assert_sums_agree(found: &Snapshot<Balls>, expected: &Snapshot<Balls>, what: &str) {
    let sums = (&found.gradient_norm_sums, &expected.gradient_norm_sums);
    support::assert_sums_agree(sums.0, sums.1, 2.0 * GRADIENT_TOLERANCE, what);
}

fn balls_move_as_gaussians_of_three_equal_scales<B>(device: &mut B)
where
    B: Render<Balls> + Render<Gaussians>,
{
    for (count, seed) in [(6, 1), (33, 2), (70, 3)] {
        let balls = balls(count, seed);
        for filter in [Footprint::DILATED, COMPENSATED] {
            let what = format!("{count} balls, {filter:?}");
            let shots = shots(&balls, drawing(filter));
            let found = first_step::<Balls, B>(device, &balls, &shots[..1]);
            let gaussians = first_step::<Gaussians, B>(device, &gaussians_of(&balls), &shots[..1]);
            let alike = as_balls(&gaussians);
            // Each is as near to the truth as the other.
            assert_gradients_agree(&found, &alike, (2.0 * GRADIENT_TOLERANCE, &what));
            assert_eq!(found.views_seen, alike.views_seen, "{what}");
            assert_sums_agree(&found, &alike, &what);
            // Places and opacities are of the same gradients: they moved by the same.
            let steps = [(&found.parameters.means, &gaussians.parameters.means, RATES.means), {
                let opacities = &gaussians.parameters.opacity_logits;
                (&found.parameters.opacity_logits, opacities, RATES.opacity_logits)
            }];
            for (found, alike, rate) in steps {
                // Of a gradient that cancels to rounding the sign is open.
                assert!(strays(found, alike, |_| 1e-2 * rate) * 20 <= found.len(), "{what}");
            }
            // Their first step is as long as the rate, but for what a float near 1 can tell.
            let moved = found.parameters.log_scales.iter().zip(&balls.log_scales);
            for ((after, before), d) in moved.zip(&found.first_moments.log_scales) {
                let expected =
                    if *d == 0.0 { 0.0 } else { -RATES.log_scales.to_f32().copysign(*d) };
                assert!((after - before - expected).abs() < 1e-6, "{what}: {before} to {after}");
            }
        }
    }
}

fn several_views_move_balls_as_the_oracle_does<B: Render<Balls>>(device: &mut B) {
    for filter in [Footprint::DILATED, COMPENSATED] {
        for statistics in [Statistics::Norms, Statistics::Both] {
            let balls = balls(40, 4);
            let drawing = DrawSettings { statistics, ..drawing(filter) };
            let shots = shots(&balls, drawing);
            let [found, expected] =
                beside_oracle!(device, first_step::<Balls, _>(device, &balls, &shots));
            let what = format!("{filter:?}, {statistics:?}");
            assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, &what));
            assert_eq!(found.views_seen, expected.views_seen, "{what}");
            assert_sums_agree(&found, &expected, &what);
            assert_eq!(found.absolute_norm_sums.len(), expected.absolute_norm_sums.len());
        }
    }
}

fn steps<B: Render<Balls>>(
    device: &mut B,
    balls: &Balls,
    (shots, rates): (&[Shot], Rates),
    count: u32,
) -> (Vec<f64>, Snapshot<Balls>) {
    let mut model = device.upload(balls).unwrap();
    let step = |(number, shot): (u32, &Shot)| {
        let mut gradients = B::Gradients::default();
        let loss = add::<Balls, B>(device, &mut model, shot, &mut gradients);
        device.step(&mut model, gradients, &AdamStep::new(number, rates)).unwrap();
        loss
    };
    let losses = (1..=count).zip(shots.iter().cycle()).map(step).collect();
    (losses, device.snapshot(&mut model).unwrap())
}

fn balls_take_the_oracles_way_for_a_few_steps<B: Render<Balls>>(device: &mut B) {
    let balls = balls(40, 5);
    let shots = shots(&balls, drawing(Footprint::DILATED));
    let [(found_losses, found), (losses, expected)] =
        beside_oracle!(device, steps(device, &balls, (&shots, RATES), 5));
    // As of Gaussians: after the first step a pixel in a hundred may part by a quantum of 1/255.
    assert_near(&found_losses, &losses, |_| 4e-5, "loss");
    let groups = paired(&found.parameters, &expected.parameters);
    for ((found, expected), column) in groups.zip(Balls::SCHEMA.columns) {
        let rate = RATES.of(column.rate);
        // Adam moves by the sign of a gradient however small: such elements part, and are few.
        let strays = strays(found.values, expected.values, |_| 0.05 * rate);
        assert!(strays * 20 <= found.values.len(), "{}: {strays}", found.name);
        assert_near(found.values, expected.values, |_| 12.5 * rate, found.name);
    }
}

fn photograph<B: Render<Balls>>(device: &mut B, balls: &Balls, shot: &Shot) -> Arc<Image> {
    let values = image::<Balls, B>(device, balls, &shot.view, &shot.settings);
    let byte = |value: &f32| u8::try_from((value.clamp(0.0, 1.0) * 255.0 + 0.5).floor_i32());
    let rgb = values.iter().map(|value| byte(value).unwrap()).collect();
    support::image(shot.size(), rgb)
}

fn a_short_training_comes_close_to_the_photographs<B: Render<Balls>>(device: &mut B) {
    let shown = visible_balls(6, 21);
    let mut shots = shots(&shown, drawing(Footprint::DILATED));
    for shot in &mut shots {
        shot.photo = photograph(device, &shown, shot);
    }
    let rates = Rates { means: 4e-3, log_scales: 2e-2, opacity_logits: 4e-2, sh_dc: 2e-2, ..RATES };
    // Balls of other places, sizes and colours; one view a step, in turn.
    let (losses, after) = steps(device, &visible_balls(8, 22), (&shots, rates), 300);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..2]), mean(&losses[298..]));
    assert!(last < first / 5.0, "from {first} to {last}");
    assert!(after.parameters.colors.iter().all(|color| color.is_finite()));
}

fn assert_unsupported<T>(result: Result<T, DeviceError>, words: &str) {
    let Err(error) = result else { panic!("{words} of balls are not refused") };
    assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
    assert_eq!(error.to_string(), format!("balls have no {words} on this device"));
}

fn what_needs_a_density_in_space_is_refused<B: Render<Balls>>(device: &mut B) {
    const SURFACES: &str = "surface maps or terms at samples";
    let host = visible_balls(5, 4);
    let shots = shots(&host, drawing(Footprint::DILATED));
    let (view, settings) = (&shots[0].view, &shots[0].settings.settings());
    let mut model = device.upload(&host).unwrap();
    assert_unsupported(device.render(&model, view, settings, RenderRequest::SURFACE), SURFACES);
    let maps =
        TrainRequest { inputs: Inputs { maps: true, ..Inputs::NONE }, ..TrainRequest::default() };
    assert_unsupported(device.render_train(&model, view, settings, &maps), SURFACES);

    let near = device.neighbours(&model, 3).unwrap();
    let frame = device.render_train(&model, view, settings, &TrainRequest::default()).unwrap();
    let terms = Terms::photometric(0.2).with(Term::Entropy, 0.1);
    let image = &photo(view.camera.width, view.camera.height, None);
    let target = &device.upload_target(Photo { image, stay: Stay::Transient }).unwrap();
    let objective = Objective { target, terms: &terms, near: Some(&near), other: None };
    assert_unsupported(device.objective(&model, frame, &objective), SURFACES);

    let plain = AdamStep::new(1, RATES);
    let by_opacity = Regularisers { opacity: 0.01, ..Default::default() };
    let by_scale = Regularisers { scale: 0.01, ..Default::default() };
    for (step, words) in [
        (AdamStep { regularisers: by_opacity, ..plain }, "weights on opacity and scale"),
        (AdamStep { regularisers: by_scale, ..plain }, "weights on opacity and scale"),
        (AdamStep { scale_limit: 0.1, ..plain }, "weights on opacity and scale"),
        (
            AdamStep { noise: Some(Noise { rate: 0.1, key: 1, moved: MotionReach::All }), ..plain },
            "random motion",
        ),
    ] {
        let mut gradients = B::Gradients::default();
        add::<Balls, B>(device, &mut model, &shots[0], &mut gradients);
        assert_unsupported(device.step(&mut model, gradients, &step), words);
    }
    assert_eq!(device.download(&mut model).unwrap(), host, "nothing has moved");

    let filtered = Snapshot { filter_3d: vec![0.1; 5], ..in_training(5, 8) };
    assert_unsupported(device.restore(filtered), "3D filter");
}

fn a_broken_ball_is_named<B: Render<Balls>>(device: &mut B) {
    let whole = visible_balls(40, 9);
    let shots = shots(&whole, drawing(Footprint::DILATED));
    for (words, break_it) in [
        ("log-scale", (|balls: &mut Balls| balls.log_scales[37] = f32::NAN) as fn(&mut Balls)),
        ("colour", |balls| balls.colors[3 * 37 + 1] = f32::NAN),
    ] {
        let mut broken = whole.clone();
        break_it(&mut broken);
        let mut model = device.upload(&broken).unwrap();
        let mut gradients = B::Gradients::default();
        add::<Balls, B>(device, &mut model, &shots[0], &mut gradients);
        let stepped = device.step(&mut model, gradients, &AdamStep::new(1, RATES));
        let error = stepped.and_then(|()| device.snapshot(&mut model).map(drop)).unwrap_err();
        assert!(
            matches!(error, DeviceError::NotFinite { index: 37, group, .. } if group == words),
            "{words}: {error}"
        );
        assert!(error.to_string().starts_with(&format!("ball 37: its {words}, or")), "{error}");
    }
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn compact_storage_of_balls_is_refused() {
    let options = CudaOptions { storage: Storage::Compact, ..CudaOptions::default() };
    let mut device = cuda::open_with(&options).unwrap();
    let host = visible_balls(40, 9);
    assert_unsupported(device.upload(&host), "compact storage");
    let mut device = cuda::open();
    let mut model = device.upload(&host).unwrap();
    assert_unsupported(device.compact(&mut model), "compact storage");
    assert_eq!(device.download(&mut model).unwrap(), host);
}

// Rows of the tests' own primitive on every device: what is put there comes back, and is found again wherever it went.

each_backend!(balls_come_back_as_they_were_put_there, balls_are_reordered_and_have_neighbours);

/// Sizes around whole blocks of 32 lanes, an odd one, and one of several chunks.
const SIZES: [usize; 7] = [0, 1, 31, 32, 33, 1021, 70_001];

pub(crate) fn in_training(count: usize, seed: u64) -> Snapshot<Balls> {
    let mut draws = Draws::new(seed);
    let mut noise = || draws.uniform(-1.0, 1.0).to_f32();
    let mut part = || {
        let mut part = Balls::zeros(0, count);
        part.groups_mut().into_iter().flatten().for_each(|value| *value = noise());
        part
    };
    let [parameters, first_moments, second_moments] = [part(), part(), part()];
    Snapshot {
        gradient_norm_sums: parameters.opacity_logits.clone(),
        views_seen: (1_u32..).step_by(3).take(count).collect(),
        absolute_norm_sums: first_moments.opacity_logits.clone(),
        parameters,
        first_moments,
        second_moments,
        filter_3d: Vec::new(),
    }
}

fn balls_come_back_as_they_were_put_there<B: Store<Balls>>(device: &mut B) {
    for count in SIZES {
        let before = in_training(count, 6);
        let mut model = device.restore(before.clone()).unwrap();
        assert_eq!(device.len(&model), count);
        assert_eq!(device.snapshot(&mut model).unwrap(), before, "{count} balls");
        let uploaded = &mut device.upload(&before.parameters).unwrap();
        assert_eq!(device.download(uploaded).unwrap(), before.parameters, "{count} balls");
        if count > 40 {
            let part = device.read_parameters(&mut model, 37..count - 3).unwrap();
            assert_eq!(part, before.parameters.rows(37..count - 3));
            let rows = [count - 1, 0, 40, 0];
            let mut picked = Balls::zeros(0, 0);
            rows.iter().for_each(|&row| picked.append(before.parameters.rows(row..row + 1)));
            assert_eq!(device.sample(&mut model, &rows).unwrap(), picked);
        }
    }
}

fn balls_are_reordered_and_have_neighbours<B: Neighbours<Balls>>(device: &mut B) {
    let cube = Cube { centre: [0.1, 0.0, -0.2], half_side: 0.8 };
    let mut host = Cpu::<f32>::new();
    for count in [1, 33, 1021, 70_001] {
        let before = in_training(count, 7);
        let mut model = device.restore(before.clone()).unwrap();
        let mut expected = host.restore(before.clone()).unwrap();
        device.reorder(&mut model, &cube).unwrap();
        host.reorder(&mut expected, &cube).unwrap();
        let after = device.snapshot(&mut model).unwrap();
        assert_eq!(after, host.snapshot(&mut expected).unwrap(), "{count} balls");
        assert!(count == 1 || after != before);
        let found = device.neighbours(&model, 5).unwrap();
        let near = host.neighbours(&expected, 5).unwrap();
        let found = device.read_neighbours(&found, 0..count).unwrap();
        assert_eq!(found, host.read_neighbours(&near, 0..count).unwrap(), "{count} balls");
        device.reorder(&mut model, &Cube { centre: [0.0; 3], half_side: 0.3 }).unwrap();
    }
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_model_of_balls_takes_what_its_schema_says() {
    let mut device = cuda::open();
    for count in [33, 70_001] {
        let model: Model<Balls> = device.restore(in_training(count, 6)).unwrap();
        let memory = device.memory(Peaks::Keep).unwrap();
        let used = |label| {
            let entry = memory.entries.iter().find(|entry| entry.label == label);
            entry.map_or(0, |entry| entry.bytes.0)
        };
        let regions = model.size().regions();
        assert_eq!(regions[0].bytes.0, count.next_multiple_of(32) as u64 * 8 * 4);
        for row in &regions {
            assert_eq!(used(row.label), row.bytes.0, "{} of {count}", row.label);
        }
        let bytes = model.bytes();
        assert_eq!(bytes[0] + bytes[1], regions.iter().map(|row| row.bytes).sum());
    }
}
