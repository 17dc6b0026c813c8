//! A view, another beside it, and smooth photographs of both: what the tests of patches compare.

use std::sync::Arc;

use splat::backend::cpu::Cpu;
use splat::backend::{
    AdamStep, Inputs, LossValues, Objective, OtherView, Snapshot, Terms, TrainDevice, TrainRequest,
    seen_from,
};
use splat::dataset::{Camera, Image, Pose, View};
use splat::math::linalg::{add, dot, length, mul, mul_transposed, rotation, scale};
use splat::math::normals::{OPAQUE_MIN, blended_normal};
use splat::math::patches::{
    AGREEMENT_MIN, CONTRAST_MIN, FACING_MAX, PATCH_PIXELS, PATCH_REACH, PATCH_SIDE, PatchPlane,
    bilinear, correlation, grey, patch_at,
};
use splat::math::splat::{Shape, Viewpoint};
use splat::math::transmittance::{OnRay, RayGaussian, fall};
use splat::math::{Real, inverse_sigmoid};
use splat::model::Gaussians;

use super::Draws;
use super::prelude::*;
use super::scene::{NEAR, RATES, composite, gaussian, resized, straight, together, viewpoint};

/// Depth of the wall that is painted, in the world's z.
pub const WALL: f64 = 2.0;

/// Two views of a painted wall, with their photographs.
#[derive(Clone, Debug)]
pub struct Pair {
    pub view: View,
    pub photo: Arc<Image>,
    pub other: View,
    pub other_photo: Arc<Image>,
    pub first_px: [u32; 2],
}

/// A camera to the right of the straight one, turned to the middle of the wall, with an image of another
/// size.
pub fn beside() -> View {
    let rotation = rotation([1.0, 0.01, 0.07, 0.02]);
    let centre = [0.28, -0.05, 0.02];
    View {
        name: "beside.png".to_owned(),
        camera: Camera { width: 41, height: 33, focal_px: [38.0, 40.0], centre_px: [20.1, 16.6] },
        pose: Pose { rotation, translation: scale(mul(&rotation, centre), -1.0) },
    }
}

/// Colours of the wall: waves of a dozen pixels, so that the slope of the photograph hardly jumps from one
/// square of pixels to the next, where single precision may be on the other side.
pub fn waves([x, y]: [f64; 2]) -> [f64; 3] {
    let wave = |phase: f64| {
        0.5 + 0.2 * (9.0 * x + 2.0 * y + phase).sin() + 0.2 * (8.0 * y - 3.0 * x + 0.4).cos()
    };
    [wave(0.0), wave(0.3), wave(0.6)]
}

/// The photograph that a view takes of the painted wall.
pub fn photograph(view: &View, paint: impl Fn([f64; 2]) -> [f64; 3]) -> Arc<Image> {
    let Camera { width, height, focal_px, centre_px } = view.camera;
    let centre = view.pose.centre_world();
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| [x, y]));
    let rgb = pixels.flat_map(|at| {
        let [x, y] =
            [0, 1].map(|axis| (f64::from(at[axis]) + 0.5 - centre_px[axis]) / focal_px[axis]);
        let direction = mul_transposed(&view.pose.rotation, [x, y, 1.0]);
        let [x, y, _] = add(centre, scale(direction, (WALL - centre[2]) / direction[2]));
        paint([x, y]).map(|value| u8::try_from((255.0 * value).floor_i32()).unwrap())
    });
    Arc::new(Image { width, height, rgb: rgb.collect(), mask: None, depth: None, normals: None })
}

impl Pair {
    /// Makes the pair of the straight view in an image of this size.
    pub fn of_size(size: [u32; 2], first_px: [u32; 2]) -> Self {
        let (view, other) = (resized(&straight(), size), beside());
        let other = resized(&other, [size[0] + 4, size[1] + 4]);
        let (photo, other_photo) = (photograph(&view, waves), photograph(&other, waves));
        Self { view, photo, other, other_photo, first_px }
    }

    /// Replaces the other photograph by one that agrees in part: the wall is moved, with other waves on it. If all
    /// agreed, gradients would be remainders of terms that cancel.
    pub fn in_doubt(self) -> Self {
        let paint = |[x, y]: [f64; 2]| {
            let other = 0.1 * (5.0 * x - 9.0 * y).sin();
            waves([x + 0.05, y - 0.03]).map(|value| 0.1 + 0.7 * value + other)
        };
        Self { other_photo: photograph(&self.other, paint), ..self }
    }

