//! The packed layout, read.

use std::io::BufRead;

use splat_mesh::file::ply::{PlyElement, PlyHeader, Scalar};

use super::header::{check_length, column, element, is_antialiased};
use super::packed::{CHUNK_ROWS, PackedRanges, RANGE_NAMES, Range3, WORD_NAMES, unpack_harmonic};
use super::rows::{read_rows, skip_rows};
use crate::fault::FormatFault;
use crate::splats::{Antialiasing, CheckedSplats, SplatColumns, Splats, sh_rest_count};

/// Reads the tables; `input` stands after the header.
pub(super) fn read_packed(
    head: &PlyHeader,
    input: &mut impl BufRead,
    file_bytes: u64,
) -> Result<CheckedSplats, FormatFault> {
    let tables = PackedTables::of(head)?;
    check_length(head, head.elements.len(), file_bytes)?;
    let mut columns = SplatColumns::with_capacity(tables.sh_degree, tables.count);
    let mut ranges = Vec::new();
    for element in &head.elements {
        match element.name.as_str() {
            "chunk" => {
                let mut rows = vec![0; element.row_bytes * tables.count.div_ceil(CHUNK_ROWS)];
                read_rows(element, head.encoding, input, &mut rows)?;
                ranges = tables.ranges(&rows)?;
            }
            "vertex" => {
                let mut rows = vec![0; element.row_bytes * CHUNK_ROWS];
                for (first, range) in (0..tables.count).step_by(CHUNK_ROWS).zip(&ranges) {
                    let count = (tables.count - first).min(CHUNK_ROWS);
                    let chunk = &mut rows[..count * element.row_bytes];
                    read_rows(element, head.encoding, input, chunk)?;
                    tables.take_rows(chunk, range, &mut columns)?;
                }
            }
            "sh" => {
                let mut rows = vec![0; element.row_bytes * CHUNK_ROWS];
                let mut left = tables.count;
                while left > 0 {
                    let count = left.min(CHUNK_ROWS);
                    let chunk = &mut rows[..count * element.row_bytes];
                    read_rows(element, head.encoding, input, chunk)?;
                    for row in chunk.chunks_exact(element.row_bytes) {
                        let k = sh_rest_count(tables.sh_degree);
                        let channel = |c: usize, i: usize| unpack_harmonic(row[c * k + i]);
                        let rest = (0..k).map(|i| [0, 1, 2].map(|c| channel(c, i)));
                        columns.sh_rest.extend(rest);
                    }
                    left -= count;
                }
            }
            _ => {
                skip_rows(element, head.encoding, input)?;
            }
        }
    }
    if is_antialiased(head) {
        columns.antialiasing = Antialiasing::On;
    }
    Ok(Splats::from_columns(columns)?)
}

/// Where the values of the tables are.
struct PackedTables {
    count: usize,
    sh_degree: u32,
    range_bytes: usize,
    /// Offsets of the ranges; files of 2023 have none for colours.
    ranges: Vec<usize>,
    row_bytes: usize,
    words: Vec<usize>,
}

impl PackedTables {
    fn of(head: &PlyHeader) -> Result<Self, FormatFault> {
        let ((chunk_index, chunk), (index, vertex)) =
            (element(head, "chunk")?, element(head, "vertex")?);
        if chunk_index > index {
            return Err(FormatFault::damaged("has its chunks behind its Gaussians"));
        }
        let count = vertex.rows;
        if chunk.rows != count.div_ceil(CHUNK_ROWS as u64) {
            return Err(FormatFault::damaged(format!(
                "has {} chunks for {count} Gaussians; one holds {CHUNK_ROWS}",
                chunk.rows
            )));
        }
        let has_colors = chunk.has("min_r");
        let names = &RANGE_NAMES[..if has_colors { 18 } else { 12 }];
        let sh_degree = harmonics(head, count)?;
        Ok(Self {
            count: usize::try_from(count).map_err(|_too_many| {
                FormatFault::damaged(format!("announces {count} Gaussians"))
            })?,
            sh_degree,
            range_bytes: chunk.row_bytes,
            ranges: offsets(chunk, names, Scalar::F32)?,
            row_bytes: vertex.row_bytes,
            words: offsets(vertex, &WORD_NAMES, Scalar::U32)?,
        })
    }

    fn ranges(&self, bytes: &[u8]) -> Result<Vec<PackedRanges>, FormatFault> {
        let rows = bytes.chunks_exact(self.range_bytes.max(1));
        let ranges = rows.map(|row| {
            let triple = |first: usize| -> Option<[f32; 3]> {
                let at = self.ranges.get(first..first + 3)?;
                let mut values = [0.0; 3];
                for (value, &offset) in values.iter_mut().zip(at) {
                    *value = f32::from_le_bytes(*row.get(offset..)?.first_chunk()?);
                }
                Some(values)
            };
            let range =
                |first: usize| Some(Range3 { low: triple(first)?, high: triple(first + 3)? });
            Some(PackedRanges {
                means: range(0)?,
                log_scales: range(6)?,
                colors: range(12).unwrap_or(Range3 { low: [0.0; 3], high: [1.0; 3] }),
            })
        });
        ranges.collect::<Option<_>>().ok_or_else(|| FormatFault::damaged("has chunks cut short"))
    }

    fn take_rows(
        &self,
        rows: &[u8],
        ranges: &PackedRanges,
        to: &mut SplatColumns,
    ) -> Result<(), FormatFault> {
        for row in rows.chunks_exact(self.row_bytes) {
            let mut words = [0; 4];
            for (word, &offset) in words.iter_mut().zip(&self.words) {
                let bytes = row.get(offset..).and_then(|bytes| bytes.first_chunk());
                let bytes = bytes.ok_or_else(|| FormatFault::damaged("has rows cut short"))?;
                *word = u32::from_le_bytes(*bytes);
            }
            let splat = ranges.unpack(words);
            to.means.push(splat.mean);
            to.log_scales.push(splat.log_scale);
            to.rotations.push(splat.rotation);
            to.sh_dc.push(splat.sh_dc);
            to.opacity_logits.push(splat.opacity_logit);
        }
        Ok(())
    }
}

fn offsets(element: &PlyElement, names: &[&str], kind: Scalar) -> Result<Vec<usize>, FormatFault> {
    names.iter().map(|name| Ok(column(element, name, &[kind])?.offset)).collect()
}

/// The degree that the table `sh` is of, which is 0 where there is none.
fn harmonics(head: &PlyHeader, count: u64) -> Result<u32, FormatFault> {
    let Some(table) = head.element("sh") else { return Ok(0) };
    if table.rows != count {
        return Err(FormatFault::damaged(format!(
            "has {} rows of SH for {count} Gaussians",
            table.rows
        )));
    }
    let values = table.properties.len();
    let is_named = |i: usize| {
        let property = &table.properties[i];
        property.scalar == Scalar::U8 && property.name == format!("f_rest_{i}")
    };
    let degree = (1..=3).find(|&degree| 3 * sh_rest_count(degree) == values);
    degree.filter(|_| (0..values).all(is_named)).ok_or_else(|| {
        FormatFault::damaged(format!(
            "has {values} columns of SH; f_rest_0 to f_rest_8, 23 or 44 of type uchar are expected"
        ))
    })
}
