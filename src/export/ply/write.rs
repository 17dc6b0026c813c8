//! Writing Gaussians as a PLY file.

use std::io::{self, Write};
use std::path::Path;

use super::{AFTER_REST, BEFORE_REST, rest_name};
use crate::files::{OutputError, write_atomically};
use crate::model::{Gaussians, sh_rest_count};

/// Rows that are laid out at a time: about a megabyte.
const CHUNK_ROWS: usize = 4096;

/// Writes Gaussians as binary little-endian PLY, all columns `float`, in the order `x y z nx ny nz
/// f_dc_* f_rest_* opacity scale_* rot_*`: 62 columns at SH degree 3. Normals are zero.
///
/// Memory beyond the argument stays at about a megabyte. A failure leaves the old file.
pub fn write_ply(path: &Path, gaussians: &Gaussians) -> Result<(), OutputError> {
    check(gaussians).map_err(|source| OutputError::new(path, source))?;
    write_atomically(path, |out| {
        out.write_all(header(gaussians).as_bytes())?;
        write_rows(out, gaussians)
    })
}

/// All columns have as many rows as there are Gaussians.
fn check(gaussians: &Gaussians) -> io::Result<()> {
    let n = gaussians.len();
    let found = [
        gaussians.means.len(),
        gaussians.log_scales.len(),
        gaussians.quats.len(),
        gaussians.sh_dc.len(),
        gaussians.sh_rest.len(),
    ];
    let rest = 3 * sh_rest_count(gaussians.sh_degree.min(3));
    let expected = [3 * n, 3 * n, 4 * n, 3 * n, rest * n];
    if found == expected && gaussians.sh_degree <= 3 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{n} Gaussians of SH degree {} have columns of {found:?}", gaussians.sh_degree),
    ))
}

fn header(gaussians: &Gaussians) -> String {
    let mut text =
        format!("ply\nformat binary_little_endian 1.0\nelement vertex {}\n", gaussians.len());
    let (mean, dc) = BEFORE_REST.split_at(3);
    let rest: Vec<String> = (0..3 * sh_rest_count(gaussians.sh_degree)).map(rest_name).collect();
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
    for start in (0..n).step_by(CHUNK_ROWS) {
        chunk.clear();
        for i in start..n.min(start + CHUNK_ROWS) {
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
