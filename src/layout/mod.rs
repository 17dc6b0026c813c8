//! Layout of device memory: every buffer with its length, and the order of allocations.
//!
//! A [`Slot`] is one buffer. Groups of slots reserve buffers from a [`Source`]: a GPU's heap, which allocates, or a
//! [`Replay`], which only counts, so that forecasts equal allocations. The module never touches a device. The group
//! of slots of a stage in `backend/cuda/` has the stage's name with the suffix `Slots`: `Canvas` has `CanvasSlots`.

#[macro_use]
mod slot;
mod bound;
mod colors;
mod densify;
mod fusion;
pub mod library;
mod list;
mod model;
mod placement;
mod replay;
mod request;
mod schema;
mod search;
mod session;
mod transfer;
mod view;

pub use bound::{BOUND_GRADIENTS, BOUND_MESH, BOUND_VALUES, BoundCount, BoundSizes};
pub use colors::{ColorSlots, ColorUse};
pub use densify::{
    Choice, DENSITY_COUNTS, DENSITY_DIGITS, DensifySizes, Draw, DrawSizes, FETCHED_COLUMN,
    MOVED_COLUMNS, MOVED_WORDS, MoveSizes, Moves, SelectionSlots, Smoothing,
};
pub use fusion::{BRICK_MARKS, BRICKS, BrickSlots, DepthSlots, DepthUse, VOXELS, marks_len};
pub use library::Library;
pub use list::{
    BANDS, BackwardSlots, CountSlots, INSTANCES, KeyWidth, Keys, List, ListSizes, OrderSlots,
    ROW_INSTANCES,
};
pub use model::{
    ABSOLUTE_NORM_SUMS, ALL_FACES, CacheTables, FACE_GRADIENT_NORMS, FACE_REACHES, FACE_WEIGHTS,
    FACES, FACES_PER_VERTEX, FILTER_3D, GAUSSIANS, GRADIENT_NORM_SUMS, MIDPOINTS, MemoryPlace,
    ModelCount, ModelSize, OptionalColumns, REGIONS, SH_DRIFTS, SH_LINES, SH_STEPS, Storage,
    TRIANGLES, VIEWS_SEEN, forms, table_len, table_slots,
};
pub use placement::{ALIGNMENT, Placement, Spot, block_beside, spare, with_gap};
pub use replay::{Live, Replay, ReplayBlock, Scratch, ScratchLog};
pub use request::{Records, Use, ViewRequest};
pub use schema::LANES;
pub use schema::{
    Column, Forms, Rate, RowForm, Schema, Space, TABLE_PARTS, Table, Width, sh_rest_values,
};
pub use search::{
    FAN, NEIGHBOURS, PALETTE_ROWS, SearchLengths, SearchLists, SearchOrder, SearchSizes,
    SearchTree, along_bits,
};
pub use session::{
    ABSENT, COLOR_TABLES, CONTEXT, CONTRIBUTIONS, COPY_TEST, COUNTS, LIBRARY_SCRATCH,
    LPIPS_FEATURES, LPIPS_SUMS, LPIPS_WEIGHTS, PHOTOS_IN_TURN, PHOTOS_ON_THEIR_WAY, PLACES,
    PROBE_INPUTS, PROBE_OUTPUTS, RANK_COUNTS, RANK_COUNTS_READ, REPORTS, RESIDENT_PHOTOS, SCRATCH,
    STATUS, TRANSMITTANCES, VIEW_CONTRIBUTIONS, fair_share, photo_after,
};
pub use slot::{
    CallLen, Count, Lifetime, ModelLen, ProcessLen, Purpose, Slot, SlotInfo, Source, StageLen,
    Taken,
};
pub use transfer::{CONVERSION, PackSizes, ROWS_TO_PACK, STAGING, STAGING_WORDS, SampleSlots};
pub use view::{
    CanvasSlots, FeatureSlots, NearRows, PixelGradients, Projected, RaySlots, SURFACE_GRADIENTS,
    Samples, SentSplats, ShrunkSlots, SplatSlots, SurfaceRows, VERTEX_GRADIENTS, ViewSizes,
    splat_capacity,
};

/// Returns the bytes of the arena that listing and drawing takes.
pub use list::need as need_of_list;

/// All slots, one table per file.
pub const ALL: [&[SlotInfo]; 10] = [
    session::ALL,
    bound::ALL,
    model::ALL,
    transfer::ALL,
    view::ALL,
    colors::ALL,
    fusion::ALL,
    list::ALL,
    densify::ALL,
    search::ALL,
];

/// Returns the slot with this label; `None` if there is none or more than one.
pub fn only(label: &str) -> Option<&'static SlotInfo> {
    let mut found = ALL.into_iter().flatten().filter(|slot| slot.label == label);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Returns the first slot with this label.
pub fn named(label: &str) -> Option<&'static SlotInfo> {
    ALL.into_iter().flatten().find(|slot| slot.label == label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_one_label_have_one_purpose() {
        for slot in ALL.into_iter().flatten() {
            let first = named(slot.label).map(|first| (first.purpose, first.words));
            assert_eq!(first, Some((slot.purpose, slot.words)), "{}", slot.label);
        }
    }
}
