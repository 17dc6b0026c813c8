//! Fusion of depth maps into truncated signed distances on bricks (Curless and Levoy 1996).
//!
//! Two passes read all depth maps, one map at a time: a [`Survey`] finds the bricks near their surfaces, and a
//! [`Fusion`] averages distances along the axis of view in these. Unbounded scenes are fused in contracted space
//! (Barron et al. 2022), so that far voxels are larger. Either pass can run elsewhere, such as on a GPU, and pass its
//! results in.

use std::sync::Arc;

use bytemuck::Zeroable as _;
use rayon::prelude::*;

use crate::bricks::{BRICK_NODES, Bricks, SIDE, key, neighbour, node_index};
use crate::cubes::{Crossing, ExtractError, extract};
use crate::mesh::{Camera, Mesh, Vec3};
use crate::narrow::{floor_i32, floor_u32, to_f32, to_f32s, to_f64s, to_index};
use crate::place::{add, cross, dot, length, mul, normalize, scale, sub};
use crate::{Stopped, Watch};

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum FusionError {
    #[error(
        "the {map} has {found} pixels, and the view {width} x {height}. Give one value a pixel"
    )]
    MapSize { map: &'static str, found: usize, width: usize, height: usize },
    #[error("a camera's focal length of {focal_px:?} px is not above zero. Check the scene")]
    Focal { focal_px: [f64; 2] },
    #[error(
        "a side of {side} cannot be cut in voxels of {voxel}. Give a box and a --voxel above zero"
    )]
    NoSize { side: f64, voxel: f64 },
    #[error(
        "a side of {side} has more than {most} voxels of {voxel}. Use a --voxel of {fits} or more"
    )]
    TooFine { side: f64, voxel: f64, most: u32, fits: f64 },
    #[error(
        "every view is empty: none of {views} shows a depth within the box. Check the model, the masks and the box"
    )]
    Empty { views: usize },
    #[error(
        "the surfaces take {bricks} bricks and the plan grants {granted}. Use a --voxel of {fits}"
    )]
    TooManyBricks { bricks: usize, granted: usize, fits: f64 },
    #[error("no surface was seen by two of the {views} views. Give more views or a larger --voxel")]
    NoSurface { views: usize },
    #[error(transparent)]
    Extract(#[from] ExtractError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Weight of a pixel whose ray runs along its surface.
pub const GRAZING_WEIGHT: f64 = 0.05;

/// A depth map with its camera, one value a pixel in rows.
#[derive(Clone, Copy, Debug)]
pub struct DepthView<'a> {
    /// Camera of the map.
    pub camera: Camera,
    /// Depth along the camera's axis, scene units; not above 0 or NaN if there is none.
    pub depths: &'a [f32],
    /// Unit normals, world space, of either sign; without them, normals are computed from the depths.
    pub normals: Option<&'a [[f32; 3]]>,
    /// True for pixels that count. `None` if all count.
    pub mask: Option<&'a [bool]>,
    /// Colours, sRGB, 0 to 1.
    pub colors: &'a [[f32; 3]],
}

impl DepthView<'_> {
    /// Fails if a map does not fit the view, or if the camera is not valid.
    fn check(&self) -> Result<(), FusionError> {
        let Camera { width, height, .. } = self.camera;
        let sizes = [
            ("depth map", self.depths.len()),
            ("colour map", self.colors.len()),
            ("normal map", self.normals.map_or(width * height, <[_]>::len)),
            ("mask", self.mask.map_or(width * height, <[_]>::len)),
        ];
        for (map, found) in sizes {
            if found != width * height {
                return Err(FusionError::MapSize { map, found, width, height });
            }
        }
        check_focal(&self.camera)
    }

    /// Returns the depth at a pixel, if it counts.
    #[inline]
    fn depth(&self, x: usize, y: usize) -> Option<f64> {
        let pixel = y * self.camera.width + x;
        let depth = self.depths[pixel];
        let counts = self.mask.is_none_or(|mask| mask[pixel]);
        (counts && depth > 0.0 && depth.is_finite()).then(|| f64::from(depth))
    }

    /// Returns the depth at a place of the image, and its pixel: interpolated between the four pixels around it if
    /// their depths lie within `truncation`, linear in 1/z, as planes are; else the depth of the pixel.
    #[inline]
    fn depth_at(&self, pixel: [f64; 2], truncation: f64) -> Option<(usize, f64)> {
        let nearest = pixel.map(floor_i32);
        let size = [self.camera.width, self.camera.height];
        let is_in = |a: usize| nearest[a] >= 0 && to_index(nearest[a]) < size[a];
        if !is_in(0) || !is_in(1) {
            return None;
        }
        let [x, y] = nearest.map(to_index);
        let mut depth = self.depth(x, y)?;
        let corner = pixel.map(|p| floor_i32(p - 0.5));
        let fits = |a: usize| corner[a] >= 0 && to_index(corner[a]) + 1 < size[a];
        if fits(0) && fits(1) {
            let [x0, y0] = corner.map(to_index);
            let four = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(i, j)| self.depth(x0 + i, y0 + j));
            if let [Some(a), Some(b), Some(c), Some(d)] = four
                && a.max(b).max(c.max(d)) - a.min(b).min(c.min(d)) <= truncation
            {
                let [s, t] = [0, 1].map(|k| pixel[k] - 0.5 - f64::from(corner[k]));
                let upper = (1.0 - s) / a + s / b;
                let lower = (1.0 - s) / c + s / d;
                depth = 1.0 / ((1.0 - t) * upper + t * lower);
            }
        }
        Some((y * self.camera.width + x, depth))
    }

    /// Returns for each pixel max(.05, |n · d|), with n its normal and d its ray; 0 if it does not count, and NaN,
    /// which is not above 0 either, if the normal is NaN.
    fn weights(&self) -> Vec<f32> {
        let mut weights = vec![0.0; self.camera.width * self.camera.height];
        weights.par_chunks_mut(self.camera.width.max(1)).enumerate().for_each(|(y, row)| {
            for (x, weight) in row.iter_mut().enumerate() {
                if let Some(depth) = self.depth(x, y) {
                    let ray = normalize(self.camera.ray(x, y));
                    let cosine = match self.normals {
                        Some(normals) => {
                            let normal = to_f64s(normals[y * self.camera.width + x]);
                            dot(mul(&self.camera.rotation, normal), ray).abs()
                        }
                        None => self.normal(x, y, depth).map_or(0.0, |n| dot(n, ray).abs()),
                    };
                    *weight = to_f32(cosine.clamp(GRAZING_WEIGHT, 1.0));
                }
            }
        });
        weights
    }

    /// Returns the normal in camera axes: the cross product of differences of neighbours.
    fn normal(&self, x: usize, y: usize, depth: f64) -> Option<Vec3> {
        let place = |x: usize, y: usize| {
            let is_in = x < self.camera.width && y < self.camera.height;
            let depth = if is_in { self.depth(x, y) } else { None };
            depth.map(|depth| scale(self.camera.ray(x, y), depth))
        };
        let own = scale(self.camera.ray(x, y), depth);
        let along = |before: Option<Vec3>, behind: Option<Vec3>| match (before, behind) {
            (None, None) => None,
            (before, behind) => Some(sub(behind.unwrap_or(own), before.unwrap_or(own))),
        };
        let across = along(place(x.wrapping_sub(1), y), place(x + 1, y))?;
        let down = along(place(x, y.wrapping_sub(1)), place(x, y + 1))?;
        Some(normalize(cross(across, down)))
    }
}

