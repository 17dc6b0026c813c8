//! A surface over given points that follows loose triangles: their restricted Delaunay triangulation.
//!
//! A face of the Delaunay tetrahedra is kept if its dual, the segment between the centres of the spheres on both
//! sides, meets a triangle (Edelsbrunner and Shah, "Triangulating topological spaces", 1997).

use rayon::prelude::*;

use crate::delaunay::insertion::{OPPOSITE, orientation};
use crate::delaunay::{Delaunay, OUTSIDE};
use crate::edges::orient;
use crate::mesh::{Mesh, Vec3, local_faces};
use crate::narrow::{floor_usize, to_f32s, to_u32};
use crate::place::{Bounds, add, cross, dot, doubled_area, length, normalize, scale, sub};

/// Largest length of a dual, in its tetrahedron's longest edges: spheres of flat tetrahedra have centres far away.
const REACH: f64 = 10.0;

/// A surface over points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restricted {
    /// The surface; vertices in the order of their points.
    pub mesh: Mesh,
    /// Point of each vertex.
    pub point_from_vertex: Vec<u32>,
    /// Edges whose two faces could not be given the same orientation.
    pub conflicts: usize,
}

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RestrictedError {
    #[error(
        "{neighbours} neighbours for {tetrahedra} tetrahedra: triangulate with `Want::Neighbours`"
    )]
    Neighbours { neighbours: usize, tetrahedra: usize },
    #[error("tetrahedron {tetrahedron} names what is not there: triangulate these points")]
    Stray { tetrahedron: usize },
    #[error("triangle {index} has the corners {corners:?}: drop triangles that are not finite")]
    UnfitTriangle { index: usize, corners: [Vec3; 3] },
    #[error("none of {triangles} triangles lies between the points: see that both share a space")]
    Apart { triangles: usize },
}

/// Returns the faces of the triangulation of `points` whose duals meet a triangle, oriented alike, and mostly like the
/// triangles. The corners of a triangle run counter-clockwise seen from outside, if it has an outside.
///
/// # Errors
/// Fails if parts do not fit together, triangles are not finite, or no dual meets a triangle.
pub fn restricted(
    points: &[Vec3],
    delaunay: &Delaunay,
    triangles: &[[Vec3; 3]],
) -> Result<Restricted, RestrictedError> {
    check(points, delaunay, triangles)?;
    let hierarchy = Hierarchy::over(triangles);
    let duals = Duals { points, delaunay };
    let of_tetrahedron = |tetrahedron: u32| {
        let (duals, hierarchy) = (&duals, &hierarchy);
        (0..4).filter_map(move |corner| duals.met(tetrahedron, corner, hierarchy))
    };
    let tetrahedra = (0..to_u32(delaunay.tetrahedra.len())).into_par_iter();
    let met: Vec<([u32; 3], u32)> = tetrahedra.flat_map_iter(of_tetrahedron).collect();
    if met.is_empty() {
        return Err(RestrictedError::Apart { triangles: triangles.len() });
    }
    // Agreement of each face, with its current orientation, with its triangle.
    let agreement = |&(face, triangle): &([u32; 3], u32)| {
        let unit = normalize(doubled_area(triangles[triangle as usize]));
        dot(doubled_area(face.map(|corner| points[corner as usize])), unit)
    };
    let agreement: Vec<f64> = met.par_iter().map(agreement).collect();
    let mut faces: Vec<[u32; 3]> = met.into_iter().map(|(face, _)| face).collect();
    let conflicts = orient(&mut faces, &agreement).conflicts;
    let (point_from_vertex, faces) = local_faces(faces);
    let place = |&point: &u32| to_f32s(points[point as usize]);
    let vertices = point_from_vertex.iter().map(place).collect();
    let mesh = Mesh { vertices, faces, ..Mesh::default() };
    Ok(Restricted { mesh, point_from_vertex, conflicts })
}

