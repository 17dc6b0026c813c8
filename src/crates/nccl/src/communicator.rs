//! One rank's part of a group.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::symbols::{Config, IN_PROGRESS, RawCommunicator, SUCCESS, U8};
use crate::{Library, NcclError, UniqueId};

/// Bytes for one rank, or from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The other rank, from 0. Several parts of one peer arrive in the order in which they are sent.
    pub peer: u32,
    /// Address of the bytes in the device's memory.
    pub address: u64,
    /// Number of bytes: as many as the peer names. An empty part is skipped.
    pub bytes: usize,
}

/// Fails unless all parts, the empty ones as well, name ranks of the group.
pub(crate) fn check_peers(parts: &[Part], world: u32) -> Result<(), NcclError> {
    match parts.iter().find(|part| part.peer >= world) {
        Some(part) => Err(NcclError::NoSuchPeer { peer: part.peer, world }),
        None => Ok(()),
    }
}

/// One rank's part of a group, on its GPU.
///
/// All ranks make the same calls in the same order. A dropped communicator is aborted, which is its one end:
/// what is still enqueued or runs on the device is ended, too, and no other rank is waited for. So ranks end
/// together, each once its stream has passed what it needs; a rank that goes on alone waits in vain.
#[derive(Debug)]
pub struct Communicator {
    nccl: &'static Library,
    raw: RawCommunicator,
    rank: u32,
    world: u32,
}

// SAFETY: NCCL ties a communicator to a device, not to a thread, and it is used by one thread at a time.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Joins a group of `world` ranks as the one of number `rank`. It blocks until all of them have joined.
    ///
    /// The primary context of the rank's GPU must be current in this thread. `max_ctas` bounds the thread
    /// blocks of NCCL's kernels, and so its own memory; it is at least 1, and without it NCCL chooses.
    /// Fails if the group has no such rank, or if NCCL fails.
    pub fn join(
        library: &'static Library,
        id: UniqueId,
        rank: u32,
        world: u32,
        max_ctas: Option<u32>,
    ) -> Result<Self, NcclError> {
        let nothing = NcclError::NoSuchRank { rank, world };
        let count = c_int::try_from(world).or(Err(nothing.clone()))?;
        if rank >= world {
            return Err(nothing);
        }
        let mut raw: RawCommunicator = ptr::null_mut();
        let mut config = Config::blocking(max_ctas);
        let join = library.symbols.comm_init_rank_config;
        // SAFETY: `raw` and `config` are of NCCL's layout and outlive the call, since it blocks.
        let code = unsafe { join(&raw mut raw, count, id, rank.cast_signed(), &raw mut config) };
        let joined = library.checked("ncclCommInitRankConfig", code);
        if joined == Err(NcclError::NotBlocking) {
            // Other failures leave no communicator. This one is there, and is aborted.
            drop(Self { nccl: library, raw, rank, world });
        }
        joined.map(|()| Self { nccl: library, raw, rank, world })
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Sends each part to its peer and receives each part from its peer, all as one group on the stream.
    /// Returns when it is enqueued. Without any byte nothing is enqueued.
    ///
    /// For each part the peer names one of as many bytes. What a rank sends to itself it has to receive, too.
    /// Fails if a part names a rank that the group does not have, before anything is enqueued; or if NCCL fails.
    ///
    /// # Safety
    /// `stream` is a stream of this communicator's device, or null for its default one. Each part is memory of
    /// that device. Until the stream has passed the group, nothing else writes to the parts that are sent,
    /// nothing else touches those that are received, and none is freed. Received parts overlap no others.
    pub unsafe fn exchange(
        &self,
        sends: &[Part],
        receives: &[Part],
        stream: *mut c_void,
    ) -> Result<(), NcclError> {
        check_peers(sends, self.world)?;
        check_peers(receives, self.world)?;
        if sends.iter().chain(receives).all(|part| part.bytes == 0) {
            return Ok(());
        }
        let symbols = &self.nccl.symbols;
        // SAFETY: it has no arguments, and the group is ended below in this thread.
        let code = unsafe { (symbols.group_start)() };
        self.nccl.checked("ncclGroupStart", code)?;
        // SAFETY: the caller promises what `enqueue` asks for.
        let enqueued = unsafe { self.enqueue(sends, receives, stream) };
        // Also after an error: else the thread's later calls would wait in this group.
        // SAFETY: a group was started in this thread.
        let code = unsafe { (symbols.group_end)() };
        enqueued.and(self.nccl.checked("ncclGroupEnd", code))
    }

    /// The calls inside of a group, up to the first that fails.
    ///
    /// # Safety
    /// As for [`exchange`](Self::exchange), with all peers below the world.
    unsafe fn enqueue(
        &self,
        sends: &[Part],
        receives: &[Part],
        stream: *mut c_void,
    ) -> Result<(), NcclError> {
        let symbols = &self.nccl.symbols;
        for part in sends.iter().filter(|part| part.bytes > 0) {
            let (from, peer) = (memory(part.address), part.peer.cast_signed());
            // SAFETY: the part is the caller's to send until the stream has passed it.
            let code = unsafe { (symbols.send)(from, part.bytes, U8, peer, self.raw, stream) };
            self.nccl.checked("ncclSend", code)?;
        }
        for part in receives.iter().filter(|part| part.bytes > 0) {
            let (into, peer) = (memory(part.address), part.peer.cast_signed());
            // SAFETY: the part is the caller's to overwrite until the stream has passed it.
            let code = unsafe { (symbols.recv)(into, part.bytes, U8, peer, self.raw, stream) };
            self.nccl.checked("ncclRecv", code)?;
        }
        Ok(())
    }

    /// Fails if earlier work has failed on the network. It does not wait. On one host NCCL does
    /// not notice that a rank is gone.
    pub fn check(&self) -> Result<(), NcclError> {
        let mut state = SUCCESS;
        let query = self.nccl.symbols.comm_get_async_error;
        // SAFETY: the communicator is alive, and `state` outlives the call.
        let code = unsafe { query(self.raw, &raw mut state) };
        self.nccl.checked("ncclCommGetAsyncError", code)?;
        if state == SUCCESS || state == IN_PROGRESS {
            return Ok(());
        }
        Err(NcclError::Broken { code: state, message: self.nccl.message(state) })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // The result says nothing that could be acted on.
        // SAFETY: the communicator is alive, and this is its last use.
        unsafe { (self.nccl.symbols.comm_abort)(self.raw) };
    }
}

/// The device's address as the pointer that NCCL takes. The host never reads through it.
fn memory(address: u64) -> *mut c_void {
    #[expect(clippy::cast_possible_truncation, reason = "NCCL exists for 64-bit systems only")]
    ptr::without_provenance_mut(address as usize)
}
