//! The bricks and voxels that views are fused in.

use rayon::prelude::*;

use super::{DIRECTIONS, Directions, FusionError};
use crate::bricks::{Bricks, SIDE};
use crate::mesh::{Camera, Vec3};
use crate::narrow::{floor_u32, to_f32};
use crate::place::{add, length, normalize, scale, sub};

/// Bricks near the surfaces of depth maps, and the directions that each is seen from.
#[derive(Clone, Debug)]
pub struct SurveyedBricks {
    pub(super) space: Space,
    pub(super) bricks: Bricks,
    directions: Vec<Directions>,
    /// Depth up to which a sample counts in full, scene units.
    pub(super) near: f64,
}

impl SurveyedBricks {
    /// Finds the directions from all cameras at once, so that the order in which views are fused does not matter.
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

    /// Returns the number of bricks.
    pub fn len(&self) -> usize {
        self.bricks.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.bricks.is_empty()
    }

    /// Returns the lattice of the bricks.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the depth up to which a sample counts in full, scene units.
    pub fn near(&self) -> f64 {
        self.near
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

fn ball(space: &Space, bricks: &Bricks, brick: usize) -> (Vec3, f64) {
    let middle = bricks.place(brick).map(|p| f64::from(p) * SIDE as f64 + 3.5);
    // Half the diagonal of seven voxels.
    space.ball(middle, 3.5 * 3.0_f64.sqrt())
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
    kind: SpaceKind,
    /// Side of a voxel: scene units in a box, cameras' radii in contracted space.
    voxel: f64,
    nodes: [u32; 3],
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

    /// Returns the place of the lattice.
    pub fn kind(&self) -> SpaceKind {
        self.kind
    }

    /// Returns the side of a voxel.
    pub fn voxel(&self) -> f64 {
        self.voxel
    }

    /// Returns the number of nodes along each axis.
    pub fn nodes(&self) -> [u32; 3] {
        self.nodes
    }

    /// Returns the world place of a place in nodes.
    pub fn world(&self, nodes: Vec3) -> Vec3 {
        match self.kind {
            SpaceKind::Box { low } => add(low, scale(nodes, self.voxel)),
            SpaceKind::Contracted { centre, radius } => {
                let y = self.contracted_place(nodes);
                add(centre, scale(y, radius * stretch(length(y).min(FARTHEST))))
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
    pub(super) fn holds(&self, nodes: Vec3) -> bool {
        let is_in = |a: usize| (0.0..=f64::from(self.nodes[a] - 1)).contains(&nodes[a]);
        let is_near = match self.kind {
            SpaceKind::Box { .. } => true,
            SpaceKind::Contracted { .. } => length(self.contracted_place(nodes)) <= FARTHEST,
        };
        is_near && (0..3).all(is_in)
    }

    /// Returns the distance at a place in nodes beyond which distances are truncated, scene units.
    pub(super) fn truncation(&self, nodes: Vec3) -> f64 {
        TRUNCATION_VOXELS * self.voxel * self.units_a_unit(nodes, 0.0)
    }

    /// Returns the centre and the radius, scene units, of a ball that holds the nodes within `reach` of a place.
    pub(super) fn ball(&self, nodes: Vec3, reach: f64) -> (Vec3, f64) {
        (self.world(nodes), reach * self.voxel * self.units_a_unit(nodes, reach))
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

/// Returns |x| / |y| of a contracted place at this distance.
fn stretch(far: f64) -> f64 {
    if far > 1.0 { 1.0 / ((2.0 - far) * far) } else { 1.0 }
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

pub(super) struct DepthSample {
    /// Distance over truncation, not below -1.
    pub(super) distance: f64,
    /// Weight, above zero.
    pub(super) weight: f64,
    /// Colour, sRGB, 0 to 1.
    pub(super) color: [f32; 3],
    /// Number of the brick's direction that the view looks from.
    pub(super) direction: usize,
}

impl Voxel {
    /// Averages a view's sample: D <- (D W + w min(1, s)) / (W + w).
    pub(super) fn add(&mut self, sample: &DepthSample) {
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
    pub(super) fn distance(&self) -> f32 {
        if (self.seen >> 2).count_ones() >= FREE_FROM {
            1.0
        } else if self.seen & 3 >= VALID_FROM {
            self.mean()
        } else {
            f32::NAN
        }
    }

    /// Returns the colour, sRGB, 0 to 1; none if every view saw the voxel far from a surface.
    pub(super) fn color(&self) -> Option<[f32; 3]> {
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
    use proptest::prelude::*;

    use super::*;

    fn sample(distance: f64, weight: f64, direction: usize) -> DepthSample {
        DepthSample { distance, weight, color: [1.0, 0.5, 0.0], direction }
    }

    proptest! {
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
