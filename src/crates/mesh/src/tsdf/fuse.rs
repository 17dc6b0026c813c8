//! The second look at the depth maps: distances averaged in the bricks, and the surface in them.

use std::sync::Arc;

use bytemuck::Zeroable as _;
use rayon::prelude::*;

use super::bricks::{Space, SurveyedBricks};
use super::voxel::{DepthSample, Voxel};
use super::{DepthView, FusionError};
use crate::bricks::{BRICK_NODES, SIDE, neighbour, node_index};
use crate::cubes::{Crossing, extract};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32s;
use crate::vector::dot;
use crate::watch::Watch;

/// Voxels that come at once from elsewhere: 32 MiB.
const FILLED_AT_ONCE: usize = 1 << 22;

/// Truncated signed distances, growing view by view.
#[derive(Clone, Debug)]
pub struct Fusion {
    bricks: Arc<SurveyedBricks>,
    /// `[bricks, 512]`
    voxels: Vec<Voxel>,
    views: usize,
}

/// A surface, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// The surface, world space, with colours; open where nothing was seen.
    pub mesh: Mesh,
    /// Bricks that it was made in.
    pub bricks: usize,
    /// Views that were fused.
    pub views: usize,
}

impl Fusion {
    /// Before the first view.
    pub fn new(bricks: Arc<SurveyedBricks>) -> Self {
        let voxels = vec![Voxel::zeroed(); bricks.len() * BRICK_NODES];
        Self { bricks, voxels, views: 0 }
    }

    /// After so many views that were fused elsewhere: `fill` is called for some voxels after the other,
    /// with the number of the first.
    pub fn filled<E>(
        bricks: Arc<SurveyedBricks>,
        views: usize,
        mut fill: impl FnMut(usize, &mut [Voxel]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut fusion = Self { views, ..Self::new(bricks) };
        for (number, voxels) in fusion.voxels.chunks_mut(FILLED_AT_ONCE).enumerate() {
            fill(number * FILLED_AT_ONCE, voxels)?;
        }
        Ok(fusion)
    }

    /// The voxels of all bricks, `[bricks, 512]`, x fastest.
    pub fn voxels(&self) -> &[Voxel] {
        &self.voxels
    }

    /// Takes a view into the mean of the voxels in its sight.
    pub fn add(&mut self, view: &DepthView<'_>, watch: &Watch<'_>) -> Result<(), FusionError> {
        watch.check()?;
        view.check()?;
        self.views += 1;
        let weights = view.weights();
        let bricks = &self.bricks;
        let (space, near) = (&bricks.space, bricks.near);
        self.voxels.par_chunks_mut(BRICK_NODES).enumerate().for_each(|(brick, voxels)| {
            if let Some((corner, direction)) = bricks.seen_by(&view.camera, brick) {
                let seen = Seen { space, view, weights: &weights, near, direction };
                seen.add(corner, voxels);
            }
        });
        Ok(())
    }

    /// The surface where the mean distance is zero.
    pub fn surface(self, watch: &Watch<'_>) -> Result<Fused, FusionError> {
        let distances: Vec<f32> = self.voxels.par_iter().map(Voxel::distance).collect();
        let bricks = &self.bricks.bricks;
        let surface = extract(bricks, &distances, 0.0, watch)?;
        drop(distances);
        if surface.faces.is_empty() {
            return Err(FusionError::NoSurface { views: self.views });
        }
        let colors = surface.crossings.par_iter().map(|c| self.color(c)).collect();
        let mut mesh = surface.mesh(bricks, &|nodes| self.bricks.space.world(nodes));
        mesh.colors = colors;
        Ok(Fused { mesh, bricks: bricks.len(), views: self.views })
    }

    /// The colour between the two voxels of a vertex.
    fn color(&self, crossing: &Crossing) -> [f32; 3] {
        let node = usize::from(crossing.node);
        let mut beyond = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
        let axis = usize::from(crossing.axis);
        beyond[axis] += 1;
        let offset = beyond.map(|b| i32::from(b == SIDE));
        let around = self.bricks.bricks.neighbours(crossing.brick as usize);
        let other = around[neighbour(offset)] as usize;
        let [x, y, z] = beyond.map(|b| b % SIDE);
        let here = self.voxels[crossing.brick as usize * BRICK_NODES + node].color();
        let there = self.voxels[other * BRICK_NODES + node_index(x, y, z)].color();
        match (here, there) {
            (Some(here), Some(there)) => {
                std::array::from_fn(|c| here[c] + crossing.share * (there[c] - here[c]))
            }
            (one, other) => one.or(other).unwrap_or_default(),
        }
    }
}

/// A view as a brick's voxels see it.
struct Seen<'a> {
    space: &'a Space,
    view: &'a DepthView<'a>,
    /// A pixel.
    weights: &'a [f32],
    near: f64,
    direction: usize,
}

