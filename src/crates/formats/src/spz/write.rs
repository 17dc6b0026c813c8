//! SPZ, written.

use std::borrow::Cow;
use std::io;

use super::axes::SpzAxes;
use super::container::{Effort, gzip_blocks, zstd_streams};
use super::header::{KINDS, SpzHeader};
use super::read::parse_spz;
use super::rows::{
    SPZ_LOG_SCALES, fraction_bits, pack_color, pack_coordinate, pack_harmonic, pack_rotation,
    pack_scale,
};
use crate::encoded::EncodedSplats;
use crate::opacity::sigmoid;
use crate::splats::{Splats, sh_rest_count};
use crate::worst::WorstErrors;
use splat_mesh::narrow::{low_byte, round_u8};

/// Versions that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpzVersion {
    /// One gzip stream: read by all viewers.
    #[default]
    V3,
    /// zstd frames: smaller and quicker, read by few viewers yet.
    V4,
}

/// How an SPZ is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpzOptions {
    /// Its version.
    pub version: SpzVersion,
    /// Bits of the harmonics of degree 1 and of those above, 1 to 8.
    pub sh_bits: [u8; 2],
    /// Its axes. The file names them unless they are right, up, back.
    pub axes: SpzAxes,
}

impl SpzOptions {
    /// The options of a file for our own page, which draws a file in the scene's axes.
    pub fn for_page() -> Self {
        Self { axes: SpzAxes::SCENE, ..Self::default() }
    }
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
    let bytes = packed(in_axes(splats, options.axes)?.as_ref(), options, Effort::Usual)?;
    let stored = parse_spz(&bytes, None).map_err(io::Error::other)?.splats;
    Ok(EncodedSplats {
        worst: WorstErrors::between_within(splats, &stored, &SPZ_LOG_SCALES),
        bytes,
    })
}

/// Packs Gaussians as [`encode_spz`] does, but quickly, and reads nothing back: for those that are looked at
/// for seconds.
pub fn pack_spz(splats: &Splats, options: &SpzOptions) -> Result<Vec<u8>, SpzOptionsError> {
    packed(in_axes(splats, options.axes)?.as_ref(), options, Effort::Quick)
}

/// The Gaussians in the axes of the file.
fn in_axes(splats: &Splats, axes: SpzAxes) -> Result<Cow<'_, Splats>, SpzOptionsError> {
    if axes == SpzAxes::SCENE {
        return Ok(Cow::Borrowed(splats));
    }
    let mut copy = splats.clone();
    axes.leave_scene(&mut copy).map_err(io::Error::other)?;
    Ok(Cow::Owned(copy))
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
        SpzVersion::V3 => gzip_blocks(&header, &kinds, options.axes, effort)?,
        SpzVersion::V4 => {
            header.version = 4;
            let streams = header.row_bytes().iter().filter(|&&bytes| bytes > 0).count();
            header.streams = low_byte(splat_mesh::narrow::to_u32(streams));
            zstd_streams(&header, &kinds, options.axes)?
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
