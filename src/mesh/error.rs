//! Errors of meshing.

use splat_mesh::atlas::AtlasError;
use splat_mesh::clean::CleanError;
use splat_mesh::delaunay::DelaunayError;
use splat_mesh::points::PointsError;
use splat_mesh::poisson::{NothingLeft, PoissonError};
use splat_mesh::tetrahedra::CutError;
use splat_mesh::tsdf::FusionError;

use crate::backend::DeviceError;
use crate::files::OutputError;

/// Why there is no mesh.
#[derive(Debug, thiserror::Error)]
pub enum ExtractionError {
    /// A box that is empty.
    #[error(
        "the box from {low} to {high} is empty along {axis}. Give a --bbox-max above --bbox-min"
    )]
    EmptyBox {
        /// The axis.
        axis: char,
        /// Its lower side, scene units.
        low: f64,
        /// Its upper side, scene units.
        high: f64,
    },
    /// A value that makes no surface.
    #[error("--{flag} is {value}; allowed: {allowed}")]
    OutOfRange {
        /// The option.
        flag: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        allowed: &'static str,
    },
    /// Only one corner of a box is given.
    #[error("--{given} is given without --{missing}. Give both, or none")]
    HalfBox {
        /// The option that is there.
        given: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// Nothing that is opaque lies in the box.
    #[error(
        "no surface: {found} of {all} Gaussians in the box are opaque, {needed} are needed. {advice}"
    )]
    NoGaussians {
        /// Opaque Gaussians in the box.
        found: usize,
        /// Gaussians of the model.
        all: usize,
        /// Fewest that a surface is made of.
        needed: usize,
        /// What helps.
        advice: String,
    },
    /// No photograph of the training views can be had, whose masks say what counts.
    #[error("no training view can be drawn: {reason}. Check the photographs of the scene")]
    NoViews {
        /// What is wrong with the first.
        reason: String,
    },
    /// More Gaussians than a search tree tells apart.
    #[error("{found} Gaussians are more than can be searched. Train with a smaller --max-points")]
    TooManyGaussians {
        /// How many there are.
        found: usize,
    },
    /// Points of more Gaussians than there is memory for.
    #[error(
        "tetrahedra over {gaussians} Gaussians exceed --host-limit, which is enough for {fits}. Mesh a smaller box \
         (--bbox-min, --bbox-max), raise --host-limit, or use --method tsdf"
    )]
    TooManyPoints {
        /// Opaque Gaussians in the box.
        gaussians: usize,
        /// As many as there is memory for.
        fits: usize,
    },
    /// More points of the level set than there is memory for.
    #[error(
        "{wanted} points of the surface need more memory than --host-limit leaves, which is enough for \
         {fits}. Give --surface-points {fits}, or raise --host-limit"
    )]
    SurfacePoints {
        /// Points that were asked for, as far as the views have pixels.
        wanted: u64,
        /// As many as there is memory for.
        fits: u64,
    },
    /// No tetrahedra span the points.
    #[error(transparent)]
    Delaunay(#[from] DelaunayError),
    /// No surface lies in the tetrahedra.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// No file is asked for that can hold a texture.
    #[error("--texture is given, but no file that can hold one. Add glb or obj to --formats")]
    NoTexturedFormat,
    /// A texture that the host has no memory for.
    #[error(
        "--texture-size {asked} needs more memory than --host-limit leaves. Give {fits} or less"
    )]
    TextureMemory {
        /// Side that was asked for, in texels.
        asked: u32,
        /// Greatest side for which there is memory.
        fits: u32,
    },
    /// The mesh cannot be laid out on a picture.
    #[error(transparent)]
    Atlas(#[from] AtlasError),
    /// Points that are no surface.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// No surface fits the points.
    #[error(transparent)]
    Poisson(#[from] PoissonError),
    /// Trimming left nothing.
    #[error(transparent)]
    Trim(#[from] NothingLeft),
    /// Depth maps that make no surface.
    #[error(transparent)]
    Fusion(#[from] FusionError),
    /// All triangles are of components that are too small.
    #[error(
        "zero triangles are left of {faces}: all are in pieces smaller than --min-component \
         {min_component}. Give a smaller one, or extract a finer surface"
    )]
    NothingLeft {
        /// Triangles before cleaning.
        faces: usize,
        /// The smallest piece that stays, as it is typed.
        min_component: String,
    },
    /// Decimation left nothing.
    #[error(
        "zero triangles are left of {faces}: the surface has no form of {target} triangles or fewer. Give \
         a larger --decimation-target, or 0, which leaves all"
    )]
    DecimatedAway {
        /// Triangles before decimation.
        faces: usize,
        /// Most triangles that were asked for.
        target: usize,
    },
    /// All triangles were taken off the border.
    #[error(
        "zero triangles are left of {faces}: --postprocess-mesh took all of them off. Lower \
         --postprocess-density-threshold or --postprocess-iterations"
    )]
    PeeledAway {
        /// Triangles before that.
        faces: usize,
    },
    /// Cleaning left nothing.
    #[error(transparent)]
    Clean(#[from] CleanError),
    /// The device failed.
    #[error(transparent)]
    Device(DeviceError),
    /// The mesh cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Depths are as wrong on a device as elsewhere.
impl From<DeviceError> for ExtractionError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Fusion(error) => Self::Fusion(error),
            error => Self::Device(error),
        }
    }
}
