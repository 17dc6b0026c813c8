//! Tensors in a file of `PyTorch`, as `torch.save` writes a `state_dict()`. No code of the file is run.
//!
//! Since version 1.6 the file is a zip with `data.pkl`, a pickle that describes the tensors, and their values in
//! `data/0`, `data/1` and so on. Older files are a sequence of pickles (a magic number, the version of the format,
//! the machine, the description, the keys of the storages) and the values of each storage after their count. Tar
//! archives of the first versions are an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};

/// Start of a sequence of pickles: the magic number 0x1950a86a20f9469cfc6c.
const MAGIC: [u8; 15] =
    [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];

const ZIP: &[u8] = b"PK\x03\x04";

/// Bytes of a tar archive from byte 257 on.
const TAR: &[u8] = b"ustar";

/// Kind of storage that weights are read from.
const FLOATS: &str = "FloatStorage";

/// Bytes per value of each kind of storage.
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

#[derive(Clone, Copy, Debug)]
struct FileRange {
    start: u64,
    length: u64,
}

#[derive(Debug)]
pub(super) struct TorchFile {
    file: File,
    tensors: BTreeMap<String, StoredTensor>,
    storages: BTreeMap<String, FileRange>,
}

impl TorchFile {
    /// Returns true if a file with this start is one of `PyTorch`.
    pub(super) fn is_one(head: &[u8]) -> bool {
        head.starts_with(ZIP) || head.starts_with(&MAGIC) || is_tar(head)
    }

    /// Reads the description of the tensors, but no values.
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

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the kind and shape of a tensor, as errors name them.
    pub(super) fn kind(&self, name: &str) -> Option<(&str, &[u64])> {
        let tensor = self.tensors.get(name)?;
        let kind = if tensor.storage.kind == FLOATS { "F32" } else { tensor.storage.kind.as_str() };
        Some((kind, &tensor.shape))
    }

