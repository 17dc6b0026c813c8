//! Which side of a component is the outer one.
//!
//! Cameras see outer sides: where they see a component, they decide. A closed one that none sees
//! encloses a positive volume, or a negative one where an odd number of others enclose it: a cavity.

use rayon::prelude::*;

use crate::edges::Oriented;
use crate::mesh::MeshError;
use crate::mesh::{Mesh, Vec3};
use crate::place::{centroid, corners, doubled_area, six_volumes};
use crate::search::BoxTree;
use crate::vector::{dot, sub};

/// Samples of a component and cameras that are asked.
const SAMPLES: usize = 100;
const CAMERAS: usize = 32;

/// Directions along which enclosing surfaces are counted: three, so that one that grazes an edge is
/// outvoted.
const DIRECTIONS: [Vec3; 3] =
    [[0.577, 0.123, 0.807], [-0.311, 0.899, 0.308], [0.201, -0.433, -0.879]];

/// Turns components over that show their inner side; which ones.
pub(super) fn turn_outward(
    mesh: &mut Mesh,
    oriented: &Oriented,
    cameras: &[Vec3],
) -> Result<Vec<bool>, MeshError> {
    let members = members_of(oriented);
    let volumes = signed_volumes(mesh, oriented);
    let closed = oriented.components.iter().filter(|c| c.is_closed).count();
    let turned: Vec<bool> = if cameras.is_empty() && closed <= 1 {
        let closed = oriented.components.iter().map(|component| component.is_closed);
        closed.zip(&volumes).map(|(is_closed, &volume)| is_closed && volume < 0.0).collect()
    } else {
        let tree = BoxTree::new(mesh)?;
        let cameras: Vec<Vec3> = strided(cameras, CAMERAS).collect();
        let judge = Judge { tree, oriented, cameras };
        let judged = members.par_iter().enumerate();
        judged.map(|(name, faces)| judge.is_inside_out(name, faces, volumes[name])).collect()
    };
    for (face, &component) in mesh.faces.iter_mut().zip(&oriented.component) {
        if turned[component as usize] {
            face.swap(1, 2);
        }
    }
    Ok(turned)
}

fn members_of(oriented: &Oriented) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); oriented.components.len()];
    for (face, &component) in (0_u32..).zip(&oriented.component) {
        members[component as usize].push(face);
    }
    members
}

/// Six times the volume of each component, about its first vertex.
fn signed_volumes(mesh: &Mesh, oriented: &Oriented) -> Vec<f64> {
    let mut origins: Vec<Option<Vec3>> = vec![None; oriented.components.len()];
    let mut volumes = vec![0.0; oriented.components.len()];
    for (&face, &component) in mesh.faces.iter().zip(&oriented.component) {
        let places = corners(mesh, face);
        let origin = *origins[component as usize].get_or_insert(places[0]);
        volumes[component as usize] += six_volumes(places.map(|place| sub(place, origin)));
    }
    volumes
}

/// At most so many, evenly over all.
fn strided<T: Copy>(all: &[T], most: usize) -> impl Iterator<Item = T> {
    let count = all.len().min(most);
    (0..count).map(move |index| all[index * all.len() / count])
}

struct Judge<'a> {
    tree: BoxTree<'a>,
    oriented: &'a Oriented,
    cameras: Vec<Vec3>,
}

impl Judge<'_> {
    fn is_inside_out(&self, name: usize, faces: &[u32], volume: f64) -> bool {
        let (fronts, backs) = self.sightings(faces);
        if fronts != backs {
            return backs > fronts;
        }
        if !self.oriented.components[name].is_closed {
            return false;
        }
        let is_cavity = faces.first().is_some_and(|&face| self.is_enclosed(name, face));
        if is_cavity { volume > 0.0 } else { volume < 0.0 }
    }

    /// How often cameras see the front and the back of samples of a component.
    fn sightings(&self, faces: &[u32]) -> (usize, usize) {
        let mut seen = (0, 0);
        for face in strided(faces, SAMPLES) {
            let places = self.tree.corners(face);
            let (centre, normal) = (centroid(places), doubled_area(places));
            for &camera in &self.cameras {
                let to_camera = sub(camera, centre);
                // Behind the face itself, whose own place is left out.
                if self.tree.is_hit(centre, to_camera, [1e-6, 1.0]) {
                    continue;
                }
                let facing = dot(normal, to_camera);
                seen.0 += usize::from(facing > 0.0);
                seen.1 += usize::from(facing < 0.0);
            }
        }
        seen
    }

    /// True if an odd number of other closed components lie about a face of one.
    fn is_enclosed(&self, name: usize, face: u32) -> bool {
        let origin = centroid(self.tree.corners(face));
        let votes = DIRECTIONS.iter().filter(|&&direction| {
            let mut crossed = 0;
            self.tree.hits(origin, direction, [0.0, f64::INFINITY], |hit| {
                let other = self.oriented.component[hit.face as usize] as usize;
                let counts = other != name && self.oriented.components[other].is_closed;
                crossed += usize::from(counts);
                f64::INFINITY
            });
            crossed % 2 == 1
        });
        votes.count() >= 2
    }
}
