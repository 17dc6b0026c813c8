//! Tensors in a file of `PyTorch`, as `torch.save` writes a `state_dict()`. Nothing in it is run.
//!
//! Since version 1.6 that is a zip: `data.pkl`, a pickle that describes the tensors, and their values
//! in `data/0`, `data/1` and so on. Before, it was a row of pickles (a magic number, the version of the
//! format, what machine wrote it, the description, the keys of the storages), and then the values of each
//! storage with their number before them. The first versions wrote tar archives, which are not read.

mod pickle;
mod tensors;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};

use self::pickle::{LENGTH_MAX, Pickle, PickleValue};
use self::tensors::{StoredTensor, storages, tensors};

/// How a row of pickles begins: with the magic number 0x1950a86a20f9469cfc6c.
const MAGIC: [u8; 15] =
    [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];

/// How a zip begins.
const ZIP: &[u8] = b"PK\x03\x04";

/// What a tar archive has at byte 257.
const TAR: &[u8] = b"ustar";

/// The kind of storage that weights are read from.
const FLOATS: &str = "FloatStorage";

/// Bytes of a value of the kinds of storages.
const VALUE_BYTES: [(&str, u64); 9] = [
    (FLOATS, 4),
    ("DoubleStorage", 8),
    ("HalfStorage", 2),
    ("BFloat16Storage", 2),
    ("LongStorage", 8),
    ("IntStorage", 4),
    ("ShortStorage", 2),
    ("CharStorage", 1),
    ("ByteStorage", 1),
];

/// Where something lies in the file.
#[derive(Clone, Copy, Debug)]
struct FileRange {
    start: u64,
    length: u64,
}

/// An open file of `PyTorch`.
#[derive(Debug)]
pub(super) struct TorchFile {
    file: File,
    tensors: BTreeMap<String, StoredTensor>,
    /// The values of each storage.
    storages: BTreeMap<String, FileRange>,
}

impl TorchFile {
    /// Whether a file that begins like this is one of `PyTorch`.
    pub(super) fn is_one(head: &[u8]) -> bool {
        head.starts_with(ZIP) || head.starts_with(&MAGIC) || is_tar(head)
    }

    /// Reads what the file says of its tensors, and of their values none.
    pub(super) fn open(mut file: File) -> Result<Self, String> {
        let mut head = Vec::new();
        file.by_ref().take(512).read_to_end(&mut head).map_err(|error| unreadable(&error))?;
        if is_tar(&head) {
            return Err(
                "it is a tar archive of a PyTorch before 0.1.10, which is not read. Load it with \
                        torch.load and save it with torch.save of a newer PyTorch"
                    .to_owned(),
            );
        }
        if head.starts_with(ZIP) { Self::from_zip(file) } else { Self::from_pickles(file) }
    }

