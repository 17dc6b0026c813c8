//! What can keep a surface from being made.

use crate::cubes::ExtractError;
use crate::points::PointsError;
use crate::watch::Stopped;

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoissonError {
    /// The points cannot be a surface.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// All points at one place.
    #[error("the {points} points lie at one place. Check the model's places")]
    NoExtent {
        /// How many there are.
        points: usize,
    },
    /// A depth that is not offered.
    #[error("a depth of {depth} is not offered. Give --poisson-depth from 4 to {deepest}")]
    Depth {
        /// What was asked for.
        depth: u32,
        /// The largest.
        deepest: u32,
    },
    /// A level whose equations were not solved.
    #[error(
        "level {level} has a residual of {residual:.1e} after {steps} steps, and .001 is needed. Lower --poisson-depth, or look for points far from the others"
    )]
    NotConverged {
        /// The level.
        level: u32,
        /// Steps taken.
        steps: usize,
        /// |b - A x| / |b|.
        residual: f64,
    },
    /// The points take more bricks than the plan grants.
    #[error(
        "depth {depth} takes {bricks} bricks and the plan grants {granted}. Use --poisson-depth {fits}"
    )]
    TooManyBricks {
        /// The depth.
        depth: u32,
        /// Bricks of its level.
        bricks: usize,
        /// How many the plan grants.
        granted: usize,
        /// The deepest that would fit.
        fits: u32,
    },
    /// No place where the solution passes its level.
    #[error("no surface passes the {points} points. Check their normals")]
    NoSurface {
        /// How many there are.
        points: usize,
    },
    /// The surface could not be written down.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// The caller's wish.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
