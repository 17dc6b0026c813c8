//! PLY of Gaussians: the layout of 3D Gaussian splatting (Kerbl et al. 2023) and the packed one of `PlayCanvas`.

use std::io::{self, BufRead, Read, Write};

use rayon::prelude::*;
use splat_mesh::file::Truncated;
use splat_mesh::file::ply::{
    NewPlyHeader, PlyElement, PlyEncoding, PlyHeader, PlyProperty, Scalar,
};
use splat_mesh::narrow::{floor_u32, round_u8, round_u32, to_f32, to_f32s, to_f64s};
use splat_mesh::place::Bounds;

use crate::error::{FormatFault, damaged};
use crate::geometry::{
    SmallestThree, UnitQuat, logit, logit_of_byte, morton_order, normalised, sigmoid,
};
use crate::save::WorstErrors;
use crate::splats::{
    Antialiasing, CheckedSplats, FLAT_LOG_SCALE, MAX_SH_DEGREE, SH_C0, SplatColumns,
    SplatPrimitive, Splats, sh_rest_count,
};

/// Gaussians of a PLY and their layout.
#[derive(Debug)]
pub struct PlySplats {
    /// The Gaussians.
    pub checked: CheckedSplats,
    /// True for chunks of 256 Gaussians with 16 bytes each; else a row of floats each.
    pub is_packed: bool,
}

/// Reads Gaussians of either layout from a file of `file_bytes` bytes.
///
/// Rows of the plain layout are streamed.
pub fn parse_ply(input: &mut impl BufRead, file_bytes: u64) -> Result<PlySplats, FormatFault> {
    let head = PlyHeader::read(input)?;
    let is_packed = head.element("chunk").is_some();
    let checked = if is_packed {
        read_packed(&head, input, file_bytes)?
    } else {
        read_rows(&head, input, file_bytes)?
    };
    Ok(PlySplats { checked, is_packed })
}

// Header of a PLY of Gaussians.

/// Comment that marks Gaussians of Mip-Splatting.
pub const MIP_COMMENT: &str = "SplatRenderMode: mip";

/// Comment that marks surfels.
pub const SURFELS_COMMENT: &str = "SplatRenderMode: 2dgs";

/// Columns that only Gaussians have.
const GAUSSIAN_COLUMNS: [&str; 4] = ["scale_0", "rot_0", "opacity", "f_dc_0"];

/// Returns the column of this name, of one of these types.
fn column<'a>(
    element: &'a PlyElement,
    name: &str,
    kinds: &[Scalar],
) -> Result<&'a PlyProperty, FormatFault> {
    let mut named = element.properties.iter().filter(|property| property.name == name);
    let Some(found) = named.next() else {
        let is_of_gaussians = GAUSSIAN_COLUMNS.into_iter().any(|name| element.has(name));
        return Err(FormatFault::Unsupported(if is_of_gaussians {
            format!("has no column `{name}`, which Gaussians need: export all columns")
        } else {
            format!(
                "has no column `{name}`, so it is a point cloud or a mesh: give a PLY of Gaussians"
            )
        }));
    };
    if named.next().is_some() {
        return damaged(format!("lists the column `{name}` twice"));
    }
    if !kinds.contains(&found.scalar) || found.list.is_some() {
        let list = if found.list.is_some() { "list of " } else { "" };
        return damaged(format!(
            "has another layout than that of Gaussians: the column `{name}` is of type {list}{}",
            found.scalar.name()
        ));
    }
    Ok(found)
}

/// Returns the element of this name and its index.
fn element<'a>(header: &'a PlyHeader, name: &str) -> Result<(usize, &'a PlyElement), FormatFault> {
    let mut elements = header.elements.iter().enumerate();
    elements
        .find(|(_, element)| element.name == name)
        .ok_or_else(|| FormatFault::damaged(format!("no `element {name}` stands in its header")))
}

/// Returns the least number of bytes of an element's rows.
fn least_bytes(element: &PlyElement, encoding: PlyEncoding) -> u64 {
    let row: usize = match encoding {
        // At least a character and a space per value.
        PlyEncoding::Ascii => 2 * element.properties.len(),
        _ => {
            let lengths = element.properties.iter().filter_map(|it| it.list).map(Scalar::bytes);
            element.row_bytes + lengths.sum::<usize>()
        }
    };
    element.rows.saturating_mul(row as u64)
}

/// Checks that a file is long enough for its elements up to this index.
fn check_length(header: &PlyHeader, last: usize, file_bytes: u64) -> Result<(), FormatFault> {
    let elements = header.elements.iter().take(last + 1);
    let needed =
        elements.fold(0_u64, |sum, it| sum.saturating_add(least_bytes(it, header.encoding)));
    // The last line of a text file may lack its newline.
    let found = file_bytes.saturating_sub(header.bytes);
    let room = found + u64::from(header.encoding == PlyEncoding::Ascii);
    if needed > room {
        return Err(Truncated { part: "its table of Gaussians", needed, found }.into());
    }
    Ok(())
}

/// A note about bytes after the last row of a binary file whose rows all have the same length.
fn rest_note(header: &PlyHeader, file_bytes: u64) -> Option<String> {
    let has_lists = header.elements.iter().any(|it| it.list().is_some());
    if has_lists || header.encoding == PlyEncoding::Ascii {
        return None;
    }
    let lengths = header.elements.iter().map(|it| least_bytes(it, header.encoding));
    let end = lengths.fold(header.bytes, u64::saturating_add);
    let rest = file_bytes.checked_sub(end).filter(|&rest| rest > 0)?;
    Some(format!(
        "{rest} bytes after its last row are not read. If something is missing, write the file again"
    ))
}

/// Returns the 2D filter of Mip-Splatting, which Brush and Postshot name in comments. The last comment wins.
fn antialiasing(header: &PlyHeader) -> Antialiasing {
    let mut flags = header.comments.iter().filter_map(|comment| {
        let comment = comment.to_ascii_lowercase();
        let (key, value) = comment.split_once(' ')?;
        match key {
            "splatrendermode:" => Some(value == "mip"),
            "antialiased" => Some(value == "1"),
            _ => None,
        }
    });
    if flags.next_back() == Some(true) { Antialiasing::On } else { Antialiasing::Off }
}

// Reading the plain layout.

/// Size of the read buffer.
const CHUNK_BYTES: usize = 16 << 20;

