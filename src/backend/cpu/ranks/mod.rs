//! The processor as one of several ranks, which train one model together.
//!
//! Each rank has a share of the model's rows and draws views of its own. To draw one, every rank projects its
//! rows into it and sends the splats to who draws; the gradients of the splats come back the same way. A step of
//! Adam moves the rows where they are. Sums run in the order of views and of the rows' numbers, so that ranks come
//! to the numbers that one process with as many views a step comes to.
//!
//! Rank 0 leads: it has the trainer, whose calls [`RankedCpu`] passes on as commands. The others obey
//! ([`ObeyingCpu`]). What is done together is done by the same method of a `Shard` on all ranks.
//!
//! | file | what ranks do together |
//! |---|---|
//! | `round.rs` | draw views, and bring gradients back |
//! | `dealing.rs` | give rows to ranks, read them, put them in order |
//! | `step.rs` | move the rows down their gradients |
//! | `density.rs` | choose by the statistics of all rows, and edit |

mod command;
mod dealing;
mod density;
mod lead;
mod lead_density;
mod numbering;
mod obeying;
mod refused;
mod report;
mod round;
mod shard;
mod step;

pub use command::RANK_PROTOCOL;
pub use lead::RankedCpu;
pub use obeying::{ObeyingCpu, Order, RankTarget};

#[cfg(test)]
mod tests;
