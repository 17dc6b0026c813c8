//! SPZ, the packed format of Niantic. Reads versions 1 to 4 and writes versions 3 and 4.
//!
//! Based on Niantic's specification (github.com/nianticlabs/spz, July 2026). Positions are fixed-point, other values
//! are bytes. Versions 1 to 3 are one gzip stream; version 4 has a zstd frame per kind of value.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use splat_mesh::file::{ByteCursor, Truncated};
use splat_mesh::narrow::{half, low_byte, round_i32, round_u8, round_u32, to_f32};

use crate::error::{FormatFault, damaged};
use crate::geometry::{SmallestThree, UnitQuat, logit_of_byte, normalised, sigmoid};
use crate::place::{PlacementError, ScenePlacement};
use crate::save::{EncodedSplats, WorstErrors};
use crate::splats::{
    Antialiasing, CheckedSplats, MAX_SH_DEGREE, SplatColumns, Splats, sh_rest_count,
};

// Axes of an SPZ and their conversion to the scene's axes.

/// Names of the axes, numbered from 1 in files. Letters are the directions of x, y and z: left or right, up or down,
/// front or back. In the second half, y and z are swapped (nianticlabs/spz, `CoordinateSystem`).
const NAMES: [&str; 16] = [
    "ldb", "rdb", "lub", "rub", "ldf", "rdf", "luf", "ruf", "lfd", "rfd", "lfu", "rfu", "lbd",
    "rbd", "lbu", "rbu",
];

/// Axes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpzAxes {
    /// Index into the names.
    index: usize,
}

/// Right, up, back: the default of the format.
impl Default for SpzAxes {
    fn default() -> Self {
        Self { index: 3 }
    }
}

impl SpzAxes {
    /// Right, down, front: the axes of the scene, of COLMAP and of PLY.
    pub const SCENE: Self = Self { index: 5 };

    /// Returns the names of all axes.
    pub const fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// Returns the axes with this lower-case name.
    pub fn of_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|it| *it == name).map(|index| Self { index })
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        NAMES[self.index]
    }

    /// Returns the axes with this number in a file.
    fn of_number(number: u32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        (index < NAMES.len()).then_some(Self { index })
    }

    fn number(self) -> u32 {
        splat_mesh::narrow::to_u32(self.index) + 1
    }

    /// True if y points up in the file.
    pub fn is_y_up(self) -> bool {
        self.name().as_bytes()[1] == b'u'
    }

    /// Returns the signs of x, y and z relative to the scene, before the quarter turn.
    fn signs(self) -> [f32; 3] {
        let sign = |is_positive: bool| if is_positive { 1.0 } else { -1.0 };
        let letters = self.name().as_bytes();
        // The scene's y is down and z is front.
        [
            sign(letters[0] == b'r'),
            sign(!matches!(letters[1], b'u' | b'f')),
            sign(!matches!(letters[2], b'u' | b'b')),
        ]
    }

    /// Returns a quarter turn about x if y and z are swapped.
    fn quarter_turn(self) -> Option<ScenePlacement> {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let is_turned = self.index >= NAMES.len() / 2;
        let rotation = [half, half, 0.0, 0.0];
        is_turned.then(|| ScenePlacement { rotation, ..ScenePlacement::default() })
    }

    /// Converts Gaussians from the scene's axes to these.
    fn leave_scene(self, splats: &mut Splats) -> Result<(), PlacementError> {
        splats.mirror(self.signs());
        if let Some(turn) = self.quarter_turn() {
            splats.place(&turn)?;
        }
        Ok(())
    }

    /// Converts Gaussians from these axes to the scene's.
    fn enter_scene(self, splats: &mut Splats) -> Result<(), PlacementError> {
        if let Some(turn) = self.quarter_turn() {
            splats.place(&turn.inverse()?)?;
        }
        splats.mirror(self.signs());
        Ok(())
    }
}

/// Compression level of zstd, that of the reference.
const ZSTD_LEVEL: i32 = 12;

/// Header size of version 4, bytes.
const HEADER_BYTES: u32 = 32;

/// Unpacked size up to which files are read at any compression ratio.
const ALWAYS_READ_BYTES: u64 = 16 << 20;

/// Largest compression ratio of larger files. Trained scenes reach four.
const MAX_COMPRESSION: u64 = 16;

/// Type of Adobe's record of the axes, a number of four bytes.
const ADOBE_AXES: u32 = 0xADBE_0003;

/// Largest size of the records of version 3, bytes.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Unpacked values of a file by kind.
#[derive(Debug)]
struct SpzBlocks {
    header: SpzHeader,
    bytes: Vec<u8>,
    records: Records,
}

/// Extension records of a file.
#[derive(Debug, Default)]
struct Records {
    /// Number of the axes, if given.
    axes: Option<u32>,
    /// Messages about skipped records.
    notes: Vec<String>,
}

impl SpzBlocks {
    /// Returns the bytes of each kind of value.
    fn kinds(&self) -> [&[u8]; KINDS] {
        let mut rest = self.bytes.as_slice();
        self.header.row_bytes().map(|row_bytes| {
            let length = (self.header.count as usize * row_bytes).min(rest.len());
            let (block, behind) = rest.split_at(length);
            rest = behind;
            block
        })
    }
}

