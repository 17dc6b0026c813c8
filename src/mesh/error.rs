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
pub enum ExtractionError {
    /// The box is empty.
    #[error(
        "the box from {low} to {high} is empty along {axis}. Give a --bbox-max above --bbox-min"
    )]
    EmptyBox {
        /// Axis along which the box is empty.
        axis: char,
        /// Lower side, scene units.
        low: f64,
        /// Upper side, scene units.
        high: f64,
    },
    /// The value of an option is out of range.
    #[error("--{flag} is {value}; allowed: {allowed}")]
    OutOfRange {
        /// The option.
        flag: &'static str,
        /// Given value.
        value: f64,
        /// Allowed values.
        allowed: &'static str,
    },
    /// Only one corner of a box is given.
    #[error("--{given} is given without --{missing}. Give both, or none")]
    HalfBox {
        /// The given option.
        given: &'static str,
        /// The missing option.
        missing: &'static str,
    },
    /// The box has too few opaque Gaussians.
    #[error(
        "no surface: {found} of {all} Gaussians in the box are opaque, {needed} are needed. {advice}"
    )]
    NoGaussians {
        /// Opaque Gaussians in the box.
        found: usize,
        /// Gaussians of the model.
        all: usize,
        /// Minimum number of opaque Gaussians.
        needed: usize,
        /// Remedy.
        advice: String,
    },
    /// No photograph of the training views can be read, whose masks are needed.
    #[error("no training view can be drawn: {reason}. Check the photographs of the scene")]
    NoViews {
        /// Error of the first photograph.
        reason: String,
    },
    /// The model has more Gaussians than a search tree supports.
    #[error("{found} Gaussians are more than can be searched. Train with a smaller --max-points")]
    TooManyGaussians {
        /// Gaussians of the model.
        found: usize,
    },
    /// The host's memory is too small for the points of the Gaussians.
    #[error(
        "tetrahedra over {gaussians} Gaussians exceed --host-limit, which is enough for {fits}. Mesh a smaller box \
         (--bbox-min, --bbox-max), raise --host-limit, or use --method tsdf"
    )]
    TooManyPoints {
        /// Opaque Gaussians in the box.
        gaussians: usize,
        /// Number of Gaussians that fit in memory.
        fits: usize,
    },
    /// The host's memory is too small for the points of the level set.
    #[error(
        "{wanted} points of the surface need more memory than --host-limit leaves, which is enough for \
         {fits}. Give --surface-points {fits}, or raise --host-limit"
    )]
    SurfacePoints {
        /// Requested points, at most the pixels of the views.
        wanted: u64,
        /// Number of points that fit in memory.
        fits: u64,
    },
    /// No tetrahedra span the points.
    #[error(transparent)]
    Delaunay(#[from] DelaunayError),
    /// No surface lies in the tetrahedra.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// No requested file format can hold a texture.
    #[error("--texture is given, but no file that can hold one. Add glb or obj to --formats")]
    NoTexturedFormat,
    /// The host's memory is too small for the texture.
    #[error(
        "--texture-size {asked} needs more memory than --host-limit leaves. Give {fits} or less"
    )]
    TextureMemory {
        /// Requested side, texels.
        asked: u32,
        /// Largest side that fits in memory, texels.
        fits: u32,
    },
    /// The atlas of the mesh failed.
    #[error(transparent)]
    Atlas(#[from] AtlasError),
    /// The points are no surface.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// No surface fits the points.
    #[error(transparent)]
    Poisson(#[from] PoissonError),
    /// Trimming removed all triangles.
    #[error(transparent)]
    Trim(#[from] NothingLeft),
    /// Fusing the depth maps failed.
    #[error(transparent)]
    Fusion(#[from] FusionError),
    /// All components are too small.
    #[error(
        "zero triangles are left of {faces}: all are in pieces smaller than --min-component \
         {min_component}. Give a smaller one, or extract a finer surface"
    )]
    NothingLeft {
        /// Triangles before cleaning.
        faces: usize,
        /// Smallest component that is kept, in the form of the option.
        min_component: String,
    },
    /// Decimation removed all triangles.
    #[error(
        "zero triangles are left of {faces}: the surface has no form of {target} triangles or fewer. Give \
         a larger --decimation-target, or 0, which leaves all"
    )]
    DecimatedAway {
        /// Triangles before decimation.
        faces: usize,
        /// Requested number of triangles.
        target: usize,
    },
    /// Peeling the border removed all triangles.
    #[error(
        "zero triangles are left of {faces}: --postprocess-mesh took all of them off. Lower \
         --postprocess-density-threshold or --postprocess-iterations"
    )]
    PeeledAway {
        /// Triangles before peeling.
        faces: usize,
    },
    /// Cleaning failed.
    #[error(transparent)]
    Clean(#[from] CleanError),
    /// The device failed.
    #[error(transparent)]
    Device(DeviceError),
    /// The mesh cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Device errors of the fusion become fusion errors.
impl From<DeviceError> for ExtractionError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Fusion(error) => Self::Fusion(error),
            error => Self::Device(error),
        }
    }
}
