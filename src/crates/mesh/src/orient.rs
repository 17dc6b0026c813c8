//! One side for each component of a surface.

use std::collections::VecDeque;

use crate::edges::{Edges, NO_SIDE, side_vertices};
use crate::narrow::to_u32;

/// How components were oriented.
pub(super) struct Oriented {
    /// The component of each face, connected by edges.
    pub(super) component: Vec<u32>,
    /// What is known of each component.
    pub(super) components: Vec<Orientation>,
    /// Whether each face was turned over.
    pub(super) is_turned: Vec<bool>,
    /// Edges between faces that could not be made to agree: the surface is one-sided.
    pub(super) conflicts: usize,
}

/// What is known of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Neither a boundary nor a conflict.
    pub(super) is_closed: bool,
}

impl Oriented {
    /// Faces that are turned in the end, if `turned` components were turned once more.
    pub(super) fn turned_and(&self, turned: &[bool]) -> usize {
        let faces = self.is_turned.iter().zip(&self.component);
        faces.filter(|&(&once, &component)| once != turned[component as usize]).count()
    }
}

/// Turns faces so that neighbours run along their edge in opposite ways, breadth first from the first
/// face of each component; of both sides, the one with most of the `weights` of the faces stays. Edges of
/// more than two faces join nothing.
pub(super) fn orient(faces: &mut [[u32; 3]], weights: &[f64]) -> Oriented {
    let twins = Edges::of(faces).twins();
    let mut oriented = Oriented {
        component: vec![u32::MAX; faces.len()],
        components: Vec::new(),
        is_turned: vec![false; faces.len()],
        conflicts: 0,
    };
    let mut queue = VecDeque::new();
    for start in 0..faces.len() {
        if oriented.component[start] == u32::MAX {
            queue.push_back(to_u32(start));
            oriented.spread(faces, weights, &twins, &mut queue);
        }
    }
    for (face, &turned) in faces.iter_mut().zip(&oriented.is_turned) {
        if turned {
            face.swap(1, 2);
        }
    }
    oriented
}

impl Oriented {
    /// Spreads the side of the face in the queue over its component.
    fn spread(
        &mut self,
        faces: &[[u32; 3]],
        weights: &[f64],
        twins: &[u32],
        queue: &mut VecDeque<u32>,
    ) {
        let name = to_u32(self.components.len());
        let mut members: Vec<u32> = queue.iter().copied().collect();
        members.iter().for_each(|&face| self.component[face as usize] = name);
        let mut is_open = false;
        let mut conflicts = 0;
        while let Some(face) = queue.pop_front() {
            for side in 3 * face..3 * face + 3 {
                let twin = twins[side as usize];
                if twin == NO_SIDE {
                    is_open = true;
                    continue;
                }
                let other = twin / 3;
                let from = |side| side_vertices(faces, side)[0];
                let wanted = self.is_turned[face as usize] != (from(side) == from(twin));
                if self.component[other as usize] == u32::MAX {
                    self.component[other as usize] = name;
                    self.is_turned[other as usize] = wanted;
                    members.push(other);
                    queue.push_back(other);
                } else if self.is_turned[other as usize] != wanted {
                    // Met from both sides.
                    conflicts += 1;
                }
            }
        }
        let sides = members.iter().fold([0.0; 2], |mut sides, &face| {
            sides[usize::from(self.is_turned[face as usize])] += weights[face as usize];
            sides
        });
        if sides[1] > sides[0] {
            members.iter().for_each(|&face| {
                let turned = &mut self.is_turned[face as usize];
                *turned = !*turned;
            });
        }
        self.conflicts += conflicts / 2;
        self.components.push(Orientation { is_closed: !is_open && conflicts == 0 });
    }
}
