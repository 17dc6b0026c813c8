//! The packed layout, written.

use std::io::{self, Write};

use splat_mesh::file::ply::{NewPlyHeader, Scalar};

use super::header::MIP_COMMENT;
use super::packed::{
    CHUNK_ROWS, MOST_LOG_SCALE, PackedRanges, PackedSplat, RANGE_NAMES, Range3, WORD_NAMES, color,
    cut_scale, pack_harmonic, unpack_harmonic,
};
use crate::morton::morton_order;
use crate::splats::{Antialiasing, SplatColumns, Splats, sh_rest_count};
use crate::worst::WorstErrors;

/// Writes the packed layout: 16 bytes a Gaussian and one byte a value above SH degree 0, in an
/// order that puts neighbours together.
///
/// Logarithms of scales beyond ±20 and coefficients beyond ±4 are cut. Returns how far from the
/// argument the file is.
pub fn write_packed_ply(splats: &Splats, out: &mut dyn Write) -> io::Result<WorstErrors> {
    let columns = splats.columns();
    let order = morton_order(&columns.means);
    let mut worst = WorstErrors::default();
    let (mut ranges, mut words) = (Vec::new(), Vec::with_capacity(16 * order.len()));
    for rows in order.chunks(CHUNK_ROWS) {
        let chunk = ranges_of(columns, rows);
        for range in [chunk.means, chunk.log_scales, chunk.colors] {
            let values = range.low.into_iter().chain(range.high);
            ranges.extend(values.flat_map(f32::to_le_bytes));
        }
        let mut stored = SplatColumns::with_capacity(columns.sh_degree, rows.len());
        for &row in rows {
            let row = row as usize;
            let packed = chunk.pack(&PackedSplat {
                mean: columns.means[row],
                log_scale: columns.log_scales[row],
                rotation: columns.rotations[row],
                sh_dc: columns.sh_dc[row],
                opacity_logit: columns.opacity_logits[row],
            });
            words.extend(packed.into_iter().flat_map(u32::to_le_bytes));
            let back = chunk.unpack(packed);
            stored.means.push(back.mean);
            stored.log_scales.push(back.log_scale);
            stored.rotations.push(back.rotation);
            stored.sh_dc.push(back.sh_dc);
            stored.opacity_logits.push(back.opacity_logit);
            let rest = columns.rest(row).iter();
            stored.sh_rest.extend(rest.map(|c| c.map(|c| unpack_harmonic(pack_harmonic(c)))));
        }
        let stored = Splats::from_columns(stored).map_err(io::Error::other)?.splats;
        worst = worst.or(WorstErrors::between_within(
            &splats.rows(rows),
            &stored,
            &(-MOST_LOG_SCALE..=MOST_LOG_SCALE),
        ));
    }
    out.write_all(&header(splats))?;
    out.write_all(&ranges)?;
    out.write_all(&words)?;
    write_harmonics(columns, &order, out)?;
    Ok(worst)
}

fn ranges_of(columns: &SplatColumns, rows: &[u32]) -> PackedRanges {
    let rows = || rows.iter().map(|&row| row as usize);
    PackedRanges {
        means: Range3::of(rows().map(|row| columns.means[row])),
        log_scales: Range3::of(rows().map(|row| cut_scale(columns.log_scales[row]))),
        colors: Range3::of(rows().map(|row| color(columns.sh_dc[row]))),
    }
}

/// All of red, then of green, then of blue, row by row.
fn write_harmonics(columns: &SplatColumns, order: &[u32], out: &mut dyn Write) -> io::Result<()> {
    let mut bytes = Vec::new();
    for rows in order.chunks(CHUNK_ROWS) {
        bytes.clear();
        for &row in rows {
            let rest = columns.rest(row as usize);
            for channel in 0..3 {
                bytes.extend(rest.iter().map(|c| pack_harmonic(c[channel])));
            }
        }
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn header(splats: &Splats) -> Vec<u8> {
    let count = splats.len();
    let mut header = NewPlyHeader::default();
    if splats.columns().antialiasing == Antialiasing::On {
        header.comment(MIP_COMMENT);
    }
    header.element("chunk", count.div_ceil(CHUNK_ROWS)).properties(Scalar::F32, RANGE_NAMES);
    header.element("vertex", count).properties(Scalar::U32, WORD_NAMES);
    let harmonics = 3 * sh_rest_count(splats.sh_degree());
    if harmonics > 0 {
        let names = (0..harmonics).map(|i| format!("f_rest_{i}"));
        header.element("sh", count).properties(Scalar::U8, names);
    }
    header.end()
}
