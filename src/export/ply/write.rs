//! Writing Gaussians as a PLY file.

use std::borrow::Borrow;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{AFTER_REST, BEFORE_REST, rest_name};
use crate::files::{OutputError, replace_file};
use crate::model::{Gaussians, sh_rest_count};

/// Rows that are laid out at a time: about a megabyte.
const ROWS_AT_ONCE: usize = 4096;

/// Bytes that reach the file at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// How Gaussians are meant to be drawn, which viewers of Mip-Splatting's models look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenderMode {
    /// Splats widened by 0.3 px².
    #[default]
    Dilated,
    /// With the screen filter of Mip-Splatting.
    Mip,
}

/// Writes Gaussians as binary little-endian PLY, all columns `float`, in the order `x y z nx ny nz
/// f_dc_* f_rest_* opacity scale_* rot_*`: 62 columns at SH degree 3. Normals are zero.
///
/// Memory beyond the argument stays at about two megabytes. A failure leaves the old file.
pub fn write_ply(path: &Path, gaussians: &Gaussians) -> Result<(), OutputError> {
    let shape = (gaussians.sh_degree, gaussians.len());
    write_ply_chunks(path, RenderMode::default(), shape, [Ok::<_, OutputError>(gaussians)])
}

/// The same of Gaussians, of an SH degree and so many in all, that come in chunks: no more than one
/// of them is held at a time.
pub fn write_ply_chunks<G: Borrow<Gaussians>, E: From<OutputError>>(
    path: &Path,
    mode: RenderMode,
    (sh_degree, count): (u32, usize),
    chunks: impl IntoIterator<Item = Result<G, E>>,
) -> Result<(), E> {
    let fail = |source| OutputError::new(path, source);
    replace_file(path, |file| {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        out.write_all(header(mode, sh_degree, count).as_bytes()).map_err(fail)?;
        let mut written = 0;
        for chunk in chunks {
            let chunk = chunk?;
            let rows: &Gaussians = chunk.borrow();
            check(rows, sh_degree).map_err(fail)?;
            write_rows(&mut out, rows).map_err(fail)?;
            written += rows.len();
        }
        if written != count {
            return Err(fail(invalid(format!("{written} of {count} Gaussians came"))).into());
        }
        out.flush().map_err(fail)?;
        Ok(())
    })
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// All columns have as many rows as there are Gaussians.
fn check(gaussians: &Gaussians, sh_degree: u32) -> io::Result<()> {
    let (n, found_degree) = (gaussians.len(), gaussians.sh_degree);
    if found_degree != sh_degree {
        return Err(invalid(format!(
            "{n} Gaussians of SH degree {found_degree} among those of degree {sh_degree}"
        )));
    }
    let found = [
        gaussians.means.len(),
        gaussians.log_scales.len(),
        gaussians.quats.len(),
        gaussians.sh_dc.len(),
        gaussians.sh_rest.len(),
    ];
    let rest = 3 * sh_rest_count(sh_degree.min(3));
    if found == [3 * n, 3 * n, 4 * n, 3 * n, rest * n] && sh_degree <= 3 {
        return Ok(());
    }
    Err(invalid(format!("{n} Gaussians of SH degree {sh_degree} have columns of {found:?}")))
}

fn header(mode: RenderMode, sh_degree: u32, count: usize) -> String {
    let mut text = format!("ply\nformat binary_little_endian 1.0\nelement vertex {count}\n");
    if mode == RenderMode::Mip {
        text.push_str("comment SplatRenderMode: mip\n");
    }
    let (mean, dc) = BEFORE_REST.split_at(3);
    // A degree above 3 is refused with the first Gaussians.
    let rest: Vec<String> = (0..3 * sh_rest_count(sh_degree.min(3))).map(rest_name).collect();
    let names = mean.iter().chain(&["nx", "ny", "nz"]).chain(dc).copied();
    let names = names.chain(rest.iter().map(String::as_str)).chain(AFTER_REST);
    for name in names {
        text.push_str("property float ");
        text.push_str(name);
        text.push('\n');
    }
    text.push_str("end_header\n");
    text
}

fn write_rows(out: &mut dyn Write, gaussians: &Gaussians) -> io::Result<()> {
    let coefficients = sh_rest_count(gaussians.sh_degree);
    let n = gaussians.len();
    let mut chunk = Vec::new();
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        chunk.clear();
        for i in start..n.min(start + ROWS_AT_ONCE) {
            let mut put = |value: f32| chunk.extend_from_slice(&value.to_le_bytes());
            gaussians.means[3 * i..3 * i + 3].iter().copied().for_each(&mut put);
            [0.0; 3].into_iter().for_each(&mut put);
            gaussians.sh_dc[3 * i..3 * i + 3].iter().copied().for_each(&mut put);
            let rest = &gaussians.sh_rest[3 * coefficients * i..3 * coefficients * (i + 1)];
            for channel in 0..3 {
                rest.iter().skip(channel).step_by(3).copied().for_each(&mut put);
            }
            put(gaussians.opacity_logits[i]);
            gaussians.log_scales[3 * i..3 * i + 3].iter().copied().for_each(&mut put);
            gaussians.quats[4 * i..4 * i + 4].iter().copied().for_each(&mut put);
        }
        out.write_all(&chunk)?;
    }
    Ok(())
}
