//! Rectangles in rows.

use super::boxes::{LocalFaces, true_shape};
use super::{Atlas, AtlasError};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::{corners, doubled_area};
use crate::vector::{add, normalize};

/// A rectangle in world units; wider than high.
pub(super) type Size = [f64; 2];

/// Where rectangles lie on a picture.
pub(super) struct Packed {
    /// Texels a world unit.
    pub(super) density: f64,
    /// The upper left corner of each, in texels.
    pub(super) corners: Vec<[u32; 2]>,
    /// Rows of texels that are used.
    pub(super) height: u32,
}

/// Steps in which the density is narrowed down: to a thousandth.
const STEPS: usize = 14;

/// Packs rectangles from the highest to the lowest, each in the first row that has room for it (Coffman et
/// al. 1980), at the greatest density that fits a square of `side_px`, each with `padding_px` about it. None
/// where not even points fit.
pub(super) fn pack(sizes: &[Size], side_px: u32, padding_px: u32) -> Option<Packed> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b][1].total_cmp(&sizes[a][1]).then(a.cmp(&b)));
    let area: f64 = sizes.iter().map(|size| size[0] * size[1]).sum();
    let widest = sizes.iter().map(|size| size[0]).fold(0.0, f64::max);
    let side = f64::from(side_px);
    // Beyond this, not all area or the widest of them fits.
    let mut high = (side / area.sqrt()).min(side / widest);
    let mut low = 0.0;
    if !high.is_finite() {
        high = 0.0;
    }
    let rows = ShelfRows { sizes, order: &order, side_px, padding_px };
    let mut best = rows.at(0.0)?;
    for _ in 0..STEPS {
        let density = 0.5 * (low + high);
        match rows.at(density) {
            Some(packed) => {
                best = packed;
                low = density;
            }
            None => high = density,
        }
    }
    Some(best)
}

/// A row with room at its end.
struct OpenRow {
    x: u64,
    y: u64,
}

struct ShelfRows<'a> {
    sizes: &'a [Size],
    order: &'a [usize],
    side_px: u32,
    padding_px: u32,
}

impl ShelfRows<'_> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    fn at(&self, density: f64) -> Option<Packed> {
        let padding = 2 * u64::from(self.padding_px);
        let side = u64::from(self.side_px);
        let texels = |length: f64| ((length * density).ceil() as u64).max(1) + padding;
        let mut corners = vec![[0; 2]; self.sizes.len()];
        let least = self.sizes.iter().map(|size| texels(size[0])).min().unwrap_or(0);
        let mut rows: Vec<OpenRow> = Vec::new();
        let mut end = 0;
        for &index in self.order {
            let [width, height] = self.sizes[index].map(texels);
            let row = match rows.iter().position(|row| row.x + width <= side) {
                Some(row) => row,
                None if width > side || end + height > side => return None,
                None => {
                    rows.push(OpenRow { x: 0, y: end });
                    end += height;
                    rows.len() - 1
                }
            };
            let OpenRow { x, y } = &mut rows[row];
            corners[index] = [*x, *y].map(|at| at as u32 + self.padding_px);
            *x += width;
            if *x + least > side {
                // Nothing fits it any more.
                rows.remove(row);
            }
        }
        Some(Packed { density, corners, height: end as u32 })
    }
}

// The least rectangle around a chart.

/// A place on a chart's plane, world units.
pub(super) type Place = [f64; 2];

/// Turns and moves places so that the least rectangle around them has its sides along the axes, its first
/// corner at the origin, and is wider than high; its width and height.
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
        let [width, height] = extent(hull.iter().map(|&place| turned(place, turn))).size();
        if width * height < best.1 {
            best = (turn, width * height);
        }
    }
    let [mut x, mut y] = best.0;
    let [width, height] = extent(hull.iter().map(|&place| turned(place, [x, y]))).size();
    if height > width {
        [x, y] = [-y, x];
    }
    places.iter_mut().for_each(|place| *place = turned(*place, [x, y]));
    let all = extent(places.iter().copied());
    places.iter_mut().for_each(|place| {
        *place = [place[0] - all.low[0], place[1] - all.low[1]];
    });
    all.size()
}