/// Fails unless all parts fit together.
fn check(
    points: &[Vec3],
    delaunay: &Delaunay,
    triangles: &[[Vec3; 3]],
) -> Result<(), RestrictedError> {
    let (tetrahedra, neighbours) = (&delaunay.tetrahedra, &delaunay.neighbours);
    if tetrahedra.len() != neighbours.len() {
        return Err(RestrictedError::Neighbours {
            neighbours: neighbours.len(),
            tetrahedra: tetrahedra.len(),
        });
    }
    let no_point = |corner: &u32| *corner as usize >= points.len();
    let no_tetrahedron = |&other: &u32| other != OUTSIDE && other as usize >= tetrahedra.len();
    let strays = |(corners, others): (&[u32; 4], &[u32; 4])| {
        corners.iter().any(no_point) || others.iter().any(no_tetrahedron)
    };
    if let Some(tetrahedron) = tetrahedra.par_iter().zip(neighbours).position_first(strays) {
        return Err(RestrictedError::Stray { tetrahedron });
    }
    let unfit = |corners: &[Vec3; 3]| corners.iter().flatten().any(|x| !x.is_finite());
    match triangles.par_iter().position_first(unfit) {
        Some(index) => Err(RestrictedError::UnfitTriangle { index, corners: triangles[index] }),
        None => Ok(()),
    }
}

struct Duals<'a> {
    points: &'a [Vec3],
    delaunay: &'a Delaunay,
}

impl Duals<'_> {
    /// Returns the face opposite to a corner, with a triangle that its dual meets; each face once.
    fn met(
        &self,
        tetrahedron: u32,
        corner: usize,
        hierarchy: &Hierarchy<'_>,
    ) -> Option<([u32; 3], u32)> {
        let other = self.delaunay.neighbours[tetrahedron as usize][corner];
        if other < tetrahedron {
            return None;
        }
        let corners = self.delaunay.tetrahedra[tetrahedron as usize];
        // The normal points to the corner, so outwards is against it.
        let face = OPPOSITE[corner].map(|at| corners[at]);
        let from = self.centre(tetrahedron);
        let to = if other == OUTSIDE {
            let places = face.map(|corner| self.points[corner as usize]);
            let outwards = normalize(scale(doubled_area(places), -1.0));
            add(from, scale(outwards, REACH * longest(&places)))
        } else {
            self.centre(other)
        };
        hierarchy.met(from, to).map(|triangle| (face, triangle))
    }

    /// Returns the centre of a tetrahedron's sphere, or the place towards it that is within reach.
    fn centre(&self, tetrahedron: u32) -> Vec3 {
        let corners = self.delaunay.tetrahedra[tetrahedron as usize];
        let places = corners.map(|corner| self.points[corner as usize]);
        let [a, b, c, d] = places;
        let (b, c, d) = (sub(b, a), sub(c, a), sub(d, a));
        // |d|² (b x c) + |c|² (d x b) + |b|² (c x d) over 2 b · (c x d).
        let towards = add(
            scale(cross(b, c), dot(d, d)),
            add(scale(cross(d, b), dot(c, c)), scale(cross(c, d), dot(b, b))),
        );
        let offset = scale(towards, 0.5 / dot(b, cross(c, d)));
        let reach = REACH * longest(&places);
        // Also false if it is NaN.
        if length(offset) <= reach {
            return add(a, offset);
        }
        let middle = scale(add(b, add(c, d)), 0.25);
        let direction = normalize(towards);
        let is_finite = direction.iter().all(|x| x.is_finite());
        add(a, if is_finite { scale(direction, reach) } else { middle })
    }
}

fn longest(places: &[Vec3]) -> f64 {
    let mut longest = 0.0_f64;
    for (at, &a) in places.iter().enumerate() {
        for &b in &places[at + 1..] {
            longest = longest.max(length(sub(a, b)));
        }
    }
    longest
}

const LEAF: usize = 4;

/// Largest number of triangles of a branch that one thread makes.
const SERIAL: usize = 1 << 12;

/// Slots along an axis between which a box may be cut.
const SLOTS: usize = 16;

/// Levels of boxes that are cut where the cost is least; boxes below are cut in the middle.
const MAX_CUT_LEVELS: usize = 40;

/// Levels of boxes that fit the stack of a search: 32 levels cut in the middle hold 2^31 triangles.
const MAX_LEVELS: usize = MAX_CUT_LEVELS + 32;

/// Slack for rounding, in lengths of the segment.
const ROUNDING: f64 = 1e-12;

