//! How an SPZ is packed: one gzip stream, or a zstd frame for each kind of value.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

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

/// Adobe's record of what the axes are.
const ADOBE_AXES: u32 = 0xADBE_0003;

/// The values of a file by kind, unpacked.
#[derive(Debug)]
pub(super) struct SpzBlocks {
    pub(super) header: SpzHeader,
    bytes: Vec<u8>,
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
    // To the end, where gzip has its checksum; more than the records of extensions is not unpacked.
    let behind = io::copy(&mut unpacked.take(ALWAYS_READ_BYTES), &mut io::sink())?;
    let mut notes = Vec::new();
    if behind > 0 && header.flags & HAS_EXTENSIONS != 0 {
        notes.push(format!("{behind} bytes of extensions are passed over"));
    }
    Ok(SpzBlocks { header, bytes, notes })
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
    let notes = extension_notes(&header, extensions);
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
    Ok(SpzBlocks { header, bytes, notes })
}

/// What is lost with the records of other programs.
fn extension_notes(header: &SpzHeader, records: &[u8]) -> Vec<String> {
    let mut notes = Vec::new();
    if header.flags & HAS_EXTENSIONS == 0 {
        return notes;
    }
    let mut cursor = ByteCursor::new(records);
    while let (Ok(kind), Ok(length)) = (cursor.u32("a record"), cursor.u32("a record")) {
        notes.push(match kind {
            ADOBE_AXES => "the file says that its axes are others (SPZ_ADOBE_coordinate_system); \
                           they are taken as they are: turn the scene with --rotate"
                .to_owned(),
            _ => format!("an extension of type {kind:#010x} is passed over"),
        });
        if cursor.take("a record", length as usize).is_err() {
            break;
        }
    }
    notes
}

/// How hard a file is packed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// As other programs do, for files that are kept.
    Usual,
    /// In a quarter of the time, and somewhat larger, for what is looked at once.
    Quick,
}

/// Packs as versions 1 to 3.
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
pub(super) fn zstd_streams(header: &SpzHeader, kinds: &[Vec<u8>; KINDS]) -> io::Result<Vec<u8>> {
    let row_bytes = header.row_bytes();
    let there: Vec<&Vec<u8>> =
        kinds.iter().zip(row_bytes).filter(|(_, bytes)| *bytes > 0).map(|(kind, _)| kind).collect();
    let mut bytes = header.bytes();
    bytes.extend(HEADER_BYTES.to_le_bytes());
    bytes.extend([0; 12]);
    let frames: Vec<Vec<u8>> =
        there.iter().map(|raw| zstd::bulk::compress(raw, ZSTD_LEVEL)).collect::<io::Result<_>>()?;
    for (frame, raw) in frames.iter().zip(&there) {
        bytes.extend((frame.len() as u64).to_le_bytes());
        bytes.extend((raw.len() as u64).to_le_bytes());
    }
    frames.iter().for_each(|frame| bytes.extend(frame));
    Ok(bytes)
}
