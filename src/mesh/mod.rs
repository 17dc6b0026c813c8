//! From Gaussians to a triangle mesh.
//!
//! `focus` says where the object is, `drawn` what the training views show of it; a file for each method makes
//! a surface of that; `finish` cleans and decimates it, `texture` gives it a picture, `write` puts it into
//! files; `bound` puts Gaussians onto its triangles, `vertex_fit` fits the colours of vertices to photographs. The geometry itself is the crate `splat-mesh`, which knows
//! nothing of Gaussians.

mod bound;
mod consistency;
mod drawn;
mod error;
mod exposures;
mod extracted;
mod finish;
mod fitted;
mod focus;
mod free_space;
mod host_plan;
mod level_set;
mod options;
mod poisson;
mod postprocess;
mod postprocess_options;
mod tetrahedra;
mod texture;
mod texture_options;
mod tsdf;
mod vertex_fit;
mod world_box;
mod write;

pub use bound::{
    BindError, BindRule, BoundStart, bind_mesh, colors_of_model, placed_gaussians, refined_mesh,
};
pub use consistency::check_consistency;
pub use drawn::DrawnModel;
pub use error::ExtractionError;
pub use exposures::{ExposureFileError, Exposures};
pub use extracted::{Extracted, ExtractionFigures, Surface};
pub use finish::{Finished, FinishingWork, StepSeconds, finish};
pub use focus::{Focus, meshed_box};
pub use host_plan::{MeshedScene, mesh_host_rows, view_maps};
pub use options::{
    Consistency, LeastComponent, MeshFormat, MeshMethod, MeshOptions, Outliers, PoissonOptions,
    TetrahedraOptions, TsdfOptions,
};
pub use poisson::fit;
pub use postprocess::postprocess;
pub use postprocess_options::PostprocessOptions;
pub use tetrahedra::cut_tetrahedra;
pub use texture::{MeshTexture, TextureFigures, texture};
pub use texture_options::{AtlasKind, TextureOptions, TextureSource};
pub use tsdf::fuse;
pub use vertex_fit::{VertexFit, fit_vertex_colors};
pub use world_box::{Corner, ParseCornerError, WorldBox};
pub use write::{MeshFiles, convert_mesh, write_mesh};