/// Returns half of a box's surface; 0 for the empty box.
fn half_surface(bounds: &Bounds) -> f64 {
    let [x, y, z] = bounds.sides();
    x * y + y * z + z * x
}

/// True if a segment may meet a box, by its parts between the box's planes (Kay and Kajiya, 1986).
fn may_meet(bounds: &Bounds, from: Vec3, along: Vec3, inverse: Vec3) -> bool {
    let (mut enter, mut leave) = (-ROUNDING, 1.0 + ROUNDING);
    for axis in 0..3 {
        let (least, most) = (bounds.low[axis] - from[axis], bounds.high[axis] - from[axis]);
        if along[axis] == 0.0 {
            // The segment lies between these planes everywhere, or nowhere.
            if least > 0.0 || most < 0.0 {
                return false;
            }
            continue;
        }
        let (first, second) = (least * inverse[axis], most * inverse[axis]);
        enter = first.min(second).max(enter);
        leave = first.max(second).min(leave);
    }
    enter <= leave + ROUNDING
}

/// A box around some triangles: two halves, or a leaf.
#[derive(Clone, Copy, Debug)]
struct Node {
    span: Bounds,
    /// Index of its first triangle in the order.
    first: u32,
    /// Number of triangles of a leaf; 0 for two halves.
    count: u32,
    /// Distance from this node to its second half; the first half is the next node.
    second: u32,
}

impl Node {
    const NONE: Self = Self { span: Bounds::EMPTY, first: 0, count: 0, second: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Item {
    triangle: u32,
    middle: Vec3,
    span: Bounds,
}

/// Boxes around triangles, each halved where the cost is least: the surfaces of the halves times their triangles
/// (Goldsmith and Salmon, 1987), between slots (Wald, 2007). This separates overlapping triangles of very different
/// sizes.
#[derive(Debug)]
struct Hierarchy<'a> {
    triangles: &'a [[Vec3; 3]],
    /// Triangles, leaf after leaf.
    order: Vec<u32>,
    /// Nodes, the box around all first. A box of n triangles has 2n - 1 places; some stay empty.
    nodes: Vec<Node>,
}

impl<'a> Hierarchy<'a> {
    /// Builds boxes around finite triangles; the result does not depend on the number of threads.
    fn over(triangles: &'a [[Vec3; 3]]) -> Self {
        let item = |(triangle, corners): (usize, &[Vec3; 3])| {
            let [a, b, c] = *corners;
            let middle = scale(add(a, add(b, c)), 1.0 / 3.0);
            Item { triangle: to_u32(triangle), middle, span: Bounds::of(*corners) }
        };
        let mut items: Vec<Item> = triangles.par_iter().enumerate().map(item).collect();
        let mut nodes = vec![Node::NONE; (2 * items.len()).max(1)];
        halve(&mut items, &mut nodes, 0, 0);
        Self { triangles, order: items.iter().map(|item| item.triangle).collect(), nodes }
    }

