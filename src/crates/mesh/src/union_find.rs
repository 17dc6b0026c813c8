//! Which things belong together (union-find with path halving, Tarjan and van Leeuwen 1984).

use crate::narrow::to_u32;

/// Sets of the numbers below a count; each is named by its least member.
pub(super) struct UnionFind {
    parents: Vec<u32>,
}

impl UnionFind {
    /// `count` sets of one.
    pub(super) fn new(count: usize) -> Self {
        Self { parents: (0..to_u32(count)).collect() }
    }

    /// The least member of the set of `member`.
    pub(super) fn root(&mut self, mut member: u32) -> u32 {
        while self.parents[member as usize] != member {
            let above = self.parents[self.parents[member as usize] as usize];
            self.parents[member as usize] = above;
            member = above;
        }
        member
    }

    /// Makes one set of those of `a` and `b`; whether they were two.
    pub(super) fn join(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b) as usize] = a.min(b);
        a != b
    }
}