/// Number of rows per thread.
const ROWS_AT_A_TIME: usize = 4096;

/// Columns of the values of a row.
struct RowLayout {
    means: Vec<PlyProperty>,
    /// Coefficients of degree 0, or red, green, blue.
    colors: Vec<PlyProperty>,
    /// Value of a full channel if colours are not coefficients. For floats, 1 may turn out to be 255.
    full_channel: Option<f32>,
    sh_rest: Vec<PlyProperty>,
    opacity: PlyProperty,
    scales: [PlyProperty; 2],
    /// Missing for surfels.
    third_scale: Option<PlyProperty>,
    rotations: Vec<PlyProperty>,
    filter: Option<PlyProperty>,
    /// Messages about ignored columns.
    notes: Vec<String>,
}

/// Names of colour columns that replace coefficients of degree 0.
const CHANNELS: [[&str; 3]; 3] =
    [["red", "green", "blue"], ["diffuse_red", "diffuse_green", "diffuse_blue"], ["r", "g", "b"]];

impl RowLayout {
    fn of(element: &PlyElement) -> Result<Self, FormatFault> {
        let one = |name: &str| column(element, name, &[Scalar::F32, Scalar::F64]).cloned();
        let numbered = |prefix: &str, count: usize| {
            (0..count).map(|i| one(&format!("{prefix}{i}"))).collect::<Result<Vec<_>, _>>()
        };
        let if_there = |name: &str| element.has(name).then(|| one(name)).transpose();
        let count = element.properties.iter().filter(|p| p.name.starts_with("f_rest_")).count();
        let means = ["x", "y", "z"].into_iter().map(one).collect::<Result<_, _>>()?;
        let has_coefficients = element.has("f_dc_0");
        let channels = CHANNELS.iter().find(|it| !has_coefficients && element.has(it[0]));
        let (colors, full_channel) = match channels {
            None => (numbered("f_dc_", 3)?, None),
            Some(names) => {
                let kinds = [Scalar::U8, Scalar::U16, Scalar::F32, Scalar::F64];
                let channel = |name: &&str| column(element, name, &kinds).cloned();
                let colors = names.iter().map(channel).collect::<Result<Vec<_>, _>>()?;
                let full = match colors[0].scalar {
                    Scalar::U8 => 255.0,
                    Scalar::U16 => 65_535.0,
                    _ => 1.0,
                };
                if let Some(other) = colors.iter().find(|it| it.scalar != colors[0].scalar) {
                    return damaged(format!(
                        "has colours of the types {} and {}",
                        colors[0].scalar.name(),
                        other.scalar.name()
                    ));
                }
                (colors, Some(full))
            }
        };
        let mut layout = Self {
            means,
            colors,
            full_channel,
            opacity: one("opacity")?,
            scales: [one("scale_0")?, one("scale_1")?],
            third_scale: if_there("scale_2")?,
            rotations: numbered("rot_", 4)?,
            filter: if_there("filter_3D")?,
            sh_rest: numbered("f_rest_", count)?,
            notes: Vec::new(),
        };
        if count % 3 != 0 {
            return damaged(format!(
                "has {count} f_rest columns; a multiple of 3 is expected: 9, 24 or 45 for SH degree 1 to 3"
            ));
        }
        if 3 * sh_rest_count(layout.sh_degree()) < count {
            layout.notes.push(format!(
                "of its {count} f_rest columns, those above SH degree {} are left out",
                layout.sh_degree()
            ));
        }
        Ok(layout)
    }

    /// Returns the highest degree whose columns are complete.
    fn sh_degree(&self) -> u32 {
        let has_all = |degree: &u32| 3 * sh_rest_count(*degree) <= self.sh_rest.len();
        (0..=MAX_SH_DEGREE).rev().find(has_all).unwrap_or(0)
    }

    fn take(&self, row: &[u8], columns: &mut SplatColumns) {
        let values =
            |properties: &[PlyProperty]| std::array::from_fn(|i| value(&properties[i], row));
        let [first, second] = [0, 1].map(|i| value(&self.scales[i], row));
        let third = self.third_scale.as_ref().map_or(FLAT_LOG_SCALE, |third| value(third, row));
        let mut scales = [first, second, third];
        let mut opacity = value(&self.opacity, row);
        // The filter would make surfels thick.
        if let Some(filter) = self.filter.as_ref().filter(|_| self.third_scale.is_some()) {
            (scales, opacity) = filtered(scales, opacity, value(filter, row));
        }
        columns.means.push(values(&self.means));
        columns.log_scales.push(scales);
        columns.opacity_logits.push(opacity);
        columns.sh_dc.push(values(&self.colors));
        columns.rotations.push(std::array::from_fn(|i| value(&self.rotations[i], row)));
        let coefficients = self.sh_rest.len() / 3;
        for k in 0..sh_rest_count(columns.sh_degree) {
            let channel = |c: usize| value(&self.sh_rest[c * coefficients + k], row);
            columns.sh_rest.push(std::array::from_fn(channel));
        }
    }
}

/// Reads a value of a row; NaN if the row is too short.
fn value(property: &PlyProperty, row: &[u8]) -> f32 {
    to_f32(property.value(row))
}

/// Returns scales and opacity with a 3D filter of this standard deviation baked in (Mip-Splatting, Yu et al. 2024,
/// equation 8).
fn filtered(log_scales: [f32; 3], opacity_logit: f32, filter: f32) -> ([f32; 3], f32) {
    let mut shrink = 1.0;
    let wider = log_scales.map(|log| {
        let (scale, filter) = (f64::from(log).exp(), f64::from(filter));
        let wide = scale.hypot(filter);
        shrink *= scale / wide;
        to_f32(wide.ln())
    });
    if filter == 0.0 {
        return (log_scales, opacity_logit);
    }
    (wider, logit(sigmoid(opacity_logit) * shrink))
}

