//! Rectangles packed in rows, flattening of charts, and texels of triangles.

use rayon::prelude::*;

use super::{Atlas, AtlasError, Surface, most_frequent};
use crate::edges::UnionFind;
use crate::mesh::{Mesh, Vec3, local_faces};
use crate::narrow::{floor_u32, to_index, to_u32};
use crate::place::{add, corners, cross, dot, doubled_area, length, normalize, sub};

/// Positions of rectangles on a picture.
pub(super) struct Packed {
    /// Texels per world unit.
    pub(super) density: f64,
    /// Upper left corner of each rectangle, in texels.
    pub(super) corners: Vec<[u32; 2]>,
    pub(super) height: u32,
}

/// Bisection steps of the density: to a thousandth.
const STEPS: usize = 14;

/// Packs rectangles (width and height in world units), the highest first, each into the first row with room for it
/// (Coffman et al. 1980), at the largest density that fits a square of `side_px`, each with `padding_px` about it.
/// Returns none if not even points fit.
pub(super) fn pack(sizes: &[[f64; 2]], side_px: u32, padding_px: u32) -> Option<Packed> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b][1].total_cmp(&sizes[a][1]).then(a.cmp(&b)));
    let area: f64 = sizes.iter().map(|size| size[0] * size[1]).sum();
    let widest = sizes.iter().map(|size| size[0]).fold(0.0, f64::max);
    let side = f64::from(side_px);
    // A higher density has no room for the whole area or for the widest rectangle.
    let mut high = (side / area.sqrt()).min(side / widest);
    let mut low = 0.0;
    if !high.is_finite() {
        high = 0.0;
    }
    let at = |density| pack_at(sizes, &order, side_px, padding_px, density);
    let mut best = at(0.0)?;
    for _ in 0..STEPS {
        let density = 0.5 * (low + high);
        match at(density) {
            Some(packed) => {
                best = packed;
                low = density;
            }
            None => high = density,
        }
    }
    Some(best)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn pack_at(
    sizes: &[[f64; 2]],
    order: &[usize],
    side_px: u32,
    padding_px: u32,
    density: f64,
) -> Option<Packed> {
    let padding = 2 * u64::from(padding_px);
    let side = u64::from(side_px);
    let texels = |length: f64| ((length * density).ceil() as u64).max(1) + padding;
    let mut corners = vec![[0; 2]; sizes.len()];
    let least = sizes.iter().map(|size| texels(size[0])).min().unwrap_or(0);
    // Rows with room at their ends: x of the end and y.
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut end = 0;
    for &index in order {
        let [width, height] = sizes[index].map(texels);
        let row = match rows.iter().position(|row| row.0 + width <= side) {
            Some(row) => row,
            None if width > side || end + height > side => return None,
            None => {
                rows.push((0, end));
                end += height;
                rows.len() - 1
            }
        };
        let (x, y) = &mut rows[row];
        corners[index] = [*x, *y].map(|at| at as u32 + padding_px);
        *x += width;
        if *x + least > side {
            // No rectangle fits any more.
            rows.remove(row);
        }
    }
    Some(Packed { density, corners, height: end as u32 })
}

/// A place on a chart's plane, world units.
pub(super) type Place = [f64; 2];

/// Turns and moves places so that the least rectangle around them has its sides along the axes, its first corner at
/// the origin, and is wider than high. Returns its width and height.
pub(super) fn least_rectangle(places: &mut [Place]) -> [f64; 2] {
    // One side of the least rectangle lies on a side of the convex hull (Freeman and Shapira 1975).
    let hull = convex_hull(places);
    let mut best = ([1.0, 0.0], f64::INFINITY);
    for (at, from) in hull.iter().enumerate() {
        let to = hull[(at + 1) % hull.len()];
        let (x, y) = (to[0] - from[0], to[1] - from[1]);
        let length = x.hypot(y);
        if length == 0.0 {
            continue;
        }
        let turn = [x / length, y / length];
        let (_, [width, height]) = extent(hull.iter().map(|&place| turned(place, turn)));
        if width * height < best.1 {
            best = (turn, width * height);
        }
    }
    let [mut x, mut y] = best.0;
    let (_, [width, height]) = extent(hull.iter().map(|&place| turned(place, [x, y])));
    if height > width {
        [x, y] = [-y, x];
    }
    places.iter_mut().for_each(|place| *place = turned(*place, [x, y]));
    let (low, size) = extent(places.iter().copied());
    places.iter_mut().for_each(|place| *place = minus(*place, low));
    size
}

/// Returns a place in axes that begin with `turn`.
fn turned([x, y]: Place, turn: [f64; 2]) -> Place {
    [x * turn[0] + y * turn[1], y * turn[0] - x * turn[1]]
}

