//! SPZ, the packed format of Niantic: versions 1 to 4 read, 3 and 4 written.
//!
//! After Niantic's description of the format (github.com/nianticlabs/spz, July 2026). Positions are
//! fixed-point, all else is bytes; versions 1 to 3 are one gzip stream, version 4 has a zstd frame for
//! each kind of value.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use splat_mesh::narrow::{half, low_byte, round_i32, round_u8, round_u32, to_f32};

use crate::error::FormatFault;
use crate::geometry::{SmallestThree, UnitQuat, logit_of_byte, normalised, sigmoid};
use crate::parse::ByteCursor;
use crate::place::{PlacementError, ScenePlacement};
use crate::save::{EncodedSplats, WorstErrors};
use crate::splats::{
    Antialiasing, CheckedSplats, MAX_SH_DEGREE, SplatColumns, Splats, sh_rest_count,
};

// The axes of an SPZ, and the way between them and those of the scene.

/// Directions of x, y and z by their letters, numbered from 1 in a file: left or right, up or down, front or
/// back. In the second half, y and z have changed places (nianticlabs/spz, `CoordinateSystem`).
const NAMES: [&str; 16] = [
    "ldb", "rdb", "lub", "rub", "ldf", "rdf", "luf", "ruf", "lfd", "rfd", "lfu", "rfu", "lbd",
    "rbd", "lbu", "rbu",
];

/// The axes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpzAxes {
    /// Index of the name.
    index: usize,
}

/// Right, up, back: the axes of a file that names no others.
impl Default for SpzAxes {
    fn default() -> Self {
        Self { index: 3 }
    }
}

impl SpzAxes {
    /// Right, down, front: the axes of the scene, of COLMAP and of PLY.
    pub const SCENE: Self = Self { index: 5 };

    /// Names of all axes.
    pub const fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// The axes of a name, in small letters.
    pub fn of_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|it| *it == name).map(|index| Self { index })
    }

    /// The name.
    pub fn name(self) -> &'static str {
        NAMES[self.index]
    }

    /// The axes of a number in a file.
    fn of_number(number: u32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        (index < NAMES.len()).then_some(Self { index })
    }

    /// The number in a file.
    fn number(self) -> u32 {
        splat_mesh::narrow::to_u32(self.index) + 1
    }

    /// True if y points up in the file.
    pub fn is_y_up(self) -> bool {
        self.name().as_bytes()[1] == b'u'
    }

    /// Signs of x, y and z between the scene's axes and these, before the quarter turn.
    fn signs(self) -> [f32; 3] {
        let sign = |is_positive: bool| if is_positive { 1.0 } else { -1.0 };
        let letters = self.name().as_bytes();
        // The scene points down and to the front.
        [
            sign(letters[0] == b'r'),
            sign(!matches!(letters[1], b'u' | b'f')),
            sign(!matches!(letters[2], b'u' | b'b')),
        ]
    }

    /// A quarter turn about x if y and z have changed places.
    fn quarter_turn(self) -> Option<ScenePlacement> {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let is_turned = self.index >= NAMES.len() / 2;
        let rotation = [half, half, 0.0, 0.0];
        is_turned.then(|| ScenePlacement { rotation, ..ScenePlacement::default() })
    }

    /// Takes Gaussians from the scene's axes to these.
    fn leave_scene(self, splats: &mut Splats) -> Result<(), PlacementError> {
        splats.mirror(self.signs());
        if let Some(turn) = self.quarter_turn() {
            splats.place(&turn)?;
        }
        Ok(())
    }

    /// Takes Gaussians from these axes to the scene's.
    fn enter_scene(self, splats: &mut Splats) -> Result<(), PlacementError> {
        if let Some(turn) = self.quarter_turn() {
            splats.place(&turn.inverse()?)?;
        }
        splats.mirror(self.signs());
        Ok(())
    }
}

/// Packing of zstd; that of the reference.
const ZSTD_LEVEL: i32 = 12;