    /// Size of the view, px.
    pub fn size(&self) -> [u32; 2] {
        [self.photo.width, self.photo.height]
    }
}

pub fn drawing(seed: u64) -> DrawSettings {
    let background = Draws::new(seed).array::<3>(0.0, 1.0).map(f64::to_f32);
    DrawSettings {
        pass: Pass::Train,
        sh_degree: 3,
        background,
        near: NEAR,
        surface: true,
        median: true,
        ..DrawSettings::DEFAULT
    }
}

/// Flat, wide discs before and behind the wall, turned this way and that.
pub fn discs(count: usize, seed: u64) -> Gaussians {
    let mut draws = Draws::new(seed);
    let parts: Vec<Gaussians> = (0..count)
        .map(|_| {
            let mean =
                [draws.uniform(-0.9, 0.9), draws.uniform(-0.7, 0.7), draws.uniform(1.85, 2.2)];
            let color = draws.array::<3>(0.1, 0.9).map(f64::to_f32);
            let mut one = gaussian(mean.map(f64::to_f32), 1.0, 0.5, color);
            one.opacity_logits = vec![inverse_sigmoid(draws.uniform(0.5, 0.93)).to_f32()];
            let [wide, high] = draws.array::<2>(0.35, 0.7);
            let thick = draws.uniform(0.03, 0.06);
            one.log_scales = [wide, high, thick].map(|scale: f64| scale.ln().to_f32()).to_vec();
            let [a, b, c] = draws.array::<3>(-0.12, 0.12);
            one.quats = [1.0, a, b, 4.0 * c].map(f64::to_f32).to_vec();
            one
        })
        .collect();
    together(&parts)
}

/// Counts of the pixels that are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchCounts {
    /// Patches with a gradient.
    pub compared: usize,
    /// Patches that something hides.
    pub hidden: usize,
    /// Pixels that were looked at and whose patches say nothing.
    pub left_out: usize,
}

/// Shares of a pixel, of an opacity and so on within which rounding may decide otherwise: a hundred times
/// what single precision leaves of numbers of this size.
const MARGIN: f64 = 1e-3;

/// Counts pixels by the definition and in double precision. `None` if a decision is so near that single precision may
/// take another.
pub fn count_patches(
    gaussians: &Gaussians,
    pair: &Pair,
    drawing: &DrawSettings,
) -> Option<PatchCounts> {
    let is_borderline =
        composite(gaussians, &pair.view, drawing).iter().any(|pixel| pixel.borderline);
    if is_borderline {
        return None;
    }
    let point = viewpoint(&pair.view, NEAR);
    let rays = rays(gaussians, &point);
    let oracle = &mut Cpu::<f64>::new();
    let model = oracle.upload(gaussians).unwrap();
    let frame = oracle.draw(&model, &pair.view, drawing).unwrap();
    let drawn = oracle.image(&frame).unwrap();
    let (maps, medians) = (drawn.surface.unwrap(), drawn.median_depths.unwrap());
    let mut patch_counts = PatchCounts::default();
    for y in (pair.first_px[1]..drawn.height).step_by(2) {
        for x in (pair.first_px[0]..drawn.width).step_by(2) {
            let pixel = (y * drawn.width + x) as usize;
            let map = [0, 1, 2, 3].map(|k| f64::from(maps[4 * pixel + k]));
            let depth = f64::from(medians[pixel]);
            if is_median_unsure(&rays, point.slopes([x, y]), depth) {
                return None;
            }
            match verdict(pair, [x, y], map, depth)? {
                Verdict::LeftOut => patch_counts.left_out += 1,
                Verdict::Hidden => patch_counts.hidden += 1,
                Verdict::Compared => patch_counts.compared += 1,
            }
        }
    }
    Some(patch_counts)
}

/// All Gaussians as the rays of a view meet them.
fn rays(gaussians: &Gaussians, point: &Viewpoint<f64>) -> Vec<RayGaussian<f64>> {
    let wide = |values: &[f32]| -> Vec<f64> { values.iter().copied().map(f64::from).collect() };
    let triple = |values: &[f32], row: usize| -> [f64; 3] {
        wide(&values[3 * row..3 * row + 3]).try_into().unwrap()
    };
    let ray = |row: usize| {
        let shape = Shape {
            mean_world: triple(&gaussians.means, row),
            log_scale: triple(&gaussians.log_scales, row),
            quat: wide(&gaussians.quats[4 * row..4 * row + 4]).try_into().unwrap(),
            smoothing: 0.0,
        };
        RayGaussian::new(point, &shape, f64::from(gaussians.opacity_logits[row]))
    };
    (0..gaussians.len()).map(ray).collect()
}

