//! Gaussian splatting: from a COLMAP scene to a PLY.
//!
//! Modules stand in the order of data flow; a module uses only those above it. Four packages stand beside them:
//! `src/crates/mesh` has what concerns meshes alone and what all share (random streams, PLY headers, GLB containers);
//! `src/crates/formats` has files of Gaussians and knows nothing of training; `src/crates/ranks` has processes that work
//! together, and `src/crates/nccl` bytes between GPUs.
//!
//! A stage has one name everywhere: it is a file `x.rs` in `backend/cpu/stage/` and in
//! `backend/cuda/stage/`, and `x.cu` in `kernels/`; other files there are parts of a stage.
//! `tests/gpu/parity_*` compares the devices:
//!
//! | stage | mathematics | file |
//! |---|---|---|
//! | project Gaussians to the image | `math/splat/`, `math/sh.rs` | `project.rs` |
//! | sort them into tiles | | `bin.rs` |
//! | blend each tile's front to back | `math/blend.rs` | `blend.rs` |
//! | take them as rays meet them | `math/transmittance.rs` | `rays.rs` |
//! | find where rays lose half of their light | `math/transmittance.rs` | `median.rs` |
//! | find how much light passes to places | `math/transmittance.rs` | `transmittance.rs` |
//! | fuse depths into voxels | `src/crates/mesh/src/tsdf/` | `fuse.rs` |
//! | change colours as the camera did | `math/appearance.rs` | `appearance.rs` |
//! | make the photograph smaller | `math/divisor.rs` | `shrink.rs` |
//! | compare with the photograph | `math/ssim.rs` | `loss.rs` |
//! | compare with it by a network's features | `perceptual/` | `lpips.rs` |
//! | compare inverse depths with a map of them | | `depth.rs` |
//! | compare normals of drawn depths with a map of normals | `math/normals.rs` | `normal_map.rs` |
//! | find how far apart rays meet what they meet | `math/distortion.rs` | `distortion.rs` |
//! | compare drawn depths with drawn normals | `math/normals.rs` | `normals.rs` |
//! | compare patches with those of another view | `math/patches.rs` | `patches.rs` |
//! | step down the gradient | `math/adam.rs` | `adam.rs` |
//! | clone, split and prune | `math/quantile.rs` | `densify.rs` |
//! | move and copy by chance | `math/relocate.rs` | `relocate.rs` |
//! | find the nearest centres | | `neighbours.rs` |
//! | have Gaussians lie on surfaces | `math/field.rs` | `surface.rs` |
//! | sum what each shows of itself | | `weights.rs` |
//! | find what each adds to the likeness | `math/blend.rs` | `worth.rs` |
//! | find which rows of harmonics are alike | `src/crates/formats/src/sog/palette.rs` | `palette.rs` |
//! | widen Gaussians by a 3D filter | `math/filter.rs` | `smooth.rs` |
//! | move Gaussians with a mesh | `math/bound.rs` | `bind.rs` |
//! | put neighbours side by side | `math/morton.rs` | `reorder.rs` |
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | splat | a Gaussian projected into a view |
//! | surfel | a Gaussian that is drawn as the disc of its first two axes |
//! | vertex | a row of Gaussians that only has a place, an opacity and colours |
//! | face | a triangle between three vertices |
//! | window | how a triangle falls off from its middle to its edges, and how finely it is sampled |
//! | record | the 12 floats of a splat |
//! | splat index | a splat's place in the list of its view |
//! | instance | a pair of a splat and a tile that it covers |
//! | tile | 16x16 px, drawn by one block |
//! | part | 8x4 px of a tile, drawn by one warp |
//! | chunk | 256 instances of a tile |
//! | band | rows of tiles whose instances are listed at once |
//! | transmittance | the share of the light that passes |
//! | median depth | where the transmittance of a ray is one half |
//! | patch | 7x7 px of a photograph around a pixel |
//! | other view | the view whose photograph a view's patches are looked for in |
//! | term | a summand of the loss |
//! | target | a photograph on the device |
//! | frame | a rendered view and what its backward pass needs |
//! | candidate | a Gaussian that may be cloned or split in this round |
//! | birth | a row that density control adds |
//! | relocate | move a dead Gaussian onto a living one |
//! | hinge | two triangles at an edge |
//! | voxel | a place of a lattice with a distance to surfaces |
//! | brick | 8x8x8 voxels |
//! | lane block | 32 rows of the model, stored together |
//! | catch up | apply the Adam steps that were skipped |
//! | rank | one of several processes that train a model together |
//! | share | the rows of a model that a rank has |
//! | region | memory for the life of the model: the device's, or the host's where kernels reach it |
//! | offload | keep tables of a model in the host's memory, page-locked |
//! | block | memory of the scratch arena, for a stage or less |
//! | slot | the description of one buffer: label, purpose, length |
//! | granule | 2 MiB, the unit in which device memory is mapped |
//! | dry run | the real stages of a GPU without its memory and kernels, which says what they allocate |
//! | ledger | the account of who holds how much memory |
//! | rung | a thing to give up when memory is short |
//!
//! # Recipes
//!
//! **Add a guide.** `guide/x.md` and its name in `guide/mod.rs`.
//!
//! Paths are below `src/`, but for those that begin with `kernels/`, `tests/` or `configs/`.
//!
//! **Add an option.** `config/options.rs`: one entry with help, default, range (a function of
//! `config/values.rs`) and when it has no effect (`idle`); `config/declare.rs` explains all of these. The
//! scene's options are in `config/scene.rs`, those of density control in `config/densify.rs` and `config/triangles.rs`, the coarse
//! stage's in `config/sugar.rs`, those of memory, output and device in `config/run_options.rs`. Then the
//! file that uses it.
//! `SPLAT_UPDATE_CONFIGS=1 cargo test --test house configs` writes `configs/reference.toml`. A rule about two
//! options stands in `config/validate.rs`. An option without a default gets a value in `tests/house/configs.rs`.
//!
//! **Add a loss term.** `abi/terms.rs`: a variant of `Term` (the compiler asks for its arms), and a place for each
//! of its values after those that there are, with what the value is a mean over and the loss's derivative
//! by it.
//! `train/terms.rs`: a row with its weight and the iterations in which it is on. `config/options.rs`: the
//! weight, an option as above. A term of colours (as the camera changed them, under the mask) is
//! computed in `backend/cpu/stage/loss.rs` and in `kernels/loss.cu`; there `d_values` has the derivative
//! over the count, and `PLACES`, `Sums` and `warp_sums` take its sum. Another term has files of its own
//! beside these (a kernel, as below), and is called from `backend/cpu/frame.rs` and `backend/cuda/frame/score.rs`; its buffers
//! are slots in `layout/`. Logs have its values by their names. Tests: differences of the CPU in
//! `tests/spec/gradients.rs`, CPU against GPU in `tests/gpu/parity_step.rs`.
//!
//! **Have ranks do something more together.** `backend/ranks/line.rs`: a variant of `RankCommand`, and another
//! `RANK_PROTOCOL`. `backend/ranks/shard.rs`: a method, which `backend/cpu/ranks` and `backend/cuda/ranks` implement.
//! Rank 0 tells it in `leader.rs` and calls the method, the others call it in `follower.rs`: between the command and its end
//! all ranks make the same calls of the exchange. Tests: `backend/cpu/ranks/tests` against one process,
//! `tests/gpu/device_ranks.rs` against one GPU.
//!
//! **Add a strategy.** `train/strategy/x.rs`: an implementation of the trait in
//! `train/strategy/interface.rs`, written with the scores, picks and edits of `backend/edit.rs`.
//! `mcmc.rs` stands alone; one that grows by gradients takes its round from `growth.rs`.
//! `train/strategy/mod.rs`: `mod` and a row. `config/strategy.rs`: a variant of `StrategyName` with its help,
//! the values of options that it brings, and which options it takes; then write
//! `configs/reference.toml`, as above. A score that the backend does not have: a variant of `ScoreRule`, computed in
//! `backend/{cpu,cuda}/stage/densify.rs` and `kernels/densify.cu`; what it gathers in the backward pass is a
//! statistic of `kernels/maps.cuh`. Tests: beside it, and whole runs in `tests/program/strategies.rs`.
//!
//! **Add a primitive.** `model/x.rs`: its values and its schema (spaces, tables, columns, of
//! `layout/schema.rs`). `backend/cpu/x.rs`: `Drawable`, its projection to a splat and the derivative of
//! that; `DensityField`, if surface terms, noise and regularisers should work on it. A splat that is not an
//! ellipse also changes `backend/cpu/splat.rs` and `backend/cpu/stage/{bin,blend}.rs`.
//! `kernels/x.cu`: what `project.cuh` and `adam.cuh` ask of a primitive (the heads of `primitive.cuh`
//! and of `step` in `adam.cuh` have the lists), one instance of `project` and of `step`, and for several
//! views a step a kernel of its own. `backend/cuda/primitive.rs`: `CudaPrimitive`, which names
//! these kernels and says what they can do; a request for more is an error. A record that is not an
//! ellipse also needs a kind of `layout/request.rs` (`Records`), a footprint (`footprint.cuh`; that of surfels is
//! an example), instances of bin, blend and worth with rows in `backend/cuda/device/launch.rs`, and their
//! names in `backend/cuda/device/footprints.rs`. Model memory,
//! checkpoints, PLY, reordering and neighbours follow the schema. `tests/common/isotropic*.rs` and
//! `tests/gpu/isotropic.cu` are an example.
//!
//! **Add a kernel.** `kernels/x.cu`: head comment, helpers, kernels. `abi/x.rs`: one argument struct for
//! each kernel; `abi/mod.rs`: the module, what it exports, and its line in `header`.
//! `backend/cuda/device/launch.rs`: a row of `kernels!`. The build finds `.cu` files by itself. `backend/cpu/stage/x.rs` and `backend/cuda/stage/x.rs`: the stage, of the same name.
//! `layout/`: its buffers. A row in the table above, and a test in `tests/gpu/` that compares both backends.

pub mod math;

pub mod abi;

pub mod layout;

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

pub mod clean;

pub mod sog;

pub mod mesh;

pub mod telemetry;

pub mod view;

pub mod video;

pub mod guide;

#[cfg(feature = "bench")]
pub mod bench;

pub mod cli;