    /// Returns a triangle that a segment meets, including its ends and the triangle's border.
    fn met(&self, from: Vec3, to: Vec3) -> Option<u32> {
        let along = sub(to, from);
        let inverse = along.map(|x| 1.0 / x);
        let mut waiting = [0; MAX_LEVELS + 1];
        let mut left = 1;
        while left > 0 {
            left -= 1;
            let at = waiting[left];
            let node = &self.nodes[at];
            if !may_meet(&node.span, from, along, inverse) {
                continue;
            }
            if node.second > 0 {
                // The first half is searched first.
                waiting[left] = at + node.second as usize;
                waiting[left + 1] = at + 1;
                left += 2;
                continue;
            }
            let run = &self.order[node.first as usize..][..node.count as usize];
            let meets = |&&triangle: &&u32| meets(from, to, &self.triangles[triangle as usize]);
            if let Some(&triangle) = run.iter().find(meets) {
                return Some(triangle);
            }
        }
        None
    }
}

/// Sorts the items of a box into halves. `first` is the index of its first item in the order.
fn halve(items: &mut [Item], nodes: &mut [Node], first: usize, level: usize) {
    let count = items.len();
    let span = items.iter().fold(Bounds::EMPTY, |span, item| span.joined(item.span));
    nodes[0] = Node { span, first: to_u32(first), count: to_u32(count), second: 0 };
    if count <= LEAF {
        return;
    }
    let halving = if level < MAX_CUT_LEVELS { Halving::cheapest(items) } else { None };
    // Otherwise the same number on both sides: the remaining levels suffice for any number.
    let before = halving.map_or(count / 2, |halving| halving.part(items));
    let second = 2 * before;
    (nodes[0].count, nodes[0].second) = (0, to_u32(second));
    let (own, others) = items.split_at_mut(before);
    let (own_nodes, other_nodes) = nodes.split_at_mut(second);
    let mut firsts = || halve(own, &mut own_nodes[1..], first, level + 1);
    let mut seconds = || halve(others, other_nodes, first + before, level + 1);
    if count > SERIAL {
        rayon::join(firsts, seconds);
    } else {
        firsts();
        seconds();
    }
}

/// A plane between slots along an axis.
#[derive(Clone, Copy, Debug)]
struct Halving {
    axis: usize,
    least: f64,
    per_slot: f64,
    /// First slot behind the plane.
    slot: usize,
}

impl Halving {
    /// Returns the cheapest plane; none if all middles are at one place.
    fn cheapest(items: &[Item]) -> Option<Self> {
        let middles = Bounds::of(items.iter().map(|item| item.middle));
        let mut cheapest: Option<(f64, Self)> = None;
        for axis in 0..3 {
            let least = middles.low[axis];
            let per_slot = (middles.high[axis] - least) / SLOTS as f64;
            if !(per_slot > 0.0 && per_slot.is_finite()) {
                continue;
            }
            let along = Self { axis, least, per_slot, slot: 0 };
            let mut slots = [(0_usize, Bounds::EMPTY); SLOTS];
            for item in items {
                let (count, span) = &mut slots[along.slot_of(item)];
                *count += 1;
                *span = span.joined(item.span);
            }
            let mut behind = [(0.0, 0); SLOTS];
            let (mut all, mut around) = (0, Bounds::EMPTY);
            for slot in (1..SLOTS).rev() {
                (all, around) = (all + slots[slot].0, around.joined(slots[slot].1));
                behind[slot] = (all as f64 * half_surface(&around), all);
            }
            let (mut all, mut around) = (0, Bounds::EMPTY);
            for slot in 1..SLOTS {
                (all, around) = (all + slots[slot - 1].0, around.joined(slots[slot - 1].1));
                let (cost_behind, count_behind) = behind[slot];
                let cost = all as f64 * half_surface(&around) + cost_behind;
                let is_cut = all > 0 && count_behind > 0;
                if is_cut && cheapest.is_none_or(|(least, _)| cost < least) {
                    cheapest = Some((cost, Self { slot, ..along }));
                }
            }
        }
        cheapest.map(|(_, halving)| halving)
    }

    fn slot_of(&self, item: &Item) -> usize {
        floor_usize((item.middle[self.axis] - self.least) / self.per_slot).min(SLOTS - 1)
    }

