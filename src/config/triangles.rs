//! Options of `--primitive triangles`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::PrimitiveName;
use super::declare::{ADVANCED, Idle, options, when};
use super::values::{Checked, count, holds, positive, rate, share};

/// Largest number of samples along a side of a pixel.
const MAX_SAMPLES: u32 = 4;

/// Facts that decide which options have an effect.
pub(super) struct TriangleRun {
    pub(super) primitive: PrimitiveName,
    pub(super) reference_gradients: bool,
    /// True if the mesh is connected at some iteration.
    pub(super) is_connected: bool,
}

const NO_TRIANGLES: Idle<TriangleRun> =
    when(|run| run.primitive != PrimitiveName::Triangles, "without --primitive triangles");
const NO_DELAUNAY: Idle<TriangleRun> = when(
    |run| run.primitive != PrimitiveName::Triangles,
    "without --primitive triangles, whose mesh it connects",
);
const NOT_CONNECTED: Idle<TriangleRun> = when(
    |run| run.primitive == PrimitiveName::Triangles && !run.is_connected,
    "without --delaunay-iter",
);
const NO_STRIPS: Idle<TriangleRun> = when(
    |run| run.primitive == PrimitiveName::Triangles && run.reference_gradients,
    "with --reference-gradients: each sample takes its own slope",
);

