//! Search for faces: the nearest one, those on a ray, those in a box.

use rayon::prelude::*;

use crate::mesh::{Mesh, MeshError, Vec3, check_mesh};
use crate::narrow::to_u32;
use crate::place::{add, corners, cross, dot, doubled_area, normalize, scale, sub};

const LEAF_FACES: usize = 4;

/// Number of faces below which one thread builds a branch.
const SERIAL_FACES: usize = 1 << 14;

/// An axis-aligned box; exact, because vertices are of single precision.
#[derive(Clone, Copy, Debug)]
struct FaceBox {
    low: [f32; 3],
    high: [f32; 3],
}

impl FaceBox {
    const EMPTY: Self = Self { low: [f32::INFINITY; 3], high: [f32::NEG_INFINITY; 3] };

    fn around(self, other: Self) -> Self {
        Self {
            low: std::array::from_fn(|axis| self.low[axis].min(other.low[axis])),
            high: std::array::from_fn(|axis| self.high[axis].max(other.high[axis])),
        }
    }

    fn of(mesh: &Mesh, face: [u32; 3]) -> Self {
        face.iter().fold(Self::EMPTY, |all, &vertex| {
            let place = mesh.vertices[vertex as usize];
            all.around(Self { low: place, high: place })
        })
    }

    /// Returns the squared distance to a place; 0 inside.
    #[inline]
    fn squared_distance(&self, place: Vec3) -> f64 {
        let mut sum = 0.0;
        for (axis, &x) in place.iter().enumerate() {
            let gap = (f64::from(self.low[axis]) - x).max(x - f64::from(self.high[axis])).max(0.0);
            sum += gap * gap;
        }
        sum
    }

    /// Returns where a ray enters, if it does so before `farthest`; `inverse` is 1 / direction.
    #[inline]
    fn entry(&self, origin: Vec3, inverse: Vec3, farthest: f64) -> Option<f64> {
        let (mut near, mut far) = (0.0_f64, farthest);
        for axis in 0..3 {
            let below = f64::from(self.low[axis]) - origin[axis];
            let above = f64::from(self.high[axis]) - origin[axis];
            if inverse[axis].is_infinite() {
                // The ray runs along the box's faces: it lies between them everywhere, or nowhere.
                if below > 0.0 || above < 0.0 {
                    return None;
                }
                continue;
            }
            let (a, b) = (below * inverse[axis], above * inverse[axis]);
            near = near.max(a.min(b));
            far = far.min(a.max(b));
        }
        // A few roundings wider, so that no ray slips between two boxes.
        (near <= far * (1.0 + 4.0 * f64::EPSILON)).then_some(near)
    }

    #[inline]
    fn meets(&self, other: &Self) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.high[axis] && other.low[axis] <= self.high[axis])
    }
}

/// A complete binary tree over the faces of a mesh, cut at the median of the longest axis. Node n has the children 2n
/// + 1 and 2n + 2. The size of a branch determines the range of its faces.
pub struct BoxTree<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// Indices of the faces, leaf after leaf.
    order: Vec<u32>,
    boxes: Vec<FaceBox>,
    /// Number of inner nodes, which come before the first leaf.
    inner: usize,
}

#[derive(Clone, Copy, Debug)]
struct Branch {
    node: usize,
    start: usize,
    end: usize,
}

impl Branch {
    #[inline]
    fn children(self) -> [Self; 2] {
        let middle = self.start.midpoint(self.end);
        [
            Self { node: 2 * self.node + 1, start: self.start, end: middle },
            Self { node: 2 * self.node + 2, start: middle, end: self.end },
        ]
    }
}

