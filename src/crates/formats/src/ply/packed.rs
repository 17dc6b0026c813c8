//! How the packed layout squeezes a Gaussian into four words of 32 bits, relative to the ranges of
//! its chunk of 256 (`PlayCanvas`, `compressed.ply`).

use std::io::{self, BufRead, Write};

use splat_mesh::file::ply::{NewPlyHeader, PlyElement, PlyHeader, Scalar};
use splat_mesh::narrow::{round_u32, to_f32};

use super::{MIP_COMMENT, check_length, column, element, is_antialiased, rest_note};
use super::{fill_rows, skip_rows};
use crate::error::FormatFault;
use crate::geometry::morton_order;
use crate::geometry::{SmallestThree, UnitQuat, normalised};
use crate::geometry::{logit_of_byte, sigmoid};
use crate::splats::{Antialiasing, CheckedSplats, SH_C0, SplatColumns, Splats, sh_rest_count};
use crate::worst::WorstErrors;

/// Gaussians of a chunk.
pub(super) const CHUNK_ROWS: usize = 256;

/// Columns of a chunk in their order.
pub(super) const RANGE_NAMES: [&str; 18] = [
    "min_x",
    "min_y",
    "min_z",
    "max_x",
    "max_y",
    "max_z",
    "min_scale_x",
    "min_scale_y",
    "min_scale_z",
    "max_scale_x",
    "max_scale_y",
    "max_scale_z",
    "min_r",
    "min_g",
    "min_b",
    "max_r",
    "max_g",
    "max_b",
];

/// Columns of a Gaussian in their order.
pub(super) const WORD_NAMES: [&str; 4] =
    ["packed_position", "packed_rotation", "packed_scale", "packed_color"];

/// Logarithms of scales beyond this are cut, as other writers do.
pub(super) const MOST_LOG_SCALE: f32 = 20.0;

/// The range of three values in a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range3 {
    pub(super) low: [f32; 3],
    pub(super) high: [f32; 3],
}

impl Range3 {
    pub(super) fn of(values: impl Iterator<Item = [f32; 3]>) -> Self {
        let empty = Self { low: [f32::INFINITY; 3], high: [f32::NEG_INFINITY; 3] };
        values.fold(empty, |range, value| Self {
            low: std::array::from_fn(|i| range.low[i].min(value[i])),
            high: std::array::from_fn(|i| range.high[i].max(value[i])),
        })
    }

    /// Three values in words of 11, 10 and 11 bits, from the top.
    fn pack(&self, value: [f32; 3]) -> u32 {
        let [x, y, z] = [0, 1, 2].map(|i| self.share(i, value[i]));
        step(x, 11) << 21 | step(y, 10) << 11 | step(z, 11)
    }

    fn unpack(&self, word: u32) -> [f32; 3] {
        let shares = [share(word >> 21, 11), share(word >> 11, 10), share(word, 11)];
        std::array::from_fn(|i| self.value(i, shares[i]))
    }

    fn share(&self, i: usize, value: f32) -> f64 {
        let (low, high) = (f64::from(self.low[i]), f64::from(self.high[i]));
        if high > low { (f64::from(value) - low) / (high - low) } else { 0.0 }
    }

    fn value(&self, i: usize, share: f64) -> f32 {
        to_f32(f64::from(self.low[i]) * (1.0 - share) + f64::from(self.high[i]) * share)
    }
}

/// A share of 0 to 1 in so many bits.
fn step(share: f64, bits: u32) -> u32 {
    round_u32(share.clamp(0.0, 1.0) * f64::from((1_u32 << bits) - 1))
}

/// The share of 0 to 1 in the lowest bits of a word.
fn share(word: u32, bits: u32) -> f64 {
    let most = (1_u32 << bits) - 1;
    f64::from(word & most) / f64::from(most)
}

/// The ranges of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PackedRanges {
    pub(super) means: Range3,
    pub(super) log_scales: Range3,
    pub(super) colors: Range3,
}

/// What four words hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PackedSplat {
    pub(super) mean: [f32; 3],
    pub(super) log_scale: [f32; 3],
    pub(super) rotation: UnitQuat,
    pub(super) sh_dc: [f32; 3],
    pub(super) opacity_logit: f32,
}

