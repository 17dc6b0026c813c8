//! Report of the kind of surface that a mesh is.

use std::fmt;

use serde::Serialize;

use crate::edges::{Edges, connected_vertices, fans, side_vertices};
use crate::mesh::{Mesh, MeshError, check_mesh};
use crate::narrow::to_f64s;
use crate::place::{area, corners, six_volumes, sub};

/// Counts of a mesh. Vertices that no face uses count in none but their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeshReport {
    /// Vertices of faces.
    pub vertices: usize,
    /// Vertices of no face.
    pub unused_vertices: usize,
    /// Faces.
    pub faces: usize,
    /// Edges.
    pub edges: usize,
    /// Pieces connected by vertices.
    pub components: usize,
    /// Edges of one face.
    pub boundary_edges: usize,
    /// Edges of more than two faces.
    pub nonmanifold_edges: usize,
    /// Vertices of more than one fan of faces.
    pub nonmanifold_vertices: usize,
    /// Edges of two faces that run along it the same way.
    pub misoriented_edges: usize,
    /// V - E + F.
    pub euler_number: i64,
    /// Handles of all components; none of a surface that is open or not manifold.
    pub genus: Option<i64>,
    /// Area in square units of the scene.
    pub area: f64,
    /// Signed volume in cubic units, negative inside out; none of a surface that is not watertight.
    pub volume: Option<f64>,
    /// True if every edge has exactly two faces, which run along it in opposite ways.
    pub watertight: bool,
}

impl MeshReport {
    /// Counts elements and faults of a mesh.
    pub fn of(mesh: &Mesh) -> Result<Self, MeshError> {
        check_mesh(mesh)?;
        let edges = Edges::of(&mesh.faces);
        let mut report = Self { faces: mesh.faces.len(), ..Self::default() };
        for group in edges.groups() {
            report.edges += 1;
            match group {
                [_] => report.boundary_edges += 1,
                [a, b] => {
                    let from = |side| side_vertices(&mesh.faces, side)[0];
                    report.misoriented_edges += usize::from(from(a.side) == from(b.side));
                }
                _ => report.nonmanifold_edges += 1,
            }
        }
        report.count_vertices(mesh, &edges);
        report.euler_number = signed(report.vertices) - signed(report.edges) + signed(report.faces);
        report.watertight = report.faces > 0
            && report.boundary_edges + report.nonmanifold_edges + report.misoriented_edges == 0;
        if report.watertight && report.nonmanifold_vertices == 0 {
            // Euler and Poincaré: V - E + F = 2 (components - handles).
            report.genus = Some(signed(report.components) - report.euler_number / 2);
        }
        let origin =
            mesh.faces.first().map_or([0.0; 3], |face| to_f64s(mesh.vertices[face[0] as usize]));
        let mut six = 0.0;
        for &face in &mesh.faces {
            let places = corners(mesh, face);
            report.area += area(places);
            six += six_volumes(places.map(|place| sub(place, origin)));
        }
        report.volume = report.watertight.then_some(six / 6.0);
        Ok(report)
    }

    fn count_vertices(&mut self, mesh: &Mesh, edges: &Edges) {
        let mut fans = fans(mesh, edges);
        let mut pieces = connected_vertices(mesh);
        let mut fans_at = vec![0_u8; mesh.vertices.len()];
        for (corner, &vertex) in (0_u32..).zip(mesh.faces.as_flattened()) {
            if fans.root(corner) == corner {
                let count = &mut fans_at[vertex as usize];
                *count = count.saturating_add(1);
            }
        }
        for (vertex, &fans) in (0_u32..).zip(&fans_at) {
            if fans == 0 {
                self.unused_vertices += 1;
                continue;
            }
            self.vertices += 1;
            self.nonmanifold_vertices += usize::from(fans > 1);
            self.components += usize::from(pieces.root(vertex) == vertex);
        }
    }
}

impl fmt::Display for MeshReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} vertices, {} faces in {} components; ",
            self.vertices, self.faces, self.components
        )?;
        match self.volume {
            Some(volume) => write!(f, "watertight, volume {volume:.6}")?,
            None => write!(f, "open: {} boundary edges", self.boundary_edges)?,
        }
        if let Some(genus) = self.genus {
            write!(f, ", genus {genus}")?;
        }
        let faults = [
            (self.nonmanifold_edges, "non-manifold edges"),
            (self.nonmanifold_vertices, "non-manifold vertices"),
            (self.misoriented_edges, "edges between faces of different sides"),
            (self.unused_vertices, "vertices without a face"),
        ];
        faults
            .iter()
            .filter(|fault| fault.0 > 0)
            .try_for_each(|(n, what)| write!(f, ", {n} {what}"))
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::{bow_tie, cube, joined, mesh_of, moved, sphere, torus, turned_over};

    #[test]
    fn closed_surfaces_have_their_genus_area_and_volume() {
        let cube = MeshReport::of(&cube()).unwrap();
        assert_eq!((cube.vertices, cube.edges, cube.faces), (8, 18, 12));
        assert_eq!((cube.genus, cube.volume, cube.watertight), (Some(0), Some(1.0), true));
        assert_eq!(cube.area, 6.0);
        let ring = torus([1.0, 0.4], [192, 96], |_, _| 1.0);
        let both = joined(ring.clone(), &moved(sphere(1.0, 5), [9.0, 0.0, 0.0]));
        let report = MeshReport::of(&both).unwrap();
        assert_eq!((report.components, report.genus, report.euler_number), (2, Some(1), 2));
        let alone = MeshReport::of(&turned_over(ring)).unwrap();
        // 2 π² R r² and 4 π² R r, less the chords: (2π/96)²/6 and half of that of the area.
        assert!((alone.volume.unwrap() / -3.158_273 - 1.0).abs() < 1.5e-3);
        assert!((alone.area / 15.791_367 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn faults_are_counted_and_named() {
        let mut open = cube();
        open.faces.pop();
        let report = MeshReport::of(&open).unwrap();
        assert_eq!((report.boundary_edges, report.watertight, report.genus), (3, false, None));
        assert!(report.to_string().contains("open: 3 boundary edges"), "{report}");

        let corner = mesh_of(
            &[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [5.0; 3]],
            &[[0, 1, 2], [0, 1, 3]],
        );
        let report = MeshReport::of(&corner).unwrap();
        assert_eq!((report.misoriented_edges, report.unused_vertices, report.vertices), (1, 1, 4));

        let mut wings = bow_tie();
        let report = MeshReport::of(&wings).unwrap();
        assert_eq!((report.nonmanifold_vertices, report.components), (1, 1));
        wings.faces = vec![[0, 1, 2], [1, 0, 3], [0, 1, 4]];
        assert_eq!(MeshReport::of(&wings).unwrap().nonmanifold_edges, 1);
        assert_eq!(MeshReport::of(&Mesh::default()).unwrap(), MeshReport::default());
    }
}
