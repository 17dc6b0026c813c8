//! Fewer faces for the same surface, by edge collapses under quadric errors of places and colours
//! (meshoptimizer), then cleaned.

mod blocks;
mod collapse;

use meshopt::SimplifyOptions;

use crate::check::check_mesh;
use crate::clean::{CleanCounts, CleanError, CleanOptions, MinComponent, Sides, clean};
use crate::mesh::Mesh;
use crate::normals::vertex_normals;
use crate::vertices::compact;
use collapse::collapse;

/// How many times the final target a mesh in blocks keeps until the last pass, which alone moves what
/// lies between blocks.
const BLOCKS_KEEP: usize = 2;

/// How far to decimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimateOptions {
    /// Most faces that are left.
    pub target_faces: usize,
    /// Most faces that are decimated at once; more are cut in blocks first.
    pub block_faces: usize,
}

impl DecimateOptions {
    /// Down to so many faces, in blocks above a million.
    pub fn to(target_faces: usize) -> Self {
        Self { target_faces, block_faces: 1_000_000 }
    }
}

/// What decimation did.
#[derive(Clone, Debug, PartialEq)]
pub struct Decimated {
    /// Faces that came.
    pub faces_before: usize,
    /// Faces that are left; more than the target only where the surface allows no fewer.
    pub faces: usize,
    /// Blocks of the first pass; 1 where there was none.
    pub blocks: usize,
    /// What was cleaned afterwards.
    pub cleaned: CleanCounts,
}

/// Decimates a mesh to `target_faces` or fewer. Vertices move and colours change to where the error is
/// least; borders are kept as long as can be. Normals, if there were any, are computed anew.
pub fn decimate(
    mut mesh: Mesh,
    options: &DecimateOptions,
) -> Result<(Mesh, Decimated), CleanError> {
    check_mesh(&mesh)?;
    let faces_before = mesh.faces.len();
    let has_normals = !mesh.normals.is_empty();
    let mut blocks = 1;
    if faces_before > options.target_faces {
        mesh.normals.clear();
        let kept = options.target_faces.saturating_mul(BLOCKS_KEEP);
        if faces_before > options.block_faces && faces_before > kept {
            blocks = blocks::decimate_in_blocks(&mut mesh, kept, options.block_faces.max(1));
        }
        collapse(&mut mesh, None, options.target_faces, SimplifyOptions::Regularize);
        // What holds it back, if anything does, is the rule for even faces or that pieces stay.
        collapse(&mut mesh, None, options.target_faces, SimplifyOptions::Prune);
        if mesh.faces.is_empty() {
            let target = options.target_faces;
            return Err(CleanError::DecimatedAway { faces: faces_before, target });
        }
        compact(&mut mesh);
    }
    let as_it_is = CleanOptions {
        min_component: MinComponent::Faces(0),
        sides: Sides::Kept,
        fill_hole_edges: 0,
    };
    let (mut mesh, cleaned) = clean(mesh, &as_it_is)?;
    if has_normals && faces_before > options.target_faces {
        mesh.normals = vertex_normals(&mesh);
    }
    let faces = mesh.faces.len();
    Ok((mesh, Decimated { faces_before, faces, blocks, cleaned }))
}

#[cfg(test)]
mod tests;
