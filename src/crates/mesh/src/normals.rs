//! Normals of vertices.

use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32s;
use crate::place::{corners, doubled_area};
use crate::vector::{add, normalize};

/// The unit normal of each vertex of a checked mesh: the mean of its faces' normals by their area.
/// Zero at vertices without a face of positive area.
pub fn vertex_normals(mesh: &Mesh) -> Vec<[f32; 3]> {
    let mut sums: Vec<Vec3> = vec![[0.0; 3]; mesh.vertices.len()];
    for &face in &mesh.faces {
        let along = doubled_area(corners(mesh, face));
        for vertex in face {
            let sum = &mut sums[vertex as usize];
            *sum = add(*sum, along);
        }
    }
    sums.into_iter().map(|sum| to_f32s(normalize(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::sphere;
    use crate::narrow::to_f64s;
    use crate::vector::dot;

    #[test]
    fn normals_of_a_sphere_point_outwards() {
        let mesh = sphere(2.0, 4);
        for (normal, vertex) in vertex_normals(&mesh).into_iter().zip(&mesh.vertices) {
            // Faces of 4 degrees: their mean is within a twentieth of that.
            assert!(dot(to_f64s(normal), to_f64s(*vertex)) / 2.0 > 0.9999);
        }
    }
}