/// Reads the rows of `vertex`. `input` is positioned after the header.
fn read_rows(
    head: &PlyHeader,
    input: &mut impl BufRead,
    file_bytes: u64,
) -> Result<CheckedSplats, FormatFault> {
    let (index, element) = element(head, "vertex")?;
    let layout = RowLayout::of(element)?;
    check_length(head, index, file_bytes)?;
    let Ok(count) = usize::try_from(element.rows) else {
        return damaged(format!("announces {} Gaussians", element.rows));
    };
    let mut rows = Rows { input, encoding: head.encoding };
    head.elements[..index].iter().try_for_each(|before| rows.skip(before))?;

    let mut columns = SplatColumns::with_capacity(layout.sh_degree(), count);
    columns.antialiasing = antialiasing(head);
    if layout.third_scale.is_none() {
        columns.primitive = SplatPrimitive::Surfels;
    }
    // The column `x` makes rows longer than 0 bytes.
    let at_once = (CHUNK_BYTES / element.row_bytes).max(1);
    rows.each_part(element, count, at_once, |rows| {
        let parts: Vec<SplatColumns> = rows
            .par_chunks(ROWS_AT_A_TIME * element.row_bytes)
            .map(|rows| {
                let mut part = SplatColumns::with_capacity(layout.sh_degree(), ROWS_AT_A_TIME);
                rows.chunks_exact(element.row_bytes).for_each(|row| layout.take(row, &mut part));
                part
            })
            .collect();
        parts.iter().for_each(|part| columns.append(part));
    })?;
    let mut notes = layout.notes;
    notes.extend(rest_note(head, file_bytes));
    if let Some(full) = layout.full_channel {
        coefficients_of_channels(&mut columns.sh_dc, full, &mut notes);
    }
    let mut checked = Splats::from_columns(columns)?;
    checked.notes = notes;
    Ok(checked)
}

/// Converts colour channels to coefficients of degree 0.
fn coefficients_of_channels(colors: &mut [[f32; 3]], full: f32, notes: &mut Vec<String>) {
    let values = colors.as_flattened_mut();
    let is_above_one = values.iter().any(|&value| value.is_finite() && value > 1.0);
    let full = if full == 1.0 && is_above_one {
        notes.push("its colours are floats above 1: they are read as 0 to 255".to_owned());
        255.0
    } else {
        full
    };
    for value in values {
        *value = to_f32((f64::from(*value) / f64::from(full) - 0.5) / SH_C0);
    }
}

// Rows of an element in any encoding, converted to little-endian values without lists.

/// Longest line of text, bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// True if rows have equal layouts in the file and in memory.
fn is_plain(element: &PlyElement, encoding: PlyEncoding) -> bool {
    encoding == PlyEncoding::Little && element.list().is_none()
}

/// Reader of the rows behind the header.
struct Rows<'a, R> {
    input: &'a mut R,
    encoding: PlyEncoding,
}

impl<R: BufRead> Rows<'_, R> {
    /// Passes `take` the first `count` rows of an element, at most `at_once` together.
    fn each_part(
        &mut self,
        element: &PlyElement,
        count: usize,
        at_once: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), FormatFault> {
        let mut buffer = vec![0; element.row_bytes * at_once.min(count)];
        for first in (0..count).step_by(at_once) {
            let part = &mut buffer[..(count - first).min(at_once) * element.row_bytes];
            if is_plain(element, self.encoding) {
                self.input.read_exact(part)?;
            } else {
                let mut rows = part.chunks_exact_mut(element.row_bytes);
                rows.try_for_each(|row| self.read(element, row))?;
            }
            take(part);
        }
        Ok(())
    }

    fn skip(&mut self, element: &PlyElement) -> Result<(), FormatFault> {
        if is_plain(element, self.encoding) {
            let bytes = least_bytes(element, self.encoding);
            io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())?;
            return Ok(());
        }
        let mut row = vec![0; element.row_bytes];
        (0..element.rows).try_for_each(|_| self.read(element, &mut row))
    }

    fn read(&mut self, element: &PlyElement, row: &mut [u8]) -> Result<(), FormatFault> {
        if self.encoding == PlyEncoding::Ascii {
            return self.read_line(element, row);
        }
        for property in &element.properties {
            let Some(length) = property.list else {
                let to = &mut row[property.offset..][..property.scalar.bytes()];
                self.read_value(to)?;
                continue;
            };
            let mut bytes = [0; 8];
            self.read_value(&mut bytes[..length.bytes()])?;
            let Some(count) = length.value(&bytes).filter(|&count| count >= 0.0) else {
                return damaged(format!("has a list `{}` of a negative length", property.name));
            };
            let due = u64::from(floor_u32(count)) * property.scalar.bytes() as u64;
            if io::copy(&mut self.input.by_ref().take(due), &mut io::sink())? < due {
                return damaged(format!("ends in a list `{}`", property.name));
            }
        }
        Ok(())
    }

    fn read_value(&mut self, to: &mut [u8]) -> Result<(), FormatFault> {
        self.input.read_exact(to)?;
        if self.encoding == PlyEncoding::Big {
            to.reverse();
        }
        Ok(())
    }

    /// Reads the next line that is not empty.
    fn read_line(&mut self, element: &PlyElement, row: &mut [u8]) -> Result<(), FormatFault> {
        let mut line = Vec::new();
        while line.iter().all(u8::is_ascii_whitespace) {
            line.clear();
            if self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                return damaged(format!(
                    "is truncated: it has fewer than {} lines of `{}`",
                    element.rows, element.name
                ));
            }
        }
        let text = String::from_utf8_lossy(&line);
        let mut words = text.split_ascii_whitespace();
        let mut is_row = || {
            for property in &element.properties {
                if property.list.is_some() {
                    let length: usize = words.next()?.parse().ok()?;
                    if length > 0 {
                        words.nth(length - 1)?;
                    }
                    continue;
                }
                let to = &mut row[property.offset..][..property.scalar.bytes()];
                parse_value(property.scalar, words.next()?, to)?;
            }
            words.next().is_none().then_some(())
        };
        is_row().ok_or_else(|| {
            let start: String = text.trim().chars().take(60).collect();
            FormatFault::damaged(format!(
                "has a line {start:?} that is no row of `{}`",
                element.name
            ))
        })
    }
}

