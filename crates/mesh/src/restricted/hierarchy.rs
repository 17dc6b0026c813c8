//! Which triangle a segment meets: boxes around runs of triangles along a Hilbert curve.

use rayon::prelude::*;

use crate::delaunay::hilbert::Curve;
use crate::delaunay::predicates::orientation;
use crate::mesh::Vec3;
use crate::vector::{add, scale, sub};

/// Triangles in a box at the bottom.
const LEAF: usize = 4;

/// Levels of boxes that fit the walk's memory: 2^40 boxes.
const MOST_LEVELS: usize = 40;

/// Room for rounding, in lengths of the segment.
const ROUNDING: f64 = 1e-12;

/// A box from its least to its greatest corner.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: Vec3,
    most: Vec3,
}

impl Span {
    /// No place.
    const EMPTY: Self = Self { least: [f64::INFINITY; 3], most: [f64::NEG_INFINITY; 3] };

    /// The box around both.
    fn joined(self, other: Self) -> Self {
        let (mut least, mut most) = (self.least, self.most);
        for axis in 0..3 {
            least[axis] = least[axis].min(other.least[axis]);
            most[axis] = most[axis].max(other.most[axis]);
        }
        Self { least, most }
    }

    /// The box around a triangle.
    fn around(corners: &[Vec3; 3]) -> Self {
        corners
            .iter()
            .fold(Self::EMPTY, |span, &corner| span.joined(Self { least: corner, most: corner }))
    }

    /// Whether a segment may meet the box, by its parts between the box's planes (Kay and Kajiya,
    /// 1986).
    fn may_meet(&self, from: Vec3, along: Vec3, inverse: Vec3) -> bool {
        let (mut enter, mut leave) = (-ROUNDING, 1.0 + ROUNDING);
        for axis in 0..3 {
            let (least, most) = (self.least[axis] - from[axis], self.most[axis] - from[axis]);
            if along[axis] == 0.0 {
                // Between these planes always, or never.
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
}

/// Boxes around triangles: 1 at the top, the halves of box b are 2b and 2b + 1.
#[derive(Debug)]
pub(super) struct Hierarchy<'a> {
    triangles: &'a [[Vec3; 3]],
    /// Triangles along the curve.
    order: Vec<u32>,
    spans: Vec<Span>,
    /// The first box at the bottom.
    leaves: usize,
}

impl<'a> Hierarchy<'a> {
    /// Boxes around finite triangles.
    pub(super) fn over(triangles: &'a [[Vec3; 3]]) -> Self {
        let middle = |[a, b, c]: &[Vec3; 3]| scale(add(*a, add(*b, *c)), 1.0 / 3.0);
        let middles: Vec<Vec3> = triangles.par_iter().map(middle).collect();
        let curve = Curve::around(&middles);
        let mut keys: Vec<(u64, u32)> = (0..)
            .zip(&middles)
            .map(|(triangle, &middle)| (curve.place(middle), triangle))
            .collect();
        keys.par_sort_unstable();
        let order: Vec<u32> = keys.into_iter().map(|(_, triangle)| triangle).collect();
        let leaves = order.len().div_ceil(LEAF).next_power_of_two();
        let mut spans = vec![Span::EMPTY; leaves];
        spans.par_extend(order.par_chunks(LEAF).map(|run| {
            run.iter().fold(Span::EMPTY, |span, &triangle| {
                span.joined(Span::around(&triangles[triangle as usize]))
            })
        }));
        spans.resize(2 * leaves, Span::EMPTY);
        for parent in (1..leaves).rev() {
            spans[parent] = spans[2 * parent].joined(spans[2 * parent + 1]);
        }
        Self { triangles, order, spans, leaves }
    }

    /// A triangle that a segment meets, its ends and the triangle's border included.
    pub(super) fn met(&self, from: Vec3, to: Vec3) -> Option<u32> {
        let along = sub(to, from);
        let inverse = along.map(|x| 1.0 / x);
        let mut waiting = [0; MOST_LEVELS + 1];
        (waiting[0], waiting[1]) = (0, 1);
        let mut last = 1;
        // Box 0 does not exist: it ends the walk.
        while waiting[last] != 0 {
            let at = waiting[last];
            last -= 1;
            if !self.spans[at].may_meet(from, along, inverse) {
                continue;
            }
            if at < self.leaves {
                // The first half comes first.
                waiting[last + 1] = 2 * at + 1;
                waiting[last + 2] = 2 * at;
                last += 2;
                continue;
            }
            let first = (at - self.leaves) * LEAF;
            let run = self.order.get(first..self.order.len().min(first + LEAF)).unwrap_or(&[]);
            let meets = |&&triangle: &&u32| meets(from, to, &self.triangles[triangle as usize]);
            if let Some(&triangle) = run.iter().find(meets) {
                return Some(triangle);
            }
        }
        None
    }
}

/// Whether a segment meets a triangle that is not in one plane with it: exact for the ends as they
/// are.
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
    use super::*;
    use proptest::prelude::*;

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
    fn a_segment_meets_a_triangle_at_its_border_but_not_beyond() {
        let triangle = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        let through = |x: f64, y: f64| meets([x, y, -1.0], [x, y, 2.0], &triangle);
        assert!(through(0.25, 0.25) && through(0.5, 0.5) && through(0.0, 0.0));
        assert!(!through(0.5, 0.500_000_1) && !through(-1e-300, 0.5));
        assert!(!meets([0.2, 0.2, 1.0], [0.2, 0.2, 1e-9], &triangle));
        assert!(meets([0.2, 0.2, 1.0], [0.2, 0.2, 0.0], &triangle));
        assert!(!meets([-1.0, 0.2, 0.0], [1.0, 0.2, 0.0], &triangle));
    }
}
