//! The stages: each file is the twin of a kernel in `kernels/` and of a stage of the CPU, or a part
//! of such a twin.

pub(crate) mod adam;
pub(crate) mod appearance;
pub(crate) mod bands;
pub(crate) mod bin;
pub(crate) mod bind;
pub(crate) mod blend;
pub(crate) mod blend_triangles;
pub(crate) mod densify;
pub(crate) mod depth;
pub(crate) mod distortion;
pub(crate) mod fuse;
pub(crate) mod loss;
pub(crate) mod lpips;
pub(crate) mod median;
pub(crate) mod neighbours;
pub(crate) mod normal_map;
pub(crate) mod normals;
pub(crate) mod palette;
pub(crate) mod patches;
pub mod probe;
pub(crate) mod project;
pub(crate) mod rays;
pub(crate) mod relocate;
pub(crate) mod reorder;
pub(crate) mod shrink;
pub(crate) mod smooth;
pub(crate) mod surface;
pub(crate) mod transmittance;
pub(crate) mod weights;
pub(crate) mod worth;