    /// Returns the values of an `F32` tensor, the last axis fastest.
    pub(super) fn values(&mut self, name: &str) -> Result<Vec<f32>, String> {
        let tensor = self.tensors.get(name).ok_or("is missing")?;
        let extent = self.storages.get(&tensor.storage.key).ok_or("has no values in the file")?;
        let places = places(tensor, extent.length / 4).ok_or("reaches beyond its values")?;
        // Reads only the part of the storage that the tensor is a view of.
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

const BIG_ENDIAN: &str = "it was written on a big-endian machine, whose numbers are not read";
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

/// Reads the byte order from the third pickle.
fn is_big_endian(machine: &Pickle) -> bool {
    let entries = machine.entries(machine.root()).unwrap_or_default();
    let order = entries.iter().find(|[key, _]| machine.text(*key) == Some("little_endian"));
    order.is_some_and(|&[_, value]| *machine.value(value) == PickleValue::Truth(false))
}

/// Returns the positions of a tensor's values in its storage of `count` values; `None` if one is out of range.
fn places(tensor: &StoredTensor, count: u64) -> Option<Vec<u64>> {
    let first = tensor.offset.checked_add(tensor.storage.offset)?;
    let total = tensor.shape.iter().try_fold(1_u64, |total, &length| total.checked_mul(length))?;
    // Broadcast values (stride 0) do not occur in networks.
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

// The part of Python's pickle format that files of tensors use.
//
// A pickle is a program for a stack machine. A call of a function is not run: its value is the name of the function
// and the arguments.

const LENGTH_MAX: usize = 8 << 20;

/// Index of a value among the values of its pickle.
type ValueId = usize;

#[derive(Clone, Debug, PartialEq)]
enum PickleValue {
    /// A value that tensors do not use: None, a fraction, a long integer.
    Other,
    Truth(bool),
    Int(i64),
    Text(String),
    /// A tuple or a list.
    List(Vec<ValueId>),
    /// Pairs of key and value.
    Dictionary(Vec<[ValueId; 2]>),
    /// A class or a function: `torch.FloatStorage`.
    Name(String),
    /// Record of a call.
    Object(Object),
    /// Persistent id of an object outside the pickle.
    External(ValueId),
}

/// Record of a call.
#[derive(Clone, Debug, PartialEq)]
struct Object {
    /// Class or function.
    maker: ValueId,
    arguments: ValueId,
    /// Pairs of key and value, if it is a dictionary.
    entries: Vec<[ValueId; 2]>,
    /// State that was set afterwards.
    state: Option<ValueId>,
}

#[derive(Debug)]
struct Pickle {
    values: Vec<PickleValue>,
    root: ValueId,
    length: usize,
}

impl Pickle {
    /// Reads the pickle at the start of `bytes`.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: BTreeMap::new(),
        };
        while machine.step()? {
            if machine.at > LENGTH_MAX {
                return Err(format!("its pickle is longer than {} MiB", LENGTH_MAX >> 20));
            }
        }
        let root = machine.pop()?;
        Ok(Self { values: machine.values, root, length: machine.at })
    }

    fn root(&self) -> &PickleValue {
        self.value(self.root)
    }

    fn value(&self, id: ValueId) -> &PickleValue {
        &self.values[id]
    }

    fn text(&self, id: ValueId) -> Option<&str> {
        let PickleValue::Text(text) = self.value(id) else { return None };
        Some(text)
    }

    fn name(&self, id: ValueId) -> Option<&str> {
        let PickleValue::Name(name) = self.value(id) else { return None };
        Some(name)
    }

    /// Returns a non-negative integer.
    fn count(&self, id: ValueId) -> Option<u64> {
        let PickleValue::Int(value) = self.value(id) else { return None };
        u64::try_from(*value).ok()
    }

    fn list(&self, id: ValueId) -> Option<&[ValueId]> {
        let PickleValue::List(items) = self.value(id) else { return None };
        Some(items)
    }

    /// Returns the pairs of a dictionary, plain or ordered.
    fn entries(&self, of: &PickleValue) -> Option<Vec<[ValueId; 2]>> {
        match of {
            PickleValue::Dictionary(entries) => Some(entries.clone()),
            PickleValue::Object(object)
                if self.name(object.maker)? == "collections.OrderedDict" =>
            {
                // Python 2 lists the pairs among the arguments.
                let listed = self.list(object.arguments)?.first().and_then(|&id| self.list(id));
                let pair = |&id: &ValueId| <[ValueId; 2]>::try_from(self.list(id)?).ok();
                let listed = listed.unwrap_or_default().iter().filter_map(pair);
                Some(listed.chain(object.entries.iter().copied()).collect())
            }
            _ => None,
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<PickleValue>,
    stack: Vec<ValueId>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    /// Values that are used again.
    memo: BTreeMap<u32, ValueId>,
}

impl<'a> Machine<'a> {
    /// Runs the next operation. Returns false at the end.
    fn step(&mut self) -> Result<bool, String> {
        let [operation] = self.array()?;
        let value = match operation {
            b'.' => return Ok(false),
            b'N' => PickleValue::Other,
            0x88 | 0x89 => PickleValue::Truth(operation == 0x88),
            b'G' => {
                self.take(8)?;
                PickleValue::Other
            }
            0x8a => {
                let [length] = self.array()?;
                self.take(length.into())?;
                PickleValue::Other
            }
            b'J' => PickleValue::Int(i32::from_le_bytes(self.array()?).into()),
            b'K' => PickleValue::Int(u8::from_le_bytes(self.array()?).into()),
            b'M' => PickleValue::Int(u16::from_le_bytes(self.array()?).into()),
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(length as usize)?
            }
            b'U' => {
                let [length] = self.array()?;
                self.text(length.into())?
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                PickleValue::Name(format!("{module}.{name}"))
            }
            b'Q' => PickleValue::External(self.pop()?),
            b'R' | 0x81 => {
                let (arguments, maker) = (self.pop()?, self.pop()?);
                PickleValue::Object(Object { maker, arguments, entries: Vec::new(), state: None })
            }
            b')' | b']' => PickleValue::List(Vec::new()),
            0x85..=0x87 => {
                let first = self.stack.len().checked_sub(usize::from(operation - 0x84));
                PickleValue::List(self.stack.split_off(first.ok_or_else(empty)?))
            }
            b't' => PickleValue::List(self.since_mark()?),
            b'}' => PickleValue::Dictionary(Vec::new()),
            other => return self.change(other).map(|()| true),
        };
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(true)
    }

    /// Runs an operation that makes no value.
    fn change(&mut self, operation: u8) -> Result<(), String> {
        match operation {
            // Version of the format.
            0x80 => drop(self.array::<1>()?),
            b'(' => self.marks.push(self.stack.len()),
            b'b' => {
                let state = self.pop()?;
                if let PickleValue::Object(object) = self.top()? {
                    object.state = Some(state);
                }
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            b'q' | b'r' => {
                let key = self.key(operation == b'q')?;
                let id = *self.stack.last().ok_or_else(empty)?;
                self.memo.insert(key, id);
            }
            b'h' | b'j' => {
                let key = self.key(operation == b'h')?;
                let id = self.memo.get(&key);
                self.stack.push(*id.ok_or("its pickle uses a value that it does not have")?);
            }
            other => {
                return Err(format!(
                    "its pickle has the operation 0x{other:02x} at byte {}, which no file of tensors \
                     needs",
                    self.at - 1
                ));
            }
        }
        Ok(())
    }

    /// Reads a key of the memo, of one or of four bytes.
    fn key(&mut self, is_short: bool) -> Result<u32, String> {
        if is_short {
            return Ok(u8::from_le_bytes(self.array()?).into());
        }
        self.array().map(u32::from_le_bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or("its pickle breaks off")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().ok().ok_or_else(empty)
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or("its pickle breaks off")?;
        let line = self.take(length + 1)?;
        Ok(String::from_utf8_lossy(&line[..length]).into_owned())
    }

    fn text(&mut self, length: usize) -> Result<PickleValue, String> {
        Ok(PickleValue::Text(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    fn pop(&mut self) -> Result<ValueId, String> {
        self.stack.pop().ok_or_else(empty)
    }

    fn top(&mut self) -> Result<&mut PickleValue, String> {
        let id = *self.stack.last().ok_or_else(empty)?;
        Ok(&mut self.values[id])
    }

    /// Pops all values since the last mark.
    fn since_mark(&mut self) -> Result<Vec<ValueId>, String> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or_else(empty)?))
    }

    fn append(&mut self, items: &[ValueId]) -> Result<(), String> {
        if let PickleValue::List(list) = self.top()? {
            list.extend(items);
        }
        Ok(())
    }

    /// Adds pairs of consecutive keys and values.
    fn set(&mut self, items: &[ValueId]) -> Result<(), String> {
        let pairs = items.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        if let PickleValue::Dictionary(entries) | PickleValue::Object(Object { entries, .. }) =
            self.top()?
        {
            entries.extend(pairs);
        }
        Ok(())
    }
}

fn empty() -> String {
    "its pickle takes a value where there is none".to_owned()
}

/// Maximum nesting of parameters, which wrap tensors.
const WRAPPERS: usize = 4;

/// Consecutive values in the file.
#[derive(Clone, Debug, PartialEq)]
struct TensorStorage {
    /// Name in the file.
    key: String,
    kind: String,
    /// Offset of the first value, in values: a storage may be part of another.
    offset: u64,
}

/// A tensor as a view of a storage.
#[derive(Clone, Debug, PartialEq)]
struct StoredTensor {
    storage: TensorStorage,
    /// Offset of the first value in the storage.
    offset: u64,
    shape: Vec<u64>,
    /// Distance of neighbours along each axis, in values.
    strides: Vec<u64>,
}

/// Returns the tensors of a dictionary by name, without its other values.
fn tensors(pickle: &Pickle) -> Result<BTreeMap<String, StoredTensor>, String> {
    let entries = pickle
        .entries(pickle.root())
        .ok_or("it holds no dictionary of tensors, as `state_dict()` gives it")?;
    let named = entries.into_iter().filter_map(|[name, value]| {
        Some((pickle.text(name)?.to_owned(), tensor(pickle, value, WRAPPERS)?))
    });
    Ok(named.collect())
}

fn storages(pickle: &Pickle) -> BTreeMap<String, TensorStorage> {
    let found = pickle.values.iter().filter_map(|value| match value {
        PickleValue::External(id) => storage(pickle, *id),
        _ => None,
    });
    found.map(|storage| (storage.key.clone(), storage)).collect()
}

/// Parses `('storage', torch.FloatStorage, key, device, length)`. In older files, the part of the storage follows:
/// `(key, offset, length)`.
fn storage(pickle: &Pickle, id: ValueId) -> Option<TensorStorage> {
    let parts = pickle.list(id)?;
    let [mark, kind, key, ..] = *parts else { return None };
    if pickle.text(mark)? != "storage" {
        return None;
    }
    let part = parts.get(5).and_then(|&part| pickle.list(part));
    let offset = part.and_then(|part| pickle.count(*part.get(1)?)).unwrap_or(0);
    let kind = pickle.name(kind)?.trim_start_matches("torch.").to_owned();
    Some(TensorStorage { key: pickle.text(key)?.to_owned(), kind, offset })
}

fn tensor(pickle: &Pickle, id: ValueId, wrappers: usize) -> Option<StoredTensor> {
    let PickleValue::Object(Object { maker, arguments, state, .. }) = pickle.value(id) else {
        return None;
    };
    let state = state.and_then(|state| pickle.list(state)).unwrap_or_default();
    let arguments = pickle.list(*arguments)?;
    let inner = |id: ValueId| tensor(pickle, id, wrappers.checked_sub(1)?);
    match pickle.name(*maker)? {
        "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2" => {
            view(pickle, arguments)
        }
        "torch._utils._rebuild_parameter" => inner(*arguments.first()?),
        "torch.nn.parameter.Parameter" | "torch.autograd.variable.Variable" => match state {
            // Before the second version, parameters were set afterwards.
            [data, _, _, _, _] => inner(*data),
            _ => inner(*arguments.first()?),
        },
        // The first tensors were set afterwards, too.
        _ => view(pickle, state),
    }
}

/// Parses `(storage, offset, shape, strides, ...)`.
fn view(pickle: &Pickle, parts: &[ValueId]) -> Option<StoredTensor> {
    let [external, offset, shape, strides, ..] = *parts else { return None };
    let PickleValue::External(id) = *pickle.value(external) else { return None };
    Some(StoredTensor {
        storage: storage(pickle, id)?,
        offset: pickle.count(offset)?,
        shape: counts(pickle, shape)?,
        strides: counts(pickle, strides)?,
    })
}

/// Returns the numbers of a tuple or a `torch.Size`.
fn counts(pickle: &Pickle, id: ValueId) -> Option<Vec<u64>> {
    let id = match pickle.value(id) {
        PickleValue::Object(size) if pickle.name(size.maker)? == "torch.Size" => {
            *pickle.list(size.arguments)?.first()?
        }
        _ => id,
    };
    pickle.list(id)?.iter().map(|&id| pickle.count(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_dictionaries_of_both_pythons_have_their_entries() {
        let of_python_3 =
            b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02K\x07u.";
        let of_python_2 = b"\x80\x02ccollections\nOrderedDict\n](](U\x01aK\x07ee\x85R.";
        for bytes in [&of_python_3[..], of_python_2] {
            let pickle = Pickle::read(bytes).unwrap();
            let entries = pickle.entries(pickle.root()).unwrap();
            assert_eq!(entries.len(), 1, "{pickle:?}");
            assert_eq!(pickle.text(entries[0][0]), Some("a"));
            assert_eq!(pickle.count(entries[0][1]), Some(7));
            assert_eq!(pickle.length, bytes.len());
        }
    }

    #[test]
    fn invalid_pickles_are_errors() {
        // `os.system("x")` is recorded and not run.
        let pickle = Pickle::read(b"\x80\x02cos\nsystem\nU\x01x\x85R.").unwrap();
        assert!(matches!(pickle.root(), PickleValue::Object(_)));
        let refused: [&[u8]; 9] =
            [b"", b".", b"\x80", b"R.", b"\x87.", b"u.", b"h\x05.", b"X\xff\xff\xff\xff", b"cos"];
        for bytes in refused {
            assert!(Pickle::read(bytes).unwrap_err().contains("pickle"), "{bytes:?}");
        }
        let error = Pickle::read(b"\x80\x02i").unwrap_err();
        assert!(error.contains("0x69") && error.contains("byte 2"), "{error}");
        // A list that contains itself.
        Pickle::read(b"]q\x00h\x00a.").unwrap();
    }
}
