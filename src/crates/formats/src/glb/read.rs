//! GLB with Gaussians, read.

use super::accessor::GlbContent;
use super::document::{GltfDocument, GltfPrimitive};
use super::nodes::{PlacedMesh, placed_meshes};
use super::{EXTENSION, TURN, rest_name};
use crate::fault::FormatFault;
use crate::json::parse_json;
use crate::opacity::logit;
use crate::splats::{CheckedSplats, SplatColumns, Splats, sh_rest_count};
use splat_mesh::file::GlbChunks;
use splat_mesh::narrow::to_f32;

/// Longest JSON that is read: a hundred times that of a file of Gaussians.
const MOST_JSON_BYTES: usize = 1 << 20;

/// The colours that all other formats have.
const USUAL_COLORS: &str = "srgb_rec709_display";

/// Reads all Gaussians of the scene of a whole file, placed by its nodes, into the scene's axes.
///
/// Scales that are negative are logarithms, as the draft of 2025 had them.
pub fn parse_glb(bytes: &[u8]) -> Result<CheckedSplats, FormatFault> {
    let content = content_of(bytes)?;
    if let Some(uri) = content.document.buffers.iter().find_map(|buffer| buffer.uri.as_ref()) {
        return Err(FormatFault::Unsupported(format!(
            "keeps values in another file, {}: export it as one GLB",
            uri.chars().take(60).collect::<String>()
        )));
    }
    let mut notes = Vec::new();
    let mut parts: Vec<Splats> = Vec::new();
    let (mut dropped, mut count) = (0, 0);
    for PlacedMesh { mesh, to } in placed_meshes(&content.document)? {
        let Some(mesh) = content.document.meshes.get(mesh) else {
            return Err(FormatFault::damaged(format!("names mesh {mesh}, which is not there")));
        };
        for primitive in mesh.primitives.iter().filter(|it| it.extensions.splatting.is_some()) {
            check_extension(primitive, &mut notes)?;
            let mut part = Splats::from_columns(columns_of(&content, primitive, &mut notes)?)?;
            dropped += part.dropped + to.place(&mut part.splats)?;
            count += part.splats.len();
            // A mesh may stand in many places: not more Gaussians than bytes.
            if count > bytes.len() {
                return Err(FormatFault::damaged("repeats its Gaussians too often"));
            }
            parts.push(part.splats);
        }
    }
    let Some(sh_degree) = parts.iter().map(Splats::sh_degree).max() else {
        return Err(FormatFault::Unsupported(format!(
            "holds no Gaussians ({EXTENSION}): give a GLB of a trained scene"
        )));
    };
    let mut columns = SplatColumns::with_capacity(sh_degree, count);
    for part in parts {
        columns.append(&part.with_sh_degree(sh_degree).into_columns());
    }
    let mut checked = Splats::from_columns(columns)?;
    let turned = checked.splats.place(&TURN);
    checked.dropped += dropped;
    checked.dropped += turned.map_err(|error| FormatFault::damaged(error.to_string()))?;
    notes.dedup();
    checked.notes = notes;
    Ok(checked)
}

fn content_of(bytes: &[u8]) -> Result<GlbContent<'_>, FormatFault> {
    let GlbChunks { json, binary } = GlbChunks::of(bytes)?;
    if json.len() > MOST_JSON_BYTES {
        return Err(FormatFault::damaged("has JSON of more than 1 MiB, so it is no scene"));
    }
    let document: GltfDocument = parse_json("JSON", json)?;
    Ok(GlbContent { document, binary })
}

fn check_extension(primitive: &GltfPrimitive, notes: &mut Vec<String>) -> Result<(), FormatFault> {
    let Some(extension) = &primitive.extensions.splatting else { return Ok(()) };
    if let Some(packing) = extension.extensions.keys().next() {
        return Err(FormatFault::Unsupported(format!(
            "is packed by {packing}, which is not read: export it without"
        )));
    }
    match extension.color_space.as_deref() {
        None | Some(USUAL_COLORS) => {}
        Some(other) => notes.push(format!("its colours, of {other}, are taken as they are")),
    }
    Ok(())
}

fn columns_of(
    content: &GlbContent<'_>,
    primitive: &GltfPrimitive,
    notes: &mut Vec<String>,
) -> Result<SplatColumns, FormatFault> {
    let number = |name: &str| {
        primitive.attributes.get(name).copied().ok_or_else(|| {
            FormatFault::damaged(format!("has no attribute {name}, which Gaussians need"))
        })
    };
    let own = |name: &str| number(&format!("{EXTENSION}:{name}"));
    let position = number("POSITION")?;
    let count = content.accessor(position)?.count;
    let means = content.rows::<3>(position, count)?;
    let rotations = content.rows::<4>(own("ROTATION")?, count)?;
    let scales = content.rows::<3>(own("SCALE")?, count)?;
    let opacities = content.rows::<1>(own("OPACITY")?, count)?;
    let sh_dc = content.rows::<3>(own("SH_DEGREE_0_COEF_0")?, count)?;
    let has_all = |degree: u32| {
        (0..sh_rest_count(degree)).all(|k| primitive.attributes.contains_key(&rest_name(k)))
    };
    let sh_degree = (1..=3).take_while(|&degree| has_all(degree)).last().unwrap_or(0);
    let width = sh_rest_count(sh_degree);
    let coefficients = (0..width)
        .map(|k| content.rows::<3>(number(&rest_name(k))?, count))
        .collect::<Result<Vec<_>, _>>()?;

    let is_draft = scales.as_flattened().iter().any(|&scale| scale < 0.0);
    if is_draft {
        notes.push(
            "the file has negative scales, so it is of the draft of 2025 and has logarithms"
                .to_owned(),
        );
    }
    let log = |scale: f32| if is_draft { scale } else { to_f32(f64::from(scale).ln()) };
    Ok(SplatColumns {
        sh_degree,
        means,
        log_scales: scales.iter().map(|scale| scale.map(log)).collect(),
        rotations: rotations.iter().map(|&[x, y, z, w]| [w, x, y, z]).collect(),
        opacity_logits: opacities
            .iter()
            .map(|&[share]| logit(f64::from(share).clamp(0.0, 1.0)))
            .collect(),
        sh_dc,
        sh_rest: (0..count).flat_map(|row| coefficients.iter().map(move |c| c[row])).collect(),
        ..SplatColumns::default()
    })
}
