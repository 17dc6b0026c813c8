//! From Gaussians to a triangle mesh.
//!
//! `focus` says where the object is, `drawn` what the training views show of it; a file for each method makes
//! a surface of that; `finish` cleans and decimates it, `texture` gives it a picture, `write` puts it into
//! files; `bound` puts Gaussians onto its triangles, `vertex_fit` fits the colours of vertices to photographs. The geometry itself is the crate `splat-mesh`, which knows
//! nothing of Gaussians.

mod bound;
mod drawn;
mod error;
mod finish;
mod focus;
mod host_plan;
mod level_set;
mod options;
mod poisson;
mod tetrahedra;
mod texture;
mod tsdf;
mod vertex_fit;
mod world_box;

pub use bound::{
    BindError, BindRule, BoundStart, bind_mesh, colors_of_model, placed_gaussians, refined_mesh,
};
pub use drawn::DrawnModel;
pub use error::ExtractionError;
pub use finish::{
    Extracted, ExtractionFigures, Finished, FinishingWork, MeshFiles, StepSeconds, Surface,
    convert_mesh, finish, postprocess, write_mesh,
};
pub use focus::{Focus, meshed_box};
pub use host_plan::{MeshedScene, mesh_host_rows, view_maps};
pub use level_set::check_consistency;
pub use options::{
    Consistency, LeastComponent, MeshFormat, MeshMethod, MeshOptions, Outliers, PoissonOptions,
    PostprocessOptions, TetrahedraOptions, TsdfOptions,
};
pub use poisson::fit;
pub use tetrahedra::cut_tetrahedra;
pub use texture::{AtlasKind, MeshTexture, TextureFigures, TextureOptions, TextureSource, texture};
pub use tsdf::fuse;
pub use vertex_fit::{ExposureFileError, Exposures, VertexFit, fit_vertex_colors};
pub use world_box::{Corner, ParseCornerError, WorldBox};
