//! `splat train --ranks`: which of a run's processes this one is, and what it does.

mod count;
mod errors;
mod gpus;
mod launched;
mod lead;
mod obey;
mod party;
mod role;
mod supervise;
mod threads;

pub(super) use count::RankCount;
pub(super) use errors::{DeadRank, EndedRank, NoParty, StoppedMeeting};
pub(super) use gpus::GpuCount;
pub(super) use launched::is_launched;
pub(super) use lead::lead;
pub(super) use obey::obey;
pub(super) use party::Party;
pub(super) use role::{RankRole, leaves_words_to_rank_0};
pub(super) use supervise::supervise;