/// Returns the unpacked size. Rejects implausible sizes, such as those of decompression bombs.
fn check_size(header: &SpzHeader, file_bytes: usize) -> Result<u64, FormatFault> {
    let row: usize = header.row_bytes().iter().sum();
    let (raw, file) = (u64::from(header.count) * row as u64, file_bytes as u64);
    if raw > ALWAYS_READ_BYTES.max(file.saturating_mul(MAX_COMPRESSION)) {
        return damaged(format!(
            "is truncated or no scene: it announces {} Gaussians, {raw} bytes in a file of {file}",
            header.count
        ));
    }
    Ok(raw)
}

/// Unpacks versions 1 to 3.
fn unpack_gzip(file: &[u8]) -> Result<SpzBlocks, FormatFault> {
    let mut unpacked = GzDecoder::new(file);
    let mut start = [0; OLD_HEADER_BYTES];
    unpacked.read_exact(&mut start)?;
    let header = SpzHeader::read(&mut ByteCursor::new(&start))?;
    if header.version > 3 {
        return damaged("is of version 4 of SPZ, but packed as version 3");
    }
    let raw = check_size(&header, file.len())?;
    let mut bytes = Vec::new();
    (&mut unpacked).take(raw).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < raw {
        let found = bytes.len() as u64;
        return Err(Truncated { part: "its table of Gaussians", needed: raw, found }.into());
    }
    let mut behind = Vec::new();
    (&mut unpacked).take(MAX_RECORD_BYTES).read_to_end(&mut behind)?;
    // Read to the end, where gzip verifies its checksum.
    io::copy(&mut unpacked.take(ALWAYS_READ_BYTES), &mut io::sink())?;
    Ok(SpzBlocks { records: Records::read(&header, &behind), header, bytes })
}

/// Unpacks version 4.
fn unpack_zstd(file: &[u8]) -> Result<SpzBlocks, FormatFault> {
    let mut cursor = ByteCursor::new(file);
    let header = SpzHeader::read(&mut cursor)?;
    if header.version != 4 {
        return damaged("is of an old version of SPZ, but packed as version 4");
    }
    let table = cursor.u32("the header of SPZ")?;
    cursor.take("the header of SPZ", HEADER_BYTES as usize - 20)?;
    check_size(&header, file.len())?;
    let Some(extensions) = table.checked_sub(HEADER_BYTES) else {
        return damaged(format!("has its table of streams at byte {table}"));
    };
    let extensions = cursor.take("its table of streams", extensions as usize)?;
    let records = Records::read(&header, extensions);
    let due: Vec<usize> = header.row_bytes().into_iter().filter(|&bytes| bytes > 0).collect();
    if usize::from(header.streams) != due.len() {
        return damaged(format!("has {} streams; {} are expected", header.streams, due.len()));
    }
    let mut streams = Vec::new();
    for row_bytes in due {
        let packed = cursor.u64("its table of streams")?;
        let unpacked = cursor.u64("its table of streams")?;
        let expected = row_bytes as u64 * u64::from(header.count);
        if unpacked != expected {
            return damaged(format!("has a stream of {unpacked} bytes where {expected} are due"));
        }
        streams.push([packed, unpacked]);
    }
    let mut bytes = Vec::new();
    for [packed, unpacked] in streams {
        let length = usize::try_from(packed).unwrap_or(usize::MAX);
        let frame = cursor.take("a stream", length)?;
        let before = bytes.len() as u64;
        zstd::Decoder::with_buffer(frame)?.take(unpacked + 1).read_to_end(&mut bytes)?;
        let found = bytes.len() as u64 - before;
        if found != unpacked {
            return Err(Truncated { part: "a stream", needed: unpacked, found }.into());
        }
    }
    if cursor.left() > 0 {
        return damaged(format!("has {} bytes behind its end", cursor.left()));
    }
    Ok(SpzBlocks { header, bytes, records })
}

impl Records {
    fn read(header: &SpzHeader, bytes: &[u8]) -> Self {
        let mut records = Self::default();
        if header.flags & HAS_EXTENSIONS == 0 {
            return records;
        }
        let mut cursor = ByteCursor::new(bytes);
        while let (Ok(kind), Ok(length)) = (cursor.u32("a record"), cursor.u32("a record")) {
            let Ok(payload) = cursor.take("a record", length as usize) else { break };
            match (kind, payload) {
                (ADOBE_AXES, &[a, b, c, d]) => {
                    records.axes = Some(u32::from_le_bytes([a, b, c, d]))
                }
                _ => records.notes.push(format!("an extension of type {kind:#010x} is skipped")),
            }
        }
        records
    }
}

/// Compression level of gzip for files to keep, the default of other programs.
const GZIP_LEVEL: Compression = Compression::new(6);

fn gzip(raw: &[u8], level: Compression) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(raw)?;
    encoder.finish()
}

/// Packs as version 4.
fn zstd_streams(
    header: &SpzHeader,
    kinds: &[Vec<u8>; KINDS],
    record: &[u8],
) -> io::Result<Vec<u8>> {
    let row_bytes = header.row_bytes();
    let there: Vec<&Vec<u8>> =
        kinds.iter().zip(row_bytes).filter(|(_, bytes)| *bytes > 0).map(|(kind, _)| kind).collect();
    let mut bytes = header.bytes();
    bytes.extend((HEADER_BYTES + splat_mesh::narrow::to_u32(record.len())).to_le_bytes());
    bytes.extend([0; 12]);
    bytes.extend(record);
    let frames: Vec<Vec<u8>> =
        there.iter().map(|raw| zstd::bulk::compress(raw, ZSTD_LEVEL)).collect::<io::Result<_>>()?;
    for (frame, raw) in frames.iter().zip(&there) {
        bytes.extend((frame.len() as u64).to_le_bytes());
        bytes.extend((raw.len() as u64).to_le_bytes());
    }
    frames.iter().for_each(|frame| bytes.extend(frame));
    Ok(bytes)
}

