//! Cutting off what no points support.

use crate::edges::Edges;
use crate::mesh::Mesh;
use crate::narrow::floor_u32;
use crate::vertices::{drop_unused, keep_rows};

/// Below which density vertices go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trim {
    /// Nothing goes: the surface stays closed.
    Nothing,
    /// This share of the vertices goes, those of the lowest density; 0 to 1.
    Quantile(f64),
    /// Vertices with fewer points a cell go.
    PointsACell(f64),
}

/// Trimming left nothing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "cutting off what no points support left none of {vertices} vertices and {faces} faces. Give a smaller --density-trim or --density-min, or 0"
)]
pub struct NothingLeft {
    /// Vertices before.
    pub vertices: usize,
    /// Faces before.
    pub faces: usize,
}

/// Drops the vertices below the trim's density, `densities` a vertex, and faces that touch them; and then
/// vertices without a face. Returns how many faces went.
pub fn trim(mesh: &mut Mesh, densities: &mut Vec<f32>, trim: Trim) -> Result<usize, NothingLeft> {
    let least = match trim {
        Trim::Nothing => return Ok(0),
        Trim::PointsACell(least) => least,
        Trim::Quantile(share) => quantile(densities, share),
    };
    let goes: Vec<bool> = densities.iter().map(|&density| f64::from(density) < least).collect();
    cut_off(mesh, densities, &goes)
}

/// Drops the vertices that `goes` names, and faces that touch them; and then vertices without a face. Returns
/// how many faces went. `densities` and `goes` have a value a vertex.
pub fn cut_off(
    mesh: &mut Mesh,
    densities: &mut Vec<f32>,
    goes: &[bool],
) -> Result<usize, NothingLeft> {
    let before = NothingLeft { vertices: mesh.vertices.len(), faces: mesh.faces.len() };
    mesh.faces.retain(|face| !face.iter().any(|&vertex| goes[vertex as usize]));
    if mesh.faces.is_empty() {
        return Err(before);
    }
    let used = drop_unused(mesh);
    keep_rows(densities, &used);
    Ok(before.faces - mesh.faces.len())
}

/// The value below which this share of the values lies.
fn quantile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let below = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil();
    let index = floor_u32(below) as usize;
    sorted.get(index).map_or(f64::INFINITY, |&value| f64::from(value))
}

/// Edges of one face only: none in a closed surface.
pub fn open_edges(mesh: &Mesh) -> usize {
    Edges::of(&mesh.faces).groups().filter(|sides| sides.len() == 1).count()
}
