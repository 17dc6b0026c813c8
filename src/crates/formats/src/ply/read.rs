//! The plain layout, read.

use std::io::BufRead;

use rayon::prelude::*;
use splat_mesh::file::ply::{PlyElement, PlyHeader, PlyProperty, Scalar};
use splat_mesh::narrow::to_f32;

use super::header::{check_length, column, element, is_antialiased};
use super::rows;
use crate::fault::FormatFault;
use crate::opacity::{logit, sigmoid};
use crate::splats::{
    Antialiasing, CheckedSplats, FLAT_LOG_SCALE, MAX_SH_DEGREE, SH_C0, SplatColumns,
    SplatPrimitive, Splats, sh_rest_count,
};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 16 << 20;

/// Rows that one thread takes one after the other.
const ROWS_AT_A_TIME: usize = 4096;

/// Where the values of a row are.
struct RowLayout {
    means: Vec<PlyProperty>,
    /// Coefficients of degree 0, or red, green, blue.
    colors: Vec<PlyProperty>,
    /// Value of a full channel, if the colours are no coefficients; 1 also stands for 255 in floats.
    full_channel: Option<f32>,
    sh_rest: Vec<PlyProperty>,
    opacity: PlyProperty,
    scales: [PlyProperty; 2],
    /// Surfels have none.
    third_scale: Option<PlyProperty>,
    rotations: Vec<PlyProperty>,
    filter: Option<PlyProperty>,
    /// Sentences about columns that are left out.
    notes: Vec<String>,
}

/// Names of colours that stand for coefficients of degree 0.
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
        let channels = if element.has("f_dc_0") {
            None
        } else {
            CHANNELS.iter().find(|it| element.has(it[0]))
        };
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
                    return Err(FormatFault::damaged(format!(
                        "has colours of the types {} and {}",
                        colors[0].scalar.name(),
                        other.scalar.name()
                    )));
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
            return Err(FormatFault::damaged(format!(
                "has {count} f_rest columns; a multiple of 3 is expected: 9, 24 or 45 for SH degree 1 to 3"
            )));
        }
        if 3 * sh_rest_count(layout.sh_degree()) < count {
            layout.notes.push(format!(
                "of its {count} f_rest columns, those above SH degree {} are left out",
                layout.sh_degree()
            ));
        }
        Ok(layout)
    }

    /// The highest degree that has all of its columns.
    fn sh_degree(&self) -> u32 {
        let has_all = |degree: &u32| 3 * sh_rest_count(*degree) <= self.sh_rest.len();
        (0..=MAX_SH_DEGREE).rev().find(has_all).unwrap_or(0)
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
        columns.sh_dc.push(values(&self.colors));
        columns.rotations.push(std::array::from_fn(|i| value(&self.rotations[i], row)));
        let coefficients = self.sh_rest.len() / 3;
        for k in 0..sh_rest_count(columns.sh_degree) {
            let channel = |c: usize| value(&self.sh_rest[c * coefficients + k], row);
            columns.sh_rest.push(std::array::from_fn(channel));
        }
    }
}

/// A value of a row; NaN where the row is too short.
fn value(property: &PlyProperty, row: &[u8]) -> f32 {
    to_f32(property.value(row))
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
    head: &PlyHeader,
    input: &mut impl BufRead,
    file_bytes: u64,
) -> Result<CheckedSplats, FormatFault> {
    let (index, element) = element(head, "vertex")?;
    let layout = RowLayout::of(element)?;
    check_length(head, index, file_bytes)?;
    let Ok(count) = usize::try_from(element.rows) else {
        return Err(FormatFault::damaged(format!("announces {} Gaussians", element.rows)));
    };
    for before in &head.elements[..index] {
        rows::skip_rows(before, head.encoding, input)?;
    }

    let mut columns = SplatColumns::with_capacity(layout.sh_degree(), count);
    columns.primitive = layout.primitive();
    let at_once = (CHUNK_BYTES / element.row_bytes.max(1)).max(1);
    let mut buffer = vec![0; element.row_bytes * at_once.min(count)];
    let mut left = count;
    while left > 0 {
        let now = left.min(at_once);
        let chunk = &mut buffer[..now * element.row_bytes];
        rows::read_rows(element, head.encoding, input, chunk)?;
        let parts: Vec<SplatColumns> = chunk
            .par_chunks(ROWS_AT_A_TIME * element.row_bytes.max(1))
            .map(|rows| {
                let mut part = SplatColumns::with_capacity(layout.sh_degree(), ROWS_AT_A_TIME);
                rows.chunks_exact(element.row_bytes).for_each(|row| layout.take(row, &mut part));
                part
            })
            .collect();
        parts.iter().for_each(|part| columns.append(part));
        left -= now;
    }
    if is_antialiased(head) {
        columns.antialiasing = Antialiasing::On;
    }
    let mut notes = layout.notes;
    if let Some(full) = layout.full_channel {
        coefficients_of_channels(&mut columns.sh_dc, full, &mut notes);
    }
    let mut checked = Splats::from_columns(columns)?;
    checked.notes = notes;
    Ok(checked)
}

/// Makes coefficients of degree 0 of the channels of colours.
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
