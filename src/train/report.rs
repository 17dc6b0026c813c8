//! Computed events: memory, distributions, pictures.

use std::sync::Arc;

use super::eval::{EvalRequest, EvaluatedView};
use super::event::{
    Distributions, Event, LARGE, MemoryReport, PhasePeaks, Pictures, Tensors, Vram,
};
use super::pictures::{density_map, error_map, photo_picture, render_picture};
use crate::backend::{DeviceMemory, MemoryEntry, MemoryKind, Rendered};
use crate::dataset::{Camera, View};
use crate::layout::{self, Purpose};
use crate::math::field::{deviation_towards, is_near_surface};
use crate::math::linalg::{Vec3, add, mul};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::sigmoid;
use crate::memory::{Bytes, Limit, host_memory};
use crate::model::{Field, Gaussians};

/// Iterations between two memory reports.
pub(super) const MEMORY_INTERVAL: u32 = 100;

/// Iterations between two reports of distributions.
pub(super) const DISTRIBUTION_INTERVAL: u32 = 1000;

/// Largest number of sampled Gaussians.
const SAMPLES: usize = 10_000;

/// Reports the current memory use. `tensors`: bytes that the run itself counts, `copies`: copies of the model that
/// threads write to files.
pub(super) fn memory(
    iteration: u32,
    mut tensors: Tensors,
    peaks: PhasePeaks,
    device: Option<&DeviceMemory>,
    copies: Bytes,
    host_limit: Limit,
    creep: &mut UnexplainedGrowth,
) -> Event {
    let host = host_memory();
    let entries = device.map_or(&[][..], |memory| &memory.entries);
    let photographs = entries.iter().filter(|entry| entry.kind == MemoryKind::Photographs);
    let photographs: Bytes = photographs.map(|entry| entry.bytes).sum();
    tensors.images += photographs;
    let vram = device.filter(|_| !entries.is_empty()).map(|device| {
        let on_device = || entries.iter().filter(|entry| entry.kind != MemoryKind::Pinned);
        let allocated: Bytes = on_device().map(|entry| entry.bytes).sum();
        let taken = |kind| {
            let entries = entries.iter().filter(move |entry| entry.kind == kind);
            entries.map(|entry| entry.mapped).sum()
        };
        // Photographs are left out, because the governor varies their number.
        let held = Bytes(allocated.0.saturating_sub(photographs.0));
        Vram {
            allocated,
            reserved: on_device().map(|entry| entry.mapped).sum(),
            context: taken(MemoryKind::Context),
            photographs: taken(MemoryKind::Photographs),
            scratch: taken(MemoryKind::Arena),
            slack: slack(entries, device.recent_scratch),
            large_count: on_device().filter(|entry| entry.bytes >= LARGE).count(),
            creep: creep.take(iteration, held),
            budget: Some(device.budget),
        }
    });
    let host_creep = match (vram, host) {
        (None, Some(host)) => {
            let explained = tensors.images.0 + copies.0;
            creep.take(iteration, Bytes(host.resident.0.saturating_sub(explained)))
        }
        _ => None,
    };
    Event::Memory(MemoryReport {
        iteration,
        tensors,
        vram,
        offloaded: offloaded(entries),
        host_creep,
        host_resident: host.map(|host| host.resident),
        host_total: host.map(|host| host.total),
        host_limit: host.map(|host| host_limit.on(host.total)),
        peaks,
    })
}

/// Returns the bytes of the host's memory that tables of the model take.
pub(super) fn offloaded(device: &[MemoryEntry]) -> Option<Bytes> {
    let is_of_model = |entry: &&MemoryEntry| {
        let purpose = layout::named(entry.label).map(|slot| slot.purpose);
        entry.kind == MemoryKind::Pinned
            && matches!(purpose, Some(Purpose::Parameters | Purpose::Moments))
    };
    let taken: Bytes = device.iter().filter(is_of_model).map(|entry| entry.mapped).sum();
    (taken > Bytes(0)).then_some(taken)
}

/// Returns the device memory that is reserved and unused.
///
/// Persistent buffers have spare room behind their values and in the last granule. The arena, empty between
/// iterations, counts as unused beyond the need of an iteration.
fn slack(device: &[MemoryEntry], scratch_needed: Bytes) -> Bytes {
    let useful = |entry: &MemoryEntry| match entry.kind {
        MemoryKind::Context | MemoryKind::Photographs | MemoryKind::Region => entry.bytes,
        MemoryKind::Arena => scratch_needed,
        MemoryKind::Block | MemoryKind::Pinned => entry.mapped,
    };
    device.iter().map(|entry| Bytes(entry.mapped.0.saturating_sub(useful(entry).0))).sum()
}

