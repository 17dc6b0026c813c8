//! Regions seen along one of 26 directions: to the faces, edges and corners of a box. Linear in the
//! faces and never worse for a crumpled surface.

use rayon::prelude::*;

use super::charts::Surface;
use super::packing::{Place, least_rectangle};
use crate::edges::UnionFind;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::corners;
use crate::vector::{cross, dot, length, normalize, sub};

/// Regions of fewer faces join a neighbour.
const FEW_FACES: usize = 8;

/// Least cosine between a face's normal and the direction of the region that it joins.
const LEAST_COSINE: f64 = 0.2;

/// Cuts some faces, in ascending order, into regions that are seen along one direction.
pub(super) fn boxes(surface: &Surface<'_>, faces: &[u32]) -> Vec<FlatChart> {
    let directions = directions();
    let regions = BoxCut { surface, faces, directions: &directions }.regions();
    regions
        .into_par_iter()
        .map(|region| {
            FlatChart::along(surface.mesh, region.faces, directions[usize::from(region.direction)])
        })
        .collect()
}

/// The 26 directions.
fn directions() -> Vec<Vec3> {
    let steps = [-1.0, 0.0, 1.0];
    let all = steps.into_iter().flat_map(|x| {
        steps.into_iter().flat_map(move |y| steps.into_iter().map(move |z| [x, y, z]))
    });
    all.filter(|&direction| direction != [0.0; 3]).map(normalize).collect()
}

/// A region and how it is looked at.
struct BoxRegion {
    /// In ascending order.
    faces: Vec<u32>,
    direction: u8,
}

/// The faces that are cut, numbered in their order.
struct BoxCut<'a> {
    surface: &'a Surface<'a>,
    faces: &'a [u32],
    directions: &'a [Vec3],
}

impl BoxCut<'_> {
    /// Those of the faces that have a side in common with one.
    fn neighbours(&self, number: u32) -> impl Iterator<Item = u32> {
        let others = self.surface.neighbours(self.faces[number as usize]);
        let are_all = self.faces.len() == self.surface.normals.len();
        others.filter_map(move |other| match are_all {
            true => Some(other),
            false => self.faces.binary_search(&other).ok().map(to_u32),
        })
    }

    fn normal(&self, number: u32) -> Vec3 {
        self.surface.normals[self.faces[number as usize] as usize]
    }

    /// The direction that a normal is nearest to; of none where there is no normal, the first.
    fn nearest_direction(&self, normal: Vec3) -> u8 {
        let mut nearest = (f64::NEG_INFINITY, 0);
        for (index, &direction) in (0_u8..).zip(self.directions) {
            let cosine = dot(direction, normal);
            if cosine > nearest.0 {
                nearest = (cosine, index);
            }
        }
        nearest.1
    }

    /// Neighbouring faces of one direction, small regions joined to neighbours that see them.
    fn regions(&self) -> Vec<BoxRegion> {
        let numbers = 0..to_u32(self.faces.len());
        let of_face: Vec<u8> = numbers
            .clone()
            .into_par_iter()
            .map(|number| self.nearest_direction(self.normal(number)))
            .collect();
        let mut regions = UnionFind::new(self.faces.len());
        for number in numbers.clone() {
            for other in self.neighbours(number) {
                if of_face[number as usize] == of_face[other as usize] {
                    regions.join(number, other);
                }
            }
        }
        let members = |regions: &mut UnionFind| {
            let mut members: Vec<(u32, u32)> =
                numbers.clone().map(|number| (regions.root(number), number)).collect();
            members.par_sort_unstable();
            members
        };
        let mut direction = of_face;
        // One that others have joined stays as it is: they do not all face a further direction.
        let mut has_grown = vec![false; direction.len()];
        for region in members(&mut regions).chunk_by(|a, b| a.0 == b.0) {
            let root = regions.root(region[0].0);
            if region.len() < FEW_FACES
                && !has_grown[root as usize]
                && self.join_neighbour(region, &mut regions, &mut direction)
            {
                has_grown[regions.root(root) as usize] = true;
            }
        }
        let grouped = members(&mut regions);
        let charts = grouped.chunk_by(|a, b| a.0 == b.0);
        charts
            .map(|region| BoxRegion {
                faces: region.iter().map(|&(_, number)| self.faces[number as usize]).collect(),
                direction: direction[region[0].0 as usize],
            })
            .collect()
    }

    /// Joins a small region to the one with most common sides of those whose direction it faces;
    /// whether there is one.
    fn join_neighbour(
        &self,
        region: &[(u32, u32)],
        regions: &mut UnionFind,
        direction: &mut [u8],
    ) -> bool {
        let own = regions.root(region[0].0);
        let mut others: Vec<u32> = Vec::new();
        for &(_, number) in region {
            others.extend(self.neighbours(number).map(|other| regions.root(other)));
        }
        others.retain(|&other| other != own);
        others.sort_unstable();
        let faces_it = |other: u32| {
            let along = self.directions[direction[other as usize] as usize];
            region.iter().all(|&(_, number)| {
                let normal = self.normal(number);
                normal == [0.0; 3] || dot(normal, along) >= LEAST_COSINE
            })
        };
        let best = others
            .chunk_by(|a, b| a == b)
            .filter(|same| faces_it(same[0]))
            .max_by_key(|same| (same.len(), std::cmp::Reverse(same[0])));
        if let Some(same) = best {
            let kept = direction[same[0] as usize];
            regions.join(own, same[0]);
            let root = regions.root(own);
            direction[root as usize] = kept;
        }
        best.is_some()
    }
}