/// Least slope of the logarithm of the transmittance at a median, per share of its depth, with which
/// single precision leaves a hundred thousandth of the depth.
const SLOPE_MIN: f64 = 0.1;

/// True if single precision may see a pixel's median elsewhere: it may miss a Gaussian that is barely met,
/// and where nearly half of the light passes all, or all up to a gap, it may find another depth or none.
fn is_median_unsure(rays: &[RayGaussian<f64>], slopes: [f64; 2], depth: f64) -> bool {
    let on_rays = || rays.iter().map(|ray| ray.on_ray(slopes));
    let met = || on_rays().filter(OnRay::is_met);
    let passed: f64 = met().map(|on_ray| on_ray.passed()).product();
    let is_flat = depth > 0.0 && fall(met(), depth).abs() * depth < SLOPE_MIN;
    is_flat
        || (passed - 0.5).abs() < MARGIN
        || on_rays().any(|on_ray| (255.0 * on_ray.peak - 1.0).abs() < 1e-4)
}

/// Distance from the squares' borders, where the slope of a photograph jumps: single precision leaves a third of this of
/// places of 50 px, a depth's rounding with it.
const SQUARE_MARGIN_PX: f64 = 3e-5;

/// True if the medians of all pixels are the same in single precision, also of those that are not looked at.
pub fn has_sure_medians(gaussians: &Gaussians, pair: &Pair, drawing: &DrawSettings) -> bool {
    let point = viewpoint(&pair.view, NEAR);
    let rays = rays(gaussians, &point);
    let oracle = &mut Cpu::<f64>::new();
    let model = oracle.upload(gaussians).unwrap();
    let frame = oracle.draw(&model, &pair.view, drawing).unwrap();
    let medians = oracle.image(&frame).unwrap().median_depths.unwrap();
    let pixels = (0..pair.size()[1]).flat_map(|y| (0..pair.size()[0]).map(move |x| [x, y]));
    pixels
        .zip(medians)
        .all(|(at, depth)| !is_median_unsure(&rays, point.slopes(at), f64::from(depth)))
}

enum Verdict {
    LeftOut,
    Hidden,
    Compared,
}

/// Returns a pixel's verdict. `None` if it is a near thing.
fn verdict(pair: &Pair, at: [u32; 2], map: [f64; 4], depth: f64) -> Option<Verdict> {
    let [_, x, y, opacity] = map;
    let near = |value: f64, cut: f64| (value - cut).abs() < MARGIN * cut.abs().max(1.0);
    let size = pair.size();
    let is_inside = (0..2).all(|k| at[k] >= PATCH_REACH && at[k] + PATCH_REACH < size[k]);
    if !is_inside {
        return Some(Verdict::LeftOut);
    }
    if near(opacity, OPAQUE_MIN) {
        return None;
    }
    let grey_of = |image: &Image, [x, y]: [u32; 2]| {
        let at = (y * image.width + x) as usize;
        let counts = image.mask.as_ref().is_none_or(|mask| mask[at] != 0);
        counts.then(|| grey::<f64>(image.rgb[3 * at..3 * at + 3].try_into().unwrap()))
    };
    let patch = patch_at(at, size, |at| grey_of(&pair.photo, at));
    let (Some(patch), true, true) = (patch, opacity >= OPAQUE_MIN, depth > 0.0) else {
        return Some(Verdict::LeftOut);
    };
    let point = viewpoint(&pair.view, NEAR);
    let normal = blended_normal([x / opacity, y / opacity]);
    let plane = PatchPlane { normal, depth, slopes: point.slopes(at) };
    let ray = [plane.slopes[0], plane.slopes[1], 1.0];
    let facing = dot(normal, ray) / length(ray);
    if near(facing, FACING_MAX) {
        return None;
    }
    if facing > FACING_MAX {
        return Some(Verdict::LeftOut);
    }
    let camera = seen_from(&pair.view, &pair.other);
    let mut found = [0.0; PATCH_PIXELS];
    for (k, value) in found.iter_mut().enumerate() {
        let pixel = [k % PATCH_SIDE, k / PATCH_SIDE].map(|at| at as f64 - f64::from(PATCH_REACH));
        let away = [0, 1].map(|axis| pixel[axis] / point.focal_px[axis]);
        let slopes = [plane.slopes[0] + away[0], plane.slopes[1] + away[1]];
        let inverse_depth = plane.inverse_depth(plane.tilt(), away);
        let place = camera.place(slopes, inverse_depth).filter(|_| inverse_depth > 0.0)?;
        let sides = camera.size.map(|side| f64::from(side) - 0.5);
        let is_near = (0..2).any(|k| near(place.px[k], 0.5) || near(place.px[k], sides[k]));
        let from_square = place.px.map(|at| (at - at.floor() - 0.5).abs());
        if is_near || from_square.iter().any(|&away| away < SQUARE_MARGIN_PX) {
            return None;
        }
        let sample = bilinear(place.px, camera.size, |at| grey_of(&pair.other_photo, at));
        let Some(sample) = sample else { return Some(Verdict::LeftOut) };
        *value = sample.value;
    }
    let correlation = correlation(&patch, &found);
    // Of numbers of 0.01, not of 1.
    if (correlation.contrast / CONTRAST_MIN - 1.0).abs() < MARGIN
        || near(correlation.ncc, AGREEMENT_MIN)
    {
        return None;
    }
    Some(if correlation.contrast < CONTRAST_MIN {
        Verdict::LeftOut
    } else if correlation.ncc < AGREEMENT_MIN {
        Verdict::Hidden
    } else {
        Verdict::Compared
    })
}

