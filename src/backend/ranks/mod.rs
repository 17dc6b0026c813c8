//! Devices of several processes, the ranks, which train one model together.
//!
//! Each rank has a share of the model's Gaussians and draws views of its own. To draw a view, every rank projects its
//! Gaussians into the view and sends the splats to the rank that draws; the gradients of the splats come back the same
//! way. A step of Adam moves the Gaussians on the ranks that hold them.
//!
//! Rank 0 leads: it has the trainer, whose calls [`Leader`] passes on as commands. The others follow
//! ([`Follower`]). Common work is the same method of a [`RankShard`] on all ranks: the processor's is in
//! `backend/cpu/ranks`, that of GPUs in `backend/cuda/ranks`.
//!
//! | file | content |
//! |---|---|
//! | `view.rs` | views of a step |
//! | `shard.rs` | methods that a device adds to be one of several ranks |
//! | `line.rs` | values that ranks exchange: commands, reports, and values of terms |
//! | `numbering.rs` | the rank that holds each row |
//! | `rows.rs` | rows sent from rank 0 to their ranks, and back |
//! | `leader.rs` | rank 0 as a device |
//! | `follower.rs` | the other ranks |

mod follower;
mod leader;
mod line;
pub(super) mod numbering;
pub(super) mod rows;
mod shard;
mod view;

pub use follower::{Follower, Opening, RankOrder, RankTarget};
pub use leader::Leader;
pub use line::{Problem, RANK_PROTOCOL, RankLine, RankLosses, RankNews};
pub use shard::{DealtRows, RankShard, Shard, SharedEdits, SharedViews};
pub use view::{RankOutcome, RankView, Ranks, ViewSetup};
