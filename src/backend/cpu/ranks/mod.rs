//! The processor as one of several ranks, which train one model together.
//!
//! Sums run in the order of views and of the rows' numbers, so that ranks come to the numbers that one process
//! with as many views a step comes to.
//!
//! | file | what ranks do together |
//! |---|---|
//! | `round.rs` | draw views, and bring gradients back |
//! | `dealing.rs` | give rows to ranks, read them, put them in order |
//! | `step.rs` | move the rows down their gradients |
//! | `density.rs` | choose by the statistics of all rows, and edit |

mod dealing;
mod density;
mod round;
mod share;
mod step;

pub use share::CpuShard;

#[cfg(test)]
mod tests;
