//! The plain layout, read.

use std::io::{BufRead, Read};

use rayon::prelude::*;

use super::header::{PlyElement, PlyHead, PlyProperty, PlyType};
use crate::fault::FormatFault;
use crate::narrow::to_f32;
use crate::opacity::{logit, sigmoid};
use crate::splats::{
    Antialiasing, CheckedSplats, FLAT_LOG_SCALE, SplatColumns, SplatPrimitive, Splats,
};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 16 << 20;

/// Rows that one thread takes one after the other.
const ROWS_AT_A_TIME: usize = 4096;

/// Where the values of a row are.
struct RowLayout {
    means: Vec<PlyProperty>,
    sh_dc: Vec<PlyProperty>,
    sh_rest: Vec<PlyProperty>,
    opacity: PlyProperty,
    scales: [PlyProperty; 2],
    /// Surfels have none.
    third_scale: Option<PlyProperty>,
    rotations: Vec<PlyProperty>,
    filter: Option<PlyProperty>,
}

/// The number of values above degree 0 of each degree.
const REST_VALUES: [usize; 4] = [0, 9, 24, 45];

impl RowLayout {
    fn of(element: &PlyElement) -> Result<Self, FormatFault> {
        let one = |name: &str| element.property(name, &[PlyType::F32, PlyType::F64]).cloned();
        let numbered = |prefix: &str, count: usize| {
            (0..count).map(|i| one(&format!("{prefix}{i}"))).collect::<Result<Vec<_>, _>>()
        };
        let if_there = |name: &str| element.has(name).then(|| one(name)).transpose();
        let count = element.properties.iter().filter(|p| p.name.starts_with("f_rest_")).count();
        let means = ["x", "y", "z"].into_iter().map(one).collect::<Result<_, _>>()?;
        let layout = Self {
            means,
            sh_dc: numbered("f_dc_", 3)?,
            opacity: one("opacity")?,
            scales: [one("scale_0")?, one("scale_1")?],
            third_scale: if_there("scale_2")?,
            rotations: numbered("rot_", 4)?,
            filter: if_there("filter_3D")?,
            sh_rest: Vec::new(),
        };
        if !REST_VALUES.contains(&count) {
            return Err(FormatFault::damaged(format!(
                "has {count} f_rest columns; 0, 9, 24 or 45 are expected (SH degree 0 to 3)"
            )));
        }
        Ok(Self { sh_rest: numbered("f_rest_", count)?, ..layout })
    }

    fn sh_degree(&self) -> u32 {
        (0..).zip(REST_VALUES).find(|(_, count)| *count == self.sh_rest.len()).map_or(0, |it| it.0)
    }

    fn primitive(&self) -> SplatPrimitive {
        match self.third_scale {
            Some(_) => SplatPrimitive::Gaussians,
            None => SplatPrimitive::Surfels,
        }
    }

    fn take(&self, row: &[u8], columns: &mut SplatColumns) {
        let values =
            |properties: &[PlyProperty]| std::array::from_fn(|i| value(&properties[i], row));
        let [first, second] = [0, 1].map(|i| value(&self.scales[i], row));
        let third = self.third_scale.as_ref().map_or(FLAT_LOG_SCALE, |third| value(third, row));
        let mut scales = [first, second, third];
        let mut opacity = value(&self.opacity, row);
        // It would make surfels thick.
        if let Some(filter) = self.filter.as_ref().filter(|_| self.third_scale.is_some()) {
            (scales, opacity) = filtered(scales, opacity, value(filter, row));
        }
        columns.means.push(values(&self.means));
        columns.log_scales.push(scales);
        columns.opacity_logits.push(opacity);
        columns.sh_dc.push(values(&self.sh_dc));
        columns.rotations.push(std::array::from_fn(|i| value(&self.rotations[i], row)));
        let coefficients = self.sh_rest.len() / 3;
        for k in 0..coefficients {
            let channel = |c: usize| value(&self.sh_rest[c * coefficients + k], row);
            columns.sh_rest.push(std::array::from_fn(channel));
        }
    }
}

/// A value of a row; NaN where the row is too short.
fn value(property: &PlyProperty, row: &[u8]) -> f32 {
    let bytes = row.get(property.offset..).unwrap_or_default();
    match property.kind {
        PlyType::F64 => {
            bytes.first_chunk().map_or(f32::NAN, |bytes| to_f32(f64::from_le_bytes(*bytes)))
        }
        _ => bytes.first_chunk().map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes)),
    }
}

/// Scales and opacity with a 3D filter of this standard deviation baked in (Mip-Splatting, Yu and
/// others, 2024, equation 8).
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

/// Reads the rows of `vertex`; `input` stands after the header.
pub(super) fn read_rows(
    head: &PlyHead,
    input: &mut impl BufRead,
    file_bytes: u64,
) -> Result<CheckedSplats, FormatFault> {
    let (element, start) = head.find("vertex")?;
    let layout = RowLayout::of(element)?;
    let (needed, found) = (element.bytes(), file_bytes.saturating_sub(start));
    let count = match usize::try_from(element.rows) {
        Ok(count) if needed <= found => count,
        _ => return Err(FormatFault::truncated("its table of Gaussians", needed, found)),
    };
    // What is skipped cannot be longer than the file, which holds it.
    std::io::copy(&mut input.by_ref().take(start - head.bytes), &mut std::io::sink())?;

    let mut columns = SplatColumns::with_capacity(layout.sh_degree(), count);
    columns.primitive = layout.primitive();
    let at_once = (CHUNK_BYTES / element.row_bytes.max(1)).max(1);
    let mut buffer = vec![0; element.row_bytes * at_once.min(count)];
    let mut left = count;
    while left > 0 {
        let rows = left.min(at_once);
        let chunk = &mut buffer[..rows * element.row_bytes];
        input.read_exact(chunk)?;
        let parts: Vec<SplatColumns> = chunk
            .par_chunks(ROWS_AT_A_TIME * element.row_bytes.max(1))
            .map(|rows| {
                let mut part = SplatColumns::with_capacity(layout.sh_degree(), ROWS_AT_A_TIME);
                rows.chunks_exact(element.row_bytes).for_each(|row| layout.take(row, &mut part));
                part
            })
            .collect();
        parts.iter().for_each(|part| columns.append(part));
        left -= rows;
    }
    if head.is_antialiased() {
        columns.antialiasing = Antialiasing::On;
    }
    Ok(Splats::from_columns(columns)?)
}
