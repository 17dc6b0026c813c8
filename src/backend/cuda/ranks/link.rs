//! NCCL connection between the GPUs of all ranks.

use std::ffi::c_void;

use splat_nccl::{Communicator, Library, NcclError, Part, UniqueId};

use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::DeviceRange;
use crate::backend::cuda::prelude::*;
use crate::backend::ranks::RankLine;
use crate::layout::LIBRARY_SCRATCH;
use crate::memory::plan::nccl_blocks;

/// Bytes of the first exchange between two ranks, which makes NCCL connect.
const FIRST_BYTES: usize = 1 << 20;

/// NCCL communicator of all ranks.
pub(super) struct GpuLink {
    communicator: Communicator,
}

/// GPU memory that is sent to a rank or received from it.
pub(super) struct RankPart {
    pub(super) rank: u32,
    pub(super) range: DeviceRange,
}

impl RankPart {
    fn part(&self) -> Part {
        let &Self { rank, range: DeviceRange { address, bytes } } = self;
        Part { peer: rank, address, bytes }
    }
}

impl GpuLink {
    /// Connects the GPUs of all ranks. They must be different GPUs and have the same version of NCCL.
    pub(super) fn join(line: &RankLine, session: &Session) -> Result<Self> {
        let library = agreed_library(line, session)?;
        let id = match line.rank() {
            0 => {
                let id = library.unique_id().map_err(failed)?;
                line.give(&id.to_bytes().to_vec())?;
                id
            }
            _ => {
                let bytes: Vec<u8> = line.take()?;
                let id = bytes.first_chunk().copied();
                UniqueId::from_bytes(id.ok_or_else(|| of_first("it sends no id of NCCL"))?)
            }
        };
        // The smallest budget of all ranks counts.
        let budgets = line.all_gather(&session.heap.budget().0)?;
        let budget = budgets.into_iter().min().unwrap_or(u64::MAX);
        let blocks = Some(nccl_blocks(Bytes(budget)));
        let communicator = Communicator::join(library, id, line.rank(), line.world(), blocks);
        let communicator = communicator.map_err(failed)?;
        let link = Self { communicator };
        link.connect(line, session)?;
        Ok(link)
    }

    /// Makes NCCL connect and allocate its memory before the first step.
    fn connect(&self, line: &RankLine, session: &Session) -> Result {
        let others: Vec<u32> = (0..line.world()).filter(|&rank| rank != line.rank()).collect();
        let places = others.len() as u64 + 1;
        let mut room = session.heap.take(&LIBRARY_SCRATCH, &(places * FIRST_BYTES as u64))?;
        room.zero(&session.stream)?;
        let part = |place: usize, rank| {
            let range = room.place("connect", &(place * FIRST_BYTES..(place + 1) * FIRST_BYTES))?;
            Ok::<_, DeviceError>(RankPart { rank, range })
        };
        let sends = others.iter().map(|&rank| part(0, rank)).collect::<Result<Vec<_>, _>>()?;
        let receives = (1..).zip(&others).map(|(place, &rank)| part(place, rank));
        let receives = receives.collect::<Result<Vec<_>, _>>()?;
        self.exchange(&session.stream, &sends, &receives)?;
        session.stream.synchronize()
    }

    /// Enqueues sending and receiving of these parts on the stream. Each received part matches a sent part of the same
    /// length.
    pub(super) fn exchange(
        &self,
        stream: &Stream,
        sends: &[RankPart],
        receives: &[RankPart],
    ) -> Result {
        let Some(raw) = stream.raw() else { return Ok(()) };
        let [sends, receives] =
            [sends, receives].map(|parts| parts.iter().map(RankPart::part).collect::<Vec<_>>());
        // SAFETY: the parts are ranges of live blocks, and nothing else borrows the received parts. Later work on these
        // blocks, or on blocks in their place, is enqueued on the same stream.
        unsafe { self.communicator.exchange(&sends, &receives, raw.cast::<c_void>()) }
            .map_err(failed)
    }

    /// Fails if NCCL has noticed a fault of the network.
    pub(super) fn check(&self) -> Result {
        self.communicator.check().map_err(failed)
    }
}

/// Returns NCCL if all ranks have the same version and different GPUs.
fn agreed_library(line: &RankLine, session: &Session) -> Result<&'static Library> {
    let found = Library::find();
    let uuid = session.device.uuid().to_owned();
    let own: Result<(String, String), String> = match &found {
        Ok(library) => Ok((library.version().to_string(), uuid)),
        Err(error) => Err(error.to_string()),
    };
    let all = line.all_gather(&own)?;
    let mut known: Vec<(String, String)> = Vec::new();
    for (rank, of_rank) in (0..).zip(all) {
        let of_rank = of_rank.map_err(|problem| DeviceError::RankDevice { rank, problem })?;
        if let Some((first, _)) = known.first().filter(|(first, _)| *first != of_rank.0) {
            let problem = format!(
                "it has NCCL {}, and rank 0 has {first}: have all ranks use the same, by SPLAT_NCCL",
                of_rank.0
            );
            return Err(DeviceError::RankDevice { rank, problem });
        }
        if let Some(other) = known.iter().position(|(_, uuid)| *uuid == of_rank.1) {
            let problem = format!(
                "it has the same GPU as rank {other}, and each needs its own. Start no more ranks on a host than it \
                 has GPUs, or give --device cpu"
            );
            return Err(DeviceError::RankDevice { rank, problem });
        }
        known.push(of_rank);
    }
    found.map_err(failed)
}

fn of_first(message: &str) -> DeviceError {
    DeviceError::OfRank { rank: 0, message: message.to_owned() }
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn failed(error: NcclError) -> DeviceError {
    DeviceError::Unavailable(error.to_string())
}
