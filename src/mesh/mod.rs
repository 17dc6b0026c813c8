//! Extraction of triangle meshes from Gaussians.
//!
//! `focus` finds the box, `drawn` draws the training views, and one file per method extracts surfaces. `finish`
//! cleans, decimates and exports the mesh, and `texture` bakes its texture. `bound` binds Gaussians to its triangles,
//! and `vertex_fit` fits vertex colours to photographs. The geometry is in the crate `splat-mesh`, which does not
//! depend on Gaussians.

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
    Consistency, Corner, LeastComponent, MeshFormat, MeshMethod, MeshOptions, Outliers,
    ParseCornerError, PoissonOptions, PostprocessOptions, TetrahedraOptions, TsdfOptions, WorldBox,
};
pub use poisson::fit;
pub use tetrahedra::cut_tetrahedra;
pub use texture::{AtlasKind, MeshTexture, TextureFigures, TextureOptions, TextureSource, texture};
pub use tsdf::fuse;
pub use vertex_fit::{ExposureFileError, Exposures, VertexFit, fit_vertex_colors};
