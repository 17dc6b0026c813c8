//! Files of a model for other programs: the PLY of Gaussians and the files beside it.

mod inria;
mod offset;
mod ply;
mod splats;

pub use inria::{
    CAMERAS_JSON, StoredCamera, remove_exposure_json, write_cameras_json, write_cfg_args,
    write_exposure_json,
};
pub use offset::{OffsetError, frame_of_file, offset_path, write_offset};
pub use ply::{
    ColumnRange, FilterField, FlatField, Meaning, NewPly, PlyError, PlyFacesError, PlyField,
    PlyModel, PlyRows, PlyStyle, PlyTriangles, RenderMode, StoredWindow, VertexFields, read_ply,
    read_ply_model, read_ply_primitive, read_ply_rows, write_ply, write_ply_chunks,
    write_ply_triangles,
};
pub use splats::{coloured_mesh, gaussians_of, splats_of};
