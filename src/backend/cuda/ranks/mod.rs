//! CUDA backend of one of several ranks that train one model together.
//!
//! Each rank has a share of the rows, spread over the whole scene. Density control of the shares therefore represents
//! that of the model: thresholds and counts are those of all ranks, and each rank adds its part of the new Gaussians.
//! Rows stay on their ranks until a model is loaded. The rows of rank 0 are numbered first, then those of rank 1, and
//! so on.
//!
//! | file | content |
//! |---|---|
//! | `link.rs` | NCCL connection between the GPUs |
//! | `share.rs` | device and rows of a rank |
//! | `projection.rs` | projection of rows into a view of any rank |
//! | `views.rs` | drawing of views, and exchange of their gradients |
//! | `density.rs` | scores, selections and edits |

mod density;
mod link;
mod projection;
mod share;
mod views;

pub use share::{CudaShard, CudaShare};