fn check_focal(&Camera { focal_px, .. }: &Camera) -> Result<(), FusionError> {
    if focal_px.iter().all(|f| f.is_finite() && *f > 0.0) {
        return Ok(());
    }
    Err(FusionError::Focal { focal_px })
}

/// Step between examined pixels, if that is fine enough.
const STRIDE: usize = 2;

/// Distance between examined pixels, in voxels, above which every pixel is examined.
const COARSE_FROM: f64 = 4.0;

/// Distance from a place, in voxels, up to which bricks are added, so that cells have all their corners.
pub const MARGIN: f64 = 1.0;

/// One over the share of a view's depths that are nearer than its near depth.
const NEAR_SHARE: usize = 20;

/// First pass over the depth maps: the bricks near their surfaces.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Space of the views.
    pub space: Space,
    keys: Vec<u64>,
    /// Number of keys after the last deduplication.
    unique: usize,
    /// Depth below which 5 % of each view's depths are, scene units.
    near_depths: Vec<f32>,
    cameras: Vec<Camera>,
}

impl Survey {
    /// Starts before the first view.
    pub fn new(space: Space) -> Self {
        Self { space, keys: Vec::new(), unique: 0, near_depths: Vec::new(), cameras: Vec::new() }
    }

    /// Notes a view whose bricks are found elsewhere, by its depths in rows. Returns the step between pixels to
    /// examine, along rows and columns; none if the view has no depth.
    pub fn note(&mut self, camera: Camera, depths: &[f32]) -> Result<Option<usize>, FusionError> {
        check_focal(&camera)?;
        self.cameras.push(camera);
        let sample = depths.iter().step_by(7).copied();
        let mut depths: Vec<f32> = sample.filter(|d| *d > 0.0 && d.is_finite()).collect();
        if depths.is_empty() {
            return Ok(None);
        }
        let (near, middle) = (depths.len() / NEAR_SHARE, depths.len() / 2);
        let median = f64::from(*depths.select_nth_unstable_by(middle, f32::total_cmp).1);
        self.near_depths.push(*depths.select_nth_unstable_by(near, f32::total_cmp).1);
        let footprint = STRIDE as f64 * median / camera.focal_px[0].min(camera.focal_px[1]);
        let is_coarse = footprint > COARSE_FROM * self.space.voxel;
        Ok(Some(if is_coarse { 1 } else { STRIDE }))
    }

    /// Adds bricks that were found elsewhere, by their places in bricks.
    pub fn call_bricks(&mut self, places: impl IntoIterator<Item = [u32; 3]>) {
        self.keys.extend(places.into_iter().map(key));
    }

    /// Adds the bricks near a view's surfaces.
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

    /// Returns the bricks near the surface of a row of pixels, and a truncation before and behind it.
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

