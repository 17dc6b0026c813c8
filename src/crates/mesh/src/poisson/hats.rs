//! Products of trilinear hats, integrated: what the equations are made of.
//!
//! In one dimension, in cells, with hats at i and j = i - 1, i, i + 1: mass (1, 4, 1)/6, stiffness
//! (-1, 2, -1), derivative of i's times j's (1/2, 0, -1/2). Hats at the cube's border are halved, so
//! that there the diagonals are 2/6, 1 and -1/2 or 1/2: the border is free (Neumann's condition).

/// Mass, stiffness and derivative of the hat of a node with those of the nodes before, itself, behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Products {
    pub(super) mass: [f32; 3],
    pub(super) stiffness: [f32; 3],
    pub(super) derivative: [f32; 3],
}

/// A sixth: the mass of two hats next to each other.
pub(super) const MASS_ASIDE: f32 = 1.0 / 6.0;

impl Products {
    /// Of a node along one axis; the last is 2^level.
    pub(super) const fn of(node: u32, level: u32) -> Self {
        let (mass, stiffness, derivative) = if node == 0 {
            (2.0 / 6.0, 1.0, -0.5)
        } else if node == 1 << level {
            (2.0 / 6.0, 1.0, 0.5)
        } else {
            (4.0 / 6.0, 2.0, 0.0)
        };
        Self {
            mass: [MASS_ASIDE, mass, MASS_ASIDE],
            stiffness: [-1.0, stiffness, -1.0],
            derivative: [0.5, derivative, -0.5],
        }
    }

    /// Of the eight nodes of a brick at this place along one axis.
    pub(super) fn of_brick(place: u32, level: u32) -> [Self; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|node| Self::of(8 * place + node, level))
    }
}