impl<'a> BoxTree<'a> {
    /// Builds the tree: 20 to 40 bytes a face. The result does not depend on the number of threads.
    pub fn new(mesh: &'a Mesh) -> Result<Self, MeshError> {
        check_mesh(mesh)?;
        let mut order: Vec<u32> = (0..to_u32(mesh.faces.len())).collect();
        let centre = |&face: &[u32; 3]| {
            let [a, b, c] = face.map(|vertex| mesh.vertices[vertex as usize]);
            std::array::from_fn(|axis| a[axis] / 3.0 + b[axis] / 3.0 + c[axis] / 3.0)
        };
        let centres: Vec<[f32; 3]> = mesh.faces.par_iter().map(centre).collect();
        let leaves = mesh.faces.len().div_ceil(LEAF_FACES).next_power_of_two();
        sort_branch(&mut order, leaves, &centres);
        let mut tree = Self { mesh, order, boxes: Vec::new(), inner: leaves - 1 };
        let of_face = |&face: &u32| FaceBox::of(mesh, mesh.faces[face as usize]);
        let of_leaf = |leaf: usize| {
            let Branch { start, end, .. } = tree.leaf(leaf);
            tree.order[start..end].iter().map(of_face).fold(FaceBox::EMPTY, FaceBox::around)
        };
        let mut boxes = vec![FaceBox::EMPTY; tree.inner];
        boxes.par_extend((0..leaves).into_par_iter().map(of_leaf));
        for node in (0..tree.inner).rev() {
            boxes[node] = boxes[2 * node + 1].around(boxes[2 * node + 2]);
        }
        tree.boxes = boxes;
        Ok(tree)
    }

    /// Descends to a leaf by the bits of its number, the greatest first.
    fn leaf(&self, leaf: usize) -> Branch {
        let mut branch = self.root();
        for bit in (0..(self.inner + 1).ilog2()).rev() {
            branch = branch.children()[leaf >> bit & 1];
        }
        branch
    }

    #[inline]
    fn root(&self) -> Branch {
        Branch { node: 0, start: 0, end: self.order.len() }
    }

    /// Returns the corners of a face.
    #[inline]
    pub fn corners(&self, face: u32) -> [Vec3; 3] {
        corners(self.mesh, self.mesh.faces[face as usize])
    }

    /// Returns the unit normal of a face; zero if it has no area.
    #[inline]
    pub fn normal(&self, face: u32) -> Vec3 {
        normalize(doubled_area(self.corners(face)))
    }

    /// Passes `visit` the faces whose boxes meet that of `face`, including itself.
    pub fn neighbours(&self, face: u32, mut visit: impl FnMut(u32)) {
        let wanted = FaceBox::of(self.mesh, self.mesh.faces[face as usize]);
        let enter = |span: &FaceBox, _| span.meets(&wanted).then_some(0.0);
        self.descend(0.0, enter, |face, end| {
            visit(face);
            end
        });
    }

    /// Passes `visit` the faces of boxes that `enter` accepts, nearer boxes first. `enter` gets a box and the end of
    /// the search, and returns the distance of the box if it lies before the end. `visit` returns the new end.
    #[inline]
    fn descend(
        &self,
        mut end: f64,
        enter: impl Fn(&FaceBox, f64) -> Option<f64>,
        mut visit: impl FnMut(u32, f64) -> f64,
    ) {
        let mut stack = [(0.0, self.root()); 64];
        let mut depth = 1;
        while depth > 0 {
            depth -= 1;
            let (entry, branch) = stack[depth];
            if entry > end {
                continue;
            }
            if branch.node >= self.inner {
                let faces = self.order[branch.start..branch.end].iter();
                end = faces.fold(end, |end, &face| visit(face, end));
                continue;
            }
            let mut children =
                branch.children().map(|child| (enter(&self.boxes[child.node], end), child));
            if children[0].0 < children[1].0 {
                children.swap(0, 1);
            }
            // The nearer child is pushed last, to be searched first.
            for (entry, child) in children {
                if let Some(entry) = entry {
                    stack[depth] = (entry, child);
                    depth += 1;
                }
            }
        }
    }
}

