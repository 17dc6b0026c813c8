//! What an SPZ says before its values.

use crate::cursor::ByteCursor;
use crate::fault::FormatFault;
use crate::splats::{Antialiasing, MAX_SH_DEGREE, sh_rest_count};

/// How version 4 begins, and the unpacked content of the others.
pub(crate) const SPZ_MAGIC: [u8; 4] = *b"NGSP";

/// How versions 1 to 3 begin.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Bytes of the header of versions 1 to 3.
pub(super) const OLD_HEADER_BYTES: usize = 16;

/// Flag of Gaussians for the 2D filter of Mip-Splatting.
const ANTIALIASED: u8 = 1;

/// Flag of a file with records of other programs.
pub(super) const HAS_EXTENSIONS: u8 = 2;

/// Kinds of values, in their order: positions, opacities, colours, scales, rotations, harmonics.
pub(super) const KINDS: usize = 6;

/// The highest degree that the format has.
const MOST_SH_DEGREE: u8 = 4;

/// The words that all versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpzHeader {
    pub(super) version: u32,
    pub(super) count: u32,
    pub(super) sh_degree: u8,
    pub(super) fraction_bits: u8,
    pub(super) flags: u8,
    /// Streams of version 4.
    pub(super) streams: u8,
}

impl SpzHeader {
    /// A header of Gaussians.
    pub(super) fn flags_of(antialiasing: Antialiasing) -> u8 {
        match antialiasing {
            Antialiasing::Off => 0,
            Antialiasing::On => ANTIALIASED,
        }
    }

    pub(super) fn antialiasing(&self) -> Antialiasing {
        if self.flags & ANTIALIASED == 0 { Antialiasing::Off } else { Antialiasing::On }
    }

    /// Reads the first 16 bytes.
    pub(super) fn read(bytes: &mut ByteCursor<'_>) -> Result<Self, FormatFault> {
        let what = "the header of SPZ";
        if bytes.take(what, 4)? != SPZ_MAGIC {
            return Err(FormatFault::damaged("is no SPZ: it does not begin with NGSP"));
        }
        let header = Self {
            version: bytes.u32(what)?,
            count: bytes.u32(what)?,
            sh_degree: bytes.u8(what)?,
            fraction_bits: bytes.u8(what)?,
            flags: bytes.u8(what)?,
            streams: bytes.u8(what)?,
        };
        if !(1..=4).contains(&header.version) {
            return Err(FormatFault::Unsupported(format!(
                "is of version {} of SPZ; 1 to 4 are read: export it as one of these",
                header.version
            )));
        }
        if header.sh_degree > MOST_SH_DEGREE {
            return Err(FormatFault::damaged(format!(
                "has harmonics of degree {}; 0 to {MOST_SH_DEGREE} are expected",
                header.sh_degree
            )));
        }
        if header.fraction_bits > 24 {
            return Err(FormatFault::damaged(format!(
                "has positions with {} bits of fraction; 0 to 24 are expected",
                header.fraction_bits
            )));
        }
        Ok(header)
    }

    /// The header of a file with or without records.
    pub(super) const fn with_extensions(self, has_extensions: bool) -> Self {
        let flags = self.flags & !HAS_EXTENSIONS | if has_extensions { HAS_EXTENSIONS } else { 0 };
        Self { flags, ..self }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = SPZ_MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend([self.sh_degree, self.fraction_bits, self.flags, self.streams]);
        bytes
    }

    /// Coefficients above degree 0 in the file.
    pub(super) fn rest_count(&self) -> usize {
        sh_rest_count(self.sh_degree.into())
    }

    /// The degree that is read of it.
    pub(super) fn kept_degree(&self) -> u32 {
        u32::from(self.sh_degree).min(MAX_SH_DEGREE)
    }

    /// Bytes of a Gaussian by kind of value.
    pub(super) fn row_bytes(&self) -> [usize; KINDS] {
        let position = if self.version == 1 { 6 } else { 9 };
        let rotation = if self.version < 3 { 3 } else { 4 };
        [position, 1, 3, 3, rotation, 3 * self.rest_count()]
    }

    /// Bytes of all Gaussians.
    pub(super) fn raw_bytes(&self) -> u64 {
        let row: usize = self.row_bytes().iter().sum();
        u64::from(self.count) * row as u64
    }
}
