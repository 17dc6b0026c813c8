//! SPZ, written.

use std::io;

use super::container::{Effort, gzip, zstd_streams};
use super::header::{KINDS, SpzHeader};
use super::read::parse_spz;
use super::rows::{
    fraction_bits, pack_color, pack_coordinate, pack_harmonic, pack_rotation, pack_scale,
};
use crate::encoded::EncodedSplats;
use crate::narrow::{low_byte, round_u8};
use crate::opacity::sigmoid;
use crate::place::ScenePlacement;
use crate::splats::{Splats, sh_rest_count};
use crate::worst::WorstErrors;

/// Versions that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpzVersion {
    /// One gzip stream: read by all viewers.
    #[default]
    V3,
    /// zstd frames: smaller and quicker, read by few viewers yet.
    V4,
}

/// The axes of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpzAxes {
    /// Those of the scene, as other converters leave them.
    #[default]
    Unchanged,
    /// Turned by half a turn about x, from COLMAP's (right, down, forward) to what the description of
    /// the format says (right, up, back).
    RightUpBack,
}

/// How an SPZ is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpzOptions {
    /// Its version.
    pub version: SpzVersion,
    /// Bits of the harmonics of degree 1 and of those above, 1 to 8.
    pub sh_bits: [u8; 2],
    /// Its axes.
    pub axes: SpzAxes,
}

impl Default for SpzOptions {
    fn default() -> Self {
        Self { version: SpzVersion::default(), sh_bits: [8, 8], axes: SpzAxes::default() }
    }
}

/// Options that no SPZ has, or Gaussians that none holds.
#[derive(Debug, thiserror::Error)]
pub enum SpzOptionsError {
    /// Bits that no byte has.
    #[error("SPZ cannot store harmonics in {0} bits: give 1 to 8")]
    ShBits(u8),
    /// More than 32 bits count.
    #[error("SPZ cannot hold {0} Gaussians: crop the scene")]
    Count(usize),
    /// The packer fails.
    #[error("SPZ cannot be packed: {0}")]
    Pack(#[from] io::Error),
}

/// Packs Gaussians in the order in which they stand, and says how far from them the file is.
pub fn encode_spz(splats: &Splats, options: &SpzOptions) -> Result<EncodedSplats, SpzOptionsError> {
    let turned = turned(splats, options.axes)?;
    let splats = turned.as_ref().unwrap_or(splats);
    let bytes = packed(splats, options, Effort::Usual)?;
    let stored = parse_spz(&bytes).map_err(io::Error::other)?.splats;
    Ok(EncodedSplats { worst: WorstErrors::between(splats, &stored), bytes })
}

/// Packs Gaussians as [`encode_spz`] does, but quickly, and reads nothing back: for those that are looked at
/// for seconds.
pub fn pack_spz(splats: &Splats, options: &SpzOptions) -> Result<Vec<u8>, SpzOptionsError> {
    let turned = turned(splats, options.axes)?;
    packed(turned.as_ref().unwrap_or(splats), options, Effort::Quick)
}

/// A copy with other axes, where the file has others.
fn turned(splats: &Splats, axes: SpzAxes) -> Result<Option<Splats>, SpzOptionsError> {
    match axes {
        SpzAxes::Unchanged => Ok(None),
        SpzAxes::RightUpBack => {
            let mut copy = splats.clone();
            let rotation = [0.0, 1.0, 0.0, 0.0];
            copy.place(&ScenePlacement { rotation, ..ScenePlacement::default() })
                .map_err(io::Error::other)?;
            Ok(Some(copy))
        }
    }
}

/// The bytes of Gaussians whose axes are those of the file.
fn packed(
    splats: &Splats,
    options: &SpzOptions,
    effort: Effort,
) -> Result<Vec<u8>, SpzOptionsError> {
    if let Some(&bits) = options.sh_bits.iter().find(|bits| !(1..=8).contains(*bits)) {
        return Err(SpzOptionsError::ShBits(bits));
    }
    let columns = splats.columns();
    let farthest =
        columns.means.as_flattened().iter().fold(0.0, |most: f64, &x| most.max(f64::from(x).abs()));
    let mut header = SpzHeader {
        version: 3,
        count: u32::try_from(splats.len())
            .map_err(|_too_many| SpzOptionsError::Count(splats.len()))?,
        sh_degree: low_byte(splats.sh_degree()),
        fraction_bits: fraction_bits(farthest),
        flags: SpzHeader::flags_of(columns.antialiasing),
        streams: 0,
    };
    let kinds = pack(splats, &header, options.sh_bits);
    Ok(match options.version {
        SpzVersion::V3 => gzip(&[header.bytes(), kinds.concat()].concat(), effort)?,
        SpzVersion::V4 => {
            header.version = 4;
            let streams = header.row_bytes().iter().filter(|&&bytes| bytes > 0).count();
            header.streams = low_byte(crate::narrow::to_u32(streams));
            zstd_streams(&header, &kinds)?
        }
    })
}

fn pack(splats: &Splats, header: &SpzHeader, sh_bits: [u8; 2]) -> [Vec<u8>; KINDS] {
    let columns = splats.columns();
    let means = columns.means.as_flattened().iter();
    let opacities = columns.opacity_logits.iter();
    let colors = columns.sh_dc.as_flattened().iter();
    let scales = columns.log_scales.as_flattened().iter();
    let steps = sh_bits.map(|bits| 1_u8 << (8 - bits));
    let width = sh_rest_count(header.sh_degree.into());
    let harmonics = columns.sh_rest.iter().enumerate().flat_map(|(at, coefficient)| {
        let step = steps[usize::from(at % width >= sh_rest_count(1))];
        coefficient.map(|value| pack_harmonic(value, step))
    });
    [
        means.flat_map(|&x| pack_coordinate(x, header.fraction_bits)).collect(),
        opacities.map(|&logit| round_u8(255.0 * sigmoid(logit))).collect(),
        colors.map(|&c| pack_color(c)).collect(),
        scales.map(|&scale| pack_scale(scale)).collect(),
        columns.rotations.iter().flat_map(|&quat| pack_rotation(quat)).collect(),
        harmonics.collect(),
    ]
}
