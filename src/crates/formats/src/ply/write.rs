//! The plain layout, written.

use std::io::{self, Write};

use splat_mesh::file::ply::{NewPlyHeader, Scalar};

use super::header::{MIP_COMMENT, SURFELS_COMMENT};
use crate::splats::{Antialiasing, SplatPrimitive, Splats, sh_rest_count};

/// Rows that are laid out at a time: about a megabyte.
const ROWS_AT_ONCE: usize = 4096;

/// Writes the columns of 3D Gaussian splatting as binary little-endian PLY, all `float`: `x y z nx
/// ny nz f_dc_* f_rest_* opacity scale_* rot_*`, 62 at SH degree 3. Normals are zero. Line 3 is
/// always `element vertex`, which some viewers ask for. Nothing is rounded. Surfels have no `scale_2`, as
/// 2D Gaussian splatting writes them.
///
/// Memory beyond the argument stays at about a megabyte.
pub fn write_ply(splats: &Splats, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&header(splats))?;
    let columns = splats.columns();
    let scales = scales_of(splats);
    let mut rows = Vec::new();
    for start in (0..splats.len()).step_by(ROWS_AT_ONCE) {
        rows.clear();
        for row in start..splats.len().min(start + ROWS_AT_ONCE) {
            let rest = columns.rest(row);
            rows.extend(columns.means[row]);
            rows.extend([0.0; 3]);
            rows.extend(columns.sh_dc[row]);
            (0..3).for_each(|channel| rows.extend(rest.iter().map(|c| c[channel])));
            rows.push(columns.opacity_logits[row]);
            rows.extend(&columns.log_scales[row][..scales]);
            rows.extend(columns.rotations[row]);
        }
        let little: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
        out.write_all(&little)?;
    }
    Ok(())
}

/// Scales of a row.
fn scales_of(splats: &Splats) -> usize {
    match splats.columns().primitive {
        SplatPrimitive::Gaussians => 3,
        SplatPrimitive::Surfels => 2,
    }
}

fn header(splats: &Splats) -> Vec<u8> {
    let columns = splats.columns();
    let mut header = NewPlyHeader::default();
    header.element("vertex", splats.len());
    match (columns.primitive, columns.antialiasing) {
        (SplatPrimitive::Surfels, _) => _ = header.comment(SURFELS_COMMENT),
        (SplatPrimitive::Gaussians, Antialiasing::On) => _ = header.comment(MIP_COMMENT),
        (SplatPrimitive::Gaussians, Antialiasing::Off) => {}
    }
    let numbered =
        |prefix: &'static str, count: usize| (0..count).map(move |i| format!("{prefix}{i}"));
    header
        .properties(Scalar::F32, ["x", "y", "z", "nx", "ny", "nz"])
        .properties(Scalar::F32, numbered("f_dc_", 3))
        .properties(Scalar::F32, numbered("f_rest_", 3 * sh_rest_count(splats.sh_degree())))
        .properties(Scalar::F32, ["opacity"])
        .properties(Scalar::F32, numbered("scale_", scales_of(splats)))
        .properties(Scalar::F32, numbered("rot_", 4))
        .end()
}
