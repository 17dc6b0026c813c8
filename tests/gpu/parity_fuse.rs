//! Fused depths: every device against the fusion of `splat-mesh` on the host, of the same drawn depths.

use std::sync::atomic::AtomicBool;

use splat::backend::{DrawnDepths, MaskedView};
use splat::dataset::{Camera, Pose};
use splat::math::linalg::{Vec3, cross, mul, normalize, scale};
use splat_mesh::Watch;
use splat_mesh::tsdf::{Fusion, FusionError, Space, Survey, SurveyedBricks, Voxel};

use crate::common::surface::{RADIUS, ball};
use crate::prelude::*;
#[cfg(kernels)]
use splat::memory::Limit;

each_backend!(
    bricks_and_voxels_agree_with_the_hosts,
    fused_depths_of_a_ball_are_the_ball,
    pixels_that_do_not_count_show_nothing,
    what_was_drawn_without_median_depths_is_refused,
);

const VIEWS: usize = 14;

fn views() -> Vec<View> {
    (0..VIEWS)
        .map(|number| {
            let turn = std::f64::consts::TAU * number as f64 / VIEWS as f64;
            let up = [0.0, 1.4, -1.7][number % 3];
            looking_at_the_origin([2.9 * turn.cos(), 2.7 * turn.sin(), up])
        })
        .collect()
}

fn looking_at_the_origin(from: Vec3<f64>) -> View {
    let forward = normalize(scale(from, -1.0));
    let right = normalize(cross(forward, [0.05, 0.1, 1.0]));
    let rotation = [right, cross(forward, right), forward];
    View {
        name: "view.png".to_owned(),
        camera: Camera { width: 97, height: 83, focal_px: [92.0, 95.0], centre_px: [47.3, 42.9] },
        pose: Pose { rotation, translation: scale(mul(&rotation, from), -1.0) },
    }
}

/// A box that the ball does not quite fit in, far too small for the cameras; and all of the world, in units in which
/// half of the ball is contracted.
fn spaces() -> [Space; 2] {
    let boxed = Space::in_box([-1.2, -1.1, -0.9], [1.1, 1.15, 1.2], 0.045).unwrap();
    [boxed, Space::contracted([0.3, -0.2, 0.1], 0.9, 90).unwrap()]
}

/// Every second view has a mask without its lower left corner.
fn mask_of(number: usize, view: &View) -> Option<Vec<u8>> {
    let Camera { width, height, .. } = view.camera;
    let counts = |y: u32, x: u32| u8::from(y < 3 * height / 5 || x > width / 2);
    let mask = || (0..height).flat_map(|y| (0..width).map(move |x| counts(y, x))).collect();
    number.is_multiple_of(2).then(mask)
}

struct FusedScene {
    gaussians: Gaussians,
    views: Vec<View>,
    masks: Vec<Option<Vec<u8>>>,
    space: Space,
}

/// Results of a device and of the host from the same depths. Voxels lie in the bricks that the host has found.
struct BothWays {
    bricks: [SurveyedBricks; 2],
    voxels: [Fusion; 2],
}

impl FusedScene {
    fn ball(space: Space) -> Self {
        Self { gaussians: ball(), views: views(), masks: vec![None; VIEWS], space }
    }

    fn masked(space: Space, mask: impl Fn(usize, &View) -> Option<Vec<u8>>) -> Self {
        let scene = Self::ball(space);
        let masks = scene.views.iter().enumerate().map(|(n, view)| mask(n, view)).collect();
        Self { masks, ..scene }
    }

