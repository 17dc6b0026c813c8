//! Flattening that keeps the shape of each triangle as well as it can: as-rigid-as-possible maps (Liu et
//! al. 2008), from the chart as it is seen along its mean normal.

use super::flat::{LocalFaces, true_shape};
use super::rectangle::Place;
use crate::mesh::{Mesh, Vec3};
use crate::place::{corners, doubled_area};
use crate::vector::{add, normalize};

/// Rounds of turning triangles and solving for the places that fit them best.
const ROUNDS: usize = 10;

/// Steps of conjugate gradients a round, which begins where the round before ended.
const STEPS: usize = 24;

/// A round that moves places by less than this share of the mean side is the last.
const STILL: f64 = 1e-3;

/// Bounds of a side's weight, the cotangent of the angle that it faces. Above 0, so that no triangle pushes
/// its corners apart.
const WEIGHTS: [f64; 2] = [0.05, 10.0];

/// Flattens faces; the places are in the order of the local vertices.
pub(super) fn flatten(mesh: &Mesh, faces: &[u32], local: &LocalFaces) -> Vec<Place> {
    let normals = faces.iter().map(|&face| doubled_area(corners(mesh, mesh.faces[face as usize])));
    let mean: Vec3 = normalize(normals.fold([0.0; 3], add));
    let direction = if mean == [0.0; 3] { [0.0, 0.0, 1.0] } else { mean };
    let mut places = local.along(mesh, direction);
    let shapes: Vec<TrueShape> = faces
        .iter()
        .zip(&local.corners)
        .map(|(&face, &ends)| {
            TrueShape::new(ends, true_shape(corners(mesh, mesh.faces[face as usize])))
        })
        .collect();
    if shapes.iter().all(|shape| shape.is_kept(&places)) {
        return places;
    }
    let springs = Springs::of(&shapes, places.len());
    let side = springs.mean_side(&shapes);
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

/// A triangle's true shape, and which places its corners are.
struct TrueShape {
    ends: [u32; 3],
    /// From each corner to the next.
    sides: [Place; 3],
    weights: [f64; 3],
}

impl TrueShape {
    fn new(ends: [u32; 3], corners: [Place; 3]) -> Self {
        let sides = [0, 1, 2].map(|i| minus(corners[(i + 1) % 3], corners[i]));
        let doubled = cross(sides[0], sides[1]).abs();
        let weights = [0, 1, 2].map(|i| {
            // The angle that side i faces lies between the other two.
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

    /// Whether places keep it to a hundredth, and its sense.
    fn is_kept(&self, places: &[Place]) -> bool {
        let doubled = cross(self.side(0, places), self.side(1, places));
        doubled >= 0.99 * cross(self.sides[0], self.sides[1])
    }

    /// Adds where the triangle, turned as its corners lie, would have them.
    fn pull(&self, places: &[Place], pulls: &mut [Place]) {
        let (mut cosine, mut sine) = (0.0, 0.0);
        for i in 0..3 {
            let (now, side) = (self.side(i, places), self.sides[i]);
            cosine += self.weights[i] * (now[0] * side[0] + now[1] * side[1]);
            sine += self.weights[i] * cross(side, now);
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

/// A side between two places.
struct Spring {
    ends: [u32; 2],
    weight: f64,
}

/// The sides of all triangles: a matrix that is symmetric and not negative.
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

    fn mean_side(&self, shapes: &[TrueShape]) -> f64 {
        let sides = shapes.iter().flat_map(|shape| shape.sides);
        let sum: f64 = sides.map(|[x, y]| x.hypot(y)).sum();
        sum / (3.0 * shapes.len() as f64)
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

    /// Moves the places closer to where the springs are as `pulls` want them, by conjugate gradients for
    /// both coordinates at once (Hestenes and Stiefel 1952); the greatest way along an axis.
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
        for _ in 0..STEPS {
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

fn cross(a: Place, b: Place) -> f64 {
    a[0] * b[1] - a[1] * b[0]
}

/// a / b, or 0 where nothing is left to divide.
fn share(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The inner products of both coordinates.
fn inner(a: &[Place], b: &[Place]) -> [f64; 2] {
    let products = a.iter().zip(b);
    products.fold([0.0; 2], |sum, (a, b)| [sum[0] + a[0] * b[0], sum[1] + a[1] * b[1]])
}
