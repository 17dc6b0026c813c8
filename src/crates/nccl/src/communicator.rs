//! Communicator of one rank.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::symbols::{Config, IN_PROGRESS, RawCommunicator, SUCCESS, U8};
use crate::{Library, NcclError, UniqueId};

/// Bytes that are sent to a rank or received from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Peer rank, from 0. Several parts of one peer arrive in the order of sending.
    pub peer: u32,
    /// Device address of the bytes.
    pub address: u64,
    /// Number of bytes, equal on both ranks. An empty part is skipped.
    pub bytes: usize,
}

/// NCCL communicator of one rank on its GPU.
///
/// All ranks make the same calls in the same order. Dropping aborts the communicator, including its enqueued and
/// running work, without waiting for other ranks. Ranks must therefore end together, each after its stream has finished
/// the needed work. A rank that continues alone waits forever.
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
    /// Joins a group of `world` ranks as rank `rank`. Blocks until all ranks have joined.
    ///
    /// The primary context of the rank's GPU must be current in this thread. `max_ctas`, at least 1, limits the thread
    /// blocks of NCCL's kernels and thereby NCCL's memory.
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
            // Unlike other failures, this one leaves a communicator, which must be aborted.
            drop(Self { nccl: library, raw, rank, world });
        }
        joined.map(|()| Self { nccl: library, raw, rank, world })
    }

    /// Returns the number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Enqueues a group on the stream that sends and receives these parts. Enqueues nothing if all parts are empty.
    ///
    /// The peer must name a matching part of the same length for each part, also if the peer is this rank itself.
    ///
    /// # Safety
    /// `stream` is a stream of this communicator's device, or null for its default stream. Each part is memory of
    /// that device. Until the stream has finished the group, nothing else writes to sent parts or accesses received
    /// parts, and no part is freed. Received parts overlap no other parts.
    pub unsafe fn exchange(
        &self,
        sends: &[Part],
        receives: &[Part],
        stream: *mut c_void,
    ) -> Result<(), NcclError> {
        let world = self.world;
        let mut parts = sends.iter().chain(receives);
        if let Some(&Part { peer, .. }) = parts.find(|part| part.peer >= world) {
            return Err(NcclError::NoSuchPeer { peer, world });
        }
        if sends.iter().chain(receives).all(|part| part.bytes == 0) {
            return Ok(());
        }
        let symbols = &self.nccl.symbols;
        // SAFETY: the call has no arguments, and the group is ended below in this thread.
        let code = unsafe { (symbols.group_start)() };
        self.nccl.checked("ncclGroupStart", code)?;
        // SAFETY: the caller promises what `enqueue` asks for.
        let enqueued = unsafe { self.enqueue(sends, receives, stream) };
        // End the group after an error too. Otherwise later calls of this thread would wait in this group.
        // SAFETY: a group was started in this thread.
        let code = unsafe { (symbols.group_end)() };
        enqueued.and(self.nccl.checked("ncclGroupEnd", code))
    }

    /// Makes the calls inside of a group, up to the first failure.
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
            // SAFETY: the caller promises that the part is unchanged until the stream has finished.
            let code = unsafe { (symbols.send)(from, part.bytes, U8, peer, self.raw, stream) };
            self.nccl.checked("ncclSend", code)?;
        }
        for part in receives.iter().filter(|part| part.bytes > 0) {
            let (into, peer) = (memory(part.address), part.peer.cast_signed());
            // SAFETY: the caller promises exclusive access to the part until the stream has finished.
            let code = unsafe { (symbols.recv)(into, part.bytes, U8, peer, self.raw, stream) };
            self.nccl.checked("ncclRecv", code)?;
        }
        Ok(())
    }

    /// Fails if earlier work has failed on the network. Does not wait. On one host NCCL does not notice lost ranks.
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
        // Nothing can be done after a failure.
        // SAFETY: the communicator is alive, and this is its last use.
        unsafe { (self.nccl.symbols.comm_abort)(self.raw) };
    }
}

/// Returns a device address as the pointer that NCCL takes. The host never dereferences it.
fn memory(address: u64) -> *mut c_void {
    #[expect(clippy::cast_possible_truncation, reason = "NCCL exists for 64-bit systems only")]
    ptr::without_provenance_mut(address as usize)
}
