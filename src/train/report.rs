//! Events that have to be computed: memory, distributions, pictures.

use std::sync::Arc;

use super::eval::{EvalRequest, EvaluatedView};
use super::event::{
    Distributions, Event, LARGE, MemoryReport, PhasePeaks, Pictures, Tensors, Vram,
};
use super::pictures::{density_map, error_map, photo_picture, render_picture};
use super::unexplained_growth::UnexplainedGrowth;
use crate::backend::{MemoryEntry, MemoryKind};
use crate::layout::{self, Purpose};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::sigmoid;
use crate::memory::{Bytes, Limit, host_memory};
use crate::model::Gaussians;

/// Iterations between two memory reports.
pub(super) const MEMORY_INTERVAL: u32 = 100;

/// Iterations between two reports of distributions.
pub(super) const DISTRIBUTION_INTERVAL: u32 = 1000;

/// Gaussians that enter a distribution at most.
const SAMPLES: usize = 10_000;

/// What the reports about memory are made of.
pub(super) struct MemoryInputs<'a> {
    /// Finished iterations.
    pub(super) iteration: u32,
    /// What the run knows of its own: the model, the last iteration, the host's photographs.
    pub(super) tensors: Tensors,
    /// What the device tells.
    pub(super) device: &'a [MemoryEntry],
    /// The most of the arena that a recent iteration used.
    pub(super) scratch_needed: Bytes,
    /// Copies of the model on their way to files.
    pub(super) copies: Bytes,
    /// What may be taken of the device's memory.
    pub(super) budget: Option<Bytes>,
    /// What may be used of the host's.
    pub(super) host_limit: Limit,
    /// The most so far.
    pub(super) peaks: PhasePeaks,
}

/// What is held now.
pub(super) fn memory(inputs: &MemoryInputs<'_>, creep: &mut UnexplainedGrowth) -> Event {
    let host = host_memory();
    let photographs = inputs.device.iter().filter(|entry| entry.kind == MemoryKind::Photographs);
    let photographs: Bytes = photographs.map(|entry| entry.bytes).sum();
    let mut tensors = inputs.tensors;
    tensors.images += photographs;
    let vram = (!inputs.device.is_empty()).then(|| {
        let on_device = || inputs.device.iter().filter(|entry| entry.kind != MemoryKind::Pinned);
        let allocated: Bytes = on_device().map(|entry| entry.bytes).sum();
        let taken = |kind| {
            let entries = inputs.device.iter().filter(move |entry| entry.kind == kind);
            entries.map(|entry| entry.mapped).sum()
        };
        // The governor decides how many photographs the device holds.
        let held = Bytes(allocated.0.saturating_sub(photographs.0));
        Vram {
            allocated,
            reserved: on_device().map(|entry| entry.mapped).sum(),
            context: taken(MemoryKind::Context),
            photographs: taken(MemoryKind::Photographs),
            scratch: taken(MemoryKind::Arena),
            slack: slack(inputs.device, inputs.scratch_needed),
            large_count: on_device().filter(|entry| entry.bytes >= LARGE).count(),
            creep: creep.take(inputs.iteration, held),
            budget: inputs.budget,
        }
    });
    let host_creep = match (vram, host) {
        (None, Some(host)) => {
            let explained = tensors.images.0 + inputs.copies.0;
            let held = Bytes(host.resident.0.saturating_sub(explained));
            creep.take(inputs.iteration, held)
        }
        _ => None,
    };
    Event::Memory(MemoryReport {
        iteration: inputs.iteration,
        tensors,
        vram,
        offloaded: offloaded(inputs.device),
        host_creep,
        host_resident: host.map(|host| host.resident),
        host_total: host.map(|host| host.total),
        host_limit: host.map(|host| inputs.host_limit.on(host.total)),
        peaks: inputs.peaks,
    })
}

/// Of the host's memory, what tables of the model have taken.
pub(super) fn offloaded(device: &[MemoryEntry]) -> Option<Bytes> {
    let is_of_model = |entry: &&MemoryEntry| {
        let purpose = layout::named(entry.label).map(|slot| slot.purpose);
        entry.kind == MemoryKind::Pinned
            && matches!(purpose, Some(Purpose::Parameters | Purpose::Moments))
    };
    let taken: Bytes = device.iter().filter(is_of_model).map(|entry| entry.mapped).sum();
    (taken > Bytes(0)).then_some(taken)
}

