//! What is trained, as it stands on the host.

mod bound;
mod field;
mod fuse;
mod gaussians;
mod initialise;
mod primitive;
mod rotations;
mod surfels;
mod triangle_mesh;

pub use bound::{BoundColumns, BoundTopology, TooManyBound, VertexLists};
pub use field::Field;
pub use fuse::fuse;
pub use gaussians::{FLAT_LOG_SCALE, Gaussians, sh_rest_count};
pub use initialise::{from_points, random_points, thinned};
pub use primitive::{Group, Primitive};
pub use rotations::{make_rotations_unit, unit_rotation};
pub use surfels::{THICKENED, flatten, thicken};
pub use triangle_mesh::TriangleMesh;
