//! Charts that bend little, flattened by least-squares conformal maps and packed in rows
//! (`uvunwrap`).

use uvunwrap::{Density, MeshInput, Options, Packing};

use super::check::AtlasCheck;
use super::instead::Instead;
use super::options::AtlasOptions;
use super::places::Atlas;
use crate::edges::{Edges, NO_SIDE};
use crate::mesh::Mesh;
use crate::narrow::{to_f32, to_u32};
use crate::place::{area, corners, doubled_area};
use crate::vector::{dot, normalize};

/// Charts of equal area that a surface has at least: larger ones take longer to flatten and bend more.
const LEAST_CHARTS: f64 = 316.0;

/// Above this median angle between neighbours charts would be as many as faces.
const CRUMPLED_DEGREES: f64 = 30.0;

/// Faces whose charts may take a minute.
const MANY_FACES: usize = 2_400_000;

/// Lays a checked mesh out, or says why not.
pub(super) fn charts(mesh: &Mesh, options: &AtlasOptions) -> Result<Atlas, Instead> {
    if mesh.faces.len() > MANY_FACES {
        return Err(Instead::TooMany(mesh.faces.len()));
    }
    let degrees = median_angle(mesh);
    if degrees > CRUMPLED_DEGREES {
        return Err(Instead::Crumpled(degrees));
    }
    let atlas = unwrap(mesh, options)?;
    let check = AtlasCheck::of(&atlas);
    if check.is_sound() { Ok(atlas) } else { Err(Instead::Faulty(check)) }
}

/// The median angle in degrees between the normals of two faces at an edge.
fn median_angle(mesh: &Mesh) -> f64 {
    let twins = Edges::of(&mesh.faces).twins();
    let normal = |side: u32| normalize(doubled_area(corners(mesh, mesh.faces[side as usize / 3])));
    let mut cosines: Vec<f64> = (0..to_u32(twins.len()))
        .filter(|&side| twins[side as usize] != NO_SIDE && side < twins[side as usize])
        .map(|side| dot(normal(side), normal(twins[side as usize])))
        .collect();
    if cosines.is_empty() {
        return 0.0;
    }
    let middle = cosines.len() / 2;
    let (_, cosine, _) = cosines.select_nth_unstable_by(middle, f64::total_cmp);
    cosine.clamp(-1.0, 1.0).acos().to_degrees()
}

/// Unwraps a mesh to one picture.
fn unwrap(mesh: &Mesh, options: &AtlasOptions) -> Result<Atlas, Instead> {
    let total: f64 = mesh.faces.iter().map(|&face| area(corners(mesh, face))).sum();
    let unwrap_options = Options {
        max_chart_area: to_f32(total / LEAST_CHARTS),
        density: Density::Auto { page_size: options.side_px },
        padding: options.padding_px,
        packing: Packing::Fast,
        ..Options::default()
    };
    let input = MeshInput::new(&mesh.vertices, mesh.faces.as_flattened());
    let made = uvunwrap::generate(&[input], &unwrap_options)
        .map_err(|error| Instead::Refused(error.to_string()))?;
    if made.page_count > 1 {
        return Err(Instead::Pages(made.page_count));
    }
    let (width, height) = (made.width as f32, made.height as f32);
    let unwrapped = made.meshes.first();
    let places_px = unwrapped
        .map(|mesh| mesh.vertices.iter().map(|v| [v.uv[0] * width, v.uv[1] * height]).collect())
        .unwrap_or_default();
    let faces = unwrapped
        .map(|mesh| mesh.indices.chunks_exact(3).map(|f| [f[0], f[1], f[2]]).collect())
        .unwrap_or_default();
    let [width, height] = [made.width, made.height].map(|side| side.next_multiple_of(4));
    Ok(Atlas { width, height, places_px, faces, charts: made.chart_count })
}
