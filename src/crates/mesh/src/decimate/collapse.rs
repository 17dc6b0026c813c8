//! Edge collapses of a whole mesh or of one block.

use meshopt::{SimplifyOptions, SimplifyVertex, simplify_with_update};

use crate::mesh::Mesh;

/// How much a colour channel counts against a place, in the mesh's size.
const COLOR_WEIGHT: f32 = 0.05;

/// Collapses edges of a checked mesh without normals until `target_faces` are left or none can be
/// collapsed; nothing where there are no more. Vertices that are no longer used stay.
pub(super) fn collapse(
    mesh: &mut Mesh,
    locks: Option<&[SimplifyVertex]>,
    target_faces: usize,
    options: SimplifyOptions,
) {
    if mesh.faces.len() <= target_faces {
        return;
    }
    let has_colors = !mesh.colors.is_empty();
    let weights: &[f32] = if has_colors { &[COLOR_WEIGHT; 3] } else { &[] };
    let left = simplify_with_update(
        mesh.faces.as_flattened_mut(),
        &mut mesh.vertices,
        mesh.colors.as_flattened_mut(),
        weights,
        size_of_val(weights),
        locks,
        target_faces.saturating_mul(3),
        f32::MAX,
        options,
        None,
    );
    mesh.faces.truncate(left / 3);
    mesh.colors
        .as_flattened_mut()
        .iter_mut()
        .for_each(|channel| *channel = channel.clamp(0.0, 1.0));
}
