//! Gaussians as they are now, packed for the page.

use std::path::Path;

use splat_formats::{SplatFormat, SplatsError, SpzOptions, SpzOptionsError, pack_spz};

use crate::export::{RenderMode, splats_of};
use crate::files::{OutputError, write_atomically};
use crate::layout::GAUSSIANS;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Why Gaussians are not shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum LiveSplatsError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Columns(#[from] SplatsError),
    #[error(transparent)]
    Pack(#[from] SpzOptionsError),
}

/// What the host holds at most while so many Gaussians are packed.
pub(in crate::train) fn packing_bytes(count: usize, sh_degree: u32) -> Bytes {
    let values = u64::from(GAUSSIANS.row_values(sh_degree));
    // The rows twice; packed at most two bytes a value, in parts and put together twice.
    Bytes(count as u64 * values * (2 * 4 + 3 * 2))
}

/// Writes Gaussians as they are exported from the PLY of the same iteration: as SPZ, version 3, in the axes of the
/// scene, which the file names.
pub(super) fn write_splats(
    path: &Path,
    gaussians: Gaussians,
    mode: RenderMode,
) -> Result<(), LiveSplatsError> {
    let options = SpzOptions::for_page();
    let mut splats = splats_of(&gaussians, mode)?.splats;
    drop(gaussians);
    splats.flatten_for(&SplatFormat::Spz(options));
    let packed = pack_spz(&splats, &options)?;
    Ok(write_atomically(path, |out| out.write_all(&packed))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;
    use splat_formats::{parse_spz, write};

    use super::*;
    use crate::export::write_ply_chunks;
    use crate::model::Primitive as _;

    fn some(count: usize) -> Gaussians {
        let mut all = Gaussians::zeros(1, count);
        let mut value = 0.0;
        for values in all.groups_mut() {
            for it in values {
                value += 0.37;
                *it = value % 3.0 - 1.5;
            }
        }
        all
    }

    #[rstest]
    fn they_are_what_the_ply_is_exported_as(
        #[values(RenderMode::Dilated, RenderMode::Mip, RenderMode::Surfels)] mode: RenderMode,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let [ply, exported, live] =
            ["a.ply", "exported.spz", "live.spz"].map(|name| folder.path().join(name));
        let all = some(300);
        let rows = [Ok::<_, OutputError>(&all)];
        write_ply_chunks::<Gaussians, _, _>(&ply, mode, 1, 300, rows).unwrap();
        // As `splat export` does.
        let mut splats = splat_formats::read(&ply).unwrap().splats;
        let format = SplatFormat::Spz(SpzOptions::for_page());
        splats.flatten_for(&format);
        write(&exported, &splats, &format).unwrap();
        write_splats(&live, all, mode).unwrap();
        // One is packed more quickly than the other.
        let held = |path| parse_spz(&fs::read(path).unwrap(), None).unwrap().splats;
        assert!(held(live) == held(exported));
    }
}
