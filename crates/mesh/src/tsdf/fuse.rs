//! The second look at the depth maps: distances averaged in the bricks, and the surface in them.

use rayon::prelude::*;

use super::directions::Directions;
use super::error::FusionError;
use super::space::Space;
use super::view::DepthView;
use super::voxel::{DepthSample, Voxel};
use crate::bricks::{BRICK_NODES, Bricks, SIDE, neighbour, node_index};
use crate::camera::Camera;
use crate::cubes::{Crossing, extract};
use crate::mesh::{Mesh, Vec3};
use crate::vector::{normalize, sub};
use crate::watch::Watch;

/// Truncated signed distances, growing view by view.
#[derive(Clone, Debug)]
pub struct Fusion {
    space: Space,
    bricks: Bricks,
    /// `[bricks, 512]`
    voxels: Vec<Voxel>,
    /// Directions that each brick is seen from.
    directions: Vec<Directions>,
    /// Depth up to which a sample counts in full, scene units.
    near: f64,
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
    /// Before the first view. Directions come of all cameras at once, so that the order in which they are
    /// fused does not matter.
    pub(super) fn new(space: Space, bricks: Bricks, near: f64, mut cameras: Vec<Camera>) -> Self {
        let order = |a: &Camera, b: &Camera| {
            let compared = |k: usize| f64::total_cmp(&a.translation[k], &b.translation[k]);
            compared(0).then(compared(1)).then(compared(2))
        };
        cameras.sort_by(order);
        let count = bricks.len();
        let directions = (0..count).into_par_iter().map(|brick| {
            let (centre, radius) = ball(&space, &bricks, brick);
            let seeing = cameras.iter().filter(|camera| camera.sees(centre, radius));
            let units = seeing.map(|camera| normalize(sub(camera.centre(), centre)));
            Directions::spread(&units.collect::<Vec<_>>())
        });
        let directions = directions.collect();
        let voxels = vec![Voxel::default(); count * BRICK_NODES];
        Self { space, bricks, voxels, directions, near, views: 0 }
    }

    /// How many bricks there are.
    pub fn bricks(&self) -> usize {
        self.bricks.len()
    }

    /// Takes a view into the mean of the voxels in its sight.
    pub fn add(&mut self, view: &DepthView<'_>, watch: &Watch<'_>) -> Result<(), FusionError> {
        watch.check()?;
        view.check()?;
        self.views += 1;
        let weights = view.weights();
        let (space, near, bricks) = (&self.space, self.near, &self.bricks);
        let parts = self.voxels.par_chunks_mut(BRICK_NODES).zip(&self.directions);
        parts.enumerate().for_each(|(brick, (voxels, directions))| {
            let (centre, radius) = ball(space, bricks, brick);
            if view.camera.sees(centre, radius) {
                let corner = bricks.place(brick).map(|p| f64::from(p) * SIDE as f64);
                let direction = directions.number(normalize(sub(view.camera.centre(), centre)));
                let seen = Seen { space, view, weights: &weights, near, direction };
                seen.add(corner, voxels);
            }
        });
        Ok(())
    }

    /// The surface where the mean distance is zero.
    pub fn surface(self, watch: &Watch<'_>) -> Result<Fused, FusionError> {
        let distances: Vec<f32> = self.voxels.par_iter().map(Voxel::distance).collect();
        let surface = extract(&self.bricks, &distances, 0.0, watch)?;
        drop(distances);
        if surface.faces.is_empty() {
            return Err(FusionError::NoSurface { views: self.views });
        }
        let colors = surface.crossings.par_iter().map(|c| self.color(c)).collect();
        let mut mesh = surface.mesh(&self.bricks, &|nodes| self.space.world(nodes));
        mesh.colors = colors;
        Ok(Fused { mesh, bricks: self.bricks.len(), views: self.views })
    }

    /// The colour between the two voxels of a vertex.
    fn color(&self, crossing: &Crossing) -> [f32; 3] {
        let node = usize::from(crossing.node);
        let mut beyond = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
        let axis = usize::from(crossing.axis);
        beyond[axis] += 1;
        let offset = beyond.map(|b| i32::from(b == SIDE));
        let other = self.bricks.neighbours(crossing.brick as usize)[neighbour(offset)] as usize;
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

/// A ball around a brick, world space.
fn ball(space: &Space, bricks: &Bricks, brick: usize) -> (Vec3, f64) {
    let middle = bricks.place(brick).map(|p| f64::from(p) * SIDE as f64 + 3.5);
    // Half the diagonal of seven voxels.
    space.ball(middle, 3.5 * 3.0_f64.sqrt())
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
