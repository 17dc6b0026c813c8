//! Files of Gaussians: read, edited, written.
//!
//! Independent of trainers and devices. In the order of use:
//!
//! | item | purpose |
//! |---|---|
//! | [`read()`] | detects the format by content and returns [`Splats`] |
//! | [`Splats`] | finite Gaussians with unit rotations; crops and transforms them |
//! | [`write()`], [`write_with`] | writes a [`SplatFormat`] and returns the errors of the file |
//! | [`SogTools`], [`SeenFrom`] | search backend for SOG, and the viewpoints of a scene |
//! | `parse_*`, `write_*`, `encode_*` | one format, from and to bytes |
//!
//! | format | written by | loses |
//! |---|---|---|
//! | PLY | [`write_ply`] | nothing |
//! | compressed PLY | [`write_packed_ply`] | precision; harmonics in steps of 1/32 |
//! | .splat | [`write_splat`] | harmonics above degree 0 |
//! | SPZ 3, 4 | [`encode_spz`] | precision |
//! | SOG 2 | [`write_sog`] | precision; harmonics are quantised to a palette |
//! | streamed SOG | [`write_streamed`] | like SOG; adds coarser levels |
//! | glTF | [`write_glb`] | the flag of the 2D filter |
//! | .ksplat | not written | |
//! | HTML | [`write_html`] | precision; cannot be read |
//!
//! [`Splats`] have the axes of COLMAP: right, down, forward. GLB and SPZ ([`SpzAxes`]) have other axes.
//!
//! Surfels ([`SplatPrimitive`]) are stored as a PLY with two scales. Other formats store Gaussians that
//! [`Splats::flatten_for`] made as flat as the format allows, which viewers draw like surfels.

mod antimatter;
mod error;
mod folder;
mod geometry;
mod glb;
mod html;
mod ksplat;
mod open;
mod place;
mod ply;
mod save;
mod sog;
mod splats;
mod spz;
mod streamed;
mod unfinished;

pub use antimatter::{parse_splat, write_splat};
pub use error::{FormatFault, SplatFileError};
pub use folder::{PartSink, PartSource, ZipSink};
pub use geometry::UnitQuat;
pub use glb::{GlbError, parse_glb, write_glb};
pub use html::{HtmlError, HtmlOptions, ServedPage, middle_and_radius, served_page, write_html};
pub use ksplat::parse_ksplat;
pub use open::{ReadSplats, SplatFileKind, folder_of, read, read_with_axes};
pub use place::{CameraSplit, SceneCamera};
pub use place::{PlacementError, ScenePlacement, UpAxis};
pub use ply::{MIP_COMMENT, PlySplats, SURFELS_COMMENT, parse_ply, write_packed_ply, write_ply};
pub use save::WorstErrors;
pub use save::{EncodedSplats, FORMATS, FormatRow, SplatFormat, WriteReport, write, write_with};
pub use sog::{
    CellLists, ColorFit, HeldRows, HostSearch, NearRow, Observations, RowSearch, SeenFrom,
    SharedRows, SogError, SogOptions, SogTools, read_sog, write_sog,
};
pub use splats::{
    Antialiasing, CheckedSplats, CropBox, CropSphere, FLAT_LOG_SCALE, MAX_SH_DEGREE, SH_C0,
    SplatColumns, SplatPrimitive, Splats, SplatsError, sh_rest_count,
};
pub use spz::{
    SPZ_LOG_SCALES, SpzAxes, SpzOptions, SpzOptionsError, SpzVersion, encode_spz, pack_spz,
    parse_spz,
};
pub use streamed::{StreamedOptions, read_streamed, write_streamed};
pub use unfinished::{UnfinishedFile, follow_links, remove_abandoned};
