//! What a model is made of.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::StrategyName;
use super::implied::Implied;

/// What is trained, and drawn of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrimitiveName {
    /// 3D Gaussians, as 3DGS
    #[default]
    Gaussians,
    /// Flat Gaussians that rays meet: discs, as 2DGS
    Surfels,
    /// Triangles between shared vertices, opaque at the end, as MeshSplatting
    Triangles,
}

impl PrimitiveName {
    /// The options that it brings its own values of, where no layer says otherwise.
    pub(super) fn implied(self, strategy: StrategyName) -> Option<Implied> {
        match self {
            // Its authors' `opacity_cull`, for density control as theirs (Huang et al. 2024). Of another
            // strategy opacities may be lower for longer.
            Self::Surfels if strategy.grows_by_gradient() => Some(Implied {
                origin: "primitive surfels",
                text: "[densify]\nmin_opacity = 0.05\n",
            }),
            // Its authors' values (Held et al. 2025), but for the exponent of the size, views that are small at
            // first, the rate of opacities, which stays 0.05 as theirs does in rooms.
            Self::Triangles => Some(Implied {
                origin: "primitive triangles",
                text: "[optimize]\nposition_lr_init = 1.5e-3\nposition_lr_final = 1.5e-5\n\
                       position_lr_by_size = 0.5\nresolution_schedule = \"linear\"\n\
                       feature_lr = 1.6e-3\ninit_opacity = 0.28\n\
                       depth_l1_weight_init = 0.01\ndepth_l1_weight_final = 0.001\n\
                       [densify]\ndensification_interval = 500\ndensify_until_iter = 10000\n",
            }),
            Self::Gaussians | Self::Surfels => None,
        }
    }

    /// The same of triangles in a room, above those: its authors' values for `--indoor`, but that maps of depths
    /// still count.
    pub(super) fn implied_indoors(self, is_indoors: bool) -> Option<Implied> {
        (self == Self::Triangles && is_indoors).then_some(Implied {
            origin: "indoor",
            text: "[optimize]\nfeature_lr = 4e-3\n\
                   [densify]\ndensify_from_iter = 1000\n\
                   [triangles]\nadd_percentage = 1.27\nsize_probs_zero = 0.0\n\
                   split_large_triangles = 500\nstart_pruning = 3000\n\
                   lambda_weight = 0.0\nprune_size = 1300.0\n",
        })
    }
}
