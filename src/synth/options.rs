//! Options of a synthetic scene.

use clap::{Args, ValueEnum};

use super::light::Finish;

/// Content of a synthetic scene.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SynthScene {
    /// A lobed ball on a ring, marbles around it, a tiled disc below
    #[default]
    Demo,
    /// A ball of radius 1, seen from all around
    Sphere,
    /// A torus of radii 1 and 0.4, seen from all around
    Torus,
    /// Six solids on a plate, seen from a quarter of a sphere, with masks
    Dtu,
    /// A room of 6 x 4 x 2.7 m with a table, a pillar and a recess, seen from inside
    Room,
    /// Streets and houses on 576 x 576 m, seen from a drone, a small part in each view
    City,
}

impl SynthScene {
    /// Returns true if the photographs have masks.
    pub(super) fn has_masks(self) -> bool {
        self == Self::Dtu
    }
}

/// Options of a synthetic scene.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Scene")]
pub struct SynthOptions {
    /// Contents of the scene
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Self::default().scene)]
    pub scene: SynthScene,

    /// Seed: the same seed gives the same files
    #[arg(long, value_name = "N", default_value_t = Self::default().seed)]
    pub seed: u64,

    /// Leave out highlights
    ///
    /// Every surface is matt: it has the same colour from everywhere.
    #[arg(long)]
    pub matt: bool,

    /// Number of photographs
    ///
    /// The default is 49 of the scene `dtu`, 120 of the room and 2000 of the city.
    #[arg(long, value_name = "N", default_value_t = Self::default().views,
        default_value_ifs = [("scene", "dtu", "49"), ("scene", "room", "120"), ("scene", "city", "2000")])]
    pub views: u32,

    /// Width of the photographs, px
    #[arg(long, value_name = "PX", default_value_t = Self::default().width)]
    pub width: u32,

    /// Height of the photographs, px
    #[arg(long, value_name = "PX", default_value_t = Self::default().height)]
    pub height: u32,

    /// Number of points on the surfaces
    ///
    /// Each takes 64 bytes of memory, for a moment twice as much. Above 1,000,000 points the scene does not record which
    /// views see them.
    #[arg(long, value_name = "N", default_value_t = Self::default().points)]
    pub points: u32,

    /// Cells of the true mesh, truth.ply, along its longest side
    ///
    /// The default is 512 of the room, whose table is 2 cm thick.
    #[arg(long, value_name = "N", default_value_t = Self::default().truth_cells,
        default_value_ifs = [("scene", "room", "512")])]
    pub truth_cells: u32,
}

impl SynthOptions {
    /// Returns the reflection of the surfaces.
    pub(super) fn finish(&self) -> Finish {
        if self.matt { Finish::Matt } else { Finish::Glossy }
    }

    /// Demonstration scene.
    pub const DEMO: Self = Self {
        scene: SynthScene::Demo,
        seed: 0,
        matt: false,
        views: 48,
        width: 160,
        height: 120,
        points: 4000,
        truth_cells: 256,
    };
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self::DEMO
    }
}