    /// Moves the items before the plane to the front, and returns their number.
    fn part(&self, items: &mut [Item]) -> usize {
        let mut before = 0;
        for at in 0..items.len() {
            if self.slot_of(&items[at]) < self.slot {
                items.swap(before, at);
                before += 1;
            }
        }
        before
    }
}

/// True if a segment meets a triangle that is not in one plane with it; exact.
fn meets(from: Vec3, to: Vec3, [a, b, c]: &[Vec3; 3]) -> bool {
    let (below, above) = (orientation(*a, *b, *c, from), orientation(*a, *b, *c, to));
    if below * above > 0.0 || (below == 0.0 && above == 0.0) {
        return false;
    }
    let turns = [(a, b), (b, c), (c, a)].map(|(p, q)| orientation(from, to, *p, *q));
    turns.iter().all(|&turn| turn >= 0.0) || turns.iter().all(|&turn| turn <= 0.0)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use proptest::prelude::*;

    use super::*;
    use crate::delaunay::{Want, delaunay};
    use crate::known_meshes::{TORUS_VOLUME, bad_edges, on_torus, volume};
    use crate::random::RandomSequence;

    fn place() -> impl Strategy<Value = Vec3> {
        [0..9_i32, 0..9, 0..9].prop_map(|cell| cell.map(|x| f64::from(x) / 8.0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn the_boxes_hide_no_triangle(
            triangles in prop::collection::vec([place(), place(), place()], 0..60),
            segments in prop::collection::vec([place(), place()], 1..30),
        ) {
            let hierarchy = Hierarchy::over(&triangles);
            for [from, to] in segments {
                let brute = triangles.iter().any(|triangle| meets(from, to, triangle));
                let found = hierarchy.met(from, to);
                prop_assert_eq!(found.is_some(), brute);
                if let Some(triangle) = found {
                    prop_assert!(meets(from, to, &triangles[triangle as usize]));
                }
            }
        }
    }

    #[test]
    fn triangles_of_one_place_are_halved_by_their_number() {
        let triangles = vec![[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]; 5 * SERIAL];
        let hierarchy = Hierarchy::over(&triangles);
        let leaves = hierarchy.nodes.iter().filter(|node| node.count > 0);
        assert_eq!(leaves.clone().map(|node| node.count as usize).sum::<usize>(), triangles.len());
        assert!(leaves.clone().all(|node| node.count as usize <= LEAF));
        assert!(hierarchy.met([0.2, 0.2, -1.0], [0.2, 0.2, 1.0]).is_some());
        assert!(hierarchy.met([0.8, 0.8, -1.0], [0.8, 0.8, 1.0]).is_none());
    }

    #[test]
    fn boxes_that_lose_a_triangle_per_level_fit_the_stack() {
        // Each triangle is a 16th of the one before, so that every cut removes one.
        let sizes = (0..70).map(|k| 16.0_f64.powi(-k));
        let triangles: Vec<[Vec3; 3]> =
            sizes.map(|x| [[x, 0.0, 0.0], [2.0 * x, 0.0, 0.0], [x, x, 0.0]]).collect();
        let hierarchy = Hierarchy::over(&triangles);
        let depth = |mut at: usize| {
            let mut levels = 0;
            while hierarchy.nodes[at].second > 0 {
                at += 1;
                levels += 1;
            }
            levels
        };
        assert!((MAX_CUT_LEVELS..=MAX_LEVELS).contains(&depth(0)), "{}", depth(0));
        for (k, [[x, ..], ..]) in triangles.iter().enumerate() {
            let through = |z: f64| [1.25 * x, 0.25 * x, z];
            assert_eq!(hierarchy.met(through(-1.0), through(1.0)), Some(to_u32(k)));
        }
    }

    #[test]
    fn a_segment_meets_a_triangle_at_its_border_but_not_beyond() {
        let triangle = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        let through = |x: f64, y: f64| meets([x, y, -1.0], [x, y, 2.0], &triangle);
        assert!(through(0.25, 0.25) && through(0.5, 0.5) && through(0.0, 0.0));
        assert!(!through(0.5, 0.500_000_1) && !through(-1e-300, 0.5));
        assert!(!meets([0.2, 0.2, 1.0], [0.2, 0.2, 1e-9], &triangle));
        assert!(meets([0.2, 0.2, 1.0], [0.2, 0.2, 0.0], &triangle));
        assert!(!meets([-1.0, 0.2, 0.0], [1.0, 0.2, 0.0], &triangle));
    }

    /// Returns points in a grid of angles with a little jitter, so that no five lie on one sphere.
    fn torus_points(around: i32, across: i32) -> Vec<Vec3> {
        let mut noise = RandomSequence::of_seed(1);
        let mut angle = |at: i32, count: i32| {
            (f64::from(at) + 0.4 * (noise.uniform() - 0.5)) / f64::from(count) * TAU
        };
        let place = |at: i32| on_torus(angle(at / across, around), angle(at % across, across))[0];
        (0..around * across).map(place).collect()
    }

    /// Returns quadrangles between four angles, as triangles.
    fn strip(columns: i32, rows: i32, place: impl Fn(f64, f64) -> Vec3) -> Vec<[Vec3; 3]> {
        let quad = |at: i32| {
            let corner = |[i, j]: [i32; 2]| {
                let (column, row) = (at / rows + i, at % rows + j);
                place(f64::from(column) / f64::from(columns), f64::from(row) / f64::from(rows))
            };
            let [a, b, c, d] = [[0, 0], [1, 0], [1, 1], [0, 1]].map(corner);
            [[a, b, c], [a, c, d]]
        };
        (0..columns * rows).flat_map(quad).collect()
    }

    fn surface(points: &[Vec3], triangles: &[[Vec3; 3]]) -> Restricted {
        let found = delaunay(points, Want::Neighbours).unwrap();
        restricted(points, &found, triangles).unwrap()
    }

    #[test]
    fn points_on_a_torus_give_a_closed_outward_torus() {
        let points = torus_points(90, 40);
        let mut soup = strip(120, 60, |s, t| on_torus(s * TAU, t * TAU)[0]);
        // A tenth of the soup is turned over, and outvoted by the rest.
        for triangle in soup.iter_mut().step_by(10) {
            triangle.swap(0, 1);
        }
        let found = surface(&points, &soup);
        assert_eq!(found.conflicts, 0);
        assert_eq!(bad_edges(&found.mesh), 0);
        assert_eq!(found.mesh.vertices.len(), points.len());
        assert_eq!(found.mesh.faces.len(), 2 * points.len());
        // Chords of 40 to the circle lose 2 pi² / 3 / 40² = .4 % of the area.
        let share = volume(&found.mesh) / TORUS_VOLUME;
        assert!((share - 1.0).abs() < 0.01, "{share}");
    }

    #[test]
    fn half_a_soup_gives_an_open_surface() {
        let points = torus_points(60, 30);
        let soup = strip(60, 60, |s, t| on_torus(s * TAU / 2.0, t * TAU)[0]);
        let found = surface(&points, &soup);
        assert_eq!(found.conflicts, 0);
        let faces = found.mesh.faces.len();
        // Half of the faces, but for those at the two borders of 30 points.
        assert!(faces.abs_diff(points.len()) < 90, "{faces}");
        for (vertex, &point) in found.mesh.vertices.iter().zip(&found.point_from_vertex) {
            let off = length(sub(vertex.map(f64::from), points[point as usize]));
            // Rounded to f32 at 1.4.
            assert!(off < 2e-7, "{off}");
            // One cell beyond the border, TAU / 60, at radius 1.4.
            assert!(vertex[1] > -0.25);
        }
    }

    #[test]
    fn a_moebius_band_has_conflicts() {
        let band = |s: f64, t: f64| {
            let (u, width) = (s * TAU, 0.6 * (t - 0.5));
            let r = 1.0 + width * (u / 2.0).cos();
            [r * u.cos(), r * u.sin(), width * (u / 2.0).sin()]
        };
        let point = |at: i32| band(f64::from(at / 9) / 80.0, 0.05 + 0.9 * f64::from(at % 9) / 8.0);
        let points: Vec<Vec3> = (0..80 * 9).map(point).collect();
        let found = surface(&points, &strip(160, 16, band));
        assert!(found.conflicts > 0);
    }

    #[test]
    fn parts_that_do_not_fit_together_are_refused() {
        let points = torus_points(12, 6);
        let soup = strip(24, 12, |s, t| on_torus(s * TAU, t * TAU)[0]);
        let bare = delaunay(&points, Want::Tetrahedra).unwrap();
        let refused = restricted(&points, &bare, &soup).unwrap_err();
        assert!(matches!(refused, RestrictedError::Neighbours { neighbours: 0, .. }));
        let full = delaunay(&points, Want::Neighbours).unwrap();
        let refused =
            |points: &[Vec3], soup: &[[Vec3; 3]]| restricted(points, &full, soup).unwrap_err();
        assert!(matches!(refused(&points[..9], &soup), RestrictedError::Stray { .. }));
        let far: Vec<_> = soup.iter().map(|t| t.map(|p| add(p, [1e3; 3]))).collect();
        for soup in [far.as_slice(), &[]] {
            let expected = RestrictedError::Apart { triangles: soup.len() };
            assert_eq!(refused(&points, soup), expected);
        }
        let mut broken = soup;
        broken[5][1][2] = f64::NAN;
        let error = refused(&points, &broken);
        assert!(matches!(error, RestrictedError::UnfitTriangle { index: 5, .. }));
    }
}
