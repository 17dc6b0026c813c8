//! Photographs that leave a GPU when the model needs their room: training goes on as if they had
//! stayed.

use crate::common::density::{DensifyRule, densify};
use crate::common::prelude::*;
use std::sync::Arc;

use crate::common::Draws;
use crate::common::cuda::{self, alone};
use crate::common::oracle::{AT_REST, settings};
use crate::common::scene::{RATES, resized, tame_gaussians};
use crate::common::view;
use splat::backend::cuda::{Cuda, CudaOptions, Model, Target};
use splat::backend::{AdamStep, DeviceError, Photo, Rates, Stay, Term, Terms};
use splat::dataset::{Image, InverseDepthMap, NormalMap, View};
use splat::math::Real;
use splat::memory::{Bytes, Limit, Rung};
use splat::model::Gaussians;

/// Sizes of the photographs, of which some have masks, others inverse depths, and others normals: 15 MiB
/// together.
const SIZES: [([u32; 2], bool); 3] =
    [([1279, 719], false), ([801, 601], true), ([1021, 767], true)];

/// Weight of the inverse depths and normals: so small that the runs differ by no more for them.
const MAP_WEIGHT: f64 = 0.01;

/// Iterations before the model grows: each view once.
const BEFORE: u32 = 3;
/// Iterations after.
const AFTER: u32 = 10;

/// The model's growth takes several times as much memory as the photographs.
const GAUSSIANS: usize = 60_000;

/// A view with a photograph whose brightness is unlike that of the others.
struct Shot {
    view: View,
    photo: Arc<Image>,
}

fn shots() -> Vec<Shot> {
    let shot = |(index, ([width, height], masked)): (u32, ([u32; 2], bool))| {
        let mut draws = Draws::new(u64::from(index) + 31);
        let dark = 80.0 * f64::from(index);
        let mut bytes = |count: u32, low: f64, high: f64| -> Vec<u8> {
            (0..count)
                .map(|_| u8::try_from(draws.uniform(low, high).floor_i32()).unwrap())
                .collect()
        };
        let rgb = bytes(width * height * 3, dark, dark + 60.0);
        // The more of it, the later the view.
        let mask = masked.then(|| bytes(width * height, dark, 255.0));
        // Each far from what is drawn, and from the others.
        let values = vec![u16::try_from(9000 * (index + 1)).unwrap(); (width * height) as usize];
        let depth = (index != 1).then_some(InverseDepthMap { values, scale: 20.0, offset: 0.0 });
        // Of every pixel in one, of every third in the other.
        let step = if index == 0 { 1 } else { 3 };
        let normal = |pixel| if pixel % step == 0 { [0, 0, -127] } else { [0; 3] };
        let values = (0..width * height).flat_map(normal).collect();
        let normals = (index != 2).then_some(NormalMap { values });
        let photo = Arc::new(Image { width, height, rgb, mask, depth, normals });
        Shot { view: resized(&view(), [width, height]), photo }
    };
    (0..).zip(SIZES).map(shot).collect()
}

/// Small ones, so that frames take little beside the model.
fn scene() -> Gaussians {
    let mut gaussians = tame_gaussians(GAUSSIANS, 41, 3);
    gaussians.log_scales.iter_mut().for_each(|scale| *scale -= 2.0);
    gaussians
}

/// All Gaussians are cloned and none is removed, whatever the rounding.
const RULE: DensifyRule = DensifyRule::ALL;

fn open(budget: Option<Bytes>) -> Result<Cuda, DeviceError> {
    cuda::open_with(&CudaOptions {
        vram_limit: budget.map(Limit::Bytes),
        vram_threshold: 1.0,
        // In bands there would be so much more room that the photographs had none from the beginning.
        give_up: vec![Rung::Slack, Rung::Photographs],
        ..CudaOptions::default()
    })
}

/// What came of a run that the budget allowed.
struct Ran {
    losses: Vec<Loss>,
    /// Views whose photographs stayed before the model grew, and at the end.
    held: [usize; 2],
    /// More than what was ever held at once.
    peak: Bytes,
}

