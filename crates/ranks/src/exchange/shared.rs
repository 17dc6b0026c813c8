//! Memory that the ranks of one host share.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

use super::Exchange;
use super::error::ExchangeError;

/// Where files lie in memory.
const FOLDER: &str = "/dev/shm";

/// Bytes that several processes read and write. Words are atomic; who reads other bytes has seen a word that was
/// written after them.
#[derive(Debug)]
pub(super) struct SharedMemory {
    map: MmapRaw,
}

impl SharedMemory {
    /// So many bytes, all zero, of the ranks of this exchange. Nothing where one of them cannot have them.
    pub(super) fn among(
        exchange: &mut impl Exchange,
        bytes: usize,
    ) -> Result<Option<Self>, ExchangeError> {
        let own = if exchange.rank() == 0 { new_file(bytes).ok() } else { None };
        let name = own.as_ref().map(|(path, _)| path.to_string_lossy().into_owned().into_bytes());
        let given = (exchange.rank() == 0).then(|| name.unwrap_or_default());
        let name = exchange.broadcast(given)?;
        let found = match &own {
            Some((_, file)) => Self::of(file, bytes).ok(),
            None => opened(&name, bytes).ok(),
        };
        let all = exchange.all_gather(vec![u8::from(found.is_some())]);
        if let Some((path, _)) = own {
            // Whoever needed its name has it open. Where it cannot be removed it is empty space in memory.
            let _ = std::fs::remove_file(path);
        }
        let is_everywhere = all?.iter().all(|has| has == &[1]);
        Ok(found.filter(|_| is_everywhere))
    }

    fn of(file: &File, bytes: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(bytes).map_raw(file)? })
    }

    /// Where a place of so many bytes lies.
    fn place(&self, place: usize, length: usize) -> *mut u8 {
        let end = place.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.map.len()), "the place is within the memory");
        self.map.as_mut_ptr().wrapping_add(place)
    }

    /// The word at a place, which is a multiple of 8.
    pub(super) fn word(&self, place: usize) -> &AtomicU64 {
        assert!(place.is_multiple_of(8), "a word's place");
        let word = self.place(place, 8).cast();
        // SAFETY: the place is within the map, which lives as long as the reference, and aligned as a word is, for
        // maps begin at a page; all processes take it as an atomic word alone.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Puts bytes at a place that nobody reads until a word says so.
    pub(super) fn write(&self, place: usize, bytes: &[u8]) {
        let to = self.place(place, bytes.len());
        // SAFETY: the range is within the map, and by the order of words nobody looks at it meanwhile.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// The bytes at a place, which a word has said are there.
    pub(super) fn read(&self, place: usize, length: usize) -> Vec<u8> {
        let from = self.place(place, length);
        let mut bytes = vec![0; length];
        // SAFETY: the range is within the map, and by the order of words nobody writes to it meanwhile.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from, length) };
        bytes
    }
}

/// A new file of so many zeros that only this user can open.
fn new_file(bytes: usize) -> io::Result<(PathBuf, File)> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let path = Path::new(FOLDER).join(format!("splat-{:016x}", u64::from_le_bytes(random)));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path)?;
    // Written, so that a full folder refuses it here and not when it is used.
    match file.write_all(&vec![0; bytes]) {
        Ok(()) => Ok((path, file)),
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            Err(error)
        }
    }
}

/// The memory of the file that rank 0 has named.
fn opened(name: &[u8], bytes: usize) -> io::Result<SharedMemory> {
    let name = std::str::from_utf8(name).map_err(io::Error::other)?;
    let file = OpenOptions::new().read(true).write(true).open(name)?;
    if file.metadata()?.len() < bytes as u64 {
        return Err(io::Error::other("it is shorter than rank 0's"));
    }
    SharedMemory::of(&file, bytes)
}