/// Magic bytes of version 4, and of the unpacked content of older versions.
pub(crate) const SPZ_MAGIC: [u8; 4] = *b"NGSP";

/// Magic bytes of versions 1 to 3.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Header size of versions 1 to 3, bytes.
const OLD_HEADER_BYTES: usize = 16;

/// Flag of the 2D filter of Mip-Splatting.
const ANTIALIASED: u8 = 1;

/// Flag of extension records.
const HAS_EXTENSIONS: u8 = 2;

/// Number of kinds of values. Their order: positions, opacities, colours, scales, rotations, harmonics.
const KINDS: usize = 6;

/// Highest SH degree of the format.
const MAX_FORMAT_SH_DEGREE: u8 = 4;

/// Header fields that all versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpzHeader {
    version: u32,
    count: u32,
    sh_degree: u8,
    fraction_bits: u8,
    flags: u8,
    /// Number of streams in version 4.
    streams: u8,
}

impl SpzHeader {
    /// Reads the first 16 bytes.
    fn read(bytes: &mut ByteCursor<'_>) -> Result<Self, FormatFault> {
        let what = "the header of SPZ";
        if bytes.take(what, 4)? != SPZ_MAGIC {
            return damaged("is no SPZ: it does not begin with NGSP");
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
        if header.sh_degree > MAX_FORMAT_SH_DEGREE {
            return damaged(format!(
                "has harmonics of degree {}; 0 to {MAX_FORMAT_SH_DEGREE} are expected",
                header.sh_degree
            ));
        }
        if header.fraction_bits > 24 {
            return damaged(format!(
                "has positions with {} bits of fraction; 0 to 24 are expected",
                header.fraction_bits
            ));
        }
        Ok(header)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = SPZ_MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend([self.sh_degree, self.fraction_bits, self.flags, self.streams]);
        bytes
    }

    /// Returns the number of coefficients above degree 0 in the file.
    fn rest_count(&self) -> usize {
        sh_rest_count(self.sh_degree.into())
    }

    /// Returns the degree that is read; higher coefficients are dropped.
    fn kept_degree(&self) -> u32 {
        u32::from(self.sh_degree).min(MAX_SH_DEGREE)
    }

    /// Returns the bytes per Gaussian for each kind of value.
    fn row_bytes(&self) -> [usize; KINDS] {
        let position = if self.version == 1 { 6 } else { 9 };
        let rotation = if self.version < 3 { 3 } else { 4 };
        [position, 1, 3, 3, rotation, 3 * self.rest_count()]
    }
}

// Reading SPZ.

/// Reads a complete file of version 1 to 4 and converts it to the scene's axes. Extensions are dropped with a note.
///
/// `axes` overrides the axes of the file, which default to right, up, back. Fails if a file announces more than 16 MiB
/// and more than 16 times its size.
pub fn parse_spz(bytes: &[u8], axes: Option<SpzAxes>) -> Result<CheckedSplats, FormatFault> {
    let is_old = bytes.starts_with(&GZIP_MAGIC);
    let blocks = if is_old { unpack_gzip(bytes)? } else { unpack_zstd(bytes)? };
    let mut checked = Splats::from_columns(unpack(&blocks))?;
    let axes = match (axes, blocks.records.axes) {
        (Some(axes), _) => axes,
        // The format defines 0 as "unspecified".
        (None, None | Some(0)) => SpzAxes::default(),
        (None, Some(number)) => SpzAxes::of_number(number).ok_or_else(|| {
            FormatFault::Unsupported(format!(
                "names axes number {number} (SPZ_ADOBE_coordinate_system); 1 to 16 are known. \
                 Name the axes with --input-spz-axes"
            ))
        })?,
    };
    axes.enter_scene(&mut checked.splats)?;
    checked.notes = blocks.records.notes;
    if u32::from(blocks.header.sh_degree) > MAX_SH_DEGREE {
        checked.notes.push(format!("harmonics above degree {MAX_SH_DEGREE} are left out"));
    }
    Ok(checked)
}

fn unpack(blocks: &SpzBlocks) -> SplatColumns {
    let header = &blocks.header;
    let [positions, opacities, colors, scales, rotations, harmonics] = blocks.kinds();
    let mut columns = SplatColumns::with_capacity(header.kept_degree(), header.count as usize);
    if header.flags & ANTIALIASED != 0 {
        columns.antialiasing = Antialiasing::On;
    }
    columns.means.extend(means(header, positions));
    columns.opacity_logits.extend(opacities.iter().map(|&byte| logit_of_byte(byte)));
    let triples = |bytes: &'_ [u8], value: fn(u8) -> f32| -> Vec<[f32; 3]> {
        bytes.as_chunks::<3>().0.iter().map(|triple| triple.map(value)).collect()
    };
    columns.sh_dc = triples(colors, unpack_color);
    columns.log_scales = triples(scales, unpack_scale);
    if header.version < 3 {
        let rows = rotations.as_chunks::<3>().0.iter();
        columns.rotations.extend(rows.map(|row| unpack_old_rotation(*row)));
    } else {
        let rows = rotations.as_chunks::<4>().0.iter();
        columns.rotations.extend(rows.map(|row| unpack_rotation(*row)));
    }
    let (width, kept) = (3 * header.rest_count(), 3 * sh_rest_count(header.kept_degree()));
    if width > 0 {
        for row in harmonics.chunks_exact(width) {
            columns.sh_rest.extend(triples(&row[..kept], unpack_harmonic));
        }
    }
    columns
}