options! {
    /// Options of triangles between shared vertices (MeshSplatting, Held et al. 2025).
    ///
    /// The defaults are for 30,000 iterations and scale with `--iterations`.
    #[command(next_help_heading = "Triangles")]
    pub struct TrianglesOptions in "triangles" of TriangleRun {
        /// Take MeshSplatting's values for rooms
        ///
        /// These are --feature-lr 0.004, --densify-from-iter 1000, --add-percentage 1.27, --size-probs-zero 0,
        /// --split-large-triangles 500, --start-pruning 3000, --lambda-weight 0 and --prune-size 1300. Options,
        /// presets and files win over them. The iterations are those of a run of 30,000.
        indoor: bool = false, idle NO_TRIANGLES;

        /// First exponent of the window
        ///
        /// A triangle's opacity falls from its middle to its edges by a power: with 1 it is a pyramid, next
        /// to 0 it is solid. The exponent goes linearly to --sigma-final.
        #[arg(value_name = "X", help_heading = ADVANCED)]
        set_sigma: f64 = 1.0, is positive, idle NO_TRIANGLES;

        /// Last exponent of the window
        #[arg(value_name = "X", help_heading = ADVANCED)]
        sigma_final: f64 = 1e-4, is positive, idle NO_TRIANGLES;

        /// Iteration after which the exponent falls
        #[arg(value_name = "N", help_heading = ADVANCED)]
        sigma_start: u32 = 0, idle NO_TRIANGLES;

        /// Iteration at which the exponent is the last
        #[arg(value_name = "N", help_heading = ADVANCED)]
        sigma_until: u32 = 30_000, idle NO_TRIANGLES;

        /// Width of the strip for gradients of an edge, px
        ///
        /// The strip lies inside the triangle. A solid triangle has all of its opacity's slope near its edges, and
        /// samples miss the slope. Gradients therefore take the mean over a strip. With 0 each sample takes its own slope.
        #[arg(value_name = "PX", help_heading = ADVANCED)]
        edge_strip: f64 = 1.0, is rate, idle NO_TRIANGLES, NO_STRIPS;

        /// Give places the gradients of MeshSplatting's program
        ///
        /// They follow how far samples are from their nearest edges, and how deep a vertex is; not what colours
        /// and depths are between the corners, how large the inscribed circle is, or the directions in which
        /// harmonics are seen. Each sample takes its own slope.
        #[arg(help_heading = ADVANCED)]
        reference_gradients: bool = false, idle NO_TRIANGLES;

        /// Iteration after which vertices become opaque
        ///
        /// From then on no vertex is more transparent than a floor, which rises every
        /// --opacity-floor-interval iterations.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        start_opacity_floor: u32 = 5000, idle NO_TRIANGLES;

        /// Iteration at which the floor has risen
        #[arg(value_name = "N", help_heading = ADVANCED)]
        final_opacity_iter: u32 = 24_000, idle NO_TRIANGLES;

        /// Opacity that all vertices have at the end
        #[arg(value_name = "OPACITY", help_heading = ADVANCED)]
        opacity_floor_final: f64 = 0.9999, is |floor| {
            holds((0.0..1.0).contains(floor), floor, "0 and more, less than 1")
        }, idle NO_TRIANGLES;

        /// Iterations between two floors
        #[arg(value_name = "N", help_heading = ADVANCED)]
        opacity_floor_interval: u32 = 500, is count, idle NO_TRIANGLES;

        /// Iteration from which on pixels are supersampled
        #[arg(value_name = "N", help_heading = ADVANCED)]
        start_upsampling: u32 = 24_000, idle NO_TRIANGLES;

        /// Samples along a pixel's side from then on
        ///
        /// The pixel is their mean. Hidden triangles are found with as many. Nothing is stored at a larger size, and lengths in px stay those of
        /// pixels.
        #[arg(value_name = "1..4", help_heading = ADVANCED)]
        upscaling_factor: u32 = 2, is samples, idle NO_TRIANGLES;

        /// Iteration from which on it is --last-upscaling-factor
        #[arg(value_name = "N", help_heading = ADVANCED)]
        last_upsampling: u32 = 28_000, idle NO_TRIANGLES;

        /// Samples along a pixel's side at the end
        #[arg(value_name = "1..4", help_heading = ADVANCED)]
        last_upscaling_factor: u32 = 4, is samples, idle NO_TRIANGLES;

        /// Opacity at which a triangle is removed
        ///
        /// The threshold also applies to a triangle's largest weight, once all training views were seen since the last
        /// densification step. The threshold grows by --prune-threshold-rise with every floor.
        #[arg(value_name = "OPACITY", help_heading = ADVANCED)]
        prune_triangles_threshold: f64 = 0.235, is share, idle NO_TRIANGLES;

        /// Rise of --prune-triangles-threshold with every floor
        #[arg(value_name = "OPACITY", help_heading = ADVANCED)]
        prune_threshold_rise: f64 = 0.01, is rate, idle NO_TRIANGLES;

        /// Size above which a triangle is removed, px
        ///
        /// The largest distance of a corner from the middle in any training view, in pixels of the view as it is
        /// drawn.
        #[arg(value_name = "PX", help_heading = ADVANCED)]
        prune_size: f64 = 1400.0, is positive, idle NO_TRIANGLES;

        /// Iteration after which triangles are removed
        #[arg(value_name = "N", help_heading = ADVANCED)]
        start_pruning: u32 = 4000, idle NO_TRIANGLES;

        /// Growth factor of a densification step
        ///
        /// With 1.23 and 1000 vertices, 230 triangles are each split in four. --split-by says which.
        #[arg(value_name = "FACTOR", help_heading = ADVANCED)]
        add_percentage: f64 = 1.23, is |factor| {
            holds(factor.is_finite() && *factor >= 1.0, factor, "a finite number, 1 and more")
        }, idle NO_TRIANGLES;

        /// Score by which triangles are drawn to be split
        ///
        /// A weight is the largest of a triangle in any sample since the last densification step: its opacity times
        /// the light that reaches it. Norms of gradients are sums over the corners and all views since then.
        #[arg(value_enum, value_name = "SCORE", help_heading = ADVANCED)]
        split_by: SplitBy = SplitBy::Gradient, idle NO_TRIANGLES;

        /// Largest triangles that are split beside those drawn
        #[arg(alias = "splitt-large-triangles", value_name = "N", help_heading = ADVANCED)]
        split_large_triangles: u32 = 100, idle NO_TRIANGLES;

        /// Area below which none is drawn
        ///
        /// In units of training squared; see --unit.
        #[arg(value_name = "AREA", help_heading = ADVANCED)]
        size_probs_zero: f64 = 7.5e-5, is rate, idle NO_TRIANGLES;

        /// Loss weight of the mean opacity before the floor rises
        ///
        /// It counts until --start-opacity-floor, beside --opacity-reg.
        #[arg(value_name = "WEIGHT", help_heading = ADVANCED)]
        lambda_weight: f64 = 1.9e-6, is rate, idle NO_TRIANGLES;

        /// Iteration after which the mesh is connected
        ///
        /// A restricted Delaunay triangulation then replaces the triangles. Later steps split none, and remove only
        /// hidden ones. MeshSplatting has 11,000. 0 leaves the triangles as they are.
        #[arg(value_name = "N")]
        delaunay_iter: u32 = 0, idle NO_DELAUNAY;
        /// Iterations between two removals of hidden triangles
        ///
        /// The first comes N iterations after --delaunay-iter. If N is less than four passes over the training
        /// views, several intervals lie between two removals. A triangle is hidden if no training view, drawn with 0.8
        /// of its focal length, shows it with a weight above half of the floor under all opacities. With 0, they are
        /// removed at the end of the run alone.
        #[arg(value_name = "N", help_heading = ADVANCED)]
        hidden_interval: u32 = 2000, idle NO_TRIANGLES, NOT_CONNECTED;
    }
}

/// Score by which triangles are drawn for a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// Their weights, as MeshSplatting
    Weight,
    /// Weights times norms of the gradients of the corners' places on the screen
    Gradient,
}

fn samples(value: &u32) -> Checked {
    holds((1..=MAX_SAMPLES).contains(value), value, "1 to 4")
}