/// What a run stopped at that the budget did not allow, if the device could be opened at all.
struct Stopped {
    error: DeviceError,
    /// Whether the model, if there was one, was after the refusal as it was before.
    unchanged: Option<bool>,
}

impl From<DeviceError> for Stopped {
    fn from(error: DeviceError) -> Self {
        Self { error, unchanged: None }
    }
}

/// The photograph as training comes by it: brought there ahead, or now.
fn target(device: &mut Cuda, index: usize, shot: &Shot) -> Result<Target, DeviceError> {
    match device.resident(index) {
        Some(target) => Ok(target),
        None => device.target(index, &shot.photo),
    }
}

/// One step towards a photograph.
fn step(
    device: &mut Cuda,
    model: &mut Model,
    (shot, target): (&Shot, &Target),
    (number, rates): (u32, Rates),
) -> Result<Loss, DeviceError> {
    let maps = [shot.photo.depth.is_some(), shot.photo.normals.is_some()];
    let settings = Drawing { inverse_depth: maps.contains(&true), ..settings(3, 5) };
    let [depths, normals] = maps.map(|has_map| if has_map { MAP_WEIGHT } else { 0.0 });
    let terms =
        Terms::photometric(0.2).with(Term::InverseDepth, depths).with(Term::NormalMap, normals);
    let (seen, mut gradients) = ((&shot.view, &settings), Default::default());
    let loss = device.add_view(model, seen, (target, &terms), &mut gradients)?;
    device.step(model, gradients, &AdamStep::new(number, rates))?;
    Ok(loss.read()?.into())
}

fn holds(device: &Cuda) -> usize {
    (0..SIZES.len()).filter(|&index| device.is_resident(index)).count()
}

/// Each view once, a round of density control, and more iterations. A target that was asked for
/// before the round is used after it.
fn run(shots: &[Shot], gaussians: &Gaussians, budget: Option<Bytes>) -> Result<Ran, Stopped> {
    let mut device = open(budget)?;
    let mut model = device.upload(gaussians)?;
    let mut done = Done { losses: Vec::new(), held: 0, kept: device.download(&mut model)? };
    if let Err(error) = iterate(&mut device, &mut model, shots, &mut done) {
        let after = device.download(&mut model)?;
        return Err(Stopped { error, unchanged: Some(after == done.kept) });
    }
    let peak = device.entries().iter().map(|entry| entry.peak).sum();
    Ok(Ran { losses: done.losses, held: [done.held, holds(&device)], peak })
}

/// How far a run has come.
struct Done {
    losses: Vec<Loss>,
    held: usize,
    /// The model before the last thing that was tried.
    kept: Gaussians,
}

fn iterate(
    device: &mut Cuda,
    model: &mut Model,
    shots: &[Shot],
    done: &mut Done,
) -> Result<(), DeviceError> {
    let order = |number: u32| number as usize % shots.len();
    let mut early = None;
    for number in 1..=BEFORE + AFTER {
        let index = order(number);
        if number == BEFORE + 1 {
            done.held = holds(device);
            early = Some(target(device, index, &shots[index])?);
            densify(device, model, &RULE, usize::MAX)?;
            done.kept = device.download(model)?;
        }
        let target = match early.take() {
            Some(target) => target,
            None => target(device, index, &shots[index])?,
        };
        // What is cloned lies where its parent does: it stays there, so that it is seen alike.
        let rates = if number <= BEFORE { AT_REST } else { RATES };
        let loss = step(device, model, (&shots[index], &target), (number, rates))?;
        done.losses.push(loss);
        done.kept = device.download(model)?;
        drop(target);
        if number != BEFORE && number < BEFORE + AFTER {
            let next = order(number + 1);
            let stay = Stay::Ahead(next);
            device.upload_target(Photo { image: &shots[next].photo, stay })?;
        }
    }
    Ok(())
}

/// The smallest budget, to the granule, within which a run comes to its end, with that run; and
/// what the run stopped at that had one granule less.
fn least(shots: &[Shot], gaussians: &Gaussians, enough: Bytes) -> (Ran, Stopped) {
    const GRANULE: u64 = 2 << 20;
    let at = |granules: u64| run(shots, gaussians, Some(Bytes(granules * GRANULE)));
    let (mut low, mut high) = (0, enough.0.div_ceil(GRANULE));
    let (mut ran, mut stopped) = (None, None);
    while high - low > 1 {
        let middle = low.midpoint(high);
        match at(middle) {
            Ok(done) => (high, ran) = (middle, Some(done)),
            Err(stop) => (low, stopped) = (middle, Some(stop)),
        }
    }
    (ran.expect("less than the peak suffices"), stopped.expect("nothing does not suffice"))
}