fn means(header: &SpzHeader, positions: &[u8]) -> Vec<[f32; 3]> {
    if header.version == 1 {
        let rows = positions.as_chunks::<6>().0.iter();
        return rows
            .map(|row| [0, 2, 4].map(|i| half(u16::from_le_bytes([row[i], row[i + 1]]))))
            .collect();
    }
    let rows = positions.as_chunks::<9>().0.iter();
    rows.map(|row| {
        [0, 3, 6].map(|i| unpack_coordinate([row[i], row[i + 1], row[i + 2]], header.fraction_bits))
    })
    .collect()
}

/// Scale of coefficients of degree 0 in stored colours.
const COLOR_SCALE: f64 = 0.15;

/// Largest stored coordinate: 24 bits with sign.
const MAX_POSITION: i32 = (1 << 23) - 1;

/// Magnitude bits of a rotation component.
const PART_BITS: u32 = 9;
const MAX_PART: u32 = (1 << PART_BITS) - 1;

/// Returns the number of fraction bits, 4 to 16, that leaves room for a coordinate of this magnitude.
fn fraction_bits(farthest: f64) -> u8 {
    let fits = |bits: u8| farthest * f64::from(1_u32 << bits) <= f64::from(MAX_POSITION);
    (4..=16).rev().find(|&bits| fits(bits)).unwrap_or(4)
}

fn pack_coordinate(x: f32, fraction_bits: u8) -> [u8; 3] {
    let fixed = round_i32(f64::from(x) * f64::from(1_u32 << fraction_bits));
    let [low, middle, high, _] = fixed.clamp(-MAX_POSITION - 1, MAX_POSITION).to_le_bytes();
    [low, middle, high]
}

fn unpack_coordinate(bytes: [u8; 3], fraction_bits: u8) -> f32 {
    let [low, middle, high] = bytes;
    // The shift extends the sign of the top byte.
    let fixed = i32::from_le_bytes([0, low, middle, high]) >> 8;
    to_f32(f64::from(fixed) / f64::from(1_u32 << fraction_bits))
}

fn pack_color(coefficient: f32) -> u8 {
    round_u8((COLOR_SCALE * f64::from(coefficient) + 0.5) * 255.0)
}

fn unpack_color(byte: u8) -> f32 {
    to_f32((f64::from(byte) / 255.0 - 0.5) / COLOR_SCALE)
}

/// Least stored log-scale; smaller ones are clipped.
pub(crate) const LEAST_SPZ_LOG_SCALE: f32 = -10.0;

/// Range of log-scales that are stored within half a step.
pub const SPZ_LOG_SCALES: RangeInclusive<f32> =
    LEAST_SPZ_LOG_SCALE - 0.5 / 16.0..=LEAST_SPZ_LOG_SCALE + 255.5 / 16.0;

fn pack_scale(log_scale: f32) -> u8 {
    round_u8((f64::from(log_scale) - f64::from(LEAST_SPZ_LOG_SCALE)) * 16.0)
}

fn unpack_scale(byte: u8) -> f32 {
    f32::from(byte) / 16.0 + LEAST_SPZ_LOG_SCALE
}

/// Rounds a coefficient to a multiple of `step` among 256 steps of 1/128 around 128.
fn pack_harmonic(coefficient: f32, step: u8) -> u8 {
    let step = f64::from(step);
    let rounded = ((f64::from(coefficient) * 128.0 + 128.0) / step).round() * step;
    round_u8(rounded.clamp(0.0, 256.0 - step))
}

fn unpack_harmonic(byte: u8) -> f32 {
    (f32::from(byte) - 128.0) / 128.0
}

/// Packs the index of the largest of x, y, z, w in two bits, and the others with a sign and nine bits each.
fn pack_rotation([w, x, y, z]: UnitQuat) -> [u8; 4] {
    let SmallestThree { largest, others } = SmallestThree::of([x, y, z, w]);
    let index = [0_u32, 1, 2, 3][largest];
    let word = others.iter().fold(index, |word, &part| {
        let size = round_u32(f64::from(MAX_PART) * part.abs() * std::f64::consts::SQRT_2);
        let sign = u32::from(part < 0.0);
        word << (PART_BITS + 1) | sign << PART_BITS | size.min(MAX_PART)
    });
    word.to_le_bytes()
}

fn unpack_rotation(bytes: [u8; 4]) -> UnitQuat {
    let word = u32::from_le_bytes(bytes);
    let others = [20, 10, 0].map(|shift| {
        let part = word >> shift;
        let size = f64::from(part & MAX_PART) / f64::from(MAX_PART);
        let size = size * std::f64::consts::FRAC_1_SQRT_2;
        if part >> PART_BITS & 1 == 0 { size } else { -size }
    });
    let [x, y, z, w] = SmallestThree { largest: (word >> 30) as usize, others }.quat();
    unit([w, x, y, z])
}

