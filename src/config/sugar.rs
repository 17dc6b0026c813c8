//! Options of SuGaR's coarse stage.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::declare::{ADVANCED, Idle, options, when};
use super::values::{count, holds, path, rate};
use crate::abi::MOST_NEIGHBOURS;

const NO_STAGE: Idle<SugarOptions> =
    when(|sugar| sugar.regularize == Regularize::None, "without --regularize");
const NO_DN_CONSISTENCY: Idle<SugarOptions> = when(
    |sugar| sugar.regularize != Regularize::DnConsistency,
    "without --regularize dn-consistency",
);
const NO_DEPTH_NORMALS: Idle<SugarOptions> = when(
    |sugar| !matches!(sugar.regularize, Regularize::DnConsistency | Regularize::MedianNormal),
    "without --regularize dn-consistency or median-normal",
);

options! {
    /// Options of surface regularization after the photometric stage (SuGaR, Guédon and Lepetit 2024).
    #[command(next_help_heading = "Surfaces (SuGaR's coarse stage)")]
    pub struct SugarOptions in "sugar" of SugarOptions {
        /// Surface terms of the coarse stage
        ///
        /// The stage follows the last of --iterations. Its terms move Gaussians onto surfaces.
        #[arg(value_enum, alias = "regularization-type", value_name = "TERMS")]
        regularize: Regularize = Regularize::None;

        /// Iterations of the coarse stage
        #[arg(value_name = "N")]
        sugar_iterations: u32 = 8000, is count, idle NO_STAGE, when(
            |sugar| {
                sugar.regularize != Regularize::None
                    && sugar.sugar_schedule == SugarSchedule::Absolute
            },
            "with --sugar-schedule absolute",
        );

        /// Start of the stage's schedule
        ///
        /// The original program trains opacities from iteration 7,001 to 8,999, prunes at 9,001, and
        /// trains surfaces from there to 15,000.
        #[arg(value_enum, value_name = "SCHEDULE", help_heading = ADVANCED)]
        sugar_schedule: SugarSchedule = SugarSchedule::Relative, idle NO_STAGE;

        /// Start the coarse stage from this model
        ///
        /// A model folder of any 3DGS trainer, or a PLY. The scene's points are not trained first.
        #[arg(short, value_name = "MODEL")]
        checkpoint_path: Option<PathBuf>, is path;

        /// Iteration of the model of -c [default: its last]
        ///
        /// With -c, -i N is the same, unless the scene has a folder N.
        #[arg(value_name = "N")]
        iteration_to_load: Option<u32>,
            idle when(|sugar| sugar.checkpoint_path.is_none(), "without -c");

        /// Weight of the density or SDF term
        ///
        /// The term compares the density, or with sdf the distance field, with that of a surface.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        estimation_factor: f64 = 0.2, is rate, idle NO_STAGE;

        /// Weight of the normal term
        ///
        /// The term compares a Gaussian's normal with those of its neighbours.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        normal_factor: f64 = 0.2, is rate, idle NO_STAGE;

        /// Weight of the depth-normal loss
        ///
        /// It compares rendered normals with normals of rendered depths (dn-consistency) or of median
        /// depths (median-normal).
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        dn_factor: f64 = 0.05, is rate, idle NO_DEPTH_NORMALS;

        /// Compare only opaque pixels in that loss
        ///
        /// A pixel counts where it and those beside it have at least half of all opacity, are not masked,
        /// and have depths without a step between them. With false all pixels count alike, as in SuGaR,
        /// and empty backgrounds fill with black Gaussians.
        #[arg(help_heading = ADVANCED)]
        dn_by_opacity: bool = true, idle NO_DN_CONSISTENCY;

        /// Compare photographs of neighbouring views, too
        ///
        /// Needs --regularize median-normal. A patch of a view's photograph has to look like what a view
        /// beside it shows where the median depth and the normal of the patch's middle put it. Takes
        /// a second photograph in each iteration of surfaces.
        multi_view: bool = false;

        /// Weight of the comparison with neighbouring views
        ///
        /// The term is 1 - the correlation of patches of 7x7 pixels, a mean over all pixels.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        multi_view_factor: f64 = 0.6, is rate,
            idle when(|sugar| !sugar.multi_view, "without --multi-view");

        /// Sample points in each iteration
        ///
        /// Densities, distances and normals are compared there.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        n_samples_for_sdf: u32 = 1_000_000, is count, idle NO_STAGE;

        /// Nearest neighbours of a Gaussian, 1 to 32
        ///
        /// Density, distance and normal at a point are those of these Gaussians. The Gaussian itself is one of them.
        #[arg(value_name = "K", help_heading = ADVANCED)]
        regularity_knn: u32 = 16, is |neighbours| {
            holds((1..=MOST_NEIGHBOURS).contains(neighbours), neighbours, "1 to 32")
        }, idle NO_STAGE;

        /// Iterations between comparisons at samples
        ///
        /// A comparison then counts for all the iterations up to the next.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        sdf_every: u32 = 1, is count, idle NO_STAGE;

        /// Count each comparison at samples once
        ///
        /// Whatever --sdf-every is.
        #[arg(help_heading = ADVANCED)]
        reference_weighting: bool = false,
            idle when(|sugar| sugar.sdf_every == 1, "without --sdf-every");
    }
}

impl SugarOptions {
    /// True if views are compared with neighbour views.
    pub fn compares_views(&self) -> bool {
        self.multi_view
            && self.regularize == Regularize::MedianNormal
            && self.multi_view_factor > 0.0
    }
}

/// Surface terms of the coarse stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regularize {
    /// None: there is no coarse stage
    #[default]
    None,
    /// The density around a Gaussian is that of a surface through it; normals agree
    Density,
    /// The distance implied by the density is that to the rendered depths; normals agree
    Sdf,
    /// As density, and rendered normals agree with rendered depths
    #[value(alias = "dn_consistency")]
    DnConsistency,
    /// As density, and rendered normals agree with the depths by which half of the light is stopped
    #[value(alias = "median_normal")]
    MedianNormal,
}

/// Reference point of the schedule of SuGaR's coarse stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SugarSchedule {
    /// At the stage's first iteration
    #[default]
    Relative,
    /// At the original program's iterations
    Absolute,
}
