//! Formats of several files, stored in a folder, in a zip or in memory, and their JSON.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::error::{FormatFault, damaged};

/// A destination for parts of a file. Names are relative and separated by `/`.
pub trait PartSink {
    /// Writes a complete part.
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
}

/// A source of parts of a file.
pub trait PartSource {
    /// Reads a part; fails if it is longer than `most_bytes`.
    fn get(&mut self, name: &str, most_bytes: u64) -> Result<Vec<u8>, FormatFault>;

    /// Returns the stored size of all parts, in bytes.
    fn total_bytes(&self) -> u64;
}

impl PartSink for BTreeMap<String, Vec<u8>> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }
}

impl PartSource for BTreeMap<String, Vec<u8>> {
    fn get(&mut self, name: &str, most_bytes: u64) -> Result<Vec<u8>, FormatFault> {
        let Some(bytes) = BTreeMap::get(self, name) else { return Err(missing(name)) };
        check_length(name, bytes.len() as u64, most_bytes)?;
        Ok(bytes.clone())
    }

    fn total_bytes(&self) -> u64 {
        self.values().map(|bytes| bytes.len() as u64).sum()
    }
}

fn missing(name: &str) -> FormatFault {
    FormatFault::damaged(format!("names the part {name}, which is not there"))
}

fn check_length(name: &str, found: u64, most_bytes: u64) -> Result<(), FormatFault> {
    if found <= most_bytes {
        return Ok(());
    }
    damaged(format!("its part {name} has {found} bytes; {most_bytes} at most are expected"))
}

/// Rejects names that could refer to files outside the format.
pub(crate) fn check_name(name: &str) -> Result<(), FormatFault> {
    let is_safe = !name.is_empty()
        && name != "."
        && !name.contains("..")
        && !name.contains(['/', '\\', ':', '\0']);
    if is_safe {
        return Ok(());
    }
    damaged(format!("names the part {name:?}, which is no name of a file in it"))
}

/// Parts as stored zip entries without times, so that equal parts make equal bytes.
pub struct ZipSink<W: Write + Seek> {
    zip: ZipWriter<W>,
}

impl<W: Write + Seek> ZipSink<W> {
    /// Creates an empty zip.
    pub fn new(out: W) -> Self {
        Self { zip: ZipWriter::new(out) }
    }

    /// Writes the zip's central directory.
    pub fn finish(self) -> io::Result<W> {
        self.zip.finish().map_err(io::Error::other)
    }
}

impl<W: Write + Seek> PartSink for ZipSink<W> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        self.zip.start_file(name, options).map_err(io::Error::other)?;
        self.zip.write_all(bytes)
    }
}

pub(crate) struct ZipSource<R: Read + Seek> {
    zip: ZipArchive<R>,
    bytes: u64,
}

impl<R: Read + Seek> ZipSource<R> {
    pub(crate) fn new(input: R, bytes: u64) -> Result<Self, FormatFault> {
        Ok(Self { zip: ZipArchive::new(input).map_err(zip_fault)?, bytes })
    }
}

impl<R: Read + Seek> PartSource for ZipSource<R> {
    fn get(&mut self, name: &str, most_bytes: u64) -> Result<Vec<u8>, FormatFault> {
        let part = match self.zip.by_name(name) {
            Ok(part) => part,
            Err(zip::result::ZipError::FileNotFound) => return Err(missing(name)),
            Err(error) => return Err(zip_fault(error)),
        };
        check_length(name, part.size(), most_bytes.min(self.bytes))?;
        let mut bytes = Vec::new();
        part.take(most_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn total_bytes(&self) -> u64 {
        self.bytes
    }
}

fn zip_fault(error: zip::result::ZipError) -> FormatFault {
    match error {
        zip::result::ZipError::Io(error) => error.into(),
        other => FormatFault::damaged(format!("is a damaged zip: {other}")),
    }
}

/// Depth of subfolders: levels of detail have their own.
const FOLDERS_DEEP: usize = 1;

/// Returns the bytes of the files in a folder and its subfolders.
fn bytes_below(folder: &Path, deep: usize) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() {
            bytes += about.len();
        } else if about.is_dir() && deep > 0 {
            bytes += bytes_below(&entry.path(), deep - 1)?;
        }
    }
    Ok(bytes)
}

pub(crate) struct FolderSource {
    folder: PathBuf,
    bytes: u64,
}

impl FolderSource {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { folder: folder.to_owned(), bytes: bytes_below(folder, FOLDERS_DEEP)? })
    }
}

impl PartSource for FolderSource {
    fn get(&mut self, name: &str, most_bytes: u64) -> Result<Vec<u8>, FormatFault> {
        let file = match File::open(self.folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(name)),
            other => other?,
        };
        check_length(name, file.metadata()?.len(), most_bytes)?;
        let mut bytes = Vec::new();
        file.take(most_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn total_bytes(&self) -> u64 {
        self.bytes
    }
}

// JSON of untrusted files.

/// Largest JSON in bytes; most formats have a lower limit.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// Largest nesting depth.
const MAX_DEPTH: usize = 64;

/// Parses JSON within the limits of length and depth.
pub(crate) fn parse_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, FormatFault> {
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return damaged(format!("its {what} is longer than 64 MiB"));
    }
    if depth(bytes) > MAX_DEPTH {
        return damaged(format!("its {what} is nested deeper than {MAX_DEPTH}"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        FormatFault::damaged(format!("its {what} is not what is expected: {error}"))
    })
}

/// Returns the largest nesting depth of brackets outside strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for &byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_strings() {
        assert_eq!(depth(br#"{"a": [1, "]{[[\"[", {"b": []}]}"#), 4);
        let deep = "[".repeat(65) + &"]".repeat(65);
        let error = parse_json::<serde_json::Value>("meta.json", deep.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("deeper than 64"), "{error}");
        let error = parse_json::<[u8; 2]>("meta.json", b"[1, 2").unwrap_err().to_string();
        assert!(error.contains("meta.json") && error.contains("EOF"), "{error}");
    }
}
