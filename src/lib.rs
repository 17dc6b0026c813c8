//! Gaussian splatting: from a COLMAP scene to a PLY.
//!
//! Modules stand in the order of data flow; a module uses only those above it.

pub mod memory;

pub mod math;

pub mod files;

pub mod config;

pub mod dataset;

pub mod synth;

pub mod model;

pub mod export;

pub mod backend;

pub mod train;

pub mod telemetry;