fn assert_same_losses(found: &Ran, expected: &Ran) {
    assert_eq!(found.losses.len(), expected.losses.len());
    for (number, (found, expected)) in (1..).zip(found.losses.iter().zip(&expected.losses)) {
        let error = (found.total - expected.total).abs().max((found.l1 - expected.l1).abs());
        // Sums in another order, and what the first steps of Adam make of that, which are as long for
        // a small gradient as for a large one: two runs without a limit come to 8e-4. Photographs
        // are further apart by far.
        assert!(error < 3e-3, "iteration {number}: {found:?} instead of {expected:?}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn photographs_make_room_for_the_model_and_the_losses_stay() {
    let _alone = alone();
    let (shots, gaussians) = (shots(), scene());
    let unlimited = run(&shots, &gaussians, None).map_err(|stop| stop.error).unwrap();
    assert_eq!(unlimited.held, [SIZES.len(); 2], "a whole GPU has room for all");
    // A wrong photograph would be noticed.
    let apart = |a: usize, b: usize| (unlimited.losses[a].l1 - unlimited.losses[b].l1).abs();
    assert!(apart(0, 1).min(apart(1, 2)).min(apart(0, 2)) > 0.01, "{:?}", unlimited.losses);

    let (limited, stopped) = least(&shots, &gaussians, unlimited.peak + unlimited.peak);
    assert_eq!(limited.held, [SIZES.len(), 0], "first there was room for them, then not");
    assert_same_losses(&limited, &unlimited);

    for (limited, unlimited) in limited.losses.iter().zip(&unlimited.losses) {
        assert_eq!(limited.depth_l1.is_some(), unlimited.depth_l1.is_some());
        let depths = limited.depth_l1.zip(unlimited.depth_l1);
        assert!(depths.is_none_or(|(a, b)| (a - b).abs() < 0.02 * b), "{limited:?} {unlimited:?}");
        assert_eq!(limited.normals.is_some(), unlimited.normals.is_some());
        let normals = limited.normals.zip(unlimited.normals);
        assert!(normals.is_none_or(|(a, b)| (a - b).abs() < 0.1 * b), "{limited:?} {unlimited:?}");
    }

    let error = stopped.error;
    assert!(matches!(error, DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }), "{error}");
    assert_eq!(stopped.unchanged, Some(true), "a refusal changed the model");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_glance_keeps_nothing_and_lets_nothing_go() {
    let _alone = alone();
    let (shots, gaussians) = (shots(), tame_gaussians(101, 41, 3));
    let mut device = open(None).unwrap();
    let model = device.upload(&gaussians).unwrap();
    let measured = |device: &mut Cuda, shot: &Shot, target: &Target| {
        let frame = device.show(&model, &shot.view, &settings(3, 5)).unwrap();
        device.measure(&frame, target).unwrap().l1
    };
    let kept = device.target(0, &shots[0].photo).unwrap();
    let before = measured(&mut device, &shots[0], &kept);
    for _ in 0..5 {
        for shot in &shots[1..] {
            let target = device.glance(&shot.photo).unwrap();
            measured(&mut device, shot, &target);
        }
    }
    assert_eq!(
        (0..3).map(|index| device.is_resident(index)).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert!(device.resident(1).is_none() && device.resident(2).is_none());
    let target = device.target(1, &shots[1].photo).unwrap();
    let by_target = measured(&mut device, &shots[1], &target);
    let glance = device.glance(&shots[1].photo).unwrap();
    let by_glance = measured(&mut device, &shots[1], &glance);
    assert!((by_target - by_glance).abs() < 1e-6, "{by_target} and {by_glance}");
    let after = measured(&mut device, &shots[0], &kept);
    assert!((after - before).abs() < 1e-6, "{after} instead of {before}");
}