/// Scales as they are stored.
pub(super) fn cut_scale(log_scale: [f32; 3]) -> [f32; 3] {
    log_scale.map(|scale| scale.clamp(-MOST_LOG_SCALE, MOST_LOG_SCALE))
}

/// The colour, 0 to 1 and beyond, of coefficients of degree 0.
pub(super) fn color(sh_dc: [f32; 3]) -> [f32; 3] {
    sh_dc.map(|c| to_f32(0.5 + SH_C0 * f64::from(c)))
}

impl PackedRanges {
    pub(super) fn pack(&self, splat: &PackedSplat) -> [u32; 4] {
        let color = color(splat.sh_dc);
        let [r, g, b] = [0, 1, 2].map(|i| step(self.colors.share(i, color[i]), 8));
        let opacity = step(sigmoid(splat.opacity_logit), 8);
        [
            self.means.pack(splat.mean),
            pack_rotation(splat.rotation),
            self.log_scales.pack(cut_scale(splat.log_scale)),
            r << 24 | g << 16 | b << 8 | opacity,
        ]
    }

    pub(super) fn unpack(&self, words: [u32; 4]) -> PackedSplat {
        let [position, rotation, scale, shade] = words;
        let color = [24, 16, 8].map(|shift| share(shade >> shift, 8));
        let sh_dc = std::array::from_fn(|i| {
            to_f32((f64::from(self.colors.value(i, color[i])) - 0.5) / SH_C0)
        });
        PackedSplat {
            mean: self.means.unpack(position),
            log_scale: self.log_scales.unpack(scale),
            rotation: unpack_rotation(rotation),
            sh_dc,
            opacity_logit: logit_of_byte(shade.to_le_bytes()[0]),
        }
    }
}

/// Two bits tell the largest of w, x, y, z; the others take ten bits each.
fn pack_rotation(rotation: UnitQuat) -> u32 {
    let SmallestThree { largest, others } = SmallestThree::of(rotation);
    let words = others.map(|part| step(part * std::f64::consts::FRAC_1_SQRT_2 + 0.5, 10));
    let index = [0, 1, 2, 3][largest];
    words.iter().fold(index, |word, part| word << 10 | part)
}

fn unpack_rotation(word: u32) -> UnitQuat {
    let others =
        [20, 10, 0].map(|shift| (share(word >> shift, 10) - 0.5) * std::f64::consts::SQRT_2);
    let quat = SmallestThree { largest: (word >> 30) as usize, others }.quat();
    normalised(quat, 0.0).unwrap_or([1.0, 0.0, 0.0, 0.0])
}

/// The byte of a coefficient above degree 0: steps of 1/32 between ±4, rounded down.
pub(super) fn pack_harmonic(coefficient: f32) -> u8 {
    let step = ((f64::from(coefficient) / 8.0 + 0.5) * 256.0).floor();
    splat_mesh::narrow::round_u8(step)
}

/// The middle of what a byte stands for; its ends are ±4.
pub(super) fn unpack_harmonic(byte: u8) -> f32 {
    let share = match byte {
        0 => 0.0,
        255 => 1.0,
        _ => (f64::from(byte) + 0.5) / 256.0,
    };
    to_f32((share - 0.5) * 8.0)
}

// The packed layout, read.

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
                fill_rows(element, head.encoding, input, &mut rows)?;
                ranges = tables.ranges(&rows)?;
            }
            "vertex" => {
                let mut rows = vec![0; element.row_bytes * CHUNK_ROWS];
                for (first, range) in (0..tables.count).step_by(CHUNK_ROWS).zip(&ranges) {
                    let count = (tables.count - first).min(CHUNK_ROWS);
                    let chunk = &mut rows[..count * element.row_bytes];
                    fill_rows(element, head.encoding, input, chunk)?;
                    tables.take_rows(chunk, range, &mut columns)?;
                }
            }
            "sh" => {
                let mut rows = vec![0; element.row_bytes * CHUNK_ROWS];
                let mut left = tables.count;
                while left > 0 {
                    let count = left.min(CHUNK_ROWS);
                    let chunk = &mut rows[..count * element.row_bytes];
                    fill_rows(element, head.encoding, input, chunk)?;
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
    let mut checked = Splats::from_columns(columns)?;
    checked.notes.extend(rest_note(head, file_bytes));
    Ok(checked)
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

// The packed layout, written.

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
