//! The stages: each file is what a kernel of the same name has to compute.

pub(crate) mod adam;
mod adam_packed;
mod adam_value;
pub(crate) mod appearance;
pub(crate) mod bin;
pub(crate) mod bind;
pub(crate) mod blend;
pub(crate) mod densify;
pub(crate) mod depth;
pub(crate) mod depth_map;
pub(crate) mod gradients;
pub(crate) mod loss;
pub(crate) mod lpips;
pub(crate) mod median;
pub(crate) mod neighbours;
pub(crate) mod normals;
pub(crate) mod project;
pub(crate) mod rays;
pub(crate) mod relocate;
pub(crate) mod reorder;
pub(crate) mod sampled_depths;
pub(crate) mod sampler;
pub(crate) mod smooth;
pub(crate) mod surface;
pub(crate) mod transmittance;
pub(crate) mod weights;
pub(crate) mod worth;
