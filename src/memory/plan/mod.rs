//! What a run will take of memory, from the sizes of things alone: no GPU, no driver.
//!
//! Rows go by the labels of the ledger, one to one. Buffers and their order are those of
//! `layout/`, which the GPU's backend takes its memory by: here they are only counted.

mod births;
mod coarse;
mod drawing;
mod forecast;
mod host;
mod largest;
mod mapping;
mod meshing;
mod nccl;
mod photographs;
mod ranks;
mod refinement;
pub(crate) mod rounds;
mod rows;
mod run;
mod seen;

#[cfg(test)]
#[cfg(kernels)]
pub(crate) use drawing::{DepthLook, PlannedBatch, PlannedDrawing, SampledGaussians};

pub use births::{CoarseGrowth, Growth, HostGrowth, largest_births};
pub use coarse::{FEWER_NEIGHBOURS, PlannedCoarse, neighbour_lists, search_scratch, view_scratch};
pub use drawing::Maps;
pub use forecast::{CONTEXT, Forecast, PlannedStage};
pub use host::{Host, PICTURED_VIEWS, PICTURES_OF_VIEW};
pub use largest::largest_that_fits;
pub use mapping::Granule;
pub use meshing::{PlannedMeshing, SurfaceDrawing};
pub use nccl::{nccl, nccl_blocks};
pub use photographs::{PlannedColorTables, PlannedPhotographs};
pub use refinement::PlannedRefinement;
pub use rounds::RoundShape;
pub use rows::PlannedRow;
pub use run::PlannedRun;
pub use seen::{ViewGrowth, ViewSize};

pub use crate::layout::{BoundSizes, ModelSize, OptionalColumns, REGIONS, Storage};
