//! Whether a run can keep `--host-limit`.

use super::exit::DoesNotFit;
use crate::config::MemoryOptions;
use crate::dataset::{Dataset, ImageLoader, bytes_to_decode};
use crate::memory::{Bytes, host_memory, release_freed_memory};

/// Bytes that the most demanding photograph takes while it is decoded.
pub(super) fn largest_to_decode(dataset: &Dataset) -> Bytes {
    dataset.sources.iter().map(bytes_to_decode).max().unwrap_or_default()
}

/// Refuses a limit that the least of a run exceeds: the program as it is now, its `model`, and the
/// largest photograph while it is decoded. All else gives way to the limit.
pub(super) fn refuse_host_limit(
    options: &MemoryOptions,
    dataset: &Dataset,
    images: &ImageLoader,
    model: Bytes,
) -> Result<(), DoesNotFit> {
    // What was freed since the start is nothing that the program takes.
    release_freed_memory();
    let Some(host) = host_memory() else { return Ok(()) };
    let limit = options.host_limit.on(host.total);
    let program = Bytes(host.resident.0.saturating_sub(images.held().0));
    let photograph = largest_to_decode(dataset);
    let least = program + model + photograph;
    if least <= limit {
        return Ok(());
    }
    Err(DoesNotFit(format!(
        "--host-limit {} ({:.0} MiB) cannot be kept: the program takes {:.0} MiB, the Gaussians at the \
         start {:.0} MiB, and the largest photograph {:.0} MiB while it is decoded. Give \
         {:.0}MiB or more{}",
        options.host_limit,
        limit.mib(),
        program.mib(),
        model.mib(),
        photograph.mib(),
        (least.0 + least.0 / 8) as f64 / f64::from(1 << 20),
        if photograph > program + model { ", or smaller photographs" } else { "" },
    )))
}
