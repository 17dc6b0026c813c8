//! Regions seen along one of 26 directions: to the faces, edges and corners of a box. Linear in the
//! faces and never worse for a crumpled surface.

use super::error::AtlasError;
use super::options::AtlasOptions;
use super::packing::{Packed, pack};
use super::places::Atlas;
use super::raster::for_each_texel;
use crate::edges::{Edges, NO_SIDE};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::{corners, doubled_area};
use crate::union_find::UnionFind;
use crate::vector::{cross, dot, normalize};

/// Regions of fewer faces join a neighbour.
const FEW_FACES: usize = 8;

/// Least cosine between a face's normal and the direction of the region that it joins.
const LEAST_COSINE: f64 = 0.2;

/// Rounds of parting regions that fold over themselves; after the first ones face by face.
const ROUNDS: usize = 40;
const ROUNDS_BY_PATCH: usize = 8;

/// A region and how it is looked at.
struct Chart {
    faces: Vec<u32>,
    direction: u8,
}

/// Lays a checked mesh out.
pub(super) fn boxes(mesh: &Mesh, options: &AtlasOptions) -> Result<Atlas, AtlasError> {
    let surface = Surface::of(mesh);
    let mut charts = surface.charts();
    for round in 0..ROUNDS {
        let flat = surface.flatten(&charts);
        let sizes: Vec<[f64; 2]> = flat.iter().map(|chart| chart.size).collect();
        let packed = pack(&sizes, options.side_px, options.padding_px)
            .ok_or(AtlasError::TooSmall { charts: charts.len(), side_px: options.side_px })?;
        let atlas = lay_out(&charts, &flat, &packed, mesh.faces.len(), options.side_px);
        let parted = surface.part(&atlas, &mut charts, round < ROUNDS_BY_PATCH);
        if parted == 0 {
            return Ok(atlas);
        }
    }
    Err(AtlasError::Overlap { charts: charts.len(), rounds: ROUNDS })
}

/// The 26 directions.
fn directions() -> Vec<Vec3> {
    let steps = [-1.0, 0.0, 1.0];
    let all = steps.into_iter().flat_map(|x| {
        steps.into_iter().flat_map(move |y| steps.into_iter().map(move |z| [x, y, z]))
    });
    all.filter(|&direction| direction != [0.0; 3]).map(normalize).collect()
}

struct Surface<'a> {
    mesh: &'a Mesh,
    twins: Vec<u32>,
    normals: Vec<Vec3>,
    directions: Vec<Vec3>,
}

impl<'a> Surface<'a> {
    fn of(mesh: &'a Mesh) -> Self {
        let normal = |&face: &[u32; 3]| normalize(doubled_area(corners(mesh, face)));
        Self {
            mesh,
            twins: Edges::of(&mesh.faces).twins(),
            normals: mesh.faces.iter().map(normal).collect(),
            directions: directions(),
        }
    }

    fn neighbours(&self, face: u32) -> impl Iterator<Item = u32> {
        let sides = 3 * face as usize..3 * face as usize + 3;
        self.twins[sides].iter().filter(|&&twin| twin != NO_SIDE).map(|twin| twin / 3)
    }

    /// The direction that a normal is nearest to; of none where there is no normal, the first.
    fn nearest_direction(&self, normal: Vec3) -> u8 {
        let mut nearest = (f64::NEG_INFINITY, 0);
        for (index, &direction) in (0_u8..).zip(&self.directions) {
            let cosine = dot(direction, normal);
            if cosine > nearest.0 {
                nearest = (cosine, index);
            }
        }
        nearest.1
    }

