//! Current Gaussians, packed for the page.

use std::convert::identity;
use std::ops::Range;
use std::path::Path;

use splat_formats::{SplatFormat, SplatsError, SpzOptions, SpzOptionsError, pack_spz};

use crate::backend::chunks;
use crate::export::{RenderMode, splats_of};
use crate::files::{OutputError, write_atomically};
use crate::layout::GAUSSIANS;
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive as _};

/// Failure to show Gaussians.
#[derive(Debug, thiserror::Error)]
pub(super) enum LiveSplatsError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Columns(#[from] SplatsError),
    #[error(transparent)]
    Pack(#[from] SpzOptionsError),
}

/// Returns the peak host memory while `count` Gaussians are packed.
pub(in crate::train) fn packing_bytes(count: usize, sh_degree: u32) -> Bytes {
    let values = u64::from(GAUSSIANS.row_values(sh_degree));
    // The rows twice, and the packed file of at most two bytes per value three times.
    Bytes(count as u64 * values * (2 * 4 + 3 * 2))
}

/// Writes Gaussians as SPZ version 3 in the scene's axes, equal to an export of the same iteration's PLY.
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

// Choice of the most visible Gaussians.

/// Largest number of Gaussians that are shown live.
pub(in crate::train) const MOST_SPLATS: usize = 1_000_000;

/// Reads at most `most` of `count` Gaussians: those with the largest product of opacity and area, in their order. The
/// host holds one chunk of rows besides the result.
pub(in crate::train) fn most_visible<E>(
    count: usize,
    most: usize,
    mut read: impl FnMut(Range<usize>) -> Result<Gaussians, E>,
) -> Result<Gaussians, E> {
    let mut picked = read(0..0)?;
    let widths: Vec<usize> = picked.groups().iter().map(|group| group.width).collect();
    for (column, width) in picked.groups_mut().into_iter().zip(&widths) {
        column.reserve_exact(width * count.min(most));
    }
    if count <= most {
        for rows in chunks(count) {
            picked.append(read(rows)?);
        }
        return Ok(picked);
    }
    let mut sizes = Vec::with_capacity(count);
    for rows in chunks(count) {
        sizes.extend(visible_sizes(&read(rows)?));
    }
    let kept = largest(&sizes, most);
    for rows in chunks(count) {
        let kept = &kept[rows.clone()];
        if kept.iter().copied().any(identity) {
            let from = read(rows)?;
            for (to, from) in picked.groups_mut().into_iter().zip(from.groups()) {
                // A column without values has width 0.
                let rows = from.values.chunks_exact(from.width.max(1)).zip(kept);
                to.extend(rows.filter(|(_, kept)| **kept).flat_map(|(row, _)| row));
            }
        }
    }
    Ok(picked)
}

/// Returns the logarithms of opacity times the two larger scales.
fn visible_sizes(gaussians: &Gaussians) -> impl Iterator<Item = f32> {
    let scales = gaussians.log_scales.as_chunks::<3>().0;
    gaussians.opacity_logits.iter().zip(scales).map(|(&logit, &[a, b, c])| {
        // ln(sigmoid(x)) without overflow.
        let log_opacity = logit.min(0.0) - (-logit.abs()).exp().ln_1p();
        log_opacity + a + b + c - a.min(b).min(c)
    })
}

/// Marks the largest `most` values. Among equals the first win.
fn largest(sizes: &[f32], most: usize) -> Vec<bool> {
    let Some(last) = most.checked_sub(1).filter(|&last| last < sizes.len()) else {
        return vec![most > 0; sizes.len()];
    };
    // NaN ranks lowest.
    let ranked = |size: f32| if size.is_nan() { f32::NEG_INFINITY } else { size };
    let mut sorted: Vec<f32> = sizes.iter().copied().map(ranked).collect();
    let (larger, &mut least, _) = sorted.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
    let mut equals = most - larger.iter().filter(|&&size| size > least).count();
    sizes
        .iter()
        .map(|&size| match ranked(size) {
            size if size > least => true,
            size if size == least && equals > 0 => {
                equals -= 1;
                true
            }
            _ => false,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::fs;

    use rstest::rstest;
    use splat_formats::{parse_spz, write};

    use super::*;
    use crate::backend::CHUNK_ROWS;
    use crate::export::write_ply_chunks;

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
    fn live_splats_equal_the_export_of_the_ply(
        #[values(RenderMode::Dilated, RenderMode::Mip, RenderMode::Surfels)] mode: RenderMode,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let [ply, exported, live] =
            ["a.ply", "exported.spz", "live.spz"].map(|name| folder.path().join(name));
        let all = some(300);
        let rows = [Ok::<_, OutputError>(&all)];
        write_ply_chunks::<Gaussians, _, _>(&ply, mode, 1, 300, rows).unwrap();
        // This is how `splat export` does it.
        let mut splats = splat_formats::read(&ply).unwrap().splats;
        let format = SplatFormat::Spz(SpzOptions::for_page());
        splats.flatten_for(&format);
        write(&exported, &splats, &format).unwrap();
        write_splats(&live, all, mode).unwrap();
        // The two are packed at different speeds.
        let held = |path| parse_spz(&fs::read(path).unwrap(), None).unwrap().splats;
        assert!(held(live) == held(exported));
    }

    /// Returns rows of more than one chunk. Each row can be recognised by its position.
    fn rows(sh_degree: u32, count: usize) -> Gaussians {
        let mut all = Gaussians::zeros(sh_degree, count);
        for (row, mean) in all.means.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            mean[0] = f32::from(u16::try_from(row % 60_000).unwrap());
        }
        for (at, value) in all.sh_rest.iter_mut().enumerate() {
            *value = f32::from(u16::try_from(at % 50_021).unwrap());
        }
        all
    }

    fn picked(all: &Gaussians, most: usize) -> Gaussians {
        most_visible(all.len(), most, |rows| Ok::<_, Infallible>(all.rows(rows))).unwrap()
    }

    #[test]
    fn a_small_model_is_shown_completely() {
        let all = rows(1, CHUNK_ROWS + 5);
        assert!(picked(&all, all.len()) == all);
        assert!(picked(&all.rows(0..0), 3).is_empty());
    }

    #[test]
    fn the_most_visible_gaussians_stay_in_order() {
        let count = CHUNK_ROWS + 300;
        let mut all = rows(1, count);
        // Opaque and large; large along two axes; even larger, but along one axis only.
        let wanted = [3, 70, CHUNK_ROWS + 1, CHUNK_ROWS + 299];
        for row in wanted {
            all.log_scales[3 * row..][..3].copy_from_slice(&[2.0, -9.0, 2.0]);
            all.opacity_logits[row] = 4.0;
        }
        all.log_scales[3 * 100..][..3].copy_from_slice(&[3.0, 0.0, 0.0]);
        all.log_scales[3 * 200..][..3].copy_from_slice(&[2.0, 2.0, 2.0]);
        // Nearly transparent, and NaN.
        all.opacity_logits[200] = -9.0;
        all.opacity_logits[300] = f32::NAN;
        let expected = wanted.map(|row| all.rows(row..row + 1)).into_iter().reduce(|mut a, b| {
            a.append(b);
            a
        });
        assert_eq!(picked(&all, 4), expected.unwrap());
        let with_next = picked(&all, 5);
        assert_eq!(with_next.means[3 * 2], all.means[3 * 100]);
    }

    #[test]
    fn ties_keep_the_requested_number() {
        let sizes = [1.0, 2.0, 1.0, f32::NAN, 1.0];
        assert_eq!(largest(&sizes, 3), [true, true, true, false, false]);
        assert_eq!(largest(&sizes, 0), [false; 5]);
        assert_eq!(largest(&sizes, 5), [true; 5]);
        assert_eq!(largest(&sizes, 9), [true; 5]);
    }

    #[test]
    fn sizes_are_finite_for_any_opacity() {
        let mut all = Gaussians::zeros(0, 3);
        all.opacity_logits = vec![200.0, -200.0, 0.0];
        all.log_scales = vec![1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0];
        let sizes: Vec<f32> = visible_sizes(&all).collect();
        // ln(1), ln(e^-200), ln(1/2), each plus the two larger scales.
        let expected = [5.0, -195.0, 0.5_f32.ln()];
        for (found, expected) in sizes.iter().zip(expected) {
            // Rounding of sums of a few values of up to 200 in single precision.
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}
