//! Files of a model that other programs read: the PLY of Gaussians and what stands beside it.

mod inria;
mod ply;

pub use inria::{write_cameras_json, write_cfg_args, write_exposure_json};
pub use ply::{PlyError, RenderMode, read_ply, write_ply, write_ply_chunks};
