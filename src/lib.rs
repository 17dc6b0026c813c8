//! Gaussian splatting: from a COLMAP scene to a PLY.
//!
//! Modules stand in the order of data flow; a module uses only those above it.
//!
//! The stages of an iteration have one name in every column; a file `x.rs` of
//! `backend/cpu/stage/` has its twins `x.rs` in `backend/cuda/stage/` and `x.cu` in `kernels/`, and
//! `tests/gpu/parity_*` compares them:
//!
//! | stage | mathematics | file |
//! |---|---|---|
//! | project Gaussians to the image | `math/splat.rs`, `math/sh.rs` | `project.rs` |
//! | sort them into tiles | | `bin.rs` |
//! | blend each tile's front to back | `math/blend.rs` | `blend.rs` |
//! | change colours as the camera did | `math/appearance.rs` | `appearance.rs` |
//! | compare with the photograph | `math/ssim.rs` | `loss.rs` |
//! | compare with it by a network's features | `perceptual/` | `lpips.rs` |
//! | compare drawn depths with drawn normals | `math/normals.rs` | `normals.rs` |
//! | step down the gradient | `math/adam.rs`, `math/compact.rs` | `adam.rs` |
//! | clone, split and prune | `math/quantile.rs` | `densify.rs` |
//! | move and copy by chance | `math/relocate.rs` | `relocate.rs` |
//! | find the nearest centres | | `neighbours.rs` |
//! | have Gaussians lie on surfaces | `math/field.rs`, `math/lookup.rs` | `surface.rs` |
//! | put neighbours side by side | `math/morton.rs` | `reorder.rs` |
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | splat | a Gaussian projected into a view |
//! | record | the 12 floats of a splat |
//! | splat index | a splat's place in the list of its view |
//! | instance | a pair of a splat and a tile that it covers |
//! | tile | 16x16 px, drawn by one block |
//! | part | 8x4 px of a tile, drawn by one warp |
//! | chunk | 256 instances of a tile |
//! | band | rows of tiles whose instances are listed at once |
//! | term | a summand of the loss |
//! | target | a photograph on the device |
//! | frame | a rendered view and what its backward pass needs |
//! | candidate | a Gaussian that may be cloned or split in this round |
//! | birth | a row that density control adds |
//! | relocate | move a dead Gaussian onto a living one |
//! | lane block | 32 rows of the model, stored together |
//! | catch up | apply the Adam steps that were skipped |
//! | region | device memory for the life of the model |
//! | block | memory of the scratch arena, for a stage or less |
//! | granule | 2 MiB, the unit in which device memory is mapped |
//! | slot | the description of one buffer |
//! | ledger | the account of who holds how much memory |
//! | rung | a thing to give up when memory is short |

pub mod math;

pub mod abi;

pub mod memory;

pub mod files;

pub mod perceptual;

pub mod ply;

pub mod config;

pub mod dataset;

pub mod synth;

pub mod model;

pub mod export;

pub mod backend;

pub mod train;

pub mod telemetry;

pub mod cli;