/// Unpacks x, y, z around 127.5, with w >= 0.
fn unpack_old_rotation(bytes: [u8; 3]) -> UnitQuat {
    let [x, y, z] = bytes.map(|byte| f64::from(byte) / 127.5 - 1.0);
    let w = (1.0 - x * x - y * y - z * z).max(0.0).sqrt();
    unit([w, x, y, z].map(to_f32))
}

fn unit(quat: UnitQuat) -> UnitQuat {
    normalised(quat, 0.0).unwrap_or([1.0, 0.0, 0.0, 0.0])
}

// Writing SPZ.

/// Versions that can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpzVersion {
    /// One gzip stream, supported by all viewers.
    #[default]
    V3,
    /// zstd frames: smaller and faster, but supported by few viewers.
    V4,
}

/// Options of an SPZ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpzOptions {
    /// Format version.
    pub version: SpzVersion,
    /// Bits of the harmonics of degree 1 and of higher degrees, 1 to 8.
    pub sh_bits: [u8; 2],
    /// Axes of the file. Stored unless they are the default.
    pub axes: SpzAxes,
}

impl SpzOptions {
    /// Returns the options for this crate's page, which uses the scene's axes.
    pub fn for_page() -> Self {
        Self { axes: SpzAxes::SCENE, ..Self::default() }
    }
}

impl Default for SpzOptions {
    fn default() -> Self {
        Self { version: SpzVersion::default(), sh_bits: [8, 8], axes: SpzAxes::default() }
    }
}

/// Error of invalid options, or of Gaussians that SPZ cannot hold.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SpzOptionsError {
    #[error("SPZ cannot store harmonics in {0} bits: give 1 to 8")]
    ShBits(u8),
    #[error("SPZ cannot hold {0} Gaussians: crop the scene")]
    Count(usize),
    #[error("SPZ cannot be packed: {0}")]
    Pack(#[from] io::Error),
}

/// Encodes Gaussians in their order and returns the errors of the file.
pub fn encode_spz(splats: &Splats, options: &SpzOptions) -> Result<EncodedSplats, SpzOptionsError> {
    let bytes = packed(in_axes(splats, options.axes)?.as_ref(), options, GZIP_LEVEL)?;
    let stored = parse_spz(&bytes, None).map_err(io::Error::other)?.splats;
    Ok(EncodedSplats {
        worst: WorstErrors::between_within(splats, &stored, &SPZ_LOG_SCALES),
        bytes,
    })
}

/// Encodes Gaussians like [`encode_spz`], but about four times faster, with a somewhat larger result and without
/// measuring errors. For temporary files.
pub fn pack_spz(splats: &Splats, options: &SpzOptions) -> Result<Vec<u8>, SpzOptionsError> {
    packed(in_axes(splats, options.axes)?.as_ref(), options, Compression::fast())
}

fn in_axes(splats: &Splats, axes: SpzAxes) -> Result<Cow<'_, Splats>, SpzOptionsError> {
    if axes == SpzAxes::SCENE {
        return Ok(Cow::Borrowed(splats));
    }
    let mut copy = splats.clone();
    axes.leave_scene(&mut copy).map_err(io::Error::other)?;
    Ok(Cow::Owned(copy))
}