impl Seen<'_> {
    fn add(&self, corner: Vec3, voxels: &mut [Voxel]) {
        for (node, voxel) in voxels.iter_mut().enumerate() {
            let local = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
            let nodes: Vec3 = std::array::from_fn(|a| corner[a] + local[a] as f64);
            if let Some(sample) = self.sample(nodes) {
                voxel.add(&sample);
            }
        }
    }

    /// What the view says of a place in nodes; nothing where it does not see it.
    fn sample(&self, nodes: Vec3) -> Option<DepthSample> {
        let cam = self.view.camera.cam(self.space.world(nodes));
        if cam[2] <= 0.0 || !self.space.holds(nodes) {
            return None;
        }
        let truncation = self.space.truncation(nodes);
        let (pixel, depth) = self.view.depth_at(self.view.camera.pixel(cam), truncation)?;
        let distance = (depth - cam[2]) / truncation;
        if distance < -1.0 {
            return None;
        }
        let nearness = (self.near / cam[2]).min(1.0);
        let weight = f64::from(self.weights[pixel]) * nearness * nearness;
        let color = self.view.colors[pixel];
        (weight > 0.0).then_some(DepthSample { distance, weight, color, direction: self.direction })
    }
}

// From where a brick is seen.

/// Directions that a brick tells apart.
pub const DIRECTIONS: usize = 6;

/// Cosine of the 5 degrees that two directions differ by at least.
const APART: f64 = 0.996_194_698_091_745_5;

/// Up to six directions, more than 5 degrees apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Directions {
    units: [[f32; 3]; DIRECTIONS],
    count: u8,
}

impl Directions {
    /// Of unit vectors, the first, and then each time the one that is farthest from those taken.
    pub(super) fn spread(units: &[Vec3]) -> Self {
        let mut taken = Self::default();
        // The cosine of each to the nearest that is taken.
        let mut nearest = vec![-2.0; units.len()];
        for number in 0..DIRECTIONS {
            let least = |a: &usize, b: &usize| f64::total_cmp(&nearest[*a], &nearest[*b]);
            let Some(next) = (0..units.len()).min_by(least).filter(|&n| nearest[n] < APART) else {
                break;
            };
            taken.units[number] = to_f32s(units[next]);
            taken.count += 1;
            for (nearest, &unit) in nearest.iter_mut().zip(units) {
                *nearest = dot(unit, units[next]).max(*nearest);
            }
        }
        taken
    }

    /// Unit vectors, of which the first that is nearest to another has its [`Self::number`].
    pub(super) fn padded(&self) -> [[f32; 3]; DIRECTIONS] {
        let count = usize::from(self.count);
        std::array::from_fn(|number| self.units[if number < count { number } else { 0 }])
    }

    /// The number of the direction that is nearest to a unit vector.
    pub(super) fn number(&self, unit: Vec3) -> usize {
        let mut nearest = (0, -2.0);
        for (number, taken) in self.units.iter().enumerate().take(usize::from(self.count)) {
            let cosine = dot(taken.map(f64::from), unit);
            if cosine > nearest.1 {
                nearest = (number, cosine);
            }
        }
        nearest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_apart_and_the_nearest_is_found() {
        let unit = |degrees: f64| [degrees.to_radians().cos(), degrees.to_radians().sin(), 0.0];
        let close = Directions::spread(&[0.0, 1.0, 2.0, 4.0, 6.0].map(unit));
        assert_eq!(close.count, 2);
        assert_eq!(close.number(unit(2.5)), 0);
        assert_eq!(close.number(unit(4.0)), 1);
        let [first, second, ..] = close.padded();
        assert_eq!(close.padded(), [first, second, first, first, first, first]);
        let around: Vec<Vec3> = (0..360).map(|d| unit(f64::from(d))).collect();
        let all = Directions::spread(&around);
        assert_eq!(all.count, 6);
        let numbers: Vec<usize> = around.iter().map(|&u| all.number(u)).collect();
        assert!((0..6).all(|n| numbers.iter().filter(|&&m| m == n).count() > 30));
    }
}
