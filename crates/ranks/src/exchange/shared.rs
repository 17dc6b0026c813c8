//! Memory that the ranks of one host share.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

use super::Exchange;
use super::error::ExchangeError;

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
        let own = if exchange.rank() == 0 { new_memory(bytes).ok() } else { None };
        let name = own.as_ref().map(|(name, _)| name.clone().into_bytes());
        let given = (exchange.rank() == 0).then(|| name.unwrap_or_default());
        let name = exchange.broadcast(given)?;
        let found = match &own {
            Some((_, file)) => Self::of(file, bytes).ok(),
            None => opened(&name, bytes).ok(),
        };
        // The file is here until all have opened it; maps need it no more.
        let all = exchange.all_gather(vec![u8::from(found.is_some())])?;
        drop(own);
        Ok(found.filter(|_| all.iter().all(|has| has == &[1])))
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

/// New memory of so many zeros, by a name that processes of this user find as long as this one has it: it goes
/// with them, whatever ends them.
#[cfg(target_os = "linux")]
fn new_memory(bytes: usize) -> io::Result<(String, File)> {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{MemfdFlags, memfd_create};

    let mut file = File::from(memfd_create("splat ranks", MemfdFlags::CLOEXEC)?);
    // Written, so that a host without room refuses it here and not when it is used.
    file.write_all(&vec![0; bytes])?;
    Ok((format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()), file))
}

#[cfg(not(target_os = "linux"))]
fn new_memory(_bytes: usize) -> io::Result<(String, File)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The memory that rank 0 has named.
fn opened(name: &[u8], bytes: usize) -> io::Result<SharedMemory> {
    let name = std::str::from_utf8(name).map_err(io::Error::other)?;
    let file = OpenOptions::new().read(true).write(true).open(name)?;
    if file.metadata()?.len() < bytes as u64 {
        return Err(io::Error::other("it is shorter than rank 0's"));
    }
    SharedMemory::of(&file, bytes)
}
