//! GLB with Gaussians, written.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::accessor::{FLOAT, UNSIGNED_BYTE};
use super::{EXTENSION, TURN, rest_name};
use crate::morton::bounds;
use crate::opacity::{logit, sigmoid};
use crate::splats::{Antialiasing, SH_C0, SplatColumns, Splats, sh_rest_count};
use crate::worst::WorstErrors;
use splat_mesh::file::{MOST_GLB_BYTES, glb_bytes, json_chunk, write_chunks};
use splat_mesh::narrow::{round_u8, to_f32};

/// Rows that are laid out at a time.
const ROWS_AT_ONCE: usize = 1 << 14;

/// A view of values of vertices, as OpenGL counts.
const VERTEX_BUFFER: u32 = 34_962;

/// Gaussians that no GLB can hold.
#[derive(Debug, thiserror::Error)]
pub enum GlbError {
    /// A GLB counts its bytes in 32 bits.
    #[error(
        "a GLB holds {limit} bytes at most, but {count} Gaussians need {needed}: crop the scene or \
         cut its SH degree"
    )]
    TooLarge {
        /// Bytes of the file.
        needed: u64,
        /// Bytes that it may have.
        limit: u64,
        /// Gaussians.
        count: usize,
    },
    /// None at all: glTF has no empty accessors.
    #[error("a GLB cannot hold a scene without Gaussians: crop less")]
    Empty,
    /// The file cannot be written.
    #[error("GLB cannot be written: {0}. Check the free space and the permissions of the folder")]
    Write(#[from] io::Error),
}

/// Writes Gaussians in the order in which they stand, y upwards. Returns how far from the argument
/// the file is.
///
/// The extension has no place for the 2D filter of Mip-Splatting, which is lost.
pub fn write_glb(splats: &Splats, out: &mut dyn Write) -> Result<WorstErrors, GlbError> {
    if splats.is_empty() {
        return Err(GlbError::Empty);
    }
    let mut turned = splats.clone();
    turned.place(&TURN).map_err(io::Error::other)?;
    turned.columns_mut().antialiasing = Antialiasing::Off;
    let columns = turned.columns();
    let values = values(columns);
    let binary: u64 = values.iter().map(|value| value.bytes(columns.len())).sum();
    let json = json_chunk(&describe(columns, &values, binary));
    let needed = glb_bytes(&json, binary);
    if needed > MOST_GLB_BYTES {
        return Err(GlbError::TooLarge { needed, limit: MOST_GLB_BYTES, count: splats.len() });
    }
    write_chunks(out, &json, binary)?;
    for value in &values {
        write_rows(columns, value, out)?;
    }
    Ok(WorstErrors::between(splats, &stored(turned)?))
}

/// What is stored of a Gaussian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GlbValueKind {
    Position,
    Color,
    Rotation,
    Scale,
    Opacity,
    Dc,
    Rest(usize),
}

/// An attribute.
struct GlbValue {
    kind: GlbValueKind,
    name: String,
}

impl GlbValue {
    const fn row_bytes(&self) -> u64 {
        match self.kind {
            GlbValueKind::Color | GlbValueKind::Opacity => 4,
            GlbValueKind::Rotation => 16,
            _ => 12,
        }
    }

    const fn bytes(&self, rows: usize) -> u64 {
        self.row_bytes() * rows as u64
    }

    const fn type_name(&self) -> &'static str {
        match self.kind {
            GlbValueKind::Color | GlbValueKind::Rotation => "VEC4",
            GlbValueKind::Opacity => "SCALAR",
            _ => "VEC3",
        }
    }
}

fn values(columns: &SplatColumns) -> Vec<GlbValue> {
    let own =
        |kind: GlbValueKind, name: &str| GlbValue { kind, name: format!("{EXTENSION}:{name}") };
    let mut values = vec![
        GlbValue { kind: GlbValueKind::Position, name: "POSITION".to_owned() },
        GlbValue { kind: GlbValueKind::Color, name: "COLOR_0".to_owned() },
        own(GlbValueKind::Rotation, "ROTATION"),
        own(GlbValueKind::Scale, "SCALE"),
        own(GlbValueKind::Opacity, "OPACITY"),
        own(GlbValueKind::Dc, "SH_DEGREE_0_COEF_0"),
    ];
    values.extend(
        (0..sh_rest_count(columns.sh_degree))
            .map(|k| GlbValue { kind: GlbValueKind::Rest(k), name: rest_name(k) }),
    );
    values
}