/// Chooses the Gaussians of a distribution: all, or a random sample if there are more than 10,000.
pub(super) fn sample(count: usize, seed: u64, iteration: u32) -> Vec<usize> {
    if count <= SAMPLES {
        return (0..count).collect();
    }
    let stream = RandomStream::new(seed, u64::from(iteration), RandomUse::Sample);
    (0..SAMPLES).map(|i| stream.below(i as u64, count)).collect()
}

/// Computes distributions over a sample of `count` Gaussians.
pub(super) fn distributions(sample: &Gaussians, count: usize, iteration: u32) -> Event {
    let length =
        |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
    let opacity: Vec<f64> =
        sample.opacity_logits.iter().map(|&logit| sigmoid(f64::from(logit))).collect();
    // Each Gaussian has three scales. A full sample takes those of every third Gaussian.
    let every = if sample.log_scales.len() > SAMPLES { 3 } else { 1 };
    let scales = sample.log_scales.chunks_exact(3).step_by(every).flatten().take(SAMPLES);
    Event::Distributions(Distributions {
        iteration,
        gaussians: count,
        opacity_mean: opacity.iter().sum::<f64>() / opacity.len().max(1) as f64,
        opacity,
        scale: scales.map(|&s| f64::from(s).exp()).collect(),
        xyz_magnitude: sample.means.chunks_exact(3).map(length).collect(),
        rotation_magnitude: sample.quats.chunks_exact(4).map(length).collect(),
    })
}

/// Draws the pictures of an evaluated view. `extent`: scale of the depth picture.
pub(super) fn pictures(request: &EvalRequest<'_>, view: &EvaluatedView<'_>, extent: f64) -> Event {
    let (rendered, image) = (view.rendered, view.image);
    let counts = rendered.blended.as_deref().unwrap_or_default();
    let render = render_picture(rendered);
    let ground_truth = photo_picture(image);
    Event::Pictures(Pictures {
        iteration: request.iteration,
        split: request.split,
        name: view.name.to_owned(),
        error: Arc::new(error_map(&render, &ground_truth)),
        density: Arc::new(density_map(counts, rendered.width, rendered.height)),
        render: Arc::new(render),
        ground_truth: Arc::new(ground_truth),
        depth: view.surface.map(|maps| Arc::new(maps.depth_picture(extent))),
        normals: view.surface.map(|maps| Arc::new(maps.normal_picture())),
    })
}

// Unexplained growth of memory.

/// Iterations after which every buffer has its final size, if the number of Gaussians is constant.
const WARM_UP: u32 = 100;

/// Growth of memory beyond a baseline after the warm-up.
///
/// A change of the number of Gaussians restarts the warm-up, so that only growth at a constant model size counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnexplainedGrowth {
    /// Iteration from which on memory should be constant.
    steady_from: u32,
    baseline: Option<Bytes>,
}

impl UnexplainedGrowth {
    /// Starts the warm-up after this iteration.
    pub(super) fn from(iteration: u32) -> Self {
        Self { steady_from: iteration.saturating_add(WARM_UP), baseline: None }
    }

    /// Returns the growth beyond the baseline, if there is one.
    pub(super) fn take(&mut self, iteration: u32, held: Bytes) -> Option<Bytes> {
        if iteration < self.steady_from {
            return None;
        }
        let baseline = *self.baseline.get_or_insert(held);
        Some(Bytes(held.0.saturating_sub(baseline.0)))
    }
}

// Distance of Gaussians from the rendered surface, and their thickness.

/// Smallest opacity of a surface pixel.
const OPACITY_MIN: f64 = 0.5;

/// Number of channels of [`Rendered::surface`], and the indices of depth and opacity.
const CHANNELS: usize = 4;
const DEPTH: usize = 0;
const OPACITY: usize = 3;

