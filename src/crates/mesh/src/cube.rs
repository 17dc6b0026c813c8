//! The cube in which a surface is sought, and its cells.

use crate::bricks::morton;
use crate::mesh::Vec3;
use crate::narrow::{floor_u32, to_f64s};
use crate::place::Bounds;
use crate::vector::{add, scale, sub};

/// Cells along a side of the finest level that a key tells apart.
const FINEST: f64 = (1_u64 << morton::AXIS_BITS) as f64;

/// A cube of world space. Level l cuts each side in 2^l cells; "unit" places have the cube as [0, 1]³.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cube {
    /// Smallest corner, world space.
    pub corner: Vec3,
    /// Length of a side, scene units; above zero.
    pub side: f64,
}

impl Cube {
    /// The cube around the box of these points, `factor` times as large as its longest side; none
    /// without points, or where all of them are one.
    pub fn around(places: &[[f32; 3]], factor: f64) -> Option<Self> {
        let Bounds { low, high } = Bounds::of(places.iter().copied().map(to_f64s));
        let extent = sub(high, low).into_iter().fold(0.0, f64::max);
        let side = factor * extent;
        let centre = scale(add(low, high), 0.5);
        let is_one = places.is_empty() || !side.is_normal() || side < 0.0;
        (!is_one).then(|| Self { corner: sub(centre, [side / 2.0; 3]), side })
    }

    /// A world place in units of the cube.
    #[inline]
    pub fn unit(&self, place: [f32; 3]) -> Vec3 {
        let inverse = 1.0 / self.side;
        std::array::from_fn(|a| (f64::from(place[a]) - self.corner[a]) * inverse)
    }

    /// The key of the cell of a level that holds a world place; outside the cube, of the nearest cell.
    #[inline]
    pub fn key(&self, place: [f32; 3], level: u32) -> u64 {
        let finest = self.unit(place).map(|u| floor_u32((u * FINEST).clamp(0.0, FINEST - 1.0)));
        morton::key(finest) >> (3 * (morton::AXIS_BITS - level))
    }

    /// The world place of a place in nodes of a level.
    #[inline]
    pub fn world(&self, nodes: Vec3, level: u32) -> Vec3 {
        add(self.corner, scale(nodes, self.side / f64::from(1_u32 << level)))
    }
}