/// A place where `turn` becomes the first axis.
fn turned([x, y]: Place, turn: [f64; 2]) -> Place {
    [x * turn[0] + y * turn[1], y * turn[0] - x * turn[1]]
}

struct FlatBounds {
    low: Place,
    high: Place,
}

impl FlatBounds {
    fn size(&self) -> [f64; 2] {
        [0, 1].map(|axis| (self.high[axis] - self.low[axis]).max(0.0))
    }
}

fn extent(places: impl Iterator<Item = Place>) -> FlatBounds {
    let empty = FlatBounds { low: [f64::INFINITY; 2], high: [f64::NEG_INFINITY; 2] };
    places.fold(empty, |extent, place| FlatBounds {
        low: [0, 1].map(|axis| extent.low[axis].min(place[axis])),
        high: [0, 1].map(|axis| extent.high[axis].max(place[axis])),
    })
}

/// The corners of the convex hull, counter-clockwise (Andrew 1979).
fn convex_hull(places: &[Place]) -> Vec<Place> {
    let mut sorted = places.to_vec();
    sorted.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    sorted.dedup();
    if sorted.len() < 3 {
        return sorted;
    }
    let half = |places: &mut dyn Iterator<Item = &Place>| {
        let mut chain: Vec<Place> = Vec::new();
        for &place in places {
            while let [.., a, b] = chain[..] {
                let turn = (b[0] - a[0]) * (place[1] - a[1]) - (b[1] - a[1]) * (place[0] - a[0]);
                if turn > 0.0 {
                    break;
                }
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

// Two faces a square, all of one size (the layout of `SuGaR`, Guédon and Lepetit 2024).

/// Smallest square that leaves both faces a texel.
const LEAST_SIDE: u32 = 4;

/// Lays `faces` out in squares of `square_px`, those with one more or less index as a pair.
///
/// Face 2k has the lower right half of square k, face 2k + 1 the upper left one, both drawn in so far
/// that bilinear reading does not cross the diagonal. Other than there both run the same way round.
pub(super) fn squares(faces: usize, square_px: u32, side_px: u32) -> Result<Atlas, AtlasError> {
    if square_px < LEAST_SIDE {
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

// Flattening that keeps the shape of each triangle as well as it can: as-rigid-as-possible maps (Liu et
// al. 2008), from the chart as it is seen along its mean normal.

/// Rounds of turning triangles and solving for the places that fit them best.
const ROUNDS: usize = 10;

/// Steps of conjugate gradients a round, which begins where the round before ended.
const RIGID_STEPS: usize = 24;

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

    /// True if places keep it to a hundredth, and its sense.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_keep_apart_and_fill_the_picture() {
        let sizes: Vec<Size> = (0..200)
            .map(|i| [1.0 + f64::from(i * 37 % 50) / 10.0, 0.2 + f64::from(i % 9) / 10.0])
            .collect();
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
        let all = extent(places.iter().copied());
        assert_eq!((all.low, all.high), ([0.0; 2], [width, height]));
        // The sense of a triangle stays.
        let area =
            |[a, b, c]: [Place; 3]| (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
        assert!((area([places[0], places[9], places[1]]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_point_and_a_line_have_no_height() {
        assert_eq!(least_rectangle(&mut [[3.0, 4.0]; 3]), [0.0; 2]);
        let mut line = [[1.0, 1.0], [4.0, 5.0], [1.0, 1.0]];
        let [width, height] = least_rectangle(&mut line);
        assert!((width - 5.0).abs() < 1e-12 && height < 1e-12);
        assert_eq!(least_rectangle(&mut []), [0.0; 2]);
    }
}