/// Returns the share of Gaussians near the surface, among those whose centres project onto a surface pixel. As in
/// SuGaR's SDF term, near means |z - rendered depth| < 2 |s Rᵀ d|, with d the direction to the camera.
///
/// `drawn` renders the whole model in this view from depth `near` (world units) on. `None` if it has no maps of this
/// size, or no Gaussian of the sample projects onto a surface.
pub fn share_near_surface(
    sample: &impl Field,
    view: &View,
    near: f64,
    drawn: &Rendered,
) -> Option<f64> {
    let pixels = drawn.surface.as_deref()?.as_chunks().0;
    if [drawn.width, drawn.height] != [view.camera.width, view.camera.height] {
        return None;
    }
    let camera_world = view.pose.centre_world();
    let (mut there, mut close) = (0_u32, 0_u32);
    for kernel in sample.density_kernels() {
        let mean_cam = add(mul(&view.pose.rotation, kernel.mean_world), view.pose.translation);
        if mean_cam[2] <= near {
            continue;
        }
        let Some(depth) = surface_depth(pixels, mean_cam, &view.camera) else { continue };
        let deviation = deviation_towards(&kernel, camera_world);
        there += 1;
        close += u32::from(is_near_surface(mean_cam[2] - depth, deviation));
    }
    (there > 0).then(|| f64::from(close) / f64::from(there))
}

