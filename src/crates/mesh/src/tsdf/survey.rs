//! The first look at the depth maps: which bricks lie near what they show.

use rayon::prelude::*;

use super::FusionError;
use super::bricks::Space;
use super::bricks::SurveyedBricks;
use super::{DepthView, check_focal};
use crate::bricks::{Bricks, SIDE, morton};
use crate::camera::Camera;
use crate::mesh::Vec3;
use crate::narrow::floor_u32;
use crate::watch::Watch;

/// Pixels between two that are looked at, where that is fine enough.
const STRIDE: usize = 2;

/// Voxels between two looks beyond which every pixel is looked at.
const COARSE_FROM: f64 = 4.0;

/// Voxels around a place whose bricks it calls, so that cells have all their corners.
pub const MARGIN: f64 = 1.0;

/// Share of a view's depths that are nearer than its near depth.
const NEAR_SHARE: usize = 20;

/// Bricks near what depth maps show.
#[derive(Clone, Debug)]
pub struct Survey {
    space: Space,
    keys: Vec<u64>,
    /// Keys that were left when they were last made unique.
    unique: usize,
    /// The depth that 5 % of each view's are below, scene units.
    near_depths: Vec<f32>,
    cameras: Vec<Camera>,
}

impl Survey {
    /// Of a space, before the first view.
    pub fn new(space: Space) -> Self {
        Self { space, keys: Vec::new(), unique: 0, near_depths: Vec::new(), cameras: Vec::new() }
    }

    /// What views are looked at for.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Notes a view whose bricks are found elsewhere, by its depths in rows. Says how many pixels on the next
    /// is that has to be looked at, along a row and from row to row; none of a view that shows nothing.
    pub fn note(&mut self, camera: Camera, depths: &[f32]) -> Result<Option<usize>, FusionError> {
        check_focal(&camera)?;
        self.cameras.push(camera);
        let looks = depths.iter().step_by(7).copied();
        let mut depths: Vec<f32> = looks.filter(|d| *d > 0.0 && d.is_finite()).collect();
        if depths.is_empty() {
            return Ok(None);
        }
        let (near, middle) = (depths.len() / NEAR_SHARE, depths.len() / 2);
        let median = f64::from(*depths.select_nth_unstable_by(middle, f32::total_cmp).1);
        self.near_depths.push(*depths.select_nth_unstable_by(near, f32::total_cmp).1);
        let footprint = STRIDE as f64 * median / camera.focal_px[0].min(camera.focal_px[1]);
        let is_coarse = footprint > COARSE_FROM * self.space.voxel();
        Ok(Some(if is_coarse { 1 } else { STRIDE }))
    }

    /// Adds bricks that were found elsewhere, by their places in bricks.
    pub fn call_bricks(&mut self, places: impl IntoIterator<Item = [u32; 3]>) {
        self.keys.extend(places.into_iter().map(morton::key));
    }

    /// Looks at a view.
    pub fn add(&mut self, view: &DepthView<'_>, watch: &Watch<'_>) -> Result<(), FusionError> {
        watch.check()?;
        view.check()?;
        let Some(stride) = self.note(view.camera, view.depths)? else { return Ok(()) };
        let mut keys: Vec<u64> = (0..view.camera.height)
            .into_par_iter()
            .step_by(stride)
            .flat_map_iter(|y| self.row(view, y, stride))
            .collect();
        keys.par_sort_unstable();
        keys.dedup();
        self.keys.append(&mut keys);
        if self.keys.len() > 2 * self.unique + (1 << 16) {
            self.make_unique();
        }
        Ok(())
    }

    fn make_unique(&mut self) {
        self.keys.par_sort_unstable();
        self.keys.dedup();
        self.unique = self.keys.len();
    }

    /// Bricks near what a row of pixels shows, and a truncation before and behind it.
    fn row(&self, view: &DepthView<'_>, y: usize, stride: usize) -> Vec<u64> {
        let mut keys = Vec::new();
        for x in (0..view.camera.width).step_by(stride) {
            let Some(depth) = view.depth(x, y) else { continue };
            let Some(nodes) = self.space.nodes_of(view.camera.world(x, y, depth)) else { continue };
            let truncation = self.space.truncation(nodes);
            self.call(nodes, &mut keys);
            for depth in [depth - truncation, depth + truncation] {
                let place = view.camera.world(x, y, depth);
                if let Some(nodes) = self.space.nodes_of(place).filter(|_| depth > 0.0) {
                    self.call(nodes, &mut keys);
                }
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The bricks within a voxel of a place.
    fn call(&self, nodes: Vec3, keys: &mut Vec<u64>) {
        let last = self.space.nodes().map(|n| f64::from(n - 1));
        let side = SIDE as f64;
        let low = nodes.map(|n| floor_u32((n - MARGIN).max(0.0) / side));
        let high: [u32; 3] =
            std::array::from_fn(|a| floor_u32((nodes[a] + MARGIN).min(last[a]) / side));
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                for x in low[0]..=high[0] {
                    let key = morton::key([x, y, z]);
                    if keys.last() != Some(&key) {
                        keys.push(key);
                    }
                }
            }
        }
    }

    /// What the views are fused in, with at most `granted` bricks.
    pub fn finish(mut self, granted: usize) -> Result<SurveyedBricks, FusionError> {
        self.make_unique();
        let bricks = self.keys.len();
        if bricks == 0 {
            return Err(FusionError::Empty { views: self.cameras.len() });
        }
        if bricks > granted {
            // Bricks go with the square of the voxels along a side; a tenth for what does not.
            let more = (bricks as f64 / granted.max(1) as f64).sqrt() * 1.1;
            let fits = self.space.voxel() * more;
            return Err(FusionError::TooManyBricks { bricks, granted, fits });
        }
        let middle = self.near_depths.len() / 2;
        let near = *self.near_depths.select_nth_unstable_by(middle, f32::total_cmp).1;
        let bricks = Bricks::of_keys(self.keys);
        Ok(SurveyedBricks::new(self.space, bricks, f64::from(near), self.cameras))
    }
}
