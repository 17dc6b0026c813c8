//! Gaussian splatting: from a COLMAP scene to a PLY.
//!
//! Modules are in the order of data flow; a module uses only modules above it. Four packages are separate:
//! `src/crates/mesh` has meshes and shared code (random streams, PLY headers, GLB containers); `src/crates/formats` has
//! files of Gaussians; `src/crates/ranks` connects processes, and `src/crates/nccl` sends bytes between GPUs.
//!
//! | subject | file |
//! |---|---|
//! | a step of training | `train/trainer.rs`; a view of it in `train/view_step.rs` |
//! | values of options | `config/` declares them in a file a group, `config/resolve.rs` resolves |
//! | the choice of a fallback for memory | `memory/fallback.rs`; `backend/cuda/govern.rs` applies it |
//! | the memory that a run needs | `memory/plan/`, a dry run of the stages in `backend/cuda/dry.rs` |
//! | files of Gaussians | `crates/formats/src/open.rs` reads, `crates/formats/src/save.rs` writes |
//! | exit codes | `cli/exit.rs` |
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
//! | intersect Gaussians with rays | `math/transmittance.rs` | `rays.rs` |
//! | find the median depths of rays | `math/transmittance.rs` | `rays.rs` |
//! | compute transmittances to positions | `math/transmittance.rs` | `rays.rs` |
//! | fuse depths into voxels | `src/crates/mesh/src/tsdf/` | `fuse.rs` |
//! | apply the colour changes of cameras | `math/appearance.rs` | `appearance.rs` |
//! | scale the photograph down | `math/divisor.rs` | `loss.rs` |
//! | compare with the photograph | `math/ssim.rs` | `loss.rs` |
//! | compare by a network's features | `perceptual/` | `lpips.rs` |
//! | compare inverse depths with a depth map | | `depth.rs` |
//! | compute the depth distortion of rays | `math/distortion.rs` | `depth.rs` |
//! | compare normals of drawn depths with a normal map | `math/normals.rs` | `normals.rs` |
//! | compare drawn depths with drawn normals | `math/normals.rs` | `normals.rs` |
//! | compare patches with those of another view | `math/patches.rs` | `patches.rs` |
//! | step down the gradient | `math/adam.rs` | `adam.rs` |
//! | clone, split and prune | `math/quantile.rs` | `densify.rs` |
//! | relocate and copy at random | `math/relocate.rs` | `relocate.rs` |
//! | find the nearest centres | | `neighbours.rs` |
//! | find nearest rows of harmonics | `src/crates/formats/src/sog/palette.rs` | `neighbours.rs` |
//! | compute surface terms | `math/field.rs` | `surface.rs` |
//! | sum the blend weights of Gaussians | | `contribution.rs` |
//! | compute the contributions of Gaussians | `math/blend.rs` | `contribution.rs` |
//! | widen Gaussians by a 3D filter | `math/filter.rs` | `smooth.rs` |
//! | move Gaussians with a mesh | `math/bound.rs` | `bind.rs` |
//! | sort rows along the Z-curve | `math/morton.rs` | `reorder.rs` |
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | splat | a Gaussian projected into a view |
//! | surfel | a Gaussian that is drawn as the disc of its first two axes |
//! | vertex | a row of Gaussians with only a position, an opacity and colours |
//! | face | a triangle between three vertices |
//! | window | the falloff of a triangle from its middle to its edges, and its samples |
//! | record | the 12 floats of a splat |
//! | splat index | a splat's index in the list of its view |
//! | instance | a pair of a splat and a tile that it covers |
//! | tile | 16x16 px, drawn by one block |
//! | warp tile | 8x4 px of a tile, drawn by one warp |
//! | chunk | 256 instances of a tile |
//! | band | rows of tiles whose instances are listed at once |
//! | transmittance | the share of the light that passes |
//! | median depth | the depth at which the transmittance of a ray is one half |
//! | patch | 7x7 px of a photograph around a pixel |
//! | other view | the view in whose photograph a view's patches are searched |
//! | term | a summand of the loss |
//! | target | a photograph on the device |
//! | frame | a rendered view with the inputs of its backward pass |
//! | candidate | a Gaussian that may be cloned or split in this densification step |
//! | new Gaussian | a Gaussian that density control adds |
//! | relocate | move a dead Gaussian onto a living one |
//! | hinge | two triangles at an edge |
//! | voxel | a lattice point with a distance to surfaces |
//! | brick | 8x8x8 voxels |
//! | lane block | 32 rows of the model, stored together |
//! | catch up | apply the Adam steps that were skipped |
//! | rank | one of several processes that train a model together |
//! | share | the rows of a model that a rank holds |
//! | region | memory for the life of the model, on the device or page-locked on the host |
//! | offload | keep tables of a model in page-locked host memory |
//! | block | memory of the scratch arena, for a stage or less |
//! | slot | the description of one buffer: label, purpose, length |
//! | granule | 2 MiB, the unit in which device memory is mapped |
//! | dry run | the GPU's stages without memory and kernels, to find their allocations |
//! | ledger | the list of memory users with their sizes |
//! | fallback | a way to use less memory when memory is short |
//!
//! # Recipes
//!
//! Paths are below `src/`, except those that begin with `kernels/`, `tests/` or `configs/`.
//!
//! **Add a guide.** `guide/x.md` and its name in `guide/mod.rs`.
//!
//! **Add a file format of Gaussians.** `crates/formats/src/x.rs`: the writer, the reader, or both; its `mod` in
//! `lib.rs` there. To write: `save.rs` beside it, a variant of `SplatFormat`, a row of `FORMATS` (name, help, end of
//! file names) and the arms that the compiler asks for; `--format` and `-o` follow from the row. The tests read each
//! file that is written: `formats()` leaves out formats that cannot be read. To read: `open.rs`, a variant of
//! `SplatFileKind`, its first bytes in `kind_of`, an arm of `parse`; `error.rs` lists the endings. Options of a format:
//! `cli/export/args.rs`, set by `splat_format` in `cli/export.rs`. A format of meshes is a variant of `ExportFormat`
//! there, written in `export/triangles.rs`. Users find it in `guide/export.md`. A format without harmonics is named in
//! `has_harmonics` of `save.rs`.
//!
//! **Add a command.** `cli/x.rs`: a struct of `clap::Args` and a function `run`. `cli/mod.rs`: a variant of `Command`
//! with its line of help, and its call. `cli/exit.rs` gives each type of error its exit code. Tests: `tests/program`.
//!
//! **Add an option.** `config/options.rs`: one entry with help, default, range (a function of `config/values.rs`) and
//! the conditions under which it has no effect (`idle`); `config/declare.rs` explains the fields. Options of the
//! scene are in `config/scene.rs`, of density control in `config/densify.rs` and `config/triangles.rs`, of the coarse
//! stage in `config/sugar.rs`, of memory, output and device in `config/run_options.rs`. Then the file that uses the
//! option. `SPLAT_UPDATE_CONFIGS=1 cargo test --test house configs` writes `configs/reference.toml`. A rule about two
//! options is in `config/validate.rs`. An option without a default gets a value in `tests/house/configs.rs`. Constants
//! of a paper have the heading `ADVANCED`; options of `-h` are listed in `USUAL` of `cli/short_help.rs`, iterations that
//! scale with the run in `config/stretch.rs`.
//!
//! **Add a loss term.** `abi/terms.rs`: a variant of `Term` with its name, values, derivatives, inputs (`needs`), stage
//! (`at`) and topic, an index for each value after the existing ones (raise `TERM_VALUES`, `SUM_SQUARED` and
//! `TERM_SUMS`), and the term in `ALL` of the tests. `train/terms.rs`: a row with the weight and the iterations.
//! `config/options.rs`: the weight, an option as above. A term of colours (changed as by the camera, under the mask) is
//! computed in `backend/cpu/stage/loss.rs` and `kernels/loss.cu`; there `d_values` has the derivative over the count,
//! and `PLACES`, `Sums` and `warp_sums` take its sum. A term of drawn depths that needs no map of the photograph is an
//! arm or a call in `score_rays` of `backend/{cpu,cuda}/stage/depth.rs` with a kernel in `kernels/depth.cu`, whose
//! arguments are in `abi/terms.rs` and whose row is in `backend/cuda/device/launch.rs`. Another term has its own stage
//! (a kernel, as below), is called from `backend/cpu/frame.rs` and `backend/cuda/frame/score.rs`, and its buffers are
//! slots in `layout/`; the first writer of a gradient clears it. Logs have its values by their names. Tests:
//! differences of the CPU in `tests/spec/gradients.rs` (of maps: beside the stage), CPU against GPU in
//! `tests/gpu/parity_*.rs`.
//!
//! **Add a command of the ranks.** `backend/ranks/line.rs`: a variant of `RankCommand`, and another
//! `RANK_PROTOCOL`. `backend/ranks/shard.rs`: a method, which `backend/cpu/ranks` and `backend/cuda/ranks` implement.
//! Rank 0 sends the command in `leader.rs` and calls the method; the others call the method in `follower.rs`. Between
//! the command and its end all ranks make the same calls of the exchange. Tests: `backend/cpu/ranks/tests.rs` against
//! one process, `tests/gpu/device_ranks.rs` against one GPU.
//!
//! **Add a strategy.** `train/strategy/x.rs`: an implementation of the trait in `train/strategy/interface.rs` with
//! the scores, picks and edits of `backend/edit.rs`. `mcmc.rs` is independent; strategies that grow by gradients use
//! the densification step of `growth.rs`. `train/strategy/mod.rs`: `mod` and its arm. `config/strategy.rs`: a variant
//! of `StrategyName` with its help, its values of options, and the options that it uses; then write
//! `configs/reference.toml`, as above. A step that does not grow overrides `shape`; a new shape is planned in
//! `memory/plan/{work,run}.rs`. A new score: a variant of `ScoreRule`, computed in
//! `backend/{cpu,cuda}/stage/densify.rs` and `kernels/densify.cu`; its statistic of the backward pass is in
//! `kernels/blend.cuh`. Tests: beside the strategy, and whole runs in `tests/program/strategies.rs`.
//!
//! **Add a primitive.** `model/x.rs`: its values and its schema (spaces, tables, columns, of `layout/schema.rs`).
//! `backend/cpu/x.rs`: `Drawable`, the projection to a splat and its derivative; `DensityField` for surface terms,
//! noise and regularisers. A splat that is not an ellipse also changes `backend/cpu/splat.rs` and
//! `backend/cpu/stage/{bin,blend}.rs`. `kernels/x.cu`: the functions that `project.cuh` and `adam.cuh` need (listed
//! at the heads of `primitive.cuh` and of `step` in `adam.cuh`), one instance of `project` and of `step`, and a
//! kernel for several views a step. `backend/cuda/primitive.rs`: `CudaPrimitive` with the names and capabilities of
//! these kernels; a request beyond them is an error. A record that is not an ellipse also needs a kind of
//! `layout/request.rs` (`Records`), a footprint (`footprint.cuh`, for example the surfels'), instances of bin, blend
//! and contribution with rows and names in `backend/cuda/device/launch.rs`.
//! Model memory, checkpoints, PLY, reordering and neighbours follow the schema. Example: `tests/common/isotropic.rs`
//! and `tests/gpu/isotropic.cu`.
//!
//! **Add a kernel.** `kernels/x.cu`: head comment, helpers, kernels. `abi/x.rs`: one argument struct for each kernel;
//! `abi/mod.rs`: the module, its exports, and its line in `header`. `backend/cuda/device/launch.rs`: a row of
//! `kernels!`. The build finds `.cu` files by itself. `backend/cpu/stage/x.rs` and `backend/cuda/stage/x.rs`: the
//! stage, of the same name, with its `mod` in `backend/{cpu,cuda}/mod.rs`. `layout/`: its buffers. A row in the table
//! above, and a test in `tests/gpu/` that compares both backends; device functions are probed by
//! `kernels/probe.cu` with a number in `abi/probe.rs`. A kernel of an existing stage goes into that stage's files.

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