/// The JSON chunk: each attribute has its accessor and its view, of the same number.
fn describe(columns: &SplatColumns, values: &[GlbValue], binary: u64) -> Value {
    let (mut views, mut accessors, mut start) = (Vec::new(), Vec::new(), 0);
    let mut attributes = serde_json::Map::new();
    for (number, value) in values.iter().enumerate() {
        let bytes = value.bytes(columns.len());
        views.push(json!({"buffer": 0, "byteOffset": start, "byteLength": bytes,
            "target": VERTEX_BUFFER}));
        start += bytes;
        let is_color = value.kind == GlbValueKind::Color;
        let mut accessor = json!({"bufferView": number, "count": columns.len(),
            "componentType": if is_color { UNSIGNED_BYTE } else { FLOAT },
            "type": value.type_name()});
        if is_color {
            accessor["normalized"] = json!(true);
        }
        if value.kind == GlbValueKind::Position {
            let (low, high) = bounds(&columns.means);
            accessor["min"] = json!(low);
            accessor["max"] = json!(high);
        }
        accessors.push(accessor);
        attributes.insert(value.name.clone(), json!(number));
    }
    json!({
        "asset": {"version": "2.0", "generator": "splat"},
        "extensionsUsed": [EXTENSION],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{
            "attributes": attributes,
            "mode": 0,
            "extensions": {EXTENSION: {
                "kernel": "ellipse",
                "colorSpace": "srgb_rec709_display",
                "sortingMethod": "cameraDistance",
                "projection": "perspective",
            }},
        }]}],
        "buffers": [{"byteLength": binary}],
        "bufferViews": views,
        "accessors": accessors,
    })
}

/// A scale as it is stored: finite.
fn scale(log_scale: f32) -> f32 {
    to_f32(f64::from(log_scale).exp().min(f64::from(f32::MAX)))
}

fn write_rows(columns: &SplatColumns, value: &GlbValue, out: &mut dyn Write) -> io::Result<()> {
    let mut bytes = Vec::new();
    for start in (0..columns.len()).step_by(ROWS_AT_ONCE) {
        bytes.clear();
        for row in start..columns.len().min(start + ROWS_AT_ONCE) {
            put_row(columns, value.kind, row, &mut bytes);
        }
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn put_row(columns: &SplatColumns, kind: GlbValueKind, row: usize, to: &mut Vec<u8>) {
    let mut put = |values: &[f32]| to.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    match kind {
        GlbValueKind::Position => put(&columns.means[row]),
        GlbValueKind::Rotation => {
            let [w, x, y, z] = columns.rotations[row];
            put(&[x, y, z, w]);
        }
        GlbValueKind::Scale => put(&columns.log_scales[row].map(scale)),
        GlbValueKind::Opacity => put(&[to_f32(sigmoid(columns.opacity_logits[row]))]),
        GlbValueKind::Dc => put(&columns.sh_dc[row]),
        GlbValueKind::Rest(k) => put(&columns.rest(row)[k]),
        GlbValueKind::Color => to.extend(color(columns, row)),
    }
}

/// Red, green, blue and opacity, for programs that draw points.
fn color(columns: &SplatColumns, row: usize) -> [u8; 4] {
    let [r, g, b] = columns.sh_dc[row].map(|c| round_u8(255.0 * (0.5 + SH_C0 * f64::from(c))));
    [r, g, b, round_u8(255.0 * sigmoid(columns.opacity_logits[row]))]
}

/// What reading the file gives.
fn stored(mut turned: Splats) -> io::Result<Splats> {
    let columns = turned.columns_mut();
    for value in columns.log_scales.as_flattened_mut() {
        *value = to_f32(f64::from(scale(*value)).ln());
    }
    for value in &mut columns.opacity_logits {
        *value = logit(f64::from(to_f32(sigmoid(*value))));
    }
    let mut stored = Splats::from_columns(turned.into_columns()).map_err(io::Error::other)?.splats;
    stored.place(&TURN).map_err(io::Error::other)?;
    Ok(stored)
}
