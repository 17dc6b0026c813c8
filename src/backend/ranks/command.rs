//! What rank 0 has all ranks do.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::backend::{
    AdamStep, Adjust, Candidates, EditRule, Pick, RankView, RenderSettings, ScoreRule, Sight,
};
use crate::dataset::View;
use crate::math::morton::Cube;

/// The form of what ranks send each other: another number where a command, or what it moves, has changed.
pub const RANK_PROTOCOL: u32 = 4;

/// Something that all ranks do together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum RankCommand {
    /// Open the scene of a run.
    Begin {
        /// The run's configuration, TOML.
        config: String,
        /// The scene's fingerprint.
        scene: u64,
    },
    /// Take rows of a new model.
    Load {
        /// Highest degree of the spherical harmonics.
        sh_degree: u32,
        /// Rows of all ranks.
        rows: usize,
    },
    /// Send rank 0 the rows of these numbers.
    Read(Range<usize>),
    /// Send it the parameters of the rows of these numbers.
    Sample(Vec<usize>),
    /// Put the rows in the order of their places along the Z-curve around a cube, and deal them anew.
    Reorder(Cube),
    /// Project into a view that rank 0 shows or measures.
    Draw(Sight),
    /// Draw, compare and differentiate these views, by rank.
    Train(Vec<Option<RankView>>),
    /// Say what became of the views of the last round.
    Report,
    /// Move down the gradients.
    Step(AdamStep),
    /// Sum the rows' blend weights over views.
    Weigh {
        /// The views.
        views: Vec<View>,
        /// How they are drawn.
        settings: RenderSettings,
    },
    /// Select among candidates.
    Select {
        /// They.
        candidates: Candidates,
        /// Which.
        pick: Pick,
    },
    /// Find the candidates.
    Score(ScoreRule),
    /// Say for how many of so many births there is memory.
    Grant(usize),
    /// Edit the model by what was selected.
    Edit(EditRule),
    /// Change all rows alike.
    Adjust(Adjust),
    /// Find the 3D filter anew from these views.
    Smooth {
        /// The views.
        views: Vec<View>,
        /// Depth from which on they sample the scene.
        sampled_from: f64,
    },
    /// The run is over.
    End,
}