/// Encodes Gaussians that are in the axes of the file.
fn packed(
    splats: &Splats,
    options: &SpzOptions,
    level: Compression,
) -> Result<Vec<u8>, SpzOptionsError> {
    if let Some(&bits) = options.sh_bits.iter().find(|bits| !(1..=8).contains(*bits)) {
        return Err(SpzOptionsError::ShBits(bits));
    }
    let columns = splats.columns();
    let farthest =
        columns.means.as_flattened().iter().fold(0.0, |most: f64, &x| most.max(f64::from(x).abs()));
    let (mut record, mut extensions) = (Vec::new(), 0);
    if options.axes != SpzAxes::default() {
        let words = [ADOBE_AXES, 4, options.axes.number()];
        record = words.into_iter().flat_map(u32::to_le_bytes).collect();
        extensions = HAS_EXTENSIONS;
    }
    let filter = if columns.antialiasing == Antialiasing::On { ANTIALIASED } else { 0 };
    let mut header = SpzHeader {
        version: 3,
        count: u32::try_from(splats.len())
            .map_err(|_too_many| SpzOptionsError::Count(splats.len()))?,
        sh_degree: low_byte(splats.sh_degree()),
        fraction_bits: fraction_bits(farthest),
        flags: filter | extensions,
        streams: 0,
    };
    let kinds = pack(splats, &header, options.sh_bits);
    Ok(match options.version {
        SpzVersion::V3 => gzip(&[header.bytes(), kinds.concat(), record].concat(), level)?,
        SpzVersion::V4 => {
            header.version = 4;
            let streams = header.row_bytes().iter().filter(|&&bytes| bytes > 0).count();
            header.streams = low_byte(splat_mesh::narrow::to_u32(streams));
            zstd_streams(&header, &kinds, &record)?
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::splats::known_splats::{hard_splats, random_splats};

    fn v4() -> SpzOptions {
        SpzOptions { version: SpzVersion::V4, ..SpzOptions::default() }
    }

    fn read(bytes: &[u8]) -> Splats {
        parse_spz(bytes, None).unwrap().splats
    }

    #[rstest]
    fn values_are_within_their_steps(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 255, 1025)] count: usize,
        #[values(SpzVersion::V3, SpzVersion::V4)] version: SpzVersion,
        #[values(Antialiasing::Off, Antialiasing::On)] antialiasing: Antialiasing,
    ) {
        let mut splats = random_splats(count, sh_degree, 1);
        splats.columns_mut().antialiasing = antialiasing;
        let options = SpzOptions { version, ..SpzOptions::default() };
        let file = encode_spz(&splats, &options).unwrap();
        let back = read(&file.bytes);
        assert_eq!((back.len(), back.sh_degree()), (count, sh_degree));
        assert_eq!(back.columns().antialiasing, antialiasing);
        let worst = file.worst;
        assert_eq!(worst, WorstErrors::between(&splats, &back));
        // 10 units leave 16 fraction bits; scales e^-10 to e^6 have steps of 1/16; others are bytes.
        assert!(worst.position <= 0.5 / 65_536.0 + 1e-6, "{worst:?}");
        assert!(worst.log_scale <= 0.5 / 16.0 + 1e-6, "{worst:?}");
        assert!(worst.opacity < 0.51 / 255.0, "{worst:?}");
        assert!(worst.color < 0.5 / 255.0 / 0.15 * 0.2821 + 1e-6, "{worst:?}");
        assert!(worst.sh <= 0.5 / 128.0 + 1e-6, "{worst:?}");
        // Three components with errors of half of 1/(511 √2), and up to three times that in the largest: 2 √12 x 0.5 /
        // 722 rad.
        assert!(worst.rotation_degrees < 0.28, "{worst:?}");
    }

    #[test]
    fn extreme_values_are_kept_or_clipped() {
        let splats = hard_splats(300, 1);
        for options in [SpzOptions::default(), v4()] {
            let file = encode_spz(&splats, &options).unwrap();
            assert_eq!(file.worst.position, 0.0);
            assert!(file.worst.log_scale <= 0.5 / 16.0 + 1e-6);
            assert!(file.worst.opacity < 1.0 / 255.0);
        }
    }

    #[test]
    fn distant_positions_have_fewer_fraction_bits() {
        for (extent, bits) in [(100.0, 16), (200.0, 15), (2000.0, 12), (500_000.0, 4)] {
            let splats = crate::splats::known_splats::splats_at(&[[extent, 0.0, -0.3]]);
            let file = encode_spz(&splats, &v4()).unwrap();
            assert_eq!(file.bytes[13], bits, "{extent}");
            assert!(file.worst.position <= 0.5 / f64::from(1 << bits));
        }
        let beyond = crate::splats::known_splats::splats_at(&[[600_000.0, 0.0, 0.0]]);
        assert!(encode_spz(&beyond, &v4()).unwrap().worst.position > 70_000.0);
    }

    #[test]
    fn harmonics_are_rounded_once() {
        let splats = random_splats(200, 3, 2);
        for (bits, expected) in [([8, 8], 1.0), ([7, 6], 4.0), ([5, 4], 16.0)] {
            let options = SpzOptions { sh_bits: bits, ..SpzOptions::default() };
            let file = encode_spz(&splats, &options).unwrap();
            let worst = file.worst.sh * 128.0;
            assert!(worst <= 0.5 * expected + 1e-4 && worst > 0.4 * expected, "{bits:?} {worst}");
            let rest = read(&file.bytes).columns().rest(0).to_vec();
            let step = |degree_bits: u8| f32::from(2_u8.pow(u32::from(8 - degree_bits)));
            assert_eq!((rest[0][0] * 128.0) % step(bits[0]), 0.0);
            assert_eq!((rest[14][2] * 128.0) % step(bits[1]), 0.0);
        }
        let error = encode_spz(&splats, &SpzOptions { sh_bits: [9, 8], ..v4() }).unwrap_err();
        assert!(error.to_string().contains("9"), "{error}");
    }

    #[test]
    fn clipped_scales_are_counted_and_no_error() {
        let mut columns = random_splats(4, 0, 1).into_columns();
        columns.log_scales = vec![
            [-1.0, 0.0, f32::NEG_INFINITY],
            [-14.0, -10.0, 7.0],
            [5.9, -10.03, 5.96],
            [0.0; 3],
        ];
        let splats = Splats::from_columns(columns).unwrap().splats;
        let worst = encode_spz(&splats, &v4()).unwrap().worst;
        assert_eq!(worst.clipped_scales, 3, "e^-inf, e^-14 and e^7");
        assert!(worst.log_scale <= 0.5 / 16.0 + 1e-6, "{worst:?}");
    }

    /// Position (1, 2, 3), rotation (0.1, 0.2, 0.3, 0.927) and first channel of harmonics -23/32 to -9/32 in each of
    /// the axes, converted to right, up, back by @adobe/spz 0.2.3; harmonics in 1/32.
    const IN_RUB: &str = "
        ldb -1 -2 3 -0.1 -0.2 0.3 0.927 23 -22 21 -20 19 -18 17 -16 15 -14 13 -12 11 -10 9
        rdb 1 -2 3 -0.1 0.2 -0.3 0.927 23 -22 -21 20 19 -18 -17 -16 15 14 13 -12 -11 -10 -9
        lub -1 2 3 0.1 -0.2 -0.3 0.927 -23 -22 21 20 -19 -18 17 -16 -15 14 -13 -12 11 -10 9
        rub 1 2 3 0.1 0.2 0.3 0.927 -23 -22 -21 -20 -19 -18 -17 -16 -15 -14 -13 -12 -11 -10 -9
        ldf -1 -2 -3 0.1 0.2 0.3 0.927 23 22 21 -20 -19 -18 -17 -16 15 14 13 12 11 10 9
        rdf 1 -2 -3 0.1 -0.2 -0.3 0.927 23 22 -21 20 -19 -18 17 -16 15 -14 13 12 -11 10 -9
        luf -1 2 -3 -0.1 0.2 -0.3 0.927 -23 22 21 20 19 -18 -17 -16 -15 -14 -13 12 11 10 9
        ruf 1 2 -3 -0.1 -0.2 0.3 0.927 -23 22 -21 -20 19 -18 17 -16 -15 14 -13 12 -11 10 -9
        lfd -1 3 2 0.726 -0.071 -0.354 -0.585 22 23 21 -17 -19 23 -20 8 -3 14 -15 -20 -11 -1 -8
        rfd 1 3 2 0.726 0.071 0.354 -0.585 22 23 -21 17 -19 23 20 8 -3 -14 -15 -20 12 -1 9
        lfu -1 3 -2 -0.585 -0.354 -0.071 0.726 22 -23 21 -17 19 23 20 8 -3 -14 -15 20 -11 1 -8
        rfu 1 3 -2 -0.585 0.354 0.071 0.726 22 -23 -21 17 19 23 -20 8 -3 14 -15 20 12 1 9
        lbd -1 -3 2 -0.585 0.354 0.071 0.726 -22 23 21 17 19 23 -20 8 3 -14 15 -20 -11 -1 -8
        rbd 1 -3 2 -0.585 -0.354 -0.071 0.726 -22 23 -21 -17 19 23 20 8 3 14 15 -20 12 -1 9
        lbu -1 -3 -2 0.726 0.071 0.354 -0.585 -22 -23 21 17 -19 23 20 8 3 14 15 20 -11 1 -8
        rbu 1 -3 -2 0.726 -0.071 -0.354 -0.585 -22 -23 -21 -17 -19 23 -20 8 3 -14 15 20 12 1 9";

    /// Returns the name of the axes, and the Gaussian of a row of [`IN_RUB`].
    fn in_rub(row: &str) -> (&str, Splats) {
        let (name, numbers) = row.trim().split_once(' ').unwrap();
        let numbers: Vec<f32> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let (&mean, rest) = numbers.split_first_chunk().unwrap();
        let (&rotation, rest) = rest.split_first_chunk().unwrap();
        (name, one_splat(mean, rotation, rest))
    }

    fn one_splat(mean: [f32; 3], [x, y, z, w]: [f32; 4], rest: &[f32]) -> Splats {
        let columns = SplatColumns {
            sh_degree: 3,
            means: vec![mean],
            log_scales: vec![[-1.0, -2.0, -3.0]],
            rotations: vec![[w, x, y, z]],
            opacity_logits: vec![0.0],
            sh_dc: vec![[0.0; 3]],
            sh_rest: rest.iter().map(|&value| [value / 32.0; 3]).collect(),
            ..SplatColumns::default()
        };
        Splats::from_columns(columns).unwrap().splats
    }

    /// Returns R S² Rᵀ, which does not depend on half turns of R about its own axes.
    fn shape(splats: &Splats) -> [[f64; 3]; 3] {
        let columns = splats.columns();
        let rows = crate::geometry::matrix(columns.rotations[0].map(f64::from));
        let variances = columns.log_scales[0].map(|log| (2.0 * f64::from(log)).exp());
        std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| rows[i][k] * variances[k] * rows[j][k]).sum())
        })
    }

    #[test]
    fn axes_match_the_reference_library() {
        let given: Vec<f32> = (9_u8..24).rev().map(|value| -f32::from(value)).collect();
        for version in [SpzVersion::V3, SpzVersion::V4] {
            for (name, expected) in IN_RUB.trim().lines().map(in_rub) {
                let axes = SpzAxes::of_name(name).unwrap();
                assert_eq!(axes.name(), name);
                // Equal bytes, read with their axes and with the default axes.
                let mut scene = one_splat([1.0, 2.0, 3.0], [0.1, 0.2, 0.3, 0.927], &given);
                axes.enter_scene(&mut scene).unwrap();
                let options = SpzOptions { version, ..SpzOptions::default() };
                let in_rub = encode_spz(&scene, &options).unwrap().bytes;
                let raw = parse_spz(&in_rub, Some(SpzAxes::SCENE)).unwrap().splats;
                assert_eq!(raw.columns().means, expected.columns().means, "{name}");
                for (found, expected) in
                    shape(&raw).as_flattened().iter().zip(shape(&expected).as_flattened())
                {
                    assert!((found - expected).abs() < 1e-3, "{name}: {found} {expected}");
                }
                let pairs = raw.columns().sh_rest.iter().zip(&expected.columns().sh_rest);
                for (found, expected) in pairs {
                    // The library rotates coefficients rounded to 1/128 and rounds again.
                    assert!(
                        (found[0] - expected[0]).abs() < 0.02,
                        "{name}: {found:?} {expected:?}"
                    );
                }
                // A file stores its axes, and they can be overridden.
                let own = encode_spz(&scene, &SpzOptions { axes, version, ..options }).unwrap();
                let back = read(&own.bytes);
                assert!(own.worst.position < 1e-5 && own.worst.rotation_degrees < 0.28, "{name}");
                assert!(
                    (back.columns().sh_rest[4][0] - scene.columns().sh_rest[4][0]).abs() < 0.02
                );
                assert_eq!(parse_spz(&own.bytes, Some(axes)).unwrap().splats, back, "{name}");
                let raw = parse_spz(&own.bytes, Some(SpzAxes::SCENE)).unwrap().splats;
                assert_eq!(raw.columns().means, [[1.0, 2.0, 3.0]], "{name}");
            }
        }
    }

    #[test]
    fn old_versions_are_read() {
        // Version 1: halves 1.5, -2, 0.25. Version 2: fixed-point with 12 bits.
        let halves: [u16; 3] = [0x3e00, 0xc000, 0x3400];
        let fixed = [6144_i32, -8192, 1024];
        for version in [1_u32, 2] {
            let mut raw = b"NGSP".to_vec();
            raw.extend(version.to_le_bytes());
            raw.extend(1_u32.to_le_bytes());
            raw.extend([0, 12, 0, 0]);
            match version {
                1 => raw.extend(halves.iter().flat_map(|half| half.to_le_bytes())),
                _ => raw.extend(fixed.iter().flat_map(|x| x.to_le_bytes()[..3].to_vec())),
            }
            raw.extend([128, 128, 128, 128, 160, 160, 160, 255, 128, 128]);
            let file = gzip(&raw, GZIP_LEVEL).unwrap();
            let splats = parse_spz(&file, Some(SpzAxes::SCENE)).unwrap().splats;
            assert_eq!(read(&file).columns().means, [[1.5, 2.0, -0.25]]);
            let columns = splats.columns();
            assert_eq!(columns.means, [[1.5, -2.0, 0.25]]);
            assert_eq!(columns.log_scales, [[0.0; 3]]);
            assert!(columns.rotations[0][1] > 0.999, "{:?}", columns.rotations);
        }
    }

    #[rstest]
    #[case(4, 9, "version 9")]
    #[case(8, 255, "a stream of 180 bytes where 2295")]
    #[case(12, 7, "degree")]
    #[case(15, 9, "streams")]
    #[case(16, 1, "table")]
    #[case(40, 255, "stream")]
    fn broken_headers_are_named(#[case] at: usize, #[case] value: u8, #[case] expected: &str) {
        let mut bytes = encode_spz(&random_splats(20, 1, 4), &v4()).unwrap().bytes;
        bytes[at] = value;
        let message = parse_spz(&bytes, None).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[rstest]
    #[case(0xADBE_0003, 6, Ok(1.0))]
    #[case(0xADBE_0003, 4, Ok(-1.0))]
    #[case(0xADBE_0003, 0, Ok(-1.0))]
    #[case(0xADBE_0003, 17, Err("axes number 17"))]
    #[case(0xADBE_0002, 6, Err("0xadbe0002 is skipped"))]
    fn records_are_read(
        #[case] kind: u32,
        #[case] value: u32,
        #[case] expected: Result<f32, &str>,
        #[values(SpzVersion::V3, SpzVersion::V4)] version: SpzVersion,
    ) {
        let splats = crate::splats::known_splats::splats_at(&[[1.0, 1.0, 1.0]]);
        let options = SpzOptions { axes: SpzAxes::SCENE, version, ..SpzOptions::default() };
        let mut bytes = encode_spz(&splats, &options).unwrap().bytes;
        let record: Vec<u8> = [kind, 4, value].into_iter().flat_map(u32::to_le_bytes).collect();
        if version == SpzVersion::V4 {
            bytes[32..44].copy_from_slice(&record);
        } else {
            let mut raw = Vec::new();
            Read::read_to_end(&mut GzDecoder::new(&*bytes), &mut raw).unwrap();
            let start = raw.len() - record.len();
            raw[start..].copy_from_slice(&record);
            bytes = gzip(&raw, GZIP_LEVEL).unwrap();
        }
        match (parse_spz(&bytes, None), expected) {
            (Ok(read), Ok(y)) => assert_eq!(read.splats.columns().means, [[1.0, y, y]]),
            (Ok(read), Err(note)) => assert!(read.notes[0].contains(note), "{:?}", read.notes),
            (Err(fault), Err(text)) => assert!(fault.to_string().contains(text), "{fault}"),
            (Err(fault), Ok(_)) => panic!("{fault}"),
        }
        // Given axes override those of the file.
        assert_eq!(
            parse_spz(&bytes, Some(SpzAxes::SCENE)).unwrap().splats.columns().means,
            [[1.0; 3]]
        );
    }

    #[test]
    fn coordinates_keep_their_sign_and_clip() {
        for (x, bytes) in [(1.0, [0, 16, 0]), (-1.0, [0, 240, 255]), (-2048.0, [0, 0, 128])] {
            assert_eq!(pack_coordinate(x, 12), bytes);
            assert_eq!(unpack_coordinate(bytes, 12), x);
        }
        assert_eq!(pack_coordinate(1e9, 12), [255, 255, 127]);
    }

    #[test]
    fn zero_harmonics_stay_zero_at_any_bits() {
        for step in [1, 2, 4, 8, 16] {
            assert_eq!(unpack_harmonic(pack_harmonic(0.0, step)), 0.0);
        }
        assert_eq!((pack_harmonic(9.0, 1), pack_harmonic(-9.0, 1)), (255, 0));
        assert_eq!(pack_harmonic(9.0, 16), 240);
    }
}
