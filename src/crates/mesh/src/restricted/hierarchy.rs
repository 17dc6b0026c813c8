//! Which triangle a segment meets: a tree of boxes around triangles.

use rayon::prelude::*;

use crate::delaunay::predicates::orientation;
use crate::mesh::Vec3;
use crate::narrow::to_u32;
use crate::vector::{add, scale, sub};

/// Triangles in a box at the bottom.
const LEAF: usize = 4;

/// Most triangles of which one thread makes a branch.
const SERIAL: usize = 1 << 12;

/// Places along an axis between which a box may be cut.
const SLOTS: usize = 16;

/// Levels of boxes that are cut where it costs least; all below are cut in the middle.
const MOST_CUT_LEVELS: usize = 40;

/// Levels of boxes that fit the walk's memory: as many more as 2^31 triangles take.
const MOST_LEVELS: usize = MOST_CUT_LEVELS + 32;

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

    /// Half of its surface; 0 of no place.
    fn half_surface(self) -> f64 {
        let [x, y, z] = sub(self.most, self.least).map(|side| side.max(0.0));
        x * y + y * z + z * x
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

/// A box around some triangles: those of two halves, or few.
#[derive(Clone, Copy, Debug)]
struct Node {
    span: Span,
    /// Where its triangles begin in the order.
    first: u32,
    /// How many they are, where they have no halves; otherwise 0.
    count: u32,
    /// How far behind this node its second half is; the first half is next to it.
    second: u32,
}

impl Node {
    const NONE: Self = Self { span: Span::EMPTY, first: 0, count: 0, second: 0 };
}

/// A triangle on its way to its place.
#[derive(Clone, Copy, Debug)]
struct Item {
    triangle: u32,
    middle: Vec3,
    span: Span,
}

/// Boxes around triangles, each halved where it costs least: by the surfaces of the halves times
/// what is in them (Goldsmith and Salmon, 1987), between slots (Wald, 2007). Triangles of very
/// different sizes, which overlap, come apart.
#[derive(Debug)]
pub(super) struct Hierarchy<'a> {
    triangles: &'a [[Vec3; 3]],
    /// Triangles, those of a box one behind the other.
    order: Vec<u32>,
    /// The box around all first. A box of n triangles has 2n - 1 places, of which some stay empty.
    nodes: Vec<Node>,
}

impl<'a> Hierarchy<'a> {
    /// Boxes around finite triangles; the same for any number of threads.
    pub(super) fn over(triangles: &'a [[Vec3; 3]]) -> Self {
        let item = |(triangle, corners): (usize, &[Vec3; 3])| {
            let [a, b, c] = *corners;
            let middle = scale(add(a, add(b, c)), 1.0 / 3.0);
            Item { triangle: to_u32(triangle), middle, span: Span::around(corners) }
        };
        let mut items: Vec<Item> = triangles.par_iter().enumerate().map(item).collect();
        let mut nodes = vec![Node::NONE; (2 * items.len()).max(1)];
        halve(&mut items, &mut nodes, 0, 0);
        Self { triangles, order: items.iter().map(|item| item.triangle).collect(), nodes }
    }

    /// A triangle that a segment meets, its ends and the triangle's border included.
    pub(super) fn met(&self, from: Vec3, to: Vec3) -> Option<u32> {
        let along = sub(to, from);
        let inverse = along.map(|x| 1.0 / x);
        let mut waiting = [0; MOST_LEVELS + 1];
        let mut left = 1;
        while left > 0 {
            left -= 1;
            let at = waiting[left];
            let node = &self.nodes[at];
            if !node.span.may_meet(from, along, inverse) {
                continue;
            }
            if node.second > 0 {
                // The first half comes first.
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

/// Puts the items of a box, the first of which is `first` in the order, in halves.
fn halve(items: &mut [Item], nodes: &mut [Node], first: usize, level: usize) {
    let count = items.len();
    let span = items.iter().fold(Span::EMPTY, |span, item| span.joined(item.span));
    nodes[0] = Node { span, first: to_u32(first), count: to_u32(count), second: 0 };
    if count <= LEAF {
        return;
    }
    let halving = if level < MOST_CUT_LEVELS { Halving::cheapest(items) } else { None };
    // Without one, as many on both sides: the levels that are left do for any number.
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
    /// The first slot behind it.
    slot: usize,
}

impl Halving {
    /// Nothing where all middles are at one place.
    fn cheapest(items: &[Item]) -> Option<Self> {
        let middles = items.iter().fold(Span::EMPTY, |span, item| {
            span.joined(Span { least: item.middle, most: item.middle })
        });
        let mut cheapest: Option<(f64, Self)> = None;
        for axis in 0..3 {
            let least = middles.least[axis];
            let per_slot = (middles.most[axis] - least) / SLOTS as f64;
            if !(per_slot > 0.0 && per_slot.is_finite()) {
                continue;
            }
            let along = Self { axis, least, per_slot, slot: 0 };
            let mut slots = [(0_usize, Span::EMPTY); SLOTS];
            for item in items {
                let (count, span) = &mut slots[along.slot_of(item)];
                *count += 1;
                *span = span.joined(item.span);
            }
            let mut behind = [(0.0, 0); SLOTS];
            let (mut all, mut around) = (0, Span::EMPTY);
            for slot in (1..SLOTS).rev() {
                (all, around) = (all + slots[slot].0, around.joined(slots[slot].1));
                behind[slot] = (all as f64 * around.half_surface(), all);
            }
            let (mut all, mut around) = (0, Span::EMPTY);
            for slot in 1..SLOTS {
                (all, around) = (all + slots[slot - 1].0, around.joined(slots[slot - 1].1));
                let (cost_behind, count_behind) = behind[slot];
                let cost = all as f64 * around.half_surface() + cost_behind;
                let is_cut = all > 0 && count_behind > 0;
                if is_cut && cheapest.is_none_or(|(least, _)| cost < least) {
                    cheapest = Some((cost, Self { slot, ..along }));
                }
            }
        }
        cheapest.map(|(_, halving)| halving)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place from 0 to the number of slots"
    )]
    fn slot_of(&self, item: &Item) -> usize {
        (((item.middle[self.axis] - self.least) / self.per_slot) as usize).min(SLOTS - 1)
    }

    /// Moves the items before the plane to the front; how many they are.
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
    fn boxes_that_lose_a_triangle_a_level_keep_to_the_walks_memory() {
        // Each is a 16th of the one before, so that every cut takes one off.
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
        assert!((MOST_CUT_LEVELS..=MOST_LEVELS).contains(&depth(0)), "{}", depth(0));
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
}
