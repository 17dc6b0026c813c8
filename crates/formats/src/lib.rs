//! Files of Gaussians.

mod antimatter;
mod cursor;
mod edit;
mod encoded;
mod fault;
mod folder;
mod harmonics;
mod json;
#[cfg(test)]
mod known_splats;
mod morton;
mod narrow;
mod opacity;
mod place;
mod ply;
mod quaternion;
mod random;
mod sog;
mod splats;
mod spz;
mod worst;

pub use antimatter::{parse_splat, write_splat};
pub use edit::{CropBox, CropSphere};
pub use encoded::EncodedSplats;
pub use fault::FormatFault;
pub use ply::{PlyKind, PlySplats, parse_ply, write_packed_ply, write_ply};
pub use folder::{PartSink, PartSource, ZipSink};
pub use place::{PlacementError, ScenePlacement, UpAxis};
pub use quaternion::UnitQuat;
pub use sog::{SogError, SogOptions, read_sog, write_sog};
pub use splats::{
    Antialiasing, CheckedSplats, MAX_SH_DEGREE, SH_C0, SplatColumns, Splats, SplatsError,
    sh_rest_count,
};
pub use spz::{
    SpzAxes, SpzOptions, SpzOptionsError, SpzVersion, encode_spz, parse_spz,
};
pub use worst::WorstErrors;
