//! The way from this rank's GPU to those of the others.

use std::ffi::c_void;

use splat_nccl::{Communicator, Library, NcclError, Part, UniqueId};

use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::DeviceRange;
use crate::backend::cuda::prelude::*;
use crate::backend::ranks::RankLine;
use crate::layout::LIBRARY_SCRATCH;
use crate::memory::plan::nccl_blocks;

/// Bytes that each rank sends to each other one for the first time, which connects them.
const FIRST_BYTES: usize = 1 << 20;

/// NCCL's communicator of all ranks.
pub(super) struct GpuLink {
    communicator: Communicator,
}

/// Memory of this rank's GPU that goes to another, or comes from it.
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
    /// Connects the GPUs of all ranks, which must be different ones. All ranks need NCCL of one version.
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
        // Of the rank that may take least.
        let budgets = line.all_gather(&session.heap.budget().0)?;
        let budget = budgets.into_iter().min().unwrap_or(u64::MAX);
        let blocks = Some(nccl_blocks(Bytes(budget)));
        let communicator = Communicator::join(library, id, line.rank(), line.world(), blocks);
        let communicator = communicator.map_err(failed)?;
        let link = Self { communicator };
        link.connect(line, session)?;
        Ok(link)
    }

    /// Makes NCCL connect, and take its memory, which it would do in the first step.
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

    /// Sends each part to its rank and receives each from its rank, where the stream has come so far. For each
    /// part that a rank receives another sends one of as many bytes.
    pub(super) fn exchange(
        &self,
        stream: &Stream,
        sends: &[RankPart],
        receives: &[RankPart],
    ) -> Result {
        let Some(raw) = stream.raw() else { return Ok(()) };
        let [sends, receives] =
            [sends, receives].map(|parts| parts.iter().map(RankPart::part).collect::<Vec<_>>());
        // SAFETY: the parts are ranges of blocks that are alive, of which those that receive are borrowed by
        // nobody else; later work on them, and on blocks in their place, is put on the same stream.
        unsafe { self.communicator.exchange(&sends, &receives, raw.cast::<c_void>()) }
            .map_err(failed)
    }

    /// Fails where the network has lost a rank.
    pub(super) fn check(&self) -> Result {
        self.communicator.check().map_err(failed)
    }
}

/// NCCL, where all ranks have it in the same version and no two of them the same GPU.
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

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` calls")]
fn failed(error: NcclError) -> DeviceError {
    DeviceError::Unavailable(error.to_string())
}
