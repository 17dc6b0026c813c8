//! The GPU as one of several ranks, which train one model together.
//!
//! Each rank has a share of the rows, spread over the whole scene, so that density control of the shares is that of the
//! model: thresholds and numbers are those of all ranks, and each share gets its part of the new Gaussians. Rows stay
//! with their ranks until a model is loaded. Their numbers are those of rank 0's rows, then of rank 1's, and so on.
//!
//! | file | content |
//! |---|---|
//! | `link.rs` | bytes from GPU to GPU, by NCCL |
//! | `share.rs` | the device and its rows |
//! | `projection.rs` | rows projected into a view of this rank or of another |
//! | `views.rs` | views drawn, and gradients brought back |
//! | `density.rs` | candidates chosen by thresholds of all ranks, and edits |

mod density;
mod link;
mod projection;
mod share;
mod views;

pub use share::{CudaShard, CudaShare};
