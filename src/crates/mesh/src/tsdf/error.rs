//! What can keep depth maps from becoming a surface.

use crate::cubes::ExtractError;
use crate::watch::Stopped;

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