/// Sorts faces so that each half of a branch is one side of the median.
fn sort_branch(order: &mut [u32], leaves: usize, centres: &[[f32; 3]]) {
    if leaves <= 1 || order.len() < 2 {
        return;
    }
    let bounds = order.iter().fold(FaceBox::EMPTY, |all, &face| {
        let centre = centres[face as usize];
        all.around(FaceBox { low: centre, high: centre })
    });
    let side = |axis: usize| bounds.high[axis] - bounds.low[axis];
    // The first of several longest axes.
    let longest = (0..3).rev().max_by(|&a, &b| side(a).total_cmp(&side(b)));
    let axis = longest.unwrap_or(0);
    let middle = 0_usize.midpoint(order.len());
    let key = |&face: &u32| centres[face as usize][axis];
    order.select_nth_unstable_by(middle, |a, b| key(a).total_cmp(&key(b)).then(a.cmp(b)));
    let serial = order.len() < SERIAL_FACES;
    let halves = order.split_at_mut(middle);
    let mut left = || sort_branch(halves.0, leaves / 2, centres);
    let mut right = || sort_branch(halves.1, leaves / 2, centres);
    if serial {
        left();
        right();
    } else {
        rayon::join(left, right);
    }
}

/// The nearest place of a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// Its distance, world units.
    pub distance: f64,
    /// The face of the place; the least of several at this distance that were found.
    pub face: u32,
    /// The place.
    pub place: Vec3,
}

impl BoxTree<'_> {
    /// Returns the exact nearest place of the surface; none beyond `farthest`.
    pub fn nearest(&self, point: Vec3, farthest: f64) -> Option<Nearest> {
        let mut found: Option<(u32, Vec3, f64)> = None;
        let enter = |span: &FaceBox, best: f64| {
            Some(span.squared_distance(point)).filter(|&squared| squared <= best)
        };
        self.descend(farthest * farthest, enter, |face, best| {
            let place = nearest_in_triangle(point, self.corners(face));
            let off = sub(point, place);
            let squared = dot(off, off);
            let first = found.is_none_or(|(other, ..)| face < other);
            let is_nearer = squared < best || (squared <= best && first);
            if is_nearer {
                found = Some((face, place, squared));
            }
            if is_nearer { squared } else { best }
        });
        found.map(|(face, place, squared)| Nearest { distance: squared.sqrt(), face, place })
    }
}

/// Returns the place of a triangle that is nearest to `point`: inside, on an edge or at a corner, by barycentric
/// signs. A triangle without area counts as its edges.
fn nearest_in_triangle(point: Vec3, [a, b, c]: [Vec3; 3]) -> Vec3 {
    let normal = doubled_area([a, b, c]);
    let squared = dot(normal, normal);
    if squared > 0.0 {
        // Twice the areas that the point spans with the edges, along the normal.
        let inside = [[a, b], [b, c], [c, a]]
            .map(|[from, to]| dot(normal, cross(sub(to, from), sub(point, from))) >= 0.0);
        if inside == [true; 3] {
            return sub(point, scale(normal, dot(normal, sub(point, a)) / squared));
        }
    }
    let mut nearest = a;
    let mut best = f64::INFINITY;
    for [from, to] in [[a, b], [b, c], [c, a]] {
        let place = nearest_in_segment(point, from, to);
        let off = sub(point, place);
        if dot(off, off) < best {
            best = dot(off, off);
            nearest = place;
        }
    }
    nearest
}

fn nearest_in_segment(point: Vec3, from: Vec3, to: Vec3) -> Vec3 {
    let along = sub(to, from);
    let squared = dot(along, along);
    if squared <= 0.0 {
        return from;
    }
    let share = (dot(sub(point, from), along) / squared).clamp(0.0, 1.0);
    if share >= 1.0 { to } else { add(from, scale(along, share)) }
}

/// A place where a ray meets a face, from either side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RayHit {
    /// Distance in lengths of the direction.
    pub at: f64,
    /// Index of the face.
    pub face: u32,
}