    /// Adds the bricks within a voxel of a place.
    fn call(&self, nodes: Vec3, keys: &mut Vec<u64>) {
        let last = self.space.nodes.map(|n| f64::from(n - 1));
        let side = SIDE as f64;
        let low = nodes.map(|n| floor_u32((n - MARGIN).max(0.0) / side));
        let high: [u32; 3] =
            std::array::from_fn(|a| floor_u32((nodes[a] + MARGIN).min(last[a]) / side));
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                for x in low[0]..=high[0] {
                    let key = key([x, y, z]);
                    if keys.last() != Some(&key) {
                        keys.push(key);
                    }
                }
            }
        }
    }

    /// Returns the bricks to fuse the views in, at most `granted`.
    pub fn finish(mut self, granted: usize) -> Result<SurveyedBricks, FusionError> {
        self.make_unique();
        let bricks = self.keys.len();
        if bricks == 0 {
            return Err(FusionError::Empty { views: self.cameras.len() });
        }
        if bricks > granted {
            // Bricks grow with the square of the voxels along a side; a tenth for the rest.
            let more = (bricks as f64 / granted.max(1) as f64).sqrt() * 1.1;
            let fits = self.space.voxel * more;
            return Err(FusionError::TooManyBricks { bricks, granted, fits });
        }
        let middle = self.near_depths.len() / 2;
        let near = *self.near_depths.select_nth_unstable_by(middle, f32::total_cmp).1;
        let bricks = Bricks::of_keys(self.keys);
        Ok(SurveyedBricks::new(self.space, bricks, f64::from(near), self.cameras))
    }
}

/// Voxels that [`Fusion::filled`] requests at once: 32 MiB.
const FILLED_AT_ONCE: usize = 1 << 22;

/// Second pass over the depth maps: truncated signed distances, averaged in the bricks.
#[derive(Clone, Debug)]
pub struct Fusion {
    bricks: Arc<SurveyedBricks>,
    /// `[bricks, 512]`
    voxels: Vec<Voxel>,
    views: usize,
}

/// A surface with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// The surface, world space, with colours; open where nothing was seen.
    pub mesh: Mesh,
    /// Bricks that the surface was extracted from.
    pub bricks: usize,
    /// Fused views.
    pub views: usize,
}

impl Fusion {
    /// Starts before the first view.
    pub fn new(bricks: Arc<SurveyedBricks>) -> Self {
        let voxels = vec![Voxel::zeroed(); bricks.len() * BRICK_NODES];
        Self { bricks, voxels, views: 0 }
    }

    /// Starts after `views` views that were fused elsewhere. Calls `fill` for successive voxels with the index of the
    /// first.
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

    /// Returns the voxels of all bricks, `[bricks, 512]`, x fastest.
    pub fn voxels(&self) -> &[Voxel] {
        &self.voxels
    }

    /// Averages a view into the voxels that it sees.
    pub fn add(&mut self, view: &DepthView<'_>, watch: &Watch<'_>) -> Result<(), FusionError> {
        watch.check()?;
        view.check()?;
        self.views += 1;
        let weights = view.weights();
        let bricks = &self.bricks;
        self.voxels.par_chunks_mut(BRICK_NODES).enumerate().for_each(|(brick, voxels)| {
            let Some((corner, direction)) = bricks.seen_by(&view.camera, brick) else { return };
            for (node, voxel) in voxels.iter_mut().enumerate() {
                let local = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
                let nodes: Vec3 = std::array::from_fn(|a| corner[a] + local[a] as f64);
                if let Some(sample) = bricks.sample(view, &weights, nodes, direction) {
                    voxel.add(&sample);
                }
            }
        });
        Ok(())
    }

    /// Extracts the surface where the mean distance is zero.
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