/// Returns the least coordinates, and the width and height of the box around the places.
fn extent(places: impl Iterator<Item = Place>) -> (Place, [f64; 2]) {
    let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
    for place in places {
        low = [0, 1].map(|axis| low[axis].min(place[axis]));
        high = [0, 1].map(|axis| high[axis].max(place[axis]));
    }
    (low, [0, 1].map(|axis| (high[axis] - low[axis]).max(0.0)))
}

/// Returns the corners of the convex hull, counter-clockwise (Andrew 1979).
fn convex_hull(places: &[Place]) -> Vec<Place> {
    let mut sorted = places.to_vec();
    sorted.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    sorted.dedup();
    if sorted.len() < 3 {
        return sorted;
    }
    let is_left = |a: Place, b: Place, place: Place| doubled_area_px([a, b, place]) > 0.0;
    let half = |places: &mut dyn Iterator<Item = &Place>| {
        let mut chain: Vec<Place> = Vec::new();
        for &place in places {
            while let [.., a, b] = chain[..]
                && !is_left(a, b, place)
            {
                chain.pop();
            }
            chain.push(place);
        }
        chain.pop();
        chain
    };
    let mut hull = half(&mut sorted.iter());
    hull.extend(half(&mut sorted.iter().rev()));
    hull
}

const MIN_SIDE: u32 = 4;

/// Lays `faces` out in squares of `square_px`, two faces with successive indices in each: the layout of `SuGaR`
/// (Guédon and Lepetit 2024).
///
/// Face 2k has the lower right half of square k, face 2k + 1 the upper left one. Both keep a distance from the
/// diagonal, so that bilinear reading does not cross it. Unlike `SuGaR`'s, both have the same orientation.
pub(super) fn squares(faces: usize, square_px: u32, side_px: u32) -> Result<Atlas, AtlasError> {
    if square_px < MIN_SIDE {
        return Err(AtlasError::Square { found: square_px });
    }
    let pairs = faces.div_ceil(2);
    let along = to_u32(pairs).isqrt();
    let along = if (along as usize).pow(2) < pairs { along + 1 } else { along };
    let side = u64::from(along) * u64::from(square_px);
    let width = match u32::try_from(side) {
        Ok(side) if side <= side_px => side,
        _ => return Err(AtlasError::TooSmall { charts: pairs, side_px }),
    };
    let s = square_px as f32;
    let mut places_px = Vec::with_capacity(3 * faces);
    for face in 0..to_u32(faces) {
        let square = face / 2;
        let (x, y) = ((square / along * square_px) as f32, (square % along * square_px) as f32);
        places_px.extend(if face % 2 == 0 {
            [[x + s - 2.0, y + 1.0], [x + s - 2.0, y + s - 3.0], [x + 2.0, y + 1.0]]
        } else {
            [[x + 1.0, y + s - 1.0], [x + 1.0, y + 3.0], [x + s - 3.0, y + s - 1.0]]
        });
    }
    let faces = (0..to_u32(faces)).map(|f| [3 * f, 3 * f + 1, 3 * f + 2]).collect::<Vec<_>>();
    let charts = to_u32(faces.len());
    Ok(Atlas { width, height: width, places_px, faces, charts })
}

// Flattening that keeps the shape of each triangle as well as possible: as-rigid-as-possible maps (Liu et al. 2008),
// starting from the chart seen along its mean normal.

/// Rounds of turning triangles and solving for the places.
const ROUNDS: usize = 10;

/// Steps of conjugate gradients a round, which starts from the previous round's places.
const RIGID_STEPS: usize = 24;

/// Largest movement, as a share of the mean side, after which rounds end.
const STILL: f64 = 1e-3;

/// Bounds of a side's weight, the cotangent of the opposite angle. Above 0, so that no triangle pushes its corners
/// apart.
const WEIGHTS: [f64; 2] = [0.05, 10.0];

/// Flattens faces and returns the places of the local vertices.
pub(super) fn flatten(mesh: &Mesh, faces: &[u32], local: &LocalFaces) -> Vec<Place> {
    let normals = faces.iter().map(|&face| doubled_area(corners(mesh, mesh.faces[face as usize])));
    let mean: Vec3 = normalize(normals.fold([0.0; 3], add));
    let direction = if mean == [0.0; 3] { [0.0, 0.0, 1.0] } else { mean };
    let mut places = local.along(mesh, direction);
    let shape = |(&face, &ends): (&u32, &[u32; 3])| {
        TrueShape::new(ends, true_shape(corners(mesh, mesh.faces[face as usize])))
    };
    let shapes: Vec<TrueShape> = faces.iter().zip(&local.corners).map(shape).collect();
    if shapes.iter().all(|shape| shape.is_kept(&places)) {
        return places;
    }
    let springs = Springs::of(&shapes, places.len());
    let sides = shapes.iter().flat_map(|shape| shape.sides);
    let side = sides.map(|[x, y]| x.hypot(y)).sum::<f64>() / (3.0 * shapes.len() as f64);
    let mut pulls = vec![[0.0; 2]; places.len()];
    for _ in 0..ROUNDS {
        pulls.fill([0.0; 2]);
        shapes.iter().for_each(|shape| shape.pull(&places, &mut pulls));
        if springs.solve(&pulls, &mut places) < STILL * side {
            break;
        }
    }
    places
}

