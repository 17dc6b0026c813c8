//! Buffers outside the model and the views: reports, learned colours, photographs, the LPIPS network, points in space,
//! contributions of Gaussians, and measurements.
//!
//! Photographs have 8 bits per value: resident while memory suffices, else in two upload buffers.

use super::placement::ALIGNMENT;
use super::slot::{CallLen, ModelLen, ProcessLen, StageLen};
use crate::abi::CONTRIBUTION_WIDTH;

/// Coordinates of a point.
const PLACE_WIDTH: u32 = 3;

slots! {
    ProcessLen {
        pub CONTEXT: u8 = "context and code", Context, ProcessLen, 1,
            "what the driver needs, and the kernels";
        pub SCRATCH: u8 = "scratch", Arena, ProcessLen, 1,
            "what the buffers of an iteration lie in";
        pub STATUS: u64 = "status", Reports, ProcessLen, 1, "what kernels report in";
        pub COUNTS: u64 = "counts", Reports, ProcessLen, 1, "numbers that kernels report";
        pub RANK_COUNTS: u64 = "counts of ranks", Reports, ProcessLen, 2,
            "how much of the model each rank's view sees";
        pub RANK_COUNTS_READ: u64 = "counts of ranks read", Reports, ProcessLen, 2,
            "numbers that kernels report";
        pub REPORTS: u64 = "reports", Reports, ProcessLen, 1, "numbers that kernels report";
    }
    ModelLen {
        pub COLOR_TABLES: f32 = "colour tables", Parameters, ModelLen, 1,
            "what the photographs' cameras did to colours";
        pub RESIDENT_PHOTOS: u8 = "photographs", Photographs, ModelLen, 1,
            "photographs that stay on the GPU";
    }
    StageLen {
        pub LPIPS_WEIGHTS: f32 = "lpips weights", Lpips, StageLen, 1,
            "a network that compares views with photographs";
        pub LPIPS_FEATURES: f32 = "lpips features", Lpips, StageLen, 1, "what it sees of them";
        pub LPIPS_SUMS: f64 = "lpips sums", Lpips, StageLen, 1, "what it sees of them";
        pub ABSENT: u8 = "absent", Statistics, StageLen, 1, "which Gaussians are left out";
        pub CONTRIBUTIONS: f32 = "worths", Statistics, StageLen, CONTRIBUTION_WIDTH,
            "what each Gaussian adds to the likeness of views and photographs";
        pub PHOTOS_IN_TURN: u8 = "photographs in turn", Photographs, StageLen, 1,
            "photographs that are sent again for each iteration";
        pub PHOTOS_ON_THEIR_WAY: u8 = "photographs on their way", Photographs, StageLen, 1,
            "photographs on their way to the GPU";
    }
    CallLen {
        pub LIBRARY_SCRATCH: u8 = "sort", Library, CallLen, 1, "sorting";
        pub COPY_TEST: u8 = "copy", Diagnosis, CallLen, 1, "how fast the GPU copies";
        pub PLACES: f32 = "places", Surface, CallLen, PLACE_WIDTH,
            "places that light passes to";
        pub TRANSMITTANCES: f32 = "transmittances", Surface, CallLen, 1,
            "how much light passes to places";
        pub VIEW_CONTRIBUTIONS: f32 = "worths in a view", Statistics, CallLen, CONTRIBUTION_WIDTH,
            "what each Gaussian adds to the likeness of a view and its photograph";
        pub PROBE_INPUTS: f32 = "probe inputs", Diagnosis, CallLen, 1,
            "functions of the GPU that are tested";
        pub PROBE_OUTPUTS: f32 = "probe outputs", Diagnosis, CallLen, 1,
            "functions of the GPU that are tested";
    }
}

/// Divisor of the memory that the model and the scratch leave: resident photographs take at most half, since the
/// model grows.
const SHARE_OF_WHAT_IS_LEFT: u64 = 2;

/// Returns the start of a photograph after one that ends at `end`.
pub fn photo_after(end: u64) -> u64 {
    end.next_multiple_of(ALIGNMENT)
}

/// Returns the bytes that all resident photographs may take of `left` free bytes.
pub fn fair_share(left: u64) -> u64 {
    left / SHARE_OF_WHAT_IS_LEFT
}
