//! Devices of several processes, the ranks, which train one model together.
//!
//! Each rank has a share of the model's rows and draws views of its own. To draw one, every rank projects its
//! rows into it and sends the splats to who draws; the gradients of the splats come back the same way. A step of
//! Adam moves the rows where they are.
//!
//! Rank 0 leads: it has the trainer, whose calls [`Ranked`] passes on as commands. The others obey
//! ([`Obeying`]). What is done together is done by the same method of a [`RankShard`] on all ranks: the
//! processor's is in `backend/cpu/ranks`, that of GPUs in `backend/cuda/ranks`.
//!
//! | file | what it is about |
//! |---|---|
//! | `view.rs` | views of a step, as the trainer deals them out |
//! | `shard.rs` | what a device adds to be one of several ranks |
//! | `line.rs` | values on their way between ranks |
//! | `losses.rs` | the values of terms of views that other ranks draw |
//! | `command.rs` | what rank 0 has all do |
//! | `report.rs` | what a rank says of its view |
//! | `numbering.rs` | which rank has which rows |
//! | `dealt.rs` | rows on their way from rank 0 to who has them, and back |
//! | `lead.rs`, `lead_density.rs`, `refused.rs` | rank 0 as a device |
//! | `obeying.rs` | the other ranks |

mod command;
pub(super) mod dealt;
mod lead;
mod lead_density;
mod line;
mod losses;
pub(super) mod numbering;
mod obeying;
mod packed_rows;
mod refused;
mod report;
mod shard;
mod view;

pub use command::RANK_PROTOCOL;
pub use lead::Ranked;
pub use line::{Problem, RankLine};
pub use losses::RankLosses;
pub use obeying::{Obeying, Opening, RankOrder, RankTarget};
pub use report::RankNews;
pub use shard::{DealtRows, RankShard, Shard, SharedEdits, SharedViews};
pub use view::{RankOutcome, RankView, Ranks, Sight};
