//! The bricks that views are fused in.

use rayon::prelude::*;

use super::directions::{DIRECTIONS, Directions};
use super::space::Space;
use crate::bricks::{Bricks, SIDE};
use crate::camera::Camera;
use crate::mesh::Vec3;
use crate::vector::{normalize, sub};

/// Bricks near what depth maps show, and from where each is seen.
#[derive(Clone, Debug)]
pub struct SurveyedBricks {
    pub(super) space: Space,
    pub(super) bricks: Bricks,
    /// Directions that each brick is seen from.
    directions: Vec<Directions>,
    /// Depth up to which a sample counts in full, scene units.
    pub(super) near: f64,
}

impl SurveyedBricks {
    /// Directions come of all cameras at once, so that the order in which views are fused does not
    /// matter.
    pub(super) fn new(space: Space, bricks: Bricks, near: f64, mut cameras: Vec<Camera>) -> Self {
        let order = |a: &Camera, b: &Camera| {
            let compared = |k: usize| f64::total_cmp(&a.translation[k], &b.translation[k]);
            compared(0).then(compared(1)).then(compared(2))
        };
        cameras.sort_by(order);
        let directions = (0..bricks.len()).into_par_iter().map(|brick| {
            let (centre, radius) = ball(&space, &bricks, brick);
            let seeing = cameras.iter().filter(|camera| camera.sees(centre, radius));
            let units = seeing.map(|camera| normalize(sub(camera.centre(), centre)));
            Directions::spread(&units.collect::<Vec<_>>())
        });
        let directions = directions.collect();
        Self { space, bricks, directions, near }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bricks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bricks.is_empty()
    }

    /// The lattice that they are bricks of.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Depth up to which a sample counts in full, scene units.
    pub fn near(&self) -> f64 {
        self.near
    }

    /// A brick's place, in bricks.
    pub fn place(&self, brick: usize) -> [u32; 3] {
        self.bricks.place(brick)
    }

    /// Unit vectors from a brick to where it is seen from: a view that looks from the first of those nearest to it
    /// sets that bit of the voxels that it sees free.
    pub fn directions(&self, brick: usize) -> [[f32; 3]; DIRECTIONS] {
        self.directions[brick].padded()
    }

    /// Where in space a brick lies, its first node's place in nodes, and which of its directions a camera looks
    /// from; none where it is not in the camera's sight.
    pub(super) fn seen_by(&self, camera: &Camera, brick: usize) -> Option<(Vec3, usize)> {
        let (centre, radius) = ball(&self.space, &self.bricks, brick);
        if !camera.sees(centre, radius) {
            return None;
        }
        let corner = self.bricks.place(brick).map(|p| f64::from(p) * SIDE as f64);
        let direction = self.directions[brick].number(normalize(sub(camera.centre(), centre)));
        Some((corner, direction))
    }
}

/// A ball around a brick, world space.
fn ball(space: &Space, bricks: &Bricks, brick: usize) -> (Vec3, f64) {
    let middle = bricks.place(brick).map(|p| f64::from(p) * SIDE as f64 + 3.5);
    // Half the diagonal of seven voxels.
    space.ball(middle, 3.5 * 3.0_f64.sqrt())
}
