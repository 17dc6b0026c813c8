//! Interface of host and kernels: constants, and one argument struct per kernel.
//!
//! Everything is declared once, here. `kernels/build.rs` includes this module and prints [`header`] to `abi.cuh`,
//! where nvcc asserts every size and offset. So this module depends only on the standard library.

#[macro_use]
mod declare;
mod adam;
mod blend;
mod densify;
mod fuse;
mod loss;
mod normals;
mod palette;
pub mod probe;
mod project;
mod surface;
pub mod terms;
mod triangles;
mod view;

pub use adam::{
    ADAM_BLOCK, AdamArgs, CatchUpArgs, DRIFT_STEPS, LazyAdam, MAX_VIEWS, MOMENTUM_STEPS, ViewArgs,
};
pub use adam::{CACHE_BLOCK, CacheArgs, ColorCache};
pub use adam::{
    FORM_BFLOATS, FORM_FIRSTS, FORM_FLOATS, FORM_HALVES, FORM_SECONDS, PACK_BLOCK, PackArgs,
    UnpackArgs,
};
pub use blend::{AddWeightsArgs, WEIGHTS_BLOCK, WhitenArgs};
pub use blend::{AddWorthsArgs, BEHIND_MIN, WORTH_BLOCK, WORTH_WIDTH, WorthArgs};
pub use blend::{BLEND_BLOCK, BLEND_BWD_BLOCK, BLEND_CHUNK, BLEND_PARTS, BlendArgs};
pub use blend::{DISTORTION_BLOCK, DISTORTION_FAR, DISTORTION_NEAR, DistortionArgs};
pub use blend::{
    MEDIAN_ABSCISSAE, MEDIAN_BLOCK, MEDIAN_FALL_MIN, MEDIAN_FROM, MEDIAN_MOVES, MEDIAN_NARROWINGS,
    MEDIAN_NEWTON_STEPS, MEDIAN_REACH, MEDIAN_SLOPE_MIN, MEDIAN_TO, MedianArgs, MedianBwdArgs,
};
pub use blend::{NOT_SEEN, TRANSMITTANCE_BLOCK, TransmittanceArgs};
pub use declare::{Abi, Arguments, In, Literal, Named, Out, Plain};
pub use densify::{
    COMPACT_BLOCK, COMPACT_SLICES, CompactArgs, DENSIFY_BLOCK, DensityCounts, FadeArgs, GrowArgs,
    ListArgs, OBSERVE_ABSOLUTE, OBSERVE_BLOCK, OBSERVE_DISAGREEMENT, OBSERVE_NORMS, ObserveArgs,
    PaddingArgs, ResetArgs, SAMPLE_BLOCK, SampleArgs, SelectedArgs, SurveyArgs, SurvivorsArgs,
    TABLES,
};
pub use densify::{ColumnsArgs, MortonArgs, REORDER_BLOCK};
pub use densify::{CopyArgs, DrawArgs, NO_SOURCE, RELOCATE_BLOCK, SplitOpacityArgs, WeighArgs};
pub use densify::{DIGITS, DIGITS_BLOCK, DigitsArgs};
pub use fuse::{
    BRICK_DIRECTIONS, BRICK_SIDE, BRICK_VOXELS, BRICK_WIDTH, DISTANCE_STEPS, FARTHEST, FUSE_BLOCK,
    FuseBricksArgs, GRAZING_WEIGHT, LatticeView, MarkBricksArgs, VOXEL_WEIGHT_MAX,
    VOXEL_WEIGHT_MIN, WEIGHED_WIDTH, WeighPixelsArgs,
};
pub use loss::{
    AFFINE_WIDTH, APPEARANCE_BLOCK, COLOR_SHARES, CoastArgs, ColorBwdArgs, CompensateArgs,
    FIT_SUMS, FitArgs, GRID_BWD_BLOCK, GRID_LUMA, GRID_SHARES, GRID_X, GRID_Y, GatherArgs,
    MoveArgs,
};
pub use loss::{
    DEPTH_LOSS_BLOCK, DepthLossArgs, LOSS_BLOCK, LOSS_COLUMNS, LOSS_ROWS, LOSS_TAPS, LossArgs,
};
pub use loss::{
    LPIPS_BLOCK, LPIPS_CHANNELS, LPIPS_DEPTH, LPIPS_EPSILON, LPIPS_PIXELS, LPIPS_SCALE_B,
    LPIPS_SCALE_G, LPIPS_SCALE_R, LPIPS_SHIFT_B, LPIPS_SHIFT_G, LPIPS_SHIFT_R, LpipsCompareArgs,
    LpipsInputArgs, LpipsLayerArgs,
};
pub use loss::{SHRINK_BLOCK, ShrinkArgs};
pub use normals::NormalMapArgs;
pub use normals::{
    AGREEMENT_MIN, CONTRAST_MIN, FACING_MAX, PATCH_REACH, PATCH_SIDE, PATCH_STRIDE, PATCHES_BLOCK,
    PatchesArgs, VARIANCE_FLOOR,
};
pub use normals::{
    DET_MIN_PX4, ResetSmoothedArgs, SAMPLED_MARGIN, SMOOTH_BLOCK, SMOOTH_VIEWS, SmoothArgs,
    SmoothView,
};
pub use normals::{
    FEATURES_BLOCK, FEATURES_WIDTH, FeaturesArgs, NORMALS_BLOCK, NORMALS_SIDE, NormalsArgs,
    OPAQUE_MIN, STEP_MAX, STORED_SQUARE_MIN,
};
pub use normals::{RAY_WIDTH, RAYS_BLOCK, RaysArgs, RaysBwdArgs};
pub use palette::{NearCellsArgs, NearEntriesArgs, PALETTE_BLOCK, PALETTE_CELLS, PALETTE_WIDTH};
pub use probe::{PROBE_BLOCK, ProbeArgs};
pub use project::{BIN_BLOCK, CountRowsArgs, InstancesArgs, RangesArgs};
pub use project::{PROJECT_BLOCK, ProjectArgs};
pub use project::{RANKS_BLOCK, UnpackSplatsArgs};
pub use surface::{BIND_BLOCK, BindArgs};
pub use surface::{
    BOX_WIDTH, EXTENT_WIDTH, JoinArgs, MOST_NEIGHBOURS, NEAREST_BLOCK, NEIGHBOURS_BLOCK, NO_ROW,
    NearestArgs, PLACED_WIDTH, PlaceArgs, SplitArgs, TREE_LEVELS,
};
pub use surface::{
    EntropyArgs, NearArgs, RegulariseArgs, SURFACE_BLOCK, SURFACE_WIDTH, SeenArgs, ShowArgs,
    SurfaceSums,
};
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

/// Returns the text of `abi.cuh`.
pub fn header() -> String {
    [
        "// Printed by kernels/build.rs from src/abi/.\n#pragma once\n\
         #include <cstddef>\n#include <cstdint>\n",
        &view::constants(),
        &view::structs(),
        &terms::constants(),
        &adam::constants(),
        &adam::structs(),
        &project::constants(),
        &project::structs(),
        &blend::constants(),
        &blend::structs(),
        &loss::constants(),
        &loss::structs(),
        &densify::constants(),
        &densify::structs(),
        &normals::constants(),
        &normals::structs(),
        &triangles::constants(),
        &triangles::structs(),
        &palette::constants(),
        &palette::structs(),
        &surface::constants(),
        &surface::structs(),
        &fuse::constants(),
        &fuse::structs(),
        &probe::constants(),
        &probe::structs(),
    ]
    .concat()
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros declare for the product")]
mod tests;