/// True shape of a triangle, and the indices of its corners among the places.
struct TrueShape {
    ends: [u32; 3],
    /// From each corner to the next.
    sides: [Place; 3],
    weights: [f64; 3],
}

impl TrueShape {
    fn new(ends: [u32; 3], corners: [Place; 3]) -> Self {
        let sides = [0, 1, 2].map(|i| minus(corners[(i + 1) % 3], corners[i]));
        let doubled = flat_cross(sides[0], sides[1]).abs();
        let weights = [0, 1, 2].map(|i| {
            // Side i is opposite to the angle between the other two sides.
            let (a, b) = (sides[(i + 1) % 3], sides[(i + 2) % 3]);
            let cotangent = -(a[0] * b[0] + a[1] * b[1]) / doubled;
            // Without area there is no angle.
            if cotangent.is_nan() { WEIGHTS[0] } else { cotangent.clamp(WEIGHTS[0], WEIGHTS[1]) }
        });
        Self { ends, sides, weights }
    }

    fn side(&self, i: usize, places: &[Place]) -> Place {
        minus(places[self.ends[(i + 1) % 3] as usize], places[self.ends[i] as usize])
    }

    /// True if places keep the shape to a hundredth, and its orientation.
    fn is_kept(&self, places: &[Place]) -> bool {
        let doubled = flat_cross(self.side(0, places), self.side(1, places));
        doubled >= 0.99 * flat_cross(self.sides[0], self.sides[1])
    }

    /// Adds the pull of the triangle, turned like its corners, on these.
    fn pull(&self, places: &[Place], pulls: &mut [Place]) {
        let (mut cosine, mut sine) = (0.0, 0.0);
        for i in 0..3 {
            let (now, side) = (self.side(i, places), self.sides[i]);
            cosine += self.weights[i] * (now[0] * side[0] + now[1] * side[1]);
            sine += self.weights[i] * flat_cross(side, now);
        }
        let length = cosine.hypot(sine);
        let [cosine, sine] =
            if length > 0.0 { [cosine / length, sine / length] } else { [1.0, 0.0] };
        for i in 0..3 {
            let [x, y] = self.sides[i];
            let weight = self.weights[i];
            let pull = [weight * (cosine * x - sine * y), weight * (sine * x + cosine * y)];
            let (from, to) = (self.ends[i] as usize, self.ends[(i + 1) % 3] as usize);
            for axis in 0..2 {
                pulls[from][axis] -= pull[axis];
                pulls[to][axis] += pull[axis];
            }
        }
    }
}

struct Spring {
    ends: [u32; 2],
    weight: f64,
}

/// The sides of all triangles as a symmetric positive semidefinite matrix.
struct Springs {
    springs: Vec<Spring>,
    /// One over the sum of the weights at each place.
    inverses: Vec<f64>,
}

impl Springs {
    fn of(shapes: &[TrueShape], places: usize) -> Self {
        let mut sides: Vec<Spring> = Vec::with_capacity(3 * shapes.len());
        for shape in shapes {
            for i in 0..3 {
                let (a, b) = (shape.ends[i], shape.ends[(i + 1) % 3]);
                sides.push(Spring { ends: [a.min(b), a.max(b)], weight: shape.weights[i] });
            }
        }
        sides.sort_by_key(|side| side.ends);
        let spring = |same: &[Spring]| Spring {
            ends: same[0].ends,
            weight: same.iter().map(|side| side.weight).sum(),
        };
        let springs: Vec<Spring> = sides.chunk_by(|a, b| a.ends == b.ends).map(spring).collect();
        let mut sums = vec![0.0; places];
        for spring in &springs {
            spring.ends.iter().for_each(|&end| sums[end as usize] += spring.weight);
        }
        Self { springs, inverses: sums.into_iter().map(|sum| 1.0 / sum).collect() }
    }

    fn times(&self, places: &[Place], product: &mut [Place]) {
        product.fill([0.0; 2]);
        for Spring { ends: [a, b], weight } in &self.springs {
            let (a, b) = (*a as usize, *b as usize);
            for axis in 0..2 {
                let force = weight * (places[a][axis] - places[b][axis]);
                product[a][axis] += force;
                product[b][axis] -= force;
            }
        }
    }

