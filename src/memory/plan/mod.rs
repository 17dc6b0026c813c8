//! Forecast of the memory of a run, from sizes alone: no GPU, no driver.
//!
//! Rows have the labels of the ledger. The scratch of a stage comes from a dry run of the stage itself ([`DryRun`]).

mod forecast;
mod growth;
mod meshing;
mod refinement;
mod rows;
mod run;
mod work;

pub use forecast::{CONTEXT, Forecast, PlannedStage, largest_that_fits, nccl, nccl_blocks};
pub use growth::{CoarseGrowth, Growth, HostGrowth, most_new_gaussians};
pub use meshing::{PlannedMeshing, SurfaceDrawing};
pub use refinement::{FEWER_NEIGHBOURS, Maps, PlannedCoarse, PlannedRefinement, neighbour_lists};
pub use rows::{
    Granule, Host, PICTURED_VIEWS, PICTURES_OF_VIEW, PlannedColorTables, PlannedPhotographs,
    PlannedRow,
};
pub use run::PlannedRun;
pub use work::{
    DensifyShape, DryRun, PlannedViews, Samples, ViewGrowth, ViewSize, Work, search_scratch,
    view_scratch,
};

pub use crate::layout::{BoundSizes, ModelSize, OptionalColumns, REGIONS, Storage};
