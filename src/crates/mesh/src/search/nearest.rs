//! The place of a surface that is nearest to a point.

use super::BoxTree;
use crate::mesh::Vec3;
use crate::vector::{add, cross, dot, scale, sub};

/// The nearest place of a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// Its distance, world units.
    pub distance: f64,
    /// The face that it lies on; of several at the same distance, the least that was found.
    pub face: u32,
    /// The place.
    pub place: Vec3,
}

impl BoxTree<'_> {
    /// The exact nearest place of the surface, of all its triangles; none beyond `farthest`.
    pub fn nearest(&self, point: Vec3, farthest: f64) -> Option<Nearest> {
        let mut best = farthest * farthest;
        let mut found: Option<(u32, Vec3)> = None;
        let mut stack = [(0.0, self.root()); 64];
        let mut depth = 1;
        while depth > 0 {
            depth -= 1;
            let (gap, branch) = stack[depth];
            if gap > best {
                continue;
            }
            if branch.node >= self.inner {
                for &face in &self.order[branch.start..branch.end] {
                    let place = nearest_in_triangle(point, self.corners(face));
                    let off = sub(point, place);
                    let squared = dot(off, off);
                    let first = found.is_none_or(|(other, _)| face < other);
                    if squared < best || (squared <= best && first) {
                        best = squared;
                        found = Some((face, place));
                    }
                }
                continue;
            }
            let mut children = branch
                .children()
                .map(|child| (self.boxes[child.node].squared_distance(point), child));
            if children[0].0 < children[1].0 {
                children.swap(0, 1);
            }
            // The nearer one last, to be taken first.
            for child in children.into_iter().filter(|child| child.0 <= best) {
                stack[depth] = child;
                depth += 1;
            }
        }
        found.map(|(face, place)| Nearest { distance: best.sqrt(), face, place })
    }
}

/// The place of a triangle that is nearest to `point`: inside, on an edge or a corner, told apart by
/// barycentric signs. A triangle without area is its longest edge.
pub(super) fn nearest_in_triangle(point: Vec3, [a, b, c]: [Vec3; 3]) -> Vec3 {
    let normal = cross(sub(b, a), sub(c, a));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::sphere;
    use crate::mesh::Mesh;
    use crate::narrow::to_f32s;
    use crate::place::area;
    use crate::random::RandomStream;
    use crate::vector::length;

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
            // It lies in the triangle: the parts make up the whole.
            let parts = area([nearest, a, b]) + area([nearest, b, c]) + area([nearest, c, a]);
            prop_assert!((parts - area([a, b, c])).abs() < 1e-9);
            let (u, v) = if u + v > 1.0 { (1.0 - u, 1.0 - v) } else { (u, v) };
            let other = add(a, add(scale(sub(b, a), u), scale(sub(c, a), v)));
            prop_assert!(length(sub(p, nearest)) <= length(sub(p, other)) + 1e-12);
        }
    }

    #[test]
    fn the_tree_finds_what_a_search_of_all_faces_finds() {
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
}