    /// Moves the places closer to the equilibrium of springs and `pulls` by conjugate gradients for both coordinates
    /// at once (Hestenes and Stiefel 1952). Returns the largest movement along an axis.
    fn solve(&self, pulls: &[Place], places: &mut [Place]) -> f64 {
        let before = places.to_vec();
        let mut product = vec![[0.0; 2]; places.len()];
        self.times(places, &mut product);
        let mut rest: Vec<Place> =
            pulls.iter().zip(&product).map(|(&pull, &now)| minus(pull, now)).collect();
        let scaled = |rest: &[Place]| -> Vec<Place> {
            rest.iter().zip(&self.inverses).map(|(r, inverse)| r.map(|r| r * inverse)).collect()
        };
        let mut next = scaled(&rest);
        let mut way = next.clone();
        let mut size = inner(&rest, &next);
        for _ in 0..RIGID_STEPS {
            self.times(&way, &mut product);
            let along = inner(&way, &product);
            let step = [0, 1].map(|axis| share(size[axis], along[axis]));
            for (i, place) in places.iter_mut().enumerate() {
                for axis in 0..2 {
                    place[axis] += step[axis] * way[i][axis];
                    rest[i][axis] -= step[axis] * product[i][axis];
                }
            }
            next = scaled(&rest);
            let new = inner(&rest, &next);
            let factor = [0, 1].map(|axis| share(new[axis], size[axis]));
            for (way, next) in way.iter_mut().zip(&next) {
                *way = [0, 1].map(|axis| next[axis] + factor[axis] * way[axis]);
            }
            size = new;
        }
        let moved = before.iter().zip(places).flat_map(|(&a, &mut b)| minus(b, a));
        moved.map(f64::abs).fold(0.0, f64::max)
    }
}

fn minus(a: Place, b: Place) -> Place {
    [a[0] - b[0], a[1] - b[1]]
}

fn flat_cross(a: Place, b: Place) -> f64 {
    a[0] * b[1] - a[1] * b[0]
}

/// Returns a / b, or 0 if b is not above 0.
fn share(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn inner(a: &[Place], b: &[Place]) -> [f64; 2] {
    let products = a.iter().zip(b);
    products.fold([0.0; 2], |sum, (a, b)| [sum[0] + a[0] * b[0], sum[1] + a[1] * b[1]])
}

// Regions seen along one of 26 directions: to the faces, edges and corners of a box. The time is linear in the faces,
// also for a crumpled surface.

/// Regions of fewer faces join a neighbour.
const FEW_FACES: usize = 8;

/// Least cosine between a face's normal and the direction of the region that it joins.
const MIN_COSINE: f64 = 0.2;

/// Cuts some faces, in ascending order, into regions that are seen along one direction.
pub(super) fn boxed(surface: &Surface<'_>, faces: &[u32]) -> Vec<FlatChart> {
    let directions = directions();
    let regions = BoxCut { surface, faces, directions: &directions }.regions().into_par_iter();
    let chart = |(faces, direction): (Vec<u32>, u8)| {
        FlatChart::along(surface.mesh, faces, directions[usize::from(direction)])
    };
    regions.map(chart).collect()
}

fn directions() -> Vec<Vec3> {
    let steps = [-1.0, 0.0, 1.0];
    let all = steps.into_iter().flat_map(|x| {
        steps.into_iter().flat_map(move |y| steps.into_iter().map(move |z| [x, y, z]))
    });
    all.filter(|&direction| direction != [0.0; 3]).map(normalize).collect()
}

/// The faces to cut, numbered in their order.
struct BoxCut<'a> {
    surface: &'a Surface<'a>,
    faces: &'a [u32],
    directions: &'a [Vec3],
}

impl BoxCut<'_> {
    /// Returns the numbers of the faces that have a side in common with one.
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

    /// Returns the direction nearest to a normal; the first if there is no normal.
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

    /// Returns connected faces of one direction, and the direction. Small regions join neighbours that see them.
    fn regions(&self) -> Vec<(Vec<u32>, u8)> {
        let numbers = 0..to_u32(self.faces.len());
        let nearest = |number| self.nearest_direction(self.normal(number));
        let of_face: Vec<u8> = numbers.clone().into_par_iter().map(nearest).collect();
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
        // A region that others have joined stays, because they do not all face a further direction.
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
        let chart = |region: &[(u32, u32)]| {
            let faces = region.iter().map(|&(_, number)| self.faces[number as usize]).collect();
            (faces, direction[region[0].0 as usize])
        };
        grouped.chunk_by(|a, b| a.0 == b.0).map(chart).collect()
    }

    /// Joins a small region to the neighbour with most common sides of those whose direction it faces. Returns false
    /// if there is none.
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
        let faces_it = |other: u32| {
            let along = self.directions[direction[other as usize] as usize];
            region.iter().all(|&(_, number)| {
                let normal = self.normal(number);
                normal == [0.0; 3] || dot(normal, along) >= MIN_COSINE
            })
        };
        let Some(best) = most_frequent(others, faces_it) else { return false };
        let kept = direction[best as usize];
        regions.join(own, best);
        let root = regions.root(own);
        direction[root as usize] = kept;
        true
    }
}

