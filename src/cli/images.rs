//! A scene's images, as commands hold them within the host's memory.

use anyhow::Context;

use super::host_limit::largest_to_decode;
use crate::config::MemoryOptions;
use crate::dataset::{Dataset, ImageLoader, Residency};
use crate::memory::{Bytes, host_memory};

/// Makes a scene's images available beside what a command takes of the host's memory at its most.
pub(super) fn open_images(
    dataset: &Dataset,
    options: &MemoryOptions,
    taken: Bytes,
) -> anyhow::Result<ImageLoader> {
    let (images, keeps_all) = loader(dataset, options, taken);
    if keeps_all {
        tracing::debug!("decoding {} images", dataset.views.len());
        let failures = images
            .load_all(|_, _| {})
            .map_err(anyhow::Error::from)
            .context("no image of the scene can be decoded")?;
        tracing::debug!(
            "{} images decoded and kept, {:.2} GiB",
            dataset.views.len() - failures.len(),
            images.held().gib()
        );
    }
    Ok(images)
}

/// The scene's images within the host's memory, and whether all of them are to be kept.
fn loader(dataset: &Dataset, options: &MemoryOptions, taken: Bytes) -> (ImageLoader, bool) {
    let host = host_memory();
    let limit = host.map_or(Bytes(u64::MAX), |host| options.host_limit.on(host.total));
    let held = host.map_or(Bytes(0), |host| host.resident).max(taken);
    let left = Bytes(limit.0.saturating_sub((held + largest_to_decode(dataset)).0));
    let open = |policy| ImageLoader::within(dataset.sources.clone(), policy, limit, taken);
    if options.high_dram {
        let images = open(Residency::All);
        let needed = images.decoded_bytes();
        if needed <= left {
            return (images, true);
        }
        tracing::warn!(
            "--high-dram has no effect: {} decoded images take {:.2} GiB, and of {:.2} GiB (--host-limit {}) {:.2} are left. \
             Images are decoded on demand, into a cache of {}",
            dataset.sources.len(),
            needed.gib(),
            limit.gib(),
            options.host_limit,
            left.gib(),
            options.image_cache
        );
    }
    let images = open(Residency::OnDemand { cache: options.image_cache });
    if let Some(needed) = images.least_to_decode_ahead() {
        tracing::warn!(
            "--image-cache {} is too small to decode photographs ahead, so that training waits \
             for each: give {:.0}MiB or more",
            options.image_cache,
            needed.mib().ceil()
        );
    }
    (images, false)
}