// Charts on a plane.

/// A piece of a mesh on its plane, in world units from its least coordinates; wider than high.
pub(super) struct FlatChart {
    /// Its faces, in ascending order.
    pub(super) faces: Vec<u32>,
    /// Which of its places the faces have.
    pub(super) corners: Vec<[u32; 3]>,
    pub(super) places: Vec<Place>,
    pub(super) size: [f64; 2],
}

/// The faces of a piece over vertices of its own.
pub(super) struct LocalFaces {
    /// Vertices of the faces, in ascending order.
    pub(super) vertices: Vec<u32>,
    /// Which of them each face has.
    pub(super) corners: Vec<[u32; 3]>,
}

impl LocalFaces {
    pub(super) fn of(mesh: &Mesh, faces: &[u32]) -> Self {
        Self::over(faces.iter().map(|&face| mesh.faces[face as usize]))
    }

    fn over(faces: impl Iterator<Item = [u32; 3]> + Clone) -> Self {
        let mut vertices: Vec<u32> = faces.clone().flatten().collect();
        vertices.sort_unstable();
        vertices.dedup();
        let local = |vertex: u32| to_u32(vertices.partition_point(|&v| v < vertex));
        let corners = faces.map(|face| face.map(local)).collect();
        Self { vertices, corners }
    }

    /// Their places on a plane that is seen along a direction: faces that show their front run from x to y.
    pub(super) fn along(&self, mesh: &Mesh, direction: Vec3) -> Vec<Place> {
        let helper = if direction[2].abs() < 0.9 { [0.0, 0.0, 1.0] } else { [1.0, 0.0, 0.0] };
        // x, y and the direction are right-handed.
        let x = normalize(cross(helper, direction));
        let y = cross(direction, x);
        let place = |&vertex: &u32| {
            let place = mesh.vertices[vertex as usize].map(f64::from);
            [dot(x, place), dot(y, place)]
        };
        self.vertices.iter().map(place).collect()
    }
}

impl FlatChart {
    /// Faces with their corners among some places.
    pub(super) fn new(faces: Vec<u32>, corners: Vec<[u32; 3]>, mut places: Vec<Place>) -> Self {
        let size = least_rectangle(&mut places);
        Self { faces, corners, places, size }
    }

    /// Faces as they are seen along a direction.
    pub(super) fn along(mesh: &Mesh, faces: Vec<u32>, direction: Vec3) -> Self {
        let local = LocalFaces::of(mesh, &faces);
        let places = local.along(mesh, direction);
        Self::new(faces, local.corners, places)
    }

    /// A face in its own shape.
    pub(super) fn alone(mesh: &Mesh, face: u32) -> Self {
        let places = true_shape(corners(mesh, mesh.faces[face as usize]));
        Self::new(vec![face], vec![[0, 1, 2]], places.to_vec())
    }

    /// Some of the faces as they lie; `faces` are in ascending order.
    pub(super) fn part(&self, faces: Vec<u32>) -> Self {
        let old = faces.iter().filter_map(|face| self.faces.binary_search(face).ok());
        let local = LocalFaces::over(old.map(|at| self.corners[at]));
        let places = local.vertices.iter().map(|&place| self.places[place as usize]).collect();
        Self::new(faces, local.corners, places)
    }
}

/// The corners of a triangle on its plane; they run from x to y.
pub(super) fn true_shape([a, b, c]: [Vec3; 3]) -> [Place; 3] {
    let (side, other) = (sub(b, a), sub(c, a));
    let along = length(side);
    if along == 0.0 {
        return [[0.0; 2], [0.0; 2], [length(other), 0.0]];
    }
    [[0.0; 2], [along, 0.0], [dot(other, side) / along, length(cross(side, other)) / along]]
}
