//! Files of Gaussians.

mod cursor;
mod edit;
mod fault;
mod harmonics;
#[cfg(test)]
mod known_splats;
mod morton;
mod narrow;
mod opacity;
mod place;
mod ply;
mod quaternion;
mod random;
mod splats;
mod worst;

pub use edit::{CropBox, CropSphere};
pub use fault::FormatFault;
pub use ply::{PlyKind, PlySplats, parse_ply, write_packed_ply, write_ply};
pub use place::{PlacementError, ScenePlacement, UpAxis};
pub use quaternion::UnitQuat;
pub use splats::{
    Antialiasing, CheckedSplats, MAX_SH_DEGREE, SH_C0, SplatColumns, Splats, SplatsError,
    sh_rest_count,
};
pub use worst::WorstErrors;
