//! What the host and the kernels must agree on: constants, and one argument struct per kernel.
//!
//! Everything is declared once, here; `kernels/build.rs` includes this module and prints
//! [`header`] to `abi.cuh`, where nvcc asserts every size and offset. So this module uses nothing
//! but the standard library.

#[macro_use]
mod declare;
mod adam;
mod appearance;
mod bin;
mod bind;
mod blend;
mod cache;
mod densify;
mod distortion;
mod fuse;
mod loss;
mod lpips;
mod median;
mod neighbours;
mod normal_map;
mod normals;
mod pack;
mod palette;
mod patches;
pub mod probe;
mod project;
mod quantile;
mod ranks;
mod rays;
mod relocate;
mod reorder;
mod shrink;
mod smooth;
mod surface;
pub mod terms;
mod transmittance;
mod triangles;
mod view;
mod weights;
mod worth;

pub use adam::{
    ADAM_BLOCK, AdamArgs, CatchUpArgs, DRIFT_STEPS, LazyAdam, MAX_VIEWS, MOMENTUM_STEPS, ViewArgs,
};
pub use appearance::{
    AFFINE_WIDTH, APPEARANCE_BLOCK, COLOR_SHARES, CoastArgs, ColorBwdArgs, CompensateArgs,
    FIT_SUMS, FitArgs, GRID_BWD_BLOCK, GRID_LUMA, GRID_SHARES, GRID_X, GRID_Y, GatherArgs,
    MoveArgs,
};
pub use bin::{BIN_BLOCK, CountRowsArgs, InstancesArgs, RangesArgs};
pub use bind::{BIND_BLOCK, BindArgs};
pub use blend::{BLEND_BLOCK, BLEND_BWD_BLOCK, BLEND_CHUNK, BLEND_PARTS, BlendArgs};
pub use cache::{CACHE_BLOCK, CacheArgs, ColorCache};
pub use declare::{Abi, Arguments, In, Literal, Named, Out, Plain};
pub use densify::{
    COMPACT_BLOCK, COMPACT_SLICES, CompactArgs, DENSIFY_BLOCK, DensityCounts, FadeArgs, GrowArgs,
    ListArgs, OBSERVE_ABSOLUTE, OBSERVE_BLOCK, OBSERVE_DISAGREEMENT, OBSERVE_NORMS, ObserveArgs,
    PaddingArgs, ResetArgs, SAMPLE_BLOCK, SampleArgs, SelectedArgs, SurveyArgs, SurvivorsArgs,
    TABLES,
};
pub use distortion::{DISTORTION_BLOCK, DISTORTION_FAR, DISTORTION_NEAR, DistortionArgs};
pub use fuse::{
    BRICK_DIRECTIONS, BRICK_SIDE, BRICK_VOXELS, BRICK_WIDTH, DISTANCE_STEPS, FARTHEST, FUSE_BLOCK,
    FuseBricksArgs, GRAZING_WEIGHT, LatticeView, MarkBricksArgs, VOXEL_WEIGHT_MAX,
    VOXEL_WEIGHT_MIN, WEIGHED_WIDTH, WeighPixelsArgs,
};
pub use loss::{
    DEPTH_LOSS_BLOCK, DepthLossArgs, LOSS_BLOCK, LOSS_COLUMNS, LOSS_ROWS, LOSS_TAPS, LossArgs,
};
pub use lpips::{
    LPIPS_BLOCK, LPIPS_CHANNELS, LPIPS_DEPTH, LPIPS_EPSILON, LPIPS_PIXELS, LPIPS_SCALE_B,
    LPIPS_SCALE_G, LPIPS_SCALE_R, LPIPS_SHIFT_B, LPIPS_SHIFT_G, LPIPS_SHIFT_R, LpipsCompareArgs,
    LpipsInputArgs, LpipsLayerArgs,
};
pub use median::{
    MEDIAN_ABSCISSAE, MEDIAN_BLOCK, MEDIAN_FALL_MIN, MEDIAN_FROM, MEDIAN_MOVES, MEDIAN_NARROWINGS,
    MEDIAN_NEWTON_STEPS, MEDIAN_REACH, MEDIAN_SLOPE_MIN, MEDIAN_TO, MedianArgs, MedianBwdArgs,
};
pub use neighbours::{
    BOX_WIDTH, EXTENT_WIDTH, JoinArgs, MOST_NEIGHBOURS, NEAREST_BLOCK, NEIGHBOURS_BLOCK, NO_ROW,
    NearestArgs, PLACED_WIDTH, PlaceArgs, SplitArgs, TREE_LEVELS,
};
pub use normal_map::NormalMapArgs;
pub use normals::{
    FEATURES_BLOCK, FEATURES_WIDTH, FeaturesArgs, NORMALS_BLOCK, NORMALS_SIDE, NormalsArgs,
    OPAQUE_MIN, STEP_MAX, STORED_SQUARE_MIN,
};
pub use pack::{
    FORM_BFLOATS, FORM_FIRSTS, FORM_FLOATS, FORM_HALVES, FORM_SECONDS, PACK_BLOCK, PackArgs,
    UnpackArgs,
};
pub use palette::{NearCellsArgs, NearEntriesArgs, PALETTE_BLOCK, PALETTE_CELLS, PALETTE_WIDTH};
pub use patches::{
    AGREEMENT_MIN, CONTRAST_MIN, FACING_MAX, PATCH_REACH, PATCH_SIDE, PATCH_STRIDE, PATCHES_BLOCK,
    PatchesArgs, VARIANCE_FLOOR,
};
pub use probe::{PROBE_BLOCK, ProbeArgs};
pub use project::{PROJECT_BLOCK, ProjectArgs};
pub use quantile::{DIGITS, DIGITS_BLOCK, DigitsArgs};
pub use ranks::{RANKS_BLOCK, UnpackSplatsArgs};
pub use rays::{RAY_WIDTH, RAYS_BLOCK, RaysArgs, RaysBwdArgs};
pub use relocate::{CopyArgs, DrawArgs, NO_SOURCE, RELOCATE_BLOCK, SplitOpacityArgs, WeighArgs};
pub use reorder::{ColumnsArgs, MortonArgs, REORDER_BLOCK};
pub use shrink::{SHRINK_BLOCK, ShrinkArgs};
pub use smooth::{
    DET_MIN_PX4, ResetSmoothedArgs, SAMPLED_MARGIN, SMOOTH_BLOCK, SMOOTH_VIEWS, SmoothArgs,
    SmoothView,
};
pub use surface::{
    EntropyArgs, NearArgs, RegulariseArgs, SURFACE_BLOCK, SURFACE_WIDTH, SeenArgs, ShowArgs,
    SurfaceSums,
};
pub use transmittance::{NOT_SEEN, TRANSMITTANCE_BLOCK, TransmittanceArgs};
pub use triangles::{
    AREA_MIN, COVER_EXPONENT, COVER_GROWTH, COVER_ROUNDNESS, COVER_VARIANCE_PX2, FacesArgs,
    FacesBwdArgs, MidpointsArgs, REMESH_BLOCK, RaiseFloorArgs, SHARE_MIN, TRIANGLE_ALPHA_MAX,
    VERTEX_WIDTH, VertexSizesArgs,
};
pub use view::{
    ALPHA_MAX, ALPHA_MIN, Counts, DILATION_PX2, FAULT_GROUPS, GEOMETRY_WIDTH, RECORD_WIDTH,
    SHORT_KEYS_MAX, SURFEL_FACING_MIN, SURFEL_RECORD_WIDTH, SplatGradient, TILE, TILE_ROWS_MAX,
    TRANSMITTANCE_MIN, TRIANGLE_RECORD_WIDTH, TileRange, TileRect, UNSEEN, ViewCamera,
};
pub use weights::{AddWeightsArgs, WEIGHTS_BLOCK, WhitenArgs};
pub use worth::{AddWorthsArgs, BEHIND_MIN, WORTH_BLOCK, WORTH_WIDTH, WorthArgs};