/// Returns the mean of the smallest scales, world units. `None` for an empty sample.
pub fn mean_thickness(sample: &impl Field) -> Option<f64> {
    let (sum, count) = sample
        .density_kernels()
        .fold((0.0, 0_u32), |(sum, count), kernel| (sum + kernel.thickness(), count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the surface depth at the pixel that sees this point, world units. `pixels`: rendered depths and opacities,
/// [height, width, 4].
fn surface_depth(pixels: &[[f32; CHANNELS]], [x, y, z]: Vec3<f64>, camera: &Camera) -> Option<f64> {
    let pixel = |axis: usize, along: f64, side: u32| {
        let at = along / z * camera.focal_px[axis] + camera.centre_px[axis];
        let inside = at >= 0.0 && at < f64::from(side);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "inside of the image"
        )]
        let pixel = at as usize;
        inside.then_some(pixel)
    };
    let (column, row) = (pixel(0, x, camera.width)?, pixel(1, y, camera.height)?);
    let pixel = pixels.get(row * camera.width as usize + column)?;
    let opacity = f64::from(pixel[OPACITY]);
    (opacity > OPACITY_MIN).then(|| f64::from(pixel[DEPTH]) / opacity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::backend::{Render as _, RenderRequest, RenderSettings, Store as _};
    use crate::dataset::Pose;

    fn entry(label: &'static str, kind: MemoryKind, bytes: u64, mapped: u64) -> MemoryEntry {
        let [bytes, mapped] = [bytes, mapped].map(Bytes);
        MemoryEntry { label, kind, bytes, mapped, peak: mapped, at_peak: mapped }
    }

    fn device() -> Vec<MemoryEntry> {
        vec![
            entry("context and code", MemoryKind::Context, 500, 500),
            entry("sh", MemoryKind::Region, 90, 128),
            entry("photographs", MemoryKind::Photographs, 60, 64),
            entry("scratch", MemoryKind::Arena, 0, 256),
            entry("splats", MemoryKind::Block, 0, 0),
            entry("staging", MemoryKind::Pinned, 700, 1000),
        ]
    }

    fn report(
        iteration: u32,
        device: &[MemoryEntry],
        creep: &mut UnexplainedGrowth,
    ) -> MemoryReport {
        let (recent_scratch, budget) = (Bytes(200), Bytes(2000));
        let device = DeviceMemory { entries: device.to_vec(), recent_scratch, budget };
        let tensors = Tensors { images: Bytes(5), ..Tensors::default() };
        let (peaks, limit) = (PhasePeaks::default(), Limit::Percent(60.0));
        match memory(iteration, tensors, peaks, Some(&device), Bytes(0), limit, creep) {
            Event::Memory(report) => report,
            _ => panic!("another event"),
        }
    }

    #[test]
    fn page_locked_memory_is_not_device_memory_and_slack_is_memory_without_use() {
        let report = report(100, &device(), &mut UnexplainedGrowth::from(0));
        let vram = report.vram.unwrap();
        assert_eq!((vram.allocated, vram.reserved), (Bytes(650), Bytes(948)));
        let parts = [vram.context, vram.photographs, vram.scratch];
        assert_eq!((parts, vram.large_count), ([500, 64, 256].map(Bytes), 0));
        assert_eq!((report.tensors.images, vram.budget), (Bytes(65), Some(Bytes(2000))));
        assert_eq!((report.offloaded, vram.slack), (None, Bytes(38 + 4 + 56)));
        assert!((vram.fragmentation_percent() - 100.0 * 98.0 / 948.0).abs() < 1e-9);
        assert_eq!(Vram::default().fragmentation_percent(), 0.0);
    }

    #[test]
    fn tables_in_the_hosts_memory_are_counted_by_themselves() {
        let mut device = device();
        device[1].kind = MemoryKind::Pinned;
        device.push(entry("sh, first moments", MemoryKind::Pinned, 50, 64));
        let report = report(100, &device, &mut UnexplainedGrowth::from(0));
        assert_eq!(report.offloaded, Some(Bytes(128 + 64)));
        let vram = report.vram.unwrap();
        assert_eq!((vram.allocated, vram.reserved), (Bytes(560), Bytes(820)));
    }

    #[test]
    fn photographs_are_no_creep() {
        let mut creep = UnexplainedGrowth::from(0);
        let mut device = device();
        assert_eq!(report(100, &device, &mut creep).vram.unwrap().creep, Some(Bytes(0)));
        (device[2].bytes, device[2].mapped) = (Bytes(6000), Bytes(6400));
        assert_eq!(report(200, &device, &mut creep).vram.unwrap().creep, Some(Bytes(0)));
        device[1].bytes = Bytes(97);
        assert_eq!(report(300, &device, &mut creep).vram.unwrap().creep, Some(Bytes(7)));
    }

    #[test]
    fn a_device_with_host_memory_has_no_vram() {
        let mut creep = UnexplainedGrowth::from(100);
        let first = report(100, &[], &mut creep);
        assert_eq!((first.vram, first.tensors.images), (None, Bytes(5)));
        // Growth before the baseline comes from the Gaussians.
        assert_eq!(first.host_creep, None);
        let second = report(200, &[], &mut creep);
        assert_eq!(second.host_creep, second.host_resident.map(|_| Bytes(0)));
        assert_eq!(report(300, &device(), &mut creep).host_creep, None);
    }

    #[test]
    fn creep_is_growth_beyond_what_is_held_after_the_warm_up() {
        let mut creep = UnexplainedGrowth::from(3000);
        assert_eq!(creep.take(3099, Bytes(70)), None);
        assert_eq!(creep.take(3100, Bytes(90)), Some(Bytes(0)));
        assert_eq!(creep.take(3200, Bytes(95)), Some(Bytes(5)));
        assert_eq!(creep.take(3300, Bytes(80)), Some(Bytes(0)));
        assert_eq!(creep.take(3400, Bytes(91)), Some(Bytes(1)));
    }

    #[test]
    fn a_change_of_the_number_of_gaussians_explains_growth() {
        let mut creep = UnexplainedGrowth::from(0);
        assert_eq!(creep.take(500, Bytes(90)), Some(Bytes(0)));
        creep = UnexplainedGrowth::from(500);
        assert_eq!(creep.take(550, Bytes(200)), None);
        assert_eq!(creep.take(600, Bytes(210)), Some(Bytes(0)));
        assert_eq!(creep.take(700, Bytes(217)), Some(Bytes(7)));
    }

    /// Returns a camera at (0.5, 0, 0) that looks along the world's x: a quarter turn about y.
    fn view() -> View {
        let camera =
            Camera { width: 40, height: 30, focal_px: [40.0, 41.0], centre_px: [19.0, 16.0] };
        let pose = Pose {
            rotation: [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
            translation: [0.0, 0.0, -0.5],
        };
        View { name: "a.jpg".to_owned(), camera, pose }
    }

    /// Returns the centre of a Gaussian, thin along the world's x, at this depth of [`view`].
    fn disc(depth: f32, [y, z]: [f32; 2]) -> [f32; 3] {
        [0.5 + depth, y, z]
    }

    fn discs(means: &[[f32; 3]]) -> Gaussians {
        let mut discs = Gaussians::zeros(0, means.len());
        discs.means = means.as_flattened().to_vec();
        let scales = [0.02_f32, 0.3, 0.4].map(f32::ln);
        discs.log_scales = scales.repeat(means.len());
        // The length of the quaternion does not matter.
        discs.quats = [2.0, 0.0, 0.0, 0.0].repeat(means.len());
        discs.opacity_logits = vec![6.0; means.len()];
        discs
    }

    /// Returns maps of a plane at depth 3. The left half of the image is too transparent.
    fn plane() -> Rendered {
        let pixel = |i: usize| {
            let opacity = if i % 40 < 20 { 0.5 } else { 0.8 };
            [3.0 * opacity, 0.0, 0.0, opacity]
        };
        Rendered {
            width: 40,
            height: 30,
            rgb: vec![0.0; 40 * 30 * 3],
            blended: None,
            inverse_depths: None,
            inverse_squares: None,
            surface: Some((0..40 * 30).flat_map(pixel).collect()),
            median_depths: None,
        }
    }

    fn share(sample: &Gaussians) -> Option<f64> {
        share_near_surface(sample, &view(), 0.1, &plane())
    }

    #[test]
    fn near_is_within_two_sigmas_along_the_line_of_sight() {
        // Slightly off the axis the longer scales contribute a little: 2 sigma is 0.051.
        let at = [0.0, -0.12];
        for (depth, near) in [(2.97, 1.0), (3.03, 1.0), (2.93, 0.0), (3.07, 0.0)] {
            assert_eq!(share(&discs(&[disc(depth, at)])), Some(near), "{depth}");
        }
        // After a quarter turn about y the long axis points at the camera: sigma is 0.4.
        let mut long = discs(&[disc(3.7, at), disc(3.9, at)]);
        let root = 0.5_f32.sqrt();
        long.quats = [root, 0.0, root, 0.0].repeat(2);
        assert_eq!(share(&long), Some(0.5));
    }

    #[test]
    fn only_gaussians_in_front_of_a_surface_pixel_count() {
        let seen = disc(3.0, [0.0, -0.2]);
        let transparent = disc(3.0, [0.0, 0.2]);
        let beside = disc(3.0, [0.0, -9.0]);
        let (above, behind) = (disc(3.0, [-9.0, -0.2]), disc(-3.0, [0.0, 0.2]));
        let hidden = disc(4.0, [0.0, -0.2]);
        let broken = [f32::NAN; 3];
        assert_eq!(share(&discs(&[transparent, beside, above, behind, broken])), None);
        assert_eq!(share(&discs(&[seen, transparent, beside, above, behind, broken])), Some(1.0));
        assert_eq!(share(&discs(&[seen, seen, hidden, beside])), Some(2.0 / 3.0));
        assert_eq!(share(&discs(&[])), None);
        let without_maps = Rendered { surface: None, ..plane() };
        let of_another_size = Rendered { width: 30, height: 40, ..plane() };
        for drawn in [without_maps, of_another_size] {
            assert_eq!(share_near_surface(&discs(&[seen]), &view(), 0.1, &drawn), None);
        }
    }

    #[test]
    fn a_wall_lies_at_its_drawn_depths_and_floaters_do_not() {
        let places = (-9_i16..=9).flat_map(|y| (-9_i16..=9).map(move |z| [y, z]));
        let at = |[y, z]: [i16; 2]| [0.2 * f32::from(y), 0.2 * f32::from(z)];
        let mut wall = discs(&places.map(|place| disc(3.0, at(place))).collect::<Vec<_>>());
        let drawn = |gaussians: &Gaussians| {
            let mut device = Cpu::<f32>::new();
            let model = device.upload(gaussians).unwrap();
            let settings = RenderSettings::DEFAULT;
            let frame = device.render(&model, &view(), &settings, RenderRequest::SURFACE).unwrap();
            device.image(&frame).unwrap()
        };
        assert_eq!(share_near_surface(&wall, &view(), 0.1, &drawn(&wall)), Some(1.0));
        // Every other Gaussian comes nearer to its camera and is too transparent to be a surface.
        for (mean, logit) in wall.means.chunks_exact_mut(3).zip(&mut wall.opacity_logits).step_by(2)
        {
            mean[0] -= 0.5;
            mean.iter_mut().for_each(|coordinate| *coordinate *= 2.0 / 3.0);
            mean[0] += 0.5;
            *logit = -7.0;
        }
        let share = share_near_surface(&wall, &view(), 0.1, &drawn(&wall)).unwrap();
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn thickness_is_the_mean_of_the_smallest_scales() {
        let mut two = discs(&[[0.0; 3]; 2]);
        two.log_scales[3..].copy_from_slice(&[1.0, 0.5, 0.06_f32.ln()]);
        let mean = mean_thickness(&two).unwrap();
        assert!((mean - 0.04).abs() < 1e-7, "{mean}");
        assert_eq!(mean_thickness(&discs(&[])), None);
    }
}
