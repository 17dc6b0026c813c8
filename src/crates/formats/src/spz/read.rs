//! SPZ, read.

use super::axes::SpzAxes;
use super::container::{SpzBlocks, unpack_gzip, unpack_zstd};
use super::header::{GZIP_MAGIC, SpzHeader};
use super::rows::{
    unpack_color, unpack_coordinate, unpack_harmonic, unpack_old_rotation, unpack_rotation,
    unpack_scale,
};
use crate::fault::FormatFault;
use crate::opacity::logit_of_byte;
use crate::splats::{CheckedSplats, MAX_SH_DEGREE, SplatColumns, Splats, sh_rest_count};
use splat_mesh::narrow::half;

/// Reads a whole file of version 1 to 4 into the scene's axes. Extensions are lost, and a note tells.
///
/// The file has the given axes, else those that it names, else right, up, back. A file that announces more
/// than 16 MiB and more than 16 times its size is refused.
pub fn parse_spz(bytes: &[u8], axes: Option<SpzAxes>) -> Result<CheckedSplats, FormatFault> {
    let is_old = bytes.starts_with(&GZIP_MAGIC);
    let blocks = if is_old { unpack_gzip(bytes)? } else { unpack_zstd(bytes)? };
    let columns = unpack(&blocks);
    let mut checked = Splats::from_columns(columns)?;
    let named = || {
        match blocks.records.axes {
        // The format calls 0 "unspecified".
        None | Some(0) => Ok(SpzAxes::default()),
        Some(number) => SpzAxes::of_number(number).ok_or_else(|| {
            FormatFault::Unsupported(format!(
                "names axes number {number} (SPZ_ADOBE_coordinate_system); 1 to 16 are known. Name the axes \
                 with --input-spz-axes"
            ))
        }),
    }
    };
    let axes = axes.map_or_else(named, Ok)?;
    let placed = axes.enter_scene(&mut checked.splats);
    placed.map_err(|error| FormatFault::damaged(error.to_string()))?;
    checked.notes = blocks.records.notes;
    if u32::from(blocks.header.sh_degree) > MAX_SH_DEGREE {
        checked.notes.push(format!("harmonics above degree {MAX_SH_DEGREE} are left out"));
    }
    Ok(checked)
}

fn unpack(blocks: &SpzBlocks) -> SplatColumns {
    let header = &blocks.header;
    let [positions, opacities, colors, scales, rotations, harmonics] = blocks.kinds();
    let mut columns = SplatColumns::with_capacity(header.kept_degree(), header.count as usize);
    columns.antialiasing = header.antialiasing();
    columns.means.extend(means(header, positions));
    columns.opacity_logits.extend(opacities.iter().map(|&byte| logit_of_byte(byte)));
    let triples = |bytes: &'_ [u8], value: fn(u8) -> f32| -> Vec<[f32; 3]> {
        bytes.as_chunks::<3>().0.iter().map(|triple| triple.map(value)).collect()
    };
    columns.sh_dc = triples(colors, unpack_color);
    columns.log_scales = triples(scales, unpack_scale);
    if header.version < 3 {
        let rows = rotations.as_chunks::<3>().0.iter();
        columns.rotations.extend(rows.map(|row| unpack_old_rotation(*row)));
    } else {
        let rows = rotations.as_chunks::<4>().0.iter();
        columns.rotations.extend(rows.map(|row| unpack_rotation(*row)));
    }
    let (width, kept) = (3 * header.rest_count(), 3 * sh_rest_count(header.kept_degree()));
    if width > 0 {
        for row in harmonics.chunks_exact(width) {
            columns.sh_rest.extend(triples(&row[..kept], unpack_harmonic));
        }
    }
    columns
}

fn means(header: &SpzHeader, positions: &[u8]) -> Vec<[f32; 3]> {
    if header.version == 1 {
        let rows = positions.as_chunks::<6>().0.iter();
        return rows
            .map(|row| [0, 2, 4].map(|i| half(u16::from_le_bytes([row[i], row[i + 1]]))))
            .collect();
    }
    let rows = positions.as_chunks::<9>().0.iter();
    rows.map(|row| {
        [0, 3, 6].map(|i| unpack_coordinate([row[i], row[i + 1], row[i + 2]], header.fraction_bits))
    })
    .collect()
}
