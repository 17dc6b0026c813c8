//! The triangles of a run are made anew between their vertices, so that they are connected: the restricted
//! Delaunay triangulation of the vertices, which keeps what the triangles before it cover.

use rayon::prelude::*;
use splat_mesh::delaunay::{DelaunayError, Want, delaunay};
use splat_mesh::restricted::{Restricted, RestrictedError, restricted};

/// Why there is no connected mesh.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The vertices have no tetrahedra.
    #[error(transparent)]
    Tetrahedra(#[from] DelaunayError),
    /// No face between them follows the triangles.
    #[error(transparent)]
    Surface(#[from] RestrictedError),
}

/// A mesh between some of the vertices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The vertices that it uses, ascending.
    pub kept: Vec<u32>,
    /// Its triangles, by the places of their corners among these.
    pub faces: Vec<[u32; 3]>,
}

/// The mesh that follows these triangles between vertices at these places, world units.
pub fn connect(places: &[[f32; 3]], faces: &[[u32; 3]]) -> Result<Connected, ConnectError> {
    let points: Vec<[f64; 3]> = places.par_iter().map(|place| place.map(f64::from)).collect();
    let tetrahedra = delaunay(&points, Want::Neighbours)?;
    let corners = |face: &[u32; 3]| face.map(|corner| points[corner as usize]);
    let triangles: Vec<[[f64; 3]; 3]> = faces.par_iter().map(corners).collect();
    let Restricted { mesh, point_from_vertex, .. } = restricted(&points, &tetrahedra, &triangles)?;
    Ok(Connected { kept: point_from_vertex, faces: mesh.faces })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::{RandomStream, RandomUse};

    /// Points of a sphere with a triangle about each, and some that no triangle is near.
    #[test]
    fn loose_triangles_of_a_sphere_become_one_surface() {
        let stream = RandomStream::new(3, 0, RandomUse::Initialise);
        let mut places = Vec::new();
        let mut faces = Vec::new();
        for point in 0..300 {
            let direction = [0, 1, 2].map(|axis| stream.normal(3 * point + axis));
            let norm = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
            let [x, y, z] = direction.map(|value| value / norm);
            // Two directions across it.
            let first = if x.abs() < 0.8 { [0.0, -z, y] } else { [z, 0.0, -x] };
            let second =
                [y * first[2] - z * first[1], z * first[0] - x * first[2], x * first[1] - y * first[0]];
            let from = u32::try_from(places.len()).unwrap();
            for angle in [0.0_f64, 2.1, 4.2] {
                let across = |axis: usize| angle.cos() * first[axis] + angle.sin() * second[axis];
                let corner = [0, 1, 2].map(|axis| [x, y, z][axis] + 0.12 * across(axis));
                #[expect(clippy::cast_possible_truncation, reason = "places are floats")]
                places.push(corner.map(|value| value as f32));
            }
            faces.push([from, from + 1, from + 2]);
        }
        let used = places.len();
        places.extend([[0.0; 3], [0.01, 0.0, 0.0], [0.0, 0.0, 0.02]]);
        let Connected { kept, faces: found } = connect(&places, &faces).unwrap();
        assert!(kept.is_sorted_by(|a, b| a < b) && kept.iter().all(|&v| (v as usize) < used));
        assert!(found.as_flattened().iter().all(|&corner| (corner as usize) < kept.len()));
        let mut edges: Vec<_> = found
            .iter()
            .flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]])
            .map(|[a, b]| [a.min(b), a.max(b)])
            .collect();
        edges.sort_unstable();
        let shared = edges.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).count();
        let all = edges.chunk_by(|a, b| a == b).count();
        assert!(shared * 10 > all * 9, "{shared} of {all} edges are shared");
    }

    #[test]
    fn what_has_no_tetrahedra_says_so() {
        let flat = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]];
        assert!(matches!(connect(&flat, &[[0, 1, 2]]), Err(ConnectError::Tetrahedra(_))));
    }
}
