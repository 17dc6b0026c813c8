//! Events that have to be computed: memory, distributions, pictures.

use std::sync::Arc;

use super::eval::{EvalRequest, EvaluatedView};
use super::event::{Distributions, Event, MemoryReport, Pictures, Tensors, Vram};
use super::pictures::{density_map, error_map, photo_picture, render_picture};
use crate::backend::{MemoryEntry, MemoryKind};
use crate::math::random::{Purpose, Stream};
use crate::math::sigmoid;
use crate::memory::host_memory;
use crate::model::Gaussians;

/// Iterations between two memory reports.
pub(super) const MEMORY_INTERVAL: u32 = 100;

/// Iterations between two reports of distributions.
pub(super) const DISTRIBUTION_INTERVAL: u32 = 1000;

/// Views of an evaluation that are shown as pictures.
pub(super) const PICTURED_VIEWS: usize = 5;

/// Gaussians that enter a distribution at most.
const SAMPLES: usize = 10_000;

/// What is held now: `tensors`, with the host's photographs, and what the device tells.
pub(super) fn memory(iteration: u32, mut tensors: Tensors, device: &[MemoryEntry]) -> Event {
    let host = host_memory();
    let on_device = || device.iter().filter(|entry| entry.kind != MemoryKind::Pinned);
    let photographs = on_device().filter(|entry| entry.kind == MemoryKind::Photographs);
    tensors.images += photographs.map(|entry| entry.bytes).sum();
    let vram = Vram {
        allocated: on_device().map(|entry| entry.bytes).sum(),
        reserved: on_device().map(|entry| entry.mapped).sum(),
    };
    Event::Memory(MemoryReport {
        iteration,
        tensors,
        vram: (!device.is_empty()).then_some(vram),
        host_resident: host.map(|host| host.resident),
        host_total: host.map(|host| host.total),
    })
}

/// Gaussians that enter a distribution: all, or a random sample where there are more than 10,000.
pub(super) fn sample(count: usize, seed: u64, iteration: u32) -> Vec<usize> {
    if count <= SAMPLES {
        return (0..count).collect();
    }
    let stream = Stream::new(seed, u64::from(iteration), Purpose::Sample);
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

/// An evaluated view as pictures.
pub(super) fn pictures(request: &EvalRequest, view: &EvaluatedView<'_>) -> Event {
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
    })
}
