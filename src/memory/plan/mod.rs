//! What a run will take of memory, from the sizes of things alone: no GPU, no driver.
//!
//! Rows go by the labels of the ledger, one to one (`tests/gpu/device_plan.rs` holds them against it).
//! What is computed here mirrors what `backend/cuda` asks its heap for, in the same order, because
//! the scratch arena stacks blocks in the order in which they are taken.

mod appearance;
mod births;
mod coarse;
mod frame;
mod host;
mod library;
mod mapping;
mod model;
mod photographs;
mod round;
mod run;
mod seen;
mod stack;

pub use appearance::ColorTables;
pub use births::{CoarseGrowth, Growth, largest_births};
pub use coarse::{Coarse, FEWER_NEIGHBOURS, Maps, neighbour_lists, search_scratch};
pub use frame::ViewSize;
pub use host::Host;
pub use mapping::Granule;
pub use model::{ModelSize, OptionalColumns, REGIONS, Storage};
pub use photographs::Photographs;
pub use round::RoundShape;
pub use run::{CONTEXT, Forecast, Run, Stage};
pub use seen::Seen;
pub use stack::{Row, Stack};