/// Parses a word; `None` if it is not of this type.
fn parse_value(kind: Scalar, word: &str, to: &mut [u8]) -> Option<()> {
    match kind {
        Scalar::U8 => to.copy_from_slice(&word.parse::<u8>().ok()?.to_le_bytes()),
        Scalar::I8 => to.copy_from_slice(&word.parse::<i8>().ok()?.to_le_bytes()),
        Scalar::U16 => to.copy_from_slice(&word.parse::<u16>().ok()?.to_le_bytes()),
        Scalar::I16 => to.copy_from_slice(&word.parse::<i16>().ok()?.to_le_bytes()),
        Scalar::U32 => to.copy_from_slice(&word.parse::<u32>().ok()?.to_le_bytes()),
        Scalar::I32 => to.copy_from_slice(&word.parse::<i32>().ok()?.to_le_bytes()),
        Scalar::F32 => {
            let value = word.parse().ok().or_else(|| is_nan(word).then_some(f32::NAN))?;
            to.copy_from_slice(&value.to_le_bytes());
        }
        Scalar::F64 => {
            let value = word.parse().ok().or_else(|| is_nan(word).then_some(f64::NAN))?;
            to.copy_from_slice(&value.to_le_bytes());
        }
    }
    Some(())
}

/// True for NaN as C libraries print it: `-nan(ind)`, `1.#QNAN`.
fn is_nan(word: &str) -> bool {
    word.to_ascii_lowercase().contains("nan")
}

// Writing the plain layout.

/// Number of rows that are encoded together: about a megabyte.
const ROWS_AT_ONCE: usize = 4096;

/// Writes binary little-endian PLY without rounding, all `float`: `x y z nx ny nz f_dc_* f_rest_* opacity scale_*
/// rot_*`, 62 columns at SH degree 3. Normals are zero. Line 3 is always `element vertex`, which some viewers require.
/// Surfels have no `scale_2`, as in 2D Gaussian splatting.
///
/// Needs about a megabyte of memory.
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

/// Returns the number of scales per row.
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

// Packing of a Gaussian into four 32-bit words, relative to the ranges of its chunk of 256 (`PlayCanvas`,
// `compressed.ply`).

const CHUNK_ROWS: usize = 256;

/// Returns the columns of a chunk in order.
fn range_names() -> impl Iterator<Item = String> {
    let ranges = [["x", "y", "z"], ["scale_x", "scale_y", "scale_z"], ["r", "g", "b"]];
    let ends =
        |names: [&str; 3]| ["min", "max"].map(|end| names.map(|name| format!("{end}_{name}")));
    ranges.into_iter().flat_map(ends).flatten()
}

/// Columns of a Gaussian in order.
const WORD_NAMES: [&str; 4] =
    ["packed_position", "packed_rotation", "packed_scale", "packed_color"];

/// Limit of log-scales, that of other writers.
const MAX_LOG_SCALE: f32 = 20.0;

/// Range of three values in a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range3 {
    low: [f32; 3],
    high: [f32; 3],
}

impl Range3 {
    fn of(values: impl Iterator<Item = [f32; 3]>) -> Self {
        let Bounds { low, high } = Bounds::of(values.map(to_f64s));
        Self { low: to_f32s(low), high: to_f32s(high) }
    }

    /// Packs three values into 11, 10 and 11 bits, from the top.
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

/// Quantises a number in 0..1 to this number of bits.
fn step(share: f64, bits: u32) -> u32 {
    round_u32(share.clamp(0.0, 1.0) * f64::from((1_u32 << bits) - 1))
}

/// Returns the number in 0..1 that the lowest bits of a word encode.
fn share(word: u32, bits: u32) -> f64 {
    let most = (1_u32 << bits) - 1;
    f64::from(word & most) / f64::from(most)
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct PackedRanges {
    means: Range3,
    log_scales: Range3,
    colors: Range3,
}

/// Clamps scales to the stored range.
fn cut_scale(log_scale: [f32; 3]) -> [f32; 3] {
    log_scale.map(|scale| scale.clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE))
}

/// Returns the colour of coefficients of degree 0, nominally in 0..1.
fn color(sh_dc: [f32; 3]) -> [f32; 3] {
    sh_dc.map(|c| to_f32(0.5 + SH_C0 * f64::from(c)))
}

impl PackedRanges {
    fn pack(&self, columns: &SplatColumns, row: usize) -> [u32; 4] {
        let color = color(columns.sh_dc[row]);
        let [r, g, b] = [0, 1, 2].map(|i| step(self.colors.share(i, color[i]), 8));
        let opacity = step(sigmoid(columns.opacity_logits[row]), 8);
        [
            self.means.pack(columns.means[row]),
            pack_rotation(columns.rotations[row]),
            self.log_scales.pack(cut_scale(columns.log_scales[row])),
            r << 24 | g << 16 | b << 8 | opacity,
        ]
    }

    /// Appends a Gaussian without its harmonics above degree 0.
    fn unpack(&self, [position, rotation, scale, shade]: [u32; 4], to: &mut SplatColumns) {
        let color = [24, 16, 8].map(|shift| share(shade >> shift, 8));
        to.means.push(self.means.unpack(position));
        to.log_scales.push(self.log_scales.unpack(scale));
        to.rotations.push(unpack_rotation(rotation));
        to.sh_dc.push(std::array::from_fn(|i| {
            to_f32((f64::from(self.colors.value(i, color[i])) - 0.5) / SH_C0)
        }));
        to.opacity_logits.push(logit_of_byte(shade.to_le_bytes()[0]));
    }
}

/// Packs the index of the largest of w, x, y, z in two bits and the others in ten bits each.
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

/// Packs a coefficient above degree 0: steps of 1/32 in ±4, rounded down.
fn pack_harmonic(coefficient: f32) -> u8 {
    let step = ((f64::from(coefficient) / 8.0 + 0.5) * 256.0).floor();
    round_u8(step)
}

/// Returns the centre of a byte's step; the ends are ±4.
fn unpack_harmonic(byte: u8) -> f32 {
    let share = match byte {
        0 => 0.0,
        255 => 1.0,
        _ => (f64::from(byte) + 0.5) / 256.0,
    };
    to_f32((share - 0.5) * 8.0)
}

// Reading the packed layout.

/// Reads the tables. `input` is positioned after the header.
fn read_packed(
    head: &PlyHeader,
    input: &mut impl BufRead,
    file_bytes: u64,
) -> Result<CheckedSplats, FormatFault> {
    let tables = PackedTables::of(head)?;
    check_length(head, head.elements.len(), file_bytes)?;
    let mut rows = Rows { input, encoding: head.encoding };
    let mut columns = SplatColumns::with_capacity(tables.sh_degree, tables.count);
    columns.antialiasing = antialiasing(head);
    let mut ranges = Vec::new();
    for element in &head.elements {
        let is = |table: &PlyElement| std::ptr::eq(table, element);
        if is(tables.chunk) {
            let count = tables.count.div_ceil(CHUNK_ROWS);
            rows.each_part(element, count, CHUNK_ROWS, |part| {
                let rows = part.chunks_exact(element.row_bytes);
                ranges.extend(rows.map(|row| tables.ranges_of(row)));
            })?;
        } else if is(tables.vertex) {
            let mut ranges = ranges.iter();
            rows.each_part(element, tables.count, CHUNK_ROWS, |part| {
                let Some(range) = ranges.next() else { return };
                let rows = part.chunks_exact(element.row_bytes);
                rows.for_each(|row| range.unpack(tables.words_of(row), &mut columns));
            })?;
        } else if tables.harmonics.is_some_and(is) {
            let k = sh_rest_count(tables.sh_degree);
            rows.each_part(element, tables.count, CHUNK_ROWS, |part| {
                for row in part.chunks_exact(element.row_bytes) {
                    let channel = |c: usize, i: usize| unpack_harmonic(row[c * k + i]);
                    columns.sh_rest.extend((0..k).map(|i| [0, 1, 2].map(|c| channel(c, i))));
                }
            })?;
        } else {
            rows.skip(element)?;
        }
    }
    let mut checked = Splats::from_columns(columns)?;
    checked.notes.extend(rest_note(head, file_bytes));
    Ok(checked)
}

struct PackedTables<'a> {
    count: usize,
    sh_degree: u32,
    chunk: &'a PlyElement,
    vertex: &'a PlyElement,
    harmonics: Option<&'a PlyElement>,
    /// Columns of the chunks; files of 2023 have no ranges of colours.
    ranges: Vec<&'a PlyProperty>,
    words: Vec<&'a PlyProperty>,
}

