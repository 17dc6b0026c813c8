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
    use super::super::split::{SplitFaces, split};
    use super::*;

    const OCTAHEDRON: [[f32; 3]; 6] = [
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [-1.0, 0.0, 0.0],
        [0.0, -1.0, 0.0],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, -1.0],
    ];

    const SIDES: [[u32; 3]; 8] =
        [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4], [1, 0, 5], [2, 1, 5], [3, 2, 5], [0, 3, 5]];

    fn split_at(places: &mut Vec<[f32; 3]>, faces: &mut Vec<[u32; 3]>, order: &[u32]) {
        let SplitFaces { midpoints, faces: all, .. } =
            split(faces, places.len(), order, usize::MAX);
        for [a, b] in midpoints {
            let ends = [places[a as usize], places[b as usize]];
            places.push([0, 1, 2].map(|axis| 0.5 * (ends[0][axis] + ends[1][axis])));
        }
        *faces = all;
    }

    /// How many triangles each edge has.
    fn edges(faces: &[[u32; 3]]) -> Vec<usize> {
        let ends = faces.iter().flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]]);
        let mut edges: Vec<_> = ends.map(|[a, b]| [a.min(b), a.max(b)]).collect();
        edges.sort_unstable();
        edges.chunk_by(|a, b| a == b).map(<[_]>::len).collect()
    }

    #[test]
    fn a_sphere_with_open_seams_becomes_closed() {
        let (mut places, mut faces) = (OCTAHEDRON.to_vec(), SIDES.to_vec());
        for _ in 0..3 {
            let all: Vec<u32> = (0..).take(faces.len()).collect();
            split_at(&mut places, &mut faces, &all);
        }
        for place in &mut places {
            let norm = place.iter().map(|x| x * x).sum::<f32>().sqrt();
            *place = place.map(|x| x / norm);
        }
        assert!(edges(&faces).iter().all(|&count| count == 2));
        let some: Vec<u32> = (0..512).step_by(7).collect();
        split_at(&mut places, &mut faces, &some);
        let open = edges(&faces).iter().filter(|&&count| count == 1).count();
        assert!(open > 500, "{open}");
        // No triangle is near it.
        places.push([0.0; 3]);
        let vertices = places.len() - 1;
        let Connected { kept, faces: found } = connect(&places, &faces).unwrap();
        assert!(kept.is_sorted_by(|a, b| a < b) && kept.len() <= vertices);
        assert!(kept.iter().all(|&vertex| (vertex as usize) < vertices));
        assert!(found.as_flattened().iter().all(|&corner| (corner as usize) < kept.len()));
        let counts = edges(&found);
        let closed = counts.iter().filter(|&&count| count == 2).count();
        // Its corners lie on one sphere: a face may be one of several of a flat tetrahedron.
        assert!(closed * 100 >= counts.len() * 99, "{closed} of {}", counts.len());
    }

    #[test]
    fn what_has_no_tetrahedra_says_so() {
        let flat = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]];
        assert!(matches!(connect(&flat, &[[0, 1, 2]]), Err(ConnectError::Tetrahedra(_))));
    }
}
