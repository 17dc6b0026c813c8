//! Cutting off what no points support.

use crate::mesh::Mesh;
use crate::narrow::to_u32;

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
    "trimming left none of {vertices} vertices and {faces} faces. Lower --density-trim or --density-min"
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
    let before = NothingLeft { vertices: mesh.vertices.len(), faces: mesh.faces.len() };
    // A vertex without a density has none.
    let density = |vertex: u32| densities.get(vertex as usize).copied().unwrap_or(0.0);
    let stays = |vertex: &u32| f64::from(density(*vertex)) >= least;
    mesh.faces.retain(|face| face.iter().all(stays));
    if mesh.faces.is_empty() {
        return Err(before);
    }
    let mut used = vec![false; mesh.vertices.len()];
    mesh.faces.as_flattened().iter().for_each(|&vertex| used[vertex as usize] = true);
    let mut number = Vec::with_capacity(used.len());
    let mut kept = 0;
    for &is_used in &used {
        number.push(to_u32(kept));
        kept += usize::from(is_used);
    }
    for face in &mut mesh.faces {
        *face = face.map(|vertex| number[vertex as usize]);
    }
    for column in [&mut mesh.vertices, &mut mesh.normals, &mut mesh.colors] {
        let mut row = used.iter();
        column.retain(|_| row.next().copied().unwrap_or(true));
    }
    let mut row = used.iter();
    densities.retain(|_| row.next().copied().unwrap_or(true));
    Ok(before.faces - mesh.faces.len())
}

/// The value below which this share of the values lies.
fn quantile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let below = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil();
    let index = crate::narrow::floor_u32(below) as usize;
    sorted.get(index).map_or(f64::INFINITY, |&value| f64::from(value))
}

/// Edges of one face only: none in a closed surface.
pub fn open_edges(mesh: &Mesh) -> usize {
    use rayon::prelude::*;
    let mut edges: Vec<u64> = mesh
        .faces
        .par_iter()
        .flat_map_iter(|&[a, b, c]| [(a, b), (b, c), (c, a)])
        .map(|(a, b)| u64::from(a.min(b)) << 32 | u64::from(a.max(b)))
        .collect();
    edges.par_sort_unstable();
    edges.chunk_by(|a, b| a == b).filter(|run| run.len() == 1).count()
}