impl<'a> PackedTables<'a> {
    fn of(head: &'a PlyHeader) -> Result<Self, FormatFault> {
        let ((chunk_index, chunk), (index, vertex)) =
            (element(head, "chunk")?, element(head, "vertex")?);
        if chunk_index > index {
            return damaged("has its chunks behind its Gaussians");
        }
        let rows = vertex.rows;
        if chunk.rows != rows.div_ceil(CHUNK_ROWS as u64) {
            return damaged(format!(
                "has {} chunks for {rows} Gaussians; one holds {CHUNK_ROWS}",
                chunk.rows
            ));
        }
        let numbers = if chunk.has("min_r") { 18 } else { 12 };
        let range = |name: String| column(chunk, &name, &[Scalar::F32]);
        let word = |name| column(vertex, name, &[Scalar::U32]);
        let sh_degree = packed_degree(head, rows)?;
        let Ok(count) = usize::try_from(rows) else {
            return damaged(format!("announces {rows} Gaussians"));
        };
        Ok(Self {
            count,
            sh_degree,
            chunk,
            vertex,
            harmonics: head.element("sh"),
            ranges: range_names().take(numbers).map(range).collect::<Result<_, _>>()?,
            words: WORD_NAMES.into_iter().map(word).collect::<Result<_, _>>()?,
        })
    }

    fn ranges_of(&self, row: &[u8]) -> PackedRanges {
        let triple = |first: usize| std::array::from_fn(|i| value(self.ranges[first + i], row));
        let range = |first: usize| Range3 { low: triple(first), high: triple(first + 3) };
        let has_colors = self.ranges.len() > 12;
        let colors = if has_colors { range(12) } else { Range3 { low: [0.0; 3], high: [1.0; 3] } };
        PackedRanges { means: range(0), log_scales: range(6), colors }
    }

    fn words_of(&self, row: &[u8]) -> [u32; 4] {
        std::array::from_fn(|i| floor_u32(self.words[i].value(row)))
    }
}

/// Returns the SH degree of the table `sh`; 0 without a table.
fn packed_degree(head: &PlyHeader, count: u64) -> Result<u32, FormatFault> {
    let Some(table) = head.element("sh") else { return Ok(0) };
    if table.rows != count {
        return damaged(format!("has {} rows of SH for {count} Gaussians", table.rows));
    }
    let values = table.properties.len();
    let is_named = |i: usize| {
        let property = &table.properties[i];
        property.scalar == Scalar::U8
            && property.list.is_none()
            && property.name == format!("f_rest_{i}")
    };
    let degree = (1..=3).find(|&degree| 3 * sh_rest_count(degree) == values);
    degree.filter(|_| (0..values).all(is_named)).ok_or_else(|| {
        FormatFault::damaged(format!(
            "has {values} columns of SH; f_rest_0 to f_rest_8, 23 or 44 of type uchar are expected"
        ))
    })
}

// Writing the packed layout.

/// Writes the packed layout in Z-order: 16 bytes per Gaussian and one byte per value above SH degree 0.
///
/// Clips log-scales to ±20 and coefficients to ±4. Returns the errors of the file.
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
            let packed = chunk.pack(columns, row);
            words.extend(packed.into_iter().flat_map(u32::to_le_bytes));
            chunk.unpack(packed, &mut stored);
            let rest = columns.rest(row).iter();
            stored.sh_rest.extend(rest.map(|c| c.map(|c| unpack_harmonic(pack_harmonic(c)))));
        }
        let stored = Splats::from_columns(stored).map_err(io::Error::other)?.splats;
        worst = worst.or(WorstErrors::between_within(
            &splats.rows(rows),
            &stored,
            &(-MAX_LOG_SCALE..=MAX_LOG_SCALE),
        ));
    }
    out.write_all(&packed_header(splats))?;
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

/// Writes all red, then green, then blue coefficients of each row.
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

