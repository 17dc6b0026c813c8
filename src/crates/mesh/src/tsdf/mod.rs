//! Fusion of depth maps into truncated signed distances on bricks (Curless and Levoy 1996).
//!
//! Depth maps are seen twice, one at a time: a [`Survey`] finds the bricks near what they show, and a
//! [`Fusion`] averages distances along the axis of view in these. Unbounded scenes are
//! fused in contracted space (Barron et al. 2022), so that far voxels are larger. Either look can be had
//! elsewhere, as on a GPU, and its outcome be handed in.

mod bricks;
mod fuse;
mod survey;
#[cfg(test)]
mod tests;
mod voxel;

use rayon::prelude::*;

use crate::camera::Camera;
use crate::cubes::ExtractError;
use crate::mesh::Vec3;
use crate::narrow::{floor_i32, to_f32, to_f64s, to_index};
use crate::vector::{cross, dot, mul, normalize, scale, sub};
use crate::watch::Stopped;

pub use bricks::{FARTHEST, Space, SpaceKind, SurveyedBricks, TRUNCATION_VOXELS};
pub use fuse::{DIRECTIONS, Fused, Fusion};
pub use survey::{MARGIN, Survey};
pub use voxel::{DISTANCE_STEPS, LEAST_WEIGHT, MOST_WEIGHT, Voxel};

// What can keep depth maps from becoming a surface.

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FusionError {
    /// A map of another size.
    #[error(
        "the {map} has {found} pixels, and the view {width} x {height}. Give one value a pixel"
    )]
    MapSize {
        /// Which map.
        map: &'static str,
        /// How many values it has.
        found: usize,
        /// Width of the view, px.
        width: usize,
        /// Height, px.
        height: usize,
    },
    /// A camera that cannot be used.
    #[error("a camera's focal length of {focal_px:?} px is not above zero. Check the scene")]
    Focal {
        /// The focal lengths.
        focal_px: [f64; 2],
    },
    /// Box or voxel without a size.
    #[error(
        "a side of {side} cannot be cut in voxels of {voxel}. Give a box and a --voxel above zero"
    )]
    NoSize {
        /// The longest side, scene units.
        side: f64,
        /// The voxel, scene units.
        voxel: f64,
    },
    /// More voxels along a side than a key holds.
    #[error(
        "a side of {side} has more than {most} voxels of {voxel}. Use a --voxel of {fits} or more"
    )]
    TooFine {
        /// The longest side, scene units.
        side: f64,
        /// The voxel, scene units.
        voxel: f64,
        /// Voxels that fit.
        most: u32,
        /// The least voxel that fits.
        fits: f64,
    },
    /// No depth in any view, or all of it outside the box.
    #[error(
        "every view is empty: none of {views} shows a depth within the box. Check the model, the masks and the box"
    )]
    Empty {
        /// Views that were seen.
        views: usize,
    },
    /// The depth maps take more bricks than the plan grants.
    #[error(
        "the surfaces take {bricks} bricks and the plan grants {granted}. Use a --voxel of {fits}"
    )]
    TooManyBricks {
        /// Bricks near the surfaces.
        bricks: usize,
        /// How many the plan grants.
        granted: usize,
        /// A voxel that should fit, in the space's units.
        fits: f64,
    },
    /// No voxel pair in which the distance changes its sign.
    #[error("no surface was seen by two of the {views} views. Give more views or a larger --voxel")]
    NoSurface {
        /// Views that were fused.
        views: usize,
    },
    /// The surface could not be written down.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// The caller's wish.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

// A depth map and where it was seen from.

/// The weight of a pixel that looks along its surface.
pub const GRAZING_WEIGHT: f64 = 0.05;

/// A depth map with its camera, one value a pixel in rows.
#[derive(Clone, Copy, Debug)]
pub struct DepthView<'a> {
    /// What saw it, and from where.
    pub camera: Camera,
    /// Depth along the camera's axis, scene units; not above 0 or NaN where there is none.
    pub depths: &'a [f32],
    /// Unit normals, world space, of either sign; without them they come of the depths.
    pub normals: Option<&'a [[f32; 3]]>,
    /// Which pixels count; without it, all.
    pub mask: Option<&'a [bool]>,
    /// Colours, sRGB, 0 to 1.
    pub colors: &'a [[f32; 3]],
}

impl DepthView<'_> {
    /// An error where a map does not fit the view, or the camera is none.
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

    /// The depth at a pixel, if it counts.
    #[inline]
    fn depth(&self, x: usize, y: usize) -> Option<f64> {
        let pixel = y * self.camera.width + x;
        let depth = self.depths[pixel];
        let counts = self.mask.is_none_or(|mask| mask[pixel]);
        (counts && depth > 0.0 && depth.is_finite()).then(|| f64::from(depth))
    }

    /// The depth that is seen at a place of the image: between the four pixels around it where they lie
    /// within `truncation`, linear in 1/z, in which planes are; else that of the pixel it lies in.
    #[inline]
    fn depth_at(&self, pixel: [f64; 2], truncation: f64) -> Option<(usize, f64)> {
        let nearest = pixel.map(floor_i32);
        let size = [self.camera.width, self.camera.height];
        let is_in = |a: usize| nearest[a] >= 0 && to_index(nearest[a]) < size[a];
        if !is_in(0) || !is_in(1) {
            return None;
        }
        let [x, y] = nearest.map(to_index);
        let own = self.depth(x, y)?;
        let corner = pixel.map(|p| floor_i32(p - 0.5));
        let fits = |a: usize| corner[a] >= 0 && to_index(corner[a]) + 1 < size[a];
        if fits(0) && fits(1) {
            let [x0, y0] = corner.map(to_index);
            let four = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(i, j)| self.depth(x0 + i, y0 + j));
            if let [Some(a), Some(b), Some(c), Some(d)] = four {
                let least = a.min(b).min(c.min(d));
                let most = a.max(b).max(c.max(d));
                if most - least <= truncation {
                    let [s, t] = [0, 1].map(|k| pixel[k] - 0.5 - f64::from(corner[k]));
                    let upper = (1.0 - s) / a + s / b;
                    let lower = (1.0 - s) / c + s / d;
                    return Some((
                        y * self.camera.width + x,
                        1.0 / ((1.0 - t) * upper + t * lower),
                    ));
                }
            }
        }
        Some((y * self.camera.width + x, own))
    }

    /// For each pixel max(.05, |n · d|), n its normal and d its ray; 0 where it does not count, and NaN, which
    /// is not above 0 either, where the normal is NaN.
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

    /// The normal in camera axes: the cross product of differences of neighbours.
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

/// An error where the camera is none.
fn check_focal(&Camera { focal_px, .. }: &Camera) -> Result<(), FusionError> {
    if focal_px.iter().all(|f| f.is_finite() && *f > 0.0) {
        return Ok(());
    }
    Err(FusionError::Focal { focal_px })
}