/// A piece of a mesh on its plane, in world units from its least coordinates; wider than high.
pub(super) struct FlatChart {
    /// Faces in ascending order.
    pub(super) faces: Vec<u32>,
    /// Indices of each face's corners among the places.
    pub(super) corners: Vec<[u32; 3]>,
    pub(super) places: Vec<Place>,
    pub(super) size: [f64; 2],
}

/// The faces of a piece over vertices of its own.
pub(super) struct LocalFaces {
    /// Vertices of the faces, in ascending order.
    pub(super) vertices: Vec<u32>,
    /// Indices of each face's corners among the vertices.
    pub(super) corners: Vec<[u32; 3]>,
}

impl LocalFaces {
    pub(super) fn of(mesh: &Mesh, faces: &[u32]) -> Self {
        let (vertices, corners) =
            local_faces(faces.iter().map(|&face| mesh.faces[face as usize]).collect());
        Self { vertices, corners }
    }

    /// Returns places on a plane seen along a direction. Faces that show their front run from x to y.
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
    pub(super) fn new(faces: Vec<u32>, corners: Vec<[u32; 3]>, mut places: Vec<Place>) -> Self {
        let size = least_rectangle(&mut places);
        Self { faces, corners, places, size }
    }

    /// Flattens faces as they are seen along a direction.
    pub(super) fn along(mesh: &Mesh, faces: Vec<u32>, direction: Vec3) -> Self {
        let local = LocalFaces::of(mesh, &faces);
        let places = local.along(mesh, direction);
        Self::new(faces, local.corners, places)
    }

    /// Flattens a face in its own shape.
    pub(super) fn alone(mesh: &Mesh, face: u32) -> Self {
        let places = true_shape(corners(mesh, mesh.faces[face as usize]));
        Self::new(vec![face], vec![[0, 1, 2]], places.to_vec())
    }

    /// Returns a part of the faces as they lie; `faces` are in ascending order.
    pub(super) fn part(&self, faces: Vec<u32>) -> Self {
        let old = faces.iter().filter_map(|face| self.faces.binary_search(face).ok());
        let (kept, corners) = local_faces(old.map(|at| self.corners[at]).collect());
        let places = kept.iter().map(|&place| self.places[place as usize]).collect();
        Self::new(faces, corners, places)
    }
}

/// Returns the corners of a triangle on its plane; they run from x to y.
pub(super) fn true_shape([a, b, c]: [Vec3; 3]) -> [Place; 3] {
    let (side, other) = (sub(b, a), sub(c, a));
    let along = length(side);
    if along == 0.0 {
        return [[0.0; 2], [0.0; 2], [length(other), 0.0]];
    }
    [[0.0; 2], [along, 0.0], [dot(other, side) / along, length(cross(side, other)) / along]]
}

/// Passes `visit` the texels whose centres lie in a triangle on a picture, row by row. A centre on a common side of
/// two triangles lies in exactly one of them.
pub fn for_each_texel(
    corners_px: [[f64; 2]; 3],
    [width, height]: [u32; 2],
    mut visit: impl FnMut(u32, u32),
) {
    let Some([a, b, c]) = turned_positive(corners_px) else { return };
    let sides = [EdgeSide::new(a, b), EdgeSide::new(b, c), EdgeSide::new(c, a)];
    let centres = |low: f64, high: f64| [(low - 0.5).ceil(), (high - 0.5).floor() + 1.0];
    for_each_within([a, b, c], [width, height], centres, |x, y| {
        let centre = [f64::from(x) + 0.5, f64::from(y) + 0.5];
        if sides.iter().all(|side| side.has_inside(centre)) {
            visit(x, y);
        }
    });
}

/// Passes `visit` the texels that a triangle on a picture touches with more than a corner or a side, row by row; none
/// for a triangle without area.
pub(crate) fn for_each_touched(
    corners_px: [[f64; 2]; 3],
    [width, height]: [u32; 2],
    mut visit: impl FnMut(u32, u32),
) {
    let Some([a, b, c]) = turned_positive(corners_px) else { return };
    // The triangle's side of each line has positive areas. A texel is beside the triangle if the corner that is
    // farthest to that side is not on it.
    let reaches = |from: [f64; 2], to: [f64; 2], [x, y]: [f64; 2]| {
        let far =
            [x + f64::from(u8::from(to[1] < from[1])), y + f64::from(u8::from(to[0] > from[0]))];
        doubled_area_px([from, to, far]) > 0.0
    };
    for_each_within(
        [a, b, c],
        [width, height],
        |low, high| [low.floor(), high.ceil()],
        |x, y| {
            let corner = [f64::from(x), f64::from(y)];
            if reaches(a, b, corner) && reaches(b, c, corner) && reaches(c, a, corner) {
                visit(x, y);
            }
        },
    );
}