impl BoxTree<'_> {
    /// Returns the first face on a ray between `nearest` and `farthest`, in lengths of `direction`; the least of
    /// several at one place.
    pub fn first_hit(
        &self,
        origin: Vec3,
        direction: Vec3,
        [nearest, farthest]: [f64; 2],
    ) -> Option<RayHit> {
        let mut first: Option<RayHit> = None;
        self.hits(origin, direction, [nearest, farthest], |hit| {
            let before =
                |other: RayHit| hit.at < other.at || (hit.at <= other.at && hit.face < other.face);
            if first.is_none_or(before) {
                first = Some(hit);
            }
            hit.at
        });
        first
    }

    /// True if any face lies on a ray between `nearest` and `farthest`, in lengths of `direction`.
    pub fn is_hit(&self, origin: Vec3, direction: Vec3, range: [f64; 2]) -> bool {
        let mut found = false;
        self.hits(origin, direction, range, |_| {
            found = true;
            f64::NEG_INFINITY
        });
        found
    }

    /// Passes `visit` the faces on a ray, in no order. `visit` returns the new end of the ray, which counts if it is
    /// nearer than the old one.
    pub fn hits(
        &self,
        origin: Vec3,
        direction: Vec3,
        [nearest, farthest]: [f64; 2],
        mut visit: impl FnMut(RayHit) -> f64,
    ) {
        let inverse = direction.map(|x| 1.0 / x);
        let enter = |span: &FaceBox, farthest| span.entry(origin, inverse, farthest);
        self.descend(farthest, enter, |face, farthest| {
            let at = meeting(origin, direction, self.corners(face));
            let at = at.filter(|&at| nearest <= at && at <= farthest);
            at.map_or(farthest, |at| farthest.min(visit(RayHit { at, face })))
        });
    }
}

