//! Finding faces: the nearest one, those on a ray, those in a box.

mod nearest;
mod ray;

use rayon::prelude::*;

use crate::mesh::{Mesh, Vec3};
use crate::mesh::{MeshError, check_mesh};
use crate::narrow::to_u32;
use crate::place::{corners, doubled_area};
use crate::vector::normalize;

pub use nearest::Nearest;
pub use ray::RayHit;

// A balanced tree of boxes about the faces of a mesh.

/// Most faces of a leaf.
const LEAF_FACES: usize = 4;

/// Faces below which one thread builds a branch.
const SERIAL_FACES: usize = 1 << 14;

/// An axis-aligned box; exact, for vertices are of single precision.
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

    /// Squared distance to a place; 0 inside.
    #[inline]
    fn squared_distance(&self, place: Vec3) -> f64 {
        let mut sum = 0.0;
        for (axis, &x) in place.iter().enumerate() {
            let gap = (f64::from(self.low[axis]) - x).max(x - f64::from(self.high[axis])).max(0.0);
            sum += gap * gap;
        }
        sum
    }

    /// Where a ray enters, if it does so before `farthest`; `inverse` is 1 / direction.
    #[inline]
    fn entry(&self, origin: Vec3, inverse: Vec3, farthest: f64) -> Option<f64> {
        let (mut near, mut far) = (0.0_f64, farthest);
        for axis in 0..3 {
            let below = f64::from(self.low[axis]) - origin[axis];
            let above = f64::from(self.high[axis]) - origin[axis];
            if inverse[axis].is_infinite() {
                // Along the box's faces: between them all the way, or never.
                if below > 0.0 || above < 0.0 {
                    return None;
                }
                continue;
            }
            let (a, b) = (below * inverse[axis], above * inverse[axis]);
            near = near.max(a.min(b));
            far = far.min(a.max(b));
        }
        // Widened by a few roundings, so that no ray slips between two boxes.
        (near <= far * (1.0 + 4.0 * f64::EPSILON)).then_some(near)
    }

    /// Whether two boxes share a place.
    #[inline]
    fn meets(&self, other: &Self) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.high[axis] && other.low[axis] <= self.high[axis])
    }
}

/// A complete binary tree over the faces of a mesh, cut at the median of the longest axis. Node n has
/// the children 2n + 1 and 2n + 2; where a branch's faces lie follows from its size alone.
pub struct BoxTree<'a> {
    mesh: &'a Mesh,
    /// Names of the faces, leaf after leaf.
    order: Vec<u32>,
    boxes: Vec<FaceBox>,
    /// Inner nodes: those before the first leaf.
    inner: usize,
}

/// A node and the part of the order that it covers.
#[derive(Clone, Copy, Debug)]
struct Branch {
    node: usize,
    start: usize,
    end: usize,
}

impl Branch {
    /// Both children.
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
    /// Builds the tree: 20 to 40 bytes a face. The same of any number of threads.
    pub fn new(mesh: &'a Mesh) -> Result<Self, MeshError> {
        check_mesh(mesh)?;
        let mut order: Vec<u32> = (0..to_u32(mesh.faces.len())).collect();
        let centres: Vec<[f32; 3]> = mesh
            .faces
            .par_iter()
            .map(|&face| {
                let [a, b, c] = face.map(|vertex| mesh.vertices[vertex as usize]);
                std::array::from_fn(|axis| a[axis] / 3.0 + b[axis] / 3.0 + c[axis] / 3.0)
            })
            .collect();
        let leaves = mesh.faces.len().div_ceil(LEAF_FACES).next_power_of_two();
        sort_branch(&mut order, leaves, &centres);
        let mut boxes = vec![FaceBox::EMPTY; 2 * leaves - 1];
        let mut tree = Self { mesh, order, boxes: Vec::new(), inner: leaves - 1 };
        tree.fill_leaves(&mut boxes);
        for node in (0..leaves - 1).rev() {
            boxes[node] = boxes[2 * node + 1].around(boxes[2 * node + 2]);
        }
        tree.boxes = boxes;
        Ok(tree)
    }

    fn fill_leaves(&self, boxes: &mut [FaceBox]) {
        boxes[self.inner..].par_iter_mut().enumerate().for_each(|(leaf, filled)| {
            let branch = self.leaf(leaf);
            *filled =
                self.order[branch.start..branch.end].iter().fold(FaceBox::EMPTY, |all, &f| {
                    all.around(FaceBox::of(self.mesh, self.mesh.faces[f as usize]))
                });
        });
    }

    /// Walks down to a leaf by the bits of its number, the greatest first.
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

    /// The mesh.
    pub fn mesh(&self) -> &'a Mesh {
        self.mesh
    }

    /// The corners of a face.
    #[inline]
    pub fn corners(&self, face: u32) -> [Vec3; 3] {
        corners(self.mesh, self.mesh.faces[face as usize])
    }

    /// The unit normal of a face; zero where it has no area.
    #[inline]
    pub fn normal(&self, face: u32) -> Vec3 {
        normalize(doubled_area(self.corners(face)))
    }

    /// Shows `visit` the faces whose boxes meet that of `face`, itself among them.
    pub fn neighbours(&self, face: u32, mut visit: impl FnMut(u32)) {
        let wanted = FaceBox::of(self.mesh, self.mesh.faces[face as usize]);
        let mut stack = vec![self.root()];
        while let Some(branch) = stack.pop() {
            if !self.boxes[branch.node].meets(&wanted) {
                continue;
            }
            if branch.node >= self.inner {
                self.order[branch.start..branch.end].iter().for_each(|&face| visit(face));
            } else {
                stack.extend(branch.children());
            }
        }
    }
}

/// Orders faces so that each half of a branch is one side of the median.
fn sort_branch(order: &mut [u32], leaves: usize, centres: &[[f32; 3]]) {
    if leaves <= 1 || order.len() < 2 {
        return;
    }
    let bounds = order.iter().fold(FaceBox::EMPTY, |all, &face| {
        let centre = centres[face as usize];
        all.around(FaceBox { low: centre, high: centre })
    });
    let side = |axis: usize| bounds.high[axis] - bounds.low[axis];
    let axis = if side(0) >= side(1) && side(0) >= side(2) {
        0
    } else if side(1) >= side(2) {
        1
    } else {
        2
    };
    let middle = 0_usize.midpoint(order.len());
    let key = |&face: &u32| centres[face as usize][axis];
    order.select_nth_unstable_by(middle, |a, b| key(a).total_cmp(&key(b)).then(a.cmp(b)));
    let serial = order.len() < SERIAL_FACES;
    let (left, right) = order.split_at_mut(middle);
    if serial {
        sort_branch(left, leaves / 2, centres);
        sort_branch(right, leaves / 2, centres);
    } else {
        rayon::join(
            || sort_branch(left, leaves / 2, centres),
            || sort_branch(right, leaves / 2, centres),
        );
    }
}
