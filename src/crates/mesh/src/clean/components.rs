//! Connected pieces of a surface.

use serde::Serialize;

use super::retain_faces;
use crate::edges::UnionFind;
use crate::mesh::Mesh;
use crate::place::{area, corners};

/// The smallest component that cleaning lets stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinComponent {
    /// Of this share of the faces of the one with the most. Before decimation faces are as large as what
    /// the surface was made of is fine, so that what is near and small counts as what is far and large.
    FaceShare(f64),
    /// Of so many faces.
    Faces(usize),
    /// So many, those of the most area.
    Largest(usize),
}

/// What was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Components.
    pub components: usize,
    /// Their faces.
    pub faces: usize,
}

/// Faces of a mesh by connected piece.
pub(super) struct Components {
    /// The component of each face, from 0, in the order of their first faces.
    pub(super) of_face: Vec<u32>,
    /// How many there are.
    pub(super) count: usize,
}

impl Components {
    /// Faces are connected where they share a vertex.
    pub(super) fn of(mesh: &Mesh) -> Self {
        let mut pieces = UnionFind::new(mesh.vertices.len());
        for face in &mesh.faces {
            pieces.join(face[0], face[1]);
            pieces.join(face[0], face[2]);
        }
        let mut names = vec![u32::MAX; mesh.vertices.len()];
        let mut count = 0;
        let of_face = mesh
            .faces
            .iter()
            .map(|face| {
                let name = &mut names[pieces.root(face[0]) as usize];
                if *name == u32::MAX {
                    *name = count;
                    count += 1;
                }
                *name
            })
            .collect();
        Self { of_face, count: count as usize }
    }
}

/// Drops the components that are too small. Their vertices stay, unused.
pub fn drop_small(mesh: &mut Mesh, min: MinComponent) -> Dropped {
    let components = Components::of(mesh);
    let mut areas = vec![0.0; components.count];
    let mut faces = vec![0_usize; components.count];
    for (&face, &component) in mesh.faces.iter().zip(&components.of_face) {
        areas[component as usize] += area(corners(mesh, face));
        faces[component as usize] += 1;
    }
    let stays: Vec<bool> = match min {
        MinComponent::FaceShare(share) => {
            let least = share * faces.iter().copied().max().unwrap_or(0) as f64;
            faces.iter().map(|&count| count as f64 >= least).collect()
        }
        MinComponent::Faces(least) => faces.iter().map(|&count| count >= least).collect(),
        MinComponent::Largest(most) => {
            let mut order: Vec<usize> = (0..areas.len()).collect();
            order.sort_by(|&a, &b| areas[b].total_cmp(&areas[a]).then(a.cmp(&b)));
            let mut stays = vec![false; areas.len()];
            order.into_iter().take(most).for_each(|component| stays[component] = true);
            stays
        }
    };
    let is_kept: Vec<bool> = components.of_face.iter().map(|&c| stays[c as usize]).collect();
    Dropped {
        components: stays.iter().filter(|&&stays| !stays).count(),
        faces: retain_faces(mesh, &is_kept),
    }
}