    fn from_zip(file: File) -> Result<Self, String> {
        let broken = |error: rawzip::Error| format!("the zip cannot be read: {error}");
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file, &mut buffer).map_err(broken)?;
        let mut members = BTreeMap::new();
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(broken)? {
            if entry.compression_method() == CompressionMethod::STORE {
                let name = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
                let data = archive.get_entry(entry.wayfinder()).map_err(broken)?;
                let (start, end) = data.compressed_data_range();
                members.insert(name, FileRange { start, length: end.saturating_sub(start) });
            }
        }
        let mut file = archive.into_inner().into_inner();
        let folder = members.keys().find_map(|name| name.strip_suffix("data.pkl"));
        let folder = folder.ok_or("the zip holds no data.pkl, as torch.save writes it")?.to_owned();
        let order = members.get(&format!("{folder}byteorder"));
        if order.is_some_and(|&order| read(&mut file, order).is_ok_and(|order| order == b"big")) {
            return Err(BIG_ENDIAN.to_owned());
        }
        let described = members[&format!("{folder}data.pkl")];
        let described = FileRange { length: described.length.min(LENGTH_MAX as u64), ..described };
        let pickle = Pickle::read(&read(&mut file, described)?)?;
        let within = format!("{folder}data/");
        let storages = members
            .iter()
            .filter_map(|(name, &extent)| Some((name.strip_prefix(&within)?.to_owned(), extent)));
        Ok(Self { storages: storages.collect(), tensors: tensors(&pickle)?, file })
    }

    fn from_pickles(mut file: File) -> Result<Self, String> {
        let length = file.seek(SeekFrom::End(0)).map_err(|error| unreadable(&error))?;
        let all = FileRange { start: 0, length: length.min(LENGTH_MAX as u64) };
        let bytes = read(&mut file, all)?;
        let mut at = 0;
        let mut next = || {
            let pickle = Pickle::read(&bytes[at..])?;
            at += pickle.length;
            Ok::<Pickle, String>(pickle)
        };
        let [_magic, _version, machine, described, keys] =
            [next()?, next()?, next()?, next()?, next()?];
        if is_big_endian(&machine) {
            return Err(BIG_ENDIAN.to_owned());
        }
        let PickleValue::List(listed) = keys.root() else {
            return Err("it does not list its storages".to_owned());
        };
        let known = storages(&described);
        let mut storages = BTreeMap::new();
        let mut start = at as u64;
        for &key in listed {
            let key = keys.text(key).ok_or("it has a storage without a name")?;
            let kind = known.get(key).map(|storage| storage.kind.as_str());
            let value_bytes = VALUE_BYTES.iter().find(|(name, _)| Some(*name) == kind);
            let Some((_, value_bytes)) = value_bytes else {
                return Err(format!("it has values of an unknown kind, {}", kind.unwrap_or(key)));
            };
            let count = read(&mut file, FileRange { start, length: 8 })?;
            let count = count.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
            let extent = FileRange { start: start + 8, length: count.saturating_mul(*value_bytes) };
            start = extent.start.saturating_add(extent.length);
            if start > length {
                return Err(BREAKS_OFF.to_owned());
            }
            storages.insert(key.to_owned(), extent);
        }
        Ok(Self { storages, tensors: tensors(&described)?, file })
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Kind and shape of a tensor, as errors say it.
    pub(super) fn kind(&self, name: &str) -> Option<(&str, &[u64])> {
        let tensor = self.tensors.get(name)?;
        let kind = if tensor.storage.kind == FLOATS { "F32" } else { tensor.storage.kind.as_str() };
        Some((kind, &tensor.shape))
    }

    /// The values of a tensor of `F32`, the last axis fastest.
    pub(super) fn values(&mut self, name: &str) -> Result<Vec<f32>, String> {
        let tensor = self.tensors.get(name).ok_or("is missing")?;
        let extent = self.storages.get(&tensor.storage.key).ok_or("has no values in the file")?;
        let places = places(tensor, extent.length / 4).ok_or("reaches beyond its values")?;
        // Only the part of the storage that the tensor is a view of.
        let first = places.iter().min().copied().unwrap_or(0);
        let last = places.iter().max().copied().unwrap_or(0);
        let part = FileRange { start: extent.start + 4 * first, length: 4 * (last + 1 - first) };
        let bytes = read(&mut self.file, part)?;
        let value = |place: &u64| {
            let at = usize::try_from(4 * (place - first)).ok()?;
            Some(f32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let values: Option<Vec<f32>> = places.iter().map(value).collect();
        Ok(values.ok_or("reaches beyond its values")?)
    }
}

/// Numbers of this machine are written the other way round.
const BIG_ENDIAN: &str = "it was written on a big-endian machine, whose numbers are not read";

/// The end of the file is missing.
const BREAKS_OFF: &str = "the file breaks off";

fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(TAR)
}

fn unreadable(error: &io::Error) -> String {
    format!("it cannot be read: {error}")
}

fn read(file: &mut File, extent: FileRange) -> Result<Vec<u8>, String> {
    file.seek(SeekFrom::Start(extent.start)).map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    file.by_ref()
        .take(extent.length)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    if (bytes.len() as u64) < extent.length { Err(BREAKS_OFF.to_owned()) } else { Ok(bytes) }
}

/// What the third pickle says of the order of bytes.
fn is_big_endian(machine: &Pickle) -> bool {
    let entries = machine.entries(machine.root()).unwrap_or_default();
    let order = entries.iter().find(|[key, _]| machine.text(*key) == Some("little_endian"));
    order.is_some_and(|&[_, value]| *machine.value(value) == PickleValue::Truth(false))
}

/// Where the values of a tensor lie in its storage of so many values; `None` where one lies beyond.
fn places(tensor: &StoredTensor, count: u64) -> Option<Vec<u64>> {
    let first = tensor.offset.checked_add(tensor.storage.offset)?;
    let total = tensor.shape.iter().try_fold(1_u64, |total, &length| total.checked_mul(length))?;
    // One value that stands for many is none of a network's.
    if total > count {
        return None;
    }
    let mut places = vec![first];
    for (&length, &stride) in tensor.shape.iter().zip(&tensor.strides) {
        let mut next = Vec::new();
        for place in places {
            for index in 0..length {
                next.push(index.checked_mul(stride)?.checked_add(place)?);
            }
        }
        places = next;
    }
    (tensor.shape.len() == tensor.strides.len() && places.iter().all(|&place| place < count))
        .then_some(places)
}
