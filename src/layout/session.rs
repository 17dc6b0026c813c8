//! Buffers outside the model and the views: reports, learned colours, the LPIPS network, points in space,
//! contributions of Gaussians, and measurements.

use super::slot::{CallLen, ModelLen, ProcessLen, StageLen};
use crate::abi::WORTH_WIDTH;

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
    }
    StageLen {
        pub LPIPS_WEIGHTS: f32 = "lpips weights", Lpips, StageLen, 1,
            "a network that compares views with photographs";
        pub LPIPS_FEATURES: f32 = "lpips features", Lpips, StageLen, 1, "what it sees of them";
        pub LPIPS_SUMS: f64 = "lpips sums", Lpips, StageLen, 1, "what it sees of them";
        pub ABSENT: u8 = "absent", Statistics, StageLen, 1, "which Gaussians are left out";
        pub WORTHS: f32 = "worths", Statistics, StageLen, WORTH_WIDTH,
            "what each Gaussian adds to the likeness of views and photographs";
    }
    CallLen {
        pub LIBRARY_SCRATCH: u8 = "sort", Library, CallLen, 1, "sorting";
        pub COPY_TEST: u8 = "copy", Diagnosis, CallLen, 1, "how fast the GPU copies";
        pub PLACES: f32 = "places", Surface, CallLen, PLACE_WIDTH,
            "places that light passes to";
        pub TRANSMITTANCES: f32 = "transmittances", Surface, CallLen, 1,
            "how much light passes to places";
        pub SEEN_WORTHS: f32 = "worths in a view", Statistics, CallLen, WORTH_WIDTH,
            "what each Gaussian adds to the likeness of a view and its photograph";
        pub PROBE_INPUTS: f32 = "probe inputs", Diagnosis, CallLen, 1,
            "functions of the GPU that are tested";
        pub PROBE_OUTPUTS: f32 = "probe outputs", Diagnosis, CallLen, 1,
            "functions of the GPU that are tested";
    }
}