    /// Hands the frame of each view to a device, and its depths to the host.
    fn each<B: TrainDevice>(
        &self,
        device: &mut B,
        model: &B::Model,
        mut visit: impl FnMut(&mut B, &B::Frame<splat::backend::Shown>, MaskedView<'_>),
    ) {
        for (view, mask) in self.views.iter().zip(&self.masks) {
            let frame = device
                .render(model, view, &RenderSettings::DEFAULT, RenderRequest::MEDIAN)
                .unwrap();
            visit(device, &frame, MaskedView { view, mask: mask.as_deref() });
        }
    }

    fn both_ways<B: TrainDevice>(&self, device: &mut B) -> BothWays {
        let stop = AtomicBool::new(false);
        let watch = Watch { stop: &stop, on_progress: &|_, _| () };
        let model = device.upload(&self.gaussians).unwrap();
        let mut survey = device.new_survey(self.space).unwrap();
        let mut on_host = Survey::new(self.space);
        self.each(device, &model, |device, frame, seen| {
            device.survey_depths(&mut survey, frame, seen).unwrap();
            let depths = DrawnDepths::new(seen, &device.image(frame).unwrap());
            on_host.add(&depths.depth_view(), &watch).unwrap();
        });
        let found = device.read_survey(survey).unwrap().finish(usize::MAX).unwrap();
        let bricks = Arc::new(on_host.finish(usize::MAX).unwrap());
        let mut voxels = device.new_voxels(&bricks).unwrap();
        let mut fusion = Fusion::new(Arc::clone(&bricks));
        self.each(device, &model, |device, frame, seen| {
            device.fuse_depths(&mut voxels, frame, seen).unwrap();
            let depths = DrawnDepths::new(seen, &device.image(frame).unwrap());
            fusion.add(&depths.depth_view(), &watch).unwrap();
        });
        let voxels = [device.read_voxels(voxels).unwrap(), fusion];
        BothWays { bricks: [found, Arc::unwrap_or_clone(bricks)], voxels }
    }

    fn surface<B: TrainDevice>(
        &self,
        device: &mut B,
    ) -> Result<splat_mesh::tsdf::Fused, FusionError> {
        let stop = AtomicBool::new(false);
        let model = device.upload(&self.gaussians).unwrap();
        let mut survey = device.new_survey(self.space).unwrap();
        self.each(device, &model, |device, frame, seen| {
            device.survey_depths(&mut survey, frame, seen).unwrap();
        });
        let bricks = Arc::new(device.read_survey(survey).unwrap().finish(usize::MAX)?);
        let mut voxels = device.new_voxels(&bricks).unwrap();
        self.each(device, &model, |device, frame, seen| {
            device.fuse_depths(&mut voxels, frame, seen).unwrap();
        });
        let fusion = device.read_voxels(voxels).unwrap();
        fusion.surface(&Watch { stop: &stop, on_progress: &|_, _| () })
    }
}

fn places(bricks: &SurveyedBricks) -> Vec<[u32; 3]> {
    (0..bricks.len()).map(|brick| bricks.place(brick)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Fields {
    distance: i32,
    half: i32,
    color: [u8; 3],
    seen: u8,
}

fn fields(voxels: &[Voxel]) -> impl Iterator<Item = Fields> + '_ {
    let words: &[[u8; 8]] = bytemuck::cast_slice(voxels);
    words.iter().map(|&[d0, d1, w0, w1, r, g, b, seen]| Fields {
        distance: i16::from_le_bytes([d0, d1]).into(),
        half: u16::from_le_bytes([w0, w1]).into(),
        color: [r, g, b],
        seen,
    })
}

impl Fields {
    /// But for the rounding of single precision and of what is kept.
    fn is_near(&self, other: &Self) -> bool {
        let color = self.color.iter().zip(&other.color);
        self.seen == other.seen
            && (self.distance - other.distance).abs() <= 20
            && (self.half - other.half).abs() <= 2
            && color.into_iter().all(|(a, b)| a.abs_diff(*b) <= 1)
    }
}

fn bricks_and_voxels_agree_with_the_hosts<B: TrainDevice>(device: &mut B) {
    let is_host = device.memory(Peaks::Keep).is_none();
    for space in spaces() {
        let scene = FusedScene::masked(space, mask_of);
        let BothWays { bricks: [found, expected], voxels } = scene.both_ways(device);
        let [found, expected] = [&found, &expected].map(places);
        assert!(expected.len() > 100, "{}", expected.len());
        let apart = expected.iter().filter(|place| !found.contains(place)).count()
            + found.iter().filter(|place| !expected.contains(place)).count();
        // A place a hair from where another brick begins.
        assert!(apart * 100 <= expected.len(), "{apart} of {}", expected.len());
        let [found, expected] = [&voxels[0], &voxels[1]].map(|fusion| fusion.voxels());
        assert_eq!(found.len(), expected.len());
        let filled = fields(expected).filter(|fields| fields.seen != 0).count();
        assert!(filled > 20_000, "{filled}");
        let pairs: Vec<_> = fields(found).zip(fields(expected)).collect();
        let apart: Vec<_> = pairs.iter().filter(|(a, b)| !a.is_near(b)).collect();
        // A voxel a hair from the edge of a pixel, or from where it counts as free.
        let some = &apart[..apart.len().min(3)];
        assert!(apart.len() * 400 <= filled, "{} of {filled}: {some:?}", apart.len());
        assert!(!is_host || found == expected, "the host's are its own");
    }
}

fn fused_depths_of_a_ball_are_the_ball<B: TrainDevice>(device: &mut B) {
    for space in spaces() {
        let made = FusedScene::ball(space).surface(device).unwrap();
        assert_eq!(made.views, VIEWS);
        assert!(made.mesh.vertices.len() > 4000, "{}", made.mesh.vertices.len());
        let radius =
            |vertex: &[f32; 3]| vertex.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
        let off = made.mesh.vertices.iter().map(|vertex| (radius(vertex) - RADIUS).abs());
        let mean = off.sum::<f64>() / made.mesh.vertices.len() as f64;
        assert!(mean < 0.01 * RADIUS, "{mean}");
        for (vertex, color) in made.mesh.vertices.iter().zip(&made.mesh.colors) {
            let is_side = vertex[0].abs() > 0.2;
            assert!(!is_side || (color[0] > color[2]) == (vertex[0] > 0.0), "{vertex:?} {color:?}");
        }
    }
}

fn pixels_that_do_not_count_show_nothing<B: TrainDevice>(device: &mut B) {
    let [space, _] = spaces();
    let scene = FusedScene::masked(space, |_, view| masked(view));
    assert_eq!(scene.surface(device).unwrap_err(), FusionError::Empty { views: VIEWS });
}

fn what_was_drawn_without_median_depths_is_refused<B: TrainDevice>(device: &mut B) {
    let (gaussians, views) = (ball(), views());
    let (view, [space, _]) = (&views[0], spaces());
    let model = device.upload(&gaussians).unwrap();
    let frame =
        device.render(&model, view, &RenderSettings::DEFAULT, RenderRequest::SURFACE).unwrap();
    let seen = MaskedView { view, mask: None };
    let mut survey = device.new_survey(space).unwrap();
    let refused = device.survey_depths(&mut survey, &frame, seen).unwrap_err();
    assert!(matches!(refused, DeviceError::NoMedianDepths), "{refused}");
    let frame =
        device.render(&model, view, &RenderSettings::DEFAULT, RenderRequest::MEDIAN).unwrap();
    let short = MaskedView { view, mask: Some(&[1; 7]) };
    let refused = device.survey_depths(&mut survey, &frame, short).unwrap_err();
    let is_named =
        matches!(refused, DeviceError::Fusion(FusionError::MapSize { map: "mask", found: 7, .. }));
    assert!(is_named, "{refused}");
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn marks_that_do_not_fit_are_refused_and_leave_the_device_as_it_was() {
    let device = &mut small_device();
    // 2048 bricks along each side are a gigabyte of marks.
    let space = Space::in_box([-1.2; 3], [1.2; 3], 2.4 / 16_384.0).unwrap();
    let refused = device.new_survey(space).err().unwrap();
    assert!(refused.is_out_of_memory(), "{refused}");
    fuses(device);
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn voxels_that_do_not_fit_are_refused_and_leave_the_device_as_it_was() {
    let device = &mut small_device();
    let space = Space::in_box([-1.2; 3], [1.2; 3], 2.4 / 640.0).unwrap();
    let views = views();
    let view = &views[0];
    let model = device.upload(&ball()).unwrap();
    let frame =
        device.render(&model, view, &RenderSettings::DEFAULT, RenderRequest::MEDIAN).unwrap();
    let seen = MaskedView { view, mask: None };
    let depths = DrawnDepths::new(seen, &device.image(&frame).unwrap());
    drop((frame, model));
    let stop = AtomicBool::new(false);
    let mut survey = Survey::new(space);
    survey.add(&depths.depth_view(), &Watch { stop: &stop, on_progress: &|_, _| () }).unwrap();
    // The voxels of these bricks take more than a gigabyte.
    let side = 0..70;
    survey.call_bricks(side.clone().flat_map(|z| {
        let row = side.clone();
        row.clone().flat_map(move |y| row.clone().map(move |x| [x, y, z]))
    }));
    let bricks = Arc::new(survey.finish(usize::MAX).unwrap());
    assert!(bricks.len() >= 343_000, "{}", bricks.len());
    let refused = device.new_voxels(&bricks).err().unwrap();
    assert!(refused.is_out_of_memory(), "{refused}");
    fuses(device);
}

#[cfg(kernels)]
fn small_device() -> Cuda {
    let limit = Some(Limit::Bytes(Bytes(800 << 20)));
    let options = CudaOptions { vram_limit: limit, ..CudaOptions::default() };
    cuda::open_with(&options).unwrap()
}

#[cfg(kernels)]
fn fuses(device: &mut Cuda) {
    let [space, _] = spaces();
    assert!(FusedScene::ball(space).surface(device).is_ok());
}
