//! Imports of nearly every test of a device: its traits, types that draw and train, scenes, and comparisons.
#![allow(unused_imports, reason = "each test program uses its part")]

pub use std::sync::Arc;

pub use splat::backend::cpu::{Cpu, Parameter};
pub use splat::backend::{
    AdamStep, Adjust, Candidates, DeviceError, EditRule, Edited, Footprint, Grow, Inputs, Keep,
    LossValues, Measured, MemoryKind, MotionReach, Noise, NormalDepths, Objective, Peaks, Photo,
    Pick, Rates, Regularisers, RenderRequest, RenderSettings, Rendered, ScoreRule, Snapshot,
    Statistics, Stay, Term, Terms, TrainDevice, TrainRequest,
};
pub use splat::backend::{
    Appearance as _, Bind as _, Contributions as _, Device as _, Edit as _, Faces as _,
    Filter3d as _, Fuse as _, Held as _, Lpips as _, NeighbourLists as _, Neighbours as _,
    Pending as _, Render as _, Store as _, Transmittances as _,
};
pub use splat::dataset::{Image, InverseDepthMap, NormalMap, View};
pub use splat::math::morton::Cube;
pub use splat::math::{Divisor, Real};
pub use splat::memory::plan::Storage;
pub use splat::model::{Gaussians, Primitive};

pub use super::drawing::{DrawSettings, Loss, Pass, Seen, Steps, drawn_either};
pub use super::oracle::{
    AT_REST, COLOURS, Counted, DensifyRule, FirstStep, GRADIENT_TOLERANCE, RelocateRule, Shot,
    assert_columns_agree, assert_differences, assert_first_steps_agree, assert_gradients_agree,
    assert_images_agree, assert_losses_agree, assert_view_differences, clear_gaussians,
    clear_pixels, densify, gradient_tolerance, gradients, mean_size, multiply, observed,
    relative_error, relocate, score, settings, shot, step, three_shots,
};
pub use super::scene::{
    COLOUR_RATES, EACH_RATE, NEAR, RATES, composite, gaussian, in_training, looking_back, moved,
    nine, photo, random_gaussians, resized, rows, straight, tame_gaussians, together,
};
pub use super::surface::{SurfaceRule, SurfaceTerms, add_rule, masked};
pub use super::{Draws, assert_relative, derivative, derivative_between_cuts, view, with};