/// Returns where a ray meets a triangle (Möller and Trumbore 1997, from both sides). Edges belong to the triangle,
/// widened by a rounding, so that no ray slips between two faces.
fn meeting(origin: Vec3, direction: Vec3, [a, b, c]: [Vec3; 3]) -> Option<f64> {
    const SLACK: f64 = 1e-12;
    let (ab, ac) = (sub(b, a), sub(c, a));
    let across = cross(direction, ac);
    let determinant = dot(ab, across);
    if determinant == 0.0 {
        return None;
    }
    let from_a = sub(origin, a);
    let u = dot(from_a, across) / determinant;
    let up = cross(from_a, ab);
    let v = dot(direction, up) / determinant;
    let inside = u >= -SLACK && v >= -SLACK && u + v <= 1.0 + SLACK;
    inside.then(|| dot(ac, up) / determinant)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::{cube, sphere, torus};
    use crate::narrow::to_f32s;
    use crate::place::{area, length};
    use crate::random::RandomStream;

    fn point() -> impl Strategy<Value = Vec3> {
        prop::array::uniform3(-2.0..2.0_f64)
    }

    proptest! {
        #[test]
        fn no_place_of_a_triangle_is_nearer(
            p in point(), a in point(), b in point(), c in point(),
            u in 0.0..1.0_f64, v in 0.0..1.0_f64,
        ) {
            let nearest = nearest_in_triangle(p, [a, b, c]);
            // The place lies in the triangle: the parts make up the whole.
            let parts = area([nearest, a, b]) + area([nearest, b, c]) + area([nearest, c, a]);
            prop_assert!((parts - area([a, b, c])).abs() < 1e-9);
            let (u, v) = if u + v > 1.0 { (1.0 - u, 1.0 - v) } else { (u, v) };
            let other = add(a, add(scale(sub(b, a), u), scale(sub(c, a), v)));
            prop_assert!(length(sub(p, nearest)) <= length(sub(p, other)) + 1e-12);
        }
    }

    #[test]
    fn the_tree_finds_the_same_as_a_search_of_all_faces() {
        let stream = RandomStream::of_seed(1);
        let places = |first: u64| -> Vec3 {
            std::array::from_fn(|axis| stream.uniform(first + axis as u64) * 4.0 - 2.0)
        };
        for faces in [0, 1, 2, 5, 17, 300_u32] {
            let mesh = Mesh {
                vertices: (0..3 * u64::from(faces)).map(|i| to_f32s(places(3 * i))).collect(),
                faces: (0..faces).map(|f| [3 * f, 3 * f + 1, 3 * f + 2]).collect(),
                ..Mesh::default()
            };
            let tree = BoxTree::new(&mesh).unwrap();
            for probe in 0..200 {
                let point = places(10_000 + 3 * probe);
                let all = (0..faces)
                    .map(|face| length(sub(point, nearest_in_triangle(point, tree.corners(face)))));
                let expected = all.fold(f64::INFINITY, f64::min);
                let found = tree.nearest(point, f64::INFINITY);
                assert_eq!(found.map_or(f64::INFINITY, |f| f.distance), expected, "{faces} faces");
                assert!(tree.nearest(point, expected * 0.999).is_none());
            }
        }
    }

    #[test]
    fn distances_to_a_sphere_are_those_of_its_radius() {
        let mesh = sphere(1.0, 5);
        let tree = BoxTree::new(&mesh).unwrap();
        let found = tree.nearest([0.0, 0.0, 3.0], f64::INFINITY).unwrap();
        assert_eq!((found.distance, found.place), (2.0, [0.0, 0.0, 1.0]));
        let centre = tree.nearest([0.0; 3], f64::INFINITY).unwrap();
        // Faces of 90°/32 dip by at most half their width squared.
        assert!((0.999..=1.0).contains(&centre.distance), "{}", centre.distance);
    }

    #[test]
    fn rays_meet_a_cube_where_its_sides_are() {
        let mesh = cube();
        let tree = BoxTree::new(&mesh).unwrap();
        let all = [0.0, f64::INFINITY];
        let hit = tree.first_hit([0.25, 0.5, -3.0], [0.0, 0.0, 2.0], all).unwrap();
        assert_eq!(hit.at, 1.5);
        let from_inside = tree.first_hit([0.25, 0.5, 0.5], [0.0, -1.0, 0.0], all).unwrap();
        assert_eq!(from_inside.at, 0.5);
        assert!(tree.first_hit([0.25, 0.5, -3.0], [0.0, 0.0, -2.0], all).is_none());
        assert!(tree.first_hit([0.25, 0.5, -3.0], [0.0, 0.0, 2.0], [0.0, 1.4]).is_none());
        assert!(!tree.is_hit([1.5, 0.5, -3.0], [0.0, 0.0, 2.0], all));
        assert!(tree.is_hit([0.25, 0.5, -3.0], [0.0, 0.0, 2.0], [1.6, 9.0]));
    }

    #[test]
    fn no_ray_slips_between_the_faces_of_a_closed_surface() {
        let mesh = sphere(1.0, 4);
        let tree = BoxTree::new(&mesh).unwrap();
        let stream = RandomStream::of_seed(2);
        let directions = (0..2000)
            .map(|i| std::array::from_fn(|axis| stream.uniform(3 * i + axis as u64) - 0.5));
        // Also at vertices and at the middles of edges, where rays could slip through.
        let vertices = mesh.vertices.iter().map(|&v| v.map(f64::from));
        let middles = (0..mesh.faces.len() as u32).map(|face| {
            let [a, b, _] = tree.corners(face);
            scale(add(a, b), 0.5)
        });
        for direction in directions.chain(vertices).chain(middles) {
            let hit = tree.first_hit([0.0; 3], normalize(direction), [0.0, f64::INFINITY]);
            assert!((hit.unwrap().at - 1.0).abs() < 0.01, "{direction:?}");
        }
    }

    #[test]
    fn first_and_all_hits_are_those_of_every_face() {
        let mesh = torus([1.0, 0.4], [40, 20], |_, _| 1.0);
        let tree = BoxTree::new(&mesh).unwrap();
        let stream = RandomStream::of_seed(3);
        for ray in 0..300 {
            let random = |axis: u64| 3.0 * stream.uniform(6 * ray + axis) - 1.5;
            let (origin, direction) = ([0, 1, 2].map(random), [3, 4, 5].map(random));
            let hit = |face: u32| {
                let at = meeting(origin, direction, tree.corners(face)).filter(|&at| at >= 0.0)?;
                Some(RayHit { at, face })
            };
            let expected: Vec<RayHit> = (0..mesh.faces.len() as u32).filter_map(hit).collect();
            let mut found = Vec::new();
            tree.hits(origin, direction, [0.0, f64::INFINITY], |hit| {
                found.push(hit);
                f64::INFINITY
            });
            found.sort_by_key(|hit| hit.face);
            assert_eq!(found, expected);
            let first = expected.iter().map(|hit| hit.at).fold(f64::INFINITY, f64::min);
            let hit = tree.first_hit(origin, direction, [0.0, f64::INFINITY]);
            assert_eq!(hit.map_or(f64::INFINITY, |hit| hit.at), first);
            assert!(length(direction) > 0.0);
        }
    }
}