    /// Neighbouring faces of one direction, small regions joined to neighbours that see them.
    fn charts(&self) -> Vec<Chart> {
        let of_face: Vec<u8> =
            self.normals.iter().map(|&normal| self.nearest_direction(normal)).collect();
        let faces = 0..to_u32(self.mesh.faces.len());
        let mut regions = UnionFind::new(self.mesh.faces.len());
        for face in faces.clone() {
            for other in self.neighbours(face) {
                if of_face[face as usize] == of_face[other as usize] {
                    regions.join(face, other);
                }
            }
        }
        let members = |regions: &mut UnionFind| {
            let mut members: Vec<(u32, u32)> =
                faces.clone().map(|face| (regions.root(face), face)).collect();
            members.sort_unstable();
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
            .map(|region| Chart {
                faces: region.iter().map(|&(_, face)| face).collect(),
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
        for &(_, face) in region {
            others.extend(self.neighbours(face).map(|other| regions.root(other)));
        }
        others.retain(|&other| other != own);
        others.sort_unstable();
        let faces_it = |other: u32| {
            let along = self.directions[direction[other as usize] as usize];
            region.iter().all(|&(_, face)| {
                let normal = self.normals[face as usize];
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

    /// Looks at each chart along its direction.
    fn flatten(&self, charts: &[Chart]) -> Vec<Flat> {
        charts.iter().map(|chart| Flat::of(self, chart)).collect()
    }

    /// Takes faces out of charts where they lie on a texel of an earlier face of theirs; how many.
    fn part(&self, atlas: &Atlas, charts: &mut Vec<Chart>, by_patch: bool) -> usize {
        let (width, height) = (atlas.width, atlas.height);
        let mut is_claimed = vec![false; width as usize * height as usize];
        let mut parted = 0;
        for index in 0..charts.len() {
            let mut taken = Vec::new();
            charts[index].faces.retain(|&face| {
                let corners = atlas.corners_px(atlas.faces[face as usize]);
                let mut texels = Vec::new();
                for_each_texel(corners, [width, height], |x, y| {
                    texels.push(y as usize * width as usize + x as usize);
                });
                let stays = !texels.iter().any(|&texel| is_claimed[texel]);
                if stays {
                    texels.into_iter().for_each(|texel| is_claimed[texel] = true);
                } else {
                    taken.push(face);
                }
                stays
            });
            if taken.is_empty() {
                continue;
            }
            parted += taken.len();
            let direction = charts[index].direction;
            for faces in self.patches(&taken, by_patch) {
                let own = || self.nearest_direction(self.normals[faces[0] as usize]);
                let direction = if by_patch { direction } else { own() };
                charts.push(Chart { faces, direction });
            }
            // What is left may have come apart.
            let left = std::mem::take(&mut charts[index].faces);
            let mut left = self.patches(&left, true).into_iter();
            charts[index].faces = left.next().unwrap_or_default();
            charts.extend(left.map(|faces| Chart { faces, direction }));
        }
        parted
    }

    /// Connected patches of some faces, in ascending order, or each face alone.
    fn patches(&self, faces: &[u32], by_patch: bool) -> Vec<Vec<u32>> {
        let mut sets = UnionFind::new(faces.len());
        for (at, &face) in faces.iter().enumerate().filter(|_| by_patch) {
            for other in self.neighbours(face) {
                if let Ok(other) = faces.binary_search(&other) {
                    sets.join(to_u32(at), to_u32(other));
                }
            }
        }
        let mut members: Vec<(u32, u32)> =
            faces.iter().zip(0..).map(|(&face, at)| (sets.root(at), face)).collect();
        members.sort_unstable();
        let patches = members.chunk_by(|a, b| a.0 == b.0);
        patches.map(|patch| patch.iter().map(|&(_, face)| face).collect()).collect()
    }
}

/// A chart on its plane, in world units from its least coordinates.
struct Flat {
    /// Vertices of its faces, in ascending order.
    vertices: Vec<u32>,
    places: Vec<[f64; 2]>,
    faces: Vec<[u32; 3]>,
    size: [f64; 2],
}

impl Flat {
    fn of(surface: &Surface<'_>, chart: &Chart) -> Self {
        let direction = surface.directions[chart.direction as usize];
        let helper = if direction[2].abs() < 0.9 { [0.0, 0.0, 1.0] } else { [1.0, 0.0, 0.0] };
        // x, y and the direction are right-handed: faces that show their front run from x to y.
        let x = normalize(cross(helper, direction));
        let y = cross(direction, x);
        let faces = || chart.faces.iter().map(|&face| surface.mesh.faces[face as usize]);
        let mut vertices: Vec<u32> = faces().flatten().collect();
        vertices.sort_unstable();
        vertices.dedup();
        let place = |&vertex: &u32| {
            let place = surface.mesh.vertices[vertex as usize].map(f64::from);
            [dot(x, place), dot(y, place)]
        };
        let mut places: Vec<[f64; 2]> = vertices.iter().map(place).collect();
        let bounds = |places: &[[f64; 2]], axis: usize| {
            let along = places.iter().map(|place| place[axis]);
            let low = along.clone().fold(f64::INFINITY, f64::min);
            (low, along.fold(f64::NEG_INFINITY, f64::max) - low)
        };
        if bounds(&places, 1).1 > bounds(&places, 0).1 {
            // A quarter turn, for low rows.
            places.iter_mut().for_each(|place| *place = [place[1], -place[0]]);
        }
        let [(left, width), (top, height)] = [bounds(&places, 0), bounds(&places, 1)];
        places.iter_mut().for_each(|place| *place = [place[0] - left, place[1] - top]);
        let local = |vertex: u32| to_u32(vertices.partition_point(|&v| v < vertex));
        let faces = faces().map(|face| face.map(local)).collect();
        Self { places, faces, size: [width, height], vertices }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to the atlas's precision")]
fn lay_out(charts: &[Chart], flat: &[Flat], packed: &Packed, faces: usize, side_px: u32) -> Atlas {
    let mut atlas = Atlas {
        width: side_px,
        height: packed.height.next_multiple_of(4),
        places_px: Vec::with_capacity(flat.iter().map(|chart| chart.vertices.len()).sum()),
        faces: vec![[0; 3]; faces],
        charts: to_u32(charts.len()),
    };
    for ((chart, flat), corner) in charts.iter().zip(flat).zip(&packed.corners) {
        let first = to_u32(atlas.places_px.len());
        atlas.places_px.extend(flat.places.iter().map(|place| {
            let px = |axis: usize| (f64::from(corner[axis]) + place[axis] * packed.density) as f32;
            [px(0), px(1)]
        }));
        for (&face, places) in chart.faces.iter().zip(&flat.faces) {
            atlas.faces[face as usize] = places.map(|place| first + place);
        }
    }
    atlas
}
