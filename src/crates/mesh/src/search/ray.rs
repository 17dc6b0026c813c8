//! Where rays meet a surface.

use super::BoxTree;
use crate::mesh::Vec3;
use crate::vector::{cross, dot, sub};

/// A place where a ray meets a face, from either side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RayHit {
    /// How many lengths of the direction the place is away.
    pub at: f64,
    /// The face.
    pub face: u32,
}

impl BoxTree<'_> {
    /// The first face on a ray between `nearest` and `farthest`, in lengths of `direction`; of
    /// several there, the least.
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

    /// Shows `visit` the faces on a ray, in no order. It answers how far the ray reaches from now
    /// on, if that is less than it was.
    pub fn hits(
        &self,
        origin: Vec3,
        direction: Vec3,
        [nearest, mut farthest]: [f64; 2],
        mut visit: impl FnMut(RayHit) -> f64,
    ) {
        let inverse = direction.map(|x| 1.0 / x);
        let mut stack = [(0.0, self.root()); 64];
        let mut depth = 1;
        while depth > 0 {
            depth -= 1;
            let (entry, branch) = stack[depth];
            if entry > farthest {
                continue;
            }
            if branch.node >= self.inner {
                for &face in &self.order[branch.start..branch.end] {
                    let at = meeting(origin, direction, self.corners(face));
                    if let Some(at) = at.filter(|&at| nearest <= at && at <= farthest) {
                        farthest = farthest.min(visit(RayHit { at, face }));
                    }
                }
                continue;
            }
            let mut children = branch
                .children()
                .map(|child| (self.boxes[child.node].entry(origin, inverse, farthest), child));
            if children[0].0 < children[1].0 {
                children.swap(0, 1);
            }
            for (entry, child) in children {
                if let Some(entry) = entry {
                    stack[depth] = (entry, child);
                    depth += 1;
                }
            }
        }
    }
}

/// Where a ray meets a triangle (Möller and Trumbore 1997, from both sides). Edges count as the
/// triangle's, widened by a rounding, so that no ray slips between two faces.
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
    use super::*;
    use crate::known_meshes::{cube, sphere, torus};
    use crate::random::RandomStream;
    use crate::vector::{add, length, normalize, scale};

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
        // At vertices and at the middles of edges, where slips would be.
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
            let random = |axis: usize| 3.0 * stream.uniform(6 * ray + axis as u64) - 1.5;
            let (origin, direction) =
                ([random(0), random(1), random(2)], [random(3), random(4), random(5)]);
            let expected: Vec<RayHit> = (0..mesh.faces.len() as u32)
                .filter_map(|face| {
                    let at = meeting(origin, direction, tree.corners(face)).filter(|&at| at >= 0.0);
                    at.map(|at| RayHit { at, face })
                })
                .collect();
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