    /// Returns the colour between the two voxels of a vertex.
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

/// Number of directions per brick.
pub const DIRECTIONS: usize = 6;

/// Cosine of 5 degrees, the least angle between two directions.
const APART: f64 = 0.996_194_698_091_745_5;

/// Up to six directions from which a brick is seen, more than 5 degrees apart.
#[derive(Clone, Copy, Debug, Default)]
struct Directions {
    units: [[f32; 3]; DIRECTIONS],
    count: u8,
}

impl Directions {
    /// Chooses the first of some unit vectors, and then each time the one farthest from the chosen ones.
    fn spread(units: &[Vec3]) -> Self {
        let mut taken = Self::default();
        // The cosine between each vector and the nearest chosen one.
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

    /// Pads the directions with the first one, so that the first one nearest to a vector still has its [`Self::number`].
    fn padded(&self) -> [[f32; 3]; DIRECTIONS] {
        let count = usize::from(self.count);
        std::array::from_fn(|number| self.units[if number < count { number } else { 0 }])
    }

    /// Returns the number of the direction that is nearest to a unit vector.
    fn number(&self, unit: Vec3) -> usize {
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

// The bricks and voxels that views are fused in.

/// Bricks near the surfaces of depth maps, and the directions that each is seen from.
#[derive(Clone, Debug)]
pub struct SurveyedBricks {
    /// Lattice of the bricks.
    pub space: Space,
    bricks: Bricks,
    directions: Vec<Directions>,
    /// Depth up to which a sample counts in full, scene units.
    pub near: f64,
}

impl SurveyedBricks {
    /// Finds the directions from all cameras at once, so that the order in which views are fused does not matter.
    fn new(space: Space, bricks: Bricks, near: f64, mut cameras: Vec<Camera>) -> Self {
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

    /// Returns the number of bricks.
    pub fn len(&self) -> usize {
        self.bricks.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.bricks.is_empty()
    }

    /// Returns a brick's place, in bricks.
    pub fn place(&self, brick: usize) -> [u32; 3] {
        self.bricks.place(brick)
    }

    /// Returns unit vectors from a brick to the cameras that see it. A view from the first of the directions nearest
    /// to it sets the bit of that direction in the voxels that it sees free.
    pub fn directions(&self, brick: usize) -> [[f32; 3]; DIRECTIONS] {
        self.directions[brick].padded()
    }

    /// Returns the place of a brick's first node, in nodes, and the number of the direction that a camera sees it
    /// from; none if the camera does not see it.
    fn seen_by(&self, camera: &Camera, brick: usize) -> Option<(Vec3, usize)> {
        let (centre, radius) = ball(&self.space, &self.bricks, brick);
        if !camera.sees(centre, radius) {
            return None;
        }
        let corner = self.bricks.place(brick).map(|p| f64::from(p) * SIDE as f64);
        let direction = self.directions[brick].number(normalize(sub(camera.centre(), centre)));
        Some((corner, direction))
    }

    /// Returns a view's sample at a place in nodes, by the weights of its pixels; none if the view does not see it.
    fn sample(
        &self,
        view: &DepthView<'_>,
        weights: &[f32],
        nodes: Vec3,
        direction: usize,
    ) -> Option<DepthSample> {
        let cam = view.camera.cam(self.space.world(nodes));
        if cam[2] <= 0.0 || !self.space.holds(nodes) {
            return None;
        }
        let truncation = self.space.truncation(nodes);
        let (pixel, depth) = view.depth_at(view.camera.pixel(cam), truncation)?;
        let distance = (depth - cam[2]) / truncation;
        if distance < -1.0 {
            return None;
        }
        let nearness = (self.near / cam[2]).min(1.0);
        let weight = f64::from(weights[pixel]) * nearness * nearness;
        let color = view.colors[pixel];
        (weight > 0.0).then_some(DepthSample { distance, weight, color, direction })
    }
}

/// Returns the centre and the radius, world space, of a ball that holds the nodes of a brick.
fn ball(space: &Space, bricks: &Bricks, brick: usize) -> (Vec3, f64) {
    let middle = bricks.place(brick).map(|p| f64::from(p) * SIDE as f64 + 3.5);
    // Half the diagonal of seven voxels.
    let reach = 3.5 * 3.0_f64.sqrt();
    (space.world(middle), reach * space.voxel * space.units_a_unit(middle, reach))
}

/// Largest number of voxels along a side. Keys of bricks could be larger, but places of vertices are f32.
const MAX_VOXELS: u32 = 1 << 21;

/// Voxels on each side of a surface in which distances differ.
pub const TRUNCATION_VOXELS: f64 = 4.0;

/// Largest contracted radius: 20 units of the cameras' radius.
pub const FARTHEST: f64 = 1.95;

/// A lattice of voxels and its place in the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Space {
    /// Place of the lattice.
    pub kind: SpaceKind,
    /// Side of a voxel: scene units in a box, cameras' radii in contracted space.
    pub voxel: f64,
    /// Number of nodes along each axis.
    pub nodes: [u32; 3],
}

/// Place of a lattice, world space, scene units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpaceKind {
    /// A box.
    Box {
        /// First node.
        low: Vec3,
    },
    /// The whole contracted world.
    Contracted {
        /// Fixed point of the contraction.
        centre: Vec3,
        /// Unit of contracted space near the centre.
        radius: f64,
    },
}

impl Space {
    /// Cuts a box of the world in voxels of this size, both in scene units.
    pub fn in_box(low: Vec3, high: Vec3, voxel: f64) -> Result<Self, FusionError> {
        let sides = sub(high, low);
        let side = sides.into_iter().fold(0.0, f64::max);
        let nodes = counted(sides, side, voxel)?;
        Ok(Self { kind: SpaceKind::Box { low }, voxel, nodes })
    }

    /// Contracts the world: x -> x if |x| < 1 and (2 - 1/|x|) x/|x| beyond, with x in units of `radius`, that of the
    /// cameras around `centre`. The ball of radius 2 has `voxels` along its diameter.
    pub fn contracted(centre: Vec3, radius: f64, voxels: u32) -> Result<Self, FusionError> {
        let voxel = 4.0 / f64::from(voxels);
        if !(radius.is_finite() && radius > 0.0) || voxels == 0 {
            return Err(FusionError::NoSize { side: radius, voxel });
        }
        let nodes = counted([4.0; 3], 4.0, voxel)?;
        Ok(Self { kind: SpaceKind::Contracted { centre, radius }, voxel, nodes })
    }

    /// Returns the world place of a place in nodes.
    pub fn world(&self, nodes: Vec3) -> Vec3 {
        match self.kind {
            SpaceKind::Box { low } => add(low, scale(nodes, self.voxel)),
            SpaceKind::Contracted { centre, radius } => {
                let y = self.contracted_place(nodes);
                let far = length(y).min(FARTHEST);
                // |x| / |y|
                let stretch = if far > 1.0 { 1.0 / ((2.0 - far) * far) } else { 1.0 };
                add(centre, scale(y, radius * stretch))
            }
        }
    }

    /// Returns the place in nodes of a world place; none outside the box, or too far.
    pub fn nodes_of(&self, world: Vec3) -> Option<Vec3> {
        let nodes = match self.kind {
            SpaceKind::Box { low } => scale(sub(world, low), 1.0 / self.voxel),
            SpaceKind::Contracted { centre, radius } => {
                let x = scale(sub(world, centre), 1.0 / radius);
                let far = length(x);
                let y = if far > 1.0 { scale(x, (2.0 - 1.0 / far) / far) } else { x };
                scale(add(y, [2.0; 3]), 1.0 / self.voxel)
            }
        };
        self.holds(nodes).then_some(nodes)
    }

    /// True if a place in nodes is in the box, or not too far.
    fn holds(&self, nodes: Vec3) -> bool {
        let is_in = |a: usize| (0.0..=f64::from(self.nodes[a] - 1)).contains(&nodes[a]);
        let is_near = match self.kind {
            SpaceKind::Box { .. } => true,
            SpaceKind::Contracted { .. } => length(self.contracted_place(nodes)) <= FARTHEST,
        };
        is_near && (0..3).all(is_in)
    }

    /// Returns the distance at a place in nodes beyond which distances are truncated, scene units.
    fn truncation(&self, nodes: Vec3) -> f64 {
        TRUNCATION_VOXELS * self.voxel * self.units_a_unit(nodes, 0.0)
    }

    /// Returns the largest number of scene units per unit of the lattice's space within `reach` voxels of a place: the
    /// derivative of 1/(2 - |y|).
    fn units_a_unit(&self, nodes: Vec3, reach: f64) -> f64 {
        match self.kind {
            SpaceKind::Box { .. } => 1.0,
            SpaceKind::Contracted { radius, .. } => {
                let far = length(self.contracted_place(nodes)) + reach * self.voxel;
                let left = 2.0 - far.clamp(1.0, FARTHEST);
                radius / (left * left)
            }
        }
    }

    fn contracted_place(&self, nodes: Vec3) -> Vec3 {
        sub(scale(nodes, self.voxel), [2.0; 3])
    }
}

/// Returns the number of nodes along sides cut in voxels.
fn counted(sides: Vec3, side: f64, voxel: f64) -> Result<[u32; 3], FusionError> {
    let is_size = |x: f64| x.is_finite() && x > 0.0;
    if !sides.iter().all(|&s| is_size(s)) || !is_size(voxel) {
        return Err(FusionError::NoSize { side, voxel });
    }
    let most = f64::from(MAX_VOXELS) - 16.0;
    if side / voxel > most {
        return Err(FusionError::TooFine { side, voxel, most: MAX_VOXELS - 16, fits: side / most });
    }
    Ok(sides.map(|s| floor_u32((s / voxel).ceil()) + 1))
}

/// Steps of a distance of 1.
pub const DISTANCE_STEPS: f32 = 32767.0;

/// Least weight that is kept: the least normal half-precision number.
pub const LEAST_WEIGHT: f32 = 1.0 / 16384.0;

/// Largest weight: half precision ends at 65,504.
pub const MOST_WEIGHT: f32 = 65504.0;

/// Views that a voxel needs for a valid distance.
const VALID_FROM: u8 = 2;

/// Directions from which a voxel has to be seen free to be free.
const FREE_FROM: u32 = 3;

/// A truncated signed distance, averaged by weight, and the colour near the surface: eight bytes with this layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(8))]
pub struct Voxel {
    /// Distance in 1/32767 of the truncation; above zero in front of the surface.
    distance: i16,
    /// Weight in half precision, without a sign; 0 before the first view.
    weight: u16,
    /// Colour, sRGB; all zero before the first colour, black is 1.
    color: [u8; 3],
    /// Number of views in the lowest two bits, up to 3; above, a bit per direction from which the voxel is seen free.
    seen: u8,
}

struct DepthSample {
    /// Distance over truncation, not below -1.
    distance: f64,
    /// Weight, above zero.
    weight: f64,
    /// Colour, sRGB, 0 to 1.
    color: [f32; 3],
    /// Number of the brick's direction that the view looks from.
    direction: usize,
}

impl Voxel {
    /// Averages a view's sample: D <- (D W + w min(1, s)) / (W + w).
    fn add(&mut self, sample: &DepthSample) {
        let before = decoded(self.weight);
        let weight = to_f32(sample.weight).clamp(LEAST_WEIGHT, MOST_WEIGHT);
        let share = weight / (before + weight);
        let distance = to_f32(sample.distance.min(1.0));
        let mean = self.mean();
        self.distance = steps(mean + share * (distance - mean));
        if sample.distance < 1.0 {
            let share = if self.color == [0; 3] { 1.0 } else { share };
            for (own, new) in self.color.iter_mut().zip(sample.color) {
                let mixed =
                    f32::from(*own) + share * (255.0 * new.clamp(0.0, 1.0) - f32::from(*own));
                *own = floor_u32(f64::from(mixed) + 0.5).to_le_bytes()[0];
            }
            if self.color == [0; 3] {
                self.color = [1; 3];
            }
        } else {
            self.seen |= 4 << sample.direction.min(DIRECTIONS - 1);
        }
        self.weight = encoded((before + weight).min(MOST_WEIGHT));
        self.seen += u8::from(self.seen & 3 < 3);
    }

    fn mean(&self) -> f32 {
        f32::from(self.distance) / DISTANCE_STEPS
    }

    /// Returns the distance over the truncation; NaN if too few views saw the voxel.
    fn distance(&self) -> f32 {
        if (self.seen >> 2).count_ones() >= FREE_FROM {
            1.0
        } else if self.seen & 3 >= VALID_FROM {
            self.mean()
        } else {
            f32::NAN
        }
    }

    /// Returns the colour, sRGB, 0 to 1; none if every view saw the voxel far from a surface.
    fn color(&self) -> Option<[f32; 3]> {
        (self.color != [0; 3]).then(|| self.color.map(|c| f32::from(c) / 255.0))
    }
}

/// Returns the nearest step of a distance from -1 to 1.
fn steps(distance: f32) -> i16 {
    let steps = floor_u32(f64::from((distance.clamp(-1.0, 1.0) + 1.0) * DISTANCE_STEPS) + 0.5);
    i16::try_from(i64::from(steps) - 32767).unwrap_or(i16::MAX)
}

/// Returns a value within the normal numbers of half precision, which has no sign here, as its upper bits.
fn encoded(weight: f32) -> u16 {
    // Ties go up: half a step is added before the lower bits go.
    let bits = weight.to_bits() + (1 << 12);
    u16::try_from((bits >> 13).saturating_sub(112 << 10)).unwrap_or(u16::MAX)
}

fn decoded(half: u16) -> f32 {
    if half == 0 { 0.0 } else { f32::from_bits((u32::from(half) + (112 << 10)) << 13) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use kiddo::{ImmutableKdTree, SquaredEuclidean};
    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::{looking, same_on_any_threads, unwatched};
    use crate::place::{corners, doubled_area, mul_transposed};

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

    const WIDTH: usize = 160;

    const HEIGHT: usize = 120;

    const FOCAL_PX: f64 = 90.0;

    /// A closed room with a ball in it; or a ball in the open, far from a dome.
    #[derive(Clone, Copy)]
    struct Scene {
        /// Half the room's sides around the origin, or the radius of a dome.
        walls: Result<Vec3, f64>,
        ball: Vec3,
        ball_radius: f64,
    }

    const ROOM: Scene =
        Scene { walls: Ok([3.0, 2.0, 1.35]), ball: [0.5, 0.2, -0.5], ball_radius: 0.6 };

    const OPEN: Scene = Scene { walls: Err(8.0), ball: [0.1, 0.0, 0.0], ball_radius: 1.0 };

    impl Scene {
        /// Returns the distance along a ray that starts inside.
        fn hit(&self, from: Vec3, along: Vec3) -> f64 {
            let sphere = |centre: Vec3, radius: f64, sign: f64| {
                let d = sub(from, centre);
                let (b, c) = (dot(d, along), dot(d, d) - radius * radius);
                let root = b * b - c;
                if root < 0.0 { f64::INFINITY } else { -b + sign * root.sqrt() }
            };
            let far = match self.walls {
                Ok(half) => (0..3)
                    .map(|a| (half[a] * along[a].signum() - from[a]) / along[a])
                    .filter(|t| *t > 0.0)
                    .fold(f64::INFINITY, f64::min),
                Err(radius) => sphere([0.0; 3], radius, 1.0),
            };
            let near = sphere(self.ball, self.ball_radius, -1.0);
            if near > 0.0 { near.min(far) } else { far }
        }

        fn distance(&self, place: Vec3) -> f64 {
            let wall = match self.walls {
                Ok(half) => {
                    (0..3).map(|a| (half[a] - place[a].abs()).abs()).fold(f64::INFINITY, f64::min)
                }
                Err(radius) => (length(place) - radius).abs(),
            };
            (length(sub(place, self.ball)) - self.ball_radius).abs().min(wall)
        }
    }

    #[derive(Clone)]
    struct Drawn {
        camera: Camera,
        depths: Vec<f32>,
        colors: Vec<[f32; 3]>,
    }

    impl Drawn {
        fn new(scene: &Scene, from: Vec3, to: Vec3) -> Self {
            let camera = looking(from, to, [WIDTH, HEIGHT], FOCAL_PX);
            let mut drawn = Self { camera, depths: Vec::new(), colors: Vec::new() };
            for pixel in 0..WIDTH * HEIGHT {
                let ray = camera.ray(pixel % WIDTH, pixel / WIDTH);
                let along = mul_transposed(&camera.rotation, normalize(ray));
                let depth = scene.hit(from, along) / length(ray);
                drawn.depths.push(to_f32(depth));
                let hit = to_f32s([0, 1, 2].map(|a| from[a] + along[a] * depth * length(ray)));
                drawn.colors.push(hit.map(|x| to_f32(0.5 + f64::from(x) / 20.0)));
            }
            drawn
        }

        fn view(&self) -> DepthView<'_> {
            DepthView {
                camera: self.camera,
                depths: &self.depths,
                normals: None,
                mask: None,
                colors: &self.colors,
            }
        }
    }

    /// Returns cameras on a ring that look across it and a little up and down.
    fn ring(scene: &Scene, radius: f64, count: usize) -> Vec<Drawn> {
        let view = |i: usize| {
            let turn = std::f64::consts::TAU * i as f64 / count as f64;
            let from = [radius * turn.cos(), radius * turn.sin(), 0.25 * (3.0 * turn).sin()];
            let up = [0.0, 0.9, -0.9, 0.4, -0.4][i % 5] * radius;
            let out = if i.is_multiple_of(2) { -1.0 } else { 2.0 };
            Drawn::new(scene, from, [out * from[0] + 0.1, out * from[1], up])
        };
        (0..count).map(view).collect()
    }

    fn fused(space: Space, views: &[Drawn]) -> Result<Fused, FusionError> {
        let watch = unwatched();
        let mut survey = Survey::new(space);
        views.iter().try_for_each(|view| survey.add(&view.view(), &watch))?;
        let mut fusion = Fusion::new(Arc::new(survey.finish(usize::MAX)?));
        views.iter().try_for_each(|view| fusion.add(&view.view(), &watch))?;
        fusion.surface(&watch)
    }

    fn room_space(voxels: u32) -> Space {
        Space::in_box([-3.2, -2.2, -1.5], [3.2, 2.2, 1.5], 6.4 / f64::from(voxels)).unwrap()
    }

    #[test]
    fn exact_depths_of_a_room_give_its_walls() {
        let space = room_space(160);
        let made = fused(space, &ring(&ROOM, 1.4, 40)).unwrap();
        let mut errors: Vec<f64> =
            made.mesh.vertices.iter().map(|&v| ROOM.distance(to_f64s(v)) / space.voxel).collect();
        errors.sort_unstable_by(f64::total_cmp);
        assert!(errors.len() > 40_000, "{}", errors.len());
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let p99 = errors[errors.len() * 99 / 100];
        // Planes are exact. Errors are at the ball's outline and where pixels are coarser than a voxel.
        assert!(mean < 0.05 && p99 < 0.3, "mean {mean}, p99 {p99}, max {:?}", errors.last());
        // The plan: 80 N² voxels of 512 a brick.
        assert!(made.bricks < 80 * 160 * 160 / 512, "{}", made.bricks);
        for (vertex, color) in made.mesh.vertices.iter().zip(&made.mesh.colors) {
            // A voxel is .002 of colour, a step .004; half a step is lost at every view.
            assert!((0..3).all(|a| (color[a] - 0.5 - vertex[a] / 20.0).abs() < 0.03), "{vertex:?}");
        }
    }

    #[test]
    fn faces_look_at_the_cameras() {
        let made = fused(room_space(80), &ring(&ROOM, 1.4, 20)).unwrap();
        for face in &made.mesh.faces {
            let places = corners(&made.mesh, *face);
            let (a, normal) = (places[0], doubled_area(places));
            let is_wall = (0..3).any(|k| a[k].abs() > [2.9, 1.9, 1.25][k]);
            let is_corner = (0..3).filter(|&k| a[k].abs() > [2.6, 1.6, 0.95][k]).count() > 1;
            let is_tested = is_wall && !is_corner && length(sub(a, ROOM.ball)) > 0.8;
            assert!(!is_tested || dot(normal, a) < 0.0, "{a:?}");
        }
    }

    #[test]
    fn far_and_near_are_fused_in_contracted_space() {
        let space = Space::contracted([0.0; 3], 2.0, 160).unwrap();
        let made = fused(space, &ring(&OPEN, 2.0, 30)).unwrap();
        let mut near = Vec::new();
        let mut far = Vec::new();
        for &vertex in &made.mesh.vertices {
            let place = to_f64s(vertex);
            let voxel = space.truncation(space.nodes_of(place).unwrap()) / 4.0;
            let list = if length(place) < 2.0 { &mut near } else { &mut far };
            list.push(OPEN.distance(place) / voxel);
        }
        for errors in [&mut near, &mut far] {
            errors.sort_unstable_by(f64::total_cmp);
            assert!(errors.len() > 500, "{}", errors.len());
            let p95 = errors[errors.len() * 95 / 100];
            assert!(p95 < 0.3, "{p95} of {}", errors.len());
        }
    }

    #[test]
    fn the_order_of_views_moves_no_vertex_by_a_thousandth_of_a_voxel() {
        let views = ring(&ROOM, 1.4, 15);
        let space = room_space(80);
        let forth = fused(space, &views).unwrap().mesh;
        let turned: Vec<Drawn> = views.iter().rev().cloned().collect();
        let back = fused(space, &turned).unwrap().mesh;
        let tree = ImmutableKdTree::<f32, 3>::new_from_slice(&back.vertices).unwrap();
        let apart = |place: &[f32; 3]| {
            let near = tree.query(place).nearest_one::<SquaredEuclidean<f32>>().execute();
            f64::from(near.distance).sqrt() / space.voxel
        };
        let mut apart: Vec<f64> = forth.vertices.iter().map(apart).collect();
        apart.sort_unstable_by(f64::total_cmp);
        // The sign of a voxel on the surface may go either way: one in a thousand.
        assert!(apart[apart.len() * 999 / 1000] < 1e-3, "{}", apart[apart.len() * 999 / 1000]);
        assert!(apart[apart.len() / 2] < 1e-4);
    }

    #[test]
    fn the_bits_are_the_same_for_any_number_of_threads() {
        let views = ring(&ROOM, 1.4, 10);
        same_on_any_threads(|| fused(room_space(60), &views).unwrap());
    }

    #[test]
    fn a_floating_speck_of_one_view_leaves_nothing() {
        let mut views = ring(&ROOM, 1.4, 20);
        let speck = Drawn::new(&ROOM, [-0.6, 0.0, 0.0], [-2.0, 0.0, 0.0]);
        views.insert(0, speck);
        let clean = fused(room_space(60), &views).unwrap().mesh;
        // A patch of a wall that does not exist, near the camera, where its weight is largest.
        for y in 50..70 {
            views[0].depths[y * WIDTH + 70..][..20].fill(0.5);
        }
        let made = fused(room_space(60), &views).unwrap().mesh;
        let floating = |mesh: &Mesh| {
            let is_off = |v: &&[f32; 3]| ROOM.distance(to_f64s(**v)) > 0.3;
            mesh.vertices.iter().filter(is_off).count()
        };
        assert_eq!(floating(&clean), 0);
        assert_eq!(floating(&made), 0);
    }

    #[test]
    fn masked_and_empty_pixels_show_nothing() {
        let mut views = ring(&ROOM, 1.4, 10);
        let watch = unwatched();
        let mut survey = Survey::new(room_space(40));
        let mask = vec![false; WIDTH * HEIGHT];
        survey.add(&DepthView { mask: Some(&mask), ..views[0].view() }, &watch).unwrap();
        for view in &mut views {
            view.depths.fill(f32::NAN);
            view.depths[7..99].fill(0.0);
        }
        views.iter().try_for_each(|view| survey.add(&view.view(), &watch)).unwrap();
        assert_eq!(survey.finish(1000).unwrap_err(), FusionError::Empty { views: 11 });
    }

    #[test]
    fn unusable_views_and_spaces_are_refused() {
        let views = ring(&ROOM, 1.4, 4);
        let stop = AtomicBool::new(false);
        let watch = Watch { stop: &stop, ..unwatched() };
        let mut survey = Survey::new(room_space(40));
        let short = DepthView { depths: &views[0].depths[1..], ..views[0].view() };
        assert!(matches!(survey.add(&short, &watch), Err(FusionError::MapSize { .. })));
        let mut flat = views[0].view();
        flat.camera.focal_px = [90.0, 0.0];
        assert!(matches!(survey.add(&flat, &watch), Err(FusionError::Focal { .. })));
        survey.add(&views[0].view(), &watch).unwrap();
        assert!(matches!(survey.clone().finish(3), Err(FusionError::TooManyBricks { .. })));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(survey.add(&views[1].view(), &watch), Err(FusionError::Stopped(_))));
        let side = |high, voxel| Space::in_box([0.0; 3], [high, 1.0, 1.0], voxel);
        assert!(matches!(side(1.0, 1e-7), Err(FusionError::TooFine { .. })));
        assert!(matches!(side(-1.0, 0.1), Err(FusionError::NoSize { .. })));
        assert!(matches!(side(1.0, f64::NAN), Err(FusionError::NoSize { .. })));
        assert!(matches!(Space::contracted([0.0; 3], 0.0, 64), Err(FusionError::NoSize { .. })));
        assert!(matches!(Space::contracted([0.0; 3], 1.0, 0), Err(FusionError::NoSize { .. })));
        // One view is not enough for a valid voxel.
        let alone = fused(room_space(40), &views[..1]).unwrap_err();
        assert_eq!(alone, FusionError::NoSurface { views: 1 });
    }

    fn sample(distance: f64, weight: f64, direction: usize) -> DepthSample {
        DepthSample { distance, weight, color: [1.0, 0.5, 0.0], direction }
    }

    proptest! {
        #[test]
        fn contraction_and_its_inverse_undo_each_other(
            x in -30.0_f64..30.0, y in -30.0_f64..30.0, z in -30.0_f64..30.0,
        ) {
            let space = Space::contracted([1.0, -2.0, 0.5], 1.7, 1024).unwrap();
            let world = [x, y, z];
            if let Some(nodes) = space.nodes_of(world) {
                let back = space.world(nodes);
                // Far out a step of the contracted place is up to 400 steps of the world.
                let reach = length(sub(world, [1.0, -2.0, 0.5]));
                prop_assert!(length(sub(back, world)) < 1e-11 * (1.0 + reach * reach));
            } else {
                prop_assert!(length(scale(sub(world, [1.0, -2.0, 0.5]), 1.0 / 1.7)) > 19.0);
            }
        }

        #[test]
        fn weights_keep_eleven_bits(weight in LEAST_WEIGHT..MOST_WEIGHT) {
            prop_assert!((decoded(encoded(weight)) / weight - 1.0).abs() <= 1.0 / 2048.0);
        }

        #[test]
        fn distances_keep_sixteen_bits(distance in -1.0_f32..1.0) {
            // Half a step and the rounding of f32.
            prop_assert!((f32::from(steps(distance)) / DISTANCE_STEPS - distance).abs() < 1.6e-5);
        }
    }

    #[test]
    fn a_voxel_averages_by_weight_and_counts_from_the_second_view() {
        let mut voxel = Voxel::default();
        voxel.add(&sample(0.2, 0.5, 0));
        assert!(voxel.distance().is_nan());
        voxel.add(&sample(0.6, 0.25, 0));
        // Steps of distance and of weight.
        assert!((voxel.distance() - 1.0 / 3.0).abs() < 1e-4);
        assert_eq!(voxel.color, [255, 128, 0]);
    }

    #[test]
    fn three_directions_free_a_voxel_and_one_does_not() {
        let mut voxel = Voxel::default();
        voxel.add(&sample(-0.9, 1.0, 0));
        for _ in 0..5 {
            voxel.add(&sample(2.0, 0.01, 1));
        }
        assert!(voxel.distance() < -0.7);
        voxel.add(&sample(2.0, 0.01, 5));
        assert!(voxel.distance() < -0.7);
        voxel.add(&sample(2.0, 0.01, 0));
        assert_eq!(voxel.distance().to_bits(), 1.0_f32.to_bits());
    }
}