/// Passes `visit` the texels between the ends that `ends` returns for the least and the largest coordinate of the
/// corners, row by row.
fn for_each_within(
    corners: [[f64; 2]; 3],
    size: [u32; 2],
    ends: impl Fn(f64, f64) -> [f64; 2],
    mut visit: impl FnMut(u32, u32),
) {
    let [columns, rows] = [0, 1].map(|axis| {
        let [a, b, c] = corners.map(|corner| corner[axis]);
        ends(a.min(b).min(c), a.max(b).max(c)).map(|at| floor_u32(at).min(size[axis]))
    });
    for y in rows[0]..rows[1] {
        for x in columns[0]..columns[1] {
            visit(x, y);
        }
    }
}

/// Returns the corners in the order in which their area is positive; none for a triangle without area.
fn turned_positive(corners_px: [[f64; 2]; 3]) -> Option<[[f64; 2]; 3]> {
    let doubled = doubled_area_px(corners_px);
    let [a, b, c] = corners_px;
    let turned = if doubled < 0.0 { [a, c, b] } else { corners_px };
    (doubled != 0.0 && doubled.is_finite()).then_some(turned)
}

/// Returns twice the signed area in square texels; positive from x to y.
pub(crate) fn doubled_area_px([a, b, c]: [[f64; 2]; 3]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

struct EdgeSide {
    /// Ends, the lesser first, so that both triangles at a side compute the same value.
    ends: [[f64; 2]; 2],
    /// True for one of the two triangles at the side, to which centres on the side belong.
    is_swapped: bool,
}

impl EdgeSide {
    fn new(from: [f64; 2], to: [f64; 2]) -> Self {
        let is_swapped = (to[0], to[1]) < (from[0], from[1]);
        let ends = if is_swapped { [to, from] } else { [from, to] };
        Self { ends, is_swapped }
    }

    #[inline]
    fn has_inside(&self, centre: [f64; 2]) -> bool {
        let doubled = doubled_area_px([self.ends[0], self.ends[1], centre]);
        if doubled == 0.0 { self.is_swapped } else { (doubled > 0.0) != self.is_swapped }
    }
}

/// Returns the face of each texel of a picture, row by row; `u32::MAX` for none.
#[cfg(test)]
pub(crate) fn texel_faces(atlas: &Atlas) -> Vec<u32> {
    let (width, height) = (atlas.width, atlas.height);
    let mut faces = vec![u32::MAX; width as usize * height as usize];
    for (index, &face) in atlas.faces.iter().enumerate() {
        for_each_texel(atlas.corners_px(face), [width, height], |x, y| {
            faces[y as usize * width as usize + x as usize] = to_u32(index);
        });
    }
    faces
}

const NONE: i8 = i8::MAX;

const MAX_PX: u8 = 64;

/// Gives each unset texel the value of the nearest set one within `radius_px` (at most 64) on a picture of `width`
/// texels a row, and returns which texels are set then. Exact, unlike jump flooding, and the same for any number of
/// threads. Of several texels at one distance, takes the one in the nearest row, the upper, the left one.
///
/// Texels beyond whole rows, or without a flag, stay as they are.
pub fn dilate<T: Copy + Send + Sync>(
    texels: &mut [T],
    is_set: &[bool],
    width: usize,
    radius_px: u8,
) -> Vec<bool> {
    let radius = i16::from(radius_px.min(MAX_PX));
    let count = texels.len().min(is_set.len());
    if width == 0 || count < width {
        return is_set.to_vec();
    }
    let rows = count / width;
    let mut across = vec![NONE; rows * width];
    across
        .par_chunks_mut(width)
        .zip(is_set.par_chunks(width))
        .for_each(|(across, is_set)| nearest_in_row(across, is_set, radius));
    let old = texels.to_vec();
    let mut set = is_set.to_vec();
    let nearest = NearestTexel { across: &across, width, rows, radius };
    texels.par_chunks_mut(width).zip(set.par_chunks_mut(width)).enumerate().take(rows).for_each(
        |(y, (texels, set))| {
            for x in 0..width {
                if let Some(source) = (!set[x]).then(|| nearest.to(x, y)).flatten() {
                    texels[x] = old[source];
                    set[x] = true;
                }
            }
        },
    );
    set
}

/// Writes the offset from each texel of a row to the nearest set one, to the right.
fn nearest_in_row(across: &mut [i8], is_set: &[bool], radius: i16) {
    let mut since = i16::MAX;
    for (nearest, &set) in across.iter_mut().zip(is_set) {
        since = if set { 0 } else { since.saturating_add(1) };
        if since <= radius {
            *nearest = small(-since);
        }
    }
    since = i16::MAX;
    for (nearest, &set) in across.iter_mut().zip(is_set).rev() {
        since = if set { 0 } else { since.saturating_add(1) };
        if since <= radius && (*nearest == NONE || since < -i16::from(*nearest)) {
            *nearest = small(since);
        }
    }
}

fn small(offset: i16) -> i8 {
    i8::try_from(offset).unwrap_or(NONE)
}

struct NearestTexel<'a> {
    across: &'a [i8],
    width: usize,
    rows: usize,
    radius: i16,
}

