//! Meshes of a glTF and where its nodes put them.

use super::document::{GltfDocument, GltfNode};
use crate::fault::FormatFault;
use crate::place::{PlacementError, ScenePlacement};
use crate::quaternion::{matrix, quaternion};
use crate::splats::Splats;

/// Deepest tree of nodes that is read.
const MOST_LEVELS: usize = 64;

/// Largest deviation of the columns of a node's matrix from equal lengths and right angles.
const TOLERANCE: f64 = 1e-3;

/// A linear part, by rows, and a translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    rows: [[f64; 3]; 3],
    translation: [f64; 3],
}

/// A mesh in a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlacedMesh {
    pub(super) mesh: usize,
    pub(super) to: Affine,
}

impl Affine {
    const IDENTITY: Self =
        Self { rows: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], translation: [0.0; 3] };

    fn of(node: &GltfNode) -> Self {
        if let Some(m) = node.matrix {
            let rows = std::array::from_fn(|i| std::array::from_fn(|j| m[4 * j + i]));
            return Self { rows, translation: [m[12], m[13], m[14]] };
        }
        let [x, y, z, w] = node.rotation.unwrap_or([0.0, 0.0, 0.0, 1.0]);
        let length = (x * x + y * y + z * z + w * w).sqrt();
        let scale = node.scale.unwrap_or([1.0; 3]);
        let rows = matrix([w, x, y, z].map(|part| part / length));
        Self {
            rows: rows.map(|row| std::array::from_fn(|j| row[j] * scale[j])),
            translation: node.translation.unwrap_or_default(),
        }
    }

    fn point(&self, point: [f64; 3]) -> [f64; 3] {
        let dot = |row: [f64; 3]| row.iter().zip(point).map(|(a, b)| a * b).sum::<f64>();
        std::array::from_fn(|i| dot(self.rows[i]) + self.translation[i])
    }

    /// This transform after `first`.
    fn after(&self, first: &Self) -> Self {
        let column = |j: usize| [0, 1, 2].map(|i| first.rows[i][j]);
        let rows = self.rows.map(|row| {
            std::array::from_fn(|j| row.iter().zip(column(j)).map(|(a, b)| a * b).sum())
        });
        Self { rows, translation: self.point(first.translation) }
    }

    /// Moves Gaussians; how many are lost beyond the range of f32.
    pub(super) fn place(&self, splats: &mut Splats) -> Result<usize, FormatFault> {
        if *self == Self::IDENTITY {
            return Ok(0);
        }
        let [a, b, c] = [0, 1, 2].map(|j| [0, 1, 2].map(|i| self.rows[i][j]));
        let dot = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cross = |[a, b, c]: [f64; 3], [d, e, f]: [f64; 3]| {
            [b * f - c * e, c * d - a * f, a * e - b * d]
        };
        let determinant = dot(cross(a, b), c);
        let scale = determinant.abs().cbrt();
        let products = [
            (dot(a, a), 1.0),
            (dot(b, b), 1.0),
            (dot(c, c), 1.0),
            (dot(a, b), 0.0),
            (dot(b, c), 0.0),
            (dot(c, a), 0.0),
        ];
        let is_even = |(found, due): (f64, f64)| (found / (scale * scale) - due).abs() <= TOLERANCE;
        if !products.into_iter().all(is_even) {
            return Err(FormatFault::Unsupported(format!(
                "has a node with a matrix that stretches or skews ({:?}). Apply it before the export",
                self.rows
            )));
        }
        let handedness = determinant.signum();
        if handedness < 0.0 {
            splats.mirror([-1.0, 1.0, 1.0]);
        }
        let rotation = self.rows.map(|[x, y, z]| [handedness * x, y, z].map(|it| it / scale));
        let to =
            ScenePlacement { rotation: quaternion(rotation), scale, translation: self.translation };
        splats.place(&to).map_err(|error: PlacementError| FormatFault::damaged(error.to_string()))
    }
}

/// The meshes of a scene, or all meshes if no scene names any.
pub(super) fn placed_meshes(document: &GltfDocument) -> Result<Vec<PlacedMesh>, FormatFault> {
    let mut is_child = vec![false; document.nodes.len()];
    for &child in document.nodes.iter().flat_map(|node| &node.children) {
        if let Some(it) = is_child.get_mut(child) {
            *it = true;
        }
    }
    let roots: Vec<usize> = match document.scenes.get(document.scene) {
        Some(scene) => scene.nodes.clone(),
        None => (0..document.nodes.len()).filter(|&node| !is_child[node]).collect(),
    };
    let mut placed = Vec::new();
    let mut is_seen = vec![false; document.nodes.len()];
    let mut open: Vec<_> =
        roots.into_iter().rev().map(|node| (node, Affine::IDENTITY, 0)).collect();
    while let Some((number, above, level)) = open.pop() {
        let Some(node) = document.nodes.get(number) else {
            return Err(FormatFault::damaged(format!("names node {number}, which is not there")));
        };
        if level > MOST_LEVELS || std::mem::replace(&mut is_seen[number], true) {
            return Err(FormatFault::damaged(format!("has node {number} in its tree twice")));
        }
        let to = above.after(&Affine::of(node));
        placed.extend(node.mesh.map(|mesh| PlacedMesh { mesh, to }));
        open.extend(node.children.iter().rev().map(|&child| (child, to, level + 1)));
    }
    if placed.is_empty() {
        let all = 0..document.meshes.len();
        placed.extend(all.map(|mesh| PlacedMesh { mesh, to: Affine::IDENTITY }));
    }
    Ok(placed)
}