/// Discs of which no decision in this pair is a near thing, and of which most patches say something.
pub fn clear_discs(pair: &Pair, drawing: &DrawSettings, seed: u64) -> Gaussians {
    let looked_at = pair.size().map(|side| side.saturating_sub(2 * PATCH_REACH) as usize / 2);
    let enough = looked_at[0] * looked_at[1] / 2;
    (0..2000)
        .map(|attempt| discs(9, seed * 10_000 + attempt))
        .find(|discs| {
            count_patches(discs, pair, drawing)
                .is_some_and(|patch_counts| patch_counts.compared >= enough)
        })
        .expect("one scene in two thousand without a near thing")
}

/// Takes the first step. Returns the model and the values of the terms at pixels.
pub fn first_step<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (pair, drawing): (&Pair, &DrawSettings),
    terms: &Terms,
) -> (Snapshot<Gaussians>, LossValues) {
    let mut model = device.upload(gaussians).unwrap();
    let (gradients, values) = gradients_of(device, &mut model, (pair, drawing), terms);
    device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();
    (device.snapshot(&mut model).unwrap(), values)
}

/// The gradients of the terms over the view of a pair, and their values.
pub fn gradients_of<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (pair, drawing): (&Pair, &DrawSettings),
    terms: &Terms,
) -> (B::Gradients, LossValues) {
    let [target, other] = [(0, &pair.photo), (1, &pair.other_photo)]
        .map(|(view, photo)| device.target(view, photo).unwrap());
    let inputs = Inputs { maps: true, median: true, ..Inputs::NONE };
    let request = TrainRequest { inputs, ..drawing.train_request() };
    let frame = device.render_train(model, &pair.view, &drawing.settings(), &request).unwrap();
    let camera = seen_from(&pair.view, &pair.other);
    let other = OtherView { target: &other, camera, first_px: pair.first_px };
    let objective = Objective { target: &target, terms, near: None, other: Some(other) };
    let (frame, values) = device.objective(model, frame, &objective).unwrap();
    let mut gradients = B::Gradients::default();
    device.backward(model, frame, None, &mut gradients).unwrap();
    (gradients, values.read().unwrap())
}

/// A wall of discs at this depth of the straight camera that hides all behind it, each turned by this
/// quaternion.
pub fn wall(depth: f32, quat: [f32; 4]) -> Gaussians {
    let places = (-12_i16..=12).flat_map(|x| (-10_i16..=10).map(move |y| [x, y]));
    let discs: Vec<Gaussians> = places
        .map(|at| {
            let [x, y] = at.map(|i| 0.1 * f32::from(i));
            let mut disc = gaussian([x, y, depth], 0.12, 0.8, [0.2, 0.6, 0.4]);
            disc.log_scales[2] = 0.01_f32.ln();
            disc.quats = quat.to_vec();
            disc
        })
        .collect();
    together(&discs)
}