impl NearestTexel<'_> {
    /// Returns the set texel that is nearest to one, within the radius.
    fn to(&self, x: usize, y: usize) -> Option<usize> {
        let mut best = i32::from(self.radius).pow(2) + 1;
        let mut found = None;
        for off in 0..=i32::from(self.radius) {
            if off * off >= best {
                break;
            }
            let away = to_index(off);
            for row in [y.checked_sub(away), Some(y + away)].into_iter().flatten() {
                if row >= self.rows {
                    continue;
                }
                let across = self.across[row * self.width + x];
                let squared = off * off + i32::from(across).pow(2);
                if across != NONE && squared < best {
                    best = squared;
                    found = (row * self.width + x).checked_add_signed(isize::from(across));
                }
            }
        }
        found
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::RandomStream;

    #[test]
    fn rectangles_keep_apart_and_fill_the_picture() {
        let size = |i| [1.0 + f64::from(i * 37 % 50) / 10.0, 0.2 + f64::from(i % 9) / 10.0];
        let sizes: Vec<[f64; 2]> = (0..200).map(size).collect();
        let packed = pack(&sizes, 512, 2).unwrap();
        let area: f64 = sizes.iter().map(|size| size[0] * size[1]).sum();
        let filled = area * packed.density.powi(2) / 512_f64.powi(2);
        assert!(filled > 0.6 && packed.height <= 512, "{filled}");
        let of = |i: usize, axis: usize| {
            let low = f64::from(packed.corners[i][axis]);
            (low, low + sizes[i][axis] * packed.density)
        };
        for i in 0..sizes.len() {
            for axis in 0..2 {
                assert!(of(i, axis).0 >= 2.0 && of(i, axis).1 <= 510.0);
            }
            for j in 0..i {
                let apart = (0..2).any(|axis| {
                    let ((a, b), (c, d)) = (of(i, axis), of(j, axis));
                    a >= d + 4.0 || c >= b + 4.0
                });
                assert!(apart, "{i} {j}");
            }
        }
        assert!(pack(&sizes, 60, 2).is_none());
        assert_eq!(pack(&[[0.0, 0.0]], 64, 2).unwrap().corners, [[2, 2]]);
    }

    #[test]
    fn a_turned_rectangle_lies_along_the_axes() {
        let turn = [0.6, 0.8];
        let grid = (0..5).flat_map(|x| (0..9).map(move |y| [f64::from(x), f64::from(y)]));
        let mut places: Vec<Place> = grid.map(|place| turned(place, turn)).collect();
        let [width, height] = least_rectangle(&mut places);
        assert!((width - 8.0).abs() < 1e-12 && (height - 4.0).abs() < 1e-12, "{width} {height}");
        assert_eq!(extent(places.iter().copied()), ([0.0; 2], [width, height]));
        // The orientation of a triangle stays.
        let doubled = doubled_area_px([places[0], places[9], places[1]]);
        assert!((doubled - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_point_and_a_line_have_no_height() {
        assert_eq!(least_rectangle(&mut [[3.0, 4.0]; 3]), [0.0; 2]);
        let mut line = [[1.0, 1.0], [4.0, 5.0], [1.0, 1.0]];
        let [width, height] = least_rectangle(&mut line);
        assert!((width - 5.0).abs() < 1e-12 && height < 1e-12);
        assert_eq!(least_rectangle(&mut []), [0.0; 2]);
    }

    proptest! {
        #[test]
        fn a_fan_claims_each_texel_inside_it_once(
            rim in prop::collection::vec((0..64_u8, 0..64_u8), 3..12),
            middle in (0..64_u8, 0..64_u8),
        ) {
            // About a point in the middle, on halves and quarters, so that many centres are hit.
            let at = |(x, y): (u8, u8)| [f64::from(x) / 4.0, f64::from(y) / 4.0];
            let middle = at(middle);
            let mut rim: Vec<[f64; 2]> = rim.into_iter().map(at).collect();
            rim.extend([[0.0, 0.0], [16.0, 0.0], [16.0, 16.0], [0.0, 16.0]]);
            let angle = |p: &[f64; 2]| (p[1] - middle[1]).atan2(p[0] - middle[0]);
            rim.sort_by(|a, b| angle(a).total_cmp(&angle(b)));
            rim.dedup_by(|a, b| (angle(a) - angle(b)).abs() < 1e-12);
            let mut claims = vec![0; 256];
            for i in 0..rim.len() {
                let next = rim[(i + 1) % rim.len()];
                if doubled_area_px([middle, rim[i], next]) > 0.0 {
                    for_each_texel([middle, rim[i], next], [16, 16], |x, y| {
                        claims[(16 * y + x) as usize] += 1;
                    });
                }
            }
            prop_assert!(claims.iter().all(|&claims| claims <= 1));
        }
    }

    #[test]
    fn two_halves_of_a_square_claim_all_of_it() {
        let [a, b, c, d] = [[1.0, 1.0], [7.0, 1.0], [7.0, 7.0], [1.0, 7.0]];
        let mut count = 0;
        // Centres lie on the diagonal. The second half runs the other way.
        for corners in [[a, b, c], [a, d, c]] {
            for_each_texel(corners, [8, 8], |x, y| {
                assert!((1..7).contains(&x) && (1..7).contains(&y));
                count += 1;
            });
        }
        assert_eq!(count, 36);
        // Parts outside of the picture are cut off.
        for_each_texel([[-9.0, -9.0], [40.0, -9.0], [-9.0, 40.0]], [3, 2], |_, _| count += 1);
        assert_eq!(count, 42);
    }

    #[test]
    fn touched_texels_are_those_of_places_in_the_triangle() {
        let stream = RandomStream::of_seed(8);
        let mut at = 0;
        let mut number = || {
            at += 1;
            16.0 * stream.uniform(at)
        };
        for _ in 0..50 {
            let corners: [[f64; 2]; 3] = std::array::from_fn(|_| [number(), number()]);
            let mut is_touched = vec![false; 256];
            for_each_touched(corners, [16, 16], |x, y| is_touched[(16 * y + x) as usize] = true);
            let mut has_place = vec![false; 256];
            for _ in 0..20_000 {
                let (u, v) = (number() / 16.0, number() / 16.0);
                let [b, c] = if u + v > 1.0 { [1.0 - u, 1.0 - v] } else { [u, v] };
                let place: [f64; 2] = std::array::from_fn(|i| {
                    corners[0][i] * (1.0 - b - c) + corners[1][i] * b + corners[2][i] * c
                });
                has_place[(16 * place[1] as usize) + place[0] as usize] = true;
            }
            let missed = (0..256).filter(|&i| has_place[i] && !is_touched[i]).count();
            let spare = (0..256).filter(|&i| is_touched[i] && !has_place[i]).count();
            assert!(missed == 0 && spare <= 6, "{corners:?}: {missed} {spare}");
        }
    }

    #[test]
    fn each_texel_gets_the_nearest_value_within_the_radius() {
        let (width, height) = (61, 47);
        let stream = RandomStream::of_seed(5);
        let is_set: Vec<bool> =
            (0..width * height).map(|i| stream.uniform(i as u64) < 0.003).collect();
        let before: Vec<usize> = (0..width * height).collect();
        let mut texels = before.clone();
        let set = dilate(&mut texels, &is_set, width, 8);
        let gap = |a: usize, b: usize| {
            (a % width).abs_diff(b % width).pow(2) + (a / width).abs_diff(b / width).pow(2)
        };
        for texel in before {
            let sources = (0..is_set.len()).filter(|&other| is_set[other]);
            let least = sources.map(|other| gap(texel, other)).min().unwrap();
            assert_eq!(set[texel], least <= 64);
            let expected = if least <= 64 { least } else { 0 };
            assert_eq!(gap(texel, texels[texel]), expected, "{texel}");
        }
    }

    #[test]
    fn a_constant_stays_constant_and_odd_sizes_are_no_fault() {
        let mut texels = vec![[7_u8, 8, 9]; 100];
        let mut is_set = vec![false; 100];
        is_set[55] = true;
        let set = dilate(&mut texels, &is_set, 10, 200);
        assert!(texels.iter().all(|texel| *texel == [7, 8, 9]) && set.iter().all(|set| *set));
        for (count, width) in [(0, 10), (7, 10), (25, 10), (10, 0)] {
            let mut texels = vec![1; count];
            assert_eq!(dilate(&mut texels, &is_set[..count], width, 8).len(), count);
        }
        assert_eq!(dilate(&mut texels, &[true; 3], 10, 8), [true; 3]);
    }
}