/// Memory that is taken from the device and serves nothing.
///
/// Of what lives longer than an iteration that is what lies behind its values: spare room, and the
/// rest of the last granule. Of the arena, empty between iterations, it is what an iteration leaves
/// unused.
fn slack(device: &[MemoryEntry], scratch_needed: Bytes) -> Bytes {
    let useful = |entry: &MemoryEntry| match entry.kind {
        MemoryKind::Context | MemoryKind::Photographs | MemoryKind::Region => entry.bytes,
        MemoryKind::Arena => scratch_needed,
        MemoryKind::Block | MemoryKind::Pinned => entry.mapped,
    };
    device.iter().map(|entry| Bytes(entry.mapped.0.saturating_sub(useful(entry).0))).sum()
}

/// Gaussians that enter a distribution: all, or a random sample where there are more than 10,000.
pub(super) fn sample(count: usize, seed: u64, iteration: u32) -> Vec<usize> {
    if count <= SAMPLES {
        return (0..count).collect();
    }
    let stream = RandomStream::new(seed, u64::from(iteration), RandomUse::Sample);
    (0..SAMPLES).map(|i| stream.below(i as u64, count)).collect()
}

/// Distributions over a sample of `count` Gaussians.
pub(super) fn distributions(sample: &Gaussians, count: usize, iteration: u32) -> Event {
    let length =
        |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
    let opacity: Vec<f64> =
        sample.opacity_logits.iter().map(|&logit| sigmoid(f64::from(logit))).collect();
    // Three scales a Gaussian: of a full sample, those of every third.
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

/// An evaluated view of a scene of this extent as pictures.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let inputs = MemoryInputs {
            iteration,
            tensors: Tensors { images: Bytes(5), ..Tensors::default() },
            device,
            scratch_needed: Bytes(200),
            copies: Bytes(0),
            budget: Some(Bytes(2000)),
            host_limit: Limit::Percent(60.0),
            peaks: PhasePeaks::default(),
        };
        let Event::Memory(report) = memory(&inputs, creep) else { panic!("another event") };
        report
    }

    #[test]
    fn page_locked_memory_is_none_of_the_device() {
        let report = report(100, &device(), &mut UnexplainedGrowth::from(0));
        let vram = report.vram.unwrap();
        assert_eq!((vram.allocated, vram.reserved), (Bytes(650), Bytes(948)));
        let parts = [vram.context, vram.photographs, vram.scratch];
        assert_eq!((parts, vram.large_count), ([500, 64, 256].map(Bytes), 0));
        assert_eq!((report.tensors.images, vram.budget), (Bytes(65), Some(Bytes(2000))));
        assert_eq!(report.offloaded, None);
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
    fn slack_is_what_neither_values_nor_an_iteration_need() {
        let vram = report(100, &device(), &mut UnexplainedGrowth::from(0)).vram.unwrap();
        assert_eq!(vram.slack, Bytes(38 + 4 + 56));
        assert!((vram.fragmentation_percent() - 100.0 * 98.0 / 948.0).abs() < 1e-9);
        assert_eq!(Vram::default().fragmentation_percent(), 0.0);
    }

    #[test]
    fn photographs_that_come_and_go_are_no_creep() {
        let mut creep = UnexplainedGrowth::from(0);
        let mut device = device();
        assert_eq!(report(100, &device, &mut creep).vram.unwrap().creep, Some(Bytes(0)));
        (device[2].bytes, device[2].mapped) = (Bytes(6000), Bytes(6400));
        assert_eq!(report(200, &device, &mut creep).vram.unwrap().creep, Some(Bytes(0)));
        device[1].bytes = Bytes(97);
        assert_eq!(report(300, &device, &mut creep).vram.unwrap().creep, Some(Bytes(7)));
    }

    #[test]
    fn a_device_that_shares_the_hosts_memory_has_no_video_memory() {
        let mut creep = UnexplainedGrowth::from(100);
        let first = report(100, &[], &mut creep);
        assert_eq!((first.vram, first.tensors.images), (None, Bytes(5)));
        // Growth before the baseline is that of the Gaussians.
        assert_eq!(first.host_creep, None);
        let second = report(200, &[], &mut creep);
        assert_eq!(second.host_creep, second.host_resident.map(|_| Bytes(0)));
        assert_eq!(report(300, &device(), &mut creep).host_creep, None);
    }
}
