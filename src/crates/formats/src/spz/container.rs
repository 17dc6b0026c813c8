//! How an SPZ is packed: one gzip stream, or a zstd frame for each kind of value.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::axes::SpzAxes;
use super::header::{HAS_EXTENSIONS, KINDS, OLD_HEADER_BYTES, SpzHeader};
use crate::cursor::ByteCursor;
use crate::fault::FormatFault;

/// Packing of zstd; that of the reference.
const ZSTD_LEVEL: i32 = 12;

/// Bytes of the header of version 4.
const HEADER_BYTES: u32 = 32;

/// Files that unpack to this much are read whatever their size.
const ALWAYS_READ_BYTES: u64 = 16 << 20;

/// Larger ones may unpack to so many times their size. Trained scenes reach four times.
const MOST_PACKED: u64 = 16;

/// Type of Adobe's record of the axes, which holds their number in four bytes.
const ADOBE_AXES: u32 = 0xADBE_0003;

/// Most bytes that the records of version 3 have.
const MOST_RECORD_BYTES: u64 = 1 << 20;

/// The values of a file by kind, unpacked.
#[derive(Debug)]
pub(super) struct SpzBlocks {
    pub(super) header: SpzHeader,
    bytes: Vec<u8>,
    pub(super) records: Records,
}

/// The extension records of a file.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Number of the axes, if the file names any.
    pub(super) axes: Option<u32>,
    /// Sentences about records that are skipped.
    pub(super) notes: Vec<String>,
}

impl SpzBlocks {
    /// The bytes of each kind of value.
    pub(super) fn kinds(&self) -> [&[u8]; KINDS] {
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
pub(super) fn unpack_gzip(file: &[u8]) -> Result<SpzBlocks, FormatFault> {
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
pub(super) fn unpack_zstd(file: &[u8]) -> Result<SpzBlocks, FormatFault> {
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
pub(super) enum Effort {
    /// As other programs do, for files that are kept.
    Usual,
    /// In a quarter of the time, and somewhat larger, for what is looked at once.
    Quick,
}

/// Packs as version 3.
pub(super) fn gzip_blocks(
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
pub(super) fn gzip(raw: &[u8], effort: Effort) -> io::Result<Vec<u8>> {
    let level = match effort {
        Effort::Usual => Compression::new(6),
        Effort::Quick => Compression::fast(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(raw)?;
    encoder.finish()
}

/// Packs as version 4.
pub(super) fn zstd_streams(
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
