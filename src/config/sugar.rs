//! Options of SuGaR's coarse stage.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::switch::parse_switch;

/// What has Gaussians lie on surfaces once they show the photographs (SuGaR, Guédon and Lepetit 2024).
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Surfaces (SuGaR's coarse stage)")]
pub struct SugarOptions {
    /// Go on behind the last of --iterations with terms that have Gaussians lie on surfaces
    #[arg(long, value_enum, value_name = "TERMS", default_value_t = Self::default().regularize)]
    pub regularize: Regularize,

    /// Iterations of that stage
    #[arg(long, value_name = "N", default_value_t = Self::default().sugar_iterations)]
    pub sugar_iterations: u32,

    /// When the stage does what
    #[arg(long, value_enum, value_name = "SCHEDULE", default_value_t = Self::default().sugar_schedule)]
    pub sugar_schedule: SugarSchedule,

    /// Start the stage from this model folder, of any 3DGS, instead of training the scene's points first
    #[arg(short, long, value_name = "MODEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_path: Option<PathBuf>,

    /// Of that model the iteration to start from [default: its last]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration_to_load: Option<u32>,

    /// Weight of the density's, or the distance field's, difference from that of a surface
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().estimation_factor)]
    pub estimation_factor: f64,

    /// Weight of the difference between a Gaussian's normal and its neighbours'
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().normal_factor)]
    pub normal_factor: f64,

    /// With dn-consistency, weight of the difference between drawn normals and those of drawn depths
    #[arg(long, value_name = "WEIGHT", default_value_t = Self::default().dn_factor)]
    pub dn_factor: f64,

    /// With dn-consistency, have pixels count by their opacity instead of all alike
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().dn_by_opacity, hide_default_value = true)]
    pub dn_by_opacity: bool,

    /// Points that densities, distances and normals are compared at, in each iteration
    #[arg(long, value_name = "N", default_value_t = Self::default().n_samples_for_sdf)]
    pub n_samples_for_sdf: u32,

    /// Nearest neighbours that say what surrounds a Gaussian, itself among them
    #[arg(long, value_name = "K", default_value_t = Self::default().regularity_knn)]
    pub regularity_knn: u32,

    /// Iterations from one comparison at points to the next, which counts for all of them
    #[arg(long, value_name = "N", default_value_t = Self::default().sdf_every)]
    pub sdf_every: u32,

    /// Have a comparison count once, however many iterations lie between two
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_switch, action = ArgAction::Set, default_value_t = Self::default().reference_weighting, hide_default_value = true)]
    pub reference_weighting: bool,
}

impl Default for SugarOptions {
    fn default() -> Self {
        Self {
            regularize: Regularize::None,
            sugar_iterations: 8000,
            sugar_schedule: SugarSchedule::Relative,
            checkpoint_path: None,
            iteration_to_load: None,
            estimation_factor: 0.2,
            normal_factor: 0.2,
            dn_factor: 0.05,
            dn_by_opacity: false,
            n_samples_for_sdf: 1_000_000,
            regularity_knn: 16,
            sdf_every: 1,
            reference_weighting: false,
        }
    }
}

/// What has Gaussians lie on surfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regularize {
    /// Nothing: there is no such stage
    #[default]
    None,
    /// The density around a Gaussian is that of a surface through it
    Density,
    /// The distance from the surface that densities stand for is that from the drawn depths
    Sdf,
    /// As density, and drawn normals are those of the drawn depths
    #[value(alias = "dn_consistency")]
    DnConsistency,
}

/// When SuGaR's coarse stage does what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SugarSchedule {
    /// Counted from the stage's start, wherever that is
    #[default]
    Relative,
    /// At the reference's iterations: from 7,001 to 8,999 opacities, at 9,001 the prune and from there to 15,000 surfaces
    Absolute,
}