/// The text of `abi.cuh`.
pub fn header() -> String {
    [
        "// Printed by kernels/build.rs from src/abi/.\n#pragma once\n\
         #include <cstddef>\n#include <cstdint>\n",
        &view::constants(),
        &view::structs(),
        &terms::constants(),
        &cache::constants(),
        &cache::structs(),
        &adam::constants(),
        &adam::structs(),
        &project::constants(),
        &project::structs(),
        &ranks::constants(),
        &ranks::structs(),
        &bin::constants(),
        &bin::structs(),
        &blend::constants(),
        &blend::structs(),
        &loss::constants(),
        &loss::structs(),
        &densify::constants(),
        &densify::structs(),
        &distortion::constants(),
        &distortion::structs(),
        &lpips::constants(),
        &lpips::structs(),
        &neighbours::constants(),
        &neighbours::structs(),
        &normals::constants(),
        &normals::structs(),
        &normal_map::structs(),
        &patches::constants(),
        &patches::structs(),
        &rays::constants(),
        &rays::structs(),
        &median::constants(),
        &median::structs(),
        &transmittance::constants(),
        &transmittance::structs(),
        &triangles::constants(),
        &triangles::structs(),
        &pack::constants(),
        &pack::structs(),
        &palette::constants(),
        &palette::structs(),
        &quantile::constants(),
        &quantile::structs(),
        &relocate::constants(),
        &relocate::structs(),
        &reorder::constants(),
        &reorder::structs(),
        &shrink::constants(),
        &shrink::structs(),
        &smooth::constants(),
        &smooth::structs(),
        &surface::constants(),
        &surface::structs(),
        &fuse::constants(),
        &fuse::structs(),
        &weights::constants(),
        &weights::structs(),
        &worth::constants(),
        &worth::structs(),
        &appearance::constants(),
        &appearance::structs(),
        &bind::constants(),
        &bind::structs(),
        &probe::constants(),
        &probe::structs(),
    ]
    .concat()
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros declare for the product")]
mod tests;