/// Bytes of the header of version 4.
const HEADER_BYTES: u32 = 32;

/// Files that unpack to this much are read whatever their size.
const ALWAYS_READ_BYTES: u64 = 16 << 20;

/// Factor up to which larger ones may unpack. Trained scenes reach four.
const MOST_PACKED: u64 = 16;

/// Type of Adobe's record of the axes, which holds their number in four bytes.
const ADOBE_AXES: u32 = 0xADBE_0003;

/// Most bytes that the records of version 3 have.
const MOST_RECORD_BYTES: u64 = 1 << 20;

/// The values of a file by kind, unpacked.
#[derive(Debug)]
struct SpzBlocks {
    header: SpzHeader,
    bytes: Vec<u8>,
    records: Records,
}

/// The extension records of a file.
#[derive(Debug, Default)]
struct Records {
    /// Number of the axes, if the file names any.
    axes: Option<u32>,
    /// Sentences about records that are skipped.
    notes: Vec<String>,
}

impl SpzBlocks {
    /// The bytes of each kind of value.
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

/// Refuses to unpack what cannot be, or what only a bomb unpacks to.
fn check_size(header: &SpzHeader, file_bytes: usize) -> Result<u64, FormatFault> {
    let (raw, file) = (header.raw_bytes(), file_bytes as u64);
    if raw > ALWAYS_READ_BYTES.max(file.saturating_mul(MOST_PACKED)) {
        return Err(FormatFault::damaged(format!(
            "is truncated or no scene: it announces {} Gaussians, {raw} bytes in a file of {file}",
            header.count
        )));
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
        return Err(FormatFault::damaged("is of version 4 of SPZ, but packed as version 3"));
    }
    let raw = check_size(&header, file.len())?;
    let mut bytes = Vec::new();
    (&mut unpacked).take(raw).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < raw {
        return Err(FormatFault::truncated("its table of Gaussians", raw, bytes.len() as u64));
    }
    let mut behind = Vec::new();
    (&mut unpacked).take(MOST_RECORD_BYTES).read_to_end(&mut behind)?;
    // To the end, where gzip has its checksum.
    io::copy(&mut unpacked.take(ALWAYS_READ_BYTES), &mut io::sink())?;
    Ok(SpzBlocks { records: Records::read(&header, &behind), header, bytes })
}

/// Unpacks version 4.
fn unpack_zstd(file: &[u8]) -> Result<SpzBlocks, FormatFault> {
    let mut cursor = ByteCursor::new(file);
    let header = SpzHeader::read(&mut cursor)?;
    if header.version != 4 {
        return Err(FormatFault::damaged("is of an old version of SPZ, but packed as version 4"));
    }
    let table = cursor.u32("the header of SPZ")?;
    cursor.take("the header of SPZ", HEADER_BYTES as usize - 20)?;
    check_size(&header, file.len())?;
    let Some(extensions) = table.checked_sub(HEADER_BYTES) else {
        return Err(FormatFault::damaged(format!("has its table of streams at byte {table}")));
    };
    let extensions = cursor.take("its table of streams", extensions as usize)?;
    let records = Records::read(&header, extensions);
    let due: Vec<usize> = header.row_bytes().into_iter().filter(|&bytes| bytes > 0).collect();
    if usize::from(header.streams) != due.len() {
        return Err(FormatFault::damaged(format!(
            "has {} streams; {} are expected",
            header.streams,
            due.len()
        )));
    }
    let mut streams = Vec::new();
    for row_bytes in due {
        let packed = cursor.u64("its table of streams")?;
        let unpacked = cursor.u64("its table of streams")?;
        let expected = row_bytes as u64 * u64::from(header.count);
        if unpacked != expected {
            return Err(FormatFault::damaged(format!(
                "has a stream of {unpacked} bytes where {expected} are due"
            )));
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
            return Err(FormatFault::truncated("a stream", unpacked, found));
        }
    }
    if cursor.left() > 0 {
        return Err(FormatFault::damaged(format!("has {} bytes behind its end", cursor.left())));
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

/// The record that names axes; none for the usual ones.
fn axes_record(axes: SpzAxes) -> Vec<u8> {
    if axes == SpzAxes::default() {
        return Vec::new();
    }
    [ADOBE_AXES, 4, axes.number()].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// How hard a file is packed.
#[derive(Clone, Copy, Debug)]
enum Effort {
    /// As other programs do, for files that are kept.
    Usual,
    /// In a quarter of the time, and somewhat larger, for what is looked at once.
    Quick,
}

/// Packs as version 3.
fn gzip_blocks(
    header: &SpzHeader,
    kinds: &[Vec<u8>; KINDS],
    axes: SpzAxes,
    effort: Effort,
) -> io::Result<Vec<u8>> {
    let record = axes_record(axes);
    let header = header.with_extensions(!record.is_empty());
    gzip(&[header.bytes(), kinds.concat(), record].concat(), effort)
}

/// Packs a stream.
fn gzip(raw: &[u8], effort: Effort) -> io::Result<Vec<u8>> {
    let level = match effort {
        Effort::Usual => Compression::new(6),
        Effort::Quick => Compression::fast(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(raw)?;
    encoder.finish()
}

/// Packs as version 4.
fn zstd_streams(
    header: &SpzHeader,
    kinds: &[Vec<u8>; KINDS],
    axes: SpzAxes,
) -> io::Result<Vec<u8>> {
    let record = axes_record(axes);
    let header = header.with_extensions(!record.is_empty());
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

/// How version 4 begins, and the unpacked content of the others.
pub(crate) const SPZ_MAGIC: [u8; 4] = *b"NGSP";

/// How versions 1 to 3 begin.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Bytes of the header of versions 1 to 3.
const OLD_HEADER_BYTES: usize = 16;

/// Flag of Gaussians for the 2D filter of Mip-Splatting.
const ANTIALIASED: u8 = 1;

/// Flag of a file with records of other programs.
const HAS_EXTENSIONS: u8 = 2;

/// Kinds of values, in their order: positions, opacities, colours, scales, rotations, harmonics.
const KINDS: usize = 6;

/// The highest degree that the format has.
const MOST_SH_DEGREE: u8 = 4;

/// The words that all versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpzHeader {
    version: u32,
    count: u32,
    sh_degree: u8,
    fraction_bits: u8,
    flags: u8,
    /// Streams of version 4.
    streams: u8,
}

impl SpzHeader {
    /// A header of Gaussians.
    fn flags_of(antialiasing: Antialiasing) -> u8 {
        match antialiasing {
            Antialiasing::Off => 0,
            Antialiasing::On => ANTIALIASED,
        }
    }

    fn antialiasing(&self) -> Antialiasing {
        if self.flags & ANTIALIASED == 0 { Antialiasing::Off } else { Antialiasing::On }
    }

    /// Reads the first 16 bytes.
    fn read(bytes: &mut ByteCursor<'_>) -> Result<Self, FormatFault> {
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
    const fn with_extensions(self, has_extensions: bool) -> Self {
        let flags = self.flags & !HAS_EXTENSIONS | if has_extensions { HAS_EXTENSIONS } else { 0 };
        Self { flags, ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = SPZ_MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend([self.sh_degree, self.fraction_bits, self.flags, self.streams]);
        bytes
    }

    /// Coefficients above degree 0 in the file.
    fn rest_count(&self) -> usize {
        sh_rest_count(self.sh_degree.into())
    }

    /// The degree that is read of it.
    fn kept_degree(&self) -> u32 {
        u32::from(self.sh_degree).min(MAX_SH_DEGREE)
    }

    /// Bytes of a Gaussian by kind of value.
    fn row_bytes(&self) -> [usize; KINDS] {
        let position = if self.version == 1 { 6 } else { 9 };
        let rotation = if self.version < 3 { 3 } else { 4 };
        [position, 1, 3, 3, rotation, 3 * self.rest_count()]
    }

    /// Bytes of all Gaussians.
    fn raw_bytes(&self) -> u64 {
        let row: usize = self.row_bytes().iter().sum();
        u64::from(self.count) * row as u64
    }
}

// SPZ, read.

/// Reads a whole file of version 1 to 4 into the scene's axes. Extensions are lost, and a note tells.
///
/// The file has the given axes, else those that it names, else right, up, back. A file that announces more
/// than 16 MiB and more than 16 times its size is refused.
pub fn parse_spz(bytes: &[u8], axes: Option<SpzAxes>) -> Result<CheckedSplats, FormatFault> {
    let is_old = bytes.starts_with(&GZIP_MAGIC);
    let blocks = if is_old { unpack_gzip(bytes)? } else { unpack_zstd(bytes)? };
    let columns = unpack(&blocks);
    let mut checked = Splats::from_columns(columns)?;
    let named = || {
        match blocks.records.axes {
        // The format calls 0 "unspecified".
        None | Some(0) => Ok(SpzAxes::default()),
        Some(number) => SpzAxes::of_number(number).ok_or_else(|| {
            FormatFault::Unsupported(format!(
                "names axes number {number} (SPZ_ADOBE_coordinate_system); 1 to 16 are known. Name the axes \
                 with --input-spz-axes"
            ))
        }),
    }
    };
    let axes = axes.map_or_else(named, Ok)?;
    let placed = axes.enter_scene(&mut checked.splats);
    placed.map_err(|error| FormatFault::damaged(error.to_string()))?;
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
    columns.antialiasing = header.antialiasing();
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

/// The share of a unit of colour that the coefficient of degree 0 is stored with.
const COLOR_SCALE: f64 = 0.15;

/// Positions have 24 bits with sign.
const MOST_POSITION: i32 = (1 << 23) - 1;

/// Bits of the parts of a rotation, without sign.
const PART_BITS: u32 = 9;
const MOST_PART: u32 = (1 << PART_BITS) - 1;

/// The bits of a fraction, 4 to 16, that leave room for a coordinate of this size.
fn fraction_bits(farthest: f64) -> u8 {
    let fits = |bits: u8| farthest * f64::from(1_u32 << bits) <= f64::from(MOST_POSITION);
    (4..=16).rev().find(|&bits| fits(bits)).unwrap_or(4)
}

fn pack_coordinate(x: f32, fraction_bits: u8) -> [u8; 3] {
    let fixed = round_i32(f64::from(x) * f64::from(1_u32 << fraction_bits));
    let [low, middle, high, _] = fixed.clamp(-MOST_POSITION - 1, MOST_POSITION).to_le_bytes();
    [low, middle, high]
}

fn unpack_coordinate(bytes: [u8; 3], fraction_bits: u8) -> f32 {
    let [low, middle, high] = bytes;
    // The sign stands in the top byte of the word, and is kept by the shift.
    let fixed = i32::from_le_bytes([0, low, middle, high]) >> 8;
    to_f32(f64::from(fixed) / f64::from(1_u32 << fraction_bits))
}

fn pack_color(coefficient: f32) -> u8 {
    round_u8((COLOR_SCALE * f64::from(coefficient) + 0.5) * 255.0)
}

fn unpack_color(byte: u8) -> f32 {
    to_f32((f64::from(byte) / 255.0 - 0.5) / COLOR_SCALE)
}

/// The least logarithm of a scale: smaller ones are stored as this.
pub(crate) const LEAST_SPZ_LOG_SCALE: f32 = -10.0;

/// Logarithms of scales that are stored within half a step.
pub const SPZ_LOG_SCALES: RangeInclusive<f32> =
    LEAST_SPZ_LOG_SCALE - 0.5 / 16.0..=LEAST_SPZ_LOG_SCALE + 255.5 / 16.0;

fn pack_scale(log_scale: f32) -> u8 {
    round_u8((f64::from(log_scale) - f64::from(LEAST_SPZ_LOG_SCALE)) * 16.0)
}

fn unpack_scale(byte: u8) -> f32 {
    f32::from(byte) / 16.0 + LEAST_SPZ_LOG_SCALE
}

/// A coefficient in 256 steps of 1/128 around 128, and of these every `step`th.
fn pack_harmonic(coefficient: f32, step: u8) -> u8 {
    let step = f64::from(step);
    let rounded = ((f64::from(coefficient) * 128.0 + 128.0) / step).round() * step;
    round_u8(rounded.clamp(0.0, 256.0 - step))
}

fn unpack_harmonic(byte: u8) -> f32 {
    (f32::from(byte) - 128.0) / 128.0
}

/// Two bits tell the largest of x, y, z, w; the others take a sign and nine bits each.
fn pack_rotation([w, x, y, z]: UnitQuat) -> [u8; 4] {
    let SmallestThree { largest, others } = SmallestThree::of([x, y, z, w]);
    let index = [0_u32, 1, 2, 3][largest];
    let word = others.iter().fold(index, |word, &part| {
        let size = round_u32(f64::from(MOST_PART) * part.abs() * std::f64::consts::SQRT_2);
        let sign = u32::from(part < 0.0);
        word << (PART_BITS + 1) | sign << PART_BITS | size.min(MOST_PART)
    });
    word.to_le_bytes()
}

fn unpack_rotation(bytes: [u8; 4]) -> UnitQuat {
    let word = u32::from_le_bytes(bytes);
    let others = [20, 10, 0].map(|shift| {
        let part = word >> shift;
        let size = f64::from(part & MOST_PART) / f64::from(MOST_PART);
        let size = size * std::f64::consts::FRAC_1_SQRT_2;
        if part >> PART_BITS & 1 == 0 { size } else { -size }
    });
    let [x, y, z, w] = SmallestThree { largest: (word >> 30) as usize, others }.quat();
    unit([w, x, y, z])
}

/// x, y, z around 127.5, w not negative.
fn unpack_old_rotation(bytes: [u8; 3]) -> UnitQuat {
    let [x, y, z] = bytes.map(|byte| f64::from(byte) / 127.5 - 1.0);
    let w = (1.0 - x * x - y * y - z * z).max(0.0).sqrt();
    unit([w, x, y, z].map(to_f32))
}

fn unit(quat: UnitQuat) -> UnitQuat {
    normalised(quat, 0.0).unwrap_or([1.0, 0.0, 0.0, 0.0])
}

// SPZ, written.

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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::known_splats::{hard_splats, random_splats};
    use crate::save::WorstErrors;
    use crate::splats::{Antialiasing, SplatColumns, Splats};

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
    ) {
        let splats = random_splats(count, sh_degree, 1);
        let options = SpzOptions { version, ..SpzOptions::default() };
        let file = encode_spz(&splats, &options).unwrap();
        let back = read(&file.bytes);
        assert_eq!((back.len(), back.sh_degree()), (count, sh_degree));
        let worst = file.worst;
        assert_eq!(worst, WorstErrors::between(&splats, &back));
        // 10 units leave 16 bits for the fraction; e^-10 to e^6 in steps of 1/16; bytes.
        assert!(worst.position <= 0.5 / 65_536.0 + 1e-6, "{worst:?}");
        assert!(worst.log_scale <= 0.5 / 16.0 + 1e-6, "{worst:?}");
        assert!(worst.opacity < 0.51 / 255.0, "{worst:?}");
        assert!(worst.color < 0.5 / 255.0 / 0.15 * 0.2821 + 1e-6, "{worst:?}");
        assert!(worst.sh <= 0.5 / 128.0 + 1e-6, "{worst:?}");
        // Three parts, each half of 1/(511 √2) off, and the largest up to three times as much:
        // 2 √12 x 0.5 / 722 rad.
        assert!(worst.rotation_degrees < 0.28, "{worst:?}");
    }

    #[test]
    fn extreme_values_are_kept_or_cut_at_the_ends() {
        let splats = hard_splats(300, 1);
        for options in [SpzOptions::default(), v4()] {
            let file = encode_spz(&splats, &options).unwrap();
            assert_eq!(file.worst.position, 0.0);
            assert!(file.worst.log_scale <= 0.5 / 16.0 + 1e-6);
            assert!(file.worst.opacity < 1.0 / 255.0);
        }
    }

    #[test]
    fn places_far_away_get_fewer_bits_for_the_fraction() {
        for (extent, bits) in [(100.0, 16), (200.0, 15), (2000.0, 12), (500_000.0, 4)] {
            let splats = crate::known_splats::splats_at(&[[extent, 0.0, -0.3]]);
            let file = encode_spz(&splats, &v4()).unwrap();
            assert_eq!(file.bytes[13], bits, "{extent}");
            assert!(file.worst.position <= 0.5 / f64::from(1 << bits));
        }
        let beyond = crate::known_splats::splats_at(&[[600_000.0, 0.0, 0.0]]);
        assert!(encode_spz(&beyond, &v4()).unwrap().worst.position > 70_000.0);
    }

    #[test]
    fn harmonics_are_rounded_once_to_the_steps_of_their_bits() {
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
    fn scales_beyond_the_range_are_counted_and_no_error() {
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

    #[test]
    fn the_mode_is_kept() {
        let mut splats = random_splats(10, 3, 3);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let back = read(&encode_spz(&splats, &v4()).unwrap().bytes);
        assert_eq!(back.columns().antialiasing, Antialiasing::On);
    }

    /// The position (1, 2, 3), the rotation (0.1, 0.2, 0.3, 0.927) and the first channel of the harmonics
    /// -23/32 to -9/32, given in these axes, as @adobe/spz 0.2.3 stores them: in right, up, back.
    type InAxes = (&'static str, [f32; 3], [f32; 4], [i8; 15]);
    const IN_RUB: [InAxes; 16] = [
        (
            "ldb",
            [-1., -2., 3.],
            [-0.1, -0.2, 0.3, 0.927],
            [23, -22, 21, -20, 19, -18, 17, -16, 15, -14, 13, -12, 11, -10, 9],
        ),
        (
            "rdb",
            [1., -2., 3.],
            [-0.1, 0.2, -0.3, 0.927],
            [23, -22, -21, 20, 19, -18, -17, -16, 15, 14, 13, -12, -11, -10, -9],
        ),
        (
            "lub",
            [-1., 2., 3.],
            [0.1, -0.2, -0.3, 0.927],
            [-23, -22, 21, 20, -19, -18, 17, -16, -15, 14, -13, -12, 11, -10, 9],
        ),
        (
            "rub",
            [1., 2., 3.],
            [0.1, 0.2, 0.3, 0.927],
            [-23, -22, -21, -20, -19, -18, -17, -16, -15, -14, -13, -12, -11, -10, -9],
        ),
        (
            "ldf",
            [-1., -2., -3.],
            [0.1, 0.2, 0.3, 0.927],
            [23, 22, 21, -20, -19, -18, -17, -16, 15, 14, 13, 12, 11, 10, 9],
        ),
        (
            "rdf",
            [1., -2., -3.],
            [0.1, -0.2, -0.3, 0.927],
            [23, 22, -21, 20, -19, -18, 17, -16, 15, -14, 13, 12, -11, 10, -9],
        ),
        (
            "luf",
            [-1., 2., -3.],
            [-0.1, 0.2, -0.3, 0.927],
            [-23, 22, 21, 20, 19, -18, -17, -16, -15, -14, -13, 12, 11, 10, 9],
        ),
        (
            "ruf",
            [1., 2., -3.],
            [-0.1, -0.2, 0.3, 0.927],
            [-23, 22, -21, -20, 19, -18, 17, -16, -15, 14, -13, 12, -11, 10, -9],
        ),
        (
            "lfd",
            [-1., 3., 2.],
            [0.726, -0.071, -0.354, -0.585],
            [22, 23, 21, -17, -19, 23, -20, 8, -3, 14, -15, -20, -11, -1, -8],
        ),
        (
            "rfd",
            [1., 3., 2.],
            [0.726, 0.071, 0.354, -0.585],
            [22, 23, -21, 17, -19, 23, 20, 8, -3, -14, -15, -20, 12, -1, 9],
        ),
        (
            "lfu",
            [-1., 3., -2.],
            [-0.585, -0.354, -0.071, 0.726],
            [22, -23, 21, -17, 19, 23, 20, 8, -3, -14, -15, 20, -11, 1, -8],
        ),
        (
            "rfu",
            [1., 3., -2.],
            [-0.585, 0.354, 0.071, 0.726],
            [22, -23, -21, 17, 19, 23, -20, 8, -3, 14, -15, 20, 12, 1, 9],
        ),
        (
            "lbd",
            [-1., -3., 2.],
            [-0.585, 0.354, 0.071, 0.726],
            [-22, 23, 21, 17, 19, 23, -20, 8, 3, -14, 15, -20, -11, -1, -8],
        ),
        (
            "rbd",
            [1., -3., 2.],
            [-0.585, -0.354, -0.071, 0.726],
            [-22, 23, -21, -17, 19, 23, 20, 8, 3, 14, 15, -20, 12, -1, 9],
        ),
        (
            "lbu",
            [-1., -3., -2.],
            [0.726, 0.071, 0.354, -0.585],
            [-22, -23, 21, 17, -19, 23, 20, 8, 3, 14, 15, 20, -11, 1, -8],
        ),
        (
            "rbu",
            [1., -3., -2.],
            [0.726, -0.071, -0.354, -0.585],
            [-22, -23, -21, -17, -19, 23, -20, 8, 3, -14, 15, 20, 12, 1, 9],
        ),
    ];

    fn one_splat(mean: [f32; 3], [x, y, z, w]: [f32; 4], rest: &[i8; 15]) -> Splats {
        let columns = SplatColumns {
            sh_degree: 3,
            means: vec![mean],
            log_scales: vec![[-1.0, -2.0, -3.0]],
            rotations: vec![[w, x, y, z]],
            opacity_logits: vec![0.0],
            sh_dc: vec![[0.0; 3]],
            sh_rest: rest.iter().map(|&value| [f32::from(value) / 32.0; 3]).collect(),
            ..SplatColumns::default()
        };
        Splats::from_columns(columns).unwrap().splats
    }

    /// Entries of R S², where R is turned about its own axes by half a turn at will.
    fn shape(splats: &Splats) -> [[f64; 3]; 3] {
        let columns = splats.columns();
        let rows = crate::geometry::matrix(columns.rotations[0].map(f64::from));
        let variances = columns.log_scales[0].map(|log| (2.0 * f64::from(log)).exp());
        std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| rows[i][k] * variances[k] * rows[j][k]).sum())
        })
    }

    #[test]
    fn all_axes_are_those_of_the_format_s_library() {
        let given: [i8; 15] = IN_RUB[3].3;
        for version in [SpzVersion::V3, SpzVersion::V4] {
            for (name, mean, rotation, rest) in &IN_RUB {
                let axes = SpzAxes::of_name(name).unwrap();
                assert_eq!(axes.name(), *name);
                let expected = one_splat(*mean, *rotation, rest);
                // The same bytes, read with their axes and with the format's.
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
                    // The library turns coefficients that are rounded to 1/128, and rounds them again.
                    assert!(
                        (found[0] - expected[0]).abs() < 0.02,
                        "{name}: {found:?} {expected:?}"
                    );
                }
                // A file in these axes names them, and a file without a name is read if they are given.
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
        // Version 1: half floats; 1.5, -2, 0.25. Version 2: fixed-point with 12 bits.
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
            let file = gzip(&raw, Effort::Usual).unwrap();
            let splats = parse_spz(&file, Some(SpzAxes::SCENE)).unwrap().splats;
            assert_eq!(read(&file).columns().means, [[1.5, 2.0, -0.25]]);
            let columns = splats.columns();
            assert_eq!(columns.means, [[1.5, -2.0, 0.25]]);
            assert_eq!(columns.log_scales, [[0.0; 3]]);
            assert!(columns.rotations[0][1] > 0.999, "{:?}", columns.rotations);
        }
    }

    /// A file with its first byte after the magic that holds `from` changed, as version 4 has it.
    fn with_byte(at: usize, value: u8) -> String {
        let mut bytes = encode_spz(&random_splats(20, 1, 4), &v4()).unwrap().bytes;
        bytes[at] = value;
        parse_spz(&bytes, None).unwrap_err().to_string()
    }

    #[rstest]
    #[case(4, 9, "version 9")]
    #[case(8, 255, "a stream of 180 bytes where 2295")]
    #[case(12, 7, "degree")]
    #[case(15, 9, "streams")]
    #[case(16, 1, "table")]
    #[case(40, 255, "stream")]
    fn broken_headers_are_named(#[case] at: usize, #[case] value: u8, #[case] said: &str) {
        let message = with_byte(at, value);
        assert!(message.contains(said), "{message}");
    }

    #[test]
    fn announced_counts_are_checked_before_room_is_taken() {
        let mut raw = b"NGSP".to_vec();
        raw.extend([3_u32, u32::MAX].iter().flat_map(|word| word.to_le_bytes()));
        raw.extend([3, 12, 0, 0]);
        let message = parse_spz(&gzip(&raw, Effort::Usual).unwrap(), None).unwrap_err().to_string();
        assert!(message.contains("4294967295"), "{message}");
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
        let splats = crate::known_splats::splats_at(&[[1.0, 1.0, 1.0]]);
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
            bytes = gzip(&raw, Effort::Usual).unwrap();
        }
        match (parse_spz(&bytes, None), expected) {
            (Ok(read), Ok(y)) => assert_eq!(read.splats.columns().means, [[1.0, y, y]]),
            (Ok(read), Err(note)) => assert!(read.notes[0].contains(note), "{:?}", read.notes),
            (Err(fault), Err(said)) => assert!(fault.to_string().contains(said), "{fault}"),
            (Err(fault), Ok(_)) => panic!("{fault}"),
        }
        // Axes that are given replace those of the file.
        assert_eq!(
            parse_spz(&bytes, Some(SpzAxes::SCENE)).unwrap().splats.columns().means,
            [[1.0; 3]]
        );
    }

    #[test]
    fn coordinates_keep_their_sign_and_their_ends() {
        for (x, bytes) in [(1.0, [0, 16, 0]), (-1.0, [0, 240, 255]), (-2048.0, [0, 0, 128])] {
            assert_eq!(pack_coordinate(x, 12), bytes);
            assert_eq!(unpack_coordinate(bytes, 12), x);
        }
        assert_eq!(pack_coordinate(1e9, 12), [255, 255, 127]);
    }

    #[test]
    fn a_harmonic_of_zero_is_exactly_zero_whatever_its_bits() {
        for step in [1, 2, 4, 8, 16] {
            assert_eq!(unpack_harmonic(pack_harmonic(0.0, step)), 0.0);
        }
        assert_eq!((pack_harmonic(9.0, 1), pack_harmonic(-9.0, 1)), (255, 0));
        assert_eq!(pack_harmonic(9.0, 16), 240);
    }
}
