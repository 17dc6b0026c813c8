//! Memory that the ranks of one host share.

use std::fs::File;
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
        let given = (exchange.rank() == 0).then(|| own.as_ref().map_or_else(Vec::new, place_of));
        let place = exchange.broadcast(given)?;
        let found = match &own {
            Some(file) => Self::of(file, bytes).ok(),
            None => opened(&place, bytes).ok(),
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

/// Returns new zeroed memory of this length. It has no name in any folder, and its length is fixed.
#[cfg(target_os = "linux")]
fn new_memory(bytes: usize) -> io::Result<File> {
    use std::io::Write as _;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(NAME, flags)?);
    // Written, so that a host without room refuses it here and not when it is used.
    file.write_all(&vec![0; bytes])?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Name of the memory in `/proc`.
#[cfg(target_os = "linux")]
const NAME: &str = "splat ranks";

/// Seals of the memory. Files of a file system never have these.
#[cfg(target_os = "linux")]
const SEALS: rustix::fs::SealFlags = rustix::fs::SealFlags::SEAL
    .union(rustix::fs::SealFlags::SHRINK)
    .union(rustix::fs::SealFlags::GROW);

/// Address of the memory for other processes of this user: process and descriptor.
#[cfg(target_os = "linux")]
fn place_of(memory: &File) -> Vec<u8> {
    use std::os::fd::AsRawFd as _;
    let place = [std::process::id(), memory.as_raw_fd().cast_unsigned()];
    place.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Opens the memory of rank 0. The place is two numbers, and what is there must be sealed memory without a
/// name: whatever a rank 0 sends, no file is opened or written.
#[cfg(target_os = "linux")]
fn opened(place: &[u8], bytes: usize) -> io::Result<SharedMemory> {
    use std::fs::{OpenOptions, read_link};
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

    use rustix::fs::fcntl_get_seals;

    let wrong = || io::Error::other("it is no memory of ranks");
    let ([pid, descriptor], []) = place.as_chunks::<4>() else { return Err(wrong()) };
    let [pid, descriptor] = [pid, descriptor].map(|number| u32::from_le_bytes(*number));
    let path = format!("/proc/{pid}/fd/{descriptor}");
    // Before it is opened: to open a device or a pipe may do something.
    if read_link(&path)?.as_os_str() != format!("/memfd:{NAME} (deleted)").as_str() {
        return Err(wrong());
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)?;
    let about = file.metadata()?;
    let is_memory = about.is_file() && about.nlink() == 0 && fcntl_get_seals(&file)? == SEALS;
    if !is_memory || about.len() != bytes as u64 {
        return Err(wrong());
    }
    SharedMemory::of(&file, bytes)
}

#[cfg(not(target_os = "linux"))]
fn new_memory(_bytes: usize) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn place_of(_memory: &File) -> Vec<u8> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn opened(_place: &[u8], _bytes: usize) -> io::Result<SharedMemory> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    #[test]
    fn ranks_open_the_same_memory() {
        let file = new_memory(4096).unwrap();
        let own = SharedMemory::of(&file, 4096).unwrap();
        let other = opened(&place_of(&file), 4096).unwrap();
        own.write(7, b"hello");
        assert_eq!(other.read(7, 5), b"hello");
        for bytes in [4095, 4097] {
            assert!(opened(&place_of(&file), bytes).is_err(), "{bytes}");
        }
        assert!(file.set_len(1).is_err(), "it stays as long");
    }

    #[test]
    fn nothing_else_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious.bin");
        fs::write(&path, [b'A'; 4096]).unwrap();
        let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let named = open(&path);
        // A name cannot make a file look like memory.
        let disguised = folder.path().join("memfd:splat ranks (deleted)");
        fs::write(&disguised, [b'A'; 4096]).unwrap();
        let disguised = open(&disguised);
        let removed = folder.path().join("removed");
        fs::write(&removed, [b'A'; 4096]).unwrap();
        let gone = open(&removed);
        fs::remove_file(&removed).unwrap();
        let unsealed = File::from(memfd_create(NAME, MemfdFlags::ALLOW_SEALING).unwrap());
        let others = File::from(memfd_create("others", MemfdFlags::ALLOW_SEALING).unwrap());
        for memory in [&unsealed, &others] {
            memory.set_len(4096).unwrap();
        }
        fcntl_add_seals(&others, SEALS).unwrap();
        fcntl_add_seals(&unsealed, SealFlags::SHRINK).unwrap();
        for file in [&named, &disguised, &gone, &unsealed, &others] {
            assert!(opened(&place_of(file), 4096).is_err(), "{}", file.as_raw_fd());
        }
        let text = path.to_str().unwrap().as_bytes();
        for place in [text, b"", b"/proc/self/fd/1", &[0; 8], &[255; 8], &[1; 9]] {
            assert!(opened(place, 4096).is_err(), "{place:?}");
        }
        assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == b'A'));
    }
}
