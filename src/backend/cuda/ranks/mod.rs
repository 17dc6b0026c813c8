//! The GPU as one of several ranks, which train one model together.
//!
//! Each rank has a share of the rows, all of them spread over the whole scene, so that density control of the
//! shares is that of the model: what is compared with thresholds is, thresholds and numbers are of all ranks, and
//! of how many births there are each share has its part. Rows stay with their ranks until a model is loaded.
//! Their numbers are those of rank 0's rows, then of rank 1's, and so on.
//!
//! | file | what it is about |
//! |---|---|
//! | `link.rs` | bytes from GPU to GPU, by NCCL |
//! | `counts.rs` | how much of the rows each view sees |
//! | `records.rs` | records of splats on their way |
//! | `share.rs` | the device and its rows |
//! | `rows.rs` | give rows to ranks, read them, put them in order |
//! | `projection.rs` | project rows into a view of this rank or of another |
//! | `views.rs` | draw views, and bring gradients back |
//! | `density.rs` | choose by thresholds of all ranks, and edit |

mod counts;
mod density;
mod link;
mod projection;
mod records;
mod rows;
mod share;
mod views;

pub use share::{CudaShard, CudaShare};
