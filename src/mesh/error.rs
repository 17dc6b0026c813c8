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

/// Error of a mesh extraction.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum ExtractionError {
    #[error(
        "the box from {low} to {high} is empty along {axis}. Give a --bbox-max above --bbox-min"
    )]
    EmptyBox { axis: char, low: f64, high: f64 },
    #[error("--{flag} is {value}; allowed: {allowed}")]
    OutOfRange { flag: &'static str, value: f64, allowed: &'static str },
    #[error("--{given} is given without --{missing}. Give both, or none")]
    HalfBox { given: &'static str, missing: &'static str },
    #[error(
        "no surface: {found} of {all} Gaussians in the box are opaque, {needed} are needed. {advice}"
    )]
    NoGaussians { found: usize, all: usize, needed: usize, advice: String },
    #[error("no training view can be drawn: {reason}. Check the photographs of the scene")]
    NoViews { reason: String },
    #[error("{found} Gaussians are more than can be searched. Train with a smaller --max-points")]
    TooManyGaussians { found: usize },
    #[error(
        "tetrahedra over {gaussians} Gaussians exceed --host-limit, which is enough for {fits}. Mesh a smaller box \
         (--bbox-min, --bbox-max), raise --host-limit, or use --method tsdf"
    )]
    TooManyPoints { gaussians: usize, fits: usize },
    #[error(
        "{wanted} points of the surface need more memory than --host-limit leaves, which is enough for \
         {fits}. Give --surface-points {fits}, or raise --host-limit"
    )]
    SurfacePoints { wanted: u64, fits: u64 },
    #[error(transparent)]
    Delaunay(#[from] DelaunayError),
    #[error(transparent)]
    Cut(#[from] CutError),
    #[error("--texture is given, but no file that can hold one. Add glb or obj to --formats")]
    NoTexturedFormat,
    #[error(
        "--texture-size {requested} needs more memory than --host-limit leaves. Give {fits} or less"
    )]
    TextureMemory { requested: u32, fits: u32 },
    #[error(transparent)]
    Atlas(#[from] AtlasError),
    #[error(transparent)]
    Points(#[from] PointsError),
    #[error(transparent)]
    Poisson(#[from] PoissonError),
    #[error(transparent)]
    Trim(#[from] NothingLeft),
    #[error(transparent)]
    Fusion(#[from] FusionError),
    #[error(
        "zero triangles are left of {faces}: all are in pieces smaller than --min-component \
         {min_component}. Give a smaller one, or extract a finer surface"
    )]
    NothingLeft { faces: usize, min_component: String },
    #[error(
        "zero triangles are left of {faces}: the surface has no form of {target} triangles or fewer. Give \
         a larger --decimation-target, or 0, which leaves all"
    )]
    DecimatedAway { faces: usize, target: usize },
    #[error(
        "zero triangles are left of {faces}: --postprocess-mesh took all of them off. Lower \
         --postprocess-density-threshold or --postprocess-iterations"
    )]
    PeeledAway { faces: usize },
    #[error(transparent)]
    Clean(#[from] CleanError),
    #[error(transparent)]
    Device(DeviceError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<DeviceError> for ExtractionError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Fusion(error) => Self::Fusion(error),
            error => Self::Device(error),
        }
    }
}