fn packed_header(splats: &Splats) -> Vec<u8> {
    let count = splats.len();
    let mut header = NewPlyHeader::default();
    if splats.columns().antialiasing == Antialiasing::On {
        header.comment(MIP_COMMENT);
    }
    header.element("chunk", count.div_ceil(CHUNK_ROWS)).properties(Scalar::F32, range_names());
    header.element("vertex", count).properties(Scalar::U32, WORD_NAMES);
    let values = 3 * sh_rest_count(splats.sh_degree());
    if values > 0 {
        let names = (0..values).map(|i| format!("f_rest_{i}"));
        header.element("sh", count).properties(Scalar::U8, names);
    }
    header.end()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use splat_mesh::narrow::{floor_usize, round_u16};

    use super::*;
    use crate::splats::known_splats::{hard_splats, random_splats, random_surfels};

    fn plain(splats: &Splats) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_ply(splats, &mut bytes).unwrap();
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<PlySplats, FormatFault> {
        parse_ply(&mut &*bytes, bytes.len() as u64)
    }

    #[rstest]
    fn plain_round_trip_is_lossless(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 257, 5000)] count: usize,
    ) {
        let mut splats = random_splats(count, sh_degree, 1);
        for antialiasing in [Antialiasing::Off, Antialiasing::On] {
            splats.columns_mut().antialiasing = antialiasing;
            let read = parsed(&plain(&splats)).unwrap();
            assert_eq!((read.is_packed, read.checked.dropped), (false, 0));
            assert!(read.checked.splats == splats);
        }
    }

    #[test]
    fn header_has_the_count_in_line_three_and_62_columns() {
        let bytes = plain(&random_splats(3, 3, 1));
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().take(66).collect();
        assert_eq!(lines[..3], ["ply", "format binary_little_endian 1.0", "element vertex 3"]);
        let expected = [
            (3, "x"),
            (6, "nx"),
            (9, "f_dc_0"),
            (12, "f_rest_0"),
            (56, "f_rest_44"),
            (57, "opacity"),
        ];
        for (line, name) in expected.into_iter().chain([(58, "scale_0"), (64, "rot_3")]) {
            assert_eq!(lines[line], format!("property float {name}"));
        }
        assert_eq!(lines[65], "end_header");
    }

    #[test]
    fn surfels_have_two_scales_and_a_comment() {
        let surfels = random_surfels(300, 1, 7);
        let bytes = plain(&surfels);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("element vertex 300\ncomment SplatRenderMode: 2dgs\nproperty"));
        assert!(text.contains("scale_1\nproperty float rot_0\n") && !text.contains("scale_2"));
        let end = text.find("end_header\n").unwrap() + "end_header\n".len();
        assert_eq!(bytes.len() - end, 300 * 4 * (9 + 9 + 1 + 2 + 4));
        assert!(parsed(&bytes).unwrap().checked.splats == surfels);
    }

    #[test]
    fn harmonics_are_channel_major_in_the_file() {
        let splats = random_splats(1, 1, 2);
        let bytes = plain(&splats);
        let row = bytes[bytes.len() - 26 * 4..].chunks_exact(4);
        let row: Vec<f32> =
            row.map(|value| f32::from_le_bytes(*value.first_chunk().unwrap())).collect();
        let rest = splats.columns().rest(0);
        let channel = |c: usize| [rest[0][c], rest[1][c], rest[2][c]];
        assert_eq!(row[9..18], [channel(0), channel(1), channel(2)].concat());
        assert_eq!(row[3..6], [0.0; 3], "normals are zero");
    }

    #[rstest]
    #[case("SplatRenderMode: mip", true)]
    #[case("splatrendermode: MIP\ncomment by hand", true)]
    #[case("SplatRenderMode: mip\ncomment SplatRenderMode: default", false)]
    #[case("antialiased 1", true)]
    #[case("antialiased 0", false)]
    fn antialiasing_comments_of_several_programs_are_read(
        #[case] comment: &str,
        #[case] is_on: bool,
    ) {
        let bytes = plain(&random_splats(1, 0, 1));
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let comment = format!("comment {comment}\n");
        let read = parsed(&[&bytes[..end], comment.as_bytes(), &bytes[end..]].concat()).unwrap();
        let found = read.checked.splats.columns().antialiasing;
        assert_eq!(found == Antialiasing::On, is_on);
    }

    /// Name, type and value of a column; the value of a list is its length.
    type Cell<'a> = (&'a str, &'static str, f64);

    const LIST: &str = "list uchar int";
    const ITEMS: [i32; 3] = [7, -8, 9];

    /// Returns the little-endian values of a cell.
    fn values(kind: &str, value: f64) -> Vec<Vec<u8>> {
        match kind {
            "float" => vec![to_f32(value).to_le_bytes().to_vec()],
            "double" => vec![value.to_le_bytes().to_vec()],
            "uchar" => vec![vec![round_u8(value)]],
            "ushort" => vec![round_u16(value).to_le_bytes().to_vec()],
            _ => {
                let items = ITEMS.iter().take(floor_usize(value));
                let items = items.map(|item| item.to_le_bytes().to_vec());
                std::iter::once(vec![round_u8(value)]).chain(items).collect()
            }
        }
    }

    fn text(kind: &str, value: f64) -> String {
        let items = if kind == LIST { &ITEMS[..floor_usize(value)] } else { &[] };
        items.iter().fold(value.to_string(), |text, item| format!("{text} {item}"))
    }

    /// Encodes two rows after an element with a list and one without.
    fn encoded(encoding: &str, rows: [&[Cell<'_>]; 2]) -> Vec<u8> {
        let columns = rows[0].iter().map(|(name, kind, _)| format!("property {kind} {name}\r\n"));
        let mut bytes = format!(
            "ply\r\nformat {encoding} 1.0\r\ncomment by hand\r\nelement camera 1\r\n\
             property list ushort float values\r\nelement frame 2\r\nproperty ushort id\r\n\
             element vertex 2\r\n{}end_header\r\n",
            columns.collect::<String>()
        )
        .into_bytes();
        if encoding == "ascii" {
            let line = |row: &[Cell<'_>]| {
                row.iter().map(|(_, kind, x)| text(kind, *x)).collect::<Vec<_>>().join("  ")
            };
            let [first, second] = rows.map(line);
            // The last line has no newline.
            bytes.extend(format!("2 0.5 1\n8\n9\n\n{first}\r\n{second}").bytes());
            return bytes;
        }
        let before =
            [("ushort", 2.0), ("float", 0.5), ("float", 1.0), ("ushort", 8.0), ("ushort", 9.0)];
        let cells = rows.into_iter().flatten().map(|&(_, kind, value)| (kind, value));
        for (kind, value) in before.into_iter().chain(cells) {
            for mut value in values(kind, value) {
                if encoding == "binary_big_endian" {
                    value.reverse();
                }
                bytes.extend(value);
            }
        }
        bytes
    }

    /// Returns the columns that all rows have.
    fn geometry(x: f64) -> Vec<Cell<'static>> {
        let names = ["x", "y", "z", "opacity", "scale_0", "scale_1", "scale_2"];
        let mut cells: Vec<_> = names.map(|name| (name, "float", x)).into();
        cells[5].2 = f64::NEG_INFINITY;
        cells.extend([("rot_0", "double", 1.0), ("rot_1", "float", 0.0)]);
        cells.extend([("rot_2", "float", 0.0), ("rot_3", "float", 0.0)]);
        cells
    }

    #[rstest]
    #[case::coefficients(&[("f_dc_0", "float", 0.5), ("f_dc_1", "double", -1.0), ("f_dc_2", "float", 0.0)], [0.5, -1.0, 0.0])]
    #[case::bytes(&[("blue", "uchar", 0.0), ("green", "uchar", 255.0), ("red", "uchar", 51.0)], [-1.063_472_3, 1.772_453_9, -1.772_453_9])]
    #[case::diffuse(&[("diffuse_red", "uchar", 51.0), ("diffuse_green", "uchar", 255.0), ("diffuse_blue", "uchar", 0.0), ("alpha", "uchar", 9.0)], [-1.063_472_3, 1.772_453_9, -1.772_453_9])]
    #[case::words(&[("red", "ushort", 13_107.0), ("green", "ushort", 65_535.0), ("blue", "ushort", 0.0)], [-1.063_472_3, 1.772_453_9, -1.772_453_9])]
    #[case::shares(&[("red", "float", 0.2), ("green", "float", 1.0), ("blue", "float", 0.0)], [-1.063_472_3, 1.772_453_9, -1.772_453_9])]
    #[case::floats_to_255(&[("r", "double", 51.0), ("g", "double", 255.0), ("b", "double", 0.0)], [-1.063_472_3, 1.772_453_9, -1.772_453_9])]
    fn every_encoding_and_type_of_colours_is_read(
        #[case] colors: &[Cell<'static>],
        #[case] expected: [f32; 3],
        #[values("ascii", "binary_little_endian", "binary_big_endian")] encoding: &str,
        #[values(false, true)] has_lists: bool,
    ) {
        let [mut first, mut second] = [1.5, 3.0].map(|x| [geometry(x), colors.to_vec()].concat());
        if has_lists {
            first.insert(2, ("neighbours", LIST, 3.0));
            second.insert(2, ("neighbours", LIST, 0.0));
        }
        let read = parsed(&encoded(encoding, [&first, &second])).unwrap().checked;
        let columns = read.splats.columns();
        assert_eq!((read.dropped, &*columns.means), (0, &[[1.5; 3], [3.0; 3]][..]));
        assert_eq!(columns.log_scales[1], [3.0, crate::splats::LEAST_LOG_SCALE, 3.0]);
        assert_eq!((columns.opacity_logits[1], columns.rotations[0]), (3.0, [1.0, 0.0, 0.0, 0.0]));
        for (found, expected) in columns.sh_dc[1].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{:?}", columns.sh_dc);
        }
    }

    #[test]
    fn incomplete_degrees_are_dropped_with_a_note() {
        for (columns, degree, has_note) in
            [(0, 0, false), (9, 1, false), (12, 1, true), (72, 3, true)]
        {
            let names: Vec<String> = (0..columns).map(|k| format!("f_rest_{k}")).collect();
            let mut row = geometry(1.0);
            row.extend(["f_dc_0", "f_dc_1", "f_dc_2"].map(|name| (name, "float", 0.0)));
            row.extend(names.iter().zip(0_u8..).map(|(name, k)| (&**name, "float", k.into())));
            let read = parsed(&encoded("ascii", [&row, &row])).unwrap().checked;
            assert_eq!(
                (read.splats.sh_degree(), read.notes.len()),
                (degree, usize::from(has_note))
            );
            if let Some(first) = read.splats.columns().sh_rest.first() {
                let step = columns as f32 / 3.0;
                assert_eq!(*first, [0.0, step, 2.0 * step], "channel by channel");
            }
        }
    }

    #[rstest]
    #[case("1 2", "1 x", "no row of `vertex`")]
    #[case("1 2", "1", "no row of `vertex`")]
    #[case("1 2\n", "", "fewer than 2 lines")]
    fn broken_text_is_named(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
        let colors = [("red", "uchar", 1.0), ("green", "uchar", 1.0), ("blue", "uchar", 2.0)];
        let row = [geometry(1.0), colors.to_vec()].concat();
        let bytes = encoded("ascii", [&row, &row]);
        let text = String::from_utf8(bytes).unwrap().replace("1  2", "1 2");
        let at = text.rfind(from.trim_end()).unwrap();
        let broken = match to {
            "" => text[..text.trim_end().rfind('\n').unwrap()].to_owned() + &" ".repeat(200),
            _ => format!("{}{to}", &text[..at]),
        };
        let message = parsed(broken.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn columns_are_found_by_name_and_others_are_ignored() {
        let names = ["rot_3", "rot_2", "rot_1", "rot_0", "opacity", "scale_2", "scale_1"];
        let more = ["scale_0", "f_dc_2", "f_dc_1", "f_dc_0", "z", "y"];
        let names = names.iter().chain(&more).zip(1_u8..);
        let mut row: Vec<Cell<'_>> =
            names.map(|(name, value)| (*name, "float", value.into())).collect();
        row.extend([("label", "uchar", 200.0), ("x", "double", 14.0)]);
        let file = encoded("binary_little_endian", [&row, &row]);
        let splats = parsed(&file).unwrap().checked.splats;
        let columns = splats.columns();
        assert_eq!((columns.sh_degree, columns.means[0]), (0, [14.0, 13.0, 12.0]));
        assert_eq!((columns.sh_dc[0], columns.log_scales[0]), ([11.0, 10.0, 9.0], [8.0, 7.0, 6.0]));
        assert_eq!(columns.opacity_logits, [5.0; 2]);
        let length = 30.0_f32.sqrt();
        for (found, expected) in columns.rotations[0].iter().zip([4.0, 3.0, 2.0, 1.0]) {
            assert!((found - expected / length).abs() < 1e-6);
        }
    }

    #[test]
    fn filter_of_mip_splatting_is_baked_in() {
        let splats = random_splats(1, 0, 3);
        let mut bytes = plain(&splats);
        let row = bytes.split_off(bytes.len() - 17 * 4);
        let header = String::from_utf8(bytes).unwrap();
        let header = header.replace("end_header", "property float filter_3D\nend_header");
        let bytes = [header.as_bytes(), &row, &0.5_f32.to_le_bytes()].concat();
        let read = parsed(&bytes).unwrap().checked.splats;
        let (before, after) = (splats.columns(), read.columns());
        let mut shrink = 1.0;
        for (before, after) in before.log_scales[0].iter().zip(after.log_scales[0]) {
            let (before, after) = (f64::from(*before).exp(), f64::from(after).exp());
            assert!((after - (before * before + 0.25).sqrt()).abs() < 1e-6);
            shrink *= before / after;
        }
        let share = sigmoid(before.opacity_logits[0]) * shrink;
        assert!((sigmoid(after.opacity_logits[0]) - share).abs() < 1e-6);
    }

    #[rstest]
    #[case("property float scale_1", "property float size_1", "no column `scale_1`")]
    #[case("property float f_rest_8\n", "", "8 f_rest columns")]
    #[case("property float f_rest_3", "property float f_rest_9", "no column `f_rest_3`")]
    #[case("property float x", "property uchar x", "`x` is of type uchar")]
    #[case("property float nx", "property float x", "`x` twice")]
    #[case("property float opacity", "property list uchar float opacity", "list of float")]
    #[case("property float nx", "property list float int nx", "line 7")]
    #[case("property float nx", "property list uchar nx", "line 7")]
    #[case("property float nx", "property quaternion nx", "line 7")]
    #[case("binary_little_endian", "binary_middle_endian", "`binary_middle_endian 1.0`")]
    #[case("binary_little_endian", "ascii", "no row of `vertex`")]
    #[case(
        "property float f_dc_1",
        "property float green",
        "no column `f_dc_1`, which Gaussians need"
    )]
    #[case("element vertex 2", "element vertex 3", "truncated")]
    #[case("element vertex 2", "element vertex 18446744073709551615", "truncated")]
    #[case("element vertex 2", "element vertex many", "line 3")]
    #[case("element vertex 2", "element face 2", "no `element vertex`")]
    #[case("ply", "PLY?", "not a PLY")]
    fn broken_header_is_named(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
        let message = fault_of(&plain(&random_splats(2, 1, 1)), from, to);
        assert!(message.contains(expected), "{message}");
    }

    /// Returns the message about a file with a changed header.
    fn fault_of(bytes: &[u8], from: &str, to: &str) -> String {
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header = String::from_utf8_lossy(&bytes[..end]).replacen(from, to, 1);
        parsed(&[header.as_bytes(), &bytes[end..]].concat()).unwrap_err().to_string()
    }

    fn packed(splats: &Splats) -> (Vec<u8>, WorstErrors) {
        let mut bytes = Vec::new();
        let worst = write_packed_ply(splats, &mut bytes).unwrap();
        (bytes, worst)
    }

    #[rstest]
    fn packed_rows_are_within_their_steps(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 255, 256, 257, 1025)] count: usize,
    ) {
        let (bytes, worst) = packed(&random_splats(count, sh_degree, 4));
        let read = parsed(&bytes).unwrap();
        assert_eq!((read.is_packed, read.checked.splats.len()), (true, count));
        assert_eq!(read.checked.splats.sh_degree(), sh_degree);
        // Half a step in a chunk: at most 20 units in 10 bits, 5 in 10, 0.96 in 8; half of 1/255 for opacities; half of
        // 1/32 for coefficients. Rotation components have an error of half of √2/1023, and the largest up to three
        // times that: the angle is at most twice the root of 3 + 9 of these squares.
        assert!(worst.position < 0.5 * 20.0 / 1023.0 + 1e-5, "{worst:?}");
        assert!(worst.log_scale < 0.5 * 5.0 / 1023.0 + 1e-5, "{worst:?}");
        assert!(worst.color < 0.5 * 0.96 / 255.0 + 1e-5, "{worst:?}");
        assert!(worst.opacity < 0.5 / 255.0 + 1e-5, "{worst:?}");
        assert!(worst.sh <= 1.0 / 64.0 + 1e-5, "{worst:?}");
        assert!(worst.rotation_degrees < 0.28, "{worst:?}");
    }

    #[test]
    fn packed_rows_of_equal_position_and_extreme_scales_are_kept() {
        let (bytes, worst) = packed(&hard_splats(300, 1));
        assert_eq!(parsed(&bytes).unwrap().checked.splats.len(), 300);
        assert_eq!(worst.position, 0.0);
        // Half a step of 15.5 in 10 bits.
        assert!(worst.log_scale < 0.5 * 15.5 / 1023.0 + 1e-5, "{worst:?}");
        assert!(worst.opacity < 1.01 / 255.0, "{worst:?}");
    }

    #[test]
    fn packed_file_keeps_antialiasing_and_names_its_elements() {
        let mut splats = random_splats(300, 2, 5);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let (bytes, _) = packed(&splats);
        let read = parsed(&bytes).unwrap().checked.splats;
        assert_eq!(read.columns().antialiasing, Antialiasing::On);
        let text = String::from_utf8_lossy(&bytes);
        for line in ["element chunk 2", "element vertex 300", "element sh 300"] {
            assert!(text.contains(line), "{line}");
        }
        let end = text.find("end_header\n").unwrap() + "end_header\n".len();
        assert_eq!(bytes.len() - end, 2 * 72 + 300 * 16 + 300 * 24);
    }

    #[test]
    fn bytes_after_the_last_row_are_noted() {
        let splats = random_splats(300, 1, 6);
        for bytes in [plain(&splats), packed(&splats).0] {
            assert!(parsed(&bytes).unwrap().checked.notes.is_empty());
            let notes = parsed(&[&bytes[..], b"more"].concat()).unwrap().checked.notes;
            assert!(notes.len() == 1 && notes[0].starts_with("4 bytes after"), "{notes:?}");
        }
    }

    #[rstest]
    #[case("element chunk 2", "element chunk 1", "1 chunks for 300")]
    #[case("element sh 300", "element sh 299", "299 rows of SH")]
    #[case("property uchar f_rest_0", "property list uchar uchar f_rest_0", "9 columns of SH")]
    #[case("property uint packed_color", "property float packed_color", "packed_color")]
    #[case("element vertex 300", "element vertex 4294967295", "chunks for 4294967295")]
    fn broken_packed_header_is_named(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
        let message = fault_of(&packed(&random_splats(300, 1, 6)).0, from, to);
        assert!(message.contains(expected), "{message}");
    }
}
